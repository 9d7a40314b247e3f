/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/base/size.h>

#include <uct/cuda/base/number.h>

#include <ctype.h>
#include <string.h>


bool uct_cuda_size_parse(const char *text, const char **end_p, size_t *size_p)
{
    static const char units[] = "kmgt";
    unsigned shift            = 0;
    const char *unit;
    double number;
    char *end;

    /* no sign, no blank, no name of a number */
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
