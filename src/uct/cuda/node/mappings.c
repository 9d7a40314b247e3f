/* SPDX-License-Identifier: BSD-3-Clause */
/* Mapping cache: a search tree for lookups, a list in order of use. */
#include <uct/cuda/node/mappings.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/iface.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/unmap.h>
#include <uct/cuda/node/watch.h>

#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>


/* Without an invalidation page memory counts as freed if it was unused while
 * this many others were mapped */
#define MAX_UNUSED 256

/* Time limit for closing mappings in one check (ns) */
#define MAX_LOOK_NS (1000ul * 1000)

/* Calls between checks of all peers' invalidation pages; others check one
 * peer */
#define CALLS_BEFORE_CHECK 64


/* One cache for the process, used by all workers. It has its own lock: a worker
 * unpacking a key holds no lock that other workers respect (a rule of UCX). */
static struct {
    pthread_mutex_t         lock;    /* order: base/thread.h */
    /* Mappings in use; stale ones are removed */
    void                    *tree;
    /* All mappings, including stale ones, oldest first */
    TAILQ_HEAD(mapping_list, uct_cuda_node_mapping) list;
    unsigned                count;
    uint64_t                generation; /* Changes when a mapping is retired */
    uint64_t                num_mapped; /* so far */
    unsigned                num_asked;  /* calls for a mapping */
    unsigned long           max_regions;
    size_t                  max_size;
} cache = {
    .lock        = PTHREAD_MUTEX_INITIALIZER,
    .list        = TAILQ_HEAD_INITIALIZER(cache.list),
    .generation  = 1,
    .max_regions = ULONG_MAX,
    .max_size    = SIZE_MAX
};


/* This thread is in a collective: it may query whether a GPU is idle, which may
 * invalidate a capture */
static __thread bool in_collective;


#define COMPARE(_a, _b) (((_a) > (_b)) - ((_a) < (_b)))

/* From the oldest on; the body may retire the mapping */
#define FOREACH_MAPPING(_mapping, _newer) \
    for ((_mapping) = TAILQ_FIRST(&cache.list); \
         ((_mapping) != NULL) && \
         ((_newer) = TAILQ_NEXT(_mapping, link), true); \
         (_mapping) = (_newer))

static bool is_range(const uct_cuda_node_handle_t *handle)
{
    return handle->type == UCT_CUDA_NODE_HANDLE_RANGE;
}

/* Return the number that distinguishes mappings at one address; 0: not a range.
 * Several ranges may begin with the same piece, which may be mapped alone,
 * too. */
static uint64_t range_id(const uct_cuda_node_mapping_t *mapping)
{
    return is_range(&mapping->handle) ? mapping->handle.buffer_id : 0;
}

static int mapping_compare(const void *a, const void *b)
{
    const uct_cuda_node_mapping_t *left = a, *right = b;
    int order;

    order = COMPARE(left->handle.base, right->handle.base);
    if (order == 0) {
        order = COMPARE(left->handle.pid, right->handle.pid);
    }
    if (order == 0) {
        order = COMPARE(left->handle.pid_ns, right->handle.pid_ns);
    }
    if (order == 0) {
        order = COMPARE(left->context_id, right->context_id);
    }
    if (order == 0) {
        order = COMPARE(range_id(left), range_id(right));
    }
    return order;
}

static bool is_same_peer(const uct_cuda_node_mapping_t *mapping,
                         const uct_cuda_node_handle_t *handle)
{
    return (mapping->handle.pid == handle->pid) &&
           (mapping->handle.pid_ns == handle->pid_ns);
}

static void mapping_close(uct_cuda_node_mapping_t *mapping)
{
    if (!mapping->closed) {
        __atomic_store_n(&mapping->closed, true, __ATOMIC_RELAXED);
        uct_cuda_node_unmap(&mapping->handle, mapping->mapped, mapping->device,
                            mapping->context, mapping->context_id);
    }
}

static void mapping_destroy(uct_cuda_node_mapping_t *mapping)
{
    TAILQ_REMOVE(&cache.list, mapping, link);
    --cache.count;
    mapping_close(mapping);
    if (mapping->view != NULL) {
        uct_cuda_node_invalidation_view_put(mapping->view);
    }

    free(mapping);
}

