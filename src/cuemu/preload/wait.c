/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Make timed waits of programs end by the emulated clock. libc's waits end at a
 * time of the real clock, while the program computes this time from the
 * emulated one. If the emulated clock is ahead, as after many short tests,
 * Python's threads would not release the interpreter in time. So this file
 * shifts each end by the difference of the clocks. While ranks run, the
 * emulated clock is slower than the real one, and poll() waits by the emulated
 * clock. A thread that polls every 20 ms then runs 50 times per emulated second
 * of its rank, not 5,000 times.
 */
#include "preload.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CUEMU_NS_PER_S  INT64_C(1000000000)
#define CUEMU_NS_PER_MS UINT64_C(1000000)

/* Times of CLOCK_MONOTONIC are below this: a condition variable does not tell
   its clock */
#define CUEMU_MIN_REALTIME_S 500000000

/* Longest real time by which poll() waits longer than asked, ms */
#define CUEMU_MAX_LATE_MS 1000


/* Return how far the emulated clock is ahead of the real one, ns */
static int64_t cuemu_ahead_ns(clockid_t id)
{
    const uint64_t emulated = cuemu_emulated_ns(id);
    struct timespec real;

    if (emulated == 0) {
        return 0;
    }

    (void)cuemu_libc_syscall(SYS_clock_gettime, id, &real);
    return (int64_t)emulated - ((int64_t)real.tv_sec * CUEMU_NS_PER_S) -
           real.tv_nsec;
}

/* Return an end of the emulated clock as one of the real clock, in *real.
   Invalid times are left to libc. */
static const struct timespec *
cuemu_end(clockid_t id, const struct timespec *end, struct timespec *real)
{
    const int64_t ahead = (end == NULL) ? 0 : cuemu_ahead_ns(id);
    int64_t ns;

    if ((ahead == 0) || (end->tv_nsec < 0) ||
        (end->tv_nsec >= CUEMU_NS_PER_S) || (end->tv_sec < 0) ||
        (end->tv_sec > INT64_MAX / CUEMU_NS_PER_S / 2)) {
        return end;
    }

    ns = ((int64_t)end->tv_sec * CUEMU_NS_PER_S) + end->tv_nsec - ahead;
    if (ns < 0) {
        ns = 0;
    }

    real->tv_sec  = (time_t)(ns / CUEMU_NS_PER_S);
    real->tv_nsec = (long)(ns % CUEMU_NS_PER_S);
    return real;
}

static clockid_t cuemu_clock_of(const struct timespec *end)
{
    return ((end != NULL) && (end->tv_sec >= CUEMU_MIN_REALTIME_S)) ?
                   CLOCK_REALTIME :
                   CLOCK_MONOTONIC;
}

/* Set a pointer to a function of libc, unless done */
#define CUEMU_LIBC(_libc, _name) \
    ((_libc) = ((_libc) != NULL) ? (_libc) : \
                                   (__typeof__(_libc))cuemu_libc(_name))

#define CUEMU_LIST(...) __VA_ARGS__,

/* Define a wait up to `end` of a clock, with these parameters and arguments
   before the end */
