/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/log.h>
#include <uct/cuda/node/watch.h>
}

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>

FakeDriver *fake;

static uintptr_t next_object = 0x10;

template<typename T> static T new_object()
{
    return reinterpret_cast<T>(next_object += 0x10);
}

bool FakeDriver::fails(const char *function)
{
    if (fail != function) {
        return false;
    }

    fail.clear();
    return true;
}

FakeDriver::FakeDriver()
{
    memset(&table, 0, sizeof(table));
    fake = this;
    renew_context();

    table.cuGetErrorName = [](CUresult, const char **name) {
        *name = "CUDA_ERROR_FAKE";
        return CUDA_SUCCESS;
    };
    table.cuCtxGetCurrent = [](CUcontext *context) {
        *context = fake->context;
        return CUDA_SUCCESS;
    };
    table.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int *is_active) {
        *is_active = 0;
        return CUDA_SUCCESS;
    };
    table.cuCtxGetId = [](CUcontext, unsigned long long *id) {
        *id = fake->ctx_id;
        return CUDA_SUCCESS;
    };
    table.cuCtxGetDevice = [](CUdevice *device) {
        *device = fake->gpu_device;
        return (fake->context == nullptr) ? CUDA_ERROR_INVALID_CONTEXT :
                                            CUDA_SUCCESS;
    };
    table.cuCtxPushCurrent = [](CUcontext) { return CUDA_SUCCESS; };
    table.cuCtxPopCurrent  = [](CUcontext *context) {
        *context = fake->context;
        return CUDA_SUCCESS;
    };
    table.cuStreamCreate = [](CUstream *stream, unsigned) {
        fake->streams.insert(*stream = new_object<CUstream>());
        return CUDA_SUCCESS;
    };
    table.cuStreamDestroy = [](CUstream stream) {
        return fake->streams.erase(stream) ? CUDA_SUCCESS :
                                             CUDA_ERROR_INVALID_HANDLE;
    };
    table.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
    table.cuEventCreate       = [](CUevent *event, unsigned) {
        fake->events.insert(*event = new_object<CUevent>());
        return CUDA_SUCCESS;
    };
    table.cuEventDestroy = [](CUevent event) {
        return fake->events.erase(event) ? CUDA_SUCCESS :
                                           CUDA_ERROR_INVALID_HANDLE;
    };
    table.cuEventRecord = [](CUevent event, CUstream) {
        if (fake->fails("cuEventRecord")) {
            return fake->fail_with;
        }
        ++fake->records;
        fake->done.erase(event);
        return CUDA_SUCCESS;
    };
    table.cuEventQuery = [](CUevent event) {
        if (fake->fails("cuEventQuery")) {
            return fake->fail_with;
        }
        return fake->done.count(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    };
    table.cuStreamWaitEvent = [](CUstream, CUevent event, unsigned) {
        fake->waited_for.push_back(event);
        return CUDA_SUCCESS;
    };
    table.cuLaunchHostFunc = [](CUstream, CUhostFn func, void *arg) {
        fake->host_func = func;
        fake->host_arg  = arg;
        return CUDA_SUCCESS;
    };
    table.cuIpcOpenMemHandle = [](CUdeviceptr *address, CUipcMemHandle handle,
                                  unsigned) {
        if (fake->fails("cuIpcOpenMemHandle")) {
            return fake->fail_with;
        }
        ++fake->opens;
        *address = (next_object += 0x10) << 20;
        /* bytes, not a string: no terminating zero */
        fake->mapped[*address].assign(handle.reserved,
                                      strnlen(handle.reserved,
                                              sizeof(handle.reserved)));
        return CUDA_SUCCESS;
    };
    table.cuIpcCloseMemHandle = [](CUdeviceptr address) {
        return fake->mapped.erase(address) ? CUDA_SUCCESS :
                                             CUDA_ERROR_INVALID_VALUE;
    };

    uct_cuda_node_watch_replace(false);
    uct_cuda_driver_override(&table);
}

