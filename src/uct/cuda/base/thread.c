/* SPDX-License-Identifier: BSD-3-Clause */
/* Start threads with most signals blocked. A thread inherits its creator's
 * signal mask. The kernel sends the signal of a fault to the faulting thread,
 * and ends the process if that thread blocks it. Programs that write-protect
 * memory and handle the fault expect it in the writing thread, so signals of
 * faults stay unblocked. */
#include <uct/cuda/base/thread.h>

#include <uct/cuda/base/capture.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>


typedef struct {
    void *(*func)(void *arg);
    void *arg;
} thread_start_t;

/* No work of the thread is part of a capture */
static void *thread_main(void *arg)
{
    const thread_start_t start = *(thread_start_t*)arg;

    free(arg);
    (void)uct_cuda_capture_relax(); /* for good */
    return start.func(start.arg);
}

/* Unmap a page, so that UCX's hook of munmap() allocates its records now.
 * Otherwise a new thread's first malloc() may run the hook first. The hook's
 * debug line then allocates again, and deadlocks (seen with UCX 1.13). */
static void fill_hooks(void)
{
    void *page = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page != MAP_FAILED) {
        (void)munmap(page, 1);
    }
}

bool uct_cuda_thread_start_with(const pthread_attr_t *attr,
                                void *(*func)(void *arg), void *arg,
                                pthread_t *thread_p)
{
    static const int own[] = {SIGSEGV, SIGBUS,  SIGFPE,
                              SIGILL,  SIGTRAP, SIGSYS};
    sigset_t others, old;
    thread_start_t *start = malloc(sizeof(*start));
    bool has_begun;
    size_t i;

    if (start == NULL) {
        return false;
    }

    fill_hooks();
    *start = (thread_start_t){.func = func, .arg = arg};
    sigfillset(&others);
    for (i = 0; i < sizeof(own) / sizeof(own[0]); ++i) {
        sigdelset(&others, own[i]);
    }

    pthread_sigmask(SIG_SETMASK, &others, &old);
    has_begun = (pthread_create(thread_p, attr, thread_main, start) == 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!has_begun) {
        free(start);
    }

    return has_begun;
}

bool uct_cuda_thread_start(void *(*func)(void *arg), void *arg,
                           pthread_t *thread_p)
{
    return uct_cuda_thread_start_with(NULL, func, arg, thread_p);
}

bool uct_cuda_thread_join(pthread_t thread)
{
    struct timespec latest;

    (void)clock_gettime(CLOCK_REALTIME, &latest);
    ++latest.tv_sec;
    return pthread_timedjoin_np(thread, NULL, &latest) == 0;
}
