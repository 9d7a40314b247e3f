/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory that can be freed while the GPU is busy. The module and the MPI
 * interposition library share this file, each with its own table of the driver.
 */
#ifndef UCT_CUDA_BASE_DEVICE_MEMORY_H
#define UCT_CUDA_BASE_DEVICE_MEMORY_H

#include <uct/cuda/base/driver_table.h>

#include <stdbool.h>


/**
 * Free unused memory from cuMemAlloc(), or from another process's pool, with a
 * context of its GPU current.
 *
 * cuMemFree() waits for all work queued by the program on the GPU, which may
 * wait for the program, and blocks every other call of the context meanwhile
 * (H100, driver 580). cuMemFreeAsync() in an empty stream does not; drivers
 * before CUDA 11.2 lack it.
 *
 * @param is_waited  The memory is needed at once, or another process's pool has
 *                   it: the driver releases it at a synchronization, so wait
 *                   for that stream, which has no other work.
 */
CUresult uct_cuda_device_memory_free(const uct_cuda_driver_t *driver,
                                     CUdeviceptr address, bool is_waited);

/** The same with the module's driver (base/driver.h); a failure is logged. */
#define UCT_CUDA_DEVICE_MEMORY_FREE(_address, _is_waited) \
    ((void)uct_cuda_driver_check( \
            __FILE__, __LINE__, __func__, "cuMemFree", \
            uct_cuda_device_memory_free(uct_cuda_driver_get(), _address, \
                                        _is_waited)))

#endif
