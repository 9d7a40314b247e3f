/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of an engine, shared by the files of its phases:
 *
 *   admit.c     decides whether a transfer is taken
 *   plan/transfer_planner.c
 *               divides it: a pure function
 *   acquire.c   creates and maps the resources of a plan; a missing one
 *               becomes a constraint for another plan
 *   transfer.c  submits, polls, completes and releases it
 *
 * engine.c creates and destroys engines; core.c has what an engine knows about
 * the node.
 */
#ifndef UCT_CUDA_MULTIPATH_CORE_H
#define UCT_CUDA_MULTIPATH_CORE_H

#include <uct/cuda/multipath/multipath.h>
#include <uct/cuda/multipath/traffic.h>
#include <uct/cuda/plan/min_sizes.h>
#include <uct/cuda/plan/transfer_planner.h>
#include <uct/cuda/run/background.h>
#include <uct/cuda/run/completion.h>
#include <uct/cuda/run/executor.h>
#include <uct/cuda/run/resources.h>

#include <pthread.h>
#include <sys/queue.h>

BEGIN_C_DECLS


/** Index of a kind of transfers: between GPUs, or with host memory. */
enum {
    UCT_CUDA_MP_KIND_GPU,
    UCT_CUDA_MP_KIND_HOST,
    UCT_CUDA_MP_NUM_KINDS
};


/** Constraints after a relay failed to map a remote end. They end with the next
 *  allocation, because the memory may have been freed; after too many failures
 *  in a row they stay. */
typedef struct {
    uct_cuda_plan_constraints_t last;       /**< Latest ones of that end */
    bool                        is_pending; /**< Some are in force */
    uint64_t                    allocation; /**< Allocation they are for */
    /** Failures in a row */
    uint8_t                     count[UCT_CUDA_NUM_ENDS];
} uct_cuda_mp_refused_t;


/** Summary of an engine's messages, logged in one line at info level when the
 *  engine ends. Counted only if that level is on. */
typedef struct {
    uint64_t messages; /**< Of all sizes; updated by any thread */
    uint64_t split;    /**< Messages over several paths */
    uint64_t direct;   /**< Their bytes over direct paths */
    uint64_t via[UCT_CUDA_NUM_ENDS]; /**< Their bytes over each relay */
    double   seconds;        /**< Their modelled time */
    double   single_seconds; /**< Modelled time of plain copies instead */
} uct_cuda_mp_summary_t;


/** What an engine knows about one kind of transfers. */
typedef struct {
    uct_cuda_plan_constraints_t constraints;
    uct_cuda_mp_refused_t       refused;
    /** Smallest split size with no transfer ahead, bytes; 0: unknown */
    size_t                      alone_min_size;
    /** Smallest split size without the host path, bytes */
    size_t                      relays_min_size;
} uct_cuda_mp_kind_t;


typedef struct {
    uct_cuda_mp_engine_t     super;
    /** For all members below; order: base/thread.h */
    pthread_mutex_t          lock;
    uct_cuda_plan_config_t   config;
    uct_cuda_run_rsc_t       *rsc;
    /** NULL: transfers wait for resources */
    uct_cuda_run_background_t *background;
    uct_cuda_run_graphs_t    *graphs;
    uct_cuda_run_streams_t   *streams;
    uct_cuda_run_used_t    used; /**< By the transfer being started */
    uct_cuda_mp_traffic_t  *traffic;
    LIST_HEAD(, uct_cuda_mp_transfer) free;
    LIST_HEAD(, uct_cuda_mp_transfer) active; /**< Started, not yet released */
    const uct_cuda_topo_t   *topo;   /**< NULL: unknown */
    bool                    is_probed; /**< Set by the thread that probes */
    bool                    is_learned; /**< Its results are in use */
    uct_cuda_plan_min_sizes_t probed_sizes[UCT_CUDA_MP_NUM_KINDS];
    bool                    is_hidden_logged;
    uint32_t                absent; /**< Mask of relays that failed */
    uint32_t                full;       /**< Mask of relays out of memory */
    uint64_t                full_until; /**< Time to try them again, ns */
    uint64_t                full_ns;    /**< Pause, ns; doubled by a failure */
    uct_cuda_mp_kind_t      kinds[UCT_CUDA_MP_NUM_KINDS];
    bool                    was_alone; /**< The previous transfer was alone */
    uct_cuda_plan_tuning_t  *tuning; /**< Or NULL */
    /** Traffic met by the transfer being started */
    uct_cuda_plan_load_t    load;
    uct_cuda_plan_t         plan; /**< Of that transfer, or of its piece */
    uct_cuda_mp_summary_t   summary;
} uct_cuda_mp_core_t;


