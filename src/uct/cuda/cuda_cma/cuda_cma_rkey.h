/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of host memory: an address range, all that the kernel needs. */
#ifndef UCT_CUDA_CMA_RKEY_H
#define UCT_CUDA_CMA_RKEY_H

#include <uct/abi/abi.h>
#include <uct/cuda/cuda_cma/cuda_cma_control.h>


/** Magic of a packed key: "ucxmpcm", then the layout's version. */
#define UCT_CUDA_CMA_PACKED_MAGIC UINT64_C(0x7563786d70636d02)


/** Registered host memory of a process, as sent to peers. */
typedef struct {
    uint64_t                 magic;  /**< Another value when unpacked */
    uint64_t                 base;
    uint64_t                 length; /**< Bytes */
    uct_cuda_cma_server_id_t server; /**< Of page-locked memory */
} uct_cuda_cma_rkey_t;


/** Return the key passed in by UCT, or NULL: not of this component. */
const uct_cuda_cma_rkey_t *uct_cuda_cma_rkey_get(uct_rkey_t rkey);

/* Operations of the component */
ucs_status_t uct_cuda_cma_rkey_unpack(const uct_abi_component_t *component,
                                      const void *buffer,
                                      ucs_sys_device_t sys_dev,
                                      uct_rkey_t *rkey_p, void **handle_p);

ucs_status_t uct_cuda_cma_rkey_release(const uct_abi_component_t *component,
                                       uct_rkey_t rkey, void *handle);

#endif
