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

/* Predefined types without gaps by their handles; they are never freed */
extern MPI_Datatype ucx_mp_mpi_plain[UCX_MP_MPI_NUM_PLAIN];

static inline MPI_Datatype *ucx_mp_mpi_plain_entry(MPI_Datatype datatype)
{
    const uintptr_t key = (uintptr_t)datatype;

    return &ucx_mp_mpi_plain[(key ^ (key >> 4) ^ (key >> 9)) %
                             UCX_MP_MPI_NUM_PLAIN];
}

/* Ask the MPI, and keep the answer: slow part of the below. */
bool ucx_mp_mpi_message_find_plain(MPI_Datatype datatype);

/* Return in a nanosecond whether a type is predefined and has no gaps. */
static inline bool ucx_mp_mpi_message_is_plain(MPI_Datatype datatype)
{
    return __builtin_expect(
                   __atomic_load_n(ucx_mp_mpi_plain_entry(datatype),
                                   __ATOMIC_RELAXED) == datatype, 1) ||
           ucx_mp_mpi_message_find_plain(datatype);
}

/*
 * Return whether the MPI can handle a message by itself. MPICH moves messages
 * to oneself with the CPU; other messages go to UCX. Under Open MPI a
 * predefined type decides it: programs without a GPU pay for no other question.
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
           (!ucx_mp_mpi_is_own_rank(comm, peer) &&
            ucx_mp_mpi_message_is_plain(datatype));
#endif
}

/* Begin a call without asking for the communicator's ranks. */
void ucx_mp_mpi_message_begin(ucx_mp_mpi_call_t *call, const char *name,
                              MPI_Comm comm, unsigned flags);

/*
 * Describe the call's next buffer, unless the MPI can take it as it is.
 *
 * @param pointer_p, count_p, type_p  The wrapper's arguments, changed when the
 *                                    call is staged.
 * @param width                       Bytes of the count.
 */
void ucx_mp_mpi_message_buffer(ucx_mp_mpi_call_t *call, unsigned use, int peer,
                               void *pointer_p, void *count_p, size_t width,
                               MPI_Datatype *type_p);

/* Return the status for a call: the program's, or `own` if it has none. */
static inline MPI_Status *ucx_mp_mpi_message_status(MPI_Status *status,
                                                    MPI_Status *own)
{
    return (status == MPI_STATUS_IGNORE) ? own : status;
}

/* Say how much has been received, by the status of the MPI's call. */
void ucx_mp_mpi_message_arrived(ucx_mp_mpi_call_t *call,
                                const MPI_Status *status);

#endif
