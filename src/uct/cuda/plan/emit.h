/* SPDX-License-Identifier: BSD-3-Clause */
/* From an algorithm's choice of trees to steps. */
#ifndef UCT_CUDA_COLL_EMIT_H
#define UCT_CUDA_COLL_EMIT_H

#include <ucs/type/status.h>
#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/plan/trees.h>

BEGIN_C_DECLS


/** Chunks of a slice at most. */
#define UCT_CUDA_COLL_MAX_CHUNKS 256


/**
 * A plan along trees.
 *
 * What is reduced: along a slice's first tree a rank adds what its children
 * have to what it has itself, in the order of ranks, and leaves the sum for the
 * next one: in an all-reduce in its receive buffer, which is large enough, else
 * in scratch. What has come together at the root, or was there from the start,
 * goes out along the second tree. All of a chunk's inputs are in the root's
 * sum, so that what it overwrites in an all-reduce is needed by nobody any
 * more.
 *
 * With copy engines a rank pulls what its children have into scratch, and its
 * kernel adds that; it pushes the sum on. Where trees rotate the children push,
 * and all that a rank pushes is in one queue. Without copy engines its kernel
 * reads what the children have, and writes to them: of stars that is one kernel
 * a rank, which waits for nothing.
 *
 * A reduce-scatter in place has its results in scratch until all have read what
 * they go on top of.
 *
 * Collectives in which each block goes from one rank to one other have no
 * trees; a rank other than the root moves its block, or pushes all of its own.
 *
 * @param frame        What of the plan says which collective it is, up to
 *                     element, bytes and blocks; the rest does not count.
 * @param kernels      Kernels alone.
 * @param chunks       Pieces of each slice, from 1 on; slices too short for so
 *                     many have fewer.
 * @param max_scratch  Bytes a rank: more chunks if they need more.
 * @param like         NULL, or a plan of the same kind, root, ranks, trees and
 *                     kernels, in place or not as this one: if it has as many
 *                     chunks, its steps are taken, with other lengths.
 * @return UCS_OK; UCS_ERR_NO_MEMORY; UCS_ERR_NO_RESOURCE: no number of chunks
 *         makes do with @a max_scratch. The plan is zeroed then.
 */
ucs_status_t uct_cuda_coll_emit(const uct_cuda_coll_plan_t *frame,
                                const uct_cuda_coll_trees_t *trees,
                                bool kernels, unsigned chunks,
                                uint64_t max_scratch,
                                const uct_cuda_coll_plan_t *like,
                                uct_cuda_coll_plan_t *plan);


END_C_DECLS

#endif