/* Remove a mapping from the tree, so it is not found again. Close and free it
 * now if it has no user, else with its last user. */
static void mapping_retire(uct_cuda_node_mapping_t *mapping)
{
    if (!mapping->stale) {
        tdelete(mapping, &cache.tree, mapping_compare);
        mapping->stale = true;
        ++cache.generation;
    }

    if (mapping->users == 0) {
        mapping_destroy(mapping);
    }
}

/* Release the lock, after closing kept mappings above the limit: those retired
 * under the lock may exceed it now */
static void cache_unlock(void)
{
    if (uct_cuda_node_unmap_is_due()) {
        uct_cuda_node_unmap_due(in_collective);
    }
    pthread_mutex_unlock(&cache.lock);
}

/* Return whether the owner has freed the memory */
static bool mapping_is_over(const uct_cuda_node_mapping_t *mapping)
{
    return (mapping->view != NULL) &&
           uct_cuda_node_invalidation_view_is_over(mapping->view,
                                                   &mapping->handle.notice);
}

/* Close a mapping of freed memory that has no user or only weak ones. @return
 * false: it stays */
static bool mapping_close_over(uct_cuda_node_mapping_t *mapping)
{
    if ((mapping->users > mapping->weak) || !mapping_is_over(mapping)) {
        return false;
    }

    if (mapping->users > 0) {
        mapping_close(mapping);
    }
    mapping_retire(mapping);
    return true;
}

static void sweep(void)
{
    uct_cuda_node_mapping_t *mapping, *newer;

    FOREACH_MAPPING(mapping, newer)
    {
        (void)mapping_close_over(mapping);
    }
}

/* Close mappings of freed memory, if any peer has invalidated a handle since
 * the last check */
static void check_invalidations(void)
{
    if (uct_cuda_node_invalidation_views_have_changed()) {
        sweep();
    }
}

/* Retire long unused mappings of peers without invalidation page */
static void retire_unused(void)
{
    uct_cuda_node_mapping_t *mapping, *newer;

    FOREACH_MAPPING(mapping, newer)
    {
        if (cache.num_mapped - mapping->last_use <= MAX_UNUSED) {
            break;
        }

        if ((mapping->users == 0) && (mapping->view == NULL)) {
            mapping_retire(mapping);
        }
    }
}

/* Return whether both handles are of one process. Buffer ids are unique within
 * a process only; if a PID was reused, the handle or the invalidation page
 * differs. Handles of cuMemCreate memory differ for every export. */
static bool is_of_same_process(const uct_cuda_node_handle_t *own,
                               const uct_cuda_node_handle_t *handle)
{
    if (own->type == UCT_CUDA_NODE_HANDLE_LEGACY) {
        return memcmp(own->os.bytes, handle->os.bytes,
                      sizeof(own->os.bytes)) == 0;
    }

    return (own->notice.page_id == handle->notice.page_id) ||
           (own->notice.page_id == 0) || (handle->notice.page_id == 0);
}

static bool is_same_allocation(const uct_cuda_node_mapping_t *mapping,
                               const uct_cuda_node_handle_t *handle)
{
    const uct_cuda_node_handle_t *own = &mapping->handle;

    return (own->base == handle->base) &&
           (own->buffer_id == handle->buffer_id) &&
           (own->length == handle->length) && (own->type == handle->type) &&
           (memcmp(own->gpu, handle->gpu, sizeof(own->gpu)) == 0) &&
           is_of_same_process(own, handle);
}

static bool overlaps(const uct_cuda_node_mapping_t *mapping, uint64_t start,
                     uint64_t end)
{
    return (mapping->handle.base < end) &&
           (mapping->handle.base + mapping->handle.length > start);
}

/* Retire a peer's idle mappings in an address range, except those of the same
 * allocation on devices other than @a device (-1: on any device, and ranges
 * stay). Weak references do not keep a mapping where @a peer's allocation has
 * replaced freed memory; a range and its pieces overlap while both exist.
 * @param is_busy_p  NULL; or retire only mappings on @a device that can be
 *                   closed without blocking, and set this to true if others
 *                   stay.
 * @return Number of mappings retired */
