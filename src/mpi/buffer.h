/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A buffer of an MPI call: the place of its bytes, and its staging memory.
 */
#ifndef UCX_MP_MPI_BUFFER_H_
#define UCX_MP_MPI_BUFFER_H_

#include <mpi/gpu.h>
#include <mpi/layout.h>
#include <mpi/pack.h>
#include <mpi/packed.h>
#include <mpi/pool.h>
#include <mpi/pmpi.h>

#include <stdint.h>


/* Use of a buffer by a call */
typedef enum {
    UCX_MP_MPI_READ    = 1,
    UCX_MP_MPI_WRITE   = 2, /* all of it; with UCX_MP_MPI_READ, as much as
                             arrives */
    UCX_MP_MPI_RECEIVE = 4  /* another rank sends the message anyhow */
} ucx_mp_mpi_use_t;

typedef struct {
    void                *pointer_p; /* the wrapper's argument */
    const void          *original;
    const void          *given;      /* the MPI's pointer instead */
    unsigned            use;
    bool                is_lost;     /* it cannot be staged */
    ucx_mp_mpi_parts_t  parts;
    ucx_mp_mpi_layout_t layout;      /* relative to `original` */
    const void          *on_gpu;     /* an address of it in GPU memory */
    ptrdiff_t           low;         /* first byte of the layout */
    ptrdiff_t           shift;       /* from the original to the copy, bytes */
    char                *staged;     /* a packed copy, or NULL */
    ucx_mp_mpi_packed_t packed;
    ucx_mp_mpi_block_t  *block;

    /* Of a message sent or received packed (message.h) */
    ucx_mp_mpi_element_t   *element;  /* NULL: it is no such message */
    void                   *count_p;  /* the wrapper's argument */
    size_t                 count_width;
    size_t                 bytes;     /* of all elements when packed */
    bool                   is_whole;  /* in one allocation of a GPU */
    bool                   is_own;    /* the CPU moves it */
    bool                   is_packed; /* by the kernel, else by copies */
    ucx_mp_mpi_gpu_block_t *gpu_block; /* `staged` is GPU memory */
} ucx_mp_mpi_buffer_t;


/* Return MPI_BYTE, the type of a packed buffer. */
MPI_Datatype ucx_mp_mpi_byte(void);

/* Whether a pointer leads to host memory; MPI_BOTTOM leads anywhere. */
bool ucx_mp_mpi_pointer_is_host(const void *pointer);

/* Whether neither pointer can lead to GPU memory: slow part of the below. */
bool ucx_mp_mpi_pointers_are_host(const void *first, const void *second);

/* Return whether the MPI has no CUDA and either pointer leads to memory out of
   the CPU's reach. */
bool ucx_mp_mpi_pointers_are_gpu(const void *first, const void *second);

/* Give the wrapper's call another pointer. */
void ucx_mp_mpi_buffer_point(ucx_mp_mpi_buffer_t *buffer, const void *pointer);

/* Return an address of the buffer's layout in GPU memory, or NULL. */
const void *ucx_mp_mpi_buffer_on_gpu(const ucx_mp_mpi_buffer_t *buffer);


/* Functions for packed messages: */

/* Find out where the bytes are. @return Their range in memory, bytes; 0: they
   are host memory. */
size_t ucx_mp_mpi_buffer_locate(ucx_mp_mpi_buffer_t *buffer);

/* Give the wrapper's call bytes in a row instead of elements. */
bool ucx_mp_mpi_buffer_give_bytes(ucx_mp_mpi_buffer_t *buffer,
                                  const void *pointer);

/* Get memory for the packed bytes and give it to the wrapper's call. */
bool ucx_mp_mpi_buffer_hold_bytes(ucx_mp_mpi_buffer_t *buffer,
                                  ucx_mp_mpi_copy_t *copy);

#endif
