/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers with a decimal point, whatever the program's locale. */
#ifndef UCT_CUDA_BASE_NUMBER_H
#define UCT_CUDA_BASE_NUMBER_H

#include <ucs/sys/compiler_def.h>

#include <stdarg.h>
#include <stddef.h>

BEGIN_C_DECLS


/** strtod() in the C locale. */
double uct_cuda_strtod(const char *text, char **end_p);


/** vsnprintf() in the C locale. */
int __attribute__((format(printf, 3, 0)))
uct_cuda_vsnprintf(char *text, size_t size, const char *format, va_list ap);


END_C_DECLS

#endif
