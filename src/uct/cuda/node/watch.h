/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Watch thread for memory freed while the program makes no call. For an owner
 * it detects freed allocations, invalidates their handles, and creates
 * descriptors on request; for a peer it unmaps memory freed by owners. It runs
 * 50 times a second while there is memory to watch, and once a second
 * otherwise.
 *
 * Closing a legacy mapping waits for work in its context, which may wait for
 * the program. The thread leaves these to the next progress call of any
 * worker.
 */
#ifndef UCT_CUDA_NODE_WATCH_H
#define UCT_CUDA_NODE_WATCH_H

#include <uct/cuda/node/descriptors.h>

#include <stdbool.h>


/** Client of the thread: one is the exports', one the mappings'. */
typedef struct {
    /** Check once. Returns whether there is memory to watch. */
    bool (*poll)(void);
    /** Create a descriptor for a peer, or return -1. NULL: no requests */
    uct_cuda_node_make_t make;
    /** Make a handle for a peer; not NULL if the above is not */
    uct_cuda_node_renew_t renew;
    /** Close resources inherited by a forked child. NULL: none */
    void (*close_inherited)(void);
} uct_cuda_node_watched_t;


/**
 * Add a client, and start the thread if needed. Call it without any lock of
 * this folder held.
 *
 * @return Socket for peers' requests; NULL: no thread.
 */
const uct_cuda_node_descriptors_t *
uct_cuda_node_watch_start(const uct_cuda_node_watched_t *watched);

/**
 * Stop the thread permanently. From now on callers behave as if it runs (@a
 * is_ready) or not. For tests that load one driver after another.
 */
void uct_cuda_node_watch_replace(bool is_ready);

/** Wake the thread: there is memory to watch. Thread safe; costs one load
 *  while it is awake. */
void uct_cuda_node_watch_wake(void);

#endif
