/* SPDX-License-Identifier: BSD-3-Clause */
/* Construction of the trees of each algorithm. */
#include <uct/cuda/plan/trees.h>

#include <uct/cuda/plan/fair_share.h>
#include <ucs/sys/math.h>

#include <float.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>


#define MAX_RANKS     UCT_CUDA_PLAN_COLL_MAX_RANKS
#define MAX_GPUS      UCT_CUDA_MAX_GPUS
#define NUM_RESOURCES UCT_CUDA_PLAN_COLL_NUM_RESOURCES
#define DIRECT        UCT_CUDA_PLAN_COLL_DIRECT

/* Children of a rank: its kernel reads them and its own data */
#define MAX_CHILDREN (UCT_CUDA_PLAN_COLL_MAX_FAN - 1)

/* Times that each tree is removed and searched again */
#define ROUNDS 12

/* With more than THOROUGH_RANKS ranks a thorough search takes longer than most
 * programs can gain: its time grows with the fifth power of the ranks. Then
 * rounds and starts are limited to the QUICK ones, and several trees a rank to
 * QUICK_TREES in all. Ranks on shared GPUs use the trees of their GPUs: up to
 * LOW_DEPTH hops a GPU's other ranks are beside its first one in a tree, else
 * below it; beyond SHARED_DEPTH hops each rank has one tree. */
#define THOROUGH_RANKS 8
#define LOW_DEPTH      2
#define SHARED_DEPTH   3
#define QUICK_ROUNDS   3
#define QUICK_STARTS   2
#define QUICK_TREES    32

/* Price of a hop further from the root, relative to a link's load: prefers low
 * trees among equal ones */
#define HOP 1e-3

/* Smaller relative differences of price are rounding errors, so that the last
 * digit of a bandwidth does not change the trees */
#define ROUNDING 1e-6

typedef uct_cuda_plan_coll_ranks_t ranks_t;
typedef uct_cuda_plan_coll_tree_t  tree_t;
typedef uct_cuda_plan_coll_trees_t trees_t;
typedef uct_cuda_plan_share_way_t  way_t;


/* Mask of destination GPUs, for each source GPU */
typedef uint16_t link_set_t[MAX_GPUS];

_Static_assert(MAX_GPUS <= 16, "a bit each");


/* Load of the links by all trees, seconds for each byte of the data */
typedef struct {
    const ranks_t *ranks;
    int    gpus[UCT_CUDA_PLAN_COLL_MAX_MEMBERS];
    double shard;                         /* fraction of the data in a tree */
    double capacity[NUM_RESOURCES];
    double load[NUM_RESOURCES];
    double worst;                         /* largest load so far */
    unsigned start;                       /* first rank to try */
    way_t  ways[MAX_GPUS][MAX_GPUS];
    link_set_t users[NUM_RESOURCES];      /* links using each resource */
    link_set_t stale;                     /* links whose price is outdated */
    double prices[MAX_GPUS][MAX_GPUS];    /* prices, except for the unit */
    trees_t next;                         /* searched now */
} pack_t;


struct uct_cuda_plan_coll_search {
    pack_t  pack;
    trees_t among; /* of GPUs that ranks share */
};


uct_cuda_plan_coll_search_t *uct_cuda_plan_coll_search_create(void)
{
    return malloc(sizeof(uct_cuda_plan_coll_search_t));
}


double uct_cuda_plan_coll_trees_ports(const ranks_t *ranks)
{
    const uct_cuda_topo_t *topo = ranks->topo;
    const uct_cuda_topo_link_t *link;
    unsigned rank = 1;
    unsigned i;

    /* the first ranks may share a GPU */
    while ((rank < ranks->num_ranks) && (ranks->gpus[rank] == ranks->gpus[0])) {
        ++rank;
    }
    if (rank >= ranks->num_ranks) {
        return 0;
    }

    link = &topo->links[ranks->gpus[0]][ranks->gpus[rank]];
    for (i = 0; i < UCT_CUDA_TOPO_LINK_LIMITS; ++i) {
        if ((link->limits[i] != UCT_CUDA_TOPO_NO_LIMIT) &&
            (topo->kinds[link->limits[i]] == UCT_CUDA_TOPO_LIMIT_NVLINK)) {
            return link->bandwidth;
        }
    }

    return 0;
}

