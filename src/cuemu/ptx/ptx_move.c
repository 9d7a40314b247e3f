/* SPDX-License-Identifier: BSD-3-Clause */

/* Values from register to register: mov, cvt, cvta, isspacep. */
#include "ptx_code.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------- mov */

#define PTX_MOVE(_bits) \
    static void ptx_mov_##_bits(cuemu_ptx_group_t *g, \
                                const cuemu_ptx_insn_t *in, \
                                cuemu_ptx_mask_t m) \
    { \
        uint##_bits##_t *d = CUEMU_PTX_REG(g, uint##_bits##_t, in->r[0]); \
        const uint##_bits##_t *a = CUEMU_PTX_REG(g, const uint##_bits##_t, \
                                                 in->r[1]); \
        CUEMU_PTX_FOR(g, m, { d[i] = a[i]; }); \
    }

PTX_MOVE(16)
PTX_MOVE(32)
PTX_MOVE(64)

static void ptx_mov_pred(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                         cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t *d = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[0]);
    cuemu_ptx_mask_t a  = *CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[1]);

    a  = in->negated_source ? ~a : a;
    *d = (*d & ~m) | (a & m);
}

static void ptx_mov_clock(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                          cuemu_ptx_mask_t m)
{
    const cuemu_ptx_block_t *block = g->block;
    uint64_t ns = (block->launch->clock == NULL) ? 0 :
                  block->launch->clock(block->launch->arg);

    /* The GPU's clock advances while the emulated clock stands still */
    ns += block->count->instructions + block->slept;
    CUEMU_PTX_FOR_EACH(m, {
        memcpy(g->reg + in->r[0] + i * in->width, &ns, in->width);
    })
}

/* mov.b64 d, {a, b} and mov.b64 {a, b}, d: r[0] is the wide register */
static void ptx_pack(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    unsigned part = in->width / in->count, j;
    char *whole, *piece;

    CUEMU_PTX_FOR_EACH(m, {
        for (j = 0; j < in->count; ++j) {
            if (in->r[1 + j] == CUEMU_PTX_NONE) {
                continue;
            }
            whole = g->reg + in->r[0] + i * in->width + j * part;
            piece = g->reg + in->r[1 + j] + i * part;
            memcpy(in->how ? whole : piece, in->how ? piece : whole, part);
        }
    })
}

