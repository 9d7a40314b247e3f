/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of ranks, as api.h describes them. */
#ifndef UCT_CUDA_COLL_GROUP_H
#define UCT_CUDA_COLL_GROUP_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <uct/cuda/collective_api.h>
#include <uct/cuda/node/board.h>

#include <stdbool.h>

BEGIN_C_DECLS


void uct_cuda_coll_counts(uint64_t *done_p, uint64_t *staged_p);

/** @return As uct_cuda_coll_board_open(). */
ucs_status_t uct_cuda_coll_group_board(unsigned rank, unsigned size,
                                       char *name,
                                       uct_cuda_coll_board_t **board_p);

/** @return As uct_cuda_coll_page_open(). */
ucs_status_t uct_cuda_coll_group_create(uct_cuda_coll_board_t *board,
                                        uint64_t key, unsigned rank,
                                        unsigned size,
                                        const unsigned *members,
                                        uint64_t calls,
                                        uct_cuda_coll_group_t **group_p);

void uct_cuda_coll_group_destroy(uct_cuda_coll_group_t *group);

void uct_cuda_coll_group_pass(uct_cuda_coll_group_t *group, int kind,
                              uct_cuda_coll_reason_t reason);

uct_cuda_coll_result_t
uct_cuda_coll_group_collective(uct_cuda_coll_group_t *group,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size);


END_C_DECLS

#endif
