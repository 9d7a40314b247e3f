/* SPDX-License-Identifier: BSD-3-Clause */
/* Which trees an algorithm has on a node. */
#include <uct/cuda/collective/trees.h>

#include <uct/cuda/collective/links.h>
#include <ucs/sys/math.h>

#include <float.h>
#include <limits.h>
#include <string.h>


#define MAX_RANKS     UCT_CUDA_COLL_MAX_RANKS
#define NUM_RESOURCES UCT_CUDA_COLL_NUM_RESOURCES
#define DIRECT        UCT_CUDA_COLL_DIRECT

/* How often each tree is taken out and looked for again */
#define ROUNDS 12

/* A hop further from the root counts as so much of a link's load: trees that
 * are equal otherwise are to be low */
#define HOP 1e-3

/* Prices that differ by less are the same, so that trees do not hang on the
 * last digit of a bandwidth */
#define ROUNDING 1e-6

/* Links that a ring is tried over at most */
#define RING_TRIES 10000

typedef uct_cuda_coll_ranks_t ranks_t;
typedef uct_cuda_coll_tree_t  tree_t;
typedef uct_cuda_coll_trees_t trees_t;
typedef uct_cuda_coll_way_t   way_t;


/* What all trees together put on the links, seconds a byte of the whole */
typedef struct {
    const ranks_t *ranks;
    double slice;                         /* of the whole, a tree's */
    double capacity[NUM_RESOURCES];
    double load[NUM_RESOURCES];
    double worst;                         /* of the loads so far */
    unsigned start;                       /* ranks are tried from here on */
    way_t  ways[UCT_CUDA_COLL_MAX_MEMBERS][UCT_CUDA_COLL_MAX_MEMBERS];
} pack_t;


bool uct_cuda_coll_trees_is_switched(const ranks_t *ranks)
{
    const uct_cuda_topo_t *topo = ranks->topo;
    const uct_cuda_topo_link_t *link;
    unsigned i;

    if (ranks->num_ranks < 2) {
        return false;
    }

    link = &topo->links[ranks->gpus[0]][ranks->gpus[1]];
    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if ((link->limits[i] != UCT_CUDA_TOPO_NO_LIMIT) &&
            (topo->kinds[link->limits[i]] == UCT_CUDA_TOPO_LIMIT_NVLINK)) {
            return true;
        }
    }

    return false;
}

/* Roots of a collective are one rank, or all of them */
static unsigned root_of(const ranks_t *ranks, unsigned tree)
{
    return uct_cuda_coll_kind_has_root(ranks->kind) ? ranks->root :
                                                      tree % ranks->num_ranks;
}

static void go_direct(tree_t *tree)
{
    memset(tree->in_over, DIRECT, MAX_RANKS);
    memset(tree->out_over, DIRECT, MAX_RANKS);
}

void uct_cuda_coll_trees_star(const ranks_t *ranks, trees_t *trees)
{
    unsigned t, root;

    trees->algorithm  = UCT_CUDA_COLL_ONE_KERNEL;
    trees->in_turn    = false;
    trees->num_relays = 0;
    trees->count     = uct_cuda_coll_kind_has_root(ranks->kind) ?
                               1 :
                               ranks->num_ranks;
    for (t = 0; t < trees->count; ++t) {
        root                 = root_of(ranks, t);
        trees->trees[t].root = (uint8_t)root;
        memset(trees->trees[t].in, (int)root, MAX_RANKS);
        memset(trees->trees[t].out, (int)root, MAX_RANKS);
        go_direct(&trees->trees[t]);
    }
}

void uct_cuda_coll_trees_flat(const ranks_t *ranks, trees_t *trees)
{
    const unsigned num_ranks = ranks->num_ranks;
    unsigned middle;
    tree_t *tree;

    uct_cuda_coll_trees_star(ranks, trees);
    trees->algorithm = UCT_CUDA_COLL_FLAT;
    if (num_ranks <= 2) {
        return;
    } else if (!uct_cuda_coll_kind_has_root(ranks->kind)) {
        trees->in_turn = uct_cuda_coll_trees_is_switched(ranks);
        return;
    }

    for (trees->count = 0; trees->count < num_ranks - 1; ++trees->count) {
        tree       = &trees->trees[trees->count];
        middle     = (ranks->root + 1 + trees->count) % num_ranks;
        tree->root = ranks->root;
        memset(tree->in, (int)middle, MAX_RANKS);
        memset(tree->out, (int)middle, MAX_RANKS);
        go_direct(tree);
        tree->in[middle]       = ranks->root;
        tree->out[middle]      = ranks->root;
        tree->in[ranks->root]  = ranks->root;
        tree->out[ranks->root] = ranks->root;
    }
}

