/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proves what the steps of a plan do, a transfer's or a collective's, knowing
 * nothing of how they came about. The steps are carried out on names instead of
 * numbers: a piece of memory holds a term, which is an input or a sum of terms
 * in their order, for a range of the whole's bytes; equal terms have equal
 * numbers. Where no two steps race, the plan's own order stands for every other
 * one.
 */
#ifndef UCX_MP_CHECK_PROOF_H
#define UCX_MP_CHECK_PROOF_H

#include <ucs/type/status.h>
#include <uct/cuda/plan/steps.h>

#include <stddef.h>

BEGIN_C_DECLS


/** Inputs of a proof at most. */
#define UCX_MP_PROOF_INPUTS 64

/** "Nothing was written". */
#define UCX_MP_PROOF_NO_TERM UINT32_MAX


/** An input, if its number is below INPUTS, or a sum of terms. */
typedef struct {
    unsigned count;
    uint32_t parts[UCX_MP_PROOF_INPUTS];
    uint8_t  inputs[UCX_MP_PROOF_INPUTS]; /**< How often each is in it; 2: or
                                               more often */
} ucx_mp_proof_term_t;


/** Bytes from @a offset on hold @a term of the whole's bytes from @a at on. */
typedef struct {
    uint64_t offset;
    uint64_t bytes;
    uint64_t at;
    uint32_t term;
} ucx_mp_proof_piece_t;


/** Pieces in the order of offsets, nothing between them. */
typedef struct {
    uint64_t             size;  /**< 0: there is none */
    uint32_t             align; /**< Places begin at multiples of it */
    bool                 is_fixed; /**< Nothing may write there */
    uint32_t             count;
    uint32_t             max;
    ucx_mp_proof_piece_t *pieces;
} ucx_mp_proof_memory_t;


/** Who has a proof made says what the plan's places are. */
typedef struct {
    const void *plan;
    unsigned   num_ranks;    /**< Steps are submitted by */
    unsigned   num_queues;   /**< Of each of them, at most */
    unsigned   num_memories;
    unsigned   max_fan;      /**< Sources, and destinations, of a kernel */
    uint32_t   element;      /**< Bytes; steps have whole ones */

    /** Number of the memory that a place is in; num_memories or more: none. */
    unsigned   (*memory_of)(const void *plan, const uct_cuda_place_t *place);

    /** For people. Returns @a buffer. */
    const char *(*memory_str)(const void *plan, unsigned memory, char *buffer,
                              size_t size);
} ucx_mp_proof_subject_t;


typedef struct {
    const ucx_mp_proof_subject_t *subject;
    uct_cuda_steps_t             list;
    ucx_mp_proof_memory_t        *memories;
    ucx_mp_proof_term_t          *terms;
    uint32_t                     num_terms;
    uint32_t                     max_terms;
    uint64_t                     *before; /**< Bits, a row a step: what has
                                               ended when it begins */
    size_t                       row;     /**< Words of one */
    char                         *error;
    size_t                       error_size;
} ucx_mp_proof_t;


/** Fill the error with a sentence. Returns UCS_ERR_INVALID_PARAM. */
ucs_status_t ucx_mp_proof_fail(ucx_mp_proof_t *proof, const char *format, ...)
        __attribute__((format(printf, 2, 3)));


/**
 * Begin. No memory has a size yet.
 *
 * @param error  Filled where a function returns UCS_ERR_INVALID_PARAM.
 * @return UCS_OK, UCS_ERR_NO_MEMORY; either way to be released.
 */
ucs_status_t ucx_mp_proof_init(ucx_mp_proof_t *proof,
                               const ucx_mp_proof_subject_t *subject,
                               const uct_cuda_steps_t *list, char *error,
                               size_t error_size);

void ucx_mp_proof_release(ucx_mp_proof_t *proof);


/** Say that a memory is there, and that all of it holds bytes of the whole from
 *  @a at on of an input, or NO_TERM. UCS_OK, UCS_ERR_NO_MEMORY. */
ucs_status_t ucx_mp_proof_memory(ucx_mp_proof_t *proof, unsigned memory,
                                 uint64_t size, uint32_t align, uint32_t term,
                                 uint64_t at);

/** Say that some bytes of it, not none, hold something else. */
ucs_status_t ucx_mp_proof_replace(ucx_mp_proof_t *proof, unsigned memory,
                                  uint64_t offset, uint64_t bytes, uint64_t at,
                                  uint32_t term);


/**
 * Check each step by itself, that no two race, and carry them out.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM: the error says which step breaks which
 *         rule; UCS_ERR_NO_MEMORY.
 */
ucs_status_t ucx_mp_proof_run(ucx_mp_proof_t *proof);


/** Let a piece begin here. UCS_OK, UCS_ERR_NO_MEMORY. */
ucs_status_t ucx_mp_proof_split(ucx_mp_proof_memory_t *memory, uint64_t offset);

/** Index of the piece that has this byte, which is below the memory's size. */
uint32_t
ucx_mp_proof_find(const ucx_mp_proof_memory_t *memory, uint64_t offset);


END_C_DECLS

#endif
