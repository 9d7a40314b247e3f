/* SPDX-License-Identifier: BSD-3-Clause */
/* One block of slots for the process, and a bit for each that is free. */
#include <uct/cuda/base/host_bounce.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>


#define BLOCK_SIZE (UCT_CUDA_HOST_BOUNCE_SLOTS * UCT_CUDA_HOST_BOUNCE_SIZE)
#define ALL_SLOTS  ((UINT32_C(1) << UCT_CUDA_HOST_BOUNCE_SLOTS) - 1)

static struct {
    pthread_mutex_t    lock;
    char               *block;    /* NULL: not mapped yet */
    uint32_t           free;
    bool               is_known;  /* what becomes of it in ... */
    bool               is_locked; /* ... this context: */
    CUcontext          context;
    unsigned long long context_id;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* The lock is held */
static void pool_lock_pages(void)
{
    void *block;

    pool.is_locked = false;
    pool.is_known  = (uct_cuda_ctx_current(&pool.context, &pool.context_id) ==
                     UCS_OK);
    if (!pool.is_known) {
        return;
    }

    if (pool.block == NULL) {
        block = mmap(NULL, BLOCK_SIZE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) {
            return;
        }

        /* A page shared with a child is another one after the next write, and
         * the GPU has the old one */
        (void)madvise(block, BLOCK_SIZE, MADV_DONTFORK);
        pool.block = block;
        pool.free  = ALL_SLOTS;
    }

    pool.is_locked = (UCT_CUDA_CALL_NOLOG(cuMemHostRegister, pool.block,
                                          BLOCK_SIZE,
                                          CU_MEMHOSTREGISTER_PORTABLE) ==
                      UCS_OK);
    if (!pool.is_locked) {
        uct_cuda_debug("no page-locked memory for small copies from GPUs");
    }
}

void *uct_cuda_host_bounce_get(size_t length)
{
    void *slot = NULL;
    unsigned index;

    if (length > UCT_CUDA_HOST_BOUNCE_SIZE) {
        return NULL;
    }

    pthread_mutex_lock(&pool.lock);
    if (!pool.is_known ||
        !uct_cuda_ctx_is_alive(pool.context, pool.context_id)) {
        pool_lock_pages();
    }

    if (pool.is_locked && (pool.free != 0)) {
        index      = (unsigned)__builtin_ctz(pool.free);
        pool.free &= ~(UINT32_C(1) << index);
        slot       = pool.block + (index * UCT_CUDA_HOST_BOUNCE_SIZE);
    }

    pthread_mutex_unlock(&pool.lock);
    return slot;
}

void uct_cuda_host_bounce_put(void *slot)
{
    size_t index;

    pthread_mutex_lock(&pool.lock);
    index      = (size_t)((char*)slot - pool.block) / UCT_CUDA_HOST_BOUNCE_SIZE;
    pool.free |= UINT32_C(1) << index;
    pthread_mutex_unlock(&pool.lock);
}
