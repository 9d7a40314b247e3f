/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Find the calling UCX, and verify its release.
 *
 * Symbols decide wherever possible, not names of libraries: wheels add hashes
 * to the names, and a process may contain several UCX. A program linked against
 * UCX may own the copy of a variable (copy relocation) used by all libraries.
 */

#include "host.h"
#include "tables.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uct_abi_host_t uct_abi_host;

/* Paths of the loaded objects, each with its terminating zero */
typedef struct {
    char   *paths;
    size_t length;
} uct_abi_object_list_t;

long uct_abi_unsupported(void)
{
    return UCS_ERR_UNSUPPORTED;
}

long uct_abi_zero(void)
{
    return 0;
}

static struct link_map *uct_abi_object_find(const void *address)
{
    struct link_map *map;
    Dl_info info;

    if ((address == NULL) ||
        !dladdr1(address, &info, (void**)&map, RTLD_DL_LINKMAP)) {
        return NULL;
    }

    return map;
}

static int uct_abi_object_is_program(const struct link_map *map)
{
    return map->l_prev == NULL;
}

/* Return a handle of a loaded object. It is never closed, so that its symbols
   stay. */
static void *uct_abi_object_open(const struct link_map *map)
{
    return dlopen(uct_abi_object_is_program(map) ? NULL : map->l_name,
                  RTLD_LAZY | RTLD_NOLOAD);
}

const void *uct_abi_object_base(const void *address)
{
    Dl_info info;

    return ((address != NULL) && dladdr(address, &info)) ? info.dli_fbase :
                                                           NULL;
}

static int uct_abi_handle_defines(void *handle, const struct link_map *map,
                                  const char *symbol)
{
    void *value = dlsym(handle, symbol);

    return (value != NULL) && (uct_abi_object_find(value) == map);
}

int uct_abi_object_defines(const void *address, const char *symbol)
{
    struct link_map *map = uct_abi_object_find(address);
    void *handle         = (map == NULL) ? NULL : uct_abi_object_open(map);
    int result;

    if (handle == NULL) {
        return 0;
    }

    result = uct_abi_handle_defines(handle, map, symbol);
    dlclose(handle);
    return result;
}

