/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One engine for each process and configuration, shared by all interfaces:
 * staging memory, streams and contexts do not multiply with workers.
 */
#include <uct/cuda/multipath/multipath.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


typedef struct shared {
    struct shared          *next;
    unsigned               num_users;
    uct_cuda_plan_config_t config;
    uct_cuda_mp_engine_t   *engine;
} shared_engine_t;


static struct {
    pthread_mutex_t lock; /* the outermost lock: see base/thread.h */
    shared_engine_t *first;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};


static ucs_status_t registry_add(const uct_cuda_plan_config_t *config)
{
    shared_engine_t *shared = calloc(1, sizeof(*shared));
    ucs_status_t status;

    if (shared == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = uct_cuda_mp_engine_create(config, &shared->engine);
    if (status != UCS_OK) {
        free(shared);
        return status;
    }

    shared->config = *config;
    shared->next   = registry.first;
    registry.first = shared;
    return UCS_OK;
}

ucs_status_t uct_cuda_mp_engine_get(const uct_cuda_plan_config_t *config,
                                    uct_cuda_mp_engine_t **engine_p)
{
    ucs_status_t status = UCS_OK;
    shared_engine_t *shared;

    pthread_mutex_lock(&registry.lock);
    /* Configurations start zeroed and are copied completely, so bytes can be
     * compared */
    for (shared = registry.first; shared != NULL; shared = shared->next) {
        if (memcmp(&shared->config, config, sizeof(*config)) == 0) {
            break;
        }
    }

    if (shared == NULL) {
        status = registry_add(config);
        shared = registry.first;
    }

    if (status == UCS_OK) {
        ++shared->num_users;
        *engine_p = shared->engine;
    }

    pthread_mutex_unlock(&registry.lock);
    return status;
}

ucs_status_t uct_cuda_mp_engine_get_any(uct_cuda_mp_engine_t **engine_p)
{
    ucs_status_t status = UCS_ERR_NO_ELEM;

    pthread_mutex_lock(&registry.lock);
    if (registry.first != NULL) {
        ++registry.first->num_users;
        *engine_p = registry.first->engine;
        status    = UCS_OK;
    }

    pthread_mutex_unlock(&registry.lock);
    return status;
}

void uct_cuda_mp_engine_put(uct_cuda_mp_engine_t *engine)
{
    shared_engine_t **link = &registry.first;
    shared_engine_t *shared;

    pthread_mutex_lock(&registry.lock);
    while ((*link)->engine != engine) {
        link = &(*link)->next;
    }

    shared = *link;
    if (--shared->num_users == 0) {
        *link = shared->next;
        uct_cuda_mp_engine_destroy(engine);
        free(shared);
    }

    pthread_mutex_unlock(&registry.lock);
}
