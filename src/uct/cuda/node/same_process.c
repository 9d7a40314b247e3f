/* SPDX-License-Identifier: BSD-3-Clause */
/* Access between this process's GPUs. */
#include <uct/cuda/node/same_process.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>


/* Return a context of the module on the device, with peer access to the
 * memory's context; NULL: not possible */
static CUcontext find_peer_context(CUdeviceptr memory, CUcontext owner,
                                   int device)
{
    ucs_status_t status;
    CUcontext own;

    if ((uct_cuda_ctx_own(device, &own) != UCS_OK) || (own == owner) ||
        (uct_cuda_ctx_push(own) != UCS_OK)) {
        return NULL;
    }

    status = UCT_CUDA_CALL_NOLOG(cuCtxEnablePeerAccess, owner, 0);
    uct_cuda_ctx_pop();
    if (((status != UCS_OK) && (status != UCS_ERR_ALREADY_EXISTS)) ||
        !uct_cuda_ctx_has_peer(own, memory)) {
        uct_cuda_debug("GPU %d cannot access memory %#llx of this process",
                       device, memory);
        return NULL;
    }

    return own;
}

CUcontext uct_cuda_node_same_process_context(const uct_cuda_node_rkey_t *rkey,
                                             const uct_cuda_context_t *context,
                                             int device)
{
    uct_cuda_node_own_t *own = (uct_cuda_node_own_t*)&rkey->own;
    const CUdeviceptr memory = rkey->handle.base;
    uct_cuda_end_t end;
    CUcontext owner;

    if (own->context_id != context->id) {
        /* memory without context (pools, VMM) has its own access rights */
        uct_cuda_memory_place((void*)memory, &end, &owner);
        own->is_reached = (owner != NULL) &&
                          uct_cuda_ctx_has_peer(context->cuda, memory);
        own->instead    = (own->is_reached || (owner == NULL)) ?
                                  NULL :
                                  find_peer_context(memory, owner, device);
        own->context_id = context->id;
    }

    return own->instead;
}
