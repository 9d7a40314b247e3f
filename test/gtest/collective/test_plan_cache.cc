/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan cache for changing sizes: its plans are as good as those chosen for
   the exact size, independent of earlier requests, and available for any number
   of ranks. */
#include "collective/plans.h"
#include "multipath/nodes.h"

#include <uct/cuda/check/collective_check.h>
#include <uct/cuda/plan/plan_cache.h>
#include <uct/cuda/plan/collective_cost.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>


/* Plan times that can be computed before memory runs out; below 0: no limit */
static int prices_left = -1;

/* Computed plan times */
static thread_local unsigned num_prices;

extern "C" ucs_status_t
__real_uct_cuda_plan_coll_cost(const uct_cuda_plan_coll_t *plan,
                               const uct_cuda_topo_t *topo, const int *gpus,
                               const uct_cuda_plan_coll_model_t *model,
                               double limit, double *seconds_p);
extern "C" ucs_status_t
__wrap_uct_cuda_plan_coll_cost(const uct_cuda_plan_coll_t *plan,
                               const uct_cuda_topo_t *topo, const int *gpus,
                               const uct_cuda_plan_coll_model_t *model,
                               double limit, double *seconds_p);

ucs_status_t
__wrap_uct_cuda_plan_coll_cost(const uct_cuda_plan_coll_t *plan,
                               const uct_cuda_topo_t *topo, const int *gpus,
                               const uct_cuda_plan_coll_model_t *model,
                               double limit, double *seconds_p)
{
    ++num_prices;
    if ((prices_left >= 0) && (prices_left-- == 0)) {
        return UCS_ERR_NO_MEMORY;
    }
    return __real_uct_cuda_plan_coll_cost(plan, topo, gpus, model, limit,
                                          seconds_p);
}


namespace
{

/* Limit of the modelled time, relative to the best choice */
const double MOST = 1.02;


class PlanCache
{
public:
    PlanCache() : m_cache(uct_cuda_plan_cache_create())
    {
    }

    PlanCache(const PlanCache &) = delete;

    ~PlanCache()
    {
        uct_cuda_plan_cache_destroy(m_cache);
    }

    operator uct_cuda_plan_cache_t *()
    {
        return m_cache;
    }

private:
    uct_cuda_plan_cache_t *m_cache;
};


class Plan : public uct_cuda_plan_coll_t
{
public:
    Plan()
    {
        memset(static_cast<uct_cuda_plan_coll_t*>(this), 0,
               sizeof(uct_cuda_plan_coll_t));
    }

    Plan(const Plan &) = delete;

