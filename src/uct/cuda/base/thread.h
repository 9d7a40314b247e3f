/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the module's own. */
#ifndef UCT_CUDA_BASE_THREAD_H
#define UCT_CUDA_BASE_THREAD_H

#include <ucs/sys/compiler_def.h>

#include <pthread.h>
#include <stdbool.h>

BEGIN_C_DECLS


/*
 * The order of the module's locks. Whoever holds one takes only locks that
 * stand further below; those of one line are never held together. UCX's own
 * (of a worker, of a context) are outside of all: none of ours is held when UCX
 * is called back, with a completion, a pending request or a purged one.
 *
 *   0. cuda_cma/cuda_cma_server.c    starting and ending the one server
 *      node/watch.c                  while it looks; forks wait for that
 *      process_settings.c            what memory domains say for the process
 *   1. multipath/registry.c          making and destroying of engines
 *   2. multipath/transfer.c          an engine: plans, submits, releases
 *      node/rkey.c                   which peers can be reached
 *      node/memh.c                   a memory handle's exports
 *   3. node/mappings.c               mappings of peers' memory, and what
 *                                    they tell of it
 *      node/exports.c                what others have handles of
 *      copy/kernel.c                 loading a kernel for small blocks
 *      run/background.c              threads that prepare; these take no lock
 *      multipath/traffic.c           what is under way on the links
 *      run/device.c                  streams and kernels of collectives
 *      collective/lanes.c            what these use of the links
 *      base/trace.c                  copies of a timeline, while there is one
 *   4. base/topo_probe.c             the node's topology
 *      base/ctx.c                    contexts that are kept; one lock for
 *                                    making our own, then that of all
 *      base/memtype.c                UCX's cache of memory types
 *      base/iface.c                  workers to be called in progress; of
 *                                    UCX's locks only a queue's is taken
 *   5. node/watch.c                  its start and end
 *      base/nvml.c, base/alarm.c, base/host/host_bounce.c,
 *      base/host/host_pipeline.c, base/queue.c,
 *      collective/options.c, node/alive.c, node/process.c, copy/post.c,
 *      cuda_cma/cuda_cma_ranges.c, cuda_cma/cuda_cma_peer.c, abi/
 *   6. base/context.c                records by context, and making a member
 *   7. base/driver.c                 opens the driver at its first use
 *
 * The driver is called with any of them held. What it calls back (the queue's
 * wake-up) takes none, nor do the hooks on its first use and on unmapping.
 */


/**
 * Start a thread that takes no signals but those of its own faults: all others
 * are for the program's threads. It breaks no capture of theirs: see
 * uct_cuda_capture_relax().
 *
 * @return Whether there is one; then it is to be joined or detached.
 */
bool uct_cuda_thread_start(void *(*func)(void *arg), void *arg,
                           pthread_t *thread_p);


/** The same with attributes, of which NULL is the usual ones. */
bool uct_cuda_thread_start_with(const pthread_attr_t *attr,
                                void *(*func)(void *arg), void *arg,
                                pthread_t *thread_p);


END_C_DECLS

#endif
