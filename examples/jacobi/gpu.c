/* SPDX-License-Identifier: BSD-3-Clause */

#define _GNU_SOURCE
#include "gpu.h"
#include "jacobi.h"

#include <dlfcn.h>
#include <stdio.h>

#ifndef JACOBI_PTX
#define JACOBI_PTX "jacobi.ptx"
#endif

/* The PTX, a text with a zero behind it */
__asm__(".pushsection .rodata\n"
        ".globl jacobi_ptx\n"
        ".hidden jacobi_ptx\n"
        "jacobi_ptx:\n"
        ".incbin \"" JACOBI_PTX "\"\n"
        ".byte 0\n"
        ".popsection\n");

extern const char jacobi_ptx[] __attribute__((visibility("hidden")));

#define GPU_STREAM_NON_BLOCKING 1

/* Functions of the driver: name here, exported name, arguments */
#define GPU_FUNCTIONS(_) \
    _(Init, "cuInit", (unsigned flags)) \
    _(GetErrorName, "cuGetErrorName", (int error, const char **name_p)) \
    _(DeviceGetCount, "cuDeviceGetCount", (int *count_p)) \
    _(DeviceGet, "cuDeviceGet", (int *device_p, int ordinal)) \
    _(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **ctx_p, int dev)) \
    _(CtxSetCurrent, "cuCtxSetCurrent", (void *ctx)) \
    _(CtxSynchronize, "cuCtxSynchronize", (void)) \
    _(MemGetInfo, "cuMemGetInfo_v2", (size_t *free_p, size_t *total_p)) \
    _(MemAlloc, "cuMemAlloc_v2", (gpu_ptr_t *ptr_p, size_t bytes)) \
    _(MemFree, "cuMemFree_v2", (gpu_ptr_t ptr)) \
    _(MemsetD8, "cuMemsetD8_v2", \
      (gpu_ptr_t to, unsigned char value, size_t bytes)) \
    _(MemsetD32Async, "cuMemsetD32Async", \
      (gpu_ptr_t to, unsigned value, size_t count, gpu_stream_t stream)) \
    _(MemcpyHtoD, "cuMemcpyHtoD_v2", \
      (gpu_ptr_t to, const void *from, size_t bytes)) \
    _(MemcpyDtoH, "cuMemcpyDtoH_v2", \
      (void *to, gpu_ptr_t from, size_t bytes)) \
    _(StreamCreate, "cuStreamCreate", \
      (gpu_stream_t *stream_p, unsigned flags)) \
    _(StreamSynchronize, "cuStreamSynchronize", (gpu_stream_t stream)) \
    _(ModuleLoadData, "cuModuleLoadData", \
      (void **module_p, const void *image)) \
    _(ModuleGetFunction, "cuModuleGetFunction", \
      (gpu_kernel_t *kernel_p, void *module, const char *name)) \
    _(LaunchKernel, "cuLaunchKernel", \
      (gpu_kernel_t kernel, unsigned grid_x, unsigned grid_y, \
       unsigned grid_z, unsigned block_x, unsigned block_y, \
       unsigned block_z, unsigned shared, gpu_stream_t stream, void **args, \
       void **extra))

#define GPU_MEMBER(_member, _name, _args) int (*_member) _args;
#define GPU_SYMBOL(_member, _name, _args) {_name, (void**)&cu._member},

static struct {
    GPU_FUNCTIONS(GPU_MEMBER)
    void *module;
} cu;


static const char *gpu_error(int error)
{
    const char *name = NULL;

    return ((cu.GetErrorName(error, &name) == 0) && (name != NULL)) ?
           name : "an unknown error";
}

/* Calls the driver, or ends the program */
#define GPU_CALL(_function, ...) \
    do { \
        int _error = cu._function(__VA_ARGS__); \
        if (_error != 0) { \
            jacobi_die("cu" #_function " failed: %s (%d)", \
                       gpu_error(_error), _error); \
        } \
    } while (0)

int gpu_open(int local_rank, char *why, size_t size)
{
    const struct {
        const char *name;
        void       **address_p;
    } symbols[] = {GPU_FUNCTIONS(GPU_SYMBOL)};
    void *lib   = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int error, count, device;
    void *ctx;
    size_t i;

    if (lib == NULL) {
        snprintf(why, size, "no CUDA driver: %s", dlerror());
        return 0;
    }

    for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); ++i) {
        *symbols[i].address_p = dlsym(lib, symbols[i].name);
        if (*symbols[i].address_p == NULL) {
            snprintf(why, size, "the CUDA driver has no %s", symbols[i].name);
            return 0;
        }
    }

    error = cu.Init(0);
    if (error != 0) {
        snprintf(why, size, "no GPU: cuInit says %s", gpu_error(error));
        return 0;
    }

    GPU_CALL(DeviceGetCount, &count);
    if (count == 0) {
        snprintf(why, size, "no GPU: the CUDA driver shows none");
        return 0;
    }

    GPU_CALL(DeviceGet, &device, local_rank % count);
    GPU_CALL(PrimaryCtxRetain, &ctx, device);
    GPU_CALL(CtxSetCurrent, ctx);
    GPU_CALL(ModuleLoadData, &cu.module, jacobi_ptx);
    return count;
}

size_t gpu_memory_free(void)
{
    size_t available, total;

    GPU_CALL(MemGetInfo, &available, &total);
    return available;
}

gpu_ptr_t gpu_alloc(size_t bytes)
{
    gpu_ptr_t ptr;

    GPU_CALL(MemAlloc, &ptr, bytes);
    return ptr;
}

void gpu_free(gpu_ptr_t ptr)
{
    GPU_CALL(MemFree, ptr);
}

void gpu_zero(gpu_ptr_t to, size_t bytes)
{
    GPU_CALL(MemsetD8, to, 0, bytes);
    GPU_CALL(CtxSynchronize);
}

void gpu_put(gpu_ptr_t to, const void *from, size_t bytes)
{
    GPU_CALL(MemcpyHtoD, to, from, bytes);
    /* one from pageable memory may return before it has arrived */
    GPU_CALL(CtxSynchronize);
}

void gpu_get(void *to, gpu_ptr_t from, size_t bytes)
{
    GPU_CALL(MemcpyDtoH, to, from, bytes);
}

gpu_stream_t gpu_stream_create(void)
{
    gpu_stream_t stream;

    GPU_CALL(StreamCreate, &stream, GPU_STREAM_NON_BLOCKING);
    return stream;
}

void gpu_stream_wait(gpu_stream_t stream)
{
    GPU_CALL(StreamSynchronize, stream);
}

void gpu_stream_zero4(gpu_stream_t stream, gpu_ptr_t to)
{
    GPU_CALL(MemsetD32Async, to, 0, 1, stream);
}

gpu_kernel_t gpu_kernel(const char *name)
{
    gpu_kernel_t kernel;

    GPU_CALL(ModuleGetFunction, &kernel, cu.module, name);
    return kernel;
}

void gpu_launch(gpu_stream_t stream, gpu_kernel_t kernel, unsigned blocks_x,
                unsigned blocks_y, unsigned threads, void **args)
{
    GPU_CALL(LaunchKernel, kernel, blocks_x, blocks_y, 1, threads, 1, 1, 0,
             stream, args, NULL);
}
