/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A CUDA runtime library over the driver API, for programs on the emulated
 * node: NVIDIA's runtime needs private tables of its driver.
 *
 * Numbers and layouts are those of the runtime's public headers. The headers
 * are not included, since one source makes the libraries of CUDA 12 and 13
 * (CUEMU_CUDART_MAJOR) and their headers differ.
 */
#ifndef CUEMU_CUDART_H_
#define CUEMU_CUDART_H_

#include "../driver/toolkit.h"

#include <stddef.h>
#include <stdint.h>

#define CUEMU_CUDART_EXPORT __attribute__((visibility("default")))

/* cudaError_t. Errors of the driver have the same numbers. */
typedef int cuemu_cudart_error_t;

enum {
    CUDART_SUCCESS                 = 0,
    CUDART_INVALID_VALUE           = 1,
#if CUEMU_CUDART_MAJOR >= 13 /* as seen on H200, driver 580 */
    CUDART_INVALID_CONFIGURATION   = CUDART_INVALID_VALUE,
    CUDART_INVALID_LAUNCH          = 400,
#else
    CUDART_INVALID_CONFIGURATION   = 9,
    CUDART_INVALID_LAUNCH          = 98,
#endif
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

/* cudaMemcpyKind */
enum {
    CUDART_MEMCPY_TO_DEVICE = 1,
    CUDART_MEMCPY_TO_HOST   = 2,
    CUDART_MEMCPY_ON_DEVICE = 3,
    CUDART_MEMCPY_DEFAULT   = 4
};

/* dim3, and uint3 in kernel launches */
typedef struct {
    unsigned x, y, z;
} cuemu_cudart_dim3_t;

/* cudaPitchedPtr */
typedef struct {
    void  *ptr;
    size_t pitch, xsize, ysize;
} cuemu_cudart_pitched_t;

/* cudaPos and cudaExtent: bytes, rows, slices */
typedef struct {
    size_t x, y, z;
} cuemu_cudart_box_t;

/* cudaMemcpy3DParms */
typedef struct {
    void                  *src_array;
    cuemu_cudart_box_t     src_pos;
    cuemu_cudart_pitched_t src;
    void                  *dst_array;
    cuemu_cudart_box_t     dst_pos;
    cuemu_cudart_pitched_t dst;
    cuemu_cudart_box_t     extent;
    int                    kind;
} cuemu_cudart_copy3d_t;

/*
 * Initialize the driver and give the calling thread a current context (the
 * primary one of its device), unless it has one.
 */
cuemu_cudart_error_t cuemu_cudart_enter(void);

/* Initialize the driver without making a context. */
cuemu_cudart_error_t cuemu_cudart_driver(void);

/* The emulated driver's, see ../driver/cuemu_gate.h */
const char *cuemu_result(int result, const char **name_p);

/* Store an error for cudaGetLastError, and return it. */
cuemu_cudart_error_t cuemu_cudart_return(cuemu_cudart_error_t error);

/* Check that the direction of a copy is a cudaMemcpyKind. The driver checks
   that what it names as device memory is not pageable. */
cuemu_cudart_error_t cuemu_cudart_kind(int kind);

/* Check the parameters of a copy of a box: arrays are not known here. */
cuemu_cudart_error_t cuemu_cudart_boxes(const cuemu_cudart_copy3d_t *p);

/* Enter the driver and look up the kernel of a function of the program; NULL on
   failure. */
cuemu_cudart_error_t cuemu_cudart_kernel(const void *func, CUkernel *kernel_p);

/* Run a complete call: enter, run a driver function, store its error. */
#define CUEMU_CUDART_CALL(_call) \
    do { \
        cuemu_cudart_error_t _error = cuemu_cudart_enter(); \
        if (_error == CUDART_SUCCESS) { \
            _error = (cuemu_cudart_error_t)(_call); \
        } \
        return cuemu_cudart_return(_error); \
    } while (0)

/* Run a complete call of a driver function that sets the address `_address`,
   and store it in *_ptr; NULL if the function fails. */
#define CUEMU_CUDART_ADDRESS(_ptr, _address, _call) \
    do { \
        cuemu_cudart_error_t _error = cuemu_cudart_enter(); \
        if (_error == CUDART_SUCCESS) { \
            _error   = (cuemu_cudart_error_t)(_call); \
            *(_ptr) = (_error == CUDART_SUCCESS) ? \
                      (void*)(uintptr_t)(_address) : NULL; \
        } \
        return cuemu_cudart_return(_error); \
    } while (0)

/* Define a function that is one call of the driver's. */
#define CUDART_FORWARD(_name, _decl, _call) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name _decl \
    { \
        CUEMU_CUDART_CALL(_call); \
    }

/* The stream of a program of nvcc -default-stream per-thread, which takes 0 as
   this thread's own one */
#define CUEMU_CUDART_OWN(_stream) \
    (((_stream) == NULL) ? CU_STREAM_PER_THREAD : (_stream))

/* Define a function that is one call of the driver's about `stream`, and its
   variant for such programs. */
#define CUDART_FORWARD_STREAM(_name, _decl, _call) \
    CUDART_FORWARD(_name, _decl, _call) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name##_ptsz _decl \
    { \
        stream = CUEMU_CUDART_OWN(stream); \
        CUEMU_CUDART_CALL(_call); \
    }

/* Define such a function that needs no context. */
#define CUDART_FORWARD_PLAIN(_name, _decl, _call) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name _decl \
    { \
        cuemu_cudart_error_t _error = cuemu_cudart_driver(); \
        if (_error == CUDART_SUCCESS) { \
            _error = (cuemu_cudart_error_t)(_call); \
        } \
        return cuemu_cudart_return(_error); \
    }

#endif
