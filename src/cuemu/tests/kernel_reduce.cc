/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The project's reduction kernels (src/kernels): each operation on each type it
 * is defined for, compared with plain C on the host. All bytes must be equal,
 * since the order of operations is fixed.
 */
#include "kernel_fixture.h"

#include <kernels/kernels.h>

#include <cmath>
#include <complex>
#include <random>

namespace
{

/* ---------------------------------------------------- short floats, in C */

float from_half(uint16_t bits)
{
    int exponent = (bits >> 10) & 31;
    float value  = (exponent == 0) ?
                   ldexpf((float)(bits & 1023), -24) :
                   ldexpf((float)((bits & 1023) | 1024), exponent - 25);

    return (bits & 0x8000) ? -value : value;
}

/* Search all values for the nearest one: slow and simple */
uint16_t to_half(float value)
{
    uint16_t best = 0;
    float least   = INFINITY;

    for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
        float apart = fabsf(from_half((uint16_t)bits) - fabsf(value));
        if ((apart < least) || ((apart == least) && !(bits & 1))) {
            best  = (uint16_t)bits;
            least = apart;
        }
    }
    return best | (std::signbit(value) ? 0x8000 : 0);
}

float from_bfloat(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

uint16_t to_bfloat(float value)
{
    uint32_t word;

    memcpy(&word, &value, sizeof(word));
    uint32_t low = word & 0xffff;
    word >>= 16;
    return (uint16_t)(word + ((low > 0x8000) ||
                              ((low == 0x8000) && (word & 1))));
}

/* --------------------------------------------------------- what is right */

template<typename T> T apply(ucx_mp_op_t op, T a, T b)
{
    if constexpr (std::is_integral<T>::value) {
        switch (op) {
        case UCX_MP_OP_SUM:
            return (T)((uint64_t)a + (uint64_t)b);
        case UCX_MP_OP_PROD:
            return (T)((uint64_t)a * (uint64_t)b);
        case UCX_MP_OP_LAND:
            return a && b;
        case UCX_MP_OP_LOR:
            return a || b;
        case UCX_MP_OP_LXOR:
            return !a != !b;
        case UCX_MP_OP_BAND:
            return a & b;
        case UCX_MP_OP_BOR:
            return a | b;
        case UCX_MP_OP_BXOR:
            return a ^ b;
        default:
            break;
        }
    }

    switch (op) {
    case UCX_MP_OP_SUM:
        return a + b;
    case UCX_MP_OP_PROD:
        return a * b;
    case UCX_MP_OP_MIN:
        return (a < b) ? a : b;
    default:
        return (a > b) ? a : b;
    }
}

template<typename T> struct pair_t {
    T   value;
    int index;
};

template<typename T> struct twin_t {
    T value;
    T index;
};

template<typename P> P extreme(ucx_mp_op_t op, P a, P b)
{
    if (a.value == b.value) {
        return (a.index < b.index) ? a : b;
    }
    return ((a.value < b.value) == (op == UCX_MP_OP_MINLOC)) ? a : b;
}

/* ---------------------------------------------------------------- elements */

/* Return a value that differs from its neighbours, small enough to multiply. */
template<typename T> T any(std::mt19937 &random)
{
    if constexpr (std::is_integral<T>::value) {
        uint64_t bits = ((uint64_t)random() << 32) | random();
        return ((bits >> 60) == 0) ? (T)0 : (T)bits;
    } else {
        return (T)((int)(random() % 4001) - 2000) / (T)512;
    }
}

/* Construction, combination and comparison of a type */
template<typename T> struct plain {
    typedef T type;

    static T make(std::mt19937 &random)
    {
        return any<T>(random);
    }

    static T of(ucx_mp_op_t op, T a, T b)
    {
        return apply(op, a, b);
    }

    static bool same(T a, T b)
    {
        return memcmp(&a, &b, sizeof(a)) == 0;
    }
};

template<float (*FROM)(uint16_t), uint16_t (*TO)(float)> struct brief {
    typedef uint16_t type;

    static uint16_t make(std::mt19937 &random)
    {
        return TO((float)((int)(random() % 401) - 200) / 64);
    }

    static uint16_t of(ucx_mp_op_t op, uint16_t a, uint16_t b)
    {
        switch (op) {
        case UCX_MP_OP_SUM:
            return TO(FROM(a) + FROM(b));
        case UCX_MP_OP_PROD:
            return TO(FROM(a) * FROM(b));
        case UCX_MP_OP_MIN:
            return (FROM(a) < FROM(b)) ? a : b;
        default:
            return (FROM(a) > FROM(b)) ? a : b;
        }
    }

    static bool same(uint16_t a, uint16_t b)
    {
        return a == b;
    }
};

template<typename T> struct twofold {
    struct type {
        T re, im;
    };

    static type make(std::mt19937 &random)
    {
        return type{any<T>(random), any<T>(random)};
    }

    static type of(ucx_mp_op_t op, type a, type b)
    {
        if (op == UCX_MP_OP_SUM) {
            return type{a.re + b.re, a.im + b.im};
        }

        /* Each product is rounded: volatile variables prevent contraction */
        volatile T ac = a.re * b.re, bd = a.im * b.im;
        volatile T ad = a.re * b.im, bc = a.im * b.re;
        return type{(T)(ac - bd), (T)(ad + bc)};
    }

    static bool same(type a, type b)
    {
        return memcmp(&a, &b, sizeof(a)) == 0;
    }
};

template<typename P> struct located {
    typedef P type;

    static P make(std::mt19937 &random)
    {
        P p;

        memset(&p, 0, sizeof(p));
        p.value = (decltype(p.value))((int)(random() % 7) - 3);
        p.index = (decltype(p.index))(random() % 5);
        return p;
    }

    static P of(ucx_mp_op_t op, P a, P b)
    {
        return extreme(op, a, b);
    }

    static bool same(P a, P b)
    {
        return (a.value == b.value) && (a.index == b.index);
    }
};

} // namespace

