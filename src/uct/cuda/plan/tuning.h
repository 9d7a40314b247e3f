/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuning table: what somebody has measured of this node. The constants of
 * the model, and for classes of GPU pairs and ranges of sizes the paths,
 * shares, chunks and executor that were found to be best. A text file that
 * people can read and edit:
 *
 *   ucx-mp-tuning 1
 *   node 4 gpus, 12 x 48.0:48.0,48.0:12.0
 *   date 2026-11-21
 *   # the model's constants, seconds
 *   model gap_host 4.1e-06
 *   # class, smallest and largest size, path:share[:chunks] ..., executor
 *   48.0:48.0,48.0:12.0 1m 16m direct:0.4,relay1:0.3:8,relay2:0.3:8 streams
 *
 * A pair's class is its direct bandwidth, those over its relays, the best
 * first, and that over the host; GB/s. relay1 is the first of those relays.
 */
#ifndef UCT_CUDA_MP_TUNING_H
#define UCT_CUDA_MP_TUNING_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/model.h>

#include <ucs/type/status.h>

#include <stdio.h>

BEGIN_C_DECLS


#define UCT_CUDA_MP_TUNING_FORMAT    1
#define UCT_CUDA_MP_TUNING_MAX_LINES 1024
#define UCT_CUDA_MP_CLASS_SIZE       160  /**< Of a class as text */
#define UCT_CUDA_MP_NODE_SIZE        2048 /**< Of a node's fingerprint */


typedef struct {
    int                   pair_class; /**< Index into the table's classes */
    size_t                min_size;   /**< Bytes, inclusive */
    size_t                max_size;   /**< Bytes, inclusive */
    unsigned              num_paths;
    uct_cuda_mp_path_t    paths[UCT_CUDA_MP_MAX_PATHS]; /**< gpu is the relay's
                                                             rank: 1, 2, ... */
    double                shares[UCT_CUDA_MP_MAX_PATHS];
    unsigned              chunks[UCT_CUDA_MP_MAX_PATHS]; /**< 0: the model's */
    uct_cuda_mp_ternary_t graph;
} uct_cuda_mp_tuning_line_t;


typedef struct {
    char                      node[UCT_CUDA_MP_NODE_SIZE];
    char                      date[32];
    int                       num_classes;
    char                      classes[UCT_CUDA_MAX_GPUS *
                                      UCT_CUDA_MAX_GPUS]
                                     [UCT_CUDA_MP_CLASS_SIZE];
    /** [from][to], -1 where there is no link */
    int16_t                   class_of[UCT_CUDA_MAX_GPUS]
                                      [UCT_CUDA_MAX_GPUS];
    uint32_t                  model_set; /**< Bits by
                                              uct_cuda_mp_model_constants */
    uct_cuda_mp_model_t       model;     /**< The built-in one where unset */
    unsigned                  num_lines;
    uct_cuda_mp_tuning_line_t lines[UCT_CUDA_MP_TUNING_MAX_LINES];
} uct_cuda_mp_tuning_t;


/** An empty table for a node, to add lines to. NULL without memory; release
 *  with free(). */
uct_cuda_mp_tuning_t *uct_cuda_mp_tuning_create(const uct_cuda_topo_t *topo);


/**
 * Read a table that was made for this node.
 *
 * @param name   What to call the file in messages.
 * @param error  Filled with "name:line: what is wrong".
 * @return UCS_OK; UCS_ERR_UNSUPPORTED for another node or a newer format;
 *         UCS_ERR_INVALID_PARAM for a wrong line; UCS_ERR_NO_MEMORY;
 *         UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_mp_tuning_read(FILE *stream, const char *name,
                                     const uct_cuda_topo_t *topo, char *error,
                                     size_t error_size,
                                     uct_cuda_mp_tuning_t **tuning_p);


/** The same by the file's path; UCS_ERR_NO_ELEM if there is none. */
ucs_status_t uct_cuda_mp_tuning_load(const char *path,
                                     const uct_cuda_topo_t *topo, char *error,
                                     size_t error_size,
                                     uct_cuda_mp_tuning_t **tuning_p);


/**
 * The table that MULTIPATH_TUNING_FILE stands for. None if that is empty, or if
 * it is "auto" and no table for this node is where tables are installed (in the
 * folder UCX_MP_TUNING_DIR, if the environment has that).
 *
 * @param tuning_p  NULL with UCS_OK: no table.
 * @return As uct_cuda_mp_tuning_load().
 */
ucs_status_t uct_cuda_mp_tuning_get(const char *setting,
                                    const uct_cuda_topo_t *topo, char *error,
                                    size_t error_size,
                                    uct_cuda_mp_tuning_t **tuning_p);


/** The line for a transfer, or NULL. Both GPUs are ordinals of the node. */
const uct_cuda_mp_tuning_line_t *
uct_cuda_mp_tuning_find(const uct_cuda_mp_tuning_t *tuning, uct_cuda_end_t src,
                        uct_cuda_end_t dst, size_t size);


/** The model's constants by a table; by none (NULL), the built-in ones. */
static inline const uct_cuda_mp_model_t *
uct_cuda_mp_tuning_model(const uct_cuda_mp_tuning_t *tuning)
{
    return (tuning != NULL) ? &tuning->model : &uct_cuda_mp_model_builtin;
}


END_C_DECLS

#endif
