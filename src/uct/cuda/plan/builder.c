/* SPDX-License-Identifier: BSD-3-Clause */
/* Filling arrays of fixed size, sorting steps, removing redundant waits. */
#include <uct/cuda/plan/builder.h>

#include <ucs/sys/math.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>


/* Limit of queue numbers before renumbering */
#define MAX_NAMES 256

/* Larger plans keep redundant waits */
#define MAX_PRUNED 8192


ucs_status_t uct_cuda_plan_builder_init(uct_cuda_plan_builder_t *builder,
                                        uct_cuda_plan_coll_t *plan,
                                        size_t max_steps, size_t max_places,
                                        size_t max_waits)
{
    memset(builder, 0, sizeof(*builder));
    builder->plan       = plan;
    builder->max_steps  = (uint32_t)max_steps;
    builder->max_places = (uint32_t)max_places;
    builder->max_waits  = (uint32_t)max_waits;
    builder->levels     = malloc((max_steps + 1) * sizeof(*builder->levels));
    if ((builder->levels == NULL) ||
        (uct_cuda_plan_steps_alloc(&plan->list, max_steps, max_places,
                                   max_waits) != UCS_OK)) {
        free(builder->levels);
        uct_cuda_plan_coll_release(plan);
        return UCS_ERR_NO_MEMORY;
    }

    return UCS_OK;
}

uint32_t uct_cuda_plan_builder_step(uct_cuda_plan_builder_t *builder,
                                    uct_cuda_plan_step_type_t type,
                                    unsigned rank, unsigned queue,
                                    uint64_t bytes, unsigned level)
{
    uct_cuda_plan_steps_t *list     = &builder->plan->list;
    const uct_cuda_plan_step_t step = {
        .type = (uint8_t)type, .rank = (uint8_t)rank, .queue = (uint16_t)queue,
        .bytes = bytes, .places = list->num_places, .waits = list->num_waits,
        .part = UCT_CUDA_PLAN_STEP_NO_PART
    };

    assert(list->num_steps < builder->max_steps);
    assert(queue < MAX_NAMES);
    list->steps[list->num_steps]    = step;
    builder->levels[list->num_steps] = level;
    return list->num_steps++;
}

static uct_cuda_plan_step_t *last_step(uct_cuda_plan_builder_t *builder)
{
    uct_cuda_plan_steps_t *list = &builder->plan->list;

    return &list->steps[list->num_steps - 1];
}

void uct_cuda_plan_builder_place(uct_cuda_plan_builder_t *builder,
                                 bool is_source, unsigned rank,
                                 uct_cuda_buffer_t buffer, uint64_t offset)
{
    uct_cuda_plan_step_t *step        = last_step(builder);
    uct_cuda_plan_steps_t *list       = &builder->plan->list;
    const uct_cuda_plan_place_t place = {
        .offset = offset, .owner      = (uint8_t)rank, .buffer = (uint8_t)buffer
    };

    assert(list->num_places < builder->max_places);
    assert(!is_source || (step->num_destinations == 0));
    list->places[list->num_places++] = place;
    step->num_sources               += is_source;
    step->num_destinations          += !is_source;
}

void uct_cuda_plan_builder_wait(uct_cuda_plan_builder_t *builder,
                                uint32_t step)
{
    uct_cuda_plan_steps_t *list = &builder->plan->list;

    if (step != UCT_CUDA_NO_STEP) {
        assert(list->num_waits < builder->max_waits);
        list->waits[list->num_waits++] = step;
        ++last_step(builder)->num_waits;
    }
}

/* Table of all queues, too large for the stack of a small thread */
typedef union {
    uint8_t  number[UCT_CUDA_PLAN_COLL_MAX_RANKS][MAX_NAMES];
    uint32_t last[UCT_CUDA_PLAN_COLL_MAX_RANKS][UCT_CUDA_PLAN_COLL_MAX_QUEUES];
} queues_t;


/* Number each rank's queues in order of first use */
static void number_queues(uct_cuda_plan_coll_t *plan, queues_t *queues)
{
    unsigned count[UCT_CUDA_PLAN_COLL_MAX_RANKS] = {0};
    uct_cuda_plan_step_t *step;
    uint8_t *known;
    uint32_t i;

    memset(queues->number, 0xff, sizeof(queues->number));
    for (i = 0; i < plan->list.num_steps; ++i) {
        step  = &plan->list.steps[i];
        known = &queues->number[step->rank][step->queue];
        if (*known == 0xff) {
            *known           = (uint8_t)count[step->rank]++;
            plan->num_queues = (uint8_t)ucs_max(plan->num_queues,
                                                count[step->rank]);
        }
        step->queue = *known;
    }

    assert(plan->num_queues <= UCT_CUDA_PLAN_COLL_MAX_QUEUES);
}

