/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams or a graph: the cheaper one, and when building a graph pays. */
#include "nodes.h"

#include <uct/cuda/run/graph_cost.h>

#include <memory>


class test_cost : public ::testing::Test
{
protected:
    test_cost() : m_plan(new uct_cuda_plan_t())
    {
        m_plan->size      = 64 * MiB;
        m_plan->num_steps = 16;
        m_plan->seconds   = 0;
    }

    bool wants()
    {
        m_threshold = uct_cuda_run_cost_threshold(m_plan.get(), m_config,
                                                  &m_model);
        return m_threshold != UCT_CUDA_RUN_COST_NEVER;
    }

    double retarget(unsigned copies)
    {
        return uct_cuda_run_cost_graph(&m_model, copies, false);
    }

    double build(unsigned copies)
    {
        return uct_cuda_run_cost_graph(&m_model, copies, true);
    }

    Config                              m_config;
    std::unique_ptr<uct_cuda_plan_t> m_plan;
    uct_cuda_plan_model_t                 m_model = uct_cuda_plan_model_builtin;
    unsigned                              m_threshold;
};


/* Rows of the measurement, a point between two, and one behind the last */
TEST_F(test_cost, as_measured)
{
    EXPECT_NEAR(27.2e-6, retarget(16), 1e-9);
    EXPECT_NEAR(72e-6, build(16), 1e-9);
    EXPECT_NEAR(108e-6, retarget(64), 1e-9);
    EXPECT_NEAR((8.8e-6 + 27.2e-6) / 2, retarget(10),
                1e-9);
    EXPECT_NEAR(108e-6 + (108e-6 - 27.2e-6),
                retarget(112), 1e-9);
}

/* ucx_mp_cost, 15 copies, with direct driver calls on two machines not in the
   table: update, launch, record 24.11 and 30.39 us, 0.35 of them for the
   record; launch and record 19.69 and 35.30 */
TEST_F(test_cost, between_other_machines)
{
    const double record = 0.35e-6;
    const double taken  = retarget(15) + record;

    EXPECT_GT(taken, 24.11e-6);
    EXPECT_LT(taken, 30.39e-6);
}

/* At the threshold graphs save at least the time to build one; one transfer
   earlier they save at most that */
TEST_F(test_cost, the_threshold_breaks_even)
{
    for (unsigned copies = 2; copies <= 512; ++copies) {
        double saved = copies * m_model.submit_copy - retarget(copies);
        double extra = build(copies);

        m_plan->num_steps = (uint16_t)copies;
        if (!wants()) {
            EXPECT_LE(saved, 0) << copies;
            continue;
        }

        ASSERT_GE(m_threshold, 1u);
        EXPECT_GE(m_threshold * saved, extra) << copies;
        if (m_threshold > 1) {
            EXPECT_LE((m_threshold - 1) * saved, extra) << copies;
        }
    }
}

/* Building occupies the thread while the copies occupy the links: it costs time
   only if the transfer is shorter */
TEST_F(test_cost, long_transfers_hide_the_building)
{
    m_plan->num_steps = 5;
    m_plan->seconds   = build(5) * 0.9;
    ASSERT_TRUE(wants());
    EXPECT_GT(m_threshold, 1u);

    m_plan->seconds = build(5) * 1.1;
    ASSERT_TRUE(wants());
    EXPECT_EQ(1u, m_threshold);

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
    m_plan->seconds = 115e-6;
    EXPECT_TRUE(wants());

    /* A faster processor */
    m_model.submit_chunk *= 0.9;
    EXPECT_FALSE(wants());
    m_model.submit_chunk /= 0.9;

    /* Without a direct copy to begin first */
    m_plan->seconds        = 116e-6;
    m_plan->paths[0].slots = 1;
    EXPECT_TRUE(wants());
}

TEST_F(test_cost, variables)
{
    EXPECT_TRUE(wants()); /* AUTO */
    EXPECT_GE(m_threshold, 1u);

    m_plan->num_steps = 2; /* 6 us by streams, 7 by a graph */
    EXPECT_FALSE(wants());
    m_config.set("_GRAPH", "y");
    EXPECT_TRUE(wants());
    EXPECT_EQ(0u, m_threshold);

    m_plan->num_steps = 1;
    EXPECT_FALSE(wants());
    m_plan->num_steps = 16;
    m_config.set("_GRAPH", "n");
    EXPECT_FALSE(wants());
}

/* The node's own constants: half the time to submit a copy means half the time
   of graphs, too, but not with a driver that is slow for graphs */
TEST_F(test_cost, graph_cost_follows_the_nodes_constants)
{
    double launch = retarget(16);

    ASSERT_TRUE(wants());
    unsigned threshold   = m_threshold;
    m_model.submit_copy /= 2;
    EXPECT_NEAR(launch / 2, retarget(16), 1e-12);
    EXPECT_TRUE(wants());
    EXPECT_EQ(threshold, m_threshold);

    m_model.graph = 2;
    EXPECT_NEAR(launch, retarget(16), 1e-12);
    EXPECT_FALSE(wants());
}
