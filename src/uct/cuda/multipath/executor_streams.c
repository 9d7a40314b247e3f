/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, events, and what has to be there before the first copy. */
#include <uct/cuda/multipath/executor_streams.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/multipath/staging.h>

#include <stdlib.h>
#include <string.h>


/* Events of one context that wait to be used */
typedef struct {
    CUevent  *events;
    unsigned count;
    unsigned capacity;
    unsigned created; /* all that exist, wherever they are */
} event_pool_t;


typedef struct {
    CUcontext    ctx; /* NULL: not retained */
    event_pool_t pool;
    CUstream     notify;
    /* Join the lanes of transfers to and from each other GPU */
    CUstream     joins[UCT_CUDA_TOPO_MAX_GPUS][2];
    /* A stream of this context for each directed link; NULL: not there yet */
    CUstream     lanes[UCT_CUDA_MP_NUM_LANES];
    bool         has_access[UCT_CUDA_TOPO_MAX_GPUS]; /* to peers' memory */
    bool         is_used[UCT_CUDA_MP_NUM_LANES]; /* by the transfer that is
                                                    being submitted */
} device_t;


/* A lane as one transfer sees it */
typedef struct {
    uint16_t number;
    int16_t  device; /* whose context its stream belongs to */
} lane_t;


struct uct_cuda_mp_streams {
    device_t              devices[UCT_CUDA_TOPO_MAX_GPUS];
    uct_cuda_mp_staging_t gpu_staging[UCT_CUDA_TOPO_MAX_GPUS];
    uct_cuda_mp_staging_t host_staging[UCT_CUDA_MP_MAX_NUMA];
    unsigned              num_used;
    lane_t                used[UCT_CUDA_MP_NUM_LANES];
    /* Of the plan that is being submitted */
    bool                  is_awaited[UCT_CUDA_MP_MAX_STEPS];
    CUevent               events[UCT_CUDA_MP_MAX_STEPS];
};


ucs_status_t uct_cuda_mp_streams_create(uct_cuda_mp_streams_t **streams_p)
{
    *streams_p = calloc(1, sizeof(**streams_p));
    return (*streams_p == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
}


/* ----------------------------------------------------------------- events */

static ucs_status_t pool_reserve(event_pool_t *pool)
{
    unsigned capacity;
    CUevent *events;

    /* Room for every event that exists, so that putting back cannot fail */
    if (pool->created < pool->capacity) {
        return UCS_OK;
    }

    capacity = (pool->capacity == 0) ? 64 : 2 * pool->capacity;
    events   = realloc(pool->events, capacity * sizeof(*events));
    if (events == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    pool->events   = events;
    pool->capacity = capacity;
    return UCS_OK;
}

/* Needs the device's context to be current */
static ucs_status_t get_event(uct_cuda_mp_streams_t *streams, int device,
                              CUevent *event_p)
{
    event_pool_t *pool = &streams->devices[device].pool;
    ucs_status_t status;

    if (pool->count > 0) {
        *event_p = pool->events[--pool->count];
        return UCS_OK;
    }

    status = pool_reserve(pool);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventCreate, event_p,
                               CU_EVENT_DISABLE_TIMING);
    }

    if (status == UCS_OK) {
        ++pool->created;
    }

    return status;
}

void uct_cuda_mp_streams_put_event(uct_cuda_mp_streams_t *streams, int device,
                                   CUevent event)
{
    event_pool_t *pool = &streams->devices[device].pool;

    pool->events[pool->count++] = event;
}


/* ------------------------------------------------------------ preparation */

static ucs_status_t prepare_device(uct_cuda_mp_streams_t *streams, int device)
{
    ucs_status_t status;

    if (streams->devices[device].ctx != NULL) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_retain(device, &streams->devices[device].ctx);
    if (status != UCS_OK) {
        streams->devices[device].ctx = NULL;
        /* "No memory" means staging memory to the caller */
        return (status == UCS_ERR_NO_MEMORY) ? UCS_ERR_NO_RESOURCE : status;
    }

    return UCS_OK;
}

