/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of a collective from its trees. */
#ifndef UCT_CUDA_PLAN_EMIT_H
#define UCT_CUDA_PLAN_EMIT_H

#include <ucs/type/status.h>
#include <uct/cuda/plan/collective_plan.h>
#include <uct/cuda/plan/trees.h>

BEGIN_C_DECLS


/** Maximum chunks of a shard. */
#define UCT_CUDA_PLAN_COLL_MAX_CHUNKS 256


/**
 * Make a plan from trees.
 *
 * Reductions: along the first tree of a shard each rank adds its children's
 * data to its own, in rank order, and leaves the sum for its parent: in an
 * all-reduce in its receive buffer, otherwise in scratch memory. Data at the
 * root, summed or original, goes out along the second tree. The root's sum
 * contains all inputs of a chunk, so an all-reduce may overwrite them
 * afterwards.
 *
 * With copy engines a rank pulls its children's data into scratch memory, its
 * kernel adds it, and the rank pushes the sum. With rotating trees the children
 * push, and all pushes of a rank share a queue. Without copy engines a kernel
 * reads from the children and writes to them; for stars this is one kernel on
 * each rank, without waits.
 *
 * An in-place reduce-scatter keeps its results in scratch memory until all
 * ranks have read the inputs below them.
 *
 * Collectives that move each block from one rank to one other have no trees. A
 * rank other than the root moves its block, or pushes all of its blocks.
 *
 * @param signature        Signature: kind to blocks of the plan; other fields
 *                     are ignored.
 * @param kernels      Use kernels only.
 * @param chunks       Chunks of each shard, at least 1; short shards get fewer.
 * @param max_scratch  Limit for each rank, bytes; more chunks are used to meet
 *                     it.
 * @param like         NULL, or a plan with the same kind, root, ranks, trees,
 *                     kernels and in-place flag. If it has as many chunks its
 *                     steps are reused with other lengths.
 * @return UCS_OK; UCS_ERR_NO_MEMORY; UCS_ERR_NO_RESOURCE: no number of chunks
 *         fits into @a max_scratch. The plan is zeroed on failure.
 */
ucs_status_t uct_cuda_plan_coll_emit(const uct_cuda_plan_coll_t *signature,
                                     const uct_cuda_plan_coll_trees_t *trees,
                                     bool kernels, unsigned chunks,
                                     uint64_t max_scratch,
                                     const uct_cuda_plan_coll_t *like,
                                     uct_cuda_plan_coll_t *plan);


END_C_DECLS

#endif
