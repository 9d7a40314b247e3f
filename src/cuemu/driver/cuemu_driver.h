/* SPDX-License-Identifier: BSD-3-Clause */

/* Declarations shared by the parts of the emulated CUDA driver. */
#ifndef CUEMU_DRIVER_H_
#define CUEMU_DRIVER_H_

#include "cuemu_session.h"
#include "toolkit.h"

#include <stddef.h>
#include <stdint.h>

/* Result of cuDriverGetVersion: the newest API tested with clients */
#define CUEMU_DRIVER_VERSION 13000

/* ------------------------------------------------------- entry points */

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
    CUEMU_GATE_LACKS   = 2  /* always NOT_SUPPORTED */
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

/* Exported for tests, which find them by name */
#define CUEMU_FOR_TESTS __attribute__((visibility("default")))

/* Replace CUEMU_FAULT by `faults`, in the same form: calls to fail, counted
   from now. NULL: no call. No other thread may call the driver meanwhile.
   Returns 0; -1 if some are malformed (reported on stderr): the others
   apply. */
CUEMU_FOR_TESTS int cuemu_fault(const char *faults);

/* Return how often this process called a function, in all its versions. */
CUEMU_FOR_TESTS unsigned long long cuemu_calls(const char *name);

/* Write the numbers of this process's driver objects and memory blocks by kind
   to `text`, cut to `size`: equal numbers give equal texts. Modules, libraries
   and links are not counted. Returns `text`. */
CUEMU_FOR_TESTS const char *cuemu_census(char *text, size_t size);

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

#define CUEMU_API_FLAGS(_name, _flags, _decl, _args) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, _flags, _decl, _args)

/* Export a function defined above under another name, with code of its own. */
#define CUEMU_ALSO(_name, _same_as) \
    CUEMU_THUNK(#_name, "cuemu_in_" #_same_as)

/* ------------------------------------------------------------- objects */

typedef struct cuemu_context cuemu_context_t;
typedef struct cuemu_stream  cuemu_stream_t;
typedef struct cuemu_event   cuemu_event_t;

/* Header of all objects behind handles. Handles are checked without being
   dereferenced. Memory of deleted objects is reused late, so that stale handles
   are detected. */
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

/* Return a zeroed object of `size` bytes, or NULL. The size is the same for all
   objects of a type. */
void *cuemu_object_new(cuemu_obj_type_t type, size_t size);

/* Make a live object's handle invalid, and its memory available to later
   objects of the type. Not for retired objects. */
void cuemu_object_delete(void *obj);

/* Return the number of live objects of the type. */
unsigned cuemu_object_count(cuemu_obj_type_t type);

/* Return the live object of this type behind `handle`, or NULL. */
void *cuemu_object_check(const void *handle, cuemu_obj_type_t type);

/* Make an object's handle invalid when its context ends. The memory is never
   reused. */
void cuemu_object_retire(void *obj);

/* Undo cuemu_object_retire(), for a primary context that begins again. */
void cuemu_object_revive(void *obj);

/* Return non-zero if the object was retired. */
int cuemu_object_is_stale(const void *handle, cuemu_obj_type_t type);

/* Return the live object behind `after` (NULL: the first), in any order; NULL
   after the last. No other thread may create or delete objects of the type
   meanwhile. */
void *cuemu_object_next(cuemu_obj_type_t type, const void *after);

/* End the program with a sentence on stderr, where the real driver crashes or
   never returns. */
void cuemu_die(const char *what, const void *handle)
        __attribute__((noreturn));

#define CUEMU_MAX_WAITS 16

/* A set of nodes of a captured graph */
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
    cuemu_op_id_t    last;     /* newest operation, 0: no operation */
    cuemu_op_id_t    lingers;  /* operation delaying `last`, see
                                  cuemu_work_linger(); 0: no delay */
    cuemu_op_id_t    watched;  /* last operation passed to cuemu_work_watch() by
                                  a query */
    cuemu_op_id_t    waits[CUEMU_MAX_WAITS]; /* events for the next operation */
    unsigned         num_waits;
    cuemu_time_t     submitted; /* time of submission of `last` */
    cuemu_stream_t  *next;     /* in the context */
    struct cuemu_capture *capture; /* NULL: not captured; see capture.c */
    cuemu_stream_t  *next_captured;
    cuemu_front_t    front;    /* dependencies of the next node */
};