void FakeDriver::offer_gpu_memory(CUdeviceptr base, size_t length)
{
    gpu_base                     = base;
    gpu_length                   = length;
    /* Memory without a context belongs to a pool */
    table.cuPointerGetAttribute = [](void *value, CUpointer_attribute name,
                                     CUdeviceptr) {
        if (name != CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(void**)value = fake;
        return CUDA_SUCCESS;
    };
    table.cuPointerGetAttributes = [](unsigned count,
                                      CUpointer_attribute *names, void **values,
                                      CUdeviceptr address) {
        ++fake->questions;
        if ((address < fake->gpu_base) ||
            (address >= fake->gpu_base + fake->gpu_length)) {
            return fake->no_memory;
        }
        for (unsigned i = 0; i < count; ++i) {
            switch (names[i]) {
            case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                *(unsigned*)values[i] = !fake->host_vmm.empty() ?
                                                CU_MEMORYTYPE_HOST :
                                                CU_MEMORYTYPE_DEVICE;
                break;
            case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int*)values[i] = fake->gpu_device;
                break;
            case CU_POINTER_ATTRIBUTE_CONTEXT:
                *(CUcontext*)values[i] = !fake->host_vmm.empty() ? nullptr :
                                                             fake->context;
                break;
            case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
                *(void**)values[i] = ((fake->context == nullptr) &&
                                      fake->is_pool) ? fake : nullptr;
                break;
            case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                *(CUdeviceptr*)values[i] = fake->gpu_base;
                break;
            case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                *(size_t*)values[i] = fake->gpu_length;
                break;
            case CU_POINTER_ATTRIBUTE_BUFFER_ID:
                *(unsigned long long*)values[i] = fake->buffer_id;
                break;
            case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
                (void)fake->table.cuPointerGetAttribute(values[i], names[i],
                                                        address);
                break;
            default:
                break;
            }
        }
        return CUDA_SUCCESS;
    };
}

void FakeDriver::offer_gpu_range()
{
    table.cuMemGetAddressRange = [](CUdeviceptr *base, size_t *size,
                                    CUdeviceptr) {
        if (fake->fails("cuMemGetAddressRange")) {
            return fake->fail_with;
        }
        if (fake->needs_context && (fake->num_pushed == 0)) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        ++fake->questions;
        *base = fake->gpu_base;
        *size = fake->gpu_length;
        return CUDA_SUCCESS;
    };
}

void FakeDriver::need_context()
{
    needs_context          = true;
    table.cuCtxPushCurrent = [](CUcontext) {
        ++fake->num_pushed;
        return CUDA_SUCCESS;
    };
    table.cuCtxPopCurrent = [](CUcontext*) {
        --fake->num_pushed;
        return CUDA_SUCCESS;
    };
    table.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int *is_active) {
        *is_active = 1;
        return CUDA_SUCCESS;
    };
    table.cuDevicePrimaryCtxRetain = [](CUcontext *primary, CUdevice) {
        *primary = reinterpret_cast<CUcontext>(0x777);
        return CUDA_SUCCESS;
    };
    table.cuDevicePrimaryCtxRelease = [](CUdevice) { return CUDA_SUCCESS; };
}

void FakeDriver::offer_gpu_copies()
{
    table.cuMemcpyDtoDAsync = [](CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                 CUstream) {
        if (fake->fails("cuMemcpyDtoDAsync")) {
            return fake->fail_with;
        }
        ++fake->singles;
        memcpy((void*)dst, (const void*)src, bytes);
        return CUDA_SUCCESS;
    };
    table.cuMemcpyBatchAsync_v1 =
            [](CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
               uct_cuda_memcpy_attributes_t *attributes, size_t *first,
               size_t num, size_t *, CUstream) {
        if (fake->fails("cuMemcpyBatchAsync")) {
            return fake->fail_with;
        }
        EXPECT_EQ(1u, num);
        EXPECT_EQ(0u, *first);
        EXPECT_EQ(1u, attributes->src_access_order);
        ++fake->batches;
        /* the manual allows any order */
        while (count-- > 0) {
            memcpy((void*)dst[count], (const void*)src[count], bytes[count]);
        }
        return CUDA_SUCCESS;
    };
}

void FakeDriver::offer_host_copies()
{
    table.cuMemcpyHtoDAsync = [](CUdeviceptr dst, const void *src, size_t bytes,
                                 CUstream) {
        ++fake->singles;
        memcpy(fake->behind(dst), src, bytes);
        return CUDA_SUCCESS;
    };
    table.cuMemcpyDtoHAsync = [](void *dst, CUdeviceptr src, size_t bytes,
                                 CUstream) {
        ++fake->singles;
        memcpy(dst, fake->behind(src), bytes);
        return CUDA_SUCCESS;
    };
}

