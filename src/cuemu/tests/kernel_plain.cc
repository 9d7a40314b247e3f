/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Kernels like those of other programs, compiled by nvcc (kernels/plain.cu) and
 * launched by the emulated driver. Expected results are computed here in plain
 * C.
 */
#include "kernel_fixture.h"

#include <cmath>

class kernel_plain : public kernel {
protected:
    kernel_plain() : kernel("narval", "plain.ptx")
    {
    }
};

TEST_F(kernel_plain, vector_add)
{
    run(1, [&](int) {
        const int n = 100003;
        std::vector<float> a(n), b(n), out(n), want(n);

        load(0);
        for (int i = 0; i < n; ++i) {
            a[i]    = (float)i / 7;
            b[i]    = (float)(n - i) * 3;
            want[i] = a[i] + b[i];
        }
        CUdeviceptr d_a = upload(a), d_b = upload(b), d_out = upload(out);
        launch("vector_add", (n + 255) / 256, 256, 0, d_out, d_a, d_b, n);
        download(out, d_out);
        EXPECT_EQ(want, out);
    });
}

TEST_F(kernel_plain, stencil_in_shared_memory)
{
    run(1, [&](int) {
        const int width = 203, height = 117;
        std::vector<double> in(width * height), out(in.size()), want(in.size());
        auto at = [&](int x, int y) {
            return ((x < 0) || (y < 0) || (x >= width) || (y >= height)) ?
                   0.0 : in[y * width + x];
        };

        load(0);
        for (size_t i = 0; i < in.size(); ++i) {
            in[i] = (double)((i * 7919) % 1000) / 1024;
        }
        for (int y = 0; y < height; ++y) {
            for (int x = 0; x < width; ++x) {
                want[y * width + x] = 0.5 * at(x, y) +
                                      0.125 * (at(x, y - 1) + at(x, y + 1) +
                                               at(x - 1, y) + at(x + 1, y));
            }
        }
        CUdeviceptr d_in = upload(in), d_out = upload(out);
        launch("stencil", size_t3((width + 15) / 16, (height + 15) / 16),
               size_t3(16, 16), 0, d_out, d_in, width, height);
        download(out, d_out);
        EXPECT_EQ(want, out); /* multiples of 2^-13: exact in any order */
    });
}

TEST_F(kernel_plain, sums_over_blocks)
{
    run(1, [&](int) {
        const int n = 200003;
        std::vector<unsigned> in(n), sum(1);
        std::vector<float> numbers(n), left(40), total(1);
        unsigned want = 0;

        load(0);
        for (int i = 0; i < n; ++i) {
            in[i]      = (unsigned)i * 2654435761u;
            numbers[i] = (float)(i % 16);
            want      += in[i];
        }
        CUdeviceptr d_in = upload(in), d_sum = upload(sum);
        launch("sum_tree", 33, 256, 256 * sizeof(unsigned), d_sum, d_in, n);
        download(sum, d_sum);
        EXPECT_EQ(want, sum[0]);

        /* Small integers: exact in any order. Runs twice, since the counter of
           finished blocks wraps */
        d_in                = upload(numbers);
        CUdeviceptr d_left  = upload(left), d_total = upload(total);
        for (int turn = 0; turn < 2; ++turn) {
            launch("sum_shuffle", 40, 192, 0, d_total, d_left, d_in, n);
            download(total, d_total);
            EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), 0.0),
                      (double)total[0]);
            CU_OK(cuMemsetD8(d_total, 0, sizeof(float)));
        }
    });
}

TEST_F(kernel_plain, copies_of_sixteen_bytes)
{
    run(1, [&](int) {
        std::vector<uint32_t> in(4 * 65551), out(in.size());
        size_t n = in.size() / 4;

        load(0);
        std::iota(in.begin(), in.end(), 17u);
        CUdeviceptr d_in = upload(in), d_out = upload(out);
        launch("copy_stride", 64, 512, 0, d_out, d_in, n);
        download(out, d_out);
        EXPECT_EQ(in, out);
    });
}

TEST_F(kernel_plain, threads_part_and_meet)
{
    run(1, [&](int) {
        const unsigned n = 5000;
        std::vector<unsigned> out(n), want(n);

        load(0);
        for (unsigned i = 0; i < n; ++i) {
            for (uint64_t x = i + 1; x != 1; ++want[i]) {
                x = (x & 1) ? 3 * x + 1 : x / 2;
            }
        }
        CUdeviceptr d_out = upload(out);
        launch("collatz", (n + 95) / 96, 96, 0, d_out, n);
        download(out, d_out);
        EXPECT_EQ(want, out);
    });
}

