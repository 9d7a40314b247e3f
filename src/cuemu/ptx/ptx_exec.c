/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Run blocks. Threads of a group at the same instruction form a fragment; a
 * divergent branch splits it. The fragment furthest behind in the text runs
 * first and merges with each fragment it reaches: compilers lay out code so
 * that divergent paths meet again.
 */
#include "ptx_code.h"

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instructions times threads after which a running fragment yields to others of
   its group. It may be waiting for them. */
#define PTX_PATIENCE 200000

/* Rounds of a loop after which a group yields to the block's other groups, and
   to other blocks that run at the same time. It may be waiting for them. */
#define PTX_ROUNDS_GROUP 65536
#define PTX_ROUNDS_BLOCK 256

void cuemu_ptx_fault(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                     cuemu_ptx_status_t status, unsigned lane,
                     uint64_t address)
{
    cuemu_ptx_block_t *block = g->block;

    if (block->status == CUEMU_PTX_OK) {
        block->status  = status;
        block->insn    = in;
        block->thread  = g->first + lane;
        block->address = address;
    }
}

/* ------------------------------------------------------------ fragments */

static void ptx_push(cuemu_ptx_group_t *g, uint32_t pc, cuemu_ptx_mask_t mask,
                     int waits)
{
    unsigned i;

    for (i = 0; i < g->num_fragments; ++i) {
        if (g->fragment[i].pc == pc) {
            g->fragment[i].mask |= mask;
            g->fragment[i].waits = 0;
            return;
        }
    }

    g->fragment[i].pc    = pc;
    g->fragment[i].mask  = mask;
    g->fragment[i].waits = (uint32_t)waits;
    ++g->num_fragments;
}

/* Return non-zero if fragment `a` runs before `b`. Waiting fragments go last,
   even after the one to avoid: only when no other is left they wait for none of
   them. */
static int ptx_is_before(const cuemu_ptx_fragment_t *a,
                         const cuemu_ptx_fragment_t *b, uint32_t avoid)
{
    if (a->waits != b->waits) {
        return a->waits < b->waits;
    }
    return ((a->pc == avoid) || (b->pc == avoid)) ? (b->pc == avoid) :
                                                    (a->pc < b->pc);
}

/* Take the next fragment off the list. */
static int ptx_pop(cuemu_ptx_group_t *g, uint32_t avoid, uint32_t *pc_p,
                   cuemu_ptx_mask_t *mask_p, int *waits_p)
{
    unsigned i, best = CUEMU_PTX_LANES;

    for (i = 0; i < g->num_fragments; ++i) {
        if ((best == CUEMU_PTX_LANES) ||
            ptx_is_before(&g->fragment[i], &g->fragment[best], avoid)) {
            best = i;
        }
    }

    if (best == CUEMU_PTX_LANES) {
        return 0;
    }

    *pc_p             = g->fragment[best].pc;
    *mask_p           = g->fragment[best].mask;
    *waits_p          = (int)g->fragment[best].waits;
    g->fragment[best] = g->fragment[--g->num_fragments];
    return 1;
}

/* Return the instruction where the fragment from `pc` meets another one. */
static uint32_t ptx_next_fragment(const cuemu_ptx_group_t *g, uint32_t pc)
{
    uint32_t next = UINT32_MAX;
    unsigned i;

    for (i = 0; i < g->num_fragments; ++i) {
        if ((g->fragment[i].pc >= pc) && (g->fragment[i].pc < next)) {
            next = g->fragment[i].pc;
        }
    }
    return next;
}

/* ------------------------------------------------------------- barriers */

/* Store the results of bar.red, the instruction before `pc`. */
static void ptx_reduce(cuemu_ptx_group_t *g, uint32_t pc, cuemu_ptx_mask_t m,
                       unsigned arrived, unsigned yes)
{
    const cuemu_ptx_insn_t *in = &g->block->kernel->code[pc - 1];
    cuemu_ptx_mask_t *p;

    if (in->how2 == CUEMU_PTX_RED_COUNT) {
        CUEMU_PTX_FOR_EACH(m, {
            CUEMU_PTX_REG(g, uint32_t, in->r[2])[i] = yes;
        })
    } else if (in->how2 != CUEMU_PTX_RED_NONE) {
        p  = CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[2]);
        *p = ((in->how2 == CUEMU_PTX_RED_AND) ? (yes == arrived) : (yes > 0)) ?
             (*p | m) : (*p & ~m);
    }
}

