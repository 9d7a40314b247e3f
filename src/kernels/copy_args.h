/* SPDX-License-Identifier: BSD-3-Clause */

/* Arguments of the copy kernels, shared by C and CUDA C. */
#ifndef UCX_MP_COPY_ARGS_H_
#define UCX_MP_COPY_ARGS_H_

#define UCX_MP_COPY_MAX     128 /* memory blocks per launch */
#define UCX_MP_COPY_THREADS 512 /* threads of a thread block: 16 warps */
#define UCX_MP_COPY_WARPS   (UCX_MP_COPY_THREADS / 32)

/*
 * GPU memory that successive launches share, in words of 8 bytes, initially
 * zero. The first UCX_MP_COPY_OFF words are cancellation slots: slot number
 * serial % UCX_MP_COPY_OFF holds the serial number of a cancelled launch, or
 * another number. Then follows one state word per warp: begun, ended without
 * copying, or ended after copying.
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
    unsigned long long serial; /* serial number of the launch, counting from
                                  1 */
    unsigned long long words;
} ucx_mp_copy_args_t;

/*
 * Arguments for blocks of equal size: more blocks per launch than
 * UCX_MP_COPY_MAX. A block is given as a distance behind base_src or base_dst,
 * in units of UCX_MP_COPY_UNIT bytes.
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
