/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Third phase of a transfer: contexts, streams, staging memory and mappings of
 * its plan. A resource that is not available becomes a constraint for the
 * planner.
 */
#include <uct/cuda/multipath/core.h>

#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/log.h>

#include <string.h>


/* Staging memory shrinks to this size, bytes, before a path is dropped */
#define STAGING_MIN_SIZE (1ul << 20)

/* Allocations in a row that a relay fails to map before it is dropped for good:
 * some may have been freed */
#define MAX_REFUSED 3


static void drop_link(uct_cuda_plan_constraints_t *constraints,
                      uct_cuda_end_t from, uct_cuda_end_t to)
{
    constraints->absent_links[uct_cuda_end_index(from)] |= uct_cuda_end_bit(to);
}

/*
 * Drop the links between a relay and all GPUs, in the direction of its failed
 * hop. With UCS_ERR_UNREACHABLE drop only the link to or from @a end: an
 * unreachable pair says nothing about the relay's other links.
 */
static void drop_relay(uct_cuda_plan_constraints_t *constraints,
                       uct_cuda_end_t relay, uct_cuda_end_t end, bool is_first,
                       ucs_status_t status)
{
    uct_cuda_end_t other;
    int gpu;

    for (gpu = 0; gpu < UCT_CUDA_MAX_GPUS; ++gpu) {
        other = uct_cuda_end_gpu(gpu);
        if ((status != UCS_ERR_UNREACHABLE) || uct_cuda_end_equal(other, end)) {
            drop_link(constraints, is_first ? other : relay,
                      is_first ? relay : other);
        }
    }
}

/* Between GPUs host staging works for all of them or for none */
static void drop_host_staging(uct_cuda_plan_constraints_t *constraints)
{
    int gpu;

    for (gpu = 0; gpu < UCT_CUDA_MAX_GPUS; ++gpu) {
        drop_link(constraints, uct_cuda_end_gpu(gpu), uct_cuda_end_host());
        drop_link(constraints, uct_cuda_end_host(), uct_cuda_end_gpu(gpu));
    }
}

/* Drop the links of a path that failed, so later plans do not use them; log
 * it */
static void constrain_path(uct_cuda_mp_core_t *core,
                           const uct_cuda_plan_path_t *path,
                           ucs_status_t status)
{
    const uct_cuda_end_t src = core->plan.src;
    const uct_cuda_end_t dst = core->plan.dst;
    const uct_cuda_end_t via = uct_cuda_plan_path_via(path);
    const int kind           = uct_cuda_mp_kind(src, dst);
    char name[16], from[16], to[16];
    uct_cuda_plan_constraints_t *constraints = &core->kinds[kind].constraints;

    if (uct_cuda_end_is_none(via)) {
        drop_link(constraints, src, dst);
    } else if (uct_cuda_end_is_host(via)) {
        drop_host_staging(constraints);
    } else if (uct_cuda_end_is_host(src)) {
        drop_relay(constraints, via, dst, false, status);
    } else {
        drop_relay(constraints, via, src, true, status);
    }

    uct_cuda_plan_path_str(path, name, sizeof(name));
    uct_cuda_end_str(src, from, sizeof(from));
    uct_cuda_end_str(dst, to, sizeof(to));
    if (status == UCS_ERR_UNREACHABLE) {
        uct_cuda_info("path \"%s\" from %s to %s is not available; using other "
                      "paths", name, from,
                      to);
    } else {
        uct_cuda_warn("path \"%s\" from %s to %s could not be set up (%s); "
                      "using other paths from now on",
                      name, from, to,
                      (status == UCS_ERR_NO_MEMORY) ? "out of memory" :
                                                      "see above");
    }

    uct_cuda_mp_core_update_min_size(core, kind);
}

/* Return the relay of a path, -1: none */
static int relay_of(const uct_cuda_plan_path_t *path)
{
    const uct_cuda_end_t via = uct_cuda_plan_path_via(path);

    return uct_cuda_end_is_gpu(via) ? uct_cuda_end_device(via) : -1;
}

/* Constrain a path whose relay failed to map the remote end: until the next
 * allocation, or for good after MAX_REFUSED failures in a row */
static void refuse_path(uct_cuda_mp_core_t *core,
                        const uct_cuda_plan_path_t *path, uint64_t allocation,
                        ucs_status_t status)
{
    uct_cuda_mp_kind_t *kind = &core->kinds[uct_cuda_mp_kind(core->plan.src,
                                                             core->plan.dst)];
    const uct_cuda_plan_constraints_t before = kind->constraints;
    uct_cuda_mp_refused_t *refused           = &kind->refused;
    const int relay                          = relay_of(path);
    unsigned i;

    constrain_path(core, path, status);
    if ((relay < 0) || (++refused->count[relay] >= MAX_REFUSED)) {
        return;
    }

    for (i = 0; i < UCT_CUDA_NUM_ENDS; ++i) {
        refused->last.absent_links[i] |= kind->constraints.absent_links[i] &
                                         ~before.absent_links[i];
    }

    refused->allocation = allocation;
    refused->is_pending = true;
}

