/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Floating-point arithmetic in the thread's rounding mode. Operations that are
 * approximate on a GPU have the precision of the C library here. Half precision
 * and bfloat16 are rounded from exact or float results.
 */
#include "ptx_code.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PTX_FTZ = 1, /* subnormal numbers count as zero */
    PTX_SAT = 2, /* results are clamped to 0 .. 1 */
    PTX_NAN = 4  /* min and max: return NaN for a NaN */
};

/* ----------------------------------------------------- half and bfloat16 */

float cuemu_ptx_from_half(uint16_t bits)
{
    int exponent = (bits >> 10) & 0x1f;
    float value  = (float)(bits & 0x3ff);

    if (exponent == 0x1f) {
        value = (value != 0) ? NAN : INFINITY;
    } else if (exponent == 0) {
        value = ldexpf(value, -24);
    } else {
        value = ldexpf(value + 1024.0f, exponent - 25);
    }
    return (bits & 0x8000) ? -value : value;
}

/* Whether the rounding mode is away from zero for this value */
static int ptx_rounds_away(double value)
{
    return fegetround() == (signbit(value) ? FE_DOWNWARD : FE_UPWARD);
}

uint16_t cuemu_ptx_to_half(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size   = fabs(value);
    int exponent;

    if (isnan(value)) {
        return 0x7fff;
    }

    if (size >= 65536.0) {
        return sign | ((isinf(size) || (fegetround() == FE_TONEAREST) ||
                        ptx_rounds_away(value)) ? 0x7c00 : 0x7bff);
    }

    if (size < ldexp(1, -14)) {
        return (uint16_t)(sign + abs((int)nearbyint(ldexp(value, 24))));
    }

    (void)frexp(size, &exponent); /* size = [0.5, 1) * 2^exponent */
    return (uint16_t)(sign + (exponent + 13) * 1024 +
                      abs((int)nearbyint(ldexp(value, 11 - exponent))));
}

float cuemu_ptx_from_bfloat(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

uint16_t cuemu_ptx_to_bfloat(double value)
{
    float nearest = (float)value;
    uint32_t word, half;

    if (isnan(value)) {
        return 0x7fff;
    }

    /* Round to odd first, so that the value is rounded once */
    memcpy(&word, &nearest, sizeof(word));
    if ((double)nearest != value) {
        if (fabs((double)nearest) > fabs(value)) {
            --word;
        }
        word |= 1;
    }
    half = (fegetround() == FE_TONEAREST) ? (0x7fff + ((word >> 16) & 1)) :
           ptx_rounds_away(value) ? 0xffff : 0;
    return (uint16_t)((word + half) >> 16);
}

/* ------------------------------------------------------------ operations */

static inline float ptx_flush(float x)
{
    return (fabsf(x) < 1.17549435e-38f) ? copysignf(0, x) : x;
}

static inline double ptx_saturate(double x)
{
    return !(x > 0) ? 0 : (x > 1) ? 1 : x; /* a NaN becomes 0 */
}

static inline double ptx_pick(double x, double y, int how, int is_max)
{
    if (isnan(x) || isnan(y)) {
        return (how & PTX_NAN) ? (double)NAN : isnan(x) ? y : x;
    }
    if (x == y) { /* zeros differ in sign */
        return (signbit(x) == (is_max ? 0 : 1)) ? x : y;
    }
    return ((x > y) == is_max) ? x : y;
}

#define PTX_RUN(_name) \
    static void ptx_##_name(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in, \
                            cuemu_ptx_mask_t m)

#define PTX_SOURCE(_p, _type, _i) \
    const _type *_p = CUEMU_PTX_REG(g, const _type, in->r[_i])

