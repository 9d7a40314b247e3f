/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/collective/peer_memory.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/device_memory.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/vmm.h>
#include <uct/cuda/node/exports.h>
#include <ucs/sys/math.h>


/* Slots for exports: the program's allocations, then the scratch memory of this
 * rank, then those of relays (rank 0 only) */
#define NUM_EXPORTS (UCT_CUDA_NODE_CONTROL_EXPORTS - UCT_CUDA_MAX_GPUS - 1)
#define SCRATCH     NUM_EXPORTS
#define RELAY(_gpu) (SCRATCH + 1 + (_gpu))
#define RELAYS_RANK 0

/* Retry a failed mapping in the next call, then after 2, 4 and up to this many
 * calls: a program may pass memory that cannot be mapped to every call */
#define MAX_PAUSE 64

/* Exports checked for each new one, as in node/exports.c */
#define CHECKS 4


typedef uct_cuda_coll_memory_t  memory_t;
typedef uct_cuda_coll_export_t  export_t;
typedef uct_cuda_coll_import_t  import_t;
typedef uct_cuda_coll_scratch_t scratch_t;


/* ----------------------------------------------------------- local memory */

static void export_drop(memory_t *memory, unsigned index)
{
    export_t *export = &memory->exports[index];

    if (export->is_valid) {
        /* The program's allocation may live on; scratch memory is about to be
         * freed */
        if (index < NUM_EXPORTS) {
            uct_cuda_node_exports_put(&export->handle);
        } else {
            uct_cuda_node_exports_end(&export->handle);
        }
        export->generation = uct_cuda_node_control_export(
            memory->agreement->control, index, NULL);
        export->is_valid   = false;
    }
    export->is_known = false;
}

/* Return whether the exported allocation still exists */
static bool export_is_current(const export_t *export)
{
    uct_cuda_memory_t now;

    if (export->handle.type == UCT_CUDA_NODE_HANDLE_RANGE) {
        return uct_cuda_node_exports_has_range(&export->handle);
    }

    uct_cuda_memory_query((void*)export->handle.base, 1, &now);
    return (now.type == UCS_MEMORY_TYPE_CUDA) &&
           (now.buffer_id == export->handle.buffer_id);
}

/* Announce a handle */
static void export_begin(memory_t *memory, unsigned index)
{
    export_t *export = &memory->exports[index];

    export->is_valid   = true;
    export->generation = uct_cuda_node_control_export(
        memory->agreement->control, index, &export->handle);
}

static ucs_status_t export_add(memory_t *memory, unsigned index,
                               CUdeviceptr address)
{
    export_t *export = &memory->exports[index];
    uct_cuda_memory_t allocation;
    ucs_status_t status;

    export_drop(memory, index);
    uct_cuda_memory_query((void*)address, 1, &allocation);
    status = uct_cuda_node_exports_get((void*)address, &allocation,
                                      &export->handle);
    if (status != UCS_OK) {
        return status;
    }

    if (export->handle.type == UCT_CUDA_NODE_HANDLE_NONE) {
        return UCS_ERR_UNREACHABLE;
    }

    export_begin(memory, index);
    return UCS_OK;
}

static int export_find(const memory_t *memory,
                       const uct_cuda_memory_t *allocation)
{
    const export_t *export;
    int i;

    for (i = 0; i < NUM_EXPORTS; ++i) {
        export = &memory->exports[i];
        if (export->is_valid && (export->handle.base == allocation->base) &&
            (export->handle.length == allocation->length) &&
            (export->handle.buffer_id == allocation->buffer_id)) {
            return i;
        }
    }
    return -1;
}

/* Return a free slot, else the least recently used one, whose export the caller
 * drops. First drop the next exports of freed memory; the other ranks then
 * unmap it. */
static int export_place(memory_t *memory)
{
    int oldest = 0;
    int i;

    for (i = 0; i < CHECKS; ++i) {
        memory->cursor = (memory->cursor + 1) % NUM_EXPORTS;
        if (memory->exports[memory->cursor].is_valid &&
            !export_is_current(&memory->exports[memory->cursor])) {
            export_drop(memory, memory->cursor);
        }
    }

    for (i = 0; i < NUM_EXPORTS; ++i) {
        if (!memory->exports[i].is_valid) {
            return i;
        }
        if (memory->exports[i].used < memory->exports[oldest].used) {
            oldest = i;
        }
    }
    return oldest;
}

