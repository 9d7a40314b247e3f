/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Declarations shared by programs that measure a node's GPUs "by hand": one
 * process with all GPUs, direct driver calls (loaded at run time), no MPI and
 * no UCX. Each program has a file of its own and answers one question.
 *
 * A failure ends the program with a message.
 */
#ifndef UCX_MP_BYHAND_H_
#define UCX_MP_BYHAND_H_

#include <kernels/kernels.h>

#include <cuda.h>
#include <stddef.h>

#define BYHAND_MAX_GPUS 8

/* Functions of the driver: name, exported symbol, arguments */
#define BYHAND_DRIVER(_) \
    _(Init, "cuInit", (unsigned)) \
    _(GetErrorName, "cuGetErrorName", (CUresult, const char**)) \
    _(DeviceGetCount, "cuDeviceGetCount", (int*)) \
    _(DeviceGetName, "cuDeviceGetName", (char*, int, CUdevice)) \
    _(DeviceCanAccessPeer, "cuDeviceCanAccessPeer", (int*, CUdevice, \
                                                     CUdevice)) \
    _(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext*, \
                                                           CUdevice)) \
    _(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext)) \
    _(CtxGetCurrent, "cuCtxGetCurrent", (CUcontext*)) \
    _(CtxGetDevice, "cuCtxGetDevice", (CUdevice*)) \
    _(CtxGetId, "cuCtxGetId", (CUcontext, unsigned long long*)) \
    _(CtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext)) \
    _(CtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext*)) \
    _(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", \
      (CUstreamCaptureMode*)) \
    _(CtxSynchronize, "cuCtxSynchronize", (void)) \
    _(CtxCreate, "cuCtxCreate_v2", (CUcontext*, unsigned, CUdevice)) \
    _(CtxEnablePeerAccess, "cuCtxEnablePeerAccess", (CUcontext, unsigned)) \
    _(CtxDisablePeerAccess, "cuCtxDisablePeerAccess", (CUcontext)) \
    _(IpcGetMemHandle, "cuIpcGetMemHandle", (CUipcMemHandle*, CUdeviceptr)) \
    _(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (CUdeviceptr*, \
                                                  CUipcMemHandle, unsigned)) \
    _(PointerGetAttribute, "cuPointerGetAttribute", (void*, \
                                                     CUpointer_attribute, \
                                                     CUdeviceptr)) \
    _(PointerGetAttributes, "cuPointerGetAttributes", \
      (unsigned, CUpointer_attribute*, void**, CUdeviceptr)) \
    _(MemGetAddressRange, "cuMemGetAddressRange_v2", (CUdeviceptr*, size_t*, \
                                                      CUdeviceptr)) \
    _(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr*, size_t)) \
    _(MemAllocManaged, "cuMemAllocManaged", (CUdeviceptr*, size_t, \
                                             unsigned)) \
    _(DeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", (CUmemoryPool*, \
                                                             CUdevice)) \
    _(MemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", \
      (CUdeviceptr*, size_t, CUmemoryPool, CUstream)) \
    _(MemCreate, "cuMemCreate", (CUmemGenericAllocationHandle*, size_t, \
                                 const CUmemAllocationProp*, \
                                 unsigned long long)) \
    _(MemAddressReserve, "cuMemAddressReserve", (CUdeviceptr*, size_t, size_t, \
                                                 CUdeviceptr, \
                                                 unsigned long long)) \
    _(MemMap, "cuMemMap", (CUdeviceptr, size_t, size_t, \
                           CUmemGenericAllocationHandle, unsigned long long)) \
    _(MemSetAccess, "cuMemSetAccess", (CUdeviceptr, size_t, \
                                       const CUmemAccessDesc*, size_t)) \
    _(MemsetD8Async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, \
                                         CUstream)) \
    _(Memcpy, "cuMemcpy", (CUdeviceptr, CUdeviceptr, size_t)) \
    _(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, \
                                                size_t, CUstream)) \
    _(MemHostAlloc, "cuMemHostAlloc", (void**, size_t, unsigned)) \
    _(MemHostRegister, "cuMemHostRegister_v2", (void*, size_t, unsigned)) \
    _(MemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void*, size_t)) \
    _(MemcpyDtoH, "cuMemcpyDtoH_v2", (void*, CUdeviceptr, size_t)) \
    _(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void*, \
                                                size_t, CUstream)) \
    _(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void*, CUdeviceptr, size_t, \
                                                CUstream)) \
    _(MemcpyAsync, "cuMemcpyAsync", (CUdeviceptr, CUdeviceptr, size_t, \
                                     CUstream)) \
    _(MemcpyPeerAsync, "cuMemcpyPeerAsync", (CUdeviceptr, CUcontext, \
                                             CUdeviceptr, CUcontext, size_t, \
                                             CUstream)) \
    _(StreamCreate, "cuStreamCreate", (CUstream*, unsigned)) \
    _(StreamSynchronize, "cuStreamSynchronize", (CUstream)) \
    _(StreamQuery, "cuStreamQuery", (CUstream)) \
    _(StreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned)) \
    _(EventCreate, "cuEventCreate", (CUevent*, unsigned)) \
    _(EventRecord, "cuEventRecord", (CUevent, CUstream)) \
    _(EventQuery, "cuEventQuery", (CUevent)) \
    _(EventElapsedTime, "cuEventElapsedTime", (float*, CUevent, CUevent)) \
    _(ModuleLoadData, "cuModuleLoadData", (CUmodule*, const void*)) \
    _(ModuleGetFunction, "cuModuleGetFunction", (CUfunction*, CUmodule, \
                                                 const char*)) \
    _(ModuleUnload, "cuModuleUnload", (CUmodule)) \
    _(LaunchKernel, "cuLaunchKernel", (CUfunction, unsigned, unsigned, \
                                       unsigned, unsigned, unsigned, unsigned, \
                                       unsigned, CUstream, void**, void**))

#define BYHAND_MEMBER(_name, _symbol, _args) CUresult(*_name) _args;

typedef struct {
    BYHAND_DRIVER(BYHAND_MEMBER)
} byhand_driver_t;

extern byhand_driver_t cu;

/* Call a driver function by its name without "cu". */
#define CU(_call) byhand_check(cu._call, #_call)

/* An option of a program, besides the common ones: a number or size within
   [min, max], or the index of a word. */
typedef struct {
    const char        *name;
    const char        *help;
    size_t            *value; /* initially the default value */
    size_t            min, max;
    const char *const *words; /* NULL: a number */
} byhand_option_t;

/* The program's name for messages, the first line of --help, options (the last
   one has no name), default sizes. */
typedef struct {
    const char            *name, *about, *sizes;
    const byhand_option_t *options;
    size_t                max_size;
} byhand_program_t;

/* GPUs of the program, in order, their contexts and peers */
extern int byhand_gpus;
extern CUcontext byhand_contexts[BYHAND_MAX_GPUS];


void byhand_die(const char *fmt, ...)
        __attribute__((noreturn, format(printf, 1, 2)));
void byhand_check(CUresult result, const char *what);

/* Read the command line and prepare all GPUs, or --gpus of them. Ends the
   program with a message if there are fewer than `least`, or some are not
   peers. */
void byhand_begin(int argc, char **argv, const byhand_program_t *program,
                  int least);

/* Do the same without enabling access between GPUs. */
void byhand_begin_apart(int argc, char **argv, const byhand_program_t *program,
                        int least);

/* Make a GPU's context current. */
void byhand_on(int gpu);

/* Allocate memory of a GPU, or page-locked memory; create a stream or event of
   a GPU. */
CUdeviceptr byhand_gpu_memory(int gpu, size_t size);
void *byhand_host_memory(size_t size);
CUstream byhand_stream(int gpu);
CUevent byhand_event(int gpu);

/* Make many copies by one call, cuMemcpyBatchAsync, in a stream's order. Ends
   the program with a message if the driver is older than 12.8. */
void byhand_copy_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,
                       size_t count, CUstream stream);

/* Return whether GPU memory has these bytes; a context for it is current. */
int byhand_holds(CUdeviceptr memory, const void *bytes, size_t size);

/* Sort the values, and return the median of an odd number of them; of an even
   one, the higher of two. */
double byhand_median(double *values, size_t count);

/* Return seconds; emulated ones on an emulated node, which interposes the
   clock. */
double byhand_now(void);

/* Return the largest of --sizes, bytes. */
size_t byhand_max_size(void);

/* Return a whole number below 4096, determined by position and source (a
   GPU). */
unsigned byhand_element(size_t index, int source);

/*
 * Measure each size: call `prepare`, `once` and `is_right` to check the bytes.
 * Then time samples of `once`, which returns when all work has ended, and print
 * a line with their median, minimum and maximum, and GB/s: `factor` x size /
 * time. `label` names the measurement.
 *
 * @return  Exit status: 1 if any bytes were wrong.
 */
int byhand_run(const char *label, double factor, void (*prepare)(size_t size),
               void (*once)(size_t size), int (*is_right)(size_t size));

#endif
