/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runtime: functions called by compiler-generated code of programs with
 * kernels. A program's PTX becomes a library of the driver on its first use.
 */
#include "cudart.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* GPU code of one source file. */
typedef struct {
    const void *image;
    CUlibrary   library;   /* NULL: not loaded yet */
} cuemu_cudart_module_t;

/* A __device__ variable or a kernel, identified by the address of its shadow in
   the program. */
typedef struct cuemu_cudart_symbol {
    const void                 *shadow;
    const char                 *name;
    size_t                      size;      /* 0: a kernel */
    cuemu_cudart_module_t      *module;
    CUkernel                    kernel;    /* NULL: not looked up yet */
    void                      **managed;   /* the program's pointer to a managed
                                              variable, else NULL */
    struct cuemu_cudart_symbol *next;
} cuemu_cudart_symbol_t;

static struct {
    pthread_mutex_t        lock;
    cuemu_cudart_symbol_t *symbols;
} cuemu_cudart_modules = {
    .lock = PTHREAD_MUTEX_INITIALIZER
};

/* <<<...>>> arguments of this thread's next launch */
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
    cuemu_cudart_module_t *module = calloc(1, sizeof(*module));

    if (module != NULL) {
        module->image = fatCubin;
    }
    return (void**)module;
}

CUEMU_CUDART_EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
}

CUEMU_CUDART_EXPORT void __cudaUnregisterFatBinary(void **handle)
{
    cuemu_cudart_module_t *module = (cuemu_cudart_module_t*)handle;
    cuemu_cudart_symbol_t **link, *symbol;

    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    link = &cuemu_cudart_modules.symbols;
    while ((symbol = *link) != NULL) {
        if (symbol->module == module) {
            *link = symbol->next;
            free(symbol);
        } else {
            link = &symbol->next;
        }
    }
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
    if ((module != NULL) && (module->library != NULL)) {
        (void)cuLibraryUnload(module->library);
    }
    free(module);
}

static void cuemu_cudart_add(void **handle, const void *shadow,
                             const char *name, size_t size, void **managed)
{
    cuemu_cudart_symbol_t *symbol = calloc(1, sizeof(*symbol));

    if (symbol == NULL) {
        return;
    }

    symbol->shadow  = shadow;
    symbol->name    = name;
    symbol->size    = size;
    symbol->managed = managed;
    symbol->module  = (cuemu_cudart_module_t*)handle;
    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    symbol->next                 = cuemu_cudart_modules.symbols;
    cuemu_cudart_modules.symbols = symbol;
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
}

CUEMU_CUDART_EXPORT void
__cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun,
                       const char *deviceName, int thread_limit, void *tid,
                       void *bid, void *bDim, void *gDim, int *wSize)
{
    cuemu_cudart_add(handle, hostFun, deviceName, 0, NULL);
}

CUEMU_CUDART_EXPORT void
__cudaRegisterVar(void **handle, char *hostVar, char *deviceAddress,
                  const char *deviceName, int ext, size_t size, int constant,
                  int global)
{
    cuemu_cudart_add(handle, hostVar, deviceName, size, NULL);
}

/* The program accesses a managed variable by the pointer *hostVarPtr, and calls
   __cudaInitModule() before */
CUEMU_CUDART_EXPORT void
__cudaRegisterManagedVar(void **handle, void **hostVarPtr, char *deviceAddress,
                         const char *deviceName, int ext, size_t size,
                         int constant, int global)
{
    cuemu_cudart_add(handle, hostVarPtr, deviceName, size, hostVarPtr);
}

/* Find a registered symbol, NULL if unknown. A managed variable is known by its
   own address, too. Call with the lock. */
static cuemu_cudart_symbol_t *cuemu_cudart_find(const void *shadow)
{
    cuemu_cudart_symbol_t *symbol;

    for (symbol = cuemu_cudart_modules.symbols; symbol != NULL;
         symbol = symbol->next) {
        if ((symbol->shadow == shadow) ||
            ((symbol->managed != NULL) && (shadow != NULL) &&
             (*symbol->managed == shadow))) {
            return symbol;
        }
    }
    return NULL;
}

