/* SPDX-License-Identifier: BSD-3-Clause */
/* Reasons for falling back to the MPI, as written to the log. */
#ifndef UCT_CUDA_COLLECTIVE_FALLBACK_H
#define UCT_CUDA_COLLECTIVE_FALLBACK_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>
#include <uct/cuda/collective_api.h>

#include <stddef.h>

BEGIN_C_DECLS


/** The reason concerns all ranks. */
#define UCT_CUDA_COLL_ALL (-1)


typedef struct {
    uct_cuda_coll_reason_t reason;
    int                    rank;   /**< Rank that caused it, or ALL */
    ucs_status_t           status; /**< UCS_OK: nothing failed */
} uct_cuda_coll_fallback_t;


/** Format "export, rank 1: cannot export a buffer (status -1)". The rank is
 *  left out if it is ALL, the status if it is UCS_OK. Returns @a text. */
const char *uct_cuda_coll_fallback_str(const uct_cuda_coll_fallback_t *fallback,
                                       char *text, size_t size);


END_C_DECLS

#endif
