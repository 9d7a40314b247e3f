/* SPDX-License-Identifier: BSD-3-Clause */

/* Streams, events and host functions. */
#include "cuemu_capture.h"

#include <stdlib.h>
#include <string.h>


static void cuemu_stream_free(cuemu_stream_t *stream)
{
    cuemu_stream_t **link = &stream->ctx->streams;

    cuemu_work_orphan(stream);
    cuemu_capture_forget_stream(stream);
    while ((*link != NULL) && (*link != stream)) {
        link = &(*link)->next;
    }

    if (*link != NULL) {
        *link = stream->next;
    }

    cuemu_object_delete(stream);
}

void cuemu_stream_retire(cuemu_context_t *ctx)
{
    cuemu_stream_t *stream, *next;
    cuemu_event_t *event, *next_event;

    for (stream = ctx->streams; stream != NULL; stream = next) {
        next = stream->next;
        cuemu_capture_forget_stream(stream);
        cuemu_object_retire(stream);
    }

    cuemu_object_retire(ctx->null_stream);
    ctx->streams     = NULL;
    ctx->null_stream = NULL;
    for (event = cuemu_object_next(CUEMU_OBJ_EVENT, NULL); event != NULL;
         event = next_event) {
        next_event = cuemu_object_next(CUEMU_OBJ_EVENT, event);
        if (event->ctx == ctx) {
            cuemu_work_release(event);
            cuemu_event_forget_capture(event);
            cuemu_object_retire(event);
        }
    }
}

