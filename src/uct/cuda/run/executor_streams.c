/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executor of streams: a stream for each link, and events between links. It
 * carries out any plan.
 */
#include <uct/cuda/run/executor.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/run/submit.h>

#include <stdlib.h>
#include <string.h>


struct uct_cuda_run_streams {
    uct_cuda_run_rsc_t          *rsc;
    /* Plan being submitted */
    const uct_cuda_plan_t       *plan;
    const uct_cuda_run_memory_t *memory;
    int                         device; /* device of the current context */
    uct_cuda_run_submit_t       submit;
    bool                        is_awaited[UCT_CUDA_PLAN_MAX_STEPS];
    CUevent                     events[UCT_CUDA_PLAN_MAX_STEPS];
};

typedef uct_cuda_run_streams_t streams_t;


ucs_status_t uct_cuda_run_streams_create(uct_cuda_run_rsc_t *rsc,
                                         uct_cuda_run_streams_t **streams_p)
{
    *streams_p = calloc(1, sizeof(**streams_p));
    if (*streams_p == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    (*streams_p)->rsc = rsc;
    return UCS_OK;
}

void uct_cuda_run_streams_destroy(uct_cuda_run_streams_t *streams)
{
    free(streams);
}

static CUdeviceptr address(const void *arg, const uct_cuda_plan_place_t *place)
{
    const streams_t *streams = arg;

    return uct_cuda_run_rsc_address(streams->rsc, streams->plan, place,
                                    streams->memory, streams->device);
}

static void name_bar(const void *arg, const uct_cuda_plan_step_t *step,
                     uct_cuda_run_submit_bar_t *bar)
{
    const uct_cuda_plan_t *plan = ((const streams_t*)arg)->plan;

    bar->from = uct_cuda_plan_link_from(step->queue);
    bar->to   = uct_cuda_plan_link_to(step->queue);
    uct_cuda_plan_path_str(plan->paths[step->part].via, bar->what,
                           sizeof(bar->what));
    uct_cuda_plan_places_str(plan, step, bar->places, sizeof(bar->places));
}

/* Let the link wait for the step's predecessor: an earlier step, or the last
 * user of its slot */
static ucs_status_t
submit_waits(streams_t *streams, unsigned step, CUstream stream)
{
    const uct_cuda_plan_t *plan = streams->plan;
    CUevent event;

    event = uct_cuda_plan_step_has_wait(plan, step) ?
                    streams->events[plan->waits[step]] :
                    uct_cuda_run_rsc_awaited(streams->rsc, plan, step);
    return (event == NULL) ?
                   UCS_OK :
                   UCT_CUDA_CALL(cuStreamWaitEvent, stream, event, 0);
}

/* Return a link's stream, which waits for work outside of it; the link's device
 * becomes current */
static ucs_status_t
enter_link(streams_t *streams, int device, uint16_t number, CUstream *stream_p)
{
    uct_cuda_run_link_t *link = uct_cuda_run_rsc_link(streams->rsc, device,
                                                      number);
    ucs_status_t status;

    status = uct_cuda_run_rsc_make_current(streams->rsc, device,
                                           &streams->device);
    if ((status == UCS_OK) && (link->outside != NULL)) {
        status = UCT_CUDA_CALL(cuStreamWaitEvent, link->stream, link->outside,
                               0);
    }

    if (status == UCS_OK) {
        link->outside   = NULL;
        link->is_queued = true;
        *stream_p       = link->stream;
    }

    return status;
}

static ucs_status_t submit_step(streams_t *streams, uct_cuda_run_used_t *used,
                                unsigned number)
{
    const uct_cuda_plan_t *plan      = streams->plan;
    const uct_cuda_plan_step_t *step = &plan->steps[number];
    const int device                 = uct_cuda_plan_link_device(plan,
                                                                 step->queue);
    ucs_status_t status;
    CUstream stream;
    CUevent event;

    status = enter_link(streams, device, step->queue, &stream);
    if (status != UCS_OK) {
        return status;
    }

    status = submit_waits(streams, number, stream);
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_run_used_add(used, device, stream,
                          uct_cuda_plan_to(plan, number)->buffer ==
                                  UCT_CUDA_BUFFER_RECV);
    status = uct_cuda_run_submit_step(&streams->submit, step, stream);
    if ((status != UCS_OK) || !streams->is_awaited[number]) {
        return status;
    }

    status = uct_cuda_run_rsc_get_event(streams->rsc, device, &event);
    if (status != UCS_OK) {
        return status;
    }

    streams->events[number] = event;
    return UCT_CUDA_CALL(cuEventRecord, event, stream);
}

/* Hand the events of the steps over to the slots that the steps have drained,
 * and release all others: a submitted wait stays valid. */
static void settle_events(streams_t *streams,
                          const uct_cuda_plan_t *plan)
{
    uct_cuda_run_slot_t *slot;
    CUevent event;
    unsigned i;
    int device;

    for (i = 0; i < plan->num_steps; ++i) {
        event = streams->events[i];
        if (event == NULL) {
            continue;
        }

        device = uct_cuda_plan_link_device(plan, plan->steps[i].queue);
        slot   = uct_cuda_run_rsc_slot(streams->rsc, plan,
                                       uct_cuda_plan_from(plan, i));
        if (slot != NULL) {
            uct_cuda_run_rsc_set_drained(streams->rsc, slot, event, device,
                                         false);
        } else {
            uct_cuda_run_rsc_put_event(streams->rsc, device, event);
        }
    }
}

static void begin(streams_t *streams, const uct_cuda_plan_t *plan,
                  const uct_cuda_run_memory_t *memory)
{
    uct_cuda_run_submit_t *submit = &streams->submit;

    streams->plan          = plan;
    streams->memory        = memory;
    streams->device        = plan->local;
    submit->list           = uct_cuda_plan_list(plan);
    submit->address        = address;
    submit->bar            = name_bar;
    submit->arg            = streams;
    submit->bounded        = uct_cuda_end_is_host(plan->src) ?
                                     UCT_CUDA_BUFFER_SEND :
                                     UCT_CUDA_BUFFER_RECV;
    submit->offset         = memory->offset;
    submit->num_boundaries = memory->num_boundaries;
    submit->boundaries     = memory->boundaries;
    uct_cuda_plan_awaited(plan, streams->is_awaited);
    memset(streams->events, 0, plan->num_steps * sizeof(streams->events[0]));
}

ucs_status_t uct_cuda_run_streams_submit(uct_cuda_run_streams_t *streams,
                                         const uct_cuda_run_work_t *work,
                                         const uct_cuda_run_memory_t *memory)
{
    ucs_status_t status;
    unsigned i;

    status = uct_cuda_ctx_push(uct_cuda_run_rsc_ctx(streams->rsc,
                                                    work->plan->local));
    if (status != UCS_OK) {
        return status;
    }

    begin(streams, work->plan, memory);
    for (i = 0; (i < work->plan->num_steps) && (status == UCS_OK); ++i) {
        status = submit_step(streams, work->used, i);
    }

    /* after a failure as well, for the recorded events */
    settle_events(streams, work->plan);
    (void)uct_cuda_run_rsc_next_slots(streams->rsc, work->plan, 1, true);
    uct_cuda_ctx_pop();
    return status;
}
