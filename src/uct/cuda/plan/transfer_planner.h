/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Planner of transfers: makes a plan from the node, the configuration, other
 * traffic, and the transfer. A pure function that uses no CUDA.
 */
#ifndef UCT_CUDA_PLAN_TRANSFER_PLANNER_H
#define UCT_CUDA_PLAN_TRANSFER_PLANNER_H

#include <uct/cuda/plan/model.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/plan/tuning.h>

BEGIN_C_DECLS


/** Smaller transfers never probe the node, which would start NVML; they use
 *  one path until a larger one has come. Bytes. */
#define UCT_CUDA_PLAN_LEARN_MIN_SIZE (256ul << 10)


/** Maximum size of a plan, bytes. */
#define UCT_CUDA_PLAN_MAX_SIZE (1ul << 30)


/** With automatic settings the host path between GPUs is used once the bytes
 *  of this many transfers have gone in one direction without crossing
 *  traffic. The first messages of an exchange may miss each other while both
 *  sides map memory. At 16 a program sending in one direction loses the gain
 *  of 16 messages, about a tenth of each. */
#define UCT_CUDA_PLAN_HOST_PROOF 16


/** Resources not available to plans. Zeroed: all are available. */
typedef struct {
    /** Mask of the ends of absent links (uct_cuda_end_bit()), for each start */
    uint32_t absent_links[UCT_CUDA_NUM_ENDS];
} uct_cuda_plan_constraints_t;


/** Input of a plan. Members added later must mean "unknown" when NULL, so
 *  that callers need no change. */
typedef struct {
    const uct_cuda_topo_t        *topo;
    const uct_cuda_plan_config_t *config;
    const uct_cuda_plan_load_t   *load;   /**< NULL: no other traffic known */
    const uct_cuda_plan_tuning_t *tuning; /**< NULL: no table */
    /** NULL: the table's constants, or built-in ones */
    const uct_cuda_plan_model_t  *model;
    /** NUMA node of the host memory end; NULL: the GPU's node */
    const int                    *numa;
    const uct_cuda_plan_constraints_t *constraints; /**< NULL: none */
    /** Mask of temporarily unusable relays: uct_cuda_end_bit() */
    uint32_t                   absent;
    uct_cuda_end_t             remote;  /**< End of another process, or none */
    /** No other GPU has access to the local GPU's memory */
    bool                       is_pulled;
} uct_cuda_plan_knowledge_t;


/** Return the largest transfer with a plan for every choice of paths, bytes:
 *  one that each path could carry alone. Larger transfers go piece by piece. */
size_t uct_cuda_plan_max_size(const uct_cuda_plan_config_t *config);

/**
 * Plan a transfer between two GPUs, or between page-locked host memory and a
 * GPU with relays adding their PCIe links. The user's variables have priority
 * over the model.
 *
 * Allocates nothing, makes no driver call, and gives equal plans for equal
 * arguments. Takes about 2 us for 4 paths of 16 chunks.
 *
 * @param src   GPU of the topology, or host memory. Other ends, or src equal to
 *              @a dst, give no plan.
 * @param size  Bytes, at most uct_cuda_plan_max_size().
 * @param plan  Filled; num_paths is 0 if a plain copy is best, for the given
 *              reason. It is 1 for round robin in a window, or if the user has
 *              set one path.
 */
void uct_cuda_plan_make(const uct_cuda_plan_knowledge_t *know,
                        uct_cuda_end_t src, uct_cuda_end_t dst, size_t size,
                        uct_cuda_plan_t *plan);


/**
 * Make the plan of a plain copy: a single step. @a remote as in
 * uct_cuda_plan_knowledge_t.
 */
void uct_cuda_plan_single(uct_cuda_end_t src, uct_cuda_end_t dst,
                          uct_cuda_end_t remote, size_t size,
                          uct_cuda_plan_t *plan);


/**
 * Return the size of equal pieces, bytes, for a transfer larger than @a
 * largest; a smaller transfer is one piece.
 */
size_t uct_cuda_plan_piece_size(size_t size, size_t largest);


/**
 * Return whether a transfer between two GPUs may use the host path: set by the
 * user, or without crossing traffic now and recently. @a size in bytes.
 */
bool uct_cuda_plan_may_use_host(const uct_cuda_plan_config_t *config,
                                const uct_cuda_plan_load_t *load,
                                uct_cuda_end_t src, uct_cuda_end_t dst,
                                double size);


/**
 * Return whether enough bytes went without crossing traffic for the host path,
 * or the user has set it. Without that uct_cuda_plan_may_use_host() is false,
 * whatever the load.
 *
 * @param uncrossed  Bytes since the last crossing traffic.
 * @param size       Of the transfer, bytes.
 */
bool uct_cuda_plan_is_uncrossed(const uct_cuda_plan_config_t *config,
                                uint64_t uncrossed, double size);


/** Smallest sizes, bytes (within 7 %), with a plan for any pair of GPUs, or
 *  of host memory and a GPU. SIZE_MAX: none. Behind other transfers smaller
 *  ones gain, because slow paths start before they are needed. */
typedef struct {
    size_t alone;     /**< Without transfers ahead */
    /** Behind other transfers; larger than alone where the processor's time
     *  for a message is longer than that of its copies */
    size_t behind;
    size_t by_relays; /**< For both, if host=auto excludes the host path */
} uct_cuda_plan_min_sizes_t;


/**
 * Find the smallest sizes with a plan, by planning one pair of each class of
 * equal pairs. Takes up to 1 ms, more on nodes without symmetry.
 *
 * @param know     Its load is ignored, except for is_known.
 * @param is_host  Of host memory and a GPU; false: of two GPUs.
 * @param scratch  Memory for the plans tried.
 * @param sizes    Filled.
 */
void uct_cuda_plan_min_sizes(const uct_cuda_plan_knowledge_t *know,
                             bool is_host, uct_cuda_plan_t *scratch,
                             uct_cuda_plan_min_sizes_t *sizes);


END_C_DECLS

#endif
