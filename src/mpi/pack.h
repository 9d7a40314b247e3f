/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packing and unpacking of datatypes by a kernel, and GPU memory for packed
 * bytes. Memory and kernel belong to a context and are not used after it is
 * destroyed.
 */
#ifndef UCX_MP_MPI_PACK_H_
#define UCX_MP_MPI_PACK_H_

#include <mpi/gpu.h>
#include <mpi/layout.h>
#include <mpi/pool.h>


/*
 * Get GPU memory of `size` bytes in the context of a copy in progress. Freed
 * blocks are cached for the next message.
 *
 * @return  NULL if no memory is available, or if the driver has no context ids.
 */
ucx_mp_mpi_block_t *ucx_mp_mpi_gpu_block_get(ucx_mp_mpi_copy_t *copy,
                                             size_t size);

/* Release GPU memory, or host memory from the pool; NULL: do nothing. */
void ucx_mp_mpi_block_put(ucx_mp_mpi_block_t *block);

/* Load the kernel in the current context, unless the GPU is busy. Tries once
   per context. Does nothing without a context or the module. */
void ucx_mp_mpi_pack_load(void);

/*
 * Load the kernel and copy the element's rows to the GPU, each once per
 * context. A busy GPU loads no kernel; without the module, which knows this,
 * the call waits for all work on the GPU.
 *
 * @return  Whether ucx_mp_mpi_pack() can be called.
 */
bool ucx_mp_mpi_pack_prepare(ucx_mp_mpi_copy_t *copy,
                             ucx_mp_mpi_element_t *element);

/* Compile a reduction in the context of a copy in progress, once per context,
   but not on a busy GPU, as above.
   @return Kernels for ucx_mp_mpi_copy_reduce(); NULL: not available. */
ucx_mp_kernels_t *ucx_mp_mpi_reduce_prepare(ucx_mp_mpi_copy_t *copy,
                                            ucx_mp_op_t op,
                                            ucx_mp_type_t type);

/*
 * Pack elements into the first `bytes` bytes of `staged`, or unpack them if
 * `is_back` is set. Complete when ucx_mp_mpi_copy_end() returns.
 *
 * @param program  Start of the first element.
 * @param staged   Packed bytes.
 */
void ucx_mp_mpi_pack(ucx_mp_mpi_copy_t *copy, ucx_mp_mpi_element_t *element,
                     const void *program, void *staged, size_t bytes,
                     bool is_back);

#endif
