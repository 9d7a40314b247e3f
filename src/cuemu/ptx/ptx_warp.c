/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Exchange among the threads of a warp: shuffles, votes, reductions. A group
 * holds two warps. The scheduler collects all threads named by the instruction
 * before it runs.
 */
#include "ptx_code.h"

#include <string.h>

static uint32_t ptx_half(cuemu_ptx_mask_t mask, unsigned lane)
{
    return (uint32_t)(mask >> (lane & 32));
}

/* Return the threads of a lane's warp that execute the instruction with it:
   threads at the same instruction may name different members. */
static uint32_t ptx_with(const cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                         cuemu_ptx_mask_t m, unsigned lane)
{
    return ptx_half(m, lane) &
           CUEMU_PTX_REG(g, const uint32_t, in->r[5])[lane];
}

typedef enum {
    PTX_UP, PTX_DOWN, PTX_BFLY, PTX_IDX
} ptx_shuffle_t;

/* r: d, p, a, b, c, members */
static void ptx_shfl(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    uint32_t *d       = CUEMU_PTX_REG(g, uint32_t, in->r[0]);
    const uint32_t *b = CUEMU_PTX_REG(g, const uint32_t, in->r[3]);
    const uint32_t *c = CUEMU_PTX_REG(g, const uint32_t, in->r[4]);
    cuemu_ptx_mask_t in_range = 0, *p;
    uint32_t a[CUEMU_PTX_LANES];
    int lane, from, low, high, inside;

    memcpy(a, g->reg + in->r[2], sizeof(a));
    CUEMU_PTX_FOR_EACH(m, {
        lane = (int)(i & 31);
        low  = lane & (int)((c[i] >> 8) & 31);
        high = low | ((int)(c[i] & 31) & ~(int)((c[i] >> 8) & 31));
        switch (in->how) {
        case PTX_UP: /* for shfl.up c is the lowest lane */
            from   = lane - (int)(b[i] & 31);
            inside = (from >= high);
            break;
        case PTX_DOWN:
            from   = lane + (int)(b[i] & 31);
            inside = (from <= high);
            break;
        case PTX_BFLY:
            from   = lane ^ (int)(b[i] & 31);
            inside = (from <= high);
            break;
        default:
            from   = low | ((int)(b[i] & 31) & ~(int)((c[i] >> 8) & 31));
            inside = (from <= high);
            break;
        }
        in_range |= (cuemu_ptx_mask_t)inside << i;
        d[i]      = a[inside ? ((i & 32) | (unsigned)from) : i];
    })

    if (in->r[1] != CUEMU_PTX_NONE) {
        p  = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[1]);
        *p = (*p & ~m) | in_range;
    }
}

typedef enum {
    PTX_ALL, PTX_ANY, PTX_UNI, PTX_BALLOT
} ptx_vote_t;

/* r: d, p, -, -, -, members */
static void ptx_vote(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t p  = *CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[1]);
    cuemu_ptx_mask_t *d = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[0]);
    uint32_t *ballot    = CUEMU_PTX_REG(g, uint32_t, in->r[0]);
    uint32_t yes, all;
    int result;

    p = (in->negated_source ? ~p : p) & m;
    CUEMU_PTX_FOR_EACH(m, {
        all = ptx_with(g, in, m, i);
        yes = ptx_half(p, i) & all;
        if (in->how == PTX_BALLOT) {
            ballot[i] = yes;
            continue;
        }
        result = (in->how == PTX_ALL) ? (yes == all) :
                 (in->how == PTX_ANY) ? (yes != 0) :
                                        ((yes == all) || (yes == 0));
        *d     = (*d & ~(1ull << i)) | ((cuemu_ptx_mask_t)result << i);
    })
}

static void ptx_activemask(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                           cuemu_ptx_mask_t m)
{
    uint32_t *d = CUEMU_PTX_REG(g, uint32_t, in->r[0]);

    CUEMU_PTX_FOR_EACH(m, { d[i] = ptx_half(m, i); })
}

