/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mp_topo: what its parts share. Every function that writes takes the open
 * stream; failures end the program with a sentence on standard error.
 */
#ifndef UCX_MP_TOPO_TOOL_H
#define UCX_MP_TOPO_TOOL_H

#include <uct/cuda/base/wiring.h>
#include <uct/cuda/plan/collective_planner.h>
#include <uct/cuda/plan/model.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/plan/tuning.h>

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>


/** Exit codes. */
enum {
    UCX_MP_TOPO_OK     = 0,
    UCX_MP_TOPO_FAILED = 1, /**< No GPU, or a file that cannot be written */
    UCX_MP_TOPO_USAGE  = 2  /**< The command line or a variable is wrong */
};


/** What to print. */
typedef enum {
    UCX_MP_TOPO_TEXT,
    UCX_MP_TOPO_XML,
    UCX_MP_TOPO_JSON,
    UCX_MP_TOPO_TIME
} ucx_mp_topo_format_t;


/** What the command line asks for. */
typedef struct {
    ucx_mp_topo_format_t format;
    const char           *svg; /**< --svg: file for a picture, or NULL */
    bool   plan;    /**< --plan: the plan from src to dst */
    const char *collective; /**< ... or of one, by its name, ... */
    int    kind;    /**< uct_cuda_coll_kind_t, of that */
    const char *gpus; /**< ... among these, or NULL: all */
    uct_cuda_end_t src; /**< A GPU or host memory */
    uct_cuda_end_t dst;
    size_t size;    /**< Bytes */
    bool   steps;   /**< --steps: every copy of the plan */
    bool   verbose; /**< --verbose: what was missing while probing */
} ucx_mp_topo_options_t;


/** Prints "ucx_mp_topo: message" and ends the program. */
void ucx_mp_topo_die(int code, const char *format, ...)
        __attribute__((noreturn, format(printf, 2, 3)));


/** Reads the command line; does not return if it is wrong or asks for help. */
void ucx_mp_topo_options_read(int argc, char **argv,
                              ucx_mp_topo_options_t *options);


/** What was found out, and what the planner sees of it. */
typedef struct {
    uct_cuda_wiring_t wiring;
    uct_cuda_topo_t   topo;
} ucx_mp_topo_node_t;


#define UCX_MP_TOPO_MAX_NICS 64


typedef struct {
    char name[32];
    char path[PATH_MAX]; /**< Of its device, below sysfs */
    int  numa;           /**< Node's number; -1: unknown */
} ucx_mp_topo_nic_t;


/** What is near the GPUs, as sysfs has it. */
typedef struct {
    char              cores[UCT_CUDA_MAX_GPUS][256]; /**< "0-15,32-47"; empty:
                                                          unknown */
    unsigned          num_nics;
    ucx_mp_topo_nic_t nics[UCX_MP_TOPO_MAX_NICS];
    /** PIX, PXB, PHB, SYS or ?, of a GPU and a NIC */
    const char        *relations[UCT_CUDA_MAX_GPUS][UCX_MP_TOPO_MAX_NICS];
} ucx_mp_topo_near_t;


void ucx_mp_topo_near_find(const ucx_mp_topo_node_t *node,
                           ucx_mp_topo_near_t *near);

/** A line a GPU: NUMA node, cores, NICs. */
void ucx_mp_topo_near_text(const ucx_mp_topo_node_t *node,
                           const ucx_mp_topo_near_t *near, FILE *stream);

/** Members of a JSON object, a comma behind them. */
void ucx_mp_topo_near_json(const ucx_mp_topo_node_t *node,
                           const ucx_mp_topo_near_t *near, FILE *stream);


/** The node as a matrix of GB/s (10^9 bytes/s), with what joins each pair. */
void ucx_mp_topo_text(const ucx_mp_topo_node_t *node, FILE *stream);


/** What joins two GPUs: "NV2" (NVLinks) or nvidia-smi's PIX, PXB, PHB, SYS. */
const char *ucx_mp_topo_pair_str(const uct_cuda_wiring_t *wiring, int from,
                                 int to, char *buffer, size_t size);


/** What joins a GPU and the host: "PCIe 5 x16" or "NV3". */
const char *ucx_mp_topo_host_str(const uct_cuda_wiring_t *wiring, int gpu,
                                 char *buffer, size_t size);


/** What the parts of the probe took. */
void ucx_mp_topo_times(const ucx_mp_topo_node_t *node, FILE *stream);


/** A plan with what led to it. */
typedef struct {
    uct_cuda_mp_config_t config; /**< From the environment */
    uct_cuda_mp_model_t  model;  /**< Its constants */
    size_t               pieces; /**< Plans that the transfer is made of */
    size_t               piece;  /**< Bytes of one */
    size_t               min_size; /**< From which on messages of its kind are
                                        planned; SIZE_MAX: none */
    uct_cuda_mp_plan_t   plan;   /**< Of one */
} ucx_mp_topo_plan_t;


/** The plan of a collective with what led to it. */
typedef struct {
    uct_cuda_coll_request_t request;
    uct_cuda_mp_model_t     transfers; /**< Constants that it goes by */
    uct_cuda_coll_choice_t  choice;
    uct_cuda_coll_plan_t    plan;
} ucx_mp_topo_collective_t;


/** The node as JSON; @a plan, and @a collective with its name, may be NULL. */
void ucx_mp_topo_json(const ucx_mp_topo_node_t *node,
                      const ucx_mp_topo_near_t *near,
                      const ucx_mp_topo_plan_t *plan,
                      const ucx_mp_topo_collective_t *collective,
                      const char *name,
                      FILE *stream);


/** UCX_CUDA_IPC_MULTIPATH* of the environment; ends the program with variable
 *  and value when one is wrong. */
void ucx_mp_topo_config_read(uct_cuda_mp_config_t *config);

/** The tuning table that this names, or NULL; to be freed. */
uct_cuda_mp_tuning_t *
ucx_mp_topo_tuning_read(const uct_cuda_mp_config_t *config,
                        const uct_cuda_topo_t *topo);


/** The plan that a transfer would get. */
void ucx_mp_topo_plan_make(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           ucx_mp_topo_plan_t *plan);


/** The plan, and what other sets of paths would take. */
void ucx_mp_topo_plan_text(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           const ucx_mp_topo_plan_t *plan, FILE *stream);


/** The plan of an all-reduce in place among all GPUs, a rank each. The topology
 *  has to stay. */
void ucx_mp_topo_collective_make(const uct_cuda_topo_t *topo,
                                 const ucx_mp_topo_options_t *options,
                                 ucx_mp_topo_collective_t *collective);


/** The plan, what the links allow, and what other algorithms would take. */
void ucx_mp_topo_collective_text(const ucx_mp_topo_options_t *options,
                                 const ucx_mp_topo_collective_t *collective,
                                 FILE *stream);


/** The same as a last member of a JSON object, comma in front. */
void ucx_mp_topo_collective_json(const ucx_mp_topo_collective_t *collective,
                                 const char *name,
                                 FILE *stream);


/** The plan as a last member of a JSON object, comma in front. */
void ucx_mp_topo_plan_json(const ucx_mp_topo_plan_t *plan, FILE *stream);

#endif
