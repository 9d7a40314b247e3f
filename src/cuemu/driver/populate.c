/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Allocate file system space for GPU memory. If the file system is full,
 * touching a page of the file ends the program without a message, so this file
 * allocates the space before bytes move. The kernel takes longer to check the
 * pages of a range than to copy them. So each process remembers, for the
 * granules used last, which part it has allocated.
 */
#include "cuemu_populate.h"

#include "cuemu_session.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define CUEMU_POPULATE_PAGE ((uint64_t)4096)

/* The allocated part of a granule: one range, in bytes of GPU memory */
typedef struct {
    uint64_t begin;
    uint64_t end;
    uint64_t granule;   /* offset in granules */
    int32_t  gpu;
    uint32_t losses;    /* of the entry in the session at the allocation */
} cuemu_populated_t;

static cuemu_populated_t cuemu_populated[CUEMU_POPULATED];
static unsigned cuemu_populated_joins;  /* of the session that they are about */
static pthread_mutex_t cuemu_populated_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t cuemu_populate_min(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

/* Return the end of the granule of `at`, or `end` before it. */
static uint64_t cuemu_populate_next(uint64_t at, uint64_t end)
{
    return cuemu_populate_min(end, (at / CUEMU_GRANULE + 1) * CUEMU_GRANULE);
}

/* Return whether the space of the range, inside a granule, is known to be
   allocated. Otherwise the granule has an entry with the present number of
   losses afterwards. */
static int cuemu_populated_includes(int gpu, uint64_t begin, uint64_t end)
{
    const uint64_t granule   = begin / CUEMU_GRANULE;
    const unsigned index     = cuemu_session_loss(gpu, granule);
    cuemu_populated_t *range = &cuemu_populated[index];
    const uint32_t losses    =
            __atomic_load_n(&cuemu_session.shared->losses[index],
                            __ATOMIC_ACQUIRE);

    if ((range->gpu == gpu) && (range->granule == granule) &&
        (range->losses == losses)) {
        return (range->begin <= begin) && (end <= range->end);
    }

    *range = (cuemu_populated_t){.begin   = begin,
                                 .end     = begin,
                                 .granule = granule,
                                 .gpu     = gpu,
                                 .losses  = losses};
    return 0;
}

/* Record the space of a range inside a granule, after
   cuemu_populated_includes(). */
static void cuemu_populated_add(int gpu, uint64_t begin, uint64_t end)
{
    cuemu_populated_t *range = &cuemu_populated[cuemu_session_loss(
            gpu, begin / CUEMU_GRANULE)];

    if ((begin > range->end) || (end < range->begin)) {
        range->begin = begin;
        range->end   = end;
        return;
    }

    range->begin = cuemu_populate_min(range->begin, begin);
    range->end   = (range->end > end) ? range->end : end;
}

static int cuemu_populate_range(int gpu, uint64_t begin, uint64_t end)
{
#ifdef MADV_POPULATE_WRITE
    do {
        if (madvise(cuemu_session.memory[gpu] + begin, end - begin,
                    MADV_POPULATE_WRITE) == 0) {
            return 0;
        }
    } while (errno == EINTR);

    if (errno == EINVAL) { /* kernel older than 5.14 */
        return 0;
    }

    if (!__atomic_exchange_n(&cuemu_session.shared->failed, 1,
                             __ATOMIC_RELAXED)) {
        cuemu_session_no_space(end - begin, "a GPU's memory");
    }
    return -1;
#else
    return 0;
#endif
}

/* Allocate the space of those granules of the range that are not known to be
 * allocated. */
static int cuemu_populate_missing(int gpu, uint64_t begin, uint64_t end)
{
    uint64_t first = end, last = begin, at, next;

    if (cuemu_populated_joins != cuemu_session.joins) {
        memset(cuemu_populated, 0, sizeof(cuemu_populated));
        cuemu_populated_joins = cuemu_session.joins;
    }

    for (at = begin; at < end; at = next) {
        next = cuemu_populate_next(at, end);
        if (!cuemu_populated_includes(gpu, at, next)) {
            first = cuemu_populate_min(first, at);
            last  = next;
        }
    }

    if (first >= last) {
        return 0;
    }

    if (cuemu_populate_range(gpu, first, last) != 0) {
        return -1;
    }

    for (at = first; at < last; at = next) {
        next = cuemu_populate_next(at, last);
        cuemu_populated_add(gpu, at, next);
    }
    return 0;
}

int cuemu_populate(int gpu, uint64_t offset, uint64_t size)
{
    const uint64_t begin = offset & ~(CUEMU_POPULATE_PAGE - 1);
    const uint64_t end   = (offset + size + CUEMU_POPULATE_PAGE - 1) &
                           ~(CUEMU_POPULATE_PAGE - 1);
    int result;

    if ((gpu < 0) || (size == 0)) {
        return 0;
    }

    /* another thread has the lock, or had it when this process was forked; or
       granules of the range would share entries */
    if ((end - begin > CUEMU_GRANULE * (CUEMU_POPULATED / CUEMU_MAX_GPUS)) ||
        (pthread_mutex_trylock(&cuemu_populated_lock) != 0)) {
        return cuemu_populate_range(gpu, begin, end);
    }

    result = cuemu_populate_missing(gpu, begin, end);
    pthread_mutex_unlock(&cuemu_populated_lock);
    return result;
}
