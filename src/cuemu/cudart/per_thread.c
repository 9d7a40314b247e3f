/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: the functions called by programs of nvcc -default-stream per-thread.
 * They take stream 0 as this thread's own stream.
 */
#include "cudart.h"

#define OWN(_stream) CUEMU_CUDART_OWN(_stream)

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaMemcpyAsync(void *dst,
                                                         const void *src,
                                                         size_t count, int kind,
        CUstream stream);
CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaMemsetAsync(void *ptr, int value,
                                                         size_t count,
                                                         CUstream stream);
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemset2DAsync(void *ptr, size_t pitch, int value, size_t width,
                  size_t height, CUstream stream);
CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaStreamSynchronize(CUstream stream);

/* Define such a variant of a function with a stream, unless
   CUDART_FORWARD_STREAM() has. */
#define PER_THREAD(_name, _decl, _args) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name _decl; \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name##_ptsz _decl \
    { \
        return _name _args; \
    }

/* Define such a variant of a function without one: by `_async` in `own`, this
   thread's stream, whose end it waits for. */
#define PER_THREAD_SYNC(_name, _decl, _async) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name##_ptds _decl \
    { \
        const CUstream own               = CU_STREAM_PER_THREAD; \
        const cuemu_cudart_error_t error = _async; \
        return (error != CUDART_SUCCESS) ? error : cudaStreamSynchronize(own); \
    }

PER_THREAD(__cudaLaunchKernel,
           (CUkernel kernel, cuemu_cudart_dim3_t grid,
            cuemu_cudart_dim3_t block, void **args, size_t shared,
            CUstream stream),
           (kernel, grid, block, args, shared, OWN(stream)))
PER_THREAD(cudaLaunchKernel,
           (const void *func, cuemu_cudart_dim3_t grid,
            cuemu_cudart_dim3_t block, void **args, size_t shared,
            CUstream stream),
           (func, grid, block, args, shared, OWN(stream)))
PER_THREAD(cudaLaunchCooperativeKernel,
           (const void *func, cuemu_cudart_dim3_t grid,
            cuemu_cudart_dim3_t block, void **args, size_t shared,
            CUstream stream),
           (func, grid, block, args, shared, OWN(stream)))
PER_THREAD(cudaMallocAsync, (void **ptr, size_t size, CUstream stream),
           (ptr, size, OWN(stream)))
PER_THREAD(cudaMallocFromPoolAsync,
           (void **ptr, size_t size, CUmemoryPool pool, CUstream stream),
           (ptr, size, pool, OWN(stream)))
PER_THREAD(cudaMemcpy2DAsync,
           (void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
            size_t width, size_t height, int kind, CUstream stream),
           (dst, dst_pitch, src, src_pitch, width, height, kind, OWN(stream)))
PER_THREAD(cudaMemcpy3DAsync, (const void *p, CUstream stream),
           (p, OWN(stream)))
PER_THREAD(cudaMemcpyToSymbolAsync,
           (const void *symbol, const void *src, size_t count, size_t offset,
            int kind, CUstream stream),
           (symbol, src, count, offset, kind, OWN(stream)))
PER_THREAD(cudaMemcpyFromSymbolAsync,
           (void *dst, const void *symbol, size_t count, size_t offset,
            int kind, CUstream stream),
           (dst, symbol, count, offset, kind, OWN(stream)))

PER_THREAD_SYNC(cudaMemcpy,
                (void *dst, const void *src, size_t count, int kind),
                cudaMemcpyAsync(dst, src, count, kind, own))
PER_THREAD_SYNC(cudaMemcpy2D,
                (void *dst, size_t dst_pitch, const void *src,
                 size_t src_pitch, size_t width, size_t height, int kind),
                cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width,
                                       height, kind, own))
PER_THREAD_SYNC(cudaMemcpy3D, (const void *p), cudaMemcpy3DAsync(p, own))
PER_THREAD_SYNC(cudaMemcpyToSymbol,
                (const void *symbol, const void *src, size_t count,
                 size_t offset, int kind),
                cudaMemcpyToSymbolAsync(symbol, src, count, offset, kind,
                                             own))
PER_THREAD_SYNC(cudaMemcpyFromSymbol,
                (void *dst, const void *symbol, size_t count, size_t offset,
                 int kind),
                cudaMemcpyFromSymbolAsync(dst, symbol, count, offset, kind,
                                               own))
PER_THREAD_SYNC(cudaMemset, (void *ptr, int value, size_t count),
                cudaMemsetAsync(ptr, value, count, own))
PER_THREAD_SYNC(cudaMemset2D,
                (void *ptr, size_t pitch, int value, size_t width,
                 size_t height),
                cudaMemset2DAsync(ptr, pitch, value, width, height, own))
