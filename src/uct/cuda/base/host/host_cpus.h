/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processors that this process may use for copying: those it is bound to,
 * shared fairly with the node's other processes, within the quota of its
 * control group.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_CPUS_H
#define UCT_CUDA_BASE_HOST_HOST_CPUS_H

#include <ucs/sys/compiler_def.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


/** Return the number of processors for this process, at least 1. A processor
 *  shared by several processes bound to it counts as a fraction. Thread
 *  safe; costs one load. */
unsigned uct_cuda_host_cpus_share(void);


/**
 * Set the other processes of the node that move data. Thread safe; one system
 * call for each process. Without memory the share stays as it was.
 *
 * @param pids  Processes that have ended are ignored.
 */
void uct_cuda_host_cpus_set_others(const uint32_t *pids, unsigned count);


/**
 * Bind the calling thread near a GPU: to those of the process's processors next
 * to the GPU's PCIe link. If there are none, or the system does not tell, to
 * all of the process's.
 *
 * @param bus_id  PCI address in the driver's format: "0000:18:00.0".
 */
void uct_cuda_host_cpus_run_near(const char *bus_id);


/** Start a thread for short work without waiting for it, like
 *  uct_cuda_thread_start(). If the caller is bound to one processor it would
 *  have to share that with the thread; the thread then runs on any other
 *  processor of the process's control group, if there is one. Driver threads
 *  started meanwhile are moved to the caller's processors at the end. */
bool uct_cuda_host_cpus_start_beside(void *(*func)(void *arg), void *arg,
                                     pthread_t *thread_p);


/**
 * Return the number of processors granted by a control group and its ancestors,
 * rounded up; 0: no limit.
 *
 * @param root    Directory of the groups' files: "/sys/fs/cgroup".
 * @param groups  Groups of the process: the text of /proc/self/cgroup.
 */
unsigned uct_cuda_host_cpus_quota(const char *root, const char *groups);


END_C_DECLS

#endif
