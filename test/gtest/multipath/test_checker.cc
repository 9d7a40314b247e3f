/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan checker: every rule refuses a plan that breaks it, and no order of
 * execution of an accepted plan delivers wrong bytes.
 */
#include "nodes.h"

#include <uct/cuda/check/transfer_check.h>
#include <uct/cuda/plan/transfer_planner.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>


/** Return the step awaited by step i, or NO_STEP. */
static uint32_t wait_of(const uct_cuda_plan_t &plan, unsigned i)
{
    return (plan.steps[i].num_waits > 0) ? plan.waits[i] : UCT_CUDA_NO_STEP;
}


class test_checker : public ::testing::Test
{
protected:
    /* Direct and two relays, with two more chunks than slots, so that slots are
       refilled. Steps: 0 is the direct copy, then alternate hops of gpu2 and
       gpu3: 1, 2 fill; 3, 4 drain; and so on */
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

    void make(const uct_cuda_topo_t &topo, const uct_cuda_plan_config_t *config,
              size_t size)
    {
        m_plan.reset(new uct_cuda_plan_t);
        uct_cuda_plan_make(Know(topo, config), End(0), End(1), size,
                           m_plan.get());
        ASSERT_GT(m_plan->num_paths, 0u);
    }

    ucs_status_t check()
    {
        m_error[0] = '\0';
        return uct_cuda_plan_check(m_plan.get(), m_error, sizeof(m_error));
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

    uct_cuda_plan_step_t &step(unsigned i)
    {
        return m_plan->steps[i];
    }

    uct_cuda_plan_place_t &from(unsigned i)
    {
        return m_plan->places[2 * i];
    }

    uct_cuda_plan_place_t &to(unsigned i)
    {
        return m_plan->places[2 * i + 1];
    }

    uint32_t wait(unsigned i)
    {
        return wait_of(*m_plan, i);
    }

    void set_wait(unsigned i, uint32_t earlier)
    {
        step(i).num_waits = (earlier != UCT_CUDA_NO_STEP);
        m_plan->waits[i]  = earlier;
    }

    /* Return the first step that waits for a drained slot. */
    unsigned refill()
    {
        for (unsigned i = 1; i < m_plan->num_steps; ++i) {
            if ((from(i).buffer == UCT_CUDA_BUFFER_SEND) &&
                (wait(i) != UCT_CUDA_NO_STEP)) {
                return i;
            }
        }
        ADD_FAILURE() << "no slot is used twice";
        return 0;
    }

    std::unique_ptr<uct_cuda_plan_t> m_plan;
    char                                m_error[256];
};


TEST_F(test_checker, missing_bytes)
{
    step(0).bytes -= 1;
    refused("nothing writes destination byte");
}

/* Copies of a link run in their order: a wait also serves later copies */
TEST_F(test_checker, links_keep_their_order)
{
    unsigned first = refill(), next = first + 1;

    while ((step(next).queue != step(first).queue) ||
           (from(next).buffer != UCT_CUDA_BUFFER_SEND)) {
        ASSERT_LT(++next, m_plan->num_steps);
    }

    ASSERT_NE(UCT_CUDA_NO_STEP, wait(next));
    set_wait(first, wait(next));
    set_wait(next, UCT_CUDA_NO_STEP);
    accepted();
}

TEST_F(test_checker, missing_step)
{
    --m_plan->num_steps;
    refused("nothing writes destination byte");
}

TEST_F(test_checker, bytes_written_twice)
{
    from(0).offset -= 1;
    to(0).offset   -= 1;
    step(0).bytes       += 1;
    refused("race for the destination of gpu1");
}

TEST_F(test_checker, displaced_bytes)
{
    from(1).offset += 1;
    refused("the source's byte");
}

TEST_F(test_checker, displaced_direct_bytes)
{
    from(0).offset -= 4096;
    refused("the source's byte");
}

TEST_F(test_checker, drained_before_filled)
{
    set_wait(3, UCT_CUDA_NO_STEP);
    refused("race for slot");
}

TEST_F(test_checker, drained_after_another_path)
{
    ASSERT_EQ(1, wait(3));
    set_wait(3, 2);
    refused("race for slot");
}

TEST_F(test_checker, refilled_before_drained)
{
    set_wait(refill(), UCT_CUDA_NO_STEP);
    refused("race for slot");
}

TEST_F(test_checker, refilled_after_the_wrong_drain)
{
    /* The previous slot was drained earlier: this says nothing about this
       slot */
    unsigned i = refill() + 4;

    set_wait(i, wait(i) - 4);
    refused("race for slot");
}

TEST_F(test_checker, drains_another_slot)
{
    from(3).slot = 1;
    refused("race for slot");
}

/* Two relays' slots hold the first half. Its drain waits for both fills, for
   one of them through the other, and neither fill waits for the other */
TEST_F(test_checker, filled_twice_in_undefined_order)
{
    const uct_cuda_plan_place_t source      = from(1);
    const uct_cuda_plan_place_t destination = to(3);
    const uct_cuda_plan_place_t relay       = to(1);
    const uct_cuda_plan_place_t other       = to(2);
    uct_cuda_plan_place_t second            = relay;
    const uint64_t half                   = m_plan->slot_size;
    unsigned n                            = 0;

    auto add = [&](uct_cuda_plan_place_t source, uint64_t source_offset,
                   uct_cuda_plan_place_t target, uint64_t target_offset,
                   uint32_t earlier) {
        source.offset = source_offset;
        target.offset = target_offset;
        from(n)       = source;
        to(n)         = target;
        step(n).bytes = half;
        step(n).queue = uct_cuda_plan_link(uct_cuda_end_at(source.owner),
                                           uct_cuda_end_at(target.owner));
        set_wait(n++, earlier);
    };

    second.slot       = 1;
    m_plan->size      = 2 * half;
    add(source, 0, relay, 0, UCT_CUDA_NO_STEP);
    add(source, half, second, 0, UCT_CUDA_NO_STEP);
    add(source, 0, other, 0, UCT_CUDA_NO_STEP);
    add(other, 0, relay, 0, 2);
    add(second, 0, destination, half, 1);
    add(relay, 0, destination, 0, 3);
    m_plan->num_steps = n;
    refused("steps 0 and 3 race for slot 0 of gpu2");

    set_wait(2, 0);
    accepted();
}

TEST_F(test_checker, reads_an_empty_slot)
{
    to(1).slot = 1;
    refused("step 3 reads slot 0 of gpu2 at byte 0, which is not written");
}

TEST_F(test_checker, reads_more_than_was_filled)
{
    step(1).bytes -= 1;
    refused("which is not written");
}

TEST_F(test_checker, wrong_link)
{
    step(1).queue = step(2).queue;
    refused("not on the link");
}

TEST_F(test_checker, slot_too_small)
{
    m_plan->slot_size = 4095;
    refused("leaves ");
}

TEST_F(test_checker, beyond_the_buffer)
{
    from(0).offset = UINT64_MAX - 10;
    refused("leaves ");
}

TEST_F(test_checker, invalid_slot)
{
    to(1).slot = UCT_CUDA_PLAN_SLOTS;
    refused("no such place");
}

TEST_F(test_checker, invalid_place)
{
    to(1).buffer = 17;
    refused("no such place");
    to(1).buffer = UCT_CUDA_BUFFER_SCRATCH;
    accepted();
    to(0).slot = 1;
    refused("no such place");
}

TEST_F(test_checker, empty_copy)
{
    step(4).bytes = 0;
    refused("has 0 bytes");
}

TEST_F(test_checker, wrong_direction)
{
    to(0) = from(0);
    refused("copies within one end");
    to(0).owner   = 2;
    step(0).queue = uct_cuda_plan_link(End(0), End(2));
    refused("leaves the source of gpu2");
    from(3).buffer = UCT_CUDA_BUFFER_RECV;
    refused("leaves ");
}

TEST_F(test_checker, writes_the_source)
{
    std::swap(from(0), to(0));
    step(0).queue = uct_cuda_plan_link(End(1), End(0));
    refused("writes read-only");
}

TEST_F(test_checker, waits_for_itself_or_later)
{
    set_wait(3, 3);
    refused("which is not earlier");
    set_wait(3, 4);
    refused("which is not earlier");
    set_wait(3, 1);
    accepted();
}

TEST_F(test_checker, invalid_path)
{
    step(1).part = 3;
    refused("no such path");
}

TEST_F(test_checker, steps_without_paths)
{
    m_plan->num_paths = 0;
    refused("but no paths");
    m_plan->num_steps = 0;
    accepted();
}

TEST_F(test_checker, invalid_owner)
{
    to(1).owner   = UCT_CUDA_NUM_ENDS;
    step(1).queue = UCT_CUDA_NUM_ENDS;
    refused("no such place");
}

TEST_F(test_checker, steps_that_no_transfer_has)
{
    step(3).type = UCT_CUDA_PLAN_STEP_REDUCE;
    refused("step 3 is not a transfer step");
    step(3).type  = UCT_CUDA_PLAN_STEP_COPY;
    step(3).waits = 2;
    refused("step 3 is not a transfer step");
}

TEST_F(test_checker, too_many_steps)
{
    m_plan->num_steps = UCT_CUDA_PLAN_MAX_STEPS + 1;
    refused("too many");
}

TEST_F(test_checker, invalid_devices)
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
 * Execute a plan on real bytes, in a random order permitted by links and waits.
 * A copy takes time: half of its bytes move when it starts and half when it
 * ends, and other copies start and end in between.
 */
static bool execute(const uct_cuda_plan_t &plan, std::mt19937 &random)
{
    struct link_t {
        std::vector<unsigned> steps;
        size_t                next;     /* first step not yet done */
        bool                  has_begun; /* the next step has begun */
        unsigned              slowness;
    };

    std::map<std::tuple<int, int, int>, std::vector<uint8_t>> memory;
    std::vector<bool> done(plan.num_steps);
    std::vector<link_t> links(UCT_CUDA_PLAN_NUM_LINKS);
    unsigned left = plan.num_steps;

    /* Some links are slow while others are fast */
    for (link_t &link : links) {
        link = {{}, 0, false, 1u << (random() % 7)};
    }
    for (unsigned i = 0; i < plan.num_steps; ++i) {
        links[plan.steps[i].queue].steps.push_back(i);
    }

    auto at = [&](const uct_cuda_plan_place_t &place) -> uint8_t * {
        auto &bytes =
            memory[std::make_tuple(place.buffer, place.owner, place.slot)];
        if (bytes.empty()) {
            bytes.resize(place.buffer == UCT_CUDA_BUFFER_SCRATCH ?
                                 plan.slot_size :
                                 plan.size);
        }
        return bytes.data();
    };
    auto move = [&](unsigned i, uint64_t begin, uint64_t end) {
        const uct_cuda_plan_place_t &from = *uct_cuda_plan_from(&plan, i);
        const uct_cuda_plan_place_t &to   = *uct_cuda_plan_to(&plan, i);

        memcpy(at(to) + to.offset + begin, at(from) + from.offset + begin,
               end - begin);
    };

    uct_cuda_plan_place_t source      = {0, 0, UCT_CUDA_BUFFER_SEND, 0};
    uct_cuda_plan_place_t destination = {0, 1, UCT_CUDA_BUFFER_RECV, 0};
    uint8_t *bytes                    = at(source);
    for (size_t i = 0; i < plan.size; ++i) {
        bytes[i] = (uint8_t)(i * 2654435761u >> 13) | 1;
    }
    (void)at(destination);

    while (left > 0) {
        link_t &link = links[random() % links.size()];
        if (link.next == link.steps.size()) {
            continue;
        }

        unsigned i          = link.steps[link.next];
        const uint64_t half = plan.steps[i].bytes / 2;
        const uint32_t wait = wait_of(plan, i);
        if (!link.has_begun) {
            if ((wait == UCT_CUDA_NO_STEP) || done[wait]) {
                move(i, 0, half);
                link.has_begun = true;
            }
        } else if (random() % link.slowness == 0) {
            move(i, half, plan.steps[i].bytes);
            link.has_begun = false;
            done[i]        = true;
            ++link.next;
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
    /* Executing detects errors, as the next test needs */
    std::mt19937 random(1);
    int wrong = 0;

    set_wait(refill(), UCT_CUDA_NO_STEP);
    for (int i = 0; i < 200; ++i) {
        wrong += !execute(*m_plan, random);
    }
    EXPECT_GT(wrong, 0);
}

/* Damage a plan at random. If the checker still accepts it, no order of
   execution may deliver wrong bytes. */
TEST_F(test_checker, damaged_plans)
{
    const uct_cuda_plan_t sound = *m_plan;
    std::mt19937 random(7);
    unsigned rejected = 0;
    unsigned taken    = 0;

    for (int i = 0; i < 1500; ++i) {
        *m_plan               = sound;
        unsigned n            = random() % sound.num_steps;
        unsigned other        = random() % sound.num_steps;

        switch (random() % 11) {
        case 0:
            set_wait(n, UCT_CUDA_NO_STEP);
            break;
        case 1:
            set_wait(n, other);
            break;
        case 2:
            from(n).slot = (uint16_t)(random() % UCT_CUDA_PLAN_SLOTS);
            break;
        case 3:
            to(n).slot = (uint16_t)(random() % UCT_CUDA_PLAN_SLOTS);
            break;
        case 4:
            from(n).offset += random() % 9000 - 4500;
            break;
        case 5:
            to(n).offset += random() % 9000 - 4500;
            break;
        case 6:
            step(n).bytes += random() % 5 - 2;
            break;
        case 7:
            from(n).owner ^= 1;
            break;
        case 8:
            to(n).owner ^= 1;
            break;
        case 9:
            std::swap(from(n), from(other));
            std::swap(to(n), to(other));
            std::swap(step(n).queue, step(other).queue);
            std::swap(step(n).bytes, step(other).bytes);
            break;
        default:
            from(n).buffer = (uint8_t)(random() % 5);
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

    /* Additional waits do no harm */
    EXPECT_GT(taken, 20u);
    EXPECT_GT(rejected, 1000u);
}
