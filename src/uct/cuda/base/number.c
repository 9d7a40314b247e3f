/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/number.h>

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>


/* Switch this thread to the C locale, a constant of libc's. @return The locale
 * to restore */
static locale_t use_c(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

double uct_cuda_strtod(const char *text, char **end_p)
{
    const locale_t own = use_c();
    const double value = strtod(text, end_p);

    (void)uselocale(own);
    return value;
}

int uct_cuda_vsnprintf(char *text, size_t size, const char *format, va_list ap)
{
    const locale_t own = use_c();
    const int length   = vsnprintf(text, size, format, ap);

    (void)uselocale(own);
    return length;
}
