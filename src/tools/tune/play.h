/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plays plans on the emulated node's timing core: the driver's calls that the
 * executors make, one after the other on a processor of their own, and the
 * copies that follow from them. No driver, no process, no clock.
 *
 * Reckoned is a transfer of many alike: events and staging memory are there,
 * and each slot has been drained before. Times go from the first call to the
 * poll that finds the completion.
 */
#ifndef UCX_MP_TUNE_PLAY_H
#define UCX_MP_TUNE_PLAY_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <cuemu_core.h>


typedef struct ucx_mp_player ucx_mp_player_t;


/** A player for a node as this process's @a topo numbers its GPUs. Ends the
 *  program when the two do not belong together. */
ucx_mp_player_t *ucx_mp_player_create(const cuemu_node_t *node,
                                      const uct_cuda_topo_t *topo);


void ucx_mp_player_destroy(ucx_mp_player_t *player);


/** Begin a transfer; @a is_graph: its pieces are launches of a graph that is
 *  there and has the addresses. */
void ucx_mp_player_begin(ucx_mp_player_t *player, bool is_graph);


/** Submit its next piece. */
void ucx_mp_player_submit(ucx_mp_player_t *player,
                          const uct_cuda_mp_plan_t *plan);


/** Submit the end, and let it all happen. @return Seconds of the transfer. */
double ucx_mp_player_finish(ucx_mp_player_t *player);


/** Seconds of one plain copy with an event behind it, as cuda_ipc makes it. */
double ucx_mp_player_single(ucx_mp_player_t *player, int src_device,
                            int dst_device, size_t size);

#endif
