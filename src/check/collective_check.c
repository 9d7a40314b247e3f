/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A plan is carried out on names instead of numbers. A piece of memory holds a
 * term, which is a rank's input or a sum of terms in their order, for a range
 * of the collective's bytes; equal terms have equal numbers. Where no two steps
 * race, the plan's own order stands for every other one.
 */
#include <check/collective_check.h>

#include <ucs/sys/math.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>


#define MAX_RANKS UCT_CUDA_COLL_MAX_RANKS
#define MAX_FAN   UCT_CUDA_COLL_MAX_FAN

/* Two memories a rank in place, three otherwise */
#define NUM_MEMORIES (UCT_CUDA_COLL_MAX_MEMBERS * UCT_CUDA_COLL_BUFFER_LAST)

#define NO_TERM UINT32_MAX


/* Terms up to MAX_RANKS - 1 are the ranks' inputs */
typedef struct {
    unsigned count;
    uint32_t parts[MAX_RANKS];
    uint8_t  inputs[MAX_RANKS]; /* how often each is in it */
} term_t;


/* Bytes from `offset` on hold `term` of the collective's bytes from `at` on */
typedef struct {
    uint64_t offset;
    uint64_t bytes;
    uint64_t at;
    uint32_t term;
} piece_t;


/* Pieces in the order of offsets, nothing between them */
typedef struct {
    uint64_t size;
    uint32_t count;
    uint32_t max;
    piece_t  *pieces;
} memory_t;


typedef struct {
    uint64_t begin;
    uint64_t end;
    uint32_t step;
    uint32_t memory;
    bool     is_write;
} access_t;


typedef struct {
    const uct_cuda_coll_plan_t *plan;
    memory_t     memories[NUM_MEMORIES];
    term_t       *terms;
    uint32_t     num_terms;
    uint32_t     max_terms;
    uint64_t     *before;  /* bits, a row a step: what has ended by its start */
    size_t       row;      /* words of one */
    access_t     *accesses;
    char         *error;
    size_t       error_size;
} check_t;


static ucs_status_t fail(check_t *check, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

static ucs_status_t fail(check_t *check, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(check->error, check->error_size, format, ap);
    va_end(ap);
    return UCS_ERR_INVALID_PARAM;
}

static const char *buffer_str(unsigned buffer)
{
    return (buffer == UCT_CUDA_COLL_SEND) ? "send" :
           (buffer == UCT_CUDA_COLL_RECV) ? "recv" :
                                            "scratch";
}

/* In place, what is sent is where the result goes */
static unsigned memory_of(const uct_cuda_coll_plan_t *plan, unsigned rank,
                          unsigned buffer)
{
    if ((buffer == UCT_CUDA_COLL_SEND) &&
        uct_cuda_coll_plan_is_same(plan, rank)) {
        buffer = UCT_CUDA_COLL_RECV;
    }

    return rank * UCT_CUDA_COLL_BUFFER_LAST + buffer;
}


/* ------------------------------------------------------------------ shape */

static ucs_status_t check_place(check_t *check, uint32_t index,
                                const uct_cuda_coll_step_t *step,
                                const uct_cuda_coll_place_t *place)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    uint64_t size;

    if ((place->rank >= plan->num_ranks + plan->num_relays) ||
        (place->buffer >= UCT_CUDA_COLL_BUFFER_LAST) ||
        ((place->rank >= plan->num_ranks) &&
         (place->buffer != UCT_CUDA_COLL_SCRATCH))) {
        return fail(check, "step %u names rank %u, buffer %u: there is none",
                    index, place->rank, place->buffer);
    }

    size = uct_cuda_coll_plan_size(plan, place->rank,
                                   (uct_cuda_coll_buffer_t)place->buffer);
    if ((place->offset > size) || (step->bytes > size - place->offset)) {
        return fail(check, "step %u leaves %s of rank %u: %llu bytes from %llu "
                           "on, of %llu",
                    index, buffer_str(place->buffer), place->rank,
                    (unsigned long long)step->bytes,
                    (unsigned long long)place->offset,
                    (unsigned long long)size);
    }

    if (place->offset % ((place->buffer == UCT_CUDA_COLL_SCRATCH) ?
                                 16 :
                                 plan->element) != 0) {
        return fail(check, "step %u begins inside an element of %s of rank %u",
                    index, buffer_str(place->buffer), place->rank);
    }

    return UCS_OK;
}

