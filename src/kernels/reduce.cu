/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Reductions of MPI's predefined operations: for each element
 *
 *     dst[j] = ((src[0] op src[1]) op src[2]) op ... src[num_src - 1]
 *
 * for all j, in this order for every grid. With two sources and one destination
 * this is out = op(a, b). With mapped memory of peers among the sources it is a
 * stage of an allreduce, or all of it. A destination may be a source at the
 * same address; otherwise nothing may overlap.
 *
 * No block waits for another block or another GPU. regenerate compiles this
 * file into reduce.ptx: one function per operation and type, each usable alone.
 */
#include "reduce_args.h"

typedef unsigned char      u8;
typedef unsigned short     u16;
typedef unsigned int       u32;
typedef unsigned long long u64;

/* 16 bytes, aligned to 16 bytes: one load or store of a thread */
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

/* ---------------------------------------------------------------- types */

struct f16 {
    u16 bits;

    __device__ float get() const
    {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }

    static __device__ f16 make(float value)
    {
        f16 result;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
        return result;
    }
};

struct bf16 {
    u16 bits;

    __device__ float get() const
    {
        return __int_as_float((int)((u32)bits << 16));
    }

    /* Round to nearest, ties to even; a NaN stays a NaN */
    static __device__ bf16 make(float value)
    {
        u32 word = (u32)__float_as_int(value);
        bf16 result;

        result.bits = (value != value) ?
                      0x7fff : (u16)((word + 0x7fff + ((word >> 16) & 1)) >> 16);
        return result;
    }
};

template<typename T> struct complex {
    T re, im;
};

/* Value and index, as MPI's pair types lay them out in C */
template<typename V, typename I> struct pair {
    V value;
    I index;
};

/* ----------------------------------------------------------- operations */

/* Round each product: a host has no fused multiply-add either */
static __device__ float times(float a, float b)
{
    return __fmul_rn(a, b);
}

static __device__ double times(double a, double b)
{
    return __dmul_rn(a, b);
}

namespace op {

struct sum {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (T)(a + b);
    }

    static __device__ f16 of(f16 a, f16 b)
    {
        return f16::make(a.get() + b.get());
    }

    static __device__ bf16 of(bf16 a, bf16 b)
    {
        return bf16::make(a.get() + b.get());
    }

    template<typename T>
    static __device__ complex<T> of(complex<T> a, complex<T> b)
    {
        complex<T> result = {a.re + b.re, a.im + b.im};
        return result;
    }
};

struct prod {
    /* Small unsigned types become int, and a product of ints may overflow */
    template<typename T> static __device__ T of(T a, T b)
    {
        return (T)((u64)a * (u64)b);
    }

    static __device__ float of(float a, float b)
    {
        return times(a, b);
    }

    static __device__ double of(double a, double b)
    {
        return times(a, b);
    }

    static __device__ f16 of(f16 a, f16 b)
    {
        return f16::make(times(a.get(), b.get()));
    }

    static __device__ bf16 of(bf16 a, bf16 b)
    {
        return bf16::make(times(a.get(), b.get()));
    }

    template<typename T>
    static __device__ complex<T> of(complex<T> a, complex<T> b)
    {
        complex<T> result;

        result.re = less(times(a.re, b.re), times(a.im, b.im));
        result.im = more(times(a.re, b.im), times(a.im, b.re));
        return result;
    }

private:
    static __device__ float less(float a, float b)
    {
        return __fadd_rn(a, -b);
    }

    static __device__ double less(double a, double b)
    {
        return __dadd_rn(a, -b);
    }

    static __device__ float more(float a, float b)
    {
        return __fadd_rn(a, b);
    }

    static __device__ double more(double a, double b)
    {
        return __dadd_rn(a, b);
    }
};

/* `(a > b) ? a : b` as on a host: the second operand if either is a NaN */
struct max {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (a > b) ? a : b;
    }

    static __device__ f16 of(f16 a, f16 b)
    {
        return (a.get() > b.get()) ? a : b;
    }

    static __device__ bf16 of(bf16 a, bf16 b)
    {
        return (a.get() > b.get()) ? a : b;
    }
};

