/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Carries plans out with one stream a lane, and events for the waits between
 * lanes. Knows nothing of why a plan looks as it does. Not thread-safe.
 */
#ifndef UCT_CUDA_MP_EXECUTOR_STREAMS_H
#define UCT_CUDA_MP_EXECUTOR_STREAMS_H

#include <uct/cuda/multipath/resources.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_streams uct_cuda_mp_streams_t;


/** UCS_OK or UCS_ERR_NO_MEMORY. Streams and events are those of @a rsc, which
 *  outlives the executor. */
ucs_status_t uct_cuda_mp_streams_create(uct_cuda_mp_rsc_t *rsc,
                                        uct_cuda_mp_streams_t **streams_p);

void uct_cuda_mp_streams_destroy(uct_cuda_mp_streams_t *streams);


/**
 * Submit a prepared plan's copies. Does not wait for any of them.
 *
 * @param offset  Where the plan's first byte is in the transfer, bytes.
 * @return UCS_OK, or the driver's error (logged); then abort.
 */
ucs_status_t uct_cuda_mp_streams_submit(uct_cuda_mp_streams_t *streams,
                                        const uct_cuda_mp_plan_t *plan,
                                        const uct_cuda_mp_ends_t *ends,
                                        size_t offset);


END_C_DECLS

#endif
