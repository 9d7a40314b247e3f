/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prove the effect of a plan's steps, for a transfer or a collective,
 * independent of the planner. The steps are executed on symbols: each piece of
 * memory holds a term for a range of bytes of the complete data. A term is an
 * input, or a sum of terms in their order; equal terms have equal numbers. If
 * no two steps race, the plan's own order gives the same result as any other.
 */
#ifndef UCT_CUDA_CHECK_PROOF_H
#define UCT_CUDA_CHECK_PROOF_H

#include <ucs/type/status.h>
#include <uct/cuda/plan/steps.h>

#include <stddef.h>

BEGIN_C_DECLS


/** Maximum number of inputs of a proof. */
#define UCX_MP_PROOF_INPUTS 64

/** Term of memory that was never written. */
#define UCX_MP_PROOF_NO_TERM UINT32_MAX


/** An input, if its number is below INPUTS, otherwise a sum of terms. */
typedef struct {
    unsigned count;
    uint32_t parts[UCX_MP_PROOF_INPUTS];
    uint8_t  inputs[UCX_MP_PROOF_INPUTS]; /**< Occurrences of each input; 2: two
                                               or more */
} ucx_mp_proof_term_t;


/** Bytes from @a offset on hold @a term, from byte @a at of the complete data
 *  on. */
typedef struct {
    uint64_t offset;
    uint64_t bytes;
    uint64_t at;
    uint32_t term;
} ucx_mp_proof_piece_t;


/** Pieces sorted by offset, without gaps. */
typedef struct {
    uint64_t             size;  /**< 0: does not exist */
    uint32_t             align; /**< Places begin at multiples of it */
    bool                 is_fixed; /**< Steps must not write to it */
    uint32_t             count;
    uint32_t             max;
    ucx_mp_proof_piece_t *pieces;
} ucx_mp_proof_memory_t;


/** A plan, with functions that interpret its places. */
typedef struct {
    const void *plan;
    unsigned   num_ranks;    /**< Ranks that submit steps */
    unsigned   num_queues;   /**< Maximum number of queues of a rank */
    unsigned   num_memories;
    unsigned   max_fan;      /**< Maximum number of sources, and of
                                  destinations, of a kernel */
    uint32_t   element;      /**< Bytes; steps contain complete elements */

    /** Return the memory of a place; num_memories or more: invalid. */
    unsigned (*memory_of)(const void *plan, const uct_cuda_plan_place_t *place);

    /** Write a memory's name to @a buffer, and return it. */
    const char *(*memory_str)(const void *plan, unsigned memory, char *buffer,
                              size_t size);
} ucx_mp_proof_subject_t;


typedef struct {
    const ucx_mp_proof_subject_t *subject;
    uct_cuda_plan_steps_t        list;
    ucx_mp_proof_memory_t        *memories;
    ucx_mp_proof_term_t          *terms;
    uint32_t                     num_terms;
    uint32_t                     max_terms;
    uint64_t                     *before; /**< Bits, one row per step: steps
                                               that end before it begins */
    size_t                       row;     /**< Words of a row */
    char                         *error;
    size_t                       error_size;
} ucx_mp_proof_t;


/** Set the error to a sentence. Returns UCS_ERR_INVALID_PARAM. */
ucs_status_t ucx_mp_proof_fail(ucx_mp_proof_t *proof, const char *format, ...)
        __attribute__((format(printf, 2, 3)));


/**
 * Initialize a proof. All memories are empty.
 *
 * @param error  Filled where a function returns UCS_ERR_INVALID_PARAM.
 * @return UCS_OK, UCS_ERR_NO_MEMORY; release the proof in both cases.
 */
ucs_status_t ucx_mp_proof_init(ucx_mp_proof_t *proof,
                               const ucx_mp_proof_subject_t *subject,
                               const uct_cuda_plan_steps_t *list, char *error,
                               size_t error_size);

void ucx_mp_proof_release(ucx_mp_proof_t *proof);


/** Define a memory: it holds an input, from byte @a at on, or NO_TERM
 *  everywhere. Returns UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t ucx_mp_proof_memory(ucx_mp_proof_t *proof, unsigned memory,
                                 uint64_t size, uint32_t align, uint32_t term,
                                 uint64_t at);

/** Replace the contents of @a bytes (> 0) bytes of a memory. */
ucs_status_t ucx_mp_proof_replace(ucx_mp_proof_t *proof, unsigned memory,
                                  uint64_t offset, uint64_t bytes, uint64_t at,
                                  uint32_t term);


/**
 * Check each step by itself, check that no two race, and execute them.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM: the error names the step and the
 *         violated rule; UCS_ERR_NO_MEMORY.
 */
ucs_status_t ucx_mp_proof_run(ucx_mp_proof_t *proof);


/** Split a piece at an offset. Returns UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t ucx_mp_proof_split(ucx_mp_proof_memory_t *memory, uint64_t offset);

/** Return the index of the piece with this byte, below the memory's size. */
uint32_t
ucx_mp_proof_find(const ucx_mp_proof_memory_t *memory, uint64_t offset);


END_C_DECLS

#endif
