/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Random collectives, each run twice: on host memory, by the MPI alone, and on
 * memory of any kind, different on each rank. Both must leave the same bytes.
 * Gaps of datatypes, the bytes around the buffers and send buffers must stay as
 * they were.
 */
#include "collectives.h"
#include "gpu.h"
#include "on_gpus.h"
#include "util.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLL_GUARD   256
#define COLL_SLACK   ((size_t)1 << 18)
#define COLL_OFFSETS 64
#define COLL_ARENAS  (UCX_MP_MEM_LAST + 2) /* each kind's, and a GPU's */

/* A communicator, and world ranks of its local or remote group */
typedef struct {
    const char *name;
    MPI_Comm   comm;
    bool       is_inter, is_neighbor;
    bool       is_first; /* of the two groups */
    int        rank, local, sources, targets;
    int        least; /* minimum of ranks in every communicator of this name */
    int        local_id[COLL_MAX_RANKS];
    int        source_id[COLL_MAX_RANKS]; /* -1: MPI_PROC_NULL */
    int        target_id[COLL_MAX_RANKS];
} group_t;

/* One side's bytes: initial, expected, and received ones */
typedef struct {
    ucx_mp_mem_t mem;
    uint8_t      *arena[COLL_ARENAS];
    uint8_t      *tried;
    uint8_t      *before, *host, *after, *mask, *where;
    size_t       span, origin; /* bytes; target of the MPI's pointer */
    bool         is_null;
    bool         is_scattered; /* blocks lie in several arenas, at the same
                                  offset in each */
    uint8_t      block_arena[COLL_MAX_BLOCKS];
    coll_type_t  twins[2]; /* of the type and its base, in this case */
} section_t;

#define COLL_MAX_GROUPS 8

static group_t groups[COLL_MAX_GROUPS];
static int num_groups;
static section_t sections[2];
static int world_rank, world_size;
static long coll_calls_wanted = 1000, coll_first;
static uint64_t coll_seed = 1;
static size_t coll_max_size = (size_t)1 << 20;
static ucx_mp_mem_t coll_mem = UCX_MP_MEM_LAST; /* any */
static int coll_only = -1; /* the call to draw; -1: any */
static unsigned coll_alike;    /* percent, see draw_call() */
static unsigned coll_scattered; /* percent of buffers of derived types */
static unsigned coll_on_gpus;  /* percentage of such calls to require */
static bool coll_is_mpich_cuda; /* see is_overwritten() */
static bool coll_verbose;
static bool coll_has_later = true; /* draw calls with a request, too */
static unsigned coll_pause; /* seconds that rank 1 waits before the last call */
static bool coll_is_late; /* this is the last call */
static long coll_later; /* calls in forms other than COLL_NOW or COLL_LARGE */

static const char *const coll_form_names[] = {"", " (large)", " (later)",
                                              " (large, later)"};


/* ---------------------------------------------------------- communicators */

static void group_ids(MPI_Group group, int count, const int *ranks, int *ids)
{
    MPI_Group world;
    int i, rank;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (i = 0; i < count; ++i) {
        rank   = (ranks == NULL) ? i : ranks[i];
        ids[i] = -1;
        if (rank != MPI_PROC_NULL) {
            MPI_Group_translate_ranks(group, 1, &rank, world, &ids[i]);
        }
    }
    MPI_Group_free(&world);
}

static group_t *group_add(const char *name, MPI_Comm comm)
{
    group_t *group = &groups[num_groups++];
    MPI_Group members;
    int is_inter;

    group->name = name;
    group->comm = comm;
    MPI_Comm_rank(comm, &group->rank);
    MPI_Comm_size(comm, &group->local);
    MPI_Allreduce(&group->local, &group->least, 1, MPI_INT, MPI_MIN,
                  MPI_COMM_WORLD);
    MPI_Comm_test_inter(comm, &is_inter);
    group->is_inter = is_inter;
    MPI_Comm_group(comm, &members);
    group_ids(members, group->local, NULL, group->local_id);
    if (is_inter) {
        MPI_Group_free(&members);
        MPI_Comm_remote_size(comm, &group->sources);
        MPI_Comm_remote_group(comm, &members);
    } else {
        group->sources = group->local;
    }

    group->targets = group->sources;
    group_ids(members, group->sources, NULL, group->source_id);
    group_ids(members, group->targets, NULL, group->target_id);
    MPI_Group_free(&members);
    return group;
}

static void group_neighbors(const char *name, MPI_Comm comm, int sources,
                            const int *source, int targets, const int *target)
{
    group_t *group = group_add(name, comm);
    MPI_Group members;

    group->is_neighbor = true;
    group->sources     = sources;
    group->targets     = targets;
    MPI_Comm_group(comm, &members);
    group_ids(members, sources, source, group->source_id);
    group_ids(members, targets, target, group->target_id);
    MPI_Group_free(&members);
}

