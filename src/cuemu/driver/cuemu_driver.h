/* SPDX-License-Identifier: BSD-3-Clause */

/* What the parts of the emulated CUDA driver know of each other. */
#ifndef CUEMU_DRIVER_H_
#define CUEMU_DRIVER_H_

#include "cuemu_session.h"
#include "toolkit.h"

#include <stddef.h>
#include <stdint.h>

/* Answer of cuDriverGetVersion: the newest API that clients were tried with */
#define CUEMU_DRIVER_VERSION 13000

/* ------------------------------------------------------- entry points */

/*
 * Every exported function starts with the same few plain instructions, which
 * memory hooks know how to move elsewhere, and is its own piece of code: those
 * that driver 580 begins with, whose fourth UCX before 1.20 does not know. The
 * load of eax only makes the movable part long enough for a far jump.
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

/* State of one entry point: its name, its calls, and what shall go wrong. */
typedef struct cuemu_gate {
    const char        *name;
    unsigned           flags;
    uint64_t           calls;
    struct cuemu_gate *next;  /* once called; NULL: not yet */
} cuemu_gate_t;

enum {
    CUEMU_GATE_NO_INIT = 1, /* may be called before cuInit */
    CUEMU_GATE_LACKS   = 2  /* there in name alone */
};

/* SUCCESS if the call may go on; else the error it has to return. */
CUresult cuemu_gate_enter(cuemu_gate_t *gate);

/* What a call returns that went so: bytes may have been lost meanwhile. */
CUresult cuemu_gate_leave(const cuemu_gate_t *gate, CUresult result);

/* Of CUEMU_FAULT, for what is no function: its error if this is the n-th. */
CUresult cuemu_gate_fault(const char *name);

/* For tests, which look these up by name. */
#define CUEMU_FOR_TESTS __attribute__((visibility("default")))

/* Instead of CUEMU_FAULT, and in its form, from now on: which calls shall fail.
   Counts from here. NULL: none. While no other thread calls. 0 or -1. */
CUEMU_FOR_TESTS int cuemu_fault(const char *faults);

/* How often this process called a function, with all its versions. */
CUEMU_FOR_TESTS unsigned long long cuemu_calls(const char *name);

/* What this process holds of the driver, as text: equal texts, equal holdings.
   Returns `text`. */
CUEMU_FOR_TESTS const char *cuemu_census(char *text, size_t size);

/* cuda.h makes macros of many names; here they are pasted, never expanded. */
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

/* Defines the driver API function `_name`; a body follows. */
#define CUEMU_API(_name, _decl, _args) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, 0, _decl, _args)

#define CUEMU_API_FLAGS(_name, _flags, _decl, _args) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, _flags, _decl, _args)

