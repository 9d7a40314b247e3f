/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mp_topo: declarations shared by its parts. Functions that write take an
 * open stream; failures end the program with a sentence on standard error.
 */
#ifndef UCX_MP_TOPO_TOOL_H
#define UCX_MP_TOPO_TOOL_H

#include <common/common.h>

#include <uct/cuda/base/wiring.h>
#include <uct/cuda/plan/collective_planner.h>
#include <uct/cuda/plan/transfer_plan.h>
#include <uct/cuda/plan/tuning.h>

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>


/** Format of the output. */
typedef enum {
    UCX_MP_TOPO_TEXT,
    UCX_MP_TOPO_XML,
    UCX_MP_TOPO_JSON,
    UCX_MP_TOPO_TIME
} ucx_mp_topo_format_t;


/** The command line. */
typedef struct {
    ucx_mp_topo_format_t format;
    const char           *svg; /**< --svg: picture file, or NULL */
    bool   plan;    /**< --plan: the plan from src to dst */
    const char *collective; /**< --plan: name of a collective, or NULL */
    int    kind;    /**< uct_cuda_coll_kind_t of the collective */
    const char *gpus; /**< GPUs of the collective; NULL: all */
    uct_cuda_end_t src; /**< A GPU or host memory */
    uct_cuda_end_t dst;
    size_t size;    /**< Bytes */
    bool   steps;   /**< --steps: every copy of the plan */
    bool   verbose; /**< --verbose: list facts missing from the probe */
} ucx_mp_topo_options_t;


/** Read the command line; does not return if it is wrong or asks for help. */
void ucx_mp_topo_options_read(int argc, char **argv,
                              ucx_mp_topo_options_t *options);


/** Result of the probe, and the topology that the planner derives from it. */
typedef struct {
    uct_cuda_wiring_t wiring;
    uct_cuda_topo_t   topo;
} ucx_mp_topo_node_t;


#define UCX_MP_TOPO_MAX_NICS 64


typedef struct {
    char name[32];
    char path[PATH_MAX]; /**< Path of its device below sysfs */
    int  numa;           /**< NUMA node's number; -1: unknown */
} ucx_mp_topo_nic_t;


/** Cores and NICs near the GPUs, from sysfs. */
typedef struct {
    char              cores[UCT_CUDA_MAX_GPUS][256]; /**< "0-15,32-47"; empty:
                                                          unknown */
    unsigned          num_nics;
    ucx_mp_topo_nic_t nics[UCX_MP_TOPO_MAX_NICS];
    /** PIX, PXB, PHB, SYS or ?, by GPU and NIC */
    const char        *relations[UCT_CUDA_MAX_GPUS][UCX_MP_TOPO_MAX_NICS];
} ucx_mp_topo_near_t;


void ucx_mp_topo_near_find(const ucx_mp_topo_node_t *node,
                           ucx_mp_topo_near_t *near);

/** Print one line per GPU: NUMA node, cores, NICs. */
void ucx_mp_topo_near_text(const ucx_mp_topo_node_t *node,
                           const ucx_mp_topo_near_t *near, FILE *stream);

/** Print members of a JSON object, followed by a comma. */
void ucx_mp_topo_near_json(const ucx_mp_topo_node_t *node,
                           const ucx_mp_topo_near_t *near, FILE *stream);


/** Print the node as a matrix of GB/s (10^9 bytes/s), with the connection of
 *  each pair. */
void ucx_mp_topo_text(const ucx_mp_topo_node_t *node, FILE *stream);


/** Return the connection of two GPUs: "NV2" (NVLinks) or nvidia-smi's PIX, PXB,
 *  PHB, SYS. */
const char *ucx_mp_topo_pair_str(const uct_cuda_wiring_t *wiring, int from,
                                 int to, char *buffer, size_t size);


/** Return the connection of a GPU to the host: "PCIe 5 x16" or "NV3". */
const char *ucx_mp_topo_host_str(const uct_cuda_wiring_t *wiring, int gpu,
                                 char *buffer, size_t size);


/** Print the times of the probe's parts. */
void ucx_mp_topo_times(const ucx_mp_topo_node_t *node, FILE *stream);


/** A plan, with the input of the planner. */
typedef struct {
    uct_cuda_plan_config_t config; /**< From the environment */
    uct_cuda_plan_model_t  model;  /**< Constants of the node */
    /** Number of plans that form the transfer */
    size_t                 pieces;
    size_t                 piece;  /**< Bytes of a piece */
    size_t                 min_size; /**< Smallest message of this kind with a
                                          plan; SIZE_MAX: never */
    uct_cuda_plan_t   plan;   /**< Plan of a piece */
} ucx_mp_topo_plan_t;


/** A collective's plan, with the input of the planner. */
typedef struct {
    uct_cuda_plan_coll_request_t request;
    uct_cuda_plan_model_t        transfers; /**< Constants of the collective's
                                                 copies */
    uct_cuda_plan_coll_choice_t  choice;
    uct_cuda_plan_coll_t         plan;
} ucx_mp_topo_collective_t;


/** Print the node as JSON; @a plan, and @a collective with its name, may be
 *  NULL. */
void ucx_mp_topo_json(const ucx_mp_topo_node_t *node,
                      const ucx_mp_topo_near_t *near,
                      const ucx_mp_topo_plan_t *plan,
                      const ucx_mp_topo_collective_t *collective,
                      const char *name,
                      FILE *stream);


/** Plan a transfer. */
void ucx_mp_topo_plan_make(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           ucx_mp_topo_plan_t *plan);


/** Print the plan, and times of other sets of paths. */
void ucx_mp_topo_plan_text(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           const ucx_mp_topo_plan_t *plan, FILE *stream);


/** Plan an all-reduce in place with one rank on each GPU. The topology must
 *  outlive the plan. */
void ucx_mp_topo_collective_make(const uct_cuda_topo_t *topo,
                                 const ucx_mp_topo_options_t *options,
                                 ucx_mp_topo_collective_t *collective);


/** Print the plan, the links' bound, and the times of other algorithms. */
void ucx_mp_topo_collective_text(const ucx_mp_topo_options_t *options,
                                 const ucx_mp_topo_collective_t *collective,
                                 FILE *stream);


/** Print the same as the last member of a JSON object, preceded by a comma. */
void ucx_mp_topo_collective_json(const ucx_mp_topo_collective_t *collective,
                                 const char *name,
                                 FILE *stream);


/** Print the plan as the last member of a JSON object, preceded by a comma. */
void ucx_mp_topo_plan_json(const ucx_mp_topo_plan_t *plan, FILE *stream);

#endif
