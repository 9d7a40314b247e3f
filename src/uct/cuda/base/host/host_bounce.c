/* SPDX-License-Identifier: BSD-3-Clause */
/* One block of slots for the process, and a bit for each free slot. */
#include <uct/cuda/base/host/host_bounce.h>

#include <uct/cuda/base/host/host_block.h>
#include <uct/cuda/base/host/host_limits.h>

#include <pthread.h>
#include <stdint.h>


#define BLOCK_SIZE (UCT_CUDA_HOST_BOUNCE_SLOTS * UCT_CUDA_HOST_BOUNCE_MAX_SIZE)
#define ALL_SLOTS  ((UINT32_C(1) << UCT_CUDA_HOST_BOUNCE_SLOTS) - 1)

static struct {
    pthread_mutex_t       lock;
    uct_cuda_host_block_t block;
    uint32_t              free;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .free = ALL_SLOTS};


void *uct_cuda_host_bounce_get(size_t length)
{
    void *slot = NULL;
    unsigned index;

    if (length > UCT_CUDA_HOST_BOUNCE_MAX_SIZE) {
        return NULL;
    }

    pthread_mutex_lock(&pool.lock);
    if ((uct_cuda_host_block_lock(&pool.block, BLOCK_SIZE) == UCS_OK) &&
        (pool.free != 0)) {
        index      = (unsigned)__builtin_ctz(pool.free);
        pool.free &= ~(UINT32_C(1) << index);
        slot       = pool.block.memory +
                     (index * UCT_CUDA_HOST_BOUNCE_MAX_SIZE);
    }

    pthread_mutex_unlock(&pool.lock);
    return slot;
}

void uct_cuda_host_bounce_put(void *slot)
{
    size_t index;

    pthread_mutex_lock(&pool.lock);
    index      = (size_t)((char*)slot - pool.block.memory) /
                 UCT_CUDA_HOST_BOUNCE_MAX_SIZE;
    pool.free |= UINT32_C(1) << index;
    pthread_mutex_unlock(&pool.lock);
}