static cuemu_ptx_status_t ptx_decode_mov(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in, char *error)
{
    int type = cuemu_ptx_type(st->token[st->num_tokens - 1]);
    const cuemu_ptx_operand_t *vector, *whole;
    unsigned i;

    if ((type < 0) || (type == CUEMU_PTX_B128) || (st->num_tokens != 2) ||
        (st->num_ops != 2)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->width = (uint8_t)cuemu_ptx_type_width(type);
    if (st->op[1].kind == CUEMU_PTX_OPERAND_CLOCK) {
        in->run  = ptx_mov_clock;
        in->kind = CUEMU_PTX_CLOCK;
        in->r[0] = cuemu_ptx_target(k, &st->op[0], type);
        return ((in->r[0] != CUEMU_PTX_NONE) && (in->width >= 4)) ?
               CUEMU_PTX_OK : CUEMU_PTX_NOT_KNOWN;
    }

    if ((st->op[0].kind == CUEMU_PTX_OPERAND_VECTOR) ||
        (st->op[1].kind == CUEMU_PTX_OPERAND_VECTOR)) {
        in->how   = (st->op[1].kind == CUEMU_PTX_OPERAND_VECTOR);
        vector    = &st->op[in->how];
        whole     = &st->op[!in->how];
        in->run   = ptx_pack;
        in->count = vector->count;
        in->r[0]  = cuemu_ptx_source(k, whole, type);
        for (i = 0; i < vector->count; ++i) {
            in->r[1 + i] = cuemu_ptx_element(
                    k, vector, i, in->width / vector->count, type);
            if ((vector->kinds[i] != CUEMU_PTX_OPERAND_NONE) &&
                ((in->r[1 + i] == CUEMU_PTX_NONE) ||
                 (!in->how && (vector->regs[i] == CUEMU_PTX_NONE)))) {
                return CUEMU_PTX_NOT_KNOWN;
            }
        }
        return cuemu_ptx_check(in, 1, NULL);
    }

    if (st->op[1].kind == CUEMU_PTX_OPERAND_LABEL) {
        snprintf(error, CUEMU_PTX_ERROR_SIZE, "address of a kernel, or of "
                 "an unknown function");
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->negated_source = st->op[1].negated;
    in->run  = (type == CUEMU_PTX_PRED) ? ptx_mov_pred :
               (in->width == 2) ? ptx_mov_16 :
               (in->width == 4) ? ptx_mov_32 : ptx_mov_64;
    in->r[0] = cuemu_ptx_target(k, &st->op[0], type);
    in->r[1] = cuemu_ptx_source(k, &st->op[1], type);
    return cuemu_ptx_check(in, 2, NULL);
}

/* ------------------------------------------------------------------- cvt */

enum {
    PTX_ROUND_NONE = 0, PTX_ROUND_NEAREST, PTX_ROUND_ZERO, PTX_ROUND_DOWN,
    PTX_ROUND_UP
};

#define PTX_SAT 1
#define PTX_FTZ 2

#define PTX_EXTEND(_name, _to, _from) \
    static void ptx_extend_##_name(cuemu_ptx_group_t *g, \
                                   const cuemu_ptx_insn_t *in, \
                                   cuemu_ptx_mask_t m) \
    { \
        _to *d         = CUEMU_PTX_REG(g, _to, in->r[0]); \
        const _from *a = CUEMU_PTX_REG(g, const _from, in->r[1]); \
        CUEMU_PTX_FOR(g, m, { d[i] = (_to)a[i]; }); \
    }

PTX_EXTEND(u64_u32, uint64_t, uint32_t)
PTX_EXTEND(s64_s32, int64_t, int32_t)
PTX_EXTEND(u32_u64, uint32_t, uint64_t)
PTX_EXTEND(u32_u16, uint32_t, uint16_t)
PTX_EXTEND(s32_s16, int32_t, int16_t)
PTX_EXTEND(u16_u32, uint16_t, uint32_t)
PTX_EXTEND(f32_s32, float, int32_t)
PTX_EXTEND(f64_f32, double, float)
PTX_EXTEND(f32_f64, float, double)

static int ptx_is_float(int type)
{
    return (type >= CUEMU_PTX_F16) && (type <= CUEMU_PTX_F64);
}

static double ptx_round(double x, unsigned how)
{
    switch (how) {
    case PTX_ROUND_NEAREST:
        return nearbyint(x);
    case PTX_ROUND_ZERO:
        return trunc(x);
    case PTX_ROUND_DOWN:
        return floor(x);
    case PTX_ROUND_UP:
        return ceil(x);
    default:
        return x;
    }
}

/* Convert with saturation. NaN gives 0; the highest bit from .f64 and in 64
   bits */
static uint64_t ptx_to_integer(double x, int from, int type)
{
    unsigned bits = cuemu_ptx_type_size(type) * 8;
    double top;

    if (isnan(x)) {
        return ((bits == 64) || (from == CUEMU_PTX_F64)) ?
               (1ull << (bits - 1)) : 0;
    }

    if (cuemu_ptx_is_signed(type)) {
        top = ldexp(1, (int)bits - 1);
        if (x >= top) {
            return (1ull << (bits - 1)) - 1;
        }
        return (x < -top) ? (0 - (1ull << (bits - 1))) :
                            (uint64_t)(int64_t)x;
    }

    top = ldexp(1, (int)bits);
    if (x >= top) {
        return (bits == 64) ? ~0ull : ((1ull << bits) - 1);
    }
    return (x < 0) ? 0 : (uint64_t)x;
}

static uint64_t ptx_load_integer(const char *p, int type)
{
    uint64_t x    = 0;
    unsigned size = cuemu_ptx_type_size(type), bits = size * 8;

    memcpy(&x, p, size);
    if (cuemu_ptx_is_signed(type) && (bits < 64) && ((x >> (bits - 1)) & 1)) {
        x |= ~0ull << bits;
    }
    return x;
}

static uint64_t ptx_saturate_integer(uint64_t x, int from, int to)
{
    unsigned bits = cuemu_ptx_type_size(to) * 8;
    int negative  = cuemu_ptx_is_signed(from) && ((int64_t)x < 0);
    uint64_t top  = cuemu_ptx_is_signed(to) ? ((1ull << (bits - 1)) - 1) :
                    (bits == 64) ? ~0ull : ((1ull << bits) - 1);

    if (negative) {
        if (!cuemu_ptx_is_signed(to)) {
            return 0;
        }
        return ((int64_t)x < -(int64_t)top - 1) ? (~top) : x;
    }
    return (x > top) ? top : x;
}

static double ptx_load_float(const char *p, int type)
{
    uint16_t bits;
    double value;
    float single;

    switch (type) {
    case CUEMU_PTX_F64:
        memcpy(&value, p, sizeof(value));
        return value;
    case CUEMU_PTX_F32:
        memcpy(&single, p, sizeof(single));
        return (double)single;
    case CUEMU_PTX_F16:
        memcpy(&bits, p, sizeof(bits));
        return (double)cuemu_ptx_from_half(bits);
    default:
        memcpy(&bits, p, sizeof(bits));
        return (double)cuemu_ptx_from_bfloat(bits);
    }
}

static uint64_t ptx_store_float(double value, int type)
{
    uint64_t bits = 0;
    float single  = (float)value;

    switch (type) {
    case CUEMU_PTX_F64:
        memcpy(&bits, &value, sizeof(value));
        break;
    case CUEMU_PTX_F32:
        memcpy(&bits, &single, sizeof(single));
        break;
    case CUEMU_PTX_F16:
        bits = cuemu_ptx_to_half(value);
        break;
    default:
        bits = cuemu_ptx_to_bfloat(value);
        break;
    }
    return bits;
}

/* Round a 64-bit integer to float once: it has more digits than a double */
static uint64_t ptx_integer_to_float(uint64_t x, int from, int to)
{
    int is_signed = cuemu_ptx_is_signed(from);
    uint64_t bits = 0;
    double value;
    float single;

    if (to == CUEMU_PTX_F32) {
        single = is_signed ? (float)(int64_t)x : (float)x;
        memcpy(&bits, &single, sizeof(single));
        return bits;
    }
    value = is_signed ? (double)(int64_t)x : (double)x;
    return ptx_store_float(value, to);
}

/* Convert between any two types, one thread after the other. */
static void ptx_cvt(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                    cuemu_ptx_mask_t m)
{
    int to = in->type, from = in->type2;
    unsigned size = cuemu_ptx_type_size(to);
    uint64_t result;
    double value;

    CUEMU_PTX_FOR_EACH(m, {
        const char *p = g->reg + in->r[1] + i * in->width2;
        if (!ptx_is_float(from)) {
            result = ptx_load_integer(p, from);
            if (ptx_is_float(to)) {
                result = ptx_integer_to_float(result, from, to);
            } else if (in->how2 & PTX_SAT) {
                result = ptx_saturate_integer(result, from, to);
            }
        } else {
            value = ptx_load_float(p, from);
            if ((in->how2 & PTX_FTZ) && (from == CUEMU_PTX_F32) &&
                (fabs(value) < 1.17549435082228750797e-38)) {
                value = copysign(0, value);
            }
            value = ptx_round(value, in->how);
            if (ptx_is_float(to)) {
                if (in->how2 & PTX_SAT) {
                    value = !(value > 0) ? 0 : (value > 1) ? 1 : value;
                }
                result = ptx_store_float(value, to);
            } else {
                result = ptx_to_integer(value, from, to);
            }
        }

        /* A register may be wider than the type: extend by sign or zeros */
        if ((size < in->width) && !ptx_is_float(to)) {
            result &= (1ull << (size * 8)) - 1;
            if (cuemu_ptx_is_signed(to) && ((result >> (size * 8 - 1)) & 1)) {
                result |= ~0ull << (size * 8);
            }
        }
        memcpy(g->reg + in->r[0] + i * in->width, &result, in->width);
    })
}

/* cvt.f16x2.f32 d, a, b: a is the upper half */
static void ptx_cvt_two(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                        cuemu_ptx_mask_t m)
{
    uint32_t *d    = CUEMU_PTX_REG(g, uint32_t, in->r[0]);
    const float *a = CUEMU_PTX_REG(g, const float, in->r[1]);
    const float *b = CUEMU_PTX_REG(g, const float, in->r[2]);

    CUEMU_PTX_FOR_EACH(m, {
        d[i] = (in->type == CUEMU_PTX_F16X2) ?
               (((uint32_t)cuemu_ptx_to_half((double)a[i]) << 16) |
                cuemu_ptx_to_half((double)b[i])) :
               (((uint32_t)cuemu_ptx_to_bfloat((double)a[i]) << 16) |
                cuemu_ptx_to_bfloat((double)b[i]));
    })
}

static cuemu_ptx_run_t ptx_fast_cvt(const cuemu_ptx_insn_t *in)
{
    static const struct {
        uint8_t         to, from;
        cuemu_ptx_run_t run;
    } fast[] = {
        {CUEMU_PTX_U64, CUEMU_PTX_U32, ptx_extend_u64_u32},
        {CUEMU_PTX_S64, CUEMU_PTX_U32, ptx_extend_u64_u32},
        {CUEMU_PTX_S64, CUEMU_PTX_S32, ptx_extend_s64_s32},
        {CUEMU_PTX_U64, CUEMU_PTX_S32, ptx_extend_s64_s32},
        {CUEMU_PTX_U32, CUEMU_PTX_U64, ptx_extend_u32_u64},
        {CUEMU_PTX_S32, CUEMU_PTX_S64, ptx_extend_u32_u64},
        {CUEMU_PTX_U32, CUEMU_PTX_S64, ptx_extend_u32_u64},
        {CUEMU_PTX_S32, CUEMU_PTX_U64, ptx_extend_u32_u64},
        {CUEMU_PTX_U32, CUEMU_PTX_U16, ptx_extend_u32_u16},
        {CUEMU_PTX_S32, CUEMU_PTX_U16, ptx_extend_u32_u16},
        {CUEMU_PTX_S32, CUEMU_PTX_S16, ptx_extend_s32_s16},
        {CUEMU_PTX_U32, CUEMU_PTX_S16, ptx_extend_s32_s16},
        {CUEMU_PTX_U16, CUEMU_PTX_U32, ptx_extend_u16_u32},
        {CUEMU_PTX_S16, CUEMU_PTX_S32, ptx_extend_u16_u32},
        {CUEMU_PTX_F32, CUEMU_PTX_S32, ptx_extend_f32_s32},
        {CUEMU_PTX_F64, CUEMU_PTX_F32, ptx_extend_f64_f32},
        {CUEMU_PTX_F32, CUEMU_PTX_F64, ptx_extend_f32_f64}
    };
    size_t i;

    for (i = 0; (in->how2 == 0) && (i < sizeof(fast) / sizeof(fast[0])); ++i) {
        if ((fast[i].to == in->type) && (fast[i].from == in->type2) &&
            (in->width == cuemu_ptx_type_size(in->type)) &&
            (in->width2 == cuemu_ptx_type_size(in->type2))) {
            return fast[i].run;
        }
    }
    return ptx_cvt;
}

/* How a value is rounded to an integer */
static int ptx_rounding(const cuemu_ptx_statement_t *st)
{
    return cuemu_ptx_has(st, "rni") ? PTX_ROUND_NEAREST :
           cuemu_ptx_has(st, "rzi") ? PTX_ROUND_ZERO :
           cuemu_ptx_has(st, "rmi") ? PTX_ROUND_DOWN :
           cuemu_ptx_has(st, "rpi") ? PTX_ROUND_UP : PTX_ROUND_NONE;
}

static cuemu_ptx_status_t ptx_decode_cvt(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in, char *error)
{
    const cuemu_ptx_operand_t *op = st->op;
    int to, from;

    if ((st->num_tokens < 3) || (st->num_ops < 2)) {
        return CUEMU_PTX_SYNTAX;
    }

    to   = cuemu_ptx_type(st->token[st->num_tokens - 2]);
    from = cuemu_ptx_type(st->token[st->num_tokens - 1]);
    if ((to <= 0) || (from <= 0) || (to == CUEMU_PTX_B128) ||
        (from > CUEMU_PTX_F64) ||
        (cuemu_ptx_stranger(st, "rn rz rm rp rni rzi rmi rpi sat ftz") !=
         NULL)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->type = (uint8_t)to;
    in->type2 = (uint8_t)from;
    if ((to == CUEMU_PTX_F16X2) || (to == CUEMU_PTX_BF16X2)) {
        in->run = ptx_cvt_two;
        return (from == CUEMU_PTX_F32) ?
               cuemu_ptx_operands(k, st, in, to, from, 2, error) :
               CUEMU_PTX_NOT_KNOWN;
    }

    in->how  = (uint8_t)ptx_rounding(st);
    in->how2 = (uint8_t)((cuemu_ptx_has(st, "sat") ? PTX_SAT : 0) |
                         (cuemu_ptx_has(st, "ftz") ? PTX_FTZ : 0));

    /* A register may be wider than its type */
    in->r[0]  = (op[0].kind == CUEMU_PTX_OPERAND_REG) ? op[0].reg :
                                                        CUEMU_PTX_NONE;
    in->width = (uint8_t)cuemu_ptx_type_width(op[0].type);
    if (op[1].kind == CUEMU_PTX_OPERAND_REG) {
        in->r[1]   = op[1].reg;
        in->width2 = (uint8_t)cuemu_ptx_type_width(op[1].type);
    } else {
        in->r[1]   = cuemu_ptx_source(k, &op[1], from);
        in->width2 = (uint8_t)cuemu_ptx_type_width(from);
    }
    if ((in->r[0] == CUEMU_PTX_NONE) || (in->r[1] == CUEMU_PTX_NONE) ||
        (in->width < cuemu_ptx_type_size(to)) ||
        (in->width2 < cuemu_ptx_type_size(from))) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->run = (in->how == PTX_ROUND_NONE) ? ptx_fast_cvt(in) : ptx_cvt;
    return CUEMU_PTX_OK;
}

/* ------------------------------------------------------------- addresses */

/* Generic addresses of shared and local memory lie in a window each */
static uint64_t ptx_window(const cuemu_ptx_statement_t *st)
{
    return (cuemu_ptx_has(st, "shared") || cuemu_ptx_has(st, "shared::cta") ||
            cuemu_ptx_has(st, "shared::cluster")) ? CUEMU_PTX_WINDOW_SHARED :
           cuemu_ptx_has(st, "local")  ? CUEMU_PTX_WINDOW_LOCAL :
           cuemu_ptx_has(st, "param")  ? CUEMU_PTX_WINDOW_PARAM : 0;
}

static void ptx_cvta(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    uint64_t *d       = CUEMU_PTX_REG(g, uint64_t, in->r[0]);
    const uint64_t *a = CUEMU_PTX_REG(g, const uint64_t, in->r[1]);
    uint64_t add      = in->imm;

    CUEMU_PTX_FOR(g, m, { d[i] = a[i] + add; });
}

static void ptx_isspacep(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                         cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t *p = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[0]);
    const uint64_t *a   = CUEMU_PTX_REG(g, const uint64_t, in->r[1]);

    CUEMU_PTX_FOR_EACH(m, {
        *p = (*p & ~(1ull << i)) |
             ((uint64_t)((a[i] & CUEMU_PTX_WINDOW_MASK) == in->imm) << i);
    })
}

cuemu_ptx_status_t cuemu_ptx_decode_move(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in, char *error)
{
    const char *name = st->token[0];

    if (strcmp(name, "mov") == 0) {
        return ptx_decode_mov(k, st, in, error);
    } else if (strcmp(name, "cvt") == 0) {
        return ptx_decode_cvt(k, st, in, error);
    } else if (strcmp(name, "cvta") == 0) {
        if ((cuemu_ptx_stranger(st, "to global shared local param const") !=
             NULL) || !cuemu_ptx_has(st, "u64")) {
            return CUEMU_PTX_NOT_KNOWN;
        }
        in->run = ptx_cvta;
        in->imm = cuemu_ptx_has(st, "to") ? (0 - ptx_window(st)) :
                                            ptx_window(st);
        return cuemu_ptx_operands(k, st, in, CUEMU_PTX_U64, CUEMU_PTX_U64, 1,
                                  error);
    } else if (strcmp(name, "isspacep") == 0) {
        if (cuemu_ptx_stranger(st, "global shared shared::cta shared::cluster "
                               "local param") != NULL) {
            return CUEMU_PTX_NOT_KNOWN;
        }
        in->run = ptx_isspacep;
        in->imm = ptx_window(st);
        return cuemu_ptx_operands(k, st, in, CUEMU_PTX_PRED, CUEMU_PTX_U64, 1,
                                  error);
    }

    return CUEMU_PTX_NOT_KNOWN;
}
