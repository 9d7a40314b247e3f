/* SPDX-License-Identifier: BSD-3-Clause */
/* Unpacking of keys; reachability of peers. */
#include <uct/cuda/node/rkey.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/base/range.h>
#include <uct/cuda/node/exports.h>
#include <uct/cuda/node/process.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


/* Reachability of a GPU of a peer process, as seen from one of this process's
 * GPUs */
typedef struct reach reach_t;

struct reach {
    reach_t  *next;
    uint64_t pid_ns;
    int32_t  pid;
    uint8_t  type;
    uint8_t  is_imported;
    uint8_t  gpu[16];
    int      device;
    bool     is_reachable;
    bool     is_logged; /* unreachability was logged */
    unsigned stream;
};

static struct {
    pthread_mutex_t lock; /* order: base/thread.h */
    reach_t         *head;
    unsigned        count;
} reach = {.lock = PTHREAD_MUTEX_INITIALIZER};


/* Map the memory as a trial: UCX has other transports. The mapping stays for
 * the coming transfer. */
static ucs_status_t
try_to_map(const uct_cuda_node_handle_t *handle, int device)
{
    uct_cuda_node_mapping_t *mapping;
    ucs_status_t status;

    uct_cuda_node_handle_set_fallback(true);
    status = uct_cuda_node_cache_get(handle, device, &mapping);
    uct_cuda_node_handle_set_fallback(false);
    if (status == UCS_OK) {
        uct_cuda_node_cache_put(mapping, true);
    }

    return status;
}

/* Return whether one mapping may succeed and the next one fail: each takes a
 * descriptor for a moment, or this process may own the memory, so that it
 * cannot open its handle */
static bool is_tried_each_time(const uct_cuda_node_handle_t *handle)
{
    return uct_cuda_node_handle_is_fd(handle) || handle->is_imported ||
           (handle->type == UCT_CUDA_NODE_HANDLE_RANGE);
}

/* Find or create the record of a peer process, its GPU and a local device. Call
 * with the lock held. @return NULL: out of memory */
static reach_t *reach_get(const uct_cuda_node_handle_t *handle, int device)
{
    reach_t *peer;

    for (peer = reach.head; peer != NULL; peer = peer->next) {
        if ((peer->pid == handle->pid) && (peer->pid_ns == handle->pid_ns) &&
            (peer->type == handle->type) &&
            (peer->is_imported == handle->is_imported) &&
            (peer->device == device) &&
            (memcmp(peer->gpu, handle->gpu, sizeof(peer->gpu)) == 0)) {
            return peer;
        }
    }

    peer = malloc(sizeof(*peer));
    if (peer == NULL) {
        return NULL;
    }

    peer->pid    = handle->pid;
    peer->pid_ns = handle->pid_ns;
    peer->type   = handle->type;
    peer->device = device;
    peer->stream = reach.count++;
    memcpy(peer->gpu, handle->gpu, sizeof(peer->gpu));
    peer->is_imported  = handle->is_imported;
    peer->is_reachable = false;
    peer->is_logged    = false;
    peer->next         = reach.head;
    reach.head         = peer;
    return peer;
}

/* Set the stream number of a key for memory of this process, one for each of
 * its GPUs. Fails only without memory. */
static ucs_status_t self_stream(const uct_cuda_node_handle_t *handle,
                                unsigned *stream_p)
{
    const reach_t *self;

    pthread_mutex_lock(&reach.lock);
    self = reach_get(handle, -1);
    if (self != NULL) {
        *stream_p = self->stream;
    }
    pthread_mutex_unlock(&reach.lock);
    return (self != NULL) ? UCS_OK : UCS_ERR_NO_MEMORY;
}

