/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface of the module for the MPI interposition library (src/mpi):
 * collectives among the ranks of one node, carried out on GPUs. It is one
 * exported table of functions, found by its symbol, and uses no UCX type.
 *
 * As with any CUDA-aware MPI, the data of a buffer must be ready before the
 * call: the module does not wait for work in the program's streams.
 */
#ifndef UCT_CUDA_COLLECTIVE_API_H
#define UCT_CUDA_COLLECTIVE_API_H

#include <uct/cuda/collective_kinds.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Symbol of the table. A table with another layout gets another symbol. */
#define UCT_CUDA_COLL_API_SYMBOL "uct_cuda_coll_api_v7"

/** Maximum number of ranks of a team. */
#define UCT_CUDA_COLL_API_RANKS 64

/** Bytes of a segment name, including the terminating zero. */
#define UCT_CUDA_COLL_API_NAME 64

/** Bytes of a handle of exported memory. */
#define UCT_CUDA_COLL_API_HANDLE 320


/** Shared segment of the ranks of a program on one node. */
typedef struct uct_cuda_node_segment uct_cuda_node_segment_t;

/** Ranks of one node, making the same calls in the same order. */
typedef struct uct_cuda_coll_team uct_cuda_coll_team_t;

/** Memory of another process, mapped into this one. */
typedef struct uct_cuda_coll_mapping uct_cuda_coll_mapping_t;

/** A call that was started. */
typedef struct uct_cuda_coll_op uct_cuda_coll_op_t;


typedef enum {
    UCT_CUDA_COLL_DONE,    /**< The result is in every rank's buffer */
    /** All ranks fall back to the MPI; nothing was written */
    UCT_CUDA_COLL_STAGE,
    UCT_CUDA_COLL_DIFFERS, /**< Arguments differ between ranks; on all ranks */
    UCT_CUDA_COLL_FAILED,  /**< A GPU or a rank failed during the call */
    UCT_CUDA_COLL_PENDING  /**< A started call is not over */
} uct_cuda_coll_result_t;


/** Why the GPUs do not carry out a call, or did not complete it. Each reason
 *  has a word (docs/troubleshooting.md). A reason without FAULT concerns this
 *  call only: the next call is tried again. After NO_GPUS all calls fall back
 *  until a rank changes its context. */
typedef enum {
    UCT_CUDA_COLL_AHEAD, /**< A rank further ahead declined the call earlier */

    /* One rank declines */
    UCT_CUDA_COLL_NO_HOST,
    UCT_CUDA_COLL_NO_ARGUMENTS,
    UCT_CUDA_COLL_NO_DATATYPE,
    UCT_CUDA_COLL_NO_BLOCKS,
    UCT_CUDA_COLL_NO_NATIVE_PATH,
    UCT_CUDA_COLL_NO_BYTES,
    UCT_CUDA_COLL_NO_LIMITS,
    UCT_CUDA_COLL_NO_ALIGNMENT,
    UCT_CUDA_COLL_NO_ONE_GPU,
    UCT_CUDA_COLL_NO_CONTEXT,
    UCT_CUDA_COLL_NO_BUSY,
    UCT_CUDA_COLL_NO_EXPORT,
    UCT_CUDA_COLL_NO_JOIN,

    /* The ranks' arguments together lead to no plan */
    UCT_CUDA_COLL_NO_MIXED,
    UCT_CUDA_COLL_NO_GPUS,
    UCT_CUDA_COLL_NO_PLAN,
    UCT_CUDA_COLL_NO_SCRATCH,

    /* One rank cannot carry out the plan */
    UCT_CUDA_COLL_NO_MAP,
    UCT_CUDA_COLL_NO_UNMAP,
    UCT_CUDA_COLL_FAULT_MAKE,
    UCT_CUDA_COLL_FAULT_RUN,
    UCT_CUDA_COLL_FAULT_ENDED,
    UCT_CUDA_COLL_PAUSE, /**< Several FAULT_MAKE in a row */
    UCT_CUDA_COLL_REASON_LAST
} uct_cuda_coll_reason_t;


