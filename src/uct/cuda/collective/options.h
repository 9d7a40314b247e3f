/* SPDX-License-Identifier: BSD-3-Clause */
/* What the user says of collectives, and of the node that they run on. */
#ifndef UCT_CUDA_COLL_OPTIONS_H
#define UCT_CUDA_COLL_OPTIONS_H

#include <uct/cuda/base/log.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/model.h>

#include <stdbool.h>

BEGIN_C_DECLS


/** UCX_CUDA_IPC_COLLECTIVES*. */
typedef struct {
    int  is_on;     /**< uct_cuda_coll_is_on(); not before somebody has said
                         so */
    int  algorithm; /**< uct_cuda_coll_algorithm_t, or AUTO; of a group, its
                         first rank's */
    int  multipath; /**< Copies over GPUs that no rank has: 0, 1 (where they
                         can), or AUTO; likewise */
    bool tells_waits; /**< Of long waits as a warning */
} uct_cuda_coll_config_t;


/** Number of an algorithm by its name ("auto", "kernel", "flat",
 *  "hierarchical"); UCS_ERR_INVALID_PARAM. */
ucs_status_t uct_cuda_coll_algorithm_parse(const char *name, int *algorithm_p);

/** Once a process. */
void uct_cuda_coll_configure(const uct_cuda_coll_config_t *config);

const uct_cuda_coll_config_t *uct_cuda_coll_config(void);

/** At which a long wait is told. */
uct_cuda_log_level_t uct_cuda_coll_wait_level(void);

int uct_cuda_coll_is_on(void);


/** Where transfers' tuning file and the ledger are; the first word counts. */
void uct_cuda_coll_configure_node(const uct_cuda_mp_config_t *config);

/** The ledger's directory; empty: there is none. */
const char *uct_cuda_coll_ledger(void);

/** The constants of transfers on this node, as the tuning file has them; else
 *  the built-in ones. Reads it, once a process. */
const uct_cuda_mp_model_t *uct_cuda_coll_constants(const uct_cuda_topo_t *topo);


END_C_DECLS

#endif
