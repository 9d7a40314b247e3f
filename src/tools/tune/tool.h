/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_mp_plan_time: what its parts share. */
#ifndef UCX_MP_TUNE_TOOL_H
#define UCX_MP_TUNE_TOOL_H

#include "die.h"
#include "play.h"

#include <uct/cuda/plan/transfer_planner.h>

#include <stdio.h>


/** A transfer that is to be planned. */
typedef struct {
    const uct_cuda_topo_t      *topo;
    const uct_cuda_mp_config_t *config; /**< The user's */
    const uct_cuda_mp_tuning_t *table;  /**< With the model's constants */
    ucx_mp_player_t            *player;
    int                        src;
    int                        dst;
    size_t                     size;    /**< Bytes */
} ucx_mp_tune_case_t;


/** Paths, shares and chunks, as variables name them. */
typedef struct {
    unsigned           count;
    uct_cuda_mp_path_t paths[UCT_CUDA_MP_MAX_PATHS];
    double             shares[UCT_CUDA_MP_MAX_PATHS];
    unsigned           chunks[UCT_CUDA_MP_MAX_PATHS]; /**< 0 of direct */
    double             seconds;                       /**< As played */
} ucx_mp_tune_choice_t;


/** What was found. */
typedef struct {
    ucx_mp_tune_choice_t model;     /**< The module's own choice */
    double               predicted; /**< Seconds that the model expects of it */
    double               single;    /**< Seconds of one plain copy, played */
    ucx_mp_tune_choice_t best;
    unsigned long        plays;
} ucx_mp_tune_found_t;


/** The module's choice for a transfer, played. */
void ucx_mp_tune_model(const ucx_mp_tune_case_t *tune,
                       ucx_mp_tune_found_t *found);


/**
 * The best choice that variables can ask for: all sets of paths that the
 * user's allow, each with shares that let its paths end together; the best sets
 * then by moving shares, first 2 then 0.5 % at a time, and chunks.
 * Deterministic.
 *
 * @param found  Of ucx_mp_tune_model(), which the search begins with.
 */
void ucx_mp_tune_search(const ucx_mp_tune_case_t *tune,
                        ucx_mp_tune_found_t *found);


/** "paths": "direct,gpu2", "shares": "0.4000,0.6000", "chunks": "1,8" */
void ucx_mp_tune_choice_print(const ucx_mp_tune_choice_t *choice, FILE *stream);

#endif
