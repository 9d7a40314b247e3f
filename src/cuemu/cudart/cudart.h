/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A CUDA runtime library over the driver API, for programs that run on the
 * emulated node: NVIDIA's own asks its driver for private tables.
 *
 * The numbers and layouts are those of the runtime's public headers, which are
 * not used here, since one source makes the libraries of CUDA 12 and 13
 * (CUEMU_CUDART_MAJOR) and their headers disagree.
 */
#ifndef CUEMU_CUDART_H_
#define CUEMU_CUDART_H_

#include "../driver/toolkit.h"

#include <stddef.h>
#include <stdint.h>

#define CUEMU_CUDART_EXPORT __attribute__((visibility("default")))

/* cudaError_t. Where the driver has the same error, the number is the same. */
typedef int cuemu_cudart_error_t;

enum {
    CUDART_SUCCESS                 = 0,
    CUDART_INVALID_VALUE           = 1,
    CUDART_INVALID_PITCH           = 12,
    CUDART_INVALID_MEMCPY_DIRECTION = 21,
    CUDART_INSUFFICIENT_DRIVER     = 35,
    CUDART_MISSING_CONFIGURATION   = 52,
    CUDART_INVALID_DEVICE_FUNCTION = 98,
    CUDART_NO_DEVICE               = 100,
    CUDART_INVALID_DEVICE          = 101,
    CUDART_NOT_READY               = 600,
    CUDART_SYMBOL_NOT_FOUND        = 500,
    CUDART_NOT_SUPPORTED           = 801,
    CUDART_INVALID_SYMBOL          = 13
};

/*
 * Makes the driver ready and gives the calling thread a current context (the
 * primary one of its device), unless it has one.
 */
cuemu_cudart_error_t cuemu_cudart_enter(void);

/* The driver is ready; no context is made. */
cuemu_cudart_error_t cuemu_cudart_driver(void);

/* Remembers an error for cudaGetLastError, and returns it. */
cuemu_cudart_error_t cuemu_cudart_return(cuemu_cudart_error_t error);

/*
 * The driver finds out by itself what the addresses of a copy are; so does the
 * runtime, which only refuses a direction (cudaMemcpyKind) that does not exist.
 */
cuemu_cudart_error_t cuemu_cudart_kind(int kind);

/* A whole call: enter, run a driver function, remember its error. */
#define CUEMU_CUDART_CALL(_call) \
    do { \
        cuemu_cudart_error_t _error = cuemu_cudart_enter(); \
        if (_error == CUDART_SUCCESS) { \
            _error = (cuemu_cudart_error_t)(_call); \
        } \
        return cuemu_cudart_return(_error); \
    } while (0)

/* The same for calls that need no context. */
#define CUEMU_CUDART_PLAIN_CALL(_call) \
    do { \
        cuemu_cudart_error_t _error = cuemu_cudart_driver(); \
        if (_error == CUDART_SUCCESS) { \
            _error = (cuemu_cudart_error_t)(_call); \
        } \
        return cuemu_cudart_return(_error); \
    } while (0)

#endif