static CUresult cuemu_stream_create(CUstream *stream_p, unsigned flags,
                                    int priority)
{
    cuemu_context_t *ctx = cuemu_context_top();
    cuemu_stream_t *stream;

    if ((stream_p == NULL) || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    priority = (priority > 0) ? 0 : (priority < -5) ? -5 : priority;
    cuemu_lock();
    stream = cuemu_stream_new(ctx, flags, priority);
    cuemu_unlock();
    if (stream == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    cuemu_work_spend(CUEMU_CALL_STREAM_CREATE);
    *stream_p = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUEMU_CTX_API(cuStreamCreate, (CUstream *stream, unsigned flags),
              (stream, flags))
{
    return cuemu_stream_create(stream, flags, 0);
}

CUEMU_CTX_API(cuStreamCreateWithPriority,
              (CUstream *stream, unsigned flags, int priority),
              (stream, flags, priority))
{
    return cuemu_stream_create(stream, flags, priority);
}

CUEMU_API(cuStreamDestroy, (CUstream handle), (handle))
{
    cuemu_stream_t *stream = cuemu_stream_check(handle);

    if (stream == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    cuemu_lock();
    if (stream->ctx->null_stream == stream) {
        cuemu_unlock();
        return CUDA_ERROR_INVALID_HANDLE;
    }
    cuemu_stream_free(stream);
    cuemu_unlock();
    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuStreamDestroy_v2, cuStreamDestroy);

/* Return the operation after all work in the stream, 0 if it has ended, and the
   time of its submission. */
static cuemu_op_id_t cuemu_stream_tail(cuemu_stream_t *stream,
                                       cuemu_time_t *submitted_p)
{
    cuemu_op_id_t op;

    cuemu_lock();
    op           = cuemu_work_tail(stream);
    *submitted_p = stream->submitted;
    cuemu_unlock();
    return op;
}

CUEMU_API(cuStreamQuery, (CUstream handle), (handle))
{
    cuemu_time_t submitted;
    cuemu_stream_t *stream;
    cuemu_op_id_t tail;
    CUresult result = cuemu_stream_use(handle, &stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }

    (void)cuemu_work_progress();
    tail = cuemu_stream_tail(stream, &submitted);
    if (tail != 0) {
        if (stream->watched != tail) {
            stream->watched = tail;
            cuemu_work_watch(tail);
        }
        cuemu_work_spend_polling(CUEMU_CALL_QUERY_BUSY);
        return CUDA_ERROR_NOT_READY;
    }

    cuemu_work_spend(CUEMU_CALL_QUERY_DONE);
    return cuemu_context_fault(stream->ctx);
}

CUEMU_API(cuStreamSynchronize, (CUstream handle), (handle))
{
    cuemu_time_t submitted;
    cuemu_stream_t *stream;
    cuemu_op_id_t op;
    CUresult result = cuemu_stream_use(handle, &stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }

    op = cuemu_stream_tail(stream, &submitted);
    if (op != 0) {
        cuemu_work_wait(op);
    }

    cuemu_pool_collect();
    cuemu_work_spend(CUEMU_CALL_QUERY_DONE);
    return cuemu_context_fault(stream->ctx);
}

/* Define a call that returns a property of `stream`. */
#define CUEMU_STREAM_GET(_name, _type, _value) \
    CUEMU_ENTRY(#_name, cuemu_in_##_name, "cuemu_in_" #_name, \
                cuemu_do_##_name, 0, (CUstream handle, _type *value), \
                (handle, value)) \
    { \
        cuemu_stream_t *stream; \
        CUresult result = cuemu_stream_resolve(handle, &stream); \
        if (result != CUDA_SUCCESS) { \
            return result; \
        } \
        if (value == NULL) { \
            return CUDA_ERROR_INVALID_VALUE; \
        } \
        *value = _value; \
        return CUDA_SUCCESS; \
    }

CUEMU_STREAM_GET(cuStreamGetCtx, CUcontext, (CUcontext)stream->ctx)
CUEMU_STREAM_GET(cuStreamGetDevice, CUdevice, stream->ctx->device)
CUEMU_STREAM_GET(cuStreamGetFlags, unsigned, stream->flags)
CUEMU_STREAM_GET(cuStreamGetPriority, int, stream->priority)
CUEMU_STREAM_GET(cuStreamGetId, unsigned long long, stream->id)

/* --------------------------------------------------------------- events */

/* Find the event behind a handle, or return the call's error. */
static CUresult cuemu_event_resolve(CUevent handle, cuemu_event_t **event_p)
{
    *event_p = cuemu_object_check(handle, CUEMU_OBJ_EVENT);
    if (*event_p != NULL) {
        return CUDA_SUCCESS;
    }

    return cuemu_object_is_stale(handle, CUEMU_OBJ_EVENT) ?
           CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

#define CUEMU_EVENT_FLAGS \
    (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUEMU_CTX_API(cuEventCreate, (CUevent *event_p, unsigned flags),
              (event_p, flags))
{
    cuemu_context_t *ctx = cuemu_context_top();
    cuemu_event_t *event;

    if ((event_p == NULL) || (flags & ~(unsigned)CUEMU_EVENT_FLAGS) ||
        ((flags & CU_EVENT_INTERPROCESS) &&
         !(flags & CU_EVENT_DISABLE_TIMING))) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    event = cuemu_object_new(CUEMU_OBJ_EVENT, sizeof(*event));
    if (event == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    event->ctx   = ctx;
    event->flags = flags;
    cuemu_work_spend_until(cuemu_now() +
                           cuemu_cost(CUEMU_CALL_EVENT_CREATE) / 2);
    *event_p = (CUevent)event;
    return CUDA_SUCCESS;
}

CUEMU_API(cuEventDestroy, (CUevent handle), (handle))
{
    cuemu_event_t *event;
    CUresult found = cuemu_event_resolve(handle, &event);

    if (found != CUDA_SUCCESS) {
        return found;
    }

    cuemu_lock();
    cuemu_work_release(event);
    cuemu_event_forget_capture(event);
    cuemu_unlock();
    cuemu_object_delete(event);
    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuEventDestroy_v2, cuEventDestroy);

/* Record an event, which forgets its last record. In a blocking stream the
   event also waits for the legacy stream's work, although the stream itself
   gets no work by it: a wait for the stream does not include the event then
   (seen on H100, driver 580). Takes the lock. */
CUresult cuemu_event_record(cuemu_event_t *event, cuemu_stream_t *stream,
                            cuemu_time_t at)
{
    const int is_blocking = (stream != stream->ctx->null_stream) &&
                            !(stream->flags & CU_STREAM_NON_BLOCKING);
    cuemu_op_id_t before[2];
    unsigned count = 0;

    cuemu_lock();
    before[0] = cuemu_work_tail(stream);
    count    += (before[0] != 0);
    if (is_blocking) {
        before[count] = cuemu_work_last(stream->ctx->null_stream);
        count        += (before[count] != 0);
    }
    cuemu_event_forget_capture(event);
    cuemu_work_record(event, before, count,
                      (before[0] != 0) ? stream->submitted : at, at);
    cuemu_unlock();
    return CUDA_SUCCESS;
}

static CUresult cuemu_event_record_call(CUevent handle, CUstream stream_handle,
                                        int is_external)
{
    cuemu_gparams_t params = {.event = handle};
    cuemu_event_t *event;
    cuemu_time_t at;
    cuemu_stream_t *stream;
    int is_captured;
    CUresult result;

    result = cuemu_event_resolve(handle, &event);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    result = cuemu_stream_resolve(stream_handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (event->ctx != stream->ctx) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    result = cuemu_capture_use(stream, &is_captured);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (is_captured) {
        return is_external ?
               cuemu_capture_add(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                 &params, NULL) :
               cuemu_capture_record(stream, event);
    }

    at     = cuemu_now() + cuemu_cost(CUEMU_CALL_EVENT_RECORD);
    result = cuemu_event_record(event, stream, at);
    cuemu_work_spend_until(at);
    return result;
}

CUEMU_API(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
{
    return cuemu_event_record_call(event, stream, 0);
}

/* Record an event after all work queued in a context (CUDA 12.5). */
static CUresult cuemu_event_record_context(cuemu_event_t *event,
                                           cuemu_context_t *ctx,
                                           cuemu_time_t at)
{
    cuemu_op_id_t tail;

    cuemu_lock();
    tail = cuemu_context_tail(ctx);
    cuemu_event_forget_capture(event);
    cuemu_work_record(event, &tail, (tail != 0), at, at);
    cuemu_unlock();
    return CUDA_SUCCESS;
}

CUEMU_API(cuCtxRecordEvent, (CUcontext handle, CUevent event_handle),
          (handle, event_handle))
{
    cuemu_context_t *ctx = cuemu_context_find(handle);
    cuemu_event_t *event;
    CUresult result = cuemu_event_resolve(event_handle, &event);

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if ((ctx == NULL) || (event->ctx != ctx)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    result = cuemu_capture_refuse_context(ctx);
    return (result != CUDA_SUCCESS) ?
           result :
           cuemu_event_record_context(
                   event, ctx,
                   cuemu_now() + cuemu_cost(CUEMU_CALL_EVENT_RECORD));
}

CUEMU_API(cuEventRecordWithFlags,
          (CUevent event, CUstream stream, unsigned flags),
          (event, stream, flags))
{
    return (flags > 1) ? CUDA_ERROR_INVALID_VALUE :
                         cuemu_event_record_call(event, stream, (int)flags);
}

/* Find the event of a query or wait: such a call invalidates the event's
 * capture. */
static CUresult cuemu_event_check(CUevent handle, cuemu_event_t **event_p)
{
    CUresult result = cuemu_event_resolve(handle, event_p);

    return (result != CUDA_SUCCESS) ? result : cuemu_capture_query(*event_p);
}

/* Do as cuemu_work_settle(), with the lock. */
static int cuemu_event_is_done(cuemu_event_t *event)
{
    int done;

    cuemu_lock();
    done = cuemu_work_settle(event);
    cuemu_unlock();
    return done;
}

CUEMU_API(cuEventQuery, (CUevent handle), (handle))
{
    cuemu_event_t *event;
    CUresult found = cuemu_event_check(handle, &event);
    int clamped;

    if (found != CUDA_SUCCESS) {
        return found;
    }

    if (event->op != 0) {
        /* A stopped clock waits for due operations: serve them. If nothing has
           changed since the last query, the work has not ended. */
        cuemu_clock_now(&cuemu_session.shared->clock, cuemu_session.slot,
                        &clamped);
        if (clamped) {
            (void)cuemu_work_progress();
        }

        if ((event->change == __atomic_load_n(&cuemu_session.shared->change,
                                              __ATOMIC_ACQUIRE)) ||
            !cuemu_event_is_done(event)) {
            if (!event->polled) {
                event->polled = 1;
                cuemu_work_watch(event->op);
            }
            cuemu_work_spend_polling(CUEMU_CALL_QUERY_BUSY);
            return CUDA_ERROR_NOT_READY;
        }
    }

    event->polled = 0;

    cuemu_work_spend(CUEMU_CALL_QUERY_DONE);
    return CUDA_SUCCESS;
}

CUEMU_API(cuEventSynchronize, (CUevent handle), (handle))
{
    cuemu_event_t *event;
    CUresult found = cuemu_event_check(handle, &event);

    if (found != CUDA_SUCCESS) {
        return found;
    }

    if (event->op != 0) {
        cuemu_work_wait(event->op);
        (void)cuemu_event_is_done(event);
    }

    cuemu_pool_collect();
    cuemu_work_spend(CUEMU_CALL_QUERY_DONE);
    return CUDA_SUCCESS;
}

CUEMU_API(cuEventElapsedTime, (float *ms, CUevent start_h, CUevent end_h),
          (ms, start_h, end_h))
{
    cuemu_event_t *start = cuemu_object_check(start_h, CUEMU_OBJ_EVENT);
    cuemu_event_t *end   = cuemu_object_check(end_h, CUEMU_OBJ_EVENT);

    if (ms == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if ((start == NULL) || (end == NULL) || !start->recorded ||
        !end->recorded || (start->flags & CU_EVENT_DISABLE_TIMING) ||
        (end->flags & CU_EVENT_DISABLE_TIMING)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    (void)cuemu_work_progress();
    if (!cuemu_event_is_done(start) || !cuemu_event_is_done(end)) {
        return CUDA_ERROR_NOT_READY;
    }

    *ms = (float)((double)(end->end - start->end) /
                  (double)CUEMU_PS_PER_SEC * 1e3);
    return CUDA_SUCCESS;
}

CUEMU_ALSO(cuEventElapsedTime_v2, cuEventElapsedTime);

CUEMU_API(cuStreamWaitEvent,
          (CUstream stream_handle, CUevent handle, unsigned flags),
          (stream_handle, handle, flags))
{
    cuemu_event_t *event;
    cuemu_stream_t *stream;
    int is_captured;
    CUresult result = cuemu_event_resolve(handle, &event);

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (flags > CU_EVENT_WAIT_EXTERNAL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_stream_resolve(stream_handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    result = cuemu_capture_wait(stream, event, (int)flags, &is_captured);
    if ((result != CUDA_SUCCESS) || is_captured) {
        return result;
    }

    cuemu_lock();
    if (event->op != 0) {
        if (stream->num_waits == CUEMU_MAX_WAITS) {
            (void)cuemu_work_tail(stream);
        }
        stream->waits[stream->num_waits++] = event->op;
    }
    cuemu_unlock();

    cuemu_work_spend(CUEMU_CALL_STREAM_WAIT);
    return CUDA_SUCCESS;
}

static CUresult cuemu_stream_wait_value(CUstream handle, CUdeviceptr addr,
                                        uint32_t value, unsigned how)
{
    cuemu_time_t at = cuemu_now() + cuemu_cost(CUEMU_CALL_KERNEL);
    cuemu_stream_t *stream;
    cuemu_range_t word;
    CUresult result;

    if ((addr % sizeof(value)) || (how > CU_STREAM_WAIT_VALUE_NOR)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    /* such graph nodes are not modelled */
    result = cuemu_stream_use(handle, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }

    cuemu_lock();
    result = cuemu_mem_resolve(addr, sizeof(value), stream->ctx, &word);
    if ((result == CUDA_SUCCESS) && word.pageable) {
        result = CUDA_ERROR_INVALID_VALUE;
    }

    if (result == CUDA_SUCCESS) {
        result = cuemu_work_wait_value(stream, &word, value, how, at);
    }
    cuemu_unlock();

    if (result == CUDA_SUCCESS) {
        cuemu_work_spend_until(at);
    }
    return result;
}

/* Keep a stream busy until the program writes a word. The real driver waits for
   it wherever it waits for a kernel (seen on H100 with cuMemFreeHost). */
CUEMU_API(cuStreamWaitValue32,
          (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned flags),
          (stream, addr, value, flags))
{
    return cuemu_stream_wait_value(stream, addr, value, flags);
}

CUEMU_ALSO(cuStreamWaitValue32_v2, cuStreamWaitValue32);

/* -------------------------------------------------------- host functions */

static CUresult cuemu_stream_call(CUstream handle, void *func, void *arg,
                                  int is_callback)
{
    cuemu_gparams_t params = {.host = {(CUhostFn)func, arg}};
    cuemu_time_t at;
    cuemu_stream_t *stream;
    cuemu_work_t work;
    int is_captured = 0;
    CUresult result;

    if (func == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    result = cuemu_stream_resolve(handle, &stream);
    if (result == CUDA_SUCCESS) {
        result = is_callback ? cuemu_capture_refuse(stream) :
                               cuemu_capture_use(stream, &is_captured);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (is_captured) {
        return cuemu_capture_add(stream, CU_GRAPH_NODE_TYPE_HOST, &params,
                                 NULL);
    }

    cuemu_work_set_call(&work, CUEMU_PAYLOAD_CALL, func, arg);
    work.payload.stream = (uint64_t)(uintptr_t)handle;
    work.payload.value  = (uint64_t)is_callback;

    at = cuemu_now() + cuemu_cost(CUEMU_CALL_KERNEL);
    cuemu_lock();
    cuemu_work_submit(stream, &work, NULL, 0, at);
    cuemu_unlock();
    cuemu_work_spend_until(at);
    return CUDA_SUCCESS;
}

CUEMU_API(cuLaunchHostFunc, (CUstream handle, CUhostFn func, void *arg),
          (handle, func, arg))
{
    return cuemu_stream_call(handle, (void*)func, arg, 0);
}

CUEMU_API(cuStreamAddCallback,
          (CUstream handle, CUstreamCallback func, void *arg, unsigned flags),
          (handle, func, arg, flags))
{
    return (flags != 0) ? CUDA_ERROR_INVALID_VALUE :
                          cuemu_stream_call(handle, (void*)func, arg, 1);
}
