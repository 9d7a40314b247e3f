/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuning table: constants of the model measured on this node, in an editable
 * text file:
 *
 *   ucx-mp-tuning 1
 *   node 4 gpus, 12 x 48.0:48.0,48.0:12.0
 *   date 2026-11-21
 *   # the model's constants, seconds
 *   model gap_host 4.1e-06
 *
 * The node line is a fingerprint: the number of GPUs, and the number of pairs
 * in each class. The class of a pair is its direct bandwidth, those over its
 * relays, best first, and that over the host; GB/s.
 */
#ifndef UCT_CUDA_PLAN_TUNING_H
#define UCT_CUDA_PLAN_TUNING_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/model_constants.h>

#include <ucs/type/status.h>

#include <stdio.h>

BEGIN_C_DECLS


#define UCT_CUDA_PLAN_TUNING_FORMAT 1
#define UCT_CUDA_PLAN_CLASS_SIZE    160  /**< Longest class as text */
#define UCT_CUDA_PLAN_NODE_SIZE     2048 /**< Longest node fingerprint */


typedef struct {
    char                node[UCT_CUDA_PLAN_NODE_SIZE];
    char                date[32];
    int                 num_classes;
    char                classes[UCT_CUDA_MAX_GPUS * UCT_CUDA_MAX_GPUS]
                               [UCT_CUDA_PLAN_CLASS_SIZE];
    /** [from][to], -1: no link */
    int16_t               class_of[UCT_CUDA_MAX_GPUS][UCT_CUDA_MAX_GPUS];
    uint32_t              model_set; /**< Mask of set model constants */
    uct_cuda_plan_model_t model;     /**< Built-in values where unset */
} uct_cuda_plan_tuning_t;


/** Create a node's table without constants. Release it with free(); NULL: no
 *  memory. */
uct_cuda_plan_tuning_t *
uct_cuda_plan_tuning_create(const uct_cuda_topo_t *topo);


/**
 * Read a table made for this node.
 *
 * @param name   Name of the file for messages.
 * @param error  Filled with "name:line: problem"; with UCS_OK, with a note on
 *               ignored lines, or "": older tables had rows of paths, shares
 *               and chunks.
 * @param tuning_p  Filled with UCS_OK, else unchanged; release it with free().
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: another node or a newer format;
 *         UCS_ERR_NO_DEVICE: all GPUs of this node, some of them hidden from
 *         this process, or more GPUs than the only one that it sees;
 *         UCS_ERR_INVALID_PARAM: invalid line;
 *         UCS_ERR_NO_MEMORY; UCS_ERR_IO_ERROR.
 */
ucs_status_t uct_cuda_plan_tuning_read(FILE *stream, const char *name,
                                       const uct_cuda_topo_t *topo, char *error,
                                       size_t error_size,
                                       uct_cuda_plan_tuning_t **tuning_p);


/**
 * Read the table named by MULTIPATH_TUNING_FILE. No table is used if that value
 * is empty, or if it is "auto" and no table for this node is installed (in
 * UCX_MP_TUNING_DIR, if the environment has it).
 *
 * @param tuning_p  Filled; NULL: no table (UCS_OK), or a failure.
 * @return As uct_cuda_plan_tuning_read(); UCS_ERR_NO_ELEM: no such file.
 */
ucs_status_t uct_cuda_plan_tuning_get(const char *setting,
                                      const uct_cuda_topo_t *topo, char *error,
                                      size_t error_size,
                                      uct_cuda_plan_tuning_t **tuning_p);


/** Return the model constants of a table; NULL: the built-in ones. */
static inline const uct_cuda_plan_model_t *
uct_cuda_plan_tuning_model(const uct_cuda_plan_tuning_t *tuning)
{
    return (tuning != NULL) ? &tuning->model : &uct_cuda_plan_model_builtin;
}


END_C_DECLS

#endif