/* Slow for a reason that the user can remove, so log a warning */
static void log_unreachable(int32_t pid, int device, ucs_status_t status)
{
    if (status == UCS_ERR_EXCEEDS_LIMIT) {
        uct_cuda_warn("GPU %d cannot map memory of pid %d, since no file "
                      "descriptor is left: such messages use UCX's other "
                      "transports. Raise the limit of open files (ulimit -n)",
                      device, pid);
    } else {
        uct_cuda_info("GPU %d cannot map memory of pid %d: such messages use "
                      "UCX's other transports",
                      device, pid);
    }
}

/* Check whether the peer's GPU is reachable (else UCS_ERR_UNREACHABLE, logged
 * once for each peer), and set the peer's stream number. A success is valid for
 * all memory of that GPU, except for handles of is_tried_each_time(). A failure
 * is valid for this allocation only: it may have been freed after its key was
 * packed. The trial maps the memory in the current context. */
static ucs_status_t reach_check(const uct_cuda_node_handle_t *handle,
                                int device, unsigned *stream_p)
{
    ucs_status_t status = UCS_OK;
    bool was_reachable;
    reach_t *peer;

    pthread_mutex_lock(&reach.lock);
    peer = reach_get(handle, device);
    if (peer == NULL) {
        status = UCS_ERR_NO_MEMORY;
        goto out;
    }

    was_reachable = peer->is_reachable;
    if (!was_reachable || is_tried_each_time(handle)) {
        status             = try_to_map(handle, device);
        peer->is_reachable = (status == UCS_OK);
        if (!was_reachable || !peer->is_reachable) {
            uct_cuda_debug("memory of pid %d is %sreachable from GPU %d",
                           handle->pid, peer->is_reachable ? "" : "not ",
                           device);
        }
        if (!peer->is_reachable && !peer->is_logged) {
            peer->is_logged = true;
            log_unreachable(handle->pid, device, status);
        }
    }

    *stream_p = peer->stream;
    status    = peer->is_reachable ? UCS_OK : UCS_ERR_UNREACHABLE;

out:
    pthread_mutex_unlock(&reach.lock);
    return status;
}

void uct_cuda_node_rkey_purge_peer(uint64_t pid_ns, int32_t pid)
{
    reach_t **link = &reach.head, *peer;

    pthread_mutex_lock(&reach.lock);
    while ((peer = *link) != NULL) {
        if ((peer->pid == pid) && (peer->pid_ns == pid_ns)) {
            *link = peer->next;
            free(peer);
        } else {
            link = &peer->next;
        }
    }
    pthread_mutex_unlock(&reach.lock);
}

/* Return whether the driver refuses a GPU access to another, visible one */
static bool is_refused(int device, uct_cuda_end_t gpu)
{
    int can_access;

    return (gpu.kind == UCT_CUDA_END_GPU) && (gpu.device != device) &&
           (UCT_CUDA_CALL_NOLOG(cuDeviceCanAccessPeer, &can_access, device,
                                gpu.device) == UCS_OK) &&
           !can_access;
}

/* A failed trial is not final: the memory may have been freed */
bool uct_cuda_node_rkey_reaches(uct_cuda_node_rkey_t *rkey, int device)
{
    const uint32_t bit = 1u << device;
    unsigned stream;

    if (rkey->reached & bit) {
        return true;
    }

    if (rkey->unreached & bit) {
        return false;
    }

    if (rkey->gpu.kind != UCT_CUDA_END_GPU) {
        if (reach_check(&rkey->handle, device, &stream) != UCS_OK) {
            return false;
        }
    } else if (is_refused(device, rkey->gpu)) {
        rkey->unreached |= bit;
        uct_cuda_debug("GPU %d has no peer access to GPU %d: mapping in "
                       "another context",
                       device, rkey->gpu.device);
        return false;
    }

    rkey->reached |= bit;
    return true;
}

