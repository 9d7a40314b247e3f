/* SPDX-License-Identifier: BSD-3-Clause */

/* Entry points of the emulated driver. */
#ifndef CUEMU_GATE_H_
#define CUEMU_GATE_H_

#include "cuemu_context.h"

/* Result of cuDriverGetVersion: the newest API tested with clients */
#define CUEMU_DRIVER_VERSION 13000

/*
 * Begin every exported function with the same plain instructions, which memory
 * hooks can move elsewhere when they patch the function. They are those of
 * driver 580, except that UCX before 1.20 does not know the fourth one. Each
 * function has its own copy. The load of eax makes the movable part long enough
 * for a far jump.
 */
#if defined(__x86_64__)
#define CUEMU_THUNK(_name, _target) \
    __asm__(".pushsection .text\n" \
            ".p2align 4\n" \
            ".globl " _name "\n" \
            ".type " _name ", @function\n" \
            _name ":\n" \
            ".cfi_startproc\n" \
            "push %rbp\n" \
            ".cfi_def_cfa_offset 16\n" \
            ".cfi_offset %rbp, -16\n" \
            "mov %rsp, %rbp\n" \
            ".cfi_def_cfa_register %rbp\n" \
            "push %r12\n" \
            "sub $0x8, %rsp\n" \
            "mov $0, %eax\n" \
            "leave\n" \
            ".cfi_def_cfa %rsp, 8\n" \
            ".cfi_restore %rbp\n" \
            "jmp " _target "\n" \
            ".cfi_endproc\n" \
            ".size " _name ", . - " _name "\n" \
            ".popsection\n")
#else
#define CUEMU_THUNK(_name, _target) \
    __asm__(".pushsection .text\n" \
            ".p2align 4\n" \
            ".globl " _name "\n" \
            ".type " _name ", %function\n" \
            _name ":\n" \
            "b " _target "\n" \
            ".size " _name ", . - " _name "\n" \
            ".popsection\n")
#endif

/* State of one entry point: name, number of calls, injected faults */
typedef struct cuemu_gate {
    const char        *name;
    unsigned           flags;
    uint64_t           calls;
    struct cuemu_gate *next;  /* next called function */
} cuemu_gate_t;

enum {
    CUEMU_GATE_NO_INIT = 1, /* may be called before cuInit */
    CUEMU_GATE_LACKS   = 2, /* always NOT_SUPPORTED */
    CUEMU_GATE_CONTEXT = 4  /* needs a current context */
};

/* Begin a call: count it, report it to the clock, and check whether it may run.
   Returns SUCCESS, or the error that the call has to return. May wait for
   another thread's call, see cuemu_work_wait_held(). In both cases
   cuemu_gate_leave() must follow. */
CUresult cuemu_gate_enter(cuemu_gate_t *gate);

/* End a call, report it if it failed, and return its result: OUT_OF_MEMORY
   instead of SUCCESS if bytes were lost because the memory's file system is
   full. */
CUresult cuemu_gate_leave(const cuemu_gate_t *gate, CUresult result);

/* Count an operation that is no function, such as "kernel", and return the
   error that CUEMU_FAULT sets for this occurrence, or SUCCESS. */
CUresult cuemu_gate_fault(const char *name);

/* Exported for tests and the emulated runtime, which find them by name */
#define CUEMU_PRIVATE __attribute__((visibility("default")))

/* Replace CUEMU_FAULT by `faults`, in the same form: calls to fail, counted
   from now. NULL: no call. No other thread may call the driver meanwhile.
   Returns 0; -1 if some are malformed (reported on stderr): the others
   apply. */
CUEMU_PRIVATE int cuemu_fault(const char *faults);

/* Return the text of a result, and set *name_p to its name; NULL if unknown.
   Works in any process, also without cuInit(). */
CUEMU_PRIVATE const char *cuemu_result(int result, const char **name_p);

/* Return how often this process called a function, in all its versions. */
CUEMU_PRIVATE unsigned long long cuemu_calls(const char *name);

/* Write the numbers of this process's driver objects and memory blocks by kind
   to `text`, cut to `size`: equal numbers give equal texts. Modules, libraries
   and links are not counted. Returns `text`. */
CUEMU_PRIVATE const char *cuemu_census(char *text, size_t size);

/* cuda.h makes macros of many names: paste them here, never expand them. */
#define CUEMU_ENTRY(_str, _in, _in_str, _do, _flags, _decl, _args) \
    static CUresult _do _decl; \
    CUresult _in _decl; \
    CUEMU_THUNK(_str, _in_str); \
    __attribute__((used, visibility("hidden"))) CUresult _in _decl \
    { \
        static cuemu_gate_t cuemu_gate = {_str, _flags, 0, NULL}; \
        CUresult cuemu_result          = cuemu_gate_enter(&cuemu_gate); \
        cuemu_result = (cuemu_result == CUDA_SUCCESS) ? _do _args : \
                                                        cuemu_result; \
        return cuemu_gate_leave(&cuemu_gate, cuemu_result); \
    } \
    static CUresult _do _decl

/* Define the driver API function `_name`; a body follows. */
#define CUEMU_API(_name, _decl, _args) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, 0, _decl, _args)

/* Define a function that runs only with a valid context: cuemu_context_top().
   Another thread may destroy it meanwhile. */
#define CUEMU_CTX_API(_name, _decl, _args) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, CUEMU_GATE_CONTEXT, _decl, _args)

#define CUEMU_API_FLAGS(_name, _flags, _decl, _args) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, _flags, _decl, _args)

/* Export a function defined above under another name, with code of its own. */
#define CUEMU_ALSO(_name, _same_as) \
    CUEMU_THUNK(#_name, "cuemu_in_" #_same_as)

/* Set at the process's end: later calls fail */
extern int cuemu_gate_ended;

/* Check that every call passes once a stream was captured: returns SUCCESS, or
   the call's error. NULL: no capture so far. */
extern CUresult (*cuemu_gate_ask)(const char *call);

#endif
