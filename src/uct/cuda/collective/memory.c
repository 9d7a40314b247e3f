/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks show of their memory, and have mapped of others'. */
#include <uct/cuda/collective/memory.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/mapped.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/collective/agree.h>
#include <uct/cuda/node/exports.h>

#include <string.h>


/* ---------------------------------------------------------- own memory */

void uct_cuda_coll_memory_hide(uct_cuda_coll_group_t *group, unsigned index)
{
    export_t *export = &group->exports[index];

    if (export->is_there) {
        /* The program's may live on; what this group has made is about to go */
        if (index < NUM_EXPORTS) {
            uct_cuda_ipc_exports_put(&export->handle);
        } else {
            uct_cuda_ipc_exports_end(&export->handle);
        }
        export->generation = uct_cuda_coll_page_show(group->page, index, NULL);
        export->is_there   = false;
    }
    export->is_known = false;
}

/* Is the allocation still the one that was shown? */
static bool export_is_current(const export_t *export)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query((void*)export->handle.base, 1, &memory);
    return (memory.type == UCS_MEMORY_TYPE_CUDA) &&
           (memory.buffer_id == export->handle.buffer_id);
}

static ucs_status_t export_add(uct_cuda_coll_group_t *group, unsigned index,
                               const void *address)
{
    export_t *export = &group->exports[index];
    uct_cuda_memory_t memory;
    ucs_status_t status;

    uct_cuda_coll_memory_hide(group, index);
    uct_cuda_memory_query(address, 1, &memory);
    status = uct_cuda_ipc_exports_get(address, &memory, &export->handle);
    if (status != UCS_OK) {
        return status;
    }

    if (export->handle.type == UCT_CUDA_IPC_HANDLE_NONE) {
        return UCS_ERR_UNREACHABLE;
    }

    export->is_there   = true;
    export->generation = uct_cuda_coll_page_show(group->page, index,
                                                 &export->handle);
    return UCS_OK;
}

static int export_find(const uct_cuda_coll_group_t *group,
                       const uct_cuda_memory_t *memory)
{
    const export_t *export;
    int i;

    for (i = 0; i < NUM_EXPORTS; ++i) {
        export = &group->exports[i];
        if (export->is_there && (export->handle.base == memory->base) &&
            (export->handle.length == memory->length) &&
            (export->handle.buffer_id == memory->buffer_id)) {
            return i;
        }
    }
    return -1;
}

/* A place for one more: a free one, or that which was used longest ago. Those
   whose memory was freed go, as do others' mappings of it then. */
static int export_place(uct_cuda_coll_group_t *group)
{
    int oldest = 0;
    int i;

    for (i = 0; i < NUM_EXPORTS; ++i) {
        if (group->exports[i].is_there &&
            !export_is_current(&group->exports[i])) {
            uct_cuda_coll_memory_hide(group, i);
        }
    }

    for (i = 0; i < NUM_EXPORTS; ++i) {
        if (!group->exports[i].is_there) {
            return i;
        }
        if (group->exports[i].used < group->exports[oldest].used) {
            oldest = i;
        }
    }
    return oldest;
}

/* Shows a buffer's allocation, unless it is shown already */
ucs_status_t uct_cuda_coll_memory_show(call_t *call, const void *address,
                              const uct_cuda_memory_t *memory, size_t bytes,
                              uct_cuda_coll_memory_t *shown)
{
    uct_cuda_coll_group_t *group = call->group;
    const uint64_t offset        = (CUdeviceptr)address - memory->base;
    int index                    = export_find(group, memory);
    ucs_status_t status;

    if ((offset > memory->length) || (bytes > memory->length - offset)) {
        /* what is mapped into a reservation may go on in the next piece */
        if (memory->context == NULL) {
            return UCS_ERR_UNSUPPORTED;
        }
        call->post.is_short = 1;
    }

    if (index < 0) {
        index  = export_place(group);
        status = export_add(group, index, address);
        if (status != UCS_OK) {
            return status;
        }
    }

    group->exports[index].used = group->sequence;
    call->post.is_new         |= !group->exports[index].is_known;
    shown->index               = index;
    shown->generation          = group->exports[index].generation;
    shown->offset              = offset;
    return UCS_OK;
}

/* -------------------------------------------------------- others' memory */

static void import_drop(import_t *import)
{
    if (import->mapping != NULL) {
        uct_cuda_ipc_cache_unlend(import->mapping);
        import->mapping = NULL;
    }
}

