/* SPDX-License-Identifier: BSD-3-Clause */

/* Operands of statements: types, registers, constants, addresses. */
#include "ptx_code.h"

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

uint32_t cuemu_ptx_element(cuemu_ptx_kernel_t *k,
                           const cuemu_ptx_operand_t *vector, unsigned i,
                           unsigned width, int type)
{
    const cuemu_ptx_operand_t number = {
        .kind = vector->kinds[i], .value = vector->values[i]
    };

    switch (number.kind) {
    case CUEMU_PTX_OPERAND_REG:
        return (cuemu_ptx_type_width(vector->types[i]) == width) ?
               vector->regs[i] : CUEMU_PTX_NONE;
    case CUEMU_PTX_OPERAND_NONE:
        return CUEMU_PTX_NONE;
    default:
        return cuemu_ptx_constant(k, width, CUEMU_PTX_FILL_IMM,
                                  ptx_literal(&number, type), 0);
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
            snprintf(error, CUEMU_PTX_ERROR_SIZE, "operand %u is unknown",
                     i + 1);
            return CUEMU_PTX_NOT_KNOWN;
        }
    }
    return CUEMU_PTX_OK;
}

cuemu_ptx_status_t cuemu_ptx_check(const cuemu_ptx_insn_t *in, unsigned count,
                                   char *error)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        if (in->r[i] == CUEMU_PTX_NONE) {
            if (error != NULL) {
                snprintf(error, CUEMU_PTX_ERROR_SIZE, "operand %u is unknown",
                         i + 1);
            }
            return CUEMU_PTX_NOT_KNOWN;
        }
    }
    return CUEMU_PTX_OK;
}

int cuemu_ptx_is_signed(int type)
{
    return (type == CUEMU_PTX_S8) || (type == CUEMU_PTX_S16) ||
           (type == CUEMU_PTX_S32) || (type == CUEMU_PTX_S64);
}

void cuemu_ptx_nothing(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                       cuemu_ptx_mask_t m)
{
}
