/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A timeline of copies, for people: which link was busy when, and with what.
 * Off unless it is asked for; a test of one variable then.
 *
 * Each process appends to a file of its own, one JSON object a line;
 * ucx_mp_trace makes one of them that Perfetto and chrome://tracing open. Times
 * are microseconds of CLOCK_MONOTONIC, which the node's processes share; those
 * of copies are the GPU's own, measured by events and brought onto that clock.
 *
 * Any thread; it has a lock of its own, under which it calls the driver.
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


/** A copy whose begin has been marked. */
typedef struct uct_cuda_trace_copy uct_cuda_trace_copy_t;


extern bool uct_cuda_trace_is_on;


/**
 * Trace the process's copies from now on, unless that is so already.
 *
 * @param dir  For the file; empty: no trace. One that cannot be written to is
 *             warned of, and nothing is traced.
 */
void uct_cuda_trace_start(const char *dir);


/**
 * A bar of the host's time, which ends now.
 *
 * @param is_link  In the row of the link that the bytes went over; else among
 *                 whole transfers.
 * @param begin    Of uct_cuda_now_ns(); 0: there is no bar.
 */
void uct_cuda_trace_bar(bool is_link, uct_cuda_end_t from, uct_cuda_end_t to,
                        size_t bytes, const char *what, uint64_t begin);

/** The same of a whole collective, by its name. */
void uct_cuda_trace_call(const char *name, size_t bytes, const char *what,
                         uint64_t begin);

/** When a bar begins; 0 if tracing is off. */
static inline uint64_t uct_cuda_trace_now(void)
{
    return __builtin_expect(uct_cuda_trace_is_on, 0) ? uct_cuda_now_ns() : 0;
}


/** Write down all copies, waiting for them. Contexts may go afterwards. */
void uct_cuda_trace_flush(void);


uct_cuda_trace_copy_t *uct_cuda_trace_copy_begin(CUstream stream);

/** A copy's own: where it reads and writes. */
void uct_cuda_trace_places(uct_cuda_trace_copy_t *copy, const char *places);

void uct_cuda_trace_copy_end(uct_cuda_trace_copy_t *copy, CUstream stream,
                             uct_cuda_end_t from, uct_cuda_end_t to,
                             size_t bytes, const char *what);


/**
 * Mark the begin of what is submitted next to a stream of the current context.
 *
 * @return NULL if tracing is off or fails; that may go to the end all the same.
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
 * @param from, to  The timeline's row.
 * @param bytes     Of the copy.
 * @param what      What carried it: a path, a queue, "one path", "graph".
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