ucs_status_t uct_abi_host_locate(const void *address, uct_abi_host_t *host_p)
{
    struct link_map *map = uct_abi_object_find(address);
    void *handle         = (map == NULL) ? NULL : uct_abi_object_open(map);
    struct link_map *libucs;

    if (handle == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    libucs = uct_abi_object_find(dlsym(handle, "ucs_log_dispatch"));
    if ((libucs == NULL) || uct_abi_object_is_program(libucs)) {
        dlclose(handle); /* no UCX, or a UCX that cannot load modules */
        return UCS_ERR_NO_ELEM;
    }

    host_p->libucs_base = uct_abi_object_base(
            dlsym(handle, "ucs_log_dispatch"));
    snprintf(host_p->libucs_path, sizeof(host_p->libucs_path), "%s",
             libucs->l_name);
    dlclose(handle);
    return UCS_OK;
}

static int uct_abi_object_collect(struct dl_phdr_info *info, size_t size,
                                  void *arg)
{
    const char *path            = info->dlpi_name;
    const size_t length         = (path == NULL) ? 0 : strlen(path);
    uct_abi_object_list_t *list = arg;
    char *paths;

    if (length == 0) {
        return 0;
    }

    paths = realloc(list->paths, list->length + length + 1);
    if (paths == NULL) {
        return 1;
    }

    memcpy(paths + list->length, path, length + 1);
    list->paths   = paths;
    list->length += length + 1;
    return 0;
}

/* Return whether this handle finds the host's libucs. */
static int uct_abi_handle_is_kin(void *handle, const uct_abi_host_t *host)
{
    return uct_abi_object_base(dlsym(handle, "ucs_log_dispatch")) ==
           host->libucs_base;
}

/* Open the loaded library of the host's UCX that defines the symbol. */
static void *
uct_abi_host_open_library(const uct_abi_host_t *host, const char *symbol)
{
    uct_abi_object_list_t list = {0};
    void *handle               = NULL;
    struct link_map *map;
    size_t i;

    dl_iterate_phdr(uct_abi_object_collect, &list);
    for (i = 0; (handle == NULL) && (i < list.length);
         i += strlen(list.paths + i) + 1) {
        handle = dlopen(list.paths + i, RTLD_LAZY | RTLD_NOLOAD);
        if ((handle != NULL) &&
            ((dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) ||
             !uct_abi_handle_defines(handle, map, symbol) ||
             !uct_abi_handle_is_kin(handle, host))) {
            dlclose(handle);
            handle = NULL;
        }
    }

    free(list.paths);
    return handle;
}

/* Load a libucp that lies beside libucs and depends on it. */
static void *uct_abi_host_load_libucp(const uct_abi_host_t *host)
{
    const char *slash = strrchr(host->libucs_path, '/');
    void *found       = NULL;
    char path[PATH_MAX];
    struct dirent *file;
    size_t length;
    void *handle;
    DIR *dir;

    if (slash == NULL) {
        return NULL;
    }

    length = (size_t)snprintf(path, sizeof(path), "%.*s",
                              (int)(slash - host->libucs_path),
                              host->libucs_path);
    dir    = opendir(path);
    if (dir == NULL) {
        return NULL;
    }

    while ((found == NULL) && ((file = readdir(dir)) != NULL)) {
        if ((strncmp(file->d_name, "libucp", 6) != 0) ||
            (strstr(file->d_name, ".so") == NULL)) {
            continue;
        }

        snprintf(path + length, sizeof(path) - length, "/%s", file->d_name);
        handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        if (handle == NULL) {
            continue;
        }

        if ((dlsym(handle, "ucp_get_version") != NULL) &&
            uct_abi_handle_is_kin(handle, host)) {
            found = handle;
        } else {
            dlclose(handle);
        }
    }

    closedir(dir);
    return found;
}

/* Get the version from libucp: no other library of UCX has it. */
static ucs_status_t uct_abi_host_version(const uct_abi_host_t *host,
                                         unsigned *major_p, unsigned *minor_p)
{
    void (*get_version)(unsigned *major, unsigned *minor, unsigned *release);
    unsigned release;
    void *libucp;

    libucp = uct_abi_host_open_library(host, "ucp_get_version");
    if (libucp == NULL) {
        libucp = uct_abi_host_load_libucp(host);
    }

    if (libucp == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    *(void**)&get_version = dlsym(libucp, "ucp_get_version");
    get_version(major_p, minor_p, &release);
    return UCS_OK;
}

/* Return the variable that the host itself uses: the program's copy, if there
   is one and the program is bound to this libucs. */
static void *uct_abi_host_variable(const uct_abi_host_t *host, void *libuct,
                                   const char *name)
{
    void *own     = dlsym(libuct, name);
    void *program = dlopen(NULL, RTLD_LAZY);
    struct link_map *map;
    void *copy;

    if (program == NULL) {
        return own;
    }

    if ((own != NULL) && uct_abi_handle_is_kin(program, host)) {
        copy = dlsym(program, name);
        map  = uct_abi_object_find(copy);
        if ((map != NULL) && uct_abi_object_is_program(map)) {
            own = copy;
        }
    }

    dlclose(program);
    return own;
}

/* Return a variable's size in bytes by the symbol table; 0: unknown. */
static size_t uct_abi_symbol_size(void *handle, const char *name)
{
    void *address = dlsym(handle, name);
    const ElfW(Sym) *entry;
    Dl_info info;

    if ((address == NULL) ||
        !dladdr1(address, &info, (void**)&entry, RTLD_DL_SYMENT) ||
        (entry == NULL) || (info.dli_saddr != address)) {
        return 0;
    }

    return entry->st_size;
}

static ucs_status_t uct_abi_host_load_symbols(uct_abi_host_t *host,
                                              void *libuct,
                                              const char **missing_p)
{
#define UCT_ABI_LOAD_OPTIONAL(_ret, _name, _args) \
    *(void**)&host->sym._name = dlsym(libuct, #_name);
#define UCT_ABI_LOAD_FUNCTION(_ret, _name, _args) \
    UCT_ABI_LOAD_OPTIONAL(_ret, _name, _args) \
    if (host->sym._name == NULL) { \
        *missing_p = #_name; \
        return UCS_ERR_NO_ELEM; \
    }
#define UCT_ABI_LOAD_VARIABLE(_type, _name) \
    host->sym._name = uct_abi_host_variable(host, libuct, #_name); \
    if (host->sym._name == NULL) { \
        *missing_p = #_name; \
        return UCS_ERR_NO_ELEM; \
    }

    UCT_ABI_FUNCTIONS(UCT_ABI_LOAD_FUNCTION)
    UCT_ABI_OPTIONAL_FUNCTIONS(UCT_ABI_LOAD_OPTIONAL)
    UCT_ABI_VARIABLES(UCT_ABI_LOAD_VARIABLE)
    return UCS_OK;
}

static uct_abi_fn_t uct_abi_symbol_find(void *libuct, const char *name)
{
    uct_abi_fn_t fn;

    *(void**)&fn = dlsym(libuct, name);
    return fn;
}

/* Compare the running libraries with the description of the release that they
   report. A snapshot between two releases, or a build with other options, must
   fail. Returns the difference, or NULL. */
static const char *uct_abi_host_verify(const uct_abi_host_t *host, void *libuct)
{
    const uct_abi_release_t *release = host->release;
    const uct_abi_release_t *next    = uct_abi_release_next(release);
    const struct {
        const char *name;
        size_t     size;
    } variables[] = {
        {"ucs_global_opts", (size_t)(*release->global_opts_size)[UCT_ABI_CPU]},
        {"uct_md_config_table", (size_t)release->field->size},
        {"uct_iface_config_table", (size_t)release->field->size * 6},
        {"uct_tcp_component", (size_t)release->component->size},
        {"uct_self_tl", (size_t)release->tl->size}
    };
    size_t size;
    unsigned i;

    if (dlsym(libuct, release->born_symbol) == NULL) {
        return release->born_symbol;
    }

    if ((next != NULL) && (dlsym(libuct, next->born_symbol) != NULL)) {
        return next->born_symbol;
    }

    if (host->sym.uct_base_iface_t_class->size != UCT_ABI_BASE_IFACE_SIZE) {
        return "uct_base_iface_t";
    }

    if (host->sym.uct_base_ep_t_class->size != sizeof(uct_abi_ep_t)) {
        return "uct_base_ep_t";
    }

    for (i = 0; i < sizeof(variables) / sizeof(variables[0]); ++i) {
        size = uct_abi_symbol_size(libuct, variables[i].name);
        if ((size != 0) && (size != variables[i].size)) {
            return variables[i].name;
        }
    }

    /* UCX's release branch may keep its number while its tables change: the
       last description may be too old */
    return (next != NULL) ? NULL :
                            uct_abi_tables_verify(release, uct_abi_symbol_find,
                                                  libuct);
}

/* Select the matching description among those of one number; if none matches,
   release remains the first. Returns the last one's difference, or NULL. */
static const char *uct_abi_host_choose(uct_abi_host_t *host, void *libuct)
{
    const uct_abi_release_t *first = host->release;
    const char *missing            = NULL;

    for (; (host->release != NULL) && (host->release->minor == first->minor);
         host->release = uct_abi_release_next(host->release)) {
        missing = uct_abi_host_verify(host, libuct);
        if (missing == NULL) {
            return NULL;
        }
    }

    host->release = first;
    return missing;
}

ucs_status_t uct_abi_host_identify(const void *address, uct_abi_host_t *host_p,
                                   char *reason, size_t max)
{
    unsigned major      = 0;
    unsigned minor      = 0;
    const char *missing = NULL;
    void *libuct;

    libuct = uct_abi_host_open_library(host_p, "uct_components_list");
    if (libuct == NULL) {
        snprintf(reason, max, "its libuct was not found");
        return UCS_ERR_UNSUPPORTED;
    }

    if (dlsym(libuct, "ucs_stats_node_alloc") != NULL) {
        snprintf(reason, max,
                 "it was built with statistics (--enable-stats), which lays "
                 "out its structures differently");
        return UCS_ERR_UNSUPPORTED;
    }

    if (uct_abi_host_version(host_p, &major, &minor) != UCS_OK) {
        snprintf(reason, max,
                 "its libucp, which would tell the version, was not found");
        return UCS_ERR_UNSUPPORTED;
    }

    host_p->release = (major == 1) ? uct_abi_release_find(minor) : NULL;
    if (host_p->release == NULL) {
        snprintf(reason, max,
                 "it is release %u.%u, and the releases known are 1.%u to 1.%u",
                 major, minor, UCT_ABI_RELEASE_FIRST, UCT_ABI_RELEASE_LAST);
        return UCS_ERR_UNSUPPORTED;
    }

    if (uct_abi_host_load_symbols(host_p, libuct, &missing) != UCS_OK) {
        snprintf(reason, max, "it says %u.%u but lacks the symbol %s", major,
                 minor, missing);
        goto err;
    }

    missing = uct_abi_host_choose(host_p, libuct);
    if (missing != NULL) {
        snprintf(reason, max, "it says %u.%u but differs from it in %s", major,
                 minor, missing);
        goto err;
    }

    return UCS_OK;

err:
    host_p->release = NULL;
    return UCS_ERR_UNSUPPORTED;
}

const char *uct_abi_host_name(void)
{
    return (uct_abi_host.release == NULL) ? "no UCX" : uct_abi_host.name;
}
