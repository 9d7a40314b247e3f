/* SPDX-License-Identifier: BSD-3-Clause */
/* Which algorithm, and in how many chunks. */
#include <uct/cuda/collective/planner.h>

#include <uct/cuda/collective/emit.h>

#include <string.h>


/* No sum of bytes overflows below this */
#define MAX_BYTES (1ull << 48)

#define MAX_ELEMENT 64

/* Until the model chooses: from where on copy engines are quicker, bytes; what
 * was quicker on two H200 */
#define MIN_FLAT     (160ul << 20)
#define FLAT_CHUNKS  2


static ucs_status_t check(const uct_cuda_coll_request_t *request)
{
    unsigned rank;

    if ((request->num_ranks == 0) ||
        (request->num_ranks > UCT_CUDA_COLL_MAX_RANKS) ||
        (request->element == 0) || (request->element > MAX_ELEMENT) ||
        (request->count > MAX_BYTES / request->element) ||
        (request->algorithm < UCT_CUDA_COLL_AUTO) ||
        (request->algorithm >= UCT_CUDA_COLL_ALGORITHM_LAST) ||
        (request->chunks == 0) || (request->chunks < UCT_CUDA_COLL_AUTO) ||
        (request->chunks > UCT_CUDA_COLL_MAX_CHUNKS)) {
        return UCS_ERR_INVALID_PARAM;
    }

    for (rank = 0; rank < request->num_ranks; ++rank) {
        if ((request->gpus[rank] < 0) ||
            (request->gpus[rank] >= request->topo->num_gpus)) {
            return UCS_ERR_INVALID_PARAM;
        }
    }

    return UCS_OK;
}

static bool are_peers(const uct_cuda_coll_request_t *request, unsigned a,
                      unsigned b)
{
    const int from = request->gpus[a];
    const int to   = request->gpus[b];

    return (from == to) || ((request->topo->links[from][to].bandwidth > 0) &&
                            (request->topo->links[to][from].bandwidth > 0));
}

/* Is every rank's GPU a peer of every other's? */
static bool are_all_peers(const uct_cuda_coll_request_t *request)
{
    unsigned a, b;

    for (a = 0; a < request->num_ranks; ++a) {
        for (b = 0; b < a; ++b) {
            if (!are_peers(request, a, b)) {
                return false;
            }
        }
    }

    return true;
}

ucs_status_t
uct_cuda_coll_plan_allreduce(const uct_cuda_coll_request_t *request,
                             uct_cuda_coll_plan_t *plan)
{
    const uct_cuda_coll_data_t data = {
        .num_ranks = request->num_ranks, .count = request->count,
        .element = request->element, .is_in_place = request->is_in_place
    };
    const uint64_t scratch = (request->max_scratch == 0) ? UINT64_MAX :
                                                           request->max_scratch;
    int algorithm          = request->algorithm;
    uct_cuda_coll_trees_t trees;
    ucs_status_t status;

    memset(plan, 0, sizeof(*plan));
    status = check(request);
    if (status != UCS_OK) {
        return status;
    }

    if (!are_all_peers(request)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (algorithm == UCT_CUDA_COLL_AUTO) {
        algorithm = (data.count * data.element < MIN_FLAT) ?
                            UCT_CUDA_COLL_ONE_KERNEL :
                            UCT_CUDA_COLL_FLAT;
    }

    if ((algorithm == UCT_CUDA_COLL_ONE_KERNEL) || (data.num_ranks == 1)) {
        return uct_cuda_coll_emit_one_kernel(&data, plan);
    }

    if (algorithm != UCT_CUDA_COLL_FLAT) {
        return UCS_ERR_UNSUPPORTED;
    }

    uct_cuda_coll_trees_flat(data.num_ranks, &trees);
    return uct_cuda_coll_emit_trees(
            &data, &trees,
            (request->chunks == UCT_CUDA_COLL_AUTO) ?
                    FLAT_CHUNKS :
                    (unsigned)request->chunks,
            scratch, plan);
}
