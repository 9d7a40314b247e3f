/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Copy many small, separate blocks. regenerate compiles this file into
 * copy.ptx.
 *
 * The host may cancel a launch while it waits for room on a busy GPU. Each warp
 * first announces its beginning, then reads the cancellation slot. The host
 * first writes the slot, then reads the warps' states. So a warp not seen as
 * begun will copy nothing, whenever it runs. A warp seen as begun waits for
 * nothing and announces whether it copied: it and the host may each have seen
 * the other.
 */
#include "copy_args.h"

typedef unsigned char      u8;
typedef unsigned int       u32;
typedef unsigned long long u64;

#define LANES   32
#define DEPTH   8                    /* vectors in flight per thread */
#define SEGMENT (LANES * DEPTH * 16) /* bytes copied by a warp at a time */

struct alignas(16) vector_t {
    u32 word[4];
};

/* Addresses are global memory; the compiler cannot see that by itself */
static __device__ vector_t load(u64 addr)
{
    vector_t v;

    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]),
                   "=r"(v.word[3])
                 : "l"(addr));
    return v;
}

static __device__ void store(u64 addr, const vector_t &v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(addr), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]),
                    "r"(v.word[3]));
}

static __device__ u64 load_word(u64 addr)
{
    u64 word;

    asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(word) : "l"(addr));
    return word;
}

static __device__ void store_word(u64 addr, u64 word)
{
    asm volatile("st.volatile.global.u64 [%0], %1;" :: "l"(addr), "l"(word));
}

/* Copy `bytes`, a multiple of the size of T, by a warp: one T per thread at a
   time. */
template<typename T>
static __device__ void elements(u64 dst, u64 src, u32 bytes, u32 lane)
{
#pragma unroll 1
    for (u32 at = lane * sizeof(T); at < bytes; at += LANES * sizeof(T)) {
        *(T*)(dst + at) = *(const T*)(src + at);
    }
}

/* Copy `count` vectors (> 0, at most a segment) by a warp. Threads past the end
   load the last vector once more. */
static __device__ void vectors(u64 dst, u64 src, u32 count, u32 lane)
{
    vector_t value[DEPTH];

#pragma unroll
    for (u32 i = 0; i < DEPTH; ++i) {
        const u32 at = lane + i * LANES;

        value[i] = load(src + 16 * ((at < count) ? at : (count - 1)));
    }
#pragma unroll
    for (u32 i = 0; i < DEPTH; ++i) {
        const u32 at = lane + i * LANES;

        if (at < count) {
            store(dst + 16 * at, value[i]);
        }
    }
}

static __device__ void copy(u64 dst, u64 src, u32 bytes, u32 lane)
{
    const u32 shift = (u32)(dst ^ src) % 16;
    u32 head        = (16 - (u32)(dst % 16)) % 16;
    u32 count;

    if (shift != 0) {
        if (((shift | (u32)dst) % 4) == 0) {
            elements<u32>(dst, src, bytes / 4 * 4, lane);
            elements<u8>(dst + bytes / 4 * 4, src + bytes / 4 * 4, bytes % 4,
                         lane);
        } else {
            elements<u8>(dst, src, bytes, lane);
        }
        return;
    }

    head  = (head < bytes) ? head : bytes;
    count = (bytes - head) / 16;
    elements<u8>(dst, src, head, lane);
    if (count > 0) {
        vectors(dst + head, src + head, count, lane);
    }
    head += 16 * count;
    elements<u8>(dst + head, src + head, bytes - head, lane);
}

static __device__ u64 state_of(u64 words, u32 warp)
{
    return words + 8 * (UCX_MP_COPY_OFF + (u64)warp);
}

/* Announce that this warp has begun; return false if the launch is
   cancelled. */
static __device__ bool has_begun(u64 words, u64 serial, u64 state, u32 lane)
{
    u32 is_off = 0;

    if (lane == 0) {
        store_word(state, UCX_MP_COPY_BEGUN(serial));
        __threadfence();
        is_off = load_word(words + 8 * (serial % UCX_MP_COPY_OFF)) == serial;
        if (is_off) {
            store_word(state, UCX_MP_COPY_NOTHING(serial));
        }
    }
    return !__shfl_sync(0xffffffff, is_off, 0);
}

static __device__ void has_ended(u64 serial, u64 state, u32 lane)
{
    __threadfence_system();
    __syncwarp();
    if (lane == 0) {
        store_word(state, UCX_MP_COPY_COPIED(serial));
    }
}

/* Copy blocks of any size, unless the launch is cancelled. Segments go to the
   warps in rotation, block after block. */
extern "C" __global__ void __launch_bounds__(UCX_MP_COPY_THREADS)
ucx_mp_copy(const __grid_constant__ ucx_mp_copy_args_t args)
{
    const u32 lane  = threadIdx.x % LANES;
    const u32 warp  = blockIdx.x * UCX_MP_COPY_WARPS + threadIdx.x / LANES;
    const u32 warps = gridDim.x * UCX_MP_COPY_WARPS;
    const u64 state = state_of(args.words, warp);
    u32 first       = 0;    /* segments of earlier blocks */
    u32 mine        = warp; /* next segment of this warp */

    if (!has_begun(args.words, args.serial, state, lane)) {
        return;
    }

#pragma unroll 1
    for (u32 i = 0; i < args.count; ++i) {
        const u32 size = args.size[i];
        const u32 next = first + (size + SEGMENT - 1) / SEGMENT;

#pragma unroll 1
        for (; mine < next; mine += warps) {
            const u32 begin = (mine - first) * SEGMENT;
            const u32 left  = size - begin;

            copy(args.dst[i] + begin, args.src[i] + begin,
                 (left < SEGMENT) ? left : SEGMENT, lane);
        }
        first = next;
    }

    has_ended(args.serial, state, lane);
}

/* Copy blocks of equal size, unless the launch is cancelled. A segment's number
   gives its block by division. */
extern "C" __global__ void __launch_bounds__(UCX_MP_COPY_THREADS)
ucx_mp_copy_alike(const __grid_constant__ ucx_mp_copy_alike_args_t args)
{
    const u32 lane     = threadIdx.x % LANES;
    const u32 warp     = blockIdx.x * UCX_MP_COPY_WARPS + threadIdx.x / LANES;
    const u32 warps    = gridDim.x * UCX_MP_COPY_WARPS;
    const u64 state    = state_of(args.words, warp);
    const u32 size     = (u32)args.size;
    const u32 segments = (size + SEGMENT - 1) / SEGMENT;

    if (!has_begun(args.words, args.serial, state, lane)) {
        return;
    }

#pragma unroll 1
    for (u32 mine = warp; mine < segments * (u32)args.count; mine += warps) {
        const u32 i     = mine / segments;
        const u32 begin = (mine - i * segments) * SEGMENT;
        const u32 left  = size - begin;

        copy(args.base_dst + UCX_MP_COPY_UNIT * (u64)args.dst[i] + begin,
             args.base_src + UCX_MP_COPY_UNIT * (u64)args.src[i] + begin,
             (left < SEGMENT) ? left : SEGMENT, lane);
    }

    has_ended(args.serial, state, lane);
}
