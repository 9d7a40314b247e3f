/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Simulation of timed operations on shared links; cuemu_core.h describes the
 * model.
 *
 * Running copies with the same route and phase (set-up or moving) have equal
 * rates, so they form a class. The class counts the bytes received by each of
 * its members (`served`). A member is finished when this count reaches its
 * value at the member's start plus the member's size. So a change of rates
 * updates the classes, not the single copies.
 *
 * Operations that wait for a time or a count of bytes are in pairing heaps,
 * linked inside the operations. An operation is in at most one heap.
 */

#include "cuemu_core.h"

#include <math.h>
#include <string.h>

#define CUEMU_NONE            UINT32_MAX
#define CUEMU_SIM_ALIGN       64ul
#define CUEMU_EDGES_PER_OP    4u

/* Units per byte of the heap keys of copies: integers compare exactly, and 2^63
   units are 2 PB through a route that is never idle. */
#define CUEMU_BYTE_SCALE      4096.0

/* Two classes per route: copies being set up, and copies moving bytes */
#define CUEMU_NUM_ROUTES      (CUEMU_NUM_PLACES * CUEMU_NUM_PLACES)
#define CUEMU_NUM_CLASSES     (2 * CUEMU_NUM_ROUTES)


typedef struct {
    cuemu_op_desc_t desc;
    uint32_t        generation;
    int32_t         state;
    int32_t         server;    /* SERVING: number of the serving owner */
    uint32_t        pending;   /* number of unfinished dependencies */
    uint32_t        waited;    /* a dependency was unfinished when it was
                                  added */
    uint32_t        in_setup;  /* RUNNING: its engine is being set up */
    uint32_t successors; /* list of edges */
    cuemu_time_t    submit;
    cuemu_time_t    earliest;
    cuemu_time_t    start;
    cuemu_time_t    end;

    /* links of the heap; `next` also those of the free and the due list */
    int64_t         key;
    uint64_t        order;     /* breaks ties: first come, first served */
    uint32_t        child;
    uint32_t        next;
    uint32_t        prev;      /* left sibling or parent */
} cuemu_op_t;

typedef struct {
    uint32_t successor;
    uint32_t next;
} cuemu_edge_t;

typedef struct {
    double       served;      /* byte count, advanced at `rate`; see the top of
                                 this file */
    double       rate;        /* bytes/s of each member */
    cuemu_time_t next_finish;
    uint32_t     heap;        /* members, ordered by the count at which they
                                 finish */
    uint32_t     count;
} cuemu_class_t;

struct cuemu_sim {
    uint32_t      max_ops;
    uint32_t      num_free;
    uint32_t      free_head;
    uint32_t      free_tail;
    uint32_t      num_edges_free;
    uint32_t      edge_free;
    uint32_t      due_head;
    uint32_t      due_tail;
    uint32_t      num_due;      /* operations DUE or SERVING */
    uint32_t      num_live;
    uint32_t      live[CUEMU_OWNERS]; /* of them, each owner's */
    uint32_t      time_heap;
    uint32_t      num_active;
    int32_t       rates_stale;
    uint64_t      order;
    cuemu_time_t  time;
    cuemu_time_t  flow_time;    /* time of the classes' `served` */
    uint64_t      ops_offset;
    uint64_t      edges_offset;
    uint16_t      active[CUEMU_NUM_CLASSES];
    cuemu_class_t classes[CUEMU_NUM_CLASSES];
    cuemu_node_t  node;
};


static size_t cuemu_sim_align(size_t size)
{
    return (size + CUEMU_SIM_ALIGN - 1) & ~(CUEMU_SIM_ALIGN - 1);
}

static cuemu_op_t *cuemu_sim_op(const cuemu_sim_t *sim, uint32_t index)
{
    return (cuemu_op_t*)((uintptr_t)sim + sim->ops_offset) + index;
}

static cuemu_edge_t *cuemu_sim_edge(const cuemu_sim_t *sim, uint32_t index)
{
    return (cuemu_edge_t*)((uintptr_t)sim + sim->edges_offset) + index;
}

static cuemu_op_id_t cuemu_sim_op_id(const cuemu_sim_t *sim, uint32_t index)
{
    return ((uint64_t)cuemu_sim_op(sim, index)->generation << 32) |
           ((uint64_t)index + 1);
}

/* Return the operation of an id; NULL if the id is 0 or invalid, or its slot is
   used by another operation now. */
static cuemu_op_t *cuemu_sim_op_find(const cuemu_sim_t *sim, cuemu_op_id_t id)
{
    uint32_t index = (uint32_t)id - 1;
    cuemu_op_t *op;

    if (((uint32_t)id == 0) || (index >= sim->max_ops)) {
        return NULL;
    }

    op = cuemu_sim_op(sim, index);
    return (op->generation == (uint32_t)(id >> 32)) ? op : NULL;
}

static uint32_t cuemu_sim_op_index(const cuemu_sim_t *sim, const cuemu_op_t *op)
{
    return (uint32_t)(op - cuemu_sim_op(sim, 0));
}