static void imports_drop(uct_cuda_coll_group_t *group)
{
    unsigned rank, index;

    for (rank = 0; rank < group->size; ++rank) {
        for (index = 0; index < UCT_CUDA_COLL_PAGE_EXPORTS; ++index) {
            import_drop(&group->imports[rank][index]);
        }
    }
}

/* Lets go of what others show no more */
static void imports_sweep(uct_cuda_coll_group_t *group)
{
    unsigned rank, index;
    uint32_t generation;
    import_t *import;

    for (rank = 0; rank < group->size; ++rank) {
        for (index = 0; index < UCT_CUDA_COLL_PAGE_EXPORTS; ++index) {
            import = &group->imports[rank][index];
            if (import->mapping != NULL) {
                (void)uct_cuda_coll_page_shown(group->page, rank, index,
                                               &generation);
                if (generation != import->generation) {
                    import_drop(import);
                }
            }
        }
    }
}

static ucs_status_t import_map(uct_cuda_coll_group_t *group, unsigned rank,
                               unsigned index)
{
    import_t *import;
    const uct_cuda_ipc_handle_t *handle;
    ucs_status_t status;

    if (index >= UCT_CUDA_COLL_PAGE_EXPORTS) {
        return UCS_ERR_INVALID_PARAM;
    }

    import = &group->imports[rank][index];
    if ((rank == group->rank) || (import->mapping != NULL)) {
        return UCS_OK;
    }

    handle = uct_cuda_coll_page_shown(group->page, rank, index,
                                      &import->generation);
    if (handle == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    /* What a rank has freed it names no more: it need not be kept until the
     * next call, which may never come */
    status = uct_cuda_ipc_cache_get_in(handle, group->cuda_device,
                                       group->context, group->context_id,
                                       &import->mapping);
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_ipc_cache_lend(import->mapping);
    if (!uct_cuda_ipc_mapping_is_in(import->mapping, group->context_id)) {
        import_drop(import);
        return UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

/* No plan has a step between ranks that are no peers */
static bool is_peer(const uct_cuda_coll_group_t *group, unsigned rank)
{
    const int own = group->gpus[group->rank];
    const int gpu = group->gpus[rank];

    return (own == gpu) || (group->topo.links[own][gpu].bandwidth > 0) ||
           (group->topo.links[gpu][own].bandwidth > 0);
}

/* Everything of others' that this call takes, in this rank's context */
ucs_status_t uct_cuda_coll_memory_map(call_t *call,
                                      const uct_cuda_coll_plan_t *plan)
{
    uct_cuda_coll_group_t *group = call->group;
    ucs_status_t status          = UCS_OK;
    unsigned rank, i;

    imports_sweep(group);
    for (rank = 0; (rank < group->size) && (status == UCS_OK); ++rank) {
        if (!is_peer(group, rank)) {
            continue;
        }

        status = import_map(group, rank, call->posts[rank].recv.index);
        if (status == UCS_OK) {
            status = import_map(group, rank, call->posts[rank].send.index);
        }
        if ((status == UCS_OK) && (plan->scratch > 0)) {
            status = import_map(group, rank, SCRATCH);
        }
    }
    for (i = 0; (i < plan->num_relays) && (status == UCS_OK); ++i) {
        status = import_map(group, RELAYS_RANK, RELAY(plan->relays[i]));
    }
    return status;
}

CUdeviceptr uct_cuda_coll_memory_address(const call_t *call, unsigned rank,
                                uct_cuda_coll_buffer_t buffer)
{
    const uct_cuda_coll_group_t *group = call->group;
    const uct_cuda_coll_memory_t *memory =
            (buffer == UCT_CUDA_COLL_SEND) ? &call->posts[rank].send :
                                             &call->posts[rank].recv;
    const unsigned index = (buffer == UCT_CUDA_COLL_SCRATCH) ? SCRATCH :
                                                               memory->index;
    const uint64_t offset = (buffer == UCT_CUDA_COLL_SCRATCH) ? 0 :
                                                                memory->offset;

    if (rank == group->rank) {
        return (buffer == UCT_CUDA_COLL_SCRATCH) ?
                       group->scratch :
                       (group->exports[index].handle.base + offset);
    }

    return (group->imports[rank][index].mapping == NULL) ?
                   0 :
                   (group->imports[rank][index].mapping->mapped + offset);
}

CUdeviceptr uct_cuda_coll_memory_relay(const uct_cuda_coll_group_t *group,
                                       int gpu)
{
    return (group->rank == RELAYS_RANK) ?
                   group->relays[gpu].base :
                   group->imports[RELAYS_RANK][RELAY(gpu)].mapping->mapped;
}


/* ---------------------------------------------------------------- context */

static void scratch_free(uct_cuda_coll_group_t *group, bool is_alive)
{
    uct_cuda_coll_memory_hide(group, SCRATCH);
    if (is_alive && (group->scratch != 0)) {
        uct_cuda_device_memory_free(group->scratch);
    }
    group->scratch      = 0;
    group->scratch_size = 0;
}

/* Memory made with cuMemCreate is no context's */
void uct_cuda_coll_memory_free_relays(uct_cuda_coll_group_t *group)
{
    int gpu;

    for (gpu = 0; gpu < UCT_CUDA_MAX_GPUS; ++gpu) {
        uct_cuda_coll_memory_hide(group, RELAY(gpu));
        if (group->relays[gpu].base != 0) {
            uct_cuda_mapped_free(group->relays[gpu].base,
                                 group->relays[gpu].size);
        }
        memset(&group->relays[gpu], 0, sizeof(group->relays[gpu]));
    }
}

void uct_cuda_coll_memory_leave(uct_cuda_coll_group_t *group)
{
    const bool is_alive = (group->context != NULL) &&
                          uct_cuda_ctx_push_alive(group->context,
                                                  group->context_id);

    imports_drop(group);
    uct_cuda_coll_memory_free_relays(group);
    scratch_free(group, is_alive);
    uct_cuda_coll_events_release(&group->events, group->device, is_alive);
    if (is_alive) {
        uct_cuda_ctx_pop();
    }
    group->context = NULL;
    group->device  = NULL;
}

/* With the buffers' context current */
ucs_status_t uct_cuda_coll_memory_enter(uct_cuda_coll_group_t *group,
                                        int device)
{
    unsigned long long id;
    ucs_status_t status;
    CUcontext context;
    CUuuid uuid;

    status = uct_cuda_ctx_current(&context, &id);
    if ((status != UCS_OK) || ((context == group->context) &&
                               (id == group->context_id))) {
        return status;
    }

    uct_cuda_coll_memory_leave(group);
    group->is_lost = true;
    status         = UCT_CUDA_CALL(cuDeviceGetUuid, &uuid, device);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_coll_device_get(device, context, id, &group->device);
    if (status != UCS_OK) {
        return status;
    }

    uct_cuda_coll_page_set_gpu(group->page, (const uint8_t*)uuid.bytes);
    group->context     = context;
    group->context_id  = id;
    group->cuda_device = device;
    if (group->rank == 0) {
        uct_cuda_coll_agree_tell_topo(group);
    }
    return UCS_OK;
}

ucs_status_t uct_cuda_coll_memory_make_scratch(uct_cuda_coll_group_t *group,
                                               uint64_t size)
{
    ucs_status_t status;

    if (size <= group->scratch_size) {
        return UCS_OK;
    }

    scratch_free(group, true);
    status = UCT_CUDA_CALL_NOLOG(cuMemAlloc, &group->scratch, size);
    if (status != UCS_OK) {
        group->scratch = 0;
        return status;
    }

    status = export_add(group, SCRATCH, (void*)group->scratch);
    if (status != UCS_OK) {
        scratch_free(group, true);
        return status;
    }

    group->scratch_size = size;
    return UCS_OK;
}

/* What the first rank makes for all */
ucs_status_t uct_cuda_coll_memory_make_relays(uct_cuda_coll_group_t *group,
                                const uct_cuda_coll_plan_t *plan)
{
    ucs_status_t status = UCS_OK;
    relay_t *relay;
    unsigned i;

    for (i = 0; (i < plan->num_relays) && (status == UCS_OK); ++i) {
        relay = &group->relays[plan->relays[i]];
        if ((group->rank != RELAYS_RANK) ||
            (relay->size >= plan->relay_scratch)) {
            continue;
        }

        uct_cuda_coll_memory_hide(group, RELAY(plan->relays[i]));
        if (relay->base != 0) {
            uct_cuda_mapped_free(relay->base, relay->size);
        }

        relay->base = 0;
        relay->size = plan->relay_scratch;
        status      = uct_cuda_mapped_alloc(
                plan->relays[i], group->cuda_device,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &relay->size,
                &relay->base);
        if (status != UCS_OK) {
            relay->base = 0;
            relay->size = 0;
            break;
        }
        status = export_add(group, RELAY(plan->relays[i]), (void*)relay->base);
    }
    return status;
}
