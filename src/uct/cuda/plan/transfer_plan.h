/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plan of a transfer: its pieces and the route of each (plan/steps.h). Its
 * queues are directed links between ends; its parts are paths. A step waits for
 * at most one other step.
 */
#ifndef UCT_CUDA_PLAN_TRANSFER_PLAN_H
#define UCT_CUDA_PLAN_TRANSFER_PLAN_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/steps.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Maximum links of a path. */
#define UCT_CUDA_PLAN_MAX_HOPS 2

#define UCT_CUDA_PLAN_MAX_STEPS \
    (UCT_CUDA_PLAN_MAX_HOPS * UCT_CUDA_PLAN_MAX_PATHS * \
     UCT_CUDA_PLAN_MAX_CHUNKS)

/** Staging slots of a device, and the slots used by one plan: a bank, so
 *  that the next transfer can begin while this one ends. */
#define UCT_CUDA_PLAN_STAGING_SLOTS 8
#define UCT_CUDA_PLAN_STAGING_BANKS 2
#define UCT_CUDA_PLAN_SLOTS \
    (UCT_CUDA_PLAN_STAGING_SLOTS / UCT_CUDA_PLAN_STAGING_BANKS)

/** Number of directed links: one from each end to each end. */
#define UCT_CUDA_PLAN_NUM_LINKS (UCT_CUDA_NUM_ENDS * UCT_CUDA_NUM_ENDS)


typedef struct {
    uct_cuda_end_t via;    /**< End at which it is staged; none: direct */
    uint64_t       bytes;  /**< Its share of the transfer */
    uint64_t       chunk;  /**< Size of all chunks except the last, bytes */
    uint16_t       chunks;
    uint8_t        slots;  /**< Staging slots in use; 0: direct */
} uct_cuda_plan_path_share_t;


typedef struct {
    uct_cuda_end_t        src;        /**< GPU, or host memory */
    /** GPU, or host memory if src is a GPU */
    uct_cuda_end_t        dst;
    uct_cuda_end_t        remote;     /**< End of another process, or none */
    /** The local GPU reads what relays have for it: no other GPU has access to
     *  its memory */
    bool                  is_pulled;
    /** Device whose context gets the completion: the end of this process,
     *  the source if both are, the GPU if an end is host memory */
    int16_t               local;
    /** NUMA node of the host staging slots */
    int16_t               numa;
    uint16_t              num_paths; /**< 0: one path is best, no plan */
    uint16_t              num_steps;
    /** uct_cuda_plan_reason_t if there is no plan */
    uint8_t               reason;
    uint64_t              size;      /**< Bytes of the transfer */
    uint64_t              slot_size; /**< Bytes of a staging slot */
    double                seconds;   /**< Modelled time */
    /** Modelled time of a plain copy */
    double                single_seconds;
    uct_cuda_plan_path_share_t  paths[UCT_CUDA_PLAN_MAX_PATHS];
    uct_cuda_plan_step_t  steps[UCT_CUDA_PLAN_MAX_STEPS];
    uct_cuda_plan_place_t places[2 * UCT_CUDA_PLAN_MAX_STEPS];
    /** By step: the step it waits for, or UCT_CUDA_NO_STEP */
    uint32_t              waits[UCT_CUDA_PLAN_MAX_STEPS];
} uct_cuda_plan_t;


/** Return the plan's steps as a list, owned by the plan. */
static inline uct_cuda_plan_steps_t
uct_cuda_plan_list(const uct_cuda_plan_t *plan)
{
    const uct_cuda_plan_steps_t list = {
        .num_steps  = plan->num_steps,
        .num_places = 2u * plan->num_steps,
        .num_waits  = plan->num_steps,
        .steps      = (uct_cuda_plan_step_t*)plan->steps,
        .places     = (uct_cuda_plan_place_t*)plan->places,
        .waits      = (uint32_t*)plan->waits
    };

    return list;
}

/** Return the source of a step. */
static inline const uct_cuda_plan_place_t *
uct_cuda_plan_from(const uct_cuda_plan_t *plan, unsigned step)
{
    return &plan->places[2 * step];
}

/** Return the destination of a step. */
static inline const uct_cuda_plan_place_t *
uct_cuda_plan_to(const uct_cuda_plan_t *plan, unsigned step)
{
    return &plan->places[2 * step + 1];
}


/** Return the directed link from one end to another; both ends have an
 *  index. */
static inline uint16_t uct_cuda_plan_link(uct_cuda_end_t from,
                                          uct_cuda_end_t to)
{
    return (uint16_t)(uct_cuda_end_index(from) * UCT_CUDA_NUM_ENDS +
                      uct_cuda_end_index(to));
}

static inline uct_cuda_end_t uct_cuda_plan_link_from(uint16_t link)
{
    return uct_cuda_end_at(link / UCT_CUDA_NUM_ENDS);
}

static inline uct_cuda_end_t uct_cuda_plan_link_to(uint16_t link)
{
    return uct_cuda_end_at(link % UCT_CUDA_NUM_ENDS);
}


