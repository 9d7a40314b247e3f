/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan checker: every rule refuses a plan that breaks it, and no plan that
 * it lets through can be made to deliver wrong bytes by any order of execution.
 */
#include "nodes.h"

#include <check/transfer_check.h>
#include <uct/cuda/plan/transfer_planner.h>

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
    refused("may be writing");
}

TEST_F(test_checker, refilled_after_the_wrong_drain)
{
    /* The slot before it was drained earlier: that says nothing of this one */
    unsigned i = refill() + 4;

    step(i).wait = (int16_t)(step(i).wait - 4);
    refused("may be writing");
}

TEST_F(test_checker, drains_another_slot)
{
    step(3).from.slot = 1;
    refused("may be writing");
}

/* Two relays' slots hold the first half; its drain waits for both to be filled,
 * one of them from the other, and neither fill for the other */
TEST_F(test_checker, filled_twice_in_no_sure_order)
{
    const uct_cuda_mp_place_t source      = step(1).from;
    const uct_cuda_mp_place_t destination = step(3).to;
    const uct_cuda_mp_place_t relay       = step(1).to;
    const uct_cuda_mp_place_t other       = step(2).to;
    uct_cuda_mp_place_t second            = relay;
    const uint64_t half                   = m_plan->slot_size;
    unsigned n                            = 0;

    auto add = [&](const uct_cuda_mp_place_t &from, uint64_t from_offset,
                   const uct_cuda_mp_place_t &to, uint64_t to_offset,
                   int wait) {
        uct_cuda_mp_step_t &s = step(n++);

        s             = step(1);
        s.from        = from;
        s.to          = to;
        s.from_offset = from_offset;
        s.to_offset   = to_offset;
        s.bytes       = half;
        s.wait        = (int16_t)wait;
        s.lane        = uct_cuda_mp_lane(
                End(from.type == UCT_CUDA_MP_PLACE_SOURCE ? 0 : from.owner),
                End(to.type == UCT_CUDA_MP_PLACE_DESTINATION ? 1 : to.owner));
    };

    second.slot       = 1;
    m_plan->size      = 2 * half;
    add(source, 0, relay, 0, UCT_CUDA_MP_NO_STEP);
    add(source, half, second, 0, UCT_CUDA_MP_NO_STEP);
    add(source, 0, other, 0, UCT_CUDA_MP_NO_STEP);
    add(other, 0, relay, 0, 2);
    add(second, 0, destination, half, 1);
    add(relay, 0, destination, 0, 3);
    m_plan->num_steps = n;
    refused("steps 0 and 3 fill one slot in no sure order");

    step(2).wait = 0;
    accepted();
}

TEST_F(test_checker, reads_an_empty_slot)
{
    step(1).to.slot = 1;
    refused("step 3: reads a slot that nothing has filled");
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
    struct lane_t {
        std::vector<unsigned> steps;
        size_t                next;     /* of steps: the first that is left */
        bool                  has_begun; /* that one */
        unsigned              slowness;
    };

    std::map<std::tuple<int, int, int>, std::vector<uint8_t>> memory;
    std::vector<bool> done(plan.num_steps);
    std::vector<lane_t> lanes(UCT_CUDA_MP_NUM_LANES);
    unsigned left = plan.num_steps;

    /* Some lanes crawl while others race ahead */
    for (lane_t &lane : lanes) {
        lane = {{}, 0, false, 1u << (random() % 7)};
    }
    for (unsigned i = 0; i < plan.num_steps; ++i) {
        lanes[plan.steps[i].lane].steps.push_back(i);
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

    uct_cuda_mp_place_t source      = {UCT_CUDA_MP_PLACE_SOURCE, 0, 0};
    uct_cuda_mp_place_t destination = {UCT_CUDA_MP_PLACE_DESTINATION, 0, 0};
    uint8_t *bytes                  = at(source);
    for (size_t i = 0; i < plan.size; ++i) {
        bytes[i] = (uint8_t)(i * 2654435761u >> 13) | 1;
    }
    (void)at(destination);

    while (left > 0) {
        lane_t &lane = lanes[random() % lanes.size()];
        if (lane.next == lane.steps.size()) {
            continue;
        }

        unsigned i                  = lane.steps[lane.next];
        const uct_cuda_mp_step_t &s = plan.steps[i];
        if (!lane.has_begun) {
            if ((s.wait < 0) || done[s.wait]) {
                move(s, 0, s.bytes / 2);
                lane.has_begun = true;
            }
        } else if (random() % lane.slowness == 0) {
            move(s, s.bytes / 2, s.bytes);
            lane.has_begun = false;
            done[i]        = true;
            ++lane.next;
            --left;
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
