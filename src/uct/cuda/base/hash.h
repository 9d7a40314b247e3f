/* SPDX-License-Identifier: BSD-3-Clause */
/* FNV-1a (Fowler, Noll, Vo), a byte or, where it need not be quite as good, a
 * word at a time. Numbers of it go over the wire: it stays as it is. */
#ifndef UCT_CUDA_BASE_HASH_H
#define UCT_CUDA_BASE_HASH_H

#include <stdint.h>


/** What a hash begins with. */
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
