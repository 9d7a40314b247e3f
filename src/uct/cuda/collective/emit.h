/* SPDX-License-Identifier: BSD-3-Clause */
/* From an algorithm's choice of trees to steps. */
#ifndef UCT_CUDA_COLL_EMIT_H
#define UCT_CUDA_COLL_EMIT_H

#include <ucs/type/status.h>
#include <uct/cuda/collective/plan.h>
#include <uct/cuda/collective/trees.h>

BEGIN_C_DECLS


/** Chunks of a slice at most. */
#define UCT_CUDA_COLL_MAX_CHUNKS 256


/** What is reduced: the same for every algorithm. */
typedef struct {
    unsigned num_ranks;
    uint64_t count;       /**< Elements */
    uint32_t element;     /**< Bytes of one */
    bool     is_in_place;
} uct_cuda_coll_data_t;


/**
 * Each rank's kernel reads its slice from all ranks, adds in the order of
 * ranks, and writes it to all of them. A slice is read and written by one
 * kernel alone, so that in place needs no waits either.
 *
 * @return UCS_OK or UCS_ERR_NO_MEMORY, the plan zeroed.
 */
ucs_status_t uct_cuda_coll_emit_one_kernel(const uct_cuda_coll_data_t *data,
                                           uct_cuda_coll_plan_t *plan);


/**
 * Copy engines and adding kernels along trees, in chunks.
 *
 * Along a slice's first tree a rank pulls what its children have, each into
 * scratch, adds it to what it has itself in the order of ranks, and leaves the
 * sum in its receive buffer for the next one to pull. What has arrived at the
 * root is pushed along the second tree. All of a chunk's inputs are in the
 * root's sum, so that pushing it overwrites none that is still needed.
 *
 * @param chunks       Pieces of each slice, from 1 on; slices too short for so
 *                     many have fewer.
 * @param max_scratch  Bytes a rank: more chunks if they need more.
 * @return UCS_OK; UCS_ERR_NO_MEMORY; UCS_ERR_NO_RESOURCE: no number of chunks
 *         makes do with @a max_scratch. The plan is zeroed then.
 */
ucs_status_t uct_cuda_coll_emit_trees(const uct_cuda_coll_data_t *data,
                                      const uct_cuda_coll_trees_t *trees,
                                      unsigned chunks, uint64_t max_scratch,
                                      uct_cuda_coll_plan_t *plan);


END_C_DECLS

#endif
