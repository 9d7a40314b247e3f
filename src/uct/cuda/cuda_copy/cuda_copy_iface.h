/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport of cuda_copy as seen by UCX. */
#ifndef UCT_CUDA_COPY_IFACE_H
#define UCT_CUDA_COPY_IFACE_H

#include <uct/abi/abi.h>


extern const uct_abi_tl_t uct_cuda_copy_tl;

#endif