static ucs_status_t check_step(check_t *check, uint32_t index)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    const uct_cuda_coll_step_t *step = &plan->steps[index];
    const unsigned num_places        = step->num_sources +
                                       step->num_destinations;
    const uct_cuda_coll_place_t *place;
    ucs_status_t status;
    unsigned i;

    if ((step->rank >= plan->num_ranks) || (step->queue >= plan->num_queues) ||
        (plan->num_queues > UCT_CUDA_COLL_MAX_QUEUES)) {
        return fail(check, "step %u is for queue %u of rank %u: there is none",
                    index, step->queue, step->rank);
    }

    if ((step->bytes == 0) || (step->bytes % plan->element != 0)) {
        return fail(check, "step %u has %llu bytes, no whole elements", index,
                    (unsigned long long)step->bytes);
    }

    if ((step->type > UCT_CUDA_COLL_REDUCE) || (step->num_sources == 0) ||
        (step->num_destinations == 0) || (step->num_sources > MAX_FAN) ||
        (step->num_destinations > MAX_FAN) ||
        ((step->type == UCT_CUDA_COLL_COPY) && (num_places != 2))) {
        return fail(check, "step %u has %u sources and %u destinations", index,
                    step->num_sources, step->num_destinations);
    }

    if (((uint64_t)step->places + num_places > plan->num_places) ||
        ((uint64_t)step->waits + step->num_waits > plan->num_waits)) {
        return fail(check, "step %u has places or waits beyond the plan's",
                    index);
    }

    for (i = 0; i < num_places; ++i) {
        status = check_place(check, index, step,
                             &plan->places[step->places + i]);
        if (status != UCS_OK) {
            return status;
        }
    }

    for (i = 0; i < step->num_destinations; ++i) {
        place = &uct_cuda_coll_step_destinations(plan, step)[i];
        if ((place->buffer == UCT_CUDA_COLL_SEND) &&
            !uct_cuda_coll_plan_is_same(plan, place->rank)) {
            return fail(check, "step %u writes what the caller sends", index);
        }
    }

    for (i = 0; i < step->num_waits; ++i) {
        if (uct_cuda_coll_step_waits(plan, step)[i] >= index) {
            return fail(check, "step %u waits for step %u, which is no earlier "
                               "one",
                        index, uct_cuda_coll_step_waits(plan, step)[i]);
        }
    }

    return UCS_OK;
}


/* ------------------------------------------------------------------ races */

static void add_before(check_t *check, uint32_t step, uint32_t earlier)
{
    uint64_t *row       = check->before + step * check->row;
    const uint64_t *its = check->before + earlier * check->row;
    size_t i;

    for (i = 0; i < check->row; ++i) {
        row[i] |= its[i];
    }
    row[earlier / 64] |= 1ull << (earlier % 64);
}

static bool is_before(const check_t *check, uint32_t earlier, uint32_t step)
{
    return (check->before[step * check->row + earlier / 64] >>
            (earlier % 64)) & 1;
}

/* Waits, and queues that work in order */
static void find_order(check_t *check)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    uint32_t last[MAX_RANKS][UCT_CUDA_COLL_MAX_QUEUES];
    const uct_cuda_coll_step_t *step;
    uint32_t i, w;

    memset(last, 0xff, sizeof(last));
    for (i = 0; i < plan->num_steps; ++i) {
        step = &plan->steps[i];
        for (w = 0; w < step->num_waits; ++w) {
            add_before(check, i, uct_cuda_coll_step_waits(plan, step)[w]);
        }
        if (last[step->rank][step->queue] != UINT32_MAX) {
            add_before(check, i, last[step->rank][step->queue]);
        }
        last[step->rank][step->queue] = i;
    }
}

static int compare_accesses(const void *a, const void *b)
{
    const access_t *x = a, *y = b;

    return (x->memory != y->memory) ? ((x->memory < y->memory) ? -1 : 1) :
           (x->begin != y->begin)   ? ((x->begin < y->begin) ? -1 : 1) :
                                      ((x->step > y->step) -
                                       (x->step < y->step));
}

