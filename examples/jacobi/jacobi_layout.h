/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * How a rank's part of the field lies in GPU memory: rows of `pitch` floats,
 * one more above and one below than the rank has, for its neighbours' rows. In
 * a row are JACOBI_PAD floats, of which the last is the left neighbour's, then
 * the rank's own columns, then the right neighbour's. So all rows begin at
 * multiples of 128 bytes.
 */
#ifndef JACOBI_LAYOUT_H_
#define JACOBI_LAYOUT_H_

#define JACOBI_PAD     32  /* floats */
#define JACOBI_STRIP   8   /* rows of a thread */
#define JACOBI_THREADS 256 /* of a block */

#endif