/* ----------------------------------------------------------------- heaps */

static int cuemu_heap_before(const cuemu_op_t *a, const cuemu_op_t *b)
{
    return (a->key != b->key) ? (a->key < b->key) : (a->order < b->order);
}

static uint32_t cuemu_heap_merge(cuemu_sim_t *sim, uint32_t a, uint32_t b)
{
    cuemu_op_t *op_a, *op_b;
    uint32_t tmp;

    if (a == CUEMU_NONE) {
        return b;
    } else if (b == CUEMU_NONE) {
        return a;
    }

    if (cuemu_heap_before(cuemu_sim_op(sim, b), cuemu_sim_op(sim, a))) {
        tmp = a;
        a   = b;
        b   = tmp;
    }

    op_a       = cuemu_sim_op(sim, a);
    op_b       = cuemu_sim_op(sim, b);
    op_b->prev = a;
    op_b->next = op_a->child;
    if (op_a->child != CUEMU_NONE) {
        cuemu_sim_op(sim, op_a->child)->prev = b;
    }
    op_a->child = b;
    return a;
}

static void cuemu_heap_insert(cuemu_sim_t *sim, uint32_t *root, uint32_t index,
                              int64_t key)
{
    cuemu_op_t *op = cuemu_sim_op(sim, index);

    op->key   = key;
    op->order = sim->order++;
    op->child = CUEMU_NONE;
    op->next  = CUEMU_NONE;
    op->prev  = CUEMU_NONE;
    *root     = cuemu_heap_merge(sim, *root, index);
}

/* Merge a list of sibling heaps into one: in pairs from left to right, then the
   results from right to left. */
static uint32_t cuemu_heap_gather(cuemu_sim_t *sim, uint32_t first)
{
    uint32_t pairs = CUEMU_NONE;
    uint32_t root  = CUEMU_NONE;
    uint32_t a, b, pair;

    while (first != CUEMU_NONE) {
        a     = first;
        b     = cuemu_sim_op(sim, a)->next;
        first = (b != CUEMU_NONE) ? cuemu_sim_op(sim, b)->next : CUEMU_NONE;

        cuemu_sim_op(sim, a)->next = CUEMU_NONE;
        if (b != CUEMU_NONE) {
            cuemu_sim_op(sim, b)->next = CUEMU_NONE;
        }
        pair                          = cuemu_heap_merge(sim, a, b);
        cuemu_sim_op(sim, pair)->next = pairs;
        pairs                         = pair;
    }

    while (pairs != CUEMU_NONE) {
        pair  = pairs;
        pairs = cuemu_sim_op(sim, pair)->next;

        cuemu_sim_op(sim, pair)->next = CUEMU_NONE;
        root                          = cuemu_heap_merge(sim, root, pair);
    }

    if (root != CUEMU_NONE) {
        cuemu_sim_op(sim, root)->prev = CUEMU_NONE;
        cuemu_sim_op(sim, root)->next = CUEMU_NONE;
    }
    return root;
}

static void cuemu_heap_remove(cuemu_sim_t *sim, uint32_t *root, uint32_t index)
{
    cuemu_op_t *op   = cuemu_sim_op(sim, index);
    uint32_t subtree = cuemu_heap_gather(sim, op->child);
    cuemu_op_t *prev;

    if (*root == index) {
        *root = subtree;
    } else {
        prev = cuemu_sim_op(sim, op->prev);
        if (prev->child == index) {
            prev->child = op->next;
        } else {
            prev->next = op->next;
        }
        if (op->next != CUEMU_NONE) {
            cuemu_sim_op(sim, op->next)->prev = op->prev;
        }
        *root = cuemu_heap_merge(sim, *root, subtree);
    }

    op->child = op->next = op->prev = CUEMU_NONE;
}


/* ----------------------------------------------------------------- flows */

static unsigned cuemu_class_index(const cuemu_op_t *op)
{
    return (op->in_setup ? CUEMU_NUM_ROUTES : 0) +
           (unsigned)(op->desc.src * CUEMU_NUM_PLACES + op->desc.dst);
}

static const cuemu_route_t *cuemu_class_route(const cuemu_sim_t *sim,
                                              unsigned cls)
{
    cls %= CUEMU_NUM_ROUTES;
    return &sim->node.routes[cls / CUEMU_NUM_PLACES][cls % CUEMU_NUM_PLACES];
}

/* Return the number of links occupied by a copy of the class; during set-up
   only the GPUs' own links. */
static int cuemu_class_num_links(const cuemu_sim_t *sim, unsigned cls)
{
    const cuemu_route_t *route = cuemu_class_route(sim, cls);

    return (cls < CUEMU_NUM_ROUTES) ? route->num_links : route->num_own_links;
}

/* Credit all running copies with the bytes moved since the last change. */
static void cuemu_flows_update(cuemu_sim_t *sim, cuemu_time_t now)
{
    double dt = (double)(now - sim->flow_time) / (double)CUEMU_PS_PER_SEC;
    uint32_t i;

    if (now > sim->flow_time) {
        for (i = 0; i < sim->num_active; ++i) {
            sim->classes[sim->active[i]].served +=
                    sim->classes[sim->active[i]].rate * dt;
        }
        sim->flow_time = now;
    }
}

