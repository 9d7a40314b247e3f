/* SPDX-License-Identifier: BSD-3-Clause */

/* From statements to instructions: types, registers, operands, control flow. */
#include "ptx_code.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned    size, width;
} ptx_types[CUEMU_PTX_TYPE_LAST] = {
    [CUEMU_PTX_PRED]   = {"pred", 0, 0},
    [CUEMU_PTX_B8]     = {"b8", 1, 2},
    [CUEMU_PTX_U8]     = {"u8", 1, 2},
    [CUEMU_PTX_S8]     = {"s8", 1, 2},
    [CUEMU_PTX_B16]    = {"b16", 2, 2},
    [CUEMU_PTX_U16]    = {"u16", 2, 2},
    [CUEMU_PTX_S16]    = {"s16", 2, 2},
    [CUEMU_PTX_B32]    = {"b32", 4, 4},
    [CUEMU_PTX_U32]    = {"u32", 4, 4},
    [CUEMU_PTX_S32]    = {"s32", 4, 4},
    [CUEMU_PTX_B64]    = {"b64", 8, 8},
    [CUEMU_PTX_U64]    = {"u64", 8, 8},
    [CUEMU_PTX_S64]    = {"s64", 8, 8},
    [CUEMU_PTX_F16]    = {"f16", 2, 2},
    [CUEMU_PTX_BF16]   = {"bf16", 2, 2},
    [CUEMU_PTX_F32]    = {"f32", 4, 4},
    [CUEMU_PTX_F64]    = {"f64", 8, 8},
    [CUEMU_PTX_F16X2]  = {"f16x2", 4, 4},
    [CUEMU_PTX_BF16X2] = {"bf16x2", 4, 4},
    [CUEMU_PTX_B128]   = {"b128", 16, 16},
    [CUEMU_PTX_U16X2]  = {"u16x2", 4, 4},
    [CUEMU_PTX_S16X2]  = {"s16x2", 4, 4}
};

