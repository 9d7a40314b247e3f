/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Capture streams into graphs. The effects on other calls follow the manual
 * (cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode,
 * cuStreamIsCapturing). The manual does not list the "potentially unsafe"
 * calls. The table below has the measured ones and assumes the worst for all
 * others.
 */
#include "cuemu_capture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A '*' at the end matches any suffix. Calls not listed are unsafe. */
static const struct {
    const char          *call;
    cuemu_capture_kind_t kind;
} cuemu_capture_calls[] = {
    /*
     * Measured on H100, driver 580, on other streams than the captured one, in
     * the capturing thread and in others. Found unsafe: cuEventQuery,
     * cuEventSynchronize, cuGraphExecDestroy, cuGraphInstantiate*, cuMemAlloc,
     * cuMemAllocAsync, cuMemFree, cuMemFreeAsync, cuMemFreeHost,
     * cuMemHostAlloc, cuMemHostRegister, cuMemHostUnregister, cuModuleLoadData
     * (once; another time safe), cuPointerSetAttribute, cuStreamQuery,
     * cuStreamSynchronize.
     */
    {"cuCtxSynchronize", CUEMU_CAPTURE_BREAKS},
    {"cuCtxSetFlags", CUEMU_CAPTURE_BREAKS},
    {"cuCtxRecordEvent", CUEMU_CAPTURE_SAFE}, /* breaks those of its context */
    {"cuCtxPushCurrent", CUEMU_CAPTURE_SAFE},
    {"cuDevicePrimaryCtxRelease", CUEMU_CAPTURE_SAFE},
    {"cuDevicePrimaryCtxRetain", CUEMU_CAPTURE_SAFE},
    {"cuEventCreate", CUEMU_CAPTURE_SAFE},
    {"cuEventDestroy", CUEMU_CAPTURE_SAFE},
    {"cuEventRecord*", CUEMU_CAPTURE_SAFE},
    {"cuGraphCreate", CUEMU_CAPTURE_SAFE},
    {"cuGraphDestroy", CUEMU_CAPTURE_SAFE},
    {"cuGraphExecMemcpyNodeSetParams", CUEMU_CAPTURE_SAFE}, /* like Memset */
    {"cuGraphLaunch", CUEMU_CAPTURE_SAFE},
    {"cuIpcCloseMemHandle", CUEMU_CAPTURE_SAFE},
    {"cuIpcGetMemHandle", CUEMU_CAPTURE_SAFE},
    {"cuIpcOpenMemHandle", CUEMU_CAPTURE_SAFE},
    {"cuLaunch*", CUEMU_CAPTURE_SAFE},
    {"cuMemAddress*", CUEMU_CAPTURE_SAFE},
    {"cuMemCreate", CUEMU_CAPTURE_SAFE},
    {"cuMemExportToShareableHandle", CUEMU_CAPTURE_SAFE},
    {"cuMemGetAddressRange", CUEMU_CAPTURE_SAFE},
    {"cuMemGetInfo", CUEMU_CAPTURE_SAFE},
    {"cuMemHostGetDevicePointer", CUEMU_CAPTURE_SAFE},
    {"cuMemImportFromShareableHandle", CUEMU_CAPTURE_SAFE},
    {"cuMemMap", CUEMU_CAPTURE_SAFE},
    {"cuMemRelease", CUEMU_CAPTURE_SAFE},
    {"cuMemRetainAllocationHandle", CUEMU_CAPTURE_SAFE},
    {"cuMemSetAccess", CUEMU_CAPTURE_SAFE},
    {"cuMemUnmap", CUEMU_CAPTURE_SAFE},
    {"cuMemcpy*", CUEMU_CAPTURE_SAFE},
    {"cuMemset*", CUEMU_CAPTURE_SAFE},
    {"cuModuleGetFunction", CUEMU_CAPTURE_SAFE},
    {"cuPointerGetAttribute*", CUEMU_CAPTURE_SAFE},
    {"cuStreamCreate*", CUEMU_CAPTURE_SAFE},
    {"cuStreamDestroy", CUEMU_CAPTURE_SAFE},
    {"cuStreamWaitEvent", CUEMU_CAPTURE_SAFE},
    {"cuStreamWaitValue32", CUEMU_CAPTURE_SAFE},
    {"cuStreamWriteValue32", CUEMU_CAPTURE_SAFE},

    {"cuCtxWaitEvent", CUEMU_CAPTURE_BREAKS}, /* according to the manual */

    /* Part of a capture, by the manual */
    {"cuGraphAdd*", CUEMU_CAPTURE_SAFE},
    {"cuStreamAddCallback", CUEMU_CAPTURE_SAFE},
    {"cuStreamBeginCapture", CUEMU_CAPTURE_SAFE},
    {"cuStreamEndCapture", CUEMU_CAPTURE_SAFE},
    {"cuStreamGet*", CUEMU_CAPTURE_SAFE},
    {"cuStreamIsCapturing", CUEMU_CAPTURE_SAFE},
    {"cuThreadExchangeStreamCaptureMode", CUEMU_CAPTURE_SAFE},

    /* Queries, and changes of the thread's current context. Measured:
       cuCtxGetDevice, cuCtxGetFlags, cuDevicePrimaryCtxGetState. */
    {"cuCtxGet*", CUEMU_CAPTURE_SAFE},
    {"cuCtxPopCurrent", CUEMU_CAPTURE_SAFE},
    {"cuCtxSetCurrent", CUEMU_CAPTURE_SAFE},
    {"cuDeviceCanAccessPeer", CUEMU_CAPTURE_SAFE},
    {"cuDeviceComputeCapability", CUEMU_CAPTURE_SAFE},
    {"cuDeviceGet*", CUEMU_CAPTURE_SAFE},
    {"cuDevicePrimaryCtxGetState", CUEMU_CAPTURE_SAFE},
    {"cuDeviceTotalMem", CUEMU_CAPTURE_SAFE},
    {"cuDriverGetVersion", CUEMU_CAPTURE_SAFE},
    {"cuFunc*", CUEMU_CAPTURE_SAFE},
    {"cuGet*", CUEMU_CAPTURE_SAFE},
    {"cuGraphGet*", CUEMU_CAPTURE_SAFE},
    {"cuGraphNodeGet*", CUEMU_CAPTURE_SAFE},
    {"cuInit", CUEMU_CAPTURE_SAFE},
    {"cuKernel*", CUEMU_CAPTURE_SAFE},
    {"cuLibraryGet*", CUEMU_CAPTURE_SAFE},
    {"cuMemGetAllocationGranularity", CUEMU_CAPTURE_SAFE},
    {"cuOccupancy*", CUEMU_CAPTURE_SAFE}
};

