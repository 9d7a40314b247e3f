/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs visible to this process, and their UCX system devices. */
#ifndef UCT_CUDA_BASE_GPU_H
#define UCT_CUDA_BASE_GPU_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/end.h>

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>


/** Return the number of GPUs; 0 without a driver. Loads the driver at the
 *  first call. */
int uct_cuda_gpu_count(void);

/** Set the names of UCX's system devices: "GPU0", "GPU1" and so on. */
void uct_cuda_gpu_name_sys_devices(void);

/** Return UCX's system device of a GPU, or UCT_ABI_SYS_DEVICE_UNKNOWN. */
ucs_sys_device_t uct_cuda_gpu_sys_device(int device);

/** Return the GPU of a system device, or no end. */
uct_cuda_end_t uct_cuda_gpu_by_sys_device(ucs_sys_device_t sys_device);

/** Return the GPU with this UUID, or hidden if it is not visible to this
 *  process. */
uct_cuda_end_t uct_cuda_gpu_by_uuid(const uint8_t uuid[16]);

/** Return the major compute capability of GPU 0, or 0. */
int uct_cuda_gpu_sm_major(void);


/** Return whether the GPUs of this node are joined by NVLink. The driver
 *  reports this for a pair; with a single visible GPU NVML is queried, which
 *  takes 25 ms once. */
bool uct_cuda_gpu_has_nvlink(void);

#endif