/* Export a buffer in several allocations of a mapped reservation as one range,
 * or find its slot */
static ucs_status_t export_range(memory_t *memory, const void *address,
                                 size_t bytes, int *index_p)
{
    uct_cuda_memory_t known;
    uct_cuda_node_handle_t range;
    ucs_status_t status;

    status = uct_cuda_node_exports_get_range(address, bytes, &range);
    if (status != UCS_OK) {
        return UCS_ERR_UNSUPPORTED;
    }

    known.base      = range.base;
    known.length    = range.length;
    known.buffer_id = range.buffer_id;
    *index_p        = export_find(memory, &known);
    if (*index_p >= 0) {
        uct_cuda_node_exports_put(&range);
        return UCS_OK;
    }

    *index_p = export_place(memory);
    export_drop(memory, *index_p);
    memory->exports[*index_p].handle = range;
    export_begin(memory, *index_p);
    return UCS_OK;
}

ucs_status_t uct_cuda_coll_memory_export(memory_t *memory, const void *address,
                                         size_t bytes,
                                         const uct_cuda_memory_t *allocation,
                                         uct_cuda_node_announcement_t *post,
                                         uct_cuda_node_location_t *shown)
{
    const uint64_t offset = (CUdeviceptr)address - allocation->base;
    const bool is_beyond  = (offset > allocation->length) ||
                            (bytes > allocation->length - offset);
    ucs_status_t status   = UCS_OK;
    int index;

    if (is_beyond && (allocation->context == NULL)) {
        status = export_range(memory, address, bytes, &index);
    } else {
        post->is_short |= is_beyond;
        index           = export_find(memory, allocation);
        if (index < 0) {
            index  = export_place(memory);
            status = export_add(memory, index, (CUdeviceptr)address);
        }
    }
    if (status != UCS_OK) {
        return status;
    }

    memory->exports[index].used = memory->agreement->sequence;
    post->is_new               |= !memory->exports[index].is_known;
    shown->index                = index;
    shown->generation           = memory->exports[index].generation;
    shown->offset               = (CUdeviceptr)address -
                                  memory->exports[index].handle.base;
    return UCS_OK;
}


/* ----------------------------------------------------------- peers' memory */

static void import_drop(import_t *import, bool keep)
{
    if (import->mapping != NULL) {
        uct_cuda_node_cache_put_weak(import->mapping, keep);
        import->mapping = NULL;
    }
    import->refusal = UCS_OK;
    import->pause   = 0;
}

/* Return whether the owner still exports the mapped memory */
static bool import_is_shown(const memory_t *memory, unsigned rank,
                            unsigned index)
{
    uint32_t generation;

    (void)uct_cuda_node_control_exported(memory->agreement->control, rank,
                                         index, &generation);
    return generation == memory->imports[rank][index].generation;
}

/* Release all mappings, or those that are closed or no longer exported. The
 * page of a rank that has ended never changes. */
static void imports_drop(memory_t *memory, bool all)
{
    const uct_cuda_node_mapping_t *mapping;
    unsigned rank, index;
    bool keep;

    for (rank = 0; rank < memory->agreement->size; ++rank) {
        keep = !all ||
               uct_cuda_node_control_is_running(memory->agreement->control,
                                                rank);
        for (index = 0; index < UCT_CUDA_NODE_CONTROL_EXPORTS; ++index) {
            mapping = memory->imports[rank][index].mapping;
            if (all || ((mapping != NULL) &&
                        (uct_cuda_node_mapping_is_closed(mapping) ||
                         !import_is_shown(memory, rank, index)))) {
                import_drop(&memory->imports[rank][index], keep);
            }
        }
    }
}

/* Map an export with a weak reference: the mapping is closed when the owner
 * frees the memory, as the next call may never come. @return
 * UCS_ERR_UNREACHABLE: it can be mapped in another context only, or the owner
 * has freed it */
