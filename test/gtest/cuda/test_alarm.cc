/* SPDX-License-Identifier: BSD-3-Clause */
/* Callbacks of alarms: how many, and never too early. */
#include "process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

extern "C" {
#include <uct/cuda/base/alarm.h>
#include <uct/cuda/base/clock.h>
}

static constexpr uint64_t MS = 1000000;

/* Seconds added to the system's clock */
static std::atomic<time_t> clock_shift{0};

extern "C" int clock_gettime(clockid_t id, struct timespec *now) noexcept
{
    const int result = (int)syscall(SYS_clock_gettime, id, now);

    now->tv_sec += (id == CLOCK_REALTIME) ? clock_shift.load() : 0;
    return result;
}

struct Sleeper {
    std::atomic<unsigned> calls{0};
    std::atomic<uint64_t> last{0};

    static void wake(void *arg)
    {
        auto *self = (Sleeper*)arg;

        self->last = uct_cuda_now_ns();
        ++self->calls;
    }

    bool set(uint64_t at)
    {
        return uct_cuda_alarm_set(at, wake, this);
    }
};

static void wait_for(const Sleeper &sleeper)
{
    for (int i = 0; (i < 2000) && (sleeper.calls == 0); ++i) {
        usleep(1000);
    }
}

TEST(Alarm, each_callback_runs_once)
{
    std::vector<Sleeper> sleepers(5);
    const uint64_t now = uct_cuda_now_ns();

    for (size_t i = 0; i < sleepers.size(); ++i) {
        ASSERT_TRUE(sleepers[i].set(now + (5 - i) * 10 * MS)) << i;
    }
    for (size_t i = 0; i < sleepers.size(); ++i) {
        wait_for(sleepers[i]);
        EXPECT_LE(now + (5 - i) * 10 * MS, sleepers[i].last) << i;
    }
    usleep(20000);
    for (Sleeper &sleeper : sleepers) {
        EXPECT_EQ(1u, sleeper.calls);
    }
}

/* The earlier of two times is used, in either order of requests */
TEST(Alarm, the_earlier_of_two_times_counts)
{
    const uint64_t now = uct_cuda_now_ns(), late = now + 3600000 * MS;
    Sleeper sooner, later;

    ASSERT_TRUE(sooner.set(late));
    ASSERT_TRUE(sooner.set(now + 5 * MS));
    ASSERT_TRUE(later.set(now + 5 * MS));
    ASSERT_TRUE(later.set(late));
    wait_for(sooner);
    wait_for(later);
    usleep(20000);
    EXPECT_EQ(1u, sooner.calls);
    EXPECT_EQ(1u, later.calls);
}

/* Setting the clock back during a sleep has the same effect: the clocks
   differ */
TEST(Alarm, setting_the_clock_has_no_effect)
{
    Sleeper sleeper;

    clock_shift = 3600;
    ASSERT_TRUE(sleeper.set(uct_cuda_now_ns() + 20 * MS));
    wait_for(sleeper);
    clock_shift = 0;
    EXPECT_EQ(1u, sleeper.calls);
}

static void be_slow(void *arg)
{
    *(std::atomic<int>*)arg = 1;
    usleep(300000);
}

/* A child forked during a callback has alarms, too */
TEST(Alarm, a_fork_waits_for_the_thread)
{
    static std::atomic<int> state{0};
    Sleeper sleeper;

    ASSERT_TRUE(uct_cuda_alarm_set(uct_cuda_now_ns(), be_slow, &state));
    while (state == 0) {
        usleep(1000);
    }
    EXPECT_EQ(1, in_child([&] {
        alarm(20);
        const bool is_set = sleeper.set(uct_cuda_now_ns());
        wait_for(sleeper);
        return is_set && (sleeper.calls == 1);
    }));
}

/* The table is full: other callers get an error, and find room later */
TEST(Alarm, a_full_table_is_an_error)
{
    const uint64_t at = uct_cuda_now_ns() + 1000 * MS;
    std::vector<Sleeper> sleepers(300);
    size_t count = 0;

    while ((count < sleepers.size()) && sleepers[count].set(at)) {
        ++count;
    }
    ASSERT_LT(count, sleepers.size());
    ASSERT_LT(0u, count);
    EXPECT_FALSE(sleepers[count + 1].set(at));
    EXPECT_TRUE(sleepers[0].set(at)) << "it has a place";
    for (size_t i = 0; i < count; ++i) {
        wait_for(sleepers[i]);
        EXPECT_EQ(1u, sleepers[i].calls) << i;
    }
    EXPECT_EQ(0u, sleepers[count].calls);
    EXPECT_TRUE(sleepers[count].set(uct_cuda_now_ns()));
    wait_for(sleepers[count]);
    EXPECT_EQ(1u, sleepers[count].calls);
}
