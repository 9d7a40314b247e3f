/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traffic on the node's links as known to an engine: its own transfers, counted
 * here, and those of other processes, from the ledger.
 *
 * Thread safe, with its own lock.
 */
#ifndef UCT_CUDA_MULTIPATH_TRAFFIC_H
#define UCT_CUDA_MULTIPATH_TRAFFIC_H

#include <uct/cuda/plan/model_path.h>

BEGIN_C_DECLS


#define UCT_CUDA_MP_TRAFFIC_MAX_LINKS \
    (UCT_CUDA_PLAN_MAX_HOPS * UCT_CUDA_PLAN_MAX_PATHS)


typedef struct uct_cuda_mp_traffic uct_cuda_mp_traffic_t;


/** Links of a transfer. */
typedef struct {
    uint16_t link;      /**< From its one end to the other */
    uint64_t size;      /**< Bytes; not used at the end */
    bool     is_large;  /**< Later transfers can fill their paths behind it */
    unsigned num_links;
    uint16_t links[UCT_CUDA_MP_TRAFFIC_MAX_LINKS];
    uint64_t bytes[UCT_CUDA_MP_TRAFFIC_MAX_LINKS];
} uct_cuda_mp_flow_t;


/**
 * Create the accounting.
 *
 * @param dir  Directory of the ledger, which is opened at first use; NULL or
 *             empty: none. The text is copied.
 * @return UCS_OK or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_mp_traffic_create(const char *dir,
                                        uct_cuda_mp_traffic_t **traffic_p);

void uct_cuda_mp_traffic_destroy(uct_cuda_mp_traffic_t *traffic);


/** Get queued and window of the load that the next transfer from @a src to
 *  @a dst would meet (uct_cuda_plan_load_t). Thread safe, without a lock. */
void uct_cuda_mp_traffic_peek(uct_cuda_mp_traffic_t *traffic,
                              uct_cuda_end_t src, uct_cuda_end_t dst,
                              unsigned *queued_p, unsigned *window_p);


/** Return the bytes sent from @a src to @a dst since the last crossing traffic.
 *  Thread safe, without a lock. */
uint64_t uct_cuda_mp_traffic_uncrossed(uct_cuda_mp_traffic_t *traffic,
                                       uct_cuda_end_t src, uct_cuda_end_t dst);


/**
 * Compute the traffic met by a new transfer: present traffic, and that of the
 * contention history (history.h). Transfers of its own pair are not counted as
 * active: they use the same links one after the other. Takes well below 1 us.
 *
 * @param load  Filled; is_known tells whether there is a ledger.
 */
void uct_cuda_mp_traffic_load(uct_cuda_mp_traffic_t *traffic,
                              uct_cuda_end_t src, uct_cuda_end_t dst,
                              uct_cuda_plan_load_t *load);


/** Describe one plain copy over a directed link. Its bytes do not count as
 *  bytes ahead on the link. */
static inline void uct_cuda_mp_flow_single(uint16_t link, uint64_t size,
                                           bool is_large,
                                           uct_cuda_mp_flow_t *flow)
{
    flow->size      = size;
    flow->is_large  = is_large;
    flow->link      = link;
    flow->num_links = 1;
    flow->links[0]  = link;
    flow->bytes[0]  = 0;
}


/**
 * Describe the links used by a plan, with their bytes for a transfer of @a
 * size, which may be several times the plan's.
 */
void uct_cuda_mp_flow_of_plan(const uct_cuda_plan_t *plan, size_t size,
                              uct_cuda_mp_flow_t *flow);


/** Count a transfer until uct_cuda_mp_traffic_end(). */
void uct_cuda_mp_traffic_begin(uct_cuda_mp_traffic_t *traffic,
                               const uct_cuda_mp_flow_t *flow);


/** End a counted transfer. A large one adds the traffic it met to the
 *  history. */
void uct_cuda_mp_traffic_end(uct_cuda_mp_traffic_t *traffic,
                             const uct_cuda_mp_flow_t *flow);


/** List other processes using the links of this node, see
 *  uct_cuda_node_ledger_others(). */
unsigned uct_cuda_mp_traffic_others(uct_cuda_mp_traffic_t *traffic,
                                    uint32_t *pids, unsigned max);


END_C_DECLS

#endif