static void groups_init(void)
{
    const int half = (world_size + 1) / 2, weight = 1;
    int dims[2] = {0, 0}, periods[2] = {0, 1}, near[4], next, last, i;
    MPI_Comm part, comm;

    group_add("world", MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm);
    group_add("reversed", comm);
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comm);
    group_add("odd and even", comm);
    group_add("self", MPI_COMM_SELF);

    if (world_size > 1) {
        MPI_Comm_split(MPI_COMM_WORLD, world_rank < half, world_rank, &part);
        MPI_Intercomm_create(part, 0, MPI_COMM_WORLD,
                             (world_rank < half) ? half : 0, 7, &comm);
        MPI_Comm_free(&part);
        group_add("between halves", comm)->is_first = world_rank < half;
    }

    MPI_Dims_create(world_size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &comm);
    for (i = 0; i < 2; ++i) {
        MPI_Cart_shift(comm, i, 1, &near[2 * i], &near[2 * i + 1]);
    }
    group_neighbors("grid", comm, 4, near, 4, near);

    next = (world_rank + 1) % world_size;
    last = (world_rank + world_size - 1) % world_size;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &last, &weight, 1, &next,
                                   &weight, MPI_INFO_NULL, 0, &comm);
    group_neighbors("ring", comm, 1, &last, 1, &next);
}


/* --------------------------------------------------------------- the draw */

static coll_type_t draw_type, draw_base;
static bool draw_is_alike;

static int round_up(int value, int step)
{
    const int rest = ((value % step) + step) % step;

    return (rest == 0) ? value : value + step - rest;
}

/* Return the number of elements between two ranks, the same on both. */
static int draw_count(uint64_t seed, int from, int to, int max)
{
    const uint64_t random = ucx_mp_hash(seed + 64 * (from + 1) + to + 1);

    return ((random % 8 == 0) || (from < 0) || (to < 0)) ?
                   0 :
                   (int)(random / 8 % ((unsigned)max + 1));
}

/* Describe so many elements in one way: of the type or of its base. */
static void side_part(coll_side_t *side, int part, const coll_type_t *type,
                      int count)
{
    side->type[part]  = type;
    side->count[part] = count * (draw_type.elements / type->elements);
}

static void side_bounds(coll_side_t *side)
{
    const coll_type_t *type;
    bool is_empty = true;
    int part, low, high;

    side->low = side->high = 0;
    for (part = 0; part < side->parts; ++part) {
        type = side->type[part];
        if (side->count[part] == 0) {
            continue;
        }
        low  = side->displ[part] + type->low;
        high = side->displ[part] + (side->count[part] - 1) * type->extent +
               type->high;
        side->low  = (is_empty || (low < side->low)) ? low : side->low;
        side->high = (is_empty || (high > side->high)) ? high : side->high;
        is_empty   = false;
    }
}

/* Place the parts in any order, with gaps. */
static void side_place(coll_side_t *side, uint64_t *state)
{
    int order[COLL_MAX_RANKS];
    const coll_type_t *type;
    int at = 0, i, j, part;

    for (i = 0; i < side->parts; ++i) {
        j        = (int)ucx_mp_random_below(state, i + 1);
        order[i] = order[j];
        order[j] = i;
    }

    for (i = 0; i < side->parts; ++i) {
        part              = order[i];
        type              = side->type[part];
        side->displ[part] = round_up(at - type->low, type->extent);
        if (side->count[part] > 0) {
            at = side->displ[part] + (side->count[part] - 1) * type->extent +
                 type->high + (int)ucx_mp_random_below(state, 4);
        }
    }
}

/* Draw a side. `counts` has the elements exchanged with each of `ranks`. All
   ranks choose equally between elements of the type and of its base: the MPIs
   split a message by elements. */
static void side_draw(coll_side_t *side, coll_shape_t shape, int ranks,
                      const int *counts, bool is_base, uint64_t *state)
{
    const coll_type_t *type = is_base ? &draw_base : &draw_type;
    int i;

    memset(side, 0, sizeof(*side));
    side->is_used = true;
    side->parts   = (shape == COLL_ONE) ? 1 : ranks;
    side_part(side, 0, type, (ranks > 0) ? counts[0] : 0);
    for (i = 1; i < side->parts; ++i) {
        side_part(side, i, type, counts[i]);
        if (shape == COLL_TYPES) {
            type = (type == &draw_base) && (draw_type.max_count == 0) ?
                           &draw_type :
                           &draw_base;
        }
    }

    if (((shape == COLL_VECTOR) || (shape == COLL_TYPES)) && !draw_is_alike) {
        side_place(side, state);
    } else {
        for (i = 1; i < side->parts; ++i) {
            side->displ[i] = side->displ[i - 1] +
                             side->count[i - 1] * side->type[i - 1]->extent;
        }
    }

    side_bounds(side);
}