static void ptx_release(cuemu_ptx_block_t *block, unsigned barrier)
{
    cuemu_ptx_group_t *g;
    unsigned i, j;

    for (i = 0; i < block->num_groups; ++i) {
        g = &block->groups[i];
        for (j = 0; j < g->num_parked;) {
            if (g->parked[j].barrier != barrier) {
                ++j;
                continue;
            }
            ptx_reduce(g, g->parked[j].pc, g->parked[j].mask,
                       block->barrier[barrier].arrived,
                       block->barrier[barrier].yes);
            ptx_push(g, g->parked[j].pc, g->parked[j].mask, 0);
            g->parked[j] = g->parked[--g->num_parked];
        }
    }
    block->barrier[barrier].arrived  = 0;
    block->barrier[barrier].yes      = 0;
    block->barrier[barrier].expected = 0;
}

static unsigned ptx_num_live(const cuemu_ptx_block_t *block)
{
    unsigned i, live = 0;

    for (i = 0; i < block->num_groups; ++i) {
        live += (unsigned)__builtin_popcountll(block->groups[i].live);
    }
    return live;
}

/* Release barriers that all live threads have reached. */
static void ptx_release_barriers(cuemu_ptx_block_t *block)
{
    unsigned i, expected;

    for (i = 0; i < CUEMU_PTX_BARRIERS; ++i) {
        expected = block->barrier[i].expected;
        if (expected == 0) {
            expected = ptx_num_live(block);
        }
        if ((block->barrier[i].arrived > 0) &&
            (block->barrier[i].arrived >= expected)) {
            ptx_release(block, i);
        }
    }
}

static void ptx_arrive(cuemu_ptx_group_t *g, const cuemu_ptx_insn_t *in,
                       cuemu_ptx_mask_t m, uint32_t pc)
{
    cuemu_ptx_block_t *block = g->block;
    unsigned lane            = (unsigned)__builtin_ctzll(m);
    unsigned barrier         = CUEMU_PTX_REG(g, uint32_t, in->r[0])[lane];
    cuemu_ptx_mask_t yes;

    if (barrier >= CUEMU_PTX_BARRIERS) {
        cuemu_ptx_fault(g, in, CUEMU_PTX_TRAP, lane, barrier);
        return;
    }

    if (in->how2 != CUEMU_PTX_RED_NONE) {
        yes = *CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->r[3]);
        yes = (in->negated_source ? ~yes : yes) & m;
        block->barrier[barrier].yes += (unsigned)__builtin_popcountll(yes);
    }
    block->barrier[barrier].arrived += (unsigned)__builtin_popcountll(m);
    block->barrier[barrier].expected =
            (in->r[1] == CUEMU_PTX_NONE) ? 0 :
            CUEMU_PTX_REG(g, uint32_t, in->r[1])[lane];
    if (in->how /* arrive */) {
        ptx_push(g, pc + 1, m, 0);
    } else {
        g->parked[g->num_parked].pc      = pc + 1;
        g->parked[g->num_parked].barrier = barrier;
        g->parked[g->num_parked].mask    = m;
        ++g->num_parked;
    }
}

/* Return non-zero if all live threads named by the instruction have arrived. */
static int ptx_is_complete(const cuemu_ptx_group_t *g,
                           const cuemu_ptx_insn_t *in, cuemu_ptx_mask_t m)
{
    cuemu_ptx_mask_t named = 0, parked = 0;
    unsigned j;

    CUEMU_PTX_FOR_EACH(m, {
        named |= (uint64_t)CUEMU_PTX_REG(g, const uint32_t, in->r[5])[i]
                 << (i & 32);
    })
    for (j = 0; j < g->num_parked; ++j) {
        parked |= g->parked[j].mask;
    }
    return (named & g->live & ~parked & ~m) == 0;
}

/* ------------------------------------------------------------------ run */

