/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hooks on the driver's functions. They detect a process's first use of GPUs,
 * by the functions that create contexts and GPU memory: before that no pointer
 * is to GPU memory. They also detect memory that UCX's own hooks do not see.
 */
#ifndef UCT_CUDA_BASE_FIRST_USE_H
#define UCT_CUDA_BASE_FIRST_USE_H

#include <cuda.h>
#include <ucs/type/status.h>

#include <stddef.h>
#include <stdint.h>


/**
 * Hook cuMemMap and cuMemUnmap, whether or not the process uses GPUs already.
 * UCX's own hooks are made in the same way. Call once, after the driver is
 * loaded, and not beside UCX's hooks of these functions.
 *
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: they cannot be hooked.
 */
ucs_status_t uct_cuda_first_use_hook_maps(void);


/**
 * Call @a func once, after the first context of the process is created or
 * before its first GPU memory is, inside that driver call and in its thread.
 * Once in a process; the driver must be loaded, and
 * uct_cuda_first_use_hook_maps() have succeeded.
 *
 * @return UCS_OK; UCS_ERR_BUSY: another thread may have begun already;
 *         UCS_ERR_UNSUPPORTED: the functions cannot be hooked. On failure @a
 *         func is not called.
 */
ucs_status_t uct_cuda_first_use_watch(void (*func)(void));

/** Like uct_cuda_first_use_watch(), before the first cuMemMap only, for a
 *  process that may have other GPU memory. */
ucs_status_t uct_cuda_first_use_watch_maps(void (*func)(void));

/** Call @a func once, after the next context of the process is created, where
 *  this can be observed: inside that driver call and in its thread. */
void uct_cuda_first_use_watch_contexts(void (*func)(void));

/** Note the IPC handles that the program opens from now on (base/imports.h),
 *  where this can be observed. Call once. */
void uct_cuda_first_use_watch_imports(void);

/** Call @a func, in the caller's thread, after each driver call that returns an
 *  address of memory that the program has not allocated: a peer's memory by an
 *  IPC handle or pool, memory of another API, a variable of device code. Call
 *  it also before a handle is closed. Does nothing for calls that cannot be
 *  hooked. Call once, after uct_cuda_first_use_watch_imports(). */
void uct_cuda_first_use_watch_found(void (*func)(CUdeviceptr address));


/** Called in any thread of the program, in the driver's call; takes no lock and
 *  allocates nothing. */
typedef void (*uct_cuda_remap_func_t)(uintptr_t address, size_t length);

/** Call @a func before GPU memory of the process is unmapped and after memory
 *  is mapped, if the hooks above or UCX's (base/memtype.c) see the call. */
void uct_cuda_first_use_on_remap(uct_cuda_remap_func_t func);

/** Call the function of uct_cuda_first_use_on_remap(), if any. */
void uct_cuda_first_use_note_remap(void *address, size_t length);

#endif
