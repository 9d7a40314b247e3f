/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checking plans. What surely happens before what follows from waits and from
 * the lanes' order alone; it is kept as one set of earlier steps for each step.
 */
#include <check/transfer_check.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>


#define WORD_BITS 64
#define WORDS     ((UCT_CUDA_MP_MAX_STEPS + WORD_BITS - 1) / WORD_BITS)

typedef struct {
    uint64_t before[UCT_CUDA_MP_MAX_STEPS][WORDS];
    char     *error;
    size_t   error_size;
} checker_t;


static ucs_status_t __attribute__((format(printf, 2, 3)))
reject(const checker_t *checker, const char *format, ...)
{
    va_list ap;

    if (checker->error_size > 0) {
        va_start(ap, format);
        vsnprintf(checker->error, checker->error_size, format, ap);
        va_end(ap);
    }

    return UCS_ERR_INVALID_PARAM;
}

static bool is_staging(const uct_cuda_mp_place_t *place)
{
    return (place->type == UCT_CUDA_MP_PLACE_STAGING_GPU) ||
           (place->type == UCT_CUDA_MP_PLACE_STAGING_HOST);
}

static bool same_slot(const uct_cuda_mp_place_t *a,
                      const uct_cuda_mp_place_t *b)
{
    return (a->type == b->type) && (a->owner == b->owner) &&
           (a->slot == b->slot);
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return (a < b + b_bytes) && (b < a + a_bytes);
}

static bool happens_before(const checker_t *checker, int first, int second)
{
    return (checker->before[second][first / WORD_BITS] >>
            (first % WORD_BITS)) & 1;
}

/* The end of a lane that a place is at, if any */
static uct_cuda_end_t place_end(const uct_cuda_mp_plan_t *plan,
                     const uct_cuda_mp_place_t *place)
{
    switch (place->type) {
    case UCT_CUDA_MP_PLACE_SOURCE:
        return plan->src;
    case UCT_CUDA_MP_PLACE_DESTINATION:
        return plan->dst;
    case UCT_CUDA_MP_PLACE_STAGING_GPU:
        return uct_cuda_end_gpu(place->owner);
    case UCT_CUDA_MP_PLACE_STAGING_HOST:
        return uct_cuda_end_host();
    default:
        return uct_cuda_end_none();
    }
}

/* Bytes that a place holds */
static uint64_t place_size(const uct_cuda_mp_plan_t *plan,
                           const uct_cuda_mp_place_t *place)
{
    return is_staging(place) ? plan->slot_size : plan->size;
}

static ucs_status_t check_place(const checker_t *checker,
                                const uct_cuda_mp_plan_t *plan, unsigned i,
                                const uct_cuda_mp_place_t *place,
                                uint64_t offset, uint64_t bytes)
{
    if (!uct_cuda_end_has_index(place_end(plan, place)) ||
        (is_staging(place) ? (place->slot >= UCT_CUDA_MP_PLAN_SLOTS) :
                             ((place->owner != 0) || (place->slot != 0)))) {
        return reject(checker, "step %u: no such place", i);
    }

    if ((offset > place_size(plan, place)) ||
        (bytes > place_size(plan, place) - offset)) {
        return reject(checker, "step %u: leaves its place", i);
    }

    return UCS_OK;
}

static ucs_status_t check_step(const checker_t *checker,
                               const uct_cuda_mp_plan_t *plan, unsigned i)
{
    const uct_cuda_mp_step_t *step = &plan->steps[i];
    uct_cuda_end_t from, to;
    ucs_status_t status;

    if (step->bytes == 0) {
        return reject(checker, "step %u: copies nothing", i);
    }

    if (step->path >= plan->num_paths) {
        return reject(checker, "step %u: no such path", i);
    }

    if ((step->from.type == UCT_CUDA_MP_PLACE_DESTINATION) ||
        (step->to.type == UCT_CUDA_MP_PLACE_SOURCE)) {
        return reject(checker, "step %u: runs the wrong way", i);
    }

    status = check_place(checker, plan, i, &step->from, step->from_offset,
                         step->bytes);
    if (status != UCS_OK) {
        return status;
    }

    status = check_place(checker, plan, i, &step->to, step->to_offset,
                         step->bytes);
    if (status != UCS_OK) {
        return status;
    }

    from = place_end(plan, &step->from);
    to   = place_end(plan, &step->to);
    if (uct_cuda_end_equal(from, to)) {
        return reject(checker, "step %u: stays where it is", i);
    }

    if (step->lane != uct_cuda_mp_lane(from, to)) {
        return reject(checker, "step %u: not on the lane between its places",
                      i);
    }

    if ((step->wait != UCT_CUDA_MP_NO_STEP) &&
        ((step->wait < 0) || (step->wait >= (int)i))) {
        return reject(checker, "step %u: waits for step %d, which is not an "
                      "earlier one", i, step->wait);
    }

    return UCS_OK;
}

