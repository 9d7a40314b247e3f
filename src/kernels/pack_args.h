/* SPDX-License-Identifier: BSD-3-Clause */

/* Arguments of the packing kernel, shared by C and CUDA C. */
#ifndef UCX_MP_PACK_ARGS_H_
#define UCX_MP_PACK_ARGS_H_

#define UCX_MP_PACK_THREADS 256
#define UCX_MP_PACK_WORDS   4    /* words moved by a thread in one step */
#define UCX_MP_PACK_BLOCKS  2048 /* maximum of thread blocks in a grid */

/* Rows of an element, in bytes: `length` bytes at `offset`, the next ones
   `stride` bytes behind, and so on; in the packed element at `packed`, then
   each `step` bytes behind */
typedef struct {
    long long          offset; /* first row, relative to the element's origin */
    long long          stride;
    unsigned long long packed;
    unsigned long long step;
    unsigned long long length;
    unsigned long long first;  /* packed bytes of all rows before these */
} ucx_mp_pack_rows_t;

typedef struct {
    unsigned long long program;  /* address of the first element's origin */
    unsigned long long staged;   /* address of the packed bytes */
    unsigned long long rows;     /* address of the element's rows */
    unsigned long long num_rows;
    long long          extent;   /* bytes from one element's origin to the
                                    next */
    unsigned long long element;  /* bytes of a packed element */
    unsigned long long bytes;    /* packed bytes to move, from the first on */
    unsigned long long unit;     /* bytes of a word: 1, 2, 4, 8 or 16 */
    unsigned long long is_back;  /* non-zero: unpack */
} ucx_mp_pack_args_t;

#endif
