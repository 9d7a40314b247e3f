/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The lanes that collectives of this process use while they are carried out:
 * told in the node's ledger, so that transfers, of this process as of others,
 * are planned with them in mind. Nothing that ranks agree on depends on it.
 */
#ifndef UCT_CUDA_COLL_LANES_H
#define UCT_CUDA_COLL_LANES_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/** To and from a rank's GPU. */
#define UCT_CUDA_COLL_MAX_LANES (2 * UCT_CUDA_MAX_GPUS)


/** Of one rank's steps. */
typedef struct {
    unsigned count;
    uint16_t lanes[UCT_CUDA_COLL_MAX_LANES]; /**< uct_cuda_mp_lane(), by the
                                                  process's own numbers */
    uint64_t direct; /**< Which of them go from rank to rank, as bits */
} uct_cuda_coll_lanes_t;


/** Come to the ledger, unless this process has. For each a _put(). */
void uct_cuda_coll_lanes_get(const uct_cuda_topo_t *topo);

void uct_cuda_coll_lanes_put(void);


/**
 * Which lanes a rank's steps use; none, if there is no ledger, or of so few
 * bytes that they are gone before anybody could heed them.
 *
 * @param gpus  Of all ranks, ordinals of @a topo.
 */
void uct_cuda_coll_lanes_find(const uct_cuda_coll_plan_t *plan, unsigned rank,
                              const uct_cuda_topo_t *topo, const int *gpus,
                              uct_cuda_coll_lanes_t *lanes);


/** The steps are about to be carried out; have ended. Both together take 0.1 us
 *  for 14 lanes. */
void uct_cuda_coll_lanes_begin(const uct_cuda_coll_lanes_t *lanes);
void uct_cuda_coll_lanes_end(const uct_cuda_coll_lanes_t *lanes);


END_C_DECLS

#endif
