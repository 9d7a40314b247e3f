/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs visible to this process: their UCX system devices, and the choice of a
 * context to work in (base/ctx.h has the contexts themselves). */
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


/** Reference to a context, taken by a push. */
typedef enum {
    UCT_CUDA_GPU_RETAINED_NONE,
    UCT_CUDA_GPU_RETAINED_PRIMARY, /**< Of the primary context */
    UCT_CUDA_GPU_RETAINED_KEPT     /**< Of the engine's, base/ctx.h */
} uct_cuda_gpu_retained_t;


/** Context made current for some time. */
typedef struct {
    CUcontext               cuda;
    int                     device;    /**< Its device */
    bool                    is_pushed; /**< Was not current before */
    uct_cuda_gpu_retained_t retained;
} uct_cuda_gpu_context_t;


/**
 * Make a context current to access memory of a device.
 *
 * @param cuda  Context of the memory. NULL, for memory without one (pools,
 *              VMM): the primary context of the device if active, else the
 *              current context if it is on the device, else the one
 *              retained for the engine.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE (not active), UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_gpu_context_push(CUcontext cuda, int device,
                                       uct_cuda_gpu_context_t *context);

/**
 * Make the engine's context on a device current, for copies; it may be one of
 * the module.
 *
 * @return UCS_OK, UCS_ERR_NO_DEVICE (none), UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_gpu_context_push_kept(int device,
                                            uct_cuda_gpu_context_t *context);

/**
 * Make any usable context current: the current one, else the active primary one
 * of @a gpu, or the first one if that is none.
 *
 * @param memory  Without @a gpu, memory from cuMemCreate that the context's GPU
 *                must be able to access; 0: none.
 * @return UCS_OK, UCS_ERR_NO_DEVICE (none), UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_gpu_context_push_any(uct_cuda_end_t gpu,
                                           CUdeviceptr memory,
                                           uct_cuda_gpu_context_t *context);

/**
 * Make a context current for GPU memory without a context, from cuMemCreate or
 * a pool. If its GPU has no context in this process, because the program has
 * imported a peer's memory, use a context of another GPU with access. If its
 * GPU's context was created by the program and cannot be found, use one of the
 * module.
 *
 * @param device  GPU of the memory.
 * @return UCS_OK, or an error: no usable context.
 */
ucs_status_t uct_cuda_gpu_context_push_for(int device, CUdeviceptr memory,
                                           uct_cuda_gpu_context_t *context);

void uct_cuda_gpu_context_pop_pushed(const uct_cuda_gpu_context_t *context);

/** Undo a push: make the earlier context current again, and release what the
 *  push retained. Does nothing if nothing was pushed, as after a failure. */
static inline void
uct_cuda_gpu_context_pop(const uct_cuda_gpu_context_t *context)
{
    if (context->is_pushed) {
        uct_cuda_gpu_context_pop_pushed(context);
    }
}

#endif
