/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: what the compiler puts into a program with kernels in it. The
 * program loads and runs; launching a kernel is an error, since there is
 * nothing that could run one.
 */
#include "cudart.h"

#include <pthread.h>
#include <stdlib.h>

/* dim3, and uint3 in kernel launches */
typedef struct {
    unsigned x, y, z;
} cuemu_cudart_dim3_t;

/* A __device__ variable: the address of its shadow is its name. */
typedef struct cuemu_cudart_var {
    const void              *host_var;
    size_t                  size;
    void                    **module;
    struct cuemu_cudart_var *next;
} cuemu_cudart_var_t;

static struct {
    pthread_mutex_t    lock;
    cuemu_cudart_var_t *vars;
} cuemu_cudart_modules = {
    .lock = PTHREAD_MUTEX_INITIALIZER
};

/* <<<...>>> of the launch that this thread is about to make */
#define CUEMU_CUDART_MAX_CONFIGS 16

static __thread struct {
    cuemu_cudart_dim3_t grid;
    cuemu_cudart_dim3_t block;
    size_t              shared_mem;
    CUstream            stream;
} cuemu_cudart_configs[CUEMU_CUDART_MAX_CONFIGS];

static __thread unsigned cuemu_cudart_num_configs;


CUEMU_CUDART_EXPORT void **__cudaRegisterFatBinary(void *fatCubin)
{
    return calloc(1, sizeof(void*)); /* only its address counts */
}

CUEMU_CUDART_EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
}

CUEMU_CUDART_EXPORT void __cudaUnregisterFatBinary(void **handle)
{
    cuemu_cudart_var_t **link, *var;

    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    link = &cuemu_cudart_modules.vars;
    while ((var = *link) != NULL) {
        if (var->module == handle) {
            *link = var->next;
            free(var);
        } else {
            link = &var->next;
        }
    }
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
    free(handle);
}

CUEMU_CUDART_EXPORT char __cudaInitModule(void **handle)
{
    return 1;
}

CUEMU_CUDART_EXPORT void
__cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun,
                       const char *deviceName, int thread_limit, void *tid,
                       void *bid, void *bDim, void *gDim, int *wSize)
{
}

CUEMU_CUDART_EXPORT void
__cudaRegisterVar(void **handle, char *hostVar, char *deviceAddress,
                  const char *deviceName, int ext, size_t size, int constant,
                  int global)
{
    cuemu_cudart_var_t *var = calloc(1, sizeof(*var));

    if (var == NULL) {
        return;
    }

    var->host_var = hostVar;
    var->size     = size;
    var->module   = handle;
    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    var->next                 = cuemu_cudart_modules.vars;
    cuemu_cudart_modules.vars = var;
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGetSymbolSize(size_t *size, const void *symbol)
{
    cuemu_cudart_error_t error = CUDART_INVALID_SYMBOL;
    cuemu_cudart_var_t *var;

    if (size == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    for (var = cuemu_cudart_modules.vars; var != NULL; var = var->next) {
        if (var->host_var == symbol) {
            *size = var->size;
            error = CUDART_SUCCESS;
        }
    }
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
    return cuemu_cudart_return(error);
}

CUEMU_CUDART_EXPORT unsigned
__cudaPushCallConfiguration(cuemu_cudart_dim3_t gridDim,
                            cuemu_cudart_dim3_t blockDim, size_t sharedMem,
                            CUstream stream)
{
    unsigned i = cuemu_cudart_num_configs;

    if (i == CUEMU_CUDART_MAX_CONFIGS) {
        return CUDART_MISSING_CONFIGURATION;
    }

    cuemu_cudart_configs[i].grid       = gridDim;
    cuemu_cudart_configs[i].block      = blockDim;
    cuemu_cudart_configs[i].shared_mem = sharedMem;
    cuemu_cudart_configs[i].stream     = stream;
    ++cuemu_cudart_num_configs;
    return CUDART_SUCCESS;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
__cudaPopCallConfiguration(cuemu_cudart_dim3_t *gridDim,
                           cuemu_cudart_dim3_t *blockDim, size_t *sharedMem,
                           void *stream)
{
    unsigned i;

    if (cuemu_cudart_num_configs == 0) {
        return CUDART_MISSING_CONFIGURATION;
    }

    i                  = --cuemu_cudart_num_configs;
    *gridDim           = cuemu_cudart_configs[i].grid;
    *blockDim          = cuemu_cudart_configs[i].block;
    *sharedMem         = cuemu_cudart_configs[i].shared_mem;
    *(CUstream*)stream = cuemu_cudart_configs[i].stream;
    return CUDART_SUCCESS;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaLaunchKernel(const void *func, cuemu_cudart_dim3_t gridDim,
                 cuemu_cudart_dim3_t blockDim, void **args, size_t sharedMem,
                 CUstream stream)
{
    return cuemu_cudart_return(CUDART_NOT_SUPPORTED);
}
