/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls from their beginning to their end.
 *
 * All ranks decide alike, since each decides by what all have posted and by
 * what it remembers of earlier calls, which is the same on all.
 */
#include <uct/cuda/collective/call.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/gpu.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
#include <uct/cuda/collective/group.h>
#include <uct/cuda/collective/options.h>

#include <stdio.h>
#include <string.h>


/* Bytes of an element of a copy at most; kernels load as much as they like */
#define MAX_COPY_ELEMENT 8

/* After so many calls in a row in which something could not be made, the next
   ones are not tried */
#define MAX_FAULTS   3
#define PAUSE_CALLS  64


/* What is asked for, as this rank calls it and then as all have agreed on it */
typedef struct {
    uct_cuda_coll_group_t      *group;
    const uct_cuda_coll_call_t *what;
    uint32_t                   size; /* bytes of an element of it */
    uct_cuda_coll_request_t    request;
    uint64_t                   counts[UCT_CUDA_COLL_MAX_RANKS]; /* its */
    uct_cuda_coll_plan_t       frame; /* of its plan */
    ucx_mp_op_t                op;
    ucx_mp_type_t              type;
    uct_cuda_coll_post_t       post;   /* of this rank */
    uct_cuda_gpu_context_t     pushed; /* its buffers' */
    const uct_cuda_coll_plan_t *plan;  /* that was carried out, or NULL */
    const uct_cuda_coll_lanes_t *lanes; /* of this rank's part of it */
} call_t;


static struct {
    uint64_t done, staged;
} totals;

void uct_cuda_coll_counts(uint64_t *done_p, uint64_t *staged_p)
{
    *done_p   = __atomic_load_n(&totals.done, __ATOMIC_RELAXED);
    *staged_p = __atomic_load_n(&totals.staged, __ATOMIC_RELAXED);
}


/* ------------------------------------------------------------------- plans */

static bool program_fits(const uct_cuda_coll_kept_program_t *entry,
                         const uct_cuda_coll_plan_t *frame)
{
    const uct_cuda_coll_plan_t *plan;

    if (entry->program == NULL) {
        return false;
    }

    plan = uct_cuda_coll_program_plan(entry->program);
    return (plan->kind == frame->kind) && (plan->root == frame->root) &&
           (plan->bytes == frame->bytes) && (plan->element == frame->element) &&
           (plan->is_in_place == frame->is_in_place) &&
           (memcmp(plan->blocks, frame->blocks, sizeof(plan->blocks)) == 0);
}

/* What is to be planned, in elements of so many bytes */
static ucs_status_t call_request(call_t *call, uint32_t element,
                                 bool is_in_place)
{
    const uct_cuda_coll_agreement_t *agreement = &call->group->agreement;
    const uct_cuda_coll_common_t *common = uct_cuda_coll_page_common(
            agreement->page);
    const uct_cuda_coll_call_t *what     = call->what;
    const uint32_t size                  = call->size;
    uct_cuda_coll_request_t *request     = &call->request;
    unsigned rank;

    request->topo        = &agreement->topo;
    request->num_ranks   = agreement->size;
    request->kind        = what->kind;
    request->root        = uct_cuda_coll_kind_has_root(what->kind) ?
                                   what->root :
                                   0;
    request->count       = what->count * size / element;
    request->element     = element;
    request->is_in_place = is_in_place;
    request->max_scratch = UCT_CUDA_COLL_MAX_SCRATCH;
    request->algorithm   = common->algorithm;
    request->chunks      = UCT_CUDA_COLL_AUTO;
    request->multipath   = call->group->has_no_relays ? 0 : common->multipath;
    request->transfers   = &agreement->transfers;
    memcpy(request->gpus, agreement->gpus, sizeof(request->gpus));
    for (rank = 0; (what->counts != NULL) && (rank < agreement->size); ++rank) {
        if (what->counts[rank] > UCT_CUDA_COLL_MAX_COUNT) {
            return UCS_ERR_INVALID_PARAM;
        }
        call->counts[rank] = what->counts[rank] * size / element;
        request->counts    = call->counts;
    }
    return (what->count > UCT_CUDA_COLL_MAX_COUNT) ?
                   UCS_ERR_INVALID_PARAM :
                   uct_cuda_coll_frame(request, &call->frame);
}

