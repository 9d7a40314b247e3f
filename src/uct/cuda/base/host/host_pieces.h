/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces of a host buffer by page-locked registration; no copy may cross their
 * boundaries. The program's memory is never locked for a message.
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

/** Pieces, each locked by one registration or not at all. */
typedef struct {
    bool     is_locked; /**< All pieces are locked */
    size_t   pageable;  /**< Bytes not locked */
    unsigned count;
    unsigned space;
    /** End of each piece, bytes from the start; ascending */
    size_t   *ends;
    size_t   few_ends[UCT_CUDA_HOST_PIECES_FEW];
} uct_cuda_host_pieces_t;


/** Start without pieces. The object must not be moved. */
void uct_cuda_host_pieces_init(uct_cuda_host_pieces_t *pieces);

/**
 * Find the pieces of a buffer, with one driver query for each. Call once.
 *
 * @param length  Bytes, at least 1.
 * @return UCS_OK or UCS_ERR_NO_MEMORY; release the pieces in both cases.
 */
ucs_status_t uct_cuda_host_pieces_find(uct_cuda_host_pieces_t *pieces,
                                       const void *address, size_t length);

/** Free the list of pieces. Thread safe. */
void uct_cuda_host_pieces_release(uct_cuda_host_pieces_t *pieces);

/**
 * Submit a copy to a stream, with its context current.
 *
 * The driver refuses memory that is page-locked in part, or by several
 * registrations; such a copy is divided as needed.
 *
 * @return UCS_OK, or the driver's error; part of the copy may then be running.
 */
ucs_status_t uct_cuda_host_copy(CUdeviceptr gpu, void *host, size_t length,
                                bool to_gpu, CUstream stream);

/**
 * Submit a copy of each piece to a stream, with its context current.
 *
 * @param host  Address of the pieces.
 * @return As uct_cuda_host_copy().
 */
ucs_status_t uct_cuda_host_pieces_copy(const uct_cuda_host_pieces_t *pieces,
                                       CUdeviceptr gpu, void *host, bool to_gpu,
                                       CUstream stream);


END_C_DECLS

#endif
