/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory that is about to be copied to or from a GPU: the pieces that it
 * is page-locked in, by whomever, which no copy may cross. The program's memory
 * is the program's: nothing is locked for a message.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_PIECES_H
#define UCT_CUDA_BASE_HOST_HOST_PIECES_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


#define UCT_CUDA_HOST_PIECES_FEW 4

/** Of memory locked at one stroke, or not at all. */
typedef struct {
    bool     is_locked; /**< All of it */
    size_t   pageable;  /**< Bytes that are not locked */
    unsigned count;
    unsigned room;
    size_t   *ends;     /**< Of each piece, in bytes from the first one's start;
                             ascending */
    size_t   few_ends[UCT_CUDA_HOST_PIECES_FEW];
} uct_cuda_host_pieces_t;


/** No pieces. Stays where it is. */
void uct_cuda_host_pieces_init(uct_cuda_host_pieces_t *pieces);

/**
 * Find the pieces of a buffer; a question to the driver each. Call once.
 *
 * @param length  Bytes, at least 1.
 * @return UCS_OK or UCS_ERR_NO_MEMORY; either way to be released.
 */
ucs_status_t uct_cuda_host_pieces_find(uct_cuda_host_pieces_t *pieces,
                                       const void *address, size_t length);

/** Any thread. */
void uct_cuda_host_pieces_release(uct_cuda_host_pieces_t *pieces);

/**
 * Submit a copy to a stream, with its context current.
 *
 * The driver refuses memory of which only a part is page-locked, or parts by
 * several registrations; such a copy goes in as many pieces as it takes.
 *
 * @return UCS_OK, or the driver's error; then part of it may be under way.
 */
ucs_status_t uct_cuda_host_copy(CUdeviceptr gpu, void *host, size_t length,
                                bool to_gpu, CUstream stream);

/**
 * Submit a copy of each piece to a stream, with its context current.
 *
 * @param host  The address they were found at.
 *
 * @return As uct_cuda_host_copy().
 */
ucs_status_t uct_cuda_host_pieces_copy(const uct_cuda_host_pieces_t *pieces,
                                       CUdeviceptr gpu, void *host, bool to_gpu,
                                       CUstream stream);


END_C_DECLS

#endif