struct min {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (a < b) ? a : b;
    }

    static __device__ f16 of(f16 a, f16 b)
    {
        return (a.get() < b.get()) ? a : b;
    }

    static __device__ bf16 of(bf16 a, bf16 b)
    {
        return (a.get() < b.get()) ? a : b;
    }
};

struct land {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (T)((a != 0) & (b != 0));
    }
};

struct lor {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (T)((a | b) != 0);
    }
};

struct lxor {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (T)((a != 0) != (b != 0));
    }
};

struct band {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (T)(a & b);
    }
};

struct bor {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (T)(a | b);
    }
};

struct bxor {
    template<typename T> static __device__ T of(T a, T b)
    {
        return (T)(a ^ b);
    }
};

/* The extreme value; where values are equal, the smaller index */
struct maxloc {
    template<typename P> static __device__ P of(P a, P b)
    {
        return ((a.value > b.value) ||
                ((a.value == b.value) && (a.index < b.index))) ? a : b;
    }
};

struct minloc {
    template<typename P> static __device__ P of(P a, P b)
    {
        return ((a.value < b.value) ||
                ((a.value == b.value) && (a.index < b.index))) ? a : b;
    }
};

} /* namespace op */

/* --------------------------------------------------------------- kernel */

template<typename OP, typename T>
static __device__ void combine(vector_t *a, const vector_t &b)
{
    union {
        vector_t whole;
        T        part[sizeof(vector_t) / sizeof(T)];
    } x, y;

    x.whole = *a;
    y.whole = b;
#pragma unroll
    for (unsigned i = 0; i < sizeof(vector_t) / sizeof(T); ++i) {
        x.part[i] = OP::of(x.part[i], y.part[i]);
    }
    *a = x.whole;
}

/* Reduce element by element: the first `head` elements, and those behind the
   next `skipped`. */
template<typename OP, typename T>
static __device__ void elements(const ucx_mp_reduce_args_t &args, u64 head,
                                u64 skipped, u64 thread, u64 threads)
{
#pragma unroll 1
    for (u64 i = thread; i < args.count - skipped; i += threads) {
        const u64 at = sizeof(T) * ((i < head) ? i : (i + skipped));
        T value      = *(const T*)(args.src[0] + at);

#pragma unroll 1
        for (u32 s = 1; s < args.num_src; ++s) {
            value = OP::of(value, *(const T*)(args.src[s] + at));
        }
#pragma unroll 1
        for (u32 d = 0; d < args.num_dst; ++d) {
            *(T*)(args.dst[d] + at) = value;
        }
    }
}

template<typename OP, typename T, unsigned DEPTH>
static __device__ void reduce(const ucx_mp_reduce_args_t &args)
{
    const u64 thread  = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    const u64 size    = sizeof(T);
    const u64 odd     = args.src[0] % 16;
    const u64 even    = (16 - odd) % 16;
    u64 head          = even / sizeof(T);
    u64 vectors       = 0;
    u64 bits          = 0;

#pragma unroll 1
    for (u32 s = 0; s < args.num_src; ++s) {
        bits |= args.src[s] ^ odd;
    }
#pragma unroll 1
    for (u32 d = 0; d < args.num_dst; ++d) {
        bits |= args.dst[d] ^ odd;
    }

    /* Full vectors of elements begin where all addresses are multiples of 16 */
    if (((bits % 16) == 0) && ((even % sizeof(T)) == 0) &&
        (args.count > head)) {
        vectors = (args.count - head) * sizeof(T) / 16;
    }
    elements<OP, T>(args, head, vectors * 16 / sizeof(T), thread, threads);

    head *= sizeof(T);
#pragma unroll 1
    for (u64 i = thread; i < vectors; i += threads * DEPTH) {
        vector_t a[DEPTH], b[DEPTH];
        u64 at[DEPTH];

        /* Threads past the end load the last vector once more */
#pragma unroll
        for (unsigned j = 0; j < DEPTH; ++j) {
            at[j] = i + j * threads;
            at[j] = head + 16 * ((at[j] < vectors) ? at[j] : (vectors - 1));
            a[j]  = load(args.src[0] + at[j]);
        }

#pragma unroll 1
        for (u32 s = 1; s < args.num_src; ++s) {
#pragma unroll
            for (unsigned j = 0; j < DEPTH; ++j) {
                b[j] = load(args.src[s] + at[j]);
            }
#pragma unroll
            for (unsigned j = 0; j < DEPTH; ++j) {
                combine<OP, T>(&a[j], b[j]);
            }
        }

#pragma unroll 1
        for (u32 d = 0; d < args.num_dst; ++d) {
#pragma unroll
            for (unsigned j = 0; j < DEPTH; ++j) {
                if (i + j * threads < vectors) {
                    store(args.dst[d] + at[j], a[j]);
                }
            }
        }
    }
}

