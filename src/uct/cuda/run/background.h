/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Background jobs of an engine, in threads of their own, for slow set-up while
 * transfers use what is ready: contexts of relay GPUs with their staging
 * memory, one thread for each GPU; staging memory in the host; and first of all
 * the probe of the node.
 */
#ifndef UCT_CUDA_RUN_BACKGROUND_H
#define UCT_CUDA_RUN_BACKGROUND_H

#include <uct/cuda/run/resources.h>

BEGIN_C_DECLS


typedef struct uct_cuda_run_background uct_cuda_run_background_t;


/** Not even the direct path is ready. */
#define UCT_CUDA_RUN_ABSENT_ALL UINT32_MAX


/**
 * Create the jobs without starting any.
 *
 * @param rsc  Resources for the results. They change only within a check: a
 *             caller of check must be allowed to use them.
 * @return UCS_OK or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_run_background_create(uct_cuda_run_rsc_t *rsc,
                                            uct_cuda_run_background_t **init_p);


/** Destroy the jobs, before the resources. Waits for running jobs, for at
 *  most the creation of a context. */
void uct_cuda_run_background_destroy(uct_cuda_run_background_t *init);


/**
 * Return whether a caller may use the node's topology now: it is probed, or
 * no thread can probe it and the caller does. False: the probe runs; this call
 * starts it if needed.
 *
 * @param probe, arg  What the thread calls. The caller uses its results only
 *                    after this function has returned true.
 */
bool uct_cuda_run_background_knows_node(uct_cuda_run_background_t *init,
                                        void (*probe)(void *arg), void *arg);


/**
 * Check the slow resources of a plan, and start the missing ones unless started
 * already.
 *
 * @param is_all    False: check the host path only. It adds least, and a
 *                  program never waits for it.
 * @param absent_p  With UCS_INPROGRESS: relays not to be used by the next plan
 *                  are added (uct_cuda_plan_knowledge_t). With is_all these
 *                  include relays that it would have to start. It may be
 *                  UCT_CUDA_RUN_ABSENT_ALL.
 * @param path_p    On failure: index of the plan's failed path.
 * @return UCS_OK; UCS_INPROGRESS; or the error (logged) of a failed context,
 *         once: the next user tries again.
 */
ucs_status_t uct_cuda_run_background_check(uct_cuda_run_background_t *init,
                                           const uct_cuda_plan_t *plan,
                                           bool is_all, uint32_t *absent_p,
                                           unsigned *path_p);


END_C_DECLS

#endif
