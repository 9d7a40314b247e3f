/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Driver functions for programs that use CUDA in several ways, and memory made
 * by them.
 */
#ifndef UCX_MP_TEST_DRIVER_H_
#define UCX_MP_TEST_DRIVER_H_

#include <stddef.h>

typedef unsigned long long ucx_mp_ptr_t;

/* CUmemAllocationProp, or CUmemPoolProps, with the fields used here */
typedef struct {
    int                type;
    int                handle_types;
    int                location_type;
    int                location;
    void               *win32;
    unsigned long long rest[8];
} ucx_mp_prop_t;

/* CUmemAccessDesc */
typedef struct {
    int location_type;
    int location;
    int flags;
} ucx_mp_access_t;

/* CUipcMemHandle, and CUmemPoolPtrExportData */
typedef struct {
    char bytes[64];
} ucx_mp_handle_t;

/* Functions of every driver: member name, exported name, arguments */
#define UCX_MP_DRIVER_BASE(_) \
    _(init, "cuInit", (unsigned flags)) \
    _(error_name, "cuGetErrorName", (int error, const char **name_p)) \
    _(device_count, "cuDeviceGetCount", (int *count_p)) \
    _(device_get, "cuDeviceGet", (int *device_p, int ordinal)) \
    _(ctx_retain, "cuDevicePrimaryCtxRetain", (void **ctx_p, int device)) \
    _(ctx_set, "cuCtxSetCurrent", (void *ctx)) \
    _(ctx_create, "cuCtxCreate_v2", \
      (void **ctx_p, unsigned flags, int device)) \
    _(peer_enable, "cuCtxEnablePeerAccess", (void *ctx, unsigned flags)) \
    _(ctx_synchronize, "cuCtxSynchronize", (void)) \
    _(alloc, "cuMemAlloc_v2", (ucx_mp_ptr_t *ptr_p, size_t size)) \
    _(free, "cuMemFree_v2", (ucx_mp_ptr_t ptr)) \
    _(alloc_managed, "cuMemAllocManaged", \
      (ucx_mp_ptr_t *ptr_p, size_t size, unsigned flags)) \
    _(alloc_host, "cuMemAllocHost_v2", (void **ptr_p, size_t size)) \
    _(host_free, "cuMemFreeHost", (void *ptr)) \
    _(copy_htod, "cuMemcpyHtoD_v2", \
      (ucx_mp_ptr_t dst, const void *src, size_t size)) \
    _(copy_dtoh, "cuMemcpyDtoH_v2", \
      (void *dst, ucx_mp_ptr_t src, size_t size)) \
    _(memset, "cuMemsetD8_v2", \
      (ucx_mp_ptr_t dst, unsigned char value, size_t size))

