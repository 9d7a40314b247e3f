/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * What programs have in common that show what a node's GPUs do "by hand": one
 * process that has all GPUs, bare calls of the driver (loaded at run time), no
 * MPI and no UCX. Each program has a file of its own and answers one question.
 *
 * What fails ends the program and says what and why.
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
    _(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr*, size_t)) \
    _(MemHostAlloc, "cuMemHostAlloc", (void**, size_t, unsigned)) \
    _(MemHostRegister, "cuMemHostRegister_v2", (void*, size_t, unsigned)) \
    _(MemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr, const void*, size_t)) \
    _(MemcpyDtoH, "cuMemcpyDtoH_v2", (void*, CUdeviceptr, size_t)) \
    _(MemcpyAsync, "cuMemcpyAsync", (CUdeviceptr, CUdeviceptr, size_t, \
                                     CUstream)) \
    _(MemcpyPeerAsync, "cuMemcpyPeerAsync", (CUdeviceptr, CUcontext, \
                                             CUdeviceptr, CUcontext, size_t, \
                                             CUstream)) \
    _(StreamCreate, "cuStreamCreate", (CUstream*, unsigned)) \
    _(StreamSynchronize, "cuStreamSynchronize", (CUstream)) \
    _(StreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned)) \
    _(EventCreate, "cuEventCreate", (CUevent*, unsigned)) \
    _(EventRecord, "cuEventRecord", (CUevent, CUstream)) \
    _(EventQuery, "cuEventQuery", (CUevent)) \
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

/* A call of the driver by its name without "cu" */
#define CU(_call) byhand_check(cu._call, #_call)

/* An option of a program, besides the common ones: a number or size within
   [min, max], or the index of a word. */
typedef struct {
    const char        *name;
    const char        *help;
    size_t            *value; /* as it is without the option, at first */
    size_t            min, max;
    const char *const *words; /* NULL: a number */
} byhand_option_t;

/* Name that messages begin with, what --help says first, options (the last one
   has no name), sizes without --sizes. */
typedef struct {
    const char            *name, *about, *sizes;
    const byhand_option_t *options;
    size_t                max_size;
} byhand_program_t;

/* GPUs that the program has, in order, their contexts and each one's peers */
extern int byhand_gpus;
extern CUcontext byhand_contexts[BYHAND_MAX_GPUS];


void byhand_die(const char *fmt, ...)
        __attribute__((noreturn, format(printf, 1, 2)));
void byhand_check(CUresult result, const char *what);

/* Takes the command line and gets all GPUs ready, --gpus of them; ends the
   program with a sentence if `least` are not there or some are no peers. */
void byhand_begin(int argc, char **argv, const byhand_program_t *program,
                  int least);

/* The same, and leaves it to the program to enable access between GPUs. */
void byhand_begin_apart(int argc, char **argv, const byhand_program_t *program,
                        int least);

/* Makes a GPU's context current. */
void byhand_on(int gpu);

/* Memory of a GPU, page-locked memory, stream and event of a GPU. */
CUdeviceptr byhand_gpu_memory(int gpu, size_t size);
void *byhand_host_memory(size_t size);
CUstream byhand_stream(int gpu);
CUevent byhand_event(int gpu);

/* Many copies by one call, cuMemcpyBatchAsync, in a stream's order; ends the
   program with a sentence where the driver is older than 12.8. */
void byhand_copy_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,
                       size_t count, CUstream stream);

/* Seconds; modelled ones on an emulated node, which interposes the clock. */
double byhand_now(void);

/* The largest of --sizes, bytes. */
size_t byhand_max_size(void);

/* Whole number below 4096 that position and source (a GPU) determine. */
unsigned byhand_element(size_t index, int source);

/*
 * For each size: `prepare`, `once` and `is_right` to see that the bytes are
 * right; then samples of `once`, which returns when all is done, and a line
 * with their median, least and most, and GB/s: `factor` x size / time. `label`
 * says what is measured.
 *
 * @return  Exit status: 1 if anything was wrong.
 */
int byhand_run(const char *label, double factor, void (*prepare)(size_t size),
               void (*once)(size_t size), int (*is_right)(size_t size));

#endif
