/* SPDX-License-Identifier: BSD-3-Clause */
/* Symbols of what else is loaded in the process: this library has many names
 * in common with the MPI and what that uses. */
#ifndef UCX_MP_MPI_OBJECTS_H_
#define UCX_MP_MPI_OBJECTS_H_

#include <stdbool.h>


/* What `handle` (dlopen()'s, RTLD_NEXT) leads to by a name; NULL: nothing, or
   this library itself. */
void *ucx_mp_mpi_others_symbol(void *handle, const char *name);

/* Does this library show others a symbol of that name? */
bool ucx_mp_mpi_own_symbol(const char *name);

/* Are two addresses in one loaded object? */
bool ucx_mp_mpi_in_one_object(void *first, void *second);

/*
 * The handle of the first loaded object that is the one, which it keeps so;
 * NULL: none. Asked is outside of dl_iterate_phdr(): that takes its lock and
 * dlopen()'s the other way round.
 *
 * prefix  Of its file's name, without folders.
 */
void *ucx_mp_mpi_find_object(const char *prefix,
                             bool (*is_it)(void *handle, void *arg), void *arg);

/* A handle for dlsym() of a loaded object by which a name leads to somebody
   else's symbol, also of one that was loaded RTLD_LOCAL, and is kept so;
   NULL: none. */
void *ucx_mp_mpi_others_object(const char *name);

/* Somebody else's symbol, wherever it is; NULL: none. */
void *ucx_mp_mpi_symbol_of_others(const char *name);

#endif
