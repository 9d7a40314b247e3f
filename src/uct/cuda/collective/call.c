/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One collective call from start to end.
 *
 * All ranks decide the same, because each decides by the announcements of all
 * ranks and by its memory of earlier calls: both are the same on all ranks.
 */
#include <uct/cuda/collective/call.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/collective/options.h>

#include <stdio.h>
#include <string.h>


/* Largest element of a copy, bytes; kernels may use wider loads */
#define MAX_COPY_ELEMENT 8

/* After MAX_FAULTS calls in a row failed to create a resource, the next
 * PAUSE_CALLS calls are not tried */
#define MAX_FAULTS   3
#define PAUSE_CALLS  64


typedef uct_cuda_coll_buffer_t    buffer_t;
typedef uct_cuda_coll_operation_t call_t;


static struct {
    uint64_t done, staged;
} totals;

void uct_cuda_coll_counts(uint64_t *done_p, uint64_t *staged_p)
{
    *done_p   = __atomic_load_n(&totals.done, __ATOMIC_RELAXED);
    *staged_p = __atomic_load_n(&totals.staged, __ATOMIC_RELAXED);
}


/* ------------------------------------------------------------------- plans */

static bool schedule_fits(const uct_cuda_coll_kept_schedule_t *kept,
                          const uct_cuda_plan_coll_t *signature)
{
    const uct_cuda_plan_coll_t *plan = kept->plan;

    return (kept->schedule != NULL) && (plan->kind == signature->kind) &&
           (plan->root == signature->root) &&
           (plan->bytes == signature->bytes) &&
           (plan->element == signature->element) &&
           (plan->is_in_place == signature->is_in_place) &&
           (memcmp(plan->blocks, signature->blocks, sizeof(plan->blocks)) == 0);
}

static ucs_status_t team_plan(uct_cuda_coll_team_t *team,
                              const uct_cuda_plan_coll_request_t *request,
                              uct_cuda_run_schedule_t **schedule_p)
{
    uct_cuda_plan_coll_t plan;
    ucs_status_t status;

    if (team->plan_cache == NULL) {
        team->plan_cache = uct_cuda_plan_cache_create();
    }
    status = uct_cuda_plan_cache_get(team->plan_cache, request, &plan);
    return (status != UCS_OK) ?
                   status :
                   uct_cuda_run_schedule_create(&plan, team->agreement.rank,
                                                schedule_p);
}

/* Find the plan of this call in the cache; it holds the same plans on all
 * ranks. @return false: kept has the place of a new plan */
static bool call_has_schedule(call_t *call, uct_cuda_coll_team_t *team)
{
    uct_cuda_coll_kept_schedule_t *kept = &team->schedules[0];
    unsigned i;

    for (i = 0; i < UCT_CUDA_COLL_MAX_SCHEDULES; ++i) {
        if (schedule_fits(&team->schedules[i], &call->signature)) {
            call->kept = &team->schedules[i];
            return true;
        }
        if (team->schedules[i].used < kept->used) {
            kept = &team->schedules[i];
        }
    }

    call->kept = kept;
    return false;
}

static void kept_drop(uct_cuda_coll_kept_schedule_t *kept)
{
    uct_cuda_run_schedule_destroy(kept->schedule);
    kept->schedule = NULL;
}


/* ----------------------------------------------------------------- request */

/* Compute the fields specific to this rank. @return false: no kernel
 * for the operation and type */
static bool call_measure(call_t *call, unsigned num_ranks)
{
    const uct_cuda_coll_call_t *what = call->what;

    call->reduces           = uct_cuda_coll_kind(what->kind)->reduces;
    call->request.num_ranks = num_ranks;
    call->request.kind      = what->kind;
    call->request.root      = uct_cuda_coll_kind(what->kind)->has_root ?
                                      what->root :
                                      0;
    if (((unsigned)what->type >= UCX_MP_TYPE_LAST) ||
        (call->reduces && !ucx_mp_kernel_is_known(what->op, what->type))) {
        return false;
    }

    call->size = ucx_mp_type_size(what->type);
    call->op   = UCX_MP_OP_BOR; /* placeholder for copies */
    call->type = UCX_MP_TYPE_U8;
    if (call->reduces) {
        call->op   = (ucx_mp_op_t)what->op;
        call->type = (ucx_mp_type_t)what->type;
    }
    return true;
}

