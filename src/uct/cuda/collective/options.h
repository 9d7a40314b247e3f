/* SPDX-License-Identifier: BSD-3-Clause */
/* User settings of collectives and of the node they run on. */
#ifndef UCT_CUDA_COLLECTIVE_OPTIONS_H
#define UCT_CUDA_COLLECTIVE_OPTIONS_H

#include <uct/cuda/base/log.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/plan/config.h>
#include <uct/cuda/plan/model_constants.h>

#include <stdbool.h>

BEGIN_C_DECLS


/** Values of UCX_CUDA_IPC_COLLECTIVES and of the variables beginning with
 *  it. */
typedef struct {
    /** uct_cuda_coll_is_on(); valid after uct_cuda_coll_configure() */
    int  is_on;
    /** uct_cuda_plan_coll_algorithm_t or AUTO; rank 0's value holds for a
     *  team */
    int  algorithm;
    /** Relay through GPUs without a rank: 0, 1 (where possible) or AUTO;
     *  rank 0's value holds for a team */
    int  multipath;
    bool logs_waits; /**< Report long waits as warnings */
} uct_cuda_coll_config_t;


/** Store the number of an algorithm ("auto", "kernel", "flat", "hierarchical").
 *  @return UCS_OK; UCS_ERR_INVALID_PARAM: unknown name, AUTO is stored. */
ucs_status_t uct_cuda_coll_algorithm_parse(const char *name, int *algorithm_p);

/** Set the options. The caller does so once per process. */
void uct_cuda_coll_configure(const uct_cuda_coll_config_t *config);

const uct_cuda_coll_config_t *uct_cuda_coll_config(void);

/** Return the log level for reports of long waits. */
uct_cuda_log_level_t uct_cuda_coll_wait_level(void);

int uct_cuda_coll_is_on(void);


/** Set the tuning file and the ledger's directory. Only the first call counts;
 *  none does after uct_cuda_coll_ledger() or uct_cuda_coll_constants(), which
 *  set the defaults. */
void uct_cuda_coll_configure_node(const uct_cuda_plan_config_t *config);

/** Return the ledger's directory; empty: no ledger. */
const char *uct_cuda_coll_ledger(void);

/** Return the model constants of this node, from the tuning file if it has
 *  them, else built in. Reads the file once in a process. */
const uct_cuda_plan_model_t *
uct_cuda_coll_constants(const uct_cuda_topo_t *topo);


END_C_DECLS

#endif
