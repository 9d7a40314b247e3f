/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time plans on the emulated node's core: the executors' driver calls, one
 * after the other on a processor of their own, and the resulting copies. No
 * driver, process or clock is involved.
 *
 * Times are those of a transfer after equal ones: events and staging memory
 * exist, and each slot is empty. They last from the first call until the poll
 * that detects the completion.
 */
#ifndef UCX_MP_TUNE_PLAY_H
#define UCX_MP_TUNE_PLAY_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <cuemu_core.h>


typedef struct ucx_mp_player ucx_mp_player_t;


/** Create a player for a node and the GPUs of @a topo, as this process numbers
 *  them. Ends the program if the two do not match. */
ucx_mp_player_t *ucx_mp_player_create(const cuemu_node_t *node,
                                      const uct_cuda_topo_t *topo);


void ucx_mp_player_destroy(ucx_mp_player_t *player);


/** Begin a transfer; @a is_graph: its pieces are launches of an existing graph
 *  with the right addresses. */
void ucx_mp_player_begin(ucx_mp_player_t *player, bool is_graph);


/** Submit the next piece. */
void ucx_mp_player_submit(ucx_mp_player_t *player,
                          const uct_cuda_plan_t *plan);


/** Submit the end, and run until it completes. @return Seconds of the
 *  transfer. */
double ucx_mp_player_finish(ucx_mp_player_t *player);


/** Return the seconds of one plain copy with an event behind it, as cuda_ipc
 *  makes it. */
double ucx_mp_player_single(ucx_mp_player_t *player, int src_device,
                            int dst_device, size_t size);

#endif
