/* SPDX-License-Identifier: BSD-3-Clause */

/* Objects behind handles, and the lock of all tables of this process. */
#include "cuemu_object.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUEMU_CHUNK_OBJECTS 64

typedef struct cuemu_chunk {
    struct cuemu_chunk *next;
    char               *begin, *end;
} cuemu_chunk_t;

typedef struct {
    size_t          size;
    cuemu_chunk_t  *chunks;
    cuemu_object_t *free_head, *free_tail; /* oldest first */
    unsigned        live;
} cuemu_object_pool_t;

static cuemu_object_pool_t cuemu_pools[CUEMU_OBJ_LAST];
static pthread_mutex_t cuemu_pools_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t cuemu_tables_lock = PTHREAD_MUTEX_INITIALIZER;


void cuemu_lock(void)
{
    pthread_mutex_lock(&cuemu_tables_lock);
}

void cuemu_unlock(void)
{
    pthread_mutex_unlock(&cuemu_tables_lock);
}

static void cuemu_object_put_free(cuemu_object_pool_t *pool,
                                  cuemu_object_t *obj)
{
    obj->type      = CUEMU_OBJ_FREE;
    obj->next_free = NULL;
    if (pool->free_tail != NULL) {
        pool->free_tail->next_free = obj;
    } else {
        pool->free_head = obj;
    }
    pool->free_tail = obj;
}

#define CUEMU_OBJ_STALE 0x100u /* added to the type of a retired object */

static int cuemu_object_grow(cuemu_object_pool_t *pool)
{
    cuemu_chunk_t *chunk = malloc(sizeof(*chunk));
    size_t i;

    if (chunk == NULL) {
        return -1;
    }

    chunk->begin = calloc(CUEMU_CHUNK_OBJECTS, pool->size);
    if (chunk->begin == NULL) {
        free(chunk);
        return -1;
    }

    chunk->end  = chunk->begin + CUEMU_CHUNK_OBJECTS * pool->size;
    chunk->next = pool->chunks;
    for (i = 0; i < CUEMU_CHUNK_OBJECTS; ++i) {
        cuemu_object_put_free(pool,
                              (cuemu_object_t*)(chunk->begin + i * pool->size));
    }

    __atomic_store_n(&pool->chunks, chunk, __ATOMIC_RELEASE);
    return 0;
}

void *cuemu_object_new(cuemu_obj_type_t type, size_t size)
{
    cuemu_object_pool_t *pool = &cuemu_pools[type];
    cuemu_object_t *obj       = NULL;

    pthread_mutex_lock(&cuemu_pools_lock);
    pool->size = (size + 15) & ~(size_t)15;
    if ((pool->free_head != NULL) || (cuemu_object_grow(pool) == 0)) {
        obj             = pool->free_head;
        pool->free_head = obj->next_free;
        if (pool->free_head == NULL) {
            pool->free_tail = NULL;
        }

        memset(obj, 0, size);
        obj->type = type;
        ++pool->live;
    }
    pthread_mutex_unlock(&cuemu_pools_lock);

    return obj;
}

void cuemu_object_delete(void *obj)
{
    cuemu_object_t *object = obj;

    pthread_mutex_lock(&cuemu_pools_lock);
    --cuemu_pools[object->type].live;
    cuemu_object_put_free(&cuemu_pools[object->type], object);
    pthread_mutex_unlock(&cuemu_pools_lock);
}

unsigned cuemu_object_count(cuemu_obj_type_t type)
{
    unsigned live;

    pthread_mutex_lock(&cuemu_pools_lock);
    live = cuemu_pools[type].live;
    pthread_mutex_unlock(&cuemu_pools_lock);
    return live;
}

void cuemu_object_retire(void *obj)
{
    cuemu_object_t *object = obj;

    pthread_mutex_lock(&cuemu_pools_lock);
    --cuemu_pools[object->type].live;
    object->type |= CUEMU_OBJ_STALE;
    pthread_mutex_unlock(&cuemu_pools_lock);
}

void cuemu_object_revive(void *obj)
{
    cuemu_object_t *object = obj;

    pthread_mutex_lock(&cuemu_pools_lock);
    object->type &= ~CUEMU_OBJ_STALE;
    ++cuemu_pools[object->type].live;
    pthread_mutex_unlock(&cuemu_pools_lock);
}

/* Return the type of the object at an address, with CUEMU_OBJ_STALE if it was
   retired; FREE if it was deleted, or the address is no object of the type's
   pool. */
static uint32_t cuemu_object_type(const void *handle, cuemu_obj_type_t type)
{
    cuemu_object_pool_t *pool = &cuemu_pools[type];
    const char *p             = handle;
    const cuemu_chunk_t *chunk;

    for (chunk = __atomic_load_n(&pool->chunks, __ATOMIC_ACQUIRE);
         chunk != NULL; chunk = chunk->next) {
        if ((p >= chunk->begin) && (p < chunk->end)) {
            return ((size_t)(p - chunk->begin) % pool->size != 0) ?
                   CUEMU_OBJ_FREE : ((const cuemu_object_t*)handle)->type;
        }
    }

    return CUEMU_OBJ_FREE;
}

void *cuemu_object_check(const void *handle, cuemu_obj_type_t type)
{
    return (cuemu_object_type(handle, type) == (uint32_t)type) ? (void*)handle :
                                                                 NULL;
}

int cuemu_object_is_stale(const void *handle, cuemu_obj_type_t type)
{
    return cuemu_object_type(handle, type) == ((uint32_t)type |
                                               CUEMU_OBJ_STALE);
}

void *cuemu_object_next(cuemu_obj_type_t type, const void *after)
{
    cuemu_object_pool_t *pool = &cuemu_pools[type];
    int found                 = (after == NULL);
    const cuemu_chunk_t *chunk;
    char *p;

    for (chunk = __atomic_load_n(&pool->chunks, __ATOMIC_ACQUIRE);
         chunk != NULL; chunk = chunk->next) {
        for (p = chunk->begin; p < chunk->end; p += pool->size) {
            if (found && (((cuemu_object_t*)p)->type == (uint32_t)type)) {
                return p;
            }
            found |= (p == after);
        }
    }

    return NULL;
}

void cuemu_die(const char *what, const void *handle)
{
    fprintf(stderr, "cuemu: %s %p: its context is gone; the real driver "
                    "crashes in this call, or never returns\n", what, handle);
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    abort();
}
