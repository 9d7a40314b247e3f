/* SPDX-License-Identifier: BSD-3-Clause */
/* Component and transport of cuda_copy as seen by UCX. */
#ifndef UCT_CUDA_COPY_MD_H
#define UCT_CUDA_COPY_MD_H

#include <uct/abi/abi.h>


extern const uct_abi_component_t uct_cuda_copy_component;
extern const uct_abi_tl_t uct_cuda_copy_tl;

#endif
