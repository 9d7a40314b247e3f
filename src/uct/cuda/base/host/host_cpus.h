/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processors that this process may copy memory with: those that it is bound to,
 * less what other processes of the node have as good a claim to, and no more
 * than its control group grants.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_CPUS_H
#define UCT_CUDA_BASE_HOST_HOST_CPUS_H

#include <ucs/sys/compiler_def.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

BEGIN_C_DECLS


/**
 * Processors for this process, at least 1: each one that it is bound to counts
 * as what it is divided by the number of processes that are bound to it. Any
 * thread; one load.
 */
unsigned uct_cuda_host_cpus_share(void);


/**
 * Say which other processes of the node move data. Any thread; takes a system
 * call a process.
 *
 * @param pids  Those that are gone do not matter.
 */
void uct_cuda_host_cpus_set_others(const uint32_t *pids, unsigned count);


/**
 * Have the calling thread run near a GPU from now on: on those of the process's
 * processors that its PCIe link ends at. Where there are none, or the system
 * does not say, on all of the process's.
 *
 * @param bus_id  Of PCI, as the driver writes it: "0000:18:00.0".
 */
void uct_cuda_host_cpus_run_near(const char *bus_id);


/**
 * Start a thread of short work that the calling one is not to wait for, as
 * uct_cuda_thread_start() does. A caller that is bound to one processor would
 * wait all the same, for its own thread; that runs on any other one then that
 * the process may be given (its control group's), if there is one. Threads of
 * the driver's that start meanwhile get the caller's processors in the end.
 */
bool uct_cuda_host_cpus_start_beside(void *(*func)(void *arg), void *arg,
                                     pthread_t *thread_p);


/**
 * Number of processors that a control group and those above it grant, rounded
 * up; 0: no limit.
 *
 * @param root    Where the groups' files are: "/sys/fs/cgroup".
 * @param groups  The process's groups: the text of /proc/self/cgroup.
 */
unsigned uct_cuda_host_cpus_quota(const char *root, const char *groups);


END_C_DECLS

#endif