static unsigned retire_idle(const uct_cuda_node_handle_t *peer, uint64_t start,
                            uint64_t end, CUdevice device, bool *is_busy_p)
{
    unsigned count = 0;
    uct_cuda_node_mapping_t *mapping, *newer;
    bool is_same;

    FOREACH_MAPPING(mapping, newer)
    {
        is_same = is_same_allocation(mapping, peer);
        if (!is_same_peer(mapping, peer) || !overlaps(mapping, start, end) ||
            ((is_same || (is_busy_p != NULL)) && (mapping->device != device)) ||
            mapping->closed ||
            ((device < 0) &&
             (is_range(&mapping->handle) || is_range(peer)))) {
            continue;
        }

        if ((mapping->users > 0) && (mapping->users == mapping->weak) &&
            !is_same && !is_range(&mapping->handle) && !is_range(peer) &&
            overlaps(mapping, peer->base, peer->base + peer->length)) {
            mapping_close(mapping);
        } else if (mapping->users > 0) {
            continue;
        } else if ((is_busy_p != NULL) &&
                   uct_cuda_node_unmap_blocks(&mapping->handle,
                                              mapping->context,
                                              mapping->context_id)) {
            *is_busy_p = true;
            continue;
        }

        mapping_retire(mapping);
        ++count;
    }

    return count;
}

static void enforce_limits(const uct_cuda_node_handle_t *peer)
{
    unsigned long regions = 0;
    size_t size           = 0;
    uct_cuda_node_mapping_t *mapping, *older;

    if ((cache.max_regions == ULONG_MAX) && (cache.max_size == SIZE_MAX)) {
        return;
    }

    for (mapping = TAILQ_LAST(&cache.list, mapping_list); mapping != NULL;
         mapping = older) {
        older = TAILQ_PREV(mapping, mapping_list, link);
        if (!is_same_peer(mapping, peer)) {
            continue;
        }

        ++regions;
        size += mapping->handle.length;
        if (((regions > cache.max_regions) || (size > cache.max_size)) &&
            (mapping->users == 0)) {
            mapping_retire(mapping);
        }
    }
}

/* Retire idle mappings of destroyed contexts, when a new context appears */
static void retire_dead(unsigned long long context_id)
{
    uct_cuda_node_mapping_t *mapping, *newer;

    TAILQ_FOREACH_REVERSE(mapping, &cache.list, mapping_list, link)
    {
        if (mapping->context_id == context_id) {
            return;
        }
    }

    FOREACH_MAPPING(mapping, newer)
    {
        if ((mapping->users == 0) &&
            !uct_cuda_ctx_is_alive(mapping->context, mapping->context_id)) {
            mapping_retire(mapping);
        }
    }
}

/* Change a key's context to the one that has opened handles of the same GPU of
 * the peer. CUDA's manual: "May only be opened by one CUcontext per CUdevice".
 * Copies in any context may use its mappings (2 x H100). Kernels of collectives
 * may not: open_handle() closes idle ones instead. @return false: there is no
 * other */
static bool use_opener(uct_cuda_node_mapping_t *key)
{
    const uct_cuda_node_mapping_t *mapping;

    if (key->handle.type != UCT_CUDA_NODE_HANDLE_LEGACY) {
        return false;
    }

    TAILQ_FOREACH_REVERSE(mapping, &cache.list, mapping_list, link)
    {
        if ((mapping->device == key->device) && !mapping->closed &&
            (!in_collective || (mapping->users > 0)) &&
            (mapping->handle.type == UCT_CUDA_NODE_HANDLE_LEGACY) &&
            is_same_peer(mapping, &key->handle) &&
            (memcmp(mapping->handle.gpu, key->handle.gpu,
                    sizeof(key->handle.gpu)) == 0) &&
            uct_cuda_ctx_is_alive(mapping->context, mapping->context_id)) {
            break;
        }
    }

    if ((mapping == NULL) || (mapping->context_id == key->context_id)) {
        return false;
    }

    key->context    = mapping->context;
    key->context_id = mapping->context_id;
    return true;
}

