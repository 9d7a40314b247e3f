/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the module's own. */
#ifndef UCT_CUDA_BASE_THREAD_H
#define UCT_CUDA_BASE_THREAD_H

#include <ucs/sys/compiler_def.h>

#include <pthread.h>
#include <stdbool.h>

BEGIN_C_DECLS


/**
 * Start a thread that takes no signals: those are for the program's threads.
 *
 * @return Whether there is one; then it is to be joined or detached.
 */
bool uct_cuda_thread_start(void *(*func)(void *arg), void *arg,
                           pthread_t *thread_p);


END_C_DECLS

#endif