/*
 * Divide the links by progressive filling: raise all rates equally until a link
 * is full, fix the rates of the copies on that link, and continue with the
 * others.
 */
static void cuemu_flows_share(cuemu_sim_t *sim)
{
    uint8_t fixed[CUEMU_NUM_CLASSES];
    uint32_t users[CUEMU_MAX_LINKS];
    double room[CUEMU_MAX_LINKS];
    uint8_t full[CUEMU_MAX_LINKS];
    int16_t used[CUEMU_MAX_LINKS];
    unsigned num_used  = 0;
    uint32_t unfixed   = sim->num_active;
    const cuemu_route_t *route;
    cuemu_class_t *cls;
    double share, best;
    uint32_t i;
    unsigned k;
    int l, num_links, is_full;

    memset(users, 0, sizeof(users[0]) * (size_t)sim->node.num_links);

    for (i = 0; i < sim->num_active; ++i) {
        fixed[i]  = 0;
        route     = cuemu_class_route(sim, sim->active[i]);
        num_links = cuemu_class_num_links(sim, sim->active[i]);
        for (l = 0; l < num_links; ++l) {
            if (users[route->links[l]] == 0) {
                used[num_used++]      = route->links[l];
                room[route->links[l]] =
                        sim->node.links[route->links[l]].capacity;
            }
            users[route->links[l]] += sim->classes[sim->active[i]].count;
        }
    }

    while (unfixed > 0) {
        best = INFINITY;
        for (k = 0; k < num_used; ++k) {
            if (users[used[k]] > 0) {
                share = room[used[k]] / users[used[k]];
                best  = (share < best) ? share : best;
            }
        }

        for (k = 0; k < num_used; ++k) {
            full[used[k]] = (users[used[k]] > 0) &&
                            (room[used[k]] / users[used[k]] <=
                             best * (1.0 + 1e-12));
        }

        for (i = 0; i < sim->num_active; ++i) {
            if (fixed[i]) {
                continue;
            }

            route     = cuemu_class_route(sim, sim->active[i]);
            num_links = cuemu_class_num_links(sim, sim->active[i]);
            is_full   = 0;
            for (l = 0; l < num_links; ++l) {
                is_full |= full[route->links[l]];
            }
            if (!is_full) {
                continue;
            }

            cls       = &sim->classes[sim->active[i]];
            cls->rate = best;
            fixed[i]  = 1;
            --unfixed;
            for (l = 0; l < num_links; ++l) {
                users[route->links[l]] -= cls->count;
                room[route->links[l]]  -= best * cls->count;
                if (room[route->links[l]] < 0) {
                    room[route->links[l]] = 0;
                }
            }
        }
    }
}

static void cuemu_flows_renew(cuemu_sim_t *sim)
{
    cuemu_class_t *cls;
    double left, ps;
    uint32_t i;

    if (!sim->rates_stale) {
        return;
    }

    cuemu_flows_share(sim);
    for (i = 0; i < sim->num_active; ++i) {
        cls  = &sim->classes[sim->active[i]];
        left = (double)cuemu_sim_op(sim, cls->heap)->key / CUEMU_BYTE_SCALE -
               cls->served;
        ps   = ceil(left / cls->rate * (double)CUEMU_PS_PER_SEC);

        cls->next_finish = sim->flow_time;
        if (ps > 0) {
            cls->next_finish += (ps < 9e18 - (double)sim->flow_time) ?
                                (cuemu_time_t)ps :
                                (CUEMU_TIME_INF - 1 - sim->flow_time);
        }
    }
    sim->rates_stale = 0;
}

static void cuemu_flow_join(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_op_t *op             = cuemu_sim_op(sim, index);
    unsigned ci                = cuemu_class_index(op);
    cuemu_class_t *cls         = &sim->classes[ci];
    const cuemu_route_t *route = cuemu_class_route(sim, ci);
    double amount              = (double)op->desc.bytes;
    cuemu_time_t setup;

    if (op->in_setup) {
        setup  = cuemu_route_setup(route, op->desc.bytes);
        setup += (op->desc.flags & CUEMU_OP_PULLED) ? sim->node.cost.pull : 0;
        amount = route->own_rate * ((double)setup / (double)CUEMU_PS_PER_SEC);
    }

    cuemu_flows_update(sim, sim->time);
    if (cls->count++ == 0) {
        cls->served                    = 0;
        cls->rate                      = 0;
        sim->active[sim->num_active++] = (uint16_t)ci;
    }

    cuemu_heap_insert(sim, &cls->heap, index,
                      (int64_t)((cls->served + amount) * CUEMU_BYTE_SCALE));
    sim->rates_stale = 1;
}