/* A reduction has one type on all ranks, so no side may choose */
static void draw_reduction(coll_draw_t *draw, const group_t *group, int max,
                           uint64_t seed, bool is_in_place)
{
    int all[COLL_MAX_RANKS];
    int i, total = 0, mine = max;

    if (draw->call->send == COLL_ONE) {
        total = max;
    } else {
        for (i = 0; i < group->local; ++i) {
            draw->counts[i] = (draw->call->send == COLL_EACH) ?
                                      max :
                                      draw_count(seed, i, 0, max);
            total += draw->counts[i];
        }
        mine = draw->counts[group->rank];
    }

    draw->result = mine;
    all[0]       = total;
    side_draw(&draw->send, COLL_ONE, 1, all, false, &seed);
    all[0] = is_in_place ? total : mine;
    side_draw(&draw->recv, COLL_ONE, 1, all, false, &seed);
}

/* Return the elements sent from one rank of the world to another. */
static int draw_between(const coll_call_t *call, uint64_t seed, int from,
                        int to, int max, bool is_in_place)
{
    const bool is_varied = (call->send == COLL_VECTOR) ||
                           (call->send == COLL_TYPES) ||
                           (call->recv == COLL_VECTOR);

    if (!is_varied) {
        return max;
    }

    if (call->flow == COLL_FROM_ROOT) {
        return draw_count(seed, 0, to, max);
    }

    if (call->send == COLL_ONE) {
        return draw_count(seed, from, 0, max);
    }

    return is_in_place && (to < from) ? draw_count(seed, to, from, max) :
                                        draw_count(seed, from, to, max);
}

/* Draw the numbers of elements to send and receive, by rank. */
static void draw_movement(coll_draw_t *draw, const group_t *group, int max,
                          uint64_t seed, bool is_in_place, uint64_t *state)
{
    const coll_call_t *call = draw->call;
    const bool is_crowded   = (draw_type.max_count != 0) &&
                              (max * world_size > draw_type.max_count);
    int sent[COLL_MAX_RANKS], got[COLL_MAX_RANKS];
    int i;

    for (i = 0; i < group->targets; ++i) {
        sent[i] = draw_between(call, seed, world_rank, group->target_id[i], max,
                               is_in_place);
    }
    for (i = 0; i < group->sources; ++i) {
        got[i] = draw_between(call, seed, group->source_id[i], world_rank, max,
                              is_in_place);
    }

    /* a sender of one piece has a count even without receivers */
    if ((call->send == COLL_ONE) && (group->targets == 0)) {
        sent[0] = 0;
    }
    side_draw(&draw->send, call->send, group->targets, sent,
              is_crowded || (seed >> 40 & 1), state);
    side_draw(&draw->recv, call->recv, group->sources, got,
              is_crowded || (seed >> 41 & 1), state);
}

static void draw_roles(coll_draw_t *draw, const group_t *group, uint64_t seed,
                       bool is_in_place)
{
    const int root = (int)(seed % (unsigned)group->local);
    const int far  = (int)(seed % (unsigned)group->sources);
    bool is_root, is_member = true;

    if (draw->call->flow == COLL_ALL) {
        if (is_in_place) {
            draw->send.is_used     = false;
            draw->send.is_in_place = true;
        }
        return;
    }

    draw->root = root;
    is_root    = (group->rank == root);
    if (group->is_inter) {
        is_member = (group->is_first == (bool)(seed >> 32 & 1));
        draw->root = is_member ? far : is_root ? MPI_ROOT : MPI_PROC_NULL;
        is_root    = is_root && !is_member;
    }

    if (draw->call->send == COLL_NONE) { /* a broadcast */
        draw->recv.is_used = is_member || is_root;
        return;
    }

    draw->send.is_used = (draw->call->flow == COLL_TO_ROOT) ? is_member :
                                                              is_root;
    draw->recv.is_used = (draw->call->flow == COLL_TO_ROOT) ? is_root :
                                                              is_member;
    if (is_in_place && is_root && (draw->call->flow == COLL_TO_ROOT)) {
        draw->send.is_used     = false;
        draw->send.is_in_place = true;
    } else if (is_in_place && is_root) {
        draw->recv.is_used     = false;
        draw->recv.is_in_place = true;
    }
}

static void draw_messages(coll_draw_t *draw, const group_t *group, int max,
                          uint64_t seed, uint64_t *state)
{
    const int step = (int)(seed % (unsigned)group->local);
    const bool is_replaced = (draw->call->send == COLL_NONE);
    const bool is_crowded  = (draw_type.max_count != 0) &&
                             (max > draw_type.max_count);

    draw->dest   = (group->rank + step) % group->local;
    draw->source = (group->rank + group->local - step) % group->local;
    side_draw(&draw->send, COLL_ONE, 1, &max,
              is_crowded || (!is_replaced && ucx_mp_random_below(state, 2)),
              state);
    side_draw(&draw->recv, COLL_ONE, 1, &max,
              is_crowded || (!is_replaced && ucx_mp_random_below(state, 2)),
              state);
    if (!is_replaced && (draw->recv.type[0] == &draw_base)) {
        /* room for more than arrives */
        draw->recv.count[0] += (int)ucx_mp_random_below(state, 5);
        side_bounds(&draw->recv);
    }
}

