/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Kernels as people write them without the emulated node in mind.
 * kernel_plain.cc runs plain.ptx, compiled by nvcc:
 *
 *     regenerate
 */
#include <cuda_fp16.h>

extern "C" __global__ void vector_add(float *out, const float *a,
                                      const float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        out[i] = a[i] + b[i];
    }
}

/* Stencil of five points, in a tile of shared memory with its edges */
#define TILE 16

extern "C" __global__ void stencil(double *out, const double *in, int width,
                                   int height)
{
    __shared__ double tile[TILE + 2][TILE + 2];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    int i = threadIdx.x + 1, j = threadIdx.y + 1;
    bool inside = (x < width) && (y < height);

    tile[j][i] = inside ? in[y * width + x] : 0.0;
    if (threadIdx.x == 0) {
        tile[j][0] = ((x > 0) && (y < height)) ? in[y * width + x - 1] : 0.0;
    }
    if (threadIdx.x == TILE - 1) {
        tile[j][TILE + 1] = ((x + 1 < width) && (y < height)) ?
                            in[y * width + x + 1] : 0.0;
    }
    if (threadIdx.y == 0) {
        tile[0][i] = ((y > 0) && (x < width)) ? in[(y - 1) * width + x] : 0.0;
    }
    if (threadIdx.y == TILE - 1) {
        tile[TILE + 1][i] = ((y + 1 < height) && (x < width)) ?
                            in[(y + 1) * width + x] : 0.0;
    }
    __syncthreads();

    if (inside) {
        out[y * width + x] = 0.5 * tile[j][i] +
                             0.125 * (tile[j - 1][i] + tile[j + 1][i] +
                                      tile[j][i - 1] + tile[j][i + 1]);
    }
}

/* Shared memory sized by the launch, a tree, one atomic per block */
extern "C" __global__ void sum_tree(unsigned *out, const unsigned *in, int n)
{
    extern __shared__ unsigned part[];
    unsigned sum = 0;

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x) {
        sum += in[i];
    }
    part[threadIdx.x] = sum;
    __syncthreads();

    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(out, part[0]);
    }
}

/* The same with shuffles; the last block adds the results of all */
__device__ unsigned blocks_done;

extern "C" __global__ void sum_shuffle(float *out, float *left, const float *in,
                                       int n)
{
    __shared__ float part[32];
    __shared__ bool is_last;
    float sum = 0;

    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += gridDim.x * blockDim.x) {
        sum += in[i];
    }
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, d);
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = sum;
    }
    __syncthreads();

    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned i = 0; i < blockDim.x / 32; ++i) {
            sum += part[i];
        }
        left[blockIdx.x] = sum;
        __threadfence();
        is_last = (atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1);
    }
    __syncthreads();

    if (is_last && (threadIdx.x == 0)) {
        sum = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) {
            sum += left[i];
        }
        *out = sum;
    }
}

/* 16 bytes per thread and step, as in bandwidth tests */
extern "C" __global__ void copy_stride(uint4 *out, const uint4 *in, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        out[i] = in[i];
    }
}

/* Threads diverge and converge again, each after a different number of steps */
extern "C" __global__ void collatz(unsigned *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned steps = 0;

    if (i >= n) {
        return;
    }
    for (unsigned long long x = i + 1; x != 1; ++steps) {
        if (x & 1) {
            x = 3 * x + 1;
        } else {
            x /= 2;
        }
    }
    out[i] = steps;
}

/* A table of branches, local memory, bytes, all of C's integer operators */
extern "C" __global__ void mixed(long long *out, const signed char *in,
                                 const unsigned short *shift, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    long long kept[8] = {};

    if (i >= n) {
        return;
    }
    for (int j = 0; j < 8; ++j) {
        kept[(j * in[i]) & 7] = (long long)in[i] * j - shift[i];
    }
    long long x = kept[shift[i] & 7];
    switch (in[i] & 7) {
    case 0:
        x = x / (in[i] | 1);
        break;
    case 1:
        x = x % 7;
        break;
    case 2:
        x = x << (shift[i] & 31);
        break;
    case 3:
        x = x >> (shift[i] & 31);
        break;
    case 4:
        x = ~x & 0xf0f0f0f0f0f0ll;
        break;
    case 5:
        x = (unsigned)x * (unsigned long long)shift[i];
        break;
    case 6:
        x = __popcll(x) + __clzll(x) * 100 + __ffsll(x) * 10000;
        break;
    default:
        x = (x < 0) ? -x : (x ^ 0x5555);
        break;
    }
    out[i] = x + __mul64hi(x, x) + __umulhi((unsigned)x, 77777u) +
             __brev((unsigned)x) + __byte_perm((unsigned)x, 0x11223344, 0x3715);
}

/* Floating point: exact, or rounded in the same way everywhere */
__constant__ double factors[4] = {1.5, -0.25, 3, 1e-3};

extern "C" __global__ void numbers(double *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        float x = in[i];
        double y = sqrt(fabs((double)x)) * factors[i & 3];

        y = fma(y, 3.0, (double)__fdiv_rn(x, 3.0f));
        y += fmax(x, 0.5f) - fmin(x, -0.5f) + floorf(x) + rintf(x) + truncf(x);
        y += (double)__float2int_rn(x) + (double)(unsigned char)(int)x;
        y += __half2float(__float2half_rn(x)) + sqrtf(fabsf(x));
        out[i] = y;
    }
}

/* Votes and matches of a warp, every atomic operation on shared memory */
extern "C" __global__ void votes(unsigned *out, const unsigned *in)
{
    __shared__ unsigned cell[8];
    unsigned x = in[blockIdx.x * blockDim.x + threadIdx.x];
    unsigned ballot = __ballot_sync(0xffffffff, x & 1);

    if (threadIdx.x < 8) {
        cell[threadIdx.x] = (threadIdx.x == 1) ? 0xffffffff : 0;
    }
    __syncthreads();
    atomicAdd(&cell[0], x);
    atomicMin(&cell[1], x);
    atomicMax(&cell[2], x);
    atomicOr(&cell[3], x);
    atomicXor(&cell[4], x);
    if (__any_sync(0xffffffff, x == 3) && !__all_sync(0xffffffff, x == 3)) {
        atomicAdd(&cell[5], 1);
    }
    atomicAdd(&cell[6], __popc(__activemask() & ballot));
    atomicAdd(&cell[7], __shfl_xor_sync(0xffffffff, x, 5) * threadIdx.x);
    __syncthreads();
    if (threadIdx.x < 8) {
        out[blockIdx.x * 8 + threadIdx.x] = cell[threadIdx.x];
    }
}
