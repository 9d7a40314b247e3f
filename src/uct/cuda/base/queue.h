/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations under way on an interface: streams of every context that was
 * used, the operations queued on each, and who is told when they are done.
 * Used by one thread at a time, as UCX uses an interface.
 */
#ifndef UCT_CUDA_BASE_QUEUE_H
#define UCT_CUDA_BASE_QUEUE_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/context.h>

#include <cuda.h>
#include <stdbool.h>


#define UCT_CUDA_QUEUE_MAX_STREAMS 16

/** Copies that the driver holds for a queue's operations before new ones have
 *  to wait: a stream takes a thousand commands or so, then its driver calls
 *  block, and a copy of many needs up to three on each of its streams. */
#define UCT_CUDA_QUEUE_MAX_STEPS 1024

/** Bytes that an operation has for what its method keeps until the end. */
#define UCT_CUDA_OP_STATE_SIZE 288

typedef struct uct_cuda_op      uct_cuda_op_t;
typedef struct uct_cuda_stream  uct_cuda_stream_t;
typedef struct uct_cuda_pool    uct_cuda_pool_t;
typedef struct uct_cuda_flush   uct_cuda_flush_t;
typedef struct uct_cuda_queue   uct_cuda_queue_t;
typedef struct uct_cuda_copier  uct_cuda_copier_t; /* copy/kernel.h */


/** How the work of an operation is followed. */
typedef struct {
    const char   *name; /**< For log lines and timelines */

    /** UCS_INPROGRESS until the work is over, then its status. NULL: the
     *  operation's event tells. */
    ucs_status_t (*test)(uct_cuda_op_t *op);

    /** Have a function called when the work is over. NULL: behind the event. */
    ucs_status_t (*wake)(uct_cuda_op_t *op, CUhostFn func, void *arg);

    /** Give back what the operation holds. Called once when it is over, before
     *  its completion is told. NULL: nothing. */
    void         (*end)(uct_cuda_op_t *op);
} uct_cuda_method_t;


struct uct_cuda_op {
    uct_cuda_op_t      *next;
    CUevent            event;    /**< Belongs to the stream's context */
    uct_cuda_stream_t  *stream;
    uct_completion_t   *comp;    /**< Told at the end; may be NULL */
    uct_cuda_flush_t   *flush;   /**< Epoch that the operation belongs to */
    const uct_cuda_method_t *method; /**< At first: its event alone */
    void               *work;    /**< The method's */
    unsigned           steps;    /**< Copies, where they are many */
    bool               is_armed; /**< Wakes the queue up when it is over */
    /** Room for the method; undefined at first, and stays where it is */
    uint64_t           state[UCT_CUDA_OP_STATE_SIZE / sizeof(uint64_t)];
};


/** Operations in order: a stream, or with no stream, operations of their own */
struct uct_cuda_stream {
    CUstream           cuda;
    uct_cuda_context_t *context;
    uct_cuda_pool_t    *pool;
    uct_cuda_op_t      *head;
    uct_cuda_op_t      *tail;
    uct_cuda_stream_t  *next_active;
    bool               is_active;
};


/** What a queue has in a context, which it holds. */
struct uct_cuda_pool {
    uct_cuda_pool_t    *next;
    uct_cuda_context_t *context;
    uct_cuda_op_t      *free_ops;
    CUstream           wake_up; /**< For callbacks; NULL until one is */
    uct_cuda_copier_t  *copier; /**< The owner's kernel; NULL until one is */
    uct_cuda_stream_t  streams[UCT_CUDA_QUEUE_MAX_STREAMS];
};


struct uct_cuda_queue {
    uct_cuda_pool_t    *pools;
    uct_cuda_stream_t  *active;      /**< Streams with operations */
    uct_cuda_flush_t   *oldest;      /**< Epochs, oldest first ... */
    uct_cuda_flush_t   *current;     /**< ... and the one that is filling */
    unsigned           outstanding;  /**< Operations under way */
    unsigned           max_events;   /**< Bound of outstanding */
    unsigned           steps;        /**< Of all of them */
    unsigned           max_poll;     /**< Completions a progress call */
    uct_pending_req_t  *pending_head;
    uct_pending_req_t  *pending_tail;
    int                event_fd;     /**< -1 until asked for */
    pid_t              event_owner;  /**< By this process */
    bool               is_fenced;    /**< Nothing new before all is over */
    bool               is_gathering; /**< The owner has something to submit */
    bool               has_gathered; /**< ... or had, some time */
    void               *gather;      /**< The owner's, for that; may be NULL */

    /** Called when the first operation is posted; may be NULL */
    void               (*on_busy)(uct_cuda_queue_t *queue);

    /** Submits and posts what the owner still gathers, or only if the GPU would
     *  soon have nothing to do; may be NULL */
    void               (*submit_gathered)(uct_cuda_queue_t *queue,
                                          bool is_all);

    /** Frees a copier, with its context current if that is there still; set
     *  with submit_gathered */
    void               (*destroy_copier)(uct_cuda_copier_t *copier,
                                         bool is_alive);

    /** Has progress no need to ask the driver, since more comes in and the GPU
     *  has work for a while? A question takes 1.5 us with the worker's lock
     *  held. True a few times in a row at most; may be NULL */
    bool               (*may_wait)(uct_cuda_queue_t *queue);
};