#define KERNEL(_op, _name, _depth, ...) \
    extern "C" __global__ void __launch_bounds__(UCX_MP_REDUCE_THREADS) \
    ucx_mp_##_op##_##_name(const __grid_constant__ ucx_mp_reduce_args_t args) \
    { \
        reduce<op::_op, __VA_ARGS__, _depth>(args); \
    }

#define KERNELS_SUM(_name, _depth, ...) \
    KERNEL(sum, _name, _depth, __VA_ARGS__) \
    KERNEL(prod, _name, _depth, __VA_ARGS__)

#define KERNELS_MIN(_name, _depth, ...) \
    KERNEL(min, _name, _depth, __VA_ARGS__) \
    KERNEL(max, _name, _depth, __VA_ARGS__)

#define KERNELS_LOGICAL(_name, _type) \
    KERNEL(land, _name, 1, _type) \
    KERNEL(lor, _name, 1, _type) \
    KERNEL(lxor, _name, 1, _type)

#define KERNELS_LOC(_name, ...) \
    KERNEL(minloc, _name, 1, __VA_ARGS__) \
    KERNEL(maxloc, _name, 1, __VA_ARGS__)

/* Sums, products and logical operations give the same bits for signed and
   unsigned integers; bitwise operations use the kernels for bytes */
KERNELS_SUM(u8, 1, u8)
KERNELS_SUM(u16, 1, u16)
KERNELS_SUM(u32, 4, u32)
KERNELS_SUM(u64, 4, u64)
KERNELS_SUM(f16, 1, f16)
KERNELS_SUM(bf16, 1, bf16)
KERNELS_SUM(f32, 4, float)
KERNELS_SUM(f64, 4, double)
KERNELS_SUM(c32, 4, complex<float>)
KERNELS_SUM(c64, 4, complex<double>)

KERNELS_MIN(i8, 1, signed char)
KERNELS_MIN(u8, 1, u8)
KERNELS_MIN(i16, 1, short)
KERNELS_MIN(u16, 1, u16)
KERNELS_MIN(i32, 4, int)
KERNELS_MIN(u32, 4, u32)
KERNELS_MIN(i64, 4, long long)
KERNELS_MIN(u64, 4, u64)
KERNELS_MIN(f16, 1, f16)
KERNELS_MIN(bf16, 1, bf16)
KERNELS_MIN(f32, 4, float)
KERNELS_MIN(f64, 4, double)

KERNELS_LOGICAL(u8, u8)
KERNELS_LOGICAL(u16, u16)
KERNELS_LOGICAL(u32, u32)
KERNELS_LOGICAL(u64, u64)

KERNEL(band, u8, 4, u8)
KERNEL(bor, u8, 4, u8)
KERNEL(bxor, u8, 4, u8)

KERNELS_LOC(i16_i32, pair<short, int>)
KERNELS_LOC(i32_i32, pair<int, int>)
KERNELS_LOC(i64_i32, pair<long long, int>)
KERNELS_LOC(f32_i32, pair<float, int>)
KERNELS_LOC(f64_i32, pair<double, int>)
KERNELS_LOC(f32_f32, pair<float, float>)
KERNELS_LOC(f64_f64, pair<double, double>)