/*
 * Run a fragment until it meets another one, splits, waits or ends, and push
 * the rest of it. Returns the instruction to avoid if the fragment ran for long
 * while others wait, else UINT32_MAX.
 */
static uint32_t ptx_run_fragment(cuemu_ptx_group_t *g, uint32_t pc,
                                 cuemu_ptx_mask_t mask, int complete)
{
    cuemu_ptx_block_t *block     = g->block;
    const cuemu_ptx_kernel_t *k  = block->kernel;
    uint32_t stop                = ptx_next_fragment(g, pc + 1);
    unsigned threads             = (unsigned)__builtin_popcountll(mask);
    uint64_t done                = 0;
    unsigned rounds              = !block->at_once ? UINT32_MAX :
                                   (block->launch->together ||
                                    k->has_loops) ?
                                   PTX_ROUNDS_BLOCK : PTX_ROUNDS_GROUP;
    const cuemu_ptx_insn_t *in;
    uint32_t target, index;
    cuemu_ptx_mask_t m, same;

    for (;;) {
        in    = &k->code[pc];
        m     = mask;
        done += threads;
        if (in->guard != CUEMU_PTX_NONE) {
            m  = *CUEMU_PTX_REG(g, cuemu_ptx_mask_t, in->guard);
            m  = (in->negated ? ~m : m) & mask;
        }

        if (m != 0) {
            switch (in->kind) {
            case CUEMU_PTX_PLAIN:
                in->run(g, in, m);
                if (block->status != CUEMU_PTX_OK) {
                    goto out;
                }
                break;
            case CUEMU_PTX_BRANCH:
            case CUEMU_PTX_BRANCH_INDEX:
                target = in->target;
                if (in->kind == CUEMU_PTX_BRANCH_INDEX) {
                    index = CUEMU_PTX_REG(g, uint32_t,
                                          in->r[0])[__builtin_ctzll(m)];
                    if (index >= k->tables[in->imm]) {
                        cuemu_ptx_fault(g, in, CUEMU_PTX_TRAP,
                                        (unsigned)__builtin_ctzll(m), index);
                        goto out;
                    }
                    target = k->tables[in->imm + 1 + index];
                    same   = 0;
                    CUEMU_PTX_FOR_EACH(m, {
                        if (CUEMU_PTX_REG(g, uint32_t, in->r[0])[i] == index) {
                            same |= 1ull << i;
                        }
                    })
                    if (same != m) { /* the other threads come back here */
                        ptx_push(g, pc, m & ~same, 0);
                        if (m != mask) {
                            ptx_push(g, pc + 1, mask & ~m, 0);
                        }
                        ptx_push(g, target, same, 0);
                        goto out;
                    }
                }
                if (m != mask) {
                    ptx_push(g, pc + 1, mask & ~m, 0);
                    ptx_push(g, target, m, 0);
                    goto out;
                }
                if (target <= pc) { /* a loop */
                    block->count->instructions += done;
                    if (block->budget != 0) {
                        if (done >= block->budget) {
                            cuemu_ptx_fault(g, in, CUEMU_PTX_TIMEOUT,
                                            (unsigned)__builtin_ctzll(m), 0);
                            done = 0;
                            goto out;
                        }
                        block->budget -= done;
                    }
                    if ((g->num_fragments > 0) && (done > PTX_PATIENCE)) {
                        ptx_push(g, target, mask, 0);
                        return target;
                    }
                    /* Short runs of a fragment add up as well */
                    if (g->num_fragments == 0) {
                        done = 0;
                    } else {
                        block->count->instructions -= done;
                        block->budget += (block->budget != 0) ? done : 0;
                    }
                    if (--rounds == 0) {
                        block->yields = 1;
                        ptx_push(g, target, mask, 0);
                        g->avoid = target;
                        goto out;
                    }
                }
                pc   = target;
                stop = ptx_next_fragment(g, pc);
                if ((stop == pc) || ((g->num_fragments > 0) &&
                                     (ptx_next_fragment(g, 0) < pc))) {
                    ptx_push(g, pc, mask, 0);
                    goto out;
                }
                continue;
            case CUEMU_PTX_EXIT:
                g->live &= ~m;
                mask    &= ~m;
                if (mask == 0) {
                    goto out;
                }
                threads = (unsigned)__builtin_popcountll(mask);
                break;
            case CUEMU_PTX_BARRIER:
                ptx_arrive(g, in, m, pc);
                if (mask != m) {
                    ptx_push(g, pc + 1, mask & ~m, 0);
                }
                goto out;
            case CUEMU_PTX_CLOCK:
                block->count->instructions += done;
                in->run(g, in, m);
                block->count->instructions -= done;
                break;
            default: /* WARP */
                if (!complete && !ptx_is_complete(g, in, m)) {
                    if (mask != m) {
                        ptx_push(g, pc + 1, mask & ~m, 0);
                    }
                    ptx_push(g, pc, m, 1);
                    goto out;
                }
                in->run(g, in, m);
                break;
            }
        }

        complete = 0;
        if (++pc == stop) {
            ptx_push(g, pc, mask, 0);
            goto out;
        }
    }

out:
    block->count->instructions += done;
    if (block->budget != 0) {
        if (done >= block->budget) {
            cuemu_ptx_fault(g, in, CUEMU_PTX_TIMEOUT,
                            (unsigned)__builtin_ctzll(g->exists), 0);
        } else {
            block->budget -= done;
        }
    }
    return UINT32_MAX;
}

