/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Reductions on a GPU: MPI's predefined operations on its predefined types,
 *
 *     dst[j][i] = ((src[0][i] op src[1][i]) op src[2][i]) op ...   for all j, i
 *
 * The library contains the kernels as PTX. The driver compiles each one on its
 * first use. Sources and destinations are device addresses: memory of this GPU,
 * mapped memory of peers, or page-locked host memory. A destination may be a
 * source at the same address; otherwise nothing may overlap.
 *
 * The result depends only on the order of the sources, not on the grid or the
 * GPU. Floating point is rounded to nearest after each operation, also for half
 * and bfloat16. min and max of a NaN and a number give the second operand, as
 * (a < b) ? a : b does in C. Complex products are (ac - bd) + (ad + bc)i.
 * Logical operations give 0 or 1. MINLOC and MAXLOC take the smaller index
 * where values are equal (MPI 4.1, 6.9.4).
 */
#ifndef UCX_MP_KERNELS_H_
#define UCX_MP_KERNELS_H_

#include "copy_args.h"
#include "pack_args.h"
#include "reduce_args.h"

#include <cuda.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    UCX_MP_OP_SUM,
    UCX_MP_OP_PROD,
    UCX_MP_OP_MIN,
    UCX_MP_OP_MAX,
    UCX_MP_OP_LAND,
    UCX_MP_OP_LOR,
    UCX_MP_OP_LXOR,
    UCX_MP_OP_BAND,
    UCX_MP_OP_BOR,
    UCX_MP_OP_BXOR,
    UCX_MP_OP_MINLOC,
    UCX_MP_OP_MAXLOC,
    UCX_MP_OP_LAST
} ucx_mp_op_t;

/* Pairs are structures {value, index} in C layout: {double, int} and {long,
   int} have 16 bytes, {short, int} 8. */
typedef enum {
    UCX_MP_TYPE_I8,
    UCX_MP_TYPE_U8,
    UCX_MP_TYPE_I16,
    UCX_MP_TYPE_U16,
    UCX_MP_TYPE_I32,
    UCX_MP_TYPE_U32,
    UCX_MP_TYPE_I64,
    UCX_MP_TYPE_U64,
    UCX_MP_TYPE_F16,
    UCX_MP_TYPE_BF16,
    UCX_MP_TYPE_F32,
    UCX_MP_TYPE_F64,
    UCX_MP_TYPE_C32,     /* complex of two floats */
    UCX_MP_TYPE_C64,     /* complex of two doubles */
    UCX_MP_TYPE_I16_I32, /* pairs: only for MINLOC and MAXLOC */
    UCX_MP_TYPE_I32_I32,
    UCX_MP_TYPE_I64_I32,
    UCX_MP_TYPE_F32_I32,
    UCX_MP_TYPE_F64_I32,
    UCX_MP_TYPE_F32_F32, /* Fortran's MPI_2REAL */
    UCX_MP_TYPE_F64_F64, /* Fortran's MPI_2DOUBLE_PRECISION */
    UCX_MP_TYPE_LAST
} ucx_mp_type_t;

/* Driver functions used here, under their names without "cu" */
typedef struct {
    CUresult (*ModuleLoadData)(CUmodule *module, const void *image);
    CUresult (*ModuleGetFunction)(CUfunction *function, CUmodule module,
                                  const char *name);
    CUresult (*ModuleUnload)(CUmodule module);
    CUresult (*LaunchKernel)(CUfunction function, unsigned grid_x,
                             unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y,
                             unsigned block_z, unsigned shared,
                             CUstream stream, void **params, void **extra);
} ucx_mp_kernels_driver_t;

/* Kernels of one context */
typedef struct ucx_mp_kernels ucx_mp_kernels_t;

/* Return the size of an element, bytes. */
size_t ucx_mp_type_size(ucx_mp_type_t type);

/* Return the alignment that the address of an element needs, bytes. */
size_t ucx_mp_type_align(ucx_mp_type_t type);

/* Return non-zero if the operation is defined for the type. */
int ucx_mp_kernel_is_known(ucx_mp_op_t op, ucx_mp_type_t type);