static void cuemu_flow_leave(cuemu_sim_t *sim, uint32_t index)
{
    unsigned ci        = cuemu_class_index(cuemu_sim_op(sim, index));
    cuemu_class_t *cls = &sim->classes[ci];
    uint32_t i;

    cuemu_flows_update(sim, sim->time);
    cuemu_heap_remove(sim, &cls->heap, index);
    if (--cls->count == 0) {
        for (i = 0; sim->active[i] != ci; ++i)
            ;
        sim->active[i] = sim->active[--sim->num_active];
    }
    sim->rates_stale = 1;
}


/* ----------------------------------------------------- life of operations */

static void cuemu_op_recycle(cuemu_sim_t *sim, uint32_t index)
{
    /* at the end of the queue: the times of recent operations stay readable */
    cuemu_sim_op(sim, index)->next = CUEMU_NONE;
    if (sim->free_tail == CUEMU_NONE) {
        sim->free_head = index;
    } else {
        cuemu_sim_op(sim, sim->free_tail)->next = index;
    }
    sim->free_tail = index;
    ++sim->num_free;
}

static void cuemu_op_set_timer(cuemu_sim_t *sim, uint32_t index, int state,
                               cuemu_time_t when)
{
    cuemu_sim_op(sim, index)->state = state;
    cuemu_heap_insert(sim, &sim->time_heap, index, when);
}

/* Count an operation that begins (1) or is done (-1). */
static void cuemu_op_count(cuemu_sim_t *sim, const cuemu_op_t *op, int change)
{
    sim->num_live             += change;
    sim->live[op->desc.owner] += change;
}

static cuemu_time_t cuemu_time_max(cuemu_time_t a, cuemu_time_t b)
{
    return (a > b) ? a : b;
}

/* Queue an operation whose last dependency has just been done. It starts at its
   `earliest` time, or now if that has passed; after a wait for another stream,
   not before cost.cross_stream from now. */
static void cuemu_op_ready(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_op_t *op     = cuemu_sim_op(sim, index);
    cuemu_time_t start = sim->time;

    if (op->waited && (op->desc.flags & CUEMU_OP_CROSS_STREAM)) {
        start += sim->node.cost.cross_stream;
    }
    cuemu_op_set_timer(sim, index, CUEMU_OP_STATE_QUEUED,
                       cuemu_time_max(start, op->earliest));
}

static void cuemu_op_done(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_op_t *op = cuemu_sim_op(sim, index);
    cuemu_edge_t *edge;
    uint32_t e, next;

    op->state = CUEMU_OP_STATE_DONE;
    op->end   = sim->time;
    cuemu_op_count(sim, op, -1);

    for (e = op->successors; e != CUEMU_NONE; e = next) {
        edge = cuemu_sim_edge(sim, e);
        next = edge->next;
        if (--cuemu_sim_op(sim, edge->successor)->pending == 0) {
            cuemu_op_ready(sim, edge->successor);
        }
        edge->next     = sim->edge_free;
        sim->edge_free = e;
        ++sim->num_edges_free;
    }
    op->successors = CUEMU_NONE;

    if (!(op->desc.flags & CUEMU_OP_HOLD)) {
        cuemu_op_recycle(sim, index);
    }
}

static void cuemu_op_land(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_op_t *op = cuemu_sim_op(sim, index);

    if (!(op->desc.flags & CUEMU_OP_NEEDS_SERVICE)) {
        cuemu_op_done(sim, index);
        return;
    }

    op->state = CUEMU_OP_STATE_DUE;
    op->next  = CUEMU_NONE;
    op->prev  = sim->due_tail;
    if (sim->due_tail == CUEMU_NONE) {
        sim->due_head = index;
    } else {
        cuemu_sim_op(sim, sim->due_tail)->next = index;
    }
    sim->due_tail = index;
    ++sim->num_due;
}

static void cuemu_op_unlink_due(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_op_t *op = cuemu_sim_op(sim, index);

    if (op->prev == CUEMU_NONE) {
        sim->due_head = op->next;
    } else {
        cuemu_sim_op(sim, op->prev)->next = op->next;
    }
    if (op->next == CUEMU_NONE) {
        sim->due_tail = op->prev;
    } else {
        cuemu_sim_op(sim, op->next)->prev = op->prev;
    }
    --sim->num_due;
}

static void cuemu_op_start(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_op_t *op = cuemu_sim_op(sim, index);
    const cuemu_route_t *route;

    op->start = sim->time;
    switch (op->desc.kind) {
    case CUEMU_OP_COPY:
        route        = cuemu_class_route(sim, cuemu_class_index(op));
        op->state    = CUEMU_OP_STATE_RUNNING;
        op->in_setup = !(op->desc.flags & CUEMU_OP_STREAMED) &&
                       (cuemu_route_setup(route, op->desc.bytes) > 0);
        cuemu_flow_join(sim, index);
        break;
    case CUEMU_OP_DELAY:
        cuemu_op_set_timer(sim, index, CUEMU_OP_STATE_RUNNING,
                           sim->time + op->desc.duration);
        break;
    default:
        cuemu_op_land(sim, index);
        break;
    }
}