struct uct_cuda_mp_transfer {
    uct_cuda_mp_core_t     *core;
    LIST_ENTRY(uct_cuda_mp_transfer) list; /**< free or active */
    uct_cuda_end_t         src;
    uct_cuda_end_t         dst;
    size_t                 size;  /**< Bytes */
    uint64_t               begin; /**< For log and timeline, ns; 0: off */
    double                 seconds; /**< Modelled time */
    unsigned               num_ahead; /**< Transfers of its pair at its start */
    int                    local; /**< Device of the local GPU */
    uct_cuda_run_completion_t completion;
    uct_cuda_run_graph_t    *held; /**< Graphs in use until its end */
    ucs_status_t            status;
    unsigned                num_steps;
    bool                    is_alone; /**< The transfer before was alone, too */
    uct_cuda_mp_flow_t      flow;
};


static inline uct_cuda_mp_core_t *
uct_cuda_mp_core(uct_cuda_mp_engine_t *engine)
{
    return (uct_cuda_mp_core_t*)engine;
}

static inline int uct_cuda_mp_kind(uct_cuda_end_t src, uct_cuda_end_t dst)
{
    return uct_cuda_plan_ends_host(src, dst) ? UCT_CUDA_MP_KIND_HOST :
                                                  UCT_CUDA_MP_KIND_GPU;
}


/**
 * Probe the node unless done, read the tuning table and set the smallest sizes.
 *
 * @return false: a thread still probes it, with MULTIPATH_START=background or
 *         default settings; true: done, even if the topology is unknown.
 */
bool uct_cuda_mp_core_learn(uct_cuda_mp_core_t *core);

/** Fill in the planner's input. */
void uct_cuda_mp_core_planner_input(const uct_cuda_mp_core_t *core, int kind,
                                    const uct_cuda_plan_load_t *load,
                                    uct_cuda_plan_knowledge_t *know_p);

/** Set the smallest size with a plan for a kind of transfers, bytes;
 *  SIZE_MAX: none. */
void uct_cuda_mp_core_set_min_size(uct_cuda_mp_core_t *core, int kind,
                                   size_t size);

/** Update the smallest size of a kind of transfers after its constraints
 *  have changed. */
void uct_cuda_mp_core_update_min_size(uct_cuda_mp_core_t *core, int kind);

/** Drop the resources of devices reset by the program. */
void uct_cuda_mp_core_drop_lost(uct_cuda_mp_core_t *core);


/** Add the bytes and times of a submitted plan. The caller counts messages and
 *  split. */
void uct_cuda_mp_summary_add(uct_cuda_mp_summary_t *summary,
                             const uct_cuda_plan_t *plan);

/** Log the line if there was any message. */
void uct_cuda_mp_summary_log(const uct_cuda_mp_summary_t *summary);


typedef enum {
    UCT_CUDA_MP_ACQUIRED,
    UCT_CUDA_MP_REPLAN,  /**< New constraints: the plan must be made again */
    UCT_CUDA_MP_GIVE_UP  /**< The transfer uses one path */
} uct_cuda_mp_acquired_t;

/**
 * Create and map the missing resources of the engine's plan. No other function
 * does this. A resource that is not available becomes a constraint.
 *
 * @param absent  Mask of relays not ready yet, as for the planner; some may be
 *                added.
 */
uct_cuda_mp_acquired_t
uct_cuda_mp_acquire(uct_cuda_mp_core_t *core, uct_cuda_run_memory_t *memory,
                    uint32_t *absent);

/** Drop constraints that may not apply any more: those of another allocation,
 *  which may have been freed, and of relays that were out of memory some time
 *  ago. Call it before planning a transfer of the kind. */
void uct_cuda_mp_acquire_drop_constraints(uct_cuda_mp_core_t *core, int kind,
                                          uint64_t allocation);


END_C_DECLS

#endif
