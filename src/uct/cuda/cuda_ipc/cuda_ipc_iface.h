/* SPDX-License-Identifier: BSD-3-Clause */
/* Interface of cuda_ipc: its settings and what an endpoint uses of it. */
#ifndef UCT_CUDA_IPC_IFACE_H
#define UCT_CUDA_IPC_IFACE_H

#include <uct/cuda/base/iface.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_copier.h>
#include <uct/cuda/multipath/multipath.h>

#include <pthread.h>


#define UCT_CUDA_IPC_MAX_MULTIPATH_VARS 24


/** UCX_CUDA_IPC_* of the interface; names and defaults as stock UCX's. */
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
    int                    enable_same_process; /**< Accepted, no effect */
    unsigned               kernel_blocks;    /**< Blocks of threads */
    char                   *multipath[UCT_CUDA_IPC_MAX_MULTIPATH_VARS];
} uct_cuda_ipc_iface_config_t;


typedef struct uct_cuda_ipc_group uct_cuda_ipc_group_t;

/** Small copies that wait for others, see cuda_ipc_blocks.h */
typedef struct {
    uct_cuda_ipc_group_t *open;     /**< Gathers; NULL: nothing waits */
    uct_cuda_ipc_group_t *idle;
    uct_cuda_ipc_group_t *all;
    unsigned             max_count; /**< Blocks of the next group */
    bool                 is_fed;    /**< Was posted to since last asked ... */
    unsigned             waited;    /**< ... so many times in a row */
    uint64_t             fed;       /**< When (uct_cuda_now_ns()), ... */
    pthread_t            poster;    /**< ... by whom, ... */
    unsigned             streak;    /**< ... after so many others */
    bool                 is_threaded; /**< Another thread makes progress */
    unsigned             num_small; /**< Blocks so far, up to some */
    uct_cuda_ipc_copier_t *copiers; /**< A context */
    bool                 loads_kernels; /**< Or has those that are there */
} uct_cuda_ipc_blocks_t;


typedef struct {
    uct_cuda_iface_t     super;
    uint32_t             number; /**< See uct_cuda_node_iface_number() */
    unsigned             max_streams;
    unsigned             kernel_blocks; /**< Over PCIe; else twice that */
    bool                 enable_cache;
    int                  enable_get_zcopy;
    unsigned             uses; /**< UCT_ABI_IFACE_USE_ */
    double               bandwidth;
    double               latency;
    double               overhead;
    uct_cuda_mp_engine_t *engine;
    uct_cuda_ipc_blocks_t blocks;
} uct_cuda_ipc_iface_t;


extern const uct_abi_tl_t uct_cuda_ipc_tl;


/**
 * Give an interface of another transport, or one that UCX knows nothing of,
 * what uct_cuda_ipc_transfer() needs, with the engine and settings of a
 * cuda_ipc interface. Its queue is there already.
 *
 * @return UCS_OK (again, too); UCS_ERR_NO_ELEM: there is no such interface.
 */
ucs_status_t uct_cuda_ipc_iface_lend(uct_cuda_ipc_iface_t *iface);

/** Behind the queue's cleanup: nothing is under way any more. Undoes that, if
 *  it was done. */
void uct_cuda_ipc_iface_unlend(uct_cuda_ipc_iface_t *iface);

#endif
