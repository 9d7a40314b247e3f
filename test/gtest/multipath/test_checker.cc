/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan checker: every rule refuses a plan that breaks it, and no plan that
 * it lets through can be made to deliver wrong bytes by any order of execution.
 */
#include "nodes.h"

#include <uct/cuda/multipath/checker.h>
#include <uct/cuda/multipath/planner.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>


class test_checker : public ::testing::Test
{
protected:
    /* Direct and two relays; two slots' worth of chunks more than slots, so
     * that slots are refilled. Steps: 0 is the direct copy, then hops of gpu2
     * and gpu3 in turns: 1, 2 fill; 3, 4 drain; ... */
    void SetUp() override
    {
        Config config;

        config.set("", "y").set("_STAGING_SIZE", "1m").set("_MIN_SIZE", "0");
        config.set("_PATHS", "direct,gpu2,gpu3").set("_SHARES", "1,1,1");
        config.set("_CHUNKS", "18");
        make(beluga(), config, 3 * 18 * 4 * KiB);
        ASSERT_EQ(1u + 2 * 2 * 18, m_plan->num_steps);
        accepted();
    }

    void make(const uct_cuda_topo_t &topo, const uct_cuda_mp_config_t *config,
              size_t size)
    {
        m_plan.reset(new uct_cuda_mp_plan_t);
        uct_cuda_mp_plan_make(Know(topo, config), End(0), End(1), size,
                              m_plan.get());
        ASSERT_GT(m_plan->num_paths, 0u);
    }

    ucs_status_t check()
    {
        m_error[0] = '\0';
        return uct_cuda_mp_plan_check(m_plan.get(), m_error, sizeof(m_error));
    }

    void accepted()
    {
        EXPECT_EQ(UCS_OK, check()) << m_error;
    }

    void refused(const std::string &because)
    {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, check());
        EXPECT_NE(nullptr, strstr(m_error, because.c_str())) << m_error;
    }

    uct_cuda_mp_step_t &step(unsigned i)
    {
        return m_plan->steps[i];
    }

    /* First step that waits for a drained slot */
    unsigned refill()
    {
        for (unsigned i = 1; i < m_plan->num_steps; ++i) {
            if ((step(i).from.type == UCT_CUDA_MP_PLACE_SOURCE) &&
                (step(i).wait != UCT_CUDA_MP_NO_STEP)) {
                return i;
            }
        }
        ADD_FAILURE() << "no slot is used twice";
        return 0;
    }

    std::unique_ptr<uct_cuda_mp_plan_t> m_plan;
    char                                m_error[256];
};


TEST_F(test_checker, missing_bytes)
{
    step(0).bytes -= 1;
    refused("nothing writes destination byte");
}

/* Copies of a link run in their order: a wait also serves those behind */
TEST_F(test_checker, links_keep_their_order)
{
    unsigned first = refill(), next = first + 1;

    while ((step(next).lane != step(first).lane) ||
           (step(next).from.type != UCT_CUDA_MP_PLACE_SOURCE)) {
        ASSERT_LT(++next, m_plan->num_steps);
    }

    ASSERT_NE(UCT_CUDA_MP_NO_STEP, step(next).wait);
    step(first).wait = step(next).wait;
    step(next).wait  = UCT_CUDA_MP_NO_STEP;
    accepted();
}

TEST_F(test_checker, missing_step)
{
    --m_plan->num_steps;
    refused("nothing writes destination byte");
}

TEST_F(test_checker, bytes_written_twice)
{
    step(0).from_offset -= 1;
    step(0).to_offset   -= 1;
    step(0).bytes       += 1;
    refused("writes destination bytes again");
}

TEST_F(test_checker, displaced_bytes)
{
    step(1).from_offset += 1;
    refused("puts the source's byte");
}

TEST_F(test_checker, displaced_direct_bytes)
{
    step(0).from_offset -= 4096;
    refused("puts the source's byte");
}

TEST_F(test_checker, drained_before_filled)
{
    step(3).wait = UCT_CUDA_MP_NO_STEP;
    refused("may be writing");
}

TEST_F(test_checker, drained_after_another_path)
{
    ASSERT_EQ(1, step(3).wait);
    step(3).wait = 2;
    refused("may be writing");
}

TEST_F(test_checker, refilled_before_drained)
{
    step(refill()).wait = UCT_CUDA_MP_NO_STEP;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, check());
}

TEST_F(test_checker, refilled_after_the_wrong_drain)
{
    /* The slot before it was drained earlier: that says nothing of this one */
    unsigned i = refill() + 4;

    step(i).wait = (int16_t)(step(i).wait - 4);
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, check());
}

