/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which links the transfers between two ends found in use by others, for the
 * plans of the next ones. At the moment when a transfer is planned the others
 * may be in a pause: between two windows of messages, or while all ranks of a
 * program compute before they exchange again. Who then takes their links for
 * free is in their way a moment later.
 *
 * A pattern of exchanges has no period that could be known in advance (2 ms was
 * too short for a Jacobi solver whose update takes 8 ms), so what was met is
 * not kept for a time, but for turns: a turn begins with a transfer and ends
 * with the first one that comes when it is 2 ms old. What counts is what this
 * turn and the one before have met. So two exchanges in a row that meet nobody
 * are needed until it is forgotten, however long the pauses are, and a transfer
 * that is late once does not forget. Who is alone from now on has all relays
 * again with its third message, or after 4 ms of shorter ones.
 *
 * The host path is more demanding. Two transfers that cross lose by it where
 * both take it, and preparing it disturbs the program (2 x H100). So bytes are
 * counted that have gone without traffic that crosses them; a transfer that is
 * crossed starts the count again.
 *
 * Pure: the time comes from the caller. Not thread-safe.
 */
#ifndef UCT_CUDA_MP_MEETINGS_H
#define UCT_CUDA_MP_MEETINGS_H

#include <uct/cuda/plan/model.h>

BEGIN_C_DECLS


/** A turn's least length, ns: many short messages are one. */
#define UCT_CUDA_MP_MEETINGS_TURN 2000000ul

/** After so long without a meeting it is forgotten in any case, ns. To be in
 *  each other's way once in so long costs a program nothing that shows, and by
 *  then it may well do something else. */
#define UCT_CUDA_MP_MEETINGS_KEEP 1000000000ul


/** Of transfers between the same two ends. Zeroed: none so far. */
typedef struct {
    uint64_t turned; /**< When this turn began, ns */
    uint64_t until;  /**< When all is forgotten; 0: nothing is kept */
    struct {
        uint8_t active[UCT_CUDA_MP_NUM_LANES];
        uint8_t direct[UCT_CUDA_MP_NUM_LANES];
    } turns[2]; /**< This one, the one before; as in the load */
    uint64_t uncrossed; /**< Bytes, as in the load */
} uct_cuda_mp_meetings_t;


/** A transfer begins. */
void uct_cuda_mp_meetings_begin(uct_cuda_mp_meetings_t *meetings, uint64_t now);


/** Others are there while a transfer is under way, as active and direct of
 *  @a load say. */
void uct_cuda_mp_meetings_add(uct_cuda_mp_meetings_t *meetings,
                              const uct_cuda_mp_load_t *load, uint64_t now);


/** A transfer of @a bytes has ended. @a is_crossed: while it was under way,
 *  something came to its source or left its destination. */
void uct_cuda_mp_meetings_end(uct_cuda_mp_meetings_t *meetings, uint64_t bytes,
                              bool is_crossed);


/** Raise active and direct of @a load to what is kept, and set uncrossed. */
void uct_cuda_mp_meetings_recall(const uct_cuda_mp_meetings_t *meetings,
                                 uint64_t now, uct_cuda_mp_load_t *load);


END_C_DECLS

#endif
