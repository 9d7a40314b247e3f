/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes what takes long, in threads of its own, while transfers go by what is
 * there: contexts of relay GPUs with their staging memory, one thread a GPU;
 * staging memory in the host; and before all of them, the look at the node.
 */
#ifndef UCT_CUDA_MP_BACKGROUND_H
#define UCT_CUDA_MP_BACKGROUND_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/run/resources.h>

BEGIN_C_DECLS


typedef struct uct_cuda_mp_background uct_cuda_mp_background_t;


/** Not even the direct path is there. */
#define UCT_CUDA_MP_ABSENT_ALL UINT32_MAX


/**
 * Starts nothing yet.
 *
 * @param rsc  What is made goes there, and only within a check: whoever may use
 *             the resources may check.
 * @return UCS_OK or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_mp_background_create(uct_cuda_mp_rsc_t *rsc,
                                           uct_cuda_mp_background_t **init_p);


/** Before the resources. Waits for what is being made, a context at most. */
void uct_cuda_mp_background_destroy(uct_cuda_mp_background_t *init);


/** Has the node been looked at? Has it looked at if not; false until then. */
bool uct_cuda_mp_background_knows_node(uct_cuda_mp_background_t *init);


/**
 * Is what takes long there of all that a plan needs? What is not is begun,
 * unless it has been.
 *
 * @param is_all    False: of the path through the host alone. It adds least,
 *                  and a program that gains so little does not wait for it.
 * @param absent_p  With UCS_INPROGRESS, relays are added that the next plan has
 *                  to do without (uct_cuda_mp_knowledge_t); with is_all those
 *                  without which it would begin yet others are among them. Or
 *                  it is UCT_CUDA_MP_ABSENT_ALL.
 * @param path_p    On failure, index of the plan's path that cannot be had.
 * @return UCS_OK; UCS_INPROGRESS; or the error (logged) that a context was not
 *         to be had with, once: the next time whoever wants it has to try.
 */
ucs_status_t uct_cuda_mp_background_check(uct_cuda_mp_background_t *init,
                                          const uct_cuda_mp_plan_t *plan,
                                          bool is_all, uint32_t *absent_p,
                                          unsigned *path_p);


END_C_DECLS

#endif