struct cuemu_event {
    cuemu_object_t   obj;
    cuemu_context_t *ctx;
    unsigned         flags;
    int              recorded;
    cuemu_op_id_t    op;       /* running operation, 0: completed */
    cuemu_time_t     start;    /* time of recording */
    cuemu_time_t     end;      /* end time of its work; valid if op is 0 */
    uint64_t         change;   /* shared->change at the last NOT_READY */
    int              polled;   /* a program polls it */
    uint64_t         capture;  /* its last capture, 0: not captured */
    cuemu_front_t    front;    /* its dependencies in the capture */
};

/* Peers of a context, over all GPUs of the process */
#define CUEMU_MAX_PEERS 64

struct cuemu_context {
    cuemu_object_t  obj;
    int             device;    /* ordinal */
    int             gpu;       /* index in the node */
    unsigned        flags;
    uint64_t        id;
    int             primary;   /* one handle per device, valid or not */
    int             refs;      /* references to a primary context; a reset keeps
                                  them */
    int             alive;
    int             fault;     /* CUresult of a failed kernel, or 0 */
    cuemu_context_t *peers[CUEMU_MAX_PEERS]; /* accessible peers; NULL: free
                                                entry, anywhere */
    cuemu_stream_t *null_stream;
    cuemu_stream_t *streams;   /* explicit streams */
};

/* Devices visible to this process, by ordinal */
typedef struct {
    int             initialized;
    int             num_devices;
    int             gpu[CUEMU_MAX_GPUS];       /* index in the node */
    unsigned        primary_flags[CUEMU_MAX_GPUS];
    cuemu_context_t *primary[CUEMU_MAX_GPUS];
    int             default_sync_memops;
} cuemu_process_t;

extern cuemu_process_t cuemu_process;

/* Lock this process's tables. Take this lock before the session's. */
void cuemu_lock(void);
void cuemu_unlock(void);

/* Return the thread's current context, NULL if there is no valid one. */
cuemu_context_t *cuemu_context_current(void);
/* Return the error of a call without a current context. */
CUresult cuemu_context_error(void);
/* Wait for all work queued in the context so far. Call without any lock. */
void cuemu_context_wait(cuemu_context_t *ctx);
/* Wait for all work queued in all contexts so far, as cuMemFreeHost and
   cuMemHostUnregister do. Call without any lock. */
void cuemu_process_wait(void);
/* Wait until no thread is inside cuemu_process_wait(): copies of page-locked
   memory have to. Call without any lock. */
void cuemu_process_wait_unlocked(void);
int cuemu_context_depth(void); /* Return the depth of the calling thread's
                                  context stack */
/* Return non-zero if `ctx` may access memory allocated in `peer`. */
int cuemu_context_has_peer(const cuemu_context_t *ctx,
                           const cuemu_context_t *peer);
int cuemu_device_of_gpu(int gpu);              /* ordinal, -1 if not visible */

/* Find the event behind a handle, or return the call's error. */
CUresult cuemu_event_resolve(CUevent handle, cuemu_event_t **event_p);

/* Retire streams and events of a context. Call with the lock. */
void cuemu_stream_retire(cuemu_context_t *ctx);

/* Find the stream of a handle. The handles of default streams (NULL,
   CU_STREAM_LEGACY, CU_STREAM_PER_THREAD) mean those of the current context;
   others may be of any context. Returns the call's error if there is no such
   stream. Ends the program for a stream whose context has ended, as the real
   driver does. Call without the lock. */
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

/* In cuemu_mem_t.flags of VMM memory, beside one bit per accessing GPU: the CPU
   has access */
#define CUEMU_VMM_CPU (1u << 31)

