/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of teams, as described in collective_api.h. The non-blocking calls of
 * a team are a queue: all ranks carry them out in the order of their starts,
 * one after another. Blocking calls come after all of them.
 */
#ifndef UCT_CUDA_COLLECTIVE_QUEUE_H
#define UCT_CUDA_COLLECTIVE_QUEUE_H

#include <ucs/sys/compiler_def.h>
#include <uct/cuda/collective_api.h>

BEGIN_C_DECLS


uct_cuda_coll_result_t
uct_cuda_coll_queue_collective(uct_cuda_coll_team_t *team,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size);

void uct_cuda_coll_queue_decline(uct_cuda_coll_team_t *team, int kind,
                                 uct_cuda_coll_reason_t reason);

int uct_cuda_coll_queue_is_queued(uct_cuda_coll_team_t *team, uint64_t number,
                                  int is_able);

uct_cuda_coll_op_t *
uct_cuda_coll_queue_start(uct_cuda_coll_team_t *team,
                          const uct_cuda_coll_call_t *what,
                          uct_cuda_coll_reason_t reason);

uct_cuda_coll_result_t uct_cuda_coll_queue_test(uct_cuda_coll_op_t *op,
                                                char *why, size_t why_size);

void uct_cuda_coll_queue_progress(void);

void uct_cuda_coll_queue_on_end(int (*func)(void));

/** Wait for the team's calls, and destroy it. */
void uct_cuda_coll_queue_destroy(uct_cuda_coll_team_t *team);


END_C_DECLS

#endif
