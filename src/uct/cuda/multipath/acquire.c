/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Third phase of a transfer: contexts, streams, staging memory and mappings of
 * its plan. A resource that is not available becomes a constraint for the
 * planner.
 */
#include <uct/cuda/multipath/core.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>

#include <string.h>


/* Shortest time until relays out of memory are tried again, ns */
#define FULL_NS (1000ul * 1000 * 1000)

/* Allocations in a row that a relay fails to map before it is dropped for good:
 * some may have been freed */
#define MAX_REFUSED 3


/* Path of a plan with an unavailable resource */
typedef struct {
    unsigned path; /* index in the plan */
    uint16_t link; /* link of the path that is unreachable, if one is */
} failed_t;


static uct_cuda_mp_kind_t *kind_of_plan(uct_cuda_mp_core_t *core)
{
    return &core->kinds[uct_cuda_mp_kind(core->plan.src, core->plan.dst)];
}

static uct_cuda_end_t failed_via(const uct_cuda_mp_core_t *core,
                                 const failed_t *failed)
{
    return core->plan.paths[failed->path].via;
}

static void drop_link(uct_cuda_plan_constraints_t *constraints, uint16_t link)
{
    constraints->absent_links[link / UCT_CUDA_NUM_ENDS] |=
            uct_cuda_end_bit(uct_cuda_plan_link_to(link));
}

static void log_failed(const uct_cuda_mp_core_t *core, const failed_t *failed,
                       ucs_status_t status)
{
    const uct_cuda_plan_t *plan = &core->plan;
    char name[16], from[16], to[16];

    uct_cuda_plan_path_str(failed_via(core, failed), name, sizeof(name));
    uct_cuda_end_str(plan->src, from, sizeof(from));
    uct_cuda_end_str(plan->dst, to, sizeof(to));
    if (status == UCS_ERR_UNREACHABLE) {
        uct_cuda_info("path \"%s\" from %s to %s is not available; using other "
                      "paths",
                      name, from, to);
    } else if (status == UCS_ERR_NO_MEMORY) {
        uct_cuda_warn("path \"%s\" from %s to %s is out of memory; using "
                      "other paths for %.0f s",
                      name, from, to, (double)core->full_ns * 1e-9);
    } else {
        uct_cuda_warn("path \"%s\" from %s to %s could not be set up (see "
                      "above); using other paths from now on",
                      name, from, to);
    }
}

/* Exclude a failed path from later plans: its relay, the link that is
 * unreachable, or for some time a relay out of memory */
static void constrain_path(uct_cuda_mp_core_t *core, const failed_t *failed,
                           ucs_status_t status)
{
    const uct_cuda_plan_t *plan              = &core->plan;
    const uct_cuda_end_t via                 = failed_via(core, failed);
    uct_cuda_plan_constraints_t *constraints = &kind_of_plan(core)->constraints;
    int kind;

    if (status == UCS_ERR_UNREACHABLE) {
        drop_link(constraints, failed->link);
    } else if (uct_cuda_end_is_none(via)) {
        drop_link(constraints, uct_cuda_plan_link(plan->src, plan->dst));
        status = UCS_ERR_IO_ERROR; /* for good, also without memory */
    } else if (status == UCS_ERR_NO_MEMORY) {
        if (core->full == 0) {
            core->full_ns = 2 * core->full_ns + FULL_NS;
        }
        core->full      |= uct_cuda_end_bit(via);
        core->full_until = uct_cuda_now_ns() + core->full_ns;
        log_failed(core, failed, status);
        return; /* minimum sizes do not depend on it */
    } else {
        core->absent |= uct_cuda_end_bit(via);
    }

    log_failed(core, failed, status);
    /* overwrites the plan */
    for (kind = 0; kind < UCT_CUDA_MP_NUM_KINDS; ++kind) {
        uct_cuda_mp_core_update_min_size(core, kind);
    }
}

/* Constrain a path whose relay failed to map the remote end: until the next
 * allocation, or for good after MAX_REFUSED failures in a row */
static void refuse_path(uct_cuda_mp_core_t *core, const failed_t *failed,
                        uint64_t allocation)
{
    uct_cuda_mp_refused_t *refused = &kind_of_plan(core)->refused;

    if (++refused->count[uct_cuda_end_index(failed_via(core, failed))] <
        MAX_REFUSED) {
        drop_link(&refused->last, failed->link);
        refused->allocation = allocation;
        refused->is_pending = true;
    }

    constrain_path(core, failed, UCS_ERR_UNREACHABLE);
}

/* Reset the failures of relays that mapped the remote end */
static void accept_paths(uct_cuda_mp_core_t *core)
{
    const uct_cuda_plan_t *plan = &core->plan;
    uint8_t *count              = kind_of_plan(core)->refused.count;
    uct_cuda_end_t via;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        via = plan->paths[i].via;
        if (!uct_cuda_end_is_none(via)) {
            count[uct_cuda_end_index(via)] = 0;
        }
    }
}

void uct_cuda_mp_acquire_drop_constraints(uct_cuda_mp_core_t *core, int kind,
                                          uint64_t allocation)
{
    uct_cuda_plan_constraints_t *constraints = &core->kinds[kind].constraints;
    uct_cuda_mp_refused_t *refused           = &core->kinds[kind].refused;
    unsigned i;

    if ((core->full != 0) && (uct_cuda_now_ns() >= core->full_until)) {
        core->full = 0;
    }

    if (!refused->is_pending || (refused->allocation == allocation)) {
        return;
    }

    for (i = 0; i < UCT_CUDA_NUM_ENDS; ++i) {
        constraints->absent_links[i] &= ~refused->last.absent_links[i];
    }

    refused->is_pending = false;
    memset(&refused->last, 0, sizeof(refused->last));
    uct_cuda_mp_core_update_min_size(core, kind);
}