static ucs_status_t call_plan(const call_t *call,
                              uct_cuda_coll_program_t **program_p)
{
    uct_cuda_coll_group_t *group = call->group;
    uct_cuda_coll_plan_t plan;
    ucs_status_t status;

    if (group->book == NULL) {
        group->book = uct_cuda_coll_book_create();
    }
    status = uct_cuda_coll_plan(group->book, &call->request, &plan);
    return (status != UCS_OK) ?
                   status :
                   uct_cuda_coll_program_create(&plan, group->agreement.rank,
                                                program_p);
}

/* The plan of this call, from those that were made already if it is there. The
   same ones are there on all ranks: what one cannot plan is on none. */
static ucs_status_t call_program(call_t *call,
                                 uct_cuda_coll_program_t **program_p)
{
    uct_cuda_coll_group_t *group        = call->group;
    uct_cuda_coll_kept_program_t *entry = &group->programs[0];
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < UCT_CUDA_COLL_MAX_PROGRAMS; ++i) {
        if (program_fits(&group->programs[i], &call->frame)) {
            entry = &group->programs[i];
            goto out;
        }
        if (group->programs[i].used < entry->used) {
            entry = &group->programs[i];
        }
    }

    uct_cuda_coll_program_destroy(entry->program);
    entry->program = NULL;
    status         = uct_cuda_coll_agree_meet(&group->agreement,
                                              UCT_CUDA_COLL_PHASE_PLANNED,
                                              call_plan(call, &entry->program));
    if (status != UCS_OK) {
        uct_cuda_coll_program_destroy(entry->program);
        entry->program = NULL;
        return status;
    }
    uct_cuda_coll_lanes_find(uct_cuda_coll_program_plan(entry->program),
                             group->agreement.rank, &group->agreement.topo,
                             group->agreement.gpus, &entry->lanes);

out:
    entry->used = group->agreement.sequence;
    call->lanes = &entry->lanes;
    *program_p  = entry->program;
    return UCS_OK;
}


/* Elements of a copy are as wide as all buffers and blocks are aligned */
static uint32_t call_element(const call_t *call)
{
    const uct_cuda_coll_agreement_t *agreement = &call->group->agreement;
    uint64_t bits                              = MAX_COPY_ELEMENT |
                                                 call->frame.bytes;
    unsigned rank;

    for (rank = 0; rank < agreement->size; ++rank) {
        bits |= agreement->posts[rank].send.offset |
                agreement->posts[rank].recv.offset | call->frame.blocks[rank];
    }
    return (uint32_t)(bits & -bits);
}

/* The plan's request, as all ranks have it */
static ucs_status_t call_settle(call_t *call)
{
    static const ucx_mp_type_t copies[] = {
        [1] = UCX_MP_TYPE_U8, [2] = UCX_MP_TYPE_U16, [4] = UCX_MP_TYPE_U32,
        [8] = UCX_MP_TYPE_U64
    };
    const uct_cuda_coll_call_t *what = call->what;
    const bool reduces               = uct_cuda_coll_kind_reduces(what->kind);
    const uint32_t element           = reduces ? call->frame.element :
                                                 call_element(call);
    const uct_cuda_coll_post_t *post;

    call->op   = UCX_MP_OP_BOR; /* of one source: none */
    call->type = copies[reduces ? 1 : element];
    if (reduces) {
        call->op   = (ucx_mp_op_t)what->op;
        call->type = (ucx_mp_type_t)what->type;
    }
    post = &call->group->agreement.posts[call->frame.root];
    return call_request(call, element, post->is_in_place);
}


/* -------------------------------------------------------- what a rank does */

/* This rank does it another way. @return false */
static bool call_pass(const call_t *call, uct_cuda_coll_reason_t reason,
                      ucs_status_t status)
{
    uct_cuda_coll_agree_pass(&call->group->agreement, reason, status);
    return false;
}

/* A buffer of this rank's, if it has one in this collective. @return Whether it
   is on a GPU, or not there; otherwise the rank has passed. */
