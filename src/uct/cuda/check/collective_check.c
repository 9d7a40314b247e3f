/* SPDX-License-Identifier: BSD-3-Clause */
/* Initial memory and expected results of collectives. */
#include <uct/cuda/check/collective_check.h>
#include <uct/cuda/check/proof.h>

#include <ucs/sys/math.h>

#include <stdio.h>


#define NUM_MEMORIES (UCT_CUDA_PLAN_COLL_MAX_MEMBERS * UCT_CUDA_BUFFER_LAST)


/* In place, the send buffer is the receive buffer */
static unsigned number_of(const uct_cuda_plan_coll_t *plan, unsigned rank,
                          unsigned buffer)
{
    if ((buffer == UCT_CUDA_BUFFER_SEND) &&
        uct_cuda_plan_coll_is_same(plan, rank)) {
        buffer = UCT_CUDA_BUFFER_RECV;
    }

    return rank * UCT_CUDA_BUFFER_LAST + buffer;
}

static unsigned memory_of(const void *arg, const uct_cuda_plan_place_t *place)
{
    const uct_cuda_plan_coll_t *plan = arg;

    return ((place->owner >= plan->num_ranks + plan->num_relays) ||
            (place->buffer >= UCT_CUDA_BUFFER_LAST)) ?
                   NUM_MEMORIES :
                   number_of(plan, place->owner, place->buffer);
}

static const char *
memory_str(const void *arg, unsigned memory, char *buffer, size_t size)
{
    static const char *names[] = {"send", "recv", "scratch"};

    snprintf(buffer, size, "%s of rank %u",
             names[memory % UCT_CUDA_BUFFER_LAST],
             memory / UCT_CUDA_BUFFER_LAST);
    return buffer;
}


/* ----------------------------------------------------------------- result */

/* Return the rank whose block contains a byte of all ranks' data. */
static unsigned owner_of(const uct_cuda_plan_coll_t *plan, uint64_t at)
{
    unsigned rank = 0;

    while ((rank + 1 < plan->num_ranks) && (plan->blocks[rank + 1] <= at)) {
        ++rank;
    }

    return rank;
}

/* Return the rank whose input belongs at a byte of a result, and its offset
   there. For a reduction there is no single rank. */
static unsigned expected(const uct_cuda_plan_coll_t *plan, unsigned rank,
                         uint64_t offset, uint64_t *at_p)
{
    *at_p = offset;
    switch (plan->kind) {
    case UCT_CUDA_COLL_KIND_REDUCE_SCATTER:
        *at_p = plan->blocks[rank] + offset;
        return UCT_CUDA_PLAN_COLL_MAX_RANKS;
    case UCT_CUDA_COLL_KIND_BCAST:
        return plan->root;
    case UCT_CUDA_COLL_KIND_ALLGATHER:
    case UCT_CUDA_COLL_KIND_GATHER:
        return owner_of(plan, offset);
    case UCT_CUDA_COLL_KIND_SCATTER:
        *at_p = plan->blocks[rank] + offset;
        return plan->root;
    case UCT_CUDA_COLL_KIND_ALLTOALL:
        *at_p = plan->blocks[rank] + offset -
                plan->blocks[owner_of(plan, offset)];
        return owner_of(plan, offset);
    default:
        return UCT_CUDA_PLAN_COLL_MAX_RANKS;
    }
}

/* Check for the inputs of all ranks, once each. */
static ucs_status_t check_sum(ucx_mp_proof_t *proof, unsigned rank,
                              const ucx_mp_proof_piece_t *piece)
{
    const ucx_mp_proof_term_t *term = &proof->terms[piece->term];
    unsigned r;

    for (r = 0; r < proof->subject->num_ranks; ++r) {
        if (term->inputs[r] != 1) {
            return ucx_mp_proof_fail(proof,
                        "rank %u's result at byte %llu has the input of rank "
                        "%u %s",
                        rank, (unsigned long long)piece->offset, r,
                        (term->inputs[r] == 0) ? "not" : "more than once");
        }
    }

    return UCS_OK;
}

