/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_mp_plan_time: declarations shared by its parts. */
#ifndef UCX_MP_TUNE_TOOL_H
#define UCX_MP_TUNE_TOOL_H

#include "play.h"

#include <common/common.h>

#include <uct/cuda/plan/transfer_planner.h>

#include <stdio.h>


/** A transfer to plan. */
typedef struct {
    const uct_cuda_topo_t        *topo;
    /** Constants of the model */
    const uct_cuda_plan_tuning_t *table;
    ucx_mp_player_t              *player;
    int                          src;
    int                          dst;
    size_t                       size;    /**< Bytes */
    uct_cuda_plan_t              plan;    /**< Plan of the last piece; no paths:
                                               one plain copy */
} ucx_mp_tune_case_t;


/**
 * Plan a transfer by a configuration and time it, piece by piece as the engine
 * does; with MULTIPATH_GRAPH=y as graphs, otherwise through streams.
 *
 * @param predicted_p  Filled with the model's seconds.
 *
 * @return Timed seconds.
 */
double ucx_mp_tune_play(ucx_mp_tune_case_t *tune,
                        const uct_cuda_plan_config_t *config,
                        double *predicted_p);


/** Print "paths": "direct,gpu2", "shares": "0.4000,0.6000", "chunks": "1,8". */
void ucx_mp_tune_plan_print(const uct_cuda_plan_t *plan, FILE *stream);

#endif