static bool is_in(const uint64_t *row, uint32_t step)
{
    return (row[step / 64] >> (step % 64)) & 1;
}

/* Remove waits implied by another wait or by the order of a queue: each wait
 * costs an event. `before` has a bit row for each step: the steps known to have
 * ended when it begins. */
static void prune(uct_cuda_plan_steps_t *list, queues_t *queues,
                  uint64_t *before, size_t row)
{
    uct_cuda_plan_step_t *step;
    uint32_t i, w, other, previous;
    uint32_t *waits, *last;
    uint64_t *own;
    size_t word;

    memset(queues->last, 0xff, sizeof(queues->last));
    for (i = 0; i < list->num_steps; ++i) {
        step     = &list->steps[i];
        waits    = list->waits + step->waits;
        own      = before + i * row;
        last     = &queues->last[step->rank][step->queue];
        previous = *last;
        *last    = i;
        memset(own, 0, (i / 64 + 1) * sizeof(*own));

        /* add the row of each predecessor; their bits are all of earlier
         * steps */
        for (w = 0; w <= step->num_waits; ++w) {
            other = (w < step->num_waits) ? waits[w] : previous;
            assert((other < i) || (other == UINT32_MAX));
            for (word = 0; (other != UINT32_MAX) && (word <= other / 64);
                 ++word) {
                own[word] |= before[other * row + word];
            }
        }

        if (previous != UINT32_MAX) {
            own[previous / 64] |= 1ull << (previous % 64);
        }
        for (w = 0; w < step->num_waits;) {
            other = waits[w];
            if (is_in(own, other)) {
                waits[w] = waits[--step->num_waits];
            } else {
                own[other / 64] |= 1ull << (other % 64);
                ++w;
            }
        }
    }
}

/* Sort by schedule level, stable, and renumber the waits. Afterwards levels[i]
 * is the new index of step i. @return false: no memory, nothing is changed */
static bool sort(uct_cuda_plan_steps_t *list, uint32_t *levels)
{
    const uint32_t count        = list->num_steps;
    uct_cuda_plan_step_t *steps = malloc((count + 1) * sizeof(*steps));
    uint32_t *first;
    uint32_t i, most = 0;

    for (i = 0; i < count; ++i) {
        most = ucs_max(most, levels[i]);
    }

    first = calloc(most + 2, sizeof(*first));
    if ((first == NULL) || (steps == NULL)) {
        free(first);
        free(steps);
        return false;
    }

    for (i = 0; i < count; ++i) {
        ++first[levels[i] + 1];
    }
    for (i = 1; i <= most; ++i) {
        first[i] += first[i - 1];
    }
    for (i = 0; i < count; ++i) {
        /* from here on the step's new index */
        levels[i]       = first[levels[i]]++;
        steps[levels[i]] = list->steps[i];
    }
    for (i = 0; i < list->num_waits; ++i) {
        list->waits[i] = levels[list->waits[i]];
    }

    free(first);
    free(list->steps);
    list->steps = steps;
    return true;
}

ucs_status_t uct_cuda_plan_builder_finish(uct_cuda_plan_builder_t *builder)
{
    uct_cuda_plan_coll_t *plan = builder->plan;
    const size_t count         = plan->list.num_steps;
    const size_t row           = (count + 63) / 64;
    const bool is_pruned       = count <= MAX_PRUNED;
    queues_t *queues           = malloc(sizeof(*queues));
    uint64_t *before           = malloc(((is_pruned ? count * row : 0) + 1) *
                                        sizeof(*before));
    ucs_status_t status        = UCS_ERR_NO_MEMORY;

    if ((queues != NULL) && (before != NULL) &&
        sort(&plan->list, builder->levels)) {
        number_queues(plan, queues);
        if (is_pruned) {
            prune(&plan->list, queues, before, row);
        }
        status = UCS_OK;
    } else {
        uct_cuda_plan_coll_release(plan);
    }

    free(before);
    free(queues);
    free(builder->levels);
    return status;
}