static void note_before(checker_t *checker, unsigned step, int first)
{
    unsigned i;

    for (i = 0; i < WORDS; ++i) {
        checker->before[step][i] |= checker->before[first][i];
    }

    checker->before[step][first / WORD_BITS] |= 1ull << (first % WORD_BITS);
}

static void find_order(checker_t *checker, const uct_cuda_mp_plan_t *plan)
{
    int last_on_lane[UCT_CUDA_MP_NUM_LANES];
    const uct_cuda_mp_step_t *step;
    unsigned i;

    for (i = 0; i < UCT_CUDA_MP_NUM_LANES; ++i) {
        last_on_lane[i] = UCT_CUDA_MP_NO_STEP;
    }

    for (i = 0; i < plan->num_steps; ++i) {
        step = &plan->steps[i];
        if (last_on_lane[step->lane] != UCT_CUDA_MP_NO_STEP) {
            note_before(checker, i, last_on_lane[step->lane]);
        }
        last_on_lane[step->lane] = (int)i;

        if (step->wait != UCT_CUDA_MP_NO_STEP) {
            note_before(checker, i, step->wait);
        }
    }
}

/* The step that last wrote the bytes which step i reads, if one step wrote
 * them all and surely before, and all others surely before that one or after
 * step i; otherwise why not */
static ucs_status_t find_writer(const checker_t *checker,
                                const uct_cuda_mp_plan_t *plan, unsigned i,
                                int *writer_p)
{
    const uct_cuda_mp_step_t *reader = &plan->steps[i];
    const uct_cuda_mp_step_t *other;
    int writer = UCT_CUDA_MP_NO_STEP;
    unsigned j;

    for (j = 0; j < plan->num_steps; ++j) {
        other = &plan->steps[j];
        if ((j == i) || !same_slot(&other->to, &reader->from) ||
            !overlap(other->to_offset, other->bytes, reader->from_offset,
                     reader->bytes)) {
            continue;
        }

        if (happens_before(checker, (int)j, (int)i)) {
            if ((writer == UCT_CUDA_MP_NO_STEP) ||
                happens_before(checker, writer, (int)j)) {
                writer = (int)j;
            } else if (!happens_before(checker, (int)j, writer)) {
                return reject(checker, "steps %d and %u fill one slot in no "
                              "sure order", writer, j);
            }
        } else if (!happens_before(checker, (int)i, (int)j)) {
            return reject(checker, "step %u: reads a slot that step %u may be "
                          "writing", i, j);
        }
    }

    if (writer == UCT_CUDA_MP_NO_STEP) {
        return reject(checker, "step %u: reads a slot that nothing has filled",
                      i);
    }

    other = &plan->steps[writer];
    if ((other->to_offset > reader->from_offset) ||
        (other->to_offset + other->bytes <
         reader->from_offset + reader->bytes)) {
        return reject(checker, "step %u: reads more than step %d filled", i,
                      writer);
    }

    *writer_p = writer;
    return UCS_OK;
}

/* What a step puts into the destination must be the source's bytes of the same
 * offset, whatever slots they came through */
static ucs_status_t check_origin(const checker_t *checker,
                                 const uct_cuda_mp_plan_t *plan, unsigned i)
{
    const uct_cuda_mp_step_t *step = &plan->steps[i];
    uint64_t want                  = step->to_offset;
    uint64_t offset                = step->from_offset;
    int at                         = (int)i;
    ucs_status_t status;

    while (is_staging(&plan->steps[at].from)) {
        /* Each turn goes back in time, so this ends */
        status = find_writer(checker, plan, (unsigned)at, &at);
        if (status != UCS_OK) {
            return status;
        }

        offset = offset - plan->steps[at].to_offset +
                 plan->steps[at].from_offset;
    }

    if (offset != want) {
        return reject(checker, "step %u: puts the source's byte %llu at %llu",
                      i, (unsigned long long)offset, (unsigned long long)want);
    }

    return UCS_OK;
}