/* Ranks, and behind them relays */
static int gpu_of(const ranks_t *ranks, unsigned member)
{
    return (member < ranks->num_ranks) ?
                   ranks->gpus[member] :
                   ranks->relays[member - ranks->num_ranks];
}

static void init(pack_t *pack, const ranks_t *ranks, unsigned count)
{
    const unsigned num_members = ranks->num_ranks + ranks->num_relays;
    unsigned from, to;

    memset(pack, 0, sizeof(*pack));
    pack->ranks = ranks;
    pack->slice = (count > 0) ? 1. / count : 0;
    uct_cuda_coll_links_capacity(ranks->topo, ranks->memory, pack->capacity);
    for (from = 0; from < num_members; ++from) {
        for (to = 0; to < num_members; ++to) {
            uct_cuda_coll_links_direct(ranks->topo, gpu_of(ranks, from),
                                       gpu_of(ranks, to),
                                       &pack->ways[from][to]);
        }
    }
}

static void put_hop(pack_t *pack, unsigned from, unsigned to, double slice)
{
    const way_t *way = &pack->ways[from][to];
    unsigned i;
    int r;

    for (i = 0; i < way->count; ++i) {
        r              = way->resources[i];
        pack->load[r] += slice / pack->capacity[r];
        pack->worst    = ucs_max(pack->worst, pack->load[r]);
    }
}

static void put(pack_t *pack, unsigned from, unsigned to, uint8_t over,
                double slice)
{
    const unsigned relay = pack->ranks->num_ranks + over;

    if (over == DIRECT) {
        put_hop(pack, from, to, slice);
    } else {
        put_hop(pack, from, relay, slice);
        put_hop(pack, relay, to, slice);
    }
}

static void put_tree(pack_t *pack, const tree_t *tree, double slice)
{
    unsigned rank;

    for (rank = 0; rank < pack->ranks->num_ranks; ++rank) {
        if (rank == tree->root) {
            continue;
        }
        if (uct_cuda_coll_kind_reduces(pack->ranks->kind)) {
            put(pack, rank, tree->in[rank], tree->in_over[rank], slice);
        }
        if (uct_cuda_coll_kind_spreads(pack->ranks->kind)) {
            put(pack, tree->out[rank], rank, tree->out_over[rank], slice);
        }
    }
}

static double worst(const pack_t *pack)
{
    double most = 0;
    unsigned r;

    for (r = 0; r < NUM_RESOURCES; ++r) {
        most = ucs_max(most, pack->load[r]);
    }

    return most;
}

/* What another slice on a link costs: much more where it is full already. The
 * seventh power of loads tells the fullest, and sums still tell the others */
static double price_hop(const pack_t *pack, unsigned from, unsigned to)
{
    const way_t *way = &pack->ways[from][to];
    double sum       = 0;
    double after, power;
    unsigned i;
    int r;

    if (way->count == 0) {
        return DBL_MAX;
    }

    for (i = 0; i < way->count; ++i) {
        r      = way->resources[i];
        after  = (pack->load[r] + pack->slice / pack->capacity[r]) /
                 pack->worst;
        power  = after * after * after;
        sum   += power * power * after;
    }

    return sum;
}

/* ... by the cheapest way, which is over a relay only if that is less */
static double price(const pack_t *pack, unsigned from, unsigned to,
                    uint8_t *over_p)
{
    double best = price_hop(pack, from, to);
    double first, second;
    unsigned relay, i;

    *over_p = DIRECT;
    for (i = 0; i < pack->ranks->num_relays; ++i) {
        relay  = pack->ranks->num_ranks + i;
        first  = price_hop(pack, from, relay);
        second = price_hop(pack, relay, to);
        if ((first < DBL_MAX) && (second < DBL_MAX) &&
            (first + second + HOP < best * (1 - ROUNDING))) {
            best    = first + second + HOP;
            *over_p = (uint8_t)i;
        }
    }

    return best;
}

