/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Let programs of an emulated node read the emulated clock: replace libc's
 * functions that return the time, sched_yield(), and UCX's progress function,
 * which polling programs call. process_vm_readv() and process_vm_writev(), by
 * which UCX's transport `cma` copies, take modelled time. Waits other than
 * poll()'s stay in real time (wait.c). Without a session the functions behave
 * as the replaced ones.
 */
#include "preload.h"

#include "../driver/cuemu_session.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Interval for checking whether a session exists, ns of real time */
#define CUEMU_LOOK_NS 1000000ull

/* Shortest duration of a yield, in emulated time and in processor time: the
   longer one counts */
#define CUEMU_YIELD_TIME       (CUEMU_PS_PER_US / 2)
#define CUEMU_YIELD_NS         10000ull
/* The program has worked between two yields if the time between them is more
   than so many times the shortest such time */
#define CUEMU_YIELD_ACTIVE     4
/* While the clock is stopped, one yield of so many sleeps */
#define CUEMU_YIELD_ROUNDS     4

/* Fruitless calls of UCX's progress in a row before a yield; some 10 us of
   processor time */
#define CUEMU_POLL_FRUITLESS 50

/* Times of process_vm_readv() and process_vm_writev(), measured on an H200
   machine (docs/results/by-hand.md): 0.5 us for 8 bytes, 3.5 for 64 KiB, 57 for
   1 MiB */
#define CUEMU_VM_TIME (CUEMU_PS_PER_US / 2)
#define CUEMU_VM_RATE 20e9 /* bytes/s */

/* Stops UCX from reading the processor's time stamp counter instead of the
   clock */
CUEMU_EXPORT int ucs_arch_x86_enable_rdtsc = 0;

/* The driver's function that serves due operations of this process and returns
   non-zero if there were any. Set by the driver; NULL: no driver */
CUEMU_EXPORT int (*cuemu_yield_serve)(void);

static cuemu_shared_t *cuemu_view;
static uint64_t cuemu_next_look_ns;

/* Emulated time since which this thread has only yielded */
static __thread cuemu_time_t cuemu_yield_first;


/*
 * Read the real clock by a system call, like all of this file. UCX's memory
 * hooks patch mmap() and similar functions, and wait until no thread is inside
 * them. The waiting thread reads the clock, so the clock must not call these
 * functions.
 */
static int cuemu_real_gettime(clockid_t id, struct timespec *ts)
{
    return (int)cuemu_libc_syscall(SYS_clock_gettime, id, ts);
}

/* Return the state of the session in $CUEMU_SESSION; NULL if the variable is
   unset or no process has created the session yet. Looks for it at most once in
   CUEMU_LOOK_NS, and returns NULL in between. Changes errno. Only the state's
   clock may be written. */
