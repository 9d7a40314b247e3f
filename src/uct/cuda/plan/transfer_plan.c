/* SPDX-License-Identifier: BSD-3-Clause */
/* Printing and comparing plans. */
#include <uct/cuda/plan/transfer_plan.h>

#include <string.h>


#define GIGA 1e9
#define MEGA 1e6


void uct_cuda_mp_plan_copy(const uct_cuda_mp_plan_t *from,
                           uct_cuda_mp_plan_t *to)
{
    memcpy(to, from, offsetof(uct_cuda_mp_plan_t, steps));
    memcpy(to->steps, from->steps, from->num_steps * sizeof(to->steps[0]));
    memcpy(to->places, from->places,
           2 * from->num_steps * sizeof(to->places[0]));
    memcpy(to->waits, from->waits, from->num_steps * sizeof(to->waits[0]));
}

void uct_cuda_mp_plan_awaited(const uct_cuda_mp_plan_t *plan,
                              bool *is_awaited)
{
    unsigned i;

    for (i = 0; i < plan->num_steps; ++i) {
        is_awaited[i] = (uct_cuda_mp_plan_from(plan, i)->buffer ==
                         UCT_CUDA_BUFFER_SCRATCH);
        if (uct_cuda_mp_plan_step_waits(plan, i)) {
            is_awaited[plan->waits[i]] = true;
        }
    }
}

unsigned uct_cuda_mp_plan_path_lanes(const uct_cuda_mp_plan_t *plan,
                                     const uct_cuda_mp_path_t *path,
                                     uint16_t lanes[UCT_CUDA_MP_MAX_HOPS])
{
    const uct_cuda_end_t via = uct_cuda_mp_path_via(path);

    if (uct_cuda_end_is_none(via)) {
        lanes[0] = uct_cuda_mp_lane(plan->src, plan->dst);
        return 1;
    }

    lanes[0] = uct_cuda_mp_lane(plan->src, via);
    lanes[1] = uct_cuda_mp_lane(via, plan->dst);
    return 2;
}

unsigned
uct_cuda_mp_plan_lanes(const uct_cuda_mp_plan_t *plan,
                       uint16_t lanes[UCT_CUDA_MP_MAX_HOPS *
                                      UCT_CUDA_MP_MAX_PATHS])
{
    unsigned count = 0;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        count += uct_cuda_mp_plan_path_lanes(plan, &plan->paths[i].path,
                                             &lanes[count]);
    }

    return count;
}

bool uct_cuda_mp_plan_equal(const uct_cuda_mp_plan_t *a,
                            const uct_cuda_mp_plan_t *b)
{
    const uct_cuda_steps_t steps = uct_cuda_mp_plan_list(a);
    const uct_cuda_steps_t other = uct_cuda_mp_plan_list(b);

    return uct_cuda_end_equal(a->src, b->src) &&
           uct_cuda_end_equal(a->dst, b->dst) &&
           uct_cuda_end_equal(a->remote, b->remote) && (a->numa == b->numa) &&
           (a->size == b->size) && (a->slot_size == b->slot_size) &&
           (a->num_paths == b->num_paths) &&
           uct_cuda_steps_equal(&steps, &other);
}

const char *uct_cuda_mp_path_str(const uct_cuda_mp_path_t *path, char *buffer,
                                 size_t size)
{
    const uct_cuda_end_t via = uct_cuda_mp_path_via(path);

    if (!uct_cuda_end_is_none(via)) {
        return uct_cuda_end_str(via, buffer, size);
    }

    snprintf(buffer, size, "direct");
    return buffer;
}

const char *uct_cuda_mp_plan_paths_str(const uct_cuda_mp_plan_t *plan,
                                       char *buffer, size_t size)
{
    size_t length = 0;
    char name[16];
    unsigned i;

    buffer[0] = '\0';
    for (i = 0; (i < plan->num_paths) && (length < size); ++i) {
        length += snprintf(buffer + length, size - length, "%s%s",
                           (i == 0) ? "" : ",",
                           uct_cuda_mp_path_str(&plan->paths[i].path, name,
                                                sizeof(name)));
    }
    return buffer;
}

static const char *queue_str(const void *plan, const uct_cuda_step_t *step,
                             char *buffer, size_t size)
{
    char from[16], to[16];

    snprintf(buffer, size, "%5s > %-5s",
             uct_cuda_end_str(uct_cuda_mp_lane_from(step->queue), from,
                              sizeof(from)),
             uct_cuda_end_str(uct_cuda_mp_lane_to(step->queue), to,
                              sizeof(to)));
    return buffer;
}

static const char *place_str(const void *plan, const uct_cuda_place_t *place,
                             char *buffer, size_t size)
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

const char *uct_cuda_mp_plan_places_str(const uct_cuda_mp_plan_t *plan,
                                        const uct_cuda_step_t *step,
                                        char *buffer, size_t size)
{
    const uct_cuda_steps_t list = uct_cuda_mp_plan_list(plan);

    return uct_cuda_step_places_str(&list, step, plan, place_str, buffer, size);
}

void uct_cuda_mp_plan_print(const uct_cuda_mp_plan_t *plan, bool steps,
                            FILE *stream)
{
    const uct_cuda_mp_plan_path_t *path;
    char from[16], to[16], name[16];
    uct_cuda_steps_t list;
    unsigned i;

    fprintf(stream, "%s -> %s, %llu bytes: ",
            uct_cuda_end_str(plan->src, from, sizeof(from)),
            uct_cuda_end_str(plan->dst, to, sizeof(to)),
            (unsigned long long)plan->size);
    if (plan->num_paths == 0) {
        fprintf(stream, "one plain copy\n");
        return;
    }

    fprintf(stream,
            "%u paths, %u copies; model: %.1f us, %.1f GB/s, %.2fx of one "
            "path\n",
            plan->num_paths, plan->num_steps, plan->seconds * MEGA,
            plan->size / plan->seconds / GIGA,
            plan->single_seconds / plan->seconds);

    for (i = 0; i < plan->num_paths; ++i) {
        path = &plan->paths[i];
        fprintf(stream, "  %-7s %5.1f %%  %llu bytes",
                uct_cuda_mp_path_str(&path->path, name, sizeof(name)),
                100. * path->bytes / plan->size,
                (unsigned long long)path->bytes);
        if (path->slots > 0) {
            fprintf(stream, " as %u chunks of %llu through %u slots",
                    path->chunks, (unsigned long long)path->chunk,
                    path->slots);
        }
        fprintf(stream, "\n");
    }

    if (steps) {
        list = uct_cuda_mp_plan_list(plan);
        uct_cuda_steps_print(&list, plan, queue_str, place_str, stream);
    }
}
