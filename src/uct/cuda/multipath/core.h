/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of an engine, for the files that are its phases:
 *
 *   admit.c     is a transfer taken, and why not
 *   plan/transfer_planner.c
 *               how it is cut up: a pure function
 *   acquire.c   what the plan needs is created and mapped, or is a constraint
 *               that the planner is asked again with
 *   transfer.c  submitted, asked for its progress, completed, released
 *
 * engine.c makes and ends engines; core.c has what they know of the node.
 */
#ifndef UCT_CUDA_MP_CORE_H
#define UCT_CUDA_MP_CORE_H

#include <uct/cuda/multipath/multipath.h>
#include <uct/cuda/multipath/summary.h>
#include <uct/cuda/multipath/traffic.h>
#include <uct/cuda/plan/transfer_planner.h>
#include <uct/cuda/run/background.h>
#include <uct/cuda/run/completion.h>
#include <uct/cuda/run/executor.h>
#include <uct/cuda/run/resources.h>

#include <pthread.h>
#include <sys/queue.h>

BEGIN_C_DECLS


/** Transfers between GPUs, and those with host memory: an index. */
enum {
    UCT_CUDA_MP_KIND_GPU,
    UCT_CUDA_MP_KIND_HOST,
    UCT_CUDA_MP_NUM_KINDS
};


/** Constraints since a relay could not map a remote end, which is no fault of
 *  the relay's if the memory has been freed: they end with another allocation,
 *  until so many in a row have been refused. */
typedef struct {
    uct_cuda_mp_constraints_t last;       /**< That end so */
    bool                      is_pending; /**< There are such */
    uint64_t                  allocation; /**< They are for */
    uint8_t                   count[UCT_CUDA_MAX_GPUS]; /**< In a row */
} uct_cuda_mp_refused_t;


/** What an engine knows for transfers of one kind. */
typedef struct {
    uct_cuda_mp_constraints_t constraints;
    uct_cuda_mp_refused_t     refused;
    size_t                    alone_min_size; /**< With nothing ahead of it; 0:
                                                   unknown */
    size_t                    relays_min_size; /**< Without the host path */
} uct_cuda_mp_kind_t;


typedef struct {
    uct_cuda_mp_engine_t   super;
    pthread_mutex_t        lock; /**< For all below; order: base/thread.h */
    uct_cuda_mp_config_t   config;
    uct_cuda_mp_rsc_t      *rsc;
    /** NULL: whoever needs something waits */
    uct_cuda_mp_background_t *background;
    uct_cuda_mp_executors_t executors;
    uct_cuda_mp_used_t     used; /**< By the transfer being started */
    uct_cuda_mp_traffic_t  *traffic;
    LIST_HEAD(, uct_cuda_mp_transfer) free;
    LIST_HEAD(, uct_cuda_mp_transfer) active; /**< Started, not yet released */
    const uct_cuda_topo_t  *topo;   /**< NULL: unknown */
    bool                   is_learned;
    bool                   is_hidden_told;
    bool                   is_shrink_told;
    uct_cuda_mp_kind_t     kinds[UCT_CUDA_MP_NUM_KINDS];
    bool                   was_alone; /**< The transfer before this one */
    uct_cuda_mp_tuning_t   *tuning; /**< Or NULL */
    uct_cuda_mp_load_t     load; /**< That the transfer being started meets */
    uct_cuda_mp_plan_t     plan; /**< Of that transfer, or of its piece */
    uct_cuda_mp_summary_t  summary;
} uct_cuda_mp_core_t;


struct uct_cuda_mp_transfer {
    uct_cuda_mp_core_t     *core;
    LIST_ENTRY(uct_cuda_mp_transfer) list; /**< Either one */
    uct_cuda_end_t         src;
    uct_cuda_end_t         dst;
    size_t                 size;  /**< Bytes */
    uint64_t               begin; /**< For log and timeline; 0: nobody asks */
    double                 seconds; /**< What the model expects */
    unsigned               num_ahead; /**< Others of its pair, at its start */
    int                    local; /**< As in its plans */
    uct_cuda_mp_completion_t completion;
    uct_cuda_mp_graph_t    *held; /**< Until it has ended */
    ucs_status_t           status;
    unsigned               num_steps;
    bool                   is_alone; /**< As the last one was */
    uct_cuda_mp_flow_t     flow;
};


static inline uct_cuda_mp_core_t *
uct_cuda_mp_core(uct_cuda_mp_engine_t *engine)
{
    return (uct_cuda_mp_core_t*)engine;
}

static inline int uct_cuda_mp_kind(uct_cuda_end_t src, uct_cuda_end_t dst)
{
    return uct_cuda_mp_plan_ends_host(src, dst) ? UCT_CUDA_MP_KIND_HOST :
                                                  UCT_CUDA_MP_KIND_GPU;
}


/** Look at the node if that has not been done. False: not yet, in
 *  MULTIPATH_START=background. */
bool uct_cuda_mp_core_learn(uct_cuda_mp_core_t *core);

/** What the planner gets. */
void uct_cuda_mp_core_know(const uct_cuda_mp_core_t *core, int kind,
                           const uct_cuda_mp_load_t *load,
                           uct_cuda_mp_knowledge_t *know_p);

/** From what size on transfers of a kind are worth a plan, bytes; SIZE_MAX:
 *  from none on. */
void uct_cuda_mp_core_set_min_size(uct_cuda_mp_core_t *core, int kind,
                                   size_t size);

/** There are other constraints for transfers of a kind. */
void uct_cuda_mp_core_update_min_size(uct_cuda_mp_core_t *core, int kind);

/** Forget what was of devices that the program has reset. */
void uct_cuda_mp_core_renew(uct_cuda_mp_core_t *core);


typedef enum {
    UCT_CUDA_MP_ACQUIRED,
    UCT_CUDA_MP_ASK_AGAIN, /**< There are constraints that the plan did not
                                reckon with */
    UCT_CUDA_MP_GIVE_UP    /**< This transfer takes one path */
} uct_cuda_mp_acquired_t;

/**
 * Create and map what the engine's plan needs and is not there yet: the only
 * place that does. What is not to be had becomes a constraint of the kind.
 *
 * @param absent  Relays that are not there yet, as the planner takes it: some
 *                may be added.
 */
uct_cuda_mp_acquired_t
uct_cuda_mp_acquire(uct_cuda_mp_core_t *core, uct_cuda_mp_memory_t *memory,
                    uint32_t *absent);

/** Before a transfer of a kind is planned: constraints that another
 *  allocation's memory has led to, which may have been freed, end. */
void uct_cuda_mp_acquire_forgive(uct_cuda_mp_core_t *core, int kind,
                                 uint64_t allocation);


END_C_DECLS

#endif