/** Return whether a place is a slot of page-locked memory, outside the GPUs. */
static inline bool
uct_cuda_plan_place_is_host_staging(const uct_cuda_plan_place_t *place)
{
    return (place->buffer == UCT_CUDA_BUFFER_SCRATCH) &&
           !uct_cuda_end_is_gpu(uct_cuda_end_at(place->owner));
}


/** Return whether a step waits for one of another link. A link runs its
 *  steps in order. */
static inline bool uct_cuda_plan_step_has_wait(const uct_cuda_plan_t *plan,
                                               unsigned step)
{
    return (plan->steps[step].num_waits > 0) &&
           (plan->steps[plan->waits[step]].queue != plan->steps[step].queue);
}


/** Mark the steps awaited by later steps on other links or by the next user
 *  of a slot. Fills one value for each step. */
void uct_cuda_plan_awaited(const uct_cuda_plan_t *plan,
                           bool *is_awaited);


/** Copy a plan; arrays as far as they are filled. */
void uct_cuda_plan_copy(const uct_cuda_plan_t *from,
                        uct_cuda_plan_t *to);


/** Return whether a GPU is an end with memory of this process. */
static inline bool
uct_cuda_plan_is_local_gpu(const uct_cuda_plan_t *plan, int device)
{
    return !uct_cuda_end_is_device(plan->remote, device) &&
           (uct_cuda_end_is_device(plan->src, device) ||
            uct_cuda_end_is_device(plan->dst, device));
}


/** List the links of the path between a plan's ends that is staged at @a via,
 *  in order. @return Number of links: 1 for the direct path, else 2. */
unsigned uct_cuda_plan_path_links(const uct_cuda_plan_t *plan,
                                  uct_cuda_end_t via,
                                  uint16_t links[UCT_CUDA_PLAN_MAX_HOPS]);

/** List the links used by a plan, each once, path by path. @return Number of
 *  links. */
unsigned
uct_cuda_plan_links(const uct_cuda_plan_t *plan,
                    uint16_t links[UCT_CUDA_PLAN_MAX_HOPS *
                                   UCT_CUDA_PLAN_MAX_PATHS]);


/** Return whether two plans make the same copies: ends, size, slots and steps
 *  are equal. Modelled times are ignored. */
bool uct_cuda_plan_equal(const uct_cuda_plan_t *a,
                         const uct_cuda_plan_t *b);


/** Return whether one end is host memory. */
static inline bool
uct_cuda_plan_ends_host(uct_cuda_end_t src, uct_cuda_end_t dst)
{
    return uct_cuda_end_is_host(src) || uct_cuda_end_is_host(dst);
}

/** Return the source, or the destination if the source is no GPU. */
static inline uct_cuda_end_t
uct_cuda_plan_gpu_end(uct_cuda_end_t src, uct_cuda_end_t dst)
{
    return uct_cuda_end_is_gpu(src) ? src : dst;
}

static inline bool uct_cuda_plan_is_host(const uct_cuda_plan_t *plan)
{
    return uct_cuda_plan_ends_host(plan->src, plan->dst);
}


/** Return whether a link from a relay to the local GPU is run by the local GPU:
 *  it reads from the relay, which has no access to its memory. */
static inline bool
uct_cuda_plan_is_pulled(const uct_cuda_plan_t *plan, uint16_t link)
{
    const uct_cuda_end_t to = uct_cuda_plan_link_to(link);

    return plan->is_pulled && uct_cuda_end_is_device(to, plan->local) &&
           !uct_cuda_end_equal(to, plan->remote) &&
           uct_cuda_end_is_gpu(uct_cuda_plan_link_from(link));
}


/** Return the device whose copy engines work a link, through a stream of its
 *  context: the sending GPU, or the receiving one from the host. Two copies
 *  leaving a GPU's engines at the same time alternate, and the slower one
 *  delays the other: with the host path on the engines of the direct one
 *  both together ran at 200 instead of 390 GB/s (measured on H200). The
 *  direct link belongs to the local end, as for a plain copy. */
static inline int
uct_cuda_plan_link_device(const uct_cuda_plan_t *plan, uint16_t link)
{
    if ((link == uct_cuda_plan_link(plan->src, plan->dst)) ||
        uct_cuda_plan_is_pulled(plan, link)) {
        return plan->local;
    }

    return uct_cuda_end_device(
            uct_cuda_plan_gpu_end(uct_cuda_plan_link_from(link),
                                  uct_cuda_plan_link_to(link)));
}


/**
 * Format a path as in MULTIPATH_PATHS, "direct", "gpu2" or "host", by the end
 * at which it is staged. Returns @a buffer.
 */
const char *uct_cuda_plan_path_str(uct_cuda_end_t via, char *buffer,
                                   size_t size);


/**
 * Format all paths of a plan, "direct,gpu2,host". Returns @a buffer.
 */
const char *uct_cuda_plan_paths_str(const uct_cuda_plan_t *plan,
                                    char *buffer, size_t size);


/**
 * Format a step's places, "source+0 -> gpu2.slot1+0". Returns @a buffer.
 */
const char *uct_cuda_plan_places_str(const uct_cuda_plan_t *plan,
                                     const uct_cuda_plan_step_t *step,
                                     char *buffer, size_t size);


END_C_DECLS

#endif