static cuemu_shared_t *cuemu_find_session(void)
{
    cuemu_shared_t *view = __atomic_load_n(&cuemu_view, __ATOMIC_ACQUIRE);
    const char *dir;
    struct timespec ts;
    struct stat st;
    char path[300];
    uint64_t now;
    size_t length;
    long ptr;
    int fd;

    if (view != NULL) {
        return view;
    }

    dir = getenv("CUEMU_SESSION");
    if ((dir == NULL) || (*dir == '\0')) {
        return NULL;
    }

    cuemu_real_gettime(CLOCK_MONOTONIC, &ts);
    now = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
    if (now < __atomic_load_n(&cuemu_next_look_ns, __ATOMIC_RELAXED)) {
        return NULL;
    }
    __atomic_store_n(&cuemu_next_look_ns, now + CUEMU_LOOK_NS,
                     __ATOMIC_RELAXED);

    length = strlen(dir);
    if (length + sizeof("/state") > sizeof(path)) {
        return NULL;
    }

    memcpy(path, dir, length);
    memcpy(path + length, "/state", sizeof("/state"));
    fd = (int)cuemu_libc_syscall(SYS_openat, AT_FDCWD, path,
                                 O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }

    ptr = -1;
    if ((cuemu_libc_syscall(SYS_fstat, fd, &st) == 0) &&
        ((size_t)st.st_size >= sizeof(*view))) {
        ptr = cuemu_libc_syscall(SYS_mmap, NULL, sizeof(*view),
                                 PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    }
    cuemu_libc_syscall(SYS_close, fd);
    if (ptr == -1) {
        return NULL;
    }

    view = (cuemu_shared_t*)ptr;
    if (view->magic != CUEMU_SESSION_MAGIC) {
        cuemu_libc_syscall(SYS_munmap, ptr, sizeof(*view));
        return NULL;
    }

    __atomic_store_n(&cuemu_view, view, __ATOMIC_RELEASE);
    return view;
}

/* Return the rank of this process in the clock; -1 if it has none. */
static int cuemu_find_rank(const cuemu_clock_t *clk)
{
    static int found = -1;
    int pid          = (int)cuemu_libc_syscall(SYS_getpid);
    int rank         = __atomic_load_n(&found, __ATOMIC_RELAXED);

    if ((rank >= 0) && (clk->ranks[rank].pid == pid)) {
        return rank;
    }

    for (rank = clk->num_ranks - 1; rank >= 0; --rank) {
        if ((clk->ranks[rank].pid == pid) &&
            (clk->ranks[rank].space == cuemu_clock_source->space())) {
            __atomic_store_n(&found, rank, __ATOMIC_RELAXED);
            return rank;
        }
    }
    return -1;
}

uint64_t cuemu_emulated_ns(clockid_t id)
{
    cuemu_shared_t *view;
    uint64_t epoch, ns;
    int saved_errno;

    switch (id) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        break;
    default:
        return 0; /* processor time of processes and threads, and unknown
                     clocks */
    }

    saved_errno = errno;
    view        = cuemu_find_session();
    errno       = saved_errno;
    if (view == NULL) {
        return 0;
    }

    epoch = ((id == CLOCK_REALTIME) || (id == CLOCK_REALTIME_COARSE)) ?
            view->real_epoch_ns : view->mono_epoch_ns;
    ns    = (uint64_t)(cuemu_clock_now(&view->clock,
                                       cuemu_find_rank(&view->clock), NULL) /
                       CUEMU_PS_PER_NS);
    return epoch + ns;
}

/*
 * Compute the two ends of a yield that begins at `now`, for cuemu_clock_wait().
 * `end`: end of the previous yield. A yield lasts the longer, the longer the
 * program has only yielded. If the time since `end` is much longer than the
 * shortest such time so far, the program has worked: return non-zero and make
 * yields short again. If all ranks wait, nothing can change before a copy ends
 * or another rank works, so the yield may last until *idle_p.
 */
static int cuemu_yield_until(cuemu_time_t now, cuemu_time_t end,
                             cuemu_time_t *until_p, cuemu_time_t *idle_p)
{
    static __thread cuemu_time_t least;
    const cuemu_clock_t *clk = &cuemu_view->clock;
    cuemu_time_t round       = now - end;
    int is_active            = 0;
    cuemu_time_t shortest;

    if ((least == 0) || (round < least)) {
        least = round;
    } else if (round > CUEMU_YIELD_ACTIVE * least + CUEMU_YIELD_TIME / 2) {
        cuemu_yield_first = now;
        least            += least / 16 + 1;
        is_active         = 1;
    }

    shortest = (clk->slowdown > 0) ?
               (cuemu_time_t)((double)(CUEMU_YIELD_NS * CUEMU_PS_PER_NS) /
                              clk->slowdown) : 0;
    shortest = (shortest > CUEMU_YIELD_TIME) ? shortest : CUEMU_YIELD_TIME;
    cuemu_clock_poll_until(clk, now, cuemu_yield_first, shortest, until_p,
                           idle_p);
    return is_active;
}

/*
 * Serve the due operations for which the clock is stopped. If there are none
 * for this process, return at once, but on every fourth such call first wait
 * until another process has served one, at most 0.2 ms. Between these calls the
 * program can find more work. `served`: view->served, read before the clock.
 */
static void cuemu_yield_stopped(cuemu_shared_t *view, uint32_t served)
{
    int (*serve)(void) = __atomic_load_n(&cuemu_yield_serve, __ATOMIC_ACQUIRE);
    static __thread unsigned rounds;

    if (((serve != NULL) && serve()) || (++rounds % CUEMU_YIELD_ROUNDS != 0)) {
        return;
    }

    cuemu_session_wait_served(view, served);
}

