/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages' way into UCX's log. */
#ifndef UCT_CUDA_BASE_LOG_UCX_H
#define UCT_CUDA_BASE_LOG_UCX_H


/** Lead messages into the log of the UCX that the module was attached to; once,
 *  however often it is called. */
void uct_cuda_log_to_ucx(void);

#endif