#define CUEMU_WAIT(_name, _clock, _params, _args) \
    CUEMU_EXPORT int _name(CUEMU_LIST _params const struct timespec *end) \
    { \
        static int (*libc)(CUEMU_LIST _params const struct timespec *end); \
        struct timespec real; \
        \
        CUEMU_LIBC(libc, #_name); \
        return libc(CUEMU_LIST _args cuemu_end(_clock, end, &real)); \
    }

CUEMU_WAIT(pthread_cond_timedwait, cuemu_clock_of(end),
           (pthread_cond_t *cond, pthread_mutex_t *mutex), (cond, mutex))
CUEMU_WAIT(pthread_cond_clockwait, id,
           (pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t id),
           (cond, mutex, id))
CUEMU_WAIT(pthread_mutex_timedlock, CLOCK_REALTIME, (pthread_mutex_t *mutex),
           (mutex))
CUEMU_WAIT(pthread_mutex_clocklock, id, (pthread_mutex_t *mutex, clockid_t id),
           (mutex, id))
CUEMU_WAIT(pthread_rwlock_timedrdlock, CLOCK_REALTIME, (pthread_rwlock_t *lock),
           (lock))
CUEMU_WAIT(pthread_rwlock_timedwrlock, CLOCK_REALTIME, (pthread_rwlock_t *lock),
           (lock))
CUEMU_WAIT(pthread_rwlock_clockrdlock, id,
           (pthread_rwlock_t *lock, clockid_t id), (lock, id))
CUEMU_WAIT(pthread_rwlock_clockwrlock, id,
           (pthread_rwlock_t *lock, clockid_t id), (lock, id))
CUEMU_WAIT(pthread_timedjoin_np, CLOCK_REALTIME,
           (pthread_t thread, void **result), (thread, result))
CUEMU_WAIT(pthread_clockjoin_np, id,
           (pthread_t thread, void **result, clockid_t id),
           (thread, result, id))
CUEMU_WAIT(sem_timedwait, CLOCK_REALTIME, (sem_t *sem), (sem))
CUEMU_WAIT(sem_clockwait, id, (sem_t *sem, clockid_t id), (sem, id))

CUEMU_EXPORT int poll(struct pollfd *fds, nfds_t num_fds, int ms)
{
    static int (*libc)(struct pollfd *fds, nfds_t num_fds, int ms);
    int late = 0;
    int result, left;
    uint64_t now, end;

    CUEMU_LIBC(libc, "poll");
    if (ms <= 0) {
        return libc(fds, num_fds, ms);
    }

    end    = cuemu_emulated_ns(CLOCK_MONOTONIC) + (ms * CUEMU_NS_PER_MS);
    result = libc(fds, num_fds, ms);
    while ((result == 0) && (late < CUEMU_MAX_LATE_MS) &&
           ((now = cuemu_emulated_ns(CLOCK_MONOTONIC)) < end) && (now != 0)) {
        left   = (int)((end - now - 1) / CUEMU_NS_PER_MS) + 1;
        ms     = (left < CUEMU_MAX_LATE_MS - late) ? left :
                                                     CUEMU_MAX_LATE_MS - late;
        late  += ms;
        result = libc(fds, num_fds, ms);
    }

    return result;
}

CUEMU_EXPORT int clock_nanosleep(clockid_t id, int flags,
                                 const struct timespec *end,
                                 struct timespec *left)
{
    static int (*libc)(clockid_t id, int flags, const struct timespec *end,
                       struct timespec *left);
    struct timespec real;

    CUEMU_LIBC(libc, "clock_nanosleep");
    return libc(id, flags,
                (flags & TIMER_ABSTIME) ? cuemu_end(id, end, &real) : end,
                left);
}

/* A timer's first end, of a clock that its descriptor does not tell */
static const struct itimerspec *
cuemu_timer(int is_end, const struct itimerspec *value, struct itimerspec *real)
{
    /* zero stops the timer */
    if (!is_end || (value == NULL) ||
        ((value->it_value.tv_sec == 0) && (value->it_value.tv_nsec == 0))) {
        return value;
    }

    *real          = *value;
    real->it_value = *cuemu_end(cuemu_clock_of(&value->it_value),
                                &value->it_value, &real->it_value);
    return real;
}

/* Define a call that sets a timer, with a flag for an end instead of a
   duration */
#define CUEMU_TIMER(_name, _type, _flag) \
    CUEMU_EXPORT int _name(_type timer, int flags, \
                           const struct itimerspec *value, \
                           struct itimerspec *old) \
    { \
        static int (*libc)(_type timer, int flags, \
                           const struct itimerspec *value, \
                           struct itimerspec *old); \
        struct itimerspec real; \
        \
        CUEMU_LIBC(libc, #_name); \
        return libc(timer, flags, cuemu_timer(flags & (_flag), value, &real), \
                    old); \
    }

CUEMU_TIMER(timerfd_settime, int, TFD_TIMER_ABSTIME)
CUEMU_TIMER(timer_settime, timer_t, TIMER_ABSTIME)

/* C++ futures wait by this. Like libc's, it passes on six arguments, however
   many there are. */
CUEMU_EXPORT long syscall(long number, ...)
{
    struct timespec real;
    long word[6];
    va_list list;
    size_t i;

    va_start(list, number);
    for (i = 0; i < sizeof(word) / sizeof(word[0]); ++i) {
        word[i] = va_arg(list, long);
    }
    va_end(list);

    if ((number == SYS_futex) &&
        ((word[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)) {
        word[3] = (long)cuemu_end((word[1] & FUTEX_CLOCK_REALTIME) ?
                                          CLOCK_REALTIME :
                                          CLOCK_MONOTONIC,
                                  (const struct timespec*)word[3], &real);
    }

    return cuemu_libc_syscall(number, word[0], word[1], word[2], word[3],
                              word[4], word[5]);
}
