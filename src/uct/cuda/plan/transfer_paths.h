/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths of a transfer: which ones there are (candidates), and the bytes that
 * the best of them take.
 */
#ifndef UCT_CUDA_PLAN_TRANSFER_PATHS_H
#define UCT_CUDA_PLAN_TRANSFER_PATHS_H

#include <uct/cuda/plan/knowledge.h>
#include <uct/cuda/plan/model.h>

BEGIN_C_DECLS


/** With automatic settings the host path between GPUs is used once the bytes
 *  of this many transfers have gone in one direction without crossing
 *  traffic. The first messages of an exchange may miss each other while both
 *  sides map memory. At 16 a program sending in one direction loses the gain
 *  of 16 messages, about a tenth of each. */
#define UCT_CUDA_PLAN_HOST_PROOF 16


/** A transfer, and the paths it may take. */
typedef struct {
    uct_cuda_plan_query_t query;
    double                single_seconds; /**< Modelled time of a plain copy */
    bool                  is_unlinked;    /**< GPUs without peer access */
    bool                  has_host; /**< The last candidate is the host path */
    uint32_t              absent;   /**< As in uct_cuda_plan_knowledge_t */
    const uct_cuda_plan_constraints_t *constraints; /**< NULL: none */
    unsigned                          num_candidates;
    /** The direct path, if there is one; relays, the best first; the host */
    uct_cuda_plan_model_path_t        candidates[UCT_CUDA_MAX_GPUS + 1];
} uct_cuda_plan_problem_t;


/** Return whether data can be copied between two different ends, if only by the
 *  driver through host memory. */
bool uct_cuda_plan_are_joined(const uct_cuda_plan_knowledge_t *know,
                              uct_cuda_end_t src, uct_cuda_end_t dst);


/** Fill in everything but single_seconds; without candidates. The ends are
 *  joined. */
void uct_cuda_plan_problem_init(uct_cuda_plan_problem_t *problem,
                                const uct_cuda_plan_knowledge_t *know,
                                uct_cuda_end_t src, uct_cuda_end_t dst,
                                size_t size);


/**
 * Add the path staged at an end, or with none the direct path, as a candidate.
 *
 * @return false: the hardware has no such path, or its relay or a link of it is
 *         absent or doubtful.
 */
bool uct_cuda_plan_problem_add(uct_cuda_plan_problem_t *problem,
                               uct_cuda_end_t via);


/** Add all GPUs that can be relays, the best first. */
void uct_cuda_plan_problem_add_relays(uct_cuda_plan_problem_t *problem);


/** Replace the candidates by the configured paths with their shares and chunks.
 *  @return false: the hardware has none of them. */
bool uct_cuda_plan_problem_set_paths(uct_cuda_plan_problem_t *problem);


/** Divide the transfer among all candidates. */
void uct_cuda_plan_problem_split_all(const uct_cuda_plan_problem_t *problem,
                                     uct_cuda_plan_split_t *split);


/**
 * Choose paths, behind the direct path if that is a candidate, and divide the
 * transfer among them. The split has count 0 if no paths are worthwhile.
 *
 * @return true: it has one path of a round robin.
 */
bool uct_cuda_plan_problem_choose(uct_cuda_plan_problem_t *problem,
                                  uct_cuda_plan_split_t *split);


/** Return whether a split beats a plain copy by the smallest gain of the model
 *  and by more than the uncertainty of its paths. */
bool uct_cuda_plan_problem_is_worthwhile(const uct_cuda_plan_problem_t *problem,
                                         const uct_cuda_plan_split_t *split);


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


END_C_DECLS

#endif
