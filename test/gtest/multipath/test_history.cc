/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contention history of transfers, and its effect on plans in programs that
 * compute between exchanges of messages.
 */
#include "nodes.h"

#include <uct/cuda/multipath/history.h>

#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>


static const uint64_t MS = 1000000;


class test_history : public ::testing::Test
{
protected:
    test_history() : m_now(1000 * MS), m_met()
    {
    }

    /* Run a transfer that finds `flows` others on the link from 0 to 1, or
       none. */
    void transfer(uint8_t flows, uint8_t direct = 0)
    {
        uct_cuda_plan_load_t load = {};

        uct_cuda_mp_history_begin(&m_met, m_now);
        load.active[LANE] = flows;
        load.direct[LANE] = direct;
        if (flows > 0) {
            uct_cuda_mp_history_add(&m_met, &load, m_now);
        }
    }

    uct_cuda_plan_load_t recall(uint8_t active = 0)
    {
        uct_cuda_plan_load_t load = {};

        load.active[LANE] = active;
        uct_cuda_mp_history_recall(&m_met, m_now, &load);
        return load;
    }

    static const unsigned LANE = 17;
    uint64_t              m_now;
    uct_cuda_mp_history_t m_met;
};


TEST_F(test_history, no_contention_so_far)
{
    EXPECT_EQ(0, recall().active[LANE]);
    transfer(0);
    EXPECT_EQ(0, recall().active[LANE]);
    EXPECT_EQ(2, recall(2).active[LANE]) << "what is there stays";
}

TEST_F(test_history, the_maximum_of_contention_counts)
{
    transfer(2);
    transfer(1, 1);
    EXPECT_EQ(2, recall().active[LANE]);
    EXPECT_EQ(1, recall().direct[LANE]);
    EXPECT_EQ(3, recall(3).active[LANE]);
    EXPECT_EQ(0, recall().active[LANE + 1]);
}

/* After pauses of any reasonable length */
TEST_F(test_history, pauses)
{
    for (uint64_t pause : {0, 1, 8, 100, 900}) {
        for (int i = 0; i < 5; ++i) {
            transfer(1);
            m_now += pause * MS;
            EXPECT_EQ(1, recall().active[LANE]) << pause << " ms";
        }
    }

    m_now += UCT_CUDA_MP_HISTORY_KEEP;
    EXPECT_EQ(0, recall().active[LANE]);
}

/* Also if there is contention then */
TEST_F(test_history, old_contention_is_forgotten)
{
    uct_cuda_plan_load_t load = {};

    transfer(2);
    m_now                 += 2 * UCT_CUDA_MP_HISTORY_KEEP;
    load.active[LANE + 1]  = 1;
    uct_cuda_mp_history_begin(&m_met, m_now);
    uct_cuda_mp_history_add(&m_met, &load, m_now);
    EXPECT_EQ(0, recall().active[LANE]);
    EXPECT_EQ(1, recall().active[LANE + 1]);
}

/* One interval without contention may be chance; after two, the third message
   has all links */
TEST_F(test_history, two_intervals_without_contention)
{
    transfer(1);
    m_now += 8 * MS;
    transfer(0);
    m_now += 8 * MS;
    EXPECT_EQ(1, recall().active[LANE]);
    transfer(1);
    for (unsigned expected : {1, 1, 0}) {
        m_now += 8 * MS;
        EXPECT_EQ(expected, recall().active[LANE]);
        transfer(0);
    }
}

/* Many short transfers count as one: 20 us each, while the other process
   pauses */
TEST_F(test_history, an_interval_has_a_minimum_length)
{
    uint64_t begin = m_now;

    transfer(1);
    for (int i = 0; i < 99; ++i) {
        m_now += MS / 50;
        transfer(0);
        EXPECT_EQ(1, recall().active[LANE]) << i;
    }

    while (recall().active[LANE] != 0) {
        m_now += MS / 50;
        transfer(0);
        ASSERT_LT(m_now - begin, 5 * MS);
    }
    EXPECT_GE(m_now - begin, 4 * MS);
}


TEST_F(test_history, contention_restarts_the_count)
{
    EXPECT_EQ(0u, recall().uncrossed);
    uct_cuda_mp_history_end(&m_met, 5, false);
    uct_cuda_mp_history_end(&m_met, 7, false);
    EXPECT_EQ(12u, recall().uncrossed);
    m_now += 2 * UCT_CUDA_MP_HISTORY_KEEP;
    EXPECT_EQ(12u, recall().uncrossed);
    uct_cuda_mp_history_end(&m_met, 9, true);
    EXPECT_EQ(0u, recall().uncrossed);
    uct_cuda_mp_history_end(&m_met, 9, false);
    EXPECT_EQ(9u, recall().uncrossed);
}


/* Programs whose ranks all begin to send at the same time, unseen by each
   other, on a mesh of four GPUs */
class test_exchanges : public ::testing::Test
{
protected:
    typedef std::vector<std::pair<int, int>> messages_t;

    test_exchanges() : m_topo(beluga()), m_now(1000 * MS)
    {
    }

