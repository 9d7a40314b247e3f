/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue of an interface's running operations: streams of every context in use,
 * the operations on each, and their completions. Used by one thread at a time,
 * as UCX uses an interface.
 */
#ifndef UCT_CUDA_BASE_QUEUE_H
#define UCT_CUDA_BASE_QUEUE_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/context_data.h>

#include <cuda.h>
#include <stdbool.h>


#define UCT_CUDA_QUEUE_MAX_STREAMS 16

/** Maximum copies held by the driver for a queue's operations: a stream
 *  takes about a thousand commands before its driver calls block, and a
 *  large copy needs up to three on each of its streams. */
#define UCT_CUDA_QUEUE_MAX_STEPS 1024

/** Bytes of an operation for its method's state. */
#define UCT_CUDA_OP_STATE_SIZE 288

typedef struct uct_cuda_op           uct_cuda_op_t;
typedef struct uct_cuda_stream       uct_cuda_stream_t;
typedef struct uct_cuda_pool         uct_cuda_pool_t;
typedef struct uct_cuda_flush        uct_cuda_flush_t;
typedef struct uct_cuda_queue        uct_cuda_queue_t;
typedef struct uct_cuda_copy_kernel  uct_cuda_copy_kernel_t; /* copy/kernel.h */


/** Method: how an operation's work is tracked. */
typedef struct {
    const char   *name; /**< For log lines and timelines */

    /** Return UCS_INPROGRESS until the work has ended, then its status.
     *  NULL: use the operation's event. */
    ucs_status_t (*test)(uct_cuda_op_t *op);

    /** Call a function when the work has ended. NULL: after the event. */
    ucs_status_t (*wake)(uct_cuda_op_t *op, CUhostFn func, void *arg);

    /** Release the operation's resources. Called once at the end, before the
     *  completion. NULL: none. */
    void         (*end)(uct_cuda_op_t *op);

    /** Write the copy's bytes and ends, for an error. NULL: unknown. */
    void         (*str)(const uct_cuda_op_t *op, char *text, size_t max);
} uct_cuda_method_t;


struct uct_cuda_op {
    uct_cuda_op_t      *next;
    CUevent            event;    /**< Belongs to the stream's context */
    uct_cuda_stream_t  *stream;
    uct_completion_t   *comp;    /**< Called at the end; may be NULL */
    uct_cuda_flush_t   *flush;   /**< Epoch of the operation */
    const uct_cuda_method_t *method; /**< Initially by event */
    void               *work;    /**< Data of the method */
    unsigned           steps;    /**< Number of copies, if many */
    bool               is_armed; /**< Wakes up the queue at its end */
    /** State of the method; initially undefined, never moved */
    uint64_t           state[UCT_CUDA_OP_STATE_SIZE / sizeof(uint64_t)];
};


/** Operations of a CUDA stream, in order; independent ones if they have no CUDA
 *  stream */
struct uct_cuda_stream {
    CUstream           cuda;
    /** For callbacks only, as work behind a callback waits until it has run;
     *  NULL: none yet */
    CUstream           wake_up;
    uct_cuda_context_t *context;
    uct_cuda_pool_t    *pool;
    uct_cuda_op_t      *head;
    uct_cuda_op_t      *tail;
    uct_cuda_stream_t  *next_active;
    bool               is_active;
};


/** Data of a queue in a context, which it holds. */
struct uct_cuda_pool {
    uct_cuda_pool_t        *next;
    uct_cuda_context_t     *context;
    uct_cuda_op_t          *free_ops;
    /** Copy kernel of the owner; NULL: none yet */
    uct_cuda_copy_kernel_t *copy_kernel;
    uct_cuda_stream_t      streams[UCT_CUDA_QUEUE_MAX_STREAMS];
};


