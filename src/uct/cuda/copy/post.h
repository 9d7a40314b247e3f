/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put and get between memory of this process and a peer's GPU memory: the
 * copier of an interface, beside its queue. Small blocks are coalesced
 * (coalesce.h), others posted one by one (method.h).
 */
#ifndef UCT_CUDA_COPY_POST_H
#define UCT_CUDA_COPY_POST_H

#include <uct/cuda/copy/coalesce.h>

#include <stdbool.h>


/** User settings of an interface with a copier. */
typedef struct {
    unsigned max_streams;   /**< Streams used by single-path transfers */
    unsigned kernel_blocks; /**< As in coalesce.h */
    bool     enable_cache;  /**< Keep mappings of peers' memory */
} uct_cuda_copy_settings_t;


/** What an interface posts copies with; zeroed until opened. */
typedef struct {
    uct_cuda_copy_coalescer_t coalescer;
    unsigned                  max_streams;
} uct_cuda_copier_t;


/**
 * Open a copier. @param engine  Ownership passes to the copier, which releases
 * it when closed
 */
void uct_cuda_copier_open(uct_cuda_copier_t *copier, uct_cuda_queue_t *queue,
                          uct_cuda_mp_engine_t *engine,
                          const uct_cuda_copy_settings_t *settings);

/**
 * Open a copier for an interface of another transport, or for a queue unknown
 * to UCX, with engine and settings of a copier opened before.
 *
 * @return UCS_OK (also if open already); UCS_ERR_NO_ELEM: there is no such
 *         copier.
 */
ucs_status_t uct_cuda_copier_open_shared(uct_cuda_copier_t *copier,
                                         uct_cuda_queue_t *queue);

/** Close a copier if it is open, after the queue's cleanup, with nothing
 *  running. */
void uct_cuda_copier_close(uct_cuda_copier_t *copier);


/** Return UCS_OK if a copy is within its key's memory; without key, or
 *  outside: UCS_ERR_INVALID_PARAM (logged). */
ucs_status_t uct_cuda_copy_check_key(const uct_cuda_copy_t *copy);

/**
 * Check a copy's key, locate its ends and post it.
 *
 * @param has_more  The caller posts another copy at once.
 * @param is_next   Block of a list, not its first one. The caller has checked
 *                  all keys of the list.
 * @return UCS_INPROGRESS, UCS_OK (complete already), UCS_ERR_NO_RESOURCE; or an
 *         error with nothing running.
 */
ucs_status_t uct_cuda_copy_post(uct_cuda_copier_t *copier,
                                uct_cuda_copy_t *copy, bool has_more,
                                bool is_next);

#endif
