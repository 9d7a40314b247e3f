/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between two ranks whose datatype has gaps and leads to GPU memory.
 * A message travels as the type map's bytes in a row, so that the other rank
 * may have any datatype of the same signature, in any memory, and any MPI call.
 *
 * Elements in one allocation of a GPU are packed by a kernel into GPU memory,
 * from where UCX sends them. Others are packed into host memory by copies.
 * Bytes that lie in a row anyway are sent from where they are.
 */
#ifndef UCX_MP_MPI_MESSAGE_H_
#define UCX_MP_MPI_MESSAGE_H_

#include <mpi/call.h>


/* Whether elements of a predefined type lie without gaps, in a few
   nanoseconds. */
bool ucx_mp_mpi_message_is_plain(MPI_Datatype datatype);

/*
 * Whether the MPI takes a message as it is. MPICH moves messages to oneself
 * with the CPU, and the others leave them to UCX. Under Open MPI a predefined
 * type is all that is looked at: programs without a GPU pay for no more.
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

/* The status that a call is to fill: the program's, or `own` if it has none. */
static inline MPI_Status *ucx_mp_mpi_message_status(MPI_Status *status,
                                                    MPI_Status *own)
{
    return (status == MPI_STATUS_IGNORE) ? own : status;
}

/* Say how much has been received, by the status of the MPI's call. */
void ucx_mp_mpi_message_arrived(ucx_mp_mpi_call_t *call,
                                const MPI_Status *status);

#endif