/* Run a group until all of its threads have ended or wait at a barrier, or it
   yields. */
static void ptx_run_group(cuemu_ptx_group_t *g)
{
    uint32_t pc, avoid;
    cuemu_ptx_mask_t mask;
    int waits;

    g->block->yields = 0;
    while ((g->block->status == CUEMU_PTX_OK) && !g->block->yields &&
           ptx_pop(g, g->avoid, &pc, &mask, &waits)) {
        avoid    = ptx_run_fragment(g, pc, mask, waits);
        g->avoid = g->block->yields ? g->avoid : avoid;
    }
}

/* ---------------------------------------------------------------- setup */

static uint64_t ptx_fill_value(const cuemu_ptx_block_t *block,
                               const cuemu_ptx_fill_t *fill, unsigned thread)
{
    const unsigned *grid = block->launch->grid, *dim = block->launch->block;
    unsigned lane        = thread & 31;

    switch (fill->kind) {
    case CUEMU_PTX_FILL_IMM:
        return fill->value;
    case CUEMU_PTX_FILL_TID:
        return thread % dim[0];
    case CUEMU_PTX_FILL_TID + 1:
        return (thread / dim[0]) % dim[1];
    case CUEMU_PTX_FILL_TID + 2:
        return thread / dim[0] / dim[1];
    case CUEMU_PTX_FILL_NTID:
    case CUEMU_PTX_FILL_NTID + 1:
    case CUEMU_PTX_FILL_NTID + 2:
        return dim[fill->kind - CUEMU_PTX_FILL_NTID];
    case CUEMU_PTX_FILL_CTAID:
    case CUEMU_PTX_FILL_CTAID + 1:
    case CUEMU_PTX_FILL_CTAID + 2:
        return block->ctaid[fill->kind - CUEMU_PTX_FILL_CTAID];
    case CUEMU_PTX_FILL_NCTAID:
    case CUEMU_PTX_FILL_NCTAID + 1:
    case CUEMU_PTX_FILL_NCTAID + 2:
        return grid[fill->kind - CUEMU_PTX_FILL_NCTAID];
    case CUEMU_PTX_FILL_LANEID:
        return lane;
    case CUEMU_PTX_FILL_WARPID:
        return thread / 32;
    case CUEMU_PTX_FILL_NWARPID:
        return (block->num_threads + 31) / 32;
    case CUEMU_PTX_FILL_MASK_EQ:
        return 1u << lane;
    case CUEMU_PTX_FILL_MASK_LT:
        return (1u << lane) - 1;
    case CUEMU_PTX_FILL_MASK_LE:
        return (uint32_t)((2ull << lane) - 1);
    case CUEMU_PTX_FILL_MASK_GT:
        return ~(uint32_t)((2ull << lane) - 1);
    case CUEMU_PTX_FILL_MASK_GE:
        return ~((1u << lane) - 1);
    case CUEMU_PTX_FILL_DYNAMIC_SHARED:
        return block->launch->dynamic_shared;
    case CUEMU_PTX_FILL_TOTAL_SHARED:
        return block->shared_size;
    case CUEMU_PTX_FILL_SMID:
        return (block->ctaid[0] + block->ctaid[1] + block->ctaid[2]) % 64;
    case CUEMU_PTX_FILL_ENVREG1:
        return block->launch->workspace >> 32;
    case CUEMU_PTX_FILL_ENVREG2:
        return (uint32_t)block->launch->workspace;
    case CUEMU_PTX_FILL_GLOBAL:
        return block->kernel->module->globals[fill->value].address +
               fill->offset;
    default:
        return 0;
    }
}