static bool call_query(const call_t *call, uct_cuda_buffer_t buffer,
                       const void *address, uct_cuda_memory_t *memory)
{
    const uint64_t bytes = uct_cuda_coll_plan_size(
            &call->frame, call->group->agreement.rank, buffer);

    memory->type = UCS_MEMORY_TYPE_UNKNOWN;
    if (bytes == 0) {
        return true;
    }

    uct_cuda_memory_query(address, bytes, memory);
    uct_cuda_memory_sync_memops(memory);
    if ((memory->type != UCS_MEMORY_TYPE_CUDA) ||
        !uct_cuda_end_is_gpu(memory->end)) {
        return call_pass(call, UCT_CUDA_COLL_NO_HOST, UCS_OK);
    }

    return ((uintptr_t)address % ucx_mp_type_align(call->what->type) == 0) ||
           call_pass(call, UCT_CUDA_COLL_NO_ALIGNMENT, UCS_OK);
}

/* Blocks' counts in few bits, never 0 */
static uint32_t call_counts(const call_t *call)
{
    uint32_t hash = UCT_CUDA_HASH32;
    unsigned rank;

    for (rank = 0; rank < call->group->agreement.size; ++rank) {
        hash = uct_cuda_hash32(hash, (uint32_t)call->what->counts[rank]);
        hash = uct_cuda_hash32(hash,
                               (uint32_t)(call->what->counts[rank] >> 32));
    }
    return (hash == 0) ? 1 : hash;
}

static ucs_status_t call_show(call_t *call, uct_cuda_buffer_t buffer,
                              const void *address,
                              const uct_cuda_memory_t *allocation,
                              uct_cuda_coll_shown_t *shown)
{
    uct_cuda_coll_group_t *group = call->group;
    const uint64_t bytes = uct_cuda_coll_plan_size(
            &call->frame, group->agreement.rank, buffer);

    return uct_cuda_coll_memory_show(&group->memory, address, bytes, allocation,
                                     &call->post, shown);
}

/* Says what this rank does, and shows its memory */
static ucs_status_t call_fill(call_t *call, const uct_cuda_memory_t *send,
                              const uct_cuda_memory_t *recv)
{
    const uct_cuda_coll_call_t *what  = call->what;
    const uct_cuda_coll_plan_t *frame = &call->frame;
    uct_cuda_coll_post_t *post        = &call->post;
    const bool has_recv               = (recv->type == UCS_MEMORY_TYPE_CUDA);
    const bool has_send               = (send->type == UCS_MEMORY_TYPE_CUDA) &&
                          !uct_cuda_coll_plan_is_same(
                                  frame, call->group->agreement.rank);
    ucs_status_t status               = UCS_OK;

    post->kind        = UCT_CUDA_COLL_POST_GPU;
    post->call        = frame->kind;
    post->root        = frame->root;
    post->count       = (what->counts == NULL) ? what->count :
                                                 frame->bytes / frame->element;
    post->counts      = (what->counts == NULL) ? 0 : call_counts(call);
    post->op          = uct_cuda_coll_kind_reduces(what->kind) ?
                                (uint8_t)what->op :
                                0;
    post->type        = (uint8_t)what->type;
    post->is_in_place = frame->is_in_place;
    post->is_lost     = call->group->memory.is_lost;
    if (has_recv) {
        status = call_show(call, UCT_CUDA_BUFFER_RECV, what->recvbuf, recv,
                           &post->recv);
    }
    if ((status == UCS_OK) && has_send) {
        status = call_show(call, UCT_CUDA_BUFFER_SEND, what->sendbuf, send,
                           &post->send);
    }

    /* A name for what is not there; nothing goes to it */
    if (!has_send) {
        post->send = post->recv;
    } else if (!has_recv) {
        post->recv = post->send;
    }
    return status;
}

/* Loading a kernel would wait for a GPU that may wait for the program: until it
   can be done all ranks go another way. Failures are told when all prepare. */
static bool call_may_load(const call_t *call)
{
    const bool reduces = uct_cuda_coll_kind_reduces(call->what->kind);

    return uct_cuda_coll_device_load(call->group->memory.device,
                                     reduces ? (ucx_mp_op_t)call->what->op :
                                               UCX_MP_OP_BOR,
                                     reduces ? (ucx_mp_type_t)call->what->type :
                                               UCX_MP_TYPE_U8) != UCS_ERR_BUSY;
}

