/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, operations, flush epochs and wakeup of an interface. */
#include <uct/cuda/base/queue.h>

#include <uct/cuda/base/alarm.h>
#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>


/* Time until a sleeping caller checks for coalesced copies, with nothing
 * running */
#define GATHER_NS (50ul * 1000)

/* Longest sleep while operations run: by its manual the driver makes no
 * callback in a context that has failed (on H200 driver 580 makes it) */
#define CHECK_NS (1000ul * 1000 * 1000)


/*
 * Epoch: the operations posted between two flushes. Operations end in any
 * order, so a flush is complete when its own epoch and all older ones are
 * empty.
 */
struct uct_cuda_flush {
    uct_cuda_flush_t *newer;
    unsigned         outstanding;
    uct_completion_t *comp; /* NULL only in the epoch being filled */
};


/* Data in a pending request: UCT leaves priv to the transport */
typedef struct {
    uct_pending_req_t *next;
    const void        *owner; /* endpoint of the request */
} pending_t;

/*
 * Event descriptors of closed queues, for reuse. They are never closed: a
 * driver callback may come after its operation was found complete, and would
 * write to whatever file has the number by then. A queue that reuses the
 * descriptor is only woken up once too often.
 */
static struct {
    pthread_mutex_t lock;
    pid_t           pid; /* owner: a child shares its parent's descriptors */
    unsigned        count;
    unsigned        size;
    int             *fds;
} idle = {.lock = PTHREAD_MUTEX_INITIALIZER};


static pending_t *pending_of(uct_pending_req_t *req)
{
    return (pending_t*)req->priv;
}

/* Return whether a new operation must wait */
static bool is_blocked(const uct_cuda_queue_t *queue)
{
    return (queue->outstanding >= queue->max_events) ||
           (queue->steps >= UCT_CUDA_QUEUE_MAX_STEPS) ||
           (queue->is_fenced && (queue->outstanding > 0));
}

ucs_status_t uct_cuda_queue_init(uct_cuda_queue_t *queue, unsigned max_poll,
                                 unsigned max_events)
{
    memset(queue, 0, sizeof(*queue));
    queue->current = calloc(1, sizeof(*queue->current));
    if (queue->current == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    queue->oldest     = queue->current;
    queue->max_poll   = (max_poll > 0) ? max_poll : 1;
    queue->max_events = (max_events > 0) ? max_events : 1;
    queue->event_fd   = -1;
    return UCS_OK;
}

static void
pool_destroy(const uct_cuda_queue_t *queue, uct_cuda_pool_t *pool)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    bool is_pushed;
    uct_cuda_op_t *op;
    unsigned i;

    /* streams and events of a destroyed context are gone */
    is_pushed = uct_cuda_context_push(pool->context);

    while ((op = pool->free_ops) != NULL) {
        pool->free_ops = op->next;
        if (is_pushed) {
            (void)driver->cuEventDestroy(op->event);
        }
        free(op);
    }

    if (pool->copy_kernel != NULL) {
        queue->destroy_copy_kernel(pool->copy_kernel, is_pushed);
    }

    for (i = 0; i < UCT_CUDA_QUEUE_MAX_STREAMS; ++i) {
        if (is_pushed && (pool->streams[i].cuda != NULL)) {
            (void)driver->cuStreamSynchronize(pool->streams[i].cuda);
            (void)driver->cuStreamDestroy(pool->streams[i].cuda);
        }
        if (is_pushed && (pool->streams[i].wake_up != NULL)) {
            (void)driver->cuStreamDestroy(pool->streams[i].wake_up);
        }
    }

    if (is_pushed) {
        uct_cuda_ctx_pop();
    }

    uct_cuda_context_put(pool->context);
    free(pool);
}

/* UCX frees its requests before it closes interfaces: drop completions and
 * start nothing new, but release the resources of operations */
static void forget_requests(uct_cuda_queue_t *queue)
{
    uct_cuda_flush_t *flush;
    uct_cuda_stream_t *stream;
    uct_cuda_op_t *op;

    for (stream = queue->active; stream != NULL; stream = stream->next_active) {
        for (op = stream->head; op != NULL; op = op->next) {
            op->comp = NULL;
        }
    }

    for (flush = queue->oldest; flush != NULL; flush = flush->newer) {
        flush->comp = NULL;
    }

    queue->pending_head = NULL;
}

