/* SPDX-License-Identifier: BSD-3-Clause */
/* What the module offers to UCX, and its messages' way into UCX's log. */
#include <uct/cuda/base/module.h>

#include <uct/abi/abi.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_copy/cuda_copy_md.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_md.h>

#include <pthread.h>


const uct_abi_component_t *const uct_abi_components[] = {
    &uct_cuda_copy_component,
    &uct_cuda_ipc_component,
    NULL
};


static const uct_abi_log_level_t ucx_levels[] = {
    [UCT_CUDA_LOG_ERROR] = UCT_ABI_LOG_ERROR,
    [UCT_CUDA_LOG_WARN]  = UCT_ABI_LOG_WARN,
    [UCT_CUDA_LOG_INFO]  = UCT_ABI_LOG_INFO,
    [UCT_CUDA_LOG_DEBUG] = UCT_ABI_LOG_DEBUG,
    [UCT_CUDA_LOG_TRACE] = UCT_ABI_LOG_TRACE
};


static void log_to_ucx(uct_cuda_log_level_t level, const char *file,
                       unsigned line, const char *function,
                       const char *message)
{
    uct_abi_log_message(file, line, function, ucx_levels[level], "%s", message);
}

static void init_log_once(void)
{
    uct_cuda_log_level_t level = UCT_CUDA_LOG_TRACE;

    while ((level > UCT_CUDA_LOG_ERROR) &&
           !uct_abi_log_is_enabled(ucx_levels[level])) {
        --level;
    }

    uct_cuda_log_set(log_to_ucx, level);
}

void uct_cuda_module_init_log(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, init_log_once);
}