/* A kernel reads an element before it writes it */
static ucs_status_t check_pair(check_t *check, const access_t *a,
                               const access_t *b)
{
    const uint32_t first  = ucs_min(a->step, b->step);
    const uint32_t second = ucs_max(a->step, b->step);

    if (!a->is_write && !b->is_write) {
        return UCS_OK;
    }

    if (first != second) {
        return is_before(check, first, second) ?
                       UCS_OK :
                       fail(check,
                            "steps %u and %u race for %s of rank %u from byte "
                            "%llu on",
                            first, second,
                            buffer_str(a->memory % UCT_CUDA_COLL_BUFFER_LAST),
                            a->memory / UCT_CUDA_COLL_BUFFER_LAST,
                            (unsigned long long)b->begin);
    }

    if ((a->is_write && b->is_write) || (a->begin != b->begin) ||
        (check->plan->steps[first].type == UCT_CUDA_COLL_COPY)) {
        return fail(check, "step %u overlaps with itself", first);
    }

    return UCS_OK;
}

static ucs_status_t check_races(check_t *check)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    uint32_t count                   = 0;
    const uct_cuda_coll_step_t *step;
    const uct_cuda_coll_place_t *place;
    ucs_status_t status;
    uint32_t i, j;

    for (i = 0; i < plan->num_steps; ++i) {
        step = &plan->steps[i];
        for (j = 0; j < step->num_sources + step->num_destinations; ++j) {
            place                        = &plan->places[step->places + j];
            check->accesses[count].begin = place->offset;
            check->accesses[count].end   = place->offset + step->bytes;
            check->accesses[count].step  = i;
            check->accesses[count].memory = memory_of(plan, place->rank,
                                                      place->buffer);
            check->accesses[count].is_write = (j >= step->num_sources);
            ++count;
        }
    }

    qsort(check->accesses, count, sizeof(*check->accesses), compare_accesses);
    for (i = 0; i < count; ++i) {
        for (j = i + 1; (j < count) &&
                        (check->accesses[j].memory ==
                         check->accesses[i].memory) &&
                        (check->accesses[j].begin < check->accesses[i].end);
             ++j) {
            status = check_pair(check, &check->accesses[i],
                                &check->accesses[j]);
            if (status != UCS_OK) {
                return status;
            }
        }
    }

    return UCS_OK;
}


/* ------------------------------------------------------------------- sums */

/* The number of a sum; NO_TERM without memory */
static uint32_t sum_of(check_t *check, const uint32_t *parts, unsigned count)
{
    term_t term = {.count = count};
    uint32_t t;
    unsigned i, rank;
    term_t *larger;

    if (count == 1) {
        return parts[0];
    }

    memcpy(term.parts, parts, count * sizeof(*parts));
    for (t = MAX_RANKS; t < check->num_terms; ++t) {
        if ((check->terms[t].count == count) &&
            (memcmp(check->terms[t].parts, term.parts, sizeof(term.parts)) ==
             0)) {
            return t;
        }
    }

    for (i = 0; i < count; ++i) {
        for (rank = 0; rank < MAX_RANKS; ++rank) {
            term.inputs[rank] = (uint8_t)ucs_min(
                    2, term.inputs[rank] +
                               check->terms[parts[i]].inputs[rank]);
        }
    }

    if (check->num_terms == check->max_terms) {
        larger = realloc(check->terms,
                         2 * check->max_terms * sizeof(*check->terms));
        if (larger == NULL) {
            return NO_TERM;
        }
        check->terms      = larger;
        check->max_terms *= 2;
    }

    check->terms[check->num_terms] = term;
    return check->num_terms++;
}

/* The piece that has this byte, which is below the memory's size */
static uint32_t find_piece(const memory_t *memory, uint64_t offset)
{
    uint32_t low = 0, high = memory->count - 1, middle;

    while (low < high) {
        middle = (low + high + 1) / 2;
        if (memory->pieces[middle].offset <= offset) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }

    return low;
}

/* Let a piece begin here */
static ucs_status_t split(memory_t *memory, uint64_t offset)
{
    piece_t *larger, *piece;
    uint64_t front;
    uint32_t p;

    if (offset >= memory->size) {
        return UCS_OK;
    }

    p     = find_piece(memory, offset);
    front = offset - memory->pieces[p].offset;
    if (front == 0) {
        return UCS_OK;
    }

    if (memory->count == memory->max) {
        larger = realloc(memory->pieces,
                         2 * memory->max * sizeof(*memory->pieces));
        if (larger == NULL) {
            return UCS_ERR_NO_MEMORY;
        }
        memory->pieces = larger;
        memory->max   *= 2;
    }

    piece = &memory->pieces[p];
    memmove(piece + 1, piece, (memory->count - p) * sizeof(*piece));
    ++memory->count;
    piece[0].bytes   = front;
    piece[1].offset += front;
    piece[1].at     += front;
    piece[1].bytes  -= front;
    return UCS_OK;
}