/* A tree that grows by the cheapest link. Inwards, links lead to the root */
static bool grow(pack_t *pack, unsigned root, bool is_in, unsigned max_depth,
                 uint8_t *parents, uint8_t *overs)
{
    const unsigned num_ranks = pack->ranks->num_ranks;
    unsigned depth[MAX_RANKS];
    uint32_t known = 1u << root;
    unsigned count, from, to, f, t, best_from = 0, best_to = 0;
    uint8_t over, best_over = DIRECT;
    double cost, best;

    memset(overs, DIRECT, MAX_RANKS);
    depth[root]   = 0;
    parents[root] = (uint8_t)root;
    for (count = 1; count < num_ranks; ++count) {
        best = DBL_MAX;
        for (f = 0; f < num_ranks; ++f) {
            from = (root + pack->start + f) % num_ranks;
            if (!(known & (1u << from)) || (depth[from] == max_depth)) {
                continue;
            }

            for (t = 0; t < num_ranks; ++t) {
                to = (from + pack->start + t) % num_ranks;
                if (known & (1u << to)) {
                    continue;
                }

                cost = is_in ? price(pack, to, from, &over) :
                               price(pack, from, to, &over);
                if (cost < DBL_MAX) {
                    cost += HOP * depth[from];
                }
                if (cost < best * (1 - ROUNDING)) {
                    best      = cost;
                    best_from = from;
                    best_to   = to;
                    best_over = over;
                }
            }
        }

        if (best == DBL_MAX) {
            return false;
        }

        known           |= 1u << best_to;
        depth[best_to]   = depth[best_from] + 1;
        parents[best_to] = (uint8_t)best_from;
        overs[best_to]   = best_over;
        if (is_in) {
            put(pack, best_to, best_from, best_over, pack->slice);
        } else {
            put(pack, best_from, best_to, best_over, pack->slice);
        }
    }

    return true;
}

static bool grow_tree(pack_t *pack, unsigned max_depth, tree_t *tree)
{
    const unsigned kind = pack->ranks->kind;

    return (!uct_cuda_coll_kind_reduces(kind) ||
            grow(pack, tree->root, true, max_depth, tree->in, tree->in_over)) &&
           (!uct_cuda_coll_kind_spreads(kind) ||
            grow(pack, tree->root, false, max_depth, tree->out,
                 tree->out_over));
}

/* Before there are any loads: as if one slice were on every link */
static void init_worst(pack_t *pack)
{
    const unsigned num_members = pack->ranks->num_ranks +
                                 pack->ranks->num_relays;
    unsigned from, to, i;

    for (from = 0; from < num_members; ++from) {
        for (to = 0; to < num_members; ++to) {
            for (i = 0; i < pack->ways[from][to].count; ++i) {
                pack->worst = ucs_max(
                        pack->worst,
                        pack->slice / pack->capacity[pack->ways[from][to]
                                                             .resources[i]]);
            }
        }
    }
}

static unsigned hops(const uint8_t *parents, const uint8_t *overs,
                     unsigned rank, unsigned root)
{
    unsigned count = 0;

    for (; rank != root; rank = parents[rank]) {
        count += 1 + (overs[rank] != DIRECT);
    }

    return count;
}

/* Additions and copies that each byte's way is long, all trees together */
static unsigned length(const trees_t *trees, const ranks_t *ranks)
{
    unsigned sum = 0;
    const tree_t *tree;
    unsigned t, rank;

    for (t = 0; t < trees->count; ++t) {
        tree = &trees->trees[t];
        for (rank = 0; rank < ranks->num_ranks; ++rank) {
            if (uct_cuda_coll_kind_reduces(ranks->kind)) {
                sum += hops(tree->in, tree->in_over, rank, tree->root);
            }
            if (uct_cuda_coll_kind_spreads(ranks->kind)) {
                sum += hops(tree->out, tree->out_over, rank, tree->root);
            }
        }
    }

    return sum;
}

/* Look for trees from one start on; better ones than the best go there */
static bool pack_from(const ranks_t *ranks, unsigned start, unsigned count,
                      unsigned max_depth, double *least, unsigned *shortest,
                      trees_t *best)
{
    unsigned t, round, far;
    trees_t next = {
        .algorithm = UCT_CUDA_COLL_HIERARCHICAL, .count = count
    };
    pack_t pack;

    init(&pack, ranks, next.count);
    init_worst(&pack);
    pack.start = start;
    for (t = 0; t < next.count; ++t) {
        next.trees[t].root = (uint8_t)root_of(ranks, t);
        memset(next.trees[t].in, next.trees[t].root, MAX_RANKS);
        memset(next.trees[t].out, next.trees[t].root, MAX_RANKS);
        go_direct(&next.trees[t]);
        if (!grow_tree(&pack, max_depth, &next.trees[t])) {
            return false;
        }
    }

    for (round = 0; round < ROUNDS; ++round) {
        pack.worst = worst(&pack);
        far        = length(&next, ranks);
        if ((pack.worst < *least * (1 - ROUNDING)) ||
            ((pack.worst < *least * (1 + ROUNDING)) && (far < *shortest))) {
            *least    = pack.worst;
            *shortest = far;
            *best     = next;
        }

        for (t = 0; t < next.count; ++t) {
            put_tree(&pack, &next.trees[t], -pack.slice);
            if (!grow_tree(&pack, max_depth, &next.trees[t])) {
                return false;
            }
        }
    }

    return true;
}

