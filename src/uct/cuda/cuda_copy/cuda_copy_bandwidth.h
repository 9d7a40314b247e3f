/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX_CUDA_COPY_BW: bandwidths reported to UCX. */
#ifndef UCT_CUDA_COPY_BANDWIDTH_H
#define UCT_CUDA_COPY_BANDWIDTH_H

#include <ucs/type/status.h>

#include <stddef.h>


/** Bandwidths, bytes/s. */
typedef struct {
    double dflt; /**< Default for other copies */
    double h2d;  /**< Host to GPU */
    double d2h;  /**< GPU to host */
    double d2d;  /**< GPU to GPU */
} uct_cuda_copy_bandwidth_t;


/**
 * Parse the variable in the format of stock UCX: a bandwidth, or a list such as
 * "10000MBs,h2d:8300MBs,d2h:11660MBs,d2d:320GBs". Values that are missing or
 * "auto" are unchanged. As in UCX, units are powers of 1024 (MBs, GBs) or of
 * bits (Gbps).
 *
 * @param error  Filled with a sentence on UCS_ERR_INVALID_PARAM.
 */
ucs_status_t uct_cuda_copy_bandwidth_parse(const char *text,
                                           uct_cuda_copy_bandwidth_t *bandwidth,
                                           char *error, size_t error_size);

#endif
