/* SPDX-License-Identifier: BSD-3-Clause */

/* Comparisons and selections: setp, set, selp, slct, testp. */
#include "ptx_code.h"

#include <math.h>
#include <string.h>

typedef enum {
    PTX_EQ, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE,
    PTX_EQU, PTX_NEU, PTX_LTU, PTX_LEU, PTX_GTU, PTX_GEU, /* or unordered */
    PTX_NUM, PTX_NOT_NUM, PTX_COMPARE_LAST
} ptx_compare_t;

static const char *const ptx_compare_names[PTX_COMPARE_LAST] = {
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan"
};

/* in->how2 */
enum {
    PTX_COMBINE_NONE, PTX_COMBINE_AND, PTX_COMBINE_OR, PTX_COMBINE_XOR
};

#define PTX_ALL_LANES(_expr) \
    do { \
        CUEMU_PTX_VECTORIZE \
        for (unsigned i = 0; i < CUEMU_PTX_LANES; ++i) { \
            result[i] = (uint8_t)(_expr); \
        } \
    } while (0)

/* Compare all 64 elements: elements without a thread cannot fault. An unordered
   comparison of floats is the opposite one, negated. */
#define PTX_COMPARE(_name, _type, _what) \
    static cuemu_ptx_mask_t ptx_##_name(const cuemu_ptx_group_t *g, \
                                        const cuemu_ptx_insn_t *in) \
    { \
        const _type *a = CUEMU_PTX_REG(g, const _type, in->r[2]); \
        const _type *b = CUEMU_PTX_REG(g, const _type, in->r[3]); \
        uint8_t result[CUEMU_PTX_LANES]; \
        switch (in->how) { \
        case PTX_EQ: \
        case PTX_NEU: \
            PTX_ALL_LANES(_what(a[i]) == _what(b[i])); \
            break; \
        case PTX_NE: \
        case PTX_EQU: \
            PTX_ALL_LANES((int)(_what(a[i]) < _what(b[i])) | \
                          (int)(_what(a[i]) > _what(b[i]))); \
            break; \
        case PTX_LT: \
        case PTX_GEU: \
            PTX_ALL_LANES(_what(a[i]) < _what(b[i])); \
            break; \
        case PTX_LE: \
        case PTX_GTU: \
            PTX_ALL_LANES(_what(a[i]) <= _what(b[i])); \
            break; \
        case PTX_GT: \
        case PTX_LEU: \
            PTX_ALL_LANES(_what(a[i]) > _what(b[i])); \
            break; \
        case PTX_GE: \
        case PTX_LTU: \
            PTX_ALL_LANES(_what(a[i]) >= _what(b[i])); \
            break; \
        default: /* a number: equal to itself */ \
            PTX_ALL_LANES((int)(_what(a[i]) == _what(a[i])) & \
                          (int)(_what(b[i]) == _what(b[i]))); \
            break; \
        } \
        return cuemu_ptx_gather(result) ^ \
               (((in->how >= PTX_EQU) && (in->how <= PTX_GEU)) || \
                (in->how == PTX_NOT_NUM) ? ~(cuemu_ptx_mask_t)0 : 0); \
    }

PTX_COMPARE(compare_u16, uint16_t, )
PTX_COMPARE(compare_s16, int16_t, )
PTX_COMPARE(compare_u32, uint32_t, )
PTX_COMPARE(compare_s32, int32_t, )
PTX_COMPARE(compare_u64, uint64_t, )
PTX_COMPARE(compare_s64, int64_t, )
PTX_COMPARE(compare_f32, float, )
PTX_COMPARE(compare_f64, double, )
PTX_COMPARE(compare_f16, uint16_t, cuemu_ptx_from_half)
PTX_COMPARE(compare_bf16, uint16_t, cuemu_ptx_from_bfloat)

static cuemu_ptx_mask_t ptx_compare(const cuemu_ptx_group_t *g,
                                    const cuemu_ptx_insn_t *in)
{
    static cuemu_ptx_mask_t (*const functions[CUEMU_PTX_TYPE_LAST])(
            const cuemu_ptx_group_t*, const cuemu_ptx_insn_t*) = {
        [CUEMU_PTX_B16] = ptx_compare_u16, [CUEMU_PTX_U16]  = ptx_compare_u16,
        [CUEMU_PTX_S16] = ptx_compare_s16, [CUEMU_PTX_B32]  = ptx_compare_u32,
        [CUEMU_PTX_U32] = ptx_compare_u32, [CUEMU_PTX_S32]  = ptx_compare_s32,
        [CUEMU_PTX_B64] = ptx_compare_u64, [CUEMU_PTX_U64]  = ptx_compare_u64,
        [CUEMU_PTX_S64] = ptx_compare_s64, [CUEMU_PTX_F32]  = ptx_compare_f32,
        [CUEMU_PTX_F64] = ptx_compare_f64, [CUEMU_PTX_F16]  = ptx_compare_f16,
        [CUEMU_PTX_BF16] = ptx_compare_bf16
    };

    return functions[in->type](g, in);
}

