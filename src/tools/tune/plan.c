/* SPDX-License-Identifier: BSD-3-Clause */
/* Plan a transfer by a configuration, and time it. */
#include "tool.h"


double ucx_mp_tune_play(ucx_mp_tune_case_t *tune,
                        const uct_cuda_plan_config_t *config,
                        double *predicted_p)
{
    const uct_cuda_plan_load_t idle      = {.is_known = true,
                                            .uncrossed  = UINT64_MAX};
    const uct_cuda_plan_knowledge_t know = {
        .topo = tune->topo, .config = config, .load = &idle,
        .tuning = tune->table
    };
    const uct_cuda_end_t src = uct_cuda_end_gpu(tune->src);
    const uct_cuda_end_t dst = uct_cuda_end_gpu(tune->dst);
    size_t piece             = uct_cuda_plan_piece_size(
            tune->size, uct_cuda_plan_max_size(config));
    size_t left           = tune->size;
    uct_cuda_plan_t *plan = &tune->plan;

    *predicted_p = 0;
    uct_cuda_plan_make(&know, src, dst, piece, plan);
    if (plan->num_paths == 0) {
        *predicted_p = plan->single_seconds * ((left + piece - 1) / piece);
        return ucx_mp_player_single(tune->player, tune->src, tune->dst,
                                    tune->size);
    }

    ucx_mp_player_begin(tune->player, config->graph == UCT_CUDA_PLAN_YES);
    while (left > 0) {
        piece = (left < piece) ? left : piece;
        if (piece != plan->size) {
            uct_cuda_plan_make(&know, src, dst, piece, plan);
            if (plan->num_paths == 0) {
                uct_cuda_plan_single(src, dst, uct_cuda_end_none(),
                                     piece, plan);
            }
        }

        ucx_mp_player_submit(tune->player, plan);
        *predicted_p += plan->seconds;
        left         -= piece;
    }

    return ucx_mp_player_finish(tune->player);
}

void ucx_mp_tune_plan_print(const uct_cuda_plan_t *plan, FILE *stream)
{
    const char *comma = "";
    char name[16];
    unsigned i;

    if (plan->num_paths == 0) {
        fprintf(stream, "\"paths\": \"direct\", \"shares\": \"1.0000\", "
                "\"chunks\": \"1\"");
        return;
    }

    fprintf(stream, "\"paths\": \"");
    for (i = 0; i < plan->num_paths; ++i, comma = ",") {
        fprintf(stream, "%s%s", comma,
                uct_cuda_plan_path_str(&plan->paths[i].path, name,
                                       sizeof(name)));
    }

    fprintf(stream, "\", \"shares\": \"");
    for (i = 0, comma = ""; i < plan->num_paths; ++i, comma = ",") {
        fprintf(stream, "%s%.4f", comma,
                (double)plan->paths[i].bytes / plan->size);
    }

    fprintf(stream, "\", \"chunks\": \"");
    for (i = 0, comma = ""; i < plan->num_paths; ++i, comma = ",") {
        fprintf(stream, "%s%u", comma,
                (plan->paths[i].slots > 0) ? plan->paths[i].chunks : 1);
    }
    fprintf(stream, "\"");
}
