/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings that belong to the process instead of a memory domain: copying
 * threads, the cache of mappings, collectives. If memory domains are opened
 * with different values, the first one decides for all that are opened while
 * it, or one of these, is open.
 */
#ifndef UCT_CUDA_PROCESS_SETTINGS_H
#define UCT_CUDA_PROCESS_SETTINGS_H

#include <ucs/sys/compiler_def.h>
#include <uct/cuda/collective/options.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/** Values of UCX_CUDA_IPC_* */
typedef struct {
    /** Copies of this process's GPUs may use several links, or threads, too */
    bool          host_zcopy;
    unsigned      host_copy_threads; /**< As in base/host/host_pipeline.h */
    unsigned long cache_max_regions; /**< As in node/mappings.h */
    size_t        cache_max_size;
    /** The first values stay for good: ranks' agreements depend on them */
    uct_cuda_coll_config_t collectives;
} uct_cuda_settings_t;


/** Use the settings of a memory domain being opened, unless settings are in
 *  force. Logs at info level if they differ. Thread safe; each call needs
 *  one uct_cuda_settings_close(). */
void uct_cuda_settings_open(const uct_cuda_settings_t *settings);

/** Note the closing of a memory domain. Settings stay in force until the
 *  next one is opened. */
void uct_cuda_settings_close(void);

/** Return whether features for one-sided transfers are on by default:
 *  connections between workers of one process, and keys for host memory.
 *  They would change the messages of other programs. */
bool uct_cuda_settings_is_one_sided(void);

/** Return the value of host_zcopy in force, at first false. Costs one load. */
bool uct_cuda_settings_host_zcopy(void);


END_C_DECLS

#endif