CUresult FakeDriver::locked(unsigned count, const CUpointer_attribute *names,
                            void **values, const void *base, size_t length)
{
    for (unsigned i = 0; i < count; ++i) {
        switch (names[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned*)values[i] = CU_MEMORYTYPE_HOST;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            *(CUdeviceptr*)values[i] = (CUdeviceptr)base;
            break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            *(size_t*)values[i] = length;
            break;
        default:
            break;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice)
{
    memset(uuid, 0x11, sizeof(*uuid));
    return CUDA_SUCCESS;
}

void FakeDriver::offer_handles()
{
    table.cuDeviceGetUuid       = get_uuid;
    table.cuPointerGetAttribute = [](void*, CUpointer_attribute, CUdeviceptr) {
        return CUDA_ERROR_NOT_SUPPORTED;
    };
    table.cuIpcGetMemHandle = [](CUipcMemHandle *handle, CUdeviceptr) {
        memset(handle, 0x22, sizeof(*handle));
        return CUDA_SUCCESS;
    };
    table.cuDeviceGetCount = [](int *count) {
        *count = 0;
        return CUDA_SUCCESS;
    };
}

void FakeDriver::offer_descriptors()
{
    table.cuDeviceGetUuid       = get_uuid;
    table.cuPointerGetAttribute = [](void *value, CUpointer_attribute name,
                                     CUdeviceptr) {
        if (name == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) {
            *(uint64_t*)value = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        } else {
            *(int*)value = 0; /* legacy handles are not supported */
        }
        return CUDA_SUCCESS;
    };
    table.cuMemRetainAllocationHandle =
            [](CUmemGenericAllocationHandle *handle, void*) {
        *handle = 1;
        return CUDA_SUCCESS;
    };
    table.cuMemRelease = [](CUmemGenericAllocationHandle) {
        return CUDA_SUCCESS;
    };
    table.cuMemExportToShareableHandle =
            [](void *fd, CUmemGenericAllocationHandle,
               CUmemAllocationHandleType, unsigned long long) {
        *(int*)fd = open("/dev/null", O_RDONLY);
        return CUDA_SUCCESS;
    };
}

void FakeDriver::offer_host_threads()
{
    table.cuMemHostRegister = [](void*, size_t, unsigned) {
        return CUDA_SUCCESS;
    };
    table.cuDeviceGetPCIBusId = [](char *text, int, CUdevice) {
        strcpy(text, "0000:00:00.0"); /* not near anything */
        return CUDA_SUCCESS;
    };
    table.cuEventRecord      = [](CUevent, CUstream) { return CUDA_SUCCESS; };
    table.cuEventSynchronize = [](CUevent) { return CUDA_SUCCESS; };
}

void FakeDriver::renew_context()
{
    static unsigned long long last_id = 1000;

    ctx_id = ++last_id;
}

void FakeDriver::expect_errors()
{
    uct_cuda_log_set([](uct_cuda_log_level_t, const char*, unsigned,
                        const char*, const char*) {}, UCT_CUDA_LOG_ERROR);
    is_log_ours = true;
}

void *FakeDriver::behind(CUdeviceptr address)
{
    return (address - gpu_base < host_vmm.size()) ?
                   &host_vmm[address - gpu_base] :
                   (void*)address;
}

CUdeviceptr FakeDriver::offer_host_vmm(size_t length)
{
    void *base = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);

    offer_gpu_memory((CUdeviceptr)base, length);
    host_vmm.resize(length);
    table.cuMemRetainAllocationHandle = [](CUmemGenericAllocationHandle *handle,
                                           void *address) {
        if (((CUdeviceptr)address < fake->gpu_base) ||
            ((CUdeviceptr)address >= fake->gpu_base + fake->gpu_length)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        ++fake->handles_held;
        *handle = 1;
        return CUDA_SUCCESS;
    };
    table.cuMemRelease = [](CUmemGenericAllocationHandle) {
        --fake->handles_held;
        return CUDA_SUCCESS;
    };
    /* The same as in UCX 1.22's tests */
    table.cuMemGetAddressRange = [](CUdeviceptr *start, size_t *size,
                                    CUdeviceptr) {
        *start = 0;
        *size  = fake->gpu_length;
        return CUDA_SUCCESS;
    };
    table.cuMemcpyAsync = [](CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                             CUstream) {
        ++fake->any_copies;
        memcpy(fake->behind(dst), fake->behind(src), bytes);
        return CUDA_SUCCESS;
    };
    table.cuMemcpyHtoDAsync = nullptr;
    table.cuMemcpyDtoHAsync = nullptr;
    table.cuMemcpyDtoDAsync = nullptr;
    return gpu_base;
}

FakeDriver::~FakeDriver()
{
    if (!host_vmm.empty()) {
        munmap((void*)gpu_base, gpu_length);
    }
    if (is_log_ours) {
        uct_cuda_log_set(nullptr, UCT_CUDA_LOG_WARN);
    }
    uct_cuda_driver_override(nullptr);
    fake = nullptr;
}
