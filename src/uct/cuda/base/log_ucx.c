/* SPDX-License-Identifier: BSD-3-Clause */
/* Translation of levels; only messages shown by UCX are formatted. */
#include <uct/cuda/base/log_ucx.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/log.h>

#include <pthread.h>


static const uct_abi_log_level_t ucx_levels[] = {
    [UCT_CUDA_LOG_ERROR] = UCT_ABI_LOG_ERROR,
    [UCT_CUDA_LOG_WARN]  = UCT_ABI_LOG_WARN,
    [UCT_CUDA_LOG_INFO]  = UCT_ABI_LOG_INFO,
    [UCT_CUDA_LOG_DEBUG] = UCT_ABI_LOG_DEBUG,
    [UCT_CUDA_LOG_TRACE] = UCT_ABI_LOG_TRACE
};


static void send_to_ucx(uct_cuda_log_level_t level, const char *file,
                        unsigned line, const char *function,
                        const char *message)
{
    uct_abi_log_message(file, line, function, ucx_levels[level], "%s", message);
}

static void find_level_once(void)
{
    uct_cuda_log_level_t level = UCT_CUDA_LOG_TRACE;

    while ((level > UCT_CUDA_LOG_ERROR) &&
           !uct_abi_log_is_enabled(ucx_levels[level])) {
        --level;
    }

    uct_cuda_log_set(send_to_ucx, level);
}

void uct_cuda_log_to_ucx(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_level_once);
}
