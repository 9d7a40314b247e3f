/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/cuda_cma/cuda_cma_rkey.h>

#include <stdlib.h>
#include <string.h>


/* Magic of an unpacked key */
#define UNPACKED_MAGIC UINT64_C(0x7563786d70636dff)


const uct_cuda_cma_rkey_t *uct_cuda_cma_rkey_get(uct_rkey_t uct_rkey)
{
    const uct_cuda_cma_rkey_t *rkey = (const uct_cuda_cma_rkey_t*)uct_rkey;

    return ((uct_rkey != UCT_INVALID_RKEY) && (uct_rkey != 0) &&
            ((uct_rkey % __alignof__(*rkey)) == 0) &&
            (rkey->magic == UNPACKED_MAGIC)) ?
                   rkey :
                   NULL;
}

ucs_status_t uct_cuda_cma_rkey_unpack(const uct_abi_component_t *component,
                                      const void *buffer,
                                      ucs_sys_device_t sys_dev,
                                      uct_rkey_t *rkey_p, void **handle_p)
{
    uct_cuda_cma_rkey_t packed, *rkey;

    /* another module's key may be shorter */
    memcpy(&packed.magic, buffer, sizeof(packed.magic));
    if (packed.magic != UCT_CUDA_CMA_PACKED_MAGIC) {
        return UCS_ERR_UNREACHABLE;
    }

    memcpy(&packed, buffer, sizeof(packed));
    if (packed.length > UINT64_MAX - packed.base) {
        return UCS_ERR_UNREACHABLE;
    }

    rkey = malloc(sizeof(*rkey));
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    *rkey       = packed;
    rkey->magic = UNPACKED_MAGIC;
    *rkey_p     = (uintptr_t)rkey;
    *handle_p   = NULL;
    return UCS_OK;
}

ucs_status_t uct_cuda_cma_rkey_release(const uct_abi_component_t *component,
                                       uct_rkey_t uct_rkey, void *handle)
{
    uct_cuda_cma_rkey_t *rkey =
            (uct_cuda_cma_rkey_t*)uct_cuda_cma_rkey_get(uct_rkey);

    if (rkey == NULL) {
        return UCS_ERR_INVALID_PARAM;
    }

    rkey->magic = 0;
    free(rkey);
    return UCS_OK;
}
