/* SPDX-License-Identifier: BSD-3-Clause */

/* Code for the GPU: what its loading (module.c, fatbin.c) and its running
   (kernel.c) know of each other. */
#ifndef CUEMU_KERNEL_H_
#define CUEMU_KERNEL_H_

#include "cuemu_driver.h"
#include "../ptx/ptx.h"

/* Threads of a block: all GPUs of these days */
#define CUEMU_BLOCK_THREADS 1024

typedef struct cuemu_module   cuemu_module_t;
typedef struct cuemu_function cuemu_function_t;
typedef struct cuemu_library  cuemu_library_t;
typedef struct cuemu_kernel   cuemu_kernel_t;

struct cuemu_module {
    cuemu_object_t      obj;
    cuemu_context_t    *ctx;
    cuemu_ptx_module_t *ptx;
    CUdeviceptr         globals;   /* memory of all its variables; 0: none */
    cuemu_function_t   *functions;
    cuemu_module_t     *next;      /* of a library */
    int                 refs;      /* itself, and launches under way */
    int                 target;    /* 90 for ".target sm_90" */
};

struct cuemu_function {
    cuemu_object_t      obj;
    cuemu_module_t     *module;
    cuemu_ptx_kernel_t *kernel;
    cuemu_ptx_info_t    info;
    uint32_t            dynamic_shared; /* it may have; 0: not said */
    cuemu_function_t   *next;
};

CUresult cuemu_function_resolve(CUfunction handle,
                                cuemu_function_t **function_p);

/* Dynamic shared memory that it may be launched with, bytes. */
uint32_t cuemu_function_shared(const cuemu_function_t *function);

/* A file, with zeros behind it, from malloc(). */
CUresult cuemu_image_read(const char *path, void **image_p, size_t *size_p);

/* A launch of it has ended. */
void cuemu_module_release(cuemu_module_t *module);

#define CUEMU_FATBIN_MAGIC   0xba55ed50u
#define CUEMU_FATBIN_WRAPPER 0x466243b1u

/* The PTX in a fat binary that suits a GPU, from malloc(). */
CUresult cuemu_fatbin_text(const void *image, int sm, char **text_p,
                           char *error);

#endif
