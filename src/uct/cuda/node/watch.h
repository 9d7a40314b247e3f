/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that looks after memory which comes and goes while the program calls
 * nothing. As an owner it finds allocations that were freed, tells peers, and
 * makes descriptors for them; as a peer it unmaps what owners have freed. It
 * wakes up 50 times a second while there is something to look after, and once a
 * second otherwise.
 *
 * Closing a legacy mapping waits for the work of its context, which may wait
 * for the program. The thread leaves that to a thread of the program: to the
 * next progress call of any worker.
 */
#ifndef UCT_CUDA_NODE_WATCH_H
#define UCT_CUDA_NODE_WATCH_H

#include <uct/cuda/node/descriptors.h>

#include <stdbool.h>


/** What the thread looks after: one of the exports', one of the mappings'. */
typedef struct {
    /** Look once. Returns whether there is anything to look after. */
    bool (*look)(void);
    /** Make a descriptor for a peer, or return -1. NULL: none are asked for */
    int  (*make)(const uct_cuda_node_notice_t *notice);
    /** Close what a forked child has inherited. NULL: nothing */
    void (*close_inherited)(void);
} uct_cuda_node_watched_t;


/** Have the thread look after something, and start it if it is not there yet.
 *  No lock of this folder is held.
 *  @return The socket that peers ask for descriptors by; NULL: there is no
 *          thread. */
const uct_cuda_node_descriptors_t *
uct_cuda_node_watch_start(const uct_cuda_node_watched_t *watched);

/** For tests, whose drivers come and go: end the thread, start none any more,
 *  and answer @a is_there as if there were one. */
void uct_cuda_node_watch_replace(bool is_there);

/** There is something to look after. Any thread; a load while it is awake. */
void uct_cuda_node_watch_wake(void);

#endif