static ucs_status_t prepare_stream(uct_cuda_mp_streams_t *streams, int device,
                                   CUstream *stream_p)
{
    ucs_status_t status;

    if (*stream_p != NULL) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_push(streams->devices[device].ctx);
    if (status != UCS_OK) {
        return status;
    }

    status = UCT_CUDA_CALL(cuStreamCreate, stream_p, CU_STREAM_NON_BLOCKING);
    if (status != UCS_OK) {
        *stream_p = NULL;
    }

    uct_cuda_ctx_pop();
    return (status == UCS_ERR_NO_MEMORY) ? UCS_ERR_NO_RESOURCE : status;
}

/*
 * Whose context a lane's stream belongs to, and so whose copy engines work it:
 * the GPU that sends, or, from the host, the one that receives. Two copies that
 * leave a GPU's engines at once share them by turns, and the slower one holds
 * up the other: with the host's path on the engines of the direct one, both
 * together ran at 200 instead of 380 GB/s (measured on H200). The direct lane
 * is the local end's, as a plain copy is.
 */
static int lane_device(const uct_cuda_mp_ends_t *ends, uint16_t number)
{
    int from = uct_cuda_mp_lane_from(number);
    int to   = uct_cuda_mp_lane_to(number);

    if ((from == ends->src_device) && (to == ends->dst_device)) {
        return uct_cuda_mp_ends_local(ends);
    }

    return (from == UCT_CUDA_MP_LANE_HOST) ? to : from;
}

int uct_cuda_mp_streams_remote_reader(const uct_cuda_mp_ends_t *ends,
                                      const uct_cuda_mp_step_t *step)
{
    int device = lane_device(ends, step->lane);

    if ((ends->remote_device < 0) ||
        (device == uct_cuda_mp_ends_local(ends))) {
        return -1;
    }

    return ((uct_cuda_mp_lane_from(step->lane) == ends->remote_device) ||
            (uct_cuda_mp_lane_to(step->lane) == ends->remote_device)) ?
                   device :
                   -1;
}

static ucs_status_t prepare_access(uct_cuda_mp_streams_t *streams, int device,
                                   int peer)
{
    ucs_status_t status;

    if (streams->devices[device].has_access[peer]) {
        return UCS_OK;
    }

    status = prepare_device(streams, peer);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_ctx_enable_peer(device, peer);
    if (status == UCS_OK) {
        streams->devices[device].has_access[peer] = true;
    }

    return status;
}

static ucs_status_t prepare_lane(uct_cuda_mp_streams_t *streams,
                                 const uct_cuda_mp_ends_t *ends,
                                 uint16_t number)
{
    int device = lane_device(ends, number);
    int from   = uct_cuda_mp_lane_from(number);
    int to     = uct_cuda_mp_lane_to(number);
    ucs_status_t status;

    status = prepare_device(streams, device);
    if (status != UCS_OK) {
        return status;
    }

    /* Mappings of remote memory come with access to it; staging memory and the
     * local end do not */
    if ((device == from) && (to != UCT_CUDA_MP_LANE_HOST) &&
        (to != ends->remote_device)) {
        status = prepare_access(streams, from, to);
        if (status != UCS_OK) {
            return status;
        }
    }

    return prepare_stream(streams, device,
                          &streams->devices[device].lanes[number]);
}

static uct_cuda_mp_staging_t *find_staging(uct_cuda_mp_streams_t *streams,
                                           const uct_cuda_mp_place_t *place)
{
    if (place->type == UCT_CUDA_MP_PLACE_STAGING_GPU) {
        return &streams->gpu_staging[place->owner];
    }

    return &streams->host_staging[place->owner];
}

/* Wait for whatever still uses the slots, and free the memory */
static void release_staging(uct_cuda_mp_streams_t *streams,
                            uct_cuda_mp_staging_t *staging)
{
    uct_cuda_mp_slot_t *slot;
    unsigned i;

    for (i = 0; i < UCT_CUDA_MP_STAGING_SLOTS; ++i) {
        slot = &staging->slots[i];
        if (slot->drained != NULL) {
            (void)UCT_CUDA_CALL(cuEventSynchronize, slot->drained);
            uct_cuda_mp_streams_put_event(streams, slot->device, slot->drained);
            slot->drained = NULL;
        }
    }

    uct_cuda_mp_staging_free(staging);
}

