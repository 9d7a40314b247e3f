/* SPDX-License-Identifier: BSD-3-Clause */

/* What the copying kernel is launched with, the same for C and CUDA C. */
#ifndef UCX_MP_COPY_ARGS_H_
#define UCX_MP_COPY_ARGS_H_

#define UCX_MP_COPY_MAX     128 /* blocks of memory a launch */
#define UCX_MP_COPY_THREADS 512 /* of a block of threads: 16 warps */
#define UCX_MP_COPY_WARPS   (UCX_MP_COPY_THREADS / 32)

/*
 * Words of GPU memory, of 8 bytes each, zero at first. First one for each of
 * so many launches in turn: the serial of one that is called off. Then one a
 * warp, which has begun, or has ended and copied nothing, or all.
 */
#define UCX_MP_COPY_OFF             2048
#define UCX_MP_COPY_WORDS(blocks)   \
    (UCX_MP_COPY_OFF + (blocks) * UCX_MP_COPY_WARPS)
#define UCX_MP_COPY_BEGUN(serial)   (4 * (serial))
#define UCX_MP_COPY_NOTHING(serial) (4 * (serial) + 1)
#define UCX_MP_COPY_COPIED(serial)  (4 * (serial) + 2)

typedef struct {
    unsigned long long src[UCX_MP_COPY_MAX]; /* device addresses */
    unsigned long long dst[UCX_MP_COPY_MAX];
    unsigned           size[UCX_MP_COPY_MAX]; /* bytes */
    unsigned long long count;
    unsigned long long serial; /* of the launch, from 1 on */
    unsigned long long words;
} ucx_mp_copy_args_t;

/*
 * The same of more blocks: all have one size, and lie a multiple of
 * UCX_MP_COPY_UNIT bytes behind the bases, less than 2^32 units.
 */
#define UCX_MP_COPY_ALIKE_MAX 480
#define UCX_MP_COPY_UNIT      16

typedef struct {
    unsigned           src[UCX_MP_COPY_ALIKE_MAX]; /* units */
    unsigned           dst[UCX_MP_COPY_ALIKE_MAX];
    unsigned long long base_src;
    unsigned long long base_dst;
    unsigned long long size; /* bytes */
    unsigned long long count;
    unsigned long long serial;
    unsigned long long words;
} ucx_mp_copy_alike_args_t;

#endif
