/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Kernels without a GPU: PTX text is parsed into decoded instructions, which
 * are carried out for the threads of a block in step.
 *
 * What is known is what nvcc makes of plain kernels: integers of all sizes,
 * float and double, half and bfloat16 as numbers, memory of all spaces,
 * atomics, barriers, warp shuffles and votes, calls of functions by name. Not
 * known: other calls, textures, tensor cores, clusters. PTX with anything else
 * is refused with its name and line. The words are those of "Parallel Thread
 * Execution ISA", NVIDIA.
 *
 * Nothing here knows of the driver; memory is reached by a function that the
 * caller gives.
 */
#ifndef CUEMU_PTX_H_
#define CUEMU_PTX_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUEMU_PTX_ERROR_SIZE 256
#define CUEMU_PTX_MAX_PLACES 32

typedef struct cuemu_ptx_module cuemu_ptx_module_t;
typedef struct cuemu_ptx_kernel cuemu_ptx_kernel_t;

/* A variable of the module: .global or .const */
typedef struct {
    const char *name;
    uint64_t    size;     /* bytes */
    uint64_t    align;
    const void *init;     /* `size` bytes; NULL: zeros */
    uint64_t    address;  /* of the memory that the caller made for it */
} cuemu_ptx_global_t;

typedef struct {
    const char *name;
    unsigned    num_params;
    uint32_t    params_size;     /* bytes, all parameters */
    uint32_t    shared_size;     /* bytes, static */
    uint32_t    local_size;      /* bytes a thread */
    unsigned    max_threads;     /* of a block, 0: not said */
    unsigned    num_registers;   /* virtual ones */
    unsigned    num_instructions;
} cuemu_ptx_info_t;

typedef enum {
    CUEMU_PTX_OK = 0,
    CUEMU_PTX_NO_MEMORY,
    CUEMU_PTX_SYNTAX,        /* not PTX */
    CUEMU_PTX_NOT_KNOWN,     /* PTX, but nothing that is carried out here */
    CUEMU_PTX_BAD_ADDRESS,   /* at run time, as are those below */
    CUEMU_PTX_MISALIGNED,
    CUEMU_PTX_TRAP,
    CUEMU_PTX_ASSERT,
    CUEMU_PTX_DEADLOCK,      /* threads wait for others that never come */
    CUEMU_PTX_TIMEOUT        /* it executed more than it may */
} cuemu_ptx_status_t;

/*
 * Parses a module. `error` (CUEMU_PTX_ERROR_SIZE bytes) holds one sentence with
 * the line if it is refused: SYNTAX, NOT_KNOWN, NO_MEMORY.
 */
cuemu_ptx_status_t cuemu_ptx_load(const char *text, size_t size,
                                  cuemu_ptx_module_t **module_p, char *error);
void cuemu_ptx_unload(cuemu_ptx_module_t *module);

/* NULL if there is none of the name; `name` NULL: the index-th. */
cuemu_ptx_kernel_t *cuemu_ptx_kernel(cuemu_ptx_module_t *module,
                                     const char *name, unsigned index);

/* A kernel of a long module is parsed when it is first used, by this: with one
   sentence in `error` if it is refused. */
cuemu_ptx_status_t cuemu_ptx_kernel_parse(cuemu_ptx_kernel_t *kernel,
                                          char *error);
void cuemu_ptx_kernel_info(const cuemu_ptx_kernel_t *kernel,
                           cuemu_ptx_info_t *info);

/* Bytes from the beginning of the parameters, and bytes. */
void cuemu_ptx_kernel_param(const cuemu_ptx_kernel_t *kernel, unsigned index,
                            uint32_t *offset_p, uint32_t *size_p);

/* NULL past the last one. Addresses are to be set before anything runs. */
cuemu_ptx_global_t *cuemu_ptx_global(cuemu_ptx_module_t *module,
                                     unsigned index);

/* A piece of memory that a kernel may use: begin <= address < end. */
typedef struct cuemu_ptx_range {
    uint64_t begin, end;
    char    *memory;    /* of `begin`; NULL: nothing that may be used */
    int      writable;
    int      place;     /* that its bytes are counted for, < MAX_PLACES */
} cuemu_ptx_range_t;

typedef struct {
    uint64_t read[CUEMU_PTX_MAX_PLACES];    /* bytes */
    uint64_t written[CUEMU_PTX_MAX_PLACES];
    uint64_t instructions;                  /* times threads */
    uint64_t blocks;
    uint64_t slept;                         /* ns, of the longest block */
} cuemu_ptx_count_t;

/* Grid and block are in threads and blocks: x, y, z. */
typedef struct {
    unsigned    grid[3], block[3];
    uint32_t    dynamic_shared;     /* bytes */
    const void *params;             /* params_size bytes */
    uint64_t    first, last;        /* blocks to run, first <= i < last; block
                                       i is x + grid.x * (y + grid.y * z) */
    int         dry;                /* count only: no store is made */
    uint64_t    max_instructions;   /* times threads; 0: any number */

    /* The piece of memory around an address; called again for each page of
       CUEMU_PTX_PAGE bytes, so that pieces may be larger. */
    void      (*map)(void *arg, uint64_t address, cuemu_ptx_range_t *range);
    void       *arg;
    uint64_t  (*clock)(void *arg);  /* nanoseconds; NULL: there is none */
} cuemu_ptx_launch_t;

#define CUEMU_PTX_PAGE 65536

/*
 * Runs blocks of a kernel, one after the other; several callers may at once.
 * Adds to `count`. OK, NO_MEMORY, or what went wrong, with a sentence in
 * `error` that names kernel, line, block and thread.
 */
cuemu_ptx_status_t cuemu_ptx_run(const cuemu_ptx_kernel_t *kernel,
                                 const cuemu_ptx_launch_t *launch,
                                 cuemu_ptx_count_t *count, char *error);

#ifdef __cplusplus
}
#endif

#endif