/* Log the mappings that prevent the driver from opening a handle */
static void log_overlapping(const uct_cuda_node_handle_t *handle)
{
    const uct_cuda_node_mapping_t *mapping;

    TAILQ_FOREACH(mapping, &cache.list, link)
    {
        if (is_same_peer(mapping, handle) && !mapping->closed &&
            overlaps(mapping, handle->base, handle->base + handle->length)) {
            uct_cuda_debug("mapping that may conflict with %#lx: %#lx, %lu "
                           "bytes, buffer %lu, %u users, %u weak, stale %d, "
                           "freed %d",
                           (unsigned long)handle->base,
                           (unsigned long)mapping->handle.base,
                           (unsigned long)mapping->handle.length,
                           (unsigned long)mapping->handle.buffer_id,
                           mapping->users, mapping->weak, mapping->stale,
                           mapping_is_over(mapping));
        }
    }
}

/* Return whether a handle could not be opened, and closing mappings may help.
 * It frees no file descriptor, and an imported handle may be of this process,
 * which can never open it. */
static bool may_make_way(const uct_cuda_node_handle_t *handle,
                         ucs_status_t status)
{
    return (status == UCS_ERR_ALREADY_EXISTS) ||
           (!handle->is_imported && (status != UCS_OK) &&
            (status != UCS_ERR_NOT_CONNECTED) &&
            (status != UCS_ERR_EXCEEDS_LIMIT));
}

/* Close kept mappings, waiting for work in their contexts. A collective waits
 * only shortly, and closes those on @a device.
 * @param is_busy_p  Set to true if some stay, as the GPU is busy.
 * @return Number of mappings closed */
static unsigned close_kept(CUdevice device, bool *is_busy_p)
{
    return in_collective ? uct_cuda_node_unmap_device(device, is_busy_p) :
                           uct_cuda_node_unmap_all();
}

/* Close the peer's idle mappings, as close_kept() does */
static unsigned close_idle(const uct_cuda_node_handle_t *handle,
                           CUdevice device, bool *is_busy_p)
{
    const unsigned count = retire_idle(handle, 0, UINT64_MAX, device,
                                       in_collective ? is_busy_p : NULL);

    return count + close_kept(device, is_busy_p);
}

/* Open the handle; if the driver refuses, close mappings that may prevent this
 * and try again */
static ucs_status_t open_handle(const uct_cuda_node_handle_t *handle,
                                CUdevice device, CUdeviceptr *mapped_p)
{
    bool is_busy = false;
    ucs_status_t status;

    /* other mappings in this range are of memory freed by the peer */
    (void)retire_idle(handle, handle->base, handle->base + handle->length, -1,
                      NULL);
    if (!uct_cuda_node_unmap_replaced(handle, device, !in_collective)) {
        return UCS_ERR_BUSY;
    }

    status = uct_cuda_node_handle_open(handle, device, mapped_p);
    if (may_make_way(handle, status) && (close_kept(device, &is_busy) > 0)) {
        status = uct_cuda_node_handle_open(handle, device, mapped_p);
    }
    if (may_make_way(handle, status) &&
        (close_idle(handle, device, &is_busy) > 0)) {
        status = uct_cuda_node_handle_open(handle, device, mapped_p);
    }
    if (may_make_way(handle, status) && is_busy) {
        return UCS_ERR_BUSY;
    }

    if (status == UCS_ERR_ALREADY_EXISTS) {
        log_overlapping(handle);
    }

    return ((status == UCS_ERR_ALREADY_EXISTS) ||
            (status == UCS_ERR_NOT_CONNECTED)) ?
                   UCS_ERR_UNREACHABLE :
                   status;
}

/* Set the location of the allocation's invalidation, which may have changed */
static void mapping_set_notice(uct_cuda_node_mapping_t *mapping,
                               const uct_cuda_node_invalidation_t *notice)
{
    if (memcmp(&mapping->handle.notice, notice, sizeof(*notice)) == 0) {
        return;
    }

    if (mapping->view != NULL) {
        uct_cuda_node_invalidation_view_put(mapping->view);
    }

    mapping->handle.notice = *notice;
    mapping->view = uct_cuda_node_handle_view(&mapping->handle);
}

/* Find the mapping of this allocation in this context, or return NULL. Retire a
 * mapping of an earlier allocation at the same address. */
