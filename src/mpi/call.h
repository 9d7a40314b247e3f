/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One MPI call with buffers in GPU memory, made on host copies: copy the data
 * to read, make the MPI's call on the copies, and copy back only the bytes that
 * the call has written. Messages: message.h. Non-blocking calls: nonblocking.h.
 *
 * A copy is an image of its buffer, gaps included, so the call differs in one
 * pointer. If the image would be mostly gaps (a datatype with GPU memory and
 * distant other memory), the copy is packed, and the call gets new datatypes
 * and displacements (packed.h).
 *
 * A rank that cannot stage its buffers still takes part in the call, so that
 * other ranks do not hang, and returns an error. In a collective, ranks that
 * receive its data return an error, too (failure.h).
 *
 * Staging is local to a rank: it does not depend on the memory of other ranks'
 * buffers.
 *
 * A wrapper (written by generate.py) calls begin, describes its buffers, calls
 * stage, makes the MPI's call and calls end. If GPUs carry out the collective
 * (collective.h), it returns before stage.
 */
#ifndef UCX_MP_MPI_CALL_H_
#define UCX_MP_MPI_CALL_H_

#include <mpi/buffer.h>
#include <mpi/error.h>
#include <mpi/failure.h>
#include <mpi/pmpi.h>


#define UCX_MP_MPI_MAX_BUFFERS 3

/* Properties of a call */
typedef enum {
    UCX_MP_MPI_PACKS  = 1, /* may replace datatypes by others of the same size;
                              of a file: only if its data representation is
                              native */
    UCX_MP_MPI_JOINS  = 2, /* other ranks wait for this rank */
    UCX_MP_MPI_EMPTY  = 4, /* may carry no bytes after a failure */
    UCX_MP_MPI_AGAIN  = 8, /* persistent: each start copies the sent data */
    UCX_MP_MPI_HOST   = 16, /* the MPI moves the data with the CPU */
    UCX_MP_MPI_REDUCES = 32, /* staged under an Open MPI with CUDA, too */
    UCX_MP_MPI_MESSAGE = 64  /* point-to-point: the operation may wait for
                                another rank when its request is freed */
} ucx_mp_mpi_call_flags_t;

typedef struct {
    const char          *name;
    MPI_Comm            comm;
    unsigned            flags;
    MPI_Datatype        byte;
    MPI_File            *file_p;   /* address of the file argument; NULL: no
                                      file */
    int                 rc;        /* error of the MPI, already raised */
    int                 failed;    /* first staging error, already raised */
    bool                is_in_place;
    bool                is_apart;  /* buffers at one address get separate
                                      copies */
    bool                is_inter;  /* the communicator is an
                                      intercommunicator */
    bool                is_root;   /* this rank is the root */
    bool                is_member; /* this rank sends to the root or receives
                                      from it */
    ucx_mp_mpi_ordinal_t ordinal;
    int                 rank;      /* in the local group */
    int                 local;     /* number of ranks in the local group */
    int                 sources;   /* number of ranks that send to this one */
    int                 targets;   /* number of ranks that receive from this
                                      one */
    unsigned            num_buffers;
    ucx_mp_mpi_buffer_t buffers[UCX_MP_MPI_MAX_BUFFERS];
    size_t              arrived;   /* received size of a message, bytes */
    void                *packed;   /* packed host copy that is sent instead of a
                                      buffer, or NULL */
} ucx_mp_mpi_call_t;


/* Return whether this process uses GPUs, so that the call's pointers must be
   checked. Takes 17 ns before libcuda is loaded, because it looks for new
   objects in the process, and 2 to 3 ns afterwards. */
static inline bool ucx_mp_mpi_may_be_gpu(void)
{
    if (__builtin_expect(!__atomic_load_n(&ucx_mp_mpi_pmpi_found,
                                          __ATOMIC_ACQUIRE), 0)) {
        ucx_mp_mpi_pmpi_find();
    }

    return ucx_mp_mpi_gpu_is_used();
}

/* Return whether to make the MPI's own call unchanged: the process uses no GPU,
   or the MPI supports GPU memory itself. Pointers are not checked: the elements
   of a datatype at a host pointer may be in GPU memory. */
static inline bool ucx_mp_mpi_passes_through(void)
{
    return !ucx_mp_mpi_may_be_gpu() || !ucx_mp_mpi_pmpi.stages;
}