/* Are there kernels for its elements? Otherwise the rank has passed. */
static bool call_measure(call_t *call)
{
    const uct_cuda_coll_call_t *what = call->what;

    if (((unsigned)what->type >= UCX_MP_TYPE_LAST) ||
        (uct_cuda_coll_kind_reduces(what->kind) &&
         !ucx_mp_kernel_is_known(what->op, what->type))) {
        return call_pass(call, UCT_CUDA_COLL_NO_DATATYPE, UCS_OK);
    }

    call->size = ucx_mp_type_size(what->type);
    return true;
}

/* What is asked for, and this rank's buffers. @return Whether this is for GPUs;
   otherwise the rank has passed. */
static bool call_find(call_t *call, uct_cuda_memory_t *send,
                      uct_cuda_memory_t *recv)
{
    const uct_cuda_coll_call_t *what = call->what;

    if (call_request(call, call->size, what->is_in_place) != UCS_OK) {
        return call_pass(call, UCT_CUDA_COLL_NO_LIMITS, UCS_OK);
    }

    call->group->agreement.bytes = call->frame.bytes;
    if (call->frame.bytes == 0) {
        return call_pass(call, UCT_CUDA_COLL_NO_BYTES, UCS_OK);
    }

    return call_query(call, UCT_CUDA_BUFFER_RECV, what->recvbuf, recv) &&
           call_query(call, UCT_CUDA_BUFFER_SEND,
                      uct_cuda_coll_plan_is_same(&call->frame,
                                                 call->group->agreement.rank) ?
                              what->recvbuf :
                              what->sendbuf,
                      send);
}

/* In the context of its buffers: what this rank does, and shows */
static bool call_enter(call_t *call, const uct_cuda_memory_t *send,
                       const uct_cuda_memory_t *recv, int device)
{
    ucs_status_t status;

    status = uct_cuda_coll_memory_enter(&call->group->memory, device);
    if (status != UCS_OK) {
        return call_pass(call, UCT_CUDA_COLL_NO_CONTEXT, status);
    }

    if (!call_may_load(call)) {
        return call_pass(call, UCT_CUDA_COLL_NO_BUSY, UCS_OK);
    }

    status = call_fill(call, send, recv);
    return (status == UCS_OK) ||
           call_pass(call, UCT_CUDA_COLL_NO_EXPORT, status);
}

/* Whether this rank's part can be done by GPUs; then its post is filled, and
   the context of its buffers is current. Otherwise it has passed. */
static bool call_describe(call_t *call)
{
    const uct_cuda_memory_t *one;
    uct_cuda_memory_t send, recv;
    ucs_status_t status;
    int device;

    if (!call_find(call, &send, &recv)) {
        return false;
    }

    one = (recv.type == UCS_MEMORY_TYPE_CUDA) ? &recv : &send;
    if (one->type != UCS_MEMORY_TYPE_CUDA) {
        return call_pass(call, UCT_CUDA_COLL_NO_BYTES, UCS_OK);
    }

    if ((send.type == UCS_MEMORY_TYPE_CUDA) &&
        (!uct_cuda_end_equal(one->end, send.end) ||
         (one->context != send.context))) {
        return call_pass(call, UCT_CUDA_COLL_NO_ONE_GPU, UCS_OK);
    }

    device = uct_cuda_end_device(one->end);
    status = uct_cuda_gpu_context_push(one->context, device, &call->pushed);
    if (status != UCS_OK) {
        return call_pass(call, UCT_CUDA_COLL_NO_CONTEXT, status);
    }

    if (!call_enter(call, &send, &recv, device)) {
        uct_cuda_gpu_context_pop(&call->pushed);
        return false;
    }
    return true;
}


/* ----------------------------------------------------------------- the call */

/* A rank has another context than before, and nothing that was mapped in it or
   made for it; on all ranks */
static void group_forget(uct_cuda_coll_group_t *group)
{
    memset(group->has_kernel, 0, sizeof(group->has_kernel));
    uct_cuda_coll_memory_forget(&group->memory);
    uct_cuda_coll_group_drop_programs(group);
    group->is_off = !uct_cuda_coll_agree_find_gpus(&group->agreement);
    if (!group->is_off && !group->has_lanes) {
        uct_cuda_coll_lanes_get(&group->agreement.topo);
        group->has_lanes = true;
    }
}

/* Nothing is said in this call, on no rank */
static bool group_is_paused(const uct_cuda_coll_group_t *group)
{
    return group->is_off || (group->agreement.sequence < group->resume);
}