class kernel_reduce : public kernel {
protected:
    kernel_reduce() : kernel("beluga", "plain.ptx")
    {
    }

    void open(int device)
    {
        static const ucx_mp_kernels_driver_t functions = {
            cuModuleLoadData, cuModuleGetFunction, cuModuleUnload,
            cuLaunchKernel
        };

        use(device);
        m_kernels = ucx_mp_kernels_create(&functions);
        ASSERT_NE(nullptr, m_kernels);
    }

    struct shape_t {
        size_t   count;
        unsigned num_src, num_dst;
        size_t   skew[3];   /* offset in elements: even sources, odd sources,
                               results */
        bool     in_place;  /* the first result is the last source */
        unsigned blocks;
    };

    template<typename E>
    void check(ucx_mp_op_t op, ucx_mp_type_t type, const shape_t &shape)
    {
        typedef typename E::type T;
        std::mt19937 random(1000 * op + type);
        std::vector<std::vector<T>> sources(shape.num_src);
        std::vector<T> want(shape.count), got(shape.count);
        ucx_mp_reduce_args_t args = {};
        const size_t room         = shape.count + 64;
        size_t wrong              = 0;

        ASSERT_EQ(sizeof(T), ucx_mp_type_size(type));
        for (unsigned s = 0; s < shape.num_src; ++s) {
            for (size_t i = 0; i < shape.count; ++i) {
                sources[s].push_back(E::make(random));
                want[i] = (s == 0) ? sources[s][i] :
                          E::of(op, want[i], sources[s][i]);
            }
            args.src[s] = alloc(room * sizeof(T)) +
                          shape.skew[s % 2] * sizeof(T);
            CU_OK(cuMemcpyHtoD(args.src[s], sources[s].data(),
                               shape.count * sizeof(T)));
        }
        for (unsigned d = 0; d < shape.num_dst; ++d) {
            args.dst[d] = alloc(room * sizeof(T)) + shape.skew[2] * sizeof(T);
            CU_OK(cuMemsetD8(args.dst[d] - shape.skew[2] * sizeof(T), 0xee,
                             room * sizeof(T)));
        }
        if (shape.in_place) {
            args.dst[0] = args.src[shape.num_src - 1];
        }
        CU_OK(cuStreamSynchronize(nullptr));
        args.num_src = shape.num_src;
        args.num_dst = shape.num_dst;
        args.count   = shape.count;

        CU_OK(ucx_mp_kernels_reduce(m_kernels, op, type, &args, shape.blocks,
                                    nullptr));
        for (unsigned d = 0; d < shape.num_dst; ++d) {
            CU_OK(cuMemcpyDtoH(got.data(), args.dst[d],
                               shape.count * sizeof(T)));
            for (size_t i = 0; i < shape.count; ++i) {
                wrong += !E::same(want[i], got[i]);
            }
            EXPECT_EQ(0u, wrong) << "operation " << op << ", type " << type
                                 << ", destination " << d;

            unsigned char after[16];
            if (!shape.in_place || (d > 0)) {
                CU_OK(cuMemcpyDtoH(after, args.dst[d] +
                                          shape.count * sizeof(T), 16));
                for (unsigned char c : after) {
                    EXPECT_EQ(0xee, c) << "written past the end";
                }
            }
        }
        for (unsigned s = 0; s < shape.num_src; ++s) {
            CU_OK(cuMemFree(args.src[s] - shape.skew[s % 2] * sizeof(T)));
        }
        for (unsigned d = shape.in_place ? 1 : 0; d < shape.num_dst; ++d) {
            CU_OK(cuMemFree(args.dst[d] - shape.skew[2] * sizeof(T)));
        }
    }

