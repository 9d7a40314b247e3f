/* SPDX-License-Identifier: BSD-3-Clause */

/* GPU code: shared by module.c and fatbin.c, for loading, and by job.c and
   kernel.c, for running. */
#ifndef CUEMU_KERNEL_H_
#define CUEMU_KERNEL_H_

#include "cuemu_graph.h"
#include "../ptx/ptx.h"

/* Maximum of threads in a block, the same for all current GPUs */
#define CUEMU_BLOCK_THREADS 1024

typedef struct cuemu_module   cuemu_module_t;
typedef struct cuemu_function cuemu_function_t;
typedef struct cuemu_library  cuemu_library_t;
typedef struct cuemu_kernel   cuemu_kernel_t;

struct cuemu_module {
    cuemu_object_t      obj;
    cuemu_context_t    *ctx;
    cuemu_ptx_module_t *ptx;
    CUdeviceptr         globals;   /* memory of all its variables but managed
                                      ones; 0: none */
    int                 owns_managed; /* the first module of a library */
    cuemu_function_t   *functions;
    cuemu_module_t     *next;      /* next module of a library */
    int                 refs;      /* itself, and running launches */
    int                 target;    /* 90 for ".target sm_90" */
};

struct cuemu_function {
    cuemu_object_t      obj;
    cuemu_module_t     *module;
    cuemu_ptx_kernel_t *kernel;
    cuemu_ptx_info_t    info;
    uint32_t            dynamic_shared; /* limit in bytes; 0: default */
    cuemu_function_t   *next;
};

/* Find the function of a handle of cuModuleGetFunction() or
   cuLibraryGetKernel(). For the latter loads the library into the current
   context if necessary. Returns the call's error if there is no function. */
CUresult cuemu_function_resolve(CUfunction handle,
                                cuemu_function_t **function_p);

/* Return the largest dynamic shared memory of a launch, in bytes. */
uint32_t cuemu_function_shared(const cuemu_function_t *function);

/* Return the most threads that a block of the function may have. */
unsigned cuemu_function_threads(const cuemu_function_t *function);

/* Return how many blocks of that many threads and bytes of dynamic shared
   memory fit a multiprocessor; PTX does not say the registers. */
unsigned cuemu_function_blocks(const cuemu_function_t *function,
                               uint64_t threads, size_t shared);

/* Read a file into memory from malloc(), with zeros behind it; the caller frees
   it. Errors: INVALID_VALUE (`path` NULL), FILE_NOT_FOUND, INVALID_IMAGE (not
   readable), OUT_OF_MEMORY. */
CUresult cuemu_image_read(const char *path, void **image_p, size_t *size_p);

/* Drop a launch's reference to the module. The last one frees an unloaded
   module. */
void cuemu_module_release(cuemu_module_t *module);

/* Free the modules of a context that ends, and make their handles invalid. Code
   of running kernels stays until they end. Call with the lock. */
void cuemu_module_retire(cuemu_context_t *ctx);

/* Return non-zero if the blocks of a launch may wait for each other. */
int cuemu_job_is_cooperative(const CUlaunchConfig *config);

/* Make a job of a launch. Errors: INVALID_VALUE (parameters), OUT_OF_MEMORY. */
CUresult cuemu_job_new(const cuemu_function_t *function,
                       const CUlaunchConfig *config, void **params,
                       void **extra, cuemu_job_t **job_p);

/* Launch a job in a stream; the launch has its reference. */
void cuemu_job_submit(cuemu_job_t *job, cuemu_stream_t *stream,
                      cuemu_time_t at);

#define CUEMU_FATBIN_MAGIC   0xba55ed50u
#define CUEMU_FATBIN_WRAPPER 0x466243b1u

/* Extract the best PTX for a GPU from a fat binary, as a string from malloc()
   that the caller frees. On failure writes a sentence to `error`
   (CUEMU_PTX_ERROR_SIZE bytes), except for OUT_OF_MEMORY. */
CUresult cuemu_fatbin_text(const void *image, int sm, char **text_p,
                           char *error);

#endif