static ucs_status_t prepare_staging(uct_cuda_mp_streams_t *streams, int device,
                                    int gpu, int numa, size_t slot_size)
{
    uct_cuda_mp_staging_t *staging;
    ucs_status_t status;

    if ((gpu < 0) && (numa >= UCT_CUDA_MP_MAX_NUMA)) {
        return UCS_ERR_UNREACHABLE;
    }

    staging = (gpu >= 0) ? &streams->gpu_staging[gpu] :
                           &streams->host_staging[numa];
    if ((staging->base != 0) && (staging->slot_size >= slot_size)) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_push(
            streams->devices[(gpu >= 0) ? gpu : device].ctx);
    if (status != UCS_OK) {
        return status;
    }

    release_staging(streams, staging);
    if (gpu >= 0) {
        status = uct_cuda_mp_staging_alloc_gpu(staging, gpu, slot_size);
    } else {
        status = uct_cuda_mp_staging_alloc_host(staging, numa, slot_size);
    }

    uct_cuda_ctx_pop();
    return status;
}

static ucs_status_t prepare_path(uct_cuda_mp_streams_t *streams,
                                 const uct_cuda_mp_plan_t *plan,
                                 const uct_cuda_mp_ends_t *ends,
                                 const uct_cuda_mp_path_t *path)
{
    int src = plan->src_device;
    int dst = plan->dst_device;
    int via = (path->route == UCT_CUDA_MP_ROUTE_HOST) ? UCT_CUDA_MP_LANE_HOST :
                                                        path->gpu;
    ucs_status_t status;

    if (path->route == UCT_CUDA_MP_ROUTE_DIRECT) {
        return prepare_lane(streams, ends, uct_cuda_mp_lane(src, dst));
    }

    status = prepare_lane(streams, ends, uct_cuda_mp_lane(src, via));
    if (status != UCS_OK) {
        return status;
    }

    status = prepare_lane(streams, ends, uct_cuda_mp_lane(via, dst));
    if (status != UCS_OK) {
        return status;
    }

    return prepare_staging(streams, uct_cuda_mp_ends_local(ends), path->gpu,
                           plan->numa, plan->slot_size);
}

/* Where transfers between these ends, in this direction, are joined */
static CUstream *find_join(uct_cuda_mp_streams_t *streams,
                           const uct_cuda_mp_ends_t *ends)
{
    int local = uct_cuda_mp_ends_local(ends);

    if (local == ends->src_device) {
        return &streams->devices[local].joins[ends->dst_device][0];
    }

    return &streams->devices[local].joins[ends->src_device][1];
}

ucs_status_t uct_cuda_mp_streams_prepare(uct_cuda_mp_streams_t *streams,
                                         const uct_cuda_mp_plan_t *plan,
                                         const uct_cuda_mp_ends_t *ends,
                                         unsigned *path_p)
{
    int local = uct_cuda_mp_ends_local(ends);
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        status = prepare_path(streams, plan, ends, &plan->paths[i].path);
        if (status != UCS_OK) {
            *path_p = i;
            return status;
        }
    }

    /* Completion is awaited in the local context even if no lane is there */
    *path_p = 0;
    status  = prepare_device(streams, local);
    if (status != UCS_OK) {
        return status;
    }

    return prepare_stream(streams, local, find_join(streams, ends));
}

CUcontext uct_cuda_mp_streams_ctx(const uct_cuda_mp_streams_t *streams,
                                  int device)
{
    return streams->devices[device].ctx;
}


/* -------------------------------------------------------------- submission */

static ucs_status_t make_current(uct_cuda_mp_streams_t *streams, int device,
                                 int *current)
{
    if (*current == device) {
        return UCS_OK;
    }

    /* Replaces the top of the stack, which the caller has pushed */
    *current = device;
    return UCT_CUDA_CALL(cuCtxSetCurrent, streams->devices[device].ctx);
}

/* Address of a place for copies in one device's context */
static CUdeviceptr place_address(uct_cuda_mp_streams_t *streams,
                                 const uct_cuda_mp_place_t *place,
                                 const uct_cuda_mp_ends_t *ends, int device)
{
    uct_cuda_mp_staging_t *staging;
    bool is_src;

    if (place->type <= UCT_CUDA_MP_PLACE_DESTINATION) {
        is_src = (place->type == UCT_CUDA_MP_PLACE_SOURCE);
        if ((device != uct_cuda_mp_ends_local(ends)) &&
            (ends->remote_device ==
             (is_src ? ends->src_device : ends->dst_device))) {
            return ends->mapped[device];
        }

        return is_src ? ends->src : ends->dst;
    }

    staging = find_staging(streams, place);
    return staging->base +
           uct_cuda_mp_staging_slot(staging, place->slot) * staging->slot_size;
}

