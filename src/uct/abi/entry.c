/* SPDX-License-Identifier: BSD-3-Clause */
/* Entry points: UCX's module loader, and the preload shim. */

#include "host.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define UCT_ABI_RESULTS_MAX 32

/* Decision about one library of a UCX, or all of it. */
typedef struct {
    const void   *base;
    ucs_status_t status;
} uct_abi_result_t;

static pthread_mutex_t uct_abi_attach_lock = PTHREAD_MUTEX_INITIALIZER;
static uct_abi_result_t uct_abi_results[UCT_ABI_RESULTS_MAX];
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

static const uct_abi_result_t *uct_abi_result_find(const void *base)
{
    unsigned i;

    for (i = 0; i < uct_abi_num_verdicts; ++i) {
        if (uct_abi_results[i].base == base) {
            return &uct_abi_results[i];
        }
    }

    return NULL;
}

static void uct_abi_result_add(const void *base, ucs_status_t status)
{
    if (uct_abi_num_verdicts < UCT_ABI_RESULTS_MAX) {
        uct_abi_results[uct_abi_num_verdicts].base    = base;
        uct_abi_results[uct_abi_num_verdicts].status  = status;
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
        uct_abi_log_outside("CUDA module: not attached to the UCX in %s, which "
                            "continues without it: %s",
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
    const uct_abi_result_t *result;
    static uct_abi_host_t host; /* protected by the lock */
    ucs_status_t status;

    if (caller_base == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    result = uct_abi_result_find(caller_base);
    if (result != NULL) {
        return result->status;
    }

    memset(&host, 0, sizeof(host));
    status = uct_abi_host_locate(caller_address, &host);
    if (status != UCS_OK) {
        return status;
    }

    result = uct_abi_result_find(host.libucs_base);
    if (result != NULL) {
        status = result->status;
    } else {
        if (uct_abi_host.release != NULL) {
            uct_abi_log_outside("CUDA module: already attached to the UCX in "
                                "%s; the second UCX of this process, in %s, "
                                "continues without it",
                                uct_abi_host.libucs_path, host.libucs_path);
            status = UCS_ERR_UNSUPPORTED;
        } else {
            status = uct_abi_attach_first(caller_address, &host);
        }
        uct_abi_result_add(host.libucs_base, status);
    }

    if (caller_base != host.libucs_base) {
        uct_abi_result_add(caller_base, status);
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

/* The file of one of the host's modules, which lies in the folder "ucx" beside
 * the host's library and whose name ends as that library's does, after the
 * first dot. Returns whether it is there. */
static int uct_abi_module_find(const void *caller_address, const char *name,
                               char *path, size_t max)
{
    const char *slash;
    Dl_info info;

    if (!dladdr(caller_address, &info)) {
        return 0;
    }

    slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) {
        return 0;
    }

    return ((size_t)snprintf(path, max, "%.*s/ucx/%s%s",
                             (int)(slash - info.dli_fname), info.dli_fname,
                             name, slash + strcspn(slash, ".")) < max) &&
           (access(path, F_OK) == 0);
}

/* Open one of the host's modules. @return NULL: the file does not exist, or
 * dlopen() failed */
static void * __attribute__((noinline))
uct_abi_module_open(const void *caller_address, const char *name)
{
    char path[PATH_MAX];

    return uct_abi_module_find(caller_address, name, path, sizeof(path)) ?
                   dlopen(path, RTLD_LAZY | RTLD_LOCAL) :
                   NULL;
}

/* Load the host's own CUDA module and have it load what it has besides, which
 * UCX asks for by a function of the module. */
static void uct_abi_module_load_stock(const void *caller_address)
{
    void *module = uct_abi_module_open(caller_address, "libuct_cuda");
    ucs_status_t (*init)(void);

    if (module != NULL) {
        *(void**)&init = dlsym(module, "ucs_module_global_init");
        if ((init != NULL) &&
            (uct_abi_object_base((void*)(uintptr_t)init) !=
             uct_abi_object_base(&uct_abi_results))) {
            (void)init();
        }
    }
}

int uct_abi_has_gdrcopy;

/* Load the module that a UCX built with GDRCopy has for it, as the host's own
 * CUDA module does: it needs functions of that one, whose components are
 * displaced. Once; nothing if the host has loaded it. */
static void uct_abi_module_load_gdrcopy(const void *caller_address)
{
    static uint64_t init_once[16]; /* UCX's, zeros at first */
    static int is_tried;
    void (*load_modules)(const char *framework, const char *modules,
                         void *init_once, unsigned flags);
    char path[PATH_MAX];
    void *libucs;

    if (is_tried ||
        !uct_abi_module_find(caller_address, "libuct_cuda", path,
                             sizeof(path)) ||
        !uct_abi_module_find(caller_address, "libuct_cuda_gdrcopy", path,
                             sizeof(path))) {
        return;
    }

    uct_abi_has_gdrcopy = (dlopen(path, RTLD_LAZY | RTLD_NOLOAD) != NULL);
    if (uct_abi_has_gdrcopy) {
        return;
    }

    is_tried = 1;

    libucs = dlopen(uct_abi_host.libucs_path, RTLD_LAZY | RTLD_NOLOAD);
    if ((libucs == NULL) ||
        (uct_abi_module_open(caller_address, "libuct_cuda") == NULL)) {
        uct_abi_debug("%s is not loaded: %s", path, dlerror());
        return;
    }

    *(void**)&load_modules = dlsym(libucs, "ucs_load_modules");
    if (load_modules != NULL) {
        load_modules("uct_cuda", ":gdrcopy", init_once, 0);
    }
    uct_abi_has_gdrcopy = (dlopen(path, RTLD_LAZY | RTLD_NOLOAD) != NULL);
    uct_abi_debug("%s is %s", path,
                  uct_abi_has_gdrcopy ? "loaded beside this module" :
                                        "not loaded: is there a libgdrapi.so?");
    uct_abi_component_displace(&uct_abi_host);
}

void uct_abi_displace(const void *caller_address)
{
    const uct_abi_result_t *result;

    pthread_mutex_lock(&uct_abi_attach_lock);
    result = uct_abi_result_find(uct_abi_object_base(caller_address));
    if ((result != NULL) && (result->status == UCS_OK) &&
        !uct_abi_displaced) {
        uct_abi_displaced = 1;
        uct_abi_module_load_gdrcopy(caller_address);
        uct_abi_component_displace(&uct_abi_host);
    }
    pthread_mutex_unlock(&uct_abi_attach_lock);
}

/* UCX's module loader calls this after dlopen(). */
ucs_status_t ucs_module_global_init(void)
{
    const void *caller_address = __builtin_return_address(0);
    ucs_status_t status;

    status = uct_abi_attach(caller_address);
    if (status == UCS_OK) {
        uct_abi_module_load_gdrcopy(caller_address);
    } else {
        /* Our file stood in the place of the host's own module */
        uct_abi_module_load_stock(caller_address);
        /* otherwise UCX would unload the module, and the next attempt would
           warn again */
        uct_abi_module_pin();
    }

    return UCS_OK;
}
