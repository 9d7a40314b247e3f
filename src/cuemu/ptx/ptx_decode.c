/* SPDX-License-Identifier: BSD-3-Clause */

/* Decode statements into instructions: control flow, rounding, families. */
#include "ptx_code.h"

#include <fenv.h>
#include <string.h>

/* -------------------------------------------------------- control flow */

static void ptx_trap(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    cuemu_ptx_fault(g, in, in->how ? CUEMU_PTX_NOT_KNOWN : CUEMU_PTX_TRAP,
                    (unsigned)__builtin_ctzll(m), 0);
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
    int is_red       = cuemu_ptx_has(st, "red");
    unsigned num_ops = st->num_ops;
    cuemu_ptx_status_t status;

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
    status         = cuemu_ptx_check(in, 4, NULL);
    in->r[1]       = (num_ops < 2) ? CUEMU_PTX_NONE : in->r[1];
    k->has_barrier = 1;
    return status;
}

static cuemu_ptx_status_t ptx_decode_control(cuemu_ptx_kernel_t *k,
                                             const cuemu_ptx_statement_t *st,
                                             cuemu_ptx_insn_t *in, char *error)
{
    const char *name = st->token[0];

    in->run = cuemu_ptx_nothing;
    if (strcmp(name, "bra") == 0) {
        in->kind = CUEMU_PTX_BRANCH;
        return ((st->num_ops == 1) &&
                (st->op[0].kind == CUEMU_PTX_OPERAND_LABEL)) ?
               CUEMU_PTX_OK : CUEMU_PTX_NOT_KNOWN;
    } else if (strcmp(name, "brx") == 0) {
        in->kind = CUEMU_PTX_BRANCH_INDEX;
        in->r[0] = cuemu_ptx_source(k, &st->op[0], CUEMU_PTX_U32);
        return ((st->num_ops == 2) && (in->r[0] != CUEMU_PTX_NONE) &&
                (st->op[1].kind == CUEMU_PTX_OPERAND_LABEL)) ?
               CUEMU_PTX_OK : CUEMU_PTX_NOT_KNOWN;
    } else if ((strcmp(name, "exit") == 0) || (strcmp(name, "ret") == 0)) {
        in->kind = CUEMU_PTX_EXIT;
        return CUEMU_PTX_OK;
    } else if ((strcmp(name, "trap") == 0) || (strcmp(name, "brkpt") == 0)) {
        in->run = ptx_trap;
        in->how = (uint8_t)cuemu_ptx_has(st, "lacks"); /* our own */
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
        in->r[0] = cuemu_ptx_source(k, &st->op[0], CUEMU_PTX_U32);
        return (st->num_ops == 1) ? cuemu_ptx_check(in, 1, NULL) :
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
        cuemu_ptx_decode_move, cuemu_ptx_decode_warp,
        cuemu_ptx_decode_mbarrier
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