/* Lifetime of a filled register's value */
enum {
    PTX_FILL_LAUNCH = 1, /* whole launch */
    PTX_FILL_GROUP  = 2,
    PTX_FILL_BLOCK  = 4,
    PTX_FILL_ALL    = 7
};

static unsigned ptx_fill_kind(const cuemu_ptx_fill_t *fill)
{
    if (((fill->kind >= CUEMU_PTX_FILL_CTAID) &&
         (fill->kind < CUEMU_PTX_FILL_CTAID + 3)) ||
        (fill->kind == CUEMU_PTX_FILL_SMID)) {
        return PTX_FILL_BLOCK;
    }

    return (((fill->kind >= CUEMU_PTX_FILL_TID) &&
             (fill->kind < CUEMU_PTX_FILL_TID + 3)) ||
            (fill->kind == CUEMU_PTX_FILL_WARPID)) ? PTX_FILL_GROUP :
                                                     PTX_FILL_LAUNCH;
}

static void ptx_fill(cuemu_ptx_group_t *g, unsigned kinds)
{
    const cuemu_ptx_kernel_t *k = g->block->kernel;
    const cuemu_ptx_fill_t *fill;
    uint64_t value;
    uint32_t i;
    unsigned lane;

    for (i = 0; i < k->num_fills; ++i) {
        fill = &k->fills[i];
        if (!(ptx_fill_kind(fill) & kinds)) {
            continue;
        }
        if (fill->width == 0) { /* a predicate: true unless zero */
            *CUEMU_PTX_REG(g, cuemu_ptx_mask_t, fill->reg) =
                    (fill->value != 0) ? ~0ull : 0;
            continue;
        }
        for (lane = 0; lane < CUEMU_PTX_LANES; ++lane) {
            value = ptx_fill_value(g->block, fill, g->first + lane);
            memcpy(g->reg + fill->reg + lane * fill->width, &value,
                   fill->width);
        }
    }
}

static void ptx_start(cuemu_ptx_group_t *g)
{
    g->live          = g->exists;
    g->carry         = 0;
    g->num_parked    = 0;
    g->num_fragments = 1;
    g->avoid         = UINT32_MAX;
    g->fragment[0]   = (cuemu_ptx_fragment_t){0, 0, g->exists};
}

/* Report the block's first waiting threads as waiting forever. */
static void ptx_deadlock(cuemu_ptx_block_t *block)
{
    unsigned i;

    block->status = CUEMU_PTX_DEADLOCK;
    for (i = 0; i < block->num_groups; ++i) {
        if (block->groups[i].num_parked > 0) {
            block->insn   = &block->kernel->code[
                    block->groups[i].parked[0].pc - 1];
            block->thread = block->groups[i].first +
                            (unsigned)__builtin_ctzll(
                                    block->groups[i].parked[0].mask);
            return;
        }
    }
}

/* Run each of the block's groups once. Return zero if all have ended. */
static int ptx_turn(cuemu_ptx_block_t *block)
{
    unsigned i, busy = 0;

    for (i = 0; (i < block->num_groups) && (block->status == CUEMU_PTX_OK);
         ++i) {
        busy |= (block->groups[i].num_fragments > 0);
        ptx_run_group(&block->groups[i]);
    }
    ptx_release_barriers(block);
    for (i = 0; i < block->num_groups; ++i) {
        busy |= (block->groups[i].num_fragments > 0);
    }

    if (!busy && (block->status == CUEMU_PTX_OK) &&
        (ptx_num_live(block) > 0)) {
        ptx_deadlock(block);
    }
    return busy && (block->status == CUEMU_PTX_OK);
}