/* Other functions */
#define UCX_MP_DRIVER_FUNCTIONS(_) \
    _(get_device, "cuCtxGetDevice", (int *device_p)) \
    _(get_info, "cuMemGetInfo_v2", (size_t *free_p, size_t *total_p)) \
    _(alloc_async, "cuMemAllocAsync", \
      (ucx_mp_ptr_t *ptr_p, size_t size, void *stream)) \
    _(pool_create, "cuMemPoolCreate", \
      (void **pool_p, const ucx_mp_prop_t *prop)) \
    _(pool_set, "cuMemPoolSetAttribute", \
      (void *pool, int attribute, void *value)) \
    _(alloc_from_pool, "cuMemAllocFromPoolAsync", \
      (ucx_mp_ptr_t *ptr_p, size_t size, void *pool, void *stream)) \
    _(free_async, "cuMemFreeAsync", (ucx_mp_ptr_t ptr, void *stream)) \
    _(stream_synchronize, "cuStreamSynchronize", (void *stream)) \
    _(trim, "cuMemPoolTrimTo", (void *pool, size_t keep)) \
    _(reserve, "cuMemAddressReserve", \
      (ucx_mp_ptr_t *ptr_p, size_t size, size_t align, ucx_mp_ptr_t hint, \
       unsigned long long flags)) \
    _(create, "cuMemCreate", \
      (unsigned long long *handle_p, size_t size, const ucx_mp_prop_t *prop, \
       unsigned long long flags)) \
    _(release, "cuMemRelease", (unsigned long long handle)) \
    _(map, "cuMemMap", \
      (ucx_mp_ptr_t ptr, size_t size, size_t offset, \
       unsigned long long handle, unsigned long long flags)) \
    _(unmap, "cuMemUnmap", (ucx_mp_ptr_t ptr, size_t size)) \
    _(unreserve, "cuMemAddressFree", (ucx_mp_ptr_t ptr, size_t size)) \
    _(set_access, "cuMemSetAccess", \
      (ucx_mp_ptr_t ptr, size_t size, const ucx_mp_access_t *access, \
       size_t count)) \
    _(ctx_release, "cuDevicePrimaryCtxRelease_v2", (int device)) \
    _(ctx_destroy, "cuCtxDestroy_v2", (void *ctx)) \
    _(stream_destroy, "cuStreamDestroy_v2", (void *stream)) \
    _(stream_wait, "cuStreamWaitValue32_v2", \
      (void *stream, ucx_mp_ptr_t word, unsigned value, unsigned flags)) \
    _(can_access_peer, "cuDeviceCanAccessPeer", \
      (int *can_p, int device, int peer)) \
    _(ctx_reset, "cuDevicePrimaryCtxReset_v2", (int device)) \
    _(ctx_set_flags, "cuDevicePrimaryCtxSetFlags_v2", \
      (int device, unsigned flags)) \
    _(ctx_get_state, "cuDevicePrimaryCtxGetState", \
      (int device, unsigned *flags_p, int *active_p)) \
    _(ctx_get, "cuCtxGetCurrent", (void **ctx_p)) \
    _(peer_disable, "cuCtxDisablePeerAccess", (void *ctx)) \
    _(stream_create, "cuStreamCreate", (void **stream_p, unsigned flags)) \
    _(host_alloc, "cuMemHostAlloc", \
      (void **ptr_p, size_t size, unsigned flags)) \
    _(host_register, "cuMemHostRegister_v2", \
      (void *ptr, size_t size, unsigned flags)) \
    _(host_unregister, "cuMemHostUnregister", (void *ptr)) \
    _(pointer_attribute, "cuPointerGetAttribute", \
      (void *value, int attribute, ucx_mp_ptr_t ptr)) \
    _(copy, "cuMemcpy", \
      (ucx_mp_ptr_t dst, ucx_mp_ptr_t src, size_t size)) \
    _(copy_dtod, "cuMemcpyDtoD_v2", \
      (ucx_mp_ptr_t dst, ucx_mp_ptr_t src, size_t size)) \
    _(copy_peer, "cuMemcpyPeer", \
      (ucx_mp_ptr_t dst, void *dst_ctx, ucx_mp_ptr_t src, \
       void *src_ctx, size_t size)) \
    _(copy_async, "cuMemcpyAsync", \
      (ucx_mp_ptr_t dst, ucx_mp_ptr_t src, size_t size, \
       void *stream)) \
    _(copy_htod_async, "cuMemcpyHtoDAsync_v2", \
      (ucx_mp_ptr_t dst, const void *src, size_t size, void *stream)) \
    _(copy_dtoh_async, "cuMemcpyDtoHAsync_v2", \
      (void *dst, ucx_mp_ptr_t src, size_t size, void *stream)) \
    _(copy_dtod_async, "cuMemcpyDtoDAsync_v2", \
      (ucx_mp_ptr_t dst, ucx_mp_ptr_t src, size_t size, \
       void *stream)) \
    _(copy_peer_async, "cuMemcpyPeerAsync", \
      (ucx_mp_ptr_t dst, void *dst_ctx, ucx_mp_ptr_t src, \
       void *src_ctx, size_t size, void *stream)) \
    _(memset_async, "cuMemsetD8Async", \
      (ucx_mp_ptr_t dst, unsigned char value, size_t size, void *stream)) \
    _(fill_async, "cuMemsetD32Async", \
      (ucx_mp_ptr_t dst, unsigned value, size_t count, void *stream)) \
    _(ctx_pop, "cuCtxPopCurrent_v2", (void **ctx_p)) \
    _(event_create, "cuEventCreate", (void **event_p, unsigned flags)) \
    _(event_record, "cuEventRecord", (void *event, void *stream)) \
    _(event_elapsed, "cuEventElapsedTime", \
      (float *ms_p, void *start, void *end)) \
    _(capture_begin, "cuStreamBeginCapture_v2", (void *stream, int mode)) \
    _(capture_end, "cuStreamEndCapture", (void *stream, void **graph_p)) \
    _(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode)) \
    _(graph_instantiate, "cuGraphInstantiateWithFlags", \
      (void **exec_p, void *graph, unsigned long long flags)) \
    _(graph_launch, "cuGraphLaunch", (void *exec, void *stream)) \
    _(exec_destroy, "cuGraphExecDestroy", (void *exec)) \
    _(graph_destroy, "cuGraphDestroy", (void *graph)) \
    _(ipc_get, "cuIpcGetMemHandle", \
      (ucx_mp_handle_t *handle, ucx_mp_ptr_t ptr)) \
    _(ipc_open, "cuIpcOpenMemHandle_v2", \
      (ucx_mp_ptr_t *ptr_p, ucx_mp_handle_t handle, unsigned flags)) \
    _(fd_export, "cuMemExportToShareableHandle", \
      (void *fd_p, unsigned long long handle, int type, \
       unsigned long long flags)) \
    _(fd_import, "cuMemImportFromShareableHandle", \
      (unsigned long long *handle_p, void *fd, int type)) \
    _(pool_export, "cuMemPoolExportToShareableHandle", \
      (void *fd_p, void *pool, int type, unsigned long long flags)) \
    _(pool_import, "cuMemPoolImportFromShareableHandle", \
      (void **pool_p, void *fd, int type, unsigned long long flags)) \
    _(pool_access, "cuMemPoolSetAccess", \
      (void *pool, const ucx_mp_access_t *access, size_t count)) \
    _(pointer_export, "cuMemPoolExportPointer", \
      (ucx_mp_handle_t *pointer, ucx_mp_ptr_t ptr)) \
    _(pointer_import, "cuMemPoolImportPointer", \
      (ucx_mp_ptr_t *ptr_p, void *pool, ucx_mp_handle_t *pointer)) \
    _(module_load, "cuModuleLoadData", (void **module_p, const char *ptx)) \
    _(module_global, "cuModuleGetGlobal_v2", \
      (ucx_mp_ptr_t *ptr_p, size_t *size_p, void *module, const char *name))

