/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process that has page-locked memory shares with its peers: requests to
 * have a GPU of its own copy between that memory and theirs. A file without a
 * name; a key says by which descriptor the process has it.
 *
 * A peer holds the number of a slot (node/alive.h), takes it, writes requests
 * into its ring one after the other, and looks at their states. A state is a
 * request's owner: what the peer writes with it (POSTED) is for the server to
 * read once it has taken it.
 *
 * Words that say that there is something to do, and the one that says that the
 * server sleeps, are sequentially consistent: who posts looks at the latter
 * behind that, who goes to sleep the other way round, and one of them sees the
 * other's.
 */
#ifndef UCT_CUDA_CMA_PAGE_H
#define UCT_CUDA_CMA_PAGE_H

#include <uct/cuda/node/alive.h>
#include <uct/cuda/node/memh.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>


#define UCT_CUDA_CMA_SLOTS    64   /**< Peers' endpoints at a time */
#define UCT_CUDA_CMA_REQUESTS 2048 /**< Under way of a slot */
#define UCT_CUDA_CMA_KEYS     16   /**< Allocations that they are in */


typedef enum {
    UCT_CUDA_CMA_FREE,      /**< The peer's, to be written */
    UCT_CUDA_CMA_POSTED,
    UCT_CUDA_CMA_TAKEN,     /**< By the server */
    UCT_CUDA_CMA_TAKEN_BACK, /**< By the peer, before the server took it */
    UCT_CUDA_CMA_DONE,      /**< Every byte is there */
    UCT_CUDA_CMA_REFUSED    /**< Nothing is under way; some may be there */
} uct_cuda_cma_state_t;


/** A copy between the peer's GPU memory and the server's host memory. */
typedef struct {
    uint32_t state;   /**< uct_cuda_cma_state_t */
    uint16_t key;     /**< Index of the GPU memory's */
    uint16_t to_host; /**< Else to the GPU */
    uint32_t serial;  /**< Of that key */
    uint64_t gpu;     /**< Address in the peer */
    uint64_t host;    /**< Address in the server's process */
    uint64_t length;  /**< Bytes */
} uct_cuda_cma_request_t;


/** An allocation of the peer's; written while no request that is under way
 *  names it. */
typedef struct {
    uint32_t                    serial; /**< Another for each allocation */
    uct_cuda_node_packed_rkey_t packed;
} uct_cuda_cma_page_key_t;


typedef struct {
    int32_t                 pid;     /**< Of the peer; 0: nobody has it */
    uint32_t                is_over; /**< The peer has no use for it */
    uct_cuda_cma_page_key_t keys[UCT_CUDA_CMA_KEYS];
    uct_cuda_cma_request_t  requests[UCT_CUDA_CMA_REQUESTS];
} uct_cuda_cma_slot_t;


typedef struct {
    uint64_t            token;     /**< A key's is the same */
    uint32_t            size;      /**< Of this structure */
    uint32_t            is_over;   /**< The server takes no more */
    uint32_t            is_asleep; /**< ... on this word, a futex */
    uint32_t            beat;      /**< Counts while it is awake */
    uint32_t            is_short;  /**< Somebody found no slot */
    uct_cuda_cma_slot_t slots[UCT_CUDA_CMA_SLOTS];
} uct_cuda_cma_page_t;


/** Where a server's page is; part of a key. */
typedef struct {
    uint64_t token; /**< 0: there is no server */
    int32_t  fd;    /**< Its descriptor in its process */
    uint32_t reserved;
} uct_cuda_cma_server_id_t;


/** Make a page. @return NULL: no memory, or no descriptor. */
uct_cuda_cma_page_t *uct_cuda_cma_page_create(uct_cuda_cma_server_id_t *id_p);

/** Map that of a process whose memory may be read (cuda_cma_peer.h).
 *  @param alive_p  To be closed with it.
 *  @return NULL: it has none, or not any more. */
uct_cuda_cma_page_t *
uct_cuda_cma_page_open(pid_t pid, const uct_cuda_cma_server_id_t *id,
                       uct_cuda_node_alive_t **alive_p);

void uct_cuda_cma_page_close(uct_cuda_cma_page_t *page);

/** Wake the server up, if it sleeps, behind a word that it looks at. */
void uct_cuda_cma_page_wake(uct_cuda_cma_page_t *page);

/** The same by its own process, which believes no peer that says that it is
 *  awake. */
void uct_cuda_cma_page_wake_own(uct_cuda_cma_page_t *page);

/** Sleep until that, or for @a max_ns: a peer that says that it wakes the
 *  server up may be killed before it does. @a is_idle is asked once more, when
 *  nobody can post without a wake-up any more. */
void uct_cuda_cma_page_sleep(uct_cuda_cma_page_t *page, bool (*is_idle)(void),
                             uint64_t max_ns);


static inline uct_cuda_cma_state_t
uct_cuda_cma_request_state(const uct_cuda_cma_request_t *request)
{
    /* With it comes what its last owner wrote */
    return (uct_cuda_cma_state_t)__atomic_load_n(&request->state,
                                                 __ATOMIC_SEQ_CST);
}

static inline void
uct_cuda_cma_request_hand_over(uct_cuda_cma_request_t *request,
                               uct_cuda_cma_state_t state)
{
    __atomic_store_n(&request->state, (uint32_t)state, __ATOMIC_SEQ_CST);
}

/** Take it, or take it back. @return Whether nobody was faster. */
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