/* After a fork, drop the parent's descriptors. Call with the lock held. */
static void idle_drop_inherited(void)
{
    const pid_t pid = getpid();

    if (idle.pid != pid) {
        idle.pid   = pid;
        idle.count = 0;
    }
}

static int idle_get(void)
{
    int fd = -1;
    uint64_t value;

    pthread_mutex_lock(&idle.lock);
    idle_drop_inherited();
    if (idle.count > 0) {
        fd = idle.fds[--idle.count];
    }
    pthread_mutex_unlock(&idle.lock);

    /* fails unless a late callback has written to it */
    if ((fd >= 0) && (read(fd, &value, sizeof(value)) > 0)) {
        uct_cuda_trace("a driver callback came after its queue was closed");
    }

    return fd;
}

/* Keep a descriptor for reuse. After a fork, close an inherited one instead: a
 * write to it would wake up the parent. */
static void idle_put(int fd, pid_t owner)
{
    unsigned size;
    int *fds;

    if (owner != getpid()) {
        close(fd);
        return;
    }

    pthread_mutex_lock(&idle.lock);
    idle_drop_inherited();
    if (idle.count == idle.size) {
        size = 2 * idle.size + 8;
        fds  = realloc(idle.fds, size * sizeof(*fds));
        if (fds == NULL) {
            goto out; /* it stays open and unused */
        }

        idle.size = size;
        idle.fds  = fds;
    }

    idle.fds[idle.count++] = fd;
out:
    pthread_mutex_unlock(&idle.lock);
}

void uct_cuda_queue_cleanup(uct_cuda_queue_t *queue)
{
    uct_cuda_flush_t *flush;
    uct_cuda_pool_t *pool;

    uct_cuda_queue_submit_coalesced(queue, true);
    forget_requests(queue);
    while (queue->outstanding > 0) {
        if (uct_cuda_queue_progress(queue) == 0) {
            sched_yield();
        }
    }

    while ((pool = queue->pools) != NULL) {
        queue->pools = pool->next;
        pool_destroy(queue, pool);
    }

    while ((flush = queue->oldest) != NULL) {
        queue->oldest = flush->newer;
        free(flush);
    }

    if (queue->event_fd >= 0) {
        idle_put(queue->event_fd, queue->event_owner);
    }
}

/* Drop the pools of contexts destroyed or reset by the program */
static void drop_dead_pools(uct_cuda_queue_t *queue)
{
    uct_cuda_pool_t **link = &queue->pools;
    uct_cuda_pool_t *pool;
    bool is_active;
    unsigned i;

    /* coalesced copies are not posted yet, and use one of the streams */
    uct_cuda_queue_submit_coalesced(queue, true);
    while ((pool = *link) != NULL) {
        is_active = false;
        for (i = 0; i < UCT_CUDA_QUEUE_MAX_STREAMS; ++i) {
            is_active |= pool->streams[i].is_active;
        }

        if (is_active || uct_cuda_context_is_alive(pool->context)) {
            link = &pool->next;
        } else {
            *link = pool->next;
            pool_destroy(queue, pool);
        }
    }
}

static ucs_status_t
make_pool(uct_cuda_queue_t *queue, uct_cuda_pool_t **pool_p)
{
    uct_cuda_pool_t *pool;
    ucs_status_t status;
    unsigned i;

    drop_dead_pools(queue);
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_cuda_context_hold(&pool->context);
    if (status != UCS_OK) {
        free(pool);
        return status;
    }

    for (i = 0; i < UCT_CUDA_QUEUE_MAX_STREAMS; ++i) {
        pool->streams[i].context = pool->context;
        pool->streams[i].pool    = pool;
    }

    pool->next   = queue->pools;
    queue->pools = pool;
    *pool_p      = pool;
    return UCS_OK;
}

/* Get the pool of the current context. @param cuda  That context; NULL: ask the
 * driver */
static ucs_status_t get_pool(uct_cuda_queue_t *queue, CUcontext cuda,
                             uct_cuda_pool_t **pool_p)
{
    unsigned long long id;
    uct_cuda_pool_t *pool;

    if (!((cuda != NULL) ?
                  uct_cuda_ctx_get_id(cuda, &id) :
                  (uct_cuda_ctx_current(&cuda, &id) == UCS_OK))) {
        return UCS_ERR_IO_ERROR;
    }

    for (pool = queue->pools; pool != NULL; pool = pool->next) {
        if (pool->context->id == id) {
            *pool_p = pool;
            return UCS_OK;
        }
    }

    return make_pool(queue, pool_p);
}

