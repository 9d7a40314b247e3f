/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cuemu_core.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>


/* Return the C locale, a constant of libc's. */
static locale_t cuemu_c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double cuemu_strtod(const char *text, char **end_p)
{
    return strtod_l(text, end_p, cuemu_c_locale());
}

void cuemu_print(char *text, size_t size, const char *format, ...)
{
    const locale_t own = uselocale(cuemu_c_locale());
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(text, size, format, ap);
    va_end(ap);
    (void)uselocale(own);
}
