/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: streams and events. Their capture into graphs is in capture.c.
 */
#include "cudart.h"

typedef void (*cuemu_cudart_host_fn_t)(void *user_data);
typedef void (*cuemu_cudart_callback_t)(CUstream stream, int error,
                                        void *user_data);

CUDART_FORWARD(cudaStreamCreate, (CUstream *stream), cuStreamCreate(stream, 0))
CUDART_FORWARD(cudaStreamCreateWithFlags, (CUstream *stream, unsigned flags),
               cuStreamCreate(stream, flags))
CUDART_FORWARD(cudaStreamCreateWithPriority,
               (CUstream *stream, unsigned flags, int priority),
               cuStreamCreateWithPriority(stream, flags, priority))
CUDART_FORWARD_STREAM(cudaStreamGetFlags, (CUstream stream, unsigned *flags),
                      cuStreamGetFlags(stream, flags))
CUDART_FORWARD_STREAM(cudaStreamGetPriority, (CUstream stream, int *priority),
                      cuStreamGetPriority(stream, priority))
CUDART_FORWARD_STREAM(cudaStreamGetId,
                      (CUstream stream, unsigned long long *id),
                      cuStreamGetId(stream, id))
CUDART_FORWARD(cudaStreamGetDevice, (CUstream stream, int *device),
               cuStreamGetDevice(stream, device))
CUDART_FORWARD(cudaStreamDestroy, (CUstream stream), cuStreamDestroy(stream))
CUDART_FORWARD_STREAM(cudaStreamSynchronize, (CUstream stream),
                      cuStreamSynchronize(stream))
CUDART_FORWARD_STREAM(cudaStreamQuery, (CUstream stream), cuStreamQuery(stream))
CUDART_FORWARD_STREAM(cudaStreamWaitEvent,
                      (CUstream stream, CUevent event, unsigned flags),
                      cuStreamWaitEvent(stream, event, flags))
CUDART_FORWARD_STREAM(cudaLaunchHostFunc,
                      (CUstream stream, cuemu_cudart_host_fn_t fn,
                       void *userData),
                      cuLaunchHostFunc(stream, fn, userData))

/* CUresult and cudaError_t agree in size and numbers */
CUDART_FORWARD_STREAM(cudaStreamAddCallback,
                      (CUstream stream, cuemu_cudart_callback_t callback,
                       void *userData, unsigned flags),
                      cuStreamAddCallback(stream,
                                          (CUstreamCallback)(void*)callback,
                                          userData, flags))
CUDART_FORWARD(cudaEventCreate, (CUevent *event), cuEventCreate(event, 0))
CUDART_FORWARD(cudaEventCreateWithFlags, (CUevent *event, unsigned flags),
               cuEventCreate(event, flags))
CUDART_FORWARD(cudaEventDestroy, (CUevent event), cuEventDestroy(event))
CUDART_FORWARD_STREAM(cudaEventRecord, (CUevent event, CUstream stream),
                      cuEventRecord(event, stream))
CUDART_FORWARD_STREAM(cudaEventRecordWithFlags,
                      (CUevent event, CUstream stream, unsigned flags),
                      cuEventRecordWithFlags(event, stream, flags))
CUDART_FORWARD(cudaEventSynchronize, (CUevent event), cuEventSynchronize(event))
/* Without an event also while a stream is captured (H200, driver 580) */
CUDART_FORWARD(cudaEventQuery, (CUevent event),
               (event == NULL) ? CUDA_ERROR_INVALID_HANDLE :
                                 cuEventQuery(event))
CUDART_FORWARD(cudaEventElapsedTime, (float *ms, CUevent start, CUevent end),
               cuEventElapsedTime(ms, start, end))

#if CUEMU_CUDART_MAJOR < 13
/* name of this function for programs built with CUDA 12.8 and later */
CUDART_FORWARD(cudaEventElapsedTime_v2, (float *ms, CUevent start, CUevent end),
               cuEventElapsedTime(ms, start, end))
#endif
