/* SPDX-License-Identifier: BSD-3-Clause */
/* Events after the last copies: recording, query, wait. */
#include <uct/cuda/run/completion.h>

#include <uct/cuda/base/capture.h>
#include <uct/cuda/base/ctx.h>


void uct_cuda_run_used_add(uct_cuda_run_used_t *used, int device,
                           CUstream stream, bool is_last)
{
    unsigned i;

    for (i = 0; i < used->count; ++i) {
        if (used->streams[i].stream == stream) {
            used->streams[i].is_last |= is_last;
            return;
        }
    }

    used->streams[i].stream  = stream;
    used->streams[i].device  = device;
    used->streams[i].is_last = is_last;
    ++used->count;
}

void uct_cuda_run_used_wait(uct_cuda_run_used_t *used, uct_cuda_run_rsc_t *rsc)
{
    while (used->count > 0) {
        --used->count;
        uct_cuda_run_rsc_wait_stream(rsc, used->streams[used->count].device,
                                     used->streams[used->count].stream);
    }
}

void uct_cuda_run_completion_put(uct_cuda_run_rsc_t *rsc,
                                 const uct_cuda_run_completion_t *completion)
{
    const uct_cuda_run_completion_event_t *event;
    unsigned i;

    for (i = 0; i < completion->count; ++i) {
        event = &completion->events[i];
        if (event->ctx_id == uct_cuda_run_rsc_ctx_id(rsc, event->device)) {
            uct_cuda_run_rsc_put_event(rsc, event->device, event->event);
        }
    }
}

/* Record an event after the work of a stream so far */
static ucs_status_t add_event(uct_cuda_run_rsc_t *rsc, int device,
                              CUstream stream,
                              uct_cuda_run_completion_t *completion,
                              int *current)
{
    uct_cuda_run_completion_event_t *event =
            &completion->events[completion->count];
    ucs_status_t status;

    event->device = device;
    event->ctx_id = uct_cuda_run_rsc_ctx_id(rsc, device);
    status        = uct_cuda_run_rsc_make_current(rsc, device, current);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_run_rsc_get_event(rsc, device, &event->event);
    if (status != UCS_OK) {
        return status;
    }

    ++completion->count;
    return UCT_CUDA_CALL(cuEventRecord, event->event, stream);
}

ucs_status_t
uct_cuda_run_completion_record(uct_cuda_run_rsc_t *rsc, int device,
                               uct_cuda_run_used_t *used,
                               uct_cuda_run_completion_t *completion)
{
    int current = device;
    ucs_status_t status;
    unsigned i;

    completion->count = 0;
    completion->next_pending  = 0;
    status            = uct_cuda_ctx_push(uct_cuda_run_rsc_ctx(rsc, current));
    if (status != UCS_OK) {
        return status;
    }

    for (i = 0; (i < used->count) && (status == UCS_OK); ++i) {
        if (used->streams[i].is_last) {
            status = add_event(rsc, used->streams[i].device,
                               used->streams[i].stream, completion, &current);
        }
    }

    uct_cuda_ctx_pop();
    if (status != UCS_OK) {
        uct_cuda_run_completion_put(rsc, completion);
        return status;
    }

    completion->num_pending = completion->count;
    used->count             = 0;
    return UCS_OK;
}

/* Remove an event from the pending ones */
static void remove_pending(uct_cuda_run_completion_t *completion,
                           unsigned number)
{
    uct_cuda_run_completion_event_t *last =
            &completion->events[--completion->num_pending];
    uct_cuda_run_completion_event_t seen  = completion->events[number];

    completion->events[number] = *last;
    *last                      = seen;
}

ucs_status_t uct_cuda_run_completion_test(uct_cuda_run_completion_t *completion)
{
    const bool is_changed = uct_cuda_capture_relax();
    ucs_status_t status   = UCS_OK;
    unsigned number;

    while (completion->num_pending > 0) {
        number = completion->next_pending % completion->num_pending;
        status = UCT_CUDA_CALL(cuEventQuery, completion->events[number].event);
        if (status != UCS_OK) {
            /* query another event next time, so that all are known when the
             * last one completes */
            ++completion->next_pending;
            break;
        }

        remove_pending(completion, number);
    }

    uct_cuda_capture_restore(is_changed);
    return status;
}

void uct_cuda_run_completion_wait(uct_cuda_run_completion_t *completion)
{
    while (completion->num_pending > 0) {
        (void)UCT_CUDA_CALL_NOLOG(
                cuEventSynchronize,
                completion->events[--completion->num_pending].event);
    }
}

ucs_status_t
uct_cuda_run_completion_notify(uct_cuda_run_rsc_t *rsc, int device,
                               uint16_t link,
                               const uct_cuda_run_completion_t *completion,
                               CUhostFn func, void *arg)
{
    ucs_status_t status;
    CUstream stream;
    unsigned i;

    status = uct_cuda_run_rsc_notify_stream(rsc, device, link, &stream);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_ctx_push(uct_cuda_run_rsc_ctx(rsc, device));
    if (status != UCS_OK) {
        return status;
    }

    for (i = 0; (i < completion->num_pending) && (status == UCS_OK); ++i) {
        status = UCT_CUDA_CALL(cuStreamWaitEvent, stream,
                               completion->events[i].event, 0);
    }

    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuLaunchHostFunc, stream, func, arg);
    }

    uct_cuda_ctx_pop();
    return status;
}
