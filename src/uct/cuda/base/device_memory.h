/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPU memory that can be freed while the GPU is busy. The module and the MPI
 * interposition library share this file, each with its own table of the driver.
 */
#ifndef UCT_CUDA_BASE_DEVICE_MEMORY_H
#define UCT_CUDA_BASE_DEVICE_MEMORY_H

#include <uct/cuda/base/driver_table.h>


/**
 * Free unused memory from cuMemAlloc(), or from another process's pool, with a
 * context of its GPU current.
 *
 * cuMemFree() waits for all work queued by the program on the GPU, which may
 * wait for the program, and blocks every other call of the context meanwhile
 * (H100, driver 580). cuMemFreeAsync() in an empty stream does not; drivers
 * before CUDA 11.2 lack it. Failures are ignored.
 */
void uct_cuda_device_memory_free(const uct_cuda_driver_t *driver,
                                 CUdeviceptr address);

/** Free memory of another process's pool. The driver unmaps it from this
 *  process only at a synchronization: wait for a stream with no other work. */
void uct_cuda_device_memory_free_imported(const uct_cuda_driver_t *driver,
                                          CUdeviceptr address);

#endif
