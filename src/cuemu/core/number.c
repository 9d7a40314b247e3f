/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cuemu_core.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


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

int64_t cuemu_env_bytes(const char *name)
{
    const char *env = getenv(name);
    const char *units = "KMGT", *unit;
    char *end;
    double value;

    if ((env == NULL) || (*env == '\0')) {
        return 0;
    }

    value = cuemu_strtod(env, &end);
    if (*end != '\0') {
        unit = strchr(units, *end & ~0x20);
        if ((unit != NULL) && (end[1] == '\0')) {
            value *= (double)(1ull << (10 * (unit - units + 1)));
            ++end;
        }
    }

    if ((*end != '\0') || !(value >= 1) || (value > 1e15)) {
        fprintf(stderr, "cuemu: %s=%s is not a number of bytes\n", name, env);
        return -1;
    }

    return (int64_t)value;
}
