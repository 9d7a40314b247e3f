/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: streams and events. Their capture into graphs is in capture.c.
 */
#include "cudart.h"

typedef void (*cuemu_cudart_host_fn_t)(void *user_data);
typedef void (*cuemu_cudart_callback_t)(CUstream stream, int error,
                                        void *user_data);

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaStreamCreate(CUstream *stream)
{
    CUEMU_CUDART_CALL(cuStreamCreate(stream, 0));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamCreateWithFlags(CUstream *stream, unsigned flags)
{
    CUEMU_CUDART_CALL(cuStreamCreate(stream, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    CUEMU_CUDART_CALL(cuStreamCreateWithPriority(stream, flags, priority));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamGetFlags(CUstream stream, unsigned *flags)
{
    CUEMU_CUDART_CALL(cuStreamGetFlags(stream, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamGetPriority(CUstream stream, int *priority)
{
    CUEMU_CUDART_CALL(cuStreamGetPriority(stream, priority));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaStreamDestroy(CUstream stream)
{
    CUEMU_CUDART_CALL(cuStreamDestroy(stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaStreamSynchronize(CUstream stream)
{
    CUEMU_CUDART_CALL(cuStreamSynchronize(stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaStreamQuery(CUstream stream)
{
    CUEMU_CUDART_CALL(cuStreamQuery(stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CUEMU_CUDART_CALL(cuStreamWaitEvent(stream, event, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaLaunchHostFunc(CUstream stream, cuemu_cudart_host_fn_t fn, void *userData)
{
    CUEMU_CUDART_CALL(cuLaunchHostFunc(stream, fn, userData));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaStreamAddCallback(CUstream stream, cuemu_cudart_callback_t callback,
                      void *userData, unsigned flags)
{
    /* CUresult and cudaError_t agree in size and numbers */
    CUEMU_CUDART_CALL(cuStreamAddCallback(stream,
                                          (CUstreamCallback)(void*)callback,
                                          userData, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaEventCreate(CUevent *event)
{
    CUEMU_CUDART_CALL(cuEventCreate(event, 0));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaEventCreateWithFlags(CUevent *event, unsigned flags)
{
    CUEMU_CUDART_CALL(cuEventCreate(event, flags));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaEventDestroy(CUevent event)
{
    CUEMU_CUDART_CALL(cuEventDestroy(event));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaEventRecord(CUevent event,
                                                         CUstream stream)
{
    CUEMU_CUDART_CALL(cuEventRecord(event, stream));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaEventSynchronize(CUevent event)
{
    CUEMU_CUDART_CALL(cuEventSynchronize(event));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaEventQuery(CUevent event)
{
    CUEMU_CUDART_CALL(cuEventQuery(event));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    CUEMU_CUDART_CALL(cuEventElapsedTime(ms, start, end));
}

#if CUEMU_CUDART_MAJOR < 13
/* name of this function for programs built with CUDA 12.8 and later */
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    CUEMU_CUDART_CALL(cuEventElapsedTime(ms, start, end));
}
#endif
