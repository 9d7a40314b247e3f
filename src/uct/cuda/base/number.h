/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers in text, whatever the program's locale. */
#ifndef UCT_CUDA_BASE_NUMBER_H
#define UCT_CUDA_BASE_NUMBER_H

#include <ucs/sys/compiler_def.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

BEGIN_C_DECLS


/** strtod() in the C locale. */
double uct_cuda_strtod(const char *text, char **end_p);


/** vsnprintf() in the C locale. */
int __attribute__((format(printf, 3, 0)))
uct_cuda_vsnprintf(char *text, size_t size, const char *format, va_list ap);


/**
 * Parse bytes: digits with an optional fraction, then optionally k, m, g or t
 * for powers of 1024, and a "b", in either case.
 *
 * @param end_p  First character after the size; NULL: the text must end there.
 * @return false: no size, or 2^63 or more.
 */
bool uct_cuda_size_parse(const char *text, const char **end_p, size_t *size_p);


/** Read the first range of a list like "0-3,8", and move the list behind it.
 *  @return false: there is none. */
bool uct_cuda_number_range(const char **list_p, long *first_p, long *last_p);


END_C_DECLS

#endif