/* Create an empty set of kernels, NULL if out of memory. `driver` is copied. */
ucx_mp_kernels_t *ucx_mp_kernels_create(const ucx_mp_kernels_driver_t *driver);

/* Free the set, but unload no module: call after its context is destroyed,
   which unloads them. */
void ucx_mp_kernels_destroy(ucx_mp_kernels_t *kernels);

/*
 * Compile the kernel of an operation and type in the current context, so that
 * no launch has to: tens of milliseconds the first time on a machine, less if
 * the driver's cache has it. Returns SUCCESS, NOT_SUPPORTED for an undefined
 * combination, or the driver's error (for instance INVALID_PTX from an old
 * driver).
 */
CUresult ucx_mp_kernels_load(ucx_mp_kernels_t *kernels, ucx_mp_op_t op,
                             ucx_mp_type_t type);

/* Return non-zero if ucx_mp_kernels_load() has loaded the kernel. */
int ucx_mp_kernels_are_loaded(ucx_mp_kernels_t *kernels, ucx_mp_op_t op,
                              ucx_mp_type_t type);

/*
 * Launch a reduction with at most `max_blocks` (> 0) blocks of
 * UCX_MP_REDUCE_THREADS threads, fewer if there is no work for more. Any number
 * of threads may call. With one source it copies to all destinations. Returns
 * SUCCESS (launching nothing for no elements), NOT_SUPPORTED, INVALID_VALUE for
 * a wrong number of sources or destinations or a misaligned address, or the
 * driver's error.
 */
CUresult ucx_mp_kernels_reduce(ucx_mp_kernels_t *kernels, ucx_mp_op_t op,
                               ucx_mp_type_t type,
                               const ucx_mp_reduce_args_t *args,
                               unsigned max_blocks, CUstream stream);


/*
 * Copy many small blocks in one kernel launch. Addresses are device memory of
 * this GPU, mapped memory of peers, or page-locked host memory, at any
 * alignment. Blocks must not overlap.
 */

/* Copy kernels loaded into one context */
typedef struct {
    CUfunction copy;
    CUfunction alike; /* kernel for blocks of equal size */
} ucx_mp_copy_t;

/*
 * Load the kernels into the current context. They stay loaded as long as the
 * context exists, since unloading would wait for all work queued there. Loading
 * waits for it, too. Returns SUCCESS or the driver's error.
 */
CUresult ucx_mp_copy_load(const ucx_mp_kernels_driver_t *driver,
                          ucx_mp_copy_t *kernels);

/*
 * Launch the copy kernel with `blocks` (> 0) blocks of UCX_MP_COPY_THREADS
 * threads, without waiting. `args->words` is the address of
 * UCX_MP_COPY_WORDS(blocks) words. Returns SUCCESS or the driver's error.
 */
CUresult ucx_mp_copy_launch(const ucx_mp_kernels_driver_t *driver,
                            const ucx_mp_copy_t *kernels, unsigned blocks,
                            const ucx_mp_copy_args_t *args, CUstream stream);

/* Launch the kernel for blocks of equal size, else as ucx_mp_copy_launch(). */
CUresult
ucx_mp_copy_launch_alike(const ucx_mp_kernels_driver_t *driver,
                         const ucx_mp_copy_t *kernels, unsigned blocks,
                         const ucx_mp_copy_alike_args_t *args, CUstream stream);


/*
 * Pack and unpack MPI datatypes by a kernel. Addresses are device memory or
 * page-locked host memory.
 */

/* Load the kernel into the current context. It stays loaded as long as the
   context exists. Returns SUCCESS or the driver's error. */
CUresult ucx_mp_pack_load(const ucx_mp_kernels_driver_t *driver,
                          CUfunction *function);

/* Launch the kernel in the stream. `args->bytes` and `args->num_rows` must not
   be 0. Returns SUCCESS or the driver's error. */
CUresult ucx_mp_pack_launch(const ucx_mp_kernels_driver_t *driver,
                            CUfunction function,
                            const ucx_mp_pack_args_t *args, CUstream stream);

#ifdef __cplusplus
}
#endif

#endif
