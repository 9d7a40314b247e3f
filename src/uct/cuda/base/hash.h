/* SPDX-License-Identifier: BSD-3-Clause */
/* FNV-1a hash (Fowler, Noll, Vo) of bytes or, with slightly lower quality, of
 * words. Hashes are sent to peers, so the function must not change. */
#ifndef UCT_CUDA_BASE_HASH_H
#define UCT_CUDA_BASE_HASH_H

#include <stdint.h>


/** Initial values of a hash. */
#define UCT_CUDA_HASH32 UINT32_C(2166136261)
#define UCT_CUDA_HASH64 UINT64_C(0xcbf29ce484222325)


static inline uint32_t uct_cuda_hash32(uint32_t hash, uint32_t value)
{
    return (hash ^ value) * UINT32_C(16777619);
}

static inline uint64_t uct_cuda_hash64(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001b3);
}

#endif
