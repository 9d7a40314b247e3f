/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libucx_mp_preload.so: loads the module into a UCX whose module folder cannot
 * be set.
 *
 * It interposes ucs_load_modules(). Every call continues to the function of the
 * calling UCX. When this UCX is about to load its transports, our module is
 * attached first, and "cuda" is removed from the list, so that a stock module
 * of this name is not loaded. UCX_MP_MODULE names another file than
 * libuct_cuda.so beside this one.
 */

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UCX_MP_PRELOAD_HOSTS_MAX 64

typedef void (*ucx_mp_load_modules_t)(const char *framework,
                                      const char *modules, void *init_once,
                                      unsigned flags);
typedef signed char (*ucx_mp_attach_t)(const void *caller_address);
typedef void (*ucx_mp_displace_t)(const void *caller_address);

/* The real function for callers in one library. */
typedef struct {
    const void            *base;
    ucx_mp_load_modules_t load_modules;
} ucx_mp_preload_host_t;

static pthread_mutex_t ucx_mp_preload_lock = PTHREAD_MUTEX_INITIALIZER;
static ucx_mp_preload_host_t ucx_mp_preload_hosts[UCX_MP_PRELOAD_HOSTS_MAX];
static unsigned ucx_mp_preload_num_hosts;
static int ucx_mp_preload_module_tried;
static ucx_mp_attach_t ucx_mp_preload_attach;
static ucx_mp_displace_t ucx_mp_preload_displace;

__attribute__((visibility("default"))) void
ucs_load_modules(const char *framework, const char *modules, void *init_once,
                 unsigned flags);

/* Return the function as a loaded library finds it, even if the library's
   symbols are not visible to others. NULL: not found, or only ours. */
static ucx_mp_load_modules_t ucx_mp_preload_seen_by(void *library)
{
    ucx_mp_load_modules_t found;

    *(void**)&found = dlsym(library, "ucs_load_modules");
    return (found == (ucx_mp_load_modules_t)ucs_load_modules) ? NULL : found;
}

static const void *ucx_mp_preload_base(const void *address)
{
    Dl_info info;

    return ((address != NULL) && dladdr(address, &info)) ? info.dli_fbase :
                                                           NULL;
}

/* Find the function for libucm, which calls it without being linked to libucs:
   through a library of this UCX that finds both. */
static ucx_mp_load_modules_t ucx_mp_preload_beside(const struct link_map *map,
                                                   const void *caller)
{
    ucx_mp_load_modules_t found = NULL;
    void *handle;

    for (; (map != NULL) && (found == NULL); map = map->l_next) {
        handle = (map->l_name[0] == '\0') ?
                         NULL :
                         dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        if (handle == NULL) {
            continue;
        }
        if (ucx_mp_preload_base(dlsym(handle, "ucm_set_event_handler")) ==
            ucx_mp_preload_base(caller)) {
            found = ucx_mp_preload_seen_by(handle);
        }
        dlclose(handle);
    }

    return found;
}

/* Return the function as the library at this address finds it. */
static ucx_mp_load_modules_t ucx_mp_preload_resolve(const void *caller)
{
    ucx_mp_load_modules_t found = NULL;
    struct link_map *map;
    Dl_info info;
    void *handle;

    if (dladdr1(caller, &info, (void**)&map, RTLD_DL_LINKMAP) &&
        (map->l_name[0] != '\0')) {
        handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL) {
            found = ucx_mp_preload_seen_by(handle);
        }
        if (found == NULL) {
            while (map->l_prev != NULL) {
                map = map->l_prev;
            }
            found = ucx_mp_preload_beside(map, caller);
        }
    }

    if (found == NULL) {
        *(void**)&found = dlsym(RTLD_NEXT, "ucs_load_modules");
    }

    return found;
}

