/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Tests of the clock: a virtual one, one that follows processor time, and its
 * stop until due operations are served.
 */
#include "core_fixture.h"

#include <algorithm>
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
    EXPECT_EQ(0, cuemu_clock_now(&clk, -1, NULL));
    sleep_ms(2);
    EXPECT_EQ(0, cuemu_clock_now(&clk, -1, NULL));

    cuemu_op_id_t id = s.add(s.delay_desc(5000, CUEMU_OP_NEEDS_SERVICE));
    EXPECT_EQ(3000, cuemu_clock_advance(&clk, s.sim, 3000));
    EXPECT_EQ(3000, cuemu_clock_now(&clk, -1, NULL));
    EXPECT_EQ(5000, cuemu_clock_advance(&clk, s.sim, 9000));
    EXPECT_EQ(5000, cuemu_clock_now(&clk, -1, NULL));
    EXPECT_EQ(id, cuemu_sim_service(s.sim, 0, NULL));
    cuemu_sim_served(s.sim, id);
    EXPECT_EQ(9000, cuemu_clock_advance(&clk, s.sim, 9000));
}

TEST(core_clock, invalid_slowdowns_are_refused)
{
    cuemu_clock_t clk;

    EXPECT_EQ(CUEMU_ERR_INVALID, cuemu_clock_init(&clk, -1));
    EXPECT_EQ(CUEMU_ERR_INVALID, cuemu_clock_init(&clk, 1e9));
    EXPECT_EQ(CUEMU_ERR_INVALID, cuemu_clock_init(&clk, 0.0 / 0.0));
}

TEST(core_clock, runs_at_real_time_over_the_slowdown)
{
    cuemu_clock_t clk;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 20));
    cuemu_time_t before = cuemu_clock_now(&clk, -1, NULL);
    sleep_ms(100);
    cuemu_time_t after = cuemu_clock_now(&clk, -1, NULL);
    /* 100 ms are 5 ms of emulated time; a busy machine may end the sleep late,
       never early */
    EXPECT_GE(after - before, (cuemu_time_t)(4999 * US));
    EXPECT_LT(after - before, (cuemu_time_t)(500000 * US));
    EXPECT_NEAR(20e6, (double)cuemu_clock_real_until(
                              &clk, cuemu_clock_now(&clk, -1, NULL) +
                                    CUEMU_PS_PER_US * 1000), 5e6);
    EXPECT_EQ(0u, cuemu_clock_real_until(&clk, 0));
    EXPECT_EQ(UINT64_MAX, cuemu_clock_real_until(&clk, CUEMU_TIME_INF));
}

/* The operation ends at its modelled time, however long its service takes, and
   the clock continues from there. */
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
    EXPECT_EQ(due, cuemu_clock_now(&clk, -1, &clamped));
    EXPECT_TRUE(clamped);
    EXPECT_EQ(due, cuemu_clock_poll(&clk, s.sim));
    EXPECT_EQ(a, cuemu_sim_service(s.sim, 0, NULL));
    sleep_ms(30);
    EXPECT_EQ(due, cuemu_clock_poll(&clk, s.sim));
    cuemu_sim_served(s.sim, a);
    now = cuemu_clock_poll(&clk, s.sim);
    EXPECT_EQ(due, now);
    EXPECT_EQ(due, s.end(a));
    EXPECT_GT(clk.real_clamped_ns, 29000000u);
    sleep_ms(1);
    EXPECT_GT(cuemu_clock_poll(&clk, s.sim), due);
    EXPECT_EQ(due + 10, s.end(b));
    EXPECT_LT(cuemu_clock_now(&clk, -1, NULL), due + 1000000 * CUEMU_PS_PER_US);
}

/* Operations without service end at their modelled time, however late the
   poll. */
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

