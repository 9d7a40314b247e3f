/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each request is visible to the server as soon as it is posted. In this
 * process a batch of requests is one operation, complete when all are, like a
 * group of blocks: they share the cost of an operation.
 */
#include <uct/cuda/cuda_cma/cuda_cma_channel.h>

#include <uct/cuda/base/alarm.h>
#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/copy/choose_context.h>
#include <uct/cuda/cuda_cma/cuda_cma_keys.h>

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>


#define BATCH_COUNT 128

_Static_assert(UCT_CUDA_QUEUE_MAX_STEPS + BATCH_COUNT <= UCT_CUDA_CMA_REQUESTS,
               "the ring has a request for each operation of a queue");

/* First stream of channels; lower ones are for copies by threads. A stopped
 * peer blocks others on its stream, so channels use different ones. */
#define FIRST_STREAM 2
#define NUM_STREAMS  (UCT_CUDA_QUEUE_MAX_STREAMS - FIRST_STREAM)

/* Time until a refused allocation is tried again (ns): the server may not have
 * had a context yet */
#define REFUSED_NS (1000ul * 1000 * 1000)

/* Time without a round of the server, perhaps waiting in the driver for the
 * program's work, until its untaken requests are taken back (ns) */
#define PATIENCE_NS (5ul * 1000 * 1000)

/* Interval of liveness checks while requests take long, and delay until a
 * sleeping caller polls again (ns) */
#define ALIVE_NS (1000ul * 1000)
#define SLEEP_NS (50ul * 1000)

/* Longest time for the driver to stop the work of a peer that has executed
 * another program (ns) */
#define REPLACED_NS (1000ul * 1000 * 1000)


typedef struct batch batch_t;

typedef struct {
    uct_cuda_copy_t     copy;
    uct_cuda_cma_key_t  *key;
    uct_cuda_host_job_t *job;    /* by threads, or NULL */
    ucs_status_t        status;
} transfer_t;

struct batch {
    batch_t                *next;    /* next idle one */
    uct_completion_t       comp;     /* completion of the operation */
    uct_cuda_cma_channel_t *channel;
    uct_cuda_op_t          *op;
    unsigned               first;    /* request of the first transfer */
    unsigned               num_over; /* completed ones from there on */
    unsigned               count;
    transfer_t             transfers[BATCH_COUNT];
};

struct uct_cuda_cma_channel {
    uct_cuda_cma_channel_t *next;     /* of the interface */
    uct_cuda_cma_channel_t **all;     /* head of the interface's list */
    uint64_t                token;    /* of the control block */
    unsigned                users;    /* endpoints and running batches */
    uct_cuda_cma_peer_t     *peer;
    uct_cuda_cma_control_t  *control;
    uct_cuda_cma_slot_t     *slot;
    uct_cuda_node_alive_t *alive;    /* holds the slot's number */
    pid_t                owner;      /* process that took the slot */
    unsigned             stream;
    unsigned             head;       /* index of the next request */
    batch_t              *open;      /* has space for more; or NULL */
    batch_t              *idle;
    /* the peer and its GPU's work have ended */
    bool                 is_gone;
    /* first seen with another image, ns; 0: no */
    uint64_t             replaced;
    uint32_t             heartbeat;       /* of the server at its last change */
    uint64_t             heartbeat_time;  /* time of that change, ns; or 0 */
    uint64_t             checked;         /* last liveness check, ns */
    uct_cuda_cma_keys_t  keys;
    /* serials of the keys in the control block */
    uint32_t             announced[UCT_CUDA_CMA_KEYS];
};


/* ------------------------------------------------------------------- slots */

/* Take a free slot. NULL: none is free; the server is asked to free slots of
 * processes that have ended. */
