/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/pool.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>


#define BLOCK_MIN   ((size_t)64 << 10)
#define BLOCK_MAX   ((size_t)64 << 20) /* larger blocks are not cached */
#define POOL_MAX    ((size_t)512 << 20)
#define PAGE        ((size_t)4096)


struct ucx_mp_mpi_block {
    ucx_mp_mpi_block_t *next; /* next idle block */
    void               *address;
    size_t             size;
    bool               is_kept;
    bool               is_refused; /* the driver could not page-lock it */
};

static struct {
    pthread_mutex_t    lock;
    ucx_mp_mpi_block_t *idle;
    size_t             size; /* bytes of all cached blocks, in use or idle */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* Take the smallest sufficient idle block, at most about four times as large
   as needed; NULL: none. The caller holds the lock. */
static ucx_mp_mpi_block_t *pool_find(size_t size)
{
    ucx_mp_mpi_block_t **link, **best = NULL;
    ucx_mp_mpi_block_t *block;

    for (link = &pool.idle; *link != NULL; link = &(*link)->next) {
        if (((*link)->size >= size) && ((*link)->size / 4 <= size) &&
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

void *ucx_mp_mpi_pool_get(size_t size, ucx_mp_mpi_copy_t *copy,
                          ucx_mp_mpi_block_t **block_p)
{
    ucx_mp_mpi_block_t *block = NULL;
    bool is_kept              = false;
    size_t rounded;

    if (size > SIZE_MAX - PAGE) {
        return NULL;
    }

    if (size <= BLOCK_MAX) {
        for (rounded = BLOCK_MIN; rounded < size; rounded *= 2) {
        }

        pthread_mutex_lock(&pool.lock);
        block = pool_find(rounded);
        if ((block == NULL) && (pool.size + rounded <= POOL_MAX)) {
            is_kept    = true;
            pool.size += rounded;
        }
        pthread_mutex_unlock(&pool.lock);
    } else {
        rounded = (size + PAGE - 1) & ~(PAGE - 1);
    }

    if (block == NULL) {
        block = block_new(rounded, is_kept);
    }
    if (block == NULL) {
        if (is_kept) {
            pthread_mutex_lock(&pool.lock);
            pool.size -= rounded;
            pthread_mutex_unlock(&pool.lock);
        }
        return NULL;
    }

    if (block->is_kept && !block->is_refused) {
        block->is_refused = !ucx_mp_mpi_copy_lock(copy, block->address,
                                                  block->size);
    }

    *block_p = block;
    return block->address;
}

bool ucx_mp_mpi_pool_is_mapped(const ucx_mp_mpi_block_t *block)
{
    return block->is_kept && !block->is_refused &&
           ucx_mp_mpi_copy_is_mapped(block->address);
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
