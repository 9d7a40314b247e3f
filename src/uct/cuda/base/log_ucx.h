/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of messages to UCX's log. */
#ifndef UCT_CUDA_BASE_LOG_UCX_H
#define UCT_CUDA_BASE_LOG_UCX_H


/** Send messages to the log of the attached UCX. Later calls have no effect. */
void uct_cuda_log_to_ucx(void);

#endif