TEST_F(test_checker, refilled_without_any_drain)
{
    /* The drain reads another slot's bytes instead */
    step(3).from.slot = 5;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, check());
}

TEST_F(test_checker, reads_an_empty_slot)
{
    step(m_plan->num_steps - 1).from.slot = 15;
    step(m_plan->num_steps - 1).from.owner = 3;
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, check());
}

TEST_F(test_checker, reads_more_than_was_filled)
{
    step(1).bytes -= 1;
    refused("reads more than");
}

TEST_F(test_checker, wrong_lane)
{
    step(1).lane = step(2).lane;
    refused("not on the lane");
}

TEST_F(test_checker, slot_too_small)
{
    m_plan->slot_size = 4095;
    refused("leaves its place");
}

TEST_F(test_checker, beyond_the_buffer)
{
    step(0).from_offset = UINT64_MAX - 10;
    refused("leaves its place");
}

TEST_F(test_checker, no_such_slot)
{
    step(1).to.slot = UCT_CUDA_MP_PLAN_SLOTS;
    refused("no such place");
}

TEST_F(test_checker, no_such_place)
{
    step(1).to.type = 17;
    refused("no such place");
    step(1).to.type = UCT_CUDA_MP_PLACE_STAGING_GPU;
    accepted();
    step(0).to.slot = 1;
    refused("no such place");
}

TEST_F(test_checker, empty_copy)
{
    step(4).bytes = 0;
    refused("copies nothing");
}

TEST_F(test_checker, wrong_way)
{
    step(0).to.type = UCT_CUDA_MP_PLACE_SOURCE;
    refused("wrong way");
}

TEST_F(test_checker, waits_for_itself_or_later)
{
    step(3).wait = 3;
    refused("not an earlier one");
    step(3).wait = 4;
    refused("not an earlier one");
    step(3).wait = -7;
    refused("not an earlier one");
    step(3).wait = 1;
    accepted();
}

TEST_F(test_checker, no_such_path)
{
    step(1).path = 3;
    refused("no such path");
}

TEST_F(test_checker, steps_without_paths)
{
    m_plan->num_paths = 0;
    refused("but no paths");
    m_plan->num_steps = 0;
    accepted();
}

/* The GPU after the last one that tables have a place for is not host memory */
TEST_F(test_checker, staging_on_a_gpu_beyond_the_tables)
{
    Config config;

    config.set("", "y").set("_PATHS", "direct,host").set("_CHUNKS", "2");
    make(beluga(), config, 4 * MiB);
    accepted();
    for (unsigned i = 0; i < m_plan->num_steps; ++i) {
        for (uct_cuda_mp_place_t *place : {&step(i).from, &step(i).to}) {
            if (place->type == UCT_CUDA_MP_PLACE_STAGING_HOST) {
                place->type  = UCT_CUDA_MP_PLACE_STAGING_GPU;
                place->owner = UCT_CUDA_MAX_GPUS;
            }
        }
    }
    refused("no such place");
}

TEST_F(test_checker, too_many)
{
    m_plan->num_steps = UCT_CUDA_MP_MAX_STEPS + 1;
    refused("too many");
}

TEST_F(test_checker, no_such_devices)
{
    m_plan->dst = m_plan->src;
    refused("no transfer from gpu0 to gpu0");
    for (auto &end : std::map<int, std::string>{{400, "gpu400"},
                                                {HIDDEN, "hidden gpu"},
                                                {NONE, "none"}}) {
        m_plan->dst = End(end.first);
        refused("no transfer from gpu0 to " + end.second);
    }
}


/*
 * Carries a plan out on real bytes, in a random order that lanes and waits
 * allow. A copy takes time: half of its bytes move when it starts and half when
 * it ends, and others start and end in between.
 */
