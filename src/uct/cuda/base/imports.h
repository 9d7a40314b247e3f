/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * IPC handles that the program has opened. The driver exports no memory of
 * another process, but a third process can open the owner's handle as well.
 */
#ifndef UCT_CUDA_BASE_IMPORTS_H
#define UCT_CUDA_BASE_IMPORTS_H

#include <cuda.h>

#include <stdbool.h>


/** Record that @a handle was opened at @a base. Does nothing if malloc() fails,
 *  or in a thread that opens a handle for the module itself. */
void uct_cuda_imports_add(CUdeviceptr base, const CUipcMemHandle *handle);

/** Set whether this thread opens handles for the module itself. */
void uct_cuda_imports_set_own(bool is_own);

/** Remove the handle opened at @a base if its memory is not mapped any more: it
 *  may have been opened more than once. */
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