static uct_cuda_mp_slot_t *place_slot(uct_cuda_mp_streams_t *streams,
                                      const uct_cuda_mp_place_t *place)
{
    uct_cuda_mp_staging_t *staging;

    if (place->type <= UCT_CUDA_MP_PLACE_DESTINATION) {
        return NULL;
    }

    staging = find_staging(streams, place);
    return &staging->slots[uct_cuda_mp_staging_slot(staging, place->slot)];
}

/* Make the lane wait for what the step waits for: earlier steps, and the
 * transfer that had the slot before */
static ucs_status_t submit_waits(uct_cuda_mp_streams_t *streams,
                                 const uct_cuda_mp_plan_t *plan,
                                 const uct_cuda_mp_step_t *step,
                                 CUstream stream)
{
    const uct_cuda_mp_slot_t *slot = place_slot(streams, &step->to);
    ucs_status_t status;
    unsigned w;
    int wait;

    for (w = 0; w < 2; ++w) {
        wait = step->waits[w];
        if ((wait == UCT_CUDA_MP_NO_STEP) ||
            (plan->steps[wait].lane == step->lane)) {
            continue;
        }

        status = UCT_CUDA_CALL(cuStreamWaitEvent, stream, streams->events[wait],
                               0);
        if (status != UCS_OK) {
            return status;
        }
    }

    if ((slot != NULL) && (slot->drained != NULL)) {
        return UCT_CUDA_CALL(cuStreamWaitEvent, stream, slot->drained, 0);
    }

    return UCS_OK;
}

/* Note that the transfer has work on a lane */
static void note_used(uct_cuda_mp_streams_t *streams, uint16_t number,
                      int device)
{
    bool *is_used = &streams->devices[device].is_used[number];
    lane_t *lane  = &streams->used[streams->num_used];

    if (!*is_used) {
        *is_used     = true;
        lane->number = number;
        lane->device = (int16_t)device;
        ++streams->num_used;
    }
}

static ucs_status_t submit_step(uct_cuda_mp_streams_t *streams,
                                const uct_cuda_mp_plan_t *plan, unsigned number,
                                const uct_cuda_mp_ends_t *ends, size_t offset,
                                int *current)
{
    const uct_cuda_mp_step_t *step = &plan->steps[number];
    int device                     = lane_device(ends, step->lane);
    CUstream stream                = streams->devices[device].lanes[step->lane];
    uint64_t from_offset           = step->from_offset;
    uint64_t to_offset             = step->to_offset;
    ucs_status_t status;
    CUevent event;

    status = make_current(streams, device, current);
    if (status != UCS_OK) {
        return status;
    }

    status = submit_waits(streams, plan, step, stream);
    if (status != UCS_OK) {
        return status;
    }

    if (step->from.type == UCT_CUDA_MP_PLACE_SOURCE) {
        from_offset += offset;
    }

    if (step->to.type == UCT_CUDA_MP_PLACE_DESTINATION) {
        to_offset += offset;
    }

    note_used(streams, step->lane, device);
    status = UCT_CUDA_CALL(
            cuMemcpyAsync,
            place_address(streams, &step->to, ends, device) + to_offset,
            place_address(streams, &step->from, ends, device) + from_offset,
            step->bytes, stream);
    if ((status != UCS_OK) || !streams->is_awaited[number]) {
        return status;
    }

    status = get_event(streams, device, &event);
    if (status != UCS_OK) {
        return status;
    }

    streams->events[number] = event;
    return UCT_CUDA_CALL(cuEventRecord, event, stream);
}

/* Steps whose end somebody waits for: later steps on other lanes, and whoever
 * gets a slot after this plan */
static void mark_awaited(uct_cuda_mp_streams_t *streams,
                         const uct_cuda_mp_plan_t *plan)
{
    const uct_cuda_mp_step_t *step;
    unsigned i, w;

    for (i = 0; i < plan->num_steps; ++i) {
        step                   = &plan->steps[i];
        streams->events[i]     = NULL;
        streams->is_awaited[i] = (step->from.type >
                                  UCT_CUDA_MP_PLACE_DESTINATION);
        for (w = 0; w < 2; ++w) {
            if ((step->waits[w] != UCT_CUDA_MP_NO_STEP) &&
                (plan->steps[step->waits[w]].lane != step->lane)) {
                streams->is_awaited[step->waits[w]] = true;
            }
        }
    }
}

