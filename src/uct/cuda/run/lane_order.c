/* SPDX-License-Identifier: BSD-3-Clause */
/* Between a lane's stream and what has the lane without being in it. */
#include <uct/cuda/run/lane_order.h>


ucs_status_t uct_cuda_mp_lane_to_stream(uct_cuda_mp_rsc_t *rsc, int device,
                                        uint16_t number, int *current,
                                        CUstream *stream_p)
{
    uct_cuda_mp_lane_t *lane = uct_cuda_mp_rsc_lane(rsc, device, number);
    ucs_status_t status;

    status = uct_cuda_mp_rsc_make_current(rsc, device, current);
    if ((status == UCS_OK) && (lane->outside != NULL)) {
        status = UCT_CUDA_CALL(cuStreamWaitEvent, lane->stream, lane->outside,
                               0);
    }

    if (status == UCS_OK) {
        lane->outside   = NULL;
        lane->is_queued = true;
        *stream_p       = lane->stream;
    }

    return status;
}

ucs_status_t uct_cuda_mp_lane_record(uct_cuda_mp_rsc_t *rsc, int device,
                                     uint16_t number, CUevent event,
                                     int *current)
{
    uct_cuda_mp_lane_t *lane = uct_cuda_mp_rsc_lane(rsc, device, number);
    ucs_status_t status;

    status = uct_cuda_mp_rsc_make_current(rsc, device, current);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventRecord, event, lane->stream);
    }

    if (status == UCS_OK) {
        lane->outside   = event;
        lane->is_queued = false;
    }

    return status;
}
