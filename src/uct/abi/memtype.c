/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX's memory-type cache and its memory events. */

#include "host.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define UCT_ABI_UNMAP_PRIORITY 1000 /* runs after UCX's own handlers */

static int *uct_abi_memtype_cache_opt(void)
{
    return (int*)((char*)uct_abi_host.sym.ucs_global_opts +
                  uct_abi_host.release->memtype_cache_opt);
}

/* Return whether a libucm's CUDA part hooks cuMemMap. */
static int uct_abi_memtype_sees_maps(const char *path)
{
    void *ucm_cuda = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    int sees_maps  = (ucm_cuda != NULL) &&
                     (dlsym(ucm_cuda, "ucm_cuMemMap") != NULL);

    if (ucm_cuda != NULL) {
        (void)dlclose(ucm_cuda);
    }
    return sees_maps;
}

/* Return whether UCX hooks the driver's functions themselves. By relocation it
   sees only calls through symbols of loaded objects, not those by an address
   from cuGetProcAddress(); and with "none" it claims to have hooks. */
static int uct_abi_memtype_patches(void)
{
    const char *modes = getenv("UCX_MEM_CUDA_HOOK_MODE");

    return (modes == NULL) || (strcasestr(modes, "bistro") != NULL);
}

uct_abi_memtype_cache_state_t uct_abi_memtype_hooks(void)
{
    uct_abi_host_list_t *head = uct_abi_host.sym.ucm_event_installer_list;
    uct_abi_host_list_t *link;
    const char *name;
    Dl_info info;

    if (!uct_abi_memtype_patches()) {
        return UCT_ABI_MEMTYPE_CACHE_BLIND;
    }

    for (link = head->next; (link != NULL) && (link != head);
         link = link->next) {
        if (dladdr(link, &info) && (info.dli_fname != NULL)) {
            name = strrchr(info.dli_fname, '/');
            name = (name == NULL) ? info.dli_fname : name + 1;
            if (strstr(name, "ucm_cuda") != NULL) {
                return uct_abi_memtype_sees_maps(info.dli_fname) ?
                               UCT_ABI_MEMTYPE_CACHE_HOOKED :
                               UCT_ABI_MEMTYPE_CACHE_NO_MAPS;
            }
        }
    }

    return UCT_ABI_MEMTYPE_CACHE_BLIND;
}

void uct_abi_memtype_cache_renew(void)
{
    __atomic_store_n(uct_abi_host.sym.ucs_memtype_cache_global_instance, NULL,
                     __ATOMIC_SEQ_CST);
}

ucs_status_t uct_abi_memtype_cache_disable(void)
{
    if (uct_abi_host.release == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    /* The option stops look-ups. UCP's short path tests the pointer ("there is
       a cache and it is empty"). */
    __atomic_store_n(uct_abi_memtype_cache_opt(), (int)UCT_ABI_NO,
                     __ATOMIC_SEQ_CST);
    uct_abi_memtype_cache_renew();
    return UCS_OK;
}

void uct_abi_memtype_cache_update(const void *address, size_t length,
                                  uct_abi_mem_type_t mem_type,
                                  ucs_sys_device_t sys_dev)
{
    if (uct_abi_host.release != NULL) {
        /* 1.22 takes flags (bit 0: may be registered); older releases ignore a
           fifth argument */
        uct_abi_host.sym.ucs_memtype_cache_update(
                address, length, uct_abi_mem_type_to_host(mem_type), sys_dev,
                1);
    }
}

/* Address and size are the first members of both events */
static void
uct_abi_unmap_dispatch(int host_event UCS_V_UNUSED,
                       uct_abi_host_mem_event_t *data, void *arg)
{
    ((uct_abi_unmap_cb_t)arg)(data->vm_unmapped.address,
                              data->vm_unmapped.size);
}

static ucs_status_t uct_abi_on_events(int events, uct_abi_unmap_cb_t cb)
{
    return ((uct_abi_host.release != NULL) &&
            (uct_abi_host.sym.ucm_set_event_handler(
                     events, UCT_ABI_UNMAP_PRIORITY, uct_abi_unmap_dispatch,
                     (void*)cb) == UCS_OK)) ?
                   UCS_OK :
                   UCS_ERR_UNSUPPORTED;
}

ucs_status_t uct_abi_on_unmap(uct_abi_unmap_cb_t cb)
{
    return uct_abi_on_events(UCT_ABI_HOST_EVENT_VM_UNMAPPED, cb);
}

ucs_status_t uct_abi_on_gpu_memory(uct_abi_unmap_cb_t cb)
{
    return uct_abi_on_events(UCT_ABI_HOST_EVENT_MEM_TYPE_ALLOC |
                                     UCT_ABI_HOST_EVENT_MEM_TYPE_FREE,
                             cb);
}

static void uct_abi_ignore(void *address UCS_V_UNUSED,
                           size_t length UCS_V_UNUSED)
{
}

uct_abi_memtype_cache_state_t uct_abi_memtype_cache_state(void)
{
    static int is_installed;

    if ((uct_abi_host.release == NULL) ||
        (*uct_abi_memtype_cache_opt() == UCT_ABI_NO)) {
        return UCT_ABI_MEMTYPE_CACHE_OFF;
    }

    /* A handler, as the cache has one, loads libucm's CUDA part and installs
       hooks: only then their presence is visible. If that fails, UCX uses no
       cache. The first message creates the cache, as without this module: it
       then takes what the driver has reserved for memory not seen by hooks. */
    if (!is_installed && (uct_abi_on_gpu_memory(uct_abi_ignore) != UCS_OK)) {
        return UCT_ABI_MEMTYPE_CACHE_OFF;
    }

    is_installed = 1;
    return uct_abi_memtype_hooks();
}

ucs_status_t uct_abi_function_hook(void *function, void *hook,
                                   const char *name, void **original_p)
{
    if ((uct_abi_host.release == NULL) ||
        (uct_abi_host.sym.ucm_bistro_patch == NULL) ||
        (uct_abi_host.sym.ucm_bistro_patch(function, hook, name, original_p,
                                           NULL) != UCS_OK)) {
        return UCS_ERR_UNSUPPORTED;
    }

    return (*original_p == NULL) ? UCS_ERR_UNSUPPORTED : UCS_OK;
}
