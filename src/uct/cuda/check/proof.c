/* SPDX-License-Identifier: BSD-3-Clause */
/* Check steps one by one, then in pairs, then execute them symbolically. */
#include <uct/cuda/check/proof.h>

#include <ucs/sys/math.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


typedef struct {
    uint64_t begin;
    uint64_t end;
    uint32_t step;
    unsigned memory;
    bool     is_write;
} access_t;


ucs_status_t ucx_mp_proof_fail(ucx_mp_proof_t *proof, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(proof->error, proof->error_size, format, ap);
    va_end(ap);
    return UCS_ERR_INVALID_PARAM;
}

static unsigned
memory_of(const ucx_mp_proof_t *proof, const uct_cuda_plan_place_t *place)
{
    return proof->subject->memory_of(proof->subject->plan, place);
}

static const char *memory_str(const ucx_mp_proof_t *proof, unsigned memory,
                              char *buffer, size_t size)
{
    return proof->subject->memory_str(proof->subject->plan, memory, buffer,
                                      size);
}


/* ----------------------------------------------------------------- memory */

ucs_status_t ucx_mp_proof_init(ucx_mp_proof_t *proof,
                               const ucx_mp_proof_subject_t *subject,
                               const uct_cuda_plan_steps_t *list, char *error,
                               size_t error_size)
{
    unsigned i;

    memset(proof, 0, sizeof(*proof));
    proof->subject    = subject;
    proof->list       = *list;
    proof->error      = error;
    proof->error_size = error_size;
    proof->row        = (list->num_steps + 63) / 64;
    proof->before     = calloc(proof->row * list->num_steps + 1,
                               sizeof(*proof->before));
    proof->max_terms  = 2 * UCX_MP_PROOF_INPUTS;
    proof->num_terms  = UCX_MP_PROOF_INPUTS;
    proof->terms      = calloc(proof->max_terms, sizeof(*proof->terms));
    proof->memories   = calloc(subject->num_memories,
                               sizeof(*proof->memories));
    if ((proof->before == NULL) || (proof->terms == NULL) ||
        (proof->memories == NULL)) {
        return UCS_ERR_NO_MEMORY;
    }

    for (i = 0; i < UCX_MP_PROOF_INPUTS; ++i) {
        proof->terms[i].inputs[i] = 1;
    }
    return UCS_OK;
}

void ucx_mp_proof_release(ucx_mp_proof_t *proof)
{
    unsigned m;

    for (m = 0; (proof->memories != NULL) && (m < proof->subject->num_memories);
         ++m) {
        free(proof->memories[m].pieces);
    }
    free(proof->memories);
    free(proof->terms);
    free(proof->before);
}