/* Draw a call, the same on all ranks of the world except for `state`. Random
   buffers seldom allow the GPUs to run a call, so some calls are drawn uniform:
   GPU memory on all ranks, predefined types, contiguous blocks, not empty */
static const group_t *draw_call(coll_draw_t *draw, uint64_t seed,
                                uint64_t *state)
{
    const coll_call_t *call;
    const coll_base_t *base;
    const group_t *group;
    uint64_t shared = ucx_mp_hash(seed);
    bool is_in_place, is_message;
    size_t bytes;
    int max, span;

    memset(draw, 0, sizeof(*draw));
    call       = &coll_calls[ucx_mp_random_below(&shared, coll_num_calls)];
    if (coll_only >= 0) {
        call = &coll_calls[coll_only];
    }
    draw->call = call;
    is_message    = (strncmp(call->name, "MPI_Sendrecv", 12) == 0);
    draw_is_alike = call->has_plan &&
                    (ucx_mp_random_below(&shared, 100) < coll_alike);
    do {
        group = &groups[ucx_mp_random_below(&shared, num_groups)];
    } while ((group->is_neighbor != call->is_neighbor) ||
             (draw_is_alike && (group->is_inter || (group->least < 2))) ||
             (group->is_inter && !call->has_inter) ||
             (group->is_inter && call->reduces && (world_size % 2 != 0)));
    draw->comm = group->comm;

    /* Exclude cases that Open MPI 4.1 or MPICH 4.0 get wrong in host memory:
       movement of pairs, derived types between two groups or of a single rank,
       types that interleave or begin before their origin in reductions,
       MPI_Reduce_scatter_block of derived types */
    do {
        base = &coll_bases[ucx_mp_random_below(&shared, coll_num_bases)];
    } while ((base->class == COLL_PAIR) && !call->reduces);
    is_in_place = call->has_in_place && !group->is_inter &&
                  (ucx_mp_random_below(&shared, 3) == 0);
    if (coll_is_mpich_cuda && call->reduces && (call->send != COLL_ONE)) {
        is_in_place = false; /* It fails with "memory ranges overlap" */
    }
    coll_type_base(&draw_base, base);
    if (call->reduces && ((base->class == COLL_PAIR) || draw_is_alike ||
                          ucx_mp_random_below(&shared, 2))) {
        coll_type_base(&draw_type, base);
        draw->op = coll_op_draw(base, &shared);
    } else if ((group->is_inter || (group->local == 1) || draw_is_alike) &&
               !call->reduces) {
        coll_type_base(&draw_type, base);
    } else {
        coll_type_draw(&draw_type, base,
                       !call->reduces                ? COLL_TYPE_KINDS :
                       (call->send == COLL_EACH) ? 1 :
                                                   COLL_TYPE_KINDS_PLAIN,
                       &shared);
        if (call->reduces) {
            draw->op     = coll_op_own(&draw_type);
            draw->is_own = true;
        }
    }

    span  = draw_type.high - draw_type.low;
    span  = (draw_type.extent > span) ? draw_type.extent : span;
    bytes = ucx_mp_random_size(&shared, 0, coll_max_size);
    if ((call->send != COLL_ONE) || (call->recv != COLL_ONE)) {
        bytes /= world_size;
    }
    max = (int)(bytes / (span * base->size));
    max = (draw_is_alike && (max == 0)) ? 1 : max;
    if ((draw_type.max_count != 0) && call->reduces) {
        max = draw_type.max_count / world_size;
    }

    if (is_message) {
        draw_messages(draw, group, max, shared, state);
    } else if (call->reduces) {
        draw_reduction(draw, group, max, shared, is_in_place);
    } else {
        draw_movement(draw, group, max, shared, is_in_place, state);
    }
    draw_roles(draw, group, shared, is_in_place);
    return group;
}


/* --------------------------------------------------------------- buffers */

static size_t arena_size(void)
{
    return 2 * coll_max_size + COLL_SLACK;
}

static ucx_mp_mem_t arena_mem(int arena)
{
    return (arena < UCX_MP_MEM_LAST) ? (ucx_mp_mem_t)arena :
                                       UCX_MP_MEM_DEVICE;
}

static void sections_init(void)
{
    int i, k;

    for (i = 0; i < 2; ++i) {
        for (k = 0; k < COLL_ARENAS; ++k) {
            sections[i].arena[k] = ucx_mp_mem_alloc(arena_mem(k), arena_size());
        }
        sections[i].where  = malloc(arena_size());
        sections[i].before = malloc(arena_size());
        sections[i].host   = malloc(arena_size());
        sections[i].after  = malloc(arena_size());
        sections[i].mask   = malloc(arena_size());
        if ((sections[i].before == NULL) || (sections[i].host == NULL) ||
            (sections[i].after == NULL) || (sections[i].mask == NULL) ||
            (sections[i].where == NULL)) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "out of memory");
        }
    }
}

