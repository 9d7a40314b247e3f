/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Find a node's file by name or path.
 */

#include "cuemu_core.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifndef CUEMU_NODES_DIR /* folder of installed nodes, set by the build */
#  define CUEMU_NODES_DIR ""
#endif

static int cuemu_path_is_file(const char *path)
{
    struct stat st;

    return (stat(path, &st) == 0) && S_ISREG(st.st_mode);
}

/* Find NAME.xml, or NAME, in the folder `dir``sub` and write its path to
   `path_p`. Return 1; 0 if neither exists, the path is too long, or `dir` is
   NULL or empty. */
static int cuemu_node_try(const char *dir, const char *sub, const char *name,
                          char *path_p, size_t path_size)
{
    static const char *const suffixes[] = {".xml", ""};
    size_t i;
    int n;

    if ((dir == NULL) || (dir[0] == '\0')) {
        return 0;
    }
    for (i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); ++i) {
        n = snprintf(path_p, path_size, "%s%s/%s%s", dir, sub, name,
                     suffixes[i]);
        if ((n > 0) && ((size_t)n < path_size) && cuemu_path_is_file(path_p)) {
            return 1;
        }
    }
    return 0;
}

cuemu_status_t cuemu_node_find(const char *name, const char *libdir,
                               char *path_p, size_t path_size, char *errbuf)
{
    const char *env = getenv("CUEMU_NODES");

    errbuf[0] = '\0';
    if ((strchr(name, '/') != NULL) || cuemu_path_is_file(name)) {
        if (strlen(name) >= path_size) {
            snprintf(errbuf, CUEMU_ERRBUF_SIZE, "path of node too long");
            return CUEMU_ERR_INVALID;
        }
        strcpy(path_p, name);
        return CUEMU_OK;
    }

    if ((name[0] != '\0') &&
        (cuemu_node_try(env, "", name, path_p, path_size) ||
         cuemu_node_try(libdir, "/../nodes", name, path_p, path_size) ||
         cuemu_node_try(libdir, "/nodes", name, path_p, path_size) ||
         cuemu_node_try(CUEMU_NODES_DIR, "", name, path_p, path_size))) {
        return CUEMU_OK;
    }

    snprintf(errbuf, CUEMU_ERRBUF_SIZE,
             "no node named \"%.64s\": looked in CUEMU_NODES%s%.64s, in nodes "
             "beside the library, and in %.80s", name,
             (env == NULL) ? "" : "=", (env == NULL) ? "" : env,
             CUEMU_NODES_DIR);
    return CUEMU_ERR_IO;
}

/* Return the folder of the library that this file is linked into, in `path`;
   NULL if unknown. */
static const char *cuemu_node_libdir(char *path, size_t size)
{
    Dl_info info;
    char *slash;

    if ((dladdr((void*)cuemu_node_load_env, &info) == 0) ||
        (info.dli_fname == NULL)) {
        return NULL;
    }

    snprintf(path, size, "%s", info.dli_fname);
    slash = strrchr(path, '/');
    if (slash == NULL) {
        return NULL;
    }
    *slash = '\0';
    return path;
}

cuemu_status_t cuemu_node_load_env(cuemu_node_t *node_p, char *errbuf)
{
    const char *name = getenv("CUEMU_NODE");
    char path[4096], libdir[4096];
    cuemu_status_t status;

    if ((name == NULL) || (name[0] == '\0')) {
        snprintf(errbuf, CUEMU_ERRBUF_SIZE,
                 "CUEMU_NODE is not set: name of a node or path of an NCCL "
                 "topology file");
        return CUEMU_ERR_INVALID;
    }

    status = cuemu_node_find(name, cuemu_node_libdir(libdir, sizeof(libdir)),
                             path, sizeof(path), errbuf);
    if (status != CUEMU_OK) {
        return status;
    }
    return cuemu_node_load(path, node_p, errbuf);
}