/* Compute the result of kernel `mixed` for one thread. */
static long long mixed(signed char in, unsigned short shift)
{
    long long kept[8] = {}, x;
    uint32_t low, reversed = 0, bytes = 0;
    uint64_t both;

    for (int j = 0; j < 8; ++j) {
        kept[(j * in) & 7] = (long long)in * j - shift;
    }
    x = kept[shift & 7];
    switch (in & 7) {
    case 0:
        x = x / (in | 1);
        break;
    case 1:
        x = x % 7;
        break;
    case 2:
        x = (long long)((uint64_t)x << (shift & 31));
        break;
    case 3:
        x = x >> (shift & 31);
        break;
    case 4:
        x = ~x & 0xf0f0f0f0f0f0ll;
        break;
    case 5:
        x = (long long)((unsigned)x * (unsigned long long)shift);
        break;
    case 6:
        x = __builtin_popcountll(x) + __builtin_ffsll(x) * 10000 +
            ((x == 0) ? 64 : __builtin_clzll(x)) * 100;
        break;
    default:
        x = (x < 0) ? -x : (x ^ 0x5555);
        break;
    }

    low  = (uint32_t)x;
    both = ((uint64_t)0x11223344 << 32) | low;
    for (int j = 0; j < 32; ++j) {
        reversed |= ((low >> j) & 1) << (31 - j);
    }
    for (int j = 0; j < 4; ++j) { /* bytes 5, 1, 7, 3 of both words */
        bytes |= (uint32_t)((both >> (8 * ((0x3715 >> (4 * j)) & 7))) & 0xff)
                 << (8 * j);
    }
    return (long long)((uint64_t)x + (uint64_t)(((__int128)x * x) >> 64) +
                       (uint32_t)(((uint64_t)low * 77777) >> 32) + reversed +
                       bytes);
}

TEST_F(kernel_plain, integers_of_all_sizes)
{
    run(1, [&](int) {
        const int n = 20011;
        std::vector<signed char> in(n);
        std::vector<unsigned short> shift(n);
        std::vector<long long> out(n), want(n);

        load(0);
        for (int i = 0; i < n; ++i) {
            in[i]    = (signed char)(i * 37);
            shift[i] = (unsigned short)(i * 1001);
            want[i]  = mixed(in[i], shift[i]);
        }
        CUdeviceptr d_in = upload(in), d_shift = upload(shift);
        CUdeviceptr d_out = upload(out);
        launch("mixed", (n + 127) / 128, 128, 0, d_out, d_in, d_shift, n);
        download(out, d_out);
        EXPECT_EQ(want, out);
    });
}

TEST_F(kernel_plain, numbers_are_rounded_as_in_c)
{
    run(1, [&](int) {
        const double factors[4] = {1.5, -0.25, 3, 1e-3};
        const int n             = 10007;
        std::vector<float> in(n);
        std::vector<double> out(n), want(n);

        load(0);
        for (int i = 0; i < n; ++i) {
            float x = (float)(i - n / 2) * 0.3125f;
            double y = sqrt(fabs((double)x)) * factors[i & 3];

            /* Multiples of 2^-4 below 2048: half precision has 11 bits */
            float half = x;
            int e;
            (void)frexpf(x, &e);
            if (x != 0) {
                half = ldexpf(nearbyintf(ldexpf(x, 11 - e)), e - 11);
            }

            in[i]   = x;
            y       = fma(y, 3.0, (double)(x / 3.0f));
            y      += (double)(fmaxf(x, 0.5f) - fminf(x, -0.5f) + floorf(x) +
                               rintf(x) + truncf(x));
            y      += (double)lrintf(x) + (double)(unsigned char)(int)x;
            y      += (double)(half + sqrtf(fabsf(x)));
            want[i] = y;
        }
        CUdeviceptr d_in = upload(in), d_out = upload(out);
        launch("numbers", (n + 127) / 128, 128, 0, d_out, d_in, n);
        download(out, d_out);
        EXPECT_EQ(want, out);
    });
}

TEST_F(kernel_plain, warps_vote_and_atomics_add_up)
{
    run(1, [&](int) {
        const unsigned blocks = 3, threads = 96;
        std::vector<unsigned> in(blocks * threads), out(blocks * 8), want;

        load(0);
        for (size_t i = 0; i < in.size(); ++i) {
            in[i] = (unsigned)(i * i + 3) % 1009;
        }
        for (unsigned b = 0; b < blocks; ++b) {
            const unsigned *x = &in[b * threads];
            unsigned cell[8]  = {0, ~0u, 0, 0, 0, 0, 0, 0};

            for (unsigned t = 0; t < threads; ++t) {
                const unsigned *warp = x + t / 32 * 32;
                unsigned threes = 0, odd = 0;

                for (unsigned j = 0; j < 32; ++j) {
                    threes += (warp[j] == 3);
                    odd    += warp[j] & 1;
                }
                cell[0] += x[t];
                cell[1]  = std::min(cell[1], x[t]);
                cell[2]  = std::max(cell[2], x[t]);
                cell[3] |= x[t];
                cell[4] ^= x[t];
                cell[5] += (threes > 0) && (threes < 32);
                cell[6] += odd;
                cell[7] += warp[(t % 32) ^ 5] * t;
            }
            want.insert(want.end(), cell, cell + 8);
        }
        CUdeviceptr d_in = upload(in), d_out = upload(out);
        launch("votes", blocks, threads, 0, d_out, d_in);
        download(out, d_out);
        EXPECT_EQ(want, out);
    });
}