/* End the present phase of a running copy: after its set-up its bytes begin to
   move, after its bytes it is LANDING. */
static void cuemu_flow_finish(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_op_t *op             = cuemu_sim_op(sim, index);
    const cuemu_route_t *route = cuemu_class_route(sim, cuemu_class_index(op));

    cuemu_flow_leave(sim, index);
    if (op->in_setup) {
        op->in_setup = 0;
        cuemu_flow_join(sim, index);
    } else {
        cuemu_op_set_timer(sim, index, CUEMU_OP_STATE_LANDING,
                           sim->time +
                           ((op->desc.flags & CUEMU_OP_STREAMED) ?
                            0 : route->complete));
    }
}

static void cuemu_op_timer(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_heap_remove(sim, &sim->time_heap, index);
    if (cuemu_sim_op(sim, index)->state == CUEMU_OP_STATE_QUEUED) {
        cuemu_op_start(sim, index);
    } else { /* a delay or a completion latency is over */
        cuemu_op_land(sim, index);
    }
}


/* ------------------------------------------------------------------- API */

size_t cuemu_sim_size(uint32_t max_ops)
{
    return cuemu_sim_align(sizeof(cuemu_sim_t)) +
           cuemu_sim_align(max_ops * sizeof(cuemu_op_t)) +
           cuemu_sim_align((size_t)max_ops * CUEMU_EDGES_PER_OP *
                           sizeof(cuemu_edge_t));
}

cuemu_status_t cuemu_sim_init(void *mem, size_t size, const cuemu_node_t *node,
                              uint32_t max_ops, cuemu_sim_t **sim_p)
{
    cuemu_sim_t *sim = mem;
    uint32_t i;

    if ((mem == NULL) || (node == NULL) || (max_ops == 0) ||
        (max_ops > (1u << 24)) || (size < cuemu_sim_size(max_ops)) ||
        (((uintptr_t)mem & (CUEMU_SIM_ALIGN - 1)) != 0)) {
        return CUEMU_ERR_INVALID;
    }

    memset(sim, 0, sizeof(*sim));
    sim->node           = *node;
    sim->max_ops        = max_ops;
    sim->ops_offset     = cuemu_sim_align(sizeof(*sim));
    sim->edges_offset   = sim->ops_offset +
                          cuemu_sim_align(max_ops * sizeof(cuemu_op_t));
    sim->time_heap      = CUEMU_NONE;
    sim->due_head       = CUEMU_NONE;
    sim->due_tail       = CUEMU_NONE;
    sim->free_head      = CUEMU_NONE;
    sim->free_tail      = CUEMU_NONE;
    sim->edge_free      = 0;
    sim->num_edges_free = max_ops * CUEMU_EDGES_PER_OP;

    for (i = 0; i < CUEMU_NUM_CLASSES; ++i) {
        sim->classes[i].heap = CUEMU_NONE;
    }
    for (i = 0; i < sim->num_edges_free; ++i) {
        cuemu_sim_edge(sim, i)->next = (i + 1 < sim->num_edges_free) ?
                                       (i + 1) : CUEMU_NONE;
    }
    for (i = 0; i < max_ops; ++i) {
        memset(cuemu_sim_op(sim, i), 0, sizeof(cuemu_op_t));
        cuemu_sim_op(sim, i)->state = CUEMU_OP_STATE_FREE;
        cuemu_op_recycle(sim, i);
    }

    *sim_p = sim;
    return CUEMU_OK;
}

const cuemu_node_t *cuemu_sim_node(const cuemu_sim_t *sim)
{
    return &sim->node;
}

static cuemu_status_t cuemu_op_desc_check(const cuemu_sim_t *sim,
                                          const cuemu_op_desc_t *desc,
                                          cuemu_time_t *launch_p)
{
    const cuemu_route_t *route;

    *launch_p = 0;
    if ((desc->owner < 0) || (desc->owner >= CUEMU_OWNERS)) {
        return CUEMU_ERR_INVALID;
    }

    switch (desc->kind) {
    case CUEMU_OP_COPY:
        if (desc->bytes > (1ull << 50)) {
            return CUEMU_ERR_INVALID;
        }
        route = cuemu_node_route(&sim->node, desc->src, desc->dst);
        if (route == NULL) {
            return CUEMU_ERR_NO_ROUTE;
        }
        *launch_p = (desc->flags & CUEMU_OP_STREAMED) ? 0 : route->launch;
        return CUEMU_OK;
    case CUEMU_OP_DELAY:
        return ((desc->duration >= 0) &&
                (desc->duration < CUEMU_TIME_INF / 4)) ? CUEMU_OK :
                                                         CUEMU_ERR_INVALID;
    case CUEMU_OP_MARK:
        return CUEMU_OK;
    default:
        return CUEMU_ERR_INVALID;
    }
}

