/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps of a plan: each copies or adds bytes from places to places. Plain data
 * with pointers to its own arrays only, so a plan can be printed, compared,
 * checked and carried out. A transfer's plan has one rank, this process; a
 * collective's plan has all ranks of a node.
 *
 * Steps are in the order of submission. A queue of a rank runs its steps in
 * that order, one at a time. A step also waits for the earlier steps listed for
 * it, of any rank.
 */
#ifndef UCT_CUDA_PLAN_STEPS_H
#define UCT_CUDA_PLAN_STEPS_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** No step: no wait. */
#define UCT_CUDA_NO_STEP UINT32_MAX

/** The step belongs to no part. */
#define UCT_CUDA_PLAN_STEP_NO_PART UINT8_MAX


typedef enum {
    UCT_CUDA_PLAN_STEP_COPY,  /**< One source, one destination */
    /** Sum of all sources, left to right, stored to each destination by a
     *  kernel on the rank's GPU. With one source: a copy by that kernel. A
     *  destination may be a source at the same offset */
    UCT_CUDA_PLAN_STEP_REDUCE
} uct_cuda_plan_step_type_t;


typedef enum {
    UCT_CUDA_BUFFER_SEND,    /**< Input of an owner */
    UCT_CUDA_BUFFER_RECV,    /**< Output of an owner */
    UCT_CUDA_BUFFER_SCRATCH, /**< Staging memory */
    UCT_CUDA_BUFFER_LAST
} uct_cuda_buffer_t;


typedef struct {
    uint64_t offset; /**< From the start of the buffer or slot, bytes */
    /** Transfer: uct_cuda_end_index(); collective: a rank, or a relay behind
     *  the ranks */
    uint8_t  owner;
    uint8_t  buffer; /**< uct_cuda_buffer_t */
    /** Piece of SCRATCH, else 0. For transfers the runner assigns its
     *  memory; for collectives the offset includes it */
    uint16_t slot;
} uct_cuda_plan_place_t;


typedef struct {
    uint64_t bytes;            /**< Of each place; not 0 */
    /** Index of the first source in list.places; the destinations follow */
    uint32_t places;
    uint32_t waits;            /**< Index of the first wait in list.waits */
    uint16_t num_waits;
    uint16_t queue;            /**< Of the rank; for transfers a link */
    uint8_t  num_sources;
    uint8_t  num_destinations;
    uint8_t  type;             /**< uct_cuda_plan_step_type_t */
    uint8_t  rank;             /**< Rank that submits it */
    /** Path of a transfer, shard of a collective, or NO_PART */
    uint8_t  part;
    uint8_t  chunk;            /**< Chunk of the part */
} uct_cuda_plan_step_t;


typedef struct {
    uint32_t              num_steps;
    uint32_t              num_places;
    uint32_t              num_waits;
    uct_cuda_plan_step_t  *steps;
    uct_cuda_plan_place_t *places;
    uint32_t              *waits;  /**< Indices of earlier steps */
} uct_cuda_plan_steps_t;


static inline const uct_cuda_plan_place_t *
uct_cuda_plan_step_sources(const uct_cuda_plan_steps_t *list,
                           const uct_cuda_plan_step_t *step)
{
    return list->places + step->places;
}

static inline const uct_cuda_plan_place_t *
uct_cuda_plan_step_destinations(const uct_cuda_plan_steps_t *list,
                                const uct_cuda_plan_step_t *step)
{
    return list->places + step->places + step->num_sources;
}

static inline const uint32_t *
uct_cuda_plan_step_waits(const uct_cuda_plan_steps_t *list,
                         const uct_cuda_plan_step_t *step)
{
    return list->waits + step->waits;
}


/**
 * Allocate a list with room for these numbers; its own numbers are 0.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY: the list is zeroed.
 */
ucs_status_t uct_cuda_plan_steps_alloc(uct_cuda_plan_steps_t *list,
                                       size_t num_steps, size_t num_places,
                                       size_t num_waits);

/** Free the arrays and zero the list, which may be zeroed already. */
void uct_cuda_plan_steps_release(uct_cuda_plan_steps_t *list);

/**
 * Allocate @a to and copy.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY: @a to is zeroed.
 */
ucs_status_t uct_cuda_plan_steps_copy(const uct_cuda_plan_steps_t *from,
                                      uct_cuda_plan_steps_t *to);


/** Return whether two lists have equal steps, places and waits; part and chunk
 *  of the steps are ignored. */
bool uct_cuda_plan_steps_equal(const uct_cuda_plan_steps_t *a,
                               const uct_cuda_plan_steps_t *b);


/**
 * Format the name of a place. Returns @a buffer.
 */
typedef const char *(*uct_cuda_plan_place_str_t)(
    const void *plan, const uct_cuda_plan_place_t *place, char *buffer,
    size_t size);

/**
 * Format a step's places, "source, source -> destination". Returns @a buffer.
 */
const char *uct_cuda_plan_step_places_str(const uct_cuda_plan_steps_t *list,
                                          const uct_cuda_plan_step_t *step,
                                          const void *plan,
                                          uct_cuda_plan_place_str_t place_str,
                                          char *buffer, size_t size);

END_C_DECLS

#endif