/* Describe the call in elements of this many bytes */
static ucs_status_t call_signature(call_t *call, uint32_t element,
                                   bool is_in_place)
{
    const uct_cuda_coll_call_t *what = call->what;
    uct_cuda_plan_coll_request_t *request = &call->request;
    unsigned rank;

    request->count       = what->count * call->size / element;
    request->counts      = (what->counts != NULL) ? call->counts : NULL;
    request->element     = element;
    request->is_in_place = is_in_place;
    for (rank = 0; (what->counts != NULL) && (rank < request->num_ranks);
         ++rank) {
        if (what->counts[rank] > UCT_CUDA_PLAN_COLL_MAX_COUNT) {
            return UCS_ERR_INVALID_PARAM;
        }
        call->counts[rank] = what->counts[rank] * call->size / element;
    }
    return (what->count > UCT_CUDA_PLAN_COLL_MAX_COUNT) ?
                   UCS_ERR_INVALID_PARAM :
                   uct_cuda_plan_coll_signature(request, &call->signature);
}

/* Return the widest element to which all buffers and blocks are aligned,
 * bytes */
static uint32_t call_element(const call_t *call,
                             const uct_cuda_node_announcement_t *posts)
{
    uint64_t bits = MAX_COPY_ELEMENT | call->signature.bytes;
    unsigned rank;

    for (rank = 0; rank < call->request.num_ranks; ++rank) {
        bits |= posts[rank].send.offset | posts[rank].recv.offset |
                call->signature.blocks[rank];
    }
    return (uint32_t)(bits & -bits);
}

/* Build the planner's request, the same on all ranks */
static ucs_status_t call_settle(call_t *call,
                                const uct_cuda_coll_team_t *team)
{
    static const ucx_mp_type_t copies[] = {
        [1] = UCX_MP_TYPE_U8, [2] = UCX_MP_TYPE_U16, [4] = UCX_MP_TYPE_U32,
        [8] = UCX_MP_TYPE_U64
    };
    const uct_cuda_coll_agreement_t *agreement   = &team->agreement;
    const uct_cuda_node_control_common_t *common = uct_cuda_node_control_common(
            agreement->control);
    uct_cuda_plan_coll_request_t *request           = &call->request;
    uint32_t element                                = call->size;

    if (!call->reduces) {
        element    = call_element(call, agreement->posts);
        call->type = copies[element];
    }
    request->topo        = &agreement->topo;
    request->max_scratch = UCT_CUDA_PLAN_COLL_MAX_SCRATCH;
    request->algorithm   = common->algorithm;
    request->chunks      = UCT_CUDA_PLAN_COLL_AUTO;
    request->multipath   = team->has_no_relays ? 0 : common->multipath;
    request->transfers   = &agreement->transfers;
    memcpy(request->gpus, agreement->gpus, sizeof(request->gpus));
    return call_signature(call, element,
                          agreement->posts[request->root].is_in_place);
}


/* ------------------------------------------------------------ announcement */

/* Decline the call on this rank. @return false */
static bool team_fall_back(uct_cuda_coll_team_t *team,
                           uct_cuda_coll_reason_t reason, ucs_status_t status)
{
    uct_cuda_coll_agree_decline(&team->agreement, reason, status);
    return false;
}

/* Return whether a buffer is absent, or aligned and in GPU memory; @a memory is
 * filled unless it is absent. Otherwise this rank has declined. */
static bool buffer_query(const buffer_t *buffer, int type,
                         uct_cuda_coll_team_t *team,
                         uct_cuda_memory_t *memory)
{
    if (buffer->bytes == 0) {
        return true;
    }

    uct_cuda_memory_query(buffer->address, buffer->bytes, memory);
    uct_cuda_memory_sync_memops(memory);
    if ((memory->type != UCS_MEMORY_TYPE_CUDA) ||
        !uct_cuda_end_is_gpu(memory->end)) {
        return team_fall_back(team, UCT_CUDA_COLL_NO_HOST, UCS_OK);
    }

    return ((uintptr_t)buffer->address % ucx_mp_type_align(type) == 0) ||
           team_fall_back(team, UCT_CUDA_COLL_NO_ALIGNMENT, UCS_OK);
}

