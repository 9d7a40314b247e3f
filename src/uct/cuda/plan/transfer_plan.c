/* SPDX-License-Identifier: BSD-3-Clause */
/* Printing and comparing plans. */
#include <uct/cuda/plan/transfer_plan.h>

#include <string.h>


#define GIGA 1e9
#define MEGA 1e6


static bool place_equal(const uct_cuda_mp_place_t *a,
                        const uct_cuda_mp_place_t *b)
{
    return (a->type == b->type) && (a->owner == b->owner) &&
           (a->slot == b->slot);
}

static bool step_equal(const uct_cuda_mp_step_t *a, const uct_cuda_mp_step_t *b)
{
    return place_equal(&a->from, &b->from) && place_equal(&a->to, &b->to) &&
           (a->path == b->path) && (a->lane == b->lane) &&
           (a->wait == b->wait) &&
           (a->from_offset == b->from_offset) &&
           (a->to_offset == b->to_offset) && (a->bytes == b->bytes);
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
    unsigned i;

    if (!uct_cuda_end_equal(a->src, b->src) ||
        !uct_cuda_end_equal(a->dst, b->dst) ||
        !uct_cuda_end_equal(a->remote, b->remote) || (a->numa != b->numa) ||
        (a->size != b->size) || (a->slot_size != b->slot_size) ||
        (a->num_paths != b->num_paths) ||
        (a->num_steps != b->num_steps)) {
        return false;
    }

    for (i = 0; i < a->num_steps; ++i) {
        if (!step_equal(&a->steps[i], &b->steps[i])) {
            return false;
        }
    }

    return true;
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

static const char *place_str(const uct_cuda_mp_place_t *place, uint64_t offset,
                             char *buffer, size_t size)
{
    static const char *names[] = {"source", "destination", "gpu", "numa"};
    unsigned long long at      = offset;

    if (place->type <= UCT_CUDA_MP_PLACE_DESTINATION) {
        snprintf(buffer, size, "%s+%llu", names[place->type], at);
    } else {
        snprintf(buffer, size, "%s%d.slot%d+%llu", names[place->type & 3],
                 place->owner, place->slot, at);
    }

    return buffer;
}

void uct_cuda_mp_plan_print(const uct_cuda_mp_plan_t *plan, bool steps,
                            FILE *stream)
{
    const uct_cuda_mp_plan_path_t *path;
    const uct_cuda_mp_step_t *step;
    char from[64], to[64], name[16];
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

    for (i = 0; steps && (i < plan->num_steps); ++i) {
        step = &plan->steps[i];
        fprintf(stream, "  %4u  %5s > %-5s  %llu bytes", i,
                uct_cuda_end_str(uct_cuda_mp_lane_from(step->lane), from,
                             sizeof(from)),
                uct_cuda_end_str(uct_cuda_mp_lane_to(step->lane), to,
                                 sizeof(to)),
                (unsigned long long)step->bytes);
        fprintf(stream, "  %s", place_str(&step->from, step->from_offset, from,
                                          sizeof(from)));
        fprintf(stream, " -> %s",
                place_str(&step->to, step->to_offset, to, sizeof(to)));
        if (step->wait != UCT_CUDA_MP_NO_STEP) {
            fprintf(stream, ", after %d", step->wait);
        }
        fprintf(stream, "\n");
    }
}