#define UCX_MP_DRIVER_MEMBER(_member, _name, _args) int(*_member) _args;
#define UCX_MP_DRIVER_SYMBOL(_member, _name, _args) \
    {_name, (void**)&ucx_mp_driver._member},

typedef struct {
    UCX_MP_DRIVER_BASE(UCX_MP_DRIVER_MEMBER)
    UCX_MP_DRIVER_FUNCTIONS(UCX_MP_DRIVER_MEMBER)
    ucx_mp_prop_t prop; /* of new memory: exportable, on this rank's GPU */
} ucx_mp_driver_t;

extern ucx_mp_driver_t ucx_mp_driver;

/* Call a function by its member's name; a failure ends the program. */
#define UCX_MP_DRIVER(_member, ...) \
    ucx_mp_driver_check(ucx_mp_driver._member(__VA_ARGS__), #_member)

/* Look up the other functions, after ucx_mp_gpu_init(). */
void ucx_mp_driver_load(void);

/* End the program on an error. */
void ucx_mp_driver_check(int error, const char *what);

/* Return the bytes in use on this rank's GPU, by all processes. */
size_t ucx_mp_driver_in_use(void);

/* Return a new pool that keeps freed memory, so that it can be shared. */
void *ucx_mp_driver_pool(void);

/* Reserve a range, and map new memory to all of it. `size`: a multiple of
   2 MiB. */
void *ucx_mp_driver_vmm(size_t size);

/* Map new memory, in pieces of one size, to a reserved range. */
void ucx_mp_driver_map(ucx_mp_ptr_t range, size_t size, size_t piece);

#endif
