/* SPDX-License-Identifier: BSD-3-Clause */
/* What the planner chooses, against what is worked out by hand. */
#include "nodes.h"

#include <uct/cuda/multipath/checker.h>
#include <uct/cuda/multipath/planner.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>


class test_planner : public ::testing::Test
{
protected:
    test_planner() : m_plan(new uct_cuda_mp_plan_t)
    {
    }

    const uct_cuda_mp_plan_t &plan(const uct_cuda_topo_t &topo,
                                   const uct_cuda_mp_config_t *config, int src,
                                   int dst, size_t size,
                                   const uct_cuda_mp_load_t *load = NULL)
    {
        char error[256] = "";

        uct_cuda_mp_plan_make(Know(topo, config, load), src, dst, size,
                              m_plan.get());
        EXPECT_EQ(UCS_OK,
                  uct_cuda_mp_plan_check(m_plan.get(), error, sizeof(error)))
                << error;
        return *m_plan;
    }

    /* Paths as text, in the plan's order */
    std::string paths() const
    {
        std::string text;
        char name[16];

        for (unsigned i = 0; i < m_plan->num_paths; ++i) {
            text += (i ? "," : "");
            text += uct_cuda_mp_path_str(&m_plan->paths[i].path, name,
                                         sizeof(name));
        }

        return text;
    }

    double share(unsigned path) const
    {
        return (double)m_plan->paths[path].bytes / m_plan->size;
    }

    std::unique_ptr<uct_cuda_mp_plan_t> m_plan;
};


TEST_F(test_planner, mesh_uses_all_relays)
{
    plan(beluga(), Config(), 0, 1, 256 * MiB);
    EXPECT_EQ("direct,gpu2,gpu3", paths());

    /* Three links of 48 GB/s: 1.86 ms each for a third of 256 MiB, and the
     * relays' pipelines take a chunk more. One link takes 5.6 ms. */
    EXPECT_GT(m_plan->seconds, 1.86e-3);
    EXPECT_LT(m_plan->seconds, 2.1e-3);
    EXPECT_NEAR(5.6e-3, m_plan->single_seconds, .02e-3);
    EXPECT_GT(share(0), 1. / 3);
    EXPECT_LT(share(0), .4);
    EXPECT_NEAR(share(1), share(2), 1e-4);
}

TEST_F(test_planner, small_messages_take_one_path)
{
    plan(beluga(), Config(), 0, 1, 64 * KiB);
    EXPECT_EQ("", paths());
    EXPECT_EQ(0u, m_plan->num_steps);
}

TEST_F(test_planner, gain_decides_the_threshold)
{
    uct_cuda_topo_t node = beluga();
    size_t threshold = uct_cuda_mp_plan_min_size(Know(node, Config()),
                                                 m_plan.get());

    EXPECT_GT(threshold, 128 * KiB);
    EXPECT_LT(threshold, 4 * MiB);
    for (size_t size = threshold; size <= 256 * MiB; size += size / 3) {
        plan(node, Config(), 0, 1, size);
        ASSERT_GE(m_plan->num_paths, 2u) << size;
        EXPECT_GE(m_plan->single_seconds, m_plan->seconds * 1.02) << size;
    }
}

TEST_F(test_planner, switch_never_relays_by_itself)
{
    uct_cuda_topo_t node = hgx();

    for (size_t size = 8 * KiB; size <= 256 * MiB; size *= 2) {
        plan(node, Config(), 0, 1, size);
        EXPECT_EQ("", paths()) << size;
    }

    EXPECT_EQ(SIZE_MAX, uct_cuda_mp_plan_min_size(Know(node, Config()),
                                                  m_plan.get()));
}

TEST_F(test_planner, switch_with_a_quiet_host)
{
    uct_cuda_mp_load_t quiet = {};

    quiet.is_known = true;
    plan(hgx(), Config(), 0, 1, 256 * MiB, &quiet);
    EXPECT_EQ("direct,host", paths());
    /* 396 and 55 GB/s would be 12 %; on a real H200 node .92 + .08 was best,
     * with 420 to 425 GB/s */
    EXPECT_GT(share(1), .06);
    EXPECT_LT(share(1), .09);
    EXPECT_NEAR(422, 256 * MiB / m_plan->seconds / GB, 10);

    /* The peer sends through its host path: leave it alone */
    quiet.active[uct_cuda_mp_lane(1, UCT_CUDA_MP_LANE_HOST)] = 1;
    plan(hgx(), Config(), 0, 1, 256 * MiB, &quiet);
    EXPECT_EQ("", paths());
}

