/* SPDX-License-Identifier: BSD-3-Clause */
/* Lookup of symbols in other loaded objects. This library and the MPI define
   many symbols of the same names: plain dlsym() could find the library's. */
#ifndef UCX_MP_MPI_SYMBOLS_H_
#define UCX_MP_MPI_SYMBOLS_H_

#include <stdbool.h>


/* Look up a symbol by `handle` (from dlopen(), or RTLD_NEXT). @return NULL if
   it is not found or belongs to this library. */
void *ucx_mp_mpi_others_symbol(void *handle, const char *name);

/* Return whether this library exports a symbol. */
bool ucx_mp_mpi_exports_symbol(const char *name);

/* Return whether two addresses belong to the same loaded object. */
bool ucx_mp_mpi_in_one_object(void *first, void *second);

/*
 * Find the first loaded object with a true `is_it`, and return a handle to keep
 * it loaded; NULL: none. `is_it` runs outside of
 * dl_iterate_phdr(): calling dlopen() in it could deadlock, since the two take
 * their locks in opposite order.
 *
 * @param prefix  Start of the file name, without folders.
 */
void *ucx_mp_mpi_find_object(const char *prefix,
                             bool (*is_it)(void *handle, void *arg), void *arg);

/* Return a handle by which dlsym() finds a symbol of another library:
   RTLD_NEXT, or that of a loaded object, also of one loaded with RTLD_LOCAL, to
   keep it loaded. NULL: none. */
void *ucx_mp_mpi_others_handle(const char *name);

/* Return the number of objects that this process has loaded so far; dlopen() of
   another one increases it. */
unsigned long long ucx_mp_mpi_objects_loaded(void);

/* Return another library's symbol from anywhere in the process; NULL: none. */
void *ucx_mp_mpi_symbol_of_others(const char *name);

#endif
