/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/module.h>

#include <dlfcn.h>
#include <link.h>
#include <string.h>


#define MODULE_NAME "libuct_cuda.so"


/* What was loaded when there was no module last; UCX may load it later */
static unsigned long long objects_seen;
static const uct_cuda_coll_api_t *module;

typedef struct {
    unsigned long long        objects;
    const uct_cuda_coll_api_t *api;
} search_t;


static int find_api(struct dl_phdr_info *info, size_t size, void *arg)
{
    search_t *search = arg;
    const char *name = (info->dlpi_name == NULL) ? "" : info->dlpi_name;
    const char *base = strrchr(name, '/');
    const uct_cuda_coll_api_t *api;
    void *handle;

    (void)size;
    search->objects = info->dlpi_adds;
    if (search->objects == __atomic_load_n(&objects_seen, __ATOMIC_RELAXED)) {
        return 1;
    }

    base = (base == NULL) ? name : base + 1;
    if (strncmp(base, MODULE_NAME, strlen(MODULE_NAME)) != 0) {
        return 0;
    }

    handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) {
        return 0;
    }

    api = dlsym(handle, UCT_CUDA_COLL_API_SYMBOL);
    if ((api != NULL) && (api->size >= sizeof(*api))) {
        search->api = api;
        return 1; /* the handle is kept, since its functions are */
    }

    dlclose(handle);
    return 0;
}

const uct_cuda_coll_api_t *ucx_mp_mpi_module(void)
{
    search_t search = {
        .api = __atomic_load_n(&module, __ATOMIC_ACQUIRE)
    };

    if (search.api == NULL) {
        dl_iterate_phdr(find_api, &search);
        if (search.api != NULL) {
            __atomic_store_n(&module, search.api, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n(&objects_seen, search.objects, __ATOMIC_RELAXED);
        }
    }

    return search.api;
}
