/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planner: from the node, the configuration, what else is going on, and a
 * transfer, to a plan. A pure function; it knows nothing of CUDA.
 */
#ifndef UCT_CUDA_MP_PLANNER_H
#define UCT_CUDA_MP_PLANNER_H

#include <uct/cuda/plan/model.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/plan/tuning.h>

BEGIN_C_DECLS


/** Transfers below this, bytes, never look at the node, which costs NVML's
 *  start: until a larger one has, they take one path. */
#define UCT_CUDA_MP_LEARN_MIN_SIZE (256ul << 10)


/** No plan is larger than this, bytes. */
#define UCT_CUDA_MP_PLAN_MAX_SIZE (1ul << 30)


/** With everything set to auto, the host path between GPUs is used once so many
 *  transfers' bytes have gone one way with nothing crossing them. The first few
 *  of an exchange may miss each other while both sides map memory. At 16, a
 *  program that only sends one way goes without 1.6 messages' worth of gain,
 *  which is a tenth of a message. */
#define UCT_CUDA_MP_HOST_PROOF 16


/** What could not be had, and plans do without. Zeroed: nothing is missing. */
typedef struct {
    /** By where a lane begins: uct_cuda_end_bit() of where it ends */
    uint32_t absent_lanes[UCT_CUDA_NUM_ENDS];
    size_t   staging_size; /**< Bytes a device at most; 0: as configured */
} uct_cuda_mp_constraints_t;


/** All that a plan is made from. Whoever adds to it leaves callers as they are:
 *  what is not named is NULL and means "nothing known". */
typedef struct {
    const uct_cuda_topo_t      *topo;
    const uct_cuda_mp_config_t *config;
    const uct_cuda_mp_load_t   *load;   /**< NULL: nothing else is going on, as
                                             far as known */
    const uct_cuda_mp_tuning_t *tuning; /**< NULL: no table */
    const uct_cuda_mp_model_t  *model;  /**< NULL: the table's constants, or
                                             without one the built-in ones */
    const int                  *numa;   /**< Node of the end that is host
                                             memory; NULL: the GPU's own */
    const uct_cuda_mp_constraints_t *constraints; /**< NULL: none */
    uint32_t                   absent;  /**< Relays that cannot be used for the
                                             time being: uct_cuda_end_bit() */
    uct_cuda_end_t             remote;  /**< The end that is another process's,
                                             or none */
} uct_cuda_mp_knowledge_t;


/**
 * Largest transfer, bytes, that any one path could carry alone, and so that
 * every choice of paths has a plan for. Larger ones go piece by piece.
 */
size_t uct_cuda_mp_plan_max_size(const uct_cuda_mp_config_t *config);

/** The same with constraints. */
size_t uct_cuda_mp_plan_max_size_of(const uct_cuda_mp_knowledge_t *know);


/**
 * Plan a transfer between two GPUs, or between page-locked host memory and a
 * GPU, whose relays bring in their PCIe links: by the user's variables, then
 * the model.
 *
 * Allocates nothing, asks nobody, and gives the same plan for the same
 * arguments. Takes about 2 us for 4 paths of 16 chunks.
 *
 * @param src   A GPU of the topology, or host memory. Anything else, or what
 *              equals @a dst, gives "one path is best".
 * @param size  Bytes, at most uct_cuda_mp_plan_max_size().
 * @param plan  Filled; num_paths is 0 when one plain copy is best, and reason
 *              says why. One path: by turns in a window, or as the user has it.
 */
void uct_cuda_mp_plan_make(const uct_cuda_mp_knowledge_t *know,
                           uct_cuda_end_t src, uct_cuda_end_t dst, size_t size,
                           uct_cuda_mp_plan_t *plan);


/** The plan that is one plain copy: a single step. @a remote as in
 *  uct_cuda_mp_knowledge_t. */
void uct_cuda_mp_plan_single(uct_cuda_end_t src, uct_cuda_end_t dst,
                             uct_cuda_end_t remote, size_t size,
                             uct_cuda_mp_plan_t *plan);


/** Bytes of the equal pieces, but the last, that a transfer goes in if it is
 *  larger than a plan's largest; a smaller one is one piece. */
size_t uct_cuda_mp_plan_piece_size(size_t size, size_t largest);


/** Return whether a transfer between two GPUs may use the host path: the user
 *  says so, or nothing crosses it, nor has crossed those before it.
 *  @a size in bytes. */
bool uct_cuda_mp_plan_may_use_host(const uct_cuda_mp_config_t *config,
                                   const uct_cuda_mp_load_t *load,
                                   uct_cuda_end_t src, uct_cuda_end_t dst,
                                   double size);


/** From what size on, bytes (within 7 %), some pair of GPUs, or host memory and
 *  some GPU, gets a plan. SIZE_MAX: none ever does. Behind others, smaller
 *  transfers gain: paths that take long to begin do so before they are
 *  needed. */
typedef struct {
    size_t alone;     /**< With nothing ahead */
    size_t behind;    /**< Behind others; never more */
    size_t by_relays; /**< Behind others or not, when host=auto leaves the host
                           path out */
} uct_cuda_mp_min_sizes_t;


/**
 * Find the smallest sizes that get a plan. Not fast.
 *
 * @param know   Its load is passed over, but for whether it is known.
 * @param sizes  Filled.
 */
void uct_cuda_mp_plan_min_sizes(const uct_cuda_mp_knowledge_t *know,
                                bool is_host, uct_cuda_mp_plan_t *scratch,
                                uct_cuda_mp_min_sizes_t *sizes);


END_C_DECLS

#endif
