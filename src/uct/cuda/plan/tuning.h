/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuning table: the constants of the model, as somebody has measured them
 * on this node. A text file that people can read and edit:
 *
 *   ucx-mp-tuning 1
 *   node 4 gpus, 12 x 48.0:48.0,48.0:12.0
 *   date 2026-11-21
 *   # the model's constants, seconds
 *   model gap_host 4.1e-06
 *
 * The node's line is a fingerprint: how many GPUs, and how many pairs of each
 * class. A pair's class is its direct bandwidth, those over its relays, the
 * best first, and that over the host; GB/s.
 */
#ifndef UCT_CUDA_MP_TUNING_H
#define UCT_CUDA_MP_TUNING_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/model.h>

#include <ucs/type/status.h>

#include <stdio.h>

BEGIN_C_DECLS


#define UCT_CUDA_MP_TUNING_FORMAT 1
#define UCT_CUDA_MP_CLASS_SIZE    160  /**< Of a class as text */
#define UCT_CUDA_MP_NODE_SIZE     2048 /**< Of a node's fingerprint */


typedef struct {
    char                node[UCT_CUDA_MP_NODE_SIZE];
    char                date[32];
    int                 num_classes;
    char                classes[UCT_CUDA_MAX_GPUS * UCT_CUDA_MAX_GPUS]
                               [UCT_CUDA_MP_CLASS_SIZE];
    /** [from][to], -1 where there is no link */
    int16_t             class_of[UCT_CUDA_MAX_GPUS][UCT_CUDA_MAX_GPUS];
    uint32_t            model_set; /**< Bits by uct_cuda_mp_model_constants */
    uct_cuda_mp_model_t model;     /**< The built-in one where unset */
} uct_cuda_mp_tuning_t;


/** A node's table that sets no constant. NULL without memory; release with
 *  free(). */
uct_cuda_mp_tuning_t *uct_cuda_mp_tuning_create(const uct_cuda_topo_t *topo);


/**
 * Read a table that was made for this node.
 *
 * @param name   What to call the file in messages.
 * @param error  Filled with "name:line: what is wrong"; with UCS_OK, what is
 *               passed over, or "": tables of before had rows of paths, shares
 *               and chunks.
 * @return UCS_OK; UCS_ERR_UNSUPPORTED for another node or a newer format;
 *         UCS_ERR_INVALID_PARAM for a wrong line; UCS_ERR_NO_MEMORY;
 *         UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_mp_tuning_read(FILE *stream, const char *name,
                                     const uct_cuda_topo_t *topo, char *error,
                                     size_t error_size,
                                     uct_cuda_mp_tuning_t **tuning_p);


/**
 * The table that MULTIPATH_TUNING_FILE stands for. None if that is empty, or if
 * it is "auto" and no table for this node is where tables are installed (in the
 * folder UCX_MP_TUNING_DIR, if the environment has that).
 *
 * @param tuning_p  NULL with UCS_OK: no table.
 * @return As uct_cuda_mp_tuning_read(); UCS_ERR_NO_ELEM: there is no such file.
 */
ucs_status_t uct_cuda_mp_tuning_get(const char *setting,
                                    const uct_cuda_topo_t *topo, char *error,
                                    size_t error_size,
                                    uct_cuda_mp_tuning_t **tuning_p);


/** The model's constants by a table; by none (NULL), the built-in ones. */
static inline const uct_cuda_mp_model_t *
uct_cuda_mp_tuning_model(const uct_cuda_mp_tuning_t *tuning)
{
    return (tuning != NULL) ? &tuning->model : &uct_cuda_mp_model_builtin;
}


END_C_DECLS

#endif