/* Return whether MPICH 4.0 with CUDA writes too much. It runs sums in host
   memory if it cannot run them on a GPU, then copies too much into a receive
   buffer in GPU memory: in MPI_Reduce_scatter and _block all ranks' results,
   beyond the end; and in MPI_Reduce between groups, bytes never set, at the
   sender whose rank is the root's. */
static bool is_overwritten(const coll_draw_t *draw, const group_t *group)
{
    const coll_base_t *base = draw_base.base;
    const bool is_summed    = !draw->is_own && (base->class != COLL_PAIR) &&
                           (base->mpi != MPI_DOUBLE) &&
                           (base->mpi != MPI_C_DOUBLE_COMPLEX);

    if (!draw->call->reduces || is_summed) {
        return false;
    }

    return (draw->call->send == COLL_ONE) ?
                   group->is_inter && (draw->call->flow == COLL_TO_ROOT) &&
                           (group->rank == draw->root) :
                   !draw->send.is_in_place;
}

/* Put each block of the types into an arena of its own; only for types that are
   moved, since a reduction is told where blocks are. @return The side with such
   types. */
static coll_side_t section_scatter(section_t *section, const coll_side_t *side,
                                   const coll_draw_t *draw, uint64_t *state)
{
    coll_side_t scattered = *side;
    ptrdiff_t places[COLL_MAX_BLOCKS];
    int i;

    section->is_scattered = false;
    if ((coll_scattered == 0) || draw->call->reduces || !side->is_used ||
        !draw_type.is_derived ||
        (ucx_mp_random_below(state, 100) >= coll_scattered)) {
        return scattered;
    }

    section->is_scattered = true;
    for (i = 0; i < COLL_MAX_BLOCKS; ++i) {
        section->block_arena[i] = ucx_mp_random_below(state, COLL_ARENAS);
        places[i] = section->arena[section->block_arena[i]] -
                    section->arena[section->mem];
    }
    coll_type_scatter(&section->twins[0], &draw_type, places);
    coll_type_scatter(&section->twins[1], &draw_base, places);
    for (i = 0; i < side->parts; ++i) {
        scattered.type[i] =
                &section->twins[(side->type[i] == &draw_type) ? 0 : 1];
    }
    for (i = 0; i < COLL_ARENAS; ++i) {
        ucx_mp_mem_write(arena_mem(i),
                         section->arena[i] + (section->tried -
                                              section->arena[section->mem]),
                         section->before, section->span);
    }
    return scattered;
}

static void section_free(section_t *section)
{
    if (section->is_scattered) {
        coll_type_free(&section->twins[0]);
        coll_type_free(&section->twins[1]);
    }
}

static void section_fill(section_t *section, const coll_side_t *side,
                         const coll_base_t *base, bool is_host, uint64_t *state)
{
    const size_t elements = side->high - side->low + 2 * (COLL_GUARD /
                                                          base->size);

    section->mem     = ucx_mp_random_below(state, 2) ?
                               UCX_MP_MEM_DEVICE :
                               ucx_mp_random_below(state, UCX_MP_MEM_LAST);
    if (coll_mem != UCX_MP_MEM_LAST) {
        section->mem = coll_mem;
    }
    if (draw_is_alike) {
        section->mem = UCX_MP_MEM_DEVICE;
    }
    if (is_host) {
        section->mem = UCX_MP_MEM_HOST;
    }
    section->is_null = (side->high == side->low) &&
                       ucx_mp_random_below(state, 2);
    section->span    = elements * base->size;
    section->origin  = COLL_GUARD - side->low * (ptrdiff_t)base->size;
    section->tried   = section->arena[section->mem] +
                     base->size * ucx_mp_random_below(state, COLL_OFFSETS);
    if (section->span + COLL_OFFSETS * base->size > arena_size()) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%zu bytes are more than planned for",
                   section->span);
    }

    coll_base_fill(base, section->before, elements, state);
    memcpy(section->host, section->before, section->span);
    memset(section->mask, 0, section->span);
    ucx_mp_mem_write(section->mem, section->tried, section->before,
                     section->span);
}

/* Return the MPI's pointer: for the host, or for the tested memory. */
static void *section_pointer(const section_t *section, const coll_side_t *side,
                             bool is_host)
{
    if (side->is_in_place) {
        return MPI_IN_PLACE;
    }

    if (section->is_null && side->is_used) {
        return NULL;
    }

    return (is_host ? section->host : section->tried) + section->origin;
}

/* Mark bytes that MPI may have written: 1 in the mask; 2 for optional ones. A
   result in place may be shorter than the old contents, and MPI does not define
   the rest: Open MPI's rank 0 has all sums there when a count is 0. */
static void section_cover(section_t *section, const coll_side_t *side,
                          const coll_draw_t *draw)
{
    uint8_t *mask      = section->mask + COLL_GUARD;
    coll_side_t result = *side;
    size_t i;

    coll_side_cover(side, draw_base.base, NULL, mask);
    if ((side == &draw->recv) && draw->call->reduces &&
        (draw->result < side->count[0])) {
        for (i = 0; i < section->span - COLL_GUARD; ++i) {
            mask[i] *= 2;
        }
        result.count[0] = draw->result;
        coll_side_cover(&result, draw_base.base, NULL, mask);
    }
}

