/* SPDX-License-Identifier: BSD-3-Clause */
/* A lower bound for the time of all-reduces on a node, by its links alone. */
#ifndef UCT_CUDA_CHECK_COLLECTIVE_BOUND_H
#define UCT_CUDA_CHECK_COLLECTIVE_BOUND_H

#include <uct/cuda/base/topo.h>

#include <stdbool.h>
#include <stdio.h>

BEGIN_C_DECLS


/** Largest number of GPUs with all groupings tried; above it only some. */
#define UCT_CUDA_COLL_BOUND_ALL 8


/**
 * GPUs in k groups, each like one GPU with N bytes to be reduced: every element
 * needs 2 (k - 1) messages between groups (Patarasuk and Yuan, "Bandwidth
 * optimal all-reduce algorithms for clusters of workstations", 2009). So
 *
 *     N / t  <=  links / (2 (k - 1)).
 */
typedef struct {
    double   rate;       /**< N / t, bytes/s, of the most limiting grouping; 0:
                              nothing to move, or no link */
    double   links;      /**< Total bytes/s between its groups */
    unsigned num_groups; /**< k */
    unsigned num_gpus;   /**< GPUs in groups: the given ones, then relays */
    int      gpus[UCT_CUDA_MAX_GPUS];
    uint8_t  groups[UCT_CUDA_MAX_GPUS]; /**< Group of each GPU */
} uct_cuda_coll_bound_t;


/**
 * @param gpus        Ordinals of @a topo, no two the same.
 * @param use_relays  Bytes may also go over the topology's other GPUs, if there
 *                    are at most BOUND_ALL GPUs in total. A relay may be in any
 *                    group: the bound holds for each.
 * @param use_host    Bytes may go through host memory.
 */
void uct_cuda_coll_bound(const uct_cuda_topo_t *topo, const int *gpus,
                         unsigned num_gpus, bool use_relays, bool use_host,
                         uct_cuda_coll_bound_t *bound);


/** Print the groups of a bound: "{0} {1} {2 3}". */
void uct_cuda_coll_bound_print_groups(const uct_cuda_coll_bound_t *bound,
                                      FILE *stream);


END_C_DECLS

#endif
