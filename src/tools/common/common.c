/* SPDX-License-Identifier: BSD-3-Clause */
#include "common.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


extern char **environ;


void ucx_mp_tool_die(int code, const char *format, ...)
{
    va_list ap;

    fflush(stdout);
    fprintf(stderr, "%s: ", ucx_mp_tool_name);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    exit(code);
}

static void log_message(uct_cuda_log_level_t level, const char *file,
                        unsigned line, const char *function,
                        const char *message)
{
    fprintf(stderr, "%s: %s\n", ucx_mp_tool_name, message);
}

void ucx_mp_tool_log(uct_cuda_log_level_t level)
{
    uct_cuda_log_set(log_message, level);
}

void ucx_mp_tool_config_set(uct_cuda_plan_config_t *config, const char *name,
                            const char *value)
{
    char error[512];
    ucs_status_t status = uct_cuda_plan_config_set(config, name, value, error,
                                                   sizeof(error));

    if (status == UCS_ERR_NO_ELEM) {
        fprintf(stderr, "%s: " UCX_MP_TOOL_PREFIX "%s is not a variable, "
                "ignoring it\n", ucx_mp_tool_name, name);
    } else if (status != UCS_OK) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE, UCX_MP_TOOL_PREFIX "%s: %s", name,
                        error);
    }
}

void ucx_mp_tool_config_check(const uct_cuda_plan_config_t *config)
{
    char error[512];

    if (uct_cuda_plan_config_check(config, error, sizeof(error)) != UCS_OK) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        UCX_MP_TOOL_PREFIX "MULTIPATH variables: %s", error);
    }
}

void ucx_mp_tool_config_read(uct_cuda_plan_config_t *config)
{
    static const char prefix[] = UCX_MP_TOOL_PREFIX "MULTIPATH";
    char name[64];
    char **env;
    size_t length;

    uct_cuda_plan_config_init(config);
    for (env = environ; *env != NULL; ++env) {
        length = strcspn(*env, "=");
        if ((strncmp(*env, prefix, strlen(prefix)) == 0) &&
            ((*env)[length] == '=')) {
            snprintf(name, sizeof(name), "%.*s", (int)length, *env);
            ucx_mp_tool_config_set(config, name + strlen(UCX_MP_TOOL_PREFIX),
                                   *env + length + 1);
        }
    }

    ucx_mp_tool_config_check(config);
}