/* Return the root of a tree: the collective's root, or each rank in turn */
static unsigned root_of(const ranks_t *ranks, unsigned tree)
{
    return uct_cuda_coll_kind(ranks->kind)->has_root ? ranks->root :
                                                      tree % ranks->num_ranks;
}

static void go_direct(tree_t *tree)
{
    memset(tree->in_over, DIRECT, MAX_RANKS);
    memset(tree->out_over, DIRECT, MAX_RANKS);
}

void uct_cuda_plan_coll_trees_star(const ranks_t *ranks, trees_t *trees)
{
    unsigned t, root;

    trees->algorithm  = UCT_CUDA_PLAN_COLL_ONE_KERNEL;
    trees->rotates    = false;
    trees->num_relays = 0;
    trees->count     = uct_cuda_coll_kind(ranks->kind)->has_root ?
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

void uct_cuda_plan_coll_trees_flat(const ranks_t *ranks, trees_t *trees)
{
    const unsigned num_ranks = ranks->num_ranks;
    unsigned middle;
    tree_t *tree;

    uct_cuda_plan_coll_trees_star(ranks, trees);
    trees->algorithm = UCT_CUDA_PLAN_COLL_FLAT;
    if (num_ranks <= 2) {
        return;
    } else if (!uct_cuda_coll_kind(ranks->kind)->has_root) {
        trees->rotates = uct_cuda_plan_coll_trees_ports(ranks) > 0;
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

/* Return the GPU of a rank, or of a relay behind the ranks */
static int gpu_of(const ranks_t *ranks, unsigned member)
{
    return (member < ranks->num_ranks) ?
                   ranks->gpus[member] :
                   ranks->relays[member - ranks->num_ranks];
}

static void init_way(pack_t *pack, int from, int to)
{
    way_t *way = &pack->ways[from][to];
    unsigned i;

    uct_cuda_plan_coll_links_direct(pack->ranks->topo, from, to, way);
    for (i = 0; i < way->count; ++i) {
        pack->users[way->resources[i]][from] |= (uint16_t)(1u << to);
    }
}

static void init(pack_t *pack, const ranks_t *ranks, unsigned count)
{
    const unsigned num_members = ranks->num_ranks + ranks->num_relays;
    unsigned from, to;

    memset(pack, 0, sizeof(*pack));
    pack->ranks = ranks;
    pack->shard = (count > 0) ? 1. / count : 0;
    uct_cuda_plan_coll_links_capacity(ranks->topo, ranks->memory,
                                      pack->capacity);
    for (from = 0; from < num_members; ++from) {
        pack->gpus[from] = gpu_of(ranks, from);
    }
    for (from = 0; from < num_members; ++from) {
        for (to = 0; to < num_members; ++to) {
            init_way(pack, pack->gpus[from], pack->gpus[to]);
        }
    }
}

static void put_hop(pack_t *pack, unsigned from, unsigned to, double shard)
{
    const way_t *way = &pack->ways[pack->gpus[from]][pack->gpus[to]];
    unsigned i, gpu;
    int r;

    for (i = 0; i < way->count; ++i) {
        r              = way->resources[i];
        pack->load[r] += shard / pack->capacity[r];
        pack->worst    = ucs_max(pack->worst, pack->load[r]);
        for (gpu = 0; gpu < MAX_GPUS; ++gpu) {
            pack->stale[gpu] |= pack->users[r][gpu];
        }
    }
}

static void put(pack_t *pack, unsigned from, unsigned to, uint8_t over,
                double shard)
{
    const unsigned relay = pack->ranks->num_ranks + over;

    if (over == DIRECT) {
        put_hop(pack, from, to, shard);
    } else {
        put_hop(pack, from, relay, shard);
        put_hop(pack, relay, to, shard);
    }
}

static void put_tree(pack_t *pack, const tree_t *tree, double shard)
{
    unsigned rank;

    for (rank = 0; rank < pack->ranks->num_ranks; ++rank) {
        if (rank == tree->root) {
            continue;
        }
        if (uct_cuda_coll_kind(pack->ranks->kind)->reduces) {
            put(pack, rank, tree->in[rank], tree->in_over[rank], shard);
        }
        if (uct_cuda_coll_kind(pack->ranks->kind)->spreads) {
            put(pack, tree->out[rank], rank, tree->out_over[rank], shard);
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

static double seventh(double value)
{
    const double power = value * value * value;

    return power * power * value;
}

/* Return the price of another shard on a link, rising steeply with its load.
 * The seventh power brings out the fullest link, and sums still distinguish the
 * others. The unit is the load of the fullest link: see grow(). */
static double price_hop(pack_t *pack, unsigned from, unsigned to)
{
    const int a      = pack->gpus[from];
    const int b      = pack->gpus[to];
    const way_t *way = &pack->ways[a][b];
    double sum       = 0;
    unsigned i;
    int r;

    if ((pack->stale[a] >> b) & 1) {
        for (i = 0; i < way->count; ++i) {
            r    = way->resources[i];
            sum += seventh(pack->load[r] + pack->shard / pack->capacity[r]);
        }
        pack->prices[a][b] = (way->count > 0) ? sum : DBL_MAX;
        pack->stale[a] = (uint16_t)(pack->stale[a] & ~(1u << b));
    }

    return pack->prices[a][b];
}

/* Return the price of the cheapest way; a relay is used only if cheaper */
static double price(pack_t *pack, unsigned from, unsigned to, double unit,
                    uint8_t *over_p)
{
    double best = price_hop(pack, from, to);
    double first, second;
    unsigned relay, i;

    best    = (best < DBL_MAX) ? best * unit : DBL_MAX;
    *over_p = DIRECT;
    for (i = 0; i < pack->ranks->num_relays; ++i) {
        relay  = pack->ranks->num_ranks + i;
        first  = price_hop(pack, from, relay);
        second = price_hop(pack, relay, to);
        if ((first < DBL_MAX) && (second < DBL_MAX) &&
            ((first + second) * unit + HOP < best * (1 - ROUNDING))) {
            best    = (first + second) * unit + HOP;
            *over_p = (uint8_t)i;
        }
    }

    return best;
}

/* Cheapest link between a rank in the tree and one outside */
typedef struct {
    double   price; /* DBL_MAX: none */
    unsigned to;
    uint8_t  over;
} branch_t;


static unsigned wrap(unsigned rank, unsigned num_ranks)
{
    return (rank < num_ranks) ? rank : rank - num_ranks;
}

static void find_branch(pack_t *pack, unsigned from, bool is_in, uint32_t known,
                        double unit, branch_t *branch)
{
    const unsigned num_ranks = pack->ranks->num_ranks;
    const unsigned first     = wrap(from + pack->start, num_ranks);
    uint8_t over;
    unsigned t, to;
    double cost;

    branch->to    = from;
    branch->price = DBL_MAX;
    for (t = 0; t < num_ranks; ++t) {
        to = wrap(first + t, num_ranks);
        if ((known >> to) & 1) {
            continue;
        }

        cost = is_in ? price(pack, to, from, unit, &over) :
                       price(pack, from, to, unit, &over);
        if (cost < branch->price * (1 - ROUNDING)) {
            branch->price = cost;
            branch->to    = to;
            branch->over  = over;
        }
    }
}

/* Return whether a branch is still the cheapest; others have not become cheaper
 * since */
static bool is_valid(pack_t *pack, unsigned from, bool is_in, uint32_t known,
                     const branch_t *branch)
{
    return !((known >> branch->to) & 1) &&
           (price_hop(pack, is_in ? branch->to : from,
                      is_in ? from : branch->to) == branch->price);
}

/* Grow a tree from its root, always by the cheapest link, and load the links.
 * On the way in links lead to the root. @return false: a rank cannot be reached
 * within max_depth hops */
static bool grow(pack_t *pack, unsigned root, bool is_in, unsigned max_depth,
                 uint8_t *parents, uint8_t *overs)
{
    const unsigned num_ranks = pack->ranks->num_ranks;
    const unsigned first     = wrap(root + pack->start, num_ranks);
    const bool has_relays    = (pack->ranks->num_relays > 0);
    uint32_t known           = 1u << root;
    branch_t branches[MAX_RANKS];
    unsigned depth[MAX_RANKS];
    unsigned count, from, to, f, best_from = root;
    double unit, cost, best;

    memset(overs, DIRECT, MAX_RANKS);
    depth[root]       = 0;
    parents[root]     = (uint8_t)root;
    branches[root].to = root;
    for (count = 1; count < num_ranks; ++count) {
        best = DBL_MAX;
        unit = 1 / seventh(pack->worst);
        for (f = 0; f < num_ranks; ++f) {
            from = wrap(first + f, num_ranks);
            if (!((known >> from) & 1) || (depth[from] == max_depth)) {
                continue;
            }

            /* relayed prices include hops, in the unit of the loads */
            if (has_relays ||
                !is_valid(pack, from, is_in, known, &branches[from])) {
                find_branch(pack, from, is_in, known, has_relays ? unit : 1,
                            &branches[from]);
            }
            if (branches[from].price == DBL_MAX) {
                continue;
            }

            cost = branches[from].price * (has_relays ? 1 : unit) +
                   HOP * depth[from];
            if (cost < best * (1 - ROUNDING)) {
                best      = cost;
                best_from = from;
            }
        }

        if (best == DBL_MAX) {
            return false;
        }

        to              = branches[best_from].to;
        known          |= 1u << to;
        depth[to]       = depth[best_from] + 1;
        parents[to]     = (uint8_t)best_from;
        overs[to]       = branches[best_from].over;
        branches[to].to = to;
        if (is_in) {
            put(pack, to, best_from, overs[to], pack->shard);
        } else {
            put(pack, best_from, to, overs[to], pack->shard);
        }
    }

    return true;
}

static bool grow_tree(pack_t *pack, unsigned max_depth, tree_t *tree)
{
    const unsigned kind = pack->ranks->kind;

    return (!uct_cuda_coll_kind(kind)->reduces ||
            grow(pack, tree->root, true, max_depth, tree->in, tree->in_over)) &&
           (!uct_cuda_coll_kind(kind)->spreads ||
            grow(pack, tree->root, false, max_depth, tree->out,
                 tree->out_over));
}

/* Remove all loads. The unit of prices starts as if each link carried one
 * shard. */
static void init_loads(pack_t *pack, unsigned start)
{
    unsigned from, to, r;

    pack->start = start;
    pack->worst = 0;
    memset(pack->load, 0, sizeof(pack->load));
    memset(pack->stale, 0xff, sizeof(pack->stale));
    for (r = 0; r < NUM_RESOURCES; ++r) {
        for (from = 0, to = 0; from < MAX_GPUS; ++from) {
            to |= pack->users[r][from];
        }
        if (to != 0) {
            pack->worst = ucs_max(pack->worst, pack->shard / pack->capacity[r]);
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

/* Return the sum of all ranks' hops from the roots of all trees */
static unsigned length(const trees_t *trees, const ranks_t *ranks)
{
    unsigned sum = 0;
    const tree_t *tree;
    unsigned t, rank;

    for (t = 0; t < trees->count; ++t) {
        tree = &trees->trees[t];
        for (rank = 0; rank < ranks->num_ranks; ++rank) {
            if (uct_cuda_coll_kind(ranks->kind)->reduces) {
                sum += hops(tree->in, tree->in_over, rank, tree->root);
            }
            if (uct_cuda_coll_kind(ranks->kind)->spreads) {
                sum += hops(tree->out, tree->out_over, rank, tree->root);
            }
        }
    }

    return sum;
}

static bool is_thorough(const ranks_t *ranks)
{
    return ranks->num_ranks <= THOROUGH_RANKS;
}

/* Remove each tree and search it again. @return false: not found */
static bool grow_again(pack_t *pack, unsigned max_depth, trees_t *trees,
                       bool *has_changed_p)
{
    tree_t before;
    unsigned t;

    *has_changed_p = false;
    for (t = 0; t < trees->count; ++t) {
        before = trees->trees[t];
        put_tree(pack, &before, -pack->shard);
        if (!grow_tree(pack, max_depth, &trees->trees[t])) {
            return false;
        }
        *has_changed_p |= (memcmp(&before, &trees->trees[t],
                                  sizeof(before)) != 0);
    }

    return true;
}

/* Search trees from one start; replace best, least and shortest by any that
 * load the fullest link less, or as much with fewer hops. @return false: none
 * found */
static bool pack_from(pack_t *pack, unsigned start, unsigned count,
                      unsigned max_depth, double *least, unsigned *shortest,
                      trees_t *best)
{
    const ranks_t *ranks  = pack->ranks;
    const unsigned rounds = is_thorough(ranks) ? ROUNDS : QUICK_ROUNDS;
    trees_t *next         = &pack->next;
    bool has_changed      = true;
    unsigned t, round, far;
    tree_t *tree;

    memset(next, 0, sizeof(*next));
    next->algorithm = UCT_CUDA_PLAN_COLL_HIERARCHICAL;
    next->count     = count;
    init_loads(pack, start);
    for (t = 0; t < count; ++t) {
        tree       = &next->trees[t];
        tree->root = (uint8_t)root_of(ranks, t);
        memset(tree->in, tree->root, MAX_RANKS);
        memset(tree->out, tree->root, MAX_RANKS);
        go_direct(tree);
        if (!grow_tree(pack, max_depth, tree)) {
            return false;
        }
    }

    for (round = 0; (round < rounds) && has_changed; ++round) {
        pack->worst = worst(pack);
        far         = length(next, ranks);
        if ((pack->worst < *least * (1 - ROUNDING)) ||
            ((pack->worst < *least * (1 + ROUNDING)) && (far < *shortest))) {
            *least    = pack->worst;
            *shortest = far;
            *best     = *next;
        }

        if (!grow_again(pack, max_depth, next, &has_changed)) {
            return false;
        }
    }

    return true;
}

/* List the relays in use in the trees, and renumber them from 0 */
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

static bool pack_ranks(const ranks_t *ranks, unsigned per_rank,
                       unsigned max_depth, pack_t *pack, trees_t *trees)
{
    const unsigned count  = ranks->num_ranks * per_rank;
    const unsigned starts = is_thorough(ranks) ? ranks->num_ranks :
                                                 QUICK_STARTS;
    double least          = DBL_MAX;
    unsigned shortest     = UINT_MAX;
    unsigned start;

    init(pack, ranks, count);
    for (start = 0; start < starts; ++start) {
        if (!pack_from(pack, start, count, max_depth, &least, &shortest,
                       trees)) {
            return false;
        }
    }

    keep_relays(ranks, trees);
    return true;
}

/* Ranks grouped by GPU */
typedef struct {
    ranks_t  gpus;                          /* one rank for each GPU */
    int      ordinals[MAX_RANKS];
    uint8_t  gpu[MAX_RANKS];                /* index of a rank's GPU */
    uint8_t  place[MAX_RANKS];              /* index of a rank on its GPU */
    uint8_t  count[MAX_GPUS];               /* of a GPU */
    uint8_t  members[MAX_GPUS][MAX_RANKS];
} sharing_t;


static void find_shared(const ranks_t *ranks, sharing_t *shared)
{
    unsigned rank, gpu;

    memset(shared, 0, sizeof(*shared));
    shared->gpus           = *ranks;
    shared->gpus.num_ranks = 0;
    shared->gpus.gpus      = shared->ordinals;
    for (rank = 0; rank < ranks->num_ranks; ++rank) {
        for (gpu = 0; (gpu < shared->gpus.num_ranks) &&
                      (shared->ordinals[gpu] != ranks->gpus[rank]);
             ++gpu) {
        }

        shared->gpus.num_ranks = ucs_max(shared->gpus.num_ranks, gpu + 1);
        shared->ordinals[gpu]  = ranks->gpus[rank];
        shared->gpu[rank]      = (uint8_t)gpu;
        shared->place[rank]    = shared->count[gpu]++;
        shared->members[gpu][shared->place[rank]] = (uint8_t)rank;
    }
    shared->gpus.root = (uint8_t)shared->gpu[ranks->root];
}

/* Return the parent of a rank among those of its GPU, by index. The first rank
 * has @a space for children, others as many as a kernel reads. */
static unsigned parent_of(unsigned place, unsigned space)
{
    return (place <= space) ? 0 : 1 + (place - space - 1) / MAX_CHILDREN;
}

static unsigned
count_children(const uint8_t *parents, unsigned num, unsigned of)
{
    unsigned i, count = 0;

    for (i = 0; i < num; ++i) {
        count += (parents[i] == of) && (i != of);
    }
    return count;
}

/* Convert a tree of GPUs to one of ranks: one rank of each GPU is in the tree,
 * the others of that GPU are below it, or with @a is_low beside it. @return
 * false: a rank has too many children */
static bool spread_tree(const sharing_t *shared, const tree_t *among,
                        unsigned num_ranks, unsigned root, unsigned place,
                        bool is_low, tree_t *tree)
{
    const unsigned num_gpus = shared->gpus.num_ranks;
    unsigned gpu, i, first, space, in, out;
    const uint8_t *members;
    uint8_t heads[MAX_GPUS];
    unsigned start[MAX_GPUS];

    for (gpu = 0; gpu < num_gpus; ++gpu) {
        start[gpu] = (gpu == shared->gpu[root]) ? shared->place[root] :
                                                  place % shared->count[gpu];
        heads[gpu] = shared->members[gpu][start[gpu]];
    }

    tree->root = (uint8_t)root;
    memset(tree->in, (int)root, MAX_RANKS);
    memset(tree->out, (int)root, MAX_RANKS);
    go_direct(tree);
    for (gpu = 0; gpu < num_gpus; ++gpu) {
        members = shared->members[gpu];
        in      = count_children(among->in, num_gpus, gpu);
        out     = count_children(among->out, num_gpus, gpu);
        space   = MAX_CHILDREN - ucs_max(in, out);
        if ((space == 0) && (shared->count[gpu] > 1)) {
            return false;
        }

        for (i = 0; i < shared->count[gpu]; ++i) {
            first = members[(start[gpu] + i) % shared->count[gpu]];
            if ((i == 0) || (is_low && (gpu != shared->gpu[root]))) {
                tree->in[first]       = heads[among->in[gpu]];
                tree->out[first]      = heads[among->out[gpu]];
                tree->in_over[first]  = among->in_over[gpu];
                tree->out_over[first] = among->out_over[gpu];
            } else {
                tree->in[first]  = members[(start[gpu] + parent_of(i, space)) %
                                           shared->count[gpu]];
                tree->out[first] = tree->in[first];
            }
        }
    }

    for (i = 0; is_low && (i < num_ranks); ++i) {
        if ((count_children(tree->in, num_ranks, i) > MAX_CHILDREN) ||
            (count_children(tree->out, num_ranks, i) > MAX_CHILDREN)) {
            return false;
        }
    }
    return true;
}

/* Return whether trees are needed for each GPU only: the call has one root, or
 * is an all-reduce, whose sums may meet at any rank. In other calls each rank
 * has a block and must be the root of a tree. */
static bool is_of_gpus(const ranks_t *ranks)
{
    return uct_cuda_coll_kind(ranks->kind)->has_root ||
           (ranks->kind == UCT_CUDA_COLL_KIND_ALLREDUCE);
}

/* Pack trees among the GPUs; with enough hops each GPU gets a byte once. Roots
 * of an all-reduce are ranks of each GPU in turn. */
static bool pack_shared(const ranks_t *ranks, const sharing_t *shared,
                        unsigned per_rank, unsigned max_depth,
                        uct_cuda_plan_coll_search_t *search, trees_t *trees)
{
    const unsigned num_gpus = shared->gpus.num_ranks;
    const bool has_root     = uct_cuda_coll_kind(ranks->kind)->has_root;
    const bool is_low       = (max_depth <= LOW_DEPTH);
    const bool are_few      = is_of_gpus(ranks);
    trees_t *among          = &search->among;
    unsigned t, gpu, root, place, index;

    if (!pack_ranks(&shared->gpus, per_rank, is_low ? max_depth : max_depth - 1,
                    &search->pack, among)) {
        return false;
    }

    trees->algorithm  = among->algorithm;
    trees->rotates    = false;
    trees->num_relays = among->num_relays;
    memcpy(trees->relays, among->relays, sizeof(trees->relays));
    trees->count      = are_few ? among->count : ranks->num_ranks * per_rank;
    for (t = 0; t < trees->count; ++t) {
        root  = root_of(ranks, t);
        index = are_few ? t :
                             t / ranks->num_ranks * num_gpus +
                                     shared->gpu[root];
        place = are_few ? t / num_gpus : shared->place[root];
        if (are_few && !has_root) {
            gpu  = among->trees[t].root;
            root = shared->members[gpu][place % shared->count[gpu]];
        }
        if (!spread_tree(shared, &among->trees[index], ranks->num_ranks, root,
                         place, is_low, &trees->trees[t])) {
            return false;
        }
    }

    return true;
}

/* Three hops lead from socket to socket; a search for many ranks needs one
 * more, on to the ranks of each GPU */
unsigned uct_cuda_plan_coll_trees_deepest(const ranks_t *ranks)
{
    return is_thorough(ranks) ? 3 : 4;
}

bool uct_cuda_plan_coll_trees_pack(const ranks_t *ranks, unsigned per_rank,
                                   unsigned max_depth,
                                   uct_cuda_plan_coll_search_t *search,
                                   trees_t *trees)
{
    sharing_t shared;

    if (is_thorough(ranks)) {
        return pack_ranks(ranks, per_rank, max_depth, &search->pack, trees);
    }

    find_shared(ranks, &shared);
    if (((max_depth > SHARED_DEPTH) && (per_rank > 1)) ||
        ((max_depth == LOW_DEPTH) && (per_rank > 2)) ||
        ((per_rank > 1) && (per_rank * (is_of_gpus(ranks) ?
                                               shared.gpus.num_ranks :
                                               ranks->num_ranks) >
                           QUICK_TREES))) {
        return false;
    }
    return (shared.gpus.num_ranks == ranks->num_ranks) ?
                   pack_ranks(ranks, per_rank, max_depth, &search->pack,
                              trees) :
                   pack_shared(ranks, &shared, per_rank, max_depth, search,
                               trees);
}

double uct_cuda_plan_coll_trees_load(const ranks_t *ranks, const trees_t *trees,
                                     uct_cuda_plan_coll_search_t *search)
{
    pack_t *pack = &search->pack;
    ranks_t used = *ranks;
    unsigned t;

    used.num_relays = trees->num_relays;
    for (t = 0; t < trees->num_relays; ++t) {
        used.relays[t] = trees->relays[t];
    }

    init(pack, &used, trees->count);
    for (t = 0; t < trees->count; ++t) {
        put_tree(pack, &trees->trees[t], pack->shard);
    }

    return worst(pack);
}
