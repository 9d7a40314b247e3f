/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory, comparison and names of steps. */
#include <uct/cuda/plan/steps.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


ucs_status_t uct_cuda_plan_steps_alloc(uct_cuda_plan_steps_t *list,
                                       size_t num_steps, size_t num_places,
                                       size_t num_waits)
{
    memset(list, 0, sizeof(*list));
    list->steps  = malloc((num_steps + 1) * sizeof(*list->steps));
    list->places = malloc((num_places + 1) * sizeof(*list->places));
    list->waits  = malloc((num_waits + 1) * sizeof(*list->waits));
    if ((list->steps == NULL) || (list->places == NULL) ||
        (list->waits == NULL)) {
        uct_cuda_plan_steps_release(list);
        return UCS_ERR_NO_MEMORY;
    }

    return UCS_OK;
}

void uct_cuda_plan_steps_release(uct_cuda_plan_steps_t *list)
{
    free(list->steps);
    free(list->places);
    free(list->waits);
    memset(list, 0, sizeof(*list));
}

ucs_status_t uct_cuda_plan_steps_copy(const uct_cuda_plan_steps_t *from,
                                      uct_cuda_plan_steps_t *to)
{
    if (uct_cuda_plan_steps_alloc(to, from->num_steps, from->num_places,
                                  from->num_waits) != UCS_OK) {
        return UCS_ERR_NO_MEMORY;
    }

    to->num_steps  = from->num_steps;
    to->num_places = from->num_places;
    to->num_waits  = from->num_waits;
    memcpy(to->steps, from->steps, from->num_steps * sizeof(*to->steps));
    memcpy(to->places, from->places, from->num_places * sizeof(*to->places));
    memcpy(to->waits, from->waits, from->num_waits * sizeof(*to->waits));
    return UCS_OK;
}

static bool places_equal(const uct_cuda_plan_place_t *a,
                         const uct_cuda_plan_place_t *b, unsigned count)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        if ((a[i].offset != b[i].offset) || (a[i].owner != b[i].owner) ||
            (a[i].buffer != b[i].buffer) || (a[i].slot != b[i].slot)) {
            return false;
        }
    }
    return true;
}

bool uct_cuda_plan_steps_equal(const uct_cuda_plan_steps_t *a,
                               const uct_cuda_plan_steps_t *b)
{
    const uct_cuda_plan_step_t *s, *t;
    uint32_t i;

    if (a->num_steps != b->num_steps) {
        return false;
    }

    for (i = 0; i < a->num_steps; ++i) {
        s = &a->steps[i];
        t = &b->steps[i];
        if ((s->bytes != t->bytes) || (s->num_waits != t->num_waits) ||
            (s->num_sources != t->num_sources) ||
            (s->num_destinations != t->num_destinations) ||
            (s->type != t->type) || (s->rank != t->rank) ||
            (s->queue != t->queue) ||
            !places_equal(uct_cuda_plan_step_sources(a, s),
                          uct_cuda_plan_step_sources(b, t),
                          s->num_sources + s->num_destinations) ||
            (memcmp(uct_cuda_plan_step_waits(a, s),
                    uct_cuda_plan_step_waits(b, t),
                    s->num_waits * sizeof(uint32_t)) != 0)) {
            return false;
        }
    }

    return true;
}

const char *uct_cuda_plan_step_places_str(const uct_cuda_plan_steps_t *list,
                                          const uct_cuda_plan_step_t *step,
                                          const void *plan,
                                          uct_cuda_plan_place_str_t place_str,
                                          char *buffer, size_t size)
{
    const uct_cuda_plan_place_t *places = uct_cuda_plan_step_sources(list,
                                                                     step);
    const unsigned count = step->num_sources + step->num_destinations;
    size_t length        = 0;
    char text[64];
    unsigned i;

    buffer[0] = '\0';
    for (i = 0; (i < count) && (length < size); ++i) {
        length += snprintf(buffer + length, size - length, "%s%s",
                           (i == 0)                 ? "" :
                           (i == step->num_sources) ? " -> " :
                                                      ", ",
                           place_str(plan, &places[i], text, sizeof(text)));
    }
    return buffer;
}