/* Another exported name, code of its own, for a function defined above. */
#define CUEMU_ALSO(_name, _same_as) \
    CUEMU_THUNK(#_name, "cuemu_in_" #_same_as)

/* ------------------------------------------------------------- objects */

typedef struct cuemu_context cuemu_context_t;
typedef struct cuemu_stream  cuemu_stream_t;
typedef struct cuemu_event   cuemu_event_t;

/* Handles are checked without being dereferenced; memory of dead objects is
   reused late, so that stale handles are caught. */
typedef struct cuemu_object {
    uint32_t             type;
    struct cuemu_object *next_free;
} cuemu_object_t;

typedef enum {
    CUEMU_OBJ_FREE = 0,
    CUEMU_OBJ_CONTEXT,
    CUEMU_OBJ_STREAM,
    CUEMU_OBJ_EVENT,
    CUEMU_OBJ_POOL,
    CUEMU_OBJ_HANDLE,
    CUEMU_OBJ_GRAPH,
    CUEMU_OBJ_NODE,
    CUEMU_OBJ_EXEC,
    CUEMU_OBJ_MODULE,
    CUEMU_OBJ_FUNCTION,
    CUEMU_OBJ_LIBRARY,
    CUEMU_OBJ_LINK,
    CUEMU_OBJ_KERNEL,
    CUEMU_OBJ_LAST
} cuemu_obj_type_t;

/* A zeroed object of `size` bytes (always the same for a type), or NULL. */
void *cuemu_object_new(cuemu_obj_type_t type, size_t size);
void cuemu_object_delete(void *obj);

/* How many objects of the type are live. */
unsigned cuemu_object_count(cuemu_obj_type_t type);

/* The object if `handle` is a live one of that type, else NULL. */
void *cuemu_object_check(const void *handle, cuemu_obj_type_t type);

/* Its context is gone: it is live no more, and its memory nobody else's. */
void cuemu_object_retire(void *obj);
void cuemu_object_revive(void *obj);

/* Non-zero if that has happened to it. */
int cuemu_object_is_stale(const void *handle, cuemu_obj_type_t type);

/* The live object behind `after` (NULL: the first), in any order; NULL: none.
   While no other thread makes or deletes one of the type. */
void *cuemu_object_next(cuemu_obj_type_t type, const void *after);

/* The real driver dies in this call, or never returns: so does the program,
   with a sentence on stderr. */
void cuemu_die(const char *what, const void *handle)
        __attribute__((noreturn));

#define CUEMU_MAX_WAITS 16

/* Nodes of a graph that is captured */
typedef struct {
    CUgraphNode *nodes;
    size_t       count;
} cuemu_front_t;

struct cuemu_stream {
    cuemu_object_t   obj;
    cuemu_context_t *ctx;
    unsigned         flags;    /* CU_STREAM_NON_BLOCKING */
    int              priority;
    uint64_t         id;
    cuemu_op_id_t    last;     /* newest operation, 0: none */
    cuemu_op_id_t    lingers;  /* before `last`, until somebody asks; or 0 */
    cuemu_op_id_t    watched;  /* that somebody waits for */
    cuemu_op_id_t    waits[CUEMU_MAX_WAITS]; /* events, for what comes next */
    unsigned         num_waits;
    cuemu_time_t     submitted; /* when `last` was */
    cuemu_stream_t  *next;     /* in the context */
    struct cuemu_capture *capture; /* NULL: none; see capture.c */
    cuemu_stream_t  *next_captured;
    cuemu_front_t    front;    /* what its next node comes behind */
};

struct cuemu_event {
    cuemu_object_t   obj;
    cuemu_context_t *ctx;
    unsigned         flags;
    int              recorded;
    cuemu_op_id_t    op;       /* held in the simulation, 0: completed */
    cuemu_time_t     start;    /* when it was recorded */
    cuemu_time_t     end;      /* when its work was done, once op is 0 */
    uint64_t         change;   /* shared->change when last found not ready */
    int              polled;   /* somebody waits for it */
    uint64_t         capture;  /* that it was last recorded in, 0: none */
    cuemu_front_t    front;    /* ... behind these */
};

/* That a context may be given access to; of all the process's */
#define CUEMU_MAX_PEERS 64

struct cuemu_context {
    cuemu_object_t  obj;
    int             device;    /* ordinal */
    int             gpu;       /* of the node */
    unsigned        flags;
    uint64_t        id;
    int             primary;   /* one handle a device, dead or alive */
    int             refs;      /* of a primary one; a reset leaves them */
    int             alive;
    int             fault;     /* CUresult of a kernel that failed, or 0 */
    cuemu_context_t *peers[CUEMU_MAX_PEERS]; /* whose memory it may use, and
                                                NULL */
    cuemu_stream_t *null_stream;
    cuemu_stream_t *streams;   /* all others */
};

/* Devices that this process may see, by ordinal. */
typedef struct {
    int             initialized;
    int             num_devices;
    int             gpu[CUEMU_MAX_GPUS];       /* index in the node */
    unsigned        primary_flags[CUEMU_MAX_GPUS];
    cuemu_context_t *primary[CUEMU_MAX_GPUS];
    int             default_sync_memops;
} cuemu_process_t;

extern cuemu_process_t cuemu_process;

/* Guards this process's tables; taken before the session's lock. */
void cuemu_lock(void);
void cuemu_unlock(void);

/* Current context of the thread; NULL if there is none (or it is dead). */
cuemu_context_t *cuemu_context_current(void);
/* What a call without one returns. */
CUresult cuemu_context_error(void);
void cuemu_context_wait(cuemu_context_t *ctx); /* until all its work is done */
void cuemu_process_wait(void); /* ... of all contexts; see cuMemFreeHost */
/* Until nobody is in there: copies of page-locked memory have to. */
void cuemu_process_wait_unlocked(void);
int cuemu_context_depth(void); /* of the thread's stack */
/* Whether one was let use the memory that was allocated in the other */
int cuemu_context_has_peer(const cuemu_context_t *ctx,
                           const cuemu_context_t *peer);
int cuemu_device_of_gpu(int gpu);              /* ordinal, -1 if not visible */

/* The event behind a handle, or the error that a call returns. */
CUresult cuemu_event_resolve(CUevent handle, cuemu_event_t **event_p);

/* Streams and events of a context go with it. With the lock. */
void cuemu_stream_retire(cuemu_context_t *ctx);

/* The stream that a handle means in the current context. */
CUresult cuemu_stream_resolve(CUstream handle, cuemu_stream_t **stream_p);
cuemu_stream_t *cuemu_stream_new(cuemu_context_t *ctx, unsigned flags,
                                 int priority);
void cuemu_stream_free(cuemu_stream_t *stream);

/* -------------------------------------------------------------- memory */

typedef enum {
    CUEMU_MEM_DEVICE,   /* cuMemAlloc */
    CUEMU_MEM_IPC,      /* opened from another process */
    CUEMU_MEM_VMM,      /* cuMemMap */
    CUEMU_MEM_POOL,     /* cuMemAllocAsync */
    CUEMU_MEM_MANAGED,
    CUEMU_MEM_HOST,     /* cuMemHostAlloc */
    CUEMU_MEM_HOST_REG  /* cuMemHostRegister */
} cuemu_mem_kind_t;

/* In cuemu_mem_t.flags of VMM memory, beside a bit per GPU that may use it: the
   CPU may */
#define CUEMU_VMM_CPU (1u << 31)

/* A block of GPU memory that small allocations share. */
typedef struct cuemu_slab cuemu_slab_t;

typedef struct cuemu_mem {
    uint64_t         base, size;  /* as the program sees them */
    cuemu_mem_kind_t kind;
    int              gpu;         /* of the node; host: nearest one */
    uint64_t         offset;      /* in the GPU's memory */
    int              extent;      /* shared->extents, -1 if none */
    uint64_t         va, va_size; /* address range to give back; 0: none */
    cuemu_context_t *ctx;         /* NULL: none */
    uint64_t         id;          /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned         flags;
    int              sync_memops;
    uint64_t         staged;      /* newest copy of pageable memory to it */
    int              refs;        /* IPC: opened how often */
    int              readonly;
    cuemu_slab_t    *slab;
    void            *owner;       /* pool or allocation handle */
    int              imported;    /* POOL: of another process's */
    int              on_host;     /* VMM: in the host's memory; the emulator
                                     has its bytes in a GPU's file */
    int              numa;        /* ... of this NUMA node */
} cuemu_mem_t;

/* Host memory: what the driver says that it is. */
int cuemu_mem_is_host(const cuemu_mem_t *mem);

/* May kernels of a context use it? By rights of the memory's own, where it has
   some, else of the contexts'. */
int cuemu_mem_is_reached(const cuemu_mem_t *mem, const cuemu_context_t *ctx);

/* The piece around an address, inside a page of `size` bytes (a power of 2),
   that a kernel may use; its memory is there. Without a lock. */
struct cuemu_ptx_range;
void cuemu_mem_page(const cuemu_context_t *ctx, uint64_t addr, uint64_t size,
                    struct cuemu_ptx_range *range);

/* Bytes into a GPU's memory, at once. */
CUresult cuemu_mem_poke(uint64_t addr, const void *data, uint64_t size);

/* Looks up with cuemu_lock(); the result is valid while it is held. */
cuemu_mem_t *cuemu_mem_find(uint64_t addr);

/* Non-zero if a record has some of addr..addr+size. With the lock. */
int cuemu_mem_overlaps(uint64_t addr, uint64_t size);

/* How many records of a kind there are, and how often they are held. */
unsigned cuemu_mem_count(cuemu_mem_kind_t kind, unsigned *refs_p);

/* Some record of this owner's, of one extent or (-1) any; NULL: there is none.
   With the lock. */
cuemu_mem_t *cuemu_mem_of(const void *owner, int extent);

/* Bytes of all that is this owner's. With the lock. */
uint64_t cuemu_mem_bytes_of(const void *owner);

/* Adds a record (copied); NULL if out of memory or overlapping. */
cuemu_mem_t *cuemu_mem_add(const cuemu_mem_t *mem);
void cuemu_mem_remove(cuemu_mem_t *mem);

/* Reserves addresses, PROT_NONE; 0 if there are none. `align`: power of 2. */
uint64_t cuemu_va_reserve(uint64_t hint, uint64_t size, uint64_t align);
void cuemu_va_release(uint64_t va, uint64_t size);
/* Is it an address that only the driver gives out, in use now or not? */
int cuemu_va_is_driver(uint64_t addr);
/* Lets the CPU touch reserved addresses behind which lies memory of this file
   (PROT_READ, PROT_WRITE; -1: memory of nobody else's), or (PROT_NONE) no more.
   0 or -1. */
int cuemu_va_protect(uint64_t va, uint64_t size, int prot, int fd,
                     uint64_t offset);
/* The reservation that holds addr..addr+size, 0 if none. */
uint64_t cuemu_va_find(uint64_t addr, uint64_t size);
/* ... and how large it is; 0 if there is none that begins there. */
uint64_t cuemu_va_size(uint64_t va);

/* Where bytes are, for a copy. */
typedef struct {
    int              gpu;      /* of the node, -1: memory of this process */
    uint64_t         offset;   /* in the GPU's memory, or the address */
    cuemu_place_t    place;    /* for the time it takes */
    int              pageable;
    int              locked;   /* page-locked host memory */
    int              sync_memops;
    int              reached;  /* by the context that asked */
    cuemu_context_t *ctx;      /* that it was opened or allocated in */
} cuemu_range_t;

/* Bytes at an address that lie in one piece of a GPU's memory, `size` at most:
   fewer where pieces are mapped side by side. With cuemu_lock(). */
uint64_t cuemu_mem_run(uint64_t addr, uint64_t size);

/* INVALID_VALUE if the range is not wholly in one place. `ctx` is to use it.
   With cuemu_lock(). */
CUresult cuemu_mem_resolve(uint64_t addr, uint64_t size,
                           const cuemu_context_t *ctx, cuemu_range_t *range_p);

/* Memory of `gpu`, its own extent, new addresses. Fills gpu, offset, extent,
   va and base. With cuemu_lock(). */
CUresult cuemu_mem_back(cuemu_mem_t *mem, int gpu, uint64_t size);
/* Gives back what cuemu_mem_back() took. */
void cuemu_mem_unback(cuemu_mem_t *mem, int free_it);

CUresult cuemu_mem_alloc_device(cuemu_context_t *ctx, size_t size,
                                cuemu_mem_kind_t kind, void *owner,
                                CUdeviceptr *ptr_p);
/* Takes back what cuMemFreeAsync released since; without the lock. */
void cuemu_pool_collect(void);

/* Whether a GPU was let use a pool's memory (cuMemPoolSetAccess) */
int cuemu_pool_is_open(const void *pool, int gpu);
CUresult cuemu_mem_free_device(CUdeviceptr ptr, int from_stream);

/* A mapping from another process is going. With the lock. */
void cuemu_ipc_forget(const cuemu_mem_t *mem);

/* The cluster whose nodes share memory over NVLink (CUEMU_FABRIC, a number),
   or 0: no such thing. */
uint64_t cuemu_fabric(void);

/* A unique number in the session. */
uint64_t cuemu_unique_id(void);

/* ---------------------------------------------------------------- work */

/* What a simulated operation does when it is served. */
typedef enum {
    CUEMU_PAYLOAD_NONE = 0,
    CUEMU_PAYLOAD_MOVE,
    CUEMU_PAYLOAD_FILL,
    CUEMU_PAYLOAD_CALL,   /* host function, of the process `owner` */
    CUEMU_PAYLOAD_WATCH,  /* somebody waits, see cuemu_work_watch() */
    CUEMU_PAYLOAD_KERNEL  /* kernel.c's */
} cuemu_payload_kind_t;

typedef struct {
    int32_t  kind;
    int32_t  move;                    /* shared->moves, -1: not listed */
    int32_t  src_gpu, dst_gpu;        /* -1: memory of the owner */
    uint64_t src, dst;
    uint64_t width, height;           /* bytes of a row, rows */
    uint64_t src_pitch, dst_pitch;
    uint64_t value;                   /* FILL */
    uint32_t value_size;
    uint32_t spare;
    uint64_t func, arg, stream;       /* CALL; MOVE: memory to be freed; FILL
                                         of the owner's memory: its context */
} cuemu_payload_t;

typedef struct {
    cuemu_op_desc_t desc;
    cuemu_payload_t payload;
} cuemu_work_t;

/* Emulated time now. */
cuemu_time_t cuemu_now(void);

/* A thread comes into the driver or leaves it; these may nest. */
void cuemu_work_call_begin(void);
void cuemu_work_call_end(void);

/* What a call costs on this node. */
cuemu_time_t cuemu_cost(cuemu_call_t call);

/* Holds the caller until emulated time `until`. */
void cuemu_work_spend_until(cuemu_time_t until);
void cuemu_work_spend(cuemu_call_t call);

/* The same, and other threads' calls that begin within its last part, which
   takes as long as `held`, wait for its end. */
void cuemu_work_spend_held(cuemu_call_t call, cuemu_call_t held);

/* A moment of a call that waits until others, or some work, have ended. */
void cuemu_work_pause(void);

/* Holds the caller until no other thread's call holds up all others. */
void cuemu_work_wait_held(void);

/* Operations of the process in one stream; waits for room if need be. `at`: end
   of the submitting call. With cuemu_lock(). */
cuemu_op_id_t cuemu_work_submit(cuemu_stream_t *stream, cuemu_work_t *work,
                                const cuemu_op_id_t *deps, unsigned num_deps,
                                cuemu_time_t at);

/* The operation that ends when all work of the stream until now has; 0 if it
   has. With cuemu_lock(). */
cuemu_op_id_t cuemu_work_tail(cuemu_stream_t *stream);

/* Its newest operation, 0 if that is done; what other streams have before it
   does not count. With cuemu_lock(). */
cuemu_op_id_t cuemu_work_last(cuemu_stream_t *stream);

/* Holds up what comes next in an idle stream, for a while and until the process
   asks for it: by work behind it, or by waiting for the stream or an event in
   it. Kept as stream->lingers; 0: the stream is not idle. With cuemu_lock(). */
cuemu_op_id_t cuemu_work_linger(cuemu_stream_t *stream, cuemu_time_t now);

/* Ends what cuemu_work_linger() holds up, in all streams. With cuemu_lock(). */
void cuemu_work_hurry_all(void);

/* Adds a plain operation. With cuemu_lock(). */
cuemu_op_id_t cuemu_work_add(cuemu_work_t *work, const cuemu_op_id_t *deps,
                             unsigned num_deps, cuemu_time_t at);

/* Sets up the time and bytes of copying width x height. */
void cuemu_work_set_move(cuemu_work_t *work, const cuemu_range_t *dst,
                         uint64_t dst_pitch, const cuemu_range_t *src,
                         uint64_t src_pitch, uint64_t width, uint64_t height);

/* Says which GPU's engine it is: that of the stream's or the node's context. */
void cuemu_work_set_engine(cuemu_work_t *work, int gpu,
                           const cuemu_range_t *dst, const cuemu_range_t *src);

/* Zero if a copy between the two has to go through the host. */
int cuemu_work_is_direct(const cuemu_range_t *dst, const cuemu_range_t *src);

/*
 * Without peer access the driver goes through host memory, in pieces, so that
 * both halves of the way are busy all the time. Adds the halves and leaves
 * `work` as what follows them and moves the bytes.
 */
void cuemu_work_stage(cuemu_work_t *work, const cuemu_op_id_t *deps,
                      unsigned num_deps, cuemu_time_t at,
                      cuemu_op_id_t halves[2]);

/* Copy in a stream, direct or through the host, as the pair needs. */
cuemu_op_id_t cuemu_work_copy(cuemu_stream_t *stream, cuemu_work_t *work,
                              int direct, cuemu_time_t at);

int cuemu_work_done(cuemu_op_id_t op);

/* Work that goes on until a word of memory is as it should be, as a kernel that
   spins on it would; see cuStreamWaitValue32. With cuemu_lock(). */
CUresult cuemu_work_wait_value(cuemu_stream_t *stream,
                               const cuemu_range_t *word, uint32_t value,
                               unsigned how, cuemu_time_t at);

/*
 * Somebody in this process waits for the operation: once it is done the clock
 * stands still until the process looks (or, if it does not, for a moment), so
 * that the machine's load does not show in when a program learns of it.
 */
cuemu_op_id_t cuemu_work_watch(cuemu_op_id_t op);

void cuemu_work_wait(cuemu_op_id_t op); /* never with a lock held */

/* Does what is due. Returns non-zero if anything happened. */
int cuemu_work_progress(void);

/* Room in the file behind GPU memory: 0, or -1 if there is none. */
int cuemu_populate(int gpu, uint64_t offset, uint64_t size);

/* ------------------------------------------------------------- kernels */

/* SUCCESS unless a kernel of the context failed: then all that is asked of it
   returns this. */
CUresult cuemu_context_fault(const cuemu_context_t *ctx);

/* ... for a call of that name, by the calling thread's context */
CUresult cuemu_kernel_fault(const char *call);

/* A kernel's operation is due: `arg` is its payload's. */
void cuemu_kernel_serve(uint64_t arg);

/* Modules of a context go with it. With the lock. */
void cuemu_module_retire(cuemu_context_t *ctx);

/* Counters for the report at exit. */
extern uint64_t cuemu_stat_moves, cuemu_stat_bytes, cuemu_stat_torn;

/* Process start, fork and end. */
CUresult cuemu_process_start(void);
void cuemu_work_stop(void);

/* This process is the child of one that has called the driver. */
extern int cuemu_gate_forked;

/* Set while a host function runs, which may not call the driver. */
extern __thread int cuemu_in_callback;

#endif
