/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI calls that start an operation on GPU buffers: non-blocking and persistent
 * messages and collectives, split file operations. They are the MPI's own calls
 * on staged buffers. Received data is copied back when the request completes:
 * this library wraps MPI_Wait, MPI_Test, MPI_Request_get_status and their
 * variants, and MPI_File_..._end, too.
 *
 * A tool or library must complete requests through the MPI_ or PMPI_ functions.
 * Otherwise received data is not copied back.
 */
#ifndef UCX_MP_MPI_NONBLOCKING_H_
#define UCX_MP_MPI_NONBLOCKING_H_

#include <mpi/call.h>


/* True while this thread is in the MPI's progress function: do not call it
   again. */
extern __thread bool ucx_mp_mpi_in_progress;

/* A request completed by this library, not by the MPI */
typedef struct ucx_mp_mpi_pending ucx_mp_mpi_pending_t;

/* Record a request completed by this library, until
   ucx_mp_mpi_nonblocking_over(). Wrapped Test and Wait calls call `advance`
   meanwhile: one function for all requests. Aborts without memory. */
ucx_mp_mpi_pending_t *
ucx_mp_mpi_nonblocking_track(const char *name, MPI_Request request,
                             void (*advance)(void));

/* Record that the request completes, before MPI_Grequest_complete(). `rc`:
   MPI_SUCCESS, or the error for the program's completing call to raise on
   MPI_COMM_WORLD (the communicator may have been freed) and to return. Do not
   use `pending` afterwards. */
void ucx_mp_mpi_nonblocking_over(ucx_mp_mpi_pending_t *pending, int rc);

/* A persistent request started by this library, not by the MPI */
typedef struct {
    /* Start the operation. Set `*active_p` to a request that completes with
       it. @return The result for MPI_Start(). */
    int  (*start)(void *arg, MPI_Request *active_p);
    void (*destroy)(void *arg);
} ucx_mp_mpi_startable_t;

/* Record that `request`, a persistent request that the MPI never starts, stands
   for this operation until the program frees it. Wrapped Test and Wait calls
   complete the active request in its place. Aborts without memory. */
void ucx_mp_mpi_nonblocking_keep(MPI_Request request,
                                 const ucx_mp_mpi_startable_t *startable,
                                 void *arg);

/* Number of messages whose requests the program has freed before they were
   complete, until their data is in the program's buffers */
extern unsigned ucx_mp_mpi_freed __attribute__((visibility("hidden")));

/* Finish those that are complete: copy received data to the program's buffers.
   If another thread does so, wait for it. Test each receive up to `tries`
   times. */
void ucx_mp_mpi_freed_poll(unsigned tries);

/* Do so at the end of a call that waits for other ranks: the program may
   conclude from it that such data has arrived. The MPI may complete the receive
   later: after a later message, Open MPI 5 needed up to five tests while
   another thread was in the MPI. @return `rc`. */
static inline int ucx_mp_mpi_freed_end(int rc)
{
    if (__builtin_expect(__atomic_load_n(&ucx_mp_mpi_freed,
                                         __ATOMIC_ACQUIRE) != 0, 0)) {
        ucx_mp_mpi_freed_poll(32);
    }
    return rc;
}


/* Each of these returns the wrapper's result, like ucx_mp_mpi_call_end(), and
   keeps a copy of the call. */

/* Keep the call until its non-blocking `request` completes. End it at once if
   the request is complete, nothing is staged, or the MPI's call failed. */
int ucx_mp_mpi_nonblocking_defer(ucx_mp_mpi_call_t *call, MPI_Request *request);

/* Keep the call of a persistent `request` until the program frees it. */
int ucx_mp_mpi_call_again(ucx_mp_mpi_call_t *call, MPI_Request *request);

/* Keep the call of MPI_File_..._begin until ..._end on the same file. */
int ucx_mp_mpi_call_split(ucx_mp_mpi_call_t *call, MPI_File file);

#endif