/* A slot keeps the event behind the last copy out of it. All other events are
 * free again: a wait holds on to what was recorded when it was submitted. */
static void settle_events(uct_cuda_mp_streams_t *streams,
                          const uct_cuda_mp_plan_t *plan,
                          const uct_cuda_mp_ends_t *ends)
{
    const uct_cuda_mp_step_t *step;
    uct_cuda_mp_slot_t *slot;
    CUevent event;
    unsigned i;
    int device;

    for (i = 0; i < plan->num_steps; ++i) {
        step   = &plan->steps[i];
        event  = streams->events[i];
        device = lane_device(ends, step->lane);
        slot   = place_slot(streams, &step->from);
        if (event == NULL) {
            continue;
        }

        if (slot != NULL) {
            if (slot->drained != NULL) {
                uct_cuda_mp_streams_put_event(streams, slot->device,
                                              slot->drained);
            }
            slot->drained = event;
            slot->device  = device;
        } else {
            uct_cuda_mp_streams_put_event(streams, device, event);
        }
    }
}

/* The next plan begins behind the slots of this one */
static void advance_slots(uct_cuda_mp_streams_t *streams,
                          const uct_cuda_mp_plan_t *plan)
{
    const uct_cuda_mp_plan_path_t *path;
    uct_cuda_mp_staging_t *staging;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        path = &plan->paths[i];
        if (path->path.route == UCT_CUDA_MP_ROUTE_DIRECT) {
            continue;
        }

        staging       = (path->path.route == UCT_CUDA_MP_ROUTE_HOST) ?
                                &streams->host_staging[plan->numa] :
                                &streams->gpu_staging[path->path.gpu];
        staging->next = uct_cuda_mp_staging_slot(staging, path->slots);
    }
}

ucs_status_t uct_cuda_mp_streams_submit(uct_cuda_mp_streams_t *streams,
                                        const uct_cuda_mp_plan_t *plan,
                                        const uct_cuda_mp_ends_t *ends,
                                        size_t offset)
{
    int current = uct_cuda_mp_ends_local(ends);
    ucs_status_t status;
    unsigned i;

    status = uct_cuda_ctx_push(streams->devices[current].ctx);
    if (status != UCS_OK) {
        return status;
    }

    mark_awaited(streams, plan);
    for (i = 0; (i < plan->num_steps) && (status == UCS_OK); ++i) {
        status = submit_step(streams, plan, i, ends, offset, &current);
    }

    /* After a failure as well: what was recorded is recorded */
    settle_events(streams, plan, ends);
    advance_slots(streams, plan);
    uct_cuda_ctx_pop();
    return status;
}

static void forget_used(uct_cuda_mp_streams_t *streams)
{
    const lane_t *lane;

    while (streams->num_used > 0) {
        lane = &streams->used[--streams->num_used];
        streams->devices[lane->device].is_used[lane->number] = false;
    }
}

/* Make the join stream wait for one lane */
static ucs_status_t join_lane(uct_cuda_mp_streams_t *streams,
                              const lane_t *lane, CUstream join, int *current)
{
    CUstream stream = streams->devices[lane->device].lanes[lane->number];
    ucs_status_t status;
    CUevent event;

    status = make_current(streams, lane->device, current);
    if (status != UCS_OK) {
        return status;
    }

    status = get_event(streams, lane->device, &event);
    if (status != UCS_OK) {
        return status;
    }

    status = UCT_CUDA_CALL(cuEventRecord, event, stream);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuStreamWaitEvent, join, event, 0);
    }

    uct_cuda_mp_streams_put_event(streams, lane->device, event);
    return status;
}

ucs_status_t uct_cuda_mp_streams_finish(uct_cuda_mp_streams_t *streams,
                                        const uct_cuda_mp_ends_t *ends,
                                        CUevent *event_p)
{
    CUstream join = *find_join(streams, ends);
    int local     = uct_cuda_mp_ends_local(ends);
    int current   = local;
    ucs_status_t status;
    unsigned i;

    status = uct_cuda_ctx_push(streams->devices[local].ctx);
    if (status != UCS_OK) {
        return status;
    }

    for (i = 0; (i < streams->num_used) && (status == UCS_OK); ++i) {
        status = join_lane(streams, &streams->used[i], join, &current);
    }

    if (status == UCS_OK) {
        status = make_current(streams, local, &current);
    }

    if (status == UCS_OK) {
        status = get_event(streams, local, event_p);
    }

    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord, *event_p, join);
        if (status != UCS_OK) {
            uct_cuda_mp_streams_put_event(streams, local, *event_p);
        }
    }

    uct_cuda_ctx_pop();
    if (status == UCS_OK) {
        forget_used(streams);
    }

    return status;
}