/* Bytes from `offset` on hold this now; they begin and end with pieces */
static void replace(memory_t *memory, uint64_t offset, uint64_t bytes,
                    uint64_t at, uint32_t term)
{
    const uint32_t first = find_piece(memory, offset);
    uint32_t next        = first + 1;
    piece_t *piece       = &memory->pieces[first];

    while ((next < memory->count) &&
           (memory->pieces[next].offset < offset + bytes)) {
        ++next;
    }

    piece->bytes = bytes;
    piece->at    = at;
    piece->term  = term;
    memmove(piece + 1, &memory->pieces[next],
            (memory->count - next) * sizeof(*piece));
    memory->count -= next - first - 1;
}

/* Carry out a step from byte `done` of it on, as far as its sources are pieces
 * of one kind each; how far that was is added to `done` */
static ucs_status_t add_some(check_t *check, uint32_t index, uint64_t *done)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    const uct_cuda_coll_step_t *step = &plan->steps[index];
    uint64_t bytes                   = step->bytes - *done;
    const uct_cuda_coll_place_t *place;
    uint32_t parts[MAX_RANKS];
    const piece_t *piece;
    memory_t *memory;
    uint64_t at = 0, offset;
    uint32_t term;
    unsigned i;

    for (i = 0; i < step->num_sources; ++i) {
        place  = &uct_cuda_coll_step_sources(plan, step)[i];
        memory = &check->memories[memory_of(plan, place->rank, place->buffer)];
        offset = place->offset + *done;
        piece  = &memory->pieces[find_piece(memory, offset)];
        if (piece->term == NO_TERM) {
            return fail(check,
                        "step %u reads %s of rank %u at byte %llu, which is "
                        "not written",
                        index, buffer_str(place->buffer), place->rank,
                        (unsigned long long)offset);
        }

        offset -= piece->offset;
        if (i == 0) {
            at = piece->at + offset;
        } else if (at != piece->at + offset) {
            return fail(check,
                        "step %u adds byte %llu of one rank to byte %llu of "
                        "another",
                        index, (unsigned long long)at,
                        (unsigned long long)(piece->at + offset));
        }

        parts[i] = piece->term;
        bytes    = ucs_min(bytes, piece->bytes - offset);
    }

    term = sum_of(check, parts, step->num_sources);
    if (term == NO_TERM) {
        return UCS_ERR_NO_MEMORY;
    }

    for (i = 0; i < step->num_destinations; ++i) {
        place  = &uct_cuda_coll_step_destinations(plan, step)[i];
        memory = &check->memories[memory_of(plan, place->rank, place->buffer)];
        offset = place->offset + *done;
        if ((split(memory, offset) != UCS_OK) ||
            (split(memory, offset + bytes) != UCS_OK)) {
            return UCS_ERR_NO_MEMORY;
        }
        replace(memory, offset, bytes, at, term);
    }

    *done += bytes;
    return UCS_OK;
}

/* Whose block of the whole a byte of it is in */
static unsigned owner_of(const uct_cuda_coll_plan_t *plan, uint64_t at)
{
    unsigned rank = 0;

    while ((rank + 1 < plan->num_ranks) && (plan->blocks[rank + 1] <= at)) {
        ++rank;
    }

    return rank;
}

/* The rank whose input a byte of a result is, and where it is in that; of
 * reductions, no rank's */
static unsigned expected(const uct_cuda_coll_plan_t *plan, unsigned rank,
                         uint64_t offset, uint64_t *at_p)
{
    *at_p = offset;
    switch (plan->kind) {
    case UCT_CUDA_COLL_KIND_REDUCE_SCATTER:
        *at_p = plan->blocks[rank] + offset;
        return MAX_RANKS;
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
        return MAX_RANKS;
    }
}

