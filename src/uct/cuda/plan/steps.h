/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a plan consists of: steps, each of which copies or adds bytes from
 * places to places. Plain data, without pointers but to its own arrays; it can
 * be printed, compared, checked and carried out. A transfer has a plan of one
 * rank, which this process is; a collective one of all ranks of a node.
 *
 * Steps are in the order of submission. A queue of a rank works through its
 * steps one at a time in that order; a step also waits until the earlier steps
 * that it names, of any rank, have ended.
 */
#ifndef UCT_CUDA_PLAN_STEPS_H
#define UCT_CUDA_PLAN_STEPS_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


/** "No step": waits for nothing. */
#define UCT_CUDA_NO_STEP UINT32_MAX

/** "For no part of the whole". */
#define UCT_CUDA_STEP_NO_PART UINT8_MAX


typedef enum {
    UCT_CUDA_STEP_COPY,  /**< One source, one destination */
    UCT_CUDA_STEP_REDUCE /**< All sources, added from left to right, to each
                              destination; by a kernel on the rank's GPU. One
                              source: a copy by that kernel. A destination may
                              be a source at the same offset */
} uct_cuda_step_type_t;


typedef enum {
    UCT_CUDA_BUFFER_SEND,    /**< What an owner gives */
    UCT_CUDA_BUFFER_RECV,    /**< ... and gets */
    UCT_CUDA_BUFFER_SCRATCH, /**< Staging memory */
    UCT_CUDA_BUFFER_LAST
} uct_cuda_buffer_t;


typedef struct {
    uint64_t offset; /**< Bytes from the start of the buffer, or of its slot */
    uint8_t  owner;  /**< Of a transfer, index of the end
                          (uct_cuda_end_index()); of a collective, a rank, or
                          behind those a relay */
    uint8_t  buffer; /**< uct_cuda_buffer_t */
    uint16_t slot;   /**< Piece of SCRATCH, else 0. Which memory that is, the
                          runner decides for transfers; a collective's offset
                          says it already */
} uct_cuda_place_t;


typedef struct {
    uint64_t bytes;            /**< Of each place; not 0 */
    uint32_t places;           /**< Index of the first source in the list's
                                    places; the destinations follow */
    uint32_t waits;            /**< Index of the first wait in the list's */
    uint16_t num_waits;
    uint16_t queue;            /**< Of the rank; a transfer's are its lanes */
    uint8_t  num_sources;
    uint8_t  num_destinations;
    uint8_t  type;             /**< uct_cuda_step_type_t */
    uint8_t  rank;             /**< Submits it */
    uint8_t  part;             /**< A transfer's path, a collective's slice, or
                                    NO_PART */
    uint8_t  chunk;            /**< ... and piece of that */
} uct_cuda_step_t;


typedef struct {
    uint32_t         num_steps;
    uint32_t         num_places;
    uint32_t         num_waits;
    uct_cuda_step_t  *steps;
    uct_cuda_place_t *places;
    uint32_t         *waits;  /**< Indices of earlier steps */
} uct_cuda_steps_t;


static inline const uct_cuda_place_t *
uct_cuda_step_sources(const uct_cuda_steps_t *list, const uct_cuda_step_t *step)
{
    return list->places + step->places;
}

static inline const uct_cuda_place_t *
uct_cuda_step_destinations(const uct_cuda_steps_t *list,
                           const uct_cuda_step_t *step)
{
    return list->places + step->places + step->num_sources;
}

static inline const uint32_t *
uct_cuda_step_waits(const uct_cuda_steps_t *list, const uct_cuda_step_t *step)
{
    return list->waits + step->waits;
}


/** Room for so many, of which none is there yet. UCS_OK; UCS_ERR_NO_MEMORY: the
 *  list is zeroed. */
ucs_status_t uct_cuda_steps_alloc(uct_cuda_steps_t *list, size_t num_steps,
                                  size_t num_places, size_t num_waits);

/** Free what was allocated; a list that is zeroed has nothing. It is zeroed. */
void uct_cuda_steps_release(uct_cuda_steps_t *list);

/** Allocate @a to and copy. UCS_OK; UCS_ERR_NO_MEMORY: @a to is zeroed. */
ucs_status_t
uct_cuda_steps_copy(const uct_cuda_steps_t *from, uct_cuda_steps_t *to);


/** Same steps with the same places and waits? */
bool uct_cuda_steps_equal(const uct_cuda_steps_t *a, const uct_cuda_steps_t *b);


/** The name of a place, for people. Returns @a buffer. */
typedef const char *(*uct_cuda_place_str_t)(const void *plan,
                                            const uct_cuda_place_t *place,
                                            char *buffer, size_t size);

/** A step's places, "source, source -> destination". Returns @a buffer. */
const char *
uct_cuda_step_places_str(const uct_cuda_steps_t *list,
                         const uct_cuda_step_t *step, const void *plan,
                         uct_cuda_place_str_t place_str, char *buffer,
                         size_t size);

END_C_DECLS

#endif
