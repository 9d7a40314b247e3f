/* SPDX-License-Identifier: BSD-3-Clause */

/* Arguments of a reduction kernel, shared by C and CUDA C. */
#ifndef UCX_MP_REDUCE_ARGS_H_
#define UCX_MP_REDUCE_ARGS_H_

#define UCX_MP_REDUCE_MAX     16  /* sources; also destinations */
#define UCX_MP_REDUCE_THREADS 512 /* threads of a block */

typedef struct {
    unsigned long long src[UCX_MP_REDUCE_MAX]; /* device addresses */
    unsigned long long dst[UCX_MP_REDUCE_MAX];
    unsigned long long count;                  /* elements */
    unsigned           num_src, num_dst;
} ucx_mp_reduce_args_t;

#endif
