/* SPDX-License-Identifier: BSD-3-Clause */
/* End ucx_mp_plan_time after a failure. */
#ifndef UCX_MP_TUNE_DIE_H
#define UCX_MP_TUNE_DIE_H


/** Print "ucx_mp_plan_time: message" and end the program with status 1. */
void ucx_mp_tune_die(const char *format, ...)
        __attribute__((noreturn, format(printf, 1, 2)));

#endif
