/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mp_topo: what its parts share. Every function that writes takes the open
 * stream; failures end the program with a sentence on standard error.
 */
#ifndef UCX_MP_TOPO_TOOL_H
#define UCX_MP_TOPO_TOOL_H

#include <uct/cuda/base/topo.h>
#include <uct/cuda/multipath/plan.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>


/** Exit codes. */
enum {
    UCX_MP_TOPO_OK     = 0,
    UCX_MP_TOPO_FAILED = 1, /**< No GPU, or a file that cannot be written */
    UCX_MP_TOPO_USAGE  = 2  /**< The command line or a variable is wrong */
};


/** What the command line asks for. */
typedef struct {
    bool   plan;    /**< --plan: the plan from src to dst */
    int    src;     /**< Ordinals */
    int    dst;
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


/** The node as a matrix of GB/s (10^9 bytes/s). */
void ucx_mp_topo_text(const uct_cuda_topo_t *topo, FILE *stream);


/** A plan with what led to it. */
typedef struct {
    uct_cuda_mp_config_t config; /**< From the environment */
    size_t               pieces; /**< Plans that the transfer is made of */
    size_t               piece;  /**< Bytes of one */
    uct_cuda_mp_plan_t   plan;   /**< Of one */
} ucx_mp_topo_plan_t;


/** UCX_CUDA_IPC_MULTIPATH* of the environment; ends the program with variable
 *  and value when one is wrong. */
void ucx_mp_topo_config_read(uct_cuda_mp_config_t *config);


/** The plan that a transfer would get. */
void ucx_mp_topo_plan_make(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           ucx_mp_topo_plan_t *plan);


/** The plan, and what other sets of paths would take. */
void ucx_mp_topo_plan_text(const uct_cuda_topo_t *topo,
                           const ucx_mp_topo_options_t *options,
                           const ucx_mp_topo_plan_t *plan, FILE *stream);

#endif