/* A block of GPU memory shared by small allocations */
typedef struct cuemu_slab cuemu_slab_t;

typedef struct cuemu_mem {
    uint64_t         base, size;  /* address and size as seen by the program */
    cuemu_mem_kind_t kind;
    int              gpu;         /* GPU's index in the node; for host memory
                                     the nearest one */
    uint64_t         offset;      /* in the GPU's memory */
    int              extent;      /* shared->extents, -1: no extent */
    uint64_t         va, va_size; /* address range to release; 0: no range */
    cuemu_context_t *ctx;         /* NULL: no context */
    uint64_t         id;          /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned         flags;
    int              sync_memops;
    uint64_t         staged;      /* newest operation copying pageable memory to
                                     it */
    int              refs;        /* IPC: number of opens */
    int              readonly;
    cuemu_slab_t    *slab;
    void            *owner;       /* pool or allocation handle */
    int              imported;    /* POOL: from another process */
    int              is_freed;    /* POOL: cuMemFreeAsync was called */
    int              on_host;     /* VMM: host memory; the emulator keeps its
                                     bytes in a GPU's file */
    int              numa;        /* NUMA node of host memory */
} cuemu_mem_t;

/* Return non-zero for memory reported as host memory by the driver. */
int cuemu_mem_is_host(const cuemu_mem_t *mem);

/* Return non-zero if kernels of a context may use the memory: by the memory's
   own access rights if it has any, otherwise by the contexts'. */
int cuemu_mem_is_reached(const cuemu_mem_t *mem, const cuemu_context_t *ctx);

/* Find the range around an address that a kernel of `ctx` may use, within a
   page of `size` bytes (a power of 2), and make its memory present.
   range->memory is NULL, and the rest undefined, if the kernel may not use the
   address or there is no room. Needs no lock. */
struct cuemu_ptx_range;
void cuemu_mem_page(const cuemu_context_t *ctx, uint64_t addr, uint64_t size,
                    struct cuemu_ptx_range *range);

/* Write bytes to a GPU's memory immediately, without modelled time.
   INVALID_VALUE unless the range is inside one allocation or mapping of GPU
   memory; OUT_OF_MEMORY if the file system is full. Takes the lock. */
CUresult cuemu_mem_poke(uint64_t addr, const void *data, uint64_t size);

/* Find the record of the memory that contains an address; NULL if the driver
   does not know the memory. Call with cuemu_lock(); the result is valid while
   the lock is held. */
cuemu_mem_t *cuemu_mem_find(uint64_t addr);

/* Return non-zero if a record overlaps addr..addr+size. Call with the lock. */
int cuemu_mem_overlaps(uint64_t addr, uint64_t size);

/* Return the number of records of a kind, and the sum of their references. */
unsigned cuemu_mem_count(cuemu_mem_kind_t kind, unsigned *refs_p);

/* Return any record of this owner, of one extent or (-1) of all; NULL if there
   is none. Call with the lock. */
cuemu_mem_t *cuemu_mem_of(const void *owner, int extent);

/* Return the bytes in use of all records of this owner. Call with the lock. */
uint64_t cuemu_mem_bytes_of(const void *owner);

/* Add a copy of a record and return the copy; NULL if out of memory or
   overlapping. Call with the lock. */
cuemu_mem_t *cuemu_mem_add(const cuemu_mem_t *mem);
/* Remove a record and free it. Its memory and addresses stay allocated. Call
   with the lock. */
void cuemu_mem_remove(cuemu_mem_t *mem);

/* Reserve the lowest free addresses, with PROT_NONE; 0 if there are none left.
   `hint` is ignored. `align` is a power of 2, or 0: at least CUEMU_GRANULE is
   used. Call with the lock. */
uint64_t cuemu_va_reserve(uint64_t hint, uint64_t size, uint64_t align);
/* Give back the reservation that begins at `va`; `size` is ignored. Does not
   remove access given by cuemu_va_protect(). Call with the lock. */
void cuemu_va_release(uint64_t va, uint64_t size);
/* Return non-zero for addresses that only the driver allocates, in use or
   free. */
