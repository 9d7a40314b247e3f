/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Read the processor time and the state of the node's processes from the
 * kernel. Use system calls only, no libc functions with locks: programs read
 * the clock in signal handlers and inside memory hooks.
 */
#define _GNU_SOURCE
#include "cuemu_core.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef int (*cuemu_clock_gettime_func_t)(clockid_t, struct timespec*);

typedef struct {
    uint64_t       ino;
    int64_t        off;
    unsigned short reclen;
    unsigned char  type;
    char           name[];
} cuemu_dirent_t; /* struct linux_dirent64 */

static int cuemu_process_kernel_clock(clockid_t id, struct timespec *ts)
{
    return (int)syscall(SYS_clock_gettime, id, ts);
}

/* The real time: the program's clock_gettime() may be interposed and show
   emulated time */
static cuemu_clock_gettime_func_t cuemu_process_clock =
        cuemu_process_kernel_clock;

/* Take libc's clock, which needs no system call. Only at load time: signal
   handlers and allocators, which also read the clock, cannot call dlsym(). */
static void __attribute__((constructor)) cuemu_process_init(void)
{
    void *libc   = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = (libc == NULL) ? NULL : dlsym(libc, "clock_gettime");

    if (symbol != NULL) {
        memcpy(&cuemu_process_clock, &symbol, sizeof(symbol));
    }
}

static uint64_t cuemu_process_ns(const struct timespec *ts)
{
    return (uint64_t)ts->tv_sec * 1000000000ul + (uint64_t)ts->tv_nsec;
}

static uint64_t cuemu_process_real_ns(void)
{
    struct timespec ts;

    cuemu_process_clock(CLOCK_MONOTONIC, &ts);
    return cuemu_process_ns(&ts);
}

static uint64_t cuemu_process_cpu_ns(int pid)
{
    /* clock_getcpuclockid() without its check that the process exists */
    clockid_t id = (clockid_t)((~(unsigned)pid << 3) | 2);
    struct timespec ts;

    return (syscall(SYS_clock_gettime, id, &ts) == 0) ? cuemu_process_ns(&ts) :
                                                        0;
}

static uint64_t cuemu_process_thread_ns(void)
{
    struct timespec ts;

    return (syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &ts) == 0) ?
                   cuemu_process_ns(&ts) : 0;
}

/* Read the first size - 1 bytes of a file and add a final zero. Return the
   number of bytes read, or -1. */
static long cuemu_process_read(const char *path, char *text, size_t size)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    long length;

    if (fd < 0) {
        return -1;
    }

    length = syscall(SYS_read, fd, text, size - 1);
    syscall(SYS_close, fd);
    if (length >= 0) {
        text[length] = '\0';
    }
    return length;
}

/* Return 1 if the thread runs or is ready to (R), or waits for a disk or memory
   (D), as any thread may for a moment; CUEMU_CLOCK_STOPPED if stopped by a
   signal or a debugger, or if it was the process's first thread and has ended;
   otherwise 0, also if another thread has ended. */
static int cuemu_process_task_runs(int pid, int tid)
{
    const int ended = (tid == pid) ? CUEMU_CLOCK_STOPPED : 0;
    char path[64], text[512];
    const char *state;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
    if (cuemu_process_read(path, text, sizeof(text)) <= 0) {
        return ended;
    }

    state = strrchr(text, ')');
    if ((state == NULL) || (state[1] != ' ')) {
        return 0;
    }
    return ((state[2] == 'T') || (state[2] == 't')) ? CUEMU_CLOCK_STOPPED :
           ((state[2] == 'Z') || (state[2] == 'X')) ? ended :
           ((state[2] == 'R') || (state[2] == 'D'));
}

