/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * CUDA for the MPI programs, through the driver library loaded at run time:
 * they build without a toolkit, and with host memory only they run without a
 * GPU. A failed driver call ends the program with its name and error.
 */
#ifndef UCX_MP_TEST_GPU_H_
#define UCX_MP_TEST_GPU_H_

#include <stddef.h>

typedef enum {
    UCX_MP_MEM_DEVICE,
    UCX_MP_MEM_HOST,    /* from malloc */
    UCX_MP_MEM_PINNED,  /* page-locked host memory */
    UCX_MP_MEM_MANAGED,
    UCX_MP_MEM_LAST
} ucx_mp_mem_t;

extern const char *const ucx_mp_mem_names[];

/* Load the driver. @return Number of visible GPUs; 0 without a driver or a GPU,
   with the reason in `why` (`size` bytes). */
int ucx_mp_gpu_load(char *why, size_t size);

/*
 * Load the driver and make GPU number `local_rank` modulo the count of visible
 * GPUs current. @return As above.
 */
int ucx_mp_gpu_init(int local_rank, char *why, size_t size);

/* Do so, and end the program if there is none. @return Number of visible
   GPUs. */
int ucx_mp_gpu_require(int local_rank);

/* Return non-zero if ucx_mp_gpu_init() found a GPU. */
int ucx_mp_gpu_present(void);

/* Return a driver function by its exported name; NULL before ucx_mp_gpu_init()
   found a GPU, or if the driver has no such function. */
void *ucx_mp_gpu_function(const char *name);

/* A driver function: exported name, and variable for its address */
typedef struct {
    const char *name;
    void       **address_p;
} ucx_mp_symbol_t;

/* Look up driver functions; a missing one ends the program. */
void ucx_mp_gpu_functions(const ucx_mp_symbol_t *symbols, size_t count);

/* Return the name of a driver result, such as CUDA_ERROR_INVALID_VALUE. */
const char *ucx_mp_gpu_error_name(int error);

/* Return the rank among the processes of this node by the launcher's
   environment; `rank` if unknown. */
int ucx_mp_gpu_local_rank(int rank);

/* Enable peer access between all pairs of visible GPUs that support it. */
void ucx_mp_gpu_enable_peers(void);

/* Allocate `size` (> 0) bytes. HOST works without a GPU. The variable
   MP_TEST_ALLOCATOR names the allocator of GPU memory: alloc (cuMemAlloc), vmm
   (cuMemCreate), pieces, large (cuMemCreate in pieces of 2 and 20 MiB), closed
   (cuMemCreate, not exportable), remote (cuMemCreate on another GPU, open only
   to the context's), pool (exportable), async (the device's default pool), or
   random (another one each time). */
void *ucx_mp_mem_alloc(ucx_mp_mem_t mem, size_t size);
void ucx_mp_mem_free(ucx_mp_mem_t mem, void *ptr);

/* Copy into or out of memory of kind `mem`. The bytes have arrived on
   return. */
void ucx_mp_mem_write(ucx_mp_mem_t mem, void *dst, const void *src,
                      size_t size);
void ucx_mp_mem_read(ucx_mp_mem_t mem, void *dst, const void *src,
                     size_t size);

/* Copy as above to prepare or examine a test's memory: on an emulated GPU
   immediately, in no modelled time and without waiting for other work. */
void ucx_mp_mem_put(ucx_mp_mem_t mem, void *dst, const void *src, size_t size);
void ucx_mp_mem_get(ucx_mp_mem_t mem, void *dst, const void *src, size_t size);

/* Set `size` bytes to `value`. They are set on return. */
void ucx_mp_mem_set(ucx_mp_mem_t mem, void *dst, int value, size_t size);

/* Return non-zero on an emulated node. */
int ucx_mp_gpu_emulated(void);

#endif