/* Hash the counts of blocks; never 0 */
static uint32_t hash_counts(const uint64_t *counts, unsigned num_ranks)
{
    uint32_t hash = UCT_CUDA_HASH32;
    unsigned rank;

    for (rank = 0; rank < num_ranks; ++rank) {
        hash = uct_cuda_hash32(hash, (uint32_t)counts[rank]);
        hash = uct_cuda_hash32(hash, (uint32_t)(counts[rank] >> 32));
    }
    return (hash == 0) ? 1 : hash;
}

/* Fill in the announcement of this rank's arguments, except for buffers */
static void call_fill(const call_t *call, uct_cuda_node_announcement_t *post)
{
    const uct_cuda_coll_call_t *what      = call->what;
    const uct_cuda_plan_coll_t *signature = &call->signature;

    post->kind        = UCT_CUDA_NODE_ANNOUNCE_GPU;
    post->call        = signature->kind;
    post->root        = signature->root;
    post->bytes       = what->count * call->size;
    post->op          = call->reduces ? (uint8_t)what->op : 0;
    post->type        = (uint8_t)what->type;
    post->is_in_place = signature->is_in_place;
    if (what->counts != NULL) {
        post->bytes  = signature->bytes;
        post->counts = hash_counts(what->counts, signature->num_ranks);
    }
}

/* Export this rank's buffers and fill in their locations in its announcement.
 * @return Status of the export */
static ucs_status_t call_show(const call_t *call,
                              uct_cuda_coll_memory_t *memory,
                              const uct_cuda_memory_t *send,
                              const uct_cuda_memory_t *recv,
                              uct_cuda_node_announcement_t *post)
{
    ucs_status_t status = UCS_OK;

    post->is_lost = memory->is_lost;
    if (call->recv.bytes > 0) {
        status = uct_cuda_coll_memory_export(memory, call->recv.address,
                                             call->recv.bytes, recv, post,
                                             &post->recv);
    }
    if ((status == UCS_OK) && (call->send.bytes > 0)) {
        status = uct_cuda_coll_memory_export(memory, call->send.address,
                                             call->send.bytes, send, post,
                                             &post->send);
    }

    /* Name the other buffer in place of an absent one; no step uses it */
    if (call->send.bytes == 0) {
        post->send = post->recv;
    } else if (call->recv.bytes == 0) {
        post->recv = post->send;
    }
    return status;
}

/* Check the request and this rank's buffers. @return true: GPUs can carry it
 * out; false: this rank has declined */
static bool call_find(call_t *call, uct_cuda_coll_team_t *team,
                      uct_cuda_memory_t *send, uct_cuda_memory_t *recv)
{
    const uct_cuda_plan_coll_t *signature = &call->signature;
    const unsigned rank                   = team->agreement.rank;

    if (call_signature(call, call->size, call->what->is_in_place) != UCS_OK) {
        return team_fall_back(team, UCT_CUDA_COLL_NO_LIMITS, UCS_OK);
    }

    team->agreement.bytes  = signature->bytes;
    call->recv.address     = call->what->recvbuf;
    call->recv.bytes       = uct_cuda_plan_coll_size(signature, rank,
                                                     UCT_CUDA_BUFFER_RECV);
    call->send.address     = call->what->sendbuf;
    if (!uct_cuda_plan_coll_is_same(signature, rank)) {
        call->send.bytes = uct_cuda_plan_coll_size(signature, rank,
                                                   UCT_CUDA_BUFFER_SEND);
    }
    if ((call->recv.bytes == 0) && (call->send.bytes == 0)) {
        return team_fall_back(team, UCT_CUDA_COLL_NO_BYTES, UCS_OK);
    }

    return buffer_query(&call->recv, call->what->type, team, recv) &&
           buffer_query(&call->send, call->what->type, team, send);
}