static bool execute(const uct_cuda_mp_plan_t &plan, std::mt19937 &random)
{
    enum { WAITING, RUNNING, DONE };

    std::map<std::tuple<int, int, int>, std::vector<uint8_t>> memory;
    std::vector<int> state(plan.num_steps, WAITING);
    std::vector<unsigned> slowness(UCT_CUDA_MP_NUM_LANES);
    unsigned left = plan.num_steps;

    /* Some lanes crawl while others race ahead */
    for (unsigned &slow : slowness) {
        slow = 1u << (random() % 7);
    }

    auto at = [&](const uct_cuda_mp_place_t &place) -> uint8_t * {
        auto &bytes =
            memory[std::make_tuple(place.type, place.owner, place.slot)];
        if (bytes.empty()) {
            bytes.resize(place.type <= UCT_CUDA_MP_PLACE_DESTINATION ?
                                 plan.size :
                                 plan.slot_size);
        }
        return bytes.data();
    };
    auto move = [&](const uct_cuda_mp_step_t &s, uint64_t begin, uint64_t end) {
        memcpy(at(s.to) + s.to_offset + begin,
               at(s.from) + s.from_offset + begin, end - begin);
    };
    auto may_start = [&](unsigned i) {
        for (unsigned j = 0; j < i; ++j) {
            if ((plan.steps[j].lane == plan.steps[i].lane) &&
                (state[j] != DONE)) {
                return false;
            }
        }
        int wait = plan.steps[i].wait;
        return (wait < 0) || (state[wait] == DONE);
    };

    uct_cuda_mp_place_t source      = {UCT_CUDA_MP_PLACE_SOURCE, 0, 0};
    uct_cuda_mp_place_t destination = {UCT_CUDA_MP_PLACE_DESTINATION, 0, 0};
    for (size_t i = 0; i < plan.size; ++i) {
        at(source)[i] = (uint8_t)(i * 2654435761u >> 13) | 1;
    }
    (void)at(destination);

    while (left > 0) {
        unsigned first = random() % plan.num_steps;

        for (unsigned n = 0; n < plan.num_steps; ++n) {
            unsigned i = (first + n) % plan.num_steps;
            const uct_cuda_mp_step_t &s = plan.steps[i];

            if ((state[i] == WAITING) && may_start(i)) {
                move(s, 0, s.bytes / 2);
                state[i] = RUNNING;
                break;
            } else if ((state[i] == RUNNING) &&
                       (random() % slowness[s.lane] == 0)) {
                move(s, s.bytes / 2, s.bytes);
                state[i] = DONE;
                --left;
                break;
            }
        }
    }

    return memcmp(at(source), at(destination), plan.size) == 0;
}

TEST_F(test_checker, accepted_plans_deliver_in_any_order)
{
    std::mt19937 random(1);

    for (int i = 0; i < 30; ++i) {
        EXPECT_TRUE(execute(*m_plan, random));
    }
}

TEST_F(test_checker, racing_plans_are_caught_by_execution)
{
    /* The oracle of the next test sees what it should */
    std::mt19937 random(1);
    int wrong = 0;

    step(refill()).wait = UCT_CUDA_MP_NO_STEP;
    for (int i = 0; i < 200; ++i) {
        wrong += !execute(*m_plan, random);
    }
    EXPECT_GT(wrong, 0);
}

/* Damage a plan at random. If the checker still takes it, no order of execution
 * may deliver wrong bytes. */
TEST_F(test_checker, damaged_plans)
{
    const uct_cuda_mp_plan_t sound = *m_plan;
    std::mt19937 random(7);
    unsigned rejected = 0;
    unsigned taken    = 0;

    for (int i = 0; i < 1500; ++i) {
        *m_plan               = sound;
        unsigned n            = random() % sound.num_steps;
        uct_cuda_mp_step_t &s = step(n);

        switch (random() % 11) {
        case 0:
            s.wait = UCT_CUDA_MP_NO_STEP;
            break;
        case 1:
            s.wait = (int16_t)(random() % sound.num_steps);
            break;
        case 2:
            s.from.slot = (uint8_t)(random() % UCT_CUDA_MP_PLAN_SLOTS);
            break;
        case 3:
            s.to.slot = (uint8_t)(random() % UCT_CUDA_MP_PLAN_SLOTS);
            break;
        case 4:
            s.from_offset += random() % 9000 - 4500;
            break;
        case 5:
            s.to_offset += random() % 9000 - 4500;
            break;
        case 6:
            s.bytes += random() % 5 - 2;
            break;
        case 7:
            s.from.owner ^= 1;
            break;
        case 8:
            s.to.owner ^= 1;
            break;
        case 9:
            std::swap(s, step(random() % sound.num_steps));
            break;
        default:
            s.from.type = (uint8_t)(random() % 5);
            break;
        }

        if (check() != UCS_OK) {
            ++rejected;
            continue;
        }

        ++taken;
        for (int order = 0; order < 3; ++order) {
            ASSERT_TRUE(execute(*m_plan, random))
                    << "damage " << i << " to step " << n;
        }
    }

    /* Waits that come on top of the needed ones do no harm */
    EXPECT_GT(taken, 20u);
    EXPECT_GT(rejected, 1000u);
}
