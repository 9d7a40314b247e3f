/* SPDX-License-Identifier: BSD-3-Clause */
/* Pictures and NCCL's XML, made from JSON by ucx_mp_draw, a Python program. */
#ifndef UCX_MP_DRAW_H
#define UCX_MP_DRAW_H

#include <stdio.h>
#include <sys/types.h>


typedef struct {
    FILE  *json; /**< Input of the program */
    pid_t pid;
} ucx_mp_draw_t;


/**
 * Start the program.
 *
 * @param what  "node", "xml" or "matrices".
 * @param file  File to overwrite; NULL: standard output.
 *
 * @return 0, or an errno: the file cannot be written, or the program cannot be
 *         started.
 */
int ucx_mp_draw_open(ucx_mp_draw_t *draw, const char *what, const char *file);


/** Wait until it ends. @return Its exit status: 0, or non-zero after a message
 *  on standard error. */
int ucx_mp_draw_close(ucx_mp_draw_t *draw);

#endif