ucs_status_t uct_cuda_queue_stream_in(uct_cuda_queue_t *queue, CUcontext cuda,
                                      unsigned index, bool is_now,
                                      uct_cuda_stream_t **stream_p)
{
    uct_cuda_stream_t *stream;
    uct_cuda_pool_t *pool;
    ucs_status_t status;

    if (!is_now) {
        if (is_blocked(queue)) {
            return UCS_ERR_NO_RESOURCE;
        }

        queue->is_fenced = false;
    }

    status = get_pool(queue, cuda, &pool);
    if (status != UCS_OK) {
        return status;
    }

    stream = &pool->streams[index % UCT_CUDA_QUEUE_MAX_STREAMS];
    if (stream->cuda == NULL) {
        status = UCT_CUDA_CALL(cuStreamCreate, &stream->cuda,
                               CU_STREAM_NON_BLOCKING);
        if (status != UCS_OK) {
            stream->cuda = NULL;
            return status;
        }
    }

    *stream_p = stream;
    return UCS_OK;
}

/* Record an unused event in a stream of the pool */
static void pool_record(const uct_cuda_pool_t *pool)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_QUEUE_MAX_STREAMS; ++i) {
        if (pool->streams[i].cuda != NULL) {
            (void)uct_cuda_driver_get()->cuEventRecord(pool->free_ops->event,
                                                       pool->streams[i].cuda);
            return;
        }
    }
}

void uct_cuda_queue_wait_for_driver(const uct_cuda_queue_t *queue)
{
    const uct_cuda_pool_t *pool;

    for (pool = queue->pools; pool != NULL; pool = pool->next) {
        if ((pool->free_ops != NULL) && uct_cuda_context_push(pool->context)) {
            pool_record(pool);
            uct_cuda_ctx_pop();
        }
    }
}

/* Initial method: ends with the operation's event, holds no resources */
static const uct_cuda_method_t by_event = {.name = "the driver"};

ucs_status_t uct_cuda_op_get(uct_cuda_stream_t *stream, uct_cuda_op_t **op_p)
{
    uct_cuda_op_t *op = stream->pool->free_ops;
    ucs_status_t status;

    if (op != NULL) {
        stream->pool->free_ops = op->next;
    } else {
        op = malloc(sizeof(*op));
        if (op == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        status = UCT_CUDA_CALL(cuEventCreate, &op->event,
                               CU_EVENT_DISABLE_TIMING);
        if (status != UCS_OK) {
            free(op);
            return status;
        }
    }

    op->next     = NULL;
    op->stream   = stream;
    op->comp     = NULL;
    op->flush    = NULL;
    op->method   = &by_event;
    op->work     = NULL;
    op->steps    = 0;
    op->is_armed = false;
    *op_p        = op;
    return UCS_OK;
}

void uct_cuda_op_put(uct_cuda_op_t *op)
{
    op->next                   = op->stream->pool->free_ops;
    op->stream->pool->free_ops = op;
}

static void op_release(uct_cuda_op_t *op)
{
    if (op->method->end != NULL) {
        op->method->end(op);
    }
}

ucs_status_t uct_cuda_op_post(uct_cuda_queue_t *queue, uct_cuda_op_t *op)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_stream_t *stream       = op->stream;
    ucs_status_t status;

    if (op->method->test == NULL) {
        status = UCT_CUDA_CALL(cuEventRecord, op->event, stream->cuda);
        if (status != UCS_OK) {
            if (driver->cuStreamSynchronize(stream->cuda) == CUDA_SUCCESS) {
                status = UCS_OK;
            }
            op_release(op);
            uct_cuda_op_put(op);
            return status;
        }
    }

    if (stream->head == NULL) {
        stream->head = op;
    } else {
        stream->tail->next = op;
    }
    stream->tail = op;

    if (!stream->is_active) {
        stream->is_active   = true;
        stream->next_active = queue->active;
        queue->active       = stream;
    }

    op->flush = queue->current;
    queue->steps += op->steps;
    ++queue->current->outstanding;
    if ((++queue->outstanding == 1) && (queue->on_busy != NULL)) {
        queue->on_busy(queue);
    }

    return UCS_INPROGRESS;
}

