/* SPDX-License-Identifier: BSD-3-Clause */
/* Loading libnvidia-ml.so.1. */
#include <uct/cuda/base/nvml.h>

#include <uct/cuda/base/log.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>


#define NVML_LIBRARY "libnvidia-ml.so.1"


static struct {
    pthread_mutex_t       lock;
    bool                  is_tried;
    const uct_cuda_nvml_t *loaded;
    const uct_cuda_nvml_t *override;
    uct_cuda_nvml_t       table;
} nvml = {.lock = PTHREAD_MUTEX_INITIALIZER};


static const uct_cuda_nvml_t *nvml_open(void)
{
    bool is_complete = true;
    nvmlReturn_t result;
    void *handle;

    handle = dlopen(NVML_LIBRARY, RTLD_NOW);
    if (handle == NULL) {
        uct_cuda_debug("no NVML: %s", dlerror());
        return NULL;
    }

#define LOAD_OPTIONAL(_name, _symbol, _args) \
    *(void**)&nvml.table._name = dlsym(handle, _symbol);
#define LOAD_REQUIRED(_name, _symbol, _args) \
    LOAD_OPTIONAL(_name, _symbol, _args) \
    is_complete = is_complete && (nvml.table._name != NULL);

    UCT_CUDA_NVML_FUNCTIONS(LOAD_REQUIRED, LOAD_OPTIONAL)

    if (!is_complete) {
        uct_cuda_debug("%s is too old", NVML_LIBRARY);
        goto err_close;
    }

    result = nvml.table.nvmlInit();
    if (result != NVML_SUCCESS) {
        uct_cuda_debug("nvmlInit failed: %d", (int)result);
        goto err_close;
    }

    return &nvml.table;

err_close:
    dlclose(handle);
    return NULL;
}

const uct_cuda_nvml_t *uct_cuda_nvml_get(void)
{
    const uct_cuda_nvml_t *table;

    pthread_mutex_lock(&nvml.lock);
    if (nvml.override != NULL) {
        table = nvml.override;
    } else {
        if (!nvml.is_tried) {
            nvml.loaded   = nvml_open();
            nvml.is_tried = true;
        }
        table = nvml.loaded;
    }
    pthread_mutex_unlock(&nvml.lock);

    return table;
}

void uct_cuda_nvml_override(const uct_cuda_nvml_t *table)
{
    pthread_mutex_lock(&nvml.lock);
    nvml.override = table;
    pthread_mutex_unlock(&nvml.lock);
}
