/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One sweep of Jacobi's method for Laplace's equation: each point becomes the
 * mean of its four neighbours. Made into jacobi.ptx by regenerate.
 */
#include "jacobi_layout.h"

/* Rounded by itself: fused with the difference below, it would depend on who
   compiles, and the host's solution would have other bits */
static __device__ float mean(float left, float right, float above, float below)
{
    return __fmul_rn(0.25f, (left + right) + (above + below));
}

/* Bits of |a - b|, which have the numbers' order, NaN behind them all */
static __device__ unsigned change(float a, float b)
{
    return __float_as_uint(fabsf(a - b));
}

static __device__ float4 load4(const float *from)
{
    return *(const float4*)from;
}

/*
 * Rows first <= y < last of `out` from `in`. A thread has four columns and
 * JACOBI_STRIP rows, so that each row is read from memory once and not thrice.
 * If `residual` is given, it becomes the largest change of a point, or stays.
 */
extern "C" __global__ void jacobi_update(const float *in, float *out,
                                         unsigned columns,
                                         unsigned long long pitch,
                                         unsigned first, unsigned last,
                                         unsigned *residual)
{
    unsigned x = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    unsigned y = first + blockIdx.y * JACOBI_STRIP;
    unsigned end  = min(y + JACOBI_STRIP, last);
    unsigned most = 0;
    float4 above, here, below, next;

    if (x < columns) {
        in   += y * pitch + JACOBI_PAD + x;
        out  += y * pitch + JACOBI_PAD + x;
        above = load4(in - pitch);
        here  = load4(in);
        for (; y < end; ++y, in += pitch, out += pitch) {
            below  = load4(in + pitch);
            next.x = mean(in[-1], here.y, above.x, below.x);
            next.y = mean(here.x, here.z, above.y, below.y);
            next.z = mean(here.y, here.w, above.z, below.z);
            next.w = mean(here.z, in[4], above.w, below.w);
            *(float4*)out = next;
            if (residual != nullptr) {
                most = max(most, max(max(change(next.x, here.x),
                                         change(next.y, here.y)),
                                     max(change(next.z, here.z),
                                         change(next.w, here.w))));
            }
            above = here;
            here  = below;
        }
    }

    if (residual != nullptr) {
        for (unsigned apart = 16; apart > 0; apart /= 2) {
            most = max(most, __shfl_xor_sync(~0u, most, apart));
        }
        if ((threadIdx.x % 32 == 0) && (most > 0)) {
            atomicMax(residual, most);
        }
    }
}

/* A column of the field to and from contiguous memory, as messages have it.
   `index` from the first float of a row on. */
extern "C" __global__ void jacobi_column_get(const float *field, float *column,
                                             unsigned rows,
                                             unsigned long long pitch,
                                             unsigned long long index)
{
    unsigned y = blockIdx.x * blockDim.x + threadIdx.x;

    if (y < rows) {
        column[y] = field[(y + 1) * pitch + index];
    }
}

extern "C" __global__ void jacobi_column_put(float *field, const float *column,
                                             unsigned rows,
                                             unsigned long long pitch,
                                             unsigned long long index)
{
    unsigned y = blockIdx.x * blockDim.x + threadIdx.x;

    if (y < rows) {
        field[(y + 1) * pitch + index] = column[y];
    }
}
