/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: the functions called by programs of nvcc -default-stream per-thread.
 * They take stream 0 as this thread's own stream.
 */
#include "cudart.h"

typedef struct {
    unsigned x, y, z;
} cuemu_cudart_dim3_t;

typedef void (*cuemu_cudart_fn_t)(void *user_data);
typedef void (*cuemu_cudart_callback_t)(CUstream stream, int error,
                                        void *user_data);

#define OWN(_stream) \
    (((_stream) == NULL) ? CU_STREAM_PER_THREAD : (_stream))

/* Define such a variant of a function with a stream. */
#define PER_THREAD(_name, _decl, _args) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name _decl; \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name##_ptsz _decl \
    { \
        return _name _args; \
    }

/* Define such a variant of a function without one: by `_async` in this thread's
   stream, whose end it waits for. */
#define PER_THREAD_SYNC(_name, _decl, _async) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name##_ptds _decl \
    { \
        const cuemu_cudart_error_t error = _async; \
        return (error != CUDART_SUCCESS) ? error : \
               cudaStreamSynchronize_ptsz(CU_STREAM_PER_THREAD); \
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
PER_THREAD(cudaLaunchHostFunc,
           (CUstream stream, cuemu_cudart_fn_t fn, void *user),
           (OWN(stream), fn, user))
PER_THREAD(cudaStreamAddCallback,
           (CUstream stream, cuemu_cudart_callback_t callback, void *user,
            unsigned flags),
           (OWN(stream), callback, user, flags))
PER_THREAD(cudaStreamSynchronize, (CUstream stream), (OWN(stream)))
PER_THREAD(cudaStreamQuery, (CUstream stream), (OWN(stream)))
PER_THREAD(cudaStreamGetFlags, (CUstream stream, unsigned *flags),
           (OWN(stream), flags))
PER_THREAD(cudaStreamGetPriority, (CUstream stream, int *priority),
           (OWN(stream), priority))
PER_THREAD(cudaStreamGetId, (CUstream stream, unsigned long long *id),
           (OWN(stream), id))
PER_THREAD(cudaStreamWaitEvent,
           (CUstream stream, CUevent event, unsigned flags),
           (OWN(stream), event, flags))
PER_THREAD(cudaStreamIsCapturing,
           (CUstream stream, CUstreamCaptureStatus *status),
           (OWN(stream), status))
PER_THREAD(cudaStreamBeginCapture, (CUstream stream, int mode),
           (OWN(stream), mode))
PER_THREAD(cudaStreamEndCapture, (CUstream stream, CUgraph *graph),
           (OWN(stream), graph))
PER_THREAD(cudaStreamAttachMemAsync,
           (CUstream stream, void *ptr, size_t length, unsigned flags),
           (OWN(stream), ptr, length, flags))
PER_THREAD(cudaGraphLaunch, (CUgraphExec exec, CUstream stream),
           (exec, OWN(stream)))
PER_THREAD(cudaEventRecord, (CUevent event, CUstream stream),
           (event, OWN(stream)))
PER_THREAD(cudaEventRecordWithFlags,
           (CUevent event, CUstream stream, unsigned flags),
           (event, OWN(stream), flags))
PER_THREAD(cudaMallocAsync, (void **ptr, size_t size, CUstream stream),
           (ptr, size, OWN(stream)))
PER_THREAD(cudaMallocFromPoolAsync,
           (void **ptr, size_t size, CUmemoryPool pool, CUstream stream),
           (ptr, size, pool, OWN(stream)))
PER_THREAD(cudaFreeAsync, (void *ptr, CUstream stream), (ptr, OWN(stream)))
PER_THREAD(cudaMemcpyAsync,
           (void *dst, const void *src, size_t count, int kind,
            CUstream stream),
           (dst, src, count, kind, OWN(stream)))
PER_THREAD(cudaMemcpyPeerAsync,
           (void *dst, int dst_device, const void *src, int src_device,
            size_t count, CUstream stream),
           (dst, dst_device, src, src_device, count, OWN(stream)))
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
PER_THREAD(cudaMemsetAsync,
           (void *ptr, int value, size_t count, CUstream stream),
           (ptr, value, count, OWN(stream)))
PER_THREAD(cudaMemset2DAsync,
           (void *ptr, size_t pitch, int value, size_t width, size_t height,
            CUstream stream),
           (ptr, pitch, value, width, height, OWN(stream)))

PER_THREAD_SYNC(cudaMemcpy,
                (void *dst, const void *src, size_t count, int kind),
                cudaMemcpyAsync_ptsz(dst, src, count, kind, NULL))
PER_THREAD_SYNC(cudaMemcpy2D,
                (void *dst, size_t dst_pitch, const void *src,
                 size_t src_pitch, size_t width, size_t height, int kind),
                cudaMemcpy2DAsync_ptsz(dst, dst_pitch, src, src_pitch, width,
                                       height, kind, NULL))
PER_THREAD_SYNC(cudaMemcpy3D, (const void *p), cudaMemcpy3DAsync_ptsz(p, NULL))
PER_THREAD_SYNC(cudaMemcpyToSymbol,
                (const void *symbol, const void *src, size_t count,
                 size_t offset, int kind),
                cudaMemcpyToSymbolAsync_ptsz(symbol, src, count, offset, kind,
                                             NULL))
PER_THREAD_SYNC(cudaMemcpyFromSymbol,
                (void *dst, const void *symbol, size_t count, size_t offset,
                 int kind),
                cudaMemcpyFromSymbolAsync_ptsz(dst, symbol, count, offset, kind,
                                               NULL))
PER_THREAD_SYNC(cudaMemset, (void *ptr, int value, size_t count),
                cudaMemsetAsync_ptsz(ptr, value, count, NULL))
PER_THREAD_SYNC(cudaMemset2D,
                (void *ptr, size_t pitch, int value, size_t width,
                 size_t height),
                cudaMemset2DAsync_ptsz(ptr, pitch, value, width, height, NULL))