    void check(ucx_mp_op_t op, ucx_mp_type_t type, const shape_t &shape)
    {
        switch (type) {
        case UCX_MP_TYPE_I8:
            return check<plain<int8_t>>(op, type, shape);
        case UCX_MP_TYPE_U8:
            return check<plain<uint8_t>>(op, type, shape);
        case UCX_MP_TYPE_I16:
            return check<plain<int16_t>>(op, type, shape);
        case UCX_MP_TYPE_U16:
            return check<plain<uint16_t>>(op, type, shape);
        case UCX_MP_TYPE_I32:
            return check<plain<int32_t>>(op, type, shape);
        case UCX_MP_TYPE_U32:
            return check<plain<uint32_t>>(op, type, shape);
        case UCX_MP_TYPE_I64:
            return check<plain<int64_t>>(op, type, shape);
        case UCX_MP_TYPE_U64:
            return check<plain<uint64_t>>(op, type, shape);
        case UCX_MP_TYPE_F16:
            return check<brief<from_half, to_half>>(op, type, shape);
        case UCX_MP_TYPE_BF16:
            return check<brief<from_bfloat, to_bfloat>>(op, type, shape);
        case UCX_MP_TYPE_F32:
            return check<plain<float>>(op, type, shape);
        case UCX_MP_TYPE_F64:
            return check<plain<double>>(op, type, shape);
        case UCX_MP_TYPE_C32:
            return check<twofold<float>>(op, type, shape);
        case UCX_MP_TYPE_C64:
            return check<twofold<double>>(op, type, shape);
        case UCX_MP_TYPE_I16_I32:
            return check<located<pair_t<int16_t>>>(op, type, shape);
        case UCX_MP_TYPE_I32_I32:
            return check<located<pair_t<int32_t>>>(op, type, shape);
        case UCX_MP_TYPE_I64_I32:
            return check<located<pair_t<int64_t>>>(op, type, shape);
        case UCX_MP_TYPE_F32_I32:
            return check<located<pair_t<float>>>(op, type, shape);
        case UCX_MP_TYPE_F64_I32:
            return check<located<pair_t<double>>>(op, type, shape);
        case UCX_MP_TYPE_F32_F32:
            return check<located<twin_t<float>>>(op, type, shape);
        default:
            return check<located<twin_t<double>>>(op, type, shape);
        }
    }

