/* SPDX-License-Identifier: BSD-3-Clause */
/* A thread inherits the mask of signals of whoever starts it. What a thread's
 * own instructions bring about is told to that thread alone, and ends the
 * process where it is blocked: programs that protect memory, and mend it in a
 * handler when it is written, expect it from whoever writes. */
#include <uct/cuda/base/thread.h>

#include <signal.h>


bool uct_cuda_thread_start_with(const pthread_attr_t *attr,
                                void *(*func)(void *arg), void *arg,
                                pthread_t *thread_p)
{
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE,
                              SIGILL,  SIGTRAP, SIGSYS};
    sigset_t others, old;
    bool is_there;
    size_t i;

    sigfillset(&others);
    for (i = 0; i < sizeof(own) / sizeof(own[0]); ++i) {
        sigdelset(&others, own[i]);
    }

    pthread_sigmask(SIG_SETMASK, &others, &old);
    is_there = (pthread_create(thread_p, attr, func, arg) == 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return is_there;
}

bool uct_cuda_thread_start(void *(*func)(void *arg), void *arg,
                           pthread_t *thread_p)
{
    return uct_cuda_thread_start_with(NULL, func, arg, thread_p);
}