/* match.any and match.all; r: d, p, a, -, -, members */
static void ptx_match(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                      cuemu_ptx_mask_t m)
{
    uint32_t *d = CUEMU_PTX_REG(g, uint32_t, in->r[0]);
    cuemu_ptx_mask_t all = 0, *p;
    uint64_t mine, other;
    uint32_t with;
    unsigned j;

    CUEMU_PTX_FOR_EACH(m, {
        uint32_t same = 0;
        with = ptx_with(g, in, m, i);
        mine = other = 0;
        memcpy(&mine, g->reg + in->r[2] + i * in->width, in->width);
        for (j = 0; j < 32; ++j) {
            memcpy(&other, g->reg + in->r[2] + ((i & 32) + j) * in->width,
                   in->width);
            if (((with >> j) & 1) && (mine == other)) {
                same |= 1u << j;
            }
        }
        if (in->how != 0) { /* .all */
            same = (same == with) ? same : 0;
            all |= (cuemu_ptx_mask_t)(same != 0) << i;
        }
        d[i] = same;
    })

    if (in->r[1] != CUEMU_PTX_NONE) {
        p  = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[1]);
        *p = (*p & ~m) | all;
    }
}

static const char *const ptx_reductions[] = {"add", "min", "max", "and", "or",
                                             "xor"};

/* redux.sync; r: d, -, a, -, -, members */
static void ptx_redux(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                      cuemu_ptx_mask_t m)
{
    uint32_t *d       = CUEMU_PTX_REG(g, uint32_t, in->r[0]);
    const uint32_t *a = CUEMU_PTX_REG(g, const uint32_t, in->r[2]);
    cuemu_ptx_mask_t rest, same;
    uint32_t result, x;
    unsigned lane;
    int first, less;

    for (rest = m; rest != 0; rest &= ~same) {
        lane   = (unsigned)__builtin_ctzll(rest);
        same   = ((cuemu_ptx_mask_t)ptx_with(g, in, rest, lane)
                  << (lane & 32)) | (1ull << lane);
        first  = 1;
        result = 0;
        CUEMU_PTX_FOR_EACH(same, {
            x    = a[i];
            less = in->is_signed ? ((int32_t)x < (int32_t)result) :
                                   (x < result);
            result = first           ? x :
                     (in->how == 0)  ? (result + x) :
                     (in->how == 1)  ? (less ? x : result) :
                     (in->how == 2)  ? (less ? result : x) :
                     (in->how == 3)  ? (result & x) :
                     (in->how == 4)  ? (result | x) : (result ^ x);
            first  = 0;
        })
        CUEMU_PTX_FOR_EACH(same, { d[i] = result; })
    }
}

/* elect.sync; r: p, d, -, -, -, members */
static void ptx_elect(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                      cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t *p = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[0]);
    unsigned leader;

    CUEMU_PTX_FOR_EACH(m, {
        leader = (unsigned)__builtin_ctz(ptx_with(g, in, m, i) |
                                         (1u << (i & 31)));
        *p     = (*p & ~(1ull << i)) |
                 ((cuemu_ptx_mask_t)(leader == (i & 31)) << i);
        if (in->r[1] != CUEMU_PTX_NONE) {
            CUEMU_PTX_REG(g, uint32_t, in->r[1])[i] = leader;
        }
    })
}

/* ------------------------------------------------------------- decoding */

static int ptx_choose(const cuemu_ptx_statement_t *st,
                      const char *const *words, unsigned count)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        if (cuemu_ptx_has(st, words[i])) {
            return (int)i;
        }
    }
    return -1;
}

static uint32_t ptx_members(cuemu_ptx_kernel_t *k,
                            const cuemu_ptx_statement_t *st, unsigned index)
{
    return (index < st->num_ops) ?
           cuemu_ptx_source(k, &st->op[index], CUEMU_PTX_B32) : CUEMU_PTX_NONE;
}

