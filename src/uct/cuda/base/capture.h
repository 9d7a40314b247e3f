/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Captures of streams into CUDA graphs are the program's: while one is under
 * way the driver refuses certain calls of any thread and breaks the capture by
 * them, unless the thread is in relaxed mode (cuThreadExchangeStreamCaptureMode
 * in the driver's manual). Such calls are made in that mode here.
 *
 * The exchange there and back takes 40 ns (H100, driver 580), so it stands
 * around the calls that need it and not around UCX's calls of us. Submitting
 * copies, kernels and graphs, and asking about memory, need it not; asking
 * whether a copy is over does.
 */
#ifndef UCT_CUDA_BASE_CAPTURE_H
#define UCT_CUDA_BASE_CAPTURE_H

#include <uct/cuda/base/driver_table.h>

#include <stdbool.h>

BEGIN_C_DECLS


/**
 * Have the unsafe functions of a driver's table go to relaxed mode and back by
 * themselves. A driver that cannot (before CUDA 10.1) stays as it is.
 *
 * A capture may refuse a call all the same. Then cuEventQuery and cuStreamQuery
 * return CUDA_ERROR_NOT_READY: the answer is not known, and is asked for again.
 * Of others the status is UCS_ERR_NO_RESOURCE.
 */
void uct_cuda_capture_wrap(uct_cuda_driver_t *table);


/**
 * Go to relaxed mode for several calls in a row; uct_cuda_capture_restore()
 * comes before the program's code runs again.
 *
 * @return What to hand to that: whether the mode is another one now.
 */
bool uct_cuda_capture_relax(void);

void uct_cuda_capture_restore(bool is_changed);


/** Relaxed mode for good, in a thread of the module's own. */
void uct_cuda_capture_relax_thread(void);


/** Is it a capture that a call failed for? */
static inline bool uct_cuda_capture_is_refusal(CUresult result)
{
    return (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) ||
           (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) ||
           (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}


END_C_DECLS

#endif
