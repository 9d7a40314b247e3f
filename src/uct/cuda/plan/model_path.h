/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path in the model of transfers: the rates of its links with other traffic,
 * its latency, the cost of a chunk. Only this file knows how the cost of a path
 * depends on the end at which it is staged.
 */
#ifndef UCT_CUDA_PLAN_MODEL_PATH_H
#define UCT_CUDA_PLAN_MODEL_PATH_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/fair_share.h>
#include <uct/cuda/plan/model_constants.h>
#include <uct/cuda/plan/transfer_plan.h>

BEGIN_C_DECLS


/** Other transfers under way on each directed link, including links of the
 *  host. direct counts those whose ends the link connects: they have no
 *  other route as fast. */
typedef struct {
    bool     is_known; /**< Covers the whole node, not just this process */
    /** Large transfers of this process between the same GPUs, ahead of this
     *  one */
    uint16_t queued;
    /** Such transfers overlapping in time recently, including this one */
    uint16_t window;
    /** Bytes sent between these ends since the last crossing traffic */
    uint64_t uncrossed;
    uint8_t  active[UCT_CUDA_PLAN_NUM_LINKS];
    uint8_t  direct[UCT_CUDA_PLAN_NUM_LINKS];
    /** Bytes of planned queued transfers, by link */
    uint64_t ahead[UCT_CUDA_PLAN_NUM_LINKS];
} uct_cuda_plan_load_t;


/** Return whether other traffic enters the transfer's source or leaves its
 *  destination. It shares the links that the host path needs. */
bool uct_cuda_plan_load_is_crossed(const uct_cuda_plan_load_t *load,
                                   uct_cuda_end_t src, uct_cuda_end_t dst);


/** Path as seen by the model. */
typedef struct {
    uct_cuda_end_t       via; /**< End at which it is staged; none: direct */
    unsigned             hops;
    uint16_t             links[UCT_CUDA_PLAN_MAX_HOPS];
    double               cap;     /**< Bytes/s if alone */
    /** Bytes/s of each hop if alone */
    double               rates[UCT_CUDA_PLAN_MAX_HOPS];
    /** The hop is independent of the other hop's limit, such as host memory */
    bool                 is_free[UCT_CUDA_PLAN_MAX_HOPS];
    double               latency; /**< Seconds */
    double               margin;  /**< Uncertainty, s */
    double               gap;     /**< Cost of a chunk, s */
    uct_cuda_plan_share_way_t way;      /**< Shared limits of all hops */
    bool               is_busy; /**< Other transfers use its links */
    /** Other transfers have no alternative to its links or to limits shared
     *  with them */
    bool               is_taken;
    double             share;   /**< Configured, or 0 */
    unsigned           chunks;  /**< Configured, or 0 */
} uct_cuda_plan_model_path_t;


/** Query to the model. */
typedef struct {
    const uct_cuda_topo_t        *topo;
    const uct_cuda_plan_config_t *config;
    const uct_cuda_plan_load_t   *load; /**< May be NULL */
    const uct_cuda_plan_model_t  *model;
    uct_cuda_end_t               src;   /**< GPU, or host memory */
    /** GPU, or host memory if src is a GPU */
    uct_cuda_end_t               dst;
    /** NUMA node of host memory on the way */
    int                          numa;
    double                       size;  /**< Bytes */
    /** load->queued, unless changed after uct_cuda_plan_model_start() */
    unsigned                     queued;
    /** Bytes/s of shared limits left for one copy, other copies using them,
     *  and of these the ones without alternative; filled by
     *  uct_cuda_plan_model_start() */
    double                       limits[UCT_CUDA_TOPO_MAX_LIMITS];
    unsigned                     others[UCT_CUDA_TOPO_MAX_LIMITS];
    unsigned                     direct[UCT_CUDA_TOPO_MAX_LIMITS];
} uct_cuda_plan_query_t;


/** Account for other traffic. Call it before the functions below. */
void uct_cuda_plan_model_start(uct_cuda_plan_query_t *query);


/** Return the bytes/s of a shared limit without other traffic. */
double uct_cuda_plan_model_limit(const uct_cuda_plan_query_t *query, int limit);


/**
 * Fill in a path of this transfer as the model sees it.
 *
 * @param via  End at which it is staged; none: direct.
 *
 * @return false: the hardware has no such path, or it would be staged on an end
 *         of the transfer. *path_p is then undefined.
 */
bool uct_cuda_plan_model_path(const uct_cuda_plan_query_t *query,
                              uct_cuda_end_t via,
                              uct_cuda_plan_model_path_t *path_p);


END_C_DECLS

#endif