static ucs_status_t import_get(memory_t *memory, import_t *import,
                               const uct_cuda_node_handle_t *handle)
{
    ucs_status_t status;

    status = uct_cuda_node_cache_get_in(handle, NULL, memory->cuda_device,
                                        memory->context->cuda,
                                        memory->context->id,
                                        &import->mapping);
    if (status != UCS_OK) {
        import->mapping = NULL;
        return status;
    }

    uct_cuda_node_cache_weaken(import->mapping);
    if (uct_cuda_node_mapping_is_closed(import->mapping) ||
        !uct_cuda_node_mapping_is_in(import->mapping, memory->context->id)) {
        uct_cuda_node_cache_put_weak(import->mapping, true);
        import->mapping = NULL;
        return UCS_ERR_UNREACHABLE;
    }

    return UCS_OK;
}

/* Map an export, or return the last refusal during its pause. A busy GPU causes
 * no pause. */
static ucs_status_t import_map(memory_t *memory, unsigned rank, unsigned index)
{
    const uint64_t sequence = memory->agreement->sequence;
    const uct_cuda_node_handle_t *shown;
    uct_cuda_node_handle_t handle;
    uint32_t generation;
    ucs_status_t status;
    import_t *import;

    if (index >= UCT_CUDA_NODE_CONTROL_EXPORTS) {
        return UCS_ERR_INVALID_PARAM;
    }

    import = &memory->imports[rank][index];
    if ((rank == memory->agreement->rank) || (import->mapping != NULL)) {
        return UCS_OK;
    }

    shown = uct_cuda_node_control_exported(memory->agreement->control, rank,
                                           index, &generation);
    if (shown == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    handle = *shown;
    if (!uct_cuda_node_handle_is_valid(&handle)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (import->generation != generation) {
        import_drop(import, true);
        import->generation = generation;
    }
    if ((import->refusal != UCS_OK) && (sequence < import->retry)) {
        return import->refusal;
    }

    import->pause   = (import->refusal == UCS_OK) ?
                              1 :
                              ucs_min(2 * import->pause, MAX_PAUSE);
    import->retry   = sequence + import->pause;
    status          = import_get(memory, import, &handle);
    import->refusal = (status == UCS_ERR_BUSY) ? UCS_OK : status;
    return status;
}

/* Replace the status of a relay's failure by one that all ranks recognize */
static ucs_status_t relay_status(ucs_status_t status, int gpu)
{
    if (status == UCS_OK) {
        return UCS_OK;
    }

    uct_cuda_debug("collectives: no memory on GPU %d for other ranks' copies "
                   "(status %d)",
                   gpu, status);
    return UCT_CUDA_COLL_NO_RELAY;
}

ucs_status_t uct_cuda_coll_memory_map(memory_t *memory,
                                      const uct_cuda_plan_coll_t *plan)
{
    const uct_cuda_coll_agreement_t *agreement = memory->agreement;
    ucs_status_t status                        = UCS_OK;
    unsigned rank, i;

    imports_drop(memory, false);
    for (rank = 0; (rank < agreement->size) && (status == UCS_OK); ++rank) {
        /* no plan has a step between ranks without peer access */
        if (!uct_cuda_coll_agree_is_peer(agreement, rank)) {
            continue;
        }

        status = import_map(memory, rank, agreement->posts[rank].recv.index);
        if (status == UCS_OK) {
            status = import_map(memory, rank,
                                agreement->posts[rank].send.index);
        }
        if ((status == UCS_OK) && (plan->scratch > 0)) {
            status = import_map(memory, rank, SCRATCH);
        }
    }
    for (i = 0; (i < plan->num_relays) && (status == UCS_OK); ++i) {
        status = relay_status(import_map(memory, RELAYS_RANK,
                                         RELAY(plan->relays[i])),
                              plan->relays[i]);
    }
    return status;
}


/* ---------------------------------------------------------- scratch memory */

/* Withdraw the export of the scratch memory, which notifies the other ranks,
 * then free the memory. Without @a is_alive it has gone with its context. */
static void scratch_free(memory_t *memory, bool is_alive)
{
    scratch_t *scratch = &memory->scratch;

    export_drop(memory, SCRATCH);
    if (is_alive && (scratch->base != 0)) {
        UCT_CUDA_DEVICE_MEMORY_FREE(scratch->base, false);
    }
    scratch->base = 0;
    scratch->size = 0;
}

/* Withdraw the export of a relay's scratch memory and free it. Needs no current
 * context: memory from cuMemCreate() belongs to none. */
static void relay_free(memory_t *memory, int gpu)
{
    scratch_t *relay = &memory->relays[gpu];

    export_drop(memory, RELAY(gpu));
    if (relay->base != 0) {
        uct_cuda_vmm_free(relay->base, relay->size);
    }
    relay->base = 0;
    relay->size = 0;
}

void uct_cuda_coll_memory_free_relays(memory_t *memory)
{
    int gpu;

    for (gpu = 0; gpu < UCT_CUDA_MAX_GPUS; ++gpu) {
        relay_free(memory, gpu);
        memory->relays[gpu].agreed = 0;
    }
}

static ucs_status_t scratch_make(memory_t *memory, uint64_t size)
{
    scratch_t *scratch = &memory->scratch;
    ucs_status_t status;

    if (scratch->size >= size) {
        return UCS_OK;
    }

    scratch_free(memory, true);
    status = UCT_CUDA_CALL_NOLOG(cuMemAlloc, &scratch->base, size);
    if (status != UCS_OK) {
        scratch->base = 0;
        return status;
    }

    scratch->size = size;
    status        = export_add(memory, SCRATCH, scratch->base);
    if (status != UCS_OK) {
        scratch_free(memory, true);
    }
    return status;
}

static ucs_status_t relay_make(memory_t *memory, int gpu, uint64_t size)
{
    scratch_t *relay = &memory->relays[gpu];
    ucs_status_t status;

    if (relay->size >= size) {
        return UCS_OK;
    }

    relay_free(memory, gpu);
    relay->size = size;
    status      = uct_cuda_vmm_alloc(
            gpu, memory->cuda_device,
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &relay->size,
            &relay->base);
    if (status != UCS_OK) {
        relay->base = 0;
        relay->size = 0;
        return status;
    }

    status = export_add(memory, RELAY(gpu), relay->base);
    if (status != UCS_OK) {
        relay_free(memory, gpu);
    }
    return status;
}

ucs_status_t uct_cuda_coll_memory_make(memory_t *memory,
                                       const uct_cuda_plan_coll_t *plan)
{
    ucs_status_t status = scratch_make(memory, plan->scratch);
    unsigned i;

    /* rank 0 allocates the memory of relays */
    for (i = 0; (memory->agreement->rank == RELAYS_RANK) &&
                (i < plan->num_relays) && (status == UCS_OK);
         ++i) {
        status = relay_status(relay_make(memory, plan->relays[i],
                                         plan->relay_scratch),
                              plan->relays[i]);
    }
    return status;
}


/* ------------------------------------------------------ state of all ranks */

bool uct_cuda_coll_memory_has(const memory_t *memory,
                              const uct_cuda_plan_coll_t *plan)
{
    unsigned i;

    for (i = 0; i < plan->num_relays; ++i) {
        if (plan->relay_scratch > memory->relays[plan->relays[i]].agreed) {
            return false;
        }
    }
    return plan->scratch <= memory->scratch.agreed;
}

/* Record how many bytes all ranks have mapped. After a failure none: ranks may
 * have new scratch memory not mapped by all others. */
static void scratch_agree(scratch_t *scratch, uint64_t bytes, bool is_done)
{
    scratch->agreed = is_done ? ucs_max(scratch->agreed, bytes) : 0;
}

void uct_cuda_coll_memory_mapped(memory_t *memory,
                                 const uct_cuda_plan_coll_t *plan, bool is_done)
{
    const uct_cuda_node_announcement_t *post =
            &memory->agreement->posts[memory->agreement->rank];
    unsigned i;

    scratch_agree(&memory->scratch, plan->scratch, is_done);
    for (i = 0; i < plan->num_relays; ++i) {
        scratch_agree(&memory->relays[plan->relays[i]], plan->relay_scratch,
                      is_done);
    }
    if (is_done) {
        memory->exports[post->recv.index].is_known = true;
        memory->exports[post->send.index].is_known = true;
        memory->is_lost                            = false;
    }
}

void uct_cuda_coll_memory_drop_mapped(memory_t *memory)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_NODE_CONTROL_EXPORTS; ++i) {
        memory->exports[i].is_known = false;
    }
    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        memory->relays[i].agreed = 0;
    }
    memory->scratch.agreed = 0;
}

