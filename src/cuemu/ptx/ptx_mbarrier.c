/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Barriers in shared memory (mbarrier), which cuda::barrier and cuda::pipeline
 * use. Asynchronous copies complete at once. Threads wait in loops around
 * try_wait.
 */
#include "ptx_code.h"

#include <string.h>

/* The 64 bits of a barrier: opaque to programs */
typedef struct {
    uint64_t pending  : 20;  /* arrivals until this phase ends */
    uint64_t expected : 20;  /* arrivals of a phase */
    int64_t  bytes    : 23;  /* bytes of copies until this phase ends */
    uint64_t phase    : 1;
} ptx_mbarrier_t;

typedef enum {
    PTX_INIT, PTX_INVAL, PTX_ARRIVE, PTX_DROP, PTX_EXPECT, PTX_ARRIVE_EXPECT,
    PTX_COMPLETE, PTX_WAIT, PTX_WAIT_PARITY
} ptx_mbarrier_op_t;

static void ptx_arrive(ptx_mbarrier_t *barrier, uint64_t count)
{
    barrier->pending -= count;
    if ((barrier->pending == 0) && (barrier->bytes == 0)) {
        barrier->phase  ^= 1;
        barrier->pending = barrier->expected;
    }
}

/* Apply an operation. Return the barrier's state before it; of a wait, whether
   the phase has ended. */
static uint64_t ptx_apply(ptx_mbarrier_t *barrier, int how, uint64_t value)
{
    const uint64_t before = barrier->phase;

    switch (how) {
    case PTX_INIT:
        memset(barrier, 0, sizeof(*barrier));
        barrier->pending = barrier->expected = value & 0xfffff;
        break;
    case PTX_ARRIVE:
        ptx_arrive(barrier, value);
        break;
    case PTX_DROP:
        barrier->expected -= value;
        ptx_arrive(barrier, value);
        break;
    case PTX_EXPECT:
        barrier->bytes += (int64_t)value;
        break;
    case PTX_ARRIVE_EXPECT:
        barrier->bytes += (int64_t)value;
        ptx_arrive(barrier, 1);
        break;
    case PTX_COMPLETE:
        barrier->bytes -= (int64_t)value;
        ptx_arrive(barrier, 0);
        break;
    case PTX_WAIT:
    case PTX_WAIT_PARITY:
        return before != (value & 1);
    default:
        break;
    }
    return before;
}

/* r: state or predicate, value, -, -, -, address */
static void ptx_mbarrier(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                         cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t *p;
    uint64_t value, result;

    if (!cuemu_ptx_pointers(g, in, m, in->r[5], 1, g->block->count->written)) {
        return;
    }

    CUEMU_PTX_FOR_EACH(m, {
        value = (in->width == 8) ? CUEMU_PTX_REG(g, uint64_t, in->r[1])[i] :
                                   CUEMU_PTX_REG(g, uint32_t, in->r[1])[i];
        result = ptx_apply((void*)g->block->pointer[i], in->how, value);
        if (in->r[0] == CUEMU_PTX_NONE) {
            continue;
        }
        if (in->how >= PTX_WAIT) {
            p  = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[0]);
            *p = (*p & ~(1ull << i)) | (result << i);
        } else {
            CUEMU_PTX_REG(g, uint64_t, in->r[0])[i] = result;
        }
    })
}

/* Copy 16 bytes for each step, then count them as complete.
   r: -, to, from, size, -, barrier; type and type2: the addresses' widths */
static void ptx_bulk(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    cuemu_ptx_insn_t to = *in, from = *in, done = *in;
    char *const *pointer = g->block->pointer;
    uint32_t at, size;
    char bytes[16];

    to.size   = from.size  = sizeof(bytes);
    to.width2 = in->type;
    from.width2 = in->type2;
    from.space  = CUEMU_PTX_GLOBAL;
    CUEMU_PTX_FOR_EACH(m, {
        const cuemu_ptx_mask_t one = 1ull << i;

        size = CUEMU_PTX_REG(g, uint32_t, in->r[3])[i];
        for (at = 0; at < size; at += sizeof(bytes)) {
            to.imm = from.imm = at;
            if (!cuemu_ptx_pointers(g, &from, one, in->r[2], 0,
                                    g->block->count->read)) {
                return;
            }
            memcpy(bytes, pointer[i], sizeof(bytes));
            if (!cuemu_ptx_pointers(g, &to, one, in->r[1], 1,
                                    g->block->count->written)) {
                return;
            }
            memcpy(pointer[i], bytes, sizeof(bytes));
        }
        if (!cuemu_ptx_pointers(g, &done, one, in->r[5], 1,
                                g->block->count->written)) {
            return;
        }
        (void)ptx_apply((void*)pointer[i], PTX_COMPLETE, size);
    })
}

/* cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to],
   [from], size, [barrier]: clusters have one block here */
