/* SPDX-License-Identifier: BSD-3-Clause */
#include <uct/cuda/collective/links.h>

#include <uct/cuda/collective/options.h>
#include <uct/cuda/node/ledger.h>
#include <uct/cuda/plan/transfer_plan.h>

#include <pthread.h>
#include <string.h>


/* Smallest data of a plan whose links are announced, bytes; as for transfers on
 * one path, UCT_CUDA_MP_COUNTED_MIN_SIZE */
#define MIN_BYTES (256ul << 10)


typedef uct_cuda_coll_links_t links_t;


/* One slot of the ledger for all teams of this process */
static struct {
    pthread_mutex_t        lock; /* order: base/thread.h */
    unsigned               users;
    uct_cuda_node_ledger_t *ledger;
    int                    num_gpus;
    uint8_t                uuids[UCT_CUDA_MAX_GPUS][16];
    uint16_t               count[UCT_CUDA_PLAN_NUM_LINKS];
    /* part of count between two ranks */
    uint16_t               direct[UCT_CUDA_PLAN_NUM_LINKS];
} node = {.lock = PTHREAD_MUTEX_INITIALIZER};


void uct_cuda_coll_links_get(const uct_cuda_topo_t *topo)
{
    const char *dir = uct_cuda_coll_ledger();
    int i;

    pthread_mutex_lock(&node.lock);
    ++node.users;
    if ((node.ledger == NULL) && (dir[0] != '\0')) {
        for (i = 0; i < topo->num_gpus; ++i) {
            memcpy(node.uuids[i], topo->gpus[i].uuid, sizeof(node.uuids[i]));
        }
        node.num_gpus = topo->num_gpus;
        if (uct_cuda_node_ledger_open(dir, (const uint8_t(*)[16])node.uuids,
                                      node.num_gpus, &node.ledger) != UCS_OK) {
            node.ledger = NULL;
        }
    }
    pthread_mutex_unlock(&node.lock);
}

void uct_cuda_coll_links_put(void)
{
    pthread_mutex_lock(&node.lock);
    if ((--node.users == 0) && (node.ledger != NULL)) {
        uct_cuda_node_ledger_close(node.ledger);
        node.ledger = NULL;
    }
    pthread_mutex_unlock(&node.lock);
}

/* Return this process's number for a GPU of a team's topology, or -1 */
static int find_gpu(const uct_cuda_topo_t *topo, int gpu)
{
    int i;

    for (i = 0; (node.ledger != NULL) && (i < node.num_gpus); ++i) {
        if (memcmp(node.uuids[i], topo->gpus[gpu].uuid,
                   sizeof(node.uuids[i])) == 0) {
            return i;
        }
    }
    return -1;
}

static void add_link(links_t *links, int from, int to, bool is_direct)
{
    uint16_t link;
    unsigned i;

    if ((from < 0) || (to < 0) || (from == to)) {
        return;
    }

    link = uct_cuda_plan_link(uct_cuda_end_gpu(from), uct_cuda_end_gpu(to));
    for (i = 0; (i < links->count) && (links->links[i] != link); ++i) {
    }
    if (i == UCT_CUDA_COLL_MAX_LINKS) {
        return;
    }

    links->links[i]  = link;
    links->count     = (i < links->count) ? links->count : (i + 1);
    links->direct   |= (uint64_t)is_direct << i;
}

void uct_cuda_coll_links_find(const uct_cuda_plan_coll_t *plan, unsigned rank,
                              const uct_cuda_topo_t *topo, const int *gpus,
                              links_t *links)
{
    const uct_cuda_plan_step_t *step;
    const uct_cuda_plan_place_t *places;
    int numbers[UCT_CUDA_PLAN_COLL_MAX_MEMBERS];
    unsigned member, p, other;
    bool is_source;
    uint32_t s;

    memset(links, 0, sizeof(*links));
    if (plan->bytes < MIN_BYTES) {
        return;
    }

    pthread_mutex_lock(&node.lock);
    for (member = 0; member < plan->num_ranks; ++member) {
        numbers[member] = find_gpu(topo, gpus[member]);
    }
    for (p = 0; p < plan->num_relays; ++p) {
        numbers[member++] = find_gpu(topo, plan->relays[p]);
    }
    pthread_mutex_unlock(&node.lock);

    for (s = 0; s < plan->list.num_steps; ++s) {
        step   = &plan->list.steps[s];
        places = uct_cuda_plan_step_sources(&plan->list, step);
        if (step->rank != rank) {
            continue;
        }

        /* A copy goes from its source to its destination; a kernel reads and
         * writes through its own GPU */
        for (p = 0; p < (unsigned)step->num_sources + step->num_destinations;
             ++p) {
            member    = places[p].owner;
            other     = (step->type == UCT_CUDA_PLAN_STEP_REDUCE) ?
                                rank :
                                places[1 - p].owner;
            is_source = (p < step->num_sources);
            add_link(links, numbers[is_source ? member : other],
                     numbers[is_source ? other : member],
                     (member < plan->num_ranks) && (other < plan->num_ranks));
        }
    }
}

static void count(const links_t *links, int by)
{
    uint16_t link;
    unsigned i;

    if (links->count == 0) {
        return;
    }

    pthread_mutex_lock(&node.lock);
    for (i = 0; (node.ledger != NULL) && (i < links->count); ++i) {
        link               = links->links[i];
        node.count[link]  += by;
        node.direct[link] += ((links->direct >> i) & 1) ? by : 0;
        uct_cuda_node_ledger_set(node.ledger, link, node.count[link] > 0,
                                 node.direct[link] > 0);
    }
    pthread_mutex_unlock(&node.lock);
}

void uct_cuda_coll_links_begin(const links_t *links)
{
    count(links, 1);
}

void uct_cuda_coll_links_end(const links_t *links)
{
    count(links, -1);
}
