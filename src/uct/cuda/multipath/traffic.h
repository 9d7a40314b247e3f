/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is under way on the node's links, as one engine knows it: its own
 * transfers, counted here, and those of other processes, from the ledger.
 *
 * Any thread; it has a lock of its own.
 */
#ifndef UCT_CUDA_MP_TRAFFIC_H
#define UCT_CUDA_MP_TRAFFIC_H

#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/plan/transfer_planner.h>

BEGIN_C_DECLS


#define UCT_CUDA_MP_TRAFFIC_MAX_LANES \
    (UCT_CUDA_MP_MAX_HOPS * UCT_CUDA_MP_MAX_PATHS)


typedef struct uct_cuda_mp_traffic uct_cuda_mp_traffic_t;


/** The lanes of one transfer. */
typedef struct {
    uint16_t lane;      /**< From its one end to the other */
    uint64_t size;      /**< Bytes; what ends one does not need it */
    bool     is_large;  /**< Others can fill their paths behind it */
    unsigned num_lanes;
    uint16_t lanes[UCT_CUDA_MP_TRAFFIC_MAX_LANES];
    uint64_t bytes[UCT_CUDA_MP_TRAFFIC_MAX_LANES];
} uct_cuda_mp_flow_t;


/**
 * @param dir  Of the ledger, which is opened when first needed; NULL or empty:
 *             none. The text is copied.
 * @return UCS_OK or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_mp_traffic_create(const char *dir,
                                        uct_cuda_mp_traffic_t **traffic_p);

void uct_cuda_mp_traffic_destroy(uct_cuda_mp_traffic_t *traffic);


/** What the load of the next transfer between two ends will say of those of
 *  its own pair. Any thread, without a lock. */
void uct_cuda_mp_traffic_peek(uct_cuda_mp_traffic_t *traffic,
                              uct_cuda_end_t src, uct_cuda_end_t dst,
                              unsigned *queued_p, unsigned *window_p);


/**
 * What a new transfer between two ends will meet: what is there at this moment,
 * and what those before it have met (meetings.h). Its own pair's transfers
 * are left out of what is active: they go one behind the other over the same
 * lanes. Well under 1 us.
 *
 * @param load  Filled; is_known says whether there is a ledger.
 */
void uct_cuda_mp_traffic_load(uct_cuda_mp_traffic_t *traffic,
                              uct_cuda_end_t src, uct_cuda_end_t dst,
                              uct_cuda_mp_load_t *load);


/** One copy over a lane; its bytes there are not counted. */
static inline void uct_cuda_mp_flow_single(uint16_t lane, uint64_t size,
                                           bool is_large,
                                           uct_cuda_mp_flow_t *flow)
{
    flow->size      = size;
    flow->is_large  = is_large;
    flow->lane      = lane;
    flow->num_lanes = 1;
    flow->lanes[0]  = lane;
    flow->bytes[0]  = 0;
}


/** The lanes that a plan uses, and the bytes on them of a transfer of @a size,
 *  which may be several times the plan's. */
void uct_cuda_mp_flow_of_plan(const uct_cuda_mp_plan_t *plan, size_t size,
                              uct_cuda_mp_flow_t *flow);


/** Count a transfer, until uct_cuda_mp_traffic_end(). */
void uct_cuda_mp_traffic_begin(uct_cuda_mp_traffic_t *traffic,
                               const uct_cuda_mp_flow_t *flow);


/** A counted transfer is over. Of a large one it is remembered whom it met. */
void uct_cuda_mp_traffic_end(uct_cuda_mp_traffic_t *traffic,
                             const uct_cuda_mp_flow_t *flow);


/** Other processes that move data on this node: uct_cuda_mp_ledger_others(). */
unsigned uct_cuda_mp_traffic_others(uct_cuda_mp_traffic_t *traffic,
                                    uint32_t *pids, unsigned max);


END_C_DECLS

#endif