static bool group_has_lost(const uct_cuda_coll_group_t *group)
{
    unsigned rank;

    for (rank = 0; rank < group->agreement.size; ++rank) {
        if (group->agreement.posts[rank].is_lost) {
            return true;
        }
    }
    return false;
}

/* Has something to be made or mapped before this call can be carried out? The
   same answer on all ranks. */
static bool call_is_new(const call_t *call, const uct_cuda_coll_plan_t *plan)
{
    const uct_cuda_coll_group_t *group = call->group;
    unsigned rank;

    for (rank = 0; rank < group->agreement.size; ++rank) {
        if (group->agreement.posts[rank].is_new) {
            return true;
        }
    }
    return group_has_lost(group) || !group->has_kernel[call->op][call->type] ||
           !uct_cuda_coll_memory_has(&group->memory, plan);
}

/* Nobody runs before everybody has what it takes */
static ucs_status_t call_prepare(call_t *call,
                                 const uct_cuda_coll_program_t *program,
                                 const uct_cuda_coll_run_t *run)
{
    uct_cuda_coll_group_t *group         = call->group;
    uct_cuda_coll_agreement_t *agreement = &group->agreement;
    const uct_cuda_coll_plan_t *plan = uct_cuda_coll_program_plan(program);
    ucs_status_t status;

    status = uct_cuda_coll_memory_make(&group->memory, plan);
    if (status == UCS_OK) {
        status = uct_cuda_coll_device_load(run->device, run->op, run->type);
    }
    if (status == UCS_OK) {
        status = uct_cuda_coll_program_prepare(program, run);
    }
    status = uct_cuda_coll_agree_meet(agreement, UCT_CUDA_COLL_PHASE_MADE,
                                      status);
    if (status == UCS_OK) {
        status = uct_cuda_coll_memory_map(&group->memory, plan);
        status = uct_cuda_coll_agree_meet(agreement, UCT_CUDA_COLL_PHASE_READY,
                                          status);
    }
    uct_cuda_coll_memory_mapped(&group->memory, plan, status == UCS_OK);
    group->has_kernel[run->op][run->type] |= (status == UCS_OK);
    return status;
}

/* Something could not be had; on all ranks. Relays are done without then. What
   cannot be mapped is this call's own buffers, and a busy GPU becomes idle;
   what cannot be made may well be missing in the next call, too. */
static void call_give_up(call_t *call, const uct_cuda_coll_program_t *program)
{
    uct_cuda_coll_group_t *group     = call->group;
    uct_cuda_coll_verdict_t *verdict = &group->agreement.verdict;

    if (verdict->status == UCS_ERR_BUSY) {
        verdict->reason = UCT_CUDA_COLL_NO_BUSY;
    } else if (uct_cuda_coll_program_plan(program)->num_relays > 0) {
        uct_cuda_debug("collectives: no copies over other GPUs from here on");
        group->has_no_relays = true;
        uct_cuda_coll_memory_free_relays(&group->memory);
        uct_cuda_coll_group_drop_programs(group);
    } else if ((verdict->reason == UCT_CUDA_COLL_FAULT_MAKE) &&
               (++group->faults >= MAX_FAULTS)) {
        group->resume = group->agreement.sequence + 1 + PAUSE_CALLS;
    }
}

/* May results stand where a rank's terms were? In place, or in a buffer that
   overlaps the other one; the same answer on all ranks. */
