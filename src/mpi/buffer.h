/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A buffer of an MPI call: the memory it covers, and its staging memory.
 */
#ifndef UCX_MP_MPI_BUFFER_H_
#define UCX_MP_MPI_BUFFER_H_

#include <mpi/gpu.h>
#include <mpi/layout.h>
#include <mpi/pack.h>
#include <mpi/packed.h>
#include <mpi/pool.h>
#include <mpi/pmpi.h>


/* How a call uses a buffer */
typedef enum {
    UCX_MP_MPI_READ    = 1,
    UCX_MP_MPI_WRITE   = 2, /* the call writes all of it; with UCX_MP_MPI_READ,
                               as much as arrives */
    UCX_MP_MPI_RECEIVE = 4  /* the other rank sends its message even if this
                               rank fails */
} ucx_mp_mpi_use_t;

typedef struct {
    void                *pointer_p; /* address of the wrapper's pointer
                                       argument */
    const void          *original;
    const void          *given;      /* pointer that the MPI gets instead */
    unsigned            use;
    bool                is_lost;     /* no staging memory: the MPI's call gets a
                                        dummy buffer */
    ucx_mp_mpi_parts_t  parts;
    ucx_mp_mpi_layout_t layout;      /* byte ranges, relative to `original` */
    const void          *on_gpu;     /* some address of the buffer in GPU
                                        memory; NULL: not looked up, or none */
    ptrdiff_t           low;         /* offset of the first byte, bytes from
                                        `original` */
    ptrdiff_t           shift;       /* distance from the original to its image,
                                        bytes */
    char                *staged;     /* packed copy; NULL: the copy is an
                                        image */
    ucx_mp_mpi_packed_t packed;
    ucx_mp_mpi_block_t  *block;      /* the copy's memory, or NULL */

    /* For messages that are sent packed (message.h): */
    ucx_mp_mpi_element_t   *element;  /* datatype; NULL: not such a message */
    void                   *count_p;  /* address of the wrapper's count
                                         argument */
    size_t                 count_width;
    size_t                 bytes;     /* packed size of all elements */
    bool                   is_single; /* all bytes are in one allocation of one
                                         GPU */
    bool                   is_cpu;    /* the MPI moves the bytes with the CPU,
                                         not UCX */
    bool                   is_packed; /* a kernel packs; false: copies do */
} ucx_mp_mpi_buffer_t;


/* Return whether a pointer points to host memory; asks the driver. Managed
   memory does not count. MPI_IN_PLACE counts as host memory; MPI_BOTTOM does
   not, since its datatype may lead to a GPU. */
bool ucx_mp_mpi_pointer_is_host(const void *pointer);

/* Return in a few nanoseconds whether a pointer points to the heap, as small
   memory from malloc() does: this is host memory. false: unknown. */
bool ucx_mp_mpi_pointer_is_heap(const void *pointer);

/* Return whether ucx_mp_mpi_pointer_is_host() holds for both pointers; asks the
   driver. */
bool ucx_mp_mpi_pointers_are_host(const void *first, const void *second);

/* Return whether a pointer points to memory that the CPU cannot access; asks
   the driver. MPI_IN_PLACE and MPI_BOTTOM do not count. */
bool ucx_mp_mpi_pointer_is_gpu(const void *pointer);

/* Replace the wrapper's pointer argument. */
void ucx_mp_mpi_buffer_point(ucx_mp_mpi_buffer_t *buffer, const void *pointer);

/* Return an address of the buffer in GPU or managed memory; NULL if all rows
   and `original` are host memory. Rows are looked up one by one: a datatype may
   span allocations. */
const void *ucx_mp_mpi_buffer_on_gpu(const ucx_mp_mpi_buffer_t *buffer);


/* For packed messages: */

/* Find the memory of the buffer: sets low, on_gpu and is_single. If the range
   is neither all host memory nor in one GPU allocation, fills the layout, too.
   @return Size of the range that the elements span, bytes; 0: all host
           memory, or memory that an MPI with CUDA handles. */
size_t ucx_mp_mpi_buffer_locate(ucx_mp_mpi_buffer_t *buffer);

/* Replace the wrapper's pointer, datatype and count, so that the MPI sends or
   receives the buffer's packed bytes at `pointer`. Above INT_MAX bytes the
   count stays. @return false, with nothing replaced, if no datatype can be
   made. */
bool ucx_mp_mpi_buffer_give_bytes(ucx_mp_mpi_buffer_t *buffer,
                                  const void *pointer);

/* Allocate memory for the packed bytes and make the MPI call use it: on the GPU
   if a kernel can pack them and UCX sends them, else in the host, unless the
   MPI has CUDA. @return false: no memory, no datatype, or an unknown packed
   order. */
bool ucx_mp_mpi_buffer_hold_bytes(ucx_mp_mpi_buffer_t *buffer,
                                  ucx_mp_mpi_copy_t *copy);

#endif