/* The relays that trees go over, numbered anew */
static void keep_relays(const ranks_t *ranks, trees_t *trees)
{
    uint8_t number[256];
    unsigned t, i;
    uint8_t *over;
    int gpu;

    memset(number, DIRECT, sizeof(number));
    trees->num_relays = 0;
    for (t = 0; t < trees->count; ++t) {
        for (i = 0; i < 2 * ranks->num_ranks; ++i) {
            over = (i < ranks->num_ranks) ?
                           &trees->trees[t].in_over[i] :
                           &trees->trees[t].out_over[i - ranks->num_ranks];
            if ((*over != DIRECT) && (number[*over] == DIRECT)) {
                gpu                                = ranks->relays[*over];
                number[*over]                      = trees->num_relays;
                trees->relays[trees->num_relays++] = (uint8_t)gpu;
            }
            *over = number[*over];
        }
    }
}

bool uct_cuda_coll_trees_pack(const ranks_t *ranks, unsigned per_rank,
                              unsigned max_depth, trees_t *trees)
{
    double least      = DBL_MAX;
    unsigned shortest = UINT_MAX;
    unsigned start;

    for (start = 0; start < ranks->num_ranks; ++start) {
        if (!pack_from(ranks, start, ranks->num_ranks * per_rank, max_depth,
                       &least, &shortest, trees)) {
            return false;
        }
    }

    keep_relays(ranks, trees);
    return true;
}

double uct_cuda_coll_trees_load(const ranks_t *ranks, const trees_t *trees)
{
    ranks_t used = *ranks;
    pack_t pack;
    unsigned t;

    used.num_relays = trees->num_relays;
    for (t = 0; t < trees->num_relays; ++t) {
        used.relays[t] = trees->relays[t];
    }

    init(&pack, &used, trees->count);
    for (t = 0; t < trees->count; ++t) {
        put_tree(&pack, &trees->trees[t], pack.slice);
    }

    return worst(&pack);
}


/* -------------------------------------------------------------------- ring */

/* Rings, and how often they pass from one rank to another */
typedef struct {
    const ranks_t *ranks;
    unsigned count;
    unsigned rings[UCT_CUDA_COLL_MAX_RINGS][MAX_RANKS];
    unsigned taken[MAX_RANKS][MAX_RANKS]; /* either way round */
    double   prices[MAX_RANKS][MAX_RANKS]; /* of one more; DBL_MAX: no link */
    double   cheapest;
    unsigned tries;                       /* that are left */
    unsigned next[MAX_RANKS];             /* a ring that is looked for ... */
    unsigned found[MAX_RANKS];            /* ... and the best so far */
    double   price;
} rings_t;


/* The narrower direction of a link, bytes/s */
static double bandwidth(const ranks_t *ranks, unsigned a, unsigned b)
{
    const int from = ranks->gpus[a];
    const int to   = ranks->gpus[b];

    return (from == to) ? ranks->memory / 2 :
                          ucs_min(ranks->topo->links[from][to].bandwidth,
                                  ranks->topo->links[to][from].bandwidth);
}

static void take(rings_t *rings, const unsigned *ring, int times)
{
    const unsigned num_ranks = rings->ranks->num_ranks;
    unsigned i, a, b;

    for (i = 0; i < num_ranks; ++i) {
        a                   = ring[i];
        b                   = ring[(i + 1) % num_ranks];
        rings->taken[a][b] += (unsigned)times;
        rings->taken[b][a] += (unsigned)times;
    }
}

/* As of trees: what is full already costs much more */
static void set_prices(rings_t *rings)
{
    const unsigned num_ranks = rings->ranks->num_ranks;
    double widest            = 0;
    double after, power;
    unsigned a, b;

    for (a = 0; a < num_ranks; ++a) {
        for (b = 0; b < a; ++b) {
            widest = ucs_max(widest, bandwidth(rings->ranks, a, b));
        }
    }

    rings->cheapest = DBL_MAX;
    for (a = 0; a < num_ranks; ++a) {
        for (b = 0; b < a; ++b) {
            after               = bandwidth(rings->ranks, a, b);
            after               = (after > 0) ? widest / after : 0;
            after              *= rings->taken[a][b] + 1;
            power               = after * after * after;
            power              *= power * after;
            rings->prices[a][b] = (after > 0) ? power : DBL_MAX;
            rings->prices[b][a] = rings->prices[a][b];
            rings->cheapest     = ucs_min(rings->cheapest,
                                          rings->prices[a][b]);
        }
    }
}

