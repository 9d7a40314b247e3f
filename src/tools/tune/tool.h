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
    const uct_cuda_mp_tuning_t *table;  /**< With the model's constants */
    ucx_mp_player_t            *player;
    int                        src;
    int                        dst;
    size_t                     size;    /**< Bytes */
    uct_cuda_mp_plan_t         plan;    /**< Of its last piece; no paths: one
                                             plain copy */
} ucx_mp_tune_case_t;


/**
 * Plan a transfer by a configuration and play it, piece by piece as the engine
 * cuts it; as graphs with MULTIPATH_GRAPH=y, else through streams.
 *
 * @param predicted_p  Filled with the seconds that the model expects.
 *
 * @return Seconds, as played.
 */
double ucx_mp_tune_play(ucx_mp_tune_case_t *tune,
                        const uct_cuda_mp_config_t *config,
                        double *predicted_p);


/** Print "paths": "direct,gpu2", "shares": "0.4000,0.6000", "chunks": "1,8". */
void ucx_mp_tune_plan_print(const uct_cuda_mp_plan_t *plan, FILE *stream);

#endif
