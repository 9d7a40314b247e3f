/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts, streams, events, and preparation before the first copy. */
#include <uct/cuda/run/resources.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>

#include <stdlib.h>
#include <string.h>


/* Free events of a context */
typedef struct {
    CUevent  *events;
    unsigned count;
    unsigned capacity;
    unsigned created; /* all existing ones */
} event_pool_t;


typedef struct {
    CUcontext           ctx; /* NULL: not retained */
    unsigned long long  id;  /* of ctx; the program may reset it */
    event_pool_t        pool;
    uct_cuda_run_link_t links[UCT_CUDA_PLAN_NUM_LINKS];
    bool                has_access[UCT_CUDA_MAX_GPUS]; /* to peers */
} device_t;


struct uct_cuda_run_rsc {
    device_t               devices[UCT_CUDA_MAX_GPUS];
    uct_cuda_run_staging_t staging[UCT_CUDA_RUN_NUM_STAGING];
    uint64_t               epoch; /* times that nothing was in flight */
};


ucs_status_t
uct_cuda_run_rsc_create(uct_cuda_run_rsc_t **rsc_p)
{
    *rsc_p = calloc(1, sizeof(**rsc_p));
    return (*rsc_p == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
}


/* ----------------------------------------------------------------- events */

static ucs_status_t pool_reserve(event_pool_t *pool)
{
    unsigned capacity;
    CUevent *events;

    /* reserve room for every existing event, so that a release cannot fail */
    if (pool->created < pool->capacity) {
        return UCS_OK;
    }

    capacity = (pool->capacity == 0) ? 64 : 2 * pool->capacity;
    events   = realloc(pool->events, capacity * sizeof(*events));
    if (events == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    pool->events   = events;
    pool->capacity = capacity;
    return UCS_OK;
}

ucs_status_t uct_cuda_run_rsc_get_event(uct_cuda_run_rsc_t *rsc, int device,
                              CUevent *event_p)
{
    event_pool_t *pool = &rsc->devices[device].pool;
    ucs_status_t status;

    if (pool->count > 0) {
        *event_p = pool->events[--pool->count];
        return UCS_OK;
    }

    status = pool_reserve(pool);
    if (status == UCS_OK) {
        status = UCT_CUDA_CALL(cuEventCreate, event_p,
                               CU_EVENT_DISABLE_TIMING);
    }

    if (status == UCS_OK) {
        ++pool->created;
    }

    return status;
}

void uct_cuda_run_rsc_put_event(uct_cuda_run_rsc_t *rsc, int device,
                                    CUevent event)
{
    event_pool_t *pool = &rsc->devices[device].pool;

    pool->events[pool->count++] = event;
}


/* ------------------------------------------------------------ preparation */

/* Create a device's context: the primary one if a GPU end belongs to the
 * program, otherwise one for copies only */
static ucs_status_t prepare_device(uct_cuda_run_rsc_t *rsc,
                                   const uct_cuda_plan_t *plan,
                                   int device)
{
    const bool is_copy_only = !uct_cuda_plan_is_local_gpu(plan, device);
    ucs_status_t status;

    if (rsc->devices[device].ctx != NULL) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_retain(device, is_copy_only,
                                 &rsc->devices[device].ctx);
    if (status != UCS_OK) {
        rsc->devices[device].ctx = NULL;
        return status;
    }

    rsc->devices[device].id = uct_cuda_ctx_id(rsc->devices[device].ctx);
    return UCS_OK;
}

ucs_status_t uct_cuda_run_rsc_make_stream(uct_cuda_run_rsc_t *rsc, int device,
                                          CUstream *stream_p)
{
    ucs_status_t status;

    if (*stream_p != NULL) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_push(rsc->devices[device].ctx);
    if (status != UCS_OK) {
        return status;
    }

    status = UCT_CUDA_CALL(cuStreamCreate, stream_p, CU_STREAM_NON_BLOCKING);
    if (status != UCS_OK) {
        *stream_p = NULL;
    }

    uct_cuda_ctx_pop();
    return status;
}

/* Enable access to memory of @a peer, which has a context */
static ucs_status_t prepare_access(uct_cuda_run_rsc_t *rsc, int device,
                                   int peer, CUdeviceptr memory)
{
    ucs_status_t status;
    bool is_ours;

    if (rsc->devices[device].has_access[peer]) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_reach_peer(device, peer, memory, &is_ours);
    rsc->devices[device].has_access[peer] = (status == UCS_OK) && is_ours;
    return status;
}

/* Return the GPU to whose memory the link's device needs peer access: it writes
 * there, or reads there for the local end. None: the memory is its own, in the
 * host, or remote; mappings of remote memory include access. */
static uct_cuda_end_t link_peer(const uct_cuda_plan_t *plan,
                                uint16_t number)
{
    const uct_cuda_end_t to = uct_cuda_plan_link_to(number);

    if (uct_cuda_plan_is_pulled(plan, number)) {
        return uct_cuda_plan_link_from(number);
    }

    return (uct_cuda_end_is_device(uct_cuda_plan_link_from(number),
                                   uct_cuda_plan_link_device(plan,
                                                               number)) &&
            uct_cuda_end_is_gpu(to) && !uct_cuda_end_equal(to, plan->remote)) ?
                   to :
                   uct_cuda_end_none();
}

static bool device_is_alive(const device_t *device)
{
    return (device->ctx != NULL) &&
           uct_cuda_ctx_is_alive(device->ctx, device->id);
}

void uct_cuda_run_rsc_wait_stream(uct_cuda_run_rsc_t *rsc, int device,
                                  CUstream stream)
{
    if (uct_cuda_ctx_push(rsc->devices[device].ctx) == UCS_OK) {
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
        uct_cuda_ctx_pop();
    }
}

void uct_cuda_run_rsc_set_drained(uct_cuda_run_rsc_t *rsc,
                                  uct_cuda_run_slot_t *slot, CUevent event,
                                  int device, bool is_borrowed)
{
    if ((slot->drained != NULL) && !slot->is_borrowed) {
        uct_cuda_run_rsc_put_event(rsc, slot->device, slot->drained);
    }

    slot->drained     = event;
    slot->device      = device;
    slot->is_borrowed = is_borrowed;
}

/* Release the events of all slots of a staging memory */
static void forget_drained(uct_cuda_run_rsc_t *rsc,
                           uct_cuda_run_staging_t *staging)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_PLAN_STAGING_SLOTS; ++i) {
        uct_cuda_run_rsc_set_drained(rsc, &staging->slots[i], NULL, 0, true);
    }
}

