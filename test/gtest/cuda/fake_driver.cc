/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_driver.h"

#include <cstring>

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

    table.cuGetErrorName = [](CUresult, const char **name) {
        *name = "CUDA_ERROR_FAKE";
        return CUDA_SUCCESS;
    };
    table.cuCtxGetCurrent = [](CUcontext *context) {
        *context = fake->context;
        return CUDA_SUCCESS;
    };
    table.cuCtxGetId = [](CUcontext, unsigned long long *id) {
        *id = fake->ctx_id;
        return CUDA_SUCCESS;
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
        /* bytes, not a string: nothing ends them */
        fake->mapped[*address].assign(handle.reserved,
                                      strnlen(handle.reserved,
                                              sizeof(handle.reserved)));
        return CUDA_SUCCESS;
    };
    table.cuIpcCloseMemHandle = [](CUdeviceptr address) {
        return fake->mapped.erase(address) ? CUDA_SUCCESS :
                                             CUDA_ERROR_INVALID_VALUE;
    };

    uct_cuda_driver_override(&table);
}

void FakeDriver::offer_gpu_memory(CUdeviceptr base, size_t length)
{
    gpu_base                     = base;
    gpu_length                   = length;
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
                *(unsigned*)values[i] = CU_MEMORYTYPE_DEVICE;
                break;
            case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int*)values[i] = fake->gpu_device;
                break;
            case CU_POINTER_ATTRIBUTE_CONTEXT:
                *(CUcontext*)values[i] = fake->context;
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
            default:
                break;
            }
        }
        return CUDA_SUCCESS;
    };
}

FakeDriver::~FakeDriver()
{
    uct_cuda_driver_override(nullptr);
    fake = nullptr;
}
