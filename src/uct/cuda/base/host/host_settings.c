/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/host/host_settings.h>

#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/host/host_registry.h>
#include <uct/cuda/base/log.h>

#include <pthread.h>


static struct {
    pthread_mutex_t          lock; /* order: base/thread.h */
    unsigned                 users;
    uct_cuda_host_settings_t in_force;
} host = {.lock = PTHREAD_MUTEX_INITIALIZER};


void uct_cuda_host_settings_open(const uct_cuda_host_settings_t *settings)
{
    pthread_mutex_lock(&host.lock);
    if (host.users++ == 0) {
        host.in_force = *settings;
        uct_cuda_host_registry_limit(settings->max_locked);
        uct_cuda_host_pipeline_enable(settings->num_threads);
        __atomic_store_n(&host.in_force.is_direct, settings->is_direct,
                         __ATOMIC_RELAXED);
    } else if ((settings->is_direct != host.in_force.is_direct) ||
               (settings->max_locked != host.in_force.max_locked) ||
               (settings->num_threads != host.in_force.num_threads)) {
        uct_cuda_info("UCX_CUDA_IPC_HOST_ZCOPY, _HOST_REGISTER_MAX_SIZE and "
                      "_HOST_COPY_THREADS stay as they were when the first "
                      "memory domain was opened: %c, %zu bytes, %d",
                      host.in_force.is_direct ? 'y' : 'n',
                      host.in_force.max_locked,
                      (int)host.in_force.num_threads);
    }
    pthread_mutex_unlock(&host.lock);
}

void uct_cuda_host_settings_close(void)
{
    pthread_mutex_lock(&host.lock);
    --host.users;
    pthread_mutex_unlock(&host.lock);
}

bool uct_cuda_host_is_direct(void)
{
    return __atomic_load_n(&host.in_force.is_direct, __ATOMIC_RELAXED);
}
