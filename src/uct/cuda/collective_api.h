/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the module offers to code outside of it that stands in front of an MPI
 * (src/mpi): collectives among the ranks of one node, carried out on GPUs. One
 * exported table of functions, found by its name; nothing of UCX is in it.
 *
 * The bytes in a buffer must be ready when a call is made, as with any
 * CUDA-aware MPI: work of the program's own streams is not waited for.
 */
#ifndef UCT_CUDA_COLL_API_H
#define UCT_CUDA_COLL_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The table's symbol. Another layout gets another name. */
#define UCT_CUDA_COLL_API_SYMBOL "uct_cuda_coll_api_v6"

/** Ranks of a group at most. */
#define UCT_CUDA_COLL_API_RANKS 64

/** Bytes of a name, its zero included. */
#define UCT_CUDA_COLL_API_NAME 64


/** What the ranks of a program on one node share. */
typedef struct uct_cuda_coll_board uct_cuda_coll_board_t;

/** Ranks of one node that make the same calls in the same order. */
typedef struct uct_cuda_coll_group uct_cuda_coll_group_t;


typedef enum {
    UCT_CUDA_COLL_DONE,    /**< The result is in every rank's buffer */
    UCT_CUDA_COLL_STAGE,   /**< All ranks are to do it another way; nothing was
                                written */
    UCT_CUDA_COLL_DIFFERS, /**< Ranks disagree about the bytes; on all ranks */
    UCT_CUDA_COLL_FAILED   /**< A GPU, or a rank, failed in the middle */
} uct_cuda_coll_result_t;


/**
 * Which collective, as MPI defines them. "count" is what it is in NCCL: the
 * elements of a rank's buffer, or of a block of those that deal with a block of
 * each rank; of n ranks the other buffer then has n blocks, in the order of
 * ranks. Numbers stay what they are.
 */
typedef enum {
    UCT_CUDA_COLL_KIND_ALLREDUCE,
    /** To the root. In place: there alone */
    UCT_CUDA_COLL_KIND_REDUCE,
    /** n blocks to one. In place: the block goes to the start of recvbuf */
    UCT_CUDA_COLL_KIND_REDUCE_SCATTER,
    /** The root's sendbuf to others' recvbuf */
    UCT_CUDA_COLL_KIND_BCAST,
    /** One block to n. In place: a rank's block is in recvbuf already */
    UCT_CUDA_COLL_KIND_ALLGATHER,
    /** Likewise, to the root */
    UCT_CUDA_COLL_KIND_GATHER,
    /** n blocks of the root to one each. In place: the root keeps its own */
    UCT_CUDA_COLL_KIND_SCATTER,
    /** n blocks to n; never in place */
    UCT_CUDA_COLL_KIND_ALLTOALL,
    UCT_CUDA_COLL_KIND_LAST
} uct_cuda_coll_kind_t;


/**
 * Why a call is not carried out by GPUs, or why it was not to its end; each has
 * a word (docs/collectives.md). What is no FAULT below is the call's own: the
 * next one is tried again.
 */
typedef enum {
    UCT_CUDA_COLL_AHEAD, /**< A rank that is further has said it before */

    /* A rank passes */
    UCT_CUDA_COLL_NO_HOST,
    UCT_CUDA_COLL_NO_ARGUMENTS,
    UCT_CUDA_COLL_NO_DATATYPE,
    UCT_CUDA_COLL_NO_BLOCKS,
    UCT_CUDA_COLL_NO_OWN_WAY,
    UCT_CUDA_COLL_NO_BYTES,
    UCT_CUDA_COLL_NO_LIMITS,
    UCT_CUDA_COLL_NO_ALIGNMENT,
    UCT_CUDA_COLL_NO_ONE_GPU,
    UCT_CUDA_COLL_NO_CONTEXT,
    UCT_CUDA_COLL_NO_BUSY,
    UCT_CUDA_COLL_NO_EXPORT,
    UCT_CUDA_COLL_NO_JOIN,

    /* What all have said leads to no plan */
    UCT_CUDA_COLL_NO_MIXED,
    UCT_CUDA_COLL_NO_GPUS,
    UCT_CUDA_COLL_NO_PLAN,
    UCT_CUDA_COLL_NO_SCRATCH,

    /* A plan cannot be carried out, on one rank */
    UCT_CUDA_COLL_NO_MAP,
    UCT_CUDA_COLL_FAULT_MAKE,
    UCT_CUDA_COLL_FAULT_RUN,
    UCT_CUDA_COLL_FAULT_ENDED,
    UCT_CUDA_COLL_PAUSE, /**< There were several FAULT_MAKE in a row */
    UCT_CUDA_COLL_REASON_LAST
} uct_cuda_coll_reason_t;


