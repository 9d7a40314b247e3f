/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * IPC handles that the program has opened. The driver exports no memory of
 * another process, but a third process can open the owner's handle as well.
 */
#ifndef UCT_CUDA_BASE_IMPORTS_H
#define UCT_CUDA_BASE_IMPORTS_H

#include <cuda.h>

#include <stdbool.h>


/** Note that @a handle was opened at @a base. Without host memory it is not
 *  noted. */
void uct_cuda_imports_add(CUdeviceptr base, const CUipcMemHandle *handle);

/** Note that an opening at @a base was closed; it may have been opened more
 *  often. */
void uct_cuda_imports_remove(CUdeviceptr base);

/**
 * Find the handle by which the memory at @a base was opened.
 *
 * @param id  CU_POINTER_ATTRIBUTE_BUFFER_ID of the memory: an entry of earlier
 *            memory at the same address is not found.
 *
 * @return Whether the memory was opened by a handle.
 */
bool uct_cuda_imports_find(CUdeviceptr base, unsigned long long id,
                           CUipcMemHandle *handle_p);

#endif
