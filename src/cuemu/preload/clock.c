/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Programs of an emulated node read the emulated clock: the functions of libc
 * that tell the time are stood in for here. Sleeping and waiting stay in real
 * time. Without a session everything passes through.
 */
#include "../driver/cuemu_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CUEMU_EXPORT __attribute__((visibility("default")))

/* How often, in real time, to look whether a session has come into being */
#define CUEMU_LOOK_NS 1000000ull

/* UCX reads the processor's time stamps itself, unless told not to. */
CUEMU_EXPORT int ucs_arch_x86_enable_rdtsc = 0;

static const cuemu_shared_t *cuemu_view;
static uint64_t cuemu_next_look_ns;


/*
 * Everything by plain system calls: this runs while a memory hook is being put
 * into mmap() and its like, by the very thread that puts it there and waits,
 * clock in hand, until nobody is inside.
 */
static int cuemu_real_gettime(clockid_t id, struct timespec *ts)
{
    return (int)syscall(SYS_clock_gettime, id, ts);
}

/* The session's state, read-only; NULL as long as there is none. */
static const cuemu_shared_t *cuemu_find_session(void)
{
    const cuemu_shared_t *view = __atomic_load_n(&cuemu_view, __ATOMIC_ACQUIRE);
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
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }

    ptr = -1;
    if ((syscall(SYS_fstat, fd, &st) == 0) &&
        ((size_t)st.st_size >= sizeof(*view))) {
        ptr = syscall(SYS_mmap, NULL, sizeof(*view), PROT_READ, MAP_SHARED, fd,
                      0L);
    }
    syscall(SYS_close, fd);
    if (ptr == -1) {
        return NULL;
    }

    view = (const cuemu_shared_t*)ptr;
    if (view->magic != CUEMU_SESSION_MAGIC) {
        syscall(SYS_munmap, ptr, sizeof(*view));
        return NULL;
    }

    __atomic_store_n(&cuemu_view, view, __ATOMIC_RELEASE);
    return view;
}

/* Emulated nanoseconds of the given clock's epoch; 0 if it is a real clock. */
static uint64_t cuemu_emulated_ns(clockid_t id)
{
    const cuemu_shared_t *view;
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
        return 0; /* CPU time of processes and threads, and what is unknown */
    }

    saved_errno = errno;
    view        = cuemu_find_session();
    errno       = saved_errno;
    if (view == NULL) {
        return 0;
    }

    epoch = ((id == CLOCK_REALTIME) || (id == CLOCK_REALTIME_COARSE)) ?
            view->real_epoch_ns : view->mono_epoch_ns;
    ns    = (uint64_t)(cuemu_clock_now(&view->clock, NULL) / CUEMU_PS_PER_NS);
    return epoch + ns;
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
        return (int)syscall(SYS_gettimeofday, tv, tz);
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