cuemu_status_t cuemu_sim_op_add(cuemu_sim_t *sim, cuemu_time_t now,
                                const cuemu_op_desc_t *desc,
                                const cuemu_op_id_t *deps, unsigned num_deps,
                                cuemu_op_id_t *id_p)
{
    cuemu_time_t launch;
    cuemu_status_t status;
    cuemu_edge_t *edge;
    cuemu_op_t *op, *dep;
    uint32_t index, e;
    unsigned i;

    status = cuemu_op_desc_check(sim, desc, &launch);
    if (status != CUEMU_OK) {
        return status;
    }

    cuemu_sim_advance(sim, now);
    if ((sim->num_free == 0) || (sim->num_edges_free < num_deps)) {
        return CUEMU_ERR_FULL;
    }

    index          = sim->free_head;
    op             = cuemu_sim_op(sim, index);
    sim->free_head = op->next;
    if (sim->free_head == CUEMU_NONE) {
        sim->free_tail = CUEMU_NONE;
    }
    --sim->num_free;

    op->desc        = *desc;
    op->server      = -1;
    op->pending     = 0;
    op->successors  = CUEMU_NONE;
    op->submit      = cuemu_time_max(sim->time, desc->not_before);
    op->earliest    = op->submit + launch;
    op->start       = -1;
    op->end         = -1;
    op->state       = CUEMU_OP_STATE_WAITING;
    cuemu_op_count(sim, op, 1);
    if (++op->generation == 0) {
        op->generation = 1;
    }

    for (i = 0; i < num_deps; ++i) {
        dep = cuemu_sim_op_find(sim, deps[i]);
        if ((dep == NULL) || (dep == op) ||
            (dep->state == CUEMU_OP_STATE_DONE)) {
            continue;
        }

        e               = sim->edge_free;
        edge            = cuemu_sim_edge(sim, e);
        sim->edge_free  = edge->next;
        edge->successor = index;
        edge->next      = dep->successors;
        dep->successors = e;
        --sim->num_edges_free;
        ++op->pending;
    }

    op->waited = (op->pending > 0);
    if (op->pending == 0) {
        cuemu_op_ready(sim, index);
    }

    if (id_p != NULL) {
        *id_p = cuemu_sim_op_id(sim, index);
    }
    return CUEMU_OK;
}

/* Return the class with the next copy to finish, NULL if no copy runs. */
static cuemu_class_t *cuemu_sim_next_class(const cuemu_sim_t *sim)
{
    const cuemu_class_t *best = NULL;
    const cuemu_class_t *cls;
    uint32_t i;

    for (i = 0; i < sim->num_active; ++i) {
        cls = &sim->classes[sim->active[i]];
        if ((best == NULL) || (cls->next_finish < best->next_finish) ||
            ((cls->next_finish == best->next_finish) && (cls < best))) {
            best = cls;
        }
    }
    return (cuemu_class_t*)best;
}

cuemu_time_t cuemu_sim_advance(cuemu_sim_t *sim, cuemu_time_t t)
{
    cuemu_class_t *cls;
    cuemu_time_t when;

    for (;;) {
        cuemu_flows_renew(sim);
        cls  = cuemu_sim_next_class(sim);
        when = (sim->time_heap == CUEMU_NONE) ?
               CUEMU_TIME_INF :
               cuemu_sim_op(sim, sim->time_heap)->key;
        if ((cls != NULL) && (cls->next_finish <= when)) {
            when = cls->next_finish;
        } else {
            cls  = NULL;
        }

        if ((when == CUEMU_TIME_INF) || ((when > t) && (when > sim->time)) ||
            ((sim->num_due > 0) && (when > sim->time))) {
            break;
        }

        sim->time = cuemu_time_max(sim->time, when);
        if (cls != NULL) {
            cuemu_flow_finish(sim, cls->heap);
        } else {
            cuemu_op_timer(sim, sim->time_heap);
        }
    }

    if ((sim->num_due == 0) && (t > sim->time) && (t != CUEMU_TIME_INF)) {
        sim->time = t;
    }
    return sim->time;
}

cuemu_time_t cuemu_sim_time(const cuemu_sim_t *sim)
{
    return sim->time;
}

cuemu_time_t cuemu_sim_next(const cuemu_sim_t *sim)
{
    const cuemu_class_t *cls = cuemu_sim_next_class(sim);
    cuemu_time_t next        = CUEMU_TIME_INF;

    if (sim->num_due > 0) {
        return sim->time;
    }
    if (sim->time_heap != CUEMU_NONE) {
        next = cuemu_sim_op(sim, sim->time_heap)->key;
    }
    if ((cls != NULL) && (cls->next_finish < next)) {
        next = cls->next_finish;
    }
    return cuemu_time_max(next, sim->time);
}

unsigned cuemu_sim_num_due(const cuemu_sim_t *sim)
{
    return sim->num_due;
}

