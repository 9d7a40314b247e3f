/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One MPI call with buffers in GPU memory, carried out on staged copies. The
 * copies get the bytes read by the call, the MPI makes the same call on them,
 * and the bytes written by the call, no others, are copied back. Messages are
 * described in message.h, non-blocking calls in nonblocking.h.
 *
 * A copy is an image of its buffer, gaps included, so only a pointer differs in
 * the call. If gaps are most of the image (GPU memory and memory far away in
 * one datatype), it is packed, and the call gets datatypes and displacements of
 * the packed copy (packed.h).
 *
 * A rank unable to stage its buffers still takes part in the call and returns
 * an error: the other ranks do not wait for it. In a collective, the ranks that
 * depend on its data return an error, too (failure.h).
 *
 * Each rank stages for itself and makes the same call of its MPI. Nothing has
 * to be agreed on: other ranks' buffers may be anywhere.
 *
 * A wrapper (written by generate.py) calls begin, describes its buffers, and
 * makes the MPI's call between stage and end. A collective carried out by GPUs
 * returns between the last description and stage.
 */
#ifndef UCX_MP_MPI_CALL_H_
#define UCX_MP_MPI_CALL_H_

#include <mpi/buffer.h>
#include <mpi/error.h>
#include <mpi/failure.h>
#include <mpi/pmpi.h>

#include <stdint.h>


#define UCX_MP_MPI_MAX_BUFFERS 2

/* Properties of a call */
typedef enum {
    UCX_MP_MPI_PACKS  = 1, /* datatypes may become others of as many bytes; of
                              a file, if it has them as they are in memory */
    UCX_MP_MPI_JOINS  = 2, /* other ranks wait for this one's part */
    UCX_MP_MPI_EMPTY  = 4, /* it may have no bytes */
    UCX_MP_MPI_AGAIN  = 8, /* each start reads the sent data */
    UCX_MP_MPI_HOST   = 16 /* the CPU moves all of it */
} ucx_mp_mpi_call_flags_t;

typedef struct {
    const char          *name;
    MPI_Comm            comm;
    unsigned            flags;
    MPI_Datatype        byte;
    MPI_File            *file_p;   /* of a call with a file; else NULL */
    int                 rc;        /* the MPI's failure, raised already */
    int                 failed;    /* first failure in staging, likewise */
    bool                is_message; /* between two ranks */
    bool                is_in_place;
    bool                is_apart;  /* one pointer for two buffers means two
                                      copies */
    bool                is_root;   /* source or destination of all */
    bool                is_member; /* sends to or receives from the root */
    ucx_mp_mpi_ordinal_t ordinal;
    int                 rank;      /* in the (local) group */
    int                 local;     /* ranks of the group */
    int                 sources;   /* ranks sending to this one */
    int                 targets;   /* ranks receiving from this one */
    unsigned            num_buffers;
    ucx_mp_mpi_buffer_t buffers[UCX_MP_MPI_MAX_BUFFERS];
    size_t              arrived;   /* received bytes of a message */
    void                *packed;   /* sent instead of a buffer */
} ucx_mp_mpi_call_t;


/* Whether a call's pointers have to be looked at, since this process uses GPUs.
   Asked once a call: until there is a driver, it takes 17 ns. */
static inline bool ucx_mp_mpi_may_be_gpu(void)
{
    if (__builtin_expect(!__atomic_load_n(&ucx_mp_mpi_pmpi_found,
                                          __ATOMIC_ACQUIRE), 0)) {
        ucx_mp_mpi_pmpi_find();
    }

    return ucx_mp_mpi_gpu_is_used();
}

/* Whether the call is the MPI's own affair, whatever its pointers: a datatype
   may lead from host memory to a GPU's. */
static inline bool ucx_mp_mpi_is_straight(void)
{
    return !ucx_mp_mpi_may_be_gpu() || !ucx_mp_mpi_pmpi.stages;
}


/* Begin a call; every rank is a member. `flags`: ucx_mp_mpi_call_flags_t. */
void ucx_mp_mpi_call_init(ucx_mp_mpi_call_t *call, const char *name,
                          MPI_Comm comm, unsigned flags);

/* Begin a call, and ask for the ranks of its communicator. */
void ucx_mp_mpi_call_begin(ucx_mp_mpi_call_t *call, const char *name,
                           MPI_Comm comm, unsigned flags);

/* The call has a root: sets is_root and is_member. */
void ucx_mp_mpi_call_root(ucx_mp_mpi_call_t *call, int root);

/* The call is between neighbours: sets sources and targets. */
void ucx_mp_mpi_call_neighbors(ucx_mp_mpi_call_t *call);

/*
 * Describes a buffer, MPI_IN_PLACE too: sending buffer first.
 *
 * ucx_mp_mpi_call_buffer: `count` elements in a row.
 * ucx_mp_mpi_call_vector: `ranks` parts, displacements in extents.
 * ucx_mp_mpi_call_types:  `ranks` parts, displacements in bytes.
 */
void ucx_mp_mpi_call_buffer(ucx_mp_mpi_call_t *call, unsigned use,
                            void *pointer_p, MPI_Count count,
                            MPI_Datatype *type_p);
void ucx_mp_mpi_call_vector(ucx_mp_mpi_call_t *call, unsigned use,
                            void *pointer_p, int ranks,
                            ucx_mp_mpi_vector_t counts,
                            ucx_mp_mpi_vector_t displs, MPI_Datatype *type_p);
void ucx_mp_mpi_call_types(ucx_mp_mpi_call_t *call, unsigned use,
                           void *pointer_p, int ranks,
                           ucx_mp_mpi_vector_t counts,
                           ucx_mp_mpi_vector_t displs,
                           const MPI_Datatype **types_p);

MPI_Count ucx_mp_mpi_sum(ucx_mp_mpi_vector_t counts, int ranks);

/* Return whether a rank is the caller; false in an intercommunicator. */
bool ucx_mp_mpi_is_own_rank(MPI_Comm comm, int rank);

/* Copies in and points the wrapper's arguments to the copies. Whether the
   MPI's call may be made now: also after a failure, if others wait for it. */
bool ucx_mp_mpi_call_stage(ucx_mp_mpi_call_t *call);

/*
 * Pack a datatype with gaps in host memory, to send it as bytes in a row. UCX
 * 1.13 and 1.14 end the program when such a message arrives in managed memory
 * or in the sender's own GPU memory. If both buffers of the call are host
 * memory, nothing is done.
 *
 * @return  Elements to send, of the new `*buffer_p` and `*datatype_p`.
 */
MPI_Count ucx_mp_mpi_call_pack(ucx_mp_mpi_call_t *call, int peer,
                               const void **buffer_p, MPI_Count count,
                               MPI_Datatype *datatype_p, const void *received);

/* Copy once more between buffers and their copies, in the direction of `use`.
   Nothing is copied after a failure, for UCX_MP_MPI_WRITE on any rank. */
void ucx_mp_mpi_call_copy(ucx_mp_mpi_call_t *call, ucx_mp_mpi_use_t use);

/* Release everything. */
void ucx_mp_mpi_call_free(ucx_mp_mpi_call_t *call);

/* Copy back if the MPI's call succeeded, and release everything. Returns the
   result of the wrapper. */
int ucx_mp_mpi_call_end(ucx_mp_mpi_call_t *call);

#endif