struct uct_cuda_queue {
    uct_cuda_pool_t    *pools;
    uct_cuda_stream_t  *active;      /**< Streams with operations */
    uct_cuda_flush_t   *oldest;      /**< Epochs, oldest first */
    uct_cuda_flush_t   *current;     /**< Epoch being filled */
    unsigned           outstanding;  /**< Running operations */
    unsigned           max_events;   /**< Maximum of outstanding */
    unsigned           steps;        /**< Copies of all operations */
    unsigned           max_poll;     /**< Completions in a progress call */
    uct_pending_req_t  *pending_head;
    uct_pending_req_t  *pending_tail;
    int                event_fd;     /**< -1 until requested */
    pid_t              event_owner;  /**< Process that created it */
    bool               is_fenced;    /**< New operations wait for all others */
    bool               is_coalescing; /**< Coalesced copies wait here */
    bool               has_coalesced; /**< Copies were coalesced before */
    void               *coalescer; /**< Data of submit_coalesced(), or NULL */

    /** Called when the first operation is posted; may be NULL */
    void               (*on_busy)(uct_cuda_queue_t *queue);

    /** Submit and post copies coalesced by the owner: all of them, or only if
     *  the GPU will soon be idle; may be NULL */
    void               (*submit_coalesced)(uct_cuda_queue_t *queue,
                                          bool is_all);

    /** Free a copy kernel, with its context current if alive; set together
     *  with submit_coalesced */
    void               (*destroy_copy_kernel)(
            uct_cuda_copy_kernel_t *copy_kernel, bool is_alive);

    /** Return whether progress can skip the driver query, because the program
     *  is posting more copies and the GPU has work for some time. A query takes
     *  1.5 us with the worker's lock held. True only a few times in a row; may
     *  be NULL */
    bool               (*may_wait)(uct_cuda_queue_t *queue);
};


/** Return whether there is nothing to progress: neither an operation nor a
 *  pending request, which the driver may have refused. */
static inline bool uct_cuda_queue_is_idle(const uct_cuda_queue_t *queue)
{
    return (queue->active == NULL) && (queue->pending_head == NULL);
}


/** Submit coalesced copies. With @a is_all, as from flush, fence and cleanup,
 *  submit all of them. Otherwise, as from progress and arm, submit only if
 *  the GPU will soon be idle: another thread may call these all the time
 *  while more copies come in, as in NIXL. A later progress call submits the
 *  rest. */
static inline void
uct_cuda_queue_submit_coalesced(uct_cuda_queue_t *queue, bool is_all)
{
    if (queue->submit_coalesced != NULL) {
        queue->submit_coalesced(queue, is_all);
    }
}


ucs_status_t uct_cuda_queue_init(uct_cuda_queue_t *queue, unsigned max_poll,
                                 unsigned max_events);

/** Wait for running operations, then release streams and events.
 *  Completions, flushes and pending requests are dropped without a call. */
void uct_cuda_queue_cleanup(uct_cuda_queue_t *queue);

/**
 * Get stream @a index of the current context, created at first use.
 *
 * @param cuda    The current context; NULL: ask the driver.
 * @param is_now  Ignore limits and fences: the caller waits for the work, or
 *                the work belongs to a list that has begun.
 * @return UCS_OK, UCS_ERR_NO_RESOURCE (too many operations are running, or a
 *         fence waits for them), UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_queue_stream_in(uct_cuda_queue_t *queue, CUcontext cuda,
                                      unsigned index, bool is_now,
                                      uct_cuda_stream_t **stream_p);

static inline ucs_status_t
uct_cuda_queue_stream(uct_cuda_queue_t *queue, unsigned index,
                      uct_cuda_stream_t **stream_p)
{
    return uct_cuda_queue_stream_in(queue, NULL, index, false, stream_p);
}

static inline ucs_status_t
uct_cuda_queue_stream_now(uct_cuda_queue_t *queue, unsigned index,
                          uct_cuda_stream_t **stream_p)
{
    return uct_cuda_queue_stream_in(queue, NULL, index, true, stream_p);
}

/** Wait until the driver accepts commands in all contexts of the queue.
 *  While the program frees memory, the driver waits for the program's
 *  kernels and delays other commands (0.15 of 0.2 s; H100, driver 580). The
 *  server of cuda_cma calls this before it takes requests, since a peer
 *  cannot take them back afterwards. */
