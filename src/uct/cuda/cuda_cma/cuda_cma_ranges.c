/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/cuda_cma/cuda_cma_ranges.h>

#include <uct/cuda/base/range.h>

#include <pthread.h>
#include <stdlib.h>


typedef struct {
    uint64_t base;
    size_t   length; /* Bytes */
} host_range_t;

static struct {
    pthread_mutex_t lock; /* order: base/thread.h */
    host_range_t    *ranges;
    unsigned        count;
    unsigned        size;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};


static bool has_room(void)
{
    const unsigned size = 2 * shared.size + 16;
    host_range_t *ranges;

    if (shared.count < shared.size) {
        return true;
    }

    ranges = realloc(shared.ranges, size * sizeof(*ranges));
    if (ranges == NULL) {
        return false;
    }

    shared.ranges = ranges;
    shared.size   = size;
    return true;
}

bool uct_cuda_cma_ranges_add(uint64_t base, size_t length)
{
    bool is_added;

    pthread_mutex_lock(&shared.lock);
    is_added = has_room();
    if (is_added) {
        shared.ranges[shared.count++] = (host_range_t){base, length};
    }
    pthread_mutex_unlock(&shared.lock);
    return is_added;
}

void uct_cuda_cma_ranges_remove(uint64_t base, size_t length)
{
    unsigned i;

    pthread_mutex_lock(&shared.lock);
    for (i = 0; i < shared.count; ++i) {
        if ((shared.ranges[i].base == base) &&
            (shared.ranges[i].length == length)) {
            shared.ranges[i] = shared.ranges[--shared.count];
            break;
        }
    }
    pthread_mutex_unlock(&shared.lock);
}

bool uct_cuda_cma_ranges_find(uint64_t address, size_t length, uint64_t *base_p,
                              size_t *length_p)
{
    bool is_found = false;
    const host_range_t *range;
    unsigned i;

    pthread_mutex_lock(&shared.lock);
    for (i = 0; (i < shared.count) && !is_found; ++i) {
        range    = &shared.ranges[i];
        is_found = uct_cuda_range_holds(range->base, range->length, address,
                                        length);
        if (is_found) {
            *base_p   = range->base;
            *length_p = range->length;
        }
    }
    pthread_mutex_unlock(&shared.lock);
    return is_found;
}
