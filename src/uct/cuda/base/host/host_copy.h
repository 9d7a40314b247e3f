/* SPDX-License-Identifier: BSD-3-Clause */
/* One copy between GPU and host memory, whatever the driver knows of that. */
#ifndef UCT_CUDA_BASE_HOST_HOST_COPY_H
#define UCT_CUDA_BASE_HOST_HOST_COPY_H

#include <ucs/type/status.h>

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>


/**
 * Submit a copy to a stream, with its context current.
 *
 * The driver refuses memory of which only a part is page-locked, or parts by
 * several registrations; such a copy goes in as many pieces as it takes.
 *
 * @return UCS_OK, or the driver's error; then part of it may be under way.
 */
ucs_status_t uct_cuda_host_copy(CUdeviceptr gpu, void *host, size_t length,
                                bool to_gpu, CUstream stream);

#endif