void uct_cuda_queue_wait_for_driver(const uct_cuda_queue_t *queue);

/** Return a stream like uct_cuda_queue_stream(), waiting instead of failing
 *  with NO_RESOURCE; completes nothing. */
ucs_status_t uct_cuda_queue_stream_wait(uct_cuda_queue_t *queue, unsigned index,
                                        uct_cuda_stream_t **stream_p);

/** Get an unused operation of the stream's context, with an event. */
ucs_status_t uct_cuda_op_get(uct_cuda_stream_t *stream, uct_cuda_op_t **op_p);

/** Release an operation that was not posted. */
void uct_cuda_op_put(uct_cuda_op_t *op);

/** Log that an operation's copy has failed: its bytes, ends and method. */
void uct_cuda_op_log_failure(const uct_cuda_op_t *op, CUresult result);

/**
 * Post an operation whose work is in its stream.
 *
 * Without a method's test() its event is recorded after the work. If that
 * fails, the stream is drained, so that no data moves after the failure is
 * reported, end() is called, and the operation is released.
 *
 * @return UCS_INPROGRESS; UCS_OK: complete already, the completion is not
 *         called; UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_op_post(uct_cuda_queue_t *queue, uct_cuda_op_t *op);

/**
 * Submit the work of an operation.
 *
 * @return UCS_OK: post the operation; or an error, with nothing running.
 */
typedef ucs_status_t (*uct_cuda_op_start_t)(uct_cuda_op_t *op, void *arg);

/**
 * Get an operation of the stream's context, start it and post it.
 *
 * @param comp  Called at the end if UCS_INPROGRESS is returned; may be NULL.
 * @return As uct_cuda_op_get(), @a start or uct_cuda_op_post().
 */
ucs_status_t uct_cuda_op_run(uct_cuda_queue_t *queue, uct_cuda_stream_t *stream,
                             uct_completion_t *comp, uct_cuda_op_start_t start,
                             void *arg);

/**
 * Complete ended operations.
 *
 * @return Their number
 */
unsigned uct_cuda_queue_progress(uct_cuda_queue_t *queue);

/**
 * Flush, as in UCT: call @a comp when all operations posted so far have ended.
 */
ucs_status_t uct_cuda_queue_flush(uct_cuda_queue_t *queue,
                                  uct_completion_t *comp);

/** Fence, as in UCT: later operations start after all running ones. Until
 *  then uct_cuda_queue_stream() returns UCS_ERR_NO_RESOURCE. */
void uct_cuda_queue_fence(uct_cuda_queue_t *queue);

/**
 * Add a pending request, as in UCT; only while there is something to wait for.
 * @a owner is the endpoint.
 */
ucs_status_t uct_cuda_queue_pending_add(uct_cuda_queue_t *queue,
                                        const void *owner,
                                        uct_pending_req_t *req);

/** Remove the pending requests of one endpoint, as in UCT. */
void uct_cuda_queue_pending_purge(uct_cuda_queue_t *queue, const void *owner,
                                  uct_pending_purge_callback_t cb, void *arg);

/** Return a file descriptor that becomes readable after
 *  uct_cuda_queue_arm(). */
ucs_status_t uct_cuda_queue_event_fd(uct_cuda_queue_t *queue, int *fd_p);

/**
 * Request a driver callback, once for each operation: a polling thread may call
 * this continuously.
 *
 * @return UCS_OK, or UCS_ERR_BUSY: an operation has ended already.
 */
ucs_status_t uct_cuda_queue_arm(uct_cuda_queue_t *queue);

#endif