static ucs_status_t check_order(ucx_mp_proof_t *proof, unsigned rank,
                                const ucx_mp_proof_piece_t *piece)
{
    const ucx_mp_proof_memory_t *first =
            &proof->memories[number_of(proof->subject->plan, 0,
                                       UCT_CUDA_BUFFER_RECV)];
    const ucx_mp_proof_piece_t *other;

    /* pieces of rank 0's memory that begin in this piece, and the one before */
    other = &first->pieces[ucx_mp_proof_find(first, piece->offset)];
    for (; (other < first->pieces + first->count) &&
           (other->offset < piece->offset + piece->bytes);
         ++other) {
        if (other->term != piece->term) {
            return ucx_mp_proof_fail(
                    proof, "ranks 0 and %u add in another order at byte %llu",
                    rank,
                    (unsigned long long)ucs_max(other->offset, piece->offset));
        }
    }

    return UCS_OK;
}

/* Check a rank's result. A reduce-scatter in place may leave any bytes behind
   it */
static ucs_status_t check_result(ucx_mp_proof_t *proof, unsigned rank)
{
    const uct_cuda_plan_coll_t *plan = proof->subject->plan;
    ucx_mp_proof_memory_t *memory    = &proof->memories[number_of(
            plan, rank, UCT_CUDA_BUFFER_RECV)];
    uint64_t size                    = memory->size;
    ucs_status_t status              = UCS_OK;
    const ucx_mp_proof_piece_t *piece;
    uint64_t at, last;
    unsigned input;
    uint32_t p;

    if (plan->kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER) {
        size = plan->blocks[rank + 1] - plan->blocks[rank];
    }

    if (ucx_mp_proof_split(memory, size) != UCS_OK) {
        return UCS_ERR_NO_MEMORY;
    }

    for (p = 0; (p < memory->count) && (memory->pieces[p].offset < size) &&
                (status == UCS_OK);
         ++p) {
        piece = &memory->pieces[p];
        input = expected(plan, rank, piece->offset, &at);
        if ((piece->term == UCX_MP_PROOF_NO_TERM) || (piece->at != at) ||
            ((input < UCT_CUDA_PLAN_COLL_MAX_RANKS) &&
             ((piece->term != input) ||
              (expected(plan, rank, piece->offset + piece->bytes - 1, &last) !=
               input)))) {
            return ucx_mp_proof_fail(
                    proof, "rank %u's result at byte %llu is %s", rank,
                    (unsigned long long)piece->offset,
                    (piece->term == UCX_MP_PROOF_NO_TERM) ? "never written" :
                                                            "another byte's");
        }

        if (input == UCT_CUDA_PLAN_COLL_MAX_RANKS) {
            status = check_sum(proof, rank, piece);
        }
        if ((status == UCS_OK) &&
            (plan->kind == UCT_CUDA_COLL_KIND_ALLREDUCE)) {
            status = check_order(proof, rank, piece);
        }
    }

    return status;
}


/* -------------------------------------------------------------- all of it */

static ucs_status_t init_memory(ucx_mp_proof_t *proof, unsigned rank,
                                unsigned buffer)
{
    const uct_cuda_plan_coll_t *plan = proof->subject->plan;
    const unsigned memory = rank * UCT_CUDA_BUFFER_LAST + buffer;
    const bool is_block   = (uct_cuda_coll_kind(plan->kind)->send[0] ==
                             UCT_CUDA_COLL_PART_BLOCK);
    const bool is_same    = (rank < plan->num_ranks) &&
                            uct_cuda_plan_coll_is_same(plan, rank);
    const bool is_input   = (rank < plan->num_ranks) &&
                            ((buffer == UCT_CUDA_BUFFER_SEND) ||
                             ((buffer == UCT_CUDA_BUFFER_RECV) && is_same));
    const uint64_t size   = uct_cuda_plan_coll_size(plan, rank,
                                                    (uct_cuda_buffer_t)buffer);
    ucs_status_t status;

    status = ucx_mp_proof_memory(
            proof, memory, size,
            (buffer == UCT_CUDA_BUFFER_SCRATCH) ? 16 : plan->element,
            is_input ? rank : UCX_MP_PROOF_NO_TERM,
            (is_input && is_block) ? plan->blocks[rank] : 0);
    proof->memories[memory].is_fixed = (buffer == UCT_CUDA_BUFFER_SEND) &&
                                       !is_same;

    /* In place, the rank's own block is there already */
    if ((status == UCS_OK) && (buffer == UCT_CUDA_BUFFER_RECV) && is_block &&
        plan->is_in_place && (size > 0) &&
        (plan->blocks[rank + 1] > plan->blocks[rank])) {
        status = ucx_mp_proof_replace(proof, memory, plan->blocks[rank],
                                      plan->blocks[rank + 1] -
                                              plan->blocks[rank],
                                      plan->blocks[rank], rank);
    }

    return status;
}