static void wait_stream(uct_cuda_mp_streams_t *streams, int device,
                        CUstream stream)
{
    if (uct_cuda_ctx_push(streams->devices[device].ctx) == UCS_OK) {
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
        uct_cuda_ctx_pop();
    }
}

void uct_cuda_mp_streams_abort(uct_cuda_mp_streams_t *streams)
{
    const lane_t *lane;
    unsigned i;

    for (i = 0; i < streams->num_used; ++i) {
        lane = &streams->used[i];
        wait_stream(streams, lane->device,
                    streams->devices[lane->device].lanes[lane->number]);
    }

    forget_used(streams);
}

ucs_status_t uct_cuda_mp_streams_notify(uct_cuda_mp_streams_t *streams,
                                        int device, CUevent event,
                                        CUhostFn func, void *arg)
{
    CUstream *stream = &streams->devices[device].notify;
    ucs_status_t status;

    status = prepare_stream(streams, device, stream);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_ctx_push(streams->devices[device].ctx);
    if (status != UCS_OK) {
        return status;
    }

    status = UCT_CUDA_CALL(cuStreamWaitEvent, *stream, event, 0);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuLaunchHostFunc, *stream, func, arg);
    }

    uct_cuda_ctx_pop();
    return status;
}


/* ---------------------------------------------------------------- clean-up */

static void destroy_stream(CUstream stream)
{
    if (stream != NULL) {
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
        (void)UCT_CUDA_CALL(cuStreamDestroy, stream);
    }
}

/* Streams and events of one device, in its context */
static void destroy_device(device_t *device)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_MP_NUM_LANES; ++i) {
        destroy_stream(device->lanes[i]);
    }

    destroy_stream(device->notify);
    for (i = 0; i < UCT_CUDA_TOPO_MAX_GPUS; ++i) {
        destroy_stream(device->joins[i][0]);
        destroy_stream(device->joins[i][1]);
    }

    for (i = 0; i < device->pool.count; ++i) {
        (void)UCT_CUDA_CALL(cuEventDestroy, device->pool.events[i]);
    }
}

void uct_cuda_mp_streams_destroy(uct_cuda_mp_streams_t *streams)
{
    device_t *device;
    unsigned i, lane, numa;

    /* First what crosses devices: no slot is in use any more afterwards */
    for (i = 0; i < UCT_CUDA_TOPO_MAX_GPUS; ++i) {
        for (lane = 0; lane < UCT_CUDA_MP_NUM_LANES; ++lane) {
            if (streams->devices[i].lanes[lane] != NULL) {
                wait_stream(streams, (int)i, streams->devices[i].lanes[lane]);
            }
        }
    }

    for (i = 0; i < UCT_CUDA_TOPO_MAX_GPUS; ++i) {
        if ((streams->devices[i].ctx == NULL) ||
            (uct_cuda_ctx_push(streams->devices[i].ctx) != UCS_OK)) {
            continue;
        }

        release_staging(streams, &streams->gpu_staging[i]);
        for (numa = 0; numa < UCT_CUDA_MP_MAX_NUMA; ++numa) {
            release_staging(streams, &streams->host_staging[numa]);
        }
        uct_cuda_ctx_pop();
    }

    for (i = 0; i < UCT_CUDA_TOPO_MAX_GPUS; ++i) {
        device = &streams->devices[i];
        if ((device->ctx != NULL) &&
            (uct_cuda_ctx_push(device->ctx) == UCS_OK)) {
            destroy_device(device);
            uct_cuda_ctx_pop();
        }
    }

    for (i = 0; i < UCT_CUDA_TOPO_MAX_GPUS; ++i) {
        free(streams->devices[i].pool.events);
        if (streams->devices[i].ctx != NULL) {
            uct_cuda_ctx_release((int)i);
        }
    }

    free(streams);
}
