/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The little of CUDA that the solver uses, from the driver's library, loaded
 * at run time: nothing of CUDA is needed to build it.
 *
 * A call of the driver that fails ends all ranks with a sentence that names it.
 */
#ifndef JACOBI_GPU_H_
#define JACOBI_GPU_H_

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long gpu_ptr_t;    /* an address in the GPU's memory */
typedef struct gpu_stream *gpu_stream_t;
typedef struct gpu_kernel *gpu_kernel_t;

/* Makes the visible GPU number `local_rank` modulo their count this process's.
   Returns their count; 0: there is none, and `why` (`size` bytes) says so. */
int gpu_open(int local_rank, char *why, size_t size);

/* Bytes of the GPU's memory that are free. */
size_t gpu_memory_free(void);

gpu_ptr_t gpu_alloc(size_t bytes);
void gpu_free(gpu_ptr_t ptr);

/* These are done when they return. */
void gpu_zero(gpu_ptr_t to, size_t bytes);
void gpu_put(gpu_ptr_t to, const void *from, size_t bytes);
void gpu_get(void *to, gpu_ptr_t from, size_t bytes);

gpu_stream_t gpu_stream_create(void);
void gpu_stream_wait(gpu_stream_t stream);
void gpu_stream_zero4(gpu_stream_t stream, gpu_ptr_t to);

/* A kernel of jacobi.ptx by its name. */
gpu_kernel_t gpu_kernel(const char *name);
void gpu_launch(gpu_stream_t stream, gpu_kernel_t kernel, unsigned blocks_x,
                unsigned blocks_y, unsigned threads, void **args);

#endif
