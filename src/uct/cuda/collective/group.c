/* SPDX-License-Identifier: BSD-3-Clause */
/* Creation and destruction of groups. */
#include <uct/cuda/collective/group.h>

#include <uct/cuda/base/log.h>
#include <uct/cuda/collective/options.h>

#include <stdlib.h>
#include <string.h>


ucs_status_t uct_cuda_coll_group_create(uct_cuda_node_segment_t *segment,
                                        uint64_t key, unsigned rank,
                                        unsigned size,
                                        const unsigned *members,
                                        uint64_t calls,
                                        uct_cuda_coll_group_t **group_p)
{
    uct_cuda_coll_group_t *group = calloc(1, sizeof(*group));
    uct_cuda_node_control_common_t *common;
    uct_cuda_node_control_t *control;
    ucs_status_t status;

    if (group == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_cuda_node_control_open(segment, key, rank, size, members,
                                        &control);
    if (status != UCS_OK) {
        uct_cuda_debug("rank %u of %u: no control block for collectives "
                       "(status %d)", rank,
                       size, status);
        free(group);
        return status;
    }

    group->agreement.control  = control;
    group->agreement.rank     = rank;
    group->agreement.size     = size;
    group->agreement.sequence = calls;
    group->memory.agreement   = &group->agreement;
    if (rank == 0) {
        common            = uct_cuda_node_control_common(control);
        common->algorithm = uct_cuda_coll_config()->algorithm;
        common->multipath = uct_cuda_coll_config()->multipath;
    }
    uct_cuda_node_control_join(control, calls + 1);
    *group_p = group;
    return UCS_OK;
}

void uct_cuda_coll_group_drop_schedules(uct_cuda_coll_group_t *group)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_COLL_MAX_SCHEDULES; ++i) {
        uct_cuda_run_schedule_destroy(group->schedules[i].schedule);
    }
    memset(group->schedules, 0, sizeof(group->schedules));
    uct_cuda_plan_cache_destroy(group->plan_cache);
    group->plan_cache = NULL;
}

void uct_cuda_coll_group_destroy(uct_cuda_coll_group_t *group)
{
    uct_cuda_coll_memory_release(&group->memory);
    uct_cuda_coll_group_drop_schedules(group);
    if (group->has_links) {
        uct_cuda_coll_links_put();
    }
    uct_cuda_node_control_close(group->agreement.control);
    free(group);
}