TEST_F(test_planner, forced_relay_behind_a_switch)
{
    plan(hgx(), Config().set("", "y").set("_PATHS", "direct,gpu2"), 0, 1,
         256 * MiB);
    EXPECT_EQ("direct,gpu2", paths());
    /* Both leave through the same ports, half of them each; the relay's part is
     * a little smaller since its pipeline fills */
    EXPECT_LT(share(1), .5);
    EXPECT_GT(share(1), .45);
}

TEST_F(test_planner, pcie_has_nothing_to_gain)
{
    uct_cuda_mp_load_t quiet = {};

    quiet.is_known = true;
    plan(pcie_node(4, 12 * GB), Config(), 0, 1, 256 * MiB, &quiet);
    EXPECT_EQ("", paths());
}

TEST_F(test_planner, relays_by_distance_from_the_source)
{
    plan(beluga(), Config(), 1, 2, 64 * MiB);
    EXPECT_EQ("direct,gpu3,gpu0", paths());
    plan(beluga(), Config(), 3, 1, 64 * MiB);
    EXPECT_EQ("direct,gpu0,gpu2", paths());
}

TEST_F(test_planner, faster_relays_first)
{
    uct_cuda_topo_t node = mesh_node(5, 24 * GB, 12 * GB);

    /* GPU 3 has twice the links to both ends */
    for (int end = 0; end < 2; ++end) {
        uct_cuda_topo_set_link(&node, end, 3, 48 * GB, -1, -1);
        uct_cuda_topo_set_link(&node, 3, end, 48 * GB, -1, -1);
    }

    plan(node, Config(), 0, 1, 64 * MiB);
    EXPECT_EQ("direct,gpu3,gpu2,gpu4", paths());
    EXPECT_NEAR(2, share(1) / share(2), .1);

    plan(node, Config().set("_MAX_GPU_PATHS", "2"), 0, 1, 64 * MiB);
    EXPECT_EQ("direct,gpu3", paths());
}

TEST_F(test_planner, missing_links_are_no_paths)
{
    uct_cuda_topo_t node = beluga();

    uct_cuda_topo_set_link(&node, 2, 1, 0, -1, -1);
    plan(node, Config(), 0, 1, 64 * MiB);
    EXPECT_EQ("direct,gpu3", paths());

    /* No peer access at all: not ours to carry */
    uct_cuda_topo_set_link(&node, 0, 1, 0, -1, -1);
    plan(node, Config().set("", "y"), 0, 1, 64 * MiB);
    EXPECT_EQ("", paths());
}

TEST_F(test_planner, configured_paths)
{
    Config config;

    config.set("", "y").set("_PATHS", "host,gpu3,gpu1,gpu9,direct");
    /* gpu1 is the destination, gpu9 does not exist */
    plan(beluga(), config, 0, 1, 64 * MiB);
    EXPECT_EQ("host,gpu3,direct", paths());

    config.set("_PATHS", "gpu2");
    plan(beluga(), config, 0, 1, 64 * MiB);
    EXPECT_EQ("gpu2", paths());

    config.set("_PATHS", "direct");
    plan(beluga(), config, 0, 1, 64 * MiB);
    EXPECT_EQ("", paths());

    config.set("_PATHS", "gpu1");
    plan(beluga(), config, 0, 1, 64 * MiB);
    EXPECT_EQ("", paths());
}

TEST_F(test_planner, configured_shares)
{
    Config config;

    config.set("", "y").set("_PATHS", "direct,gpu2,host");
    config.set("_SHARES", "5,4,1");
    plan(beluga(), config, 0, 1, 10 * MiB);
    EXPECT_EQ("direct,gpu2,host", paths());
    EXPECT_NEAR(5. * MiB, m_plan->paths[0].bytes, 8 * KiB);
    EXPECT_NEAR(4. * MiB, m_plan->paths[1].bytes, 4 * KiB);
    EXPECT_NEAR(1. * MiB, m_plan->paths[2].bytes, 4 * KiB);

    config.set("_SHARES", "1,0,1");
    plan(beluga(), config, 0, 1, 10 * MiB);
    EXPECT_EQ("direct,host", paths());
}