cuemu_op_id_t cuemu_sim_service(cuemu_sim_t *sim, int32_t server,
                                cuemu_op_desc_t *desc_p)
{
    uint32_t found = CUEMU_NONE;
    cuemu_op_t *op;
    uint32_t i;

    for (i = sim->due_head; i != CUEMU_NONE; i = op->next) {
        op = cuemu_sim_op(sim, i);
        if (op->desc.owner == server) {
            found = i;
            break;
        }
        if ((found == CUEMU_NONE) &&
            !(op->desc.flags & CUEMU_OP_OWNER_ONLY)) {
            found = i;
        }
    }
    if (found == CUEMU_NONE) {
        return 0;
    }

    op = cuemu_sim_op(sim, found);
    cuemu_op_unlink_due(sim, found);
    ++sim->num_due; /* an operation being served still stops the time */
    op->state  = CUEMU_OP_STATE_SERVING;
    op->server = server;
    if (desc_p != NULL) {
        *desc_p = op->desc;
    }
    return cuemu_sim_op_id(sim, found);
}

/* Remove an operation from the heap, list or count of its state, as it will
   never end by itself. The caller sets the new state. */
static void cuemu_op_withdraw(cuemu_sim_t *sim, uint32_t index)
{
    cuemu_op_t *op = cuemu_sim_op(sim, index);

    switch (op->state) {
    case CUEMU_OP_STATE_RUNNING:
        if (op->desc.kind == CUEMU_OP_COPY) {
            cuemu_flow_leave(sim, index);
            break;
        }
        /* fall through */
    case CUEMU_OP_STATE_QUEUED:
    case CUEMU_OP_STATE_LANDING:
        cuemu_heap_remove(sim, &sim->time_heap, index);
        break;
    case CUEMU_OP_STATE_DUE:
        cuemu_op_unlink_due(sim, index);
        break;
    case CUEMU_OP_STATE_SERVING:
        --sim->num_due;
        break;
    default:
        break;
    }
}

void cuemu_sim_suspend(cuemu_sim_t *sim, cuemu_op_id_t id)
{
    cuemu_op_t *op = cuemu_sim_op_find(sim, id);
    uint32_t index;

    if ((op != NULL) && (op->state == CUEMU_OP_STATE_SERVING) &&
        (op->desc.kind == CUEMU_OP_MARK)) {
        index = cuemu_sim_op_index(sim, op);
        cuemu_op_withdraw(sim, index);
        cuemu_op_set_timer(sim, index, CUEMU_OP_STATE_RUNNING,
                           sim->time + CUEMU_TIME_INF / 4);
    }
}

void cuemu_sim_put_off(cuemu_sim_t *sim, int32_t owner, cuemu_time_t until)
{
    cuemu_op_t *op;
    uint32_t i;

    for (i = 0; (i < sim->max_ops) && (sim->num_due > 0); ++i) {
        op = cuemu_sim_op(sim, i);
        if ((op->state == CUEMU_OP_STATE_DUE) && (op->desc.owner == owner) &&
            (op->desc.flags & CUEMU_OP_OWNER_ONLY)) {
            cuemu_op_withdraw(sim, i);
            cuemu_op_set_timer(sim, i, CUEMU_OP_STATE_LANDING, until);
        } else if ((op->state == CUEMU_OP_STATE_SERVING) &&
                   (op->server == owner)) {
            cuemu_op_withdraw(sim, i);
            cuemu_op_set_timer(sim, i, CUEMU_OP_STATE_LANDING,
                               sim->time + CUEMU_TIME_INF / 4);
        }
    }
}

void cuemu_sim_served(cuemu_sim_t *sim, cuemu_op_id_t id)
{
    cuemu_op_t *op = cuemu_sim_op_find(sim, id);

    /* a mark that runs was suspended, an operation that lands was put off */
    if ((op != NULL) && ((op->state == CUEMU_OP_STATE_SERVING) ||
                         (op->state == CUEMU_OP_STATE_LANDING) ||
                         ((op->state == CUEMU_OP_STATE_RUNNING) &&
                          (op->desc.kind == CUEMU_OP_MARK)))) {
        cuemu_op_withdraw(sim, cuemu_sim_op_index(sim, op));
        cuemu_op_done(sim, cuemu_sim_op_index(sim, op));
    }
}

void cuemu_sim_op_end(cuemu_sim_t *sim, cuemu_op_id_t id)
{
    cuemu_op_t *op = cuemu_sim_op_find(sim, id);

    if ((op != NULL) && (op->desc.kind == CUEMU_OP_DELAY) &&
        (op->state == CUEMU_OP_STATE_RUNNING)) {
        cuemu_op_timer(sim, cuemu_sim_op_index(sim, op));
        cuemu_flows_renew(sim);
    }
}

int cuemu_sim_owner_is_due(const cuemu_sim_t *sim, int32_t owner)
{
    const cuemu_op_t *op;
    uint32_t i;

    for (i = sim->due_head; i != CUEMU_NONE; i = op->next) {
        op = cuemu_sim_op(sim, i);
        if ((op->desc.owner == owner) &&
            (op->desc.flags & CUEMU_OP_OWNER_ONLY)) {
            return 1;
        }
    }
    return 0;
}

int cuemu_sim_op_done(const cuemu_sim_t *sim, cuemu_op_id_t id)
{
    const cuemu_op_t *op = cuemu_sim_op_find(sim, id);

    return (op == NULL) || (op->state == CUEMU_OP_STATE_DONE);
}