/* Go on from the last of so many ranks by each link; the cheapest ring stays */
static void close_ring(rings_t *rings, unsigned count, double price,
                       uint32_t known)
{
    const unsigned num_ranks = rings->ranks->num_ranks;
    const double *prices     = rings->prices[rings->next[count - 1]];
    const double rest        = rings->cheapest * (num_ranks - count);
    unsigned i, next;
    double sum;

    for (i = 1; (i <= num_ranks) && (rings->tries > 0); ++i) {
        next = (rings->next[count - 1] + i) % num_ranks;
        if ((prices[next] == DBL_MAX) ||
            ((count == num_ranks) ? (next != rings->next[0]) :
                                    ((known >> next) & 1))) {
            continue;
        }

        sum = price + prices[next];
        if (sum + rest >= rings->price * (1 - ROUNDING)) {
            continue;
        }

        --rings->tries;
        if (count < num_ranks) {
            rings->next[count] = next;
            close_ring(rings, count + 1, sum, known | (1u << next));
        } else {
            rings->price = sum;
            memcpy(rings->found, rings->next, sizeof(rings->found));
        }
    }
}

static bool find_ring(rings_t *rings, unsigned *ring)
{
    set_prices(rings);
    rings->tries   = RING_TRIES;
    rings->price   = DBL_MAX;
    rings->next[0] = 0;
    close_ring(rings, 1, 0, 1);
    memcpy(ring, rings->found, sizeof(rings->found));
    return rings->price < DBL_MAX;
}

/* Chains of each rank around a ring, one each way round */
static void follow_ring(const ranks_t *ranks, const unsigned *ring,
                        tree_t *trees)
{
    const unsigned num_ranks = ranks->num_ranks;
    unsigned i, root, rank, next, back;
    tree_t *tree;

    for (root = 0; root < 2 * num_ranks; ++root) {
        tree       = &trees[root];
        tree->root = (uint8_t)(root % num_ranks);
        for (i = 0; i < num_ranks; ++i) {
            rank            = ring[i];
            next            = ring[(i + 1) % num_ranks];
            back            = ring[(i + num_ranks - 1) % num_ranks];
            tree->in[rank]  = (uint8_t)((root < num_ranks) ? next : back);
            tree->out[rank] = (uint8_t)((root < num_ranks) ? back : next);
        }
        tree->in[tree->root]  = tree->root;
        tree->out[tree->root] = tree->root;
        go_direct(tree);
    }

    if (uct_cuda_coll_kind_has_root(ranks->kind)) {
        trees[0] = trees[ranks->root];
        trees[1] = trees[ranks->root + num_ranks];
    }
}

static void follow_rings(const rings_t *rings, trees_t *trees)
{
    const ranks_t *ranks  = rings->ranks;
    const unsigned chains = uct_cuda_coll_kind_has_root(ranks->kind) ?
                                    2 :
                                    2 * ranks->num_ranks;
    tree_t around[2 * MAX_RANKS];
    unsigned i;

    trees->algorithm  = UCT_CUDA_COLL_RING;
    trees->num_relays = 0;
    trees->in_turn    = false;
    trees->count      = rings->count * chains;
    for (i = 0; i < rings->count; ++i) {
        follow_ring(ranks, rings->rings[i], around);
        memcpy(&trees->trees[i * chains], around, chains * sizeof(around[0]));
    }
}

bool uct_cuda_coll_trees_ring(const ranks_t *ranks, unsigned count,
                              trees_t *trees)
{
    rings_t rings = {.ranks = ranks, .count = count};
    double least  = DBL_MAX;
    trees_t next;
    unsigned round, i;
    double load;

    if ((count == 0) || (count > UCT_CUDA_COLL_MAX_RINGS) ||
        (2 * count * ranks->num_ranks > UCT_CUDA_COLL_MAX_TREES)) {
        return false;
    }

    for (round = 0; round < ROUNDS; ++round) {
        for (i = 0; i < count; ++i) {
            if (round > 0) {
                take(&rings, rings.rings[i], -1);
            }
            if (!find_ring(&rings, rings.rings[i])) {
                return false;
            }
            take(&rings, rings.rings[i], 1);
        }

        follow_rings(&rings, &next);
        load = uct_cuda_coll_trees_load(ranks, &next);
        if (load < least * (1 - ROUNDING)) {
            least  = load;
            *trees = next;
        }
    }

    return true;
}
