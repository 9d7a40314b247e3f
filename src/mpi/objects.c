/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi/objects.h>

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>


typedef struct {
    const char *name;
    void       *handle;
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

/* What was loaded RTLD_LOCAL is seen through its own handle only */
static int has_symbol(struct dl_phdr_info *info, size_t size, void *arg)
{
    search_t *search = arg;

    (void)size;
    if ((info->dlpi_name == NULL) || (info->dlpi_name[0] == '\0')) {
        return 0;
    }

    search->handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    if (search->handle == NULL) {
        return 0;
    }

    if (ucx_mp_mpi_others_symbol(search->handle, search->name) != NULL) {
        return 1; /* the handle is kept: so is the object */
    }

    dlclose(search->handle);
    search->handle = NULL;
    return 0;
}

void *ucx_mp_mpi_others_object(const char *name)
{
    search_t search = {.name = name};

    dl_iterate_phdr(has_symbol, &search);
    return search.handle;
}

void *ucx_mp_mpi_symbol_of_others(const char *name)
{
    void *symbol = ucx_mp_mpi_others_symbol(RTLD_NEXT, name);
    void *handle = NULL;

    if (symbol == NULL) {
        handle = ucx_mp_mpi_others_object(name);
    }
    return (handle == NULL) ? symbol : ucx_mp_mpi_others_symbol(handle, name);
}
