/* SPDX-License-Identifier: BSD-3-Clause */
/* Teams of ranks: creation, destruction, and state used by calls. */
#ifndef UCT_CUDA_COLLECTIVE_TEAM_H
#define UCT_CUDA_COLLECTIVE_TEAM_H

#include <uct/cuda/collective/agree.h>
#include <uct/cuda/collective/links.h>
#include <uct/cuda/collective/peer_memory.h>
#include <uct/cuda/plan/plan_cache.h>
#include <uct/cuda/run/schedule.h>

BEGIN_C_DECLS


/** Maximum number of cached plans, one per message size in use. */
#define UCT_CUDA_COLL_MAX_SCHEDULES 64


typedef struct {
    uct_cuda_run_schedule_t    *schedule; /**< NULL: free slot */
    const uct_cuda_plan_coll_t *plan;     /**< Plan of schedule */
    uint64_t                   used;      /**< Sequence of the last call */
    uct_cuda_coll_links_t      links;
} uct_cuda_coll_kept_schedule_t;


struct uct_cuda_coll_team {
    uct_cuda_coll_agreement_t     agreement;
    uct_cuda_coll_memory_t        memory;

    /** Non-blocking calls that are not over, and the last of them (queue.c) */
    uct_cuda_coll_op_t            *ops, *last_op;
    uct_cuda_coll_team_t          *next_queued;

    /* The same on all ranks */
    bool                          is_off;
    unsigned                      faults; /**< Failed preparations in a row */
    /** Calls with a smaller sequence are not tried */
    uint64_t                      resume;
    /** Relays were not available */
    bool                          has_no_relays;
    bool has_links;     /**< uct_cuda_coll_links_get() was called */
    bool                          has_kernel[UCX_MP_OP_LAST][UCX_MP_TYPE_LAST];

    /** Plans for the agreement's GPUs; NULL: none yet */
    uct_cuda_plan_cache_t         *plan_cache;
    uct_cuda_coll_kept_schedule_t schedules[UCT_CUDA_COLL_MAX_SCHEDULES];
};


/** Destroy all plans made for the agreement's GPUs. */
void uct_cuda_coll_team_drop_schedules(uct_cuda_coll_team_t *team);


/**
 * Join a team without waiting for the other ranks. Rank 0's options hold for
 * all of them.
 *
 * @param calls  Calls made by this rank on the communicator before.
 * @return As uct_cuda_node_control_open(), or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_coll_team_create(uct_cuda_node_segment_t *segment,
                                       uint64_t key, unsigned rank,
                                       unsigned size,
                                       const unsigned *members,
                                       uint64_t calls,
                                       uct_cuda_coll_team_t **team_p);

void uct_cuda_coll_team_destroy(uct_cuda_coll_team_t *team);


END_C_DECLS

#endif
