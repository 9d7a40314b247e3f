/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory that GPU buffers are staged in: of our own, page-locked where the
 * driver lets us, and kept for the next call.
 *
 * It is memory of the system's, page-locked, rather than the driver's own:
 * after a device reset it is still there.
 */
#ifndef UCX_MP_MPI_POOL_H_
#define UCX_MP_MPI_POOL_H_

#include <stddef.h>

#include <mpi/gpu.h>


typedef struct ucx_mp_mpi_block ucx_mp_mpi_block_t;


/*
 * Memory for `size` bytes, page-locked in the context of `copy` if it is one to
 * keep. Any thread.
 *
 * @return  Its first byte, aligned to a page; NULL if there is none to be had.
 */
void *ucx_mp_mpi_pool_get(size_t size, ucx_mp_mpi_copy_t *copy,
                          ucx_mp_mpi_block_t **block_p);

/* Whether it is page-locked, and kernels may write there. */
bool ucx_mp_mpi_pool_is_mapped(const ucx_mp_mpi_block_t *block);

void ucx_mp_mpi_pool_put(ucx_mp_mpi_block_t *block);

#endif