    unsigned check_all(const shape_t &shape)
    {
        unsigned known = 0;

        for (int op = 0; op < UCX_MP_OP_LAST; ++op) {
            for (int type = 0; type < UCX_MP_TYPE_LAST; ++type) {
                if (ucx_mp_kernel_is_known((ucx_mp_op_t)op,
                                           (ucx_mp_type_t)type)) {
                    check((ucx_mp_op_t)op, (ucx_mp_type_t)type, shape);
                    ++known;
                }
            }
        }
        return known;
    }

    ucx_mp_kernels_t *m_kernels = nullptr;
};

/* 14 types have sums and products, 12 an order, 8 are integers, 7 are pairs */
TEST_F(kernel_reduce, every_operation_on_every_type)
{
    run(1, [&](int) {
        open(0);
        EXPECT_EQ(2u * 14 + 2 * 12 + 6 * 8 + 2 * 7,
                  check_all({1003, 2, 1, {0, 0, 0}, false, 80}));
    });
}

/* Equal offsets allow vectors behind the first elements, different ones do
   not */
TEST_F(kernel_reduce, addresses_that_are_no_multiples_of_16)
{
    run(1, [&](int) {
        open(0);
        check_all({259, 3, 2, {1, 1, 1}, false, 80});
        check_all({101, 2, 2, {0, 1, 3}, false, 80});
    });
}

TEST_F(kernel_reduce, one_block_in_place_many_sources_and_results)
{
    run(1, [&](int) {
        open(0);
        for (size_t count : {1, 2, 3, 5, 17, 20000}) {
            check(UCX_MP_OP_SUM, UCX_MP_TYPE_F32,
                  {count, 2, 1, {0, 0, 0}, true, 1});
            check(UCX_MP_OP_MAX, UCX_MP_TYPE_I8,
                  {count, 16, 16, {0, 0, 0}, false, 3});
            check(UCX_MP_OP_SUM, UCX_MP_TYPE_F64,
                  {count, 1, 3, {0, 0, 0}, false, 2}); /* a copy */
        }
    });
}

TEST_F(kernel_reduce, invalid_arguments_are_refused)
{
    run(1, [&](int) {
        ucx_mp_reduce_args_t args = {};

        open(0);
        args.src[0] = args.src[1] = args.dst[0] = alloc(4096);
        args.num_src = 2;
        args.num_dst = 1;
        auto reduce = [&](ucx_mp_op_t op, ucx_mp_type_t type) {
            return ucx_mp_kernels_reduce(m_kernels, op, type, &args, 8,
                                         nullptr);
        };

        EXPECT_EQ(CUDA_SUCCESS, reduce(UCX_MP_OP_SUM, UCX_MP_TYPE_F32));
        args.count = 16;
        EXPECT_EQ(CUDA_SUCCESS, reduce(UCX_MP_OP_SUM, UCX_MP_TYPE_F32));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  reduce(UCX_MP_OP_BAND, UCX_MP_TYPE_F32));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  reduce(UCX_MP_OP_MAX, UCX_MP_TYPE_C64));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  reduce(UCX_MP_OP_SUM, UCX_MP_TYPE_LAST));
        args.src[1] += 2;
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  reduce(UCX_MP_OP_SUM, UCX_MP_TYPE_F32));
        args.src[1] -= 2;
        args.num_src = UCX_MP_REDUCE_MAX + 1;
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  reduce(UCX_MP_OP_SUM, UCX_MP_TYPE_F32));
        args.num_src = 2;
        args.num_dst = 0;
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  reduce(UCX_MP_OP_SUM, UCX_MP_TYPE_F32));
    });
}

/* The one-kernel all-reduce of two GPUs: each reads the other's half, adds, and
   writes both halves, concurrently over NVLink */