static ucx_mp_load_modules_t ucx_mp_preload_forward(const void *caller)
{
    ucx_mp_load_modules_t found;
    Dl_info info;
    unsigned i;

    if (!dladdr(caller, &info)) {
        info.dli_fbase = NULL;
    }

    pthread_mutex_lock(&ucx_mp_preload_lock);
    for (i = 0; i < ucx_mp_preload_num_hosts; ++i) {
        if (ucx_mp_preload_hosts[i].base == info.dli_fbase) {
            found = ucx_mp_preload_hosts[i].load_modules;
            goto out_unlock;
        }
    }

    found = ucx_mp_preload_resolve(caller);
    if ((found != NULL) &&
        (ucx_mp_preload_num_hosts < UCX_MP_PRELOAD_HOSTS_MAX)) {
        ucx_mp_preload_hosts[ucx_mp_preload_num_hosts].base = info.dli_fbase;
        ucx_mp_preload_hosts[ucx_mp_preload_num_hosts].load_modules = found;
        ++ucx_mp_preload_num_hosts;
    }

out_unlock:
    pthread_mutex_unlock(&ucx_mp_preload_lock);
    return found;
}

/* Load the module, once. */
static void ucx_mp_preload_module(void)
{
    const char *file = getenv("UCX_MP_MODULE");
    char path[PATH_MAX];
    const char *slash;
    Dl_info info;
    void *module;

    if ((file == NULL) || (file[0] == '\0')) {
        if (!dladdr(&ucx_mp_preload_module_tried, &info)) {
            return;
        }
        slash = strrchr(info.dli_fname, '/');
        snprintf(path, sizeof(path), "%.*slibuct_cuda.so",
                 (slash == NULL) ? 0 : (int)(slash + 1 - info.dli_fname),
                 info.dli_fname);
        file = path;
    }

    module = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (module == NULL) {
        fprintf(stderr, "libucx_mp_preload: the CUDA module is not used: %s\n",
                dlerror());
        return;
    }

    *(void**)&ucx_mp_preload_displace = dlsym(module, "uct_abi_displace");
    *(void**)&ucx_mp_preload_attach   = dlsym(module, "uct_abi_attach");
    if ((ucx_mp_preload_attach == NULL) || (ucx_mp_preload_displace == NULL)) {
        fprintf(stderr,
                "libucx_mp_preload: the CUDA module is not used: %s is not "
                "libuct_cuda.so of ucx-cuda-multipath\n", file);
        ucx_mp_preload_attach = NULL;
    }
}

static int ucx_mp_preload_attach_module(const void *caller)
{
    ucx_mp_attach_t attach;

    pthread_mutex_lock(&ucx_mp_preload_lock);
    if (!ucx_mp_preload_module_tried) {
        ucx_mp_preload_module_tried = 1;
        ucx_mp_preload_module();
    }
    attach = ucx_mp_preload_attach;
    pthread_mutex_unlock(&ucx_mp_preload_lock);

    return (attach != NULL) && (attach(caller) == 0);
}

/* Return the list "a:b:c" without "cuda", from malloc(); NULL if out of
   memory. */
static char *ucx_mp_preload_strip(const char *modules)
{
    char *result = malloc(strlen(modules) + 1);
    char *out    = result;
    size_t length;

    if (result == NULL) {
        return NULL;
    }

    while (*modules != '\0') {
        length = strcspn(modules, ":");
        if ((length > 0) &&
            ((length != 4) || (memcmp(modules, "cuda", 4) != 0))) {
            if (out != result) {
                *out++ = ':';
            }
            memcpy(out, modules, length);
            out += length;
        }
        modules += length;
        modules += (*modules == ':');
    }

    *out = '\0';
    return result;
}

void ucs_load_modules(const char *framework, const char *modules,
                      void *init_once, unsigned flags)
{
    /* The argument lies in the calling library. A return address may not: the
       call may be a function's last action */
    const void *caller = init_once;
    ucx_mp_load_modules_t forward;
    char *stripped = NULL;
    int attached   = 0;

    forward = ucx_mp_preload_forward(caller);

    if ((framework != NULL) && (strcmp(framework, "uct") == 0)) {
        attached = ucx_mp_preload_attach_module(caller);
        if (attached && (modules != NULL)) {
            stripped = ucx_mp_preload_strip(modules);
        }
    }

    if (forward != NULL) {
        forward(framework, (stripped != NULL) ? stripped : modules, init_once,
                flags);
    }

    free(stripped);
    if (attached) {
        ucx_mp_preload_displace(caller);
    }
}
