/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/process_settings.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/node/mappings.h>

#include <pthread.h>
#include <string.h>


static struct {
    pthread_mutex_t     lock; /* order: base/thread.h */
    unsigned            users;
    uct_cuda_settings_t in_force;
    bool                has_collectives; /* set once for good */
    bool                host_zcopy; /* of in_force; read without the lock */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};


static void put_in_force(const uct_cuda_settings_t *settings)
{
    const uct_cuda_coll_config_t first = process.in_force.collectives;

    process.in_force = *settings;
    __atomic_store_n(&process.host_zcopy, settings->host_zcopy,
                     __ATOMIC_RELAXED);
    uct_cuda_host_pipeline_enable(settings->host_copy_threads);
    uct_cuda_node_cache_limit(settings->cache_max_regions,
                              settings->cache_max_size);
    if (!process.has_collectives) {
        process.has_collectives = true;
        uct_cuda_coll_configure(&settings->collectives);
    } else {
        process.in_force.collectives = first;
    }
}

static bool is_equal(const uct_cuda_settings_t *a, const uct_cuda_settings_t *b)
{
    return (a->host_zcopy == b->host_zcopy) &&
           (a->host_copy_threads == b->host_copy_threads) &&
           (a->cache_max_regions == b->cache_max_regions) &&
           (a->cache_max_size == b->cache_max_size) &&
           (a->collectives.is_on == b->collectives.is_on) &&
           (a->collectives.algorithm == b->collectives.algorithm) &&
           (a->collectives.multipath == b->collectives.multipath) &&
           (a->collectives.logs_waits == b->collectives.logs_waits);
}

void uct_cuda_settings_open(const uct_cuda_settings_t *settings)
{
    pthread_mutex_lock(&process.lock);
    if (process.users++ == 0) {
        put_in_force(settings);
    }
    if (!is_equal(settings, &process.in_force)) {
        uct_cuda_info("UCX_CUDA_IPC_HOST_ZCOPY, _HOST_COPY_THREADS, "
                      "_CACHE_MAX_* and _COLLECTIVES* keep the values of the "
                      "first memory domain");
    }
    pthread_mutex_unlock(&process.lock);
}

void uct_cuda_settings_close(void)
{
    pthread_mutex_lock(&process.lock);
    --process.users;
    pthread_mutex_unlock(&process.lock);
}

bool uct_cuda_settings_host_zcopy(void)
{
    return __atomic_load_n(&process.host_zcopy, __ATOMIC_RELAXED);
}

/*
 * For an MPI, or a UCP with protocols v1, the features do harm: it would use
 * the lane to its own process for host memory, too, which fails, and keys for
 * host memory change the lanes and lengthen the keys of messages between hosts.
 * A program that moves registered memory by put and get only, with protocols
 * v2, gains without harm. But a memory domain must report its devices when it
 * is opened, before features or protocols are known, and such a UCX has the
 * usual release, symbols and modules.
 *
 * The presence of NIXL's plugin would identify the program but not the UCX: an
 * MPI may use the same one. The UCX inside a NIXL wheel is used by NIXL only,
 * and the wheel's folder identifies it:
 * .../site-packages/nixl_cu12.libs/libucs-14c218c5.so.0.0.0. With NIXL on
 * another UCX the user sets UCX_CUDA_IPC_ENABLE_SAME_PROCESS and
 * UCX_CUDA_CMA_ENABLE.
 */
bool uct_cuda_settings_is_one_sided(void)
{
    return strstr(uct_abi_host_name(), "/nixl_cu") != NULL;
}
