/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls from their beginning to their end.
 *
 * All ranks decide alike, since each decides by what all have posted and by
 * what it remembers of earlier calls, which is the same on all.
 */
#include <uct/cuda/collective/call.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/hash.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory.h>
#include <uct/cuda/collective/agree.h>
#include <uct/cuda/collective/memory.h>
#include <ucs/sys/math.h>

#include <stdlib.h>
#include <string.h>


/* Bytes of an element of a copy at most; kernels load as much as they like */
#define MAX_COPY_ELEMENT 8

/* After so many calls in which something could not be had, no more are tried */
#define MAX_FAILURES 3

static struct {
    uint64_t done, staged;
} totals;

void uct_cuda_coll_counts(uint64_t *done_p, uint64_t *staged_p)
{
    *done_p   = __atomic_load_n(&totals.done, __ATOMIC_RELAXED);
    *staged_p = __atomic_load_n(&totals.staged, __ATOMIC_RELAXED);
}


/* ----------------------------------------------------------------- plans */

static bool program_fits(const cached_program_t *entry,
                         const uct_cuda_coll_plan_t *shape)
{
    const uct_cuda_coll_plan_t *plan;

    if (entry->program == NULL) {
        return false;
    }

    plan = uct_cuda_coll_program_plan(entry->program);
    return (plan->kind == shape->kind) && (plan->root == shape->root) &&
           (plan->bytes == shape->bytes) && (plan->element == shape->element) &&
           (plan->is_in_place == shape->is_in_place) &&
           (memcmp(plan->blocks, shape->blocks, sizeof(plan->blocks)) == 0);
}

/* What is to be planned, in elements of so many bytes */
static ucs_status_t call_request(call_t *call, uint32_t element,
                                 bool is_in_place)
{
    const uct_cuda_coll_group_t *group = call->group;
    const uct_cuda_coll_call_t *what   = call->what;
    const uint32_t size                = ucx_mp_type_size(what->type);
    uct_cuda_coll_request_t *request   = &call->request;
    unsigned rank;

    request->topo        = &group->topo;
    request->num_ranks   = group->size;
    request->kind        = what->kind;
    request->root        = uct_cuda_coll_kind_has_root(what->kind) ?
                                   what->root :
                                   0;
    request->count       = what->count * size / element;
    request->element     = element;
    request->is_in_place = is_in_place;
    request->max_scratch = UCT_CUDA_COLL_MAX_SCRATCH;
    request->algorithm   = uct_cuda_coll_page_common(group->page)->algorithm;
    request->chunks      = UCT_CUDA_COLL_AUTO;
    request->multipath   = group->has_no_relays ?
                                   0 :
                                   uct_cuda_coll_page_common(group->page)
                                           ->multipath;
    memcpy(request->gpus, group->gpus, sizeof(request->gpus));
    for (rank = 0; (what->counts != NULL) && (rank < group->size); ++rank) {
        if (what->counts[rank] > UCT_CUDA_COLL_MAX_COUNT) {
            return UCS_ERR_INVALID_PARAM;
        }
        call->counts[rank] = what->counts[rank] * size / element;
        request->counts    = call->counts;
    }
    return (what->count > UCT_CUDA_COLL_MAX_COUNT) ?
                   UCS_ERR_INVALID_PARAM :
                   uct_cuda_coll_shape(request, &call->shape);
}

/* The plan of this call, from those that were made already if it is there */
static ucs_status_t call_program(call_t *call,
                                 uct_cuda_coll_program_t **program_p)
{
    uct_cuda_coll_group_t *group = call->group;
    cached_program_t *entry      = &group->programs[0];
    uct_cuda_coll_plan_t plan;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < NUM_PROGRAMS; ++i) {
        if (program_fits(&group->programs[i], &call->shape)) {
            entry = &group->programs[i];
            goto out;
        }
        if (group->programs[i].used < entry->used) {
            entry = &group->programs[i];
        }
    }

    if (group->book == NULL) {
        group->book = uct_cuda_coll_book_create();
    }
    status = uct_cuda_coll_plan(group->book, &call->request, &plan);
    if (status != UCS_OK) {
        return status;
    }

    if (entry->program != NULL) {
        uct_cuda_coll_program_destroy(entry->program);
        entry->program = NULL;
    }
    status = uct_cuda_coll_program_create(&plan, group->rank, &entry->program);
    if (status != UCS_OK) {
        return status;
    }

out:
    entry->used = group->sequence;
    *program_p  = entry->program;
    return UCS_OK;
}