ucs_status_t uct_cuda_node_rkey_ask_current(uct_cuda_node_rkey_t *rkey)
{
    uct_cuda_node_handle_t handle;
    ucs_status_t status;

    if (!uct_cuda_node_invalidation_view_may_differ(rkey->view,
                                                    &rkey->handle.notice,
                                                    rkey->handle.remaps)) {
        return UCS_OK;
    }

    handle = rkey->handle;
    status = uct_cuda_node_handle_renew(rkey->view, &handle);
    if ((status == UCS_ERR_NOT_CONNECTED) &&
        !uct_cuda_node_invalidation_view_is_over(rkey->view,
                                                 &handle.notice)) {
        /* the owner's thread ends it within 20 ms if it has unmapped this */
        return UCS_OK;
    }

    if (status != UCS_OK) {
        uct_cuda_node_cache_log_failure(&handle, status);
        return UCS_ERR_UNREACHABLE;
    }

    if (memcmp(&handle.notice, &rkey->handle.notice, sizeof(handle.notice)) !=
        0) {
        memset(&rkey->hint, 0, sizeof(rkey->hint));
        uct_cuda_debug("pid %d has mapped other memory at %#lx", handle.pid,
                       (unsigned long)handle.base);
    }

    rkey->handle = handle;
    return UCS_OK;
}

/* Return whether the driver confirms a key for memory of this process: copies
 * to it make no other check */
static bool is_self_valid(const uct_cuda_node_handle_t *handle)
{
    uct_cuda_memory_t memory;

    if (handle->type == UCT_CUDA_NODE_HANDLE_RANGE) {
        return uct_cuda_node_exports_has_range(handle);
    }

    uct_cuda_memory_query((void*)handle->base, 0, &memory);
    return (memory.type == UCS_MEMORY_TYPE_CUDA) &&
           (memory.buffer_id == handle->buffer_id) &&
           ((memory.length == 0) ||
            uct_cuda_range_holds(memory.base, memory.length, handle->base,
                                 handle->length));
}


/* ------------------------------------------------------- keys used again */

/* Cache of destroyed keys of peers. A message often brings the same bytes as
 * the key before, and the checks made for that key are still valid. */
static uct_cuda_node_rkey_t *spare[16];

static uct_cuda_node_rkey_t **spare_of(uint64_t buffer_id, int32_t pid)
{
    return &spare[(buffer_id + (uint64_t)pid) %
                  (sizeof(spare) / sizeof(spare[0]))];
}

/* Return whether a cached key was checked for reach from this GPU, with either
 * result. If `gpu` is none, use the GPU of the current context. */
static bool
is_from(const uct_cuda_node_rkey_t *rkey, uct_cuda_end_t gpu)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    CUdevice device;

    if (gpu.kind == UCT_CUDA_END_GPU) {
        device = gpu.device;
    } else if ((gpu.kind != UCT_CUDA_END_NONE) || (driver == NULL) ||
               (driver->cuCtxGetDevice(&device) != CUDA_SUCCESS)) {
        return false;
    }

    return uct_cuda_end_is_device(rkey->from, device) ||
           (rkey->unreached & (1u << device));
}

/* Take a cached key made from the same bytes, or return NULL */
static uct_cuda_node_rkey_t *spare_get(const char *bytes, uct_cuda_end_t gpu)
{
    uct_cuda_node_rkey_t **place;
    uct_cuda_node_rkey_t *rkey;
    uint64_t buffer_id;
    int32_t pid;

    memcpy(&buffer_id, bytes + offsetof(uct_cuda_node_handle_t, buffer_id),
           sizeof(buffer_id));
    memcpy(&pid, bytes + offsetof(uct_cuda_node_handle_t, pid), sizeof(pid));
    place = spare_of(buffer_id, pid);
    rkey  = __atomic_exchange_n(place, NULL, __ATOMIC_ACQUIRE);
    if ((rkey == NULL) ||
        ((memcmp(&rkey->handle, bytes, sizeof(rkey->handle)) == 0) &&
         is_from(rkey, gpu))) {
        return rkey;
    }

    free(rkey);
    return NULL;
}

