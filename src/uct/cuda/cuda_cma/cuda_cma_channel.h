/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers that the peer's GPU makes (cuda_cma_server.h), and by threads of
 * this process what it refuses, or does not begin in time.
 */
#ifndef UCT_CUDA_CMA_CHANNEL_H
#define UCT_CUDA_CMA_CHANNEL_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/copy/copy.h>
#include <uct/cuda/cuda_cma/cuda_cma_page.h>
#include <uct/cuda/cuda_cma/cuda_cma_peer.h>


typedef struct uct_cuda_cma_channel uct_cuda_cma_channel_t;


/**
 * A slot of the peer's server, which all endpoints of an interface to that peer
 * share: used by one thread at a time.
 *
 * @param all   Channels of the interface, at first NULL.
 * @param peer  Held until the channel is closed.
 * @return NULL: the peer has no server (any more), or no slot for us.
 */
uct_cuda_cma_channel_t *
uct_cuda_cma_channel_open(uct_cuda_cma_channel_t **all,
                          uct_cuda_cma_peer_t *peer,
                          const uct_cuda_cma_server_id_t *id);

/** The endpoint is going. What is under way goes on. */
void uct_cuda_cma_channel_close(uct_cuda_cma_channel_t *channel);

/** One more transfer where others are under way, in an allocation of theirs: no
 *  driver is asked. @return UCS_INPROGRESS, or UCS_ERR_UNSUPPORTED: ask
 *  uct_cuda_cma_channel_post(). */
ucs_status_t
uct_cuda_cma_channel_follow(uct_cuda_cma_channel_t *channel,
                            uct_cuda_queue_t *queue,
                            const uct_cuda_copy_t *copy);

/**
 * Post one with the context of its GPU memory current. What comes behind a
 * flush has an operation of its own, and does not hold that up.
 *
 * @param copy   From or to memory here and the peer's host memory.
 *
 * @return UCS_INPROGRESS, UCS_ERR_NO_RESOURCE (try again when some are over);
 *         UCS_ERR_UNSUPPORTED: not by this way; or an error of the queue's.
 */
ucs_status_t uct_cuda_cma_channel_post(uct_cuda_cma_channel_t *channel,
                                       uct_cuda_queue_t *queue,
                                       const uct_cuda_copy_t *copy);

#endif