typedef struct cuemu_capture {
    struct cuemu_capture *next;
    uint64_t              id;
    int                   mode;
    const void           *thread;  /* address of the beginning thread's
                                      cuemu_thread_mode */
    int                   is_broken;
    CUgraph               graph;
    cuemu_stream_t       *origin;
    cuemu_stream_t       *streams; /* joined streams with the origin */
} cuemu_capture_t;

static pthread_mutex_t cuemu_captures_lock = PTHREAD_MUTEX_INITIALIZER;
static cuemu_capture_t *cuemu_captures; /* active, valid or broken */
static unsigned cuemu_num_captures;
static uint64_t cuemu_last_capture;

/* Mode of the thread; its address identifies the thread */
static __thread int cuemu_thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;


/* ------------------------------------------------------------- the table */

static int cuemu_capture_names(const char *pattern, const char *call)
{
    size_t length = strlen(pattern);

    if (pattern[length - 1] == '*') {
        return strncmp(pattern, call, length - 1) == 0;
    }

    return (strncmp(pattern, call, length) == 0) &&
           ((call[length] == '\0') || (strncmp(call + length, "_v", 2) == 0));
}

cuemu_capture_kind_t cuemu_capture_kind(const char *call)
{
    size_t i;

    for (i = 0; i < sizeof(cuemu_capture_calls) /
                            sizeof(cuemu_capture_calls[0]); ++i) {
        if (cuemu_capture_names(cuemu_capture_calls[i].call, call)) {
            return cuemu_capture_calls[i].kind;
        }
    }

    return CUEMU_CAPTURE_UNSAFE;
}

