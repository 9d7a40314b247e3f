/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One engine for each process and configuration, shared by all interfaces:
 * staging memory, streams and contexts do not multiply with workers.
 */
#include <uct/cuda/multipath/multipath.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>


typedef struct shared {
    LIST_ENTRY(shared)     link;
    unsigned               num_users;
    uct_cuda_plan_config_t config;
    uct_cuda_mp_engine_t   *engine;
} shared_engine_t;


static struct {
    pthread_mutex_t     lock; /* the outermost lock: see base/thread.h */
    LIST_HEAD(, shared) list;
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
    LIST_INSERT_HEAD(&registry.list, shared, link);
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
    LIST_FOREACH(shared, &registry.list, link)
    {
        if (memcmp(&shared->config, config, sizeof(*config)) == 0) {
            break;
        }
    }

    if (shared == NULL) {
        status = registry_add(config);
        shared = LIST_FIRST(&registry.list);
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
    shared_engine_t *shared;

    pthread_mutex_lock(&registry.lock);
    shared = LIST_FIRST(&registry.list);
    if (shared != NULL) {
        ++shared->num_users;
        *engine_p = shared->engine;
    }
    pthread_mutex_unlock(&registry.lock);
    return (shared != NULL) ? UCS_OK : UCS_ERR_NO_ELEM;
}

void uct_cuda_mp_engine_put(uct_cuda_mp_engine_t *engine)
{
    shared_engine_t *shared;

    pthread_mutex_lock(&registry.lock);
    for (shared = LIST_FIRST(&registry.list); shared->engine != engine;
         shared = LIST_NEXT(shared, link)) {
    }

    if (--shared->num_users == 0) {
        LIST_REMOVE(shared, link);
        uct_cuda_mp_engine_destroy(engine);
        free(shared);
    }

    pthread_mutex_unlock(&registry.lock);
}