/* Return the number of wrong bytes in one arena; prints the first one's
   place. */
static size_t arena_check(const section_t *section, int arena,
                          const coll_draw_t *draw, const group_t *group,
                          const char *what, long number)
{
    const coll_base_t *base = draw_base.base;
    size_t wrong = 0, first = 0, i;
    uint8_t expected, mask;

#define MASK(_i) ((section->where[_i] == arena) ? section->mask[_i] : 0)
    ucx_mp_mem_read(arena_mem(arena), section->after,
                    section->arena[arena] + (section->tried -
                                             section->arena[section->mem]),
                    section->span);
    for (i = 0; i < section->span; ++i) {
        mask     = MASK(i);
        expected = mask ? section->host[i] : section->before[i];
        if ((section->after[i] != expected) &&
            ((mask != 2) || (section->after[i] != section->before[i])) &&
            (wrong++ == 0)) {
            first = i;
        }
    }

    if (wrong > 0) {
        fprintf(stderr, "ucx_mp_collectives: rank %d, call %ld, %s of %s "
                "(%s type of %d elements%s) on %s: %zu wrong bytes of %zu in "
                "the %s buffer (%s memory), the first at %zd%s: 0x%02x, not "
                "0x%02x\n", world_rank, number, draw->call->name, base->name,
                draw_type.is_derived ? "a derived" : "the", draw_type.elements,
                section->is_scattered ? ", scattered" : "", group->name, wrong,
                section->span - 2 * COLL_GUARD, what,
                ucx_mp_mem_names[arena_mem(arena)], first - COLL_GUARD,
                MASK(first) ? "" : ", which nobody may write",
                section->after[first],
                MASK(first) ? section->host[first] : section->before[first]);
    }

    return wrong;
}

static size_t section_check(section_t *section, const coll_side_t *side,
                            const coll_draw_t *draw, const group_t *group,
                            const char *what, long number)
{
    size_t wrong = 0;
    int arena;

    if (side->is_used) {
        section_cover(section, side, draw);
    }

    memset(section->where, section->mem, section->span);
    if (!section->is_scattered) {
        return arena_check(section, section->mem, draw, group, what, number);
    }

    coll_side_cover(side, draw_base.base, section->block_arena,
                    section->where + COLL_GUARD);
    for (arena = 0; arena < COLL_ARENAS; ++arena) {
        wrong += arena_check(section, arena, draw, group, what, number);
    }
    return wrong;
}

/* For one of MPI's calls: how often a rank made it, and how often on GPUs */
typedef struct {
    long parts, on_gpus;
} tally_t;

#define COLL_MAX_CALLS 32

static tally_t tallies[COLL_MAX_CALLS];

/* Complete two requests with one of the suitable calls, in any order. */
static int end_requests(MPI_Request *requests, uint64_t random)
{
    const unsigned way = random % 9;
    MPI_Status statuses[2];
    int is_done = 0, rc = MPI_SUCCESS, count, indices[2];

    switch (way) {
    case 0:
        return MPI_Waitall(2, requests, statuses);
    case 1:
        while ((rc == MPI_SUCCESS) && !is_done) {
            sched_yield();
            rc = MPI_Testall(2, requests, &is_done, statuses);
        }
        return rc;
    case 6: /* this one completes nothing, but reports when the bytes are
               there */
        while ((rc == MPI_SUCCESS) && !is_done) {
            sched_yield();
            rc = MPI_Request_get_status(requests[random / 8 % 2], &is_done,
                                        MPI_STATUS_IGNORE);
        }
        break;
    default:
        break;
    }

    /* one after the other; MPI_REQUEST_NULL and inactive requests have ended */
    for (is_done = 0; (rc == MPI_SUCCESS) && (is_done < 2);) {
        count = 0;
        sched_yield();
        switch (way) {
        case 3:
            rc = MPI_Waitany(2, requests, &count, MPI_STATUS_IGNORE);
            is_done += 1;
            break;
        case 4:
            rc = MPI_Testany(2, requests, indices, &count, statuses);
            is_done += count;
            break;
        case 5:
            rc = MPI_Waitsome(2, requests, &count, indices,
                              statuses);
            is_done += count;
            break;
        case 2:
            rc = MPI_Testsome(2, requests, &count, indices,
                              statuses);
            is_done += (count == MPI_UNDEFINED) ? 2 : count;
            break;
        case 7:
            rc = MPI_Test(&requests[is_done], &count, MPI_STATUS_IGNORE);
            is_done += count;
            break;
        default:
            rc = MPI_Wait(&requests[is_done++], MPI_STATUS_IGNORE);
        }
    }
    return rc;
}

