/* SPDX-License-Identifier: BSD-3-Clause */
/* Cached keys of allocations, until replaced. */
#include <uct/cuda/cuda_cma/cuda_cma_keys.h>

#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/range.h>

#include <string.h>


static void key_clear(uct_cuda_cma_key_t *key)
{
    if (key->rkey != NULL) {
        uct_cuda_node_rkey_destroy(key->rkey);
    }
    if (key->memh != NULL) {
        uct_cuda_node_memh_destroy(key->memh);
    }
    memset(key, 0, sizeof(*key));
}

static bool key_fill(uct_cuda_cma_keys_t *keys, uct_cuda_cma_key_t *key,
                     const uct_cuda_memory_t *memory)
{
    key_clear(key);
    if (uct_cuda_node_memh_create((void*)memory->base, memory->length,
                                  &key->memh) != UCS_OK) {
        key->memh = NULL;
        return false;
    }

    if (uct_cuda_node_rkey_pack(key->memh, NULL, 0, &key->packed) != UCS_OK) {
        key_clear(key);
        return false;
    }

    key->begin      = memory->base;
    key->size       = memory->length;
    key->buffer_id  = memory->buffer_id;
    key->is_unowned = (memory->context == NULL);
    key->serial     = ++keys->num_serials;
    return true;
}

uct_cuda_cma_key_t *uct_cuda_cma_keys_find(uct_cuda_cma_keys_t *keys,
                                           const void *address, size_t length)
{
    uct_cuda_cma_key_t *key;

    for (key = keys->keys; key < &keys->keys[UCT_CUDA_CMA_KEYS]; ++key) {
        if ((key->outstanding > 0) &&
            uct_cuda_range_holds(key->begin, key->size, (CUdeviceptr)address,
                                 length)) {
            key->last_use = ++keys->num_uses;
            return key;
        }
    }

    return NULL;
}

static uct_cuda_cma_key_t *
find_same(uct_cuda_cma_keys_t *keys, const uct_cuda_memory_t *memory)
{
    uct_cuda_cma_key_t *key;

    for (key = keys->keys; key < &keys->keys[UCT_CUDA_CMA_KEYS]; ++key) {
        if ((key->begin == memory->base) && (key->size == memory->length) &&
            (key->buffer_id == memory->buffer_id)) {
            return key;
        }
    }

    return NULL;
}

static uct_cuda_cma_key_t *find_oldest(uct_cuda_cma_keys_t *keys)
{
    uct_cuda_cma_key_t *oldest = NULL;
    unsigned i;

    for (i = 0; i < UCT_CUDA_CMA_KEYS; ++i) {
        if ((keys->keys[i].outstanding == 0) &&
            ((oldest == NULL) ||
             (keys->keys[i].last_use < oldest->last_use))) {
            oldest = &keys->keys[i];
        }
    }

    return oldest;
}

uct_cuda_cma_key_t *uct_cuda_cma_keys_get(uct_cuda_cma_keys_t *keys,
                                          const void *address, size_t length)
{
    uct_cuda_cma_key_t *key;
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(address, length, &memory);
    if ((memory.type != UCS_MEMORY_TYPE_CUDA) ||
        !uct_cuda_end_is_gpu(memory.end) ||
        !uct_cuda_range_holds(memory.base, memory.length, (CUdeviceptr)address,
                              length)) {
        return NULL;
    }

    key = find_same(keys, &memory);
    if (key == NULL) {
        key = find_oldest(keys);
        if ((key == NULL) || !key_fill(keys, key, &memory)) {
            return NULL;
        }
    }

    key->last_use = ++keys->num_uses;
    return key;
}

uct_cuda_node_rkey_t *uct_cuda_cma_key_own(uct_cuda_cma_key_t *key)
{
    if ((key->rkey == NULL) &&
        (uct_cuda_node_rkey_unpack(&key->packed, uct_cuda_end_none(),
                                   &key->rkey) != UCS_OK)) {
        key->rkey = NULL;
    }

    return key->rkey;
}

void uct_cuda_cma_keys_cleanup(uct_cuda_cma_keys_t *keys)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_CMA_KEYS; ++i) {
        key_clear(&keys->keys[i]);
    }
}