/* Switch the team to the current context, that of the buffers, and load the
 * call's kernel. Loading may wait for a GPU that itself waits for the program:
 * if the GPU is busy, decline the call instead, so that all ranks fall back.
 * Ignore other failures to load: call_prepare() loads again and reports them.
 * @return false: this rank has declined */
static bool call_enter(const call_t *call, uct_cuda_coll_team_t *team,
                       int device)
{
    ucs_status_t status;

    status = uct_cuda_coll_memory_enter(&team->memory, device);
    if (status != UCS_OK) {
        return team_fall_back(team, UCT_CUDA_COLL_NO_CONTEXT, status);
    }

    return (uct_cuda_run_coll_device_load(team->memory.device, call->op,
                                          call->type) != UCS_ERR_BUSY) ||
           team_fall_back(team, UCT_CUDA_COLL_NO_BUSY, UCS_OK);
}

/* Check that the GPUs can do this rank's part, export its buffers, fill its
 * announcement, and enter the context of its buffers. @return false: this rank
 * has declined. The caller leaves it in both cases: after a late failure it is
 * still current. */
static bool call_describe(call_t *call, uct_cuda_coll_team_t *team,
                          uct_cuda_ctx_scope_t *pushed,
                          uct_cuda_node_announcement_t *post)
{
    uct_cuda_memory_t send, recv;
    const uct_cuda_memory_t *one = &send;
    ucs_status_t status;
    int device;

    if (!call_find(call, team, &send, &recv)) {
        return false;
    }

    if (call->recv.bytes > 0) {
        one = &recv;
        if ((call->send.bytes > 0) &&
            (!uct_cuda_end_equal(recv.end, send.end) ||
             (recv.context != send.context))) {
            return team_fall_back(team, UCT_CUDA_COLL_NO_ONE_GPU, UCS_OK);
        }
    }

    device = uct_cuda_end_device(one->end);
    status = uct_cuda_ctx_enter(one->context, device, pushed);
    if (status != UCS_OK) {
        return team_fall_back(team, UCT_CUDA_COLL_NO_CONTEXT, status);
    }

    if (call_enter(call, team, device)) {
        call_fill(call, post);
        status = call_show(call, &team->memory, &send, &recv, post);
        if (status == UCS_OK) {
            return true;
        }
        (void)team_fall_back(team, UCT_CUDA_COLL_NO_EXPORT, status);
    }
    return false;
}


/* ----------------------------------------------------------------- the call */

/* Forget mappings, kernels and schedules, and find the ranks' GPUs anew: a rank
 * has changed its context, and its resources are gone. All ranks do this in the
 * same call. */
static void team_forget(uct_cuda_coll_team_t *team)
{
    memset(team->has_kernel, 0, sizeof(team->has_kernel));
    uct_cuda_coll_memory_drop_mapped(&team->memory);
    uct_cuda_coll_team_drop_schedules(team);
    team->is_off = !uct_cuda_coll_agree_find_gpus(&team->agreement);
    if (!team->is_off && !team->has_links) {
        uct_cuda_coll_links_get(&team->agreement.topo);
        team->has_links = true;
    }
}

/* Return whether a resource must be created or mapped before this call; the
 * same answer on all ranks */
static bool call_is_new(const call_t *call, const uct_cuda_coll_team_t *team,
                        const uct_cuda_plan_coll_t *plan)
{
    return team->agreement.is_new ||
           !team->has_kernel[call->op][call->type] ||
           !uct_cuda_coll_memory_has(&team->memory, plan);
}

/* Handle a failed preparation; all ranks take the same branch. After a busy
 * GPU, only this call falls back. Without a relay's memory, later calls use no
 * relays. After a resource could not be created, the next call will probably
 * fail, too: after MAX_FAULTS such calls in a row, pause for PAUSE_CALLS calls.
 * A failed mapping concerns this call's buffers only. */