/* Prepare all groups that run at once. */
static void ptx_start_block(cuemu_ptx_block_t *block, int is_first)
{
    unsigned i;

    memset(block->barrier, 0, sizeof(block->barrier));
    for (i = 0; i < block->num_groups; ++i) {
        ptx_fill(&block->groups[i], is_first ? PTX_FILL_ALL : PTX_FILL_BLOCK);
        ptx_start(&block->groups[i]);
    }
}

static void ptx_run_block(cuemu_ptx_block_t *block, int is_first)
{
    cuemu_ptx_group_t *g;
    unsigned i;

    if (block->at_once) {
        ptx_start_block(block, is_first);
        while (ptx_turn(block)) {
        }
        return;
    }

    for (i = 0; i < block->num_groups; ++i) {
        g = &block->groups[i];
        /* Groups without barriers run one after the other and share a register
           file */
        ptx_fill(g, (i > 0)   ? PTX_FILL_GROUP :
                    is_first  ? PTX_FILL_ALL :
                                (PTX_FILL_BLOCK | PTX_FILL_GROUP));
        ptx_start(g);
        ptx_run_group(g);
    }
}

static const char *ptx_fault_name(cuemu_ptx_status_t status)
{
    switch (status) {
    case CUEMU_PTX_BAD_ADDRESS:
        return "accesses invalid memory at address";
    case CUEMU_PTX_MISALIGNED:
        return "makes a misaligned access at address";
    case CUEMU_PTX_TRAP:
        return "stopped by itself:";
    case CUEMU_PTX_ASSERT:
        return "fails an assertion:";
    case CUEMU_PTX_NOT_KNOWN:
        return "calls by pointer a function that is recursive, or needs what "
               "the emulator lacks:";
    case CUEMU_PTX_DEADLOCK:
        return "waits forever at a barrier:";
    default:
        return "does not end:";
    }
}

/* Allocate groups, register files, local and shared memory in one piece. */
static int ptx_allocate(cuemu_ptx_block_t *block)
{
    const cuemu_ptx_kernel_t *k = block->kernel;
    unsigned files = block->at_once ? block->num_groups : 1, i, left;
    uint64_t local = (uint64_t)k->local_size * CUEMU_PTX_LANES;
    uint64_t size  = (k->registers + local + 127) & ~127ull;
    cuemu_ptx_group_t *g;

    block->groups = calloc(block->num_groups, sizeof(*block->groups));
    block->shared = calloc(1, block->shared_size + 16);
    if ((posix_memalign((void**)&block->memory, 128, size * files + 128) !=
         0)) {
        block->memory = NULL;
    }
    if ((block->groups == NULL) || (block->shared == NULL) ||
        (block->memory == NULL)) {
        return -1;
    }

    memset(block->memory, 0, size * files);
    for (i = 0; i < block->num_groups; ++i) {
        g         = &block->groups[i];
        left      = block->num_threads - i * CUEMU_PTX_LANES;
        g->block  = block;
        g->first  = i * CUEMU_PTX_LANES;
        g->exists = (left >= CUEMU_PTX_LANES) ? ~0ull : ((1ull << left) - 1);
        g->reg    = block->memory + (block->at_once ? i : 0) * size;
        g->local  = g->reg + k->registers;
    }
    return 0;
}

/* Prepare memory to run blocks of a launch. */
static int ptx_init(cuemu_ptx_block_t *block, const cuemu_ptx_kernel_t *kernel,
                    const cuemu_ptx_launch_t *launch, cuemu_ptx_count_t *count)
{
    block->kernel      = kernel;
    block->launch      = launch;
    block->count       = count;
    block->at_once     = kernel->has_barrier || kernel->has_loops ||
                           launch->together;
    block->budget      = launch->max_instructions;
    block->shared_size = ((kernel->shared_size + 15) & ~15u) +
                         launch->dynamic_shared;
    block->num_threads = launch->block[0] * launch->block[1] *
                         launch->block[2];
    block->num_groups  = (block->num_threads + CUEMU_PTX_LANES - 1) /
                         CUEMU_PTX_LANES;
    return ptx_allocate(block);
}