/* Wait for the users of the slots, and free the memory */
static void release_staging(uct_cuda_run_rsc_t *rsc,
                            uct_cuda_run_staging_t *staging)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_PLAN_STAGING_SLOTS; ++i) {
        if (staging->slots[i].drained != NULL) {
            (void)UCT_CUDA_CALL(cuEventSynchronize, staging->slots[i].drained);
        }
    }

    forget_drained(rsc, staging);
    uct_cuda_run_staging_free(staging);
}

/* Return the staging memory of a path, or NULL */
static uct_cuda_run_staging_t *find_staging(uct_cuda_run_rsc_t *rsc,
                                            uct_cuda_end_t via, int numa)
{
    const int number = uct_cuda_run_staging_number(via, numa);

    return (number < 0) ? NULL : &rsc->staging[number];
}

/* Return a plan's staging memory at an end, that of a place in SCRATCH or of a
 * path; NULL for a direct path */
static uct_cuda_run_staging_t *plan_staging(uct_cuda_run_rsc_t *rsc,
                                            const uct_cuda_plan_t *plan,
                                            uct_cuda_end_t via)
{
    uct_cuda_run_staging_t *staging = find_staging(rsc, via, plan->numa);

    /* slots used before the last idle time are drained */
    if ((staging != NULL) && (staging->epoch != rsc->epoch)) {
        staging->epoch = rsc->epoch;
        forget_drained(rsc, staging);
    }

    return staging;
}