static void team_give_up(uct_cuda_coll_team_t *team)
{
    uct_cuda_coll_fallback_t *fallback = &team->agreement.fallback;

    if (fallback->status == UCS_ERR_BUSY) {
        fallback->reason = UCT_CUDA_COLL_NO_UNMAP;
    } else if (fallback->status == UCT_CUDA_COLL_NO_RELAY) {
        uct_cuda_debug("collectives: using no relays from now on");
        team->has_no_relays = true;
        uct_cuda_coll_memory_free_relays(&team->memory);
        uct_cuda_coll_team_drop_schedules(team);
    } else if ((fallback->reason == UCT_CUDA_COLL_FAULT_MAKE) &&
               (++team->faults >= MAX_FAULTS)) {
        team->resume = team->agreement.sequence + 1 + PAUSE_CALLS;
    }
}

/* Return whether a result can overwrite an input: in place, or in overlapping
 * buffers; the same answer on all ranks */
static bool call_overwrites(const call_t *call,
                            const uct_cuda_node_announcement_t *posts)
{
    const uct_cuda_node_announcement_t *post;
    uint64_t sent, received;
    unsigned rank;

    if (!call->reduces) {
        return false;
    }

    for (rank = 0; rank < call->request.num_ranks; ++rank) {
        post     = &posts[rank];
        sent     = uct_cuda_plan_coll_size(&call->signature, rank,
                                           UCT_CUDA_BUFFER_SEND);
        received = uct_cuda_plan_coll_size(&call->signature, rank,
                                           UCT_CUDA_BUFFER_RECV);
        if (post->is_in_place ||
            ((post->send.index == post->recv.index) &&
             (post->send.offset < post->recv.offset + received) &&
             (post->recv.offset < post->send.offset + sent))) {
            return true;
        }
    }
    return false;
}

/* Fall back for a reason known to all ranks */
static uct_cuda_coll_result_t
team_stage(uct_cuda_coll_team_t *team, uct_cuda_coll_reason_t reason,
           ucs_status_t status)
{
    uct_cuda_coll_agree_set_reason(&team->agreement, reason, UCT_CUDA_COLL_ALL,
                                   status);
    return UCT_CUDA_COLL_STAGE;
}

static uct_cuda_coll_result_t call_reach(call_t *call,
                                         uct_cuda_coll_team_t *team,
                                         uct_cuda_node_phase_t phase,
                                         ucs_status_t status)
{
    uct_cuda_coll_agree_reach(&team->agreement, phase, status);
    call->state = UCT_CUDA_COLL_OPERATION_PLANNED + phase;
    return UCT_CUDA_COLL_PENDING;
}

static uct_cuda_coll_result_t call_start_steps(call_t *call,
                                               uct_cuda_coll_team_t *team)
{
    call->steps_began = uct_cuda_trace_now();
    uct_cuda_coll_memory_place(&team->memory, call->kept->plan, &call->run);
    uct_cuda_coll_agree_run(&team->agreement);
    uct_cuda_coll_links_begin(&call->kept->links);
    call->begun = uct_cuda_run_schedule_begin(call->kept->schedule, &call->run);
    call->state = UCT_CUDA_COLL_OPERATION_RUNNING;
    return UCT_CUDA_COLL_PENDING;
}

/* Prepare the call, together with all ranks if its plan is new. No rank runs
 * before all ranks are prepared. */
static uct_cuda_coll_result_t call_prepare(call_t *call,
                                           uct_cuda_coll_team_t *team,
                                           bool is_new)
{
    uct_cuda_coll_agreement_t *agreement = &team->agreement;
    uct_cuda_run_coll_call_t *run        = &call->run;
    ucs_status_t status;

    call->kept->used = agreement->sequence;
    run->device      = team->memory.device;
    run->events      = &team->memory.events;
    run->control     = agreement->control;
    run->sequence    = agreement->sequence;
    run->op          = call->op;
    run->type        = call->type;
    run->gpus        = agreement->gpus;
    run->level       = uct_cuda_coll_wait_level();
    if (!is_new && !call_is_new(call, team, call->kept->plan)) {
        return call_start_steps(call, team);
    }

    status = uct_cuda_coll_memory_make(&team->memory, call->kept->plan);
    if (status == UCS_OK) {
        status = uct_cuda_run_coll_device_load(run->device, run->op, run->type);
    }
    if (status == UCS_OK) {
        status = uct_cuda_run_schedule_prepare(call->kept->schedule, run);
    }
    return call_reach(call, team, UCT_CUDA_NODE_PHASE_MADE, status);
}