static void ptx_locate(cuemu_ptx_block_t *block, uint64_t i)
{
    const unsigned *grid = block->launch->grid;

    block->ctaid[0] = (unsigned)(i % grid[0]);
    block->ctaid[1] = (unsigned)(i / grid[0] % grid[1]);
    block->ctaid[2] = (unsigned)(i / grid[0] / grid[1]);
}

static void ptx_count_block(const cuemu_ptx_block_t *block)
{
    ++block->count->blocks;
    if (block->slept > block->count->slept) {
        block->count->slept = block->slept;
    }
}

/* Run `num` blocks one after the other, all in the memory of the first. */
static cuemu_ptx_block_t *ptx_run_after(cuemu_ptx_block_t *block, uint64_t num)
{
    const uint64_t first = block->launch->first;
    uint64_t i;

    for (i = 0; (i < num) && (block->status == CUEMU_PTX_OK); ++i) {
        ptx_locate(block, first + i);
        block->slept = 0;
        ptx_run_block(block, i == 0);
        ptx_count_block(block);
    }
    return block;
}

/* Run blocks in turn, each in its own memory. Return one of them, the one with
   an error if there is one. */
static cuemu_ptx_block_t *ptx_run_together(cuemu_ptx_block_t *blocks,
                                           uint64_t num)
{
    uint64_t i;
    int busy;

    for (i = 0; i < num; ++i) {
        ptx_locate(&blocks[i], blocks[i].launch->first + i);
        ptx_start_block(&blocks[i], 1);
    }

    do {
        for (busy = 0, i = 0; i < num; ++i) {
            busy |= ptx_turn(&blocks[i]);
            if (blocks[i].status != CUEMU_PTX_OK) {
                return &blocks[i];
            }
        }
    } while (busy);

    for (i = 0; i < num; ++i) {
        ptx_count_block(&blocks[i]);
    }
    return blocks;
}

cuemu_ptx_status_t cuemu_ptx_run(const cuemu_ptx_kernel_t *kernel,
                                 const cuemu_ptx_launch_t *launch,
                                 cuemu_ptx_count_t *count, char *error)
{
    const uint64_t all = launch->last - launch->first;
    const uint64_t num = launch->together ? all : 1;
    cuemu_ptx_block_t *blocks = calloc(num, sizeof(*blocks)), *block;
    cuemu_ptx_status_t status = CUEMU_PTX_NO_MEMORY;
    uint64_t i;
    int failed = (blocks == NULL);
    fenv_t env;

    /* A GPU knows neither the program's rounding mode, nor its exceptions, nor
       whether its processor flushes subnormal numbers */
    fegetenv(&env);
    fesetenv(FE_DFL_ENV);
    snprintf(error, CUEMU_PTX_ERROR_SIZE, "no memory");
    for (i = 0; (i < num) && !failed; ++i) {
        failed = (ptx_init(&blocks[i], kernel, launch, count) != 0);
    }

    if (!failed) {
        block  = launch->together ? ptx_run_together(blocks, num) :
                                    ptx_run_after(blocks, all);
        status = block->status;
        error[0] = '\0';
        if (status != CUEMU_PTX_OK) {
            snprintf(error, CUEMU_PTX_ERROR_SIZE,
                     "kernel %s, line %u, block %u,%u,%u, thread %u: %s 0x%llx",
                     kernel->name,
                     (block->insn != NULL) ? block->insn->line : 0,
                     block->ctaid[0], block->ctaid[1], block->ctaid[2],
                     block->thread, ptx_fault_name(status),
                     (unsigned long long)block->address);
        }
    }

    for (i = 0; (i < num) && (blocks != NULL); ++i) {
        free(blocks[i].groups);
        free(blocks[i].shared);
        free(blocks[i].memory);
    }
    free(blocks);
    fesetenv(&env);
    return status;
}
