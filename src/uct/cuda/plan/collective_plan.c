/* SPDX-License-Identifier: BSD-3-Clause */
/* Releasing, comparing and printing plans. */
#include <uct/cuda/plan/collective_plan.h>

#include <stdlib.h>
#include <string.h>


#define GIGA 1e9
#define MEGA 1e6


void uct_cuda_coll_plan_release(uct_cuda_coll_plan_t *plan)
{
    free(plan->steps);
    free(plan->places);
    free(plan->waits);
    memset(plan, 0, sizeof(*plan));
}

ucs_status_t uct_cuda_coll_plan_copy_steps(const uct_cuda_coll_plan_t *from,
                                           uct_cuda_coll_plan_t *to)
{
    to->num_queues = from->num_queues;
    to->num_steps  = from->num_steps;
    to->num_places = from->num_places;
    to->num_waits  = from->num_waits;
    to->steps      = malloc((from->num_steps + 1) * sizeof(*to->steps));
    to->places     = malloc((from->num_places + 1) * sizeof(*to->places));
    to->waits      = malloc((from->num_waits + 1) * sizeof(*to->waits));
    if ((to->steps == NULL) || (to->places == NULL) || (to->waits == NULL)) {
        uct_cuda_coll_plan_release(to);
        return UCS_ERR_NO_MEMORY;
    }

    memcpy(to->steps, from->steps, from->num_steps * sizeof(*to->steps));
    memcpy(to->places, from->places, from->num_places * sizeof(*to->places));
    memcpy(to->waits, from->waits, from->num_waits * sizeof(*to->waits));
    return UCS_OK;
}

bool uct_cuda_coll_plan_is_same(const uct_cuda_coll_plan_t *plan, unsigned rank)
{
    return plan->is_in_place && uct_cuda_coll_kind_reduces(plan->kind) &&
           ((plan->kind != UCT_CUDA_COLL_KIND_REDUCE) || (rank == plan->root));
}

uint64_t uct_cuda_coll_plan_size(const uct_cuda_coll_plan_t *plan,
                                 unsigned rank, uct_cuda_coll_buffer_t buffer)
{
    const bool is_root = (rank == plan->root);
    const bool is_send = (buffer == UCT_CUDA_COLL_SEND);
    uint64_t block, or_none;

    if (rank >= plan->num_ranks) {
        return (buffer == UCT_CUDA_COLL_SCRATCH) ? plan->relay_scratch : 0;
    } else if (buffer == UCT_CUDA_COLL_SCRATCH) {
        return plan->scratch;
    }

    block   = plan->blocks[rank + 1] - plan->blocks[rank];
    or_none = plan->is_in_place ? 0 : block;

    switch (plan->kind) {
    case UCT_CUDA_COLL_KIND_REDUCE:
        return (is_send || is_root) ? plan->bytes : 0;
    case UCT_CUDA_COLL_KIND_REDUCE_SCATTER:
        return (is_send || plan->is_in_place) ? plan->bytes : block;
    case UCT_CUDA_COLL_KIND_BCAST:
        return (is_send == is_root) ? plan->bytes : 0;
    case UCT_CUDA_COLL_KIND_ALLGATHER:
        return is_send ? or_none : plan->bytes;
    case UCT_CUDA_COLL_KIND_GATHER:
        return is_send ? (is_root ? or_none : block) :
                         (is_root ? plan->bytes : 0);
    case UCT_CUDA_COLL_KIND_SCATTER:
        return is_send ? (is_root ? plan->bytes : 0) :
                         (is_root ? or_none : block);
    default:
        return plan->bytes;
    }
}

static bool place_equal(const uct_cuda_coll_place_t *a,
                        const uct_cuda_coll_place_t *b)
{
    return (a->offset == b->offset) && (a->rank == b->rank) &&
           (a->buffer == b->buffer);
}