/* Return the address of another rank's export; 0: not mapped, and no step uses
 * it */
static CUdeviceptr import_address(const memory_t *memory, unsigned rank,
                                  unsigned index)
{
    const uct_cuda_node_mapping_t *mapping =
            memory->imports[rank][index].mapping;

    return (mapping == NULL) ? 0 : mapping->mapped;
}

static CUdeviceptr shown_address(const memory_t *memory, unsigned rank,
                                 const uct_cuda_node_location_t *shown)
{
    return ((rank == memory->agreement->rank) ?
                    memory->exports[shown->index].handle.base :
                    import_address(memory, rank, shown->index)) +
           shown->offset;
}

void uct_cuda_coll_memory_place(const memory_t *memory,
                                const uct_cuda_plan_coll_t *plan,
                                uct_cuda_run_coll_call_t *run)
{
    const uct_cuda_coll_agreement_t *agreement = memory->agreement;
    CUdeviceptr *places;
    unsigned rank, i;
    int gpu;

    for (rank = 0; rank < agreement->size; ++rank) {
        places                        = run->places[rank];
        places[UCT_CUDA_BUFFER_SEND]    = shown_address(
                memory, rank, &agreement->posts[rank].send);
        places[UCT_CUDA_BUFFER_RECV]    = shown_address(
                memory, rank, &agreement->posts[rank].recv);
        places[UCT_CUDA_BUFFER_SCRATCH] = (rank == agreement->rank) ?
                                                memory->scratch.base :
                                                import_address(memory, rank,
                                                               SCRATCH);
    }
    for (i = 0; i < plan->num_relays; ++i) {
        gpu = plan->relays[i];
        run->places[agreement->size + i][UCT_CUDA_BUFFER_SCRATCH] =
                (agreement->rank == RELAYS_RANK) ?
                        memory->relays[gpu].base :
                        import_address(memory, RELAYS_RANK, RELAY(gpu));
    }
}


