/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/memtype.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/first_use.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/memory_cache.h>
#include <uct/cuda/base/pointer.h>

#include <pthread.h>


static struct {
    pthread_mutex_t lock; /* order: base/thread.h */
    bool            is_tried; /* detection of the first GPU use */
    bool            is_watched;
    bool            is_hooked;
    bool            is_asked;    /* is_observed has been determined */
    bool            is_observed; /* mappings of memory are reported */
} memtype = {.lock = PTHREAD_MUTEX_INITIALIZER};


static void cache_disable(void)
{
    (void)uct_abi_memtype_cache_disable();
    uct_cuda_debug("first use of a GPU: UCX queries every buffer from now on");
}

/* UCX's hooks do not see a peer's memory nor, before 1.20, variables of device
 * code. UCX's cache lacks address ranges that the driver (580) reserves for
 * such memory later. UCX would take it for host memory; if the type of the
 * range is unknown, UCX queries it. */
static void add_found(CUdeviceptr address)
{
    uct_cuda_pointer_t found;

    if ((uct_cuda_pointer_query(uct_cuda_driver_get(), address,
                                UCT_CUDA_POINTER_RANGE,
                                &found) == CUDA_SUCCESS) &&
        (found.length > 0)) {
        uct_abi_memtype_cache_update((void*)found.base, found.length,
                                     UCT_ABI_MEM_TYPE_UNKNOWN,
                                     UCT_ABI_SYS_DEVICE_UNKNOWN);
    }
}

/* Let UCX report mapped and unmapped memory. Without its cache of memory types
 * UCX hooks the driver's functions later, for its cache of registrations. It
 * cannot hook a function that is hooked already, and would then not use that
 * cache. So install UCX's hooks first. */
static bool observe_by_ucx(uct_abi_memtype_cache_state_t state)
{
    return ((state == UCT_ABI_MEMTYPE_CACHE_HOOKED) ||
            (state == UCT_ABI_MEMTYPE_CACHE_OFF)) &&
           (uct_abi_on_gpu_memory(uct_cuda_first_use_note_remap) == UCS_OK) &&
           (uct_abi_memtype_hooks() == UCT_ABI_MEMTYPE_CACHE_HOOKED);
}

/* Report mapped and unmapped memory: by UCX's hooks if it hooks the driver's
 * functions, otherwise by this module's. The lock is held. */
static void observe(uct_abi_memtype_cache_state_t state)
{
    ucs_status_t status;

    if (memtype.is_asked) {
        return;
    }

    status = observe_by_ucx(state) ? UCS_OK : uct_cuda_first_use_hook_maps();
    uct_cuda_first_use_watch_imports();
    memtype.is_asked = true;
    __atomic_store_n(&memtype.is_observed, status == UCS_OK, __ATOMIC_RELEASE);
    if (status != UCS_OK) {
        uct_cuda_debug("cuMemMap cannot be hooked: peers send a request before "
                       "each use of mapped memory");
    }
}

/* Disable the cache at the first use of a GPU. The lock is held. */
static ucs_status_t watch_memory(uct_abi_memtype_cache_state_t state)
{
    return !memtype.is_observed ? UCS_ERR_UNSUPPORTED :
           (state == UCT_ABI_MEMTYPE_CACHE_NO_MAPS) ?
                   uct_cuda_first_use_watch_maps(cache_disable) :
                   uct_cuda_first_use_watch(cache_disable);
}

/* Return whether the process has a context, as far as the driver tells */
static bool has_context(void)
{
    const int count = uct_cuda_device_count();
    unsigned long long id;
    CUcontext current;
    int device;

    for (device = 0; device < count; ++device) {
        if (uct_cuda_ctx_is_active(device)) {
            return true;
        }
    }

    return uct_cuda_ctx_current(&current, &id) == UCS_OK;
}

void uct_cuda_memtype_setup(void)
{
    uct_abi_memtype_cache_state_t state;
    bool is_hooked, is_first;

    pthread_mutex_lock(&memtype.lock);
    state     = uct_abi_memtype_cache_state();
    is_hooked = (state == UCT_ABI_MEMTYPE_CACHE_HOOKED) ||
                (state == UCT_ABI_MEMTYPE_CACHE_NO_MAPS);
    is_first  = (state != UCT_ABI_MEMTYPE_CACHE_OFF) && !memtype.is_tried;
    memtype.is_tried |= is_first;
    __atomic_store_n(&memtype.is_hooked, is_hooked, __ATOMIC_RELAXED);
    /* enabled now instead of at the first copy: no other thread is in malloc()
     * yet */
    if (state != UCT_ABI_MEMTYPE_CACHE_OFF) {
        uct_cuda_memory_cache_enable();
    }

    observe(state);
    if (is_hooked && is_first) {
        /* a new cache would lack the types of memory that UCX has seen since
         * the process's first context */
        if (!has_context()) {
            uct_cuda_first_use_watch_contexts(uct_abi_memtype_cache_renew);
        }
        uct_cuda_first_use_watch_found(add_found);
    }
    if ((state == UCT_ABI_MEMTYPE_CACHE_BLIND) ||
        (state == UCT_ABI_MEMTYPE_CACHE_NO_MAPS)) {
        if (is_first) {
            memtype.is_watched = (watch_memory(state) == UCS_OK);
            uct_cuda_debug("UCX's memory type cache is %s",
                           memtype.is_watched ?
                                   "disabled at the first use of a GPU" :
                                   "disabled");
        }

        if (!memtype.is_watched &&
            (uct_abi_memtype_cache_disable() != UCS_OK)) {
            uct_cuda_warn("this UCX does not see CUDA allocations, and its "
                          "memory type cache cannot be disabled: set "
                          "UCX_MEMTYPE_CACHE=n");
        }
    }
    pthread_mutex_unlock(&memtype.lock);
}

bool uct_cuda_memtype_sees_frees(void)
{
    return __atomic_load_n(&memtype.is_hooked, __ATOMIC_RELAXED);
}

bool uct_cuda_memtype_sees_remaps(void)
{
    return __atomic_load_n(&memtype.is_observed, __ATOMIC_ACQUIRE);
}