int cuemu_va_is_driver(uint64_t addr);
/* Give the CPU access to reserved addresses (`prot` PROT_READ, PROT_WRITE or
   both), backed by the file `fd` from `offset` on (-1: private memory), or
   remove the access (PROT_NONE). Returns 0 or -1. */
int cuemu_va_protect(uint64_t va, uint64_t size, int prot, int fd,
                     uint64_t offset);
/* Return the start of the reservation around addr..addr+size, 0 if there is
   none. */
uint64_t cuemu_va_find(uint64_t addr, uint64_t size);
/* Return the size of the reservation that begins at `va`, 0 if there is
   none. */
uint64_t cuemu_va_size(uint64_t va);

/* Location of bytes to copy */
typedef struct {
    int              gpu;      /* GPU's index in the node; -1: memory of this
                                  process */
    uint64_t         offset;   /* in the GPU's memory, or the address */
    cuemu_place_t    place;    /* place whose links determine the copy's time */
    int              pageable;
    int              locked;   /* page-locked host memory */
    int              sync_memops;
    int              reached;  /* accessible by the calling context */
    cuemu_context_t *ctx;      /* its allocating or opening context */
} cuemu_range_t;

/* Return the number of bytes, up to `size`, that lie behind an address in one
   piece of a GPU's memory: fewer than `size` where mappings of several pieces
   are adjacent. `size` if the address is in no mapping of cuMemMap(). Call with
   cuemu_lock(). */
uint64_t cuemu_mem_run(uint64_t addr, uint64_t size);

/* Find the location of a range for use by `ctx`. Memory unknown to the driver
   is pageable. INVALID_VALUE unless the range lies in one place, for free
   addresses of the driver, and for mappings before cuMemSetAccess(). Call with
   cuemu_lock(). */
CUresult cuemu_mem_resolve(uint64_t addr, uint64_t size,
                           const cuemu_context_t *ctx, cuemu_range_t *range_p);

/* Allocate memory of `gpu` in an extent of its own and map it at new addresses.
   Sets gpu, offset, extent, va and base. Call with cuemu_lock(). */
CUresult cuemu_mem_back(cuemu_mem_t *mem, int gpu, uint64_t size);
/* Undo cuemu_mem_back(). `free_it`: free the extent as its owner. */
void cuemu_mem_unback(cuemu_mem_t *mem, int free_it);

/* Allocate memory of the context's GPU, of kind DEVICE or POOL; `owner` is the
   pool, or NULL. Takes the lock. */
CUresult cuemu_mem_alloc_device(cuemu_context_t *ctx, size_t size,
                                cuemu_mem_kind_t kind, void *owner,
                                CUdeviceptr *ptr_p);
/* Free the memory of cuMemFreeAsync calls that their streams have reached. Call
   without the lock. */
void cuemu_pool_collect(void);

/* Return non-zero if cuMemPoolSetAccess gave the GPU access to a pool. The
   pool's own GPU has access without it: not counted here. */
int cuemu_pool_is_open(const void *pool, int gpu);

/* Free the DEVICE, POOL or MANAGED memory that begins at `ptr`; INVALID_VALUE
   for any other address. Waits first for the work of the memory's context, if
   it has one, unless `from_stream`: a stream has reached cuMemFreeAsync. Call
   without the lock. */
CUresult cuemu_mem_free_device(CUdeviceptr ptr, int from_stream);

/* Forget a mapping of another process's memory. Call with the lock. */
void cuemu_ipc_forget(const cuemu_mem_t *mem);

/* Return the number of the cluster that shares memory over NVLink
   (CUEMU_FABRIC), 0 if there is none. */
uint64_t cuemu_fabric(void);

/* Return a number unique in the session. */
uint64_t cuemu_unique_id(void);

/* ---------------------------------------------------------------- work */

