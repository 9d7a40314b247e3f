/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The little of CUDA that the MPI programs use, through the driver library
 * loaded at run time: they build without a toolkit, and with host memory only
 * they run without a GPU.
 *
 * A call of the driver that fails ends the program and says which and why.
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

/*
 * Makes the visible GPU number `local_rank` modulo their count the current one.
 *
 * @return  Number of visible GPUs; 0 if there is none or no driver, and then
 *          `why` (`size` bytes) says so.
 */
int ucx_mp_gpu_init(int local_rank, char *why, size_t size);

/* Whether ucx_mp_gpu_init() found a GPU. */
int ucx_mp_gpu_present(void);

/* A function of the driver by its exported name, once ucx_mp_gpu_init() found a
   GPU; NULL if the driver has none of that name. */
void *ucx_mp_gpu_function(const char *name);

/* Name of a result of the driver, such as CUDA_ERROR_INVALID_VALUE. */
const char *ucx_mp_gpu_error_name(int error);

/* Rank among the processes of this node as the launcher's environment says;
   -1 if it does not. */
int ucx_mp_gpu_env_local_rank(void);

/* Lets each visible GPU reach every other one's memory, where it can. */
void ucx_mp_gpu_enable_peers(void);

/* Memory of `size` (> 0) bytes. HOST works without a GPU. */
void *ucx_mp_mem_alloc(ucx_mp_mem_t mem, size_t size);
void ucx_mp_mem_free(ucx_mp_mem_t mem, void *ptr);

/* Copies into or out of memory of kind `mem`; done when it returns. */
void ucx_mp_mem_write(ucx_mp_mem_t mem, void *dst, const void *src,
                      size_t size);
void ucx_mp_mem_read(ucx_mp_mem_t mem, void *dst, const void *src,
                     size_t size);

/* The same for a test's own making and looking: an emulated GPU's memory is
   written and read at once, in no modelled time, and nothing is waited for. */
void ucx_mp_mem_put(ucx_mp_mem_t mem, void *dst, const void *src, size_t size);
void ucx_mp_mem_get(ucx_mp_mem_t mem, void *dst, const void *src, size_t size);

/* Sets `size` bytes to `value`; done when it returns. */
void ucx_mp_mem_set(ucx_mp_mem_t mem, void *dst, int value, size_t size);

/* Whether the GPUs are those of an emulated node. */
int ucx_mp_gpu_emulated(void);

#endif