int cuemu_ptx_type(const char *word)
{
    int i;

    for (i = 0; i < CUEMU_PTX_TYPE_LAST; ++i) {
        if (strcmp(word, ptx_types[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

unsigned cuemu_ptx_type_size(int type)
{
    return ptx_types[type].size;
}

unsigned cuemu_ptx_type_width(int type)
{
    return ptx_types[type].width;
}

int cuemu_ptx_grow(void *array, unsigned count, unsigned *max, size_t size)
{
    void **pointer = array, *bigger;

    if (count < *max) {
        return 0;
    }

    bigger = realloc(*pointer, (*max * 2 + 16) * size);
    if (bigger == NULL) {
        return -1;
    }
    *pointer = bigger;
    *max     = *max * 2 + 16;
    return 0;
}

uint32_t cuemu_ptx_new_register(cuemu_ptx_kernel_t *k, unsigned width)
{
    uint32_t reg  = k->registers;
    unsigned size = (width == 0) ? CUEMU_PTX_LANES / 8 :
                                   CUEMU_PTX_LANES * width;

    k->registers += (size + 63) & ~63u;
    return reg;
}

uint32_t cuemu_ptx_constant(cuemu_ptx_kernel_t *k, unsigned width,
                            cuemu_ptx_fill_kind_t kind, uint64_t value,
                            uint64_t offset)
{
    cuemu_ptx_fill_t *fill;
    uint32_t i;

    for (i = 0; i < k->num_fills; ++i) {
        fill = &k->fills[i];
        if ((fill->kind == kind) && (fill->width == width) &&
            (fill->value == value) && (fill->offset == offset)) {
            return fill->reg;
        }
    }

    if (cuemu_ptx_grow(&k->fills, k->num_fills, &k->max_fills,
                 sizeof(*k->fills)) != 0) {
        return CUEMU_PTX_NONE;
    }

    fill         = &k->fills[k->num_fills++];
    fill->reg    = cuemu_ptx_new_register(k, width);
    fill->kind   = (uint8_t)kind;
    fill->width  = (uint8_t)width;
    fill->value  = value;
    fill->offset = offset;
    return fill->reg;
}

int cuemu_ptx_has(const cuemu_ptx_statement_t *st, const char *word)
{
    unsigned i;

    for (i = 1; i < st->num_tokens; ++i) {
        if (strcmp(st->token[i], word) == 0) {
            return 1;
        }
    }
    return 0;
}

const char *cuemu_ptx_stranger(const cuemu_ptx_statement_t *st,
                               const char *known)
{
    const char *p;
    size_t length;
    unsigned i;

    for (i = 1; i < st->num_tokens; ++i) {
        if (cuemu_ptx_type(st->token[i]) >= 0) {
            continue;
        }
        length = strlen(st->token[i]);
        for (p = strstr(known, st->token[i]); p != NULL;
             p = strstr(p + 1, st->token[i])) {
            if (((p == known) || (p[-1] == ' ')) &&
                ((p[length] == ' ') || (p[length] == '\0'))) {
                break;
            }
        }
        if (p == NULL) {
            return st->token[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------ operands */

static uint64_t ptx_literal(const cuemu_ptx_operand_t *op, int type)
{
    uint64_t bits = op->value;
    double real;
    float single;

    if ((op->kind == CUEMU_PTX_OPERAND_F64) && (type == CUEMU_PTX_F32)) {
        memcpy(&real, &bits, sizeof(real));
        single = (float)real;
        bits   = 0;
        memcpy(&bits, &single, sizeof(single));
    } else if ((op->kind == CUEMU_PTX_OPERAND_IMM) && (type == CUEMU_PTX_F32)) {
        single = (float)(int64_t)op->value;
        bits   = 0;
        memcpy(&bits, &single, sizeof(single));
    } else if ((op->kind == CUEMU_PTX_OPERAND_IMM) && (type == CUEMU_PTX_F64)) {
        real = (double)(int64_t)op->value;
        memcpy(&bits, &real, sizeof(bits));
    }
    return bits;
}

uint32_t cuemu_ptx_source(cuemu_ptx_kernel_t *k, const cuemu_ptx_operand_t *op,
                          int type)
{
    unsigned width = cuemu_ptx_type_width(type);

    switch (op->kind) {
    case CUEMU_PTX_OPERAND_REG:
        return (cuemu_ptx_type_width(op->type) == width) ? op->reg :
                                                           CUEMU_PTX_NONE;
    case CUEMU_PTX_OPERAND_IMM:
    case CUEMU_PTX_OPERAND_F32:
    case CUEMU_PTX_OPERAND_F64:
        return cuemu_ptx_constant(k, width, CUEMU_PTX_FILL_IMM,
                                  ptx_literal(op, type), 0);
    case CUEMU_PTX_OPERAND_SYMBOL:
        if (op->global >= 0) {
            return cuemu_ptx_constant(k, width, CUEMU_PTX_FILL_GLOBAL,
                                      (uint64_t)op->global, op->value);
        }
        return cuemu_ptx_constant(k, width, CUEMU_PTX_FILL_IMM, op->value, 0);
    default:
        return CUEMU_PTX_NONE;
    }
}

uint32_t cuemu_ptx_target(cuemu_ptx_kernel_t *k, const cuemu_ptx_operand_t *op,
                          int type)
{
    if (op->kind == CUEMU_PTX_OPERAND_NONE) { /* "_" */
        return cuemu_ptx_new_register(k, cuemu_ptx_type_width(type));
    }

    return (op->kind == CUEMU_PTX_OPERAND_REG) ?
           cuemu_ptx_source(k, op, type) : CUEMU_PTX_NONE;
}

cuemu_ptx_status_t cuemu_ptx_operands(cuemu_ptx_kernel_t *k,
                                      const cuemu_ptx_statement_t *st,
                                      cuemu_ptx_insn_t *in, int to, int from,
                                      unsigned num_sources, char *error)
{
    unsigned i;

    if (st->num_ops != num_sources + 1) {
        snprintf(error, CUEMU_PTX_ERROR_SIZE, "%u operands", st->num_ops);
        return CUEMU_PTX_SYNTAX;
    }

    in->r[0] = cuemu_ptx_target(k, &st->op[0], to);
    for (i = 1; i <= num_sources; ++i) {
        in->r[i] = cuemu_ptx_source(k, &st->op[i], from);
    }

    for (i = 0; i <= num_sources; ++i) {
        if ((in->r[i] == CUEMU_PTX_NONE) || st->op[i].negated) {
            snprintf(error, CUEMU_PTX_ERROR_SIZE, "operand %u", i + 1);
            return CUEMU_PTX_NOT_KNOWN;
        }
    }
    return CUEMU_PTX_OK;
}

/* -------------------------------------------------------- control flow */

static void ptx_nothing(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                        cuemu_ptx_mask_t m)
{
}

static void ptx_trap(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    cuemu_ptx_fault(g, in, CUEMU_PTX_TRAP, (unsigned)__builtin_ctzll(m), 0);
}

/* All threads sleep at the same time: the first group stands for the block */
static void ptx_nanosleep(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                          cuemu_ptx_mask_t m)
{
    if (g->first == 0) {
        g->block->slept += CUEMU_PTX_REG(g, uint32_t,
                                         in->r[0])[__builtin_ctzll(m)];
    }
}

static cuemu_ptx_status_t ptx_decode_barrier(cuemu_ptx_kernel_t *k,
                                             const cuemu_ptx_statement_t *st,
                                             cuemu_ptx_insn_t *in)
{
    const cuemu_ptx_operand_t *op = st->op;
    int is_red       = cuemu_ptx_has(st, "red"), i;
    unsigned num_ops = st->num_ops;

    if ((cuemu_ptx_stranger(st, "cta sync aligned arrive red and or popc") !=
         NULL) || (num_ops < (is_red ? 3u : 1u)) ||
        (num_ops > (is_red ? 4u : 2u))) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->kind = CUEMU_PTX_BARRIER;
    in->how  = (uint8_t)cuemu_ptx_has(st, "arrive");
    in->r[2] = in->r[3] = 0;
    if (is_red) { /* d, barrier, threads, p */
        in->how2 = cuemu_ptx_has(st, "and") ? CUEMU_PTX_RED_AND :
                   cuemu_ptx_has(st, "or")  ? CUEMU_PTX_RED_OR :
                                              CUEMU_PTX_RED_COUNT;
        in->r[2] = cuemu_ptx_target(k, op,
                                    (in->how2 == CUEMU_PTX_RED_COUNT) ?
                                    CUEMU_PTX_U32 : CUEMU_PTX_PRED);
        in->r[3] = cuemu_ptx_source(k, &op[num_ops - 1], CUEMU_PTX_PRED);
        in->negated_source = op[num_ops - 1].negated;
        ++op;
        num_ops -= 2;
    }
    in->r[0] = cuemu_ptx_source(k, op, CUEMU_PTX_U32);
    in->r[1] = (num_ops < 2) ? 0 : cuemu_ptx_source(k, &op[1], CUEMU_PTX_U32);
    for (i = 0; i < 4; ++i) {
        if (in->r[i] == CUEMU_PTX_NONE) {
            return CUEMU_PTX_NOT_KNOWN;
        }
    }
    in->r[1]       = (num_ops < 2) ? CUEMU_PTX_NONE : in->r[1];
    k->has_barrier = 1;
    return CUEMU_PTX_OK;
}

static cuemu_ptx_status_t ptx_decode_control(cuemu_ptx_kernel_t *k,
                                             const cuemu_ptx_statement_t *st,
                                             cuemu_ptx_insn_t *in, char *error)
{
    const char *name = st->token[0];

    in->run = ptx_nothing;
    if (strcmp(name, "bra") == 0) {
        in->kind = CUEMU_PTX_BRANCH;
        return ((st->num_ops == 1) &&
                (st->op[0].kind == CUEMU_PTX_OPERAND_LABEL)) ?
               CUEMU_PTX_OK : CUEMU_PTX_NOT_KNOWN;
    } else if (strcmp(name, "brx") == 0) {
        in->kind = CUEMU_PTX_BRANCH_INDEX;
        in->r[0] = (st->num_ops == 2) ?
                   cuemu_ptx_source(k, &st->op[0], CUEMU_PTX_U32) :
                   CUEMU_PTX_NONE;
        return ((in->r[0] != CUEMU_PTX_NONE) &&
                (st->op[1].kind == CUEMU_PTX_OPERAND_LABEL)) ?
               CUEMU_PTX_OK : CUEMU_PTX_NOT_KNOWN;
    } else if ((strcmp(name, "exit") == 0) || (strcmp(name, "ret") == 0)) {
        in->kind = CUEMU_PTX_EXIT;
        return CUEMU_PTX_OK;
    } else if ((strcmp(name, "trap") == 0) || (strcmp(name, "brkpt") == 0)) {
        in->run = ptx_trap;
        return CUEMU_PTX_OK;
    } else if (strcmp(name, "call") == 0) {
        return cuemu_ptx_decode_call(k, st, in, error);
    } else if (((strcmp(name, "bar") == 0) ||
                (strcmp(name, "barrier") == 0)) &&
               !cuemu_ptx_has(st, "warp")) {
        return ptx_decode_barrier(k, st, in);
    } else if ((strcmp(name, "membar") == 0) || (strcmp(name, "fence") == 0) ||
               (strcmp(name, "prefetch") == 0) ||
               (strcmp(name, "prefetchu") == 0) ||
               (strcmp(name, "discard") == 0) ||
               (strcmp(name, "griddepcontrol") == 0) ||
               (strcmp(name, "applypriority") == 0)) {
        return CUEMU_PTX_OK; /* operations complete in program order anyway */
    } else if (strcmp(name, "nanosleep") == 0) {
        in->run  = ptx_nanosleep;
        in->r[0] = (st->num_ops == 1) ?
                   cuemu_ptx_source(k, &st->op[0], CUEMU_PTX_U32) :
                   CUEMU_PTX_NONE;
        return (in->r[0] != CUEMU_PTX_NONE) ? CUEMU_PTX_OK :
                                              CUEMU_PTX_NOT_KNOWN;
    }

    in->run = NULL;
    return CUEMU_PTX_NOT_KNOWN;
}

/* ------------------------------------------------------------ rounding */

static const struct {
    const char *name;
    int         mode;
} ptx_roundings[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD},
    {"rp", FE_UPWARD}
};

static void ptx_run_rounded(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                            cuemu_ptx_mask_t m)
{
    int mode = fegetround();

    fesetround(ptx_roundings[in->rounding].mode);
    in->rounded(g, in, m);
    fesetround(mode);
}

/* Let an instruction round as its .rz, .rm or .rp says. */
static void ptx_set_rounding(const cuemu_ptx_statement_t *st,
                             cuemu_ptx_insn_t *in)
{
    uint8_t i;

    for (i = 1; i < sizeof(ptx_roundings) / sizeof(ptx_roundings[0]); ++i) {
        if (cuemu_ptx_has(st, ptx_roundings[i].name)) {
            in->rounding = i;
            in->rounded  = in->run;
            in->run      = ptx_run_rounded;
        }
    }
}

cuemu_ptx_status_t cuemu_ptx_decode(cuemu_ptx_kernel_t *k,
                                    const cuemu_ptx_statement_t *st,
                                    cuemu_ptx_insn_t *in, char *error)
{
    static cuemu_ptx_status_t (*const families[])(
            cuemu_ptx_kernel_t*, const cuemu_ptx_statement_t*,
            cuemu_ptx_insn_t*, char*) = {
        cuemu_ptx_decode_memory, cuemu_ptx_decode_integer,
        cuemu_ptx_decode_float, cuemu_ptx_decode_compare,
        cuemu_ptx_decode_move, cuemu_ptx_decode_warp
    };
    cuemu_ptx_status_t status;
    size_t i;

    if (st->num_tokens == 0) {
        return CUEMU_PTX_SYNTAX;
    }

    status = ptx_decode_control(k, st, in, error);
    for (i = 0; (status == CUEMU_PTX_NOT_KNOWN) && (error[0] == '\0') &&
         (i < sizeof(families) / sizeof(families[0])); ++i) {
        status = families[i](k, st, in, error);
    }
    if (status == CUEMU_PTX_OK) {
        ptx_set_rounding(st, in);
    }
    return status;
}