/*
 * Wait for a moment of emulated time, about the time of one round of polling.
 * Programs without work call sched_yield() again and again. If all ranks do,
 * the wait takes no real time; and other programs on the machine do not get a
 * whole time slice for each yield. Without a session, outside its ranks, or
 * with the wall clock: the kernel's sched_yield(). Return 0, or its result.
 */
static int cuemu_yield(void)
{
    static __thread int tid, place;
    static __thread cuemu_time_t end, before;
    cuemu_shared_t *view = cuemu_find_session();
    int rank             = ((view == NULL) || view->clock.is_wall) ?
                                   -1 : cuemu_find_rank(&view->clock);
    cuemu_time_t now, until, idle, polled;
    cuemu_clock_t *clk;
    uint32_t served;
    int clamped;

    if (rank < 0) {
        return (int)cuemu_libc_syscall(SYS_sched_yield);
    }

    served = __atomic_load_n(&view->served, __ATOMIC_ACQUIRE);

    clk = &view->clock;
    if (tid == 0) {
        tid   = (int)cuemu_libc_syscall(SYS_gettid);
        place = -1;
    }
    place = cuemu_clock_call_begin(clk, rank, tid, place);
    now   = cuemu_clock_now(clk, rank, &clamped);
    if (clamped) {
        cuemu_yield_first = now;
        cuemu_yield_stopped(view, served);
    } else {
        polled = (place < 0) ? 0 : clk->ranks[rank].threads[place].polled;
        if (cuemu_yield_until(now, end + polled - before, &until, &idle)) {
            cuemu_clock_stir(clk, rank);
        }
        cuemu_clock_wait(clk, rank, place, until, idle, NULL, 0);
        end    = cuemu_clock_now(clk, -1, NULL);
        before = polled;
    }
    cuemu_clock_call_end(clk, rank, place);
    return 0;
}

CUEMU_EXPORT int sched_yield(void)
{
    return cuemu_yield();
}

/* Spend emulated time until `end`, in a call that began with
   cuemu_clock_call_begin(). */
static void
cuemu_spend_until(cuemu_shared_t *view, int rank, int place, cuemu_time_t end)
{
    uint32_t served;
    int clamped;

    for (;;) {
        served = __atomic_load_n(&view->served, __ATOMIC_ACQUIRE);
        if (cuemu_clock_now(&view->clock, rank, &clamped) >= end) {
            return;
        } else if (clamped) {
            cuemu_yield_stopped(view, served);
        } else {
            cuemu_clock_wait(&view->clock, rank, place, end, end, NULL, 0);
        }
    }
}

/* Copy to or from another process's memory by the system call. On the modelled
   node this is work of a processor, which `slowdown` would make too cheap. */
static ssize_t
cuemu_vm_copy(long number, pid_t pid, const struct iovec *local,
              unsigned long num_local, const struct iovec *remote,
              unsigned long num_remote, unsigned long flags)
{
    static __thread int place = -1;
    cuemu_shared_t *view      = cuemu_find_session();
    const int rank            = ((view == NULL) || view->clock.is_wall) ?
                                        -1 : cuemu_find_rank(&view->clock);
    cuemu_time_t end;
    ssize_t bytes;
    int saved_errno;

    if (rank < 0) {
        return cuemu_libc_syscall(number, pid, local, num_local, remote,
                                  num_remote, flags);
    }

    place = cuemu_clock_call_begin(
            &view->clock, rank, (int)cuemu_libc_syscall(SYS_gettid), place);
    end   = cuemu_clock_now(&view->clock, rank, NULL) + CUEMU_VM_TIME;
    bytes = cuemu_libc_syscall(number, pid, local, num_local, remote,
                               num_remote, flags);
    saved_errno = errno;
    end += (cuemu_time_t)((bytes > 0) ? (double)bytes / CUEMU_VM_RATE *
                                                (double)CUEMU_PS_PER_SEC : 0);
    cuemu_spend_until(view, rank, place, end);
    cuemu_clock_call_end(&view->clock, rank, place);
    errno = saved_errno;
    return bytes;
}

