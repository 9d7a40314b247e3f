/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX's memory-type cache and its memory events. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define UCT_ABI_MEM_EVENT_PRIORITY 1000 /* behind those that UCX needs */
#define UCT_ABI_MEM_EVENTS_MAX     32

/* One registration; the address of its slot is what UCX knows it by. */
typedef struct {
    unsigned               events; /* 0: free */
    uct_abi_mem_event_cb_t cb;
    void                   *arg;
} uct_abi_mem_listener_t;

static uct_abi_mem_listener_t uct_abi_mem_listeners[UCT_ABI_MEM_EVENTS_MAX];
static pthread_mutex_t uct_abi_mem_lock = PTHREAD_MUTEX_INITIALIZER;

static int *uct_abi_memtype_cache_opt(void)
{
    return (int*)((char*)uct_abi_host.sym.ucs_global_opts +
                  uct_abi_host.release->memtype_cache_opt);
}

/* Has libucm's CUDA part put itself on the list of those who install hooks? */
static int uct_abi_memtype_is_cuda_hooked(void)
{
    uct_abi_host_list_t *head = uct_abi_host.sym.ucm_event_installer_list;
    uct_abi_host_list_t *link;
    const char *name;
    Dl_info info;

    for (link = head->next; (link != NULL) && (link != head);
         link = link->next) {
        if (dladdr(link, &info) && (info.dli_fname != NULL)) {
            name = strrchr(info.dli_fname, '/');
            name = (name == NULL) ? info.dli_fname : name + 1;
            if (strstr(name, "ucm_cuda") != NULL) {
                return 1;
            }
        }
    }

    return 0;
}

uct_abi_memtype_cache_state_t uct_abi_memtype_cache_state(void)
{
    uct_abi_host_memory_info_t info;
    char probe = 0;

    if ((uct_abi_host.release == NULL) ||
        (*uct_abi_memtype_cache_opt() == UCT_ABI_NO)) {
        return UCT_ABI_MEMTYPE_CACHE_OFF;
    }

    /* The first look-up makes the cache and, to have it filled, loads libucm's
     * CUDA part and installs hooks: only then can one see whether there are
     * any. When they cannot be installed, UCX does without a cache. */
    if (uct_abi_host.sym.ucs_memtype_cache_lookup(&probe, 1, &info) ==
        UCS_ERR_UNSUPPORTED) {
        return UCT_ABI_MEMTYPE_CACHE_OFF;
    }

    return uct_abi_memtype_is_cuda_hooked() ? UCT_ABI_MEMTYPE_CACHE_HOOKED :
                                              UCT_ABI_MEMTYPE_CACHE_BLIND;
}

