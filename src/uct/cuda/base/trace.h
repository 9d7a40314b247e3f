/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timeline of copies for analysis: use of each link over time. Off by default,
 * at the cost of testing one variable.
 *
 * Each process appends to its own file, one JSON object in each line;
 * ucx_mp_trace merges them for Perfetto and chrome://tracing. Times are
 * microseconds of CLOCK_MONOTONIC, shared by the node's processes; those of
 * copies are measured by GPU events and converted to that clock.
 *
 * Thread safe, with its own lock, held in driver calls.
 */
#ifndef UCT_CUDA_BASE_TRACE_H
#define UCT_CUDA_BASE_TRACE_H

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/end.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Copy with a marked start. */
typedef struct uct_cuda_trace_copy uct_cuda_trace_copy_t;


extern bool uct_cuda_trace_is_on;


/**
 * Trace the process's copies from now on, unless traced already.
 *
 * @param dir  Directory of the file; empty: no trace. If it is not writable a
 *             warning is logged, and nothing is traced.
 */
void uct_cuda_trace_start(const char *dir);


/**
 * Write a bar of host time ending now.
 *
 * @param is_link  In the row of the link used; otherwise among complete
 *                 transfers.
 * @param begin    Time of uct_cuda_now_ns(); 0: no bar.
 */
void uct_cuda_trace_bar(bool is_link, uct_cuda_end_t from, uct_cuda_end_t to,
                        size_t bytes, const char *what, uint64_t begin);

/** Write a bar of a collective, with its name. */
void uct_cuda_trace_call(const char *name, size_t bytes, const char *what,
                         uint64_t begin);

/** Return the start time of a bar; 0 if tracing is off. */
static inline uint64_t uct_cuda_trace_now(void)
{
    return __builtin_expect(uct_cuda_trace_is_on, 0) ? uct_cuda_now_ns() : 0;
}


/** Write all copies, waiting for them. Contexts may be destroyed afterwards. */
void uct_cuda_trace_flush(void);


uct_cuda_trace_copy_t *uct_cuda_trace_copy_begin(CUstream stream);

/** Set the source and destination of a copy. */
void uct_cuda_trace_places(uct_cuda_trace_copy_t *copy, const char *places);

void uct_cuda_trace_copy_end(uct_cuda_trace_copy_t *copy, CUstream stream,
                             uct_cuda_end_t from, uct_cuda_end_t to,
                             size_t bytes, const char *what);


/**
 * Mark the start of the next work in a stream of the current context.
 *
 * @return NULL if tracing is off or fails; may be passed on.
 */
static inline uct_cuda_trace_copy_t *uct_cuda_trace_begin(CUstream stream)
{
    return __builtin_expect(uct_cuda_trace_is_on, 0) ?
                   uct_cuda_trace_copy_begin(stream) :
                   NULL;
}


/**
 * Mark its end.
 *
 * @param from, to  Row of the timeline.
 * @param bytes     Size of the copy.
 * @param what      Carrier: a path, a queue, "one path", "graph".
 */
static inline void
uct_cuda_trace_end(uct_cuda_trace_copy_t *copy, CUstream stream,
                   uct_cuda_end_t from, uct_cuda_end_t to, size_t bytes,
                   const char *what)
{
    if (__builtin_expect(copy != NULL, 0)) {
        uct_cuda_trace_copy_end(copy, stream, from, to, bytes, what);
    }
}


END_C_DECLS

#endif
