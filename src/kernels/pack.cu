/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Pack the bytes of an MPI datatype, or unpack them. regenerate compiles this
 * file into pack.ptx.
 *
 * The words of all elements are numbered in the order of the rows. In one step
 * a warp moves UCX_MP_PACK_WORDS times 32 of them, thread by thread. It finds
 * the row of its first word by a search of the whole list. From there each
 * thread searches only as many rows as there are threads before it, because a
 * row has at least one word.
 */
#include "pack_args.h"

typedef unsigned int       u32;
typedef unsigned long long u64;

#define LANES 32
#define TURN  (LANES * UCX_MP_PACK_WORDS)
#define WARPS (UCX_MP_PACK_THREADS / LANES)
#define ALL   0xffffffff

/* Offsets of the fields of ucx_mp_pack_rows_t, bytes */
enum {
    OFFSET = 0,
    STRIDE = 8,
    PACKED = 16,
    STEP   = 24,
    LENGTH = 32,
    FIRST  = 40
};

/* 16 bytes, aligned to 16 bytes */
struct alignas(16) words_t {
    u64 word[2];
};

static __device__ u64 load_u64(u64 addr)
{
    u64 value;

    asm("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(addr));
    return value;
}

static __device__ void move(u64 dst, u64 src, const words_t*)
{
    u64 low, high;

    asm volatile("ld.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(low), "=l"(high) : "l"(src));
    asm volatile("st.global.v2.u64 [%0], {%1, %2};"
                 :: "l"(dst), "l"(low), "l"(high));
}

template<typename T>
static __device__ void move(u64 dst, u64 src, const T*)
{
    *(T*)dst = *(const T*)src;
}

/* Divide. Most numbers fit into 32 bits, where a division is much faster. */
static __device__ u64 divide(u64 a, u64 b)
{
    return (((a | b) >> 32) == 0) ? (u64)((u32)a / (u32)b) : (a / b);
}

static __device__ u64 first_of(u64 rows, u32 index)
{
    return load_u64(rows + (u64)index * sizeof(ucx_mp_pack_rows_t) + FIRST);
}

/* Return the index, from `low` to `high`, of the last rows that begin at or
   before byte `at` of an element. */
static __device__ u32 search(u64 rows, u32 low, u32 high, u64 at)
{
    while (low < high) {
        const u32 middle = low + (high - low + 1) / 2;

        if (first_of(rows, middle) <= at) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Part of a ucx_mp_pack_rows_t needed for its first row, in registers */
struct rows_t {
    u64 offset;
    u64 packed;
    u64 length;
    u64 first;
};

static __device__ rows_t load_rows(u64 at)
{
    rows_t rows;

    rows.offset = load_u64(at + OFFSET);
    rows.packed = load_u64(at + PACKED);
    rows.length = load_u64(at + LENGTH);
    rows.first  = load_u64(at + FIRST);
    return rows;
}

/* Move the word at byte `at` of an element; `rows` contains the word. */
template<typename T>
static __device__ void move_word(const ucx_mp_pack_args_t &args, u64 element,
                                 u64 at, const rows_t &rows, u64 stride,
                                 u64 step)
{
    const u64 inside = at - rows.first;
    const u64 row    = (inside < rows.length) ? 0 :
                                                divide(inside, rows.length);
    const u64 within = inside - row * rows.length;
    u64 packed       = element * args.element + rows.packed + row * step +
                       within;
    const u64 program = args.program + element * (u64)args.extent +
                        rows.offset + row * stride + within;

    if (packed >= args.bytes) {
        return; /* not among the bytes to move */
    }

    packed += args.staged;
    if (args.is_back) {
        move(program, packed, (const T*)0);
    } else {
        move(packed, program, (const T*)0);
    }
}

/* Pack elements with a single set of rows: a vector, or a face of an array. */
template<typename T>
static __device__ void pack_one(const ucx_mp_pack_args_t &args, u64 size)
{
    const rows_t rows = load_rows(args.rows);
    const u64 stride  = load_u64(args.rows + STRIDE);
    const u64 step    = load_u64(args.rows + STEP);
    const u64 threads = (u64)gridDim.x * UCX_MP_PACK_THREADS;
    u64 at            = (u64)blockIdx.x * UCX_MP_PACK_THREADS + threadIdx.x;

#pragma unroll 1
    for (at *= sizeof(T); at < size; at += threads * sizeof(T)) {
        const u64 own = (at < args.element) ? 0 : divide(at, args.element);

        move_word<T>(args, own, at - own * args.element, rows, stride, step);
    }
}

template<typename T>
static __device__ void pack(const ucx_mp_pack_args_t &args)
{
    const u32 lane     = threadIdx.x % LANES;
    const u64 warp     = (u64)blockIdx.x * WARPS + threadIdx.x / LANES;
    const u64 elements = divide(args.bytes + args.element - 1, args.element);
    const u64 size     = elements * args.element;
    const u32 last     = (u32)args.num_rows - 1;
    u64 begin;

    if (last == 0) {
        pack_one<T>(args, size);
        return;
    }

#pragma unroll 1
    for (begin = warp * TURN * sizeof(T); begin < size;
         begin += (u64)gridDim.x * WARPS * TURN * sizeof(T)) {
        u64 current = divide(begin, args.element);
        u32 low     = search(args.rows, 0, last,
                             begin - current * args.element);

#pragma unroll 1
        for (u32 i = 0; i < UCX_MP_PACK_WORDS; ++i) {
            const u64 at   = begin + (i * LANES + lane) * sizeof(T);
            const u64 own  = (at < args.element) ? 0 :
                                                   divide(at, args.element);
            const u64 byte = at - own * args.element;
            u32 from       = (own == current) ? low : 0;
            u32 to         = from + lane + 1;

            to   = (to < last) ? to : last;
            from = search(args.rows, from, to, byte);
            if (at < size) {
                const u64 entry   = args.rows +
                                    (u64)from * sizeof(ucx_mp_pack_rows_t);
                const rows_t rows = load_rows(entry);
                u64 stride        = 0;
                u64 step          = 0;

                if (byte - rows.first >= rows.length) {
                    stride = load_u64(entry + STRIDE);
                    step   = load_u64(entry + STEP);
                }
                move_word<T>(args, own, byte, rows, stride, step);
            }

            /* the warp's next words begin behind the last thread's */
            low     = __shfl_sync(ALL, from, LANES - 1);
            current = __shfl_sync(ALL, own, LANES - 1);
        }
    }
}

extern "C" __global__ void __launch_bounds__(UCX_MP_PACK_THREADS)
ucx_mp_pack(const __grid_constant__ ucx_mp_pack_args_t args)
{
    switch (args.unit) {
    case 16:
        pack<words_t>(args);
        break;
    case 8:
        pack<u64>(args);
        break;
    case 4:
        pack<u32>(args);
        break;
    case 2:
        pack<unsigned short>(args);
        break;
    default:
        pack<unsigned char>(args);
    }
}