/* Both directions at once */
static int call_later(const coll_draw_t *draws, coll_function_t function,
                      void *pointers[2][2], uint64_t random)
{
    MPI_Request requests[2];
    int way, rc = MPI_SUCCESS;

    for (way = 0; (way < 2) && (rc == MPI_SUCCESS); ++way) {
        rc = function(&draws[way], pointers[way][0], pointers[way][1],
                      &requests[way]);
    }
    return (rc == MPI_SUCCESS) ? end_requests(requests, random) : rc;
}

static int call_now(const coll_draw_t *draws, coll_function_t function,
                    void *pointers[2][2])
{
    int rc = draws->call->forms[COLL_NOW](&draws[0], pointers[0][0],
                                          pointers[0][1], NULL);

    if (coll_is_late) {
        sleep(coll_pause);
    }
    return (rc == MPI_SUCCESS) ?
                   function(&draws[1], pointers[1][0], pointers[1][1], NULL) :
                   rc;
}

/* Return the form of a call's second run. GPUs may run the first two. Open MPI
   4.1 hangs in MPI_Ialltoallv and w in place if two ranks exchange nothing.
   MPICH 4.0 completes MPI_Ibcast between groups at the root before it has read
   the buffer, and sometimes hangs in persistent calls, which are never
   drawn. */
static coll_form_t draw_form(const coll_draw_t *draw, bool is_inter,
                             uint64_t random)
{
    const bool is_now    = !coll_has_later || is_inter ||
                           (draw_is_alike && !draw->call->reduces) ||
                           ((draw->call->flow == COLL_ALL) &&
                            draw->send.is_in_place && (draw->recv.parts > 1));
    const unsigned forms = is_now ? COLL_LATER : COLL_FORM_LAST;
    coll_form_t form;

    do {
        form   = random % forms;
        random = ucx_mp_hash(random);
    } while (draw->call->forms[form] == NULL);
    return form;
}

/* Run one call twice. Returns whether it was right, and whether a buffer was in
   GPU memory. */
static bool try_call(long number, bool *is_gpu_p)
{
    const uint64_t seed = ucx_mp_hash(coll_seed + ((uint64_t)number << 20));
    uint64_t state      = ucx_mp_hash(seed + 1 + (unsigned)world_rank);
    const group_t *group;
    coll_draw_t draws[2]; /* for the host, and for the tested memory */
    coll_draw_t *draw = &draws[0];
    char text[MPI_MAX_ERROR_STRING];
    void *pointers[2][2];
    int way, rc, length;
    coll_form_t form;
    size_t wrong;
    tally_t *tally;
    long before;

    group = draw_call(draw, seed, &state);
    section_fill(&sections[0], &draw->send, draw_base.base, false, &state);
    section_fill(&sections[1], &draw->recv, draw_base.base,
                 coll_is_mpich_cuda && is_overwritten(draw, group), &state);
    draws[1]      = draws[0];
    draws[1].send = section_scatter(&sections[0], &draw->send, draw, &state);
    draws[1].recv = section_scatter(&sections[1], &draw->recv, draw, &state);
    for (way = 0; way < 2; ++way) {
        pointers[way][0] = section_pointer(&sections[0], &draw->send, way == 0);
        pointers[way][1] = section_pointer(&sections[1], &draw->recv, way == 0);
    }

    form = draw_form(draw, group->is_inter, ucx_mp_hash(seed + 5));
    if (coll_verbose) {
        fprintf(stderr, "rank %d, call %ld: %s%s of %s%s, %d and %d elements, "
                "root %d, on %s, %s and %s\n", world_rank, number,
                draw->call->name, coll_form_names[form], draw_base.base->name,
                draw_type.is_derived ? " (derived)" : "",
                draw->send.is_in_place ? -1 : draw->send.count[0],
                draw->recv.is_in_place ? -1 : draw->recv.count[0], draw->root,
                group->name, ucx_mp_mem_names[sections[0].mem],
                ucx_mp_mem_names[sections[1].mem]);
    }

    before = ucx_mp_on_gpus();
    rc     = (form < COLL_LATER) ?
                     call_now(draws, draw->call->forms[form], pointers) :
                     call_later(draws, draw->call->forms[form], pointers,
                                ucx_mp_hash(state));
    if (rc != MPI_SUCCESS) {
        MPI_Error_string(rc, text, &length);
        ucx_mp_die(UCX_MP_EXIT_WRONG, "call %ld: %s%s fails: %s", number,
                   draw->call->name, coll_form_names[form], text);
    }
    coll_later += (form >= COLL_LATER);

    tally           = &tallies[draw->call - coll_calls];
    if (form < COLL_LATER) {
        tally->parts   += 1;
        tally->on_gpus += ucx_mp_on_gpus() - before;
    }
    wrong  = section_check(&sections[0], &draw->send, draw, group, "send",
                           number);
    wrong += section_check(&sections[1], &draw->recv, draw, group, "receive",
                           number);
    *is_gpu_p = (draw->send.is_used &&
                 (sections[0].mem == UCX_MP_MEM_DEVICE)) ||
                (draw->recv.is_used && (sections[1].mem == UCX_MP_MEM_DEVICE));
    section_free(&sections[0]);
    section_free(&sections[1]);
    coll_type_free(&draw_type);
    return wrong == 0;
}

