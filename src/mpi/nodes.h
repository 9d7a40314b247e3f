/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_Allreduce of GPU buffers in communicators on several nodes. GPUs reduce
 * within each node; the MPI reduces between nodes in host memory. The buffer is
 * split into rounds (`chunk` in nodes.c) that are pipelined. This is the
 * multi-node design of "Accelerating Deep Learning using Interconnect-Aware UCX
 * Communication for MPI Collectives", whose stages run one after the other.
 *
 * A round is split into as many shards as the smallest node has ranks. Rank j
 * of every node sends shard j to the other nodes, so that all adapters and PCIe
 * links are busy at once. Further ranks of larger nodes take part only within
 * their node.
 */
#ifndef UCX_MP_MPI_NODES_H_
#define UCX_MP_MPI_NODES_H_

#include <mpi/arguments.h>

#include <stdbool.h>
#include <stdint.h>


typedef struct ucx_mp_mpi_nodes ucx_mp_mpi_nodes_t;


/* Create the state of a communicator on several nodes; called on each rank.
   @return NULL: no memory. */
ucx_mp_mpi_nodes_t *ucx_mp_mpi_nodes_create(uint64_t key);

/* Free the state, before its communicator is freed. */
void ucx_mp_mpi_nodes_destroy(ucx_mp_mpi_nodes_t *nodes, MPI_Comm comm);

/*
 * Carry out an MPI_Allreduce of at least 256 KiB if all ranks have their
 * buffers in GPU memory; the ranks agree on it with a small MPI_Allreduce.
 * Other calls return false at once. While no process uses a GPU, the ranks
 * agree less and less often, down to every 64th call of this size. The first
 * call that is carried out splits the communicator by node and by shard.
 *
 * @param rc_p  Set to the wrapper's result if the call is done.
 *
 * @return  Whether the call is done; the same on all ranks.
 */
bool ucx_mp_mpi_nodes_collective(ucx_mp_mpi_nodes_t *nodes,
                                 const ucx_mp_mpi_collective_t *args,
                                 int *rc_p);

/* Get totals of this process, for tests: bytes passed to the MPI's reductions
   between nodes, and agreements. */
void ucx_mp_mpi_nodes_counts(uint64_t *bytes_p, uint64_t *agreements_p);

#endif
