/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams or a graph: which is cheaper, and when a graph is worth building. */
#include "nodes.h"

#include <uct/cuda/run/graph_cost.h>

#include <memory>


class test_cost : public ::testing::Test
{
protected:
    test_cost() : m_plan(new uct_cuda_mp_plan_t())
    {
        m_plan->size      = 64 * MiB;
        m_plan->num_steps = 16;
        m_plan->seconds   = 0;
    }

    bool wants()
    {
        m_threshold = uct_cuda_mp_cost_threshold(m_plan.get(), m_config,
                                                 &m_model);
        return m_threshold != UCT_CUDA_MP_COST_NEVER;
    }

    /* Is a launch of so many copies, after all were given other addresses,
     * cheaper than this? Where graphs cost that many times as much, it is as
     * cheap as streams. */
    bool launch_takes_less(unsigned copies, double seconds)
    {
        m_plan->num_steps = (uint16_t)copies;
        m_model.graph     = copies * m_model.submit_copy / seconds;
        return wants();
    }

    /* Is a graph worth building as soon as it comes again, behind copies that
     * take so long? Else there is another count. */
    bool build_takes_less(unsigned copies, double seconds)
    {
        m_plan->num_steps = (uint16_t)copies;
        m_plan->seconds   = seconds;
        return wants() && (m_threshold == 1);
    }

    Config                              m_config;
    std::unique_ptr<uct_cuda_mp_plan_t> m_plan;
    uct_cuda_mp_model_t                 m_model = uct_cuda_mp_model_builtin;
    unsigned                            m_threshold;
};


/* Within a quarter of what was measured: graph_cost.c */
TEST_F(test_cost, as_measured)
{
    const struct {
        unsigned copies;
        double   launch, build;
    } rows[] = {{4, 8.8e-6, 49e-6}, {16, 27.2e-6, 72e-6}, {64, 108e-6, 266e-6}};

    for (const auto &row : rows) {
        m_model.graph = 1;
        EXPECT_TRUE(build_takes_less(row.copies, row.build * 1.25));
        EXPECT_FALSE(build_takes_less(row.copies, row.build * 0.75));
        EXPECT_TRUE(launch_takes_less(row.copies, row.launch * 1.25));
        EXPECT_FALSE(launch_takes_less(row.copies, row.launch * 0.75));
    }
}

/* ucx_mp_cost, 15 copies, by the driver's bare calls on two machines that the
 * costs are not of: update, launch, record 24.11 and 30.39 us, 0.35 of them for
 * the record; launch and record 19.69 and 35.30 */
TEST_F(test_cost, between_other_machines)
{
    EXPECT_FALSE(launch_takes_less(15, 24.11e-6 - 0.35e-6));
    EXPECT_TRUE(launch_takes_less(15, 30.39e-6 - 0.35e-6));
}

/* 16 copies: 46.4 us by streams, 29 by a graph, which takes 86.4 to build:
 * after 86.4 / 17.4, rounded up, streams have cost as much more. Fewer copies
 * save less, so that a graph of them is due no sooner. */
TEST_F(test_cost, the_threshold_breaks_even)
{
    ASSERT_TRUE(wants());
    EXPECT_EQ(5u, m_threshold);
    for (unsigned copies = 2, last = UCT_CUDA_MP_COST_NEVER; copies <= 512;
         ++copies) {
        m_plan->num_steps = (uint16_t)copies;
        (void)wants();
        EXPECT_LE(m_threshold, last) << copies;
        EXPECT_GE(m_threshold, 1u) << copies;
        last = m_threshold;
    }
}

/* Building takes the thread while the copies take the links: it costs time only
 * where the transfer is the shorter of the two */
TEST_F(test_cost, long_transfers_hide_the_building)
{
    EXPECT_FALSE(build_takes_less(5, 45e-6));
    EXPECT_GT(m_threshold, 1u);
    EXPECT_TRUE(build_takes_less(5, 65e-6));

    m_plan->num_steps = 2; /* 5.8 us by streams, 5.9 by a graph */
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

    /* A quicker processor */
    m_model.submit_chunk *= 0.9;
    EXPECT_FALSE(wants());
    m_model.submit_chunk /= 0.9;

    /* No direct copy that could go ahead */
    m_plan->seconds        = 116e-6;
    m_plan->paths[0].slots = 1;
    EXPECT_TRUE(wants());
}

TEST_F(test_cost, variables)
{
    EXPECT_TRUE(wants()); /* AUTO */
    EXPECT_GE(m_threshold, 1u);

    m_plan->num_steps = 2; /* 5.8 us by streams, 5.9 by a graph */
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

/* The node's own constants: half the time to submit a copy is half the time of
 * graphs, too; a driver that takes longer for them is not */
TEST_F(test_cost, as_the_node_is)
{
    ASSERT_TRUE(wants());
    unsigned threshold   = m_threshold;
    m_model.submit_copy /= 2;
    EXPECT_TRUE(wants());
    EXPECT_EQ(threshold, m_threshold);

    m_model.graph = 2;
    EXPECT_FALSE(wants());
}
