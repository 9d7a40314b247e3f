/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the user says about host memory. What is locked and the threads that
 * copy are the process's, and memory domains may be opened with different
 * values: the first one decides, for all that are opened while it or one of
 * those is open.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_SETTINGS_H
#define UCT_CUDA_BASE_HOST_HOST_SETTINGS_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


typedef struct {
    bool     is_direct;   /**< HOST_ZCOPY: this process's GPUs' copies as well
                               may take several links, or threads */
    size_t   max_locked;  /**< HOST_REGISTER_MAX_SIZE: bytes */
    unsigned num_threads; /**< HOST_COPY_THREADS, as in host_pipeline.h */
} uct_cuda_host_settings_t;


/** A memory domain is opened. One that wants other values than those in force
 *  is told at info level. Any thread; each call needs a close. */
void uct_cuda_host_settings_open(const uct_cuda_host_settings_t *settings);

/** It is closed. What is in force stays until the next one is opened. */
void uct_cuda_host_settings_close(void);

/** is_direct, as it is in force; false to begin with. One load. */
bool uct_cuda_host_is_direct(void);


END_C_DECLS

#endif
