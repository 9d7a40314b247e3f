/* SPDX-License-Identifier: BSD-3-Clause */
/* Parser of UCX_CUDA_COPY_BW. */
#include <uct/cuda/cuda_copy/cuda_copy_bandwidth.h>

#include <uct/cuda/base/number.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>


/* Parse a bandwidth: [number][K|M|G|T][B|b][ps|/s|s], or "auto", which leaves
 * the value unchanged */
static int parse_value(const char *text, size_t length, double *value_p)
{
    static const char prefixes[] = "KMGT";
    char buffer[64];
    const char *prefix;
    double value;
    char *end;

    if ((length == 0) || (length >= sizeof(buffer))) {
        return -1;
    }

    if ((length == 4) && (strncasecmp(text, "auto", length) == 0)) {
        return 0;
    }

    memcpy(buffer, text, length);
    buffer[length] = '\0';

    value = uct_cuda_strtod(buffer, &end);
    if ((end == buffer) || !isfinite(value) || (value < 0)) {
        return -1;
    }

    if (*end != '\0') {
        prefix = strchr(prefixes, *end);
        if (prefix != NULL) {
            value = ldexp(value, 10 * (int)(prefix - prefixes + 1));
            ++end;
        }
    }

    if (*end == 'b') {
        value /= 8;
        ++end;
    } else if (*end == 'B') {
        ++end;
    }

    if ((*end != '\0') && strcmp(end, "ps") && strcmp(end, "/s") &&
        strcmp(end, "s")) {
        return -1;
    }

    *value_p = value;
    return 0;
}

ucs_status_t uct_cuda_copy_bandwidth_parse(const char *text,
                                           uct_cuda_copy_bandwidth_t *bandwidth,
                                           char *error, size_t error_size)
{
    uct_cuda_copy_bandwidth_t parsed = *bandwidth;
    const struct {
        const char *key;
        double     *value;
    } keys[] = {
        {"default", &parsed.dflt},
        {"h2d", &parsed.h2d},
        {"d2h", &parsed.d2h},
        {"d2d", &parsed.d2d},
    };
    const char *item, *end, *colon;
    double *value;
    size_t i;

    for (item = text; *item != '\0'; item = (*end == ',') ? end + 1 : end) {
        end   = item + strcspn(item, ",");
        colon = memchr(item, ':', (size_t)(end - item));
        value = (colon == NULL) ? &parsed.dflt : NULL;

        for (i = 0; (colon != NULL) && (i < sizeof(keys) / sizeof(*keys));
             ++i) {
            if ((strlen(keys[i].key) == (size_t)(colon - item)) &&
                (strncasecmp(keys[i].key, item, (size_t)(colon - item)) == 0)) {
                value = keys[i].value;
            }
        }

        item = (colon == NULL) ? item : colon + 1;
        if ((value == NULL) ||
            (parse_value(item, (size_t)(end - item), value) != 0)) {
            snprintf(error, error_size,
                     "BW: \"%s\" is not a list of bandwidths such as "
                     "\"10000MBs,h2d:8300MBs,d2h:11660MBs,d2d:320GBs\"",
                     text);
            return UCS_ERR_INVALID_PARAM;
        }
    }

    *bandwidth = parsed;
    return UCS_OK;
}
