/* SPDX-License-Identifier: BSD-3-Clause */
/* Initial memory, expected result and directed links of a transfer. */
#include <uct/cuda/check/proof.h>
#include <uct/cuda/check/transfer_check.h>

#include <stdio.h>


/* Memories of an end: source, destination, and staging slots */
enum {
    SEND,
    RECV,
    FIRST_SLOT,
    NUM_KINDS = FIRST_SLOT + UCT_CUDA_PLAN_SLOTS
};

/* The only input */
#define SOURCE 0


static unsigned end_memory(uct_cuda_end_t end, unsigned kind)
{
    return uct_cuda_end_index(end) * NUM_KINDS + kind;
}

static unsigned memory_of(const void *arg, const uct_cuda_plan_place_t *place)
{
    const unsigned none = UCT_CUDA_NUM_ENDS * NUM_KINDS;
    unsigned kind;

    if ((place->owner >= UCT_CUDA_NUM_ENDS) ||
        (place->buffer >= UCT_CUDA_BUFFER_LAST)) {
        return none;
    }

    if (place->buffer == UCT_CUDA_BUFFER_SCRATCH) {
        kind = FIRST_SLOT + place->slot;
    } else {
        kind = (place->slot > 0)                         ? NUM_KINDS :
               (place->buffer == UCT_CUDA_BUFFER_SEND) ? SEND :
                                                           RECV;
    }
    return (kind < NUM_KINDS) ? place->owner * NUM_KINDS + kind : none;
}

static const char *
memory_str(const void *arg, unsigned memory, char *buffer, size_t size)
{
    const unsigned kind = memory % NUM_KINDS;
    char end[16];

    uct_cuda_end_str(uct_cuda_end_at(memory / NUM_KINDS), end, sizeof(end));
    if (kind < FIRST_SLOT) {
        snprintf(buffer, size, "%s of %s",
                 (kind == SEND) ? "the source" : "the destination", end);
    } else {
        snprintf(buffer, size, "slot %u of %s", kind - FIRST_SLOT, end);
    }
    return buffer;
}

/* The source holds the input; every end with an index may have slots */
static ucs_status_t init_memories(ucx_mp_proof_t *proof)
{
    const uct_cuda_plan_t *plan = proof->subject->plan;
    const unsigned source       = end_memory(plan->src, SEND);
    ucs_status_t status         = ucx_mp_proof_memory(proof, source,
                                                      plan->size, 1, SOURCE,
                                                      0);
    unsigned i, slot;

    proof->memories[source].is_fixed = true;
    if (status == UCS_OK) {
        status = ucx_mp_proof_memory(proof, end_memory(plan->dst, RECV),
                                     plan->size, 1, UCX_MP_PROOF_NO_TERM, 0);
    }

    for (i = 0; i < UCT_CUDA_NUM_ENDS; ++i) {
        for (slot = 0; (slot < UCT_CUDA_PLAN_SLOTS) && (status == UCS_OK);
             ++slot) {
            status = ucx_mp_proof_memory(proof,
                                         i * NUM_KINDS + FIRST_SLOT + slot,
                                         plan->slot_size, 1,
                                         UCX_MP_PROOF_NO_TERM, 0);
        }
    }
    return status;
}

/* Check that every destination byte is the source's byte of the same offset, in
   contiguous pieces. */
static ucs_status_t check_result(ucx_mp_proof_t *proof)
{
    const uct_cuda_plan_t *plan         = proof->subject->plan;
    const ucx_mp_proof_memory_t *memory = &proof->memories[end_memory(plan->dst,
                                                                      RECV)];
    const ucx_mp_proof_piece_t *piece;
    uint64_t written = 0;
    uint32_t i;

    for (i = 0; i < memory->count; ++i) {
        piece = &memory->pieces[i];
        if (piece->term == UCX_MP_PROOF_NO_TERM) {
            return ucx_mp_proof_fail(proof,
                                     "nothing writes destination byte %llu",
                                     (unsigned long long)piece->offset);
        } else if (piece->at != piece->offset) {
            return ucx_mp_proof_fail(proof,
                                     "the source's byte %llu goes to byte %llu",
                                     (unsigned long long)piece->at,
                                     (unsigned long long)piece->offset);
        }
    }

    for (i = 0; i < plan->num_steps; ++i) {
        if (uct_cuda_plan_to(plan, i)->buffer == UCT_CUDA_BUFFER_RECV) {
            written += plan->steps[i].bytes;
        }
    }
    return (written == plan->size) ?
                   UCS_OK :
                   ucx_mp_proof_fail(proof, "destination bytes are written "
                                            "twice");
}

