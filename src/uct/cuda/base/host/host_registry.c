/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sorted array of regions that do not overlap, under a lock that is held for
 * moments: never around a call of the driver, of malloc() or of free(), since
 * any of them may unmap memory and come back here.
 *
 * Memory that is unmapped is unlocked before its address can be used again.
 * The hook runs inside munmap(), which malloc() may have called with its locks
 * held, or the driver with its own, so that it can call neither: a thread of
 * ours unlocks, and the hook waits for it. Should that thread need a lock that
 * the unmapping one holds, the wait ends after a while.
 */
#include <uct/cuda/base/host/host_registry.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/thread.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>


#define MAX_REGIONS 4096

/* Pageable buffers whose copies are counted; those that share a slot drive each
 * other out */
#define USAGE_SLOTS 512

/* Part of the price of locking a buffer that its copies have to lose first:
 * how often it will come again is not known, and this spends at worst three
 * times what was needed. Messages come from the same buffers mostly: large ones
 * are locked when they come for the second time. */
#define USAGE_THRESHOLD 0.5

/* After a refusal this many times the price has to be lost */
#define USAGE_REFUSED_FACTOR 1000

/* How long an unmapping waits for one region to be unlocked: 64 MiB take 1.5 ms
 * (measured), and more on an emulated node */
#define MAX_YIELDS 100
#define MAX_WAITS  200 /* milliseconds */

typedef enum {
    REGION_LOCKING, /* The driver is at it */
    REGION_LOCKED,
    REGION_GOING,   /* To be unlocked by the thread, or being so */
    REGION_GONE     /* Out of the array, freed with its last user */
} region_state_t;

struct uct_cuda_host_region {
    uintptr_t              start;
    uintptr_t              end;
    region_state_t         state;
    bool                   is_kept; /* Stays locked without users */
    unsigned               users;
    CUcontext              context; /* It was registered in */
    unsigned long long     context_id;
    uct_cuda_host_region_t *next;   /* To be unlocked by our thread */
};

typedef struct {
    uintptr_t address;
    double    lost; /* Seconds that locked memory would have saved */
} usage_t;


static struct {
    pthread_mutex_t        lock;
    pthread_cond_t         work;  /* There is something to be unlocked */
    uct_cuda_host_region_t *regions[MAX_REGIONS];
    unsigned               count;
    uct_cuda_host_region_t *going;
    usage_t                usage[USAGE_SLOTS];
    size_t                 size;  /* Locked, bytes */
    size_t                 max_size;
    bool                   is_hooked;
    bool                   is_foreign; /* A process that was forked off */
    bool                   has_thread;
    pthread_t              thread;
    uintptr_t              low;   /* All addresses that were ever noted lie */
    uintptr_t              high;  /* between these */
} registry = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .low  = UINTPTR_MAX
};


static uintptr_t page_down(uintptr_t address)
{
    return address & ~(uct_cuda_host_page_size() - 1);
}

static uintptr_t page_up(uintptr_t address)
{
    return page_down(address + uct_cuda_host_page_size() - 1);
}

/* ------------------------------------------ which buffers are copied often */

/* All with the lock held */
static usage_t *usage_of(uintptr_t address)
{
    const uint64_t page = address / uct_cuda_host_page_size();

    return &registry.usage[((page * UINT64_C(0x9e3779b97f4a7c15)) >> 55) %
                           USAGE_SLOTS];
}

static double lock_price(size_t length)
{
    return UCT_CUDA_HOST_LOCK_TIME +
           ((double)length * UCT_CUDA_HOST_LOCK_TIME_PER_BYTE);
}

/* A buffer is about to be copied: does locking it pay by now? With at_once the
 * first time, because of how it would be copied otherwise, or because it goes
 * on behind memory that was copied often enough (the same buffer most likely,
 * with a longer message in it). */
static bool usage_add(uintptr_t address, size_t length, bool at_once)
{
    usage_t *usage = usage_of(address);

    if (usage->address != address) {
        usage->address = address;
        usage->lost    = 0;
    }

    if ((usage->lost >= USAGE_THRESHOLD * lock_price(length)) ||
        (at_once && (usage->lost >= 0))) {
        return true;
    }

    usage->lost += (double)length * UCT_CUDA_HOST_LOCK_SAVES_PER_BYTE;
    return false;
}

static void usage_refused(uintptr_t address, size_t length)
{
    usage_t *usage = usage_of(address);

    usage->address = address;
    usage->lost    = -USAGE_REFUSED_FACTOR * lock_price(length);
}

