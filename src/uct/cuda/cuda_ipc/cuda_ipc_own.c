/* SPDX-License-Identifier: BSD-3-Clause */
/* Access between this process's GPUs. */
#include <uct/cuda/cuda_ipc/cuda_ipc_own.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>

#include <string.h>


static bool reach(const uct_cuda_ipc_iface_t *iface, CUdeviceptr memory,
                  CUcontext context)
{
    uct_cuda_end_t end;
    CUcontext owner;
    char name[16];

    /* Memory of no context has its own access rights */
    uct_cuda_memory_place((void*)memory, &end, &owner);
    if (owner == NULL) {
        return false;
    }

    if (iface->peer_access && (owner != context) &&
        (UCT_CUDA_CALL_NOLOG(cuCtxEnablePeerAccess, owner, 0) == UCS_OK)) {
        uct_cuda_debug("enabled access to memory of %s",
                       uct_cuda_end_str(end, name, sizeof(name)));
    }

    return uct_cuda_ctx_has_peer(context, memory);
}

bool uct_cuda_ipc_own_reach(const uct_cuda_ipc_iface_t *iface,
                            const uct_cuda_ipc_rkey_t *rkey,
                            const uct_cuda_context_t *context)
{
    uct_cuda_ipc_own_t *own = (uct_cuda_ipc_own_t*)&rkey->own;

    if (own->context_id != context->id) {
        own->is_reached = reach(iface, rkey->handle.base, context->cuda);
        own->context_id = context->id;
    }

    return own->is_reached;
}

bool uct_cuda_ipc_own_is_nixl(void)
{
    /* .../site-packages/nixl_cu12.libs/libucs-14c218c5.so.0.0.0 */
    return strstr(uct_abi_host_name(), "/nixl_cu") != NULL;
}