/* x, y, z: the sources. Missing sources repeat the first one. */
#define PTX_FLOAT(_name, _n, ...) \
    PTX_RUN(_name##_f32) \
    { \
        float *d = CUEMU_PTX_REG(g, float, in->r[0]); \
        PTX_SOURCE(a, float, 1); \
        PTX_SOURCE(b, float, (_n > 1) ? 2 : 1); \
        PTX_SOURCE(c, float, (_n > 2) ? 3 : 1); \
        if (in->how & (PTX_FTZ | PTX_SAT)) { \
            CUEMU_PTX_FOR_EACH(m, { \
                int ftz = in->how & PTX_FTZ; \
                float x = ftz ? ptx_flush(a[i]) : a[i]; \
                float y = ftz ? ptx_flush(b[i]) : b[i]; \
                float z = ftz ? ptx_flush(c[i]) : c[i]; \
                float r = (float)(__VA_ARGS__); \
                (void)y; \
                (void)z; \
                r    = ftz ? ptx_flush(r) : r; \
                d[i] = (in->how & PTX_SAT) ? (float)ptx_saturate(r) : r; \
            }) \
            return; \
        } \
        CUEMU_PTX_FOR(g, m, { \
            float x = a[i]; \
            float y = b[i]; \
            float z = c[i]; \
            (void)y; \
            (void)z; \
            d[i] = (float)(__VA_ARGS__); \
        }); \
    }

#define PTX_DOUBLE(_name, _n, ...) \
    PTX_RUN(_name##_f64) \
    { \
        double *d = CUEMU_PTX_REG(g, double, in->r[0]); \
        PTX_SOURCE(a, double, 1); \
        PTX_SOURCE(b, double, (_n > 1) ? 2 : 1); \
        PTX_SOURCE(c, double, (_n > 2) ? 3 : 1); \
        CUEMU_PTX_FOR(g, m, { \
            double x = a[i]; \
            double y = b[i]; \
            double z = c[i]; \
            (void)y; \
            (void)z; \
            d[i] = __VA_ARGS__; \
        }); \
    }

/* One or two (x2) short numbers per register. x, y, z are doubles, so sums and
   products of short numbers are exact. */
#define PTX_SHORT(_name, _suffix, _kind, _n, _parts, ...) \
    PTX_RUN(_name##_##_suffix) \
    { \
        uint16_t *d = CUEMU_PTX_REG(g, uint16_t, in->r[0]); \
        PTX_SOURCE(a, uint16_t, 1); \
        PTX_SOURCE(b, uint16_t, (_n > 1) ? 2 : 1); \
        PTX_SOURCE(c, uint16_t, (_n > 2) ? 3 : 1); \
        CUEMU_PTX_FOR_EACH(m, { \
            for (unsigned j = i * _parts; j < (i + 1) * _parts; ++j) { \
                double x = (double)cuemu_ptx_from_##_kind(a[j]); \
                double y = (double)cuemu_ptx_from_##_kind(b[j]); \
                double z = (double)cuemu_ptx_from_##_kind(c[j]); \
                double r = __VA_ARGS__; \
                (void)y; \
                (void)z; \
                r    = (in->how & PTX_SAT) ? ptx_saturate(r) : r; \
                d[j] = cuemu_ptx_to_##_kind(r); \
            } \
        }) \
    }

#define PTX_SHORTS(_name, _n, ...) \
    PTX_SHORT(_name, f16, half, _n, 1, __VA_ARGS__) \
    PTX_SHORT(_name, f16x2, half, _n, 2, __VA_ARGS__) \
    PTX_SHORT(_name, bf16, bfloat, _n, 1, __VA_ARGS__) \
    PTX_SHORT(_name, bf16x2, bfloat, _n, 2, __VA_ARGS__)

#define PTX_ALL(_name, _n, ...) \
    PTX_FLOAT(_name, _n, __VA_ARGS__) \
    PTX_DOUBLE(_name, _n, __VA_ARGS__) \
    PTX_SHORTS(_name, _n, __VA_ARGS__)

#define PTX_TABLE_ALL(_name) \
    { \
        [CUEMU_PTX_F32]    = ptx_##_name##_f32, \
        [CUEMU_PTX_F64]    = ptx_##_name##_f64, \
        [CUEMU_PTX_F16]    = ptx_##_name##_f16, \
        [CUEMU_PTX_F16X2]  = ptx_##_name##_f16x2, \
        [CUEMU_PTX_BF16]   = ptx_##_name##_bf16, \
        [CUEMU_PTX_BF16X2] = ptx_##_name##_bf16x2 \
    }

#define PTX_TABLE_SINGLE(_name) \
    { \
        [CUEMU_PTX_F32]    = ptx_##_name##_f32, \
        [CUEMU_PTX_F16]    = ptx_##_name##_f16, \
        [CUEMU_PTX_F16X2]  = ptx_##_name##_f16x2, \
        [CUEMU_PTX_BF16]   = ptx_##_name##_bf16, \
        [CUEMU_PTX_BF16X2] = ptx_##_name##_bf16x2 \
    }

#define PTX_TABLE_LONG(_name) \
    { \
        [CUEMU_PTX_F32] = ptx_##_name##_f32, \
        [CUEMU_PTX_F64] = ptx_##_name##_f64 \
    }

PTX_ALL(add, 2, x + y)
PTX_ALL(sub, 2, x - y)
PTX_ALL(mul, 2, x * y)
PTX_ALL(neg, 1, -x)
PTX_FLOAT(abs, 1, fabsf(x))
PTX_DOUBLE(abs, 1, fabs(x))
PTX_SHORTS(abs, 1, fabs(x))

/* Use the CPU's own instruction where it has one: calls of fmaf() take a third
   of a kernel's time. Sanitizers are not ready yet when the copy is chosen. */
#if defined(__x86_64__) && !defined(__clang__) && \
        !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PTX_CLONES __attribute__((target_clones("default", "fma")))
#else
#define PTX_CLONES
#endif

PTX_CLONES PTX_FLOAT(fma, 3, fmaf(x, y, z))
PTX_CLONES PTX_DOUBLE(fma, 3, fma(x, y, z))
PTX_SHORTS(fma, 3, fma(x, y, z))
PTX_ALL(min, 2, ptx_pick(x, y, in->how, 0))
PTX_ALL(max, 2, ptx_pick(x, y, in->how, 1))
PTX_FLOAT(div, 2, x / y)
PTX_DOUBLE(div, 2, x / y)
PTX_FLOAT(rcp, 1, 1.0f / x)
PTX_DOUBLE(rcp, 1, 1.0 / x)
PTX_FLOAT(sqrt, 1, sqrtf(x))
PTX_DOUBLE(sqrt, 1, sqrt(x))
PTX_FLOAT(rsqrt, 1, 1.0 / sqrt((double)x))
PTX_DOUBLE(rsqrt, 1, 1.0 / sqrt(x))
PTX_FLOAT(sin, 1, sinf(x))
PTX_FLOAT(cos, 1, cosf(x))
PTX_FLOAT(lg2, 1, log2f(x))
PTX_FLOAT(ex2, 1, exp2f(x))
PTX_FLOAT(tanh, 1, tanhf(x))
PTX_SHORTS(tanh, 1, tanh(x))
PTX_SHORTS(ex2, 1, exp2(x))
PTX_FLOAT(copysign, 2, copysignf(y, x))
PTX_DOUBLE(copysign, 2, copysign(y, x))

static const cuemu_ptx_entry_t ptx_floats[] = {
    {"add", 2, PTX_TABLE_ALL(add)},
    {"sub", 2, PTX_TABLE_ALL(sub)},
    {"mul", 2, PTX_TABLE_ALL(mul)},
    {"fma", 3, PTX_TABLE_ALL(fma)},
    {"mad", 3, PTX_TABLE_LONG(fma)},
    {"neg", 1, PTX_TABLE_ALL(neg)},
    {"abs", 1, PTX_TABLE_ALL(abs)},
    {"min", 2, PTX_TABLE_ALL(min)},
    {"max", 2, PTX_TABLE_ALL(max)},
    {"div", 2, PTX_TABLE_LONG(div)},
    {"rcp", 1, PTX_TABLE_LONG(rcp)},
    {"sqrt", 1, PTX_TABLE_LONG(sqrt)},
    {"rsqrt", 1, PTX_TABLE_LONG(rsqrt)},
    {"copysign", 2, PTX_TABLE_LONG(copysign)},
    {"sin", 1, {[CUEMU_PTX_F32] = ptx_sin_f32}},
    {"cos", 1, {[CUEMU_PTX_F32] = ptx_cos_f32}},
    {"lg2", 1, {[CUEMU_PTX_F32] = ptx_lg2_f32}},
    {"ex2", 1, PTX_TABLE_SINGLE(ex2)},
    {"tanh", 1, PTX_TABLE_SINGLE(tanh)}
};

cuemu_ptx_status_t cuemu_ptx_decode_float(cuemu_ptx_kernel_t *k,
                                          const cuemu_ptx_statement_t *st,
                                          cuemu_ptx_insn_t *in, char *error)
{
    int type = cuemu_ptx_type(st->token[st->num_tokens - 1]);
    size_t i;

    if (type < 0) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    for (i = 0; i < sizeof(ptx_floats) / sizeof(ptx_floats[0]); ++i) {
        if (strcmp(st->token[0], ptx_floats[i].name) != 0) {
            continue;
        }

        if (cuemu_ptx_stranger(st, "rn rz rm rp approx full ftz sat NaN") !=
            NULL) {
            return CUEMU_PTX_NOT_KNOWN;
        }

        in->run = ptx_floats[i].run[type];
        in->how = (uint8_t)((cuemu_ptx_has(st, "ftz") ? PTX_FTZ : 0) |
                            (cuemu_ptx_has(st, "sat") ? PTX_SAT : 0) |
                            (cuemu_ptx_has(st, "NaN") ? PTX_NAN : 0));
        return (in->run == NULL) ? CUEMU_PTX_NOT_KNOWN :
               cuemu_ptx_operands(k, st, in, type, type,
                                  ptx_floats[i].num_sources, error);
    }

    return CUEMU_PTX_NOT_KNOWN;
}