TEST(core_clock, never_runs_backwards)
{
    core_node node("beluga");
    core_sim s(*node);
    cuemu_clock_t clk;
    cuemu_time_t last = 0;

    ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&clk, 2));
    for (int i = 0; i < 20000; ++i) {
        cuemu_time_t now = (i % 3) ? cuemu_clock_now(&clk, -1, NULL) :
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

/* Fake processes on a machine with a fake clock; arrays by pid */
static struct {
    uint64_t real_ns, space, wakes, thread_ns;
    uint64_t cpu_ns[CUEMU_CLOCK_RANKS], delay_ns[CUEMU_CLOCK_RANKS];
    bool     running[CUEMU_CLOCK_RANKS], stopped[CUEMU_CLOCK_RANKS];
} fake;

class clock_source : public testing::Test {
protected:
    static constexpr uint64_t ms = 1000000, us = 1000;

    void SetUp() override
    {
        static const cuemu_clock_source_t source = {
                [] { return fake.real_ns; },
                [](int pid) { return fake.cpu_ns[pid]; },
                [] { return fake.thread_ns; },
                [](int pid, int, int) -> int {
                    return fake.stopped[pid] ? CUEMU_CLOCK_STOPPED :
                                               fake.running[pid];
                },
                [](int pid) { return fake.delay_ns[pid]; },
                [](uint64_t ns) { fake.real_ns += ns; },
                [](uint32_t *, uint32_t, uint64_t ns) { fake.real_ns += ns; },
                [](uint32_t *) { ++fake.wakes; }, [] { return 1; },
                [] { return fake.space; }};

        fake               = {};
        fake.real_ns       = 1000 * ms;
        fake.space         = 1;
        cuemu_clock_source = &source;
        /* slowdown 1: processor time counts fully */
        ASSERT_EQ(CUEMU_OK, cuemu_clock_init(&m_clk, 1));
    }

    void TearDown() override
    {
        cuemu_clock_source = &cuemu_clock_processes;
    }

    /* Attach process `rank` + 1 as a rank. */
    void attach(int rank)
    {
        fake.cpu_ns[rank + 1]  = 5 * ms;
        fake.running[rank + 1] = true;
        cuemu_clock_attach(&m_clk, rank, rank + 1);
    }

    /* Let `ns` of real time pass. The listed ranks run; the other ranks that
       want to run wait for a processor. */
    void run(uint64_t ns, std::initializer_list<int> ranks)
    {
        for (; ns > 0; ns -= std::min(ns, (uint64_t)10 * us)) {
            uint64_t step = std::min(ns, (uint64_t)10 * us);

            fake.real_ns += step;
            for (int pid = 1; pid < CUEMU_CLOCK_RANKS; ++pid) {
                fake.delay_ns[pid] += fake.running[pid] ? step : 0;
            }
            for (int rank : ranks) {
                fake.cpu_ns[rank + 1]   += step;
                fake.delay_ns[rank + 1] -= step;
            }
            now();
        }
    }

    /* Return the emulated time, ns. */
    uint64_t now(int rank = -1)
    {
        return cuemu_clock_now(&m_clk, rank, NULL) / CUEMU_PS_PER_NS;
    }

    /* Let thread `tid` of a rank begin a wait in the driver. Returns its number
       for is_over() and leave(). */
    int wait(int rank, uint64_t ns, int tid, uint64_t idle = 0)
    {
        int thread = cuemu_clock_call_begin(&m_clk, rank, tid, -1);

        cuemu_clock_wait_begin(&m_clk, rank, thread, ns * CUEMU_PS_PER_NS,
                               (idle ? idle : ns) * CUEMU_PS_PER_NS);
        return thread;
    }

    bool is_over(int rank, uint64_t ns, int thread)
    {
        return cuemu_clock_wait_over(&m_clk, rank, thread,
                                     ns * CUEMU_PS_PER_NS);
    }

    void leave(int rank, int thread)
    {
        cuemu_clock_wait_end(&m_clk, rank, thread);
        cuemu_clock_call_end(&m_clk, rank, thread);
    }

    cuemu_clock_t m_clk;
};

/* Time in which other programs use the processors is not emulated time. */
TEST_F(clock_source, time_of_other_programs_does_not_count)
{
    attach(0);
    attach(1);
    run(ms, {0, 1});
    EXPECT_NEAR(ms, now(), 20 * us);
    run(100 * ms, {}); /* other programs use both processors */
    EXPECT_NEAR(ms, now(0), 20 * us);
    run(ms, {0, 1});
    EXPECT_NEAR(2 * ms, now(0), 40 * us);
}

/* Rank 0 spins while rank 1 has no processor: it forgets its processor time
   beyond the look-ahead, also after rank 1 runs again. */
TEST_F(clock_source, time_beyond_the_look_ahead_is_forgotten)
{
    attach(0);
    attach(1);
    run(50 * ms, {0});
    EXPECT_LE(now(0), 10 * us);
    EXPECT_NEAR(50 * ms, m_clk.forgotten_ns, 100 * us);
    run(ms, {1});
    EXPECT_LE(now(0), CUEMU_CLOCK_AHEAD_NS + 10 * us);
    run(ms, {0, 1});
    EXPECT_NEAR(ms, now(0), CUEMU_CLOCK_AHEAD_NS + 50 * us);
}

/* Three threads of a rank running in parallel do not make its time faster than
   the wall clock. */
TEST_F(clock_source, threads_do_not_add_up)
{
    attach(0);
    run(2 * ms, {0, 0, 0});
    EXPECT_NEAR(2 * ms, now(0), 20 * us);
}

TEST_F(clock_source, a_rank_asleep_in_the_kernel_does_not_hold_back_time)
{
    attach(0);
    attach(1);
    fake.running[2] = false;
    run(20 * ms, {0});
    EXPECT_NEAR(20 * ms, now(0), 500 * us);

    /* it holds back time again once it runs */
    fake.running[2] = true;
    run(5 * ms, {1});
    uint64_t before = now(1);
    run(10 * ms, {0});
    EXPECT_LE(now(1), before + 100 * us);
    run(ms, {0, 1});
    EXPECT_NEAR(before + ms, now(1), 200 * us);
}

/* A process in another PID namespace, and one that has died. */
TEST_F(clock_source, an_invisible_process_does_not_hold_back_time)
{
    attach(0);
    fake.space = 2;
    attach(1);
    fake.space = 1;
    run(20 * ms, {0, 1});
    EXPECT_NEAR(20 * ms, now(0), 500 * us);
    cuemu_clock_detach(&m_clk, 1);
    attach(2);
    fake.cpu_ns[3]  = 0;
    fake.running[3] = false;
    run(20 * ms, {0});
    EXPECT_NEAR(40 * ms, now(0), ms);
}

/* A sleep of the program is emulated time, a wait for a processor is not. */
TEST_F(clock_source, a_sleep_counts)
{
    attach(0);
    run(ms, {0});
    now(0);
    fake.real_ns += 30 * ms;
    EXPECT_NEAR(31 * ms, now(0), 20 * us);
    fake.real_ns     += 30 * ms;
    fake.delay_ns[1] += 30 * ms;
    EXPECT_NEAR(31 * ms, now(0), 20 * us);
}

TEST_F(clock_source, time_follows_the_wall_clock_if_all_sleep)
{
    attach(0);
    attach(1);
    fake.running[1] = fake.running[2] = false;
    run(50 * ms, {});
    EXPECT_NEAR(50 * ms, now(), ms);
}

/* When all ranks wait, time jumps to the first end of a wait, and goes no
   further before that rank has continued. */
TEST_F(clock_source, waits_of_all_take_no_time)
{
    attach(0);
    attach(1);
    int a = wait(0, 3 * ms, 7);
    run(ms, {1});
    EXPECT_NEAR(ms, now(), 20 * us);
    int b = wait(1, 7 * ms, 8);
    EXPECT_EQ(3 * ms, now());
    run(50 * ms, {0, 1});
    EXPECT_EQ(3 * ms, now());
    EXPECT_TRUE(is_over(0, 3 * ms, a));
    EXPECT_FALSE(is_over(1, 7 * ms, b));
    leave(0, a);
    EXPECT_NEAR(3 * ms, now(0), us);
    run(ms, {0});
    EXPECT_NEAR(4 * ms, now(0), 20 * us);
    a = wait(0, 9 * ms, 7);
    EXPECT_EQ(7 * ms, now());
    leave(1, b);
    leave(0, a);
}

/* Two polling ranks wait until the first of their idle ends, as no other rank
   runs. Then the rank with that end holds back time. */
TEST_F(clock_source, polls_are_longer_if_all_ranks_poll)
{
    attach(0);
    attach(1);
    int a = wait(0, ms, 7, 40 * ms);
    run(2 * ms, {1});
    EXPECT_EQ(ms, now());
    leave(0, a);
    a     = wait(0, 3 * ms, 7, 40 * ms);
    int b = wait(1, 3 * ms, 8, 50 * ms);
    EXPECT_EQ(40 * ms, now());
    EXPECT_TRUE(is_over(0, 3 * ms, a));
    run(50 * ms, {0, 1});
    EXPECT_EQ(40 * ms, now());
    leave(0, a);
    leave(1, b);
}

/* A sleeping thread is woken once time reaches the end of its wait, not
   before. */
TEST_F(clock_source, sleepers_are_woken)
{
    attach(0);
    attach(1);
    int a = wait(0, 3 * ms, 7);
    m_clk.ranks[0].threads[a].is_asleep = 1;
    m_clk.num_asleep                    = 1;
    run(2 * ms, {1});
    EXPECT_EQ(0u, fake.wakes);
    run(2 * ms, {1});
    EXPECT_EQ(1u, fake.wakes);
    EXPECT_EQ(0u, m_clk.ranks[0].threads[a].is_asleep);
    leave(0, a);
}

/* A rank with a running thread does not count as waiting, unless that thread
   sleeps. */
TEST_F(clock_source, a_rank_waits_when_all_its_threads_do)
{
    attach(0);
    int a = wait(0, 30 * ms, 7);
    EXPECT_EQ(30 * ms, now());
    leave(0, a);
    int b = wait(0, 31 * ms, 8);
    EXPECT_EQ(30 * ms, now());
    run(ms / 2, {0});
    EXPECT_NEAR(30 * ms + ms / 2, now(), 20 * us);
    a = wait(0, 32 * ms, 7);
    EXPECT_EQ(31 * ms, now());
    leave(0, b);
    run(2 * ms, {});
    EXPECT_FALSE(is_over(0, 32 * ms, a)); /* its other thread waits for a
                                             processor */
    fake.running[1] = false;
    run(2 * ms, {});
    EXPECT_TRUE(is_over(0, 32 * ms, a));
    leave(0, a);
}

/* Its thread waits for a processor; another one has just left the driver and
   sleeps. */
TEST_F(clock_source, a_wait_that_is_over_holds_back_time)
{
    attach(0);
    attach(1);
    leave(0, wait(0, us, 8));
    int a = wait(0, 100 * us, 7);
    fake.running[1] = false;
    run(900 * us, {1});
    EXPECT_NEAR(100 * us, now(), 10 * us);
    fake.running[1] = true;
    leave(0, a);
    run(ms, {0, 1});
    EXPECT_NEAR(100 * us + ms, now(1), 50 * us);
}

/* A thread waits for 3 us while another one of its rank prepares memory for 5
   ms, and the first one gets a processor late. It continues after 3 us. */
TEST_F(clock_source, a_busy_thread_makes_no_wait_longer)
{
    attach(0);
    attach(1);
    leave(0, wait(0, us, 8));
    run(5 * us, {0, 1});
    uint64_t until = now(0) + 3 * us;
    int a          = wait(0, until, 7);
    run(5 * ms, {0, 1});
    EXPECT_EQ(until, now(1));
    EXPECT_TRUE(is_over(0, until, a));
    leave(0, a);
    EXPECT_EQ(until, now(0));
    run(ms, {0, 1});
    EXPECT_NEAR(until + ms, now(0), 40 * us);
}

/* A thread's call takes 3 ms of processor time, while another thread's wait
   ends and leaves them out. The call's end does not do so once more. */
TEST_F(clock_source, a_call_is_left_out_once)
{
    attach(0);
    fake.thread_ns = ms;
    int a          = wait(0, us, 7);
    int b          = cuemu_clock_call_begin(&m_clk, 0, 8, -1);
    run(3 * ms, {0});
    fake.thread_ns += 3 * ms;
    leave(0, a);
    cuemu_clock_call_end(&m_clk, 0, b);
    uint64_t before = now(0);
    run(2 * ms, {0});
    EXPECT_NEAR(before + 2 * ms, now(0), 40 * us);
}

/* Stopped by a signal or a debugger during a wait. */
TEST_F(clock_source, a_stopped_rank_does_not_hold_back_time)
{
    attach(0);
    attach(1);
    int a = wait(0, ms, 7);
    fake.stopped[1] = true;
    run(50 * ms, {1});
    EXPECT_GT(now(1), 10 * ms);

    fake.stopped[1] = false;
    run(50 * ms, {1});
    uint64_t before = now(1);
    run(10 * ms, {1});
    EXPECT_EQ(before, now(1));
    leave(0, a);
}

/* Calls into the driver are the emulator's work. */
TEST_F(clock_source, calls_take_no_time)
{
    attach(0);
    run(ms, {0});
    int a = cuemu_clock_call_begin(&m_clk, 0, 7, -1);
    run(20 * ms, {0});
    EXPECT_NEAR(ms, now(0), 20 * us);
    cuemu_clock_call_end(&m_clk, 0, a);
    run(ms, {0});
    EXPECT_NEAR(2 * ms, now(0), 40 * us);

    /* more threads than CUEMU_CLOCK_THREADS: their waits end, too */
    int last = 0;
    for (int tid = 20; tid < 30; ++tid) {
        last = cuemu_clock_call_begin(&m_clk, 0, tid, -1);
    }
    EXPECT_EQ(-1, last);
    cuemu_clock_wait_begin(&m_clk, 0, last, 60 * ms * CUEMU_PS_PER_NS,
                           60 * ms * CUEMU_PS_PER_NS);
    cuemu_clock_wait_end(&m_clk, 0, last);
    cuemu_clock_call_end(&m_clk, 0, last);
}

/* Nor do calls while another thread of the rank waits in the driver. */
TEST_F(clock_source, calls_during_another_threads_wait_take_no_time)
{
    attach(0);
    attach(1);
    int a = wait(0, 900 * ms, 7);
    int c = cuemu_clock_call_begin(&m_clk, 0, 8, -1);
    cuemu_clock_call_end(&m_clk, 0, c);
    run(ms, {0, 1});
    fake.thread_ns  = ms;
    int b           = cuemu_clock_call_begin(&m_clk, 0, 8, -1);
    uint64_t before = now(0);
    fake.cpu_ns[1] += 20 * ms;
    fake.thread_ns += 20 * ms;
    fake.real_ns   += 20 * ms;
    cuemu_clock_call_end(&m_clk, 0, b);
    fake.cpu_ns[2] += 20 * ms;
    now(1);
    run(5 * ms, {0, 1});
    now(1);
    EXPECT_NEAR(before + 5 * ms, now(0), ms);
    leave(0, a);
}

/* A thread in the driver may sleep until a lock's holder gets a processor. The
   wait of another thread of its rank is not over for that. */
TEST_F(clock_source, a_call_that_waits_for_a_lock_holds_back_time)
{
    attach(0);
    int b = cuemu_clock_call_begin(&m_clk, 0, 8, -1);
    int a = wait(0, 900 * ms, 7);

    fake.running[1] = false;
    run(100 * ms, {});
    EXPECT_GT(us, now());
    run(150 * ms, {});
    EXPECT_LT(ms, now());
    cuemu_clock_call_end(&m_clk, 0, b);
    leave(0, a);
}

/* A wait ends at the time at which another process ends it. */
TEST_F(clock_source, a_wait_can_be_ended)
{
    core_node node("beluga");
    core_sim s(*node);

    attach(0);
    attach(1);
    cuemu_clock_poll(&m_clk, s.sim);
    int a = cuemu_clock_call_begin(&m_clk, 0, 7, -1);
    cuemu_clock_wait_begin(&m_clk, 0, a, CUEMU_TIME_INF, CUEMU_TIME_INF);
    run(2 * ms, {1});
    uint64_t before = now();
    EXPECT_FALSE(cuemu_clock_wait_over(&m_clk, 0, a, CUEMU_TIME_INF));
    cuemu_clock_wake(&m_clk, 0);
    run(9 * ms, {1});
    EXPECT_NEAR(before, now(), us);
    EXPECT_TRUE(cuemu_clock_wait_over(&m_clk, 0, a, CUEMU_TIME_INF));
    leave(0, a);
}

/* A process killed or stopped while holding the lock loses it after 0.3 s. */
TEST_F(clock_source, an_abandoned_lock_is_taken_over)
{
    attach(0);
    m_clk.lock = fake.real_ns;
    fake.cpu_ns[1] += ms;
    fake.real_ns   += ms;
    EXPECT_LE(now(0), 1u);
    fake.real_ns   += 300 * ms;
    EXPECT_GE(now(0), ms);
    EXPECT_EQ(0u, m_clk.lock);
}

/* Each in a process of its own, since the number is kept */
TEST(core_clock, processors_to_spin_on)
{
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT((unsetenv("CUEMU_SPIN"),
                 _exit(cuemu_clock_processes.num_processors() > 0)),
                testing::ExitedWithCode(1), "");
    EXPECT_EXIT((setenv("CUEMU_SPIN", "n", 1),
                 _exit(cuemu_clock_processes.num_processors())),
                testing::ExitedWithCode(0), "");
}
