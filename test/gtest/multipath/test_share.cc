/* SPDX-License-Identifier: BSD-3-Clause */
/* Max-min fair rates, compared with calculated ones. */
#include <gtest/gtest.h>

#include <uct/cuda/plan/fair_share.h>

#include <cfloat>
#include <vector>


class test_share : public ::testing::Test
{
protected:
    /* Add a flow over some resources; @return its number */
    unsigned add(std::vector<int16_t> resources, unsigned count = 1,
                 double cap = DBL_MAX)
    {
        const unsigned number = m_num_flows++;
        uct_cuda_plan_share_way_t *way   = &m_ways[number];

        way->count = (unsigned)resources.size();
        std::copy(resources.begin(), resources.end(), way->resources);
        m_flows[number] = {way, count, cap, 0};
        return number;
    }

    /* Compute the rates for these capacities. */
    void share(std::vector<double> capacity)
    {
        std::vector<uct_cuda_plan_share_resource_t> resources(capacity.size());
        std::vector<uct_cuda_plan_share_flow_t*> flows;

        for (unsigned f = 0; f < m_num_flows; ++f) {
            flows.push_back(&m_flows[f]);
            for (unsigned i = 0; i < m_ways[f].count; ++i) {
                const int16_t resource = m_ways[f].resources[i];

                uct_cuda_plan_share_add(&resources[resource],
                                        capacity[resource], m_flows[f].count);
            }
        }

        uct_cuda_plan_share(resources.data(), flows.data(), m_num_flows);
        for (const auto &resource : resources) {
            EXPECT_EQ(0u, resource.users);
        }
    }

    double rate(unsigned flow) const
    {
        return m_flows[flow].rate;
    }

    uct_cuda_plan_share_way_t  m_ways[8];
    uct_cuda_plan_share_flow_t m_flows[8];
    unsigned        m_num_flows = 0;
};


/* A flow limited elsewhere leaves the rest to the others, round by round */
TEST_F(test_share, unused_capacity_is_shared_again)
{
    const unsigned slow   = add({0, 1});
    const unsigned middle = add({1, 2});
    const unsigned fast   = add({2});

    share({10, 40, 100});
    EXPECT_DOUBLE_EQ(10, rate(slow));
    EXPECT_DOUBLE_EQ(30, rate(middle));
    EXPECT_DOUBLE_EQ(70, rate(fast));
}

/* Flows over the same resources count one by one; a flow with two hops over one
   resource counts twice */
TEST_F(test_share, flows_are_counted_per_hop)
{
    const unsigned three = add({0}, 3);
    const unsigned twice = add({0, 0});

    share({50});
    EXPECT_DOUBLE_EQ(10, rate(three));
    EXPECT_DOUBLE_EQ(10, rate(twice));
}

/* A flow's unused share goes to others */
TEST_F(test_share, unused_shares_go_to_others)
{
    const unsigned alone  = add({}, 1, 7);
    const unsigned capped = add({0}, 2, 5);
    const unsigned other  = add({0});

    share({30});
    EXPECT_DOUBLE_EQ(7, rate(alone));
    EXPECT_DOUBLE_EQ(5, rate(capped));
    EXPECT_DOUBLE_EQ(20, rate(other));
}
