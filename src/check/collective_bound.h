/* SPDX-License-Identifier: BSD-3-Clause */
/* What no all-reduce on a node can be faster than, by the links alone. */
#ifndef UCX_MP_CHECK_COLLECTIVE_BOUND_H
#define UCX_MP_CHECK_COLLECTIVE_BOUND_H

#include <uct/cuda/base/topo.h>

#include <stdbool.h>
#include <stdio.h>

BEGIN_C_DECLS


/** GPUs that all ways of grouping are looked at for; of more, only some. */
#define UCT_CUDA_COLL_BOUND_ALL 8


/**
 * GPUs in k groups, each of which counts as one that has N bytes to be reduced:
 * for every element 2 (k - 1) messages have to pass between groups (Patarasuk
 * and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", 2009). So
 *
 *     N / t  <=  links / (2 (k - 1)).
 */
typedef struct {
    double   rate;       /**< N / t, bytes/s, of the grouping that allows least;
                              0: there is nothing to move, or no link */
    double   links;      /**< Bytes/s between its groups, all together */
    unsigned num_groups; /**< k */
    unsigned num_gpus;   /**< Grouped: those given, and relays behind them */
    int      gpus[UCT_CUDA_MAX_GPUS];
    uint8_t  groups[UCT_CUDA_MAX_GPUS]; /**< Of each of them */
} uct_cuda_coll_bound_t;


/**
 * @param gpus        Ordinals of @a topo, no two the same.
 * @param use_relays  Bytes may go over the topology's other GPUs as well, where
 *                    there are BOUND_ALL or less in all. Such a GPU is in any
 *                    of the groups: that bounds just as well.
 * @param use_host    ... or through host memory.
 */
void uct_cuda_coll_bound(const uct_cuda_topo_t *topo, const int *gpus,
                         unsigned num_gpus, bool use_relays, bool use_host,
                         uct_cuda_coll_bound_t *bound);


/** "{0} {1} {2 3}": the groups of a bound. */
void uct_cuda_coll_bound_print_groups(const uct_cuda_coll_bound_t *bound,
                                      FILE *stream);


END_C_DECLS

#endif
