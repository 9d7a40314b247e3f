/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the module. */
#ifndef UCT_CUDA_BASE_THREAD_H
#define UCT_CUDA_BASE_THREAD_H

#include <ucs/sys/compiler_def.h>

#include <pthread.h>
#include <stdbool.h>

BEGIN_C_DECLS


/*
 * Order of the module's locks. A thread that holds one takes only locks further
 * below; those of one line are never held together. UCX's locks (of a worker or
 * a context) are outside of all: no lock of the module is held in calls back to
 * UCX, with a completion, a pending request or a purged one.
 *
 *   0. cuda_cma/cuda_cma_server.c    start and end of the server
 *      node/watch.c                  while it checks; forks wait for it
 *      process_settings.c            settings of the process
 *      collective/queue.c            non-blocking calls of teams
 *   1. multipath/registry.c          creation and destruction of engines
 *   2. multipath/transfer.c          an engine: plans, submits, releases
 *      node/rkey.c                   reachability of peers
 *      node/memh.c                   exports of a memory handle
 *   3. node/mappings.c               mappings of peers' memory, and their
 *                                    invalidation
 *      node/exports.c                exported allocations
 *      copy/kernel.c                 loading the copy kernel
 *      copy/legs.c                   host memory of copies in two legs
 *      run/background.c              threads of set-up; these take no lock
 *      multipath/traffic.c           traffic on the links
 *      run/device.c                  streams and kernels of collectives
 *      collective/links.c            links used by collectives
 *      base/trace.c                  copies of a timeline, if enabled
 *      base/memtype.c                UCX's memory type cache
 *   4. base/topo_probe.c             topology of the node
 *      base/ctx.c                    retained contexts; one lock for creating
 *                                    the module's, then that of all
 *      base/iface.c                  workers to be called in progress; of
 *                                    UCX's locks only a queue's is taken
 *   5. node/watch.c                  its start and end
 *      base/nvml.c, base/alarm.c, base/imports.c,
 *      base/host/host_bounce.c, base/host/host_pipeline.c, base/queue.c,
 *      collective/options.c, node/alive.c, node/descriptors.c,
 *      node/process.c, copy/post.c,
 *      cuda_cma/cuda_cma_ranges.c, cuda_cma/cuda_cma_peer.c,
 *      cuda_ipc/cuda_ipc_ep.c, abi/
 *   6. base/context_data.c           records of contexts, and their members
 *   7. base/driver.c                 opens the driver at its first use
 *
 * The driver is called with any of them held. Its callbacks (the queue's
 * wakeup) take none, nor do the hooks on first use and on unmapping. Those on
 * IPC handles take the lock of base/imports.c.
 */


/**
 * Start a thread with all signals blocked except those of its own faults: the
 * others are for the program's threads. It never invalidates their captures:
 * see uct_cuda_capture_relax().
 *
 * @return true: started; the caller joins or detaches it.
 */
bool uct_cuda_thread_start(void *(*func)(void *arg), void *arg,
                           pthread_t *thread_p);


/** Start a thread with attributes; NULL: defaults. */
bool uct_cuda_thread_start_with(const pthread_attr_t *attr,
                                void *(*func)(void *arg), void *arg,
                                pthread_t *thread_p);


/**
 * Wait until a thread ends, at most a second: the end of a process must not
 * wait for a thread that waits for a driver call which never returns, or for a
 * lock whose holder is in one.
 *
 * @return Whether it has ended.
 */
bool uct_cuda_thread_join(pthread_t thread);


END_C_DECLS

#endif
