/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Model of transfers: time of a transfer over a set of paths, and the best
 * division into shares and chunks. It uses no CUDA: links, limits, other
 * traffic and constants are its input.
 *
 * A path takes  start + bytes * cost  seconds. The cost of a direct path is 1 /
 * rate. A staged path of c chunks fills and drains a pipeline of two copies;
 * its cost is  1 / slow hop + 1 / (c * fast hop),  and every chunk except the
 * first leaves a gap on the link. Copies are submitted one after the other; if
 * the processor is late, submission of a path's last chunk bounds it. Shares
 * make all paths end together; chunks let a path carry the most bytes by then.
 * In a window of transfers between the same GPUs only the first one fills the
 * paths; later ones take shares by rate. If submission takes longer than the
 * links, each transfer of the window can use one path.
 *
 * Chunks of a path are equal: with hops of equal rate the pipeline takes the
 * time of all bytes plus that of the largest chunk, so smaller first or last
 * chunks gain nothing.
 */
#ifndef UCT_CUDA_PLAN_MODEL_H
#define UCT_CUDA_PLAN_MODEL_H

#include <uct/cuda/plan/model_path.h>

BEGIN_C_DECLS


/** Alignment of parts and chunks, bytes; suits copy engines. */
#define UCT_CUDA_PLAN_ALIGN 4096ul


/** Set of paths with the bytes of each, and their common end time. */
typedef struct {
    unsigned                         count;
    const uct_cuda_plan_model_path_t *paths[UCT_CUDA_PLAN_MAX_PATHS];
    double                           bytes[UCT_CUDA_PLAN_MAX_PATHS];
    /** 0: direct path */
    unsigned                         chunks[UCT_CUDA_PLAN_MAX_PATHS];
    double                           seconds;
} uct_cuda_plan_split_t;


/** Compute max-min fair rates, bytes/s, of paths running at the same time. */
void uct_cuda_plan_model_rates(const uct_cuda_plan_query_t *query,
                               const uct_cuda_plan_split_t *split,
                               double *rates_p);


/**
 * Return the time of a plain copy over the single path of @a split, s. Behind
 * other transfers: the time it adds to them.
 */
double uct_cuda_plan_model_single(const uct_cuda_plan_query_t *query,
                                  const uct_cuda_plan_split_t *split);


/** Return the time of a plain copy between GPUs without peer access, s: the
 *  driver copies through host memory. DBL_MAX: the host has no such path. */
double uct_cuda_plan_model_unlinked(const uct_cuda_plan_query_t *query);


/** Divide the bytes among the paths: as configured, or so that all end
 *  together. Fills bytes, chunks and seconds of @a split. Paths that could not
 *  start before the others end stay in it with 0 bytes. Behind a transfer
 *  whose paths end together, shares follow the rates. */
void uct_cuda_plan_model_solve(const uct_cuda_plan_query_t *query,
                               uct_cuda_plan_split_t *split);


/**
 * Model a window of transfers that use the paths of @a split in round robin,
 * each transfer one path: less work is submitted for each. Fills bytes (the
 * complete transfer for each path), chunks, and the seconds added by each
 * transfer to a window of the load's length.
 *
 * @param rates_p  Bytes/s of each path.
 */
void uct_cuda_plan_model_cycle(const uct_cuda_plan_query_t *query,
                               uct_cuda_plan_split_t *split, double *rates_p);


/** Return the seconds added by each transfer of a window if each uses all
 *  paths of a split, with its seconds and chunks filled. */
double uct_cuda_plan_model_window(const uct_cuda_plan_query_t *query,
                                  const uct_cuda_plan_split_t *split);


/** Return the chunk length that divides a part into this many chunks, bytes;
 *  the last chunk may be shorter. It is a multiple of UCT_CUDA_PLAN_ALIGN and
 *  fits into a staging slot, so there may be more or fewer chunks. */
uint64_t uct_cuda_plan_model_chunk(const uct_cuda_plan_query_t *query,
                                   uint64_t bytes, unsigned chunks);


/** Return the size of a staging slot, bytes. */
uint64_t uct_cuda_plan_slot_size(const uct_cuda_plan_config_t *config);


END_C_DECLS

#endif
