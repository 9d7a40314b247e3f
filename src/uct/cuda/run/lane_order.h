/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lane is for one transfer at a time, in the order of submission, whichever
 * executor carries it out. Two at once would share it, and so end together and
 * leave both lanes of a relayed path idle at the same time, where one behind
 * the other fills the first lane while the one before drains the second.
 *
 * The lane's stream keeps that order by itself. Work that is not in the stream,
 * a graph's, keeps it by events: it begins behind one that stands for what the
 * stream has, and leaves one that the stream, or the next such work, waits for.
 */
#ifndef UCT_CUDA_MP_LANE_ORDER_H
#define UCT_CUDA_MP_LANE_ORDER_H

#include <uct/cuda/run/resources.h>

BEGIN_C_DECLS


/** Stream of a lane, made to wait for work outside of it: for work in it. The
 *  lane's device becomes current. */
ucs_status_t uct_cuda_mp_lane_to_stream(uct_cuda_mp_rsc_t *rsc, int device,
                                        uint16_t lane, int *current,
                                        CUstream *stream_p);


/** Before work outside of the stream: have an event, one of the lane's device,
 *  stand for what the stream has. The lane's device becomes current. */
ucs_status_t uct_cuda_mp_lane_record(uct_cuda_mp_rsc_t *rsc, int device,
                                     uint16_t lane, CUevent event,
                                     int *current);


END_C_DECLS

#endif