static cuemu_ptx_mask_t ptx_combine(cuemu_ptx_mask_t a, cuemu_ptx_mask_t b,
                                    unsigned how)
{
    return (how == PTX_COMBINE_AND) ? (a & b) :
           (how == PTX_COMBINE_OR)  ? (a | b) :
           (how == PTX_COMBINE_XOR) ? (a ^ b) : a;
}

/* r: p, q, a, b, c */
static void ptx_setp(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t result = ptx_compare(g, in), c = 0, *p;

    if (in->how2 != PTX_COMBINE_NONE) {
        c = *CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[4]);
        c = in->negated_source ? ~c : c;
    }

    if (in->r[1] != CUEMU_PTX_NONE) {
        p  = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[1]);
        *p = (*p & ~m) | (ptx_combine(~result, c, in->how2) & m);
    }
    p  = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[0]);
    *p = (*p & ~m) | (ptx_combine(result, c, in->how2) & m);
}

/* r: d, -, a, b, c; the result is all ones or 1.0 */
static void ptx_set(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                    cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t result = ptx_compare(g, in), c = 0;
    uint32_t *d  = CUEMU_PTX_REG(g, uint32_t, in->r[0]);
    uint16_t *h  = CUEMU_PTX_REG(g, uint16_t, in->r[0]);
    uint32_t yes = (in->type2 == CUEMU_PTX_F32) ? 0x3f800000 :
                   (in->type2 == CUEMU_PTX_F16) ? 0x3c00 :
                   (in->type2 == CUEMU_PTX_BF16) ? 0x3f80 : ~0u;

    if (in->how2 != PTX_COMBINE_NONE) {
        c = *CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[4]);
        c = in->negated_source ? ~c : c;
    }
    result = ptx_combine(result, c, in->how2);
    if (cuemu_ptx_type_size(in->type2) == 2) {
        CUEMU_PTX_FOR_EACH(m,
                           { h[i] = ((result >> i) & 1) ? (uint16_t)yes : 0; })
        return;
    }
    CUEMU_PTX_FOR_EACH(m, { d[i] = ((result >> i) & 1) ? yes : 0; })
}

static int ptx_holds(float x, float y, unsigned how)
{
    int is_unordered = isnan(x) || isnan(y);

    if ((how == PTX_NUM) || (how == PTX_NOT_NUM)) {
        return is_unordered == (how == PTX_NOT_NUM);
    } else if (is_unordered) {
        return how >= PTX_EQU;
    }

    switch (how % PTX_EQU) {
    case PTX_EQ:
        return x == y;
    case PTX_NE:
        return x != y;
    case PTX_LT:
        return x < y;
    case PTX_LE:
        return x <= y;
    case PTX_GT:
        return x > y;
    default:
        return x >= y;
    }
}

/* ptx_set() of two short numbers in one register */
static void ptx_set_two(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                        cuemu_ptx_mask_t m)
{
    float (*load)(uint16_t) = (in->type == CUEMU_PTX_F16X2) ?
                              cuemu_ptx_from_half : cuemu_ptx_from_bfloat;
    uint16_t yes      = (in->type2 == CUEMU_PTX_F16X2) ? 0x3c00 :
                        (in->type2 == CUEMU_PTX_BF16X2) ? 0x3f80 : 0xffff;
    uint16_t *d       = CUEMU_PTX_REG(g, uint16_t, in->r[0]);
    const uint16_t *a = CUEMU_PTX_REG(g, const uint16_t, in->r[2]);
    const uint16_t *b = CUEMU_PTX_REG(g, const uint16_t, in->r[3]);
    unsigned j;

    CUEMU_PTX_FOR_EACH(m, {
        for (j = 2 * i; j < 2 * i + 2; ++j) {
            d[j] = ptx_holds(load(a[j]), load(b[j]), in->how) ? yes : 0;
        }
    })
}