static int cuemu_process_is_running(int pid, int tid, int service)
{
    int self = (int)syscall(SYS_gettid), running = 0, task, fd;
    const cuemu_dirent_t *entry;
    char path[64], list[2048];
    long bytes, at;

    if (tid != 0) {
        return cuemu_process_task_runs(pid, tid);
    }

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path,
                      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }

    while (!running &&
           ((bytes = syscall(SYS_getdents64, fd, list, sizeof(list))) > 0)) {
        for (at = 0; (at < bytes) && !running; at += entry->reclen) {
            entry = (const cuemu_dirent_t*)(const void*)(list + at);
            task  = atoi(entry->name);
            if ((task != 0) && (task != self) && (task != service)) {
                running = (cuemu_process_task_runs(pid, task) > 0);
            }
        }
    }
    syscall(SYS_close, fd);
    return running;
}

/* Return a number unique to this PID namespace; 0 without /proc. */
static uint64_t cuemu_process_space(void)
{
    static uint64_t space;
    struct stat st;

    if ((__atomic_load_n(&space, __ATOMIC_RELAXED) == 0) &&
        (stat("/proc/self/ns/pid", &st) == 0)) {
        __atomic_store_n(&space, (uint64_t)st.st_ino, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&space, __ATOMIC_RELAXED);
}

/* Return the time that the process's first thread has waited for a processor,
   ns: the second number of "processor time, waiting time, number of time
   slices". 0 if the kernel does not tell. */
static uint64_t cuemu_process_delay_ns(int pid)
{
    char path[64], text[128];
    const char *p;
    uint64_t ns = 0;

    snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
    if (cuemu_process_read(path, text, sizeof(text)) <= 0) {
        return 0;
    }

    p = strchr(text, ' ');
    for (p = (p == NULL) ? "" : p + 1; (*p >= '0') && (*p <= '9'); ++p) {
        ns = ns * 10 + (uint64_t)(*p - '0');
    }
    return ns;
}

static void cuemu_process_sleep(uint64_t ns)
{
    static __thread int is_exact __attribute__((tls_model("initial-exec")));
    const struct timespec ts = {0, (long)ns};

    if (!is_exact) {
        is_exact = 1;
        syscall(SYS_prctl, PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    }
    syscall(SYS_nanosleep, &ts, NULL);
}

static void cuemu_process_wait(uint32_t *word, uint32_t value, uint64_t ns)
{
    const struct timespec ts = {(time_t)(ns / 1000000000ull),
                                (long)(ns % 1000000000ull)};

    syscall(SYS_futex, word, FUTEX_WAIT, value, (ns == 0) ? NULL : &ts, NULL,
            0);
}

static void cuemu_process_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Processors for threads that spin: none with CUEMU_SPIN=n */
static int cuemu_process_num_processors(void)
{
    static int num = -1;
    unsigned long mask[128];
    long bytes, i;
    int count = __atomic_load_n(&num, __ATOMIC_RELAXED);
    const char *spin;

    if (count >= 0) {
        return count;
    }

    spin = getenv("CUEMU_SPIN");
    if ((spin != NULL) && (strcmp(spin, "n") == 0)) {
        __atomic_store_n(&num, 0, __ATOMIC_RELAXED);
        return 0;
    }

    count = 0;
    bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);
    for (i = 0; i < bytes / (long)sizeof(mask[0]); ++i) {
        count += __builtin_popcountl(mask[i]);
    }
    count = (count > 0) ? count : 1;
    __atomic_store_n(&num, count, __ATOMIC_RELAXED);
    return count;
}

const cuemu_clock_source_t cuemu_clock_processes = {
    .real_ns        = cuemu_process_real_ns,
    .cpu_ns         = cuemu_process_cpu_ns,
    .thread_ns      = cuemu_process_thread_ns,
    .is_running     = cuemu_process_is_running,
    .delay_ns       = cuemu_process_delay_ns,
    .sleep          = cuemu_process_sleep,
    .wait           = cuemu_process_wait,
    .wake           = cuemu_process_wake,
    .num_processors = cuemu_process_num_processors,
    .space          = cuemu_process_space
};

const cuemu_clock_source_t *cuemu_clock_source = &cuemu_clock_processes;
