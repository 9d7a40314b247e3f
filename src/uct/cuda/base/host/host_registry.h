/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What of a buffer is page-locked, and by whom. The program's memory is the
 * program's: nothing is locked for a message, unless the user has asked for it
 * (UCX_CUDA_IPC_HOST_REGISTER_MAX_SIZE). What that locked is kept here.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_REGISTRY_H
#define UCT_CUDA_BASE_HOST_HOST_REGISTRY_H

#include <ucs/sys/compiler_def.h>
#include <ucs/type/status.h>

#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/** Page-locked memory, for all contexts; whole pages. */
typedef struct uct_cuda_host_region uct_cuda_host_region_t;


/**
 * Let the module page-lock memory that nobody asked to register. A program may
 * notice: the driver refuses its copies across the edge of what is locked, and
 * cudaHostRegister() of it; asynchronous copies from it read it later than they
 * would; and unlocking waits for kernels.
 *
 * Needs UCX's hooks on unmapping: memory that was unmapped has to be unlocked
 * before its address is used again, or the driver would go on copying to and
 * from the old pages. Without them nothing is locked of its own accord.
 *
 * @param max_size  Bytes locked at most, other registrations included. With 0,
 *                  only what is locked already counts as such.
 */
void uct_cuda_host_registry_limit(size_t max_size);


/**
 * How the next bytes of a buffer are to be copied, to or from a GPU.
 *
 * The driver refuses a copy that begins in one piece of locked memory and ends
 * outside of it, so a buffer is copied piece by piece. Memory that is copied
 * often enough to pay for it is locked on the way; call with a context current.
 *
 * @param address      First byte.
 * @param length       Bytes left, at least 1.
 * @param at_once      Lock memory that comes for the first time, too.
 * @param is_locked_p  Is the piece page-locked, by whomever?
 * @param is_busy_p    It is being locked or unlocked by another thread. Where
 *                     that has to wait, the program may have other memory at
 *                     the address by now, and the driver does not know: only
 *                     the processor may touch it. Then @a is_locked_p is false.
 * @param region_p     Filled with the locked memory that the piece lies in,
 *                     held until it is released; or NULL: none of ours.
 *
 * @return Length of the piece, bytes: at least 1, @a length at most.
 */
size_t uct_cuda_host_registry_next(const void *address, size_t length,
                                   bool at_once, bool *is_locked_p,
                                   bool *is_busy_p,
                                   uct_cuda_host_region_t **region_p);

/** The copy is over. Any thread. */
void uct_cuda_host_region_release(uct_cuda_host_region_t *region);


/** Number of locked regions, for tests. */
unsigned uct_cuda_host_registry_count(void);


END_C_DECLS

#endif
