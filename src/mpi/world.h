/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks of a program agree on while MPI starts, where they wait for
 * one another anyhow: that all of them run with this library and with the
 * transport module, and the boards of their nodes. If they do not, no
 * collective is carried out by GPUs, and nothing of ours is ever sent.
 */
#ifndef UCX_MP_MPI_WORLD_H_
#define UCX_MP_MPI_WORLD_H_

#include <mpi/pmpi.h>

#include <uct/cuda/collective_api.h>

#include <stdbool.h>
#include <stdint.h>


/* After MPI_Init(); does not change until the process ends. */
typedef struct {
    const uct_cuda_coll_api_t *api; /* NULL: they do not */
    uct_cuda_node_segment_t   *board; /* of this node */
    bool                      is_spread; /* over several nodes */
    bool                      has_rival; /* the MPI takes GPU memory, and the
                                            user has not said that ours comes
                                            first */
    MPI_Group                 group;
    int                       *places; /* of ranks on the board; -1: on another
                                          node */
} ucx_mp_mpi_world_t;

extern ucx_mp_mpi_world_t ucx_mp_mpi_world;

/* The number of failures that ranks of this node have reported; never NULL */
extern const uint32_t *ucx_mp_mpi_failures;


/* The MPI has just started. */
void ucx_mp_mpi_world_begin(void);

/* Is it so on all ranks? No, if they cannot say so. */
bool ucx_mp_mpi_on_all(MPI_Comm comm, bool mine);

/* The same on all ranks of a node: not asked of MPI_Comm_split_type, which has
   every rank on its own where an MPI was told to use no shared memory. */
int ucx_mp_mpi_machine_color(void);

/*
 * Where a communicator's ranks are on the board.
 *
 * @param places  As many as it has ranks; -1: on another node.
 *
 * @return  Whether all of them are the program's own: others may have been
 *          started without this library.
 */
bool ucx_mp_mpi_world_places(MPI_Comm comm, int size, int *places);

/* Join the group of a communicator whose ranks are all on this node, by its key
   and after so many calls. @return NULL: there is none to be had. */
uct_cuda_coll_group_t *
ucx_mp_mpi_world_join(MPI_Comm comm, uint64_t key, int rank, int size,
                      uint64_t calls);

#endif