TEST_F(test_planner, chunks)
{
    Config config;

    config.set("", "y").set("_PATHS", "direct,gpu2").set("_SHARES", "1,1");
    config.set("_CHUNKS", "5");
    plan(beluga(), config, 0, 1, 10 * MiB);
    EXPECT_EQ(5u, m_plan->paths[1].chunks);
    EXPECT_EQ(1 * MiB, m_plan->paths[1].chunk);

    config.set("_CHUNK_SIZE", "512k");
    plan(beluga(), config, 0, 1, 10 * MiB);
    EXPECT_EQ(10u, m_plan->paths[1].chunks);
    /* One bank of the staging memory's two */
    EXPECT_EQ(8u, m_plan->paths[1].slots);

    /* A slot holds a sixteenth of the staging memory */
    config.set("_STAGING_SIZE", "4m");
    plan(beluga(), config, 0, 1, 10 * MiB);
    EXPECT_EQ(256 * KiB, m_plan->paths[1].chunk);
    EXPECT_EQ(20u, m_plan->paths[1].chunks);
    EXPECT_EQ(8u, m_plan->paths[1].slots);

    for (const char *size : {"inf", "8e18", "256k"}) {
        config.set("_CHUNK_SIZE", size);
        plan(beluga(), config, 0, 1, 10 * MiB);
        EXPECT_EQ(256 * KiB, m_plan->paths[1].chunk) << size;
    }

    /* 64 chunks at most, however small they were wanted */
    config.set("_CHUNK_SIZE", "4k");
    plan(beluga(), config, 0, 1, 10 * MiB);
    EXPECT_EQ(80 * KiB, m_plan->paths[1].chunk);
}

TEST_F(test_planner, smallest_chunks_still_fit)
{
    Config config;
    size_t largest;

    config.set("", "y").set("_PATHS", "gpu2").set("_STAGING_SIZE", "1m");
    largest = uct_cuda_mp_plan_max_size(config);
    EXPECT_EQ(4 * MiB, largest);
    plan(beluga(), config, 0, 1, largest);
    EXPECT_EQ("gpu2", paths());
    EXPECT_EQ(64u, m_plan->paths[0].chunks);

    plan(beluga(), config.set("_CHUNK_SIZE", "4k").set("_MIN_SIZE", "0"), 0, 1,
         64 * 4 * KiB + 1);
    EXPECT_EQ("gpu2", paths());

    plan(beluga(), config, 0, 1, largest + 1);
    EXPECT_EQ("", paths());
}

TEST_F(test_planner, min_size)
{
    Config config;

    config.set("", "y");
    plan(beluga(), config, 0, 1, MiB - 1);
    EXPECT_EQ("", paths());
    plan(beluga(), config, 0, 1, MiB);
    EXPECT_EQ("direct,gpu2,gpu3", paths());

    config.set("_MIN_SIZE", "32m");
    plan(beluga(), config, 0, 1, 32 * MiB - 1);
    EXPECT_EQ("", paths());
    plan(beluga(), config, 0, 1, 32 * MiB);
    EXPECT_EQ("direct,gpu2,gpu3", paths());
}

TEST_F(test_planner, busy_links_get_less)
{
    uct_cuda_mp_load_t load = {};
    double idle;

    plan(beluga(), Config(), 0, 1, 256 * MiB, &load);
    idle = share(0);

    load.active[uct_cuda_mp_lane(0, 1)] = 1;
    plan(beluga(), Config(), 0, 1, 256 * MiB, &load);
    EXPECT_EQ("direct,gpu2,gpu3", paths());
    /* 1 : 2 : 2 instead of 1 : 1 : 1 */
    EXPECT_NEAR(.2, share(0), .02);
    EXPECT_NEAR(1. / 3, idle, .03);
}

/* Behind other transfers nobody waits for a path to fill: three links of one
 * speed get a third each, but for what chunks cost; and of a long window every
 * plan is the same */
TEST_F(test_planner, windows_share_by_rate)
{
    uct_cuda_mp_load_t load = {};
    uint64_t alone;

    plan(beluga(), Config(), 0, 1, 32 * MiB, &load);
    ASSERT_EQ("direct,gpu2,gpu3", paths());
    alone = m_plan->paths[1].bytes;
    unsigned chunks = m_plan->paths[1].chunks;

    load.queued = 8;
    plan(beluga(), Config(), 0, 1, 32 * MiB, &load);
    ASSERT_EQ("direct,gpu2,gpu3", paths());
    EXPECT_GT(m_plan->paths[1].bytes, alone);
    EXPECT_NEAR(m_plan->paths[1].bytes, 32. / 3 * MiB, 0.05 * 32 / 3 * MiB);
    EXPECT_LE(m_plan->paths[1].chunks, chunks);

    uct_cuda_mp_plan_t before = *m_plan;
    load.queued               = 60;
    plan(beluga(), Config(), 0, 1, 32 * MiB, &load);
    EXPECT_TRUE(uct_cuda_mp_plan_equal(&before, m_plan.get()));
}

