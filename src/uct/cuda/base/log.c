/* SPDX-License-Identifier: BSD-3-Clause */
/* Formatting, and output to standard error by default. */
#include <uct/cuda/base/log.h>

#include <stdarg.h>
#include <stdio.h>


#define LOG_MESSAGE_MAX 512


uct_cuda_log_level_t uct_cuda_log_level = UCT_CUDA_LOG_WARN;


static void log_stderr(uct_cuda_log_level_t level, const char *file,
                       unsigned line, const char *function,
                       const char *message)
{
    static const char *names[] = {"error", "warning", "info", "debug", "trace"};

    fprintf(stderr, "ucx-mp: %s: %s (%s)\n", names[level], message, function);
}

static uct_cuda_log_func_t log_func = log_stderr;


void uct_cuda_log_set(uct_cuda_log_func_t func, uct_cuda_log_level_t level)
{
    log_func           = (func != NULL) ? func : log_stderr;
    uct_cuda_log_level = level;
}

void uct_cuda_log_message(uct_cuda_log_level_t level, const char *file,
                          unsigned line, const char *function,
                          const char *format, ...)
{
    char message[LOG_MESSAGE_MAX];
    va_list ap;

    va_start(ap, format);
    vsnprintf(message, sizeof(message), format, ap);
    va_end(ap);

    log_func(level, file, line, function, message);
}