static bool call_overwrites(const call_t *call)
{
    const uct_cuda_coll_agreement_t *agreement = &call->group->agreement;
    const uct_cuda_coll_post_t *post;
    uint64_t sent, received;
    unsigned rank;

    if (!uct_cuda_coll_kind_reduces(call->frame.kind)) {
        return false;
    }

    for (rank = 0; rank < agreement->size; ++rank) {
        post     = &agreement->posts[rank];
        sent     = uct_cuda_coll_plan_size(&call->frame, rank,
                                           UCT_CUDA_BUFFER_SEND);
        received = uct_cuda_coll_plan_size(&call->frame, rank,
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

static ucs_status_t call_carry_out(call_t *call,
                                   uct_cuda_coll_program_t *program,
                                   uct_cuda_coll_run_t *run)
{
    uct_cuda_coll_agreement_t *agreement = &call->group->agreement;
    const uint64_t began                 = uct_cuda_trace_now();
    ucs_status_t status;

    call->plan = uct_cuda_coll_program_plan(program);
    uct_cuda_coll_memory_place(&call->group->memory, call->plan, run);
    uct_cuda_coll_agree_run(agreement);
    uct_cuda_coll_lanes_begin(call->lanes);
    status = uct_cuda_coll_program_run(program, run);
    uct_cuda_coll_lanes_end(call->lanes);
    status = uct_cuda_coll_agree_meet(agreement, UCT_CUDA_COLL_PHASE_DONE,
                                      status);
    uct_cuda_trace_call(uct_cuda_coll_kind_str(call->plan->kind),
                        call->plan->bytes,
                        uct_cuda_coll_algorithm_str(call->plan->algorithm),
                        began);
    return status;
}

/* All ranks see alike that it leads to nothing */
static uct_cuda_coll_result_t
call_stage(call_t *call, uct_cuda_coll_reason_t reason, ucs_status_t status)
{
    uct_cuda_coll_agree_judge(&call->group->agreement, reason,
                              UCT_CUDA_COLL_ALL, status);
    return UCT_CUDA_COLL_STAGE;
}

static uct_cuda_coll_result_t call_run(call_t *call)
{
    uct_cuda_coll_group_t *group     = call->group;
    uct_cuda_coll_program_t *program = NULL;
    uct_cuda_coll_run_t run;
    ucs_status_t status;

    if (group_has_lost(group)) {
        group_forget(group);
    }

    if (group->is_off) {
        return call_stage(call, UCT_CUDA_COLL_NO_GPUS, UCS_OK);
    }

    /* Other calls may have a plan on these GPUs, or take less memory. Nobody
       leaves before all have read what the page says of the GPUs: the next call
       may come from another one. */
    status = call_settle(call);
    status = (status == UCS_OK) ?
                     call_program(call, &program) :
                     uct_cuda_coll_agree_meet(&group->agreement,
                                              UCT_CUDA_COLL_PHASE_PLANNED,
                                              status);
    if (status == UCS_ERR_NO_RESOURCE) {
        return call_stage(call, UCT_CUDA_COLL_NO_SCRATCH, status);
    } else if (status != UCS_OK) {
        return UCT_CUDA_COLL_STAGE;
    }

    run.device   = group->memory.device;
    run.events   = &group->memory.events;
    run.page     = group->agreement.page;
    run.sequence = group->agreement.sequence;
    run.op       = call->op;
    run.type     = call->type;
    run.idle     = uct_cuda_coll_agree_idle;
    run.arg      = &group->agreement;
    run.gpus     = group->agreement.gpus;
    run.level    = uct_cuda_coll_wait_level();
    if (call_is_new(call, uct_cuda_coll_program_plan(program))) {
        if (call_prepare(call, program, &run) != UCS_OK) {
            call_give_up(call, program);
            return UCT_CUDA_COLL_STAGE;
        }
        group->faults = 0;
    }

    status = call_carry_out(call, program, &run);
    if (status == UCS_OK) {
        return UCT_CUDA_COLL_DONE;
    }

    /* What was sent is still there, if nobody is gone, nor anybody's context */
    return (call_overwrites(call) || (status == UCS_ERR_ENDPOINT_TIMEOUT)) ?
                   UCT_CUDA_COLL_FAILED :
                   UCT_CUDA_COLL_STAGE;
}

/* Is the way of an MPI that takes GPU memory as fast? Ranks of one GPU take
   turns on it, and to sum a few bytes the CPU need not wait for them: up to
   this it is up to a tenth faster, and ours from there on (two ranks on an
   H100, four on two; docs/collectives-cuda-mpi.md). Each rank passes by itself,
   so nothing is agreed on; who does not know the GPUs yet sees it pass. */
static bool call_is_left(const call_t *call)
{
    static const uint64_t most                 = 16 << 10;
    const uct_cuda_coll_call_t *what           = call->what;
    const uct_cuda_coll_agreement_t *agreement = &call->group->agreement;
    uint64_t blocks                            = 1;

    if (what->kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER) {
        blocks = agreement->size;
    } else if (what->kind != UCT_CUDA_COLL_KIND_ALLREDUCE) {
        return false;
    }

    return what->has_own_way && (what->counts == NULL) &&
           (what->count <= most / blocks / call->size) &&
           (agreement->topo.num_gpus > 0) &&
           uct_cuda_coll_shares_gpus(agreement->gpus, agreement->size);
}

/* A line a call, as a message has one */
static void call_tell(const call_t *call, uct_cuda_coll_result_t result,
                      uint64_t taken)
{
    const uct_cuda_coll_agreement_t *agreement = &call->group->agreement;
    const uct_cuda_coll_plan_t *plan           = call->plan;
    char head[128], why[192];

    uct_cuda_coll_agree_name(agreement, head, sizeof(head));
    if (result == UCT_CUDA_COLL_DIFFERS) {
        uct_cuda_debug("%s: differs: %s", head, agreement->why);
    } else if (result != UCT_CUDA_COLL_DONE) {
        uct_cuda_debug("%s: %s: %s", head,
                       (result == UCT_CUDA_COLL_FAILED) ?
                               "failed" :
                               "goes by way of the host",
                       uct_cuda_coll_verdict_str(&agreement->verdict, why,
                                                 sizeof(why)));
    } else {
        uct_cuda_debug("%s: %s%s, %u step%s, %.1f us expected, %.1f us taken",
                       head, uct_cuda_coll_algorithm_str(plan->algorithm),
                       (call->request.algorithm == UCT_CUDA_COLL_AUTO) ?
                               "" :
                               " as asked for",
                       plan->list.num_steps,
                       (plan->list.num_steps == 1) ? "" : "s",
                       plan->seconds * 1e6, (double)taken / 1e3);
    }
}

static uct_cuda_coll_result_t call_decide(call_t *call)
{
    uct_cuda_coll_group_t *group  = call->group;
    uct_cuda_coll_result_t result = UCT_CUDA_COLL_STAGE;

    if (!call_measure(call)) {
        return UCT_CUDA_COLL_STAGE;
    }

    if (call_is_left(call)) {
        (void)call_pass(call, UCT_CUDA_COLL_NO_OWN_WAY, UCS_OK);
        return UCT_CUDA_COLL_STAGE;
    }

    if (!call_describe(call)) {
        return UCT_CUDA_COLL_STAGE;
    }

    if (uct_cuda_coll_agree_is_whole(&group->agreement)) {
        result = uct_cuda_coll_agree(&group->agreement, &call->post);
    }
    if (result == UCT_CUDA_COLL_DONE) {
        uct_cuda_node_cache_collective(true);
        result = call_run(call);
        uct_cuda_node_cache_collective(false);
    }
    uct_cuda_gpu_context_pop(&call->pushed);
    return result;
}

uct_cuda_coll_result_t
uct_cuda_coll_group_collective(uct_cuda_coll_group_t *group,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size)
{
    call_t call    = {.group = group, .what = what};
    uint64_t began = 0;
    uct_cuda_coll_result_t result;

    if (uct_cuda_log_is_on(UCT_CUDA_LOG_DEBUG)) {
        began = uct_cuda_now_ns();
    }
    uct_cuda_coll_agree_begin(&group->agreement, what, why, why_size);
    result = group_is_paused(group) ?
                     call_stage(&call, group->is_off ? UCT_CUDA_COLL_NO_GPUS :
                                                       UCT_CUDA_COLL_PAUSE,
                                UCS_OK) :
                     call_decide(&call);
    __atomic_fetch_add((result == UCT_CUDA_COLL_DONE) ? &totals.done :
                                                        &totals.staged,
                       1, __ATOMIC_RELAXED);
    if (began != 0) {
        call_tell(&call, result, uct_cuda_now_ns() - began);
    }
    return result;
}

void uct_cuda_coll_group_pass(uct_cuda_coll_group_t *group, int kind,
                              uct_cuda_coll_reason_t reason)
{
    const uct_cuda_coll_verdict_t verdict = {.reason = reason,
                                             .rank   = UCT_CUDA_COLL_ALL};
    const uint64_t sequence = (group == NULL) ? 0 :
                                                ++group->agreement.sequence;
    char why[192];

    if ((group != NULL) && !group_is_paused(group)) {
        uct_cuda_coll_agree_pass(&group->agreement, reason, UCS_OK);
    }
    uct_cuda_debug("collective %lu: %s: goes by way of the host: %s",
                   (unsigned long)sequence, uct_cuda_coll_kind_str(kind),
                   uct_cuda_coll_verdict_str(&verdict, why, sizeof(why)));
}
