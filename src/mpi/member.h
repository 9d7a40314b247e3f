/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is remembered of a communicator: which it is on all its ranks, agreed on
 * when it is made, where MPI synchronises its ranks anyhow, and how many calls
 * it has had. It costs nothing more until a GPU buffer comes to it: then its
 * ranks join a group, each before the call in which it notices.
 */
#ifndef UCX_MP_MPI_MEMBER_H_
#define UCX_MP_MPI_MEMBER_H_

#include <mpi/failure.h>
#include <mpi/pmpi.h>

#include <uct/cuda/collective_api.h>

#include <stdbool.h>
#include <stdint.h>


typedef struct {
    uint64_t              key;    /* the communicator's, on all its ranks */
    uint64_t              calls;  /* of the kinds that the module has, until
                                     there is a group */
    uint64_t              number; /* of the last collective with buffers */
    uint32_t              word;   /* of the board, when last looked at */
    bool                  has_failed; /* to join a group */
    int                   rank, size;
    uct_cuda_coll_group_t *group; /* NULL: none yet */
    struct ucx_mp_mpi_nodes *nodes; /* NULL: all on one node */
} ucx_mp_mpi_member_t;


/* A new communicator, on all its ranks, that has its ranks from `parent`'s,
   MPI_COMM_NULL: they are the program's. Others than those that have a member
   afterwards are never carried out by GPUs. */
void ucx_mp_mpi_member_new(MPI_Comm parent, MPI_Comm comm);

/* NULL: of no use for the module. */
ucx_mp_mpi_member_t *ucx_mp_mpi_member_of(MPI_Comm comm);

/* Count a collective of this rank. @return As ucx_mp_mpi_member_of(). */
static inline ucx_mp_mpi_member_t *ucx_mp_mpi_member_next(MPI_Comm comm)
{
    ucx_mp_mpi_member_t *member = ucx_mp_mpi_member_of(comm);

    if (member != NULL) {
        ++member->number;
    }
    return member;
}

/* The collective that was counted last */
static inline ucx_mp_mpi_ordinal_t
ucx_mp_mpi_member_ordinal(const ucx_mp_mpi_member_t *member)
{
    return (member == NULL) ? (ucx_mp_mpi_ordinal_t){0} :
                              (ucx_mp_mpi_ordinal_t){.key = member->key,
                                                     .number = member->number};
}

/* This rank makes a call that the module has another way. */
void ucx_mp_mpi_member_pass(ucx_mp_mpi_member_t *member, MPI_Comm comm,
                            int kind, uct_cuda_coll_reason_t reason);

/* This rank has buffers for the module's next call; NULL: there is no group. */
uct_cuda_coll_group_t *ucx_mp_mpi_member_join(ucx_mp_mpi_member_t *member,
                                              MPI_Comm comm);

#endif