TEST_F(test_planner, other_way_busy_leaves_the_host_out)
{
    uct_cuda_mp_load_t load = {};

    load.is_known = true;
    plan(beluga(), Config(), 0, 1, 256 * MiB, &load);
    EXPECT_EQ("direct,gpu2,gpu3,host", paths());
    load.active[uct_cuda_mp_lane(1, 0)] = 1;
    plan(beluga(), Config(), 0, 1, 256 * MiB, &load);
    EXPECT_EQ("direct,gpu2,gpu3", paths());
}

/* Four ranks in a ring, one after the other and again: after the first round
 * everybody has a relay of his own, however it began */
TEST_F(test_planner, ring_settles)
{
    uct_cuda_mp_plan_t plans[4];

    memset(plans, 0, sizeof(plans));
    for (int turn = 0; turn < 12; ++turn) {
        uct_cuda_mp_load_t load = {};
        int rank                = turn % 4;

        load.is_known = true;
        for (int other = 0; other < 4; ++other) {
            for (int i = 0; (other != rank) && (i < plans[other].num_steps);
                 ++i) {
                load.active[plans[other].steps[i].lane] = 1;
            }
        }
        plan(beluga(), Config(), rank, (rank + 1) % 4, 256 * MiB, &load);
        plans[rank] = *m_plan;
        if (turn >= 8) {
            EXPECT_EQ(0u, paths().find("direct,gpu" +
                                       std::to_string((rank + 2) % 4)));
            EXPECT_EQ(std::string::npos,
                      paths().find("gpu" + std::to_string((rank + 3) % 4)));
        }
    }
}

TEST_F(test_planner, nonsense_gets_no_plan)
{
    Config config;

    config.set("", "y").set("_MIN_SIZE", "0");
    EXPECT_EQ(0u, plan(beluga(), config, 0, 0, 64 * MiB).num_paths);
    EXPECT_EQ(0u, plan(beluga(), config, -1, 0, 64 * MiB).num_paths);
    EXPECT_EQ(0u, plan(beluga(), config, 0, -2, 64 * MiB).num_paths);
    EXPECT_EQ(0u, plan(beluga(), config, 0, 4, 64 * MiB).num_paths);
    EXPECT_EQ(0u, plan(beluga(), config, 99, 0, 64 * MiB).num_paths);
    EXPECT_EQ(0u, plan(beluga(), config, 0, 1, 0).num_paths);
    EXPECT_EQ(0u, plan(beluga(), config, 0, 1, 4096).num_paths);
    EXPECT_EQ(0u, plan(beluga(), config, 0, 1, SIZE_MAX).num_paths);
    EXPECT_EQ(0u, plan(beluga(), Config().set("", "n"), 0, 1, 64 * MiB)
                          .num_paths);
}

TEST_F(test_planner, same_question_same_plan)
{
    std::unique_ptr<uct_cuda_mp_plan_t> other(new uct_cuda_mp_plan_t);
    uct_cuda_topo_t node = beluga();

    memset(m_plan.get(), 0x11, sizeof(*m_plan));
    memset(other.get(), 0x22, sizeof(*other));
    uct_cuda_mp_plan_make(Know(node, Config()), 0, 1, 77777777, m_plan.get());
    uct_cuda_mp_plan_make(Know(node, Config()), 0, 1, 77777777, other.get());
    EXPECT_GT(m_plan->num_steps, 3);
    EXPECT_TRUE(uct_cuda_mp_plan_equal(m_plan.get(), other.get()));

    ++other->steps[2].from_offset;
    EXPECT_FALSE(uct_cuda_mp_plan_equal(m_plan.get(), other.get()));
}

