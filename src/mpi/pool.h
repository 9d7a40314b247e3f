/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cache of host memory for staging GPU buffers, page-locked if the driver
 * allows it. GPU memory for staging: pack.h.
 *
 * The memory is mapped by this library and then page-locked, not allocated by
 * the driver, so that it survives a device reset.
 */
#ifndef UCX_MP_MPI_POOL_H_
#define UCX_MP_MPI_POOL_H_

#include <stddef.h>

#include <mpi/gpu.h>


/* Memory for staging, in the host or on a GPU */
typedef struct ucx_mp_mpi_block ucx_mp_mpi_block_t;
struct ucx_mp_mpi_block {
    ucx_mp_mpi_block_t        *next;      /* next idle block */
    char                      *address;
    size_t                    size;
    struct ucx_mp_mpi_context *context;   /* owner of GPU memory (pack.c);
                                             NULL: host memory */
    bool                      is_kept;    /* host memory is cached after use */
    bool                      is_refused; /* the driver could not page-lock
                                             it */
};


/*
 * Get `size` bytes. Blocks of 1 GiB in all are page-locked if the driver allows
 * it, and cached after use; others are pageable. The first pageable block of
 * 1 MiB or more is logged, unless it is mostly gaps. Thread-safe.
 *
 * @param used  Bytes to be used. Blocks above 64 MiB of which less than half
 *              is used are pageable: locked memory occupies its gaps, too.
 * @param copy  Copy in progress, whose context is current.
 *
 * @return  Page-aligned memory; NULL if none is available.
 */
ucx_mp_mpi_block_t *ucx_mp_mpi_pool_get(size_t size, size_t used,
                                        ucx_mp_mpi_copy_t *copy);

/* Return whether kernels can access a block: host memory only if it is
   page-locked. */
bool ucx_mp_mpi_block_is_mapped(const ucx_mp_mpi_block_t *block);

/* Take the smallest block of `size` to `limit` bytes from a list; NULL: there
   is none. */
ucx_mp_mpi_block_t *ucx_mp_mpi_block_take(ucx_mp_mpi_block_t **list,
                                          size_t size, size_t limit);

/* Release host memory. */
void ucx_mp_mpi_pool_put(ucx_mp_mpi_block_t *block);

#endif
