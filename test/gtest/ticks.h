/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals like a profiler's: a handler called every 0.1 ms as long as an object
   exists, with or without SA_RESTART. */
#ifndef TEST_TICKS_H
#define TEST_TICKS_H

#include <atomic>
#include <csignal>
#include <sys/time.h>

class Ticks
{
public:
    explicit Ticks(int flags = 0)
    {
        struct sigaction action = {};

        action.sa_handler = [](int) { ++count; };
        action.sa_flags   = flags;
        sigaction(SIGALRM, &action, &m_before);
        count = 0;
        set(100);
    }

    ~Ticks()
    {
        set(0);
        sigaction(SIGALRM, &m_before, NULL);
    }

    static inline std::atomic<unsigned> count;

private:
    static void set(long us)
    {
        const struct itimerval timer = {{0, us}, {0, us}};

        setitimer(ITIMER_REAL, &timer, NULL);
    }

    struct sigaction m_before;
};

#endif
