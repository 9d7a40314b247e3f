/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Allreduce of GPU buffers in communicators over several nodes: added up
 * inside each node by GPUs, between nodes by the MPI in host memory, in chunks
 * that are pipelined ("Accelerating Deep Learning using Interconnect-Aware UCX
 * Communication for MPI Collectives", multi-node design, whose stages wait for
 * one another).
 *
 * A chunk is cut into slices, as many as the node with the fewest ranks has.
 * Slice j goes between nodes by the ranks that are number j of their nodes, so
 * that all nodes' adapters and PCIe links are in use at once; further ranks of
 * larger nodes take part inside their node only.
 */
#ifndef UCX_MP_MPI_NODES_H_
#define UCX_MP_MPI_NODES_H_

#include <mpi/arguments.h>

#include <stdbool.h>
#include <stdint.h>


typedef struct ucx_mp_mpi_nodes ucx_mp_mpi_nodes_t;


/* Of a communicator over several nodes, on each of its ranks. @return NULL: no
   memory. */
ucx_mp_mpi_nodes_t *ucx_mp_mpi_nodes_create(uint64_t key);

/* With the communicator. */
void ucx_mp_mpi_nodes_destroy(ucx_mp_mpi_nodes_t *nodes, MPI_Comm comm);

/*
 * Takes an MPI_Allreduce if it is large enough and all ranks have their buffers
 * in GPU memory, on which they agree by a small reduction. Smaller calls cost
 * nothing besides; others than MPI_Allreduce are not taken. While no rank's
 * process uses a GPU the agreement is made ever more rarely, down to every 64th
 * such call: those between are not taken. The first call that is taken splits
 * the communicator by node and by slice.
 *
 * @param rc_p  What the wrapper returns, if it is done.
 *
 * @return  Whether it is done; the same on all ranks.
 */
bool ucx_mp_mpi_nodes_collective(ucx_mp_mpi_nodes_t *nodes,
                                 const ucx_mp_mpi_collective_t *args,
                                 int *rc_p);

/*
 * Of this process so far: calls that were taken, chunks of them, bytes that it
 * gave to the MPI's reductions between nodes, and agreements. For tests.
 */
void ucx_mp_mpi_nodes_counts(uint64_t *calls_p, uint64_t *chunks_p,
                             uint64_t *bytes_p, uint64_t *agreements_p);

#endif
