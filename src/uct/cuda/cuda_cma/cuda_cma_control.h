/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control block of a server: a process with page-locked memory shares it with
 * its peers, for requests to copy between that memory and theirs with a GPU. It
 * is an unnamed file; a key contains its descriptor in the server's process.
 *
 * A peer holds the number of a slot (node/alive.h), writes requests into the
 * slot's ring one after the other, and polls their states. The state of a
 * request names its owner: the server may read the peer's values once it has
 * taken a POSTED request.
 *
 * Words announcing work, and the word announcing that the server sleeps, are
 * sequentially consistent. A peer posts and then checks for sleep, the server
 * announces sleep and then checks for work, so one of them sees the other's
 * word.
 */
#ifndef UCT_CUDA_CMA_CONTROL_H
#define UCT_CUDA_CMA_CONTROL_H

#include <uct/cuda/node/alive.h>
#include <uct/cuda/node/memh.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>


#define UCT_CUDA_CMA_SLOTS    64   /**< Endpoints of peers at a time */
#define UCT_CUDA_CMA_REQUESTS 2048 /**< Running requests of a slot */
#define UCT_CUDA_CMA_KEYS     16   /**< Allocations of these requests */


typedef enum {
    UCT_CUDA_CMA_FREE,      /**< Owned by the peer, to be written */
    UCT_CUDA_CMA_POSTED,
    UCT_CUDA_CMA_TAKEN,     /**< Owned by the server */
    /** Withdrawn by the peer before the server took it */
    UCT_CUDA_CMA_TAKEN_BACK,
    UCT_CUDA_CMA_DONE,      /**< Every byte is there */
    UCT_CUDA_CMA_REFUSED    /**< Nothing is running; some bytes may be there */
} uct_cuda_cma_state_t;


/** Copy between the peer's GPU memory and the server's host memory. */
typedef struct {
    uint32_t state;   /**< uct_cuda_cma_state_t */
    uint16_t key;     /**< Index of the GPU memory's key */
    uint16_t to_host; /**< Else to the GPU */
    uint32_t serial;  /**< Of that key */
    uint64_t gpu;     /**< Address in the peer */
    uint64_t host;    /**< Address in the server's process */
    uint64_t length;  /**< Bytes */
} uct_cuda_cma_request_t;


/** Allocation of the peer; written while no running request names it. */
typedef struct {
    uint32_t                    serial; /**< Unique for each allocation */
    uct_cuda_node_packed_rkey_t packed;
} uct_cuda_cma_control_key_t;


typedef struct {
    int32_t                    pid;     /**< Of the peer; 0: free */
    /** The peer does not use it any more */
    uint32_t                   is_over;
    uct_cuda_cma_control_key_t keys[UCT_CUDA_CMA_KEYS];
    uct_cuda_cma_request_t     requests[UCT_CUDA_CMA_REQUESTS];
} uct_cuda_cma_slot_t;


typedef struct {
    uint64_t            token;     /**< Same as in the key */
    uint32_t            size;      /**< Of this structure */
    uint32_t            is_over;   /**< The server takes no more requests */
    /** The server sleeps on this word, a futex */
    uint32_t            is_asleep;
    /** Heartbeat: counts while the server is awake */
    uint32_t            heartbeat;
    uint32_t            is_short;  /**< A peer found no free slot */
    uct_cuda_cma_slot_t slots[UCT_CUDA_CMA_SLOTS];
} uct_cuda_cma_control_t;


/** Location of a server's control block; part of a key. */
typedef struct {
    uint64_t token; /**< 0: no server */
    int32_t  fd;    /**< Descriptor in its process */
    uint32_t reserved;
} uct_cuda_cma_server_id_t;


/**
 * Create a control block.
 *
 * @return NULL: no memory, or no descriptor.
 */
uct_cuda_cma_control_t *
uct_cuda_cma_control_create(uct_cuda_cma_server_id_t *id_p);

/**
 * Map the control block of a process with readable memory (cuda_cma_peer.h).
 *
 * @param alive_p  Close it together with the control block.
 * @return NULL: it has none, or not any more.
 */
uct_cuda_cma_control_t *
uct_cuda_cma_control_open(pid_t pid, const uct_cuda_cma_server_id_t *id,
                          uct_cuda_node_alive_t **alive_p);

void uct_cuda_cma_control_close(uct_cuda_cma_control_t *control);

/** Wake up a sleeping server, after a change of a word it checks. */
void uct_cuda_cma_control_wake(uct_cuda_cma_control_t *control);

/** Wake up the server from its own process, which does not trust a peer's
 *  claim that it is awake. */
void uct_cuda_cma_control_wake_self(uct_cuda_cma_control_t *control);

/**
 * Sleep until woken, or for @a max_ns: a peer may be killed before it wakes the
 * server. @a is_idle is called again once no peer can post without a wakeup.
 */
void uct_cuda_cma_control_sleep(uct_cuda_cma_control_t *control,
                                bool (*is_idle)(void), uint64_t max_ns);


static inline uct_cuda_cma_state_t
uct_cuda_cma_request_state(const uct_cuda_cma_request_t *request)
{
    /* acquires the values of the last owner */
    return (uct_cuda_cma_state_t)__atomic_load_n(&request->state,
                                                 __ATOMIC_SEQ_CST);
}

static inline void
uct_cuda_cma_request_hand_over(uct_cuda_cma_request_t *request,
                               uct_cuda_cma_state_t state)
{
    __atomic_store_n(&request->state, (uint32_t)state, __ATOMIC_SEQ_CST);
}

/**
 * Take a request, or take it back.
 *
 * @return false: the other side was faster.
 */
static inline bool
uct_cuda_cma_request_take(uct_cuda_cma_request_t *request,
                          uct_cuda_cma_state_t state)
{
    uint32_t expected = UCT_CUDA_CMA_POSTED;

    return __atomic_compare_exchange_n(&request->state, &expected,
                                       (uint32_t)state, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_ACQUIRE);
}

#endif
