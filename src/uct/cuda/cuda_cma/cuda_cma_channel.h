/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers made by the peer's GPU (cuda_cma_server.h); threads of this process
 * make those that the peer refuses or does not start in time.
 */
#ifndef UCT_CUDA_CMA_CHANNEL_H
#define UCT_CUDA_CMA_CHANNEL_H

#include <uct/cuda/base/queue.h>
#include <uct/cuda/copy/copy.h>
#include <uct/cuda/cuda_cma/cuda_cma_control.h>
#include <uct/cuda/cuda_cma/cuda_cma_peer.h>


typedef struct uct_cuda_cma_channel uct_cuda_cma_channel_t;


/**
 * Open a channel: a slot of the peer's server, shared by all endpoints of an
 * interface to that peer, and used by one thread at a time.
 *
 * @param all   Channels of the interface, initially NULL.
 * @param peer  Held until the channel is closed.
 * @return NULL: the peer has no server or no free slot.
 */
uct_cuda_cma_channel_t *
uct_cuda_cma_channel_open(uct_cuda_cma_channel_t **all,
                          uct_cuda_cma_peer_t *peer,
                          const uct_cuda_cma_server_id_t *id);

/** Release a reference: an endpoint's, or a batch's. The last one closes the
 *  channel; running transfers have references. */
void uct_cuda_cma_channel_put(uct_cuda_cma_channel_t *channel);

/**
 * Add a transfer next to running ones in the same allocation, without driver
 * calls.
 *
 * @return UCS_INPROGRESS, or UCS_ERR_UNSUPPORTED: use
 *         uct_cuda_cma_channel_post().
 */
ucs_status_t
uct_cuda_cma_channel_follow(uct_cuda_cma_channel_t *channel,
                            uct_cuda_queue_t *queue,
                            const uct_cuda_copy_t *copy);

/**
 * Post a transfer with the context of its GPU memory current. A transfer after
 * a flush has an operation of its own and does not delay the flush.
 *
 * @param copy   From or to local memory and the peer's host memory.
 * @return UCS_INPROGRESS; UCS_ERR_NO_RESOURCE: retry after a completion;
 *         UCS_ERR_UNSUPPORTED: not by this method; or an error of the queue.
 */
ucs_status_t uct_cuda_cma_channel_post(uct_cuda_cma_channel_t *channel,
                                       uct_cuda_queue_t *queue,
                                       const uct_cuda_copy_t *copy);

#endif