static int call_parse(const char *name)
{
    int i;

    for (i = 0; i < coll_num_calls; ++i) {
        if (strcmp(coll_calls[i].name, name) == 0) {
            return i;
        }
    }
    ucx_mp_die(UCX_MP_EXIT_USAGE, "--call: there is no %s", name);
}

static void parse(int argc, char **argv)
{
    static const char *call;
    static const ucx_mp_option_t options[] = {
        UCX_MP_NUMBER("calls", coll_calls_wanted, 1, 1 << 30, "N",
                      "number of calls"),
        UCX_MP_NUMBER("first", coll_first, 0, 1 << 30, "NUMBER",
                      "begin with this call of the sequence"),
        UCX_MP_NUMBER("seed", coll_seed, 0, 1 << 30, "N",
                      "seed of the random numbers"),
        UCX_MP_SIZE("max-size", coll_max_size, 0, (size_t)1 << 28,
                    "largest buffer, 256M at most"),
        UCX_MP_CHOICE("memory", coll_mem, ucx_mp_mem_names,
                      "memory of all buffers"),
        UCX_MP_TEXT("call", call, "MPI_NAME", "make only this call"),
        UCX_MP_NUMBER("alike", coll_alike, 0, 100, "PERCENT",
                      "share of calls that GPUs can carry out"),
        UCX_MP_NUMBER("on-gpus", coll_on_gpus, 0, 100, "PERCENT",
                      "share of each call that GPUs must carry out"),
        UCX_MP_NUMBER("scattered", coll_scattered, 0, 100, "PERCENT",
                      "share of types with data in several allocations"),
        UCX_MP_NUMBER("later", coll_has_later, 0, 1, "0",
                      "make no calls with a request"),
        UCX_MP_NUMBER("pause", coll_pause, 0, 60, "SECONDS",
                      "pause of rank 1 before the last call"),
        UCX_MP_NUMBER("mpich-cuda", coll_is_mpich_cuda, 0, 1, "1",
                      "omit calls with errors in MPICH with CUDA"),
        UCX_MP_NUMBER("verbose", coll_verbose, 0, 1, "1", "print every call"),
        {.name = NULL}
    };

    ucx_mp_parse_options(argc, argv, "Checks random collectives.", options);
    if (call != NULL) {
        coll_only = call_parse(call);
    }
}

/* Print for each call with a plan how often it ran on GPUs. @return Whether
   that was often enough. */
static bool tallies_print(void)
{
    tally_t all[COLL_MAX_CALLS];
    bool is_enough = true;
    int i;

    MPI_Allreduce(tallies, all, 2 * COLL_MAX_CALLS, MPI_LONG, MPI_SUM,
                  MPI_COMM_WORLD);
    for (i = 0; (world_rank == 0) && (i < coll_num_calls); ++i) {
        if (coll_calls[i].has_plan && (all[i].parts > 0)) {
            printf("%s: %ld of %ld times on GPUs\n", coll_calls[i].name,
                   all[i].on_gpus, all[i].parts);
            is_enough &= (all[i].on_gpus * 100 >=
                          all[i].parts * (long)coll_on_gpus);
        }
    }
    return is_enough;
}

int main(int argc, char **argv)
{
    bool is_enough;
    long mine[4] = {0, 0, 0, 0}, all[4];
    char why[256] = "";
    bool is_gpu;
    long i;

    ucx_mp_program = "ucx_mp_collectives";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&world_rank, &world_size);
    parse(argc, argv);
    if ((world_size > COLL_MAX_RANKS) ||
        (ucx_mp_gpu_init(world_rank, why, sizeof(why)) == 0)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs a GPU and no more than %d ranks: "
                   "%s", COLL_MAX_RANKS, why);
    }

    /* inherited by communicators made of these */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    groups_init();
    sections_init();
    for (i = 0; i < coll_calls_wanted; ++i) {
        coll_is_late = (i == coll_calls_wanted - 1) && (world_rank == 1);
        mine[1] += !try_call(coll_first + i, &is_gpu);
        mine[2] += is_gpu;
    }

    mine[3]   = ucx_mp_on_gpus();
    is_enough = tallies_print();
    MPI_Allreduce(mine, all, 4, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0) {
        printf("ucx_mp_collectives: %ld collectives, %ld of them with a "
               "request, %d ranks, %ld times a rank had a buffer in GPU "
               "memory, %ld times GPUs did its part, %ld wrong\n",
               coll_calls_wanted, coll_later, world_size, all[2], all[3],
               all[1]);
    }

    if (!is_enough) {
        fprintf(stderr, "ucx_mp_collectives: GPUs did less than %u %% of some "
                "call\n", coll_on_gpus);
    }

    MPI_Finalize();
    return ((all[1] > 0) || !is_enough) ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}
