/* SPDX-License-Identifier: BSD-3-Clause */
/* The hooks are permanent. Each call of a function that creates contexts or
 * memory costs a load and a comparison more; each call that finds other memory
 * costs a query. */
#include <uct/cuda/base/first_use.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/imports.h>
#include <uct/cuda/base/log.h>


#include <dlfcn.h>


typedef void (*once_func_t)(void);

static once_func_t on_first_use, on_context;

static uct_cuda_remap_func_t on_remap;

static void (*on_find)(CUdeviceptr address);

/* Variable of the MPI interposition library (src/mpi), which queries no buffer
 * while it is 1; NULL if the library is not loaded */
static int *no_gpu_memory_yet;


/* Return the function for the first caller, and NULL for all others */
static once_func_t take(once_func_t *func_p)
{
    return (__atomic_load_n(func_p, __ATOMIC_ACQUIRE) == NULL) ?
                   NULL :
                   __atomic_exchange_n(func_p, NULL, __ATOMIC_ACQ_REL);
}

static void note_use(void)
{
    const once_func_t func = take(&on_first_use);

    if (func != NULL) {
        if (no_gpu_memory_yet != NULL) {
            __atomic_store_n(no_gpu_memory_yet, 0, __ATOMIC_RELEASE);
        }
        func();
    }
}

static void note_context(void)
{
    const once_func_t func = take(&on_context);

    if (func != NULL) {
        func();
    }
}

static void note_found(CUdeviceptr address)
{
    if (on_find != NULL) {
        on_find(address);
    }
}

void uct_cuda_first_use_on_remap(uct_cuda_remap_func_t func)
{
    __atomic_store_n(&on_remap, func, __ATOMIC_RELEASE);
}

void uct_cuda_first_use_note_remap(void *address, size_t length)
{
    const uct_cuda_remap_func_t func = __atomic_load_n(&on_remap,
                                                       __ATOMIC_ACQUIRE);

    if (func != NULL) {
        func((uintptr_t)address, length);
    }
}


/*
 * _(symbol, must be hooked, parameters, arguments). Memory is essential.
 * Contexts come before it, and before memory without a function to hook:
 * variables of a program's device code. Pointers to types of newer toolkits are
 * void* here.
 */
#define MEMORY_HOOKS(_) \
    _(cuMemAlloc_v2, 1, (CUdeviceptr *a, size_t b), (a, b)) \
    _(cuMemAllocManaged, 1, (CUdeviceptr *a, size_t b, unsigned c), (a, b, c)) \
    _(cuMemAllocPitch_v2, 1, \
      (CUdeviceptr *a, size_t *b, size_t c, size_t d, unsigned e), \
      (a, b, c, d, e)) \
    _(cuMemAllocAsync, 1, (CUdeviceptr *a, size_t b, CUstream c), (a, b, c)) \
    _(cuMemAllocAsync_ptsz, 1, (CUdeviceptr *a, size_t b, CUstream c), \
      (a, b, c)) \
    _(cuMemAllocFromPoolAsync, 1, \
      (CUdeviceptr *a, size_t b, void *c, CUstream d), (a, b, c, d)) \
    _(cuMemAllocFromPoolAsync_ptsz, 1, \
      (CUdeviceptr *a, size_t b, void *c, CUstream d), (a, b, c, d))

#define CONTEXT_HOOKS(_) \
    _(cuDevicePrimaryCtxRetain, 0, (CUcontext *a, CUdevice b), (a, b)) \
    _(cuCtxCreate_v2, 0, (CUcontext *a, unsigned b, CUdevice c), (a, b, c)) \
    _(cuCtxCreate_v3, 0, \
      (CUcontext *a, void *b, int c, unsigned d, CUdevice e), \
      (a, b, c, d, e)) \
    _(cuCtxCreate_v4, 0, (CUcontext *a, void *b, unsigned c, CUdevice d), \
      (a, b, c, d))

