/* SPDX-License-Identifier: BSD-3-Clause */

/* Capture of streams: how calls behave during a capture. */
#ifndef CUEMU_CAPTURE_H_
#define CUEMU_CAPTURE_H_

#include "cuemu_gate.h"
#include "cuemu_graph.h"

/* Effect of a call on captures */
typedef enum {
    CUEMU_CAPTURE_SAFE,   /* no effect */
    CUEMU_CAPTURE_UNSAFE, /* may invalidate, by the thread's mode */
    CUEMU_CAPTURE_BREAKS  /* invalidates all captures in every mode */
} cuemu_capture_kind_t;

/* For tests: return the effect of a call by its name, for any version. */
CUEMU_PRIVATE cuemu_capture_kind_t cuemu_capture_kind(const char *call);

/*
 * Prepare for new work in the stream. Sets *is_captured_p if the work must
 * become a graph node, by cuemu_capture_add(). Fails if a capture is invalid,
 * or if this work invalidates it.
 */
CUresult cuemu_capture_use(cuemu_stream_t *stream, int *is_captured_p);

/* Prepare for work that a capture cannot contain. Like cuemu_capture_use(), but
   fails also if the stream is under capture, and invalidates that capture. */
CUresult cuemu_capture_refuse(cuemu_stream_t *stream);

/* Check work on all streams of a context (manual of cuCtxRecordEvent). If some
   are under capture, invalidates these captures and returns UNSUPPORTED. */
CUresult cuemu_capture_refuse_context(const cuemu_context_t *ctx);

/* Find the stream behind a handle, and do as cuemu_capture_refuse(). */
CUresult cuemu_stream_use(CUstream handle, cuemu_stream_t **stream_p);

/* Add a node after the stream's captured work. INVALIDATED if the capture is
   invalid or has ended. */
CUresult cuemu_capture_add(cuemu_stream_t *stream, int type,
                           const cuemu_gparams_t *params, cuemu_context_t *ctx);

/* Let the event represent the stream's captured work. INVALIDATED if the
   capture is invalid or has ended. */
CUresult cuemu_capture_record(cuemu_stream_t *stream, cuemu_event_t *event);

/* Let the stream wait for the event. If the event was recorded in a capture,
   the stream joins that capture. With `is_external` a stream under capture gets
   a wait node instead. Fails, and invalidates the captures involved, between
   two captures, for the legacy stream, and if a stream under capture waits for
   an event recorded outside. Clears *is_captured_p if the caller has to make a
   normal wait. */
CUresult cuemu_capture_wait(cuemu_stream_t *stream, cuemu_event_t *event,
                            int is_external, int *is_captured_p);

/* Check a query of the event, or a wait for it. Returns CAPTURED_EVENT, and
   invalidates the capture, if the event was last recorded in one. */
CUresult cuemu_capture_query(cuemu_event_t *event);

/* Take a stream out of its capture before it is destroyed: ends a capture that
   began in the stream, and invalidates any other. */
void cuemu_capture_forget_stream(cuemu_stream_t *stream);

#endif