/* Action of a simulated operation when it is served */
typedef enum {
    CUEMU_PAYLOAD_NONE = 0,
    CUEMU_PAYLOAD_MOVE,
    CUEMU_PAYLOAD_FILL,
    CUEMU_PAYLOAD_CALL,   /* host function in the process `owner` */
    CUEMU_PAYLOAD_WATCH,  /* wake a waiter, see cuemu_work_watch() */
    CUEMU_PAYLOAD_KERNEL  /* served by kernel.c */
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

/* Return the current emulated time. */
cuemu_time_t cuemu_now(void);

/* Report to the clock that the calling thread enters the driver. Pairs with
   cuemu_work_call_end() may nest: the outermost pair counts. */
void cuemu_work_call_begin(void);

/* Report to the clock that the calling thread leaves the driver. */
void cuemu_work_call_end(void);

/* Return the time of a call on this node, ps. */
cuemu_time_t cuemu_cost(cuemu_call_t call);

/* Hold the caller until emulated time `until`, serving due operations
   meanwhile. Returns at once if that time has passed. */
void cuemu_work_spend_until(cuemu_time_t until);

/* Hold the caller for the time of a call that has found or done something. */
void cuemu_work_spend(cuemu_call_t call);

/* Hold the caller for a query that found nothing done. Takes longer, the longer
   this thread has found nothing; ends early with a copy's end or the work of
   another rank. */
void cuemu_work_spend_polling(cuemu_call_t call);

/* Hold the caller for `call`. During the last part, as long as `held` takes,
   calls of other threads wait until it ends. */
void cuemu_work_spend_held(cuemu_call_t call, cuemu_call_t held);

/* Wait for a moment, in a loop that waits for other calls or for work: serve
   due operations, or hold the caller for 1 us. */
void cuemu_work_pause(void);

/* Hold the caller while a call of another thread is in the part given to
   cuemu_work_spend_held() as `held`. */
void cuemu_work_wait_held(void);

/* Submit an operation to a stream, waiting for room if necessary. `at` is the
   end of the submitting call. Returns the operation, 0 on failure. Call with
   cuemu_lock(). */
cuemu_op_id_t cuemu_work_submit(cuemu_stream_t *stream, cuemu_work_t *work,
                                const cuemu_op_id_t *deps, unsigned num_deps,
                                cuemu_time_t at);

/* Return an operation that ends when all work in the stream so far has ended; 0
   if it has. Call with cuemu_lock(). */
cuemu_op_id_t cuemu_work_tail(cuemu_stream_t *stream);

/* Return the stream's newest operation, 0 if it has ended. Work of other
   streams before it does not count. Call with cuemu_lock(). */
cuemu_op_id_t cuemu_work_last(cuemu_stream_t *stream);

/* Delay the next operation in an idle stream, at most for a while, until the
   process waits for it: by submitting work behind it, or by waiting for the
   stream or an event in it. Kept as stream->lingers; 0: the stream is not idle.
   Call with cuemu_lock(). */
cuemu_op_id_t cuemu_work_linger(cuemu_stream_t *stream, cuemu_time_t now);

/* End all delays by cuemu_work_linger(). Call with cuemu_lock(). */
void cuemu_work_hurry_all(void);

/* Add an operation that belongs to no stream, waiting for room if necessary.
   `at`: its earliest submission time. Fills the owner and payload of
   work->desc. Returns the operation; 0 on failure (reported on stderr). Call
   with cuemu_lock(). */
cuemu_op_id_t cuemu_work_add(cuemu_work_t *work, const cuemu_op_id_t *deps,
                             unsigned num_deps, cuemu_time_t at);

/* Describe a copy of `height` rows of `width` bytes; pitches in bytes. Sets the
   places that determine its time, and the bytes to move. */
void cuemu_work_set_move(cuemu_work_t *work, const cuemu_range_t *dst,
                         uint64_t dst_pitch, const cuemu_range_t *src,
                         uint64_t src_pitch, uint64_t width, uint64_t height);

/* Let the engine of GPU `gpu`, that of the stream's or the graph node's
   context, make a copy set by cuemu_work_set_move(). Changes the time only of a
   copy between two GPUs whose source is not `gpu`. */
void cuemu_work_set_engine(cuemu_work_t *work, int gpu,
                           const cuemu_range_t *dst, const cuemu_range_t *src);

/* Return non-zero if one operation models the copy, also where the node has
   only a route through the host; zero if GPUs that could be peers lack peer
   access, so that cuemu_work_stage() has to model it. */
int cuemu_work_is_direct(const cuemu_range_t *dst, const cuemu_range_t *src);

/*
 * Submit both halves of a copy through host memory, as the driver does without
 * peer access: in pieces, so that both halves are busy all the time. `work`
 * becomes the operation behind them that moves the bytes.
 */
void cuemu_work_stage(cuemu_work_t *work, const cuemu_op_id_t *deps,
                      unsigned num_deps, cuemu_time_t at,
                      cuemu_op_id_t halves[2]);

/* Submit a copy to a stream, as cuemu_work_submit() does; `direct` is from
   cuemu_work_is_direct(). */
cuemu_op_id_t cuemu_work_copy(cuemu_stream_t *stream, cuemu_work_t *work,
                              int direct, cuemu_time_t at);

/* Return non-zero if the operation is done, or is 0. Takes the session's
   lock. */
int cuemu_work_done(cuemu_op_id_t op);

/* Submit work that lasts until a word of memory meets a condition, like a
   kernel that spins on it; see cuStreamWaitValue32. Call with cuemu_lock(). */
CUresult cuemu_work_wait_value(cuemu_stream_t *stream,
                               const cuemu_range_t *word, uint32_t value,
                               unsigned how, cuemu_time_t at);

/*
 * Announce that this process waits for the operation. When it is done, the
 * clock stops until the process has noticed, or for 5 ms of real time. So the
 * machine's load does not delay the program in emulated time. Returns an
 * operation that ends at that point, 0 on failure.
 */
cuemu_op_id_t cuemu_work_watch(cuemu_op_id_t op);

/* Wait for an operation, serving due ones meanwhile; 0: return at once. Call
   without any lock. */
void cuemu_work_wait(cuemu_op_id_t op);

/* Bring the simulation to the present time and serve all due operations that
   this process may serve, except host functions: those are left to the service
   thread. Returns non-zero if any were served or the simulation has changed.
   Call without any lock. */
int cuemu_work_progress(void);

/* Make room in the file behind a range of GPU memory. Returns 0, or -1 if the
   file system is full: reported once, and later calls fail
   (cuemu_gate_leave()). Returns 0 without a check if `gpu` is -1, and on Linux
   before 5.14. */
int cuemu_populate(int gpu, uint64_t offset, uint64_t size);

/* ------------------------------------------------------------- kernels */

/* Return SUCCESS, or the error of a failed kernel in this context: every later
   call returns it. */
CUresult cuemu_context_fault(const cuemu_context_t *ctx);

/* Return the error of the current context's failed kernel for a call of this
   name; SUCCESS if there is none, or for calls that still work (queries,
   destruction). */
CUresult cuemu_kernel_fault(const char *call);

/* Serve a kernel's operation; `arg` is from its payload. The first time begins
   the kernel, or lets it wait for room on its GPU; the second time ends it. */
void cuemu_kernel_serve(uint64_t arg);

/* Free the modules of a context that ends, and make their handles invalid. Code
   of running kernels stays until they end. Call with the lock. */
void cuemu_module_retire(cuemu_context_t *ctx);

/* Counters for the report at exit */
extern uint64_t cuemu_stat_moves, cuemu_stat_bytes, cuemu_stat_torn;

/* Start the driver in this process; has no effect if it is started. NO_DEVICE,
   also in all later calls, if the session cannot be joined or no GPU is
   visible; NOT_INITIALIZED in a forked child. */
CUresult cuemu_process_start(void);
/* Stop the service thread at exit and wait for its end. Has no effect if it is
   not running. */
void cuemu_work_stop(void);

/* Set in a child forked after the driver was initialised */
extern int cuemu_gate_forked;

/* Set while a host function runs: it may not call the driver */
extern __thread int cuemu_in_callback;

#endif
