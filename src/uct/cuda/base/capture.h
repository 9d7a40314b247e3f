/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream captures into CUDA graphs belong to the program. During a capture the
 * driver refuses certain calls of any thread and invalidates the capture,
 * unless the thread is in relaxed mode (cuThreadExchangeStreamCaptureMode in
 * the driver's manual). The module makes such calls in relaxed mode.
 *
 * Exchanging the mode twice takes 40 ns (H100, driver 580), so it surrounds
 * only the calls that need it, not UCX's calls of the module. Submitting
 * copies, kernels and graphs, and querying memory, does not need it; querying
 * completion does.
 */
#ifndef UCT_CUDA_BASE_CAPTURE_H
#define UCT_CUDA_BASE_CAPTURE_H

#include <uct/cuda/base/driver_table.h>

#include <stdbool.h>

BEGIN_C_DECLS


/**
 * Wrap the unsafe functions of a driver's table, so that they switch to relaxed
 * mode and back. A driver without that mode (before CUDA 10.1) is unchanged.
 *
 * The driver may refuse a call during a capture even so. cuEventQuery and
 * cuStreamQuery then return CUDA_ERROR_NOT_READY, and the caller repeats the
 * query. Other calls give the status UCS_ERR_NO_RESOURCE.
 */
void uct_cuda_capture_wrap(uct_cuda_driver_t *table);


/**
 * Switch to relaxed mode for several calls; uct_cuda_capture_restore() must
 * follow before the program's code runs again.
 *
 * @return Argument for uct_cuda_capture_restore(): the mode was changed.
 */
bool uct_cuda_capture_relax(void);

void uct_cuda_capture_restore(bool is_changed);


/** Return whether a call failed because of a capture. */
static inline bool uct_cuda_capture_is_refusal(CUresult result)
{
    return (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) ||
           (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) ||
           (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}


END_C_DECLS

#endif