/* Reset the failures of relays that mapped the remote end */
static void accept_paths(uct_cuda_mp_core_t *core)
{
    const uct_cuda_plan_t *plan = &core->plan;
    uct_cuda_mp_refused_t *refused =
            &core->kinds[uct_cuda_mp_kind(plan->src, plan->dst)].refused;
    unsigned i;
    int relay;

    for (i = 0; i < plan->num_paths; ++i) {
        relay = relay_of(&plan->paths[i].path);
        if (relay >= 0) {
            refused->count[relay] = 0;
        }
    }
}

void uct_cuda_mp_acquire_drop_constraints(uct_cuda_mp_core_t *core, int kind,
                                          uint64_t allocation)
{
    uct_cuda_plan_constraints_t *constraints = &core->kinds[kind].constraints;
    uct_cuda_mp_refused_t *refused           = &core->kinds[kind].refused;
    unsigned i;

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

/* Reduce the staging memory of later plans after an allocation failed. Log it
 * once. @return false: it is at its minimum */
static bool constrain_staging(uct_cuda_mp_core_t *core)
{
    size_t size = core->kinds[0].constraints.staging_size;
    int kind;

    size = (size == 0) ? core->config.staging_size : size;
    if (size <= STAGING_MIN_SIZE) {
        return false;
    }

    size = (size / 4 < STAGING_MIN_SIZE) ? STAGING_MIN_SIZE : size / 4;
    for (kind = 0; kind < UCT_CUDA_MP_NUM_KINDS; ++kind) {
        core->kinds[kind].constraints.staging_size = size;
    }

    if (!core->is_shrink_logged) {
        core->is_shrink_logged = true;
        uct_cuda_warn("out of memory for staging: using less than "
                      "UCX_CUDA_IPC_MULTIPATH_STAGING_SIZE");
    }

    return true;
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

/* Map the remote end in the transport's current context, as needed for a plain
 * copy, too */
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
                             uct_cuda_run_memory_t *memory,
                             const uct_cuda_plan_path_t *path)
{
    const uct_cuda_plan_t *plan = &core->plan;
    ucs_status_t status         = UCS_OK;
    uint16_t links[UCT_CUDA_PLAN_MAX_HOPS];
    unsigned i, count;

    count = uct_cuda_plan_path_links(plan, path, links);
    for (i = 0; (status == UCS_OK) && (i < count); ++i) {
        if (uct_cuda_end_equal(uct_cuda_plan_link_from(links[i]),
                               plan->remote) ||
            uct_cuda_end_equal(uct_cuda_plan_link_to(links[i]), plan->remote)) {
            status = map_in(core, memory,
                            uct_cuda_plan_link_device(plan, links[i]));
        }
    }

    return status;
}

/* Prepare the resources of a plan. On failure set *path_p to the failed path;
 * *is_refused_p: a context failed to map the remote end; *is_gone_p: it was the
 * context of a plain copy, so the path is not at fault. */
static ucs_status_t
prepare(uct_cuda_mp_core_t *core, uct_cuda_run_memory_t *memory,
        unsigned *path_p, bool *is_refused_p, bool *is_gone_p)
{
    const uct_cuda_plan_t *plan = &core->plan;
    ucs_status_t status;
    unsigned i;

    status = uct_cuda_run_rsc_prepare(core->rsc, plan, memory, path_p);
    for (i = 0; (status == UCS_OK) && (i < plan->num_paths) &&
                !uct_cuda_end_is_none(plan->remote); ++i) {
        *path_p    = i;
        status     = map_path(core, memory, &plan->paths[i].path);

        *is_refused_p = (status != UCS_OK);
        *is_gone_p    = (status != UCS_OK) && (plan->paths[i].path.route ==
                                               UCT_CUDA_PLAN_ROUTE_DIRECT);
    }

    return status;
}

/* Return whether transfers may run without the host path until it is ready:
 * the user has requested neither the path, nor a number of paths, nor a way of
 * starting */
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
    bool is_refused         = false;
    bool is_gone            = false;
    unsigned failed;

    if (!map_local(&core->plan, memory)) {
        return UCT_CUDA_MP_GIVE_UP;
    }

    if (nobody_waits || may_be_late(core)) {
        status = uct_cuda_run_background_check(core->background, &core->plan,
                                               nobody_waits, absent, &failed);
    }

    if (status == UCS_INPROGRESS) {
        return (*absent == UCT_CUDA_RUN_ABSENT_ALL) ? UCT_CUDA_MP_GIVE_UP :
                                                     UCT_CUDA_MP_ASK_AGAIN;
    }

    if (status == UCS_OK) {
        status = prepare(core, memory, &failed, &is_refused, &is_gone);
    }

    if (status == UCS_OK) {
        if (!uct_cuda_end_is_none(core->plan.remote)) {
            accept_paths(core);
        }
        return UCT_CUDA_MP_ACQUIRED;
    } else if (is_gone) {
        return UCT_CUDA_MP_GIVE_UP;
    }

    if (is_refused) {
        refuse_path(core, &core->plan.paths[failed].path, memory->allocation,
                    status);
        return UCT_CUDA_MP_ASK_AGAIN;
    }

    /* each iteration leaves fewer paths or less staging memory, so the loop
     * ends */
    if ((status != UCS_ERR_NO_MEMORY) || !constrain_staging(core)) {
        constrain_path(core, &core->plan.paths[failed].path, status);
    }

    return UCT_CUDA_MP_ASK_AGAIN;
}
