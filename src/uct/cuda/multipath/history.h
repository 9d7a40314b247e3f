/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contention history: links that transfers between two ends found in use by
 * others, for the plans of later ones. When a transfer is planned, the others
 * may be in a pause, between windows of messages or while all ranks compute. A
 * plan that assumes their links to be free would collide with them a moment
 * later.
 *
 * Patterns of exchange have no period known in advance (2 ms was too short for
 * a Jacobi solver with updates of 8 ms), so contention is kept for intervals
 * instead of a time: an interval begins with a transfer and ends with the first
 * one at least 2 ms later. Contention of this interval and the previous one
 * counts. So the history forgets contention after two consecutive exchanges
 * without it, however long the pauses are, but not because one transfer is
 * late. If the others stop, a pair gets all relays back with its third
 * message, or after 4 ms of shorter messages.
 *
 * The condition for the host path is stricter. If two crossing transfers both
 * use it, both become slower, and preparing it delays the program's driver
 * calls (2 x H100). So bytes sent without crossing traffic are counted, and a
 * crossed transfer resets the count.
 *
 * Pure functions: the caller gives the time. Not thread safe.
 */
#ifndef UCT_CUDA_MULTIPATH_HISTORY_H
#define UCT_CUDA_MULTIPATH_HISTORY_H

#include <uct/cuda/plan/model_path.h>

BEGIN_C_DECLS


/** Minimum length of an interval, ns: many short messages share one. */
#define UCT_CUDA_MP_HISTORY_INTERVAL 2000000ul

/** Time without contention after which the history forgets it in any case, ns.
 *  One collision in such a time is not noticeable, and the program may have
 *  changed its pattern. */
#define UCT_CUDA_MP_HISTORY_KEEP 1000000000ul


/** History of transfers between the same two ends. Zeroed: empty. */
typedef struct {
    uint64_t interval_begin; /**< Start of this interval, ns */
    uint64_t until;          /**< Time to forget all, ns; 0: empty */
    struct {
        uint8_t active[UCT_CUDA_PLAN_NUM_LINKS];
        uint8_t direct[UCT_CUDA_PLAN_NUM_LINKS];
    } intervals[2]; /**< This interval, the previous one; as in the load */
    uint64_t uncrossed; /**< Bytes, as in the load */
} uct_cuda_mp_history_t;


/** Note the start of a transfer. It begins a new interval if the present one
 *  is at least UCT_CUDA_MP_HISTORY_INTERVAL old. */
void uct_cuda_mp_history_begin(uct_cuda_mp_history_t *history, uint64_t now);


/**
 * Add other traffic met by a running transfer: active and direct of @a load.
 */
void uct_cuda_mp_history_add(uct_cuda_mp_history_t *history,
                             const uct_cuda_plan_load_t *load, uint64_t now);


/**
 * Note the end of a transfer of @a bytes. @a is_crossed: other traffic entered
 * its source or left its destination.
 */
void uct_cuda_mp_history_end(uct_cuda_mp_history_t *history, uint64_t bytes,
                             bool is_crossed);


/**
 * Raise active and direct of @a load to the recorded values, and set uncrossed.
 */
void uct_cuda_mp_history_recall(const uct_cuda_mp_history_t *history,
                                uint64_t now, uct_cuda_plan_load_t *load);


END_C_DECLS

#endif