static void spare_put(uct_cuda_node_rkey_t *rkey)
{
    rkey = __atomic_exchange_n(spare_of(rkey->handle.buffer_id,
                                        rkey->handle.pid),
                               rkey, __ATOMIC_ACQ_REL);
    if (rkey != NULL) {
        free(rkey);
    }
}


/* ---------------------------------------------------------------- unpacking */

/* Log, once in a process, that messages go through host memory */
static void log_staged(int device, int peer, int32_t pid)
{
    static bool is_logged;

    if (!__atomic_exchange_n(&is_logged, true, __ATOMIC_RELAXED)) {
        uct_cuda_info("GPU %d has no peer access to GPU %d: messages to and "
                      "from pid %d go through host memory",
                      device, peer, pid);
    }
}

/* Make a context current that maps the memory: the given one; without peer
 * access one of the memory's own GPU, created if need be and kept, since copies
 * through host memory enter it */
static ucs_status_t
enter(uct_cuda_node_rkey_t *rkey, int32_t pid, uct_cuda_end_t gpu,
      uct_cuda_ctx_scope_t *context)
{
    int device, peer;
    CUcontext kept;

    if (uct_cuda_ctx_enter_any(gpu, 0, context) != UCS_OK) {
        return UCS_ERR_UNREACHABLE;
    }

    device = context->device;
    if (!is_refused(device, rkey->gpu)) {
        return UCS_OK;
    }

    uct_cuda_ctx_leave(context);
    peer = rkey->gpu.device;
    if ((uct_cuda_ctx_enter_kept(peer, context) != UCS_OK) &&
        ((uct_cuda_ctx_retain(peer, true, &kept) != UCS_OK) ||
         (uct_cuda_ctx_enter_kept(peer, context) != UCS_OK))) {
        return UCS_ERR_UNREACHABLE;
    }

    rkey->unreached |= 1u << device;
    log_staged(device, peer, pid);
    return UCS_OK;
}

/* If the peer has unmapped a key's memory, request a handle of the memory that
 * is there now. If that fails, mapping the old memory fails, too. */
static void renew(uct_cuda_node_handle_t *handle)
{
    uct_cuda_node_invalidation_view_t *view =
            uct_cuda_node_handle_is_mapped(handle) ?
                    uct_cuda_node_cache_view_get(handle) :
                    NULL;

    if (view == NULL) {
        return;
    }

    if (uct_cuda_node_invalidation_view_is_over(view, &handle->notice)) {
        uct_cuda_node_handle_set_fallback(true);
        (void)uct_cuda_node_handle_renew(view, handle);
        uct_cuda_node_handle_set_fallback(false);
    }
    uct_cuda_node_cache_view_put(view);
}

/* Unpack a key of any alignment. A key of this process's own memory is checked
 * with the driver every time. */