/* All ranks' inputs, once each */
static ucs_status_t check_sum(check_t *check, unsigned rank,
                              const piece_t *piece)
{
    const term_t *term = &check->terms[piece->term];
    unsigned r;

    for (r = 0; r < check->plan->num_ranks; ++r) {
        if (term->inputs[r] != 1) {
            return fail(check,
                        "rank %u's result at byte %llu has the input of rank "
                        "%u %s",
                        rank, (unsigned long long)piece->offset, r,
                        (term->inputs[r] == 0) ? "not" : "more than once");
        }
    }

    return UCS_OK;
}

static ucs_status_t check_order(check_t *check, unsigned rank,
                                const piece_t *piece)
{
    const memory_t *first = &check->memories[memory_of(check->plan, 0,
                                                       UCT_CUDA_COLL_RECV)];
    const piece_t *other;

    /* Pieces of the other that begin in this one, and the one before */
    other = &first->pieces[find_piece(first, piece->offset)];
    for (; (other < first->pieces + first->count) &&
           (other->offset < piece->offset + piece->bytes);
         ++other) {
        if (other->term != piece->term) {
            return fail(check, "ranks 0 and %u add in another order at byte "
                               "%llu",
                        rank,
                        (unsigned long long)ucs_max(other->offset,
                                                    piece->offset));
        }
    }

    return UCS_OK;
}

/* What a rank gets; a reduce-scatter in place may leave anything behind that */
static ucs_status_t check_result(check_t *check, unsigned rank)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    memory_t *memory                 = &check->memories[memory_of(
            plan, rank, UCT_CUDA_COLL_RECV)];
    uint64_t size                    = memory->size;
    ucs_status_t status              = UCS_OK;
    const piece_t *piece;
    uint64_t at, last;
    unsigned input;
    uint32_t p;

    if (plan->kind == UCT_CUDA_COLL_KIND_REDUCE_SCATTER) {
        size = plan->blocks[rank + 1] - plan->blocks[rank];
    }

    if (split(memory, size) != UCS_OK) {
        return UCS_ERR_NO_MEMORY;
    }

    for (p = 0; (p < memory->count) && (memory->pieces[p].offset < size) &&
                (status == UCS_OK);
         ++p) {
        piece = &memory->pieces[p];
        input = expected(plan, rank, piece->offset, &at);
        if ((piece->term == NO_TERM) || (piece->at != at) ||
            ((input < MAX_RANKS) &&
             ((piece->term != input) ||
              (expected(plan, rank, piece->offset + piece->bytes - 1, &last) !=
               input)))) {
            return fail(check, "rank %u's result at byte %llu is %s", rank,
                        (unsigned long long)piece->offset,
                        (piece->term == NO_TERM) ? "never written" :
                                                   "another byte's");
        }

        if (input == MAX_RANKS) {
            status = check_sum(check, rank, piece);
        }
        if ((status == UCS_OK) &&
            (plan->kind == UCT_CUDA_COLL_KIND_ALLREDUCE)) {
            status = check_order(check, rank, piece);
        }
    }

    return status;
}

static ucs_status_t check_sums(check_t *check)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    ucs_status_t status;
    uint64_t done;
    uint32_t i;
    unsigned rank;

    for (i = 0; i < plan->num_steps; ++i) {
        for (done = 0; done < plan->steps[i].bytes;) {
            status = add_some(check, i, &done);
            if (status != UCS_OK) {
                return status;
            }
        }
    }

    for (rank = 0; rank < plan->num_ranks; ++rank) {
        status = check_result(check, rank);
        if (status != UCS_OK) {
            return status;
        }
    }

    return UCS_OK;
}


/* -------------------------------------------------------------- all of it */

static ucs_status_t init_memory(check_t *check, unsigned rank, unsigned buffer)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    const bool is_block = (plan->kind == UCT_CUDA_COLL_KIND_ALLGATHER) ||
                          (plan->kind == UCT_CUDA_COLL_KIND_GATHER);
    const bool is_input = (rank < plan->num_ranks) &&
                          ((buffer == UCT_CUDA_COLL_SEND) ||
                           ((buffer == UCT_CUDA_COLL_RECV) &&
                            uct_cuda_coll_plan_is_same(plan, rank)));
    memory_t *memory    = &check->memories[rank * UCT_CUDA_COLL_BUFFER_LAST +
                                           buffer];

    memory->size   = uct_cuda_coll_plan_size(plan, rank,
                                             (uct_cuda_coll_buffer_t)buffer);
    memory->max    = 16;
    memory->pieces = calloc(memory->max, sizeof(*memory->pieces));
    if (memory->pieces == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    memory->count           = (memory->size > 0) ? 1 : 0;
    memory->pieces[0].bytes = memory->size;
    memory->pieces[0].term  = is_input ? rank : NO_TERM;
    memory->pieces[0].at    = (is_input && is_block) ? plan->blocks[rank] : 0;

    /* In place the own block is there already */
    if ((buffer == UCT_CUDA_COLL_RECV) && is_block && plan->is_in_place &&
        (memory->size > 0) && (plan->blocks[rank + 1] > plan->blocks[rank])) {
        if ((split(memory, plan->blocks[rank]) != UCS_OK) ||
            (split(memory, plan->blocks[rank + 1]) != UCS_OK)) {
            return UCS_ERR_NO_MEMORY;
        }
        replace(memory, plan->blocks[rank],
                plan->blocks[rank + 1] - plan->blocks[rank],
                plan->blocks[rank], rank);
    }

    return UCS_OK;
}

