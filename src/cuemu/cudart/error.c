/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: errors, and the state of a thread.
 */
#include "cudart.h"

/* without "not ready": a query of unfinished work is no failure */
static __thread cuemu_cudart_error_t cuemu_cudart_last;

cuemu_cudart_error_t cuemu_cudart_return(cuemu_cudart_error_t error)
{
    if ((error != CUDART_SUCCESS) && (error != CUDART_NOT_READY)) {
        cuemu_cudart_last = error;
    }
    return error;
}

/* Identifies this library for preload/static.c, which redirects NVIDIA's */
CUEMU_CUDART_EXPORT const int __cudaEmulated = CUEMU_CUDART_MAJOR;

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaGetLastError(void)
{
    cuemu_cudart_error_t error = cuemu_cudart_last;

    cuemu_cudart_last = CUDART_SUCCESS;
    return error;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t cudaPeekAtLastError(void)
{
    return cuemu_cudart_last;
}

static const struct {
    int        error;
    const char *name;
    const char *text;
} cuemu_cudart_errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {3, "cudaErrorInitializationError", "initialization error"},
    {4, "cudaErrorCudartUnloading", "driver shutting down"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {13, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {21, "cudaErrorInvalidMemcpyDirection",
         "invalid copy direction for memcpy"},
    {35, "cudaErrorInsufficientDriver",
         "CUDA driver version is insufficient for CUDA runtime version"},
    {46, "cudaErrorDevicesUnavailable",
         "CUDA-capable device(s) is/are busy or unavailable"},
    {52, "cudaErrorMissingConfiguration",
         "__global__ function call is not configured"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {201, "cudaErrorDeviceUninitialized", "invalid device context"},
    {209, "cudaErrorNoKernelImageForDevice",
          "no kernel image is available for execution on the device"},
    {215, "cudaErrorUnsupportedLimit",
          "limit is not supported on this architecture"},
    {217, "cudaErrorPeerAccessUnsupported",
          "peer access is not supported between these two devices"},
    {218, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"},
    {222, "cudaErrorUnsupportedPtxVersion",
          "the provided PTX was compiled with an unsupported toolchain."},
    {304, "cudaErrorOperatingSystem",
          "OS call failed or operation not supported on this OS"},
    {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {500, "cudaErrorSymbolNotFound", "named symbol not found"},
    {600, "cudaErrorNotReady", "device not ready"},
    {700, "cudaErrorIllegalAddress",
          "an illegal memory access was encountered"},
    {701, "cudaErrorLaunchOutOfResources",
          "too many resources requested for launch"},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {704, "cudaErrorPeerAccessAlreadyEnabled",
          "peer access is already enabled"},
    {705, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {708, "cudaErrorSetOnActiveProcess",
          "cannot set while device is active in this process"},
    {709, "cudaErrorContextIsDestroyed", "context is destroyed"},
    {710, "cudaErrorAssert", "device-side assert triggered"},
    {712, "cudaErrorHostMemoryAlreadyRegistered",
          "part or all of the requested memory range is already mapped"},
    {713, "cudaErrorHostMemoryNotRegistered",
          "pointer does not correspond to a registered memory region"},
    {716, "cudaErrorMisalignedAddress", "misaligned address"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {720, "cudaErrorCooperativeLaunchTooLarge",
          "too many blocks in cooperative launch"},
    {800, "cudaErrorNotPermitted", "operation not permitted"},
    {801, "cudaErrorNotSupported", "operation not supported"},
    {900, "cudaErrorStreamCaptureUnsupported",
          "operation not permitted when stream is capturing"},
    {901, "cudaErrorStreamCaptureInvalidated",
          "operation failed due to a previous error during capture"},
    {902, "cudaErrorStreamCaptureMerge",
          "operation would result in a merge of separate capture sequences"},
    {903, "cudaErrorStreamCaptureUnmatched",
          "capture was not ended in the same stream as it began"},
    {904, "cudaErrorStreamCaptureUnjoined",
          "capturing stream has unjoined work"},
    {905, "cudaErrorStreamCaptureIsolation",
          "dependency created on uncaptured work in another stream"},
    {906, "cudaErrorStreamCaptureImplicit",
          "operation would make the legacy stream depend on a capturing "
          "blocking stream"},
    {907, "cudaErrorCapturedEvent",
          "operation not permitted on an event last recorded in a capturing "
          "stream"},
    {908, "cudaErrorStreamCaptureWrongThread",
          "attempt to terminate a thread-local capture sequence from another "
          "thread"},
    {909, "cudaErrorTimeout", "wait operation timed out"},
    {910, "cudaErrorGraphExecUpdateFailure",
          "the graph update was not performed because it included changes "
          "which violated constraints specific to instantiated graph update"},
    {999, "cudaErrorUnknown", "unknown error"}
};

#define CUEMU_CUDART_NUM_ERRORS \
    (sizeof(cuemu_cudart_errors) / sizeof(cuemu_cudart_errors[0]))

CUEMU_CUDART_EXPORT const char *cudaGetErrorName(cuemu_cudart_error_t error)
{
    size_t i;

    for (i = 0; i < CUEMU_CUDART_NUM_ERRORS; ++i) {
        if (cuemu_cudart_errors[i].error == error) {
            return cuemu_cudart_errors[i].name;
        }
    }
    return "unrecognized error code";
}

CUEMU_CUDART_EXPORT const char *cudaGetErrorString(cuemu_cudart_error_t error)
{
    size_t i;

    for (i = 0; i < CUEMU_CUDART_NUM_ERRORS; ++i) {
        if (cuemu_cudart_errors[i].error == error) {
            return cuemu_cudart_errors[i].text;
        }
    }
    return "unrecognized error code";
}
