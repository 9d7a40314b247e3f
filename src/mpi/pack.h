/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datatypes packed and unpacked by a kernel, and the GPU memory for packed
 * bytes. Both belong to a context. After its end, its memory and functions are
 * not used again.
 */
#ifndef UCX_MP_MPI_PACK_H_
#define UCX_MP_MPI_PACK_H_

#include <mpi/gpu.h>
#include <mpi/layout.h>


typedef struct ucx_mp_mpi_gpu_block ucx_mp_mpi_gpu_block_t;


/*
 * Get GPU memory in the context of a copy in progress. It is kept for the next
 * message.
 *
 * @return  Its address; NULL if none is available, or if the driver has no
 *          context numbers.
 */
void *ucx_mp_mpi_gpu_block_get(ucx_mp_mpi_copy_t *copy, size_t size,
                               ucx_mp_mpi_gpu_block_t **block_p);

void ucx_mp_mpi_gpu_block_put(ucx_mp_mpi_gpu_block_t *block);

/*
 * Load the kernel and bring the element's rows to the GPU, each once a context.
 *
 * @return  Whether ucx_mp_mpi_pack() can be called.
 */
bool ucx_mp_mpi_pack_prepare(ucx_mp_mpi_copy_t *copy,
                             ucx_mp_mpi_element_t *element);

/*
 * Pack elements, or unpack them if `is_back` is set: the first `bytes` packed
 * bytes. Done when ucx_mp_mpi_copy_end() returns.
 *
 * @param program  Origin of the first element.
 * @param staged   The packed bytes.
 */
void ucx_mp_mpi_pack(ucx_mp_mpi_copy_t *copy, ucx_mp_mpi_element_t *element,
                     const void *program, void *staged, size_t bytes,
                     bool is_back);

#endif
