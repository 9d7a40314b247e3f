/* SPDX-License-Identifier: BSD-3-Clause */
/* Pictures and NCCL's XML, which ucx_mp_draw, in Python, makes of JSON. */
#ifndef UCX_MP_DRAW_H
#define UCX_MP_DRAW_H

#include <stdio.h>
#include <sys/types.h>


typedef struct {
    FILE  *json; /**< What the program is to read goes here */
    pid_t pid;
} ucx_mp_draw_t;


/**
 * Start the program.
 *
 * @param what  "node", "xml" or "matrices".
 * @param file  Is overwritten; NULL: it goes to standard output.
 *
 * @return 0, or an errno: the file cannot be written, or the program cannot be
 *         started.
 */
int ucx_mp_draw_open(ucx_mp_draw_t *draw, const char *what, const char *file);


/** Wait for it to end. @return Its exit status: 0, or it has said on standard
 *  error why not. */
int ucx_mp_draw_close(ucx_mp_draw_t *draw);

#endif
