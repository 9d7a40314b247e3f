/* SPDX-License-Identifier: BSD-3-Clause */
/* Exports of a registered region, by allocation. */
#include <uct/cuda/node/memh.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/memtype.h>
#include <uct/cuda/node/exports.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


/* Allocation exported for a registered region. UCX registers any address range,
 * so a region can span several allocations. */
typedef struct exported exported_t;

struct exported {
    exported_t             *next;
    uct_cuda_node_handle_t handle;
    CUcontext              context;    /* context that owns it; NULL: none */
    unsigned long long    context_id; /* id of the context */
    uint64_t               remaps; /* of the process, when it was confirmed */
};

struct uct_cuda_node_memh {
    pthread_mutex_t lock; /* workers may pack one handle at the same time */
    exported_t      *exported;
    uint64_t        remaps; /* of the process, when a key was packed last */
    uct_cuda_node_region_t region;
    /* Peers may ask for the region: memory mapped with cuMemMap was exported */
    bool                   is_shared;
};


ucs_status_t uct_cuda_node_memh_create(void *address, size_t length,
                                       uct_cuda_node_memh_t **memh_p)
{
    uct_cuda_node_memh_t *memh = malloc(sizeof(*memh));

    if (memh == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    pthread_mutex_init(&memh->lock, NULL);
    memh->exported      = NULL;
    memh->region.base   = (uintptr_t)address;
    memh->region.length = length;
    memh->is_shared     = false;
    *memh_p             = memh;
    return UCS_OK;
}

void uct_cuda_node_memh_destroy(uct_cuda_node_memh_t *memh)
{
    exported_t *exported;

    if (memh->is_shared) {
        uct_cuda_node_exports_remove_region(&memh->region);
    }

    while ((exported = memh->exported) != NULL) {
        memh->exported = exported->next;
        uct_cuda_node_exports_put(&exported->handle);
        free(exported);
    }

    pthread_mutex_destroy(&memh->lock);
    free(memh);
}

/* Return whether the handle belongs to the memory now at this address. Where
 * UCX does not see CUDA memory being freed, it keeps using the old
 * registration, and another allocation may have the address. */
static bool is_current(const exported_t *exported,
                       const uct_cuda_memory_t *memory)
{
    return (exported->handle.base == memory->base) &&
           (exported->handle.length == memory->length) &&
           (exported->handle.buffer_id == memory->buffer_id) &&
           !uct_cuda_node_invalidation_is_over(&exported->handle.notice);
}

/* Find the handle exported earlier for this address; NULL: none is valid. Use
 * it only where a registration does not outlive its memory. It saves a driver
 * call per message. */
static const exported_t *memh_find(const uct_cuda_node_memh_t *memh,
                                   const void *address)
{
    const exported_t *exported;

    for (exported = memh->exported; exported != NULL;
         exported = exported->next) {
        /* a range's pieces may have changed: ask the driver */
        if ((exported->handle.type != UCT_CUDA_NODE_HANDLE_RANGE) &&
            (!uct_cuda_node_handle_is_mapped(&exported->handle) ||
             (exported->remaps == memh->remaps)) &&
            ((uintptr_t)address >= exported->handle.base) &&
            ((uintptr_t)address - exported->handle.base <
             exported->handle.length)) {
            /* UCX does not see a reset of the device */
            return (!uct_cuda_node_invalidation_is_over(
                        &exported->handle.notice) &&
                    ((exported->context == NULL) ||
                     uct_cuda_ctx_is_alive(exported->context,
                                           exported->context_id))) ?
                       exported :
                       NULL;
        }
    }

    return NULL;
}

/* Export the allocation at an address unless done, synchronize it for peers'
 * copies (base/memory.h), and release exports of freed memory. Call with the
 * lock held: the handle is valid until it is released. */
static ucs_status_t memh_export(uct_cuda_node_memh_t *memh, void *address,
                                const uct_cuda_node_handle_t **handle_p)
{
    exported_t **link = &memh->exported;
    const exported_t *known;
    uct_cuda_memory_t memory;
    exported_t *exported;
    ucs_status_t status;

    if (uct_cuda_memtype_sees_frees()) {
        known = memh_find(memh, address);
        if (known != NULL) {
            *handle_p = &known->handle;
            if (known->context == NULL) {
                uct_cuda_memory_sync(address);
            }
            return UCS_OK;
        }
    }

    uct_cuda_memory_query(address, 0, &memory);
    uct_cuda_memory_sync_memops(&memory);
    while ((exported = *link) != NULL) {
        if (is_current(exported, &memory)) {
            exported->remaps = memh->remaps;
            *handle_p        = &exported->handle;
            return UCS_OK;
        }

        if (uct_cuda_node_invalidation_is_over(&exported->handle.notice) ||
            ((exported->handle.type != UCT_CUDA_NODE_HANDLE_RANGE) &&
             (exported->handle.base < memory.base + memory.length) &&
             (exported->handle.base + exported->handle.length > memory.base))) {
            *link = exported->next;
            uct_cuda_node_exports_put(&exported->handle);
            free(exported);
        } else {
            link = &exported->next;
        }
    }

    exported = malloc(sizeof(*exported));
    if (exported == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_cuda_node_exports_get(address, &memory, &exported->handle);
    if (status != UCS_OK) {
        free(exported);
        return status;
    }

    exported->remaps     = memh->remaps;
    exported->context    = memory.context;
    exported->context_id = (memory.context == NULL) ?
                                   0 :
                                   uct_cuda_ctx_id(memory.context);
    exported->next       = memh->exported;
    memh->exported       = exported;
    *handle_p            = &exported->handle;
    return UCS_OK;
}

/* Return whether cuMemCreate memory continues in another mapping. For other
 * memory UCX may round a length up beyond its end. */
static bool spans_mappings(const uct_cuda_node_handle_t *handle,
                           const void *address, size_t length)
{
    return uct_cuda_node_handle_is_vmm(handle) &&
           (length > handle->length - ((uintptr_t)address - handle->base));
}

/* Write a key. The peer may later request a handle of the memory mapped at
 * these addresses. */
static void write_key(uct_cuda_node_memh_t *memh,
                      const uct_cuda_node_handle_t *handle, void *buffer)
{
    uct_cuda_node_packed_rkey_t packed = {
        .magic  = UCT_CUDA_NODE_PACKED_RKEY_MAGIC,
        .handle = *handle
    };

    if (uct_cuda_node_handle_is_mapped(handle)) {
        packed.handle.remaps = memh->remaps;
        if (!memh->is_shared) {
            memh->is_shared = true;
            uct_cuda_node_exports_add_region(&memh->region);
        }
    }

    memcpy(buffer, &packed, sizeof(packed));
}

/* Export all pieces as one range. The memory handle is its user until it is
 * destroyed. Call with the lock held. */
static ucs_status_t memh_export_range(uct_cuda_node_memh_t *memh,
                                      const void *address, size_t length,
                                      const uct_cuda_node_handle_t **handle_p)
{
    const exported_t *known;
    exported_t *exported;
    ucs_status_t status;

    exported = calloc(1, sizeof(*exported));
    if (exported == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_cuda_node_exports_get_range(address, length,
                                             &exported->handle);
    if (status != UCS_OK) {
        uct_cuda_debug("%zu bytes at %p span several mappings and cannot be "
                       "shared with other processes",
                       length, address);
        free(exported);
        return status;
    }

    for (known = memh->exported; known != NULL; known = known->next) {
        if (known->handle.buffer_id == exported->handle.buffer_id) {
            uct_cuda_node_exports_put(&exported->handle);
            free(exported);
            *handle_p = &known->handle;
            return UCS_OK;
        }
    }

    exported->next = memh->exported;
    memh->exported = exported;
    *handle_p      = &exported->handle;
    return UCS_OK;
}

/* Write a key for an allocation of unknown length, or for memory spanning
 * several mappings: as one range of pieces, or marked as not shareable */
static void write_other_key(uct_cuda_node_memh_t *memh,
                            const uct_cuda_node_handle_t *handle,
                            const void *address, size_t length, void *buffer)
{
    uct_cuda_node_handle_t changed = *handle;
    const uct_cuda_node_handle_t *range;

    if (changed.length == 0) {
        /* length unknown: the key covers the requested bytes */
        changed.base   = (CUdeviceptr)address;
        changed.length = length;
    }

    if (spans_mappings(&changed, address, length)) {
        if (memh_export_range(memh, address, length, &range) == UCS_OK) {
            changed = *range;
        } else {
            changed.type = UCT_CUDA_NODE_HANDLE_NONE;
        }
    }

    write_key(memh, &changed, buffer);
}

/* Pack the key of a region that has outlived its first pieces, and synchronize
 * the memory as memh_export() does. On failure nothing is written. */
static ucs_status_t pack_rest(uct_cuda_node_memh_t *memh, const void *address,
                              size_t length, void *buffer)
{
    const uct_cuda_node_handle_t *handle;
    uct_cuda_end_t gpu;
    ucs_status_t status;

    status = memh_export_range(memh, address, length, &handle);
    if (status == UCS_OK) {
        gpu = uct_cuda_gpu_by_uuid(handle->gpu);
        if (uct_cuda_end_is_gpu(gpu)) {
            uct_cuda_memory_sync_unowned(uct_cuda_end_device(gpu));
        }
        write_key(memh, handle, buffer);
    }

    return status;
}

ucs_status_t uct_cuda_node_rkey_pack(uct_cuda_node_memh_t *memh, void *address,
                                     size_t length, void *buffer)
{
    const uct_cuda_node_handle_t *handle;
    ucs_status_t status;

    if (address == NULL) {
        address = (void*)memh->region.base;
        length  = memh->region.length;
    }

    pthread_mutex_lock(&memh->lock);
    memh->remaps = uct_cuda_node_invalidation_remaps();
    status       = memh_export(memh, address, &handle);
    if (status != UCS_OK) {
        if (pack_rest(memh, address, length, buffer) == UCS_OK) {
            status = UCS_OK;
        }
    } else if ((handle->length == 0) ||
               spans_mappings(handle, address, length)) {
        write_other_key(memh, handle, address, length, buffer);
    } else {
        write_key(memh, handle, buffer);
    }
    pthread_mutex_unlock(&memh->lock);
    return status;
}
