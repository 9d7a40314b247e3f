/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/symbols.h>

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>


/* Names of matching objects, each with its terminating zero */
typedef struct {
    const char *prefix;
    char       *names;
    size_t     length;
} search_t;


static void *base_of(void *address)
{
    Dl_info info;

    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

bool ucx_mp_mpi_in_one_object(void *first, void *second)
{
    return base_of(first) == base_of(second);
}

void *ucx_mp_mpi_others_symbol(void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);

    return ((symbol != NULL) &&
            ucx_mp_mpi_in_one_object(symbol, (void*)base_of)) ?
                   NULL :
                   symbol;
}

bool ucx_mp_mpi_exports_symbol(const char *name)
{
    void *handle = NULL;
    void *symbol = NULL;
    Dl_info info;

    if (dladdr((void*)base_of, &info) != 0) {
        handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    if (handle != NULL) {
        symbol = dlsym(handle, name);
        dlclose(handle); /* drop the reference taken above */
    }
    return (symbol != NULL) &&
           ucx_mp_mpi_in_one_object(symbol, (void*)base_of);
}

static int note_name(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *name = (info->dlpi_name == NULL) ? "" : info->dlpi_name;
    const char *base = strrchr(name, '/');
    search_t *search = arg;
    const size_t length = strlen(name) + 1;
    char *names;

    base = (base == NULL) ? name : base + 1;
    if ((name[0] == '\0') ||
        (strncmp(base, search->prefix, strlen(search->prefix)) != 0)) {
        return 0;
    }

    names = realloc(search->names, search->length + length);
    if (names == NULL) {
        return 1;
    }

    memcpy(names + search->length, name, length);
    search->names   = names;
    search->length += length;
    return 0;
}

void *ucx_mp_mpi_find_object(const char *prefix,
                             bool (*is_it)(void *handle, void *arg), void *arg)
{
    search_t search = {.prefix = prefix};
    void *handle    = NULL;
    size_t i;

    dl_iterate_phdr(note_name, &search);
    for (i = 0; (handle == NULL) && (i < search.length);
         i += strlen(search.names + i) + 1) {
        handle = dlopen(search.names + i, RTLD_LAZY | RTLD_NOLOAD);
        if ((handle != NULL) && !is_it(handle, arg)) {
            dlclose(handle);
            handle = NULL;
        }
    }

    free(search.names);
    return handle;
}

static bool has_symbol(void *handle, void *arg)
{
    return ucx_mp_mpi_others_symbol(handle, arg) != NULL;
}

static int note_count(struct dl_phdr_info *info, size_t size, void *arg)
{
    *(unsigned long long*)arg = info->dlpi_adds;
    return 1; /* the same in each object's entry */
}

unsigned long long ucx_mp_mpi_objects_loaded(void)
{
    unsigned long long objects = 0;

    (void)dl_iterate_phdr(note_count, &objects);
    return objects;
}

/* RTLD_NEXT does not find an object loaded with RTLD_LOCAL: search all */
void *ucx_mp_mpi_others_handle(const char *name)
{
    return has_symbol(RTLD_NEXT, (void*)name) ?
                   RTLD_NEXT :
                   ucx_mp_mpi_find_object("", has_symbol, (void*)name);
}

void *ucx_mp_mpi_symbol_of_others(const char *name)
{
    void *handle = ucx_mp_mpi_others_handle(name);

    return (handle == NULL) ? NULL : ucx_mp_mpi_others_symbol(handle, name);
}
