/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The clock: virtual, slowed down, and standing still until bytes are moved.
 */
#include "core_fixture.h"

#include <time.h>
#include <unistd.h>

static void sleep_ms(long ms)
{
    struct timespec ts = {ms / 1000, (ms % 1000) * 1000000};

    nanosleep(&ts, NULL);
}

TEST(core_clock, virtual_clock_moves_when_told)
{
    core_node node("beluga");
    core_sim s(*node);
    cuemu_clock_t clk;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 0));
    EXPECT_EQ(0, cuemu_clock_now(&clk, NULL));
    sleep_ms(2);
    EXPECT_EQ(0, cuemu_clock_now(&clk, NULL));

    cuemu_op_id_t id = s.add(s.delay_desc(5000, CUEMU_OP_NEEDS_SERVICE));
    EXPECT_EQ(3000, cuemu_clock_advance(&clk, s.sim, 3000));
    EXPECT_EQ(3000, cuemu_clock_now(&clk, NULL));
    EXPECT_EQ(5000, cuemu_clock_advance(&clk, s.sim, 9000));
    EXPECT_EQ(5000, cuemu_clock_now(&clk, NULL));
    EXPECT_EQ(id, cuemu_sim_service(s.sim, 0, NULL));
    cuemu_sim_served(s.sim, id);
    EXPECT_EQ(9000, cuemu_clock_advance(&clk, s.sim, 9000));
}

TEST(core_clock, wrong_factors_are_refused)
{
    cuemu_clock_t clk;

    EXPECT_EQ(CUEMU_ERR_INVALID, cuemu_clock_init(&clk, -1));
    EXPECT_EQ(CUEMU_ERR_INVALID, cuemu_clock_init(&clk, 1e9));
    EXPECT_EQ(CUEMU_ERR_INVALID, cuemu_clock_init(&clk, 0.0 / 0.0));
}

TEST(core_clock, runs_at_real_time_by_the_factor)
{
    cuemu_clock_t clk;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 20));
    cuemu_time_t before = cuemu_clock_now(&clk, NULL);
    sleep_ms(100);
    cuemu_time_t after = cuemu_clock_now(&clk, NULL);
    /* 100 ms are 5 emulated; a busy machine may wake us late, never early */
    EXPECT_GE(after - before, (cuemu_time_t)(4999 * US));
    EXPECT_LT(after - before, (cuemu_time_t)(500000 * US));
    EXPECT_NEAR(20e6, (double)cuemu_clock_real_until(
                              &clk, cuemu_clock_now(&clk, NULL) +
                                    CUEMU_PS_PER_US * 1000), 5e6);
    EXPECT_EQ(0u, cuemu_clock_real_until(&clk, 0));
    EXPECT_EQ(UINT64_MAX, cuemu_clock_real_until(&clk, CUEMU_TIME_INF));
}

/* However long it takes until somebody serves, and to serve, the copy ends
   when the model says, and time goes on from there. */
TEST(core_clock, stands_still_until_served)
{
    core_node node("beluga");
    core_sim s(*node);
    cuemu_clock_t clk;
    int clamped;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 1));
    cuemu_time_t now     = cuemu_clock_poll(&clk, s.sim);
    cuemu_op_desc_t desc = s.delay_desc(1000 * CUEMU_PS_PER_US,
                                        CUEMU_OP_NEEDS_SERVICE);
    cuemu_op_id_t a      = s.add(desc, {}, now);
    cuemu_op_id_t b      = s.delay(10, {a}, now);
    cuemu_clock_poll(&clk, s.sim);
    cuemu_time_t due = now + 1000 * CUEMU_PS_PER_US;

    sleep_ms(30);
    EXPECT_EQ(due, cuemu_clock_now(&clk, &clamped));
    EXPECT_TRUE(clamped);
    EXPECT_EQ(due, cuemu_clock_poll(&clk, s.sim));
    EXPECT_EQ(a, cuemu_sim_service(s.sim, 0, NULL));
    sleep_ms(30);
    EXPECT_EQ(due, cuemu_clock_poll(&clk, s.sim));
    cuemu_sim_served(s.sim, a);
    now = cuemu_clock_poll(&clk, s.sim);
    EXPECT_EQ(due, now);
    EXPECT_EQ(due, s.end(a));
    EXPECT_GT(clk.real_clamped_ns, 50000000u);
    sleep_ms(1);
    EXPECT_GT(cuemu_clock_poll(&clk, s.sim), due);
    EXPECT_EQ(due + 10, s.end(b));
    EXPECT_LT(cuemu_clock_now(&clk, NULL), due + 1000000 * CUEMU_PS_PER_US);
}