uct_cuda_run_slot_t *
uct_cuda_run_rsc_slot(uct_cuda_run_rsc_t *rsc, const uct_cuda_plan_t *plan,
                      const uct_cuda_plan_place_t *place)
{
    uct_cuda_run_staging_t *staging;

    if (place->buffer != UCT_CUDA_BUFFER_SCRATCH) {
        return NULL;
    }

    staging = plan_staging(rsc, plan, uct_cuda_end_at(place->owner));
    return &staging->slots[uct_cuda_run_staging_slot(staging, place->slot)];
}

/* A step that waits has none: either it fills no slot, or an earlier step of
 * its plan drains the slot. */
CUevent uct_cuda_run_rsc_awaited(uct_cuda_run_rsc_t *rsc,
                                 const uct_cuda_plan_t *plan, unsigned step)
{
    const uct_cuda_run_slot_t *slot =
            uct_cuda_plan_step_has_wait(plan, step) ?
                    NULL :
                    uct_cuda_run_rsc_slot(rsc, plan,
                                          uct_cuda_plan_to(plan, step));

    return (slot != NULL) ? slot->drained : NULL;
}

uint32_t uct_cuda_run_rsc_next_slots(uct_cuda_run_rsc_t *rsc,
                                     const uct_cuda_plan_t *plan,
                                     unsigned unit, bool is_behind)
{
    uint32_t banks = 0;
    uct_cuda_run_staging_t *staging;
    unsigned i, next;

    for (i = 0; i < plan->num_paths; ++i) {
        staging = plan_staging(rsc, plan, plan->paths[i].via);
        if (staging != NULL) {
            next = staging->next + (is_behind ? plan->paths[i].slots : 0);
            staging->next = (next + unit - 1) / unit * unit %
                            UCT_CUDA_PLAN_STAGING_SLOTS;
            banks        |= (uint32_t)(staging->next / UCT_CUDA_PLAN_SLOTS)
                            << i;
        }
    }

    return banks;
}

static ucs_status_t prepare_staging(uct_cuda_run_rsc_t *rsc,
                                    const uct_cuda_plan_t *plan,
                                    uct_cuda_end_t via)
{
    uct_cuda_run_staging_t *staging = find_staging(rsc, via, plan->numa);
    const int home                  = uct_cuda_end_is_gpu(via) ?
                                              uct_cuda_end_device(via) :
                                              plan->local;
    ucs_status_t status;

    if (staging == NULL) {
        return UCS_ERR_UNREACHABLE;
    }

    if (staging->base != 0) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_push(rsc->devices[home].ctx);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_run_staging_alloc(staging, via, plan->numa, home,
                                        plan->slot_size);
    uct_cuda_ctx_pop();
    return status;
}

static ucs_status_t
make_ordering(uct_cuda_run_rsc_t *rsc, int device, uct_cuda_run_link_t *link)
{
    ucs_status_t status;

    if (link->ordering != NULL) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_push(rsc->devices[device].ctx);
    if (status != UCS_OK) {
        return status;
    }

    status = uct_cuda_run_rsc_get_event(rsc, device, &link->ordering);
    if (status != UCS_OK) {
        link->ordering = NULL;
    }

    uct_cuda_ctx_pop();
    return status;
}

/* Create the peer access, stream and event of a link. Its contexts and staging
 * memory exist already. */
static ucs_status_t prepare_link(uct_cuda_run_rsc_t *rsc,
                                 const uct_cuda_plan_t *plan,
                                 const uct_cuda_run_memory_t *memory,
                                 uint16_t number)
{
    const int device          = uct_cuda_plan_link_device(plan, number);
    const uct_cuda_end_t peer = link_peer(plan, number);
    uct_cuda_run_link_t *link = &rsc->devices[device].links[number];
    ucs_status_t status;

    if (uct_cuda_end_is_gpu(peer)) {
        status = prepare_access(
                rsc, device, uct_cuda_end_device(peer),
                uct_cuda_end_equal(peer, plan->dst) ?
                        memory->dst :
                        find_staging(rsc, peer, plan->numa)->base);
        if (status != UCS_OK) {
            return status;
        }
    }

    status = uct_cuda_run_rsc_make_stream(rsc, device, &link->stream);
    return (status == UCS_OK) ? make_ordering(rsc, device, link) : status;
}