#define DEFINE_MEMORY_HOOK(_symbol, _must, _params, _args) \
    static CUresult (*_symbol##_original) _params; \
    static CUresult _symbol##_hook _params \
    { \
        note_use(); \
        return _symbol##_original _args; \
    }
MEMORY_HOOKS(DEFINE_MEMORY_HOOK)

/* Report a context after the driver has created it: only then has the driver
 * reserved addresses, and no thread has memory of a context before that. */
#define DEFINE_CONTEXT_HOOK(_symbol, _must, _params, _args) \
    static CUresult (*_symbol##_original) _params; \
    static CUresult _symbol##_hook _params \
    { \
        const CUresult result = _symbol##_original _args; \
        \
        if (result == CUDA_SUCCESS) { \
            note_context(); \
        } \
        return result; \
    }
CONTEXT_HOOKS(DEFINE_CONTEXT_HOOK)

/* Memory that a program has without allocating it: a peer's, another API's, and
 * variables of device code, which a program may also ask for by their size
 * only */
#define FIND_HOOKS(_) \
    _(cuMemPoolImportPointer, 0, (CUdeviceptr *a, void *b, void *c), \
      (a, b, c)) \
    _(cuModuleGetGlobal_v2, 0, \
      (CUdeviceptr *a, size_t *b, void *c, const char *d), (a, b, c, d)) \
    _(cuLibraryGetGlobal, 0, \
      (CUdeviceptr *a, size_t *b, void *c, const char *d), (a, b, c, d)) \
    _(cuExternalMemoryGetMappedBuffer, 0, \
      (CUdeviceptr *a, void *b, const void *c), (a, b, c)) \
    _(cuGraphicsResourceGetMappedPointer_v2, 0, \
      (CUdeviceptr *a, size_t *b, void *c), (a, b, c))

#define DEFINE_FIND_HOOK(_symbol, _must, _params, _args) \
    static CUresult (*_symbol##_original) _params; \
    static CUresult _symbol##_hook _params \
    { \
        const CUresult result = _symbol##_original _args; \
        \
        if ((result == CUDA_SUCCESS) && (a != NULL)) { \
            note_found(*a); \
        } \
        return result; \
    }
FIND_HOOKS(DEFINE_FIND_HOOK)

static CUresult (*cuIpcOpenMemHandle_v2_original)(CUdeviceptr *address_p,
                                                  CUipcMemHandle handle,
                                                  unsigned flags);

static CUresult cuIpcOpenMemHandle_v2_hook(CUdeviceptr *address_p,
                                           CUipcMemHandle handle,
                                           unsigned flags)
{
    const CUresult result = cuIpcOpenMemHandle_v2_original(address_p, handle,
                                                           flags);

    if ((result == CUDA_SUCCESS) && (address_p != NULL)) {
        note_found(*address_p);
        uct_cuda_imports_add(*address_p, &handle);
    }
    return result;
}

static CUresult (*cuIpcCloseMemHandle_original)(CUdeviceptr address);

static CUresult cuIpcCloseMemHandle_hook(CUdeviceptr address)
{
    CUresult result;

    note_found(address); /* later the address may be of any memory */
    result = cuIpcCloseMemHandle_original(address);
    uct_cuda_imports_remove(address);
    return result;
}

static CUresult (*cuMemMap_original)(CUdeviceptr address, size_t length,
                                     size_t offset, unsigned long long handle,
                                     unsigned long long flags);

static CUresult cuMemMap_hook(CUdeviceptr address, size_t length, size_t offset,
                              unsigned long long handle,
                              unsigned long long flags)
{
    CUresult result;

    note_use();
    result = cuMemMap_original(address, length, offset, handle, flags);
    uct_cuda_first_use_note_remap((void*)address, length);
    return result;
}

static CUresult (*cuMemUnmap_original)(CUdeviceptr address, size_t length);

static CUresult cuMemUnmap_hook(CUdeviceptr address, size_t length)
{
    uct_cuda_first_use_note_remap((void*)address, length);
    return cuMemUnmap_original(address, length);
}

typedef struct {
    const char *symbol;
    int        must;
    void       *hook;
    void       **original_p;
} hook_t;

#define HOOK_ENTRY(_symbol, _must, _params, _args) \
    {#_symbol, _must, (void*)_symbol##_hook, (void**)&_symbol##_original},

static const hook_t map_hooks[] = {HOOK_ENTRY(cuMemUnmap, 1, , )
                                   HOOK_ENTRY(cuMemMap, 1, , )};

static const hook_t memory_hooks[]  = {MEMORY_HOOKS(HOOK_ENTRY)};
static const hook_t context_hooks[] = {CONTEXT_HOOKS(HOOK_ENTRY)};
static const hook_t find_hooks[]    = {FIND_HOOKS(HOOK_ENTRY)};
static const hook_t import_hooks[]  = {HOOK_ENTRY(cuIpcOpenMemHandle_v2, 0, , )
                                       HOOK_ENTRY(cuIpcCloseMemHandle, 0, , )};


static ucs_status_t install(const hook_t *hooks, size_t count)
{
    const hook_t *hook;
    void *function;

    for (hook = hooks; hook < hooks + count; ++hook) {
        function = dlsym(RTLD_DEFAULT, hook->symbol);
        if (function == NULL) {
            continue; /* the driver is older than the function */
        }

        if (uct_abi_function_hook(function, hook->hook, hook->symbol,
                                  hook->original_p) != UCS_OK) {
            uct_cuda_debug("%s cannot be hooked", hook->symbol);
            if (hook->must) {
                return UCS_ERR_UNSUPPORTED;
            }
        }
    }

    return UCS_OK;
}

ucs_status_t uct_cuda_first_use_hook_maps(void)
{
    return install(map_hooks, ucs_static_array_size(map_hooks));
}

ucs_status_t uct_cuda_first_use_watch_maps(void (*func)(void))
{
    if (!uct_cuda_driver_is_first()) {
        return UCS_ERR_BUSY;
    }

    __atomic_store_n(&on_first_use, func, __ATOMIC_RELEASE);
    return UCS_OK;
}

void uct_cuda_first_use_watch_contexts(void (*func)(void))
{
    __atomic_store_n(&on_context, func, __ATOMIC_RELEASE);
    (void)install(context_hooks, ucs_static_array_size(context_hooks));
}

void uct_cuda_first_use_watch_imports(void)
{
    (void)install(import_hooks, ucs_static_array_size(import_hooks));
}

void uct_cuda_first_use_watch_found(void (*func)(CUdeviceptr address))
{
    on_find = func;
    (void)install(find_hooks, ucs_static_array_size(find_hooks));
}

ucs_status_t uct_cuda_first_use_watch(void (*func)(void))
{
    ucs_status_t status;

    if (!uct_cuda_driver_is_first()) {
        return UCS_ERR_BUSY;
    }

    status = install(memory_hooks, ucs_static_array_size(memory_hooks));
    if (status != UCS_OK) {
        return status;
    }

    no_gpu_memory_yet = dlsym(RTLD_DEFAULT, "ucx_mp_mpi_no_gpu_memory_yet");
    if (no_gpu_memory_yet != NULL) {
        __atomic_store_n(no_gpu_memory_yet, 1, __ATOMIC_RELEASE);
    }

    __atomic_store_n(&on_first_use, func, __ATOMIC_RELEASE);
    uct_cuda_first_use_watch_contexts(note_use);
    return UCS_OK;
}
