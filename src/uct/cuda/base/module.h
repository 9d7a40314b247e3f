/* SPDX-License-Identifier: BSD-3-Clause */
/* The module as a whole. */
#ifndef UCT_CUDA_BASE_MODULE_H
#define UCT_CUDA_BASE_MODULE_H


/** Lead messages into the log of the UCX that the module was attached to. */
void uct_cuda_module_init_log(void);

#endif
