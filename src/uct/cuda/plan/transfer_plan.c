/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying, comparison and names of plans. */
#include <uct/cuda/plan/transfer_plan.h>

#include <stdio.h>
#include <string.h>


void uct_cuda_plan_copy(const uct_cuda_plan_t *from,
                        uct_cuda_plan_t *to)
{
    memcpy(to, from, offsetof(uct_cuda_plan_t, steps));
    memcpy(to->steps, from->steps, from->num_steps * sizeof(to->steps[0]));
    memcpy(to->places, from->places,
           2 * from->num_steps * sizeof(to->places[0]));
    memcpy(to->waits, from->waits, from->num_steps * sizeof(to->waits[0]));
}

void uct_cuda_plan_awaited(const uct_cuda_plan_t *plan,
                           bool *is_awaited)
{
    unsigned i;

    for (i = 0; i < plan->num_steps; ++i) {
        is_awaited[i] = (uct_cuda_plan_from(plan, i)->buffer ==
                         UCT_CUDA_BUFFER_SCRATCH);
        if (uct_cuda_plan_step_has_wait(plan, i)) {
            is_awaited[plan->waits[i]] = true;
        }
    }
}

unsigned uct_cuda_plan_path_links(const uct_cuda_plan_t *plan,
                                  uct_cuda_end_t via,
                                  uint16_t links[UCT_CUDA_PLAN_MAX_HOPS])
{
    if (uct_cuda_end_is_none(via)) {
        links[0] = uct_cuda_plan_link(plan->src, plan->dst);
        return 1;
    }

    links[0] = uct_cuda_plan_link(plan->src, via);
    links[1] = uct_cuda_plan_link(via, plan->dst);
    return 2;
}

unsigned
uct_cuda_plan_links(const uct_cuda_plan_t *plan,
                    uint16_t links[UCT_CUDA_PLAN_MAX_HOPS *
                                   UCT_CUDA_PLAN_MAX_PATHS])
{
    unsigned count = 0;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        count += uct_cuda_plan_path_links(plan, plan->paths[i].via,
                                          &links[count]);
    }

    return count;
}

bool uct_cuda_plan_equal(const uct_cuda_plan_t *a,
                         const uct_cuda_plan_t *b)
{
    const uct_cuda_plan_steps_t steps = uct_cuda_plan_list(a);
    const uct_cuda_plan_steps_t other = uct_cuda_plan_list(b);

    return uct_cuda_end_equal(a->src, b->src) &&
           uct_cuda_end_equal(a->dst, b->dst) &&
           uct_cuda_end_equal(a->remote, b->remote) &&
           (a->is_pulled == b->is_pulled) && (a->numa == b->numa) &&
           (a->size == b->size) && (a->slot_size == b->slot_size) &&
           (a->num_paths == b->num_paths) &&
           uct_cuda_plan_steps_equal(&steps, &other);
}

const char *uct_cuda_plan_path_str(uct_cuda_end_t via, char *buffer,
                                   size_t size)
{
    if (!uct_cuda_end_is_none(via)) {
        return uct_cuda_end_str(via, buffer, size);
    }

    snprintf(buffer, size, "direct");
    return buffer;
}

const char *uct_cuda_plan_paths_str(const uct_cuda_plan_t *plan,
                                    char *buffer, size_t size)
{
    size_t length = 0;
    char name[16];
    unsigned i;

    buffer[0] = '\0';
    for (i = 0; (i < plan->num_paths) && (length < size); ++i) {
        length += snprintf(buffer + length, size - length, "%s%s",
                           (i == 0) ? "" : ",",
                           uct_cuda_plan_path_str(plan->paths[i].via, name,
                                                  sizeof(name)));
    }
    return buffer;
}

static const char *place_str(const void *plan,
                             const uct_cuda_plan_place_t *place, char *buffer,
                             size_t size)
{
    const unsigned long long at = place->offset;
    char end[16];

    if (place->buffer == UCT_CUDA_BUFFER_SCRATCH) {
        snprintf(buffer, size, "%s.slot%u+%llu",
                 uct_cuda_end_str(uct_cuda_end_at(place->owner), end,
                                  sizeof(end)),
                 place->slot, at);
    } else {
        snprintf(buffer, size, "%s+%llu",
                 (place->buffer == UCT_CUDA_BUFFER_SEND) ? "source" :
                                                           "destination",
                 at);
    }
    return buffer;
}

const char *uct_cuda_plan_places_str(const uct_cuda_plan_t *plan,
                                     const uct_cuda_plan_step_t *step,
                                     char *buffer, size_t size)
{
    const uct_cuda_plan_steps_t list = uct_cuda_plan_list(plan);

    return uct_cuda_plan_step_places_str(&list, step, plan, place_str, buffer,
                                         size);
}
