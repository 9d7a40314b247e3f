/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/pool.h>

#include <mpi/module.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>


#define BLOCK_MIN   ((size_t)64 << 10)
#define BLOCK_STEP  ((size_t)64 << 20) /* size of larger blocks: a multiple */
#define POOL_MAX    ((size_t)1 << 30)
#define POOL_TEXT   "1 GiB" /* POOL_MAX for users */
#define PAGE        ((size_t)4096)
#define SLOW_MIN    ((size_t)1 << 20) /* smallest pageable block to log */


static struct {
    pthread_mutex_t    lock;
    ucx_mp_mpi_block_t *idle;
    size_t             size; /* bytes of all cached blocks, in use or idle */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};


ucx_mp_mpi_block_t *ucx_mp_mpi_block_take(ucx_mp_mpi_block_t **list,
                                          size_t size, size_t limit)
{
    ucx_mp_mpi_block_t **link, **best = NULL;
    ucx_mp_mpi_block_t *block;

    for (link = list; *link != NULL; link = &(*link)->next) {
        if (((*link)->size >= size) && ((*link)->size <= limit) &&
            ((best == NULL) || ((*link)->size < (*best)->size))) {
            best = link;
        }
    }

    if (best == NULL) {
        return NULL;
    }

    block = *best;
    *best = block->next;
    return block;
}

static ucx_mp_mpi_block_t *block_new(size_t size, bool is_kept)
{
    ucx_mp_mpi_block_t *block = calloc(1, sizeof(*block));

    if (block == NULL) {
        return NULL;
    }

    /* untouched pages, such as gaps of a datatype, use no memory */
    block->address = mmap(NULL, size, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block->address == MAP_FAILED) {
        free(block);
        return NULL;
    }

    /* Keep the memory out of a forked child. With copy-on-write, the first
       writer would get a new page, and the GPU would keep using the old one. */
    (void)madvise(block->address, size, MADV_DONTFORK);
    block->size    = size;
    block->is_kept = is_kept;
    return block;
}

/* Return the size of a cached block for `size` bytes: few sizes, since idle
   blocks stay page-locked. */
static size_t block_size(size_t size)
{
    size_t rounded = BLOCK_MIN;

    if (size > BLOCK_STEP) {
        return (size + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP;
    }

    while (rounded < size) {
        rounded *= 2;
    }
    return rounded;
}

/* Take an idle block, at most four times as large as needed while the pool may
   grow, or reserve room in the pool for a new one. Blocks are never unlocked
   and freed: cuMemHostUnregister() would wait for the program's kernels.
   @return NULL: make a block, and cache it if `*is_kept_p`. */
static ucx_mp_mpi_block_t *pool_take(size_t rounded, bool *is_kept_p)
{
    ucx_mp_mpi_block_t *block;

    pthread_mutex_lock(&pool.lock);
    *is_kept_p = false;
    block      = ucx_mp_mpi_block_take(&pool.idle, rounded, 4 * rounded);
    if ((block == NULL) && (pool.size + rounded <= POOL_MAX)) {
        *is_kept_p = true;
        pool.size += rounded;
    } else if (block == NULL) {
        block = ucx_mp_mpi_block_take(&pool.idle, rounded, POOL_MAX);
    }
    pthread_mutex_unlock(&pool.lock);
    return block;
}

/* Return a cached block for `size` bytes, not yet page-locked if it is new;
   NULL: no room in the pool, or no memory. */
static ucx_mp_mpi_block_t *pool_get_kept(size_t size)
{
    const size_t rounded = block_size(size);
    ucx_mp_mpi_block_t *block;
    bool is_kept;

    block = pool_take(rounded, &is_kept);
    if ((block != NULL) || !is_kept) {
        return block;
    }

    block = block_new(rounded, true);
    if (block == NULL) {
        pthread_mutex_lock(&pool.lock);
        pool.size -= rounded;
        pthread_mutex_unlock(&pool.lock);
    }
    return block;
}

/* Log the first pageable block of this process; `why` ends the sentence. */
static void log_pageable(size_t size, const char *why)
{
    static bool is_logged;
    const uct_cuda_coll_api_t *api = ucx_mp_mpi_module();
    char text[192];

    if ((size < SLOW_MIN) || (api == NULL) ||
        __atomic_exchange_n(&is_logged, true, __ATOMIC_RELAXED)) {
        return;
    }

    snprintf(text, sizeof(text), "MPI call staged %zu MiB through pageable "
             "memory, several times slower than page-locked: %s", size >> 20,
             why);
    api->note(text);
}

static ucx_mp_mpi_block_t *block_new_pageable(size_t size, bool is_dense)
{
    if (is_dense) {
        log_pageable(size, "a process page-locks at most " POOL_TEXT
                           "; split the call");
    }
    /* mmap() refuses 0 bytes */
    return block_new((size + (size == 0) + PAGE - 1) & ~(PAGE - 1), false);
}

/* Page-lock a cached block, unless the driver has refused it before. After a
   failed copy do not try it; this does not count as a refusal. */
static void block_lock(ucx_mp_mpi_block_t *block, size_t size,
                       ucx_mp_mpi_copy_t *copy)
{
    if (!block->is_kept || block->is_refused ||
        (copy->result != CUDA_SUCCESS)) {
        return;
    }

    block->is_refused = !ucx_mp_mpi_copy_lock(copy, block->address,
                                              block->size);
    if (block->is_refused) {
        log_pageable(size, "the driver does not page-lock more memory");
    }
}

ucx_mp_mpi_block_t *ucx_mp_mpi_pool_get(size_t size, size_t used,
                                        ucx_mp_mpi_copy_t *copy)
{
    const bool is_dense       = (used >= size / 2);
    ucx_mp_mpi_block_t *block = NULL;

    if (size > SIZE_MAX - PAGE) {
        return NULL;
    }

    if ((size <= BLOCK_STEP) || ((size <= POOL_MAX) && is_dense)) {
        block = pool_get_kept(size);
    }
    if (block == NULL) {
        block = block_new_pageable(size, is_dense);
    }
    if (block != NULL) {
        block_lock(block, size, copy);
    }
    return block;
}

bool ucx_mp_mpi_block_is_mapped(const ucx_mp_mpi_block_t *block)
{
    return (block->context != NULL) ||
           (block->is_kept && !block->is_refused &&
            ucx_mp_mpi_copy_is_mapped(block->address));
}

void ucx_mp_mpi_pool_put(ucx_mp_mpi_block_t *block)
{
    if (block->is_kept) {
        pthread_mutex_lock(&pool.lock);
        block->next = pool.idle;
        pool.idle   = block;
        pthread_mutex_unlock(&pool.lock);
        return;
    }

    munmap(block->address, block->size);
    free(block);
}
