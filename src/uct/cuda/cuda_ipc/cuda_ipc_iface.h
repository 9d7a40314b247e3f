/* SPDX-License-Identifier: BSD-3-Clause */
/* Interface of cuda_ipc: its settings, and memory domain data used by it. */
#ifndef UCT_CUDA_IPC_IFACE_H
#define UCT_CUDA_IPC_IFACE_H

#include <uct/abi/abi.h>
#include <uct/cuda/base/fabric.h>

#include <stdbool.h>


#define UCT_CUDA_IPC_MAX_MULTIPATH_VARS 24


/** UCX_CUDA_IPC_* of the interface; names and defaults of stock UCX. */
typedef struct {
    uct_abi_iface_config_t super;
    unsigned               max_events;
    unsigned               max_poll;
    unsigned               max_streams;
    int                    enable_get_zcopy; /**< uct_abi_on_off_auto_t */
    double                 bandwidth;        /**< Bytes/s, or auto */
    int                    enable_cache;
    double                 overhead;         /**< Seconds */
    double                 latency;          /**< Seconds */
    int                    enable_same_process;
    /** Thread blocks of the copy kernel */
    unsigned               kernel_blocks;
    char                   *multipath[UCT_CUDA_IPC_MAX_MULTIPATH_VARS];
} uct_cuda_ipc_iface_config_t;


/** Memory domain data used by interfaces. */
typedef struct {
    uct_abi_md_t      super;
    bool              has_fabric;
    uct_cuda_fabric_t fabric;
} uct_cuda_ipc_md_t;


extern const uct_abi_tl_t uct_cuda_ipc_tl;

#endif
