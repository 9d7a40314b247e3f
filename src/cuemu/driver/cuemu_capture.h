/* SPDX-License-Identifier: BSD-3-Clause */

/* Capture of streams: what becomes of calls while one is under way. */
#ifndef CUEMU_CAPTURE_H_
#define CUEMU_CAPTURE_H_

#include "cuemu_graph.h"

/* What a call does to captures beside it */
typedef enum {
    CUEMU_CAPTURE_SAFE,   /* nothing */
    CUEMU_CAPTURE_UNSAFE, /* breaks those that the thread's mode minds */
    CUEMU_CAPTURE_BREAKS  /* breaks all of them, whatever the mode */
} cuemu_capture_kind_t;

/* For tests: the same of a call by its name, any version. */
CUEMU_FOR_TESTS cuemu_capture_kind_t cuemu_capture_kind(const char *call);

/* SUCCESS if the thread may make the call now; else what it returns, and the
   captures that it may not be made beside are broken. */
CUresult cuemu_capture_enter(const char *call);

/*
 * The stream is about to be given work. Sets *is_captured_p if that has to go
 * into a graph, by cuemu_capture_add(). Fails where a capture is broken, or
 * breaks by it.
 */
CUresult cuemu_capture_use(cuemu_stream_t *stream, int *is_captured_p);

/* What a capture cannot have in this stream: as cuemu_capture_use(), and an
   error also if the stream is captured. */
CUresult cuemu_capture_refuse(cuemu_stream_t *stream);

/* Adds a node behind what was captured of the stream. */
CUresult cuemu_capture_add(cuemu_stream_t *stream, int type,
                           const cuemu_gparams_t *params, cuemu_context_t *ctx);

/* The event stands for what was captured of the stream. */
CUresult cuemu_capture_record(cuemu_stream_t *stream, cuemu_event_t *event);

/* The stream waits for the event. *is_captured_p: that is all of it. */
CUresult cuemu_capture_wait(cuemu_stream_t *stream, cuemu_event_t *event,
                            int is_external, int *is_captured_p);

/* Asking for an event: an error if it was last recorded in a capture. */
CUresult cuemu_capture_ask(cuemu_event_t *event);

/* The event is recorded anew, or goes; the stream goes. */
void cuemu_capture_forget_event(cuemu_event_t *event);
void cuemu_capture_forget_stream(cuemu_stream_t *stream);

#endif