static bool step_equal(const uct_cuda_coll_step_t *a,
                       const uct_cuda_coll_step_t *b)
{
    return (a->bytes == b->bytes) && (a->places == b->places) &&
           (a->waits == b->waits) && (a->num_waits == b->num_waits) &&
           (a->num_sources == b->num_sources) &&
           (a->num_destinations == b->num_destinations) &&
           (a->type == b->type) && (a->rank == b->rank) &&
           (a->queue == b->queue);
}

bool uct_cuda_coll_plan_equal(const uct_cuda_coll_plan_t *a,
                              const uct_cuda_coll_plan_t *b)
{
    uint32_t i;

    if ((a->kind != b->kind) || (a->root != b->root) ||
        (memcmp(a->blocks, b->blocks, sizeof(a->blocks)) != 0) ||
        (a->algorithm != b->algorithm) || (a->num_ranks != b->num_ranks) ||
        (a->num_queues != b->num_queues) ||
        (a->is_in_place != b->is_in_place) || (a->chunks != b->chunks) ||
        (a->element != b->element) || (a->bytes != b->bytes) ||
        (a->scratch != b->scratch) ||
        (a->relay_scratch != b->relay_scratch) ||
        (a->num_relays != b->num_relays) ||
        (memcmp(a->relays, b->relays, a->num_relays) != 0) ||
        (a->num_steps != b->num_steps) ||
        (a->num_places != b->num_places) || (a->num_waits != b->num_waits)) {
        return false;
    }

    for (i = 0; i < a->num_steps; ++i) {
        if (!step_equal(&a->steps[i], &b->steps[i])) {
            return false;
        }
    }

    for (i = 0; i < a->num_places; ++i) {
        if (!place_equal(&a->places[i], &b->places[i])) {
            return false;
        }
    }

    for (i = 0; i < a->num_waits; ++i) {
        if (a->waits[i] != b->waits[i]) {
            return false;
        }
    }

    return true;
}

const char *uct_cuda_coll_algorithm_str(unsigned algorithm)
{
    static const char *names[] = {"one kernel", "flat", "hierarchical", "ring"};

    return (algorithm < UCT_CUDA_COLL_ALGORITHM_LAST) ? names[algorithm] :
                                                        "unknown";
}

/* As the module says it, and the word of MPI's call */
static const struct {
    const char *name, *word;
} kinds[] = {
    [UCT_CUDA_COLL_KIND_ALLREDUCE]      = {"all-reduce", "allreduce"},
    [UCT_CUDA_COLL_KIND_REDUCE]         = {"reduce", "reduce"},
    [UCT_CUDA_COLL_KIND_REDUCE_SCATTER] = {"reduce-scatter", "reduce_scatter"},
    [UCT_CUDA_COLL_KIND_BCAST]          = {"broadcast", "bcast"},
    [UCT_CUDA_COLL_KIND_ALLGATHER]      = {"all-gather", "allgather"},
    [UCT_CUDA_COLL_KIND_GATHER]         = {"gather", "gather"},
    [UCT_CUDA_COLL_KIND_SCATTER]        = {"scatter", "scatter"},
    [UCT_CUDA_COLL_KIND_ALLTOALL]       = {"all-to-all", "alltoall"}
};

const char *uct_cuda_coll_kind_str(unsigned kind)
{
    return (kind < UCT_CUDA_COLL_KIND_LAST) ? kinds[kind].name : "unknown";
}

int uct_cuda_coll_kind_find(const char *word)
{
    int kind;

    for (kind = 0; kind < UCT_CUDA_COLL_KIND_LAST; ++kind) {
        if (strcmp(word, kinds[kind].word) == 0) {
            return kind;
        }
    }
    return -1;
}

/* What NCCL's tests multiply the rate of the whole with: on links of a ring */
static double bus_factor(const uct_cuda_coll_plan_t *plan)
{
    const double share = (plan->num_ranks - 1.) / plan->num_ranks;

    if (plan->kind == UCT_CUDA_COLL_KIND_ALLREDUCE) {
        return 2 * share;
    }
    return uct_cuda_coll_kind_has_blocks(plan->kind) ? share : 1;
}