/* Return non-zero if the capture's mode forbids this thread unsafe calls. Call
   with the lock. */
static int cuemu_capture_minds(const cuemu_capture_t *capture)
{
    int is_own = (capture->thread == &cuemu_thread_mode);

    return (cuemu_thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED) &&
           ((is_own && (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)) ||
            (!is_own && (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) &&
             (cuemu_thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)));
}

/* Invalidate a capture. With CUEMU_CAPTURE_SAY print the reason to stderr: the
   program detects only at the end that its capture is invalid. */
static void cuemu_capture_break(cuemu_capture_t *capture, const char *by)
{
    if (!capture->is_broken && (getenv("CUEMU_CAPTURE_SAY") != NULL)) {
        fprintf(stderr, "cuemu: a capture is broken by %s\n", by);
    }
    capture->is_broken = 1;
}

/* Check a call before it runs. Returns SUCCESS if the thread may call now.
   Otherwise returns the call's error and invalidates the captures that forbid
   it. */
static CUresult cuemu_capture_enter(const char *call)
{
    CUresult result = CUDA_SUCCESS;
    cuemu_capture_kind_t kind;
    cuemu_capture_t *capture;

    if (__atomic_load_n(&cuemu_num_captures, __ATOMIC_ACQUIRE) == 0) {
        return CUDA_SUCCESS;
    }

    kind = cuemu_capture_kind(call);
    if (kind == CUEMU_CAPTURE_SAFE) {
        return CUDA_SUCCESS;
    }

    pthread_mutex_lock(&cuemu_captures_lock);
    for (capture = cuemu_captures; capture != NULL; capture = capture->next) {
        if ((kind == CUEMU_CAPTURE_BREAKS) || cuemu_capture_minds(capture)) {
            cuemu_capture_break(capture, call);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&cuemu_captures_lock);
    return result;
}

CUEMU_API(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *mode),
          (mode))
{
    int before = cuemu_thread_mode;

    if ((mode == NULL) || ((unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    cuemu_thread_mode = (int)*mode;
    *mode             = (CUstreamCaptureMode)before;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- fronts */

static CUresult cuemu_front_add(cuemu_front_t *front, CUgraphNode node)
{
    CUgraphNode *nodes;
    size_t i;

    for (i = 0; i < front->count; ++i) {
        if (front->nodes[i] == node) {
            return CUDA_SUCCESS;
        }
    }

    nodes = realloc(front->nodes, (front->count + 1) * sizeof(*nodes));
    if (nodes == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    front->nodes                 = nodes;
    front->nodes[front->count++] = node;
    return CUDA_SUCCESS;
}

static CUresult cuemu_front_merge(cuemu_front_t *front,
                                  const cuemu_front_t *other)
{
    CUresult result = CUDA_SUCCESS;
    size_t i;

    for (i = 0; (i < other->count) && (result == CUDA_SUCCESS); ++i) {
        result = cuemu_front_add(front, other->nodes[i]);
    }

    return result;
}

/* -------------------------------------------------------------- captures */

/* Find a capture by its id; NULL if it has ended. Call with the lock. The
   static functions below need it, too, except cuemu_capture_info(); the others
   take it themselves if necessary. */
static cuemu_capture_t *cuemu_capture_find(uint64_t id)
{
    cuemu_capture_t *capture = cuemu_captures;

    while ((capture != NULL) && (capture->id != id)) {
        capture = capture->next;
    }

    return capture;
}

static void cuemu_capture_join(cuemu_capture_t *capture, cuemu_stream_t *stream)
{
    stream->capture       = capture;
    stream->next_captured = capture->streams;
    capture->streams      = stream;
}

/* Return the streams to their normal state and free the capture. Its graph
   becomes the caller's. */
static void cuemu_capture_end(cuemu_capture_t *capture)
{
    cuemu_capture_t **link = &cuemu_captures;
    cuemu_stream_t *stream;

    while ((stream = capture->streams) != NULL) {
        capture->streams = stream->next_captured;
        stream->capture  = NULL;
        cuemu_front_clear(&stream->front);
    }

    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    free(capture);
    __atomic_sub_fetch(&cuemu_num_captures, 1, __ATOMIC_RELEASE);
}

static int cuemu_capture_has_stream(const cuemu_capture_t *capture,
                                    const cuemu_context_t *ctx, unsigned flags)
{
    const cuemu_stream_t *stream;

    for (stream = capture->streams; stream != NULL;
         stream = stream->next_captured) {
        if ((stream->ctx == ctx) && !(stream->flags & flags)) {
            return 1;
        }
    }

    return 0;
}

/* Return `error` if a stream of the context without any of these flags is under
   capture, otherwise SUCCESS. `by`: what invalidates such captures, or NULL. */
static CUresult
cuemu_capture_conflict(const cuemu_context_t *ctx, unsigned flags,
                       CUresult error, const char *by)
{
    CUresult result = CUDA_SUCCESS;
    cuemu_capture_t *capture;

    for (capture = cuemu_captures; capture != NULL; capture = capture->next) {
        if (cuemu_capture_has_stream(capture, ctx, flags)) {
            result = error;
            if (by != NULL) {
                cuemu_capture_break(capture, by);
            }
        }
    }

    return result;
}

/* Return CAPTURE_IMPLICIT if `stream` is a legacy stream that would wait for a
   blocking stream under capture, otherwise SUCCESS. `breaks`: break such
   captures, too. */
static CUresult cuemu_capture_check_legacy(const cuemu_stream_t *stream,
                                           int breaks)
{
    return (stream != stream->ctx->null_stream) ?
           CUDA_SUCCESS :
           cuemu_capture_conflict(stream->ctx, CU_STREAM_NON_BLOCKING,
                                  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                  breaks ? "use of the legacy stream" : NULL);
}

static CUresult cuemu_capture_check(cuemu_stream_t *stream)
{
    return (stream->capture == NULL)   ?
                   cuemu_capture_check_legacy(stream, 1) :
           stream->capture->is_broken  ?
                   CUDA_ERROR_STREAM_CAPTURE_INVALIDATED :
                   CUDA_SUCCESS;
}

CUresult cuemu_capture_use(cuemu_stream_t *stream, int *is_captured_p)
{
    CUresult result;

    *is_captured_p = 0;
    if (__atomic_load_n(&cuemu_num_captures, __ATOMIC_ACQUIRE) == 0) {
        return CUDA_SUCCESS;
    }

    pthread_mutex_lock(&cuemu_captures_lock);
    result         = cuemu_capture_check(stream);
    *is_captured_p = (stream->capture != NULL);
    pthread_mutex_unlock(&cuemu_captures_lock);
    return result;
}

CUresult cuemu_capture_refuse(cuemu_stream_t *stream)
{
    CUresult result;

    if (__atomic_load_n(&cuemu_num_captures, __ATOMIC_ACQUIRE) == 0) {
        return CUDA_SUCCESS;
    }

    pthread_mutex_lock(&cuemu_captures_lock);
    result = cuemu_capture_check(stream);
    if ((result == CUDA_SUCCESS) && (stream->capture != NULL)) {
        cuemu_capture_break(stream->capture, "a call on a captured stream");
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&cuemu_captures_lock);
    return result;
}

CUresult cuemu_capture_refuse_context(const cuemu_context_t *ctx)
{
    CUresult result;

    pthread_mutex_lock(&cuemu_captures_lock);
    result = cuemu_capture_conflict(ctx, 0,
                                    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                    "a call on its context");
    pthread_mutex_unlock(&cuemu_captures_lock);
    return result;
}

CUresult cuemu_stream_use(CUstream handle, cuemu_stream_t **stream_p)
{
    CUresult result = cuemu_stream_resolve(handle, stream_p);

    return (result != CUDA_SUCCESS) ? result : cuemu_capture_refuse(*stream_p);
}

CUresult cuemu_capture_add(cuemu_stream_t *stream, int type,
                           const cuemu_gparams_t *params, cuemu_context_t *ctx)
{
    CUresult result;
    CUgraphNode node;

    pthread_mutex_lock(&cuemu_captures_lock);
    result = (stream->capture == NULL) ?
             CUDA_ERROR_STREAM_CAPTURE_INVALIDATED :
             cuemu_capture_check(stream);
    if (result == CUDA_SUCCESS) {
        result = cuemu_graph_add(&node, stream->capture->graph,
                                 stream->front.nodes, stream->front.count,
                                 type, params, ctx);
    }
    if (result == CUDA_SUCCESS) {
        cuemu_front_clear(&stream->front);
        result = cuemu_front_add(&stream->front, node);
    }
    pthread_mutex_unlock(&cuemu_captures_lock);
    return result;
}

/* ---------------------------------------------------------------- events */

CUresult cuemu_capture_record(cuemu_stream_t *stream, cuemu_event_t *event)
{
    CUresult result;

    pthread_mutex_lock(&cuemu_captures_lock);
    result = (stream->capture == NULL) ?
             CUDA_ERROR_STREAM_CAPTURE_INVALIDATED :
             cuemu_capture_check(stream);
    if (result == CUDA_SUCCESS) {
        cuemu_front_clear(&event->front);
        event->capture = stream->capture->id;
        result         = cuemu_front_merge(&event->front, &stream->front);
    }
    pthread_mutex_unlock(&cuemu_captures_lock);
    return result;
}

/* Let the stream wait for work of `capture`, possibly the stream's own
   capture. */
static CUresult cuemu_capture_wait_for(cuemu_capture_t *capture,
                                       cuemu_stream_t *stream,
                                       const cuemu_event_t *event)
{
    if (capture == NULL) {
        return CUDA_ERROR_CAPTURED_EVENT; /* the capture has ended */
    }

    if (capture->is_broken) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }

    if (stream->capture == NULL) {
        if (stream == stream->ctx->null_stream) {
            cuemu_capture_break(capture, "a wait of the legacy stream");
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        cuemu_capture_join(capture, stream);
    } else if (stream->capture != capture) {
        cuemu_capture_break(capture, "a wait for another capture");
        cuemu_capture_break(stream->capture, "a wait for another capture");
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }

    return cuemu_front_merge(&stream->front, &event->front);
}

CUresult cuemu_capture_wait(cuemu_stream_t *stream, cuemu_event_t *event,
                            int is_external, int *is_captured_p)
{
    cuemu_gparams_t params = {.event = (CUevent)event};
    CUresult result;

    *is_captured_p = (event->capture != 0);
    if (*is_captured_p && !is_external) {
        pthread_mutex_lock(&cuemu_captures_lock);
        result = cuemu_capture_check(stream);
        if (result == CUDA_SUCCESS) {
            result = cuemu_capture_wait_for(cuemu_capture_find(event->capture),
                                            stream, event);
        }
        pthread_mutex_unlock(&cuemu_captures_lock);
        return result;
    }

    result = cuemu_capture_use(stream, is_captured_p);
    if ((result != CUDA_SUCCESS) || !*is_captured_p) {
        return result;
    }

    if (is_external) {
        return cuemu_capture_add(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &params,
                                 NULL);
    }

    (void)cuemu_capture_refuse(stream);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult cuemu_capture_query(cuemu_event_t *event)
{
    cuemu_capture_t *capture;

    if (event->capture == 0) {
        return CUDA_SUCCESS;
    }

    pthread_mutex_lock(&cuemu_captures_lock);
    capture = cuemu_capture_find(event->capture);
    if (capture != NULL) {
        cuemu_capture_break(capture, "a question about a captured event");
    }
    pthread_mutex_unlock(&cuemu_captures_lock);
    return CUDA_ERROR_CAPTURED_EVENT;
}

void cuemu_capture_forget_stream(cuemu_stream_t *stream)
{
    cuemu_stream_t **link;
    CUgraph graph = NULL;

    pthread_mutex_lock(&cuemu_captures_lock);
    if ((stream->capture != NULL) && (stream->capture->origin == stream)) {
        graph = stream->capture->graph;
        cuemu_capture_end(stream->capture);
    } else if (stream->capture != NULL) {
        cuemu_capture_break(stream->capture, "the end of one of its streams");
        link = &stream->capture->streams;
        while (*link != stream) {
            link = &(*link)->next_captured;
        }
        *link           = stream->next_captured;
        stream->capture = NULL;
        cuemu_front_clear(&stream->front);
    }
    pthread_mutex_unlock(&cuemu_captures_lock);

    if (graph != NULL) {
        cuemu_graph_delete(graph);
    }
}

/* ------------------------------------------------------ the driver's calls */

static CUresult cuemu_capture_begin(cuemu_stream_t *stream, int mode)
{
    cuemu_capture_t *capture;
    CUresult result;

    if (stream->capture != NULL) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }

    capture = calloc(1, sizeof(*capture));
    if (capture == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    result = cuemu_graph_new(&capture->graph);
    if (result != CUDA_SUCCESS) {
        free(capture);
        return result;
    }

    capture->id     = ++cuemu_last_capture;
    capture->mode   = mode;
    capture->thread = &cuemu_thread_mode;
    capture->origin = stream;
    capture->next   = cuemu_captures;
    cuemu_captures  = capture;
    cuemu_capture_join(capture, stream);
    __atomic_store_n(&cuemu_gate_ask, cuemu_capture_enter, __ATOMIC_RELEASE);
    __atomic_add_fetch(&cuemu_num_captures, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

CUEMU_API(cuStreamBeginCapture, (CUstream handle, int mode), (handle, mode))
{
    cuemu_stream_t *stream;
    CUresult result = cuemu_stream_resolve(handle, &stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if ((mode < CU_STREAM_CAPTURE_MODE_GLOBAL) ||
        (mode > CU_STREAM_CAPTURE_MODE_RELAXED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (stream == stream->ctx->null_stream) {
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }

    pthread_mutex_lock(&cuemu_captures_lock);
    result = cuemu_capture_begin(stream, mode);
    pthread_mutex_unlock(&cuemu_captures_lock);
    return result;
}

CUEMU_ALSO(cuStreamBeginCapture_v2, cuStreamBeginCapture);

/* Return non-zero if the origin waits for all work of the other streams. */
static int cuemu_capture_is_joined(const cuemu_capture_t *capture)
{
    const cuemu_front_t *end = &capture->origin->front;
    const cuemu_stream_t *stream;
    size_t i, k;

    for (stream = capture->streams; stream != NULL;
         stream = stream->next_captured) {
        for (i = 0; i < stream->front.count; ++i) {
            for (k = 0; k < end->count; ++k) {
                if (cuemu_graph_reaches(end->nodes[k],
                                        stream->front.nodes[i])) {
                    break;
                }
            }
            if (k == end->count) {
                return 0;
            }
        }
    }

    return 1;
}

/* Return the result of ending the capture (NULL: none) in this stream. If it
   ends the capture, set *ends_p: the caller ends it. An end in another stream
   than the origin invalidates the capture. */
static CUresult cuemu_capture_end_check(cuemu_capture_t *capture,
                                        const cuemu_stream_t *stream,
                                        int *ends_p)
{
    *ends_p = 0;
    if (capture == NULL) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }

    if (capture->origin != stream) {
        cuemu_capture_break(capture, "an end in another stream");
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }

    if ((capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) &&
        (capture->thread != &cuemu_thread_mode)) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }

    *ends_p = 1;
    return capture->is_broken                ?
                   CUDA_ERROR_STREAM_CAPTURE_INVALIDATED :
           !cuemu_capture_is_joined(capture) ?
                   CUDA_ERROR_STREAM_CAPTURE_UNJOINED :
                   CUDA_SUCCESS;
}

CUEMU_API(cuStreamEndCapture, (CUstream handle, CUgraph *graph_p),
          (handle, graph_p))
{
    CUgraph graph = NULL;
    cuemu_stream_t *stream;
    CUresult result = cuemu_stream_resolve(handle, &stream);
    int ends;

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (graph_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    pthread_mutex_lock(&cuemu_captures_lock);
    result = cuemu_capture_end_check(stream->capture, stream, &ends);
    if (ends) {
        graph = stream->capture->graph;
        cuemu_capture_end(stream->capture);
    }
    pthread_mutex_unlock(&cuemu_captures_lock);

    *graph_p = (result == CUDA_SUCCESS) ? graph : NULL;
    if ((result != CUDA_SUCCESS) && (graph != NULL)) {
        cuemu_graph_delete(graph);
    }
    return result;
}

/* Results for the caller; NULL: not requested */
typedef struct {
    CUstreamCaptureStatus *status;
    cuuint64_t            *id;
    CUgraph               *graph;
    const CUgraphNode    **deps;
    size_t                *num_deps;
} cuemu_capture_info_t;

static CUresult cuemu_capture_info(CUstream handle,
                                   const cuemu_capture_info_t *info)
{
    const cuemu_capture_t *capture;
    cuemu_stream_t *stream;
    CUresult result = cuemu_stream_resolve(handle, &stream);

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (info->status == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    pthread_mutex_lock(&cuemu_captures_lock);
    capture       = stream->capture;
    result        = cuemu_capture_check_legacy(stream, 0);
    *info->status = (capture == NULL)  ? CU_STREAM_CAPTURE_STATUS_NONE :
                    capture->is_broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED :
                                         CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if ((result == CUDA_SUCCESS) &&
        (*info->status == CU_STREAM_CAPTURE_STATUS_ACTIVE)) {
        if (info->id != NULL) {
            *info->id = capture->id;
        }
        if (info->graph != NULL) {
            *info->graph = capture->graph;
        }
        if (info->deps != NULL) {
            *info->deps = stream->front.nodes;
        }
        if (info->num_deps != NULL) {
            *info->num_deps = stream->front.count;
        }
    }
    pthread_mutex_unlock(&cuemu_captures_lock);
    return result;
}

CUEMU_API(cuStreamIsCapturing, (CUstream handle, CUstreamCaptureStatus *status),
          (handle, status))
{
    const cuemu_capture_info_t info = {.status = status};

    return cuemu_capture_info(handle, &info);
}

CUEMU_API(cuStreamGetCaptureInfo,
          (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id),
          (handle, status, id))
{
    const cuemu_capture_info_t info = {.status = status, .id = id};

    return cuemu_capture_info(handle, &info);
}

CUEMU_API(cuStreamGetCaptureInfo_v2,
          (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
           CUgraph *graph, const CUgraphNode **deps, size_t *num_deps),
          (handle, status, id, graph, deps, num_deps))
{
    const cuemu_capture_info_t info = {status, id, graph, deps, num_deps};

    return cuemu_capture_info(handle, &info);
}

/* Edge data is not modelled: NULL says that there is none */
CUEMU_API(cuStreamGetCaptureInfo_v3,
          (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
           CUgraph *graph, const CUgraphNode **deps, const void **edges,
           size_t *num_deps),
          (handle, status, id, graph, deps, edges, num_deps))
{
    const cuemu_capture_info_t info = {status, id, graph, deps, num_deps};

    if (edges != NULL) {
        *edges = NULL;
    }

    return cuemu_capture_info(handle, &info);
}
