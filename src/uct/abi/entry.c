/* SPDX-License-Identifier: BSD-3-Clause */
/* Entry points: UCX's module loader, and the preload shim. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "host.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define UCT_ABI_VERDICTS_MAX 32

/* Decision about one library of a UCX, or all of it. */
typedef struct {
    const void   *base;
    ucs_status_t status;
} uct_abi_verdict_t;

static pthread_mutex_t uct_abi_attach_lock = PTHREAD_MUTEX_INITIALIZER;
static uct_abi_verdict_t uct_abi_verdicts[UCT_ABI_VERDICTS_MAX];
static unsigned uct_abi_num_verdicts;
static int uct_abi_displaced;
static char uct_abi_reason[256]; /* reason for not using the first UCX */

UCT_ABI_EXPORT ucs_status_t uct_abi_attach(const void *caller_address);
UCT_ABI_EXPORT void uct_abi_displace(const void *caller_address);
UCT_ABI_EXPORT ucs_status_t ucs_module_global_init(void);

/* Return why the module uses no UCX of this process; "" if it uses one, or none
   was seen. For tools that load this file. */
UCT_ABI_EXPORT const char *uct_abi_stays_out(void);

const char *uct_abi_stays_out(void)
{
    return (uct_abi_host.release != NULL) ? "" : uct_abi_reason;
}

static const uct_abi_verdict_t *uct_abi_verdict_find(const void *base)
{
    unsigned i;

    for (i = 0; i < uct_abi_num_verdicts; ++i) {
        if (uct_abi_verdicts[i].base == base) {
            return &uct_abi_verdicts[i];
        }
    }

    return NULL;
}

static void uct_abi_verdict_add(const void *base, ucs_status_t status)
{
    if (uct_abi_num_verdicts < UCT_ABI_VERDICTS_MAX) {
        uct_abi_verdicts[uct_abi_num_verdicts].base   = base;
        uct_abi_verdicts[uct_abi_num_verdicts].status = status;
        ++uct_abi_num_verdicts;
    }
}

/* Make the module permanent: UCX keeps pointers into it from now on. */
static void uct_abi_module_pin(void)
{
    Dl_info info;

    if (dladdr(&uct_abi_num_verdicts, &info)) {
        (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

static ucs_status_t
uct_abi_attach_first(const void *caller_address, uct_abi_host_t *host)
{
    ucs_status_t status;

    status = uct_abi_host_identify(caller_address, host, uct_abi_reason,
                                   sizeof(uct_abi_reason));
    if (status != UCS_OK) {
        uct_abi_log_outside("the CUDA module stays out of the UCX in %s, which "
                            "goes on without it: %s",
                            host->libucs_path, uct_abi_reason);
        return UCS_ERR_UNSUPPORTED;
    }

    uct_abi_module_pin();
    snprintf(host->name, sizeof(host->name), "UCX 1.%u (%s)",
             host->release->minor, host->libucs_path);
    uct_abi_host = *host;
    uct_abi_md_ops_emit(&uct_abi_host);
    uct_abi_internal_ops_emit(&uct_abi_host);
    uct_abi_log_attach(&uct_abi_host);

    if (uct_abi_component_is_twin_registered(&uct_abi_host)) {
        uct_abi_debug("another copy of this module serves %s",
                      uct_abi_host_name());
        return UCS_OK;
    }

    return uct_abi_component_register_all(&uct_abi_host);
}

static ucs_status_t uct_abi_attach_locked(const void *caller_address)
{
    const void *caller_base = uct_abi_object_base(caller_address);
    const uct_abi_verdict_t *verdict;
    static uct_abi_host_t host; /* protected by the lock */
    ucs_status_t status;

    if (caller_base == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    verdict = uct_abi_verdict_find(caller_base);
    if (verdict != NULL) {
        return verdict->status;
    }

    memset(&host, 0, sizeof(host));
    status = uct_abi_host_locate(caller_address, &host);
    if (status != UCS_OK) {
        return status;
    }

    verdict = uct_abi_verdict_find(host.libucs_base);
    if (verdict != NULL) {
        status = verdict->status;
    } else {
        if (uct_abi_host.release != NULL) {
            uct_abi_log_outside("the CUDA module serves the first UCX of a "
                                "process, %s; the second one, %s, goes on "
                                "without it", uct_abi_host.libucs_path,
                                host.libucs_path);
            status = UCS_ERR_UNSUPPORTED;
        } else {
            status = uct_abi_attach_first(caller_address, &host);
        }
        uct_abi_verdict_add(host.libucs_base, status);
    }

    if (caller_base != host.libucs_base) {
        uct_abi_verdict_add(caller_base, status);
    }

    return status;
}

ucs_status_t uct_abi_attach(const void *caller_address)
{
    ucs_status_t status;

    pthread_mutex_lock(&uct_abi_attach_lock);
    status = uct_abi_attach_locked(caller_address);
    pthread_mutex_unlock(&uct_abi_attach_lock);
    return status;
}

void uct_abi_displace(const void *caller_address)
{
    const uct_abi_verdict_t *verdict;

    pthread_mutex_lock(&uct_abi_attach_lock);
    verdict = uct_abi_verdict_find(uct_abi_object_base(caller_address));
    if ((verdict != NULL) && (verdict->status == UCS_OK) &&
        !uct_abi_displaced) {
        uct_abi_displaced = 1;
        uct_abi_component_displace(&uct_abi_host);
    }
    pthread_mutex_unlock(&uct_abi_attach_lock);
}

/* Load the host's own CUDA module. Our file took its place, so the host did not
   load it; if we do not register, it must be loaded. */
static void uct_abi_module_load_stock(const void *caller_address)
{
    ucs_status_t (*init)(void);
    char directory[PATH_MAX + 8];
    char path[PATH_MAX * 2];
    struct dirent *file;
    Dl_info info, own;
    const char *slash;
    void *module;
    DIR *dir;

    if (!dladdr(caller_address, &info) || !dladdr(&uct_abi_verdicts, &own)) {
        return;
    }

    slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) {
        return;
    }

    snprintf(directory, sizeof(directory), "%.*s/ucx",
             (int)(slash - info.dli_fname), info.dli_fname);
    dir = opendir(directory);
    if (dir == NULL) {
        return;
    }

    /* the module's suffix equals that of libucs, from the first dot on */
    slash += strcspn(slash, ".");
    while ((file = readdir(dir)) != NULL) {
        if ((strncmp(file->d_name, "libuct_cuda.", 12) != 0) ||
            (strcmp(file->d_name + 11, slash) != 0)) {
            continue;
        }

        snprintf(path, sizeof(path), "%s/%s", directory, file->d_name);
        module = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        if (module != NULL) {
            *(void**)&init = dlsym(module, "ucs_module_global_init");
            if ((init != NULL) &&
                (uct_abi_object_base((void*)(uintptr_t)init) !=
                 own.dli_fbase)) {
                (void)init();
            }
        }
    }

    closedir(dir);
}

/* UCX's module loader calls this after dlopen(). */
ucs_status_t ucs_module_global_init(void)
{
    const void *caller_address = __builtin_return_address(0);
    ucs_status_t status;

    status = uct_abi_attach(caller_address);
    if (status != UCS_OK) {
        uct_abi_module_load_stock(caller_address);
        /* otherwise UCX would unload the module, and the next attempt would
           warn again */
        uct_abi_module_pin();
    }

    return UCS_OK;
}
