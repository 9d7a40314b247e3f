/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA calls needed for staging: memory type of a pointer, copies, the
 * packing kernel. They use the libcuda that the process has loaded; this
 * library never loads it.
 */
#ifndef UCX_MP_MPI_GPU_H_
#define UCX_MP_MPI_GPU_H_

#include <kernels/kernels.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>


typedef enum {
    UCX_MP_MPI_MEMORY_HOST,
    UCX_MP_MPI_MEMORY_MANAGED, /* CPU and GPU can access it */
    UCX_MP_MPI_MEMORY_GPU
} ucx_mp_mpi_memory_t;

/* Range of addresses that one copy may cover */
typedef struct {
    uintptr_t begin, end;
    bool      is_pageable; /* pageable host memory: the CPU copies it */
    bool      is_allocation; /* a whole GPU allocation: no row may cross its
                                end */
    bool      is_gpu;        /* GPU memory of any kind */
} ucx_mp_mpi_piece_t;

/* A series of copies in one context, from ucx_mp_mpi_copy_begin() to _end() */
typedef struct {
    CUcontext          ctx;
    CUstream           stream;
    bool               is_kept; /* the stream is cached for later copies */
    CUresult           result;  /* first error */
    ucx_mp_mpi_piece_t piece;   /* range that was looked up last */
} ucx_mp_mpi_copy_t;

/* Rows to copy between the program's memory and staging memory, sizes in
   bytes */
typedef struct {
    char      *program, *staged; /* first row */
    ptrdiff_t stride, step;      /* distance between row starts */
    size_t    length, count;
    bool      is_back;           /* copy from staging memory to the program's */
    bool      is_joined;         /* a row may join several blocks of the
                                    datatype */
} ucx_mp_mpi_plane_t;

/* Size and alignment of GPU memory mappings, bytes: a range of this size is
   either all GPU memory or none. */
#define UCX_MP_MPI_GRANULE ((uintptr_t)2 << 20)


/*
 * Return whether this process may have GPU memory: false until libcuda is
 * loaded. If the transport module loaded it, false until the program creates a
 * context or allocates GPU memory. Takes 17 ns before libcuda is loaded, 2 to 3
 * ns afterwards.
 */
bool ucx_mp_mpi_gpu_is_used(void);

/* Return whether libcuda is loaded and initialised, and finds a GPU. */
bool ucx_mp_mpi_gpu_is_available(void);

/* Return the memory type of an address; HOST if the driver does not know it.
   Asks the driver (0.14 to 0.26 us on H200): call this and the functions below
   only after ucx_mp_mpi_gpu_is_used() or ucx_mp_mpi_gpu_is_available() returned
   true. */
ucx_mp_mpi_memory_t ucx_mp_mpi_gpu_memory(const void *address);

/* Return whether the driver accepts copies of memory in the current context. It
   refuses memory without a context (VMM, pools) unless the context's GPU has
   access to it. true also for other host memory, and if the driver does not
   know the address. */
bool ucx_mp_mpi_gpu_is_reached(const void *address);

/* Return whether the driver accepts one copy of these bytes: they do not cross
   the end of a GPU allocation, and ucx_mp_mpi_gpu_is_reached() holds. true also
   for host memory, and if the driver does not know the address. */
bool ucx_mp_mpi_gpu_is_copyable(const void *address, size_t length);

/* Return whether all bytes are in one allocation of GPU or managed memory; of
   VMM memory: in one mapping. false for memory in the host, also if cuMemCreate
   made it. */
bool ucx_mp_mpi_gpu_is_one_allocation(const void *address, size_t length);

/* Allocate GPU memory in the current context. @return Its address; NULL on
   failure. */
void *ucx_mp_mpi_gpu_alloc(size_t size);

/* Free memory of ucx_mp_mpi_gpu_alloc() that the program may use: wait for all
   work on the GPU, as cuMemFree() does. An error is ignored. */
void ucx_mp_mpi_gpu_free(void *address);

/* Free memory that only this library has used, with its context current,
   without waiting for the program's work. `is_waited`: the memory is needed
   at once. */
void ucx_mp_mpi_gpu_free_unused(void *address, bool is_waited);

/* Fill in the driver functions that load and launch kernels (src/kernels).
   @return false: the driver lacks one. */
bool ucx_mp_mpi_gpu_kernels(ucx_mp_kernels_driver_t *kernels);