static ucs_status_t check_plan(ucx_mp_proof_t *proof)
{
    const uct_cuda_plan_coll_t *plan = proof->subject->plan;
    uint32_t i;

    if ((plan->num_ranks == 0) ||
        (plan->num_ranks > UCT_CUDA_PLAN_COLL_MAX_RANKS) ||
        (plan->num_relays > UCT_CUDA_PLAN_COLL_MAX_RELAYS) ||
        (plan->num_queues > UCT_CUDA_PLAN_COLL_MAX_QUEUES) ||
        (plan->kind >= UCT_CUDA_COLL_KIND_LAST) ||
        (plan->root >= plan->num_ranks) || (plan->element == 0) ||
        (plan->bytes % plan->element != 0)) {
        return ucx_mp_proof_fail(proof,
                                 "%u ranks with %llu bytes in elements of %u",
                                 plan->num_ranks,
                                 (unsigned long long)plan->bytes,
                                 plan->element);
    }

    for (i = 0; uct_cuda_coll_kind(plan->kind)->has_blocks &&
                (i < plan->num_ranks);
         ++i) {
        if ((plan->blocks[0] != 0) ||
            (plan->blocks[i + 1] < plan->blocks[i]) ||
            (plan->blocks[plan->num_ranks] != plan->bytes)) {
            return ucx_mp_proof_fail(proof,
                                     "the ranks' blocks do not cover all "
                                     "bytes in order");
        }
    }

    return UCS_OK;
}

static ucs_status_t prove(ucx_mp_proof_t *proof)
{
    const uct_cuda_plan_coll_t *plan = proof->subject->plan;
    ucs_status_t status              = check_plan(proof);
    unsigned rank, buffer;

    for (rank = 0; (status == UCS_OK) &&
                   (rank < plan->num_ranks + plan->num_relays);
         ++rank) {
        for (buffer = 0; (buffer < UCT_CUDA_BUFFER_LAST) && (status == UCS_OK);
             ++buffer) {
            status = init_memory(proof, rank, buffer);
        }
    }

    if (status == UCS_OK) {
        status = ucx_mp_proof_run(proof);
    }
    for (rank = 0; (rank < plan->num_ranks) && (status == UCS_OK); ++rank) {
        status = check_result(proof, rank);
    }
    return status;
}

ucs_status_t uct_cuda_plan_coll_check(const uct_cuda_plan_coll_t *plan,
                                      char *error, size_t error_size)
{
    const ucx_mp_proof_subject_t subject = {
        .plan         = plan,
        .num_ranks    = plan->num_ranks,
        .num_queues   = plan->num_queues,
        .num_memories = NUM_MEMORIES,
        .max_fan      = UCT_CUDA_PLAN_COLL_MAX_FAN,
        .element      = plan->element,
        .memory_of    = memory_of,
        .memory_str   = memory_str
    };
    ucx_mp_proof_t proof;
    ucs_status_t status;

    status = ucx_mp_proof_init(&proof, &subject, &plan->list, error,
                               error_size);
    if (status == UCS_OK) {
        status = prove(&proof);
    }
    ucx_mp_proof_release(&proof);
    return status;
}