/* ------------------------------------------------------------------ calls */

/* A buffer of this rank's, if it has one in this collective. @return Whether it
   is on a GPU, or not there. */
static bool call_query(const call_t *call, uct_cuda_coll_buffer_t buffer,
                       const void *address, uct_cuda_memory_t *memory)
{
    const uint64_t bytes = uct_cuda_coll_plan_size(&call->shape,
                                                   call->group->rank, buffer);

    memory->type = UCS_MEMORY_TYPE_UNKNOWN;
    if (bytes == 0) {
        return true;
    }

    uct_cuda_memory_query(address, bytes, memory);
    uct_cuda_memory_sync_memops(memory);
    return (memory->type == UCS_MEMORY_TYPE_CUDA) &&
           uct_cuda_end_is_gpu(memory->end) &&
           ((uintptr_t)address % ucx_mp_type_align(call->what->type) == 0);
}

/* Blocks' counts in few bits, never 0 */
static uint32_t call_counts(const call_t *call)
{
    uint32_t hash = UCT_CUDA_HASH32;
    unsigned rank;

    for (rank = 0; rank < call->group->size; ++rank) {
        hash = uct_cuda_hash32(hash, (uint32_t)call->what->counts[rank]);
        hash = uct_cuda_hash32(hash,
                               (uint32_t)(call->what->counts[rank] >> 32));
    }
    return (hash == 0) ? 1 : hash;
}

/* Says what this rank does, and shows its memory */
static ucs_status_t call_fill(call_t *call, const uct_cuda_memory_t *send,
                              const uct_cuda_memory_t *recv)
{
    const uct_cuda_coll_call_t *what = call->what;
    const unsigned rank              = call->group->rank;
    uct_cuda_coll_post_t *post       = &call->post;
    const bool has_recv              = (recv->type == UCS_MEMORY_TYPE_CUDA);
    const bool has_send              = (send->type == UCS_MEMORY_TYPE_CUDA) &&
                          !uct_cuda_coll_plan_is_same(&call->shape, rank);
    ucs_status_t status              = UCS_OK;

    post->kind        = UCT_CUDA_COLL_POST_GPU;
    post->call        = (uint8_t)call->shape.kind;
    post->root        = call->shape.root;
    post->count       = (what->counts == NULL) ?
                                what->count :
                                call->shape.bytes / call->shape.element;
    post->counts      = (what->counts == NULL) ? 0 : call_counts(call);
    post->op          = uct_cuda_coll_kind_reduces(what->kind) ?
                                (uint8_t)what->op :
                                0;
    post->type        = (uint8_t)what->type;
    post->is_in_place = call->shape.is_in_place;
    if (has_recv) {
        status = uct_cuda_coll_memory_show(call, what->recvbuf, recv,
                           uct_cuda_coll_plan_size(&call->shape, rank,
                                                   UCT_CUDA_COLL_RECV),
                           &post->recv);
    }
    if ((status == UCS_OK) && has_send) {
        status = uct_cuda_coll_memory_show(call, what->sendbuf, send,
                           uct_cuda_coll_plan_size(&call->shape, rank,
                                                   UCT_CUDA_COLL_SEND),
                           &post->send);
    }

    /* A name for what is not there; nothing goes to it */
    if (!has_send) {
        post->send = post->recv;
    } else if (!has_recv) {
        post->recv = post->send;
    }
    post->is_lost = call->group->is_lost;
    return status;
}

/* Loading a kernel would wait for a GPU that may wait for the program: until it
   can be done all ranks go another way. Failures are told when all prepare. */
static bool call_may_load(const call_t *call)
{
    const bool reduces = uct_cuda_coll_kind_reduces(call->what->kind);

    return uct_cuda_coll_device_load(call->group->device,
                                     reduces ? (ucx_mp_op_t)call->what->op :
                                               UCX_MP_OP_BOR,
                                     reduces ? (ucx_mp_type_t)call->what->type :
                                               UCX_MP_TYPE_U8) != UCS_ERR_BUSY;
}

/* Whether this rank's part can be done by GPUs; then its post is filled, and
   the context of its buffers is current */
