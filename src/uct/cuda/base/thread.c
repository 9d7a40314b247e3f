/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread inherits the mask of signals of whoever starts it. */
#include <uct/cuda/base/thread.h>

#include <signal.h>


bool uct_cuda_thread_start_with(const pthread_attr_t *attr,
                                void *(*func)(void *arg), void *arg,
                                pthread_t *thread_p)
{
    sigset_t all, old;
    bool is_there;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    is_there = (pthread_create(thread_p, attr, func, arg) == 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return is_there;
}

bool uct_cuda_thread_start(void *(*func)(void *arg), void *arg,
                           pthread_t *thread_p)
{
    return uct_cuda_thread_start_with(NULL, func, arg, thread_p);
}