    ~Plan()
    {
        uct_cuda_plan_coll_release(this);
    }
};


struct Node {
    const char      *name;
    uct_cuda_topo_t topo;
};

/* A cube of NVLinks */
uct_cuda_topo_t cube()
{
    uct_cuda_topo_t topo = mesh_node(8, 24 * GB, 12 * GB);

    for (int i = 0; i < 8; ++i) {
        for (int j = 0; j < 8; ++j) {
            int apart = __builtin_popcount(i ^ j);

            topo.links[i][j].bandwidth =
                    (apart == 1) ? (((i ^ j) == 1) ? 48 * GB : 24 * GB) :
                    ((apart == 2) && (i / 4 == j / 4)) ? 24 * GB : 0;
        }
    }
    return topo;
}

std::vector<Node> nodes()
{
    return {{"mesh", beluga()},
            {"switch", hgx()},
            {"sockets", two_sockets(72 * GB, 68 * GB, 30 * GB)},
            {"PCIe", pcie_node(4, 12 * GB)},
            {"cube", cube()}};
}

uct_cuda_plan_coll_request_t request_of(const uct_cuda_topo_t &topo, int kind,
                                        unsigned num_ranks, uint64_t bytes)
{
    uct_cuda_plan_coll_request_t request;

    memset(&request, 0, sizeof(request));
    request.topo        = &topo;
    request.num_ranks   = num_ranks;
    request.kind        = kind;
    request.element     = 4;
    request.count       = bytes / 4 /
                    (uct_cuda_coll_kind((unsigned)kind)->has_blocks ?
                         num_ranks :
                         1);
    request.max_scratch = UCT_CUDA_PLAN_COLL_MAX_SCRATCH;
    request.algorithm   = UCT_CUDA_PLAN_COLL_AUTO;
    request.chunks      = UCT_CUDA_PLAN_COLL_AUTO;
    request.multipath   = UCT_CUDA_PLAN_COLL_AUTO;
    for (unsigned rank = 0; (rank < num_ranks) &&
                            (rank < UCT_CUDA_PLAN_COLL_MAX_RANKS); ++rank) {
        request.gpus[rank] = (int)rank % topo.num_gpus;
    }
    return request;
}

/** Return the seconds of a plan by the planner's constants. */
double seconds_of(const uct_cuda_plan_coll_request_t &request,
                  const uct_cuda_plan_coll_t &plan)
{
    uct_cuda_plan_coll_ranks_t ranks = {};
    uct_cuda_plan_coll_model_t model;
    double seconds                   = 0;

    ranks.topo      = request.topo;
    ranks.num_ranks = request.num_ranks;
    ranks.gpus      = request.gpus;
    uct_cuda_plan_coll_model_of(&uct_cuda_plan_model_builtin,
                                uct_cuda_plan_coll_trees_ports(&ranks), &model);
    EXPECT_EQ(UCS_OK, uct_cuda_plan_coll_cost(&plan, request.topo, request.gpus,
                                              &model, DBL_MAX, &seconds));
    return seconds;
}

/** Return any size, near or far from the priced ones. */
uint64_t any_size(std::mt19937 &random)
{
    const double power = std::uniform_real_distribution<>(8, 28)(random);

    return (uint64_t)std::exp2(power) / 64 * 64 + 64;
}

/** The best choice for the exact size is at most 2 % faster. */
TEST(test_plan_cache, is_not_worse_than_a_choice_for_the_size)
{
    std::mt19937 random(3);

    for (const Node &node : nodes()) {
        for (int kind = 0; kind < UCT_CUDA_COLL_KIND_LAST; ++kind) {
            const unsigned num_ranks = (unsigned)node.topo.num_gpus;
            uct_cuda_plan_coll_tree_cache_t tree_cache = {};
            PlanCache cache;

            for (int i = 0; i < 12; ++i) {
                uct_cuda_plan_coll_request_t request =
                        request_of(node.topo, kind, num_ranks,
                                   any_size(random));
                uct_cuda_plan_coll_choice_t choice;
                ucs_status_t status;
                char error[256] = "";
                Plan plan;

                status = uct_cuda_plan_coll_choose(&request, &tree_cache,
                                                   &choice);
                ASSERT_EQ(status,
                          uct_cuda_plan_cache_get(cache, &request, &plan));
                if (status != UCS_OK) {
                    continue;
                }

                EXPECT_LE(seconds_of(request, plan), MOST * choice.seconds)
                    << node.name << ", " << uct_cuda_coll_kind(kind)->name
                    << ", " << request.count << " elements";
                if (plan.list.num_steps < 1000) {
                    EXPECT_EQ(UCS_OK,
                              uct_cuda_plan_coll_check(&plan, error,
                                                       sizeof(error)))
                            << error;
                }
            }
            uct_cuda_plan_coll_tree_cache_release(&tree_cache);
        }
    }
}

/** A best plan with many chunks is found, too: no algorithm with a given number
 *  of chunks is faster by more than this. */
TEST(test_plan_cache, the_choice_is_not_worse_than_any_named_plan)
{
    const uct_cuda_topo_t topos[] = {cube(), mesh_node(4, 93 * GB, 25 * GB)};
    const int kinds[]             = {UCT_CUDA_COLL_KIND_BCAST,
                                     UCT_CUDA_COLL_KIND_REDUCE,
                                     UCT_CUDA_COLL_KIND_REDUCE_SCATTER};

    for (const uct_cuda_topo_t &topo : topos) {
        for (int kind : kinds) {
            uct_cuda_plan_coll_request_t request = request_of(topo, kind, 8,
                                                              256 << 20);
            uct_cuda_plan_coll_tree_cache_t tree_cache = {};
            uct_cuda_plan_coll_choice_t choice, named;

            ASSERT_EQ(UCS_OK, uct_cuda_plan_coll_choose(&request, &tree_cache,
                                                        &choice));
            for (int algorithm = UCT_CUDA_PLAN_COLL_FLAT;
                 algorithm < UCT_CUDA_PLAN_COLL_ALGORITHM_LAST; ++algorithm) {
                for (int chunks = 1; chunks <= 32; chunks *= 2) {
                    request.algorithm = algorithm;
                    request.chunks    = chunks;
                    if (uct_cuda_plan_coll_choose(&request, &tree_cache,
                                                  &named) == UCS_OK) {
                        EXPECT_LE(choice.seconds, 1.03 * named.seconds)
                                << topo.num_gpus << " GPUs, "
                                << uct_cuda_coll_kind(kind)->name << ", "
                                << uct_cuda_plan_coll_algorithm_str(algorithm)
                                << " in " << chunks;
                    }
                }
            }
            uct_cuda_plan_coll_tree_cache_release(&tree_cache);
        }
    }
}

/** Ranks may have made other calls before: a cache that has seen more kinds and
 *  roots than it can hold gives the same plans. */
TEST(test_plan_cache, plans_do_not_depend_on_earlier_calls)
{
    const uct_cuda_topo_t topo = beluga();
    std::mt19937 random(4);
    PlanCache busy, fresh;

    for (int i = 0; i < 150; ++i) {
        const int kind = (int)(random() % UCT_CUDA_COLL_KIND_LAST);
        uct_cuda_plan_coll_request_t request = request_of(topo, kind, 4,
                                                          any_size(random) >>
                                                              4);
        Plan a, b, c;

        request.root        = random() % 4;
        request.is_in_place = (random() % 2 == 0) &&
                              (kind != UCT_CUDA_COLL_KIND_ALLTOALL);
        ASSERT_EQ(UCS_OK, uct_cuda_plan_cache_get(busy, &request, &a));
        if (i % 3 != 0) {
            continue;
        }

        ASSERT_EQ(UCS_OK, uct_cuda_plan_cache_get(NULL, &request, &b));
        EXPECT_TRUE(plans_equal(a, b)) << i;
        ASSERT_EQ(UCS_OK, uct_cuda_plan_cache_get(fresh, &request, &c));
        EXPECT_TRUE(plans_equal(a, c)) << i;
    }
}

/** Plans of many steps are derived from the last one of their choice: test
 *  similar sizes, with equal and different numbers of chunks. */
TEST(test_plan_cache, derived_and_new_plans_are_equal)
{
    const uct_cuda_topo_t topo = cube();
    std::mt19937 random(6);

    for (int kind : {UCT_CUDA_COLL_KIND_ALLREDUCE,
                     UCT_CUDA_COLL_KIND_REDUCE_SCATTER,
                     UCT_CUDA_COLL_KIND_ALLGATHER, UCT_CUDA_COLL_KIND_REDUCE}) {
        unsigned most = 0;
        PlanCache cache;

        for (int i = 0; i < 12; ++i) {
            uct_cuda_plan_coll_request_t request = request_of(
                    topo, kind, 8, (64 << 20) + random() % (8 << 20));
            uint64_t counts[8];
            Plan a, b;

            request.element     = (i % 4 == 0) ? 8 : 4;
            request.is_in_place = (i % 3 == 0);
            if ((i % 2 == 0) &&
                ((kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER) ||
                 (kind == UCT_CUDA_COLL_KIND_ALLGATHER))) {
                for (uint64_t &count : counts) {
                    count = request.count - random() % 4096;
                }
                counts[i % 8] = (i % 4 == 2) ? 0 : counts[i % 8];
                request.counts = counts;
            }
            ASSERT_EQ(UCS_OK, uct_cuda_plan_cache_get(cache, &request, &a));
            ASSERT_EQ(UCS_OK, uct_cuda_plan_cache_get(NULL, &request, &b));
            EXPECT_TRUE(plans_equal(a, b))
                    << uct_cuda_coll_kind(kind)->name << ", " << i;
            most = std::max(most, a.list.num_steps);
        }
        /* An all-gather has too few steps here to be kept */
        EXPECT_GT(most, (kind == UCT_CUDA_COLL_KIND_ALLGATHER) ? 100u : 200u)
                << uct_cuda_coll_kind(kind)->name;
    }
}

/** Very different block sizes have the choice of equal blocks as large as the
 *  largest: a plan near the best one, and no prices in later calls. */
TEST(test_plan_cache, uneven_blocks)
{
    const uint64_t even[4]     = {1000000, 1000000, 1000004, 999996};
    const uint64_t uneven[4]   = {4000000, 0, 0, 0};
    const uint64_t changed[4]  = {20000, 3990000, 0, 1000};
    const uct_cuda_topo_t topo = beluga();

    for (int kind :
         {UCT_CUDA_COLL_KIND_ALLGATHER, UCT_CUDA_COLL_KIND_REDUCE_SCATTER}) {
        PlanCache cache;

        for (const uint64_t *counts : {even, uneven, changed}) {
            uct_cuda_plan_coll_request_t request = request_of(topo, kind, 4,
                                                              16000000);
            uct_cuda_plan_coll_choice_t choice;
            Plan plan;

            request.counts = counts;
            ASSERT_EQ(UCS_OK,
                      uct_cuda_plan_coll_choose(&request, NULL, &choice));
            num_prices = 0;
            ASSERT_EQ(UCS_OK, uct_cuda_plan_cache_get(cache, &request, &plan));
            EXPECT_TRUE((counts != changed) || (num_prices == 0));
            EXPECT_LE(seconds_of(request, plan), MOST * choice.seconds)
                    << uct_cuda_coll_kind(kind)->name << ", " << counts[0];
        }
    }
}

/** With too little scratch memory for the best plan there is another plan, or
 *  none, as without the cache. */
TEST(test_plan_cache, little_scratch)
{
    const uct_cuda_topo_t topo = beluga();

    for (uint64_t scratch = 256; scratch <= (1ul << 28); scratch <<= 4) {
        for (uint64_t bytes : {5000ul, 3000000ul, 200000000ul}) {
            uct_cuda_plan_coll_request_t request =
                    request_of(topo, UCT_CUDA_COLL_KIND_ALLREDUCE, 4, bytes);
            uct_cuda_plan_coll_choice_t choice;
            PlanCache cache;
            Plan plan;

            request.max_scratch = scratch;
            request.algorithm   = UCT_CUDA_PLAN_COLL_FLAT;
            EXPECT_EQ(uct_cuda_plan_coll_choose(&request, NULL, &choice),
                      uct_cuda_plan_cache_get(cache, &request, &plan));
            EXPECT_LE(plan.scratch, scratch);
        }
    }
}

/** A rank without memory for one price has no plan, instead of another plan
 *  than the others. It has theirs once memory is available. */
TEST(test_plan_cache, without_memory_for_a_time_there_is_no_plan)
{
    const uct_cuda_topo_t topo                 = beluga();
    const uct_cuda_plan_coll_request_t request = request_of(
            topo, UCT_CUDA_COLL_KIND_ALLREDUCE, 4, 3000000);
    PlanCache rich;
    Plan theirs;
    int left, first = 0;

    ASSERT_EQ(UCS_OK, uct_cuda_plan_cache_get(rich, &request, &theirs));
    do {
        PlanCache poor;
        Plan none, plan;

        prices_left = first;
        const ucs_status_t status = uct_cuda_plan_cache_get(poor, &request,
                                                            &none);
        left        = prices_left;
        prices_left = -1;
        EXPECT_EQ((left < 0) ? UCS_ERR_NO_MEMORY : UCS_OK, status) << first;
        EXPECT_EQ(UCS_OK, uct_cuda_plan_cache_get(poor, &request, &plan));
        EXPECT_EQ(theirs.seconds, plan.seconds) << first;
        EXPECT_EQ(theirs.list.num_steps, plan.list.num_steps) << first;
        first += 1 + first / 4;
    } while (left < 0);
    EXPECT_GT(first, 10);
}

/** Every number of ranks has a plan, even if many share a GPU and a kernel
 *  reads from a limited number; more than the maximum have none. */
TEST(test_plan_cache, every_number_of_ranks)
{
    const uct_cuda_topo_t topo = hgx();

    for (unsigned num_ranks = 1; num_ranks <= UCT_CUDA_PLAN_COLL_MAX_RANKS + 1;
         ++num_ranks) {
        uct_cuda_plan_coll_request_t request =
                request_of(topo, UCT_CUDA_COLL_KIND_ALLREDUCE, num_ranks,
                           3 * MiB);
        char error[256] = "";
        Plan plan;

        ASSERT_EQ((num_ranks <= UCT_CUDA_PLAN_COLL_MAX_RANKS) ?
                          UCS_OK :
                          UCS_ERR_INVALID_PARAM,
                  uct_cuda_plan_cache_get(NULL, &request, &plan))
                << num_ranks;
        if (num_ranks <= UCT_CUDA_PLAN_COLL_MAX_RANKS) {
            EXPECT_EQ(UCS_OK, uct_cuda_plan_coll_check(&plan, error,
                                                       sizeof(error)))
                    << num_ranks << ": " << error;
        }
    }
}

} // namespace
