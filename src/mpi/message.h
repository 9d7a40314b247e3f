/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between two ranks, of datatypes with gaps in GPU memory. The message
 * contains the bytes of the type map without gaps, so the other rank may use
 * any datatype of the same signature, any memory and any MPI call.
 *
 * If all elements are in one allocation of a GPU, a kernel packs them into GPU
 * memory, and UCX sends the packed bytes. Otherwise copies pack them into host
 * memory. Contiguous bytes are sent directly.
 *
 * An Open MPI with CUDA copies GPU memory piece by piece. Under such an MPI, a
 * kernel packs messages of many pieces or bytes in one allocation; the MPI gets
 * all others unchanged.
 *
 * generate.py writes the wrappers. MPI_Send(), for example, calls
 * ucx_mp_mpi_call_init(), ucx_mp_mpi_message_buffer(),
 * ucx_mp_mpi_call_stage(), the MPI's own function and ucx_mp_mpi_call_end().
 */
#ifndef UCX_MP_MPI_MESSAGE_H_
#define UCX_MP_MPI_MESSAGE_H_

#include <mpi/call.h>


/* Query the MPI about a datatype, and cache its limit. @return As
   ucx_mp_mpi_message_needs_no_packing(). */
bool ucx_mp_mpi_message_find_limit(MPI_Count count, MPI_Datatype datatype);

/*
 * Return whether the MPI shall send these elements as they are, in memory of
 * any kind: their datatype is predefined and has no gaps. In front of an Open
 * MPI with CUDA also if they have few pieces and bytes, or the process uses no
 * GPU. Takes about 1 ns if the limit is cached.
 */
static inline bool ucx_mp_mpi_message_needs_no_packing(MPI_Count count,
                                                       MPI_Datatype datatype)
{
    const ucx_mp_mpi_limit_t *limit = ucx_mp_mpi_limit_entry(datatype);

    return __builtin_expect((__atomic_load_n(&limit->datatype,
                                             __ATOMIC_RELAXED) == datatype) &&
                                    (count <=
                                     __atomic_load_n(&limit->most,
                                                     __ATOMIC_RELAXED)), 1) ||
           ucx_mp_mpi_message_find_limit(count, datatype);
}


/* Return whether an Open MPI with CUDA shall send a buffer as it is: it needs
   no packing, or is known to be host memory without asking the driver. */
static inline bool ucx_mp_mpi_message_is_passed(const void *buffer,
                                                MPI_Count count,
                                                MPI_Datatype datatype)
{
    return ucx_mp_mpi_message_needs_no_packing(count, datatype) ||
           ucx_mp_mpi_pointer_is_heap(buffer);
}

/*
 * Return whether to make the MPI's own call unchanged. MPICH copies a rank's
 * messages to itself with the CPU; UCX carries all others. With Open MPI the
 * datatype is checked first: for a predefined one, as in most programs without
 * GPUs, no other check is needed.
 */
static inline bool ucx_mp_mpi_message_passes_through(MPI_Comm comm, int peer,
                                                     const void *buffer,
                                                     MPI_Count count,
                                                     MPI_Datatype datatype)
{
#ifdef OPEN_MPI
    return ucx_mp_mpi_message_needs_no_packing(count, datatype) ||
           (ucx_mp_mpi_passes_through() &&
            (!ucx_mp_mpi_assists() || ucx_mp_mpi_pointer_is_heap(buffer)));
#else
    return ucx_mp_mpi_passes_through() ||
           (!ucx_mp_mpi_rank_is_self(comm, peer) &&
            ucx_mp_mpi_message_needs_no_packing(count, datatype));
#endif
}

/* Return the sender of a matched message: the calling rank's number in
   MPI_COMM_WORLD; or MPI_ANY_SOURCE, if another rank may have sent it, and
   always with Open MPI. */
int ucx_mp_mpi_message_peer(const MPI_Message *message);

/* Return whether the MPI can send partitions of a datatype from GPU memory.
   Open MPI can if they have no gaps or go to MPI_PROC_NULL; MPICH cannot. */
static inline bool ucx_mp_mpi_message_has_parts(int peer, MPI_Datatype datatype)
{
#ifdef OPEN_MPI
    return (peer == MPI_PROC_NULL) ||
           (datatype == ucx_mp_mpi_pmpi.datatype_null) ||
           ucx_mp_mpi_layout_is_array(datatype);
#else
    return false;
#endif
}

/*
 * Describe the call's next buffer for packing, unless the MPI can access it
 * itself. If all its bytes are contiguous, replace the arguments at once by a
 * buffer of bytes. An error is kept in `call`.
 *
 * @param pointer_p, count_p, type_p  Addresses of the wrapper's arguments,
 *                                    which staging changes.
 * @param width                       Size of the count, bytes.
 */
void ucx_mp_mpi_message_buffer(ucx_mp_mpi_call_t *call, unsigned use, int peer,
                               void *pointer_p, void *count_p, size_t width,
                               MPI_Datatype *type_p);

/* Describe the buffer of a call whose data the MPI copies during the call, such
   as a buffered send: by ucx_mp_mpi_call_buffer(), or in front of an Open MPI
   with CUDA by ucx_mp_mpi_message_buffer(). */
void ucx_mp_mpi_message_copied(ucx_mp_mpi_call_t *call, unsigned use,
                               void *pointer_p, void *count_p, size_t width,
                               MPI_Datatype *type_p);

/* Return the status to pass to the MPI: the program's, or `own` if it passed
   none. */
static inline MPI_Status *ucx_mp_mpi_message_status(MPI_Status *status,
                                                    MPI_Status *own)
{
    return (status == MPI_STATUS_IGNORE) ? own : status;
}

/* Return the packed size of the buffer to which only the received bytes of a
   message may be written; 0: none. */
size_t ucx_mp_mpi_message_partial(const ucx_mp_mpi_call_t *call);

/* Set the call's received bytes from the status of the MPI's call; 0 if the
   message was cancelled, or longer than the buffer. Does nothing if no buffer
   depends on it. */
void ucx_mp_mpi_message_arrived(ucx_mp_mpi_call_t *call,
                                const MPI_Status *status);

#endif