/* Load a module; the driver prints its errors on stderr. Loading is allowed
   during a capture: the program cannot know that a kernel was not loaded
   before. Call with the lock. */
static cuemu_cudart_error_t cuemu_cudart_load(cuemu_cudart_module_t *module)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result;

    if (module->library != NULL) {
        return CUDART_SUCCESS;
    }

    if (module->image == NULL) {
        return CUDART_NOT_SUPPORTED;
    }

    (void)cuThreadExchangeStreamCaptureMode(&mode);
    result = cuLibraryLoadData(&module->library, module->image, NULL, NULL, 0,
                               NULL, NULL, 0);
    (void)cuThreadExchangeStreamCaptureMode(&mode);
    return (cuemu_cudart_error_t)result;
}

/* Load a module, and store the addresses of its managed variables. */
CUEMU_CUDART_EXPORT char __cudaInitModule(void **handle)
{
    cuemu_cudart_module_t *module = (cuemu_cudart_module_t*)handle;
    cuemu_cudart_error_t error    = cuemu_cudart_enter();
    cuemu_cudart_symbol_t *symbol;
    CUdeviceptr ptr;
    size_t size;

    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    if (error == CUDART_SUCCESS) {
        error = cuemu_cudart_load(module);
    }
    for (symbol = cuemu_cudart_modules.symbols;
         (symbol != NULL) && (error == CUDART_SUCCESS); symbol = symbol->next) {
        if ((symbol->module == module) && (symbol->managed != NULL) &&
            (cuLibraryGetManaged(&ptr, &size, module->library, symbol->name) ==
             CUDA_SUCCESS)) {
            *symbol->managed = (void*)(uintptr_t)ptr;
        }
    }
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
    (void)cuemu_cudart_return(error);
    return 1;
}

cuemu_cudart_error_t cuemu_cudart_kernel(const void *shadow, CUkernel *kernel_p)
{
    cuemu_cudart_error_t error = cuemu_cudart_enter();
    cuemu_cudart_symbol_t *symbol;

    *kernel_p = NULL;
    if (error != CUDART_SUCCESS) {
        return error;
    }

    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    symbol = cuemu_cudart_find(shadow);
    error  = (symbol == NULL) ? CUDART_INVALID_DEVICE_FUNCTION :
                                cuemu_cudart_load(symbol->module);
    if ((error == CUDART_SUCCESS) && (symbol->kernel == NULL)) {
        error = (cuemu_cudart_error_t)cuLibraryGetKernel(
                &symbol->kernel, symbol->module->library, symbol->name);
    }
    *kernel_p = (error == CUDART_SUCCESS) ? symbol->kernel : NULL;
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
    return error;
}

/* Enter the driver and return address and size of a variable in the current
   context. */