#define PTX_SELECT(_bits) \
    static void ptx_selp_##_bits(cuemu_ptx_group_t *g, \
                                 const cuemu_ptx_insn_t *in, \
                                 cuemu_ptx_mask_t m) \
    { \
        uint##_bits##_t *d = CUEMU_PTX_REG(g, uint##_bits##_t, in->r[0]); \
        const uint##_bits##_t *a = CUEMU_PTX_REG(g, const uint##_bits##_t, \
                                                 in->r[1]); \
        const uint##_bits##_t *b = CUEMU_PTX_REG(g, const uint##_bits##_t, \
                                                 in->r[2]); \
        uint8_t choice[CUEMU_PTX_LANES]; \
        cuemu_ptx_spread(*CUEMU_PTX_REG(g, uint64_t, in->r[3]) ^ \
                         (in->negated_source ? ~0ull : 0), choice); \
        CUEMU_PTX_FOR(g, m, { d[i] = choice[i] ? a[i] : b[i]; }); \
    }

PTX_SELECT(16)
PTX_SELECT(32)
PTX_SELECT(64)

/* slct.type.s32 or .f32: selects by c >= 0 */
static void ptx_slct(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    const int32_t *s = CUEMU_PTX_REG(g, const int32_t, in->r[3]);
    const float *f   = CUEMU_PTX_REG(g, const float, in->r[3]);
    unsigned width   = in->width;
    uint32_t from;

    CUEMU_PTX_FOR_EACH(m, {
        from = ((in->how != 0) ? (f[i] >= 0) : (s[i] >= 0)) ? in->r[1] :
                                                               in->r[2];
        memcpy(g->reg + in->r[0] + i * width, g->reg + from + i * width, width);
    })
}

static const char *const ptx_tests[] = {"finite", "infinite", "number",
                                        "notanumber", "normal", "subnormal"};

static int ptx_test(double x, double smallest, unsigned how)
{
    switch (how) {
    case 0:
        return isfinite(x);
    case 1:
        return isinf(x);
    case 2:
        return !isnan(x);
    case 3:
        return isnan(x);
    case 4:
        return isfinite(x) && (fabs(x) >= smallest);
    default:
        return (x != 0) && (fabs(x) < smallest);
    }
}

static void ptx_testp(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                      cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t *p = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[0]);
    const float *f      = CUEMU_PTX_REG(g, const float, in->r[1]);
    const double *d     = CUEMU_PTX_REG(g, const double, in->r[1]);
    int result;

    CUEMU_PTX_FOR_EACH(m, {
        result = (in->type == CUEMU_PTX_F32) ?
                 ptx_test((double)f[i], 1.17549435082228750797e-38, in->how) :
                 ptx_test(d[i], 2.2250738585072014e-308, in->how);
        *p     = (*p & ~(1ull << i)) | ((cuemu_ptx_mask_t)result << i);
    })
}

/* ------------------------------------------------------------- decoding */