ucs_status_t uct_abi_memtype_cache_disable(void)
{
    if (uct_abi_host.release == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    /* The option stops look-ups; the pointer is what UCP's short path checks
     * ("there is a cache and it is empty"). What was the cache stays allocated:
     * another thread may be inside it. */
    __atomic_store_n(uct_abi_memtype_cache_opt(), (int)UCT_ABI_NO,
                     __ATOMIC_SEQ_CST);
    __atomic_store_n(uct_abi_host.sym.ucs_memtype_cache_global_instance, NULL,
                     __ATOMIC_SEQ_CST);
    return UCS_OK;
}

void uct_abi_memtype_cache_update(const void *address, size_t length,
                                  uct_abi_mem_type_t mem_type,
                                  ucs_sys_device_t sys_dev)
{
    if (uct_abi_host.release != NULL) {
        /* 1.22 takes flags (bit 0: may be registered), older ones do not look
         * at a fifth argument */
        uct_abi_host.sym.ucs_memtype_cache_update(
                address, length, uct_abi_mem_type_to_host(mem_type), sys_dev,
                1);
    }
}

void uct_abi_memtype_cache_remove(const void *address, size_t length)
{
    /* UCX's function does not check whether there is a cache */
    if ((uct_abi_host.release != NULL) &&
        (*uct_abi_host.sym.ucs_memtype_cache_global_instance != NULL)) {
        uct_abi_host.sym.ucs_memtype_cache_remove(address, length);
    }
}

static int uct_abi_mem_events_to_host(unsigned events)
{
    int host_events = 0;

    if (events & UCT_ABI_MEM_EVENT_VM_UNMAPPED) {
        host_events |= UCT_ABI_HOST_EVENT_VM_UNMAPPED;
    }
    if (events & UCT_ABI_MEM_EVENT_MEM_TYPE_ALLOC) {
        host_events |= UCT_ABI_HOST_EVENT_MEM_TYPE_ALLOC;
    }
    if (events & UCT_ABI_MEM_EVENT_MEM_TYPE_FREE) {
        host_events |= UCT_ABI_HOST_EVENT_MEM_TYPE_FREE;
    }

    return host_events;
}

static void
uct_abi_mem_event_dispatch(int host_event, uct_abi_host_mem_event_t *data,
                           void *arg)
{
    const uct_abi_mem_listener_t *listener = arg;

    if (host_event & UCT_ABI_HOST_EVENT_VM_UNMAPPED) {
        listener->cb(UCT_ABI_MEM_EVENT_VM_UNMAPPED, data->vm_unmapped.address,
                     data->vm_unmapped.size, UCT_ABI_MEM_TYPE_HOST,
                     listener->arg);
    } else {
        listener->cb((host_event & UCT_ABI_HOST_EVENT_MEM_TYPE_ALLOC) ?
                             UCT_ABI_MEM_EVENT_MEM_TYPE_ALLOC :
                             UCT_ABI_MEM_EVENT_MEM_TYPE_FREE,
                     data->mem_type.address, data->mem_type.size,
                     uct_abi_mem_type_from_host(data->mem_type.mem_type),
                     listener->arg);
    }
}

ucs_status_t uct_abi_mem_event_register(unsigned events,
                                        uct_abi_mem_event_cb_t cb, void *arg)
{
    uct_abi_mem_listener_t *listener = NULL;
    ucs_status_t status;
    unsigned i;

    if ((uct_abi_host.release == NULL) || (events == 0)) {
        return UCS_ERR_UNSUPPORTED;
    }

    pthread_mutex_lock(&uct_abi_mem_lock);
    for (i = 0; (i < UCT_ABI_MEM_EVENTS_MAX) && (listener == NULL); ++i) {
        if (uct_abi_mem_listeners[i].events == 0) {
            listener         = &uct_abi_mem_listeners[i];
            listener->events = events;
            listener->cb     = cb;
            listener->arg    = arg;
        }
    }
    pthread_mutex_unlock(&uct_abi_mem_lock);

    if (listener == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }

    /* not under our lock: installing hooks may call back */
    status = uct_abi_host.sym.ucm_set_event_handler(
            uct_abi_mem_events_to_host(events), UCT_ABI_MEM_EVENT_PRIORITY,
            uct_abi_mem_event_dispatch, listener);
    if (status != UCS_OK) {
        pthread_mutex_lock(&uct_abi_mem_lock);
        listener->events = 0;
        pthread_mutex_unlock(&uct_abi_mem_lock);
        return UCS_ERR_UNSUPPORTED;
    }

    return UCS_OK;
}

void uct_abi_mem_event_unregister(unsigned events, uct_abi_mem_event_cb_t cb,
                                  void *arg)
{
    uct_abi_mem_listener_t *listener = NULL;
    unsigned i;

    pthread_mutex_lock(&uct_abi_mem_lock);
    for (i = 0; (i < UCT_ABI_MEM_EVENTS_MAX) && (listener == NULL); ++i) {
        if ((uct_abi_mem_listeners[i].events == events) &&
            (uct_abi_mem_listeners[i].cb == cb) &&
            (uct_abi_mem_listeners[i].arg == arg)) {
            listener = &uct_abi_mem_listeners[i];
        }
    }
    pthread_mutex_unlock(&uct_abi_mem_lock);

    if (listener == NULL) {
        return;
    }

    uct_abi_host.sym.ucm_unset_event_handler(uct_abi_mem_events_to_host(events),
                                             uct_abi_mem_event_dispatch,
                                             listener);
    pthread_mutex_lock(&uct_abi_mem_lock);
    listener->events = 0;
    pthread_mutex_unlock(&uct_abi_mem_lock);
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
