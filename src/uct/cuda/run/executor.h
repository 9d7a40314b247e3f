/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Executors: ways to carry plans out. An engine has one of each, and a plan
 * goes to the first in UCT_CUDA_MP_EXECUTORS that takes it. Not thread-safe.
 *
 * A new one is a file executor_NAME.c, which defines uct_cuda_mp_executor_NAME,
 * with its line in Makefile.inc and its name in the list below: three files.
 */
#ifndef UCT_CUDA_MP_EXECUTOR_H
#define UCT_CUDA_MP_EXECUTOR_H

#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/model.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/run/completion.h>
#include <uct/cuda/run/resources.h>

BEGIN_C_DECLS


/** In the order in which they are asked. The last one takes every plan. */
#define UCT_CUDA_MP_EXECUTORS(_) \
    _(graph) \
    _(streams)


typedef struct uct_cuda_mp_executor_ops uct_cuda_mp_executor_ops_t;


/** Each executor's state begins with this. */
typedef struct {
    const uct_cuda_mp_executor_ops_t *ops;
    uct_cuda_mp_rsc_t                *rsc;
} uct_cuda_mp_executor_t;


/** What an executor keeps for a transfer until that has ended, graphs say: its
 *  first member is this. */
typedef struct uct_cuda_mp_held {
    struct uct_cuda_mp_held *next;
    uct_cuda_mp_executor_t  *executor;
} uct_cuda_mp_held_t;


/** A plan to carry out. What it needs is there: uct_cuda_mp_rsc_prepare(). */
typedef struct {
    const uct_cuda_mp_plan_t   *plan;
    const uct_cuda_mp_config_t *config;
    const uct_cuda_mp_model_t  *model;
    bool                       is_alone; /**< No other transfer is likely to
                                              begin before this one ends */
    uct_cuda_mp_used_t         *used; /**< Streams of the transfer's copies:
                                           executors add theirs */
    uct_cuda_mp_held_t         **held; /**< What is kept for the transfer:
                                            executors add to the list */
} uct_cuda_mp_work_t;


struct uct_cuda_mp_executor_ops {
    /** UCS_OK or UCS_ERR_NO_MEMORY. The common part is filled afterwards. */
    ucs_status_t (*create)(const uct_cuda_mp_config_t *config,
                           uct_cuda_mp_executor_t **executor_p);

    /** Nothing is in flight; the resources are there, and outlive it. */
    void (*destroy)(uct_cuda_mp_executor_t *executor);

    /**
     * Submit a plan's copies of this memory, without waiting for any of them.
     *
     * @return UCS_OK; UCS_ERR_NO_RESOURCE: not this plan, not now, nothing is
     *         submitted; another error (logged): what has been submitted is
     *         waited for, and the transfer fails.
     */
    ucs_status_t (*submit)(uct_cuda_mp_executor_t *executor,
                           const uct_cuda_mp_work_t *work,
                           const uct_cuda_mp_memory_t *memory);

    /** May be NULL. Another one has submitted what submit did not take: its
     *  copies are under way, and the thread has time. */
    void (*passed)(uct_cuda_mp_executor_t *executor,
                   const uct_cuda_mp_work_t *work);

    /** NULL if nothing is held. The transfer has ended. */
    void (*release)(uct_cuda_mp_executor_t *executor, uct_cuda_mp_held_t *held);

    /** May be NULL. Contexts of these devices, a bit each, are gone: forget
     *  what was of them, without a word to the driver, and wait for what is in
     *  flight on the others. The resources do so next. */
    void (*lose)(uct_cuda_mp_executor_t *executor, uint32_t devices);
};


#define UCT_CUDA_MP_EXECUTOR_DECLARE(_name) \
    extern const uct_cuda_mp_executor_ops_t uct_cuda_mp_executor_##_name;
UCT_CUDA_MP_EXECUTORS(UCT_CUDA_MP_EXECUTOR_DECLARE)


#define UCT_CUDA_MP_EXECUTOR_COUNT(_name) +1
#define UCT_CUDA_MP_NUM_EXECUTORS \
    (0 UCT_CUDA_MP_EXECUTORS(UCT_CUDA_MP_EXECUTOR_COUNT))

/** An engine's executors. */
typedef struct {
    uct_cuda_mp_executor_t *list[UCT_CUDA_MP_NUM_EXECUTORS];
} uct_cuda_mp_executors_t;


/** UCS_OK or UCS_ERR_NO_MEMORY. */
ucs_status_t uct_cuda_mp_executors_create(uct_cuda_mp_rsc_t *rsc,
                                          const uct_cuda_mp_config_t *config,
                                          uct_cuda_mp_executors_t *executors);

void uct_cuda_mp_executors_destroy(uct_cuda_mp_executors_t *executors);


/** Have a plan carried out. UCS_OK or an error, as of an executor's submit. */
ucs_status_t uct_cuda_mp_executors_submit(uct_cuda_mp_executors_t *executors,
                                          const uct_cuda_mp_work_t *work,
                                          const uct_cuda_mp_memory_t *memory);


/** What was held for a transfer that has ended is not needed any more. */
void uct_cuda_mp_executors_release(uct_cuda_mp_held_t *held);


/** Contexts of these devices, a bit each, are gone. */
void uct_cuda_mp_executors_lose(uct_cuda_mp_executors_t *executors,
                                uint32_t devices);


END_C_DECLS

#endif
