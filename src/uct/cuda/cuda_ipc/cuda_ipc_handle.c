/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Export and import of GPU memory between processes, one pair of functions for
 * each way the driver has: legacy handles for cuMemAlloc memory, fabric handles
 * and file descriptors for memory made with cuMemCreate.
 */
#include <uct/cuda/cuda_ipc/cuda_ipc_handle.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_address.h>

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>


#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif


/* Exports memory made with cuMemCreate in one of the ways it was made for */
static ucs_status_t export_vmm(const void *address, uint64_t allowed,
                               uct_cuda_ipc_handle_t *handle)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUmemGenericAllocationHandle allocation;
    ucs_status_t status = UCS_ERR_UNSUPPORTED;
    int fd;

    if ((driver->cuMemRetainAllocationHandle == NULL) ||
        (driver->cuMemRetainAllocationHandle(&allocation, (void*)address) !=
         CUDA_SUCCESS)) {
        return UCS_ERR_UNSUPPORTED;
    }

#if CUDA_VERSION >= 12030
    if ((allowed & CU_MEM_HANDLE_TYPE_FABRIC) &&
        (driver->cuMemExportToShareableHandle(handle->os.bytes, allocation,
                                              CU_MEM_HANDLE_TYPE_FABRIC, 0) ==
         CUDA_SUCCESS)) {
        handle->type = UCT_CUDA_IPC_HANDLE_FABRIC;
        status       = UCS_OK;
        goto out;
    }
#endif

    if ((allowed & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) &&
        (driver->cuMemExportToShareableHandle(
                 &fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                 0) == CUDA_SUCCESS)) {
        handle->os.fd = fd;
        handle->type  = UCT_CUDA_IPC_HANDLE_FD;
        status        = UCS_OK;
        goto out;
    }

out:
    (void)driver->cuMemRelease(allocation);
    return status;
}

ucs_status_t uct_cuda_ipc_handle_export(const void *address,
                                        uct_cuda_ipc_handle_t *handle_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    int legacy_capable              = 1;
    uint64_t allowed                = 0;
    uct_cuda_ipc_iface_addr_t self;
    uct_cuda_memory_t memory;
    CUipcMemHandle legacy;
    CUdeviceptr base;
    CUuuid uuid;
    size_t length;

    memset(handle_p, 0, sizeof(*handle_p));

    uct_cuda_memory_query(address, 0, &memory);
    if ((memory.type != UCS_MEMORY_TYPE_CUDA) || (driver == NULL)) {
        return UCS_ERR_INVALID_ADDR;
    }

    base   = memory.base;
    length = memory.length;
    if ((length == 0) && (driver->cuMemGetAddressRange(
                                  &base, &length, (CUdeviceptr)address) !=
                          CUDA_SUCCESS)) {
        return UCS_ERR_INVALID_ADDR;
    }

    if (driver->cuDeviceGetUuid(&uuid, memory.device) != CUDA_SUCCESS) {
        return UCS_ERR_IO_ERROR;
    }

    uct_cuda_ipc_iface_addr_self(&self);
    handle_p->pid       = self.pid;
    handle_p->pid_ns    = self.pid_ns;
    handle_p->base      = base;
    handle_p->length    = length;
    handle_p->buffer_id = memory.buffer_id;
    memcpy(handle_p->gpu, &uuid, sizeof(handle_p->gpu));

    /* Attributes that older drivers do not know leave the legacy way */
    (void)driver->cuPointerGetAttribute(
            &legacy_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
            (CUdeviceptr)address);
    (void)driver->cuPointerGetAttribute(
            &allowed, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
            (CUdeviceptr)address);

    if (!legacy_capable && (export_vmm(address, allowed, handle_p) == UCS_OK)) {
        return UCS_OK;
    }

    if (driver->cuIpcGetMemHandle(&legacy, (CUdeviceptr)address) ==
        CUDA_SUCCESS) {
        handle_p->type = UCT_CUDA_IPC_HANDLE_LEGACY;
        memcpy(handle_p->os.bytes, &legacy, sizeof(legacy));
    } else {
        handle_p->type = UCT_CUDA_IPC_HANDLE_NONE;
        uct_cuda_debug("memory at %p cannot be shared with other processes",
                       address);
    }

    return UCS_OK;
}

void uct_cuda_ipc_handle_release(uct_cuda_ipc_handle_t *handle)
{
    if (handle->type == UCT_CUDA_IPC_HANDLE_FD) {
        close(handle->os.fd);
    }
}

