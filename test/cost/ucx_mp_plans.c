/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Make plans of collectives among a node's GPUs, one size after the other, as a
 * communicator does. test/cost/plans counts the instructions from outside. The
 * topology comes from a file: valgrind has no room for the memory of a node
 * with large GPUs.
 *
 * ucx_mp_plans FILE                       write this node's topology
 * ucx_mp_plans FILE KIND RANKS SIZE...    plan on the topology of the file
 */
#include <uct/cuda/plan/plan_cache.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define ELEMENT 4


static void set_request(const uct_cuda_topo_t *topo, int kind,
                        unsigned num_ranks, uint64_t bytes,
                        uct_cuda_plan_coll_request_t *request)
{
    const unsigned blocks = uct_cuda_coll_kind((unsigned)kind)->has_blocks ?
                                    num_ranks :
                                    1;
    unsigned rank;

    memset(request, 0, sizeof(*request));
    request->topo        = topo;
    request->num_ranks   = num_ranks;
    request->kind        = kind;
    request->count       = bytes / ELEMENT / blocks;
    request->element     = ELEMENT;
    request->max_scratch = UCT_CUDA_PLAN_COLL_MAX_SCRATCH;
    request->algorithm   = UCT_CUDA_PLAN_COLL_AUTO;
    request->chunks      = UCT_CUDA_PLAN_COLL_AUTO;
    request->multipath   = UCT_CUDA_PLAN_COLL_AUTO;
    for (rank = 0; (rank < num_ranks) && (rank < UCT_CUDA_PLAN_COLL_MAX_RANKS);
         ++rank) {
        request->gpus[rank] = (int)rank % topo->num_gpus;
    }
}

static int topo_write(const char *path)
{
    const uct_cuda_topo_t *topo = uct_cuda_topo_get();
    FILE *file                  = fopen(path, "wb");
    int written;

    if ((topo == NULL) || (file == NULL)) {
        fprintf(stderr, "ucx_mp_plans: no GPUs, or cannot write %s\n", path);
        return 1;
    }

    written = fwrite(topo, sizeof(*topo), 1, file) == 1;
    return ((fclose(file) == 0) && written) ? 0 : 1;
}

static int topo_read(const char *path, uct_cuda_topo_t *topo)
{
    FILE *file = fopen(path, "rb");
    int is_read;

    if (file == NULL) {
        return 0;
    }

    is_read = fread(topo, sizeof(*topo), 1, file) == 1;
    fclose(file);
    return is_read;
}

int main(int argc, char **argv)
{
    const int kind = (argc < 5) ? -1 : uct_cuda_coll_kind_find(argv[2]);
    static uct_cuda_topo_t topo;
    uct_cuda_plan_coll_request_t request;
    uct_cuda_plan_coll_t plan;
    uct_cuda_plan_cache_t *book;
    ucs_status_t status;
    int i;

    if (argc == 2) {
        return topo_write(argv[1]);
    } else if ((kind < 0) || !topo_read(argv[1], &topo)) {
        fprintf(stderr, "usage: ucx_mp_plans FILE [KIND RANKS SIZE...]\n");
        return 2;
    }

    book = uct_cuda_plan_cache_create();
    if (book == NULL) {
        return 1;
    }

    for (i = 4; i < argc; ++i) {
        set_request(&topo, kind, (unsigned)atoi(argv[3]),
                    strtoull(argv[i], NULL, 10), &request);
        status = uct_cuda_plan_cache_get(book, &request, &plan);
        if (status == UCS_OK) {
            printf("%s bytes: a plan, %s, %u chunks, %.1f us, %u steps\n",
                   argv[i], uct_cuda_plan_coll_algorithm_str(plan.algorithm),
                   plan.chunks, plan.seconds * 1e6, plan.list.num_steps);
        } else {
            printf("%s bytes: no plan\n", argv[i]);
        }
        uct_cuda_plan_coll_release(&plan);
    }

    uct_cuda_plan_cache_destroy(book);
    return 0;
}
