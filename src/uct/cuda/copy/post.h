/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Put and get between memory of this process and a peer's GPU memory, block by
 * block: what a transport has for it, beside the queue that it has anyway.
 * Small blocks are gathered (group.h), others go by method.h.
 */
#ifndef UCT_CUDA_COPY_POST_H
#define UCT_CUDA_COPY_POST_H

#include <uct/cuda/copy/group.h>

#include <stdbool.h>


/** What the user says of an interface that has one. */
typedef struct {
    unsigned max_streams;   /**< That single-path transfers are spread over */
    unsigned kernel_blocks; /**< As in group.h */
    bool     enable_cache;  /**< Mappings of peers' memory are kept */
} uct_cuda_port_settings_t;


/** Zeros, until it is opened. */
typedef struct {
    uct_cuda_gather_t gather;
    unsigned          max_streams;
} uct_cuda_port_t;


/** @param engine  Given away: put back when the port is closed. */
void uct_cuda_port_open(uct_cuda_port_t *port, uct_cuda_queue_t *queue,
                        uct_cuda_mp_engine_t *engine,
                        const uct_cuda_port_settings_t *settings);

/**
 * The same for an interface of another transport, or for a queue that UCX knows
 * nothing of: with the engine and settings of a port that has been opened.
 *
 * @return UCS_OK (again, too); UCS_ERR_NO_ELEM: there is no such port.
 */
ucs_status_t uct_cuda_port_lend(uct_cuda_port_t *port, uct_cuda_queue_t *queue);

/** Behind the queue's cleanup: nothing is under way any more. Undoes that, if
 *  it was done. */
void uct_cuda_port_close(uct_cuda_port_t *port);


/** Refuse what has no key, or leaves the key's memory: UCS_ERR_INVALID_PARAM
 *  (logged). */
ucs_status_t uct_cuda_port_check(const uct_cuda_copy_t *copy);

/**
 * Post a copy that has been checked; finds out where its ends are.
 *
 * @param has_more  Others follow for sure.
 * @param is_next   Of a list that has been checked, and others of it have gone
 *                  before.
 * @return UCS_INPROGRESS, UCS_OK (over already), UCS_ERR_NO_RESOURCE; or an
 *         error, after which nothing of it is under way.
 */
ucs_status_t uct_cuda_port_post(uct_cuda_port_t *port, uct_cuda_copy_t *copy,
                                bool has_more, bool is_next);

/** Check a copy that is on its own, and post it. */
ucs_status_t uct_cuda_port_transfer(uct_cuda_port_t *port,
                                    uct_cuda_copy_t *copy, bool has_more);

#endif
