/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/module.h>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <string.h>


#define MODULE_NAME "libuct_cuda.so"


static pthread_once_t once = PTHREAD_ONCE_INIT;
static const uct_cuda_coll_api_t *module;


static int find_api(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *name = (info->dlpi_name == NULL) ? "" : info->dlpi_name;
    const char *base = strrchr(name, '/');
    const uct_cuda_coll_api_t *api;
    void *handle;

    (void)size;
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
        *(const uct_cuda_coll_api_t**)arg = api;
        return 1; /* the handle is kept, since its functions are */
    }

    dlclose(handle);
    return 0;
}

static void find(void)
{
    dl_iterate_phdr(find_api, &module);
}

const uct_cuda_coll_api_t *ucx_mp_mpi_module(void)
{
    pthread_once(&once, find);
    return module;
}