ucs_status_t uct_cuda_op_run(uct_cuda_queue_t *queue, uct_cuda_stream_t *stream,
                             uct_completion_t *comp, uct_cuda_op_start_t start,
                             void *arg)
{
    ucs_status_t status;
    uct_cuda_op_t *op;

    status = uct_cuda_op_get(stream, &op);
    if (status != UCS_OK) {
        return status;
    }

    op->comp = comp;
    status   = start(op, arg);
    if (status != UCS_OK) {
        uct_cuda_op_put(op);
        return status;
    }

    return uct_cuda_op_post(queue, op);
}

/* Wait until the stream's work accesses no memory any more, if the context is
 * alive */
static void stream_wait(const uct_cuda_stream_t *stream)
{
    if (uct_cuda_context_push(stream->context)) {
        (void)uct_cuda_driver_get()->cuStreamSynchronize(stream->cuda);
        uct_cuda_ctx_pop();
    }
}

void uct_cuda_op_log_failure(const uct_cuda_op_t *op, CUresult result)
{
    char text[96] = "a single copy";

    if (op->method->str != NULL) {
        op->method->str(op, text, sizeof(text));
    }

    uct_cuda_error("copy failed (%s, by %s): %s", text, op->method->name,
                   uct_cuda_result_name(result));
}

static ucs_status_t event_test(uct_cuda_op_t *op)
{
    const CUresult result = uct_cuda_driver_get()->cuEventQuery(op->event);

    if (result == CUDA_SUCCESS) {
        return UCS_OK;
    } else if (result == CUDA_ERROR_NOT_READY) {
        return UCS_INPROGRESS;
    }

    /* The copy failed, or the context was destroyed. If only the query failed,
     * memory must not be returned before the copy has ended. */
    uct_cuda_op_log_failure(op, result);
    stream_wait(op->stream);
    return UCS_ERR_IO_ERROR;
}

static ucs_status_t op_test(uct_cuda_op_t *op)
{
    return (op->method->test != NULL) ? op->method->test(op) : event_test(op);
}

ucs_status_t uct_cuda_queue_stream_wait(uct_cuda_queue_t *queue, unsigned index,
                                        uct_cuda_stream_t **stream_p)
{
    uct_cuda_stream_t *stream;
    uct_cuda_op_t *op;

    if (is_blocked(queue)) {
        for (stream = queue->active; stream != NULL;
             stream = stream->next_active) {
            for (op = stream->head; op != NULL; op = op->next) {
                while (op_test(op) == UCS_INPROGRESS) {
                    sched_yield();
                }
            }
        }
    }

    queue->is_fenced = false;
    return uct_cuda_queue_stream_now(queue, index, stream_p);
}

/* Complete the flushes with nothing left to wait for */
static void flush_progress(uct_cuda_queue_t *queue)
{
    uct_cuda_flush_t *flush;
    uct_completion_t *comp;

    while ((queue->oldest != queue->current) &&
           (queue->oldest->outstanding == 0)) {
        flush         = queue->oldest;
        comp          = flush->comp;
        queue->oldest = flush->newer;
        free(flush);
        uct_abi_completion_update(comp, 1, UCS_OK);
    }
}

/* Call pending requests. UCS_OK: the request is complete; UCS_INPROGRESS: it
 * made progress and is called again; otherwise it stays the first one. */
static void pending_progress(uct_cuda_queue_t *queue)
{
    uct_pending_req_t *req;
    const void *owner;
    ucs_status_t status;

    while (((req = queue->pending_head) != NULL) && !is_blocked(queue)) {
        owner               = pending_of(req)->owner;
        queue->pending_head = pending_of(req)->next;
        status              = req->func(req);
        if (status == UCS_OK) {
            continue;
        }

        pending_of(req)->owner = owner;
        pending_of(req)->next  = queue->pending_head;
        queue->pending_head    = req;
        if (pending_of(req)->next == NULL) {
            queue->pending_tail = req;
        }

        if (status != UCS_INPROGRESS) {
            break;
        }
    }
}

static void op_complete(uct_cuda_queue_t *queue, uct_cuda_op_t *op,
                        ucs_status_t status)
{
    uct_completion_t *comp = op->comp;

    op_release(op);
    queue->steps -= op->steps;
    --op->flush->outstanding;
    --queue->outstanding;
    uct_cuda_op_put(op);

    /* last: it may post the next operation */
    uct_abi_completion_update(comp, 1, status);
}