typedef struct {
    int            kind;        /**< uct_cuda_coll_kind_t */
    int            is_in_place; /**< Of calls with a root its word counts */
    const void     *sendbuf;    /**< May be NULL where the rank sends nothing,
                                     or in place */
    void           *recvbuf;    /**< ... or receives nothing */
    uint64_t       count;       /**< Elements */
    const uint64_t *counts;     /**< REDUCE_SCATTER, ALLGATHER: elements of each
                                     rank's block instead, the same on all
                                     ranks; NULL: count of each */
    int            op;          /**< ucx_mp_op_t (src/kernels), of reductions */
    int            type;        /**< ucx_mp_type_t; for copies one that is as
                                     wide as the elements, as U8 for bytes */
    unsigned       root;
    int            has_own_way; /**< The caller's MPI takes GPU memory: STAGE
                                     where it is as fast; the same on all
                                     ranks */

    /** Called now and then while others are waited for; may be NULL */
    void           (*progress)(void *arg);
    void           *arg;
} uct_cuda_coll_call_t;


typedef struct {
    size_t size; /**< Of this table, bytes */

    /** 1 if this process has GPUs and the user has not said no
     *  (UCX_CUDA_IPC_COLLECTIVES), 2 if the user has said yes; else 0. */
    int (*is_on)(void);

    /**
     * Open the board of a program's ranks on this node, for as long as the
     * process lives. The first rank comes before all others and gives it a
     * name, which they have to be told.
     *
     * @param name     Filled by rank 0; read by others.
     * @return 0; -1 if there is none to be had, also for ranks of other nodes.
     */
    int (*board_open)(unsigned rank, unsigned size,
                      char name[UCT_CUDA_COLL_API_NAME],
                      uct_cuda_coll_board_t **board_p);

    /** All have opened it, or given up: the name may go. */
    void (*board_opened)(uct_cuda_coll_board_t *board);

    /** A word of the board that changes with each group that is the first of
     *  its key; 0: there was none yet. */
    const uint32_t *(*board_word)(const uct_cuda_coll_board_t *board);

    /** Non-zero if a rank has joined a group of this key. */
    int (*board_has)(const uct_cuda_coll_board_t *board, uint64_t key);

    /**
     * Join a group, by oneself: the others may come before later calls, and
     * until they have no call is carried out.
     *
     * @param key      Of the communicator, the same on all its ranks, never
     *                 used for another; not 0.
     * @param members  Numbers of its ranks on the board.
     * @param calls    That this rank has made on it before, of those that are
     *                 either passed or given to collective().
     * @return 0; -1 if there is none to be had.
     */
    int (*group_create)(uct_cuda_coll_board_t *board, uint64_t key,
                        unsigned rank, unsigned size, const unsigned *members,
                        uint64_t calls, uct_cuda_coll_group_t **group_p);

    void (*group_destroy)(uct_cuda_coll_group_t *group);

    /** This rank makes its next call, of a kind, another way, and so will all.
     *  Waits for nobody; a store. No group: there is nobody to tell but the
     *  log. */
    void (*pass)(uct_cuda_coll_group_t *group, int kind,
                 uct_cuda_coll_reason_t reason);

    /**
     * A collective, if every rank of the group calls this. The first one waits
     * up to 0.2 s for ranks that have not joined.
     *
     * @param why  Filled with a sentence, if it is neither DONE nor STAGE.
     */
    uct_cuda_coll_result_t (*collective)(uct_cuda_coll_group_t *group,
                                         const uct_cuda_coll_call_t *what,
                                         char *why, size_t why_size);

    /** Calls of this process that were carried out on GPUs, and those that
     *  could have been but were passed on. */
    void (*counts)(uint64_t *done_p, uint64_t *staged_p);

    /** The program's synchronous copies to the memory around an address have
     *  ended, and will have when they return: for who copies from it. */
    void (*sync)(const void *address);

    /** The number of failures that ranks of the board have reported: a word to
     *  look at before board_failed(). */
    const uint32_t *(*board_failures)(const uct_cuda_coll_board_t *board);

    /**
     * Report that a rank has failed in a call that the MPI carries out, before
     * it sends its part: each rank that has received that sees the report.
     *
     * @param key     Of the communicator, not 0.
     * @param number  Of the call in the communicator, on all ranks the same.
     * @param start   Of a persistent call: how often it was started.
     * @param rank    In the communicator.
     */
    void (*board_fail)(uct_cuda_coll_board_t *board, uint64_t key,
                       uint64_t number, uint32_t start, uint32_t rank);

    /** The rank that has failed in a call; -1: there is no report. */
    int (*board_failed)(const uct_cuda_coll_board_t *board, uint64_t key,
                        uint64_t number, uint32_t start);
} uct_cuda_coll_api_t;


/** The table itself, for who is linked with it. */
extern const uct_cuda_coll_api_t uct_cuda_coll_api_v6;

#ifdef __cplusplus
}
#endif

#endif
