/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/collective/options.h>

#include <uct/cuda/base/gpu.h>
#include <uct/cuda/plan/collective_planner.h>
#include <uct/cuda/plan/tuning.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


static struct {
    pthread_mutex_t        lock; /* order: base/thread.h */
    uct_cuda_coll_config_t options;
    int                    is_on; /* of options; read without the lock */
    bool                   is_node_set;
    uct_cuda_plan_config_t node;
    bool                   is_known;
    uct_cuda_plan_model_t  constants;
} config = {.lock = PTHREAD_MUTEX_INITIALIZER};


ucs_status_t uct_cuda_coll_algorithm_parse(const char *name, int *algorithm_p)
{
    static const char *names[] = {
        [UCT_CUDA_PLAN_COLL_ONE_KERNEL]   = "kernel",
        [UCT_CUDA_PLAN_COLL_FLAT]         = "flat",
        [UCT_CUDA_PLAN_COLL_HIERARCHICAL] = "hierarchical"
    };
    int i;

    *algorithm_p = UCT_CUDA_PLAN_COLL_AUTO;
    if (strcmp(name, "auto") == 0) {
        return UCS_OK;
    }

    for (i = 0; i < UCT_CUDA_PLAN_COLL_ALGORITHM_LAST; ++i) {
        if (strcmp(name, names[i]) == 0) {
            *algorithm_p = i;
            return UCS_OK;
        }
    }
    return UCS_ERR_INVALID_PARAM;
}

void uct_cuda_coll_configure(const uct_cuda_coll_config_t *user)
{
    config.options = *user;
    __atomic_store_n(&config.is_on, user->is_on, __ATOMIC_RELEASE);
}

int uct_cuda_coll_is_on(void)
{
    const int is_on = __atomic_load_n(&config.is_on, __ATOMIC_ACQUIRE);

    return ((is_on != 0) && (uct_cuda_gpu_count() > 0)) ? is_on : 0;
}

const uct_cuda_coll_config_t *uct_cuda_coll_config(void)
{
    return &config.options;
}

uct_cuda_log_level_t uct_cuda_coll_wait_level(void)
{
    return config.options.logs_waits ? UCT_CUDA_LOG_WARN : UCT_CUDA_LOG_DEBUG;
}

void uct_cuda_coll_configure_node(const uct_cuda_plan_config_t *user)
{
    pthread_mutex_lock(&config.lock);
    if (!config.is_node_set) {
        config.is_node_set  = true;
        config.node         = *user;
    }
    pthread_mutex_unlock(&config.lock);
}

/* Return the configuration of the first interface. If none was opened yet, set
 * the defaults; interfaces opened later do not change them. */
static const uct_cuda_plan_config_t *node_config(void)
{
    uct_cuda_plan_config_t unsaid;

    uct_cuda_plan_config_init(&unsaid);
    uct_cuda_coll_configure_node(&unsaid);
    return &config.node;
}

const char *uct_cuda_coll_ledger(void)
{
    return node_config()->ledger;
}

const uct_cuda_plan_model_t *
uct_cuda_coll_constants(const uct_cuda_topo_t *topo)
{
    const char *file               = node_config()->tuning_file;
    uct_cuda_plan_tuning_t *tuning = NULL;
    char error[512];

    pthread_mutex_lock(&config.lock);
    if (!config.is_known) {
        if (uct_cuda_plan_tuning_get(file, topo, error, sizeof(error),
                                     &tuning) != UCS_OK) {
            uct_cuda_debug("cannot use the tuning table for collectives: %s",
                           error);
        }
        config.constants = *uct_cuda_plan_tuning_model(tuning);
        config.is_known  = true;
        free(tuning);
    }
    pthread_mutex_unlock(&config.lock);
    return &config.constants;
}
