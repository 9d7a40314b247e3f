/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/number.h>

#include <ctype.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


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

bool uct_cuda_size_parse(const char *text, const char **end_p, size_t *size_p)
{
    static const char units[] = "kmgt";
    unsigned shift            = 0;
    const char *unit;
    double number;
    char *end;

    /* no sign, no blank, no "inf" or "nan" */
    if (!isdigit((unsigned char)text[0])) {
        return false;
    }

    number = uct_cuda_strtod(text, &end);
    unit   = (*end == '\0') ? NULL :
                               strchr(units, tolower((unsigned char)*end));
    if (unit != NULL) {
        shift = 10 * (unsigned)(unit - units + 1);
        ++end;
    }
    if ((*end == 'b') || (*end == 'B')) {
        ++end;
    }

    number *= (double)(1ull << shift);
    if (!(number < 9223372036854775808.0) ||
        ((end_p == NULL) && (*end != '\0'))) {
        return false;
    }

    if (end_p != NULL) {
        *end_p = end;
    }
    *size_p = (size_t)number;
    return true;
}

bool uct_cuda_number_range(const char **list_p, long *first_p, long *last_p)
{
    char *end;

    if (!isdigit((unsigned char)**list_p)) {
        return false;
    }

    *first_p = *last_p = strtol(*list_p, &end, 10);
    if (*end == '-') {
        *last_p = strtol(end + 1, &end, 10);
    }

    *list_p = (*end == ',') ? end + 1 : end;
    return true;
}