static cuemu_cudart_error_t cuemu_cudart_variable(const void *shadow,
                                                  CUdeviceptr *ptr_p,
                                                  size_t *size_p)
{
    cuemu_cudart_error_t error = cuemu_cudart_enter();
    cuemu_cudart_symbol_t *symbol;

    if (error != CUDART_SUCCESS) {
        return error;
    }

    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    symbol = cuemu_cudart_find(shadow);
    error  = (symbol == NULL) ? CUDART_INVALID_SYMBOL :
                                cuemu_cudart_load(symbol->module);
    if (error == CUDART_SUCCESS) {
        error = (cuemu_cudart_error_t)cuLibraryGetGlobal(
                ptr_p, size_p, symbol->module->library, symbol->name);
    }
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
    return error;
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGetSymbolSize(size_t *size, const void *shadow)
{
    const cuemu_cudart_symbol_t *symbol;

    if (size == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    pthread_mutex_lock(&cuemu_cudart_modules.lock);
    symbol = cuemu_cudart_find(shadow);
    if (symbol != NULL) {
        *size = symbol->size;
    }
    pthread_mutex_unlock(&cuemu_cudart_modules.lock);
    return cuemu_cudart_return((symbol != NULL) ? CUDART_SUCCESS :
                                                  CUDART_INVALID_SYMBOL);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaGetSymbolAddress(void **ptr, const void *shadow)
{
    CUdeviceptr address = 0;
    cuemu_cudart_error_t error;
    size_t size;

    if (ptr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }

    error = cuemu_cudart_variable(shadow, &address, &size);
    *ptr  = (void*)(uintptr_t)address;
    return cuemu_cudart_return(error);
}

/* Copy between a variable and `to` or `from`, the other one NULL. `stream`:
   NULL for a synchronous copy. */
static cuemu_cudart_error_t
cuemu_cudart_symbol_copy(const void *shadow, void *to, const void *from,
                         size_t count, size_t offset, const CUstream *stream)
{
    CUdeviceptr dst, src;
    CUdeviceptr address = 0;
    cuemu_cudart_error_t error;
    size_t size;

    error = cuemu_cudart_variable(shadow, &address, &size);
    if ((error == CUDART_SUCCESS) &&
        ((offset > size) || (count > size - offset))) {
        error = CUDART_INVALID_VALUE;
    }
    if (error == CUDART_SUCCESS) {
        address += offset;
        dst      = (to == NULL) ? address : (CUdeviceptr)(uintptr_t)to;
        src      = (from == NULL) ? address : (CUdeviceptr)(uintptr_t)from;
        error    = (cuemu_cudart_error_t)(
                (stream == NULL) ? cuMemcpy(dst, src, count) :
                                   cuMemcpyAsync(dst, src, count, *stream));
    }
    return cuemu_cudart_return(error);
}

/* Addresses identify their memory by themselves: `kind` is not needed */
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count,
                   size_t offset, int kind)
{
    return (src == NULL) ? cuemu_cudart_return(CUDART_INVALID_VALUE) :
           cuemu_cudart_symbol_copy(symbol, NULL, src, count, offset, NULL);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t count,
                     size_t offset, int kind)
{
    return (dst == NULL) ? cuemu_cudart_return(CUDART_INVALID_VALUE) :
           cuemu_cudart_symbol_copy(symbol, dst, NULL, count, offset, NULL);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count,
                        size_t offset, int kind, CUstream stream)
{
    return (src == NULL) ? cuemu_cudart_return(CUDART_INVALID_VALUE) :
           cuemu_cudart_symbol_copy(symbol, NULL, src, count, offset, &stream);
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t count,
                          size_t offset, int kind, CUstream stream)
{
    return (dst == NULL) ? cuemu_cudart_return(CUDART_INVALID_VALUE) :
           cuemu_cudart_symbol_copy(symbol, dst, NULL, count, offset, &stream);
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

/* Return the runtime's error for dimensions that no kernel may have, also where
   the driver has another one. */
static cuemu_cudart_error_t
cuemu_cudart_dimensions(const cuemu_cudart_dim3_t *grid,
                        const cuemu_cudart_dim3_t *block)
{
    const uint64_t threads = (uint64_t)block->x * block->y * block->z;

    return ((threads == 0) || (threads > 1024) || (block->x > 1024) ||
            (block->y > 1024) || (block->z > 64) || (grid->x == 0) ||
            (grid->x > 0x7fffffff) || (grid->y - 1 > 65534) ||
            (grid->z - 1 > 65534)) ?
           CUDART_INVALID_CONFIGURATION : CUDART_SUCCESS;
}

static cuemu_cudart_error_t
cuemu_cudart_launch(CUkernel kernel, cuemu_cudart_dim3_t grid,
                    cuemu_cudart_dim3_t block, void **args, size_t shared,
                    CUstream stream)
{
    const cuemu_cudart_error_t error = cuemu_cudart_dimensions(&grid, &block);

    if (error != CUDART_SUCCESS) {
        return cuemu_cudart_return(error);
    }
    CUEMU_CUDART_CALL(cuLaunchKernel((CUfunction)kernel, grid.x, grid.y,
                                     grid.z, block.x, block.y, block.z,
                                     (unsigned)shared, stream, args, NULL));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaLaunchKernel(const void *func, cuemu_cudart_dim3_t gridDim,
                 cuemu_cudart_dim3_t blockDim, void **args, size_t sharedMem,
                 CUstream stream)
{
    CUkernel kernel;
    cuemu_cudart_error_t error = cuemu_cudart_kernel(func, &kernel);

    error = (error == CUDART_INVALID_DEVICE_FUNCTION) ? CUDART_INVALID_LAUNCH :
                                                        error;
    return (error != CUDART_SUCCESS) ? cuemu_cudart_return(error) :
           cuemu_cudart_launch(kernel, gridDim, blockDim, args, sharedMem,
                               stream);
}

/* Called by code of nvcc 13 for <<<...>>> */
CUEMU_CUDART_EXPORT cuemu_cudart_error_t __cudaGetKernel(CUkernel *kernel,
                                                         const void *func)
{
    return cuemu_cudart_return(cuemu_cudart_kernel(func, kernel));
}

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
__cudaLaunchKernel(CUkernel kernel, cuemu_cudart_dim3_t gridDim,
                   cuemu_cudart_dim3_t blockDim, void **args, size_t sharedMem,
                   CUstream stream)
{
    /* NULL: __cudaGetKernel() has failed, and its result was ignored */
    return (kernel == NULL) ?
               cuemu_cudart_return(
                   (cuemu_cudart_error_t)CUDA_ERROR_NO_BINARY_FOR_GPU) :
           cuemu_cudart_launch(kernel, gridDim, blockDim, args, sharedMem,
                               stream);
}

/* Define a function that is one call of the driver's about `kernel`, the kernel
   of `func`. */
#define CUDART_FORWARD_KERNEL(_name, _decl, _call) \
    CUEMU_CUDART_EXPORT cuemu_cudart_error_t _name _decl \
    { \
        CUkernel kernel; \
        cuemu_cudart_error_t error = cuemu_cudart_kernel(func, &kernel); \
        if (error == CUDART_SUCCESS) { \
            error = (cuemu_cudart_error_t)(_call); \
        } \
        return cuemu_cudart_return(error); \
    }

CUDART_FORWARD_KERNEL(cudaGetFuncBySymbol,
                      (CUfunction *function, const void *func),
                      cuKernelGetFunction(function, kernel))

/* cudaFuncAttributeMaxDynamicSharedMemorySize is 8, as the driver's */
CUDART_FORWARD_KERNEL(cudaFuncSetAttribute,
                      (const void *func, int attribute, int value),
                      cuFuncSetAttribute((CUfunction)kernel,
                                         (CUfunction_attribute)attribute,
                                         value))
CUDART_FORWARD_KERNEL(cudaFuncSetCacheConfig, (const void *func, int config),
                      cuFuncSetCacheConfig((CUfunction)kernel,
                                           (CUfunc_cache)config))
CUDART_FORWARD_KERNEL(cudaFuncGetName, (const char **name, const void *func),
                      cuFuncGetName(name, (CUfunction)kernel))
CUDART_FORWARD_KERNEL(cudaLaunchCooperativeKernel,
                      (const void *func, cuemu_cudart_dim3_t grid,
                       cuemu_cudart_dim3_t block, void **args, size_t shared,
                       CUstream stream),
                      cuemu_cudart_dimensions(&grid, &block) ?
                      CUDART_INVALID_CONFIGURATION :
                      (int)cuLaunchCooperativeKernel(
                              (CUfunction)kernel, grid.x, grid.y, grid.z,
                              block.x, block.y, block.z, (unsigned)shared,
                              stream, args))
CUDART_FORWARD_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
                      (int *blocks, const void *func, int threads,
                       size_t shared),
                      cuOccupancyMaxActiveBlocksPerMultiprocessor(
                              blocks, (CUfunction)kernel, threads, shared))
CUDART_FORWARD_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                      (int *blocks, const void *func, int threads,
                       size_t shared, unsigned flags),
                      cuOccupancyMaxActiveBlocksPerMultiprocessor(
                              blocks, (CUfunction)kernel, threads, shared))

/* cudaFuncAttributes */
typedef struct {
    size_t shared, constant, local; /* bytes */
    int    values[13];
    int    reserved[16];
} cuemu_cudart_func_attr_t;

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaFuncGetAttributes(cuemu_cudart_func_attr_t *attr, const void *func)
{
    static const CUfunction_attribute values[] = {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NUM_REGS,
        CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_BINARY_VERSION,
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    };
    int bytes[3] = {0, 0, 0};
    cuemu_cudart_error_t error;
    CUkernel kernel;
    size_t i;

    if (attr == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    error = cuemu_cudart_kernel(func, &kernel);
    memset(attr, 0, sizeof(*attr));
    for (i = 0; (i < 3) && (error == CUDART_SUCCESS); ++i) {
        error = (cuemu_cudart_error_t)cuFuncGetAttribute(
                &bytes[i], CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES + i,
                (CUfunction)kernel);
    }
    for (i = 0; (i < sizeof(values) / sizeof(values[0])) &&
         (error == CUDART_SUCCESS); ++i) {
        error = (cuemu_cudart_error_t)cuFuncGetAttribute(
                &attr->values[i], values[i], (CUfunction)kernel);
    }
    attr->shared   = (size_t)bytes[0];
    attr->constant = (size_t)bytes[1];
    attr->local    = (size_t)bytes[2];
    return cuemu_cudart_return(error);
}

/* cudaLaunchConfig_t. Attributes are the driver's. */
typedef struct {
    cuemu_cudart_dim3_t grid, block;
    size_t              shared;
    CUstream            stream;
    CUlaunchAttribute  *attrs;
    unsigned            num_attrs;
} cuemu_cudart_config_t;

CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaLaunchKernelExC(const cuemu_cudart_config_t *config, const void *func,
                    void **args)
{
    cuemu_cudart_error_t error;
    CUlaunchConfig launch;
    CUkernel kernel;

    if (config == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    error = cuemu_cudart_kernel(func, &kernel);
    if (error == CUDART_SUCCESS) {
        error = cuemu_cudart_dimensions(&config->grid, &config->block);
    }
    if (error == CUDART_SUCCESS) {
        memset(&launch, 0, sizeof(launch));
        launch.gridDimX       = config->grid.x;
        launch.gridDimY       = config->grid.y;
        launch.gridDimZ       = config->grid.z;
        launch.blockDimX      = config->block.x;
        launch.blockDimY      = config->block.y;
        launch.blockDimZ      = config->block.z;
        launch.sharedMemBytes = (unsigned)config->shared;
        launch.hStream        = config->stream;
        launch.attrs          = config->attrs;
        launch.numAttrs       = config->num_attrs;
        error = (cuemu_cudart_error_t)cuLaunchKernelEx(
                &launch, (CUfunction)kernel, args, NULL);
    }
    return cuemu_cudart_return(error);
}

/* Of programs of nvcc -default-stream per-thread, see per_thread.c */
CUEMU_CUDART_EXPORT cuemu_cudart_error_t
cudaLaunchKernelExC_ptsz(const cuemu_cudart_config_t *config, const void *func,
                         void **args)
{
    cuemu_cudart_config_t own;

    if (config == NULL) {
        return cuemu_cudart_return(CUDART_INVALID_VALUE);
    }
    own        = *config;
    own.stream = (own.stream == NULL) ? CU_STREAM_PER_THREAD : own.stream;
    return cudaLaunchKernelExC(&own, func, args);
}