static bool call_describe(call_t *call)
{
    const uct_cuda_coll_call_t *what = call->what;
    const uct_cuda_memory_t *one;
    uct_cuda_memory_t send, recv;

    if (((unsigned)what->type >= UCX_MP_TYPE_LAST) ||
        (uct_cuda_coll_kind_reduces(what->kind) &&
         !ucx_mp_kernel_is_known(what->op, what->type)) ||
        (call_request(call, ucx_mp_type_size(what->type),
                      what->is_in_place) != UCS_OK) ||
        (call->shape.bytes == 0) ||
        !call_query(call, UCT_CUDA_COLL_RECV, what->recvbuf, &recv) ||
        !call_query(call, UCT_CUDA_COLL_SEND,
                    uct_cuda_coll_plan_is_same(&call->shape,
                                               call->group->rank) ?
                            what->recvbuf :
                            what->sendbuf,
                    &send)) {
        return false;
    }

    one = (recv.type == UCS_MEMORY_TYPE_CUDA) ? &recv : &send;
    if ((one->type != UCS_MEMORY_TYPE_CUDA) ||
        ((send.type == UCS_MEMORY_TYPE_CUDA) &&
         (!uct_cuda_end_equal(one->end, send.end) ||
          (one->context != send.context))) ||
        (uct_cuda_gpu_context_push(one->context, uct_cuda_end_device(one->end),
                                   &call->pushed) != UCS_OK)) {
        return false;
    }

    if ((uct_cuda_coll_memory_enter(call->group,
                                    uct_cuda_end_device(one->end)) !=
         UCS_OK) ||
        !call_may_load(call) || (call_fill(call, &send, &recv) != UCS_OK)) {
        uct_cuda_gpu_context_pop(&call->pushed);
        return false;
    }
    return true;
}

/* Elements of a copy are as wide as all buffers and blocks are aligned */
static uint32_t call_element(const call_t *call)
{
    const uct_cuda_coll_plan_t *shape = &call->shape;
    uint64_t bits                     = MAX_COPY_ELEMENT |
                                        shape->bytes;
    unsigned rank;

    for (rank = 0; rank < call->group->size; ++rank) {
        bits |= call->posts[rank].send.offset |
                call->posts[rank].recv.offset | shape->blocks[rank];
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
    const uint32_t element           = reduces ? call->shape.element :
                                                 call_element(call);

    call->op   = UCX_MP_OP_BOR; /* of one source: none */
    call->type = copies[reduces ? 1 : element];
    if (reduces) {
        call->op   = (ucx_mp_op_t)what->op;
        call->type = (ucx_mp_type_t)what->type;
    }
    return call_request(call, element,
                        call->posts[call->shape.root].is_in_place);
}

void uct_cuda_coll_programs_drop(uct_cuda_coll_group_t *group)
{
    unsigned i;

    for (i = 0; i < NUM_PROGRAMS; ++i) {
        if (group->programs[i].program != NULL) {
            uct_cuda_coll_program_destroy(group->programs[i].program);
        }
    }
    memset(group->programs, 0, sizeof(group->programs));
    uct_cuda_coll_book_destroy(group->book);
    group->book = NULL;
}

/* A rank has another context than before, and nothing that was mapped in it or
   made for it; on all ranks */
static void group_forget(uct_cuda_coll_group_t *group)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_COLL_PAGE_EXPORTS; ++i) {
        group->exports[i].is_known = false;
    }
    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        group->relays[i].agreed = 0;
    }
    memset(group->agreed_kernels, 0, sizeof(group->agreed_kernels));
    group->agreed_scratch = 0;
    uct_cuda_coll_programs_drop(group);
    uct_cuda_coll_agree_find_gpus(group);
}

/* Has something to be made or mapped before this call can be carried out? The
   same answer on all ranks. */
static bool call_is_new(const call_t *call, const uct_cuda_coll_plan_t *plan)
{
    const uct_cuda_coll_group_t *group = call->group;
    bool is_new                        = false;
    unsigned rank, i;

    for (rank = 0; rank < group->size; ++rank) {
        is_new |= call->posts[rank].is_new || call->posts[rank].is_lost;
    }
    for (i = 0; i < plan->num_relays; ++i) {
        is_new |= (plan->relay_scratch > group->relays[plan->relays[i]].agreed);
    }

    return is_new ||
           !group->agreed_kernels[call->op][call->type] ||
           (plan->scratch > group->agreed_scratch);
}