unsigned uct_cuda_queue_progress(uct_cuda_queue_t *queue)
{
    unsigned count           = 0;
    uct_cuda_stream_t **link = &queue->active;
    uct_cuda_stream_t *stream;
    ucs_status_t status;
    uct_cuda_op_t *op;

    while (((stream = *link) != NULL) && (count < queue->max_poll)) {
        while (((op = stream->head) != NULL) && (count < queue->max_poll)) {
            status = op_test(op);
            if (status == UCS_INPROGRESS) {
                break;
            }

            stream->head = op->next;
            ++count;
            op_complete(queue, op, status);
        }

        if (stream->head != NULL) {
            link = &stream->next_active;
            continue;
        }

        /* completions may have added streams before this one */
        for (link = &queue->active; *link != stream;
             link = &(*link)->next_active) {
        }
        *link             = stream->next_active;
        stream->is_active = false;
    }

    if (count > 0) {
        flush_progress(queue);
    }

    /* even if no operation completed: during a capture a request may fail
     * although the queue is empty, so no completion follows */
    if (queue->pending_head != NULL) {
        pending_progress(queue);
    }

    return count;
}

ucs_status_t uct_cuda_queue_flush(uct_cuda_queue_t *queue,
                                  uct_completion_t *comp)
{
    uct_cuda_flush_t *next;

    uct_cuda_queue_submit_coalesced(queue, true);
    if (queue->outstanding == 0) {
        return UCS_OK;
    }

    if (comp == NULL) {
        return UCS_INPROGRESS;
    }

    /* wait behind pending requests; but the caller may be the pending request
     * being called */
    if ((queue->pending_head != NULL) && is_blocked(queue)) {
        return UCS_ERR_NO_RESOURCE;
    }

    next = calloc(1, sizeof(*next));
    if (next == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    queue->current->comp  = comp;
    queue->current->newer = next;
    queue->current        = next;
    return UCS_INPROGRESS;
}

void uct_cuda_queue_fence(uct_cuda_queue_t *queue)
{
    uct_cuda_queue_submit_coalesced(queue, true);
    queue->is_fenced = (queue->outstanding > 0);
}

static void pending_append(uct_cuda_queue_t *queue, uct_pending_req_t *req)
{
    pending_of(req)->next = NULL;
    if (queue->pending_head == NULL) {
        queue->pending_head = req;
    } else {
        pending_of(queue->pending_tail)->next = req;
    }
    queue->pending_tail = req;
}

ucs_status_t uct_cuda_queue_pending_add(uct_cuda_queue_t *queue,
                                        const void *owner,
                                        uct_pending_req_t *req)
{
    if (!is_blocked(queue)) {
        return UCS_ERR_BUSY;
    }

    pending_of(req)->owner = owner;
    pending_append(queue, req);
    return UCS_OK;
}

void uct_cuda_queue_pending_purge(uct_cuda_queue_t *queue, const void *owner,
                                  uct_pending_purge_callback_t cb, void *arg)
{
    uct_pending_req_t *purged = NULL;
    uct_pending_req_t **last  = &purged;
    uct_pending_req_t *req    = queue->pending_head;
    uct_pending_req_t *next;

    /* removed first: the callback may add requests */
    queue->pending_head = NULL;
    for (; req != NULL; req = next) {
        next = pending_of(req)->next;
        if (pending_of(req)->owner == owner) {
            pending_of(req)->next = NULL;
            *last                 = req;
            last                  = &pending_of(req)->next;
        } else {
            pending_append(queue, req);
        }
    }

    while ((req = purged) != NULL) {
        purged = pending_of(req)->next;
        if (cb != NULL) {
            cb(req, arg);
        }
    }
}

ucs_status_t uct_cuda_queue_event_fd(uct_cuda_queue_t *queue, int *fd_p)
{
    if (queue->event_fd < 0) {
        queue->event_owner = getpid();
        queue->event_fd    = idle_get();
    }

    if (queue->event_fd < 0) {
        queue->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (queue->event_fd < 0) {
            uct_cuda_error("eventfd() failed: %s", strerror(errno));
            return UCS_ERR_IO_ERROR;
        }
    }

    *fd_p = queue->event_fd;
    return UCS_OK;
}

/* Whether a descriptor was written since its last read, indexed by its number.
 * Descriptors with larger numbers are always read. This saves a system call for
 * each arm: NIXL's thread arms between any two blocks posted by another
 * thread. */
#define MAX_NOTED 4096
static bool noted[MAX_NOTED];

/* Runs in a thread of the driver, where CUDA must not be called */
static void CUDA_CB wake_up(void *arg)
{
    const int fd       = (int)(intptr_t)arg;
    const uint64_t one = 1;

    /* a failed write means that the counter is full: it is readable already */
    if ((write(fd, &one, sizeof(one)) > 0) && (fd < MAX_NOTED)) {
        __atomic_store_n(&noted[fd], true, __ATOMIC_RELEASE);
    }
}

/* Request one callback after all events of the stream; its first operation was
 * just found running */
static ucs_status_t stream_arm(uct_cuda_stream_t *stream, int fd)
{
    uct_cuda_op_t *op   = stream->head;
    uct_cuda_op_t *last = op;
    ucs_status_t status = UCS_OK;

    if (op->method->wake != NULL) {
        status       = op->method->wake(op, wake_up, (void*)(intptr_t)fd);
        op->is_armed = (status == UCS_OK);
        return status;
    }

    while ((last->next != NULL) && (last->next->method->test == NULL)) {
        last = last->next;
    }

    if (!uct_cuda_context_push(stream->context)) {
        return UCS_ERR_IO_ERROR;
    }

    if (stream->wake_up == NULL) {
        status = UCT_CUDA_CALL(cuStreamCreate, &stream->wake_up,
                               CU_STREAM_NON_BLOCKING);
    }
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuStreamWaitEvent, stream->wake_up, last->event,
                               0);
    }
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuLaunchHostFunc, stream->wake_up, wake_up,
                               (void*)(intptr_t)fd);
    }
    uct_cuda_ctx_pop();

    for (; (status == UCS_OK) && (op != last->next); op = op->next) {
        op->is_armed = true;
    }

    return status;
}

