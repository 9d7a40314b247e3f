/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread inherits the mask of signals of whoever starts it. */
#include <uct/cuda/base/thread.h>

#include <uct/cuda/base/capture.h>

#include <signal.h>
#include <stdlib.h>


typedef struct {
    void *(*func)(void *arg);
    void *arg;
} start_t;

/* Nothing that the thread does is part of a capture */
static void *thread_main(void *arg)
{
    const start_t start = *(start_t*)arg;

    free(arg);
    uct_cuda_capture_relax_thread();
    return start.func(start.arg);
}

bool uct_cuda_thread_start_with(const pthread_attr_t *attr,
                                void *(*func)(void *arg), void *arg,
                                pthread_t *thread_p)
{
    start_t *start = malloc(sizeof(*start));
    sigset_t all, old;
    bool is_there;

    if (start == NULL) {
        return false;
    }

    *start = (start_t){.func = func, .arg = arg};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    is_there = (pthread_create(thread_p, attr, thread_main, start) == 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!is_there) {
        free(start);
    }

    return is_there;
}

bool uct_cuda_thread_start(void *(*func)(void *arg), void *arg,
                           pthread_t *thread_p)
{
    return uct_cuda_thread_start_with(NULL, func, arg, thread_p);
}
