/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of buffered messages. An MPI without CUDA accesses it with the CPU,
   and the program does not read it. So these wrappers attach host memory in
   place of GPU memory. */
#include <mpi/call.h>
#include <mpi/error.h>

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>


typedef struct attached {
    struct attached *next;
    void            *original;
    max_align_t      memory[];
} attached_t;

static pthread_mutex_t attached_lock = PTHREAD_MUTEX_INITIALIZER;
static attached_t     *attached_list;


static void attached_add(attached_t *attached)
{
    pthread_mutex_lock(&attached_lock);
    attached->next = attached_list;
    attached_list  = attached;
    pthread_mutex_unlock(&attached_lock);
}

/* Remove the entry of this host memory from the list; NULL: there is none. */
static attached_t *attached_take(const void *memory)
{
    attached_t **entry_p = &attached_list;
    attached_t *attached;

    pthread_mutex_lock(&attached_lock);
    while ((*entry_p != NULL) && ((*entry_p)->memory != memory)) {
        entry_p = &(*entry_p)->next;
    }
    attached = *entry_p;
    if (attached != NULL) {
        *entry_p = attached->next;
    }
    pthread_mutex_unlock(&attached_lock);
    return attached;
}

/* Return the error of a call of MPI 4.1 that an older MPI lacks */
static int lacks(const char *name)
{
    return ucx_mp_mpi_raise(ucx_mp_mpi_pmpi.comm_world, MPI_ERR_OTHER,
                            "%s: this MPI lacks it", name);
}

#define JUST(...) __VA_ARGS__

/* Define both calls. `_of`, `_of_decl`: arguments before the buffer, each with
   a comma, in parentheses. */
#define DEFINE(_attach, _detach, _size_t, _of, _of_decl) \
    UCX_MP_MPI_DEFINE(_attach, (JUST _of buffer, size), \
                      JUST _of_decl void *buffer, _size_t size) \
    { \
        attached_t *attached; \
        int rc; \
        \
        ucx_mp_mpi_pmpi_find_calls(); \
        if (ucx_mp_mpi_pmpi._attach == NULL) { \
            return lacks("MPI_" #_attach); \
        } \
        \
        if (ucx_mp_mpi_passes_through() || (size < 0) || \
            !ucx_mp_mpi_pointer_is_gpu(buffer)) { \
            return ucx_mp_mpi_pmpi._attach(JUST _of buffer, size); \
        } \
        \
        attached = malloc(sizeof(*attached) + size); \
        if (attached == NULL) { \
            return ucx_mp_mpi_raise(ucx_mp_mpi_pmpi.comm_world, \
                                    MPI_ERR_NO_MEM, \
                                    "MPI_" #_attach ": no host memory in " \
                                    "place of %lld bytes of GPU memory", \
                                    (long long)size); \
        } \
        \
        attached->original = buffer; \
        attached_add(attached); \
        rc = ucx_mp_mpi_pmpi._attach(JUST _of attached->memory, size); \
        if (rc != MPI_SUCCESS) { \
            free(attached_take(attached->memory)); \
        } \
        return rc; \
    } \
    \
    UCX_MP_MPI_DEFINE(_detach, (JUST _of buffer_p, size_p), \
                      JUST _of_decl void *buffer_p, _size_t *size_p) \
    { \
        attached_t *attached; \
        int rc; \
        \
        ucx_mp_mpi_pmpi_find_calls(); \
        if (ucx_mp_mpi_pmpi._detach == NULL) { \
            return lacks("MPI_" #_detach); \
        } \
        \
        rc       = ucx_mp_mpi_pmpi._detach(JUST _of buffer_p, size_p); \
        attached = (rc == MPI_SUCCESS) ? attached_take(*(void**)buffer_p) : \
                                         NULL; \
        if (attached != NULL) { \
            *(void**)buffer_p = attached->original; \
            free(attached); \
        } \
        return rc; \
    }

DEFINE(Buffer_attach, Buffer_detach, int, (), ())
#if MPI_VERSION >= 4
DEFINE(Buffer_attach_c, Buffer_detach_c, MPI_Count, (), ())
#ifndef OPEN_MPI
DEFINE(Comm_attach_buffer, Comm_detach_buffer, int, (comm, ), (MPI_Comm comm, ))
DEFINE(Comm_attach_buffer_c, Comm_detach_buffer_c, MPI_Count, (comm, ),
       (MPI_Comm comm, ))
DEFINE(Session_attach_buffer, Session_detach_buffer, int, (session, ),
       (MPI_Session session, ))
DEFINE(Session_attach_buffer_c, Session_detach_buffer_c, MPI_Count, (session, ),
       (MPI_Session session, ))
#endif
#endif
