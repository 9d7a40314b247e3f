/* SPDX-License-Identifier: BSD-3-Clause */
/* Mapped and locked at first use. */
#include <uct/cuda/base/host/host_block.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>

#include <sys/mman.h>


void *uct_cuda_host_map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }

    (void)madvise(memory, size, MADV_DONTFORK);
    return memory;
}

ucs_status_t uct_cuda_host_block_lock(uct_cuda_host_block_t *block, size_t size)
{
    ucs_status_t status;

    if (block->is_known &&
        uct_cuda_ctx_is_alive(block->context, block->context_id)) {
        return block->is_locked ? UCS_OK : UCS_ERR_UNSUPPORTED;
    }

    block->is_locked = false;
    block->is_known  = false;
    if (block->memory == NULL) {
        block->memory = uct_cuda_host_map(size);
        if (block->memory == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
    }

    status = uct_cuda_ctx_current(&block->context, &block->context_id);
    block->is_known = (status == UCS_OK);
    if (status != UCS_OK) {
        return status;
    }

    status = UCT_CUDA_CALL_NOLOG(cuMemHostRegister, block->memory, size,
                                 CU_MEMHOSTREGISTER_PORTABLE);
    block->is_locked = (status == UCS_OK);
    if (!block->is_locked) {
        uct_cuda_debug("no page-locked memory: %zu bytes", size);
    }

    return status;
}
