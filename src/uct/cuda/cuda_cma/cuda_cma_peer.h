/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process of this node whose host memory this one may read and write without
 * its help: by cross-memory attach, which the kernel grants as it grants
 * ptrace(2).
 *
 * A process number is another process's once its owner has gone. So a peer is
 * held by a pidfd, known by its start time and a number that is read from its
 * memory, and asked whether it is alive before every copy. The number is looked
 * for again with every copy: a process that executes another program stays the
 * same in all else.
 */
#ifndef UCT_CUDA_CMA_PEER_H
#define UCT_CUDA_CMA_PEER_H

#include <uct/cuda/node/process.h>

#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

BEGIN_C_DECLS


/** Interface address, as peers are told. */
typedef struct {
    uct_cuda_node_iface_addr_t process;
    uint64_t                   start_time; /**< Clock ticks since boot */
    uint64_t                   place;      /**< Where its memory has ... */
    uint64_t                   number;     /**< ... this random number */
} uct_cuda_cma_addr_t;


typedef struct uct_cuda_cma_peer uct_cuda_cma_peer_t;


/** What the kernel says of a peer. */
typedef enum {
    UCT_CUDA_CMA_PEER_THERE,
    UCT_CUDA_CMA_PEER_UNKNOWN,  /**< It does not say: no verdict */
    UCT_CUDA_CMA_PEER_REPLACED, /**< By execve(); or the module has left it */
    UCT_CUDA_CMA_PEER_ENDED     /**< With all threads, and its files closed */
} uct_cuda_cma_peer_state_t;


/** This process's, of an interface with a number (node/process.h). */
void uct_cuda_cma_addr_self(uint32_t iface, uct_cuda_cma_addr_t *addr);

/**
 * Find the process and see whether its memory may be read. All endpoints of a
 * process share one peer, and so one descriptor.
 *
 * @param addr      Of this machine. The own process is no peer.
 * @param reason_p  Filled with a constant text if it may not; may be NULL.
 *
 * @return UCS_OK (to be put back), UCS_ERR_UNREACHABLE or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_cma_peer_get(const uct_cuda_cma_addr_t *addr,
                                   uct_cuda_cma_peer_t **peer_p,
                                   const char **reason_p);

/** Ask the kernel. 1 us. */
uct_cuda_cma_peer_state_t
uct_cuda_cma_peer_state(const uct_cuda_cma_peer_t *peer);

static inline bool uct_cuda_cma_peer_is_lost(uct_cuda_cma_peer_state_t state)
{
    return (state == UCT_CUDA_CMA_PEER_REPLACED) ||
           (state == UCT_CUDA_CMA_PEER_ENDED);
}

pid_t uct_cuda_cma_peer_pid(const uct_cuda_cma_peer_t *peer);

/** One more user. */
void uct_cuda_cma_peer_hold(uct_cuda_cma_peer_t *peer);

void uct_cuda_cma_peer_put(uct_cuda_cma_peer_t *peer);

/**
 * Copy between memory of this process and the peer's; any thread.
 *
 * @param peer     A uct_cuda_cma_peer_t, as uct_cuda_host_remote_t wants it.
 * @param address  In the peer.
 * @param to_local Read, else write.
 *
 * @return UCS_OK; UCS_ERR_CONNECTION_RESET: the peer is gone, or
 *         executes another program;
 *         UCS_ERR_INVALID_ADDR: it has no memory there; UCS_ERR_IO_ERROR: the
 *         kernel refuses. Logged. Part of it may have been copied.
 */
ucs_status_t uct_cuda_cma_peer_copy(void *peer, void *local, uint64_t address,
                                    size_t length, bool to_local);


END_C_DECLS

#endif
