/* SPDX-License-Identifier: BSD-3-Clause */

/* Contexts, streams, events, and the process's devices. */
#ifndef CUEMU_CONTEXT_H_
#define CUEMU_CONTEXT_H_

#include "cuemu_object.h"
#include "cuemu_session.h"
#include "toolkit.h"

typedef struct cuemu_context cuemu_context_t;
typedef struct cuemu_stream  cuemu_stream_t;
typedef struct cuemu_event   cuemu_event_t;

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

/* Number of CUlimit values that the driver knows */
#define CUEMU_NUM_LIMITS 8

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
    size_t          limits[CUEMU_NUM_LIMITS]; /* by CUlimit */
    cuemu_stream_t *null_stream;
    cuemu_stream_t *streams;   /* explicit streams */
    cuemu_op_id_t   orphans[2]; /* work of destroyed streams: of blocking and of
                                   non-blocking ones; 0: none */
};

/* Devices visible to this process, by ordinal */
typedef struct {
    int             initialized;
    int             forked;    /* a child, forked after the initialisation */
    int             num_devices;
    int             gpu[CUEMU_MAX_GPUS];       /* index in the node */
    unsigned        primary_flags[CUEMU_MAX_GPUS];
    cuemu_context_t *primary[CUEMU_MAX_GPUS];
} cuemu_process_t;

extern cuemu_process_t cuemu_process;

#define CUEMU_CTX_STACK 64

/* The calling thread's context stack */
extern __thread cuemu_context_t *cuemu_ctx_stack[CUEMU_CTX_STACK];
extern __thread int cuemu_ctx_depth;

/* Set while a host function runs: it may not call the driver */
extern __thread int cuemu_in_callback;

/* Return the thread's current context, alive or destroyed; NULL if there is
   none. */
cuemu_context_t *cuemu_context_top(void);

/* Return the thread's current context, NULL if there is no valid one. */
cuemu_context_t *cuemu_context_current(void);

/* Return the context of a handle, or for NULL the thread's current one; NULL if
   it is not valid. */
cuemu_context_t *cuemu_context_find(CUcontext handle);
/* Return the error of a call without a current context. */
CUresult cuemu_context_error(void);
/* Return the index of a peer in the context's list, or of a free entry (`peer`
   NULL); -1 if there is none. Kernels call it without a lock. */
int cuemu_context_find_peer(const cuemu_context_t *ctx,
                            const cuemu_context_t *peer);

/* Return non-zero if `ctx` may access memory allocated in `peer`. */
static inline int cuemu_context_has_peer(const cuemu_context_t *ctx,
                                         const cuemu_context_t *peer)
{
    return (peer != NULL) && (cuemu_context_find_peer(ctx, peer) >= 0);
}

/* Return SUCCESS, or the error of a failed kernel in this context: every later
   call returns it. */
CUresult cuemu_context_fault(const cuemu_context_t *ctx);

/* Let a context fail: each later call returns `result`, as with the real
   driver. */
void cuemu_context_fail(cuemu_context_t *ctx, CUresult result);

/* Return the error of the current context's failed kernel for a call of this
   name; SUCCESS if there is none, or for calls that still work (queries,
   destruction). */
CUresult cuemu_context_fault_of(const char *call);

/* Return a device's ordinal, -1 if the GPU is not visible. */
int cuemu_device_of_gpu(int gpu);

/* Retire streams and events of a context. Call with the lock. */
void cuemu_stream_retire(cuemu_context_t *ctx);

/* Find the stream of a handle. The handles of default streams (NULL,
   CU_STREAM_LEGACY, CU_STREAM_PER_THREAD) mean those of the current context;
   others may be of any context. Returns the call's error if there is no such
   stream. Ends the program for a stream whose context has ended, as the real
   driver does. Call without the lock. */
CUresult cuemu_stream_resolve(CUstream handle, cuemu_stream_t **stream_p);

/* Return the stream of a handle that is no default stream's, or NULL. Ends the
   program for a stream whose context has ended. */
cuemu_stream_t *cuemu_stream_check(CUstream handle);

/* Create a stream; NULL if out of memory. While the context has no null stream
   the new one is not listed in ctx->streams, as it is to become that. Call with
   the lock, or before other threads know the context. */
cuemu_stream_t *cuemu_stream_new(cuemu_context_t *ctx, unsigned flags,
                                 int priority);

/* Forget the dependencies of a stream's next node. */
void cuemu_front_clear(cuemu_front_t *front);

/* Forget what an event stands for in a capture, before it is recorded again or
   destroyed. */
void cuemu_event_forget_capture(cuemu_event_t *event);

/* Start the driver in this process; has no effect if it is started. NO_DEVICE,
   also in all later calls, if the session cannot be joined or no GPU is
   visible; NOT_INITIALIZED in a forked child. */
CUresult cuemu_process_start(void);

#endif