typedef struct {
    int            kind;        /**< uct_cuda_coll_kind_t */
    int            is_in_place; /**< With a root: the root's value counts */
    /** NULL if the rank sends nothing or is in place */
    const void     *sendbuf;
    void           *recvbuf;    /**< NULL if the rank receives nothing */
    uint64_t       count;       /**< Elements */
    /** REDUCE_SCATTER, ALLGATHER: elements of each rank's block, the same on
     *  all ranks; NULL: count for each */
    const uint64_t *counts;
    /** ucx_mp_op_t (src/kernels), for reductions */
    int            op;
    /** ucx_mp_type_t; for copies a type as wide as an element, for example
     *  U8 for bytes */
    int            type;
    unsigned       root;
    /** The caller's MPI accepts GPU memory: return STAGE where it is as
     *  fast; the same on all ranks */
    int            has_native_path;

    /** Called from time to time while waiting for other ranks; may be NULL */
    void           (*progress)(void *arg);
    void           *arg;
} uct_cuda_coll_call_t;


typedef struct {
    size_t size; /**< Bytes of this table */

    /** Return 1 if this process has GPUs and the user has not disabled
     *  collectives (UCX_CUDA_IPC_COLLECTIVES), 2 if the user has enabled
     *  them, else 0. */
    int (*is_on)(void);

    /**
     * Open the shared segment of a program's ranks on this node. It lives as
     * long as the process. Rank 0 calls first and creates the name; the caller
     * passes it to the other ranks.
     *
     * @param name     Filled by rank 0; read by the other ranks.
     * @return 0; -1 if no segment is available, also for ranks of other nodes.
     */
    int (*segment_open)(unsigned rank, unsigned size,
                        char name[UCT_CUDA_COLL_API_NAME],
                        uct_cuda_node_segment_t **segment_p);

    /** Remove the segment's name. Call when all ranks have opened it or
     *  given up. */
    void (*segment_opened)(uct_cuda_node_segment_t *segment);

    /** Return a word of the segment. Its value changes with each team
     *  created under a new key; 0: no team yet. */
    const uint32_t *(*segment_changes)(const uct_cuda_node_segment_t *segment);

    /** Return non-zero if a rank has joined a team of this key. */
    int (*segment_has)(const uct_cuda_node_segment_t *segment, uint64_t key);

    /**
     * Join a team without waiting for the other ranks. They may join before
     * later calls; until all have joined, calls fall back to the MPI.
     *
     * @param key      Communicator's key, the same on all its ranks and never
     *                 reused; not 0.
     * @param members  Segment ranks of the communicator's ranks.
     * @param calls    Calls made by this rank on the communicator before,
     *                 counting those given to fall_back() or collective().
     * @return 0; -1 if no team is available.
     */
    int (*team_create)(uct_cuda_node_segment_t *segment, uint64_t key,
                       unsigned rank, unsigned size, const unsigned *members,
                       uint64_t calls, uct_cuda_coll_team_t **team_p);

    void (*team_destroy)(uct_cuda_coll_team_t *team);

    /** Decline this rank's next call, of this kind: all ranks then fall
     *  back. Costs one store and never waits. With team NULL only the log
     *  is written. */
    void (*fall_back)(uct_cuda_coll_team_t *team, int kind,
                      uct_cuda_coll_reason_t reason);

    /**
     * Carry out a collective. Every rank of the team must make the call. The
     * first call waits up to 0.2 s for ranks that have not joined.
     *
     * @param why  Filled with a sentence unless the result is DONE or STAGE.
     */
    uct_cuda_coll_result_t (*collective)(uct_cuda_coll_team_t *team,
                                         const uct_cuda_coll_call_t *what,
                                         char *why, size_t why_size);

    /** Return this process's calls carried out on GPUs, and its eligible
     *  calls left to the MPI. */
    void (*counts)(uint64_t *done_p, uint64_t *staged_p);

    /** Make the program's synchronous copies to the allocation of an address
     *  complete before they return, so that another process may then read
     *  it. */
    void (*sync)(const void *address);

    /** Return the number of failures reported on the segment: a cheap check
     *  before segment_failed_rank(). */
    const uint32_t *(*segment_failures)(const uct_cuda_node_segment_t *segment);

    /**
     * Report that a rank failed in a call carried out by the MPI. Call before
     * the rank sends its part: each rank that has received the part then sees
     * the report.
     *
     * @param key     Communicator's key, not 0.
     * @param number  Number of the call in the communicator, the same on all
     *                ranks.
     * @param start   Number of starts of a persistent call.
     * @param rank    Failed rank of the communicator.
     */
    void (*segment_report_failure)(uct_cuda_node_segment_t *segment,
                                   uint64_t key, uint64_t number,
                                   uint32_t start, uint32_t rank);

    /** Return the rank that failed in a call; -1: no report. */
    int (*segment_failed_rank)(const uct_cuda_node_segment_t *segment,
                               uint64_t key, uint64_t number, uint32_t start);

    /**
     * Export GPU memory to the other processes of the node. Release it with
     * memory_release().
     *
     * @param handle  Plain data, for memory_map() in another process.
     * @return 0; -1: not shareable, or not within one allocation.
     */
    int (*memory_export)(const void *address, size_t size,
                         char handle[UCT_CUDA_COLL_API_HANDLE]);

    void (*memory_release)(char handle[UCT_CUDA_COLL_API_HANDLE]);

    /**
     * Map exported memory into the current context. If its GPU does not reach
     * the memory, or there is no context, map it into a context of the
     * memory's own GPU, which is for copies only.
     *
     * @param context_p    Filled with the CUcontext of the mapping.
     * @param is_copied_p  Filled with 1 if kernels cannot use the mapping.
     * @return Address of the memory in this process; 0: it cannot be mapped.
     *         Release it with memory_unmap().
     */
    uint64_t (*memory_map)(const char handle[UCT_CUDA_COLL_API_HANDLE],
                           uct_cuda_coll_mapping_t **mapping_p,
                           void **context_p, int *is_copied_p);

    void (*memory_unmap)(uct_cuda_coll_mapping_t *mapping);

    /**
     * Return non-zero if all ranks start a non-blocking call; 0 if all ranks
     * leave it to the MPI. The answer is the same on all ranks, and no rank
     * waits for another one: calls are left to the MPI until all ranks have
     * been able to start one, and are all started from then on.
     *
     * @param number  Number of the call, the same on all ranks and rising.
     */
    int (*is_queued)(uct_cuda_coll_team_t *team, uint64_t number,
                     int is_able);

    /**
     * Start a call, behind those that were started before. Never waits for
     * other ranks. A call of collective() or fall_back() comes behind it.
     *
     * @param reason  Not 0: this rank declines the call.
     */
    uct_cuda_coll_op_t *(*start)(uct_cuda_coll_team_t *team,
                                 const uct_cuda_coll_call_t *what,
                                 uct_cuda_coll_reason_t reason);

    /** Return PENDING, or the result, as of collective(): the call is then
     *  released. */
    uct_cuda_coll_result_t (*test)(uct_cuda_coll_op_t *op, char *why,
                                   size_t why_size);

    /** Carry on with all started calls, without waiting. UCX's progress does
     *  the same as long as there are any. */
    void (*progress)(void);

    /** Set the function to be called, by any thread and in UCX's progress, when
     *  calls have ended, and again while it returns non-zero. */
    void (*on_end)(int (*func)(void));

    /** Log a sentence at level info. */
    void (*note)(const char *sentence);

    /** Withdraw a rank's report of a failure in a call: the MPI has rejected
     *  the call, and its number is used again. */
    void (*segment_withdraw_failure)(uct_cuda_node_segment_t *segment,
                                     uint64_t key, uint64_t number,
                                     uint32_t rank);

    /** Return whether a kernel can be loaded in the current context now,
     *  without waiting for work of the program's. The question may end a
     *  capture. @param busy_p  For later calls in this context; 0 at first. */
    bool (*may_load)(uint64_t *busy_p);
} uct_cuda_coll_api_t;


/** The table itself, for code linked with the module. */
extern const uct_cuda_coll_api_t uct_cuda_coll_api_v7;

#ifdef __cplusplus
}
#endif

#endif
