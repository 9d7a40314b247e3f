/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Log messages. A function pointer sends them anywhere; no part of UCX is used,
 * so tools and tests use this, too.
 */
#ifndef UCT_CUDA_BASE_LOG_H
#define UCT_CUDA_BASE_LOG_H

#include <ucs/sys/compiler_def.h>

BEGIN_C_DECLS


typedef enum {
    UCT_CUDA_LOG_ERROR,
    UCT_CUDA_LOG_WARN,
    UCT_CUDA_LOG_INFO,
    UCT_CUDA_LOG_DEBUG,
    UCT_CUDA_LOG_TRACE
} uct_cuda_log_level_t;


/**
 * Receiver of messages.
 *
 * @param message  Complete text without newline; valid during the call only.
 */
typedef void (*uct_cuda_log_func_t)(uct_cuda_log_level_t level,
                                    const char *file, unsigned line,
                                    const char *function, const char *message);


/** Messages above this level are not formatted. */
extern uct_cuda_log_level_t uct_cuda_log_level;


/**
 * Send messages up to @a level to @a func; NULL is standard error. Before the
 * first call warnings and errors go to standard error. Call before other
 * threads log.
 */
void uct_cuda_log_set(uct_cuda_log_func_t func, uct_cuda_log_level_t level);


void uct_cuda_log_message(uct_cuda_log_level_t level, const char *file,
                          unsigned line, const char *function,
                          const char *format, ...)
        __attribute__((format(printf, 5, 6)));


/** Return whether messages of this level are logged. */
static inline int uct_cuda_log_is_on(uct_cuda_log_level_t level)
{
    return __builtin_expect(level <= uct_cuda_log_level, 0);
}

#define uct_cuda_log(_level, ...) \
    do { \
        if (uct_cuda_log_is_on(_level)) { \
            uct_cuda_log_message((_level), __FILE__, __LINE__, __func__, \
                                 __VA_ARGS__); \
        } \
    } while (0)

#define uct_cuda_error(...) uct_cuda_log(UCT_CUDA_LOG_ERROR, __VA_ARGS__)
#define uct_cuda_warn(...)  uct_cuda_log(UCT_CUDA_LOG_WARN, __VA_ARGS__)
#define uct_cuda_info(...)  uct_cuda_log(UCT_CUDA_LOG_INFO, __VA_ARGS__)
#define uct_cuda_debug(...) uct_cuda_log(UCT_CUDA_LOG_DEBUG, __VA_ARGS__)
#define uct_cuda_trace(...) uct_cuda_log(UCT_CUDA_LOG_TRACE, __VA_ARGS__)


END_C_DECLS

#endif
