/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPUs' rights to access memory without a context. The module and the MPI
 * interposition library share this file, each with its own table of the driver.
 */
#ifndef UCT_CUDA_BASE_ACCESS_H
#define UCT_CUDA_BASE_ACCESS_H

#include <uct/cuda/base/driver_table.h>

#include <ucs/sys/compiler_def.h>

#include <stdbool.h>

BEGIN_C_DECLS


/** Get the CU_MEM_ACCESS_FLAGS of a GPU to memory. @return false: the driver
 *  does not report them. */
bool uct_cuda_access_get(const uct_cuda_driver_t *driver, int device,
                         CUdeviceptr memory, unsigned long long *flags_p);


/**
 * Return the GPU whose contexts can copy memory without a context. It is the
 * one that the memory lies on, unless the program has opened the memory to
 * others only, as it does with a peer's memory that it imports. The driver
 * refuses copies in a context of a GPU without access, also on the GPU itself
 * (H200, driver 580).
 *
 * @param location  GPU of the memory, returned if no GPU has access; negative:
 *                  hidden from this process.
 */
int uct_cuda_access_gpu(const uct_cuda_driver_t *driver, CUdeviceptr memory,
                        int location);


END_C_DECLS

#endif