/*
 * Begin copies to or from the memory at `address`. Their context becomes
 * current until ucx_mp_mpi_copy_end() or _leave(): the memory's; if it has none
 * (VMM, pools), the current one or the primary one of the memory's GPU. The
 * copies do not wait for other GPU work of the program. Errors are kept and
 * returned by ucx_mp_mpi_copy_end().
 */
void ucx_mp_mpi_copy_begin(ucx_mp_mpi_copy_t *copy, const void *address);

/* Begin copies on one of UCX_MP_MPI_COPY_STREAMS streams. 0 is the stream of
   ucx_mp_mpi_copy_begin(). Streams do not wait for each other. */
#define UCX_MP_MPI_COPY_STREAMS 4
void ucx_mp_mpi_copy_begin_on(ucx_mp_mpi_copy_t *copy, const void *address,
                              unsigned index);

/* Begin copies of any memory in the given context, else as
   ucx_mp_mpi_copy_begin_on(). Synchronous copies of the program to that memory
   may still be in progress: call the module's sync(). */
void ucx_mp_mpi_copy_begin_in(ucx_mp_mpi_copy_t *copy, CUcontext ctx,
                              unsigned index);

/* Describe the current context, without a stream: no copy can follow, and
   nothing must be ended. @return false: there is none. */
bool ucx_mp_mpi_copy_here(ucx_mp_mpi_copy_t *copy);

/* Submit a copy between memory of any kind that the driver knows, each end in
   one allocation. After an error, do nothing. */
void ucx_mp_mpi_copy_bytes(ucx_mp_mpi_copy_t *copy, void *to, const void *from,
                           size_t size);

/* Restore the current context without waiting for the copies: the next
   ucx_mp_mpi_copy_end() on the same stream of that context waits for them.
   After an error, or if the stream is not cached, wait like
   ucx_mp_mpi_copy_end().
   @return The first error. */
CUresult ucx_mp_mpi_copy_leave(ucx_mp_mpi_copy_t *copy);

/* Return whether all copies so far have finished, or one has failed. */
bool ucx_mp_mpi_copy_is_done(ucx_mp_mpi_copy_t *copy);

/*
 * Start to copy rows, in as few driver calls as possible: the driver refuses a
 * copy across the end of an allocation. The program's memory may be of any type
 * and in several allocations. The copies are complete when
 * ucx_mp_mpi_copy_end() returns. The CPU copies pageable host memory at once,
 * without waiting for copies submitted before.
 */
void ucx_mp_mpi_copy_rows(ucx_mp_mpi_copy_t *copy, ucx_mp_mpi_plane_t plane);

/* Return whether kernels can access host memory at the CPU's address. */
bool ucx_mp_mpi_copy_is_mapped(const void *address);

/* Page-lock memory of this library for all contexts, unless it is locked
   already. @return Whether it is locked. */
bool ucx_mp_mpi_copy_lock(ucx_mp_mpi_copy_t *copy, void *address, size_t size);

/* Get the id of the copy's context. @return false if the copy has failed, or
   the driver has no ids. */
bool ucx_mp_mpi_copy_context_id(ucx_mp_mpi_copy_t *copy,
                                unsigned long long *id);

/* Copy host memory to GPU memory; wait for it and for all earlier copies.
   @return Whether it succeeded; a failure is not kept in `copy`. */
bool ucx_mp_mpi_copy_upload(ucx_mp_mpi_copy_t *copy, void *to,
                            const void *from, size_t size);

/* Launch the packing kernel, unless an error is kept. `function` NULL: keep an
   error, since the kernel's context was destroyed. `program`: any address of
   the program's memory that the kernel reads or writes. */
void ucx_mp_mpi_copy_pack(ucx_mp_mpi_copy_t *copy, CUfunction function,
                          const ucx_mp_pack_args_t *args, const void *program);

/* Launch a reduction of `count` elements: `to` = `to` op `from`. */
void ucx_mp_mpi_copy_reduce(ucx_mp_mpi_copy_t *copy, ucx_mp_kernels_t *kernels,
                            ucx_mp_op_t op, ucx_mp_type_t type, void *to,
                            const void *from, size_t count);

/* Wait for all copies and restore the current context. @return The first
   error. */
CUresult ucx_mp_mpi_copy_end(ucx_mp_mpi_copy_t *copy);

const char *ucx_mp_mpi_gpu_error(CUresult result);

#endif
