/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "on_gpus.h"

#include <uct/cuda/collective_api.h>

#include <dlfcn.h>
#include <link.h>
#include <string.h>


static int find(struct dl_phdr_info *info, size_t size, void *arg)
{
    const uct_cuda_coll_api_t **api_p = arg;
    void *handle;

    (void)size;
    if (strstr(info->dlpi_name, "libuct_cuda.so") != NULL) {
        handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        *api_p = (handle == NULL) ? NULL :
                                    dlsym(handle, UCT_CUDA_COLL_API_SYMBOL);
    }
    return *api_p != NULL;
}

long ucx_mp_on_gpus(void)
{
    static const uct_cuda_coll_api_t *api;
    uint64_t done = 0, staged;

    if (api == NULL) {
        dl_iterate_phdr(find, &api);
    }
    if (api != NULL) {
        api->counts(&done, &staged);
    }
    return (long)done;
}

unsigned long long ucx_mp_between_nodes(unsigned long long *agreements_p)
{
    void (*counts)(uint64_t*, uint64_t*);
    uint64_t bytes = 0, agreements = 0;

    counts = (void (*)(uint64_t*, uint64_t*))dlsym(RTLD_DEFAULT,
                                                   "ucx_mp_mpi_nodes_counts");
    if (counts != NULL) {
        counts(&bytes, &agreements);
    }
    *agreements_p = agreements;
    return bytes;
}
