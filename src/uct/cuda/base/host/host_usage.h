/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which pageable buffers were copied how often: is it time to page-lock one?
 * Not thread safe.
 */
#ifndef UCT_CUDA_BASE_HOST_HOST_USAGE_H
#define UCT_CUDA_BASE_HOST_HOST_USAGE_H

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

BEGIN_C_DECLS


#define UCT_CUDA_HOST_USAGE_SLOTS 512


/** Zeroed to begin with. */
typedef struct {
    struct {
        uintptr_t address;
        double    lost; /**< Seconds that locked memory would have saved */
    } slots[UCT_CUDA_HOST_USAGE_SLOTS];
} uct_cuda_host_usage_t;


/**
 * A buffer is about to be copied.
 *
 * Nobody knows how often it will be copied again. Locking it once half as much
 * has been lost as that costs spends at worst three times what was needed.
 *
 * @param at_once  It pays the first time: because of how it would be copied
 *                 otherwise, or because it goes on behind memory that was
 *                 copied often enough (the same buffer most likely, with a
 *                 longer message in it).
 *
 * @return Whether locking it now pays.
 */
bool uct_cuda_host_usage_add(uct_cuda_host_usage_t *usage, uintptr_t address,
                             size_t length, bool at_once);

/** The driver would not lock it: do not ask again for a long time. */
void uct_cuda_host_usage_refused(uct_cuda_host_usage_t *usage,
                                 uintptr_t address, size_t length);

/** Buffers that begin in this range are gone. */
void uct_cuda_host_usage_forget(uct_cuda_host_usage_t *usage, uintptr_t start,
                                uintptr_t end);


END_C_DECLS

#endif
