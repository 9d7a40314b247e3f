/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Driver functions that allocate and free GPU memory in several ways. A failed
 * call ends the program with its name.
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

/* Member name, exported name, arguments */
#define UCX_MP_DRIVER_FUNCTIONS(_) \
    _(get_device, "cuCtxGetDevice", (int *device_p)) \
    _(get_info, "cuMemGetInfo_v2", (size_t *free_p, size_t *total_p)) \
    _(alloc, "cuMemAlloc_v2", (ucx_mp_ptr_t *ptr_p, size_t size)) \
    _(alloc_managed, "cuMemAllocManaged", \
      (ucx_mp_ptr_t *ptr_p, size_t size, unsigned flags)) \
    _(free, "cuMemFree_v2", (ucx_mp_ptr_t ptr)) \
    _(alloc_async, "cuMemAllocAsync", \
      (ucx_mp_ptr_t *ptr_p, size_t size, void *stream)) \
    _(pool_create, "cuMemPoolCreate", \
      (void **pool_p, const ucx_mp_prop_t *prop)) \
    _(pool_set, "cuMemPoolSetAttribute", \
      (void *pool, int attribute, void *value)) \
    _(alloc_from_pool, "cuMemAllocFromPoolAsync", \
      (ucx_mp_ptr_t *ptr_p, size_t size, void *pool, void *stream)) \
    _(free_async, "cuMemFreeAsync", (ucx_mp_ptr_t ptr, void *stream)) \
    _(synchronize, "cuStreamSynchronize", (void *stream)) \
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
       size_t count))

#define UCX_MP_DRIVER_MEMBER(_member, _name, _args) int(*_member) _args;

typedef struct {
    UCX_MP_DRIVER_FUNCTIONS(UCX_MP_DRIVER_MEMBER)
    ucx_mp_prop_t prop; /* of new memory: exportable, on this rank's GPU */
} ucx_mp_driver_t;

extern ucx_mp_driver_t ucx_mp_driver;

/* Call a function by its member's name. */
#define UCX_MP_DRIVER(_member, ...) \
    ucx_mp_driver_check(ucx_mp_driver._member(__VA_ARGS__), #_member)

/* Look up the functions, after ucx_mp_gpu_init(). */
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