/* Return whether this process uses GPUs in front of an Open MPI with CUDA. */
static inline bool ucx_mp_mpi_assists(void)
{
    return ucx_mp_mpi_pmpi.assists && ucx_mp_mpi_may_be_gpu();
}


/* Begin a call without calling the MPI: rank, local, sources and targets stay
   0, and is_member is set. `flags`: ucx_mp_mpi_call_flags_t. */
void ucx_mp_mpi_call_init(ucx_mp_mpi_call_t *call, const char *name,
                          MPI_Comm comm, unsigned flags);

/* Begin a call and look up its communicator's rank and sizes: sources and
   targets are all ranks, in an intercommunicator the remote ones. An error of
   the MPI is in call->rc: the functions below then do nothing. */
void ucx_mp_mpi_call_begin(ucx_mp_mpi_call_t *call, const char *name,
                           MPI_Comm comm, unsigned flags);

/* Set is_root and is_member. */
void ucx_mp_mpi_call_root(ucx_mp_mpi_call_t *call, int root);

/* Set sources and targets from the communicator's topology. */
void ucx_mp_mpi_call_neighbors(ucx_mp_mpi_call_t *call);

/* Describe a buffer at `*pointer_p`, unless it is plain host memory: `count`
   contiguous elements. Describe the send buffer first: if it is MPI_IN_PLACE,
   the receive buffer is read, too. An error is kept in `call`. */
void ucx_mp_mpi_call_buffer(ucx_mp_mpi_call_t *call, unsigned use,
                            void *pointer_p, MPI_Count count,
                            MPI_Datatype *type_p);

/* Handle a failure `rc` to describe the call's next buffer: mark it as lost and
   raise an error; `too_large`: its text for too many bytes. An error of the MPI
   goes to call->rc. */
void ucx_mp_mpi_call_lose(ucx_mp_mpi_call_t *call, ucx_mp_mpi_buffer_t *buffer,
                          int rc, const char *too_large);

/* Describe likewise a buffer of one block per rank; 0 ranks: no bytes. */
void ucx_mp_mpi_call_blocks(ucx_mp_mpi_call_t *call, unsigned use,
                            void *pointer_p, ucx_mp_mpi_parts_t parts);

MPI_Count ucx_mp_mpi_sum(ucx_mp_mpi_vector_t counts, int ranks);

/* Return whether `rank` is the calling rank, or MPI_ANY_SOURCE and there is no
   other rank; false in an intercommunicator. */
bool ucx_mp_mpi_rank_is_self(MPI_Comm comm, int rank);

/* Copy the data to staging memory and point the wrapper's arguments there. A
   failure is raised, and reported to the other ranks of a collective.
   @return Whether to make the MPI's call: true even after a failure if other
           ranks wait for this one. The wrapper ends the call in any case. */
bool ucx_mp_mpi_call_stage(ucx_mp_mpi_call_t *call);

/*
 * Pack a send buffer with gaps in host memory and send the packed bytes. UCX
 * 1.13 and 1.14 abort when such a message arrives in managed memory or in the
 * sender's own GPU memory. Does nothing if both buffers are host memory, if
 * packing fails, or if MPICH must pack (basic types of several sizes).
 *
 * @param received  Receive buffer of the same call.
 *
 * @return  Number of elements to send; `*buffer_p` and `*datatype_p` are
 *          updated.
 */
MPI_Count ucx_mp_mpi_call_pack(ucx_mp_mpi_call_t *call, int peer,
                               const void **buffer_p, MPI_Count count,
                               MPI_Datatype *datatype_p, const void *received);

/* Copy all staged buffers and wait. UCX_MP_MPI_READ: from the program's memory
   to the copies. UCX_MP_MPI_WRITE: back, after a check for errors that other
   ranks reported. After an error, copy nothing. */
void ucx_mp_mpi_call_copy(ucx_mp_mpi_call_t *call, ucx_mp_mpi_use_t use);

/* Release all memory and datatypes of a call. */
void ucx_mp_mpi_call_free(ucx_mp_mpi_call_t *call);

/* Copy back if the MPI's call succeeded, and release everything. @return The
   wrapper's result: the first staging error, else call->rc. */
int ucx_mp_mpi_call_end(ucx_mp_mpi_call_t *call);

#endif