/* Find or make the plan of a call that all ranks make alike. With a cached plan
 * the call is prepared at once; otherwise ranks meet in phase PLANNED first,
 * also if one has no plan. */
static uct_cuda_coll_result_t call_plan(call_t *call,
                                        uct_cuda_coll_team_t *team)
{
    uct_cuda_coll_agreement_t *agreement = &team->agreement;
    ucs_status_t status;

    uct_cuda_node_cache_collective(true);
    if (agreement->is_lost) {
        team_forget(team);
    }

    if (team->is_off) {
        return team_stage(team, UCT_CUDA_COLL_NO_GPUS, UCS_OK);
    }

    /* Other calls may have a plan on these GPUs or need less memory. Ranks
     * leave together, after all have read the GPUs in the control block: the
     * next call may come from another GPU. */
    status = call_settle(call, team);
    if (status == UCS_OK) {
        if (call_has_schedule(call, team)) {
            return call_prepare(call, team, false);
        }
        kept_drop(call->kept);
        status = team_plan(team, &call->request, &call->kept->schedule);
    } else {
        status = UCS_ERR_INVALID_PARAM;
    }
    return call_reach(call, team, UCT_CUDA_NODE_PHASE_PLANNED, status);
}

static uct_cuda_coll_result_t call_planned(call_t *call,
                                           uct_cuda_coll_team_t *team,
                                           ucs_status_t status)
{
    uct_cuda_coll_agreement_t *agreement = &team->agreement;

    if (call->differs) {
        return UCT_CUDA_COLL_DIFFERS;
    }

    if (status != UCS_OK) {
        if (call->kept != NULL) {
            kept_drop(call->kept);
        }
        return (status == UCS_ERR_NO_RESOURCE) ?
                       team_stage(team, UCT_CUDA_COLL_NO_SCRATCH, status) :
                       UCT_CUDA_COLL_STAGE;
    }

    call->kept->plan = uct_cuda_run_schedule_plan(call->kept->schedule);
    uct_cuda_coll_links_find(call->kept->plan, agreement->rank,
                             &agreement->topo, agreement->gpus,
                             &call->kept->links);
    return call_prepare(call, team, true);
}

/* Start the steps, as all ranks have prepared the call; or fall back, as one
 * has failed (`status`, the same on all ranks) */
static uct_cuda_coll_result_t call_ready(call_t *call,
                                         uct_cuda_coll_team_t *team,
                                         ucs_status_t status)
{
    const uct_cuda_plan_coll_t *plan = call->kept->plan;

    uct_cuda_coll_memory_mapped(&team->memory, plan, status == UCS_OK);
    team->has_kernel[call->op][call->type] |= (status == UCS_OK);
    if (status != UCS_OK) {
        if (call->state == UCT_CUDA_COLL_OPERATION_MADE) {
            kept_drop(call->kept); /* a rank has not prepared it */
        }
        team_give_up(team);
        return UCT_CUDA_COLL_STAGE;
    }

    team->faults = 0;
    return call_start_steps(call, team);
}

static uct_cuda_coll_result_t call_over(call_t *call,
                                        uct_cuda_coll_team_t *team,
                                        ucs_status_t status)
{
    const uct_cuda_plan_coll_t *plan = call->kept->plan;

    call->plan = plan;
    uct_cuda_trace_call(uct_cuda_coll_kind(plan->kind)->name, plan->bytes,
                        uct_cuda_plan_coll_algorithm_str(plan->algorithm),
                        call->steps_began);
    if (status == UCS_OK) {
        return UCT_CUDA_COLL_DONE;
    }

    /* The inputs are intact unless a rank or its context is gone */
    return (call_overwrites(call, team->agreement.posts) ||
            (status == UCS_ERR_ENDPOINT_TIMEOUT)) ?
                   UCT_CUDA_COLL_FAILED :
                   UCT_CUDA_COLL_STAGE;
}