TEST_F(test_planner, print)
{
    char *text = NULL;
    size_t length;
    FILE *stream;

    plan(beluga(), Config().set("_CHUNKS", "2"), 0, 1, 12 * MiB);
    stream = open_memstream(&text, &length);
    uct_cuda_mp_plan_print(m_plan.get(), true, stream);
    fclose(stream);
    EXPECT_NE(nullptr, strstr(text, "gpu0 -> gpu1, 12582912 bytes: 3 paths"));
    EXPECT_NE(nullptr, strstr(text, "gpu2 > gpu1"));
    EXPECT_NE(nullptr, strstr(text, "gpu3.slot1+0 -> destination+"));
    EXPECT_NE(nullptr, strstr(text, ", after 1"));
    free(text);
}

TEST_F(test_planner, is_fast)
{
    const int rounds     = 200;
    uct_cuda_topo_t node = mesh_node(5, 48 * GB, 12 * GB);
    Config config;
    double best = 1;

    config.set("_CHUNKS", "16");
    for (int i = 0; i < 20; ++i) {
        auto start = std::chrono::steady_clock::now();

        for (int n = 0; n < rounds; ++n) {
            uct_cuda_mp_plan_make(Know(node, config), 0, 1,
                                  (64 + n) * MiB / 4, m_plan.get());
        }

        std::chrono::duration<double> spent =
                std::chrono::steady_clock::now() - start;
        best = std::min(best, spent.count() / rounds);
    }

    ASSERT_EQ(4u, m_plan->num_paths);
    RecordProperty("nanoseconds", (int)(best * 1e9));
    printf("4 paths of 16 chunks: %.2f us a plan\n", best * 1e6);
    /* 2 us is the aim; sanitizers and unoptimised builds get more */
    EXPECT_LT(best, 30e-6);
}

/* Whatever the node, the settings and the size: the checker has no objection */
TEST_F(test_planner, random_plans_are_sound)
{
    std::mt19937 random(2026);
    auto pick = [&](int low, int high) {
        return low + (int)(random() % (unsigned)(high - low + 1));
    };
    unsigned striped = 0;

    for (int i = 0; i < 4000; ++i) {
        int gpus = pick(2, 9);
        double nvlink = pick(1, 400) * GB;
        double pcie = pick(1, 60) * GB;
        uct_cuda_topo_t node = (i % 3 == 0) ? mesh_node(gpus, nvlink, pcie) :
                               (i % 3 == 1) ? switch_node(gpus, nvlink, pcie) :
                                              pcie_node(gpus, pcie);
        uct_cuda_mp_load_t load = {};
        Config config;
        std::string list;

        for (int cut = pick(0, 2 * gpus); cut > 0; --cut) {
            int from = pick(0, gpus - 1), to = pick(0, gpus - 1);

            if (from != to) {
                uct_cuda_topo_set_link(&node, from, to,
                                       pick(0, 3) * nvlink / 2, -1, -1);
            }
        }

        config.set("", pick(0, 1) ? "y" : "auto").set("_MIN_SIZE", "0");
        config.set("_HOST", (const char *[]){"y", "n", "auto"}[pick(0, 2)]);
        config.set("_MAX_GPU_PATHS", std::to_string(pick(1, 8)));
        config.set("_STAGING_SIZE", std::to_string(pick(256, 20000) * 4096ul));
        if (pick(0, 2) == 0) {
            config.set("_CHUNKS", std::to_string(pick(1, 64)));
        }
        if (pick(0, 2) == 0) {
            config.set("_CHUNK_SIZE", std::to_string(pick(4096, 5000000)));
        }
        if (pick(0, 3) == 0) {
            std::vector<std::string> names = {"direct", "gpu0", "gpu1", "gpu2",
                                              "gpu5"};
            std::shuffle(names.begin(), names.end(), random);
            names.resize((size_t)pick(1, 5));
            for (auto &name : names) {
                list += (list.empty() ? "" : ",") + name;
            }
            config.set("_PATHS", list);
        }

        load.is_known = pick(0, 1);
        load.queued   = (uint16_t)pick(0, 5);
        for (int busy = pick(0, 5); busy > 0; --busy) {
            load.active[uct_cuda_mp_lane(pick(0, gpus - 1),
                                         pick(0, gpus - 1))] = pick(0, 3);
        }

        size_t largest = uct_cuda_mp_plan_max_size(config);
        size_t size    = (size_t)(largest * pow(2, -pick(0, 1400) / 100.));
        plan(node, config, pick(0, gpus - 1), pick(0, gpus - 1),
             std::max<size_t>(size, 1), pick(0, 1) ? &load : NULL);
        striped += (m_plan->num_paths > 0);
        if (HasFailure()) {
            FAIL() << "case " << i;
        }
    }

    EXPECT_GT(striped, 500u);
}