    /* Send one message each, all at once, pause for `pause` ms, and return
       their paths. */
    std::vector<std::string> exchange(const messages_t &messages,
                                      uint64_t pause)
    {
        std::vector<uct_cuda_plan_t> plans(messages.size());
        std::vector<std::string> texts;

        for (size_t i = 0; i < messages.size(); ++i) {
            uct_cuda_mp_history_t &met = m_met[messages[i]];
            uct_cuda_plan_load_t load  = {};

            load.is_known = true;
            load.window   = 1;
            uct_cuda_mp_history_recall(&met, m_now, &load);
            uct_cuda_plan_make(Know(m_topo, m_config, &load),
                               End(messages[i].first),
                               End(messages[i].second), 64 * MiB,
                               &plans[i]);
            uct_cuda_mp_history_begin(&met, m_now);
            texts.push_back(path_names(plans[i]));
        }

        for (size_t i = 0; i < messages.size(); ++i) {
            uct_cuda_plan_load_t load = {};

            for (size_t k = 0; k < messages.size(); ++k) {
                uint16_t direct = uct_cuda_plan_link(End(messages[k].first),
                                                     End(messages[k].second));
                std::set<uint16_t> links = {direct};

                for (unsigned s = 0; s < plans[k].num_steps; ++s) {
                    links.insert(plans[k].steps[s].queue);
                }
                for (uint16_t link : links) {
                    load.active[link] += (k != i);
                }
                load.direct[direct] += (k != i);
            }
            if (messages.size() > 1) {
                uct_cuda_mp_history_add(&m_met[messages[i]], &load, m_now);
            }
            uct_cuda_mp_history_end(
                    &m_met[messages[i]], 64 * MiB,
                    uct_cuda_plan_load_is_crossed(&load, End(messages[i].first),
                                                  End(messages[i].second)));
        }

        m_now += pause * MS;
        return texts;
    }

    static messages_t ring(int step)
    {
        messages_t messages;

        for (int rank = 0; rank < 4; ++rank) {
            messages.push_back({rank, (rank + step) % 4});
        }
        return messages;
    }

    static messages_t together(messages_t all,
                               std::initializer_list<messages_t> more)
    {
        for (const messages_t &messages : more) {
            all.insert(all.end(), messages.begin(), messages.end());
        }
        return all;
    }

    static bool is_relay_shared(const std::vector<std::string> &paths)
    {
        std::set<std::string> relays(paths.begin(), paths.end());

        return relays.size() < paths.size();
    }

    uct_cuda_topo_t                                       m_topo;
    Config                                                m_config;
    uint64_t                                              m_now;
    std::map<std::pair<int, int>, uct_cuda_mp_history_t> m_met;
};


/* The papers' Jacobi solver: an update of 8 ms, then all send down the ring,
   then all up. Two paths each fill all idle links. */
TEST_F(test_exchanges, ring_with_pauses)
{
    std::vector<std::string> down, up;

    for (int i = 0; i < 20; ++i) {
        down = exchange(ring(1), 1);
        up   = exchange(ring(3), 8);
        for (int rank = 0; (i > 4) && (rank < 4); ++rank) {
            EXPECT_EQ("direct,gpu" + std::to_string((rank + 2) % 4),
                      down[(size_t)rank]);
            EXPECT_EQ(0u, up[(size_t)rank].find("direct,gpu"));
            EXPECT_EQ(11u, up[(size_t)rank].size()) << "one relay";
        }
        EXPECT_TRUE((i <= 4) || !is_relay_shared(up));
    }
}

/* Both directions at once: each relay would need a link of the ring */
TEST_F(test_exchanges, ring_both_ways_with_pauses)
{
    for (int i = 0; i < 20; ++i) {
        for (const std::string &paths : exchange(together(ring(1), {ring(3)}),
                                                 8)) {
            EXPECT_TRUE((i == 0) || paths.empty()) << i << ": " << paths;
        }
    }
}

TEST_F(test_exchanges, all_to_all_with_pauses)
{
    for (int i = 0; i < 20; ++i) {
        for (const std::string &paths : exchange(
                     together(ring(1), {ring(2), ring(3)}), 50)) {
            EXPECT_TRUE((i == 0) || paths.empty()) << i << ": " << paths;
        }
    }
}

/* First with contention, then without */
TEST_F(test_exchanges, links_are_used_again_after_contention)
{
    const messages_t alone = {{0, 1}};

    for (int i = 0; i < UCT_CUDA_PLAN_HOST_PROOF; ++i) {
        EXPECT_EQ("direct,gpu2,gpu3", exchange(alone, 8)[0]) << i;
    }
    EXPECT_EQ("direct,gpu2,gpu3,host", exchange(alone, 8)[0]);

    for (int i = 0; i < 5; ++i) {
        exchange(together(ring(1), {ring(3)}), 8);
    }
    for (int i = 0; i < UCT_CUDA_PLAN_HOST_PROOF; ++i) {
        EXPECT_EQ(i >= 2, exchange(alone, 8)[0] == "direct,gpu2,gpu3") << i;
    }
    EXPECT_EQ("direct,gpu2,gpu3,host", exchange(alone, 8)[0]);
}