static int ptx_find_compare(const cuemu_ptx_statement_t *st, int is_float)
{
    static const char *const same[][2] = {
        {"lo", "lt"}, {"ls", "le"}, {"hi", "gt"}, {"hs", "ge"}
    };
    const char *word = (st->num_tokens > 1) ? st->token[1] : "";
    int i;

    for (i = 0; i < 4; ++i) {
        if (strcmp(word, same[i][0]) == 0) {
            word = same[i][1];
        }
    }

    for (i = 0; i < (is_float ? PTX_COMPARE_LAST : PTX_EQU); ++i) {
        if (strcmp(word, ptx_compare_names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static cuemu_ptx_status_t ptx_decode_setp(cuemu_ptx_kernel_t *k,
                                          const cuemu_ptx_statement_t *st,
                                          cuemu_ptx_insn_t *in, char *error)
{
    int is_set = (strcmp(st->token[0], "set") == 0);
    int type   = cuemu_ptx_type(st->token[st->num_tokens - 1]), compare;
    int to     = CUEMU_PTX_PRED;
    int is_two = is_set && ((type == CUEMU_PTX_F16X2) ||
                            (type == CUEMU_PTX_BF16X2));

    if ((type < CUEMU_PTX_B16) || ((type > CUEMU_PTX_F64) && !is_two)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    if (is_set) {
        to = (st->num_tokens < 4) ? -1 :
             cuemu_ptx_type(st->token[st->num_tokens - 2]);
        if ((to < 0) || ((cuemu_ptx_type_size(to) != 4) &&
                         (cuemu_ptx_type_size(to) != 2))) {
            return CUEMU_PTX_NOT_KNOWN;
        }
    }

    compare = ptx_find_compare(st, type >= CUEMU_PTX_F16);
    if ((compare < 0) ||
        (cuemu_ptx_stranger(st, "eq ne lt le gt ge lo ls hi hs equ neu ltu leu "
                                "gtu geu num nan and or xor ftz") != NULL)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->run   = is_two ? ptx_set_two : is_set ? ptx_set : ptx_setp;
    in->type  = (uint8_t)type;
    in->type2 = (uint8_t)to;
    in->how   = (uint8_t)compare;
    in->how2  = cuemu_ptx_has(st, "and") ? PTX_COMBINE_AND :
                cuemu_ptx_has(st, "or")  ? PTX_COMBINE_OR :
                cuemu_ptx_has(st, "xor") ? PTX_COMBINE_XOR : PTX_COMBINE_NONE;
    if ((is_two && ((in->how2 != PTX_COMBINE_NONE) ||
                    (cuemu_ptx_type_size(to) != 4)))) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    if (st->num_ops != ((in->how2 != PTX_COMBINE_NONE) ? 4u : 3u)) {
        return CUEMU_PTX_SYNTAX;
    }

    in->r[0] = cuemu_ptx_target(k, &st->op[0], to);
    in->r[1] = (st->op[0].kind == CUEMU_PTX_OPERAND_REG) ? st->op[0].second :
                                                           CUEMU_PTX_NONE;
    in->r[2] = cuemu_ptx_source(k, &st->op[1], type);
    in->r[3] = cuemu_ptx_source(k, &st->op[2], type);
    if (in->how2 != PTX_COMBINE_NONE) {
        in->r[4] = cuemu_ptx_source(k, &st->op[3], CUEMU_PTX_PRED);
        in->negated_source = st->op[3].negated;
    }

    return ((in->r[0] == CUEMU_PTX_NONE) || (in->r[2] == CUEMU_PTX_NONE) ||
            (in->r[3] == CUEMU_PTX_NONE) || (in->r[4] == CUEMU_PTX_NONE)) ?
           CUEMU_PTX_NOT_KNOWN : CUEMU_PTX_OK;
}

static cuemu_ptx_status_t ptx_decode_select(cuemu_ptx_kernel_t *k,
                                            const cuemu_ptx_statement_t *st,
                                            cuemu_ptx_insn_t *in)
{
    int is_selp = (strcmp(st->token[0], "selp") == 0);
    int type    = (st->num_tokens > 1) ? cuemu_ptx_type(st->token[1]) : -1;
    int by      = CUEMU_PTX_PRED;

    if ((type < CUEMU_PTX_B16) || (type > CUEMU_PTX_F64)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    if (st->num_ops != 4) {
        return CUEMU_PTX_SYNTAX;
    }

    if (!is_selp) {
        by = cuemu_ptx_type(st->token[st->num_tokens - 1]);
        if ((by != CUEMU_PTX_S32) && (by != CUEMU_PTX_F32)) {
            return CUEMU_PTX_NOT_KNOWN;
        }
    }

    in->width          = (uint8_t)cuemu_ptx_type_width(type);
    in->how            = (by == CUEMU_PTX_F32);
    in->negated_source = st->op[3].negated;
    in->run  = !is_selp ? ptx_slct : (in->width == 2) ? ptx_selp_16 :
               (in->width == 4) ? ptx_selp_32 : ptx_selp_64;
    in->r[0] = cuemu_ptx_target(k, &st->op[0], type);
    in->r[1] = cuemu_ptx_source(k, &st->op[1], type);
    in->r[2] = cuemu_ptx_source(k, &st->op[2], type);
    in->r[3] = cuemu_ptx_source(k, &st->op[3], by);
    return cuemu_ptx_check(in, 4, NULL);
}

cuemu_ptx_status_t cuemu_ptx_decode_compare(cuemu_ptx_kernel_t *k,
                                            const cuemu_ptx_statement_t *st,
                                            cuemu_ptx_insn_t *in, char *error)
{
    const char *name = st->token[0];
    int type         = cuemu_ptx_type(st->token[st->num_tokens - 1]);
    unsigned i;

    if ((strcmp(name, "setp") == 0) || (strcmp(name, "set") == 0)) {
        return ptx_decode_setp(k, st, in, error);
    } else if ((strcmp(name, "selp") == 0) || (strcmp(name, "slct") == 0)) {
        return ptx_decode_select(k, st, in);
    } else if ((strcmp(name, "testp") != 0) ||
               ((type != CUEMU_PTX_F32) && (type != CUEMU_PTX_F64))) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    for (i = 0; i < sizeof(ptx_tests) / sizeof(ptx_tests[0]); ++i) {
        if (cuemu_ptx_has(st, ptx_tests[i])) {
            in->run  = ptx_testp;
            in->how  = (uint8_t)i;
            in->type = (uint8_t)type;
            return cuemu_ptx_operands(k, st, in, CUEMU_PTX_PRED, type, 1,
                                      error);
        }
    }
    return CUEMU_PTX_NOT_KNOWN;
}