static cuemu_ptx_status_t ptx_decode_bulk(cuemu_ptx_kernel_t *k,
                                          const cuemu_ptx_statement_t *st,
                                          cuemu_ptx_insn_t *in)
{
    unsigned i;

    if ((st->num_ops != 4) ||
        !cuemu_ptx_has(st, "mbarrier::complete_tx::bytes") ||
        (cuemu_ptx_stranger(st, "async bulk shared::cluster shared::cta global "
                            "mbarrier::complete_tx::bytes") != NULL)) {
        return CUEMU_PTX_NOT_KNOWN;
    }
    for (i = 0; i < 4; ++i) {
        if ((i != 2) && ((st->op[i].kind != CUEMU_PTX_OPERAND_ADDRESS) ||
                         (st->op[i].reg == CUEMU_PTX_NONE) ||
                         (st->op[i].value != 0))) {
            return CUEMU_PTX_NOT_KNOWN;
        }
    }

    in->run        = ptx_bulk;
    in->size       = 8;
    in->count      = 1;
    in->space      = CUEMU_PTX_SHARED;
    in->r[1]       = st->op[0].reg;
    in->r[2]       = st->op[1].reg;
    in->r[3]       = cuemu_ptx_source(k, &st->op[2], CUEMU_PTX_U32);
    in->r[5]       = st->op[3].reg;
    in->type       = (uint8_t)cuemu_ptx_type_width(st->op[0].type);
    in->type2      = (uint8_t)cuemu_ptx_type_width(st->op[1].type);
    in->width2     = (uint8_t)cuemu_ptx_type_width(st->op[3].type);
    k->has_loops   = 1;
    return (in->r[3] == CUEMU_PTX_NONE) ? CUEMU_PTX_NOT_KNOWN : CUEMU_PTX_OK;
}

static int ptx_operation(const cuemu_ptx_statement_t *st)
{
    static const struct {
        const char *word, *other;
        int         how;
    } names[] = {
        {"init", NULL, PTX_INIT}, {"inval", NULL, PTX_INVAL},
        {"arrive", "expect_tx", PTX_ARRIVE_EXPECT},
        {"arrive", NULL, PTX_ARRIVE}, {"arrive_drop", NULL, PTX_DROP},
        {"expect_tx", NULL, PTX_EXPECT}, {"complete_tx", NULL, PTX_COMPLETE},
        {"test_wait", "parity", PTX_WAIT_PARITY}, {"test_wait", NULL, PTX_WAIT},
        {"try_wait", "parity", PTX_WAIT_PARITY}, {"try_wait", NULL, PTX_WAIT}
    };
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if ((strcmp(st->token[1], names[i].word) == 0) &&
            ((names[i].other == NULL) || cuemu_ptx_has(st, names[i].other))) {
            return names[i].how;
        }
    }
    return -1;
}

cuemu_ptx_status_t cuemu_ptx_decode_mbarrier(cuemu_ptx_kernel_t *k,
                                             const cuemu_ptx_statement_t *st,
                                             cuemu_ptx_insn_t *in, char *error)
{
    const cuemu_ptx_operand_t *op = st->op;
    cuemu_ptx_operand_t one       = {.kind = CUEMU_PTX_OPERAND_IMM, .value = 1};
    unsigned at, type;
    cuemu_ptx_status_t status;
    int how;

    if ((strcmp(st->token[0], "cp") == 0) && cuemu_ptx_has(st, "bulk")) {
        return ptx_decode_bulk(k, st, in);
    }
    if ((strcmp(st->token[0], "cp") == 0) && cuemu_ptx_has(st, "mbarrier") &&
        cuemu_ptx_has(st, "arrive") && !cuemu_ptx_has(st, "noinc")) {
        in->run = cuemu_ptx_nothing; /* the copies are complete */
        return CUEMU_PTX_OK;
    }
    if ((strcmp(st->token[0], "mbarrier") != 0) || (st->num_tokens < 3)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    how = ptx_operation(st);
    at  = (how == PTX_ARRIVE) || (how == PTX_DROP) ||
          (how == PTX_ARRIVE_EXPECT) || (how >= PTX_WAIT);
    if ((how < 0) || (st->num_ops <= at) ||
        (cuemu_ptx_stranger(st, "init inval arrive arrive_drop expect_tx "
                            "complete_tx test_wait try_wait parity shared "
                            "shared::cta relaxed acquire release cta") !=
         NULL)) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->run        = ptx_mbarrier;
    in->how        = (uint8_t)how;
    in->size       = 8;
    in->count      = 1;
    in->space      = cuemu_ptx_has(st, "shared") ||
                     cuemu_ptx_has(st, "shared::cta") ? CUEMU_PTX_SHARED :
                                                        CUEMU_PTX_GENERIC;
    type           = (how == PTX_WAIT) ? CUEMU_PTX_B64 : CUEMU_PTX_U32;
    in->width      = (how == PTX_WAIT) ? 8 : 4;
    k->has_loops   = 1;

    status   = cuemu_ptx_address(k, &op[at], in, 5);
    in->r[0] = (at == 0) ? CUEMU_PTX_NONE :
               cuemu_ptx_target(k, &op[0], (how >= PTX_WAIT) ? CUEMU_PTX_PRED :
                                                               CUEMU_PTX_B64);
    in->r[1] = cuemu_ptx_source(k, (st->num_ops > at + 1) ? &op[at + 1] : &one,
                                (int)type);
    return (status != CUEMU_PTX_OK) ? status :
           (in->r[1] == CUEMU_PTX_NONE) ? CUEMU_PTX_NOT_KNOWN : CUEMU_PTX_OK;
}