/* Advance the call by one state. @return PENDING: call again; @a is_waiting_p
 * says whether another rank or a GPU has to act first */
static uct_cuda_coll_result_t call_step(call_t *call,
                                        uct_cuda_coll_team_t *team,
                                        ucs_status_t waited, bool *is_waiting_p)
{
    uct_cuda_coll_agreement_t *agreement = &team->agreement;
    uct_cuda_coll_result_t result;
    ucs_status_t status;

    *is_waiting_p = false;
    switch (call->state) {
    case UCT_CUDA_COLL_OPERATION_AGREEING:
        result = uct_cuda_coll_agree_test(agreement, waited);
        if (result == UCT_CUDA_COLL_DONE) {
            return call_plan(call, team);
        } else if (result == UCT_CUDA_COLL_DIFFERS) {
            /* Leave together: a rank still reading would take an announcement
             * of the next call for a decline */
            call->differs = true;
            return call_reach(call, team, UCT_CUDA_NODE_PHASE_PLANNED, UCS_OK);
        }
        *is_waiting_p = (result == UCT_CUDA_COLL_PENDING);
        return result;
    case UCT_CUDA_COLL_OPERATION_RUNNING:
        status = (call->begun == UCS_OK) ? waited : call->begun;
        status = uct_cuda_run_schedule_test(call->kept->schedule, status);
        if (status != UCS_INPROGRESS) {
            uct_cuda_coll_links_end(&call->kept->links);
            return call_reach(call, team, UCT_CUDA_NODE_PHASE_DONE, status);
        }
        break;
    default:
        status = uct_cuda_coll_agree_reached(agreement, waited);
        if (status != UCS_INPROGRESS) {
            switch (call->state) {
            case UCT_CUDA_COLL_OPERATION_PLANNED:
                return call_planned(call, team, status);
            case UCT_CUDA_COLL_OPERATION_MADE:
                if (status == UCS_OK) {
                    uct_cuda_node_cache_collective(true);
                    status = uct_cuda_coll_memory_map(&team->memory,
                                                      call->kept->plan);
                    return call_reach(call, team, UCT_CUDA_NODE_PHASE_READY,
                                      status);
                }
                /* fall through */
            case UCT_CUDA_COLL_OPERATION_READY:
                return call_ready(call, team, status);
            default:
                return call_over(call, team, status);
            }
        }
        break;
    }

    *is_waiting_p = true;
    return UCT_CUDA_COLL_PENDING;
}

/* Return whether the native path of an MPI with GPU support is as fast as the
 * GPUs' plan: for an all-reduce, or a reduce-scatter of equal blocks, of at
 * most 16 KiB on ranks that share a GPU. Such ranks take turns on the GPU; the
 * native path sums so few bytes on the CPU, up to a tenth faster. Above 16 KiB
 * the plan is up to a tenth faster (two ranks on an H100, four on two;
 * docs/collectives-cuda-mpi.md). Each rank decides alone. A rank that does not
 * know the GPUs yet returns false, and then sees that the others decline. */
static bool call_is_native_as_fast(const call_t *call,
                                   const uct_cuda_coll_agreement_t *agreement)
{
    static const uint64_t most       = 16 << 10;
    const uct_cuda_coll_call_t *what = call->what;
    uint64_t blocks                  = 1;

    if (what->kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER) {
        blocks = agreement->size;
    } else if (what->kind != UCT_CUDA_COLL_KIND_ALLREDUCE) {
        return false;
    }

    return what->has_native_path && (what->counts == NULL) &&
           (what->count <= most / blocks / call->size) &&
           (agreement->topo.num_gpus > 0) &&
           uct_cuda_plan_coll_shares_gpus(agreement->gpus, agreement->size);
}

/* Format the reason for an algorithm, to print after its name: "as configured",
 * or name and modelled time of the best other algorithm, or "" if no other was
 * near. Returns buffer */
static const char *call_why(const call_t *call, char *buffer, size_t size)
{
    const uct_cuda_plan_coll_other_t *other = &call->plan->other;

    buffer[0] = '\0';
    if (call->request.algorithm != UCT_CUDA_PLAN_COLL_AUTO) {
        snprintf(buffer, size, " (as configured)");
    } else if (other->seconds > 0) {
        snprintf(buffer, size, " (%s: %.1f us)",
                 uct_cuda_plan_coll_algorithm_str(other->algorithm),
                 other->seconds * 1e6);
    }
    return buffer;
}