typedef struct {
    const uct_cuda_mp_plan_t *plan;
    int                      step;
} sorted_t;

static int compare_offsets(const void *left, const void *right)
{
    const sorted_t *a = left;
    const sorted_t *b = right;
    uint64_t a_offset = a->plan->steps[a->step].to_offset;
    uint64_t b_offset = b->plan->steps[b->step].to_offset;

    return (a_offset > b_offset) - (a_offset < b_offset);
}

static ucs_status_t check_coverage(const checker_t *checker,
                                   const uct_cuda_mp_plan_t *plan)
{
    uint64_t covered = 0;
    unsigned count   = 0;
    const uct_cuda_mp_step_t *step;
    ucs_status_t status;
    sorted_t *sorted;
    unsigned i;

    sorted = calloc(plan->num_steps + 1, sizeof(*sorted));
    if (sorted == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    for (i = 0; i < plan->num_steps; ++i) {
        if (plan->steps[i].to.type == UCT_CUDA_MP_PLACE_DESTINATION) {
            sorted[count].plan   = plan;
            sorted[count++].step = (int)i;
        }
    }

    qsort(sorted, count, sizeof(*sorted), compare_offsets);
    status = UCS_OK;
    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        step = &plan->steps[sorted[i].step];
        if (step->to_offset < covered) {
            status = reject(checker, "step %d: writes destination bytes again",
                            sorted[i].step);
        } else if (step->to_offset > covered) {
            status = reject(checker, "nothing writes destination byte %llu",
                            (unsigned long long)covered);
        }
        covered = step->to_offset + step->bytes;
    }

    if ((status == UCS_OK) && (covered != plan->size)) {
        status = reject(checker, "nothing writes destination byte %llu",
                        (unsigned long long)covered);
    }

    free(sorted);
    return status;
}

static ucs_status_t check_all(checker_t *checker,
                              const uct_cuda_mp_plan_t *plan)
{
    char src[16], dst[16];
    ucs_status_t status;
    unsigned i;

    if ((plan->num_steps > UCT_CUDA_MP_MAX_STEPS) ||
        (plan->num_paths > UCT_CUDA_MP_MAX_PATHS)) {
        return reject(checker, "%u steps, %u paths: too many", plan->num_steps,
                      plan->num_paths);
    }

    if (plan->num_paths == 0) {
        return (plan->num_steps == 0) ?
                       UCS_OK :
                       reject(checker, "%u steps, but no paths",
                              plan->num_steps);
    }

    if (!uct_cuda_end_has_index(plan->src) ||
        !uct_cuda_end_has_index(plan->dst) ||
        uct_cuda_end_equal(plan->src, plan->dst)) {
        return reject(checker, "no transfer from %s to %s",
                      uct_cuda_end_str(plan->src, src, sizeof(src)),
                      uct_cuda_end_str(plan->dst, dst, sizeof(dst)));
    }

    for (i = 0; i < plan->num_steps; ++i) {
        status = check_step(checker, plan, i);
        if (status != UCS_OK) {
            return status;
        }
    }

    status = check_coverage(checker, plan);
    if (status != UCS_OK) {
        return status;
    }

    find_order(checker, plan);
    for (i = 0; i < plan->num_steps; ++i) {
        if (plan->steps[i].to.type == UCT_CUDA_MP_PLACE_DESTINATION) {
            status = check_origin(checker, plan, i);
            if (status != UCS_OK) {
                return status;
            }
        }
    }

    return UCS_OK;
}

ucs_status_t uct_cuda_mp_plan_check(const uct_cuda_mp_plan_t *plan, char *error,
                                    size_t error_size)
{
    checker_t *checker;
    ucs_status_t status;

    checker = calloc(1, sizeof(*checker));
    if (checker == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    checker->error      = error;
    checker->error_size = error_size;
    status              = check_all(checker, plan);
    free(checker);
    return status;
}