uint32_t uct_cuda_run_rsc_path_devices(const uct_cuda_plan_t *plan,
                                       uct_cuda_end_t via)
{
    uint32_t devices = 0;
    uint16_t links[UCT_CUDA_PLAN_MAX_HOPS];
    uct_cuda_end_t peer;
    unsigned i, count;

    count = uct_cuda_plan_path_links(plan, via, links);
    for (i = 0; i < count; ++i) {
        devices |= 1u << uct_cuda_plan_link_device(plan, links[i]);
        peer     = link_peer(plan, links[i]);
        if (uct_cuda_end_is_gpu(peer)) {
            devices |= uct_cuda_end_bit(peer);
        }
    }

    return devices;
}

static ucs_status_t prepare_path(uct_cuda_run_rsc_t *rsc,
                                 const uct_cuda_plan_t *plan,
                                 const uct_cuda_run_memory_t *memory,
                                 uct_cuda_end_t via, uint16_t *link_p)
{
    uint32_t devices    = uct_cuda_run_rsc_path_devices(plan, via);
    ucs_status_t status = UCS_OK;
    uint16_t links[UCT_CUDA_PLAN_MAX_HOPS];
    unsigned i, count;

    count   = uct_cuda_plan_path_links(plan, via, links);
    *link_p = links[0];
    for (; (status == UCS_OK) && (devices != 0); devices &= devices - 1) {
        status = prepare_device(rsc, plan, __builtin_ctz(devices));
    }

    if ((status == UCS_OK) && !uct_cuda_end_is_none(via)) {
        status = prepare_staging(rsc, plan, via);
    }

    for (i = 0; (status == UCS_OK) && (i < count); ++i) {
        *link_p = links[i];
        status  = prepare_link(rsc, plan, memory, links[i]);
    }

    return status;
}

bool uct_cuda_run_rsc_has_staging(const uct_cuda_run_rsc_t *rsc,
                                  uct_cuda_end_t via, int numa)
{
    const int number = uct_cuda_run_staging_number(via, numa);

    return (number >= 0) && (rsc->staging[number].base != 0);
}

void uct_cuda_run_rsc_adopt_ctx(uct_cuda_run_rsc_t *rsc, int device,
                                CUcontext ctx, unsigned long long id)
{
    if (rsc->devices[device].ctx == NULL) {
        rsc->devices[device].ctx = ctx;
        rsc->devices[device].id  = id;
    } else {
        uct_cuda_ctx_release(device); /* one reference is enough */
    }
}

void uct_cuda_run_rsc_adopt_staging(uct_cuda_run_rsc_t *rsc, int numa,
                                    uct_cuda_run_staging_t *staging)
{
    uct_cuda_run_staging_t *own = find_staging(rsc, staging->end, numa);

    if (own->base == 0) {
        *own = *staging;
    } else {
        /* created twice; keep the one in use */
        uct_cuda_run_staging_free(staging);
    }
}

ucs_status_t uct_cuda_run_rsc_prepare(uct_cuda_run_rsc_t *rsc,
                                      const uct_cuda_plan_t *plan,
                                      const uct_cuda_run_memory_t *memory,
                                      unsigned *path_p, uint16_t *link_p)
{
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        status = prepare_path(rsc, plan, memory, plan->paths[i].via, link_p);
        if (status != UCS_OK) {
            *path_p = i;
            return status;
        }
    }

    /* executors may need the local context even without a link there */
    *path_p = 0;
    return prepare_device(rsc, plan, plan->local);
}

uint32_t uct_cuda_run_rsc_devices(const uct_cuda_run_rsc_t *rsc)
{
    uint32_t devices = 0;
    unsigned i;

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        devices |= (rsc->devices[i].ctx != NULL) ? 1u << i : 0;
    }

    return devices;
}

CUcontext uct_cuda_run_rsc_ctx(const uct_cuda_run_rsc_t *rsc,
                                   int device)
{
    return rsc->devices[device].ctx;
}

