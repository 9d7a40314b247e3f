/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cache of host memory for staging GPU buffers, page-locked if the driver
 * allows it.
 *
 * The memory is mapped by this library and then page-locked, not allocated by
 * the driver, so that it survives a device reset.
 */
#ifndef UCX_MP_MPI_POOL_H_
#define UCX_MP_MPI_POOL_H_

#include <stddef.h>

#include <mpi/gpu.h>


typedef struct ucx_mp_mpi_block ucx_mp_mpi_block_t;


/*
 * Get `size` bytes. Blocks of 1 GiB in all are page-locked if the driver allows
 * it, and cached after use; others are pageable. The first pageable block of
 * 1 MiB or more is logged, unless it is mostly gaps. Thread-safe.
 *
 * @param used  Bytes to be used. Blocks above 64 MiB of which less than half
 *              is used are pageable: locked memory occupies its gaps, too.
 * @param copy  Copy in progress, whose context is current.
 *
 * @return  Page-aligned address; NULL if no memory is available.
 */
void *ucx_mp_mpi_pool_get(size_t size, size_t used, ucx_mp_mpi_copy_t *copy,
                          ucx_mp_mpi_block_t **block_p);

/* Return whether the block is page-locked and kernels can access it. */
bool ucx_mp_mpi_pool_is_mapped(const ucx_mp_mpi_block_t *block);

void ucx_mp_mpi_pool_put(ucx_mp_mpi_block_t *block);

#endif
