/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/imports.h>

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/pointer.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>


typedef struct import {
    LIST_ENTRY(import) link;
    CUdeviceptr        base;
    unsigned long long id; /* of the memory, never used again by the driver */
    CUipcMemHandle     handle;
} import_t;

static struct {
    pthread_mutex_t     lock; /* order: base/thread.h */
    LIST_HEAD(, import) list;
} imports = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* This thread opens handles for the module itself */
static __thread bool is_own_call;


/* Return the entry of this address, NULL if there is none. The lock is held. */
static import_t *find(CUdeviceptr base)
{
    import_t *import;

    LIST_FOREACH(import, &imports.list, link)
    {
        if (import->base == base) {
            break;
        }
    }

    return import;
}

void uct_cuda_imports_add(CUdeviceptr base, const CUipcMemHandle *handle)
{
    unsigned long long id;
    import_t *import;

    if (is_own_call ||
        !uct_cuda_pointer_id(uct_cuda_driver_get(), base, &id)) {
        return;
    }

    pthread_mutex_lock(&imports.lock);
    import = find(base);
    if (import == NULL) {
        import = malloc(sizeof(*import));
        if (import != NULL) {
            LIST_INSERT_HEAD(&imports.list, import, link);
        }
    }

    if (import != NULL) {
        import->base   = base;
        import->id     = id;
        import->handle = *handle;
    }
    pthread_mutex_unlock(&imports.lock);
}

void uct_cuda_imports_set_own(bool is_own)
{
    is_own_call = is_own;
}

void uct_cuda_imports_remove(CUdeviceptr base)
{
    unsigned long long id;
    import_t *import;

    pthread_mutex_lock(&imports.lock);
    import = find(base);
    if ((import != NULL) &&
        (!uct_cuda_pointer_id(uct_cuda_driver_get(), base, &id) ||
         (id != import->id))) {
        LIST_REMOVE(import, link);
        free(import);
    }
    pthread_mutex_unlock(&imports.lock);
}

bool uct_cuda_imports_find(CUdeviceptr base, unsigned long long id,
                           CUipcMemHandle *handle_p)
{
    const import_t *import;
    bool is_found;

    pthread_mutex_lock(&imports.lock);
    import   = find(base);
    is_found = (import != NULL) && (import->id == id);
    if (is_found) {
        *handle_p = import->handle;
    }
    pthread_mutex_unlock(&imports.lock);
    return is_found;
}
