/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: errors, and the state of a thread.
 */
#include "cudart.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

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

/* Results of the runtime alone, and those that the driver calls otherwise: then
   without a text, as both say the same of a result */
static const struct {
    int        error;
    const char *name;
    const char *text;
} cuemu_cudart_errors[] = {
    {0, "cudaSuccess", NULL},
    {2, "cudaErrorMemoryAllocation", NULL},
    {3, "cudaErrorInitializationError", NULL},
    {4, "cudaErrorCudartUnloading", NULL},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {13, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {21, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {35, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {46, "cudaErrorDevicesUnavailable", NULL},
    {52, "cudaErrorMissingConfiguration",
     "__global__ function call is not configured"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {200, "cudaErrorInvalidKernelImage", NULL},
    {201, "cudaErrorDeviceUninitialized", NULL},
    {205, "cudaErrorMapBufferObjectFailed", NULL},
    {206, "cudaErrorUnmapBufferObjectFailed", NULL},
    {209, "cudaErrorNoKernelImageForDevice", NULL},
    {214, "cudaErrorECCUncorrectable", NULL},
    {216, "cudaErrorDeviceAlreadyInUse", NULL},
    {225, "cudaErrorUnsupportedDevSideSync", NULL},
    {400, "cudaErrorInvalidResourceHandle", NULL},
    {500, "cudaErrorSymbolNotFound", NULL},
    {708, "cudaErrorSetOnActiveProcess", NULL},
    {719, "cudaErrorLaunchFailure", NULL}
};

#define CUEMU_CUDART_NUM_ERRORS \
    (sizeof(cuemu_cudart_errors) / sizeof(cuemu_cudart_errors[0]))

#define CUEMU_CUDART_MAX_ERROR 1000

static struct {
    pthread_once_t once;
    char           name[CUEMU_CUDART_MAX_ERROR][48];
    const char    *text[CUEMU_CUDART_MAX_ERROR];
} cuemu_cudart_texts = {
    .once = PTHREAD_ONCE_INIT
};

/* Derive a name: CUDA_ERROR_INVALID_VALUE is cudaErrorInvalidValue. */
static void cuemu_cudart_derive(const char *from, char *name, size_t size)
{
    size_t length = (size_t)snprintf(name, size, "cudaError");
    int is_first  = 1;

    for (from += strlen("CUDA_ERROR_"); (*from != '\0') && (length + 1 < size);
         ++from) {
        if (*from != '_') {
            name[length++] = (char)(is_first ? *from : tolower(*from));
        }
        is_first = (*from == '_');
    }
}

static void cuemu_cudart_describe(void)
{
    const char *name;
    size_t i;
    int error;

    for (error = 0; error < CUEMU_CUDART_MAX_ERROR; ++error) {
        cuemu_cudart_texts.text[error] = cuemu_result(error, &name);
        if (name != NULL) {
            cuemu_cudart_derive(name, cuemu_cudart_texts.name[error],
                                sizeof(cuemu_cudart_texts.name[0]));
        }
    }
    for (i = 0; i < CUEMU_CUDART_NUM_ERRORS; ++i) {
        error = cuemu_cudart_errors[i].error;
        strcpy(cuemu_cudart_texts.name[error], cuemu_cudart_errors[i].name);
        if (cuemu_cudart_errors[i].text != NULL) {
            cuemu_cudart_texts.text[error] = cuemu_cudart_errors[i].text;
        }
    }
}

/* Return non-zero if an error has a name and a text. */
static int cuemu_cudart_is_known(cuemu_cudart_error_t error)
{
    pthread_once(&cuemu_cudart_texts.once, cuemu_cudart_describe);
    return (error >= 0) && (error < CUEMU_CUDART_MAX_ERROR) &&
           (cuemu_cudart_texts.name[error][0] != '\0');
}

CUEMU_CUDART_EXPORT const char *cudaGetErrorName(cuemu_cudart_error_t error)
{
    return cuemu_cudart_is_known(error) ? cuemu_cudart_texts.name[error] :
                                          "unrecognized error code";
}

CUEMU_CUDART_EXPORT const char *cudaGetErrorString(cuemu_cudart_error_t error)
{
    return cuemu_cudart_is_known(error) ? cuemu_cudart_texts.text[error] :
                                          "unrecognized error code";
}