unsigned long long uct_cuda_run_rsc_ctx_id(const uct_cuda_run_rsc_t *rsc,
                                           int device)
{
    return rsc->devices[device].id;
}

ucs_status_t uct_cuda_run_rsc_notify_stream(uct_cuda_run_rsc_t *rsc, int device,
                                            uint16_t link, CUstream *stream_p)
{
    CUstream *notify = &rsc->devices[device].links[link].notify;
    ucs_status_t status;

    if (!device_is_alive(&rsc->devices[device])) {
        return UCS_ERR_IO_ERROR;
    }

    status    = uct_cuda_run_rsc_make_stream(rsc, device, notify);
    *stream_p = *notify;
    return status;
}


/* ------------------------------------------------------- for the executors */

ucs_status_t uct_cuda_run_rsc_make_current(uct_cuda_run_rsc_t *rsc, int device,
                                 int *current)
{
    ucs_status_t status;

    if (*current == device) {
        return UCS_OK;
    }

    /* replaces the top of the stack, pushed by the caller */
    status = UCT_CUDA_CALL(cuCtxSetCurrent, rsc->devices[device].ctx);
    if (status == UCS_OK) {
        *current = device;
    }

    return status;
}

CUdeviceptr uct_cuda_run_rsc_address(uct_cuda_run_rsc_t *rsc,
                                     const uct_cuda_plan_t *plan,
                                     const uct_cuda_plan_place_t *place,
                                     const uct_cuda_run_memory_t *memory,
                                     int device)
{
    const bool is_src = (place->buffer == UCT_CUDA_BUFFER_SEND);
    uct_cuda_run_staging_t *staging;
    CUdeviceptr base;

    if (place->buffer == UCT_CUDA_BUFFER_SCRATCH) {
        staging = plan_staging(rsc, plan, uct_cuda_end_at(place->owner));
        base    = staging->base +
               uct_cuda_run_staging_slot(staging, place->slot) *
                       staging->slot_size;
    } else if (uct_cuda_end_equal(plan->remote,
                                  is_src ? plan->src : plan->dst)) {
        base = memory->mapped[device] + memory->offset;
    } else {
        base = (is_src ? memory->src : memory->dst) + memory->offset;
    }

    return base + place->offset;
}

void uct_cuda_run_rsc_idle(uct_cuda_run_rsc_t *rsc)
{
    ++rsc->epoch;
}

/* A link not used since the last idle time is free: forget its earlier work. */
uct_cuda_run_link_t *uct_cuda_run_rsc_link(uct_cuda_run_rsc_t *rsc, int device,
                                           uint16_t number)
{
    uct_cuda_run_link_t *link = &rsc->devices[device].links[number];

    if (link->epoch != rsc->epoch) {
        link->epoch     = rsc->epoch;
        link->outside   = NULL;
        link->is_queued = false;
    }

    return link;
}

/* ----------------------------------------------------------- lost contexts */

uint32_t uct_cuda_run_rsc_lost(const uct_cuda_run_rsc_t *rsc)
{
    uint32_t devices = 0;
    unsigned i;

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        if ((rsc->devices[i].ctx != NULL) &&
            !device_is_alive(&rsc->devices[i])) {
            devices |= 1u << i;
        }
    }

    return devices;
}

/* Return a stream of a device's links, or NULL: of link `number` / 3 the two
 * launch streams, then its own stream */
static CUstream link_stream(const device_t *device, unsigned number)
{
    const uct_cuda_run_link_t *link = &device->links[number / 3];

    return (number % 3 == 2) ? link->stream : link->launches[number % 3];
}

static void wait_device(uct_cuda_run_rsc_t *rsc, int number)
{
    const device_t *device = &rsc->devices[number];
    CUstream stream;
    unsigned i;

    for (i = 0; i < 3 * UCT_CUDA_PLAN_NUM_LINKS; ++i) {
        stream = link_stream(device, i);
        if (stream != NULL) {
            uct_cuda_run_rsc_wait_stream(rsc, number, stream);
        }
    }
}

