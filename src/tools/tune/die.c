/* SPDX-License-Identifier: BSD-3-Clause */
#include "die.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


void ucx_mp_tune_die(const char *format, ...)
{
    va_list ap;

    fflush(stdout);
    fprintf(stderr, "ucx_mp_plan_time: ");
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    exit(1);
}
