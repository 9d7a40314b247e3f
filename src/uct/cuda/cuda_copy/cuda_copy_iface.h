/* SPDX-License-Identifier: BSD-3-Clause */
/* Interface of cuda_copy, and the transport by which UCX knows it. */
#ifndef UCT_CUDA_COPY_IFACE_H
#define UCT_CUDA_COPY_IFACE_H

#include <uct/cuda/base/iface.h>
#include <uct/cuda/cuda_copy/cuda_copy_bandwidth.h>
#include <uct/cuda/multipath/multipath.h>


typedef struct {
    uct_cuda_iface_t          super;
    uint64_t                  id; /**< An interface reaches itself alone */
    uct_cuda_copy_bandwidth_t bandwidth;
    double                    read_latency; /**< Of a short copy to the host,
                                                 seconds */
    /** Of the process's cuda_ipc interfaces, whose variables configure it; NULL
     *  until a copy wants it, or if there is none */
    uct_cuda_mp_engine_t      *engine;
} uct_cuda_copy_iface_t;


extern const uct_abi_tl_t uct_cuda_copy_tl;

#endif
