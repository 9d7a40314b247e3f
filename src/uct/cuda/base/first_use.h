/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices when a process begins to use GPUs, by hooks on the driver's functions
 * that create contexts and GPU memory. Until then no pointer leads to a GPU.
 */
#ifndef UCT_CUDA_BASE_FIRST_USE_H
#define UCT_CUDA_BASE_FIRST_USE_H

#include <ucs/type/status.h>


/**
 * Call @a func once, before the first context or GPU memory of the process is
 * made, in the thread that makes it and inside its call of the driver. Once a
 * process; the driver has to be loaded.
 *
 * @return UCS_OK; UCS_ERR_BUSY if somebody may have begun already;
 *         UCS_ERR_UNSUPPORTED if the functions cannot be hooked. @a func is not
 *         called then.
 */
ucs_status_t uct_cuda_first_use_watch(void (*func)(void));

/** The same before the first cuMemMap alone, for a process that may have other
 *  GPU memory by then. */
ucs_status_t uct_cuda_first_use_watch_maps(void (*func)(void));

#endif