/* Log one line for the call */
static void call_log(const call_t *call,
                     const uct_cuda_coll_agreement_t *agreement,
                     uct_cuda_coll_result_t result, uint64_t taken)
{
    const uct_cuda_plan_coll_t *plan = call->plan;
    char head[128], why[192];

    uct_cuda_coll_agree_name(agreement, head, sizeof(head));
    if (result == UCT_CUDA_COLL_DIFFERS) {
        uct_cuda_debug("%s: differs: %s", head, agreement->why);
    } else if (result != UCT_CUDA_COLL_DONE) {
        uct_cuda_debug("%s: %s: %s", head,
                       (result == UCT_CUDA_COLL_FAILED) ?
                               "failed" :
                               "falls back to the MPI",
                       uct_cuda_coll_fallback_str(&agreement->fallback, why,
                                                  sizeof(why)));
    } else {
        uct_cuda_debug("%s: %s%s, %u step%s, %.1f us expected, %.1f us taken",
                       head, uct_cuda_plan_coll_algorithm_str(plan->algorithm),
                       call_why(call, why, sizeof(why)), plan->list.num_steps,
                       (plan->list.num_steps == 1) ? "" : "s",
                       plan->seconds * 1e6, (double)taken / 1e3);
    }
}

uct_cuda_coll_result_t
uct_cuda_coll_operation_begin(call_t *call, uct_cuda_coll_team_t *team,
                              uct_cuda_ctx_scope_t *pushed)
{
    uct_cuda_coll_agreement_t *agreement = &team->agreement;
    uct_cuda_node_announcement_t post    = {0};

    if (uct_cuda_log_is_on(UCT_CUDA_LOG_DEBUG)) {
        call->began = uct_cuda_now_ns();
    }
    pushed->is_pushed = false;
    uct_cuda_coll_agree_begin(agreement, call->what, call->why, call->why_size);
    if (uct_cuda_coll_operation_is_paused(team)) {
        return team_stage(team, team->is_off ? UCT_CUDA_COLL_NO_GPUS :
                                                  UCT_CUDA_COLL_PAUSE,
                          UCS_OK);
    } else if (!call_measure(call, agreement->size)) {
        (void)team_fall_back(team, UCT_CUDA_COLL_NO_DATATYPE, UCS_OK);
    } else if (call_is_native_as_fast(call, agreement)) {
        (void)team_fall_back(team, UCT_CUDA_COLL_NO_NATIVE_PATH, UCS_OK);
    } else if (call_describe(call, team, pushed, &post) &&
               uct_cuda_coll_agree_all_joined(agreement)) {
        uct_cuda_coll_agree_announce(agreement, &post);
        return UCT_CUDA_COLL_PENDING;
    }
    return UCT_CUDA_COLL_STAGE;
}

uct_cuda_coll_result_t
uct_cuda_coll_operation_test(call_t *call, uct_cuda_coll_team_t *team,
                             ucs_status_t waited)
{
    bool is_waiting = false;
    uct_cuda_coll_result_t result;

    do {
        result = call_step(call, team, waited, &is_waiting);
        /* a lost context is lost for the next steps, too */
        waited = (waited == UCS_ERR_NO_DEVICE) ? waited : UCS_OK;
    } while ((result == UCT_CUDA_COLL_PENDING) && !is_waiting);
    uct_cuda_node_cache_collective(false);
    return result;
}

void uct_cuda_coll_operation_end(const call_t *call,
                                 uct_cuda_coll_team_t *team,
                                 uct_cuda_coll_result_t result)
{
    __atomic_fetch_add((result == UCT_CUDA_COLL_DONE) ? &totals.done :
                                                        &totals.staged,
                       1, __ATOMIC_RELAXED);
    if (call->began != 0) {
        call_log(call, &team->agreement, result,
                 uct_cuda_now_ns() - call->began);
    }
}