static void print_places(const uct_cuda_coll_plan_t *plan, const char *before,
                         const uct_cuda_coll_place_t *places, unsigned count,
                         FILE *stream)
{
    static const char *names[] = {"send", "recv", "scratch", "?"};
    unsigned i, buffer;

    for (i = 0; i < count; ++i) {
        buffer = (places[i].buffer < UCT_CUDA_COLL_BUFFER_LAST) ?
                         places[i].buffer :
                         UCT_CUDA_COLL_BUFFER_LAST;
        fprintf(stream, "%s", (i == 0) ? before : ", ");
        if (places[i].rank < plan->num_ranks) {
            fprintf(stream, "%u.%s", places[i].rank, names[buffer]);
        } else {
            fprintf(stream, "relay%u",
                    plan->relays[places[i].rank - plan->num_ranks]);
        }
        fprintf(stream, "+%llu", (unsigned long long)places[i].offset);
    }
}

static void print_step(const uct_cuda_coll_plan_t *plan, unsigned index,
                       FILE *stream)
{
    const uct_cuda_coll_step_t *step = &plan->steps[index];
    unsigned w;

    fprintf(stream, "  %4u  rank %u queue %u  %s %llu bytes ", index,
            step->rank, step->queue,
            (step->type == UCT_CUDA_COLL_COPY) ? "copy" : "reduce",
            (unsigned long long)step->bytes);
    print_places(plan, " ", uct_cuda_coll_step_sources(plan, step),
                 step->num_sources, stream);
    print_places(plan, " -> ", uct_cuda_coll_step_destinations(plan, step),
                 step->num_destinations, stream);
    for (w = 0; w < step->num_waits; ++w) {
        fprintf(stream, "%s%u", (w == 0) ? ", after " : " ",
                uct_cuda_coll_step_waits(plan, step)[w]);
    }
    fprintf(stream, "\n");
}

void uct_cuda_coll_plan_print(const uct_cuda_coll_plan_t *plan, bool steps,
                              FILE *stream)
{
    uint32_t copies = 0;
    uint32_t i;

    for (i = 0; i < plan->num_steps; ++i) {
        copies += (plan->steps[i].type == UCT_CUDA_COLL_COPY);
    }

    fprintf(stream, "%s, %u ranks, %llu bytes%s: ",
            uct_cuda_coll_kind_str(plan->kind), plan->num_ranks,
            (unsigned long long)plan->bytes,
            plan->is_in_place ? " in place" : "");
    if (plan->num_steps == 0) {
        fprintf(stream, "nothing to do\n");
        return;
    }

    fprintf(stream,
            "%s, chunks a slice: %u; %u copies, %u kernels, %llu bytes of "
            "scratch a rank\n",
            uct_cuda_coll_algorithm_str(plan->algorithm), plan->chunks, copies,
            plan->num_steps - copies, (unsigned long long)plan->scratch);
    for (i = 0; i < plan->num_relays; ++i) {
        fprintf(stream, "%s GPU %u", (i == 0) ? "also over" : " and",
                plan->relays[i]);
    }
    if (plan->num_relays > 0) {
        fprintf(stream, ", %llu bytes of scratch each\n",
                (unsigned long long)plan->relay_scratch);
    }
    if (plan->seconds > 0) {
        fprintf(stream,
                "model: %.1f us, %.1f GB/s, bus bandwidth %.1f GB/s\n",
                plan->seconds * MEGA, plan->bytes / plan->seconds / GIGA,
                plan->bytes / plan->seconds / GIGA * bus_factor(plan));
    }

    for (i = 0; steps && (i < plan->num_steps); ++i) {
        print_step(plan, i, stream);
    }
}