TEST_F(kernel_reduce, two_gpus_reduce_each_others_memory)
{
    run(1, [&](int) {
        const size_t n = 1 << 20, half = n / 2;
        std::vector<float> data[2], want(n), got(n);
        ucx_mp_kernels_t *kernels[2];
        CUcontext ctx[2];
        CUdeviceptr ptr[2];
        CUstream streams[2];

        for (int i = 0; i < 2; ++i) {
            open(i);
            kernels[i] = m_kernels;
            CU_OK(cuCtxGetCurrent(&ctx[i]));
            streams[i] = stream();
            for (size_t j = 0; j < n; ++j) {
                data[i].push_back((float)(j + 1) / (float)(i + 3));
            }
            ptr[i] = upload(data[i]);
        }
        for (size_t j = 0; j < n; ++j) {
            want[j] = data[0][j] + data[1][j];
        }

        for (int i = 0; i < 2; ++i) {
            ucx_mp_reduce_args_t args = {};

            CU_OK(cuCtxSetCurrent(ctx[i]));
            CU_OK(cuCtxEnablePeerAccess(ctx[!i], 0));
            for (int j = 0; j < 2; ++j) {
                args.src[j] = args.dst[j] = ptr[j] + i * half * sizeof(float);
            }
            args.num_src = args.num_dst = 2;
            args.count   = half;
            CU_OK(ucx_mp_kernels_reduce(kernels[i], UCX_MP_OP_SUM,
                                        UCX_MP_TYPE_F32, &args, 80,
                                        streams[i]));
        }
        for (int i = 0; i < 2; ++i) {
            CU_OK(cuStreamSynchronize(streams[i]));
        }
        for (int i = 0; i < 2; ++i) {
            CU_OK(cuCtxSetCurrent(ctx[i]));
            download(got, ptr[i]);
            EXPECT_EQ(want, got);
        }
    });
}

/* Bytes read by a kernel from a peer occupy the link like a copy's, at the rate
   of kernels: 340 of 397 GB/s, measured on H200 */
TEST_F(kernel_reduce, the_time_is_that_of_the_bytes)
{
    setenv("CUEMU_SLOWDOWN", "20", 1);
    run(1, [&](int) {
        const size_t size = 32 * MiB;
        const double part = 340.0 / 397, link = BELUGA_LINK * 1e9;
        ucx_mp_reduce_args_t args = {};
        float ms;

        CUcontext peer  = use(1);
        CUdeviceptr far = alloc(size);
        CUcontext ctx   = use(0);
        enable_peers(ctx, peer);
        open(0);
        CUdeviceptr near = alloc(size), other = alloc(size);
        CUstream s = stream(), t = stream();
        CUevent begin = event(), end = event(), copied = event();

        args.num_src = args.num_dst = 1;
        args.src[0]  = far;
        args.dst[0]  = near;
        args.count   = size / 4;
        auto copy    = [&]() {
            CU_OK(ucx_mp_kernels_reduce(m_kernels, UCX_MP_OP_SUM,
                                        UCX_MP_TYPE_F32, &args, 80, s));
        };
        auto timed   = [&](CUevent from, CUevent to) {
            EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(to));
            EXPECT_EQ(CUDA_SUCCESS, cuEventElapsedTime(&ms, from, to));
            return ms * 1e-3;
        };

        copy();
        CU_OK(cuEventRecord(begin, s));
        copy();
        CU_OK(cuEventRecord(end, s));
        EXPECT_NEAR(1.0, timed(begin, end) / (size / (link * part)), 0.03);

        /* A copy on the same link: they share it until one ends */
        volatile uint32_t *word = flag();
        spin(s, word);
        spin(t, word);
        CU_OK(cuEventRecord(begin, s));
        copy();
        CU_OK(cuMemcpyAsync(other, far, size, t));
        CU_OK(cuEventRecord(end, s));
        CU_OK(cuEventRecord(copied, t));
        *word = 1;
        double both = std::max(timed(begin, end), timed(begin, copied));
        EXPECT_NEAR(1.0, both / ((size / part + size) / link), 0.03);
    });
}