/* Check rules of transfers: each step is a copy on the directed link between
   its places, belongs to one of the paths, and waits for at most one step. */
static ucs_status_t check_lanes(ucx_mp_proof_t *proof)
{
    const uct_cuda_plan_t *plan = proof->subject->plan;
    const uct_cuda_plan_step_t *step;
    uint8_t from, to;
    unsigned i;

    for (i = 0; i < plan->num_steps; ++i) {
        step = &plan->steps[i];
        from = uct_cuda_plan_from(plan, i)->owner;
        to   = uct_cuda_plan_to(plan, i)->owner;
        if ((step->places != 2 * i) || (step->waits != i) ||
            (step->num_waits > 1) || (step->type != UCT_CUDA_PLAN_STEP_COPY)) {
            return ucx_mp_proof_fail(proof, "step %u is not a transfer step",
                                     i);
        } else if (step->part >= plan->num_paths) {
            return ucx_mp_proof_fail(proof, "step %u: no such path", i);
        } else if (from == to) {
            return ucx_mp_proof_fail(proof, "step %u copies within one end", i);
        } else if (step->queue != from * UCT_CUDA_NUM_ENDS + to) {
            return ucx_mp_proof_fail(
                    proof, "step %u: not on the link between its places", i);
        }
    }
    return UCS_OK;
}

static ucs_status_t prove(ucx_mp_proof_t *proof)
{
    ucs_status_t status = init_memories(proof);

    if (status == UCS_OK) {
        status = check_lanes(proof);
    }
    if (status == UCS_OK) {
        status = ucx_mp_proof_run(proof);
    }
    return (status == UCS_OK) ? check_result(proof) : status;
}

static ucs_status_t check_plan(ucx_mp_proof_t *proof)
{
    const uct_cuda_plan_t *plan = proof->subject->plan;
    char src[16], dst[16];

    if ((plan->num_steps > UCT_CUDA_PLAN_MAX_STEPS) ||
        (plan->num_paths > UCT_CUDA_PLAN_MAX_PATHS)) {
        return ucx_mp_proof_fail(proof, "%u steps, %u paths: too many",
                                 plan->num_steps, plan->num_paths);
    }

    if (plan->num_paths == 0) {
        return (plan->num_steps == 0) ?
                       UCS_OK :
                       ucx_mp_proof_fail(proof, "%u steps, but no paths",
                                         plan->num_steps);
    }

    if (!uct_cuda_end_has_index(plan->src) ||
        !uct_cuda_end_has_index(plan->dst) ||
        uct_cuda_end_equal(plan->src, plan->dst)) {
        return ucx_mp_proof_fail(proof, "no transfer from %s to %s",
                                 uct_cuda_end_str(plan->src, src, sizeof(src)),
                                 uct_cuda_end_str(plan->dst, dst, sizeof(dst)));
    }

    return prove(proof);
}

ucs_status_t uct_cuda_plan_check(const uct_cuda_plan_t *plan, char *error,
                                 size_t error_size)
{
    const ucx_mp_proof_subject_t subject = {
        .plan         = plan,
        .num_ranks    = 1,
        .num_queues   = UCT_CUDA_PLAN_NUM_LINKS,
        .num_memories = UCT_CUDA_NUM_ENDS * NUM_KINDS,
        .max_fan      = 1,
        .element      = 1,
        .memory_of    = memory_of,
        .memory_str   = memory_str
    };
    const uct_cuda_plan_steps_t list = uct_cuda_plan_list(plan);
    ucx_mp_proof_t proof;
    ucs_status_t status;

    status = ucx_mp_proof_init(&proof, &subject, &list, error, error_size);
    if (status == UCS_OK) {
        status = check_plan(&proof);
    }
    ucx_mp_proof_release(&proof);
    return status;
}
