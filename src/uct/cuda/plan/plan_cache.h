/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plan cache, for message sizes that change. Choosing a plan takes
 * milliseconds, and similar sizes give similar choices. So choices are made for
 * a few sizes, and a size between two of them uses the nearest choice. The
 * cache never changes a result: the plan of a request is the same whatever was
 * cached before, so ranks with different histories agree.
 */
#ifndef UCT_CUDA_PLAN_PLAN_CACHE_H
#define UCT_CUDA_PLAN_PLAN_CACHE_H

#include <uct/cuda/plan/collective_planner.h>

BEGIN_C_DECLS


typedef struct uct_cuda_plan_cache uct_cuda_plan_cache_t;


/** Create an empty cache; NULL: no memory. Trees and templates add some 100 KB
 *  for each pair of kind and root; it keeps the eight pairs used last. */
uct_cuda_plan_cache_t *uct_cuda_plan_cache_create(void);

void uct_cuda_plan_cache_destroy(uct_cuda_plan_cache_t *cache);


/**
 * Make the plan of a request. On failure @a plan is zeroed.
 *
 * @param cache  Cache for requests with different kind, root, sizes and
 *              in-place flag, and equal otherwise; or NULL.
 * @param plan  Filled; release it with uct_cuda_plan_coll_release(). Without
 *              elements it has no steps.
 * @return As uct_cuda_plan_coll_choose().
 */
ucs_status_t
uct_cuda_plan_cache_get(uct_cuda_plan_cache_t *cache,
                        const uct_cuda_plan_coll_request_t *request,
                        uct_cuda_plan_coll_t *plan);


END_C_DECLS

#endif