/* Map the remote end in the current context */
static ucs_status_t map_here(uct_cuda_run_memory_t *memory, int device)
{
    CUdeviceptr *mapped = &memory->mapped[device];

    if (memory->map(memory->map_arg, device, mapped) == UCS_OK) {
        return UCS_OK;
    }

    *mapped = 0;
    return UCS_ERR_UNREACHABLE;
}

/* Map the remote end in the context of a device */
static ucs_status_t map_in(uct_cuda_mp_core_t *core,
                           uct_cuda_run_memory_t *memory, int device)
{
    ucs_status_t status;

    if (memory->mapped[device] != 0) {
        return UCS_OK;
    }

    status = uct_cuda_ctx_push(uct_cuda_run_rsc_ctx(core->rsc, device));
    if (status == UCS_OK) {
        status = map_here(memory, device);
        uct_cuda_ctx_pop();
    }

    return status;
}

/* Map the remote end in the transport's current context. A plain copy needs the
 * same mapping. */
static bool
map_local(const uct_cuda_plan_t *plan, uct_cuda_run_memory_t *memory)
{
    return uct_cuda_end_is_none(plan->remote) ||
           uct_cuda_plan_is_host(plan) ||
           (memory->mapped[plan->local] != 0) ||
           (map_here(memory, plan->local) == UCS_OK);
}

/* Map the remote end for each GPU whose copies access it */
static ucs_status_t map_path(uct_cuda_mp_core_t *core,
                             uct_cuda_run_memory_t *memory, failed_t *failed)
{
    const uct_cuda_plan_t *plan = &core->plan;
    ucs_status_t status         = UCS_OK;
    uint16_t links[UCT_CUDA_PLAN_MAX_HOPS];
    unsigned i, count;

    count = uct_cuda_plan_path_links(plan, failed_via(core, failed),
                                     links);
    for (i = 0; (status == UCS_OK) && (i < count); ++i) {
        failed->link = links[i];
        if (uct_cuda_end_equal(uct_cuda_plan_link_from(links[i]),
                               plan->remote) ||
            uct_cuda_end_equal(uct_cuda_plan_link_to(links[i]), plan->remote)) {
            status = map_in(core, memory,
                            uct_cuda_plan_link_device(plan, links[i]));
        }
    }

    return status;
}

/* Map the remote end for all paths */
static ucs_status_t map_paths(uct_cuda_mp_core_t *core,
                              uct_cuda_run_memory_t *memory, failed_t *failed)
{
    ucs_status_t status = UCS_OK;
    unsigned i;

    for (i = 0; (status == UCS_OK) && (i < core->plan.num_paths); ++i) {
        failed->path = i;
        status       = map_path(core, memory, failed);
    }

    return status;
}

/* Return whether transfers may run without the host path until it is ready: the
 * user has set none of HOST, PATHS and START */
static bool may_be_late(const uct_cuda_mp_core_t *core)
{
    const uct_cuda_plan_config_t *config = &core->config;

    return (config->start == UCT_CUDA_PLAN_START_AUTO) &&
           (config->host == UCT_CUDA_PLAN_AUTO) && (config->num_paths == 0);
}

uct_cuda_mp_acquired_t
uct_cuda_mp_acquire(uct_cuda_mp_core_t *core, uct_cuda_run_memory_t *memory,
                    uint32_t *absent)
{
    const bool nobody_waits = (core->config.start ==
                               UCT_CUDA_PLAN_START_BACKGROUND);
    ucs_status_t status     = UCS_OK;
    failed_t failed         = {0};

    if (!map_local(&core->plan, memory)) {
        return UCT_CUDA_MP_GIVE_UP;
    }

    if (nobody_waits || may_be_late(core)) {
        status = uct_cuda_run_background_check(core->background, &core->plan,
                                               nobody_waits, absent,
                                               &failed.path);
    }

    if (status == UCS_INPROGRESS) {
        return (*absent == UCT_CUDA_RUN_ABSENT_ALL) ? UCT_CUDA_MP_GIVE_UP :
                                                     UCT_CUDA_MP_REPLAN;
    }

    if (status == UCS_OK) {
        status = uct_cuda_run_rsc_prepare(core->rsc, &core->plan, memory,
                                          &failed.path, &failed.link);
    }

    /* each new plan has fewer paths, so the caller's loop ends */
    if (status != UCS_OK) {
        constrain_path(core, &failed, status);
        return UCT_CUDA_MP_REPLAN;
    }

    if (core->full == 0) {
        core->full_ns = 0;
    }

    if (uct_cuda_end_is_none(core->plan.remote)) {
        return UCT_CUDA_MP_ACQUIRED;
    } else if (map_paths(core, memory, &failed) == UCS_OK) {
        accept_paths(core);
        return UCT_CUDA_MP_ACQUIRED;
    } else if (uct_cuda_end_is_none(failed_via(core, &failed))) {
        return UCT_CUDA_MP_GIVE_UP; /* a plain copy would fail, too */
    }

    refuse_path(core, &failed, memory->allocation);
    return UCT_CUDA_MP_REPLAN;
}
