/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One MPI call with buffers in GPU memory, carried out through host memory:
 * what it may read is copied in, the same call is made on the copies, what it
 * may write is copied back, and no other byte. Calls that end later: later.h.
 *
 * A copy is the image of its buffer, gaps included, so that the call differs in
 * a pointer only. Where the gaps are most of it (GPU memory and memory far away
 * in one datatype) it is packed, and the call gets datatypes and displacements
 * of the packed copy (packed.h).
 *
 * A rank that cannot stage its buffers takes part in the call all the same, and
 * returns an error: the other ranks do not wait for it. Ranks that have got
 * something from it in a collective return an error, too (failure.h).
 *
 * Each rank does so for itself and makes the same call of its MPI, so that
 * nothing has to be agreed on: other ranks' buffers may be anywhere.
 *
 * A wrapper (generate.py writes them) says begin, describes its buffers, and
 * then makes the MPI's call between stage and end. A collective that gets a way
 * of its own for GPU buffers takes it between the last description and stage.
 */
#ifndef UCX_MP_MPI_CALL_H_
#define UCX_MP_MPI_CALL_H_

#include <mpi/buffer.h>
#include <mpi/error.h>
#include <mpi/failure.h>
#include <mpi/real.h>

#include <stdint.h>


#define UCX_MP_MPI_MAX_BUFFERS 2

/* What may be done with a call's arguments */
typedef enum {
    UCX_MP_MPI_PACKS  = 1, /* datatypes may become others of as many bytes; of
                              a file, if it has them as they are in memory */
    UCX_MP_MPI_JOINS  = 2, /* other ranks wait for this one's part */
    UCX_MP_MPI_EMPTY  = 4, /* ... which may be one of no bytes */
    UCX_MP_MPI_AGAIN  = 8, /* what it sends is read by each start */
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
    bool                is_root;   /* has what all get, or gets what all have */
    bool                is_member; /* one of those that the root deals with */
    ucx_mp_mpi_ordinal_t ordinal;
    int                 rank;      /* in the (local) group */
    int                 local;     /* ranks of that */
    int                 sources;   /* ranks that this one gets something from */
    int                 targets;   /* ranks that this one sends something to */
    unsigned            num_buffers;
    ucx_mp_mpi_buffer_t buffers[UCX_MP_MPI_MAX_BUFFERS];
    size_t              arrived;   /* bytes of a message that was received */
    void                *packed;   /* what is sent instead of a buffer */
} ucx_mp_mpi_call_t;


/* Whether a call's pointers have to be looked at, since this process uses GPUs.
   Asked once a call: until there is a driver, it takes 17 ns. */
static inline bool ucx_mp_mpi_may_be_gpu(void)
{
    if (__builtin_expect(!__atomic_load_n(&ucx_mp_mpi_real_found,
                                          __ATOMIC_ACQUIRE), 0)) {
        ucx_mp_mpi_real_find();
    }

    return ucx_mp_mpi_gpu_is_used();
}

/* Whether the call is the MPI's own affair, whatever its pointers: a datatype
   may lead from host memory to a GPU's. */
static inline bool ucx_mp_mpi_is_straight(void)
{
    return !ucx_mp_mpi_may_be_gpu() || !ucx_mp_mpi_real.stages;
}


/* Begins a call with the ranks of its communicator; everyone is a member.
   `flags`: ucx_mp_mpi_call_flags_t. */
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

/* Whether this is the calling rank, in a communicator where that can be. */
bool ucx_mp_mpi_is_own_rank(MPI_Comm comm, int rank);

/* Copies in and points the wrapper's arguments to the copies. Whether the
   MPI's call may be made now: also after a failure, if others wait for it. */
bool ucx_mp_mpi_call_stage(ucx_mp_mpi_call_t *call);

/*
 * A message of such a datatype goes out packed, as bytes in a row: UCX
 * 1.13 and 1.14 end the program where one with gaps comes to managed memory, or
 * to the sender's own GPU memory. Not where both of the call's buffers are host
 * memory.
 *
 * @return  Elements to send of what `buffer_p` and `datatype_p` are now.
 */
MPI_Count ucx_mp_mpi_call_pack(ucx_mp_mpi_call_t *call, int peer,
                               const void **buffer_p, MPI_Count count,
                               MPI_Datatype *datatype_p, const void *received);

/* Copies what is staged to or from the copies, as `use` says, once more; not if
   something has failed, for UCX_MP_MPI_WRITE on another rank. */
void ucx_mp_mpi_call_copy(ucx_mp_mpi_call_t *call, ucx_mp_mpi_use_t use);

/* Lets go of everything. */
void ucx_mp_mpi_call_free(ucx_mp_mpi_call_t *call);

/* Copies back if the MPI's call succeeded, and lets go of everything. Returns
   what the wrapper returns. */
int ucx_mp_mpi_call_end(ucx_mp_mpi_call_t *call);

#endif
