/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded: sends a signal every 0.1 ms, like profilers, from the start of
 * each program. UCX_MP_TICKS=restart: the handler has SA_RESTART; otherwise
 * not. At its end a program prints their number.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 100000


static volatile unsigned long ticks;
static timer_t timer;


static void tick(int number)
{
    ++ticks;
}

/* Also for a forked child, which has the handler and no timer */
static void start(void)
{
    const struct itimerspec period = {{0, TICK_NS}, {0, TICK_NS}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                             .sigev_signo  = SIGPROF};

    ticks = 0;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) {
        (void)timer_settime(timer, 0, &period, NULL);
    }
}

static void __attribute__((constructor)) begin(void)
{
    const char *how               = getenv("UCX_MP_TICKS");
    const struct sigaction action = {
        .sa_handler = tick,
        .sa_flags   = ((how != NULL) && (strcmp(how, "restart") == 0)) ?
                              SA_RESTART :
                              0
    };

    (void)sigaction(SIGPROF, &action, NULL);
    (void)pthread_atfork(NULL, NULL, start);
    start();
}

static void __attribute__((destructor)) end(void)
{
    (void)timer_delete(timer);
    fprintf(stderr, "ticks: process %d had %lu signals\n", (int)getpid(),
            ticks);
}
