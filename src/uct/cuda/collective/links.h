/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Directed links used by this process's collectives. They are announced in the
 * node's ledger: transfers of all processes are planned around them.
 * The ranks' agreement does not depend on them.
 */
#ifndef UCT_CUDA_COLLECTIVE_LINKS_H
#define UCT_CUDA_COLLECTIVE_LINKS_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/collective_plan.h>

BEGIN_C_DECLS


/** Links to and from one rank's GPU. */
#define UCT_CUDA_COLL_MAX_LINKS (2 * UCT_CUDA_MAX_GPUS)


/** Links used by one rank's steps. */
typedef struct {
    unsigned count;
    /** uct_cuda_plan_link(), in this process's numbering */
    uint16_t links[UCT_CUDA_COLL_MAX_LINKS];
    uint64_t direct; /**< Mask by index: the link joins two ranks' GPUs */
} uct_cuda_coll_links_t;


/** Open the process's ledger if there is none; a failure leaves it without one.
 *  Match each call with one of uct_cuda_coll_links_put(), which closes it after
 *  the last user. */
void uct_cuda_coll_links_get(const uct_cuda_topo_t *topo);

void uct_cuda_coll_links_put(void);


/**
 * Find the links used by a rank's steps. None are found without a ledger
 * (node/ledger.h), nor for a plan of less than 256 KiB of data: the call ends
 * before another process could react.
 *
 * @param gpus  GPUs of all ranks, ordinals of @a topo.
 */
void uct_cuda_coll_links_find(const uct_cuda_plan_coll_t *plan, unsigned rank,
                              const uct_cuda_topo_t *topo, const int *gpus,
                              uct_cuda_coll_links_t *links);


/** Mark the links as used in the node's ledger. Together with
 *  uct_cuda_coll_links_end() this takes 0.1 us for 14 links. */
void uct_cuda_coll_links_begin(const uct_cuda_coll_links_t *links);

/** Undo uct_cuda_coll_links_begin(). */
void uct_cuda_coll_links_end(const uct_cuda_coll_links_t *links);


END_C_DECLS

#endif
