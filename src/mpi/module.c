/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/module.h>

#include <mpi/symbols.h>

#include <dlfcn.h>
#include <stddef.h>


#define MODULE_NAME "libuct_cuda.so"


/* loader's object counter at the last search without success */
static unsigned long long objects_seen;
static const uct_cuda_coll_api_t *module;

static bool has_api(void *handle, void *arg)
{
    const uct_cuda_coll_api_t *api = dlsym(handle, UCT_CUDA_COLL_API_SYMBOL);

    if ((api == NULL) || (api->size < sizeof(*api))) {
        return false;
    }

    *(const uct_cuda_coll_api_t**)arg = api;
    return true;
}

const uct_cuda_coll_api_t *ucx_mp_mpi_module(void)
{
    const uct_cuda_coll_api_t *api = __atomic_load_n(&module, __ATOMIC_ACQUIRE);
    unsigned long long objects;

    if (api != NULL) {
        return api;
    }

    objects = ucx_mp_mpi_objects_loaded();
    if (objects == __atomic_load_n(&objects_seen, __ATOMIC_RELAXED)) {
        return NULL;
    }

    if (ucx_mp_mpi_find_object(MODULE_NAME, has_api, &api) != NULL) {
        __atomic_store_n(&module, api, __ATOMIC_RELEASE);
    } else {
        __atomic_store_n(&objects_seen, objects, __ATOMIC_RELAXED);
    }
    return api;
}
