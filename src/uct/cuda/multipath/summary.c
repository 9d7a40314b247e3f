/* SPDX-License-Identifier: BSD-3-Clause */
/* The line grows with the number of relays used. */
#include <uct/cuda/multipath/summary.h>

#include <uct/cuda/base/log.h>

#include <stdio.h>


#define MIB 1048576.


void uct_cuda_mp_summary_add(uct_cuda_mp_summary_t *summary,
                             const uct_cuda_plan_t *plan)
{
    uct_cuda_end_t via;
    unsigned i;

    for (i = 0; i < plan->num_paths; ++i) {
        via = uct_cuda_plan_path_via(&plan->paths[i].path);
        if (uct_cuda_end_is_none(via)) {
            summary->direct += plan->paths[i].bytes;
        } else {
            summary->via[uct_cuda_end_index(via)] += plan->paths[i].bytes;
        }
    }

    /* a piece without a plan has no times */
    if (plan->seconds > 0) {
        summary->seconds        += plan->seconds;
        summary->single_seconds += plan->single_seconds;
    }
}

void uct_cuda_mp_summary_log(const uct_cuda_mp_summary_t *summary)
{
    char text[400] = "";
    size_t used    = 0;
    char name[16];
    int i;

    if (summary->messages == 0) {
        return;
    } else if ((summary->split == 0) || !(summary->seconds > 0)) {
        uct_cuda_info("%llu messages, none over several paths",
                      (unsigned long long)summary->messages);
        return;
    }

    for (i = 0; (i < (int)UCT_CUDA_NUM_ENDS) && (used < sizeof(text)); ++i) {
        if (summary->via[i] > 0) {
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     ", %s %.1f",
                                     uct_cuda_end_str(uct_cuda_end_at(i), name,
                                                      sizeof(name)),
                                     (double)summary->via[i] / MIB);
        }
    }

    uct_cuda_info("%llu messages, %llu over several paths: direct %.1f%s MiB; "
                  "%.2fx of one path by the model",
                  (unsigned long long)summary->messages,
                  (unsigned long long)summary->split,
                  (double)summary->direct / MIB, text,
                  summary->single_seconds / summary->seconds);
}