/** Is there nothing to progress? */
static inline bool uct_cuda_queue_is_idle(const uct_cuda_queue_t *queue)
{
    return queue->active == NULL;
}


/**
 * All before anything is waited for: flush, fence and cleanup do that. Progress
 * and arm, which another thread may call all the time while more comes in
 * (NIXL's does), ask for what the GPU will need soon: one operation is under
 * way at most. The progress after its end submits what is left.
 */
static inline void
uct_cuda_queue_submit_gathered(uct_cuda_queue_t *queue, bool is_all)
{
    if (queue->submit_gathered != NULL) {
        queue->submit_gathered(queue, is_all);
    }
}


ucs_status_t uct_cuda_queue_init(uct_cuda_queue_t *queue, unsigned max_poll,
                                 unsigned max_events);

/** Waits for what is under way, then releases streams and events. Completions,
 *  flushes and pending requests are forgotten, not told. */
void uct_cuda_queue_cleanup(uct_cuda_queue_t *queue);

/**
 * Stream @a index of the current context, created at first use.
 *
 * @param cuda    The current context; NULL: ask the driver.
 * @param is_now  For work that is waited for at once and so never counts:
 *                bounds and fences do not hold it up.
 * @return UCS_OK, UCS_ERR_NO_RESOURCE (as many operations under way as the user
 *         allows, or a fence to wait for), UCS_ERR_NO_MEMORY, UCS_ERR_IO_ERROR.
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

/**
 * Come back when the driver takes commands for all contexts of the queue. While
 * the program frees memory there, which waits for its kernels, each command
 * waits, too (0.15 of 0.2 s; H100, driver 580): who is to promise something
 * first, asks.
 */
void uct_cuda_queue_wait_for_driver(const uct_cuda_queue_t *queue);

/** As uct_cuda_queue_stream(), but waits where that would send the caller away;
 *  completes nothing. */
ucs_status_t uct_cuda_queue_stream_wait(uct_cuda_queue_t *queue, unsigned index,
                                        uct_cuda_stream_t **stream_p);

/** An unused operation of the stream's context, with an event. */
ucs_status_t uct_cuda_op_get(uct_cuda_stream_t *stream, uct_cuda_op_t **op_p);

/** Give back an operation that was not posted. */
void uct_cuda_op_put(uct_cuda_op_t *op);

/**
 * Post an operation whose work has been submitted to its stream.
 *
 * Without a method's test() its event is recorded behind the work. Should that
 * fail, the stream is drained, so that nothing is still moving when the caller
 * hears of it, end() is called and the operation is given back.
 *
 * @return UCS_INPROGRESS; UCS_OK if it is over already, and nobody will be told
 *         again; UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_op_post(uct_cuda_queue_t *queue, uct_cuda_op_t *op);

/**
 * Submits an operation's work, or has it submitted.
 *
 * @return UCS_OK: the operation is to be posted; or an error, after which
 *         nothing of it is under way.
 */
typedef ucs_status_t (*uct_cuda_op_start_t)(uct_cuda_op_t *op, void *arg);

/**
 * Take an operation of the stream's context, have it started and post it.
 *
 * @param comp  Told at the end, if UCS_INPROGRESS is returned; may be NULL.
 * @return As uct_cuda_op_get(), @a start or uct_cuda_op_post().
 */
ucs_status_t uct_cuda_op_run(uct_cuda_queue_t *queue, uct_cuda_stream_t *stream,
                             uct_completion_t *comp, uct_cuda_op_start_t start,
                             void *arg);

/** Completes what is over. @return Number of operations completed. */
unsigned uct_cuda_queue_progress(uct_cuda_queue_t *queue);

/** UCT's flush: @a comp is told when all operations posted so far are over. */
ucs_status_t uct_cuda_queue_flush(uct_cuda_queue_t *queue,
                                  uct_completion_t *comp);

/**
 * UCT's fence: what is posted from now on starts after all that is under way.
 * Until then, uct_cuda_queue_stream() answers UCS_ERR_NO_RESOURCE.
 */
void uct_cuda_queue_fence(uct_cuda_queue_t *queue);

/** UCT's pending_add: kept only while there is something to wait for.
 *  @a owner is the endpoint. */
ucs_status_t uct_cuda_queue_pending_add(uct_cuda_queue_t *queue,
                                        const void *owner,
                                        uct_pending_req_t *req);

/** UCT's pending_purge: hand over the requests of one endpoint. */
void uct_cuda_queue_pending_purge(uct_cuda_queue_t *queue, const void *owner,
                                  uct_pending_purge_callback_t cb, void *arg);

/** File descriptor that becomes readable after uct_cuda_queue_arm(). */
ucs_status_t uct_cuda_queue_event_fd(uct_cuda_queue_t *queue, int *fd_p);

/** Asks the driver for a callback once an operation, however often it is
 *  called: a thread that polls between two calls may do so all the time.
 *  @return UCS_OK, or UCS_ERR_BUSY when something is over already. */
ucs_status_t uct_cuda_queue_arm(uct_cuda_queue_t *queue);

#endif
