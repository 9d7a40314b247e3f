/* SPDX-License-Identifier: BSD-3-Clause */
/* The GPUs this process sees, as UCX's system devices; their contexts. */
#ifndef UCT_CUDA_BASE_GPU_H
#define UCT_CUDA_BASE_GPU_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/end.h>

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>


/** Number of GPUs; 0 without a driver. Loads the driver at the first call. */
int uct_cuda_gpu_count(void);

/** Names the GPUs as UCX's system devices "GPU0", "GPU1", ... */
void uct_cuda_gpu_name_sys_devices(void);

/** UCX's system device of a GPU, or UCT_ABI_SYS_DEVICE_UNKNOWN. */
ucs_sys_device_t uct_cuda_gpu_sys_device(int device);

/** GPU of a system device, or none. */
uct_cuda_end_t uct_cuda_gpu_by_sys_device(ucs_sys_device_t sys_device);

/** GPU with this UUID, or hidden when this process does not see it. */
uct_cuda_end_t uct_cuda_gpu_by_uuid(const uint8_t uuid[16]);

/** Major compute capability of GPU 0, or 0. */
int uct_cuda_gpu_sm_major(void);


/**
 * Are the GPUs of this node joined by NVLink? The driver tells of a pair; a
 * process that sees one GPU only asks NVML, which takes 25 ms once.
 */
bool uct_cuda_gpu_has_nvlink(void);


/** A context made current for a while. */
typedef struct {
    CUcontext      cuda;
    int            device;    /**< Its device */
    bool           is_pushed; /**< Was not current before; else what follows
                                   is none */
    uct_cuda_end_t retained;  /**< GPU of a retained primary one, or none */
    uct_cuda_end_t kept;      /**< GPU whose is the engine's, or none */
} uct_cuda_gpu_context_t;


/**
 * Make the context of some memory current: the given one, or where memory has
 * none (pools, VMM) the primary context of its device, if that is active; else
 * the current one, if it is on that device, or the one that the engine keeps.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE (not active), UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_gpu_context_push(CUcontext cuda, int device,
                                       uct_cuda_gpu_context_t *context);

/**
 * Make the context current that the engine keeps on a device, for copies; it
 * may be one of ours.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE (there is none), UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_gpu_context_push_kept(int device,
                                            uct_cuda_gpu_context_t *context);

/**
 * Make any usable context current: the GPU's active primary one if there is a
 * GPU, and none says no; else the current one, else the first active primary
 * one.
 */
ucs_status_t uct_cuda_gpu_context_push_any(uct_cuda_end_t gpu,
                                           uct_cuda_gpu_context_t *context);

/**
 * Make a context current whose GPU may touch memory made with cuMemCreate, as
 * cuMemSetAccess has let it: with @a cuda, or its primary one, if @a gpu is one
 * and may; else the current one; else the first active primary one.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE (no GPU with a context may), an error of
 *         the first of these.
 */
ucs_status_t
uct_cuda_gpu_context_push_touching(CUdeviceptr memory, CUcontext cuda,
                                   uct_cuda_end_t gpu,
                                   uct_cuda_gpu_context_t *context);

void uct_cuda_gpu_context_pop_pushed(const uct_cuda_gpu_context_t *context);

/** Make the context current again that was. */
static inline void
uct_cuda_gpu_context_pop(const uct_cuda_gpu_context_t *context)
{
    if (context->is_pushed) {
        uct_cuda_gpu_context_pop_pushed(context);
    }
}

#endif