/*
 * A duplicate, in this process, of the exporter's file descriptor. The kernel
 * takes a pid for one of this process's namespace: another container's may be
 * some other process here, with other memory behind that number.
 */
static int fetch_fd(const uct_cuda_ipc_handle_t *handle)
{
    uct_cuda_ipc_iface_addr_t self;
    int pidfd, fd;

    uct_cuda_ipc_iface_addr_self(&self);
    if ((handle->pid_ns == 0) || (handle->pid_ns != self.pid_ns)) {
        return -1;
    }

    pidfd = (int)syscall(SYS_pidfd_open, handle->pid, 0);
    if (pidfd < 0) {
        return -1;
    }

    fd = (int)syscall(SYS_pidfd_getfd, pidfd, handle->os.fd, 0);
    close(pidfd);
    return fd;
}

static ucs_status_t open_legacy(const uct_cuda_ipc_handle_t *handle,
                                CUdeviceptr *mapped_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUipcMemHandle legacy;
    CUresult result;

    memcpy(&legacy, handle->os.bytes, sizeof(legacy));
    result = driver->cuIpcOpenMemHandle(mapped_p, legacy,
                                        CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS) {
        uct_cuda_debug("cuIpcOpenMemHandle(pid %d, %#lx): %s", handle->pid,
                       (unsigned long)handle->base,
                       uct_cuda_result_name(result));
        return (result == CUDA_ERROR_ALREADY_MAPPED) ? UCS_ERR_ALREADY_EXISTS :
                                                       UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

static ucs_status_t open_vmm(const uct_cuda_ipc_handle_t *handle,
                             CUdevice device, CUdeviceptr *mapped_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUmemAllocationHandleType type  = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    void *os_handle                 = NULL;
    int fd                          = -1;
    ucs_status_t status             = UCS_ERR_UNREACHABLE;
    CUmemGenericAllocationHandle allocation;
    CUmemAccessDesc access;
    CUdeviceptr mapped;

    if (driver->cuMemImportFromShareableHandle == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (handle->type == UCT_CUDA_IPC_HANDLE_FD) {
        fd = fetch_fd(handle);
        if (fd < 0) {
            return UCS_ERR_UNREACHABLE;
        }
        os_handle = (void*)(intptr_t)fd;
    } else {
#if CUDA_VERSION >= 12030
        type      = CU_MEM_HANDLE_TYPE_FABRIC;
        os_handle = (void*)handle->os.bytes;
#else
        return UCS_ERR_UNSUPPORTED;
#endif
    }

    if (driver->cuMemImportFromShareableHandle(&allocation, os_handle, type) !=
        CUDA_SUCCESS) {
        goto out_close_fd;
    }

    if (driver->cuMemAddressReserve(&mapped, handle->length, 0, 0, 0) !=
        CUDA_SUCCESS) {
        goto out_release;
    }

    if (driver->cuMemMap(mapped, handle->length, 0, allocation, 0) !=
        CUDA_SUCCESS) {
        goto err_free_address;
    }

    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id   = device;
    access.flags         = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (driver->cuMemSetAccess(mapped, handle->length, &access, 1) !=
        CUDA_SUCCESS) {
        goto err_unmap;
    }

    *mapped_p = mapped;
    status    = UCS_OK;
    goto out_release;

err_unmap:
    (void)driver->cuMemUnmap(mapped, handle->length);
err_free_address:
    (void)driver->cuMemAddressFree(mapped, handle->length);
out_release:
    (void)driver->cuMemRelease(allocation);
out_close_fd:
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

ucs_status_t uct_cuda_ipc_handle_open(const uct_cuda_ipc_handle_t *handle,
                                      CUdevice device, CUdeviceptr *mapped_p)
{
    switch (handle->type) {
    case UCT_CUDA_IPC_HANDLE_LEGACY:
        return open_legacy(handle, mapped_p);
    case UCT_CUDA_IPC_HANDLE_FABRIC:
    case UCT_CUDA_IPC_HANDLE_FD:
        return open_vmm(handle, device, mapped_p);
    default:
        return UCS_ERR_UNREACHABLE;
    }
}

void uct_cuda_ipc_handle_close(const uct_cuda_ipc_handle_t *handle,
                               CUdeviceptr mapped)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();

    if (handle->type == UCT_CUDA_IPC_HANDLE_LEGACY) {
        (void)driver->cuIpcCloseMemHandle(mapped);
    } else {
        (void)driver->cuMemUnmap(mapped, handle->length);
        (void)driver->cuMemAddressFree(mapped, handle->length);
    }
}
