/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of CUDA needed for staging: the kind of a pointer's memory, copies
 * and the packing kernel. It uses the process's own libcuda and loads none.
 */
#ifndef UCX_MP_MPI_GPU_H_
#define UCX_MP_MPI_GPU_H_

#include <kernels/pack_args.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


typedef enum {
    UCX_MP_MPI_MEMORY_HOST,
    UCX_MP_MPI_MEMORY_MANAGED, /* the CPU may touch it */
    UCX_MP_MPI_MEMORY_GPU
} ucx_mp_mpi_memory_t;

/* Memory within reach of one copy: an allocation, or pageable memory */
typedef struct {
    uintptr_t begin, end;
    bool      is_pageable; /* the CPU copies it */
    bool      is_allocation; /* all of one GPU allocation: no block may cross
                                its end */
    bool      is_gpu;        /* memory of a GPU, in whatever way it was made */
} ucx_mp_mpi_piece_t;

/* Copies in one context, from ucx_mp_mpi_copy_begin() to _end(). */
typedef struct {
    CUcontext          ctx;
    CUstream           stream;
    bool               is_kept; /* the stream is there for the next time, too */
    CUresult           result;  /* first failure */
    ucx_mp_mpi_piece_t piece;   /* looked up last */
} ucx_mp_mpi_copy_t;

/* Rows of the program's memory and of memory of ours, in bytes. */
typedef struct {
    char      *program, *staged; /* the first rows */
    ptrdiff_t stride, step;      /* from start to start, in each */
    size_t    length, count;
    bool      is_back;           /* copy to the program's memory */
    bool      is_joined;         /* rows are of several blocks side by side */
} ucx_mp_mpi_plane_t;

/* Size of the pieces of a GPU's memory, bytes: such a piece of addresses is all
   GPU memory, or none of it is. */
#define UCX_MP_MPI_GRANULE ((uintptr_t)2 << 20)


/*
 * Return in a few nanoseconds whether this process may have GPU memory: false
 * until libcuda is loaded. The transport module loads it for itself and reports
 * the program's first allocation.
 */
bool ucx_mp_mpi_gpu_is_used(void);

/* Whether libcuda is loaded, was initialised and sees a GPU. */
bool ucx_mp_mpi_gpu_is_there(void);

/* Return the kind of memory at an address; asks the driver (0.14 to 0.26 us on
   H200). */
ucx_mp_mpi_memory_t ucx_mp_mpi_gpu_memory(const void *address);

/* Whether bytes lie in one allocation of a GPU, or in none. */
bool ucx_mp_mpi_gpu_is_one(const void *address, size_t length);

/* Return whether bytes lie in one allocation of a GPU, within its kernels'
   reach. */
bool ucx_mp_mpi_gpu_holds(const void *address, size_t length);

/* Allocate GPU memory in the current context. @return 0 if there is none. */
CUdeviceptr ucx_mp_mpi_gpu_alloc(size_t size);
void ucx_mp_mpi_gpu_free(CUdeviceptr address);

/* Load the packing kernel (src/kernels) into the current context. */
bool ucx_mp_mpi_gpu_load(CUfunction *function);

/*
 * Begin copies to or from the memory at `address`, in its own context or, if it
 * has none, the current one or its device's primary one. Other work of the
 * program on the GPU is not waited for.
 */
void ucx_mp_mpi_copy_begin(ucx_mp_mpi_copy_t *copy, const void *address);

/* The same on one of several streams, 0 (as above) to UCX_MP_MPI_COPY_LANES -
   1: copies in one do not wait for another's. */
#define UCX_MP_MPI_COPY_LANES 4
void ucx_mp_mpi_copy_begin_lane(ucx_mp_mpi_copy_t *copy, const void *address,
                                unsigned lane);

/* Whether all copies so far are done, or one has failed. */
bool ucx_mp_mpi_copy_is_done(ucx_mp_mpi_copy_t *copy);

/*
 * Copy rows, in as few copies as possible: the driver refuses a copy across
 * the border of an allocation. The program's memory may be of any
 * kind, and in several places. Done when ucx_mp_mpi_copy_end() returns.
 */
void ucx_mp_mpi_copy_rows(ucx_mp_mpi_copy_t *copy, ucx_mp_mpi_plane_t plane);

/* Return whether kernels reach host memory by the CPU's own address. */
bool ucx_mp_mpi_copy_is_mapped(const void *address);

/* Page-locks memory of ours for copies from any context, unless it is. */
bool ucx_mp_mpi_copy_lock(ucx_mp_mpi_copy_t *copy, void *address, size_t size);

/* Get the number of the copy's context. @return Whether the driver says it. */
bool ucx_mp_mpi_copy_context_id(ucx_mp_mpi_copy_t *copy,
                                unsigned long long *id);

/* Copy host memory to a GPU's, and wait. @return Whether it is there. */
bool ucx_mp_mpi_copy_upload(ucx_mp_mpi_copy_t *copy, CUdeviceptr to,
                            const void *from, size_t size);

/* Launch the packing kernel; `program` is memory of the program's in it. */
void ucx_mp_mpi_copy_pack(ucx_mp_mpi_copy_t *copy, CUfunction function,
                          const ucx_mp_pack_args_t *args, const void *program);

/* Waits, and restores the current context. Returns the first failure. */
CUresult ucx_mp_mpi_copy_end(ucx_mp_mpi_copy_t *copy);

const char *ucx_mp_mpi_gpu_error(CUresult result);

#endif
