/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Process of this node with host memory that this process can read and write
 * without its help, by cross-memory attach. The kernel grants it like
 * ptrace(2).
 *
 * A PID may be reused after its process has ended. So a peer is held by a
 * pidfd, identified by its start time and by a random number read from its
 * memory, and checked before every copy. The number is checked as well: a
 * process that executes another program keeps everything else.
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


/** Interface address, as sent to peers. */
typedef struct {
    uct_cuda_node_iface_addr_t process;
    uint64_t                   start_time; /**< Clock ticks since boot */
    uint64_t                   place;      /**< Address of the random number */
    uint64_t                   number;     /**< Its value */
} uct_cuda_cma_addr_t;


typedef struct uct_cuda_cma_peer uct_cuda_cma_peer_t;


/** State of a peer by the kernel. */
typedef enum {
    UCT_CUDA_CMA_PEER_THERE,
    /** Not reported by the kernel: no conclusion */
    UCT_CUDA_CMA_PEER_UNKNOWN,
    UCT_CUDA_CMA_PEER_REPLACED, /**< By execve(); or the module was unloaded */
    /** All threads have ended, and its files are closed */
    UCT_CUDA_CMA_PEER_ENDED
} uct_cuda_cma_peer_state_t;


/** Return the address of this process for an interface number
 *  (node/process.h). */
void uct_cuda_cma_addr_self(uint32_t iface, uct_cuda_cma_addr_t *addr);

/**
 * Find a process and check that its memory is readable. All endpoints to a
 * process share one peer, and so one descriptor.
 *
 * @param addr      Process of this machine, other than this one.
 * @param reason_p  Filled with a constant text if not readable; may be NULL.
 * @return UCS_OK (release it with uct_cuda_cma_peer_put()), UCS_ERR_UNREACHABLE
 *         or UCS_ERR_NO_MEMORY.
 */
ucs_status_t uct_cuda_cma_peer_get(const uct_cuda_cma_addr_t *addr,
                                   uct_cuda_cma_peer_t **peer_p,
                                   const char **reason_p);

/** Query the kernel. 1 us. */
uct_cuda_cma_peer_state_t
uct_cuda_cma_peer_state(const uct_cuda_cma_peer_t *peer);

static inline bool uct_cuda_cma_peer_is_lost(uct_cuda_cma_peer_state_t state)
{
    return (state == UCT_CUDA_CMA_PEER_REPLACED) ||
           (state == UCT_CUDA_CMA_PEER_ENDED);
}

pid_t uct_cuda_cma_peer_pid(const uct_cuda_cma_peer_t *peer);

/** Add a reference. */
void uct_cuda_cma_peer_hold(uct_cuda_cma_peer_t *peer);

void uct_cuda_cma_peer_put(uct_cuda_cma_peer_t *peer);

/**
 * Copy between memory of this process and the peer; thread safe.
 *
 * @param peer     A uct_cuda_cma_peer_t, untyped for uct_cuda_host_remote_t.
 * @param address  In the peer.
 * @param to_local Read, else write.
 * @return UCS_OK; UCS_ERR_CONNECTION_RESET: the peer has ended or executes
 *         another program; UCS_ERR_INVALID_ADDR: no memory at the address;
 *         UCS_ERR_IO_ERROR: the kernel refuses. Errors are logged, and part of
 *         the data may have been copied.
 */
ucs_status_t uct_cuda_cma_peer_copy(void *peer, void *local, uint64_t address,
                                    size_t length, bool to_local);


END_C_DECLS

#endif