static ucs_status_t init(check_t *check)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    unsigned rank, buffer;

    check->row       = (plan->num_steps + 63) / 64;
    check->before    = calloc(check->row * plan->num_steps + 1,
                              sizeof(*check->before));
    check->accesses  = calloc(plan->num_places + 1, sizeof(*check->accesses));
    check->max_terms = 4 * MAX_RANKS;
    check->num_terms = MAX_RANKS;
    check->terms     = calloc(check->max_terms, sizeof(*check->terms));
    if ((check->before == NULL) || (check->accesses == NULL) ||
        (check->terms == NULL)) {
        return UCS_ERR_NO_MEMORY;
    }

    for (rank = 0; rank < plan->num_ranks; ++rank) {
        check->terms[rank].inputs[rank] = 1;
    }
    for (rank = 0; rank < plan->num_ranks + plan->num_relays; ++rank) {
        for (buffer = 0; buffer < UCT_CUDA_COLL_BUFFER_LAST; ++buffer) {
            if (init_memory(check, rank, buffer) != UCS_OK) {
                return UCS_ERR_NO_MEMORY;
            }
        }
    }

    return UCS_OK;
}

static ucs_status_t check_all(check_t *check)
{
    const uct_cuda_coll_plan_t *plan = check->plan;
    ucs_status_t status;
    uint64_t places = 0;
    uint32_t i;

    if ((plan->num_ranks == 0) || (plan->num_ranks > MAX_RANKS) ||
        (plan->num_relays > UCT_CUDA_COLL_MAX_RELAYS) ||
        (plan->kind >= UCT_CUDA_COLL_KIND_LAST) ||
        (plan->root >= plan->num_ranks) || (plan->element == 0) ||
        (plan->bytes % plan->element != 0)) {
        return fail(check, "%u ranks with %llu bytes in elements of %u",
                    plan->num_ranks, (unsigned long long)plan->bytes,
                    plan->element);
    }

    for (i = 0; uct_cuda_coll_kind_has_blocks(plan->kind) &&
                (i < plan->num_ranks);
         ++i) {
        if ((plan->blocks[0] != 0) ||
            (plan->blocks[i + 1] < plan->blocks[i]) ||
            (plan->blocks[plan->num_ranks] != plan->bytes)) {
            return fail(check, "blocks of ranks are no parts of the whole");
        }
    }

    for (i = 0; i < plan->num_steps; ++i) {
        status = check_step(check, i);
        if (status != UCS_OK) {
            return status;
        }
        places += plan->steps[i].num_sources + plan->steps[i].num_destinations;
    }

    if (places > plan->num_places) {
        return fail(check, "steps share places");
    }

    status = init(check);
    if (status != UCS_OK) {
        return status;
    }

    find_order(check);
    status = check_races(check);
    return (status != UCS_OK) ? status : check_sums(check);
}

ucs_status_t uct_cuda_coll_plan_check(const uct_cuda_coll_plan_t *plan,
                                      char *error, size_t error_size)
{
    check_t *check = calloc(1, sizeof(*check));
    ucs_status_t status;
    unsigned m;

    if (check == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    check->plan       = plan;
    check->error      = error;
    check->error_size = error_size;
    status            = check_all(check);

    for (m = 0; m < NUM_MEMORIES; ++m) {
        free(check->memories[m].pieces);
    }
    free(check->before);
    free(check->accesses);
    free(check->terms);
    free(check);
    return status;
}