static uct_cuda_cma_slot_t *
find_slot(uct_cuda_cma_control_t *control, uct_cuda_node_alive_t *alive,
          pid_t pid)
{
    int32_t expected;
    unsigned i;

    for (i = 0; i < UCT_CUDA_CMA_SLOTS; ++i) {
        if (!uct_cuda_node_alive_hold(alive, i)) {
            continue;
        }

        expected = 0;
        if (__atomic_compare_exchange_n(&control->slots[i].pid, &expected, pid,
                                        false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
            return &control->slots[i];
        }

        uct_cuda_node_alive_release(alive, i);
    }

    /* some may belong to processes that have ended */
    __atomic_store_n(&control->is_short, 1, __ATOMIC_SEQ_CST);
    uct_cuda_cma_control_wake(control);
    return NULL;
}

/* Return the interface's channel to this control block, or NULL */
static uct_cuda_cma_channel_t *
find_channel(uct_cuda_cma_channel_t *channel, const uct_cuda_cma_peer_t *peer,
             uint64_t token)
{
    const pid_t pid = getpid();

    while ((channel != NULL) &&
           ((channel->peer != peer) || (channel->token != token) ||
            (channel->owner != pid) ||
            __atomic_load_n(&channel->control->is_over, __ATOMIC_RELAXED))) {
        channel = channel->next;
    }

    return channel;
}

uct_cuda_cma_channel_t *
uct_cuda_cma_channel_open(uct_cuda_cma_channel_t **all,
                          uct_cuda_cma_peer_t *peer,
                          const uct_cuda_cma_server_id_t *id)
{
    static unsigned num_channels;

    const pid_t pid                 = uct_cuda_cma_peer_pid(peer);
    uct_cuda_cma_channel_t *channel = find_channel(*all, peer, id->token);

    if (channel != NULL) {
        ++channel->users;
        return channel;
    }

    channel = calloc(1, sizeof(*channel));
    if (channel == NULL) {
        return NULL;
    }

    channel->control = uct_cuda_cma_control_open(pid, id, &channel->alive);
    if (channel->control == NULL) {
        goto err_free;
    }

    if (__atomic_load_n(&channel->control->is_over, __ATOMIC_RELAXED)) {
        goto err_close;
    }

    channel->owner = getpid();
    channel->slot  = find_slot(channel->control, channel->alive,
                               channel->owner);
    if (channel->slot == NULL) {
        uct_cuda_debug("process %d has no slot left for more peers", (int)pid);
        goto err_close;
    }

    uct_cuda_cma_peer_hold(peer);
    channel->token  = id->token;
    channel->peer   = peer;
    channel->users  = 1;
    channel->stream = FIRST_STREAM +
                      __atomic_fetch_add(&num_channels, 1, __ATOMIC_RELAXED) %
                              NUM_STREAMS;
    channel->next = *all;
    channel->all  = all;
    *all          = channel;
    uct_cuda_debug("process %d copies its page-locked memory with its GPU",
                   (int)pid);
    return channel;

err_close:
    uct_cuda_node_alive_close(channel->alive);
    uct_cuda_cma_control_close(channel->control);
err_free:
    free(channel);
    return NULL;
}

void uct_cuda_cma_channel_put(uct_cuda_cma_channel_t *channel)
{
    uct_cuda_cma_channel_t **link = channel->all;
    batch_t *batch;

    if (--channel->users > 0) {
        return;
    }

    while (*link != channel) {
        link = &(*link)->next;
    }
    *link = channel->next;

    /* a forked child may clean up, too, but the slot belongs to its parent */
    if (channel->owner == getpid()) {
        __atomic_store_n(&channel->slot->is_over, 1, __ATOMIC_SEQ_CST);
        uct_cuda_cma_control_wake(channel->control);
    }
    uct_cuda_node_alive_close(channel->alive);
    uct_cuda_cma_control_close(channel->control);
    uct_cuda_cma_peer_put(channel->peer);
    uct_cuda_cma_keys_cleanup(&channel->keys);
    while ((batch = channel->idle) != NULL) {
        channel->idle = batch->next;
        free(batch);
    }
    free(channel);
}


/* --------------------------------------------------------------- by threads */

/* Let threads make a transfer that the server does not; any context may be
 * current. A batch has transfers of memory of several contexts. */
static ucs_status_t
thread_start(const batch_t *batch, transfer_t *transfer)
{
    uct_cuda_copy_t *copy               = &transfer->copy;
    const uct_cuda_host_remote_t remote = {
        .copy = uct_cuda_cma_peer_copy,
        .arg  = batch->channel->peer
    };
    uct_cuda_ctx_scope_t context;
    ucs_status_t status;

    if (uct_cuda_copy_enter(copy, uct_cuda_end_host(), &context) != UCS_OK) {
        return UCS_ERR_IO_ERROR;
    }

    status = uct_cuda_host_pipeline_start_remote(copy->local.address,
                                                 copy->remote.address,
                                                 copy->bytes, !copy->is_put,
                                                 &remote, &transfer->job);
    uct_cuda_ctx_leave(&context);
    if (status != UCS_OK) {
        transfer->job = NULL;
        return status;
    }

    return UCS_INPROGRESS;
}

static ucs_status_t thread_test(transfer_t *transfer)
{
    const ucs_status_t status = uct_cuda_host_pipeline_test(transfer->job);

    if (status != UCS_INPROGRESS) {
        uct_cuda_host_pipeline_release(transfer->job);
        transfer->job = NULL;
    }

    return status;
}


/* ------------------------------------------------------------------ server */

/* Return whether the server makes rounds or sleeps */
static bool is_served(uct_cuda_cma_channel_t *channel, uint64_t now)
{
    uct_cuda_cma_control_t *control = channel->control;
    const uint32_t heartbeat        = __atomic_load_n(&control->heartbeat,
                                                      __ATOMIC_RELAXED);

    if (__atomic_load_n(&control->is_over, __ATOMIC_RELAXED)) {
        return false;
    }

    if ((heartbeat != channel->heartbeat) || (channel->heartbeat_time == 0)) {
        channel->heartbeat      = heartbeat;
        channel->heartbeat_time = now;
    }

    return now - channel->heartbeat_time < PATIENCE_NS;
}

/* Return whether the peer's GPU can have no more work running. Until then
 * memory named in a request cannot be returned to the program, so a peer that
 * is alive or unknown to the kernel is waited for. When a process has ended its
 * files are closed, and the driver has stopped its work. execve() closes them,
 * too, but without a sign that the driver has finished. */
static bool is_gone(uct_cuda_cma_channel_t *channel, uint64_t now)
{
    if (channel->is_gone || (now - channel->checked < ALIVE_NS)) {
        return channel->is_gone;
    }

    channel->checked = now;
    switch (uct_cuda_cma_peer_state(channel->peer)) {
    case UCT_CUDA_CMA_PEER_ENDED:
        channel->is_gone = true;
        break;

    case UCT_CUDA_CMA_PEER_REPLACED:
        channel->replaced = (channel->replaced == 0) ? now : channel->replaced;
        channel->is_gone  = (now - channel->replaced >= REPLACED_NS);
        break;

    default:
        channel->replaced = 0;
    }

    return channel->is_gone;
}

static ucs_status_t
request_test(batch_t *batch, transfer_t *transfer,
             uct_cuda_cma_request_t *request)
{
    uct_cuda_cma_channel_t *channel = batch->channel;
    uint64_t now;

    switch (uct_cuda_cma_request_state(request)) {
    case UCT_CUDA_CMA_DONE:
        uct_cuda_cma_request_hand_over(request, UCT_CUDA_CMA_FREE);
        channel->heartbeat_time = 0;
        return UCS_OK;

    case UCT_CUDA_CMA_REFUSED:
        uct_cuda_cma_request_hand_over(request, UCT_CUDA_CMA_FREE);
        transfer->key->refused = uct_cuda_now_ns();
        return thread_start(batch, transfer);

    case UCT_CUDA_CMA_POSTED:
        now = uct_cuda_now_ns();
        if ((!is_gone(channel, now) && is_served(channel, now)) ||
            !uct_cuda_cma_request_take(request, UCT_CUDA_CMA_TAKEN_BACK)) {
            return UCS_INPROGRESS;
        }

        return channel->is_gone ? UCS_ERR_CONNECTION_RESET :
                                  thread_start(batch, transfer);

    case UCT_CUDA_CMA_TAKEN:
        return is_gone(channel, uct_cuda_now_ns()) ? UCS_ERR_CONNECTION_RESET :
                                                     UCS_INPROGRESS;

    default:
        uct_cuda_error("process %d has overwritten a request owned by this "
                       "process",
                       (int)uct_cuda_cma_peer_pid(channel->peer));
        return UCS_ERR_IO_ERROR;
    }
}


/* ----------------------------------------------------------------- batches */

static ucs_status_t batch_test(uct_cuda_op_t *op)
{
    batch_t *batch                  = op->work;
    uct_cuda_cma_channel_t *channel = batch->channel;
    uct_cuda_cma_request_t *request;
    transfer_t *transfer;
    ucs_status_t status;

    for (; batch->num_over < batch->count; ++batch->num_over) {
        transfer = &batch->transfers[batch->num_over];
        request  = &channel->slot->requests[(batch->first + batch->num_over) %
                                            UCT_CUDA_CMA_REQUESTS];
        status   = (transfer->job != NULL) ?
                           thread_test(transfer) :
                           request_test(batch, transfer, request);
        if (status == UCS_INPROGRESS) {
            return UCS_INPROGRESS;
        }

        transfer->status = status;
        --transfer->key->outstanding;
    }

    if (channel->open == batch) {
        channel->open = NULL;
    }

    return UCS_OK;
}

/* Poll again soon: another process cannot call back */
static ucs_status_t batch_wake(uct_cuda_op_t *op, CUhostFn func, void *arg)
{
    return uct_cuda_alarm_set(uct_cuda_now_ns() + SLEEP_NS, func, arg) ?
                   UCS_OK :
                   UCS_ERR_BUSY;
}

static void batch_release(batch_t *batch)
{
    uct_cuda_cma_channel_t *channel = batch->channel;

    batch->next   = channel->idle;
    channel->idle = batch;
    uct_cuda_cma_channel_put(channel);
}

/* Interface is closing: skip completions */
static void batch_end(uct_cuda_op_t *op)
{
    if (op->comp == NULL) {
        batch_release(op->work);
    }
}

static void batch_completed(uct_completion_t *comp)
{
    batch_t *batch = (batch_t*)((char*)comp - offsetof(batch_t, comp));
    unsigned i;

    for (i = 0; i < batch->count; ++i) {
        uct_abi_completion_update(batch->transfers[i].copy.comp, 1,
                                  batch->transfers[i].status);
    }

    batch_release(batch);
}

static const uct_cuda_method_t by_peer = {
    .name = "the peer",
    .test = batch_test,
    .wake = batch_wake,
    .end  = batch_end
};

static ucs_status_t batch_start(uct_cuda_op_t *op, void *arg)
{
    batch_t *batch = arg;

    batch->op  = op;
    /* Reserve a full batch, so that callers get NO_RESOURCE before the ring is
     * full */
    op->steps  = BATCH_COUNT;
    op->method = &by_peer;
    op->work   = batch;
    return UCS_OK;
}

static void
batch_add(batch_t *batch, uct_cuda_cma_key_t *key, const uct_cuda_copy_t *copy)
{
    uct_cuda_cma_channel_t *channel = batch->channel;
    transfer_t *transfer            = &batch->transfers[batch->count++];
    uct_cuda_cma_request_t *request =
            &channel->slot->requests[channel->head++ % UCT_CUDA_CMA_REQUESTS];

    transfer->copy   = *copy;
    transfer->key    = key;
    transfer->job    = NULL;
    transfer->status = UCS_OK;
    ++key->outstanding;

    request->key     = (uint16_t)(key - channel->keys.keys);
    request->serial  = key->serial;
    request->to_host = copy->is_put;
    request->gpu     = copy->local.address;
    request->host    = copy->remote.address;
    request->length  = copy->bytes;
    uct_cuda_cma_request_hand_over(request, UCT_CUDA_CMA_POSTED);
    uct_cuda_cma_control_wake(channel->control);
}

static ucs_status_t
batch_open(uct_cuda_cma_channel_t *channel, uct_cuda_queue_t *queue)
{
    batch_t *batch = channel->idle;
    uct_cuda_stream_t *stream;
    ucs_status_t status;

    status = uct_cuda_queue_stream(queue, channel->stream, &stream);
    if (status != UCS_OK) {
        return status;
    }

    if (batch == NULL) {
        batch = malloc(sizeof(*batch));
        if (batch == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        batch->next   = NULL;
        channel->idle = batch;
    }

    batch->comp.func   = batch_completed;
    batch->comp.count  = 1;
    batch->comp.status = UCS_OK;
    batch->channel     = channel;
    batch->first       = channel->head;
    batch->num_over    = 0;
    batch->count       = 0;
    status = uct_cuda_op_run(queue, stream, &batch->comp, batch_start, batch);
    if (status != UCS_INPROGRESS) {
        return status;
    }

    channel->idle = batch->next;
    channel->open = batch;
    ++channel->users;
    return UCS_OK;
}

/* Return the batch with space and without a flush behind it, or NULL */
static batch_t *
find_open(uct_cuda_cma_channel_t *channel, const uct_cuda_queue_t *queue)
{
    batch_t *batch = channel->open;

    return ((batch != NULL) && (batch->op->flush == queue->current) &&
            (batch->count < BATCH_COUNT) && !queue->is_fenced) ?
                   batch :
                   NULL;
}

/* Return whether the server has refused this allocation recently */
static bool is_refused(const uct_cuda_cma_key_t *key)
{
    return (key->refused != 0) &&
           (uct_cuda_now_ns() - key->refused < REFUSED_NS);
}

/* Return whether the next request is free. It is not if a stalled server has
 * not returned requests taken back; otherwise the queue limits callers much
 * earlier. */
static bool has_room(uct_cuda_cma_channel_t *channel)
{
    return uct_cuda_cma_request_state(
                   &channel->slot->requests[channel->head %
                                            UCT_CUDA_CMA_REQUESTS]) ==
           UCT_CUDA_CMA_FREE;
}

ucs_status_t
uct_cuda_cma_channel_follow(uct_cuda_cma_channel_t *channel,
                            uct_cuda_queue_t *queue,
                            const uct_cuda_copy_t *copy)
{
    batch_t *batch = find_open(channel, queue);
    uct_cuda_cma_key_t *key;

    if (batch == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    /* A read of memory without owner must wait for its data first
     * (base/memory.h) */
    key = uct_cuda_cma_keys_find(&channel->keys, (void*)copy->local.address,
                                 copy->bytes);
    if ((key == NULL) || is_refused(key) || (key->is_unowned && copy->is_put) ||
        channel->is_gone || !has_room(channel)) {
        return UCS_ERR_UNSUPPORTED;
    }

    batch_add(batch, key, copy);
    return UCS_INPROGRESS;
}

ucs_status_t uct_cuda_cma_channel_post(uct_cuda_cma_channel_t *channel,
                                       uct_cuda_queue_t *queue,
                                       const uct_cuda_copy_t *copy)
{
    batch_t *batch = find_open(channel, queue);
    uct_cuda_cma_key_t *key;
    ucs_status_t status;
    unsigned index;

    if (channel->is_gone ||
        __atomic_load_n(&channel->control->is_over, __ATOMIC_RELAXED)) {
        return UCS_ERR_UNSUPPORTED;
    }

    key = uct_cuda_cma_keys_get(&channel->keys, (void*)copy->local.address,
                                copy->bytes);
    if ((key == NULL) || is_refused(key) ||
        (key->packed.handle.type == UCT_CUDA_NODE_HANDLE_NONE) ||
        !has_room(channel)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (batch == NULL) {
        status = batch_open(channel, queue);
        if (status != UCS_OK) {
            return status;
        }
    }

    index = (unsigned)(key - channel->keys.keys);
    if (channel->announced[index] != key->serial) {
        channel->announced[index]         = key->serial;
        channel->slot->keys[index].packed = key->packed;
        channel->slot->keys[index].serial = key->serial;
    }

    batch_add(channel->open, key, copy);
    return UCS_INPROGRESS;
}
