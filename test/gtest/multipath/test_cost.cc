/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams or a graph: who is cheaper, and when a graph is worth building. */
#include "nodes.h"

#include <uct/cuda/multipath/cost.h>

#include <memory>


class test_cost : public ::testing::Test
{
protected:
    test_cost() : m_plan(new uct_cuda_mp_plan_t())
    {
        m_plan->size      = 64 * MiB;
        m_plan->num_steps = 16;
        m_plan->graph     = UCT_CUDA_MP_AUTO;
        m_plan->seconds   = 0;
    }

    bool wants()
    {
        m_patience = 12345;
        return uct_cuda_mp_cost_wants_graph(m_plan.get(), m_config,
                                            &m_patience);
    }

    Config                              m_config;
    std::unique_ptr<uct_cuda_mp_plan_t> m_plan;
    unsigned                            m_patience;
};


/* Rows of the measurement, a place between two, and one behind the last */
TEST_F(test_cost, as_measured)
{
    EXPECT_NEAR(27.2e-6, uct_cuda_mp_cost_retarget(16), 1e-9);
    EXPECT_NEAR(72e-6, uct_cuda_mp_cost_build(16), 1e-9);
    EXPECT_NEAR(108e-6, uct_cuda_mp_cost_retarget(64), 1e-9);
    EXPECT_NEAR((8.8e-6 + 27.2e-6) / 2, uct_cuda_mp_cost_retarget(10), 1e-9);
    EXPECT_NEAR(108e-6 + (108e-6 - 27.2e-6), uct_cuda_mp_cost_retarget(112),
                1e-9);
}

/* By then streams have cost as much more as the building does, and not a whole
 * turn more than that */
TEST_F(test_cost, patience_breaks_even)
{
    for (unsigned copies = 2; copies <= 512; ++copies) {
        double saved = uct_cuda_mp_cost_streams(copies) -
                       uct_cuda_mp_cost_retarget(copies);
        double extra = uct_cuda_mp_cost_build(copies);
        unsigned patience = uct_cuda_mp_cost_patience(copies);

        if (patience == UCT_CUDA_MP_COST_NEVER) {
            EXPECT_LE(saved, 0) << copies;
            continue;
        }

        ASSERT_GE(patience, 1u);
        EXPECT_GE(patience * saved, extra) << copies;
        if (patience > 1) {
            EXPECT_LE((patience - 1) * saved, extra) << copies;
        }
    }
}

/* Building takes the thread while the copies take the links: it costs time only
 * where the transfer is the shorter of the two */
TEST_F(test_cost, long_transfers_hide_the_building)
{
    m_plan->num_steps = 5;
    m_plan->seconds   = uct_cuda_mp_cost_build(5) * 0.9;
    ASSERT_TRUE(wants());
    EXPECT_EQ(uct_cuda_mp_cost_patience(5), m_patience);
    EXPECT_GT(m_patience, 1u);

    m_plan->seconds = uct_cuda_mp_cost_build(5) * 1.1;
    ASSERT_TRUE(wants());
    EXPECT_EQ(1u, m_patience);

    m_plan->num_steps = 2; /* 6 us by streams, 7 by a graph */
    m_plan->seconds   = 1;
    EXPECT_FALSE(wants());
}

/* Two staged paths of up to four chunks: 4 rounds of 14.4 us to submit */
TEST_F(test_cost, streams_that_keep_up)
{
    m_plan->num_paths       = 3;
    m_plan->num_steps       = 15;
    m_plan->paths[0].chunks = 1;
    m_plan->paths[1].chunks = 4;
    m_plan->paths[1].slots  = 4;
    m_plan->paths[2].chunks = 3;
    m_plan->paths[2].slots  = 3;
    m_plan->seconds         = 116e-6;
    EXPECT_FALSE(wants());
    m_plan->graph = UCT_CUDA_MP_YES;
    EXPECT_TRUE(wants());
    m_plan->graph   = UCT_CUDA_MP_AUTO;
    m_plan->seconds = 115e-6;
    EXPECT_TRUE(wants());

    /* No direct copy that could go ahead */
    m_plan->seconds        = 116e-6;
    m_plan->paths[0].slots = 1;
    EXPECT_TRUE(wants());
}

TEST_F(test_cost, variables)
{
    EXPECT_TRUE(wants()); /* AUTO */
    EXPECT_GE(m_patience, 1u);

    m_plan->num_steps = 2; /* 6 us by streams, 7 by a graph */
    EXPECT_FALSE(wants());
    m_config.set("_GRAPH", "y");
    EXPECT_TRUE(wants());
    EXPECT_EQ(0u, m_patience);

    m_config.set("_GRAPH_MIN_SIZE", "65m");
    EXPECT_FALSE(wants());
    m_config.set("_GRAPH_MIN_SIZE", "64m");
    EXPECT_TRUE(wants());

    m_config.set("_GRAPH_CACHE_SIZE", "0");
    EXPECT_TRUE(wants());
    m_config.set("_GRAPH", "auto");
    m_plan->num_steps = 64;
    EXPECT_FALSE(wants()); /* never launched again */

    m_config.set("_GRAPH_CACHE_SIZE", "64").set("_GRAPH", "n");
    EXPECT_FALSE(wants());
}