/* Nobody runs before everybody has what it takes */
static ucs_status_t call_prepare(call_t *call,
                                 const uct_cuda_coll_program_t *program,
                                 const uct_cuda_coll_run_t *run)
{
    uct_cuda_coll_group_t *group = call->group;
    const uct_cuda_coll_plan_t *plan = uct_cuda_coll_program_plan(program);
    ucs_status_t status;
    relay_t *relay;
    unsigned i;

    status = uct_cuda_coll_memory_make_scratch(group, plan->scratch);
    if (status == UCS_OK) {
        status = uct_cuda_coll_memory_make_relays(group, plan);
    }
    if (status == UCS_OK) {
        status = uct_cuda_coll_device_load(group->device, call->op,
                                           call->type);
    }
    if (status == UCS_OK) {
        status = uct_cuda_coll_program_prepare(program, run);
    }
    status = uct_cuda_coll_agree_meet(call, UCT_CUDA_COLL_PHASE_MADE, status);
    if (status == UCS_OK) {
        status = uct_cuda_coll_agree_meet(call, UCT_CUDA_COLL_PHASE_READY,
                           uct_cuda_coll_memory_map(call, plan));
    }

    if (status != UCS_OK) {
        /* Some have other scratch than before, or none, and not all of the
           others have mapped it */
        group->agreed_scratch = 0;
        return status;
    }

    group->agreed_kernels[call->op][call->type]    = true;
    group->exports[call->post.recv.index].is_known = true;
    group->exports[call->post.send.index].is_known = true;
    group->is_lost                                 = false;
    if (plan->scratch > group->agreed_scratch) {
        group->agreed_scratch = plan->scratch;
    }
    for (i = 0; i < plan->num_relays; ++i) {
        relay         = &group->relays[plan->relays[i]];
        relay->agreed = ucs_max(relay->agreed, plan->relay_scratch);
    }
    return UCS_OK;
}

/* Something could not be had; on all ranks. Relays are done without then. */
static void call_give_up(call_t *call, const uct_cuda_coll_program_t *program)
{
    uct_cuda_coll_group_t *group = call->group;

    if ((program != NULL) &&
        (uct_cuda_coll_program_plan(program)->num_relays > 0)) {
        uct_cuda_debug("collectives: no copies over other GPUs from here on");
        group->has_no_relays = true;
        uct_cuda_coll_memory_free_relays(group);
        uct_cuda_coll_programs_drop(group);
        return;
    }

    group->is_off = (++group->failures >= MAX_FAILURES);
}

/* May results stand where a rank's terms were? In place, or in a buffer that
   overlaps the other one; the same answer on all ranks. */
static bool call_overwrites(const call_t *call)
{
    const uct_cuda_coll_post_t *post;
    uint64_t sent, received;
    unsigned rank;

    if (!uct_cuda_coll_kind_reduces(call->shape.kind)) {
        return false;
    }

    for (rank = 0; rank < call->group->size; ++rank) {
        post     = &call->posts[rank];
        sent     = uct_cuda_coll_plan_size(&call->shape, rank,
                                           UCT_CUDA_COLL_SEND);
        received = uct_cuda_coll_plan_size(&call->shape, rank,
                                           UCT_CUDA_COLL_RECV);
        if (post->is_in_place ||
            ((post->send.index == post->recv.index) &&
             (post->send.offset < post->recv.offset + received) &&
             (post->recv.offset < post->send.offset + sent))) {
            return true;
        }
    }
    return false;
}

static uct_cuda_coll_result_t call_run(call_t *call)
{
    uct_cuda_coll_group_t *group = call->group;
    uct_cuda_coll_run_t run      = {
        .device   = group->device,
        .events   = &group->events,
        .page     = group->page,
        .sequence = group->sequence,
        .idle     = uct_cuda_coll_agree_idle,
        .arg      = call
    };
    uct_cuda_coll_program_t *program = NULL;
    const uct_cuda_coll_plan_t *plan;
    ucs_status_t status;
    unsigned rank, buffer, i;

    for (rank = 0; rank < group->size; ++rank) {
        if (call->posts[rank].is_lost) {
            group_forget(group);
            break;
        }
    }

    if (group->is_off) {
        return UCT_CUDA_COLL_STAGE;
    }

    status = call_settle(call);
    if (status == UCS_OK) {
        status = call_program(call, &program);
    }
    if (status == UCS_ERR_UNSUPPORTED) {
        return UCT_CUDA_COLL_STAGE; /* others may have a plan on these GPUs */
    } else if (status != UCS_OK) {
        program = NULL;
    }
    run.op   = call->op;
    run.type = call->type;

    if ((program == NULL) ||
        (call_is_new(call, uct_cuda_coll_program_plan(program)) &&
         (call_prepare(call, program, &run) != UCS_OK))) {
        call_give_up(call, program);
        return UCT_CUDA_COLL_STAGE;
    }

    for (rank = 0; rank < group->size; ++rank) {
        for (buffer = 0; buffer < UCT_CUDA_COLL_BUFFER_LAST; ++buffer) {
            run.places[rank][buffer] = uct_cuda_coll_memory_address(call, rank,
                                                                    buffer);
        }
    }
    call->plan = plan = uct_cuda_coll_program_plan(program);
    for (i = 0; i < plan->num_relays; ++i) {
        run.places[group->size + i][UCT_CUDA_COLL_SCRATCH] =
                uct_cuda_coll_memory_relay(group, plan->relays[i]);
    }

    call->spins = 0;
    /* the program says for which step */
    uct_cuda_coll_agree_waits(call, group->rank, NULL);
    status      = uct_cuda_coll_agree_meet(call, UCT_CUDA_COLL_PHASE_DONE,
                            uct_cuda_coll_program_run(program, &run));
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
    static const uint64_t most         = 16 << 10;
    const uct_cuda_coll_call_t *what   = call->what;
    const uct_cuda_coll_group_t *group = call->group;
    uint64_t blocks                    = 1;

    if (what->kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER) {
        blocks = group->size;
    } else if (what->kind != UCT_CUDA_COLL_KIND_ALLREDUCE) {
        return false;
    }

    return what->has_own_way && (what->counts == NULL) &&
           (what->count <= most / blocks / ucx_mp_type_size(what->type)) &&
           (group->topo.num_gpus > 0) &&
           uct_cuda_coll_shares_gpus(group->gpus, group->size);
}

