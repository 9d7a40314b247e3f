/* SPDX-License-Identifier: BSD-3-Clause */
/* Creation and destruction of teams. */
#include <uct/cuda/collective/team.h>

#include <uct/cuda/base/log.h>
#include <uct/cuda/collective/options.h>

#include <stdlib.h>
#include <string.h>


ucs_status_t uct_cuda_coll_team_create(uct_cuda_node_segment_t *segment,
                                       uint64_t key, unsigned rank,
                                       unsigned size,
                                       const unsigned *members,
                                       uint64_t calls,
                                       uct_cuda_coll_team_t **team_p)
{
    uct_cuda_coll_team_t *team = calloc(1, sizeof(*team));
    uct_cuda_node_control_common_t *common;
    uct_cuda_node_control_t *control;
    ucs_status_t status;

    if (team == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_cuda_node_control_open(segment, key, rank, size, members,
                                        &control);
    if (status != UCS_OK) {
        uct_cuda_debug("rank %u of %u: no control block for collectives "
                       "(status %d)", rank,
                       size, status);
        free(team);
        return status;
    }

    team->agreement.control  = control;
    team->agreement.rank     = rank;
    team->agreement.size     = size;
    team->agreement.sequence = calls;
    team->memory.agreement   = &team->agreement;
    if (rank == 0) {
        common            = uct_cuda_node_control_common(control);
        common->algorithm = uct_cuda_coll_config()->algorithm;
        common->multipath = uct_cuda_coll_config()->multipath;
    }
    uct_cuda_node_control_join(control, calls + 1);
    *team_p = team;
    return UCS_OK;
}

void uct_cuda_coll_team_drop_schedules(uct_cuda_coll_team_t *team)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_COLL_MAX_SCHEDULES; ++i) {
        uct_cuda_run_schedule_destroy(team->schedules[i].schedule);
    }
    memset(team->schedules, 0, sizeof(team->schedules));
    uct_cuda_plan_cache_destroy(team->plan_cache);
    team->plan_cache = NULL;
}

void uct_cuda_coll_team_destroy(uct_cuda_coll_team_t *team)
{
    uct_cuda_coll_memory_release(&team->memory);
    uct_cuda_coll_team_drop_schedules(team);
    if (team->has_links) {
        uct_cuda_coll_links_put();
    }
    uct_cuda_node_control_close(team->agreement.control);
    free(team);
}
