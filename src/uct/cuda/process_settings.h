/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the user says that is the process's, not a memory domain's: threads that
 * copy, the one cache of mappings, collectives. Domains may be opened with
 * different values: the first one decides, for all that are opened while it or
 * one of those is open.
 */
#ifndef UCT_CUDA_PROCESS_SETTINGS_H
#define UCT_CUDA_PROCESS_SETTINGS_H

#include <ucs/sys/compiler_def.h>
#include <uct/cuda/collective/options.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/** UCX_CUDA_IPC_* */
typedef struct {
    bool          host_zcopy;        /**< This process's GPUs' copies as well
                                          may take several links, or threads */
    unsigned      host_copy_threads; /**< As in base/host/host_pipeline.h */
    unsigned long cache_max_regions; /**< As in node/mappings.h */
    size_t        cache_max_size;
    uct_cuda_coll_config_t collectives; /**< The first word that there is: what
                                             ranks agreed on hangs on it */
} uct_cuda_settings_t;


/** A memory domain is opened. One that wants other values than those in force
 *  is told at info level. Any thread; each call needs a close. */
void uct_cuda_settings_open(const uct_cuda_settings_t *settings);

/** It is closed. What is in force stays until the next one is opened. */
void uct_cuda_settings_close(void);

/**
 * Is what is of use for one-sided transfers alone, and changes messages, on by
 * default: ways to workers of the same process, and keys for host memory?
 */
bool uct_cuda_settings_is_one_sided(void);

/** host_zcopy, as it is in force; false to begin with. One load. */
bool uct_cuda_settings_host_zcopy(void);


END_C_DECLS

#endif
