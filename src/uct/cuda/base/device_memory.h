/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory of the module that can be freed while the GPU is busy. */
#ifndef UCT_CUDA_BASE_DEVICE_MEMORY_H
#define UCT_CUDA_BASE_DEVICE_MEMORY_H

#include <cuda.h>


/**
 * Free unused memory from cuMemAlloc(), or from another process's pool, with a
 * context of its GPU current.
 *
 * cuMemFree() waits for all work queued by the program on the GPU, which may
 * wait for the program, and blocks every other call of the context meanwhile
 * (H100, driver 580). cuMemFreeAsync() in an empty stream does not; drivers
 * before CUDA 11.2 lack it. Failures are logged.
 */
void uct_cuda_device_memory_free(CUdeviceptr address);

/** Free memory of another process's pool. The driver unmaps it from this
 *  process only at a synchronization: wait for a stream with no other work. */
void uct_cuda_device_memory_free_imported(CUdeviceptr address);

#endif
