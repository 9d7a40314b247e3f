/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of ucx_mp_plan_time when something fails. */
#ifndef UCX_MP_TUNE_DIE_H
#define UCX_MP_TUNE_DIE_H


/** Prints "ucx_mp_plan_time: message" and ends the program with status 1. */
void ucx_mp_tune_die(const char *format, ...)
        __attribute__((noreturn, format(printf, 1, 2)));

#endif