/* ----------------------------------------------------------------- context */

static void leave_context(memory_t *memory)
{
    const bool is_alive = (memory->context != NULL) &&
                          uct_cuda_context_push(memory->context);

    imports_drop(memory, true);
    uct_cuda_coll_memory_free_relays(memory);
    scratch_free(memory, is_alive);
    uct_cuda_run_coll_events_release(&memory->events, memory->device, is_alive);
    if (is_alive) {
        uct_cuda_ctx_pop();
    }
    if (memory->context != NULL) {
        uct_cuda_context_put(memory->context);
    }
    memory->context = NULL;
    memory->device  = NULL;
}

ucs_status_t uct_cuda_coll_memory_enter(memory_t *memory, int device)
{
    uct_cuda_coll_agreement_t *agreement = memory->agreement;
    uct_cuda_context_t *context;
    ucs_status_t status;
    CUuuid uuid;

    status = uct_cuda_context_hold(&context);
    if (status != UCS_OK) {
        return status;
    }

    if (context == memory->context) {
        uct_cuda_context_put(context);
        return UCS_OK;
    }

    leave_context(memory);
    memory->is_lost = true;
    status          = UCT_CUDA_CALL(cuDeviceGetUuid, &uuid, device);
    if (status == UCS_OK) {
        status = uct_cuda_run_coll_device_get(context, &memory->device);
    }
    if (status != UCS_OK) {
        uct_cuda_context_put(context);
        return status;
    }

    uct_cuda_node_control_set_gpu(agreement->control,
                                  (const uint8_t *)uuid.bytes);
    memory->context     = context;
    memory->cuda_device = device;
    if (agreement->rank == 0) {
        uct_cuda_coll_agree_publish_node(agreement);
    }
    return UCS_OK;
}

void uct_cuda_coll_memory_release(memory_t *memory)
{
    unsigned i;

    leave_context(memory);
    for (i = 0; i < UCT_CUDA_NODE_CONTROL_EXPORTS; ++i) {
        export_drop(memory, i);
    }
}