static uct_cuda_node_mapping_t *find_mapping(const uct_cuda_node_mapping_t *key)
{
    void *found = tfind(key, &cache.tree, mapping_compare);
    uct_cuda_node_mapping_t *mapping;

    if (found == NULL) {
        return NULL;
    }

    mapping = *(uct_cuda_node_mapping_t**)found;
    if (!is_same_allocation(mapping, &key->handle) ||
        (mapping->context != key->context)) {
        mapping_retire(mapping);
        return NULL;
    }

    mapping_set_notice(mapping, &key->handle.notice);
    return mapping;
}

/* Open the handle in the mapping's context, current or not */
static ucs_status_t
open_in_context(uct_cuda_node_mapping_t *mapping, bool is_current)
{
    ucs_status_t status;

    if (!is_current &&
        !uct_cuda_ctx_push_alive(mapping->context, mapping->context_id)) {
        return UCS_ERR_UNREACHABLE;
    }

    status = open_handle(&mapping->handle, mapping->device, &mapping->mapped);
    if (!is_current) {
        uct_cuda_ctx_pop();
    }
    return status;
}

/* CUDA cannot open this process's own handle: return the original address as an
 * uncached mapping */
static ucs_status_t self_get(const uct_cuda_node_handle_t *handle,
                             uct_cuda_node_mapping_t **mapping_p)
{
    uct_cuda_node_mapping_t *mapping = calloc(1, sizeof(*mapping));

    if (mapping == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    mapping->is_self = true;
    mapping->mapped = handle->base;
    *mapping_p      = mapping;
    return UCS_OK;
}

/* Check for freed memory in a thread that must not block: legacy mappings are
 * left to a progress call of the program. The lock may be held by a thread that
 * asks a peer for a descriptor, while the peer asks this thread: then do not
 * check. @return true: check again soon */
static bool watch_poll(void)
{
    bool is_due, has_work;

    if (pthread_mutex_trylock(&cache.lock) != 0) {
        return true;
    }

    check_invalidations();
    is_due   = uct_cuda_node_unmap_is_much();
    has_work = is_due || (cache.count > 0);
    pthread_mutex_unlock(&cache.lock);

    if (is_due) {
        uct_cuda_iface_call_soon(uct_cuda_node_cache_unmap_freed);
    }

    return has_work;
}

static const uct_cuda_node_watched_t watched = {.poll = watch_poll};

ucs_status_t uct_cuda_node_cache_get(const uct_cuda_node_handle_t *handle,
                                     CUdevice device,
                                     uct_cuda_node_mapping_t **mapping_p)
{
    unsigned long long id;
    ucs_status_t status;
    CUcontext context;

    status = uct_cuda_ctx_current(&context, &id);
    return (status == UCS_OK) ?
                   uct_cuda_node_cache_get_in(handle, NULL, device, context, id,
                                              mapping_p) :
                   status;
}

/* Open the handle and add its mapping. Call with the lock held. */
static ucs_status_t add_mapping(const uct_cuda_node_mapping_t *key,
                                bool is_current,
                                uct_cuda_node_mapping_t **mapping_p)
{
    const uct_cuda_node_handle_t *handle = &key->handle;
    uct_cuda_node_mapping_t *mapping     = malloc(sizeof(*mapping));
    ucs_status_t status;

    if (mapping == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    check_invalidations();
    *mapping = *key;
    if (tsearch(mapping, &cache.tree, mapping_compare) == NULL) {
        free(mapping);
        return UCS_ERR_NO_MEMORY;
    }

    status = open_in_context(mapping, is_current);
    if (status != UCS_OK) {
        tdelete(mapping, &cache.tree, mapping_compare);
        free(mapping);
        return status;
    }

    mapping->view = uct_cuda_node_handle_view(&mapping->handle);
    TAILQ_INSERT_TAIL(&cache.list, mapping, link);
    ++cache.count;
    ++cache.num_mapped;
    mapping->last_use = cache.num_mapped;
    retire_unused();
    uct_cuda_trace("mapped %#lx..%#lx of pid %d at %#llx",
                   (unsigned long)handle->base,
                   (unsigned long)(handle->base + handle->length), handle->pid,
                   mapping->mapped);
    *mapping_p = mapping;
    return UCS_OK;
}

/* Return the mapping of a handle, opening the handle if there is none yet. The
 * mapping may be in another context, see use_opener(). No user is added. Call
 * with the lock held. */
static ucs_status_t
find_or_add(const uct_cuda_node_handle_t *handle, CUdevice device,
            CUcontext context, unsigned long long context_id,
            uct_cuda_node_mapping_t **mapping_p)
{
    uct_cuda_node_mapping_t key = {.handle     = *handle,
                                   .device     = device,
                                   .context    = context,
                                   .context_id = context_id};
    bool is_current = true;

    *mapping_p = find_mapping(&key);
    if (*mapping_p == NULL) {
        retire_dead(context_id);
        is_current = !use_opener(&key);
        if (!is_current) {
            *mapping_p = find_mapping(&key);
        }
    }

    return (*mapping_p != NULL) ? UCS_OK :
                                  add_mapping(&key, is_current, mapping_p);
}

/* Return the hint's mapping if it is still valid and in this context, or NULL.
 * Call with the lock held. */
static uct_cuda_node_mapping_t *
find_by_hint(const uct_cuda_node_hint_t *hint,
             const uct_cuda_node_handle_t *handle, CUcontext context,
             unsigned long long context_id)
{
    uct_cuda_node_mapping_t *mapping;

    if ((hint == NULL) || (hint->generation != cache.generation)) {
        return NULL;
    }

    mapping = hint->mapping;
    if ((mapping->context_id != context_id) || (mapping->context != context)) {
        return NULL;
    }

    mapping_set_notice(mapping, &handle->notice);
    return mapping;
}

/* Mark a mapping as used and add a user. Close other mappings of freed memory,
 * and of this peer above its limits. Call with the lock held. */
static void mapping_use(uct_cuda_node_mapping_t *mapping,
                        const uct_cuda_node_handle_t *handle)
{
    if (TAILQ_NEXT(mapping, link) != NULL) {
        TAILQ_REMOVE(&cache.list, mapping, link);
        TAILQ_INSERT_TAIL(&cache.list, mapping, link);
    }

    mapping->last_use = cache.num_mapped;
    ++mapping->users;
    if ((mapping->view != NULL) &&
        uct_cuda_node_invalidation_view_has_changed(mapping->view)) {
        sweep();
    }
    enforce_limits(handle);
}

ucs_status_t uct_cuda_node_cache_get_in(const uct_cuda_node_handle_t *handle,
                                        uct_cuda_node_hint_t *hint,
                                        CUdevice device, CUcontext context,
                                        unsigned long long context_id,
                                        uct_cuda_node_mapping_t **mapping_p)
{
    ucs_status_t status = UCS_OK;
    uint64_t num_mapped;
    uct_cuda_node_mapping_t *mapping;
    bool is_new;

    if (((hint == NULL) || (hint->mapping == NULL)) &&
        uct_cuda_node_is_self(handle->pid, handle->pid_ns)) {
        return self_get(handle, mapping_p);
    }

    pthread_mutex_lock(&cache.lock);
    if ((++cache.num_asked % CALLS_BEFORE_CHECK) == 0) {
        check_invalidations();
    }

    num_mapped = cache.num_mapped;
    mapping    = find_by_hint(hint, handle, context, context_id);
    if (mapping == NULL) {
        status = find_or_add(handle, device, context, context_id, &mapping);
    }

    if (status == UCS_OK) {
        mapping_use(mapping, handle);
        *mapping_p = mapping;
        if (hint != NULL) {
            hint->mapping    = mapping;
            hint->generation = cache.generation;
        }
    }

    is_new = (cache.num_mapped != num_mapped);
    cache_unlock();
    if (is_new && (uct_cuda_node_watch_start(&watched) != NULL)) {
        uct_cuda_node_watch_wake();
    }
    return status;
}

void uct_cuda_node_cache_collective(bool is_inside)
{
    in_collective = is_inside;
    if (is_inside && uct_cuda_node_unmap_is_due()) {
        pthread_mutex_lock(&cache.lock);
        check_invalidations();
        cache_unlock();
    }
}

uct_cuda_node_invalidation_view_t *
uct_cuda_node_cache_view_get(const uct_cuda_node_handle_t *handle)
{
    uct_cuda_node_invalidation_view_t *view;

    pthread_mutex_lock(&cache.lock);
    view = uct_cuda_node_handle_view(handle);
    pthread_mutex_unlock(&cache.lock);
    return view;
}

void uct_cuda_node_cache_view_put(uct_cuda_node_invalidation_view_t *view)
{
    pthread_mutex_lock(&cache.lock);
    uct_cuda_node_invalidation_view_put(view);
    pthread_mutex_unlock(&cache.lock);
}

void uct_cuda_node_cache_log_failure(const uct_cuda_node_handle_t *handle,
                                     ucs_status_t status)
{
    uct_cuda_error("cannot map memory %#lx of pid %d (%s)",
                   (unsigned long)handle->base, handle->pid,
                   (status == UCS_ERR_EXCEEDS_LIMIT) ?
                           "no file descriptor is left: raise ulimit -n" :
                           "freed by its owner?");
}

void uct_cuda_node_cache_put(uct_cuda_node_mapping_t *mapping, bool keep)
{
    if (mapping->is_self) {
        free(mapping);
        return;
    }

    pthread_mutex_lock(&cache.lock);
    --mapping->users;
    if (!mapping_close_over(mapping) && (mapping->users == 0) &&
        (mapping->stale || !keep)) {
        mapping_retire(mapping);
    }
    cache_unlock();
}

void uct_cuda_node_cache_weaken(uct_cuda_node_mapping_t *mapping)
{
    pthread_mutex_lock(&cache.lock);
    ++mapping->weak;
    /* a check since the caller got it has found a user */
    (void)mapping_close_over(mapping);
    cache_unlock();
}

void uct_cuda_node_cache_put_weak(uct_cuda_node_mapping_t *mapping, bool keep)
{
    pthread_mutex_lock(&cache.lock);
    --mapping->weak;
    keep = keep && (mapping->view != NULL);
    pthread_mutex_unlock(&cache.lock);
    uct_cuda_node_cache_put(mapping, keep);
}

ucs_status_t uct_cuda_node_cache_pin(uct_cuda_node_mapping_t *mapping,
                                     uct_cuda_node_pin_t **pins)
{
    uct_cuda_node_pin_t *pin;

    for (pin = *pins; pin != NULL; pin = pin->next) {
        if (pin->mapping == mapping) {
            uct_cuda_node_cache_put(mapping, true);
            return UCS_OK;
        }
    }

    pin = malloc(sizeof(*pin));
    if (pin == NULL) {
        uct_cuda_node_cache_put(mapping, true);
        return UCS_ERR_NO_MEMORY;
    }

    pin->mapping = mapping;
    pin->next    = *pins;
    *pins        = pin;
    return UCS_OK;
}

void uct_cuda_node_cache_unpin(uct_cuda_node_pin_t *pins)
{
    uct_cuda_node_pin_t *next;

    for (; pins != NULL; pins = next) {
        next = pins->next;
        uct_cuda_node_cache_put(pins->mapping, true);
        free(pins);
    }
}

void uct_cuda_node_cache_limit(unsigned long max_regions, size_t max_size)
{
    pthread_mutex_lock(&cache.lock);
    cache.max_regions = max_regions;
    cache.max_size    = max_size;
    pthread_mutex_unlock(&cache.lock);
}

void uct_cuda_node_cache_purge_peer(uint64_t pid_ns, int32_t pid)
{
    const uct_cuda_node_handle_t peer = {.pid_ns = pid_ns, .pid = pid};
    uct_cuda_node_mapping_t *mapping, *newer;

    pthread_mutex_lock(&cache.lock);
    FOREACH_MAPPING(mapping, newer)
    {
        if (is_same_peer(mapping, &peer)) {
            mapping_retire(mapping);
        }
    }
    uct_cuda_node_invalidation_view_purge(pid_ns, pid);
    cache_unlock();
}

bool uct_cuda_node_cache_unmap_freed(void)
{
    bool has_more;

    pthread_mutex_lock(&cache.lock);
    check_invalidations();
    has_more = uct_cuda_node_unmap_idle(MAX_LOOK_NS);
    pthread_mutex_unlock(&cache.lock);
    return has_more;
}

unsigned uct_cuda_node_cache_count(void)
{
    unsigned count;

    pthread_mutex_lock(&cache.lock);
    count = cache.count;
    pthread_mutex_unlock(&cache.lock);
    return count;
}
