/* SPDX-License-Identifier: BSD-3-Clause */
/* Which executor carries a plan out. */
#include <uct/cuda/run/executor.h>

#include <string.h>


#define EXECUTOR(_name) &uct_cuda_mp_executor_##_name,

static const uct_cuda_mp_executor_ops_t *const
        all_executors[UCT_CUDA_MP_NUM_EXECUTORS] = {
    UCT_CUDA_MP_EXECUTORS(EXECUTOR)
};


ucs_status_t uct_cuda_mp_executors_create(uct_cuda_mp_rsc_t *rsc,
                                          const uct_cuda_mp_config_t *config,
                                          uct_cuda_mp_executors_t *executors)
{
    ucs_status_t status;
    unsigned i;

    memset(executors, 0, sizeof(*executors));
    for (i = 0; i < UCT_CUDA_MP_NUM_EXECUTORS; ++i) {
        status = all_executors[i]->create(config, &executors->list[i]);
        if (status != UCS_OK) {
            executors->list[i] = NULL;
            uct_cuda_mp_executors_destroy(executors);
            return status;
        }

        executors->list[i]->ops = all_executors[i];
        executors->list[i]->rsc = rsc;
    }

    return UCS_OK;
}

void uct_cuda_mp_executors_destroy(uct_cuda_mp_executors_t *executors)
{
    unsigned i;

    for (i = 0; i < UCT_CUDA_MP_NUM_EXECUTORS; ++i) {
        if (executors->list[i] != NULL) {
            executors->list[i]->ops->destroy(executors->list[i]);
        }
    }
}

ucs_status_t uct_cuda_mp_executors_submit(uct_cuda_mp_executors_t *executors,
                                          const uct_cuda_mp_work_t *work,
                                          const uct_cuda_mp_memory_t *memory)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    uct_cuda_mp_executor_t *executor;
    unsigned i, taken;

    for (taken = 0; taken < UCT_CUDA_MP_NUM_EXECUTORS; ++taken) {
        executor = executors->list[taken];
        status   = executor->ops->submit(executor, work, memory);
        if (status != UCS_ERR_NO_RESOURCE) {
            break;
        }
    }

    for (i = 0; (status == UCS_OK) && (i < taken); ++i) {
        executor = executors->list[i];
        if (executor->ops->passed != NULL) {
            executor->ops->passed(executor, work);
        }
    }

    return status;
}

void uct_cuda_mp_executors_release(uct_cuda_mp_held_t *held)
{
    uct_cuda_mp_held_t *next;

    for (; held != NULL; held = next) {
        next = held->next;
        held->executor->ops->release(held->executor, held);
    }
}

void uct_cuda_mp_executors_lose(uct_cuda_mp_executors_t *executors,
                                uint32_t devices)
{
    uct_cuda_mp_executor_t *executor;
    unsigned i;

    for (i = 0; i < UCT_CUDA_MP_NUM_EXECUTORS; ++i) {
        executor = executors->list[i];
        if (executor->ops->lose != NULL) {
            executor->ops->lose(executor, devices);
        }
    }
}