ucs_status_t ucx_mp_proof_memory(ucx_mp_proof_t *proof, unsigned memory,
                                 uint64_t size, uint32_t align, uint32_t term,
                                 uint64_t at)
{
    ucx_mp_proof_memory_t *self = &proof->memories[memory];

    self->size   = size;
    self->align  = align;
    self->max    = 16;
    self->count  = (size > 0) ? 1 : 0;
    self->pieces = calloc(self->max, sizeof(*self->pieces));
    if (self->pieces == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    self->pieces[0].bytes = size;
    self->pieces[0].term  = term;
    self->pieces[0].at    = at;
    return UCS_OK;
}

uint32_t
ucx_mp_proof_find(const ucx_mp_proof_memory_t *memory, uint64_t offset)
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

ucs_status_t ucx_mp_proof_split(ucx_mp_proof_memory_t *memory, uint64_t offset)
{
    ucx_mp_proof_piece_t *larger, *piece;
    uint64_t front;
    uint32_t p;

    if (offset >= memory->size) {
        return UCS_OK;
    }

    p     = ucx_mp_proof_find(memory, offset);
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

ucs_status_t ucx_mp_proof_replace(ucx_mp_proof_t *proof, unsigned memory,
                                  uint64_t offset, uint64_t bytes, uint64_t at,
                                  uint32_t term)
{
    ucx_mp_proof_memory_t *self = &proof->memories[memory];
    ucx_mp_proof_piece_t *piece;
    uint32_t first, next;

    if ((ucx_mp_proof_split(self, offset) != UCS_OK) ||
        (ucx_mp_proof_split(self, offset + bytes) != UCS_OK)) {
        return UCS_ERR_NO_MEMORY;
    }

    first = ucx_mp_proof_find(self, offset);
    piece = &self->pieces[first];
    next  = first + 1;
    while ((next < self->count) &&
           (self->pieces[next].offset < offset + bytes)) {
        ++next;
    }

    piece->bytes = bytes;
    piece->at    = at;
    piece->term  = term;
    memmove(piece + 1, &self->pieces[next],
            (self->count - next) * sizeof(*piece));
    self->count -= next - first - 1;
    return UCS_OK;
}


/* ------------------------------------------------------------------ steps */

static ucs_status_t check_place(ucx_mp_proof_t *proof, uint32_t index,
                                const uct_cuda_plan_step_t *step,
                                const uct_cuda_plan_place_t *place)
{
    const unsigned m = memory_of(proof, place);
    const ucx_mp_proof_memory_t *memory;
    char name[64];

    if (m >= proof->subject->num_memories) {
        return ucx_mp_proof_fail(proof,
                                 "step %u names owner %u, buffer %u, slot %u: "
                                 "no such place",
                                 index, place->owner, place->buffer,
                                 place->slot);
    }

    memory = &proof->memories[m];
    memory_str(proof, m, name, sizeof(name));
    if ((place->offset > memory->size) ||
        (step->bytes > memory->size - place->offset)) {
        return ucx_mp_proof_fail(proof,
                                 "step %u leaves %s: %llu bytes from %llu on, "
                                 "of %llu",
                                 index, name, (unsigned long long)step->bytes,
                                 (unsigned long long)place->offset,
                                 (unsigned long long)memory->size);
    }

    if (place->offset % memory->align != 0) {
        return ucx_mp_proof_fail(proof, "step %u begins inside an element of "
                                        "%s",
                                 index, name);
    }

    return UCS_OK;
}

static ucs_status_t check_step(ucx_mp_proof_t *proof, uint32_t index)
{
    const ucx_mp_proof_subject_t *subject = proof->subject;
    const uct_cuda_plan_step_t *step      = &proof->list.steps[index];
    const unsigned num_places             = step->num_sources +
                                            step->num_destinations;
    const uct_cuda_plan_place_t *place;
    ucs_status_t status;
    char name[64];
    unsigned i, m;

    if ((step->rank >= subject->num_ranks) ||
        (step->queue >= subject->num_queues)) {
        return ucx_mp_proof_fail(proof, "step %u is for queue %u of rank %u: "
                                        "no such queue",
                                 index, step->queue, step->rank);
    }

    if ((step->bytes == 0) || (step->bytes % subject->element != 0)) {
        return ucx_mp_proof_fail(proof, "step %u has %llu bytes: not a "
                                        "number of elements",
                                 index, (unsigned long long)step->bytes);
    }

    if ((step->type > UCT_CUDA_PLAN_STEP_REDUCE) || (step->num_sources == 0) ||
        (step->num_destinations == 0) ||
        (step->num_sources > subject->max_fan) ||
        (step->num_destinations > subject->max_fan) ||
        ((step->type == UCT_CUDA_PLAN_STEP_COPY) && (num_places != 2))) {
        return ucx_mp_proof_fail(proof, "step %u has %u sources and %u "
                                        "destinations",
                                 index, step->num_sources,
                                 step->num_destinations);
    }

    if (((uint64_t)step->places + num_places > proof->list.num_places) ||
        ((uint64_t)step->waits + step->num_waits > proof->list.num_waits)) {
        return ucx_mp_proof_fail(proof, "step %u has places or waits beyond "
                                        "the plan's",
                                 index);
    }

    for (i = 0; i < num_places; ++i) {
        place  = &proof->list.places[step->places + i];
        status = check_place(proof, index, step, place);
        if (status != UCS_OK) {
            return status;
        }

        m = memory_of(proof, place);
        if ((i >= step->num_sources) && proof->memories[m].is_fixed) {
            return ucx_mp_proof_fail(proof, "step %u writes read-only %s",
                                     index,
                                     memory_str(proof, m, name, sizeof(name)));
        }
    }

    for (i = 0; i < step->num_waits; ++i) {
        if (uct_cuda_plan_step_waits(&proof->list, step)[i] >= index) {
            return ucx_mp_proof_fail(
                    proof, "step %u waits for step %u, which is not earlier",
                    index, uct_cuda_plan_step_waits(&proof->list, step)[i]);
        }
    }

    return UCS_OK;
}

static ucs_status_t check_steps(ucx_mp_proof_t *proof)
{
    uint64_t places = 0;
    ucs_status_t status;
    uint32_t i;

    for (i = 0; i < proof->list.num_steps; ++i) {
        status = check_step(proof, i);
        if (status != UCS_OK) {
            return status;
        }
        places += proof->list.steps[i].num_sources +
                  proof->list.steps[i].num_destinations;
    }

    return (places <= proof->list.num_places) ?
                   UCS_OK :
                   ucx_mp_proof_fail(proof, "steps share places");
}


/* ------------------------------------------------------------------ races */

static void add_before(ucx_mp_proof_t *proof, uint32_t step, uint32_t earlier)
{
    uint64_t *row       = proof->before + step * proof->row;
    const uint64_t *its = proof->before + earlier * proof->row;
    size_t i;

    for (i = 0; i < proof->row; ++i) {
        row[i] |= its[i];
    }
    row[earlier / 64] |= 1ull << (earlier % 64);
}

static bool
is_before(const ucx_mp_proof_t *proof, uint32_t earlier, uint32_t step)
{
    return (proof->before[step * proof->row + earlier / 64] >>
            (earlier % 64)) & 1;
}

/* Compute the order given by waits and by in-order queues. */
static ucs_status_t find_order(ucx_mp_proof_t *proof)
{
    const uct_cuda_plan_steps_t *list = &proof->list;
    const unsigned num_queues         = proof->subject->num_queues;
    const uct_cuda_plan_step_t *step;
    uint32_t *last, *previous;
    uint32_t i, w;

    last = malloc((proof->subject->num_ranks * num_queues + 1) * sizeof(*last));
    if (last == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    for (i = 0; i < proof->subject->num_ranks * num_queues; ++i) {
        last[i] = UCT_CUDA_NO_STEP;
    }
    for (i = 0; i < list->num_steps; ++i) {
        step     = &list->steps[i];
        previous = &last[step->rank * num_queues + step->queue];
        for (w = 0; w < step->num_waits; ++w) {
            add_before(proof, i, uct_cuda_plan_step_waits(list, step)[w]);
        }
        if (*previous != UCT_CUDA_NO_STEP) {
            add_before(proof, i, *previous);
        }
        *previous = i;
    }

    free(last);
    return UCS_OK;
}

static int compare_accesses(const void *a, const void *b)
{
    const access_t *x = a, *y = b;

    return (x->memory != y->memory) ? ((x->memory < y->memory) ? -1 : 1) :
           (x->begin != y->begin)   ? ((x->begin < y->begin) ? -1 : 1) :
                                      ((x->step > y->step) -
                                       (x->step < y->step));
}

/* A kernel reads each element before it writes it */
static ucs_status_t
check_pair(ucx_mp_proof_t *proof, const access_t *a, const access_t *b)
{
    const uint32_t first  = ucs_min(a->step, b->step);
    const uint32_t second = ucs_max(a->step, b->step);
    char name[64];

    if (!a->is_write && !b->is_write) {
        return UCS_OK;
    }

    if (first != second) {
        return is_before(proof, first, second) ?
                       UCS_OK :
                       ucx_mp_proof_fail(
                               proof,
                               "steps %u and %u race for %s from byte %llu on",
                               first, second,
                               memory_str(proof, a->memory, name, sizeof(name)),
                               (unsigned long long)b->begin);
    }

    if ((a->is_write && b->is_write) || (a->begin != b->begin) ||
        (proof->list.steps[first].type == UCT_CUDA_PLAN_STEP_COPY)) {
        return ucx_mp_proof_fail(proof, "step %u overlaps with itself", first);
    }

    return UCS_OK;
}

/* List the accesses of all steps, by memory and byte. @return Their number */
static uint32_t list_accesses(const ucx_mp_proof_t *proof, access_t *accesses)
{
    uint32_t count = 0;
    const uct_cuda_plan_place_t *place;
    const uct_cuda_plan_step_t *step;
    uint32_t i, j;

    for (i = 0; i < proof->list.num_steps; ++i) {
        step = &proof->list.steps[i];
        for (j = 0; j < step->num_sources + step->num_destinations; ++j) {
            place                    = &proof->list.places[step->places + j];
            accesses[count].begin    = place->offset;
            accesses[count].end      = place->offset + step->bytes;
            accesses[count].step     = i;
            accesses[count].memory   = memory_of(proof, place);
            accesses[count].is_write = (j >= step->num_sources);
            ++count;
        }
    }

    qsort(accesses, count, sizeof(*accesses), compare_accesses);
    return count;
}

static ucs_status_t check_races(ucx_mp_proof_t *proof)
{
    access_t *accesses  = calloc(proof->list.num_places + 1,
                                 sizeof(*accesses));
    ucs_status_t status = UCS_OK;
    uint32_t i, j, count;

    if (accesses == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    count = list_accesses(proof, accesses);
    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        for (j = i + 1; (j < count) && (status == UCS_OK) &&
                        (accesses[j].memory == accesses[i].memory) &&
                        (accesses[j].begin < accesses[i].end);
             ++j) {
            status = check_pair(proof, &accesses[i], &accesses[j]);
        }
    }

    free(accesses);
    return status;
}


/* ------------------------------------------------------------------- sums */

/* Return the number of a sum, NO_TERM if out of memory. */
static uint32_t
sum_of(ucx_mp_proof_t *proof, const uint32_t *parts, unsigned count)
{
    ucx_mp_proof_term_t term = {.count = count};
    ucx_mp_proof_term_t *larger;
    unsigned i, input;
    uint32_t t;

    if (count == 1) {
        return parts[0];
    }

    memcpy(term.parts, parts, count * sizeof(*parts));
    for (t = UCX_MP_PROOF_INPUTS; t < proof->num_terms; ++t) {
        if ((proof->terms[t].count == count) &&
            (memcmp(proof->terms[t].parts, term.parts, sizeof(term.parts)) ==
             0)) {
            return t;
        }
    }

    for (i = 0; i < count; ++i) {
        for (input = 0; input < UCX_MP_PROOF_INPUTS; ++input) {
            term.inputs[input] = (uint8_t)ucs_min(
                    2, term.inputs[input] +
                               proof->terms[parts[i]].inputs[input]);
        }
    }

    if (proof->num_terms == proof->max_terms) {
        larger = realloc(proof->terms,
                         2 * proof->max_terms * sizeof(*proof->terms));
        if (larger == NULL) {
            return UCX_MP_PROOF_NO_TERM;
        }
        proof->terms      = larger;
        proof->max_terms *= 2;
    }

    proof->terms[proof->num_terms] = term;
    return proof->num_terms++;
}

/* Execute a step from byte `done` on, as far as each of its sources is one
   piece, and add the bytes to `done`. */
static ucs_status_t
add_some(ucx_mp_proof_t *proof, uint32_t index, uint64_t *done)
{
    const uct_cuda_plan_step_t *step = &proof->list.steps[index];
    uint64_t bytes                   = step->bytes - *done;
    uint64_t at                      = 0;
    uint32_t parts[UCX_MP_PROOF_INPUTS];
    const ucx_mp_proof_memory_t *memory;
    const ucx_mp_proof_piece_t *piece;
    const uct_cuda_plan_place_t *place;
    uint64_t offset;
    uint32_t term;
    char name[64];
    unsigned i, m;

    for (i = 0; i < step->num_sources; ++i) {
        place  = &uct_cuda_plan_step_sources(&proof->list, step)[i];
        m      = memory_of(proof, place);
        memory = &proof->memories[m];
        offset = place->offset + *done;
        piece  = &memory->pieces[ucx_mp_proof_find(memory, offset)];
        if (piece->term == UCX_MP_PROOF_NO_TERM) {
            return ucx_mp_proof_fail(
                    proof,
                    "step %u reads %s at byte %llu, which is not written",
                    index, memory_str(proof, m, name, sizeof(name)),
                    (unsigned long long)offset);
        }

        offset -= piece->offset;
        if (i == 0) {
            at = piece->at + offset;
        } else if (at != piece->at + offset) {
            return ucx_mp_proof_fail(
                    proof,
                    "step %u adds byte %llu of one rank to byte %llu of "
                    "another",
                    index, (unsigned long long)at,
                    (unsigned long long)(piece->at + offset));
        }

        parts[i] = piece->term;
        bytes    = ucs_min(bytes, piece->bytes - offset);
    }

    term = sum_of(proof, parts, step->num_sources);
    if (term == UCX_MP_PROOF_NO_TERM) {
        return UCS_ERR_NO_MEMORY;
    }

    for (i = 0; i < step->num_destinations; ++i) {
        place = &uct_cuda_plan_step_destinations(&proof->list, step)[i];
        if (ucx_mp_proof_replace(proof, memory_of(proof, place),
                                 place->offset + *done, bytes, at,
                                 term) != UCS_OK) {
            return UCS_ERR_NO_MEMORY;
        }
    }

    *done += bytes;
    return UCS_OK;
}

ucs_status_t ucx_mp_proof_run(ucx_mp_proof_t *proof)
{
    ucs_status_t status = check_steps(proof);
    uint64_t done;
    uint32_t i;

    if (status == UCS_OK) {
        status = find_order(proof);
    }
    if (status == UCS_OK) {
        status = check_races(proof);
    }

    for (i = 0; (i < proof->list.num_steps) && (status == UCS_OK); ++i) {
        for (done = 0;
             (done < proof->list.steps[i].bytes) && (status == UCS_OK);) {
            status = add_some(proof, i, &done);
        }
    }
    return status;
}