static bool was_woken_up(int fd)
{
    uint64_t value;

    if ((fd < MAX_NOTED) &&
        !__atomic_exchange_n(&noted[fd], false, __ATOMIC_ACQ_REL)) {
        return false;
    }

    return read(fd, &value, sizeof(value)) > 0;
}

/* The callback does not say which operation ended: re-arm all */
static void disarm(uct_cuda_queue_t *queue)
{
    uct_cuda_stream_t *stream;
    uct_cuda_op_t *op;

    for (stream = queue->active; stream != NULL; stream = stream->next_active) {
        for (op = stream->head; op != NULL; op = op->next) {
            op->is_armed = false;
        }
    }
}

ucs_status_t uct_cuda_queue_arm(uct_cuda_queue_t *queue)
{
    uct_cuda_stream_t *stream;
    ucs_status_t status;
    bool is_new = false, is_set;
    int fd      = -1;

    uct_cuda_queue_submit_coalesced(queue, false);
    status = uct_cuda_queue_event_fd(queue, &fd);
    if (status != UCS_OK) {
        return status;
    }

    /* read the descriptor before the tests: it stays readable after a callback
     * from now on */
    if (was_woken_up(fd)) {
        disarm(queue);
        return UCS_ERR_BUSY;
    }

    /* a refused request waits for no operation */
    if ((queue->active == NULL) && (queue->pending_head != NULL)) {
        return UCS_ERR_BUSY;
    }

    for (stream = queue->active; stream != NULL; stream = stream->next_active) {
        if ((stream->head != NULL) && !stream->head->is_armed &&
            (op_test(stream->head) != UCS_INPROGRESS)) {
            return UCS_ERR_BUSY;
        }
    }

    for (stream = queue->active; stream != NULL; stream = stream->next_active) {
        if ((stream->head != NULL) && !stream->head->is_armed) {
            status = stream_arm(stream, fd);
            if (status != UCS_OK) {
                return status;
            }
            is_new = true;
        }
    }

    /* an earlier call has set the alarm of operations armed before */
    if (!is_new && ((queue->active != NULL) || !queue->is_coalescing)) {
        return UCS_OK;
    }

    is_set = uct_cuda_alarm_set(
            uct_cuda_now_ns() +
                    ((queue->active == NULL) ? GATHER_NS : CHECK_NS),
            wake_up, (void*)(intptr_t)fd);
    return (is_set || (queue->active != NULL)) ? UCS_OK : UCS_ERR_BUSY;
}