static cuemu_ptx_status_t ptx_decode_one(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in)
{
    static const char *const shuffles[] = {"up", "down", "bfly", "idx"};
    static const char *const votes[]    = {"all", "any", "uni", "ballot"};
    static const char *const matches[]  = {"any", "all"};
    const cuemu_ptx_operand_t *op       = st->op;
    const char *name = st->token[0];
    int how, type;

    in->r[5] = in->r[1] = CUEMU_PTX_NONE;
    if (strcmp(name, "activemask") == 0) {
        in->run  = ptx_activemask;
        in->r[0] = cuemu_ptx_target(k, &op[0], CUEMU_PTX_B32);
        return CUEMU_PTX_OK;
    }

    in->kind = CUEMU_PTX_WARP;
    if (strcmp(name, "bar") == 0) { /* bar.warp.sync */
        in->run  = cuemu_ptx_nothing;
        in->r[5] = ptx_members(k, st, 0);
        return CUEMU_PTX_OK;
    }

    if (!cuemu_ptx_has(st, "sync")) {
        return CUEMU_PTX_NOT_KNOWN;
    }

    in->r[0] = cuemu_ptx_target(k, &op[0], CUEMU_PTX_B32);
    if (strcmp(name, "elect") == 0) {
        how      = 0;
        in->run  = ptx_elect;
        in->r[1] = in->r[0];
        in->r[0] = op[0].second;
        in->r[5] = ptx_members(k, st, 1);
    } else if (strcmp(name, "shfl") == 0) {
        how      = ptx_choose(st, shuffles, 4);
        in->run  = ptx_shfl;
        in->r[1] = op[0].second;
        in->r[2] = cuemu_ptx_source(k, &op[1], CUEMU_PTX_B32);
        in->r[3] = cuemu_ptx_source(k, &op[2], CUEMU_PTX_B32);
        in->r[4] = cuemu_ptx_source(k, &op[3], CUEMU_PTX_B32);
        in->r[5] = ptx_members(k, st, 4);
    } else if (strcmp(name, "vote") == 0) {
        how      = ptx_choose(st, votes, 4);
        in->run  = ptx_vote;
        in->r[0] = cuemu_ptx_target(k, &op[0], (how == PTX_BALLOT) ?
                                    CUEMU_PTX_B32 : CUEMU_PTX_PRED);
        in->r[1] = cuemu_ptx_source(k, &op[1], CUEMU_PTX_PRED);
        in->r[2] = in->r[1];
        in->r[5] = ptx_members(k, st, 2);
        in->negated_source = op[1].negated;
    } else if (strcmp(name, "match") == 0) {
        how       = ptx_choose(st, matches, 2);
        type      = cuemu_ptx_has(st, "b64") ? CUEMU_PTX_B64 : CUEMU_PTX_B32;
        in->run   = ptx_match;
        in->width = (uint8_t)cuemu_ptx_type_width(type);
        in->r[1]  = op[0].second;
        in->r[2]  = cuemu_ptx_source(k, &op[1], type);
        in->r[5]  = ptx_members(k, st, 2);
    } else {
        how           = ptx_choose(st, ptx_reductions, 6);
        in->run       = ptx_redux;
        in->is_signed = (uint8_t)cuemu_ptx_has(st, "s32");
        in->r[2]      = cuemu_ptx_source(k, &op[1], CUEMU_PTX_B32);
        in->r[5]      = ptx_members(k, st, 2);
    }

    in->how = (uint8_t)how;
    return ((how >= 0) && (in->r[0] != CUEMU_PTX_NONE) &&
            (in->r[2] != CUEMU_PTX_NONE) && (in->r[3] != CUEMU_PTX_NONE) &&
            (in->r[4] != CUEMU_PTX_NONE) && (in->r[5] != CUEMU_PTX_NONE)) ?
           CUEMU_PTX_OK : CUEMU_PTX_NOT_KNOWN;
}

cuemu_ptx_status_t cuemu_ptx_decode_warp(cuemu_ptx_kernel_t *k,
                                         const cuemu_ptx_statement_t *st,
                                         cuemu_ptx_insn_t *in, char *error)
{
    static const struct {
        const char *name;
        unsigned    num_ops;
    } names[] = {
        {"shfl", 5}, {"vote", 3}, {"match", 3}, {"redux", 3}, {"activemask", 1},
        {"elect", 2}
    };
    size_t i;

    if ((strcmp(st->token[0], "bar") == 0) && cuemu_ptx_has(st, "warp")) {
        return ptx_decode_one(k, st, in);
    }

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strcmp(st->token[0], names[i].name) == 0) {
            return (st->num_ops == names[i].num_ops) ?
                   ptx_decode_one(k, st, in) : CUEMU_PTX_NOT_KNOWN;
        }
    }
    return CUEMU_PTX_NOT_KNOWN;
}