CUEMU_EXPORT ssize_t process_vm_readv(pid_t pid, const struct iovec *local,
                                      unsigned long num_local,
                                      const struct iovec *remote,
                                      unsigned long num_remote,
                                      unsigned long flags)
{
    return cuemu_vm_copy(SYS_process_vm_readv, pid, local, num_local, remote,
                         num_remote, flags);
}

CUEMU_EXPORT ssize_t process_vm_writev(pid_t pid, const struct iovec *local,
                                       unsigned long num_local,
                                       const struct iovec *remote,
                                       unsigned long num_remote,
                                       unsigned long flags)
{
    return cuemu_vm_copy(SYS_process_vm_writev, pid, local, num_local, remote,
                         num_remote, flags);
}

typedef unsigned (*cuemu_progress_func_t)(void*);

CUEMU_EXPORT unsigned ucp_worker_progress(void *worker);

/* Return UCX's function that the caller would call without this library: that
   of the program, or of the caller's own dependencies. Ends the program, with a
   sentence, if there is none. */
static cuemu_progress_func_t cuemu_find_progress(const void *caller)
{
    void *symbol = dlsym(RTLD_NEXT, "ucp_worker_progress"), *handle;
    cuemu_progress_func_t func;
    Dl_info info;

    if ((symbol == NULL) && (dladdr(caller, &info) != 0)) {
        handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL) {
            symbol = dlsym(handle, "ucp_worker_progress");
            dlclose(handle);
        }
    }

    memcpy(&func, &symbol, sizeof(func));
    if ((func == NULL) || (func == ucp_worker_progress)) {
        fprintf(stderr, "cuemu: no libucp has ucp_worker_progress\n");
        abort();
    }
    return func;
}

/*
 * Call UCX's function and return its result. After more than
 * CUEMU_POLL_FRUITLESS calls in a row that returned 0, also yield, unless the
 * program has called the driver in between: some programs, such as MPICH, poll
 * UCX and never yield. While such a rank waits for a processor, it holds up all
 * others.
 */
CUEMU_EXPORT unsigned ucp_worker_progress(void *worker)
{
    static __thread struct {
        const void           *caller;
        cuemu_progress_func_t func;
        unsigned              idle;
        uint64_t              calls; /* of the rank at the last yield */
    } poll;
    const void *caller = __builtin_return_address(0);
    cuemu_shared_t *view;
    int rank, saved_errno;
    unsigned count;

    if (poll.caller != caller) {
        poll.func   = cuemu_find_progress(caller);
        poll.caller = caller;
    }

    count = poll.func(worker);
    if (count > 0) {
        poll.idle = 0;
    } else if (++poll.idle > CUEMU_POLL_FRUITLESS) {
        saved_errno = errno;
        view        = cuemu_find_session();
        rank        = (view == NULL) ? -1 : cuemu_find_rank(&view->clock);
        if ((rank < 0) || (view->clock.ranks[rank].calls != poll.calls)) {
            poll.idle = 0;
        } else {
            cuemu_yield();
        }
        poll.calls = (rank < 0) ? 0 : view->clock.ranks[rank].calls;
        errno      = saved_errno;
    }
    return count;
}

CUEMU_EXPORT int clock_gettime(clockid_t id, struct timespec *ts)
{
    uint64_t ns = cuemu_emulated_ns(id);

    if (ns == 0) {
        return cuemu_real_gettime(id, ts);
    }

    ts->tv_sec  = (time_t)(ns / 1000000000ull);
    ts->tv_nsec = (long)(ns % 1000000000ull);
    return 0;
}

CUEMU_EXPORT int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
    uint64_t ns = cuemu_emulated_ns(CLOCK_REALTIME);

    if (ns == 0) {
        return (int)cuemu_libc_syscall(SYS_gettimeofday, tv, tz);
    }

    tv->tv_sec  = (time_t)(ns / 1000000000ull);
    tv->tv_usec = (suseconds_t)(ns / 1000ull % 1000000ull);
    if (tz != NULL) {
        memset(tz, 0, sizeof(struct timezone));
    }

    return 0;
}

CUEMU_EXPORT time_t time(time_t *result)
{
    struct timespec ts = {0, 0};

    clock_gettime(CLOCK_REALTIME, &ts);
    if (result != NULL) {
        *result = ts.tv_sec;
    }

    return ts.tv_sec;
}