/* Empty the slots, with nothing in flight: drop events of lost contexts and
 * release the others. Drop the memory if its own context is lost. */
static void lose_staging(uct_cuda_run_rsc_t *rsc,
                         uct_cuda_run_staging_t *staging, uint32_t devices)
{
    uct_cuda_run_slot_t *slot;
    unsigned i;

    for (i = 0; i < UCT_CUDA_PLAN_STAGING_SLOTS; ++i) {
        slot = &staging->slots[i];
        if ((slot->drained != NULL) && (devices & (1u << slot->device))) {
            slot->drained = NULL;
        }
    }

    forget_drained(rsc, staging);
    if ((staging->base != 0) && (devices & (1u << staging->home))) {
        uct_cuda_run_staging_lose(staging);
        memset(staging, 0, sizeof(*staging));
    }
}

void uct_cuda_run_rsc_lose(uct_cuda_run_rsc_t *rsc, uint32_t devices)
{
    unsigned i, k;

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        if ((rsc->devices[i].ctx != NULL) && !(devices & (1u << i))) {
            wait_device(rsc, (int)i);
        }
    }

    uct_cuda_run_rsc_idle(rsc);
    for (i = 0; i < UCT_CUDA_RUN_NUM_STAGING; ++i) {
        lose_staging(rsc, &rsc->staging[i], devices);
    }

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        if (!(devices & (1u << i))) {
            continue;
        }

        uct_cuda_debug("gpu%u was reset: dropping its resources", i);
        free(rsc->devices[i].pool.events);
        memset(&rsc->devices[i], 0, sizeof(rsc->devices[i]));
        for (k = 0; k < UCT_CUDA_MAX_GPUS; ++k) {
            rsc->devices[k].has_access[i] = false;
        }

        uct_cuda_ctx_release((int)i);
    }
}


/* ---------------------------------------------------------------- clean-up */

static void destroy_stream(CUstream stream)
{
    if (stream != NULL) {
        (void)UCT_CUDA_CALL(cuStreamSynchronize, stream);
        (void)UCT_CUDA_CALL(cuStreamDestroy, stream);
    }
}

static void destroy_event(CUevent event)
{
    if (event != NULL) {
        (void)UCT_CUDA_CALL(cuEventDestroy, event);
    }
}

/* Destroy streams and events of a device, in its context */
static void destroy_device(device_t *device)
{
    unsigned i;

    for (i = 0; i < 3 * UCT_CUDA_PLAN_NUM_LINKS; ++i) {
        destroy_stream(link_stream(device, i));
    }

    for (i = 0; i < UCT_CUDA_PLAN_NUM_LINKS; ++i) {
        destroy_event(device->links[i].ordering);
        destroy_stream(device->links[i].notify);
    }

    for (i = 0; i < device->pool.count; ++i) {
        destroy_event(device->pool.events[i]);
    }
}

void uct_cuda_run_rsc_destroy(uct_cuda_run_rsc_t *rsc)
{
    device_t *device;
    unsigned i, k;

    /* first wait for work across devices: then no slot is in use */
    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        wait_device(rsc, (int)i);
    }

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        if ((rsc->devices[i].ctx == NULL) ||
            (uct_cuda_ctx_push(rsc->devices[i].ctx) != UCS_OK)) {
            continue;
        }

        release_staging(rsc, &rsc->staging[i]);
        /* any context will do for memory outside the GPUs */
        for (k = UCT_CUDA_MAX_GPUS; k < UCT_CUDA_RUN_NUM_STAGING; ++k) {
            release_staging(rsc, &rsc->staging[k]);
        }
        uct_cuda_ctx_pop();
    }

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        device = &rsc->devices[i];
        if ((device->ctx != NULL) &&
            (uct_cuda_ctx_push(device->ctx) == UCS_OK)) {
            destroy_device(device);
            uct_cuda_ctx_pop();
        }
    }

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        free(rsc->devices[i].pool.events);
        if (rsc->devices[i].ctx != NULL) {
            uct_cuda_ctx_release((int)i);
        }
    }

    free(rsc);
}
