/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan of a transfer: how it is cut up and which way every piece takes
 * (plan/steps.h). Its queues are lanes, which are directed links; its parts are
 * paths. A step waits for one other at most.
 */
#ifndef UCT_CUDA_MP_PLAN_H
#define UCT_CUDA_MP_PLAN_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/steps.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Lanes of one path. */
#define UCT_CUDA_MP_MAX_HOPS 2

#define UCT_CUDA_MP_MAX_STEPS \
    (UCT_CUDA_MP_MAX_HOPS * UCT_CUDA_MP_MAX_PATHS * UCT_CUDA_MP_MAX_CHUNKS)

/** Staging slots that one device's staging memory is divided into, and those of
 *  them that one plan uses at most: a bank, so that the next transfer begins
 *  while this one ends. */
#define UCT_CUDA_MP_STAGING_SLOTS 8
#define UCT_CUDA_MP_STAGING_BANKS 2
#define UCT_CUDA_MP_PLAN_SLOTS \
    (UCT_CUDA_MP_STAGING_SLOTS / UCT_CUDA_MP_STAGING_BANKS)

/** Lanes from each end to each. */
#define UCT_CUDA_MP_NUM_LANES (UCT_CUDA_NUM_ENDS * UCT_CUDA_NUM_ENDS)


typedef struct {
    uct_cuda_mp_path_t path;
    uint64_t           bytes;  /**< Its share of the transfer */
    uint64_t           chunk;  /**< Bytes of its chunks but the last */
    uint16_t           chunks;
    uint8_t            slots;  /**< Staging slots that it uses; 0: direct */
} uct_cuda_mp_plan_path_t;


typedef struct {
    uct_cuda_end_t          src;        /**< A GPU, or host memory, which ... */
    uct_cuda_end_t          dst;        /**< ... not both of them are */
    uct_cuda_end_t          remote;     /**< The one of them, or none, that is
                                             another process's */
    int16_t                 local; /**< Device that the transfer belongs to,
                                        whose context its completion is of: that
                                        of the end that is this process's own,
                                        or of the source if both are. If one is
                                        host memory, the other one's. */
    int16_t                 numa;      /**< Node of the host staging slots */
    uint16_t                num_paths; /**< 0: one path is best, no plan */
    uint16_t                num_steps;
    uint8_t                 reason;    /**< uct_cuda_mp_reason_t, why no plan */
    uint64_t                size;      /**< Bytes of the transfer */
    uint64_t                slot_size; /**< Bytes a staging slot holds */
    double                  seconds;   /**< What the model expects */
    double                  single_seconds; /**< ... and of one plain copy */
    uct_cuda_mp_plan_path_t paths[UCT_CUDA_MP_MAX_PATHS];
    uct_cuda_step_t         steps[UCT_CUDA_MP_MAX_STEPS];
    uct_cuda_place_t        places[2 * UCT_CUDA_MP_MAX_STEPS];
    uint32_t                waits[UCT_CUDA_MP_MAX_STEPS];
} uct_cuda_mp_plan_t;


/** Its steps, as all plans have them; they stay the plan's. */
static inline uct_cuda_steps_t
uct_cuda_mp_plan_list(const uct_cuda_mp_plan_t *plan)
{
    const uct_cuda_steps_t list = {
        .num_steps  = plan->num_steps,
        .num_places = 2u * plan->num_steps,
        .num_waits  = plan->num_steps,
        .steps      = (uct_cuda_step_t*)plan->steps,
        .places     = (uct_cuda_place_t*)plan->places,
        .waits      = (uint32_t*)plan->waits
    };

    return list;
}

/** Where a step copies from and to; the step that it waits for, if any, is at
 *  the step's own place in waits. */
static inline const uct_cuda_place_t *
uct_cuda_mp_plan_from(const uct_cuda_mp_plan_t *plan, unsigned step)
{
    return &plan->places[2 * step];
}

static inline const uct_cuda_place_t *
uct_cuda_mp_plan_to(const uct_cuda_mp_plan_t *plan, unsigned step)
{
    return &plan->places[2 * step + 1];
}


/** The lane from one end to another; both have an index. */
static inline uint16_t uct_cuda_mp_lane(uct_cuda_end_t from, uct_cuda_end_t to)
{
    return (uint16_t)(uct_cuda_end_index(from) * UCT_CUDA_NUM_ENDS +
                      uct_cuda_end_index(to));
}

static inline uct_cuda_end_t uct_cuda_mp_lane_from(uint16_t lane)
{
    return uct_cuda_end_at(lane / UCT_CUDA_NUM_ENDS);
}

static inline uct_cuda_end_t uct_cuda_mp_lane_to(uint16_t lane)
{
    return uct_cuda_end_at(lane % UCT_CUDA_NUM_ENDS);
}


/** Is it a slot of page-locked memory? */
static inline bool
uct_cuda_mp_place_is_host_staging(const uct_cuda_place_t *place)
{
    return (place->buffer == UCT_CUDA_BUFFER_SCRATCH) &&
           uct_cuda_end_is_host(uct_cuda_end_at(place->owner));
}