cuemu_op_state_t cuemu_sim_op_query(const cuemu_sim_t *sim, cuemu_op_id_t id,
                                    cuemu_time_t *submit_p,
                                    cuemu_time_t *start_p, cuemu_time_t *end_p)
{
    const cuemu_op_t *op = cuemu_sim_op_find(sim, id);

    if (submit_p != NULL) {
        *submit_p = (op == NULL) ? -1 : op->submit;
    }
    if (start_p != NULL) {
        *start_p = (op == NULL) ? -1 : op->start;
    }
    if (end_p != NULL) {
        *end_p = (op == NULL) ? -1 : op->end;
    }
    return (op == NULL) ? CUEMU_OP_STATE_FREE : (cuemu_op_state_t)op->state;
}

cuemu_time_t cuemu_sim_op_end_time(const cuemu_sim_t *sim, cuemu_op_id_t id)
{
    cuemu_time_t end;

    cuemu_sim_op_query(sim, id, NULL, NULL, &end);
    return end;
}

const cuemu_op_desc_t *cuemu_sim_op_desc(const cuemu_sim_t *sim,
                                         cuemu_op_id_t id)
{
    const cuemu_op_t *op = cuemu_sim_op_find(sim, id);

    return (op == NULL) ? NULL : &op->desc;
}

void cuemu_sim_op_release(cuemu_sim_t *sim, cuemu_op_id_t id)
{
    cuemu_op_t *op = cuemu_sim_op_find(sim, id);

    if ((op == NULL) || !(op->desc.flags & CUEMU_OP_HOLD)) {
        return;
    }

    op->desc.flags &= ~CUEMU_OP_HOLD;
    if (op->state == CUEMU_OP_STATE_DONE) {
        cuemu_op_recycle(sim, cuemu_sim_op_index(sim, op));
    }
}

static int cuemu_op_is_live(const cuemu_op_t *op)
{
    return (op->state != CUEMU_OP_STATE_FREE) &&
           (op->state != CUEMU_OP_STATE_DONE);
}

unsigned cuemu_sim_num_live(const cuemu_sim_t *sim, int32_t owner)
{
    return (owner < 0) ? sim->num_live : sim->live[owner];
}

/* Remove all edges to operations of the owner, in one pass. */
static void cuemu_sim_forget_waiting(cuemu_sim_t *sim, int32_t owner)
{
    cuemu_op_t *op, *succ;
    cuemu_edge_t *edge;
    uint32_t i, e, *link;

    for (i = 0; i < sim->max_ops; ++i) {
        op = cuemu_sim_op(sim, i);
        if (!cuemu_op_is_live(op)) {
            continue;
        }

        link = &op->successors;
        while ((e = *link) != CUEMU_NONE) {
            edge = cuemu_sim_edge(sim, e);
            succ = cuemu_sim_op(sim, edge->successor);
            if (succ->desc.owner != owner) {
                link = &edge->next;
                continue;
            }

            --succ->pending;
            *link          = edge->next;
            edge->next     = sim->edge_free;
            sim->edge_free = e;
            ++sim->num_edges_free;
        }
    }
}

unsigned cuemu_sim_owner_purge(cuemu_sim_t *sim, int32_t owner)
{
    unsigned count = 0;
    cuemu_op_t *op;
    uint32_t i;

    cuemu_sim_forget_waiting(sim, owner);

    for (i = 0; i < sim->max_ops; ++i) {
        op = cuemu_sim_op(sim, i);
        if (op->state == CUEMU_OP_STATE_FREE) {
            continue;
        }

        if (op->desc.owner != owner) {
            if ((op->server == owner) &&
                ((op->state == CUEMU_OP_STATE_SERVING) ||
                 (op->state == CUEMU_OP_STATE_LANDING))) {
                cuemu_op_withdraw(sim, i);
                cuemu_op_land(sim, i); /* due again */
            }
            continue;
        }

        if (op->state == CUEMU_OP_STATE_DONE) {
            cuemu_sim_op_release(sim, cuemu_sim_op_id(sim, i));
            continue;
        }

        if ((op->state == CUEMU_OP_STATE_SERVING) && (op->server != owner)) {
            op->desc.flags &= ~CUEMU_OP_HOLD;
            continue; /* another process moves its bytes right now: let it
                         end */
        }

        cuemu_op_withdraw(sim, i);
        op->desc.flags &= ~CUEMU_OP_HOLD;
        cuemu_op_done(sim, i);
        ++count;
    }

    cuemu_flows_renew(sim);
    return count;
}

double cuemu_sim_op_rate(const cuemu_sim_t *sim, cuemu_op_id_t id)
{
    const cuemu_op_t *op = cuemu_sim_op_find(sim, id);

    if ((op == NULL) || (op->state != CUEMU_OP_STATE_RUNNING) ||
        (op->desc.kind != CUEMU_OP_COPY)) {
        return 0;
    }
    return sim->classes[cuemu_class_index(op)].rate;
}
