/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Memory shared between processes by handle. A handle names a GPU's memory by a
 * number that is never reused, so opening a handle of freed memory fails.
 * Opened memory stays alive until the last process closes it.
 */
#include "cuemu_gate.h"
#include "cuemu_work.h"

#include <string.h>
#include <unistd.h>

#define CUEMU_IPC_MAGIC 0x637065656d754350ull

typedef struct {
    uint64_t magic;
    uint64_t epoch;   /* identifies the session */
    uint64_t id;      /* extent's id */
    uint64_t offset;  /* offset of the allocation in the extent */
    uint64_t size;
    int32_t  extent;
    int32_t  slot;    /* slot of the exporting process */
    uint64_t base;    /* address in that process */
    uint64_t memory;  /* identifies successive allocations at that address */
} cuemu_ipc_handle_t;

_Static_assert(sizeof(cuemu_ipc_handle_t) == sizeof(CUipcMemHandle),
               "a handle is 64 bytes");

/* All open handles; few enough for a linear search */
#define CUEMU_MAX_IPC_OPEN 4096

static cuemu_mem_t *cuemu_ipc_opened[CUEMU_MAX_IPC_OPEN];
static cuemu_ipc_handle_t cuemu_ipc_handles[CUEMU_MAX_IPC_OPEN]; /* handle of
                                                                    each */
static int cuemu_num_ipc_opened;

