/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between two ranks, of datatypes with gaps in GPU memory. A message
 * travels as the type map's bytes in a row. The other rank may use any datatype
 * of the same signature, any memory and any MPI call.
 *
 * A kernel packs elements in one allocation of a GPU into GPU memory, and UCX
 * sends the packed bytes. Copies pack other elements into host memory. Bytes
 * already in a row are sent directly.
 */
#ifndef UCX_MP_MPI_MESSAGE_H_
#define UCX_MP_MPI_MESSAGE_H_

#include <mpi/call.h>


#define UCX_MP_MPI_NUM_PLAIN 64

/* Predefined datatypes without gaps, hashed by handle; these are never freed */
extern MPI_Datatype ucx_mp_mpi_plain[UCX_MP_MPI_NUM_PLAIN];

static inline MPI_Datatype *ucx_mp_mpi_plain_entry(MPI_Datatype datatype)
{
    const uintptr_t key = (uintptr_t)datatype;

    return &ucx_mp_mpi_plain[(key ^ (key >> 4) ^ (key >> 9)) %
                             UCX_MP_MPI_NUM_PLAIN];
}

/* Ask the MPI whether a datatype is predefined and has no gaps, and cache a
   positive answer. @return false, too, if the MPI supports GPU memory
   itself. */
bool ucx_mp_mpi_message_find_plain(MPI_Datatype datatype);

/* Return whether a datatype is predefined and has no gaps; takes about 1 ns if
   that is cached. Otherwise as ucx_mp_mpi_message_find_plain(). */
static inline bool ucx_mp_mpi_message_is_plain(MPI_Datatype datatype)
{
    return __builtin_expect(
                   __atomic_load_n(ucx_mp_mpi_plain_entry(datatype),
                                   __ATOMIC_RELAXED) == datatype, 1) ||
           ucx_mp_mpi_message_find_plain(datatype);
}

/*
 * Return whether to make the MPI's own call unchanged. MPICH copies messages to
 * the own rank with the CPU; UCX carries all others. With Open MPI, check the
 * datatype first: a predefined one decides, and programs without GPUs pay for
 * no second check.
 */
static inline bool ucx_mp_mpi_message_is_straight(MPI_Comm comm, int peer,
                                                  MPI_Datatype datatype)
{
#ifdef OPEN_MPI
    (void)comm;
    (void)peer;
    return ucx_mp_mpi_message_is_plain(datatype) || ucx_mp_mpi_is_straight();
#else
    return ucx_mp_mpi_is_straight() ||
           (!ucx_mp_mpi_is_self(comm, peer) &&
            ucx_mp_mpi_message_is_plain(datatype));
#endif
}

/* Begin a point-to-point call, as ucx_mp_mpi_call_init(): no lookup of the
   communicator's ranks. */
void ucx_mp_mpi_message_begin(ucx_mp_mpi_call_t *call, const char *name,
                              MPI_Comm comm, unsigned flags);

/*
 * Describe the call's next buffer, unless the MPI can handle it in place: as it
 * is, or, if its bytes are in a row, as bytes, which changes the arguments at
 * once. An error is kept in `call`.
 *
 * @param pointer_p, count_p, type_p  Addresses of the wrapper's arguments,
 *                                    which staging changes.
 * @param width                       Size of the count, bytes.
 */
void ucx_mp_mpi_message_buffer(ucx_mp_mpi_call_t *call, unsigned use, int peer,
                               void *pointer_p, void *count_p, size_t width,
                               MPI_Datatype *type_p);

/* Return the status to pass to the MPI: the program's, or `own` if it passed
   none. */
static inline MPI_Status *ucx_mp_mpi_message_status(MPI_Status *status,
                                                    MPI_Status *own)
{
    return (status == MPI_STATUS_IGNORE) ? own : status;
}

/* Set the call's received bytes from the status of the MPI's call; 0 if the
   message was cancelled. Does nothing if no buffer depends on it. */
void ucx_mp_mpi_message_arrived(ucx_mp_mpi_call_t *call,
                                const MPI_Status *status);

#endif
