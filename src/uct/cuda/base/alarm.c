/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread starts with the first alarm and sleeps while there is none. A
 * forked child starts its own. */
#include <uct/cuda/base/alarm.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/thread.h>

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>


#define NS_A_SECOND UINT64_C(1000000000)

/* Maximum alarms, one for each sleeping caller; without a free one the caller
 * does not sleep */
#define MAX_ALARMS 256


typedef struct {
    uint64_t at;
    void     (*func)(void *arg);
    void     *arg;
} uct_cuda_alarm_t;

static struct {
    pthread_mutex_t  lock; /* order: base/thread.h */
    pthread_cond_t   some;
    pid_t            owner; /* process of the thread; 0: none yet */
    uint64_t         next;  /* time of the next wakeup */
    unsigned         count;
    uct_cuda_alarm_t alarms[MAX_ALARMS];
} alarms = {
    .lock = PTHREAD_MUTEX_INITIALIZER
};


/* Call due functions, with the lock held. @return Time of the next one */
static uint64_t call_due(uint64_t now)
{
    uint64_t next = UINT64_MAX;
    unsigned i;

    for (i = 0; i < alarms.count;) {
        if (alarms.alarms[i].at <= now) {
            alarms.alarms[i].func(alarms.alarms[i].arg);
            alarms.alarms[i] = alarms.alarms[--alarms.count];
        } else {
            next = (alarms.alarms[i].at < next) ? alarms.alarms[i].at : next;
            ++i;
        }
    }

    return next;
}

/* Wait by CLOCK_MONOTONIC, which nobody can set. The clock that the program
 * sees may be slower (on an emulated node); the caller repeats a wait that ends
 * early. */
static void wait_until(uint64_t next, uint64_t now)
{
    struct timespec end;
    uint64_t at;

    if (next == UINT64_MAX) {
        pthread_cond_wait(&alarms.some, &alarms.lock);
        return;
    }

    (void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &end);
    at          = ((uint64_t)end.tv_sec * NS_A_SECOND) +
                  (uint64_t)end.tv_nsec + (next - now);
    end.tv_sec  = (time_t)(at / NS_A_SECOND);
    end.tv_nsec = (long)(at % NS_A_SECOND);
    (void)pthread_cond_timedwait(&alarms.some, &alarms.lock, &end);
}

static void *alarm_thread(void *arg)
{
    (void)arg;
    (void)prctl(PR_SET_TIMERSLACK, 1000ul);
    pthread_mutex_lock(&alarms.lock);
    for (;;) {
        alarms.next = call_due(uct_cuda_now_ns());
        wait_until(alarms.next, uct_cuda_now_ns());
    }

    return NULL;
}

static void use_monotonic_clock(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&alarms.some, &attr);
    pthread_condattr_destroy(&attr);
}

/* A fork waits for running callbacks, so that the child gets a free lock */
static void before_fork(void)
{
    pthread_mutex_lock(&alarms.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&alarms.lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static bool is_running(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_t thread;

    pthread_once(&once, watch_forks);
    if (alarms.owner != getpid()) {
        alarms.count = 0;
        use_monotonic_clock();
        if (!uct_cuda_thread_start(alarm_thread, NULL, &thread)) {
            return false;
        }

        (void)pthread_detach(thread);
        alarms.owner = getpid();
        alarms.next  = UINT64_MAX;
    }

    return true;
}

bool uct_cuda_alarm_set(uint64_t at, void (*func)(void *arg), void *arg)
{
    bool is_set = false;
    unsigned i;

    pthread_mutex_lock(&alarms.lock);
    if (!is_running()) {
        goto out;
    }

    for (i = 0; (i < alarms.count) && ((alarms.alarms[i].func != func) ||
                                       (alarms.alarms[i].arg != arg));
         ++i) {
    }

    is_set = i < MAX_ALARMS;
    if ((i < alarms.count) && (alarms.alarms[i].at <= at)) {
        goto out;
    }

    if (is_set) {
        alarms.alarms[i] = (uct_cuda_alarm_t){at, func, arg};
        alarms.count     = (i == alarms.count) ? i + 1 : alarms.count;
        if (at < alarms.next) {
            pthread_cond_signal(&alarms.some);
        }
    }

out:
    pthread_mutex_unlock(&alarms.lock);
    return is_set;
}
