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


/** Start the thread, if it is not there yet. No lock of this folder is held.
 *  @return The socket that peers ask for descriptors by; NULL: there is no
 *          thread. */
const uct_cuda_node_descriptors_t *uct_cuda_node_watch_start(void);

/** For tests, whose drivers come and go: end the thread, start none any more,
 *  and answer @a is_there as if there were one. */
void uct_cuda_node_watch_replace(bool is_there);

/** There is something to look after. Any thread; a load while it is awake. */
void uct_cuda_node_watch_wake(void);

#endif
