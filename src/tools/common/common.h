/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, exit codes and variables of the tools in C. */
#ifndef UCX_MP_TOOL_COMMON_H
#define UCX_MP_TOOL_COMMON_H

#include <uct/cuda/base/log.h>
#include <uct/cuda/plan/config.h>


/** Prefix of the module's variables. */
#define UCX_MP_TOOL_PREFIX "UCX_CUDA_IPC_"


/** Exit codes. */
enum {
    UCX_MP_TOOL_OK     = 0,
    UCX_MP_TOOL_FAILED = 1, /**< No GPU, a failed call, or an unwritable file */
    UCX_MP_TOOL_USAGE  = 2  /**< The command line or a variable is wrong */
};


/** Name of the program, defined by each. */
extern const char ucx_mp_tool_name[];


/** Print "PROGRAM: message" and end the program. */
void ucx_mp_tool_die(int code, const char *format, ...)
        __attribute__((noreturn, format(printf, 2, 3)));


/** Print the module's messages up to a level as "PROGRAM: message". */
void ucx_mp_tool_log(uct_cuda_log_level_t level);


/** Set a variable, named without the prefix, or report that there is none with
 *  this name. Ends the program if the value is wrong. */
void ucx_mp_tool_config_set(uct_cuda_plan_config_t *config, const char *name,
                            const char *value);


/** End the program if variables contradict each other. */
void ucx_mp_tool_config_check(const uct_cuda_plan_config_t *config);


/** Read UCX_CUDA_IPC_MULTIPATH* as the module does, by
 *  ucx_mp_tool_config_set(), and check them. */
void ucx_mp_tool_config_read(uct_cuda_plan_config_t *config);

#endif