/** Does a step wait for one of another lane? Lanes keep their own order. */
static inline bool uct_cuda_mp_plan_step_waits(const uct_cuda_mp_plan_t *plan,
                                               unsigned step)
{
    return (plan->steps[step].num_waits > 0) &&
           (plan->steps[plan->waits[step]].queue != plan->steps[step].queue);
}


/** Where a path is staged; none: nowhere. */
static inline uct_cuda_end_t
uct_cuda_mp_path_via(const uct_cuda_mp_path_t *path)
{
    switch (path->route) { /* no default: the compiler finds a new route */
    case UCT_CUDA_MP_ROUTE_GPU:
        return uct_cuda_end_gpu(path->gpu);
    case UCT_CUDA_MP_ROUTE_HOST:
        return uct_cuda_end_host();
    case UCT_CUDA_MP_ROUTE_DIRECT:
        break;
    }
    return uct_cuda_end_none();
}


/** Which steps somebody waits for: later steps on other lanes, and whoever
 *  gets a slot after this plan. Fills one value a step. */
void uct_cuda_mp_plan_awaited(const uct_cuda_mp_plan_t *plan,
                              bool *is_awaited);


/** One for another; arrays as far as they are filled. */
void uct_cuda_mp_plan_copy(const uct_cuda_mp_plan_t *from,
                           uct_cuda_mp_plan_t *to);


/** Is a GPU an end with memory of this process? */
static inline bool
uct_cuda_mp_plan_is_local_gpu(const uct_cuda_mp_plan_t *plan, int device)
{
    return !uct_cuda_end_is_device(plan->remote, device) &&
           (uct_cuda_end_is_device(plan->src, device) ||
            uct_cuda_end_is_device(plan->dst, device));
}


/** Lanes of one path between a plan's ends, in their order. */
unsigned uct_cuda_mp_plan_path_lanes(const uct_cuda_mp_plan_t *plan,
                                     const uct_cuda_mp_path_t *path,
                                     uint16_t lanes[UCT_CUDA_MP_MAX_HOPS]);

/** Lanes that a plan's paths take, each once, path by path. */
unsigned
uct_cuda_mp_plan_lanes(const uct_cuda_mp_plan_t *plan,
                       uint16_t lanes[UCT_CUDA_MP_MAX_HOPS *
                                      UCT_CUDA_MP_MAX_PATHS]);


/** Do two plans have the same steps? The model's times do not count. */
bool uct_cuda_mp_plan_equal(const uct_cuda_mp_plan_t *a,
                            const uct_cuda_mp_plan_t *b);


/** Is one end host memory? */
static inline bool
uct_cuda_mp_plan_ends_host(uct_cuda_end_t src, uct_cuda_end_t dst)
{
    return uct_cuda_end_is_host(src) || uct_cuda_end_is_host(dst);
}

/** The source, or if that is host memory the destination. */
static inline uct_cuda_end_t
uct_cuda_mp_plan_gpu_end(uct_cuda_end_t src, uct_cuda_end_t dst)
{
    return uct_cuda_end_is_host(src) ? dst : src;
}

static inline bool uct_cuda_mp_plan_is_host(const uct_cuda_mp_plan_t *plan)
{
    return uct_cuda_mp_plan_ends_host(plan->src, plan->dst);
}


/**
 * Whose context a lane's stream belongs to, and so whose copy engines work it:
 * the GPU that sends, or, from the host, the one that receives. Two copies that
 * leave a GPU's engines at once share them by turns, and the slower one holds
 * up the other: with the host's path on the engines of the direct one, both
 * together ran at 200 instead of 380 GB/s (measured on H200). The direct lane
 * is the local end's, as a plain copy is.
 */
static inline int
uct_cuda_mp_plan_lane_device(const uct_cuda_mp_plan_t *plan, uint16_t lane)
{
    if (lane == uct_cuda_mp_lane(plan->src, plan->dst)) {
        return plan->local;
    }

    return uct_cuda_end_device(
            uct_cuda_mp_plan_gpu_end(uct_cuda_mp_lane_from(lane),
                                     uct_cuda_mp_lane_to(lane)));
}


/** "direct", "gpu2" or "host", as in MULTIPATH_PATHS. Returns @a buffer. */
const char *uct_cuda_mp_path_str(const uct_cuda_mp_path_t *path, char *buffer,
                                 size_t size);


/** All of a plan's, "direct,gpu2,host". Returns @a buffer. */
const char *uct_cuda_mp_plan_paths_str(const uct_cuda_mp_plan_t *plan,
                                       char *buffer, size_t size);


/** A step's places, "source+0 -> gpu2.slot1+0". Returns @a buffer. */
const char *uct_cuda_mp_plan_places_str(const uct_cuda_mp_plan_t *plan,
                                        const uct_cuda_step_t *step,
                                        char *buffer, size_t size);


END_C_DECLS

#endif
