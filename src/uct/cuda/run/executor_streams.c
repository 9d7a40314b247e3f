/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor "streams": a stream a lane, and events where lanes wait for each
 * other. It takes every plan.
 */
#include <uct/cuda/run/executor.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/run/lane_order.h>

#include <stdlib.h>
#include <string.h>


typedef struct {
    uct_cuda_mp_executor_t super;
    /* Of the plan that is being submitted */
    bool                   is_awaited[UCT_CUDA_MP_MAX_STEPS];
    CUevent                events[UCT_CUDA_MP_MAX_STEPS];
} streams_t;


static ucs_status_t streams_create(const uct_cuda_mp_config_t *config,
                                   uct_cuda_mp_executor_t **executor_p)
{
    *executor_p = calloc(1, sizeof(streams_t));
    return (*executor_p == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
}

static void streams_destroy(uct_cuda_mp_executor_t *executor)
{
    free(executor);
}

static uct_cuda_mp_slot_t *place_slot(streams_t *streams,
                                      const uct_cuda_mp_plan_t *plan,
                                      const uct_cuda_place_t *place)
{
    uct_cuda_mp_staging_t *staging;

    if (place->buffer != UCT_CUDA_BUFFER_SCRATCH) {
        return NULL;
    }

    staging = uct_cuda_mp_rsc_staging(streams->super.rsc, plan, place);
    return &staging->slots[uct_cuda_mp_staging_slot(staging, place->slot)];
}

/* Make the lane wait for what the step waits for: an earlier step, and the
 * transfer that had the slot before */
static ucs_status_t submit_waits(streams_t *streams,
                                 const uct_cuda_mp_plan_t *plan,
                                 unsigned step, CUstream stream)
{
    const uct_cuda_mp_slot_t *slot = place_slot(
            streams, plan, uct_cuda_mp_plan_to(plan, step));
    ucs_status_t status;

    if (uct_cuda_mp_plan_step_waits(plan, step)) {
        status = UCT_CUDA_CALL(cuStreamWaitEvent, stream,
                               streams->events[plan->waits[step]], 0);
        if (status != UCS_OK) {
            return status;
        }
    }

    return ((slot == NULL) || (slot->drained == NULL)) ?
                   UCS_OK :
                   UCT_CUDA_CALL(cuStreamWaitEvent, stream, slot->drained, 0);
}

/* Bytes until the host end's next boundary from there, at most so many */
static size_t until_boundary(const uct_cuda_mp_memory_t *memory, size_t begin,
                             size_t bytes)
{
    const size_t *boundaries = memory->boundaries;
    unsigned i               = 0;

    while ((i < memory->num_boundaries) && (boundaries[i] <= begin)) {
        ++i;
    }

    return ((i < memory->num_boundaries) && (boundaries[i] - begin < bytes)) ?
                   boundaries[i] - begin :
                   bytes;
}

/* One copy, or where it touches several registrations, one each */
static ucs_status_t submit_copies(const uct_cuda_mp_plan_t *plan, unsigned step,
                                  const uct_cuda_mp_memory_t *memory,
                                  CUdeviceptr from, CUdeviceptr to,
                                  CUstream stream)
{
    const uint16_t lane = plan->steps[step].queue;
    const bool is_from  = uct_cuda_end_is_host(uct_cuda_mp_lane_from(lane));
    const bool is_to    = uct_cuda_end_is_host(uct_cuda_mp_lane_to(lane));
    size_t begin        = memory->offset +
                   (is_from ? uct_cuda_mp_plan_from(plan, step)->offset :
                              uct_cuda_mp_plan_to(plan, step)->offset);
    size_t left         = plan->steps[step].bytes;
    ucs_status_t status;
    size_t bytes;

    do {
        bytes   = (is_from || is_to) ? until_boundary(memory, begin, left) :
                                       left;
        status  = UCT_CUDA_CALL(cuMemcpyAsync, to, from, bytes, stream);
        from   += bytes;
        to     += bytes;
        begin  += bytes;
        left   -= bytes;
    } while ((status == UCS_OK) && (left > 0));

    return status;
}

static void trace_step(uct_cuda_trace_copy_t *copy, CUstream stream,
                       const uct_cuda_mp_plan_t *plan,
                       const uct_cuda_step_t *step)
{
    char path[16];

    if (copy != NULL) {
        uct_cuda_mp_path_str(&plan->paths[step->part].path, path,
                             sizeof(path));
        uct_cuda_trace_end(copy, stream, uct_cuda_mp_lane_from(step->queue),
                           uct_cuda_mp_lane_to(step->queue), step->bytes, path);
    }
}

static ucs_status_t submit_step(streams_t *streams,
                                const uct_cuda_mp_work_t *work,
                                const uct_cuda_mp_memory_t *memory,
                                unsigned number, int *current)
{
    uct_cuda_mp_rsc_t *rsc         = streams->super.rsc;
    const uct_cuda_mp_plan_t *plan = work->plan;
    const uct_cuda_step_t *step    = &plan->steps[number];
    const int device               = uct_cuda_mp_plan_lane_device(plan,
                                                                  step->queue);
    uct_cuda_trace_copy_t *copy;
    CUdeviceptr from, to;
    ucs_status_t status;
    CUstream stream;
    CUevent event;

    status = uct_cuda_mp_lane_to_stream(rsc, device, step->queue, current,
                                        &stream);
    if (status != UCS_OK) {
        return status;
    }

    status = submit_waits(streams, plan, number, stream);
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_mp_rsc_addresses(rsc, plan, number, memory, &from, &to);
    uct_cuda_mp_used_add(work->used, device, stream,
                         uct_cuda_mp_plan_to(plan, number)->buffer ==
                                 UCT_CUDA_BUFFER_RECV);
    copy   = uct_cuda_trace_begin(stream);
    status = (memory->num_boundaries > 0) ?
                     submit_copies(plan, number, memory, from, to, stream) :
                     UCT_CUDA_CALL(cuMemcpyAsync, to, from, step->bytes,
                                   stream);
    trace_step(copy, stream, plan, step);
    if ((status != UCS_OK) || !streams->is_awaited[number]) {
        return status;
    }

    status = uct_cuda_mp_rsc_get_event(rsc, device, &event);
    if (status != UCS_OK) {
        return status;
    }

    streams->events[number] = event;
    return UCT_CUDA_CALL(cuEventRecord, event, stream);
}

/* A slot keeps the event behind the last copy out of it. All other events are
 * free again: a wait holds on to what was recorded when it was submitted. */
static void settle_events(streams_t *streams,
                          const uct_cuda_mp_plan_t *plan)
{
    uct_cuda_mp_slot_t *slot;
    CUevent event;
    unsigned i;
    int device;

    for (i = 0; i < plan->num_steps; ++i) {
        event = streams->events[i];
        if (event == NULL) {
            continue;
        }

        device = uct_cuda_mp_plan_lane_device(plan, plan->steps[i].queue);
        slot   = place_slot(streams, plan, uct_cuda_mp_plan_from(plan, i));
        if (slot != NULL) {
            uct_cuda_mp_rsc_set_drained(streams->super.rsc, slot, event, device,
                                        false);
        } else {
            uct_cuda_mp_rsc_put_event(streams->super.rsc, device, event);
        }
    }
}

/* The next plan begins behind the slots of each staging memory that this one
 * uses */
static void pass_slots(streams_t *streams, const uct_cuda_mp_plan_t *plan)
{
    uct_cuda_mp_staging_t *staging;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        staging = uct_cuda_mp_rsc_path_staging(streams->super.rsc, plan, i);
        if (staging != NULL) {
            staging->next = uct_cuda_mp_staging_slot(staging,
                                                     plan->paths[i].slots);
        }
    }
}

static ucs_status_t streams_submit(uct_cuda_mp_executor_t *executor,
                                   const uct_cuda_mp_work_t *work,
                                   const uct_cuda_mp_memory_t *memory)
{
    streams_t *streams = (streams_t*)executor;
    int current        = work->plan->local;
    ucs_status_t status;
    unsigned i;

    status = uct_cuda_ctx_push(uct_cuda_mp_rsc_ctx(executor->rsc, current));
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_mp_plan_awaited(work->plan, streams->is_awaited);
    memset(streams->events, 0,
           work->plan->num_steps * sizeof(streams->events[0]));
    for (i = 0; (i < work->plan->num_steps) && (status == UCS_OK); ++i) {
        status = submit_step(streams, work, memory, i, &current);
    }

    /* After a failure as well: what was recorded is recorded */
    settle_events(streams, work->plan);
    pass_slots(streams, work->plan);
    uct_cuda_ctx_pop();
    return status;
}

const uct_cuda_mp_executor_ops_t uct_cuda_mp_executor_streams = {
    .create  = streams_create,
    .destroy = streams_destroy,
    .submit  = streams_submit
};