/* A line a call, as a message has one */
static void call_tell(const call_t *call, uct_cuda_coll_result_t result,
                      uint64_t taken)
{
    const uct_cuda_coll_plan_t *plan = call->plan;
    const char *kind = uct_cuda_coll_kind_str(call->what->kind);

    if ((result != UCT_CUDA_COLL_DONE) || (plan == NULL)) {
        uct_cuda_debug("collective %lu: %s %s%s%s",
                       (unsigned long)call->group->sequence, kind,
                       (result == UCT_CUDA_COLL_FAILED) ?
                               "failed" :
                               "goes by way of the host",
                       (call->why[0] == '\0') ? "" : ": ", call->why);
        return;
    }

    uct_cuda_debug("collective %lu: %s of %lu bytes, %u ranks: %s, %u step%s, "
                   "%.1f us expected, %.1f us taken",
                   (unsigned long)call->group->sequence, kind,
                   (unsigned long)plan->bytes, call->group->size,
                   uct_cuda_coll_algorithm_str(plan->algorithm),
                   plan->num_steps, (plan->num_steps == 1) ? "" : "s",
                   plan->seconds * 1e6, (double)taken / 1e3);
}

uct_cuda_coll_result_t
uct_cuda_coll_group_collective(uct_cuda_coll_group_t *group,
                               const uct_cuda_coll_call_t *what, char *why,
                               size_t why_size)
{
    call_t call = {.group    = group,
                   .what     = what,
                   .posts    = group->posts,
                   .why      = why,
                   .why_size = why_size};
    uct_cuda_coll_result_t result;
    uint64_t began = 0;

    why[0] = '\0';
    if (group->is_off) {
        return UCT_CUDA_COLL_STAGE;
    }

    if (uct_cuda_log_is_on(UCT_CUDA_LOG_DEBUG)) {
        began = uct_cuda_now_ns();
    }
    ++group->sequence;
    if (call_is_left(&call) || !call_describe(&call)) {
        goto out_pass;
    }

    if (!uct_cuda_coll_agree_is_whole(&call)) {
        uct_cuda_gpu_context_pop(&call.pushed);
        goto out_pass;
    }

    uct_cuda_coll_page_post(group->page, group->sequence, &call.post);
    result = uct_cuda_coll_agree(&call);
    if (result == UCT_CUDA_COLL_DONE) {
        uct_cuda_ipc_cache_collective(true);
        result = call_run(&call);
        uct_cuda_ipc_cache_collective(false);
    }
    uct_cuda_gpu_context_pop(&call.pushed);
    goto out;

out_pass:
    uct_cuda_coll_page_pass(group->page, group->sequence);
    result = UCT_CUDA_COLL_STAGE;
out:
    __atomic_fetch_add((result == UCT_CUDA_COLL_DONE) ? &totals.done :
                                                        &totals.staged,
                       1, __ATOMIC_RELAXED);
    if (began != 0) {
        call_tell(&call, result, uct_cuda_now_ns() - began);
    }
    return result;
}

void uct_cuda_coll_group_pass(uct_cuda_coll_group_t *group)
{
    if (!group->is_off) {
        uct_cuda_coll_page_pass(group->page, ++group->sequence);
    }
}