/* Buffers that begin in this range are gone */
static void usage_forget(uintptr_t start, uintptr_t end)
{
    static const usage_t none = {0, 0};
    unsigned i;

    for (i = 0; i < USAGE_SLOTS; ++i) {
        if ((registry.usage[i].address >= start) &&
            (registry.usage[i].address < end)) {
            registry.usage[i] = none;
        }
    }
}


/* ----------------------------------------------------------------- regions */

/* First region that ends behind an address; the lock is held */
static unsigned region_find(uintptr_t address)
{
    unsigned low = 0, high = registry.count, middle;

    while (low < high) {
        middle = (low + high) / 2;
        if (registry.regions[middle]->end > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }

    return low;
}

static void region_insert(unsigned index, uct_cuda_host_region_t *region)
{
    memmove(&registry.regions[index + 1], &registry.regions[index],
            (registry.count - index) * sizeof(registry.regions[0]));
    registry.regions[index] = region;
    ++registry.count;
    registry.size += region->end - region->start;
}

static void region_remove(uct_cuda_host_region_t *region)
{
    const unsigned index = region_find(region->start);

    memmove(&registry.regions[index], &registry.regions[index + 1],
            (registry.count - index - 1) * sizeof(registry.regions[0]));
    --registry.count;
    registry.size -= region->end - region->start;
}

/* The hook looks at nothing outside of these; the lock is held */
static void note_range(uintptr_t start, uintptr_t end)
{
    if (start < registry.low) {
        __atomic_store_n(&registry.low, start, __ATOMIC_RELAXED);
    }
    if (end > registry.high) {
        __atomic_store_n(&registry.high, end, __ATOMIC_RELAXED);
    }
}

static CUresult driver_unregister(const uct_cuda_host_region_t *region)
{
    CUresult result;

    /* A context takes what was registered in it along */
    if (!uct_cuda_ctx_push_alive(region->context, region->context_id)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }

    result = uct_cuda_driver_get()->cuMemHostUnregister((void*)region->start);
    uct_cuda_ctx_pop();
    return result;
}

/* Unlocks a region that is going and takes it out; the lock is held, and given
 * up meanwhile */
static void region_destroy(uct_cuda_host_region_t *region)
{
    CUresult result;
    bool is_unused;

    pthread_mutex_unlock(&registry.lock);
    result = driver_unregister(region);
    if (result != CUDA_SUCCESS) {
        uct_cuda_debug("memory at %#lx could not be unlocked: %s",
                       (unsigned long)region->start,
                       uct_cuda_result_name(result));
    }

    pthread_mutex_lock(&registry.lock);
    region_remove(region);
    region->state = REGION_GONE;
    is_unused     = (region->users == 0);
    pthread_mutex_unlock(&registry.lock);
    if (is_unused) {
        free(region);
    }
    pthread_mutex_lock(&registry.lock);
}

static void *unlock_thread(void *arg)
{
    uct_cuda_host_region_t *region;

    pthread_mutex_lock(&registry.lock);
    for (;;) {
        while ((region = registry.going) == NULL) {
            pthread_cond_wait(&registry.work, &registry.lock);
        }

        registry.going = region->next;
        region_destroy(region);
    }

    return NULL;
}

/* Does a region of the range wait to be unlocked? */
static bool is_going(uintptr_t start, uintptr_t end)
{
    unsigned i;

    for (i = region_find(start);
         (i < registry.count) && (registry.regions[i]->start < end); ++i) {
        if (registry.regions[i]->state == REGION_GOING) {
            return true;
        }
    }

    return false;
}

/* The lock is held, and given up meanwhile */
static void wait_for_thread(uintptr_t start, uintptr_t end)
{
    unsigned waits = 0;
    unsigned count = registry.count;

    while (is_going(start, end) && (waits < MAX_YIELDS + MAX_WAITS)) {
        pthread_mutex_unlock(&registry.lock);
        if (waits < MAX_YIELDS) {
            sched_yield();
        } else {
            (void)poll(NULL, 0, 1);
        }
        pthread_mutex_lock(&registry.lock);

        /* The longest time is that of one region */
        waits = (registry.count < count) ? 0 : waits + 1;
        count = registry.count;
    }
}

/* Called before memory goes, inside munmap() and the like */
static void on_unmap(void *address, size_t length)
{
    const uintptr_t start = (uintptr_t)address;
    const uintptr_t end   = start + length;
    uct_cuda_host_region_t *region;
    bool is_any = false;
    unsigned i;

    if ((end <= __atomic_load_n(&registry.low, __ATOMIC_RELAXED)) ||
        (start >= __atomic_load_n(&registry.high, __ATOMIC_RELAXED)) ||
        registry.is_foreign ||
        !__atomic_load_n(&registry.has_thread, __ATOMIC_ACQUIRE)) {
        return;
    }

    pthread_mutex_lock(&registry.lock);
    usage_forget(start, end);
    for (i = region_find(start);
         (i < registry.count) && (registry.regions[i]->start < end); ++i) {
        region = registry.regions[i];
        if (region->state == REGION_LOCKED) {
            region->state  = REGION_GOING;
            region->next   = registry.going;
            registry.going = region;
            is_any         = true;
            usage_forget(region->start, region->end);
        } else if (region->state == REGION_LOCKING) {
            region->is_kept = false; /* It goes with its first user */
        }
    }

    if (is_any) {
        pthread_cond_signal(&registry.work);
        if (!pthread_equal(pthread_self(), registry.thread)) {
            wait_for_thread(start, end);
        }
    }
    pthread_mutex_unlock(&registry.lock);
}

/* The driver is of no use in a child, and what it locked is the parent's */
static void on_fork(void)
{
    registry.is_foreign = true;
}

static void enable_once(void)
{
    if (uct_abi_on_unmap(on_unmap) != UCS_OK) {
        uct_cuda_debug("no hooks on unmapping: pageable memory is not locked");
        return;
    }

    if (uct_cuda_thread_start(unlock_thread, NULL, &registry.thread)) {
        (void)pthread_detach(registry.thread);
        __atomic_store_n(&registry.has_thread, true, __ATOMIC_RELEASE);
        registry.is_hooked = (pthread_atfork(NULL, NULL, on_fork) == 0);
    }
}

void uct_cuda_host_registry_limit(size_t max_size)
{
    pthread_mutex_lock(&registry.lock);
    __atomic_store_n(&registry.max_size, max_size, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&registry.lock);
}

/*
 * Locks a range of whole pages that no region covers; call without the lock.
 *
 * @return UCS_OK: it is a region now, held by the caller.
 *         UCS_ERR_BUSY: something else is there by now, look again.
 */
static ucs_status_t
region_create(uintptr_t start, uintptr_t end, uct_cuda_host_region_t **region_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_host_region_t *region;
    CUresult result;
    unsigned index;

    region = calloc(1, sizeof(*region));
    if (region == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    region->start   = start;
    region->end     = end;
    region->state   = REGION_LOCKING;
    region->is_kept = true;
    if (uct_cuda_ctx_current(&region->context, &region->context_id) !=
        UCS_OK) {
        free(region);
        return UCS_ERR_NO_DEVICE;
    }

    pthread_mutex_lock(&registry.lock);
    index = region_find(start);
    if ((index < registry.count) && (registry.regions[index]->start < end)) {
        pthread_mutex_unlock(&registry.lock);
        free(region);
        return UCS_ERR_BUSY;
    }

    if ((registry.count == MAX_REGIONS) ||
        (registry.size + (end - start) > registry.max_size)) {
        pthread_mutex_unlock(&registry.lock);
        free(region);
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    region_insert(index, region);
    note_range(start, end);
    pthread_mutex_unlock(&registry.lock);

    result = driver->cuMemHostRegister((void*)start, end - start,
                                       CU_MEMHOSTREGISTER_PORTABLE);

    pthread_mutex_lock(&registry.lock);
    if (result != CUDA_SUCCESS) {
        region_remove(region);
        pthread_mutex_unlock(&registry.lock);
        free(region);
        uct_cuda_debug("cannot page-lock %zu bytes at %#lx: %s", end - start,
                       (unsigned long)start, uct_cuda_result_name(result));
        return (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) ?
                       UCS_ERR_ALREADY_EXISTS :
                       UCS_ERR_IO_ERROR;
    }

    region->state = REGION_LOCKED;
    region->users = 1;
    *region_p     = region;
    pthread_mutex_unlock(&registry.lock);
    return UCS_OK;
}

void uct_cuda_host_region_release(uct_cuda_host_region_t *region)
{
    bool is_gone;

    if (registry.is_foreign) {
        return;
    }

    pthread_mutex_lock(&registry.lock);
    is_gone = (--region->users == 0) && (region->state == REGION_GONE);
    if ((region->users == 0) && (region->state == REGION_LOCKED) &&
        !region->is_kept) {
        region->state = REGION_GOING;
        region_destroy(region);
    }
    pthread_mutex_unlock(&registry.lock);

    if (is_gone) {
        free(region);
    }
}

/*
 * Finds and holds the region at an address, or the gap there; the lock is held.
 *
 * @param is_busy_p  Another thread is at work on the region: it is not held.
 *                   Nobody waits for that, since unlocking may wait for the
 *                   program's kernels.
 *
 * @return Bytes up to the end of the region or gap, @a length at most.
 */
static size_t region_hold(uintptr_t address, size_t length, bool *is_busy_p,
                          uct_cuda_host_region_t **region_p)
{
    const unsigned index = region_find(address);
    uct_cuda_host_region_t *region;
    uintptr_t end;

    *is_busy_p = false;
    *region_p  = NULL;
    if (index == registry.count) {
        return length;
    }

    region = registry.regions[index];
    end    = region->start;
    if (region->start <= address) {
        end        = region->end;
        *is_busy_p = (region->state != REGION_LOCKED);
        if (!*is_busy_p) {
            ++region->users;
            *region_p = region;
        }
    }

    return (end - address < length) ? end - address : length;
}

/* Length of a piece of memory that is not ours: what was locked elsewhere
 * (@a is_pinned) does not end within */
static size_t foreign_piece(uintptr_t address, size_t length, bool *is_pinned)
{
    uct_cuda_memory_t memory;
    size_t left;

    uct_cuda_memory_query((void*)address, length, &memory);
    *is_pinned = (memory.type != UCS_MEMORY_TYPE_HOST) || memory.is_pinned;
    if (memory.is_pinned && (memory.base <= address) &&
        (address - memory.base < memory.length)) {
        left = memory.length - (address - memory.base);
        return (left < length) ? left : length;
    }

    return length;
}

/* Was the memory in front of an address locked because it was copied often? The
 * lock is held. */
static bool follows_kept(uintptr_t address)
{
    const unsigned index = region_find(address - 1);
    const uct_cuda_host_region_t *region;

    if (index == registry.count) {
        return false;
    }

    region = registry.regions[index];
    return (region->start < address) && (region->state == REGION_LOCKED) &&
           region->is_kept;
}

static void lazy_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, enable_once);
}

size_t uct_cuda_host_registry_next(const void *address, size_t length,
                                   bool at_once, bool *is_locked_p,
                                   bool *is_busy_p,
                                   uct_cuda_host_region_t **region_p)
{
    const uintptr_t start = (uintptr_t)address;
    ucs_status_t status;
    uintptr_t end;
    bool is_worth;
    size_t piece;

    for (;;) {
        *is_locked_p = true;
        pthread_mutex_lock(&registry.lock);
        piece = region_hold(start, length, is_busy_p, region_p);
        pthread_mutex_unlock(&registry.lock);
        if ((*region_p != NULL) || *is_busy_p) {
            *is_locked_p = !*is_busy_p;
            return piece;
        }

        piece = foreign_piece(start, piece, is_locked_p);
        if (*is_locked_p || registry.is_foreign ||
            (__atomic_load_n(&registry.max_size, __ATOMIC_RELAXED) == 0)) {
            return piece;
        }

        lazy_start();
        if (!registry.is_hooked) {
            return piece;
        }

        if (piece > UCT_CUDA_HOST_LOCK_MAX_SIZE) {
            piece = UCT_CUDA_HOST_LOCK_MAX_SIZE;
        }
        end = start + piece;

        pthread_mutex_lock(&registry.lock);
        note_range(start, end);
        is_worth = usage_add(start, piece, at_once || follows_kept(start));
        pthread_mutex_unlock(&registry.lock);
        if (!is_worth) {
            return piece;
        }

        status = region_create(page_down(start), page_up(end), region_p);
        if (status == UCS_OK) {
            *is_locked_p = true;
            return piece;
        } else if (status != UCS_ERR_BUSY) {
            pthread_mutex_lock(&registry.lock);
            usage_refused(start, piece);
            pthread_mutex_unlock(&registry.lock);
            return piece;
        }
    }
}

unsigned uct_cuda_host_registry_count(void)
{
    unsigned count;

    pthread_mutex_lock(&registry.lock);
    count = registry.count;
    pthread_mutex_unlock(&registry.lock);
    return count;
}
