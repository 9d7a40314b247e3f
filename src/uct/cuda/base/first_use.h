/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Detection of a process's first use of GPUs, by hooks on the driver's
 * functions that create contexts and GPU memory. Before that no pointer leads
 * to a GPU.
 */
#ifndef UCT_CUDA_BASE_FIRST_USE_H
#define UCT_CUDA_BASE_FIRST_USE_H

#include <ucs/type/status.h>


/**
 * Call @a func once, before the first context or GPU memory of the process is
 * created, inside that driver call and in its thread. Once in a process; the
 * driver must be loaded.
 *
 * @return UCS_OK; UCS_ERR_BUSY: another thread may have begun already;
 *         UCS_ERR_UNSUPPORTED: the functions cannot be hooked. On failure @a
 *         func is not called.
 */
ucs_status_t uct_cuda_first_use_watch(void (*func)(void));

/** Like uct_cuda_first_use_watch(), before the first cuMemMap only, for a
 *  process that may have other GPU memory. */
ucs_status_t uct_cuda_first_use_watch_maps(void (*func)(void));

#endif