static ucs_status_t unpack(const void *buffer, uct_cuda_end_t gpu,
                           uct_cuda_node_rkey_t **rkey_p)
{
    uct_cuda_node_packed_rkey_t packed;
    uct_cuda_ctx_scope_t context;
    uct_cuda_node_rkey_t *rkey;
    ucs_status_t status;
    bool is_self;

    memcpy(&packed, buffer, sizeof(packed));
    if (!uct_cuda_node_handle_is_valid(&packed.handle)) {
        return UCS_ERR_UNREACHABLE;
    }

    is_self = uct_cuda_node_is_self(packed.handle.pid,
                                    packed.handle.pid_ns);
    if (is_self ? !is_self_valid(&packed.handle) :
                 (packed.handle.type == UCT_CUDA_NODE_HANDLE_NONE)) {
        return UCS_ERR_UNREACHABLE;
    }

    rkey = calloc(1, sizeof(*rkey));
    if (rkey == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    rkey->gpu = uct_cuda_gpu_by_uuid(packed.handle.gpu);
    if (is_self) {
        status = self_stream(&packed.handle, &rkey->stream);
        if (status != UCS_OK) {
            goto err_free;
        }

        goto out;
    }

    status = enter(rkey, packed.handle.pid, gpu, &context);
    if (status != UCS_OK) {
        goto err_free;
    }

    rkey->from    = uct_cuda_end_gpu(context.device);
    rkey->reached = 1u << context.device;
    renew(&packed.handle);
    status = reach_check(&packed.handle, context.device, &rkey->stream);
    uct_cuda_ctx_leave(&context);
    if (status != UCS_OK) {
        goto err_free;
    }

out:
    rkey->is_self = is_self;
    rkey->handle = packed.handle;
    if (is_self) {
        /* prevent relays from opening memory of this process */
        rkey->handle.type = UCT_CUDA_NODE_HANDLE_NONE;
    }
    *rkey_p = rkey;
    return UCS_OK;

err_free:
    free(rkey);
    return status;
}

ucs_status_t uct_cuda_node_rkey_unpack(const void *buffer, uct_cuda_end_t gpu,
                                       uct_cuda_node_rkey_t **rkey_p)
{
    ucs_status_t status = UCS_OK;
    uint64_t magic;

    /* check the magic first: another module's key may be shorter */
    memcpy(&magic, buffer, sizeof(magic));
    if (magic != UCT_CUDA_NODE_PACKED_RKEY_MAGIC) {
        return UCS_ERR_UNREACHABLE;
    }

    *rkey_p = spare_get((const char*)buffer +
                                offsetof(uct_cuda_node_packed_rkey_t, handle),
                        gpu);
    if (*rkey_p == NULL) {
        status = unpack(buffer, gpu, rkey_p);
    }

    if (status == UCS_OK) {
        (*rkey_p)->magic = UCT_CUDA_NODE_RKEY_MAGIC;
        if (uct_cuda_node_handle_is_mapped(&(*rkey_p)->handle)) {
            (*rkey_p)->view = uct_cuda_node_cache_view_get(&(*rkey_p)->handle);
        }
    }

    return status;
}

ucs_status_t uct_cuda_node_rkey_map(uct_cuda_node_rkey_t *rkey,
                                    uint64_t remote_addr,
                                    CUdeviceptr *mapped_p)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    uct_cuda_node_mapping_t *mapping;
    unsigned long long id;
    ucs_status_t status;
    CUcontext context;
    CUdevice device;

    if ((remote_addr < rkey->handle.base) ||
        (remote_addr - rkey->handle.base >= rkey->handle.length)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (rkey->is_self) {
        *mapped_p = (CUdeviceptr)remote_addr;
        return UCS_OK;
    }

    if ((driver == NULL) || (driver->cuCtxGetDevice(&device) != CUDA_SUCCESS)) {
        return UCS_ERR_NO_DEVICE;
    }

    status = uct_cuda_node_rkey_update(rkey);
    if (status == UCS_OK) {
        status = uct_cuda_ctx_current(&context, &id);
    }
    if (status == UCS_OK) {
        status = uct_cuda_node_cache_get_in(&rkey->handle, &rkey->hint, device,
                                            context, id, &mapping);
    }
    if (status != UCS_OK) {
        return status;
    }

    if (!uct_cuda_node_mapping_is_in(mapping, id)) {
        uct_cuda_node_cache_put(mapping, true);
        return UCS_ERR_UNREACHABLE;
    }

    *mapped_p = mapping->mapped + (remote_addr - rkey->handle.base);
    return uct_cuda_node_cache_pin(mapping, &rkey->pins);
}

void uct_cuda_node_rkey_destroy(uct_cuda_node_rkey_t *rkey)
{
    uct_cuda_node_cache_unpin(rkey->pins);
    rkey->pins  = NULL;
    rkey->magic = 0;
    if (rkey->view != NULL) {
        uct_cuda_node_cache_view_put(rkey->view);
        rkey->view = NULL;
    }
    if (rkey->is_self) {
        free(rkey);
    } else {
        spare_put(rkey);
    }
}
