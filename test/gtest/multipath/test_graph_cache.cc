/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of graphs: which one is found, which one goes. */
#include "nodes.h"

#include <uct/cuda/plan/transfer_planner.h>
#include <uct/cuda/run/graph_cache.h>

#include <cstring>
#include <memory>
#include <vector>


class test_graph_cache : public ::testing::Test
{
protected:
    test_graph_cache() : m_plan(new uct_cuda_mp_plan_t())
    {
        uct_cuda_mp_graph_cache_init(&m_cache, 2, nullptr);
    }

    ~test_graph_cache()
    {
        uct_cuda_mp_graph_cache_cleanup(&m_cache);
    }

    uct_cuda_mp_graph_key_t key(size_t size, End remote = NONE,
                                uint32_t banks = 0, bool is_ordered = false)
    {
        uct_cuda_mp_graph_key_t key = {m_plan.get(), 0, banks, is_ordered};

        uct_cuda_mp_plan_single(End(0), End(1), remote, size, m_plan.get());
        uct_cuda_mp_graph_key_hash(&key);
        return key;
    }

    uct_cuda_mp_graph_t *find(const uct_cuda_mp_graph_key_t &key,
                              CUdeviceptr to = 1)
    {
        m_nodes[0].to   = to;
        m_nodes[0].from = 7;
        return uct_cuda_mp_graph_cache_find(&m_cache, &key, m_nodes,
                                            &m_is_there);
    }

    uct_cuda_mp_graph_t *add(const uct_cuda_mp_graph_key_t &key,
                             CUdeviceptr to = 1)
    {
        m_nodes[0].to   = to;
        m_nodes[0].from = 7;
        return uct_cuda_mp_graph_cache_new(&m_cache, &key, m_nodes);
    }

    uct_cuda_mp_graph_cache_t           m_cache;
    std::unique_ptr<uct_cuda_mp_plan_t> m_plan;
    uct_cuda_mp_graph_node_t            m_nodes[1] = {};
    bool                                m_is_there = false;
};


TEST_F(test_graph_cache, finds_its_shape_only)
{
    auto *graph = add(key(4096));

    EXPECT_EQ(graph, find(key(4096)));
    EXPECT_TRUE(m_is_there);
    EXPECT_EQ(nullptr, find(key(8192)));
    EXPECT_FALSE(m_is_there);
    EXPECT_EQ(nullptr, find(key(4096, 1)));
    EXPECT_EQ(nullptr, find(key(4096, -1, 1)));
    EXPECT_EQ(nullptr, find(key(4096, -1, 0, true)));
}

TEST_F(test_graph_cache, any_address_will_do_the_same_one_is_better)
{
    auto *first  = add(key(4096), 100);
    auto *second = add(key(4096), 200);

    EXPECT_EQ(first, find(key(4096), 100));
    EXPECT_EQ(second, find(key(4096), 200));
    EXPECT_NE(nullptr, find(key(4096), 300));
}

TEST_F(test_graph_cache, what_is_in_flight_is_not_found)
{
    auto *graph = add(key(4096));

    graph->is_busy = true;
    EXPECT_EQ(nullptr, find(key(4096)));
    EXPECT_TRUE(m_is_there);
    graph->is_busy = false;
    EXPECT_EQ(graph, find(key(4096)));
}

TEST_F(test_graph_cache, the_one_not_used_for_longest_goes)
{
    auto *first = add(key(4096));

    add(key(8192));
    EXPECT_EQ(first, find(key(4096))); /* the other one is older now */
    add(key(16384));
    EXPECT_EQ(2u, m_cache.count);
    EXPECT_EQ(1u, m_cache.evictions);
    EXPECT_EQ(first, find(key(4096)));
    EXPECT_EQ(nullptr, find(key(8192)));
    EXPECT_NE(nullptr, find(key(16384)));
}

TEST_F(test_graph_cache, what_is_in_flight_does_not_go)
{
    auto *first  = add(key(4096));
    auto *second = add(key(8192));

    first->is_busy = second->is_busy = true;
    EXPECT_EQ(nullptr, add(key(16384)));
    EXPECT_EQ(1u, m_cache.waits);
    second->is_busy = false;
    EXPECT_NE(nullptr, add(key(16384)));
    first->is_busy = false;
    EXPECT_EQ(first, find(key(4096)));
    EXPECT_EQ(nullptr, find(key(8192)));
}

/* Two graphs of one shape, so that banks that take turns change nothing; where
 * there is no room for two, one that changes banks is cheaper than a new one */
TEST_F(test_graph_cache, other_banks_when_full)
{
    auto *graph = add(key(4096, -1, 0));

    EXPECT_EQ(nullptr, find(key(4096, -1, 3)));
    EXPECT_TRUE(m_is_there);
    m_cache.size = 1;
    EXPECT_EQ(graph, find(key(4096, -1, 3)));
    EXPECT_EQ(3u, graph->key.banks);
    graph->is_busy = true;
    EXPECT_EQ(nullptr, find(key(4096, -1, 0)));
}

/* What went with a context goes at once, or, in flight, is not found again */
TEST_F(test_graph_cache, contexts_that_are_gone)
{
    auto *first  = add(key(4096));
    auto *second = add(key(8192));

    first->devices = second->devices = 3;
    first->is_busy                   = true;
    uct_cuda_mp_graph_cache_lose(&m_cache, 4);
    EXPECT_EQ(2u, m_cache.count);
    uct_cuda_mp_graph_cache_lose(&m_cache, 2);
    EXPECT_EQ(1u, m_cache.count);
    EXPECT_TRUE(first->is_lost);
    first->is_busy = false;
    EXPECT_EQ(nullptr, find(key(4096)));
    EXPECT_FALSE(m_is_there);
}