/* What needs no service ends on time in the model, though nobody looked. */
TEST(core_clock, late_polls_change_no_end_time)
{
    core_node node("beluga");
    core_sim s(*node);
    cuemu_clock_t clk;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 1));
    cuemu_time_t now = cuemu_clock_poll(&clk, s.sim);
    cuemu_op_id_t a  = s.delay(100 * CUEMU_PS_PER_US, {}, now);
    cuemu_op_id_t b  = s.delay(100 * CUEMU_PS_PER_US, {a}, now);
    sleep_ms(20);
    cuemu_clock_poll(&clk, s.sim);
    EXPECT_EQ(now + 100 * CUEMU_PS_PER_US, s.end(a));
    EXPECT_EQ(now + 200 * CUEMU_PS_PER_US, s.end(b));
}

TEST(core_clock, can_be_held_until_somebody_has_looked)
{
    core_node node("beluga");
    core_sim s(*node);
    cuemu_clock_t clk;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 1));
    cuemu_clock_poll(&clk, s.sim);
    cuemu_clock_hold(&clk, 10000000000ul);
    cuemu_time_t now = cuemu_clock_now(&clk, NULL);
    sleep_ms(20);
    EXPECT_EQ(now, cuemu_clock_now(&clk, NULL));
    EXPECT_EQ(now, cuemu_clock_poll(&clk, s.sim));
    cuemu_clock_release(&clk);
    EXPECT_GE(clk.real_clamped_ns, 19000000u);
    EXPECT_LT(clk.real_clamped_ns, 9000000000u);
    sleep_ms(2);
    EXPECT_GT(cuemu_clock_now(&clk, NULL), now);

    /* nobody comes: it goes on by itself */
    cuemu_clock_poll(&clk, s.sim);
    cuemu_clock_hold(&clk, 5000000);
    now = cuemu_clock_now(&clk, NULL);
    sleep_ms(25);
    EXPECT_GT(cuemu_clock_now(&clk, NULL), now + 15000 * CUEMU_PS_PER_US);
    cuemu_clock_release(&clk);

    /* a hold while held starts anew; what is due stops it as ever */
    now = cuemu_clock_poll(&clk, s.sim);
    cuemu_op_id_t id = s.add(s.delay_desc(0, CUEMU_OP_NEEDS_SERVICE), {}, now);
    EXPECT_EQ(now, cuemu_clock_poll(&clk, s.sim));
    cuemu_clock_hold(&clk, 10000000000ul);
    cuemu_sim_service(s.sim, 0, NULL);
    cuemu_sim_served(s.sim, id);
    cuemu_clock_poll(&clk, s.sim);
    cuemu_clock_hold(&clk, 10000000000ul);
    now = cuemu_clock_now(&clk, NULL);
    cuemu_clock_hold(&clk, 10000000000ul);
    EXPECT_EQ(now, cuemu_clock_now(&clk, NULL));
    EXPECT_LT(clk.real_clamped_ns, 11000000000u);
    cuemu_clock_release(&clk);
}

TEST(core_clock, never_runs_backwards)
{
    core_node node("beluga");
    core_sim s(*node);
    cuemu_clock_t clk;
    cuemu_time_t last = 0;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 2));
    for (int i = 0; i < 20000; ++i) {
        cuemu_time_t now = (i % 3) ? cuemu_clock_now(&clk, NULL) :
                                     cuemu_clock_poll(&clk, s.sim);
        ASSERT_GE(now, last);
        last = now;
        if (i % 50 == 0) {
            cuemu_op_desc_t desc = s.delay_desc(
                    300000, (i % 100) ? CUEMU_OP_NEEDS_SERVICE : 0);
            desc.flags &= ~CUEMU_OP_HOLD;
            s.add(desc, {}, now);
            cuemu_clock_poll(&clk, s.sim);
        }
        cuemu_op_id_t id = cuemu_sim_service(s.sim, 0, NULL);
        if (id != 0) {
            cuemu_sim_served(s.sim, id);
        }
    }
    EXPECT_GT(last, 0);
}

TEST(core_clock, counts_late_observers)
{
    cuemu_clock_t clk;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 0));
    EXPECT_FALSE(cuemu_clock_observe(&clk, 0, 1000000, 1010000));
    EXPECT_TRUE(cuemu_clock_observe(&clk, 0, 1000000, 1010001));
    EXPECT_FALSE(cuemu_clock_observe(&clk, 500, 1000500, 1000500));
    EXPECT_EQ(3u, clk.num_observed);
    EXPECT_EQ(1u, clk.num_late);
    EXPECT_EQ(10001, clk.max_late);
}