CUEMU_API(cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr ptr),
          (handle, ptr))
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    const cuemu_extent_t *extent;
    cuemu_ipc_handle_t ipc;
    cuemu_mem_t *mem;

    if (handle == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    if (cuemu_context_current() == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if ((mem != NULL) && (mem->kind == CUEMU_MEM_DEVICE) &&
        !cuemu_mem_is_variable(mem)) {
        extent = &cuemu_session.shared->extents[mem->extent];
        memset(&ipc, 0, sizeof(ipc));
        ipc.magic  = CUEMU_IPC_MAGIC;
        ipc.epoch  = cuemu_session.shared->real_epoch_ns;
        ipc.id     = extent->id;
        ipc.offset = mem->offset - extent->offset;
        ipc.size   = mem->size;
        ipc.extent = mem->extent;
        ipc.slot   = cuemu_session.slot;
        ipc.base   = mem->base;
        ipc.memory = mem->id;
        memcpy(handle, &ipc, sizeof(ipc));
        result = CUDA_SUCCESS;
    }
    cuemu_unlock();

    cuemu_work_spend(CUEMU_CALL_IPC_GET);
    return result;
}

/* Return the mapping of a handle that is open in this context already, NULL if
   it is not. Call with the lock. */
static cuemu_mem_t *cuemu_ipc_find_open(const cuemu_ipc_handle_t *ipc,
                                        cuemu_context_t *ctx)
{
    int i;

    for (i = 0; i < cuemu_num_ipc_opened; ++i) {
        if ((cuemu_ipc_opened[i]->ctx == ctx) &&
            (memcmp(&cuemu_ipc_handles[i], ipc, sizeof(*ipc)) == 0)) {
            return cuemu_ipc_opened[i];
        }
    }

    return NULL;
}

/* Return non-zero if another context of the same GPU has opened a handle of the
   exporter's memory on `gpu`. Only one context per GPU can open handles of one
   process's memory on one GPU (2 x H100, driver 580, and the manual). Call with
   the lock. */
static int cuemu_ipc_is_anothers(const cuemu_ipc_handle_t *ipc, int gpu,
                                 const cuemu_context_t *ctx)
{
    const cuemu_mem_t *mem;
    int i;

    for (i = 0; i < cuemu_num_ipc_opened; ++i) {
        mem = cuemu_ipc_opened[i];
        if ((cuemu_ipc_handles[i].slot == ipc->slot) && (mem->gpu == gpu) &&
            (mem->ctx != ctx) && (mem->ctx->gpu == ctx->gpu)) {
            return 1;
        }
    }

    return 0;
}

/* Return non-zero if this context still has open another allocation at the same
   address of the exporter, which has been freed since. Call it only if
   cuemu_ipc_find_open() returned NULL. Small allocations share memory: freed
   memory stays mapped until it is closed, and until then opening its
   replacement fails (2 x H100, driver 580, buffers of 120 B to 42 KiB). Call
   with the lock. */
static int cuemu_ipc_is_replaced(const cuemu_ipc_handle_t *ipc,
                                 const cuemu_context_t *ctx)
{
    int i;

    for (i = 0; i < cuemu_num_ipc_opened; ++i) {
        if ((cuemu_ipc_handles[i].slot == ipc->slot) &&
            (cuemu_ipc_handles[i].id == ipc->id) &&
            (cuemu_ipc_handles[i].base == ipc->base) &&
            (cuemu_ipc_opened[i]->ctx == ctx)) {
            return 1;
        }
    }

    return 0;
}

static CUresult cuemu_ipc_open(cuemu_context_t *ctx,
                               const cuemu_ipc_handle_t *ipc,
                               CUdeviceptr *ptr_p)
{
    cuemu_extent_t *extent = &cuemu_session.shared->extents[ipc->extent];
    cuemu_mem_t mem        = {.kind = CUEMU_MEM_IPC, .refs = 1};
    const cuemu_route_t *route;
    cuemu_mem_t *opened;
    uint64_t shift;

    if ((extent->id != ipc->id) || !extent->live ||
        (ipc->size == 0) || (ipc->offset > extent->size) ||
        (ipc->size > extent->size - ipc->offset)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    if (extent->gpu != ctx->gpu) {
        route = cuemu_node_route(cuemu_session.node, ctx->gpu, extent->gpu);
        if ((route == NULL) || !route->p2p) {
            return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        }
    }

    if (cuemu_ipc_is_anothers(ipc, extent->gpu, ctx)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    opened = cuemu_ipc_find_open(ipc, ctx);
    if (opened != NULL) {
        ++opened->refs;
        *ptr_p = (CUdeviceptr)opened->base;
        return CUDA_SUCCESS;
    }

    if (cuemu_ipc_is_replaced(ipc, ctx)) {
        return CUDA_ERROR_ALREADY_MAPPED;
    }

    if (cuemu_num_ipc_opened == CUEMU_MAX_IPC_OPEN) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    /* Keep the exporter's offset within a granule */
    shift       = ipc->offset % CUEMU_GRANULE;
    mem.va_size = ipc->size + shift;
    mem.va      = cuemu_va_reserve(CUEMU_VA_LATER, mem.va_size, 0);
    if (mem.va == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    mem.base   = mem.va + shift;
    mem.size   = ipc->size;
    mem.gpu    = extent->gpu;
    mem.extent = ipc->extent;
    mem.offset = extent->offset + ipc->offset;
    mem.ctx    = ctx;
    mem.id     = cuemu_unique_id();
    opened     = cuemu_mem_add(&mem);
    if (opened == NULL) {
        cuemu_va_release(mem.va, mem.va_size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }

    cuemu_session_extent_get(ipc->extent);
    cuemu_ipc_handles[cuemu_num_ipc_opened]  = *ipc;
    cuemu_ipc_opened[cuemu_num_ipc_opened++] = opened;
    *ptr_p = (CUdeviceptr)opened->base;
    return CUDA_SUCCESS;
}

CUEMU_API(cuIpcOpenMemHandle,
          (CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags),
          (ptr, handle, flags))
{
    cuemu_context_t *ctx = cuemu_context_current();
    cuemu_ipc_handle_t ipc;
    CUresult result;

    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    if ((ptr == NULL) || (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) {
        return CUDA_ERROR_INVALID_VALUE;
    }

    memcpy(&ipc, &handle, sizeof(ipc));
    if ((ipc.magic != CUEMU_IPC_MAGIC) ||
        (ipc.epoch != cuemu_session.shared->real_epoch_ns) ||
        (ipc.extent < 0) || (ipc.extent >= CUEMU_MAX_EXTENTS) ||
        (ipc.slot < 0) || (ipc.slot >= CUEMU_MAX_PROCS)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }

    /* A handle of this process, or of one with this number in another PID
       namespace: the driver does not tell them apart */
    if ((ipc.slot == cuemu_session.slot) ||
        (cuemu_session.shared->slots[ipc.slot].pid == getpid())) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    cuemu_lock();
    cuemu_session_lock();
    result = cuemu_ipc_open(ctx, &ipc, ptr);
    cuemu_session_unlock();
    cuemu_unlock();

    cuemu_work_spend(CUEMU_CALL_IPC_OPEN);
    return result;
}

CUEMU_ALSO(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle);

/* Close a mapping. Call with the lock. */
static void cuemu_ipc_close(cuemu_mem_t *mem)
{
    int i = 0;

    while (cuemu_ipc_opened[i] != mem) {
        ++i;
    }

    --cuemu_num_ipc_opened;
    cuemu_ipc_opened[i]  = cuemu_ipc_opened[cuemu_num_ipc_opened];
    cuemu_ipc_handles[i] = cuemu_ipc_handles[cuemu_num_ipc_opened];
    cuemu_mem_unback(mem, 0);
    cuemu_mem_remove(mem);
}

void cuemu_ipc_drop_context(const cuemu_context_t *ctx)
{
    int i = cuemu_num_ipc_opened;

    while (i-- > 0) {
        if (cuemu_ipc_opened[i]->ctx == ctx) {
            cuemu_ipc_close(cuemu_ipc_opened[i]);
        }
    }
}

CUEMU_API(cuIpcCloseMemHandle, (CUdeviceptr ptr), (ptr))
{
    CUresult result      = CUDA_SUCCESS;
    cuemu_context_t *ctx = NULL;
    cuemu_mem_t *mem;
    int last = 0;

    if (cuemu_context_current() == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }

    cuemu_lock();
    mem = cuemu_mem_find(ptr);
    if ((mem == NULL) || (mem->kind != CUEMU_MEM_IPC) || (mem->base != ptr)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        ctx  = mem->ctx;
        last = (--mem->refs == 0);
    }
    cuemu_unlock();

    if (result != CUDA_SUCCESS) {
        return result;
    }

    if (last) {
        cuemu_context_wait(ctx);
        cuemu_lock();
        mem = cuemu_mem_find(ptr);
        if ((mem != NULL) && (mem->kind == CUEMU_MEM_IPC) && (mem->refs == 0)) {
            cuemu_ipc_close(mem);
        }
        cuemu_unlock();
    }

    cuemu_work_spend(CUEMU_CALL_IPC_CLOSE);
    return CUDA_SUCCESS;
}
