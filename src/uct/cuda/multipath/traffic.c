/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts of transfers by link, and queries for other traffic. */
#include <uct/cuda/multipath/traffic.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/multipath/history.h>
#include <uct/cuda/node/ledger.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


#define MAX_GPUS  UCT_CUDA_MAX_GPUS
#define NUM_LINKS UCT_CUDA_PLAN_NUM_LINKS

/* Time until a busy ledger is tried again, ns: ten times the longest wait of
 * opening it */
#define RETRY_PAUSE 200000000ul


/* Transfers of one pair of ends, by link */
typedef struct {
    uint16_t count[NUM_LINKS];
    uint64_t bytes[NUM_LINKS];
    uint16_t queued;   /* number of running large transfers */
    uint16_t window;   /* number of large transfers since queued was 0 */
    uint16_t before;   /* previous window */
    uint16_t expected; /* window expected for the next transfer */
    uint64_t size;     /* bytes of the queued transfers */
    unsigned links;    /* sum of count */
    uint16_t link;     /* directed link between the ends */
    uint16_t crossed;  /* the first so many queued transfers were crossed */
    unsigned begun;    /* starts of crossing traffic at the last check */
    uct_cuda_mp_history_t met;
} pair_t;


struct uct_cuda_mp_traffic {
    pthread_mutex_t        lock; /* order: base/thread.h */
    uct_cuda_node_ledger_t *ledger;
    bool                   is_tried; /* opening was tried */
    uint64_t               retry_time, retry_pause; /* ns; 0: final */
    uint16_t               count[NUM_LINKS];
    uint16_t               direct[NUM_LINKS]; /* of them, between their ends */
    unsigned               links;             /* sum of count */
    /* Activations of links to, and from, an end */
    unsigned               to[UCT_CUDA_NUM_ENDS], from[UCT_CUDA_NUM_ENDS];
    /* By the directed link from end to end; NULL: none so far */
    pair_t                 *pairs[NUM_LINKS];
    char                   dir[];
};


ucs_status_t uct_cuda_mp_traffic_create(const char *dir,
                                        uct_cuda_mp_traffic_t **traffic_p)
{
    size_t length = (dir == NULL) ? 0 : strlen(dir);
    uct_cuda_mp_traffic_t *traffic;

    traffic = calloc(1, sizeof(*traffic) + length + 1);
    if (traffic == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    pthread_mutex_init(&traffic->lock, NULL);
    memcpy(traffic->dir, (dir == NULL) ? "" : dir, length);
    *traffic_p = traffic;
    return UCS_OK;
}

void uct_cuda_mp_traffic_destroy(uct_cuda_mp_traffic_t *traffic)
{
    unsigned link;

    if (traffic->ledger != NULL) {
        uct_cuda_node_ledger_close(traffic->ledger);
    }

    for (link = 0; link < NUM_LINKS; ++link) {
        free(traffic->pairs[link]);
    }

    pthread_mutex_destroy(&traffic->lock);
    free(traffic);
}

/* Return the window expected for the next transfer: with none queued, that of
 * the last ones; else the larger of the window before and of this one with the
 * transfer */
static uint16_t expected_window(const pair_t *pair)
{
    if (pair->queued == 0) {
        return pair->window;
    } else if (pair->window < pair->before) {
        return pair->before;
    }

    return (pair->window < UINT16_MAX) ? pair->window + 1 : UINT16_MAX;
}

/* Set the number of queued transfers, and update the expected window. Both are
 * read without the lock. */
static void set_queued(pair_t *pair, unsigned queued)
{
    __atomic_store_n(&pair->queued, (uint16_t)queued, __ATOMIC_RELAXED);
    __atomic_store_n(&pair->expected, expected_window(pair), __ATOMIC_RELAXED);
}

/* Return the pair, without the lock; NULL: none so far */
static const pair_t *find_pair(const uct_cuda_mp_traffic_t *traffic,
                               uct_cuda_end_t src, uct_cuda_end_t dst)
{
    return __atomic_load_n(&traffic->pairs[uct_cuda_plan_link(src, dst)],
                           __ATOMIC_ACQUIRE);
}

void uct_cuda_mp_traffic_peek(uct_cuda_mp_traffic_t *traffic,
                              uct_cuda_end_t src, uct_cuda_end_t dst,
                              unsigned *queued_p, unsigned *window_p)
{
    const pair_t *pair = find_pair(traffic, src, dst);

    *queued_p = 0;
    *window_p = 1;
    if (pair != NULL) {
        *queued_p = __atomic_load_n(&pair->queued, __ATOMIC_RELAXED);
        *window_p = __atomic_load_n(&pair->expected, __ATOMIC_RELAXED);
    }
}

uint64_t uct_cuda_mp_traffic_uncrossed(uct_cuda_mp_traffic_t *traffic,
                                       uct_cuda_end_t src, uct_cuda_end_t dst)
{
    const pair_t *pair = find_pair(traffic, src, dst);

    return (pair == NULL) ?
                   0 :
                   __atomic_load_n(&pair->met.uncrossed, __ATOMIC_RELAXED);
}

static pair_t *new_pair(const uct_cuda_mp_flow_t *flow)
{
    pair_t *pair = calloc(1, sizeof(*pair));

    if (pair != NULL) {
        pair->expected = 1;
        pair->link     = flow->link;
    }

    return pair;
}

/* Set the time of the next attempt to open the ledger. Pauses grow: while a
 * stopped process holds the ledger's lock, each attempt costs the longest
 * wait. */
static void retry_later(uct_cuda_mp_traffic_t *traffic)
{
    traffic->retry_pause = 2 * traffic->retry_pause + RETRY_PAUSE;
    traffic->retry_time  = uct_cuda_now_ns() + traffic->retry_pause;
}

static void try_ledger(uct_cuda_mp_traffic_t *traffic)
{
    uint8_t uuids[MAX_GPUS][16];
    ucs_status_t status;
    CUuuid uuid;
    int count, i;

    traffic->is_tried   = true;
    traffic->retry_time = 0;
    if ((traffic->dir[0] == '\0') ||
        (UCT_CUDA_CALL_NOLOG(cuDeviceGetCount, &count) != UCS_OK)) {
        return;
    }

    count = (count > MAX_GPUS) ? MAX_GPUS : count;
    for (i = 0; i < count; ++i) {
        if (UCT_CUDA_CALL_NOLOG(cuDeviceGetUuid, &uuid, i) != UCS_OK) {
            return;
        }
        memcpy(uuids[i], uuid.bytes, sizeof(uuids[i]));
    }

    status = uct_cuda_node_ledger_open(traffic->dir,
                                       (const uint8_t(*)[16])uuids, count,
                                       &traffic->ledger);
    if (status != UCS_OK) {
        traffic->ledger = NULL;
    }

    if (status == UCS_ERR_BUSY) {
        retry_later(traffic);
    }
}

static inline void open_ledger(uct_cuda_mp_traffic_t *traffic)
{
    if (!traffic->is_tried ||
        ((traffic->retry_time != 0) &&
         (uct_cuda_now_ns() >= traffic->retry_time))) {
        try_ledger(traffic);
    }
}

/* Fill in the present traffic on each link (active, direct), without this
 * engine's transfers of @a pair, which may be NULL. @return Whether there is
 * any */
static bool read_traffic(uct_cuda_mp_traffic_t *traffic, const pair_t *pair,
                         uint64_t now, uct_cuda_plan_load_t *load)
{
    bool any = false;
    unsigned link;
    uint16_t own;

    if (traffic->links == ((pair == NULL) ? 0 : pair->links)) {
        memset(load->active, 0, sizeof(load->active));
        memset(load->direct, 0, sizeof(load->direct));
    } else {
        for (link = 0; link < NUM_LINKS; ++link) {
            own                = (pair == NULL) ? 0 : pair->count[link];
            load->active[link] = (traffic->count[link] > own);
            load->direct[link] = (traffic->direct[link] > 0) &&
                                 ((pair == NULL) || (link != pair->link));
            any               |= (load->active[link] != 0);
        }
    }

    if (traffic->ledger != NULL) {
        any |= uct_cuda_node_ledger_read(traffic->ledger, now, load);
    }

    return any;
}

/* Count the starts of traffic crossing a pair: into its source and out of its
 * destination */
static unsigned
count_crossing(const uct_cuda_mp_traffic_t *traffic, uint16_t link)
{
    const uct_cuda_end_t src = uct_cuda_plan_link_from(link);
    const uct_cuda_end_t dst = uct_cuda_plan_link_to(link);
    unsigned count           = traffic->to[uct_cuda_end_index(src)] +
                               traffic->from[uct_cuda_end_index(dst)];

    return (traffic->ledger == NULL) ?
               count :
               count + uct_cuda_node_ledger_begun(traffic->ledger, src, dst);
}

/* Record traffic met by a pair's @a queued transfers at present and since the
 * last check. Two transfers crossing for part of their time see each other,
 * whichever begins or ends first. */
static void record_met(uct_cuda_mp_traffic_t *traffic, pair_t *pair,
                       unsigned queued)
{
    const uint64_t now   = uct_cuda_now_ns();
    const unsigned begun = count_crossing(traffic, pair->link);
    uct_cuda_plan_load_t load;

    if (begun != pair->begun) {
        pair->begun   = begun;
        pair->crossed = (uint16_t)queued;
    }

    if (read_traffic(traffic, pair, now, &load)) {
        uct_cuda_mp_history_add(&pair->met, &load, now);
        if (uct_cuda_plan_load_is_crossed(&load,
                                          uct_cuda_plan_link_from(pair->link),
                                          uct_cuda_plan_link_to(pair->link))) {
            pair->crossed = pair->queued;
        }
    }
}

/* Fill in the transfers ahead of a new one, and the expected window */
static void fill_ahead(const pair_t *pair, uct_cuda_plan_load_t *load)
{
    if (pair == NULL) {
        load->queued    = 0;
        load->window    = 1;
        load->uncrossed = 0;
        memset(load->ahead, 0, sizeof(load->ahead));
    } else {
        load->queued = pair->queued;
        load->window = pair->expected;
        memcpy(load->ahead, pair->bytes, sizeof(load->ahead));
    }
}

void uct_cuda_mp_traffic_load(uct_cuda_mp_traffic_t *traffic,
                              uct_cuda_end_t src, uct_cuda_end_t dst,
                              uct_cuda_plan_load_t *load)
{
    const pair_t *pair;
    uint64_t now;

    pthread_mutex_lock(&traffic->lock);
    open_ledger(traffic);
    now            = uct_cuda_now_ns();
    pair           = traffic->pairs[uct_cuda_plan_link(src, dst)];
    load->is_known = (traffic->ledger != NULL);
    (void)read_traffic(traffic, pair, now, load);
    fill_ahead(pair, load);
    if (pair != NULL) {
        uct_cuda_mp_history_recall(&pair->met, now, load);
    }

    pthread_mutex_unlock(&traffic->lock);
}

void uct_cuda_mp_flow_of_plan(const uct_cuda_plan_t *plan, size_t size,
                              uct_cuda_mp_flow_t *flow)
{
    const double pieces = (double)size / (double)plan->size;
    unsigned i, hops;

    flow->link      = uct_cuda_plan_link(plan->src, plan->dst);
    flow->size      = size;
    flow->is_large  = true;
    flow->num_links = 0;
    for (i = 0; i < plan->num_paths; ++i) {
        hops = uct_cuda_plan_path_links(plan, plan->paths[i].via,
                                        &flow->links[flow->num_links]);
        for (; hops > 0; --hops) {
            flow->bytes[flow->num_links++] = (uint64_t)(
                    pieces * (double)plan->paths[i].bytes);
        }
    }
}

/* Add or remove a transfer on a link */
static void count_link(uct_cuda_mp_traffic_t *traffic,
                       const uct_cuda_mp_flow_t *flow, uint16_t link, int by)
{
    const bool is_direct  = (link == flow->link);
    const uint16_t counts = traffic->count[link];
    const uint16_t direct = traffic->direct[link];
    const uint16_t now    = (uint16_t)(counts + by);
    const uint16_t others = (uint16_t)(direct + (is_direct ? by : 0));

    traffic->links       += (unsigned)by;
    traffic->count[link]  = now;
    traffic->direct[link] = others;
    if ((counts == 0) && (now > 0)) {
        ++traffic->from[link / UCT_CUDA_NUM_ENDS];
        ++traffic->to[link % UCT_CUDA_NUM_ENDS];
    }

    if ((traffic->ledger != NULL) &&
        (((counts == 0) != (now == 0)) || ((direct == 0) != (others == 0)))) {
        uct_cuda_node_ledger_set(traffic->ledger, link, now > 0, others > 0);
    }
}

static void
begin_large(uct_cuda_mp_traffic_t *traffic, pair_t *pair, uint64_t size)
{
    if (pair->queued == 0) {
        pair->before = pair->window;
        pair->window = 0;
    }

    pair->window += (pair->window < UINT16_MAX);
    pair->size   += size;
    set_queued(pair, pair->queued + 1);
    uct_cuda_mp_history_begin(&pair->met, uct_cuda_now_ns());
    record_met(traffic, pair, pair->queued - 1);
}

void uct_cuda_mp_traffic_begin(uct_cuda_mp_traffic_t *traffic,
                               const uct_cuda_mp_flow_t *flow)
{
    pair_t *pair;
    uint16_t link;
    unsigned i;

    pthread_mutex_lock(&traffic->lock);
    open_ledger(traffic);
    pair = traffic->pairs[flow->link];
    if (pair == NULL) {
        /* Without memory the transfer counts as another pair's */
        pair = new_pair(flow);
        __atomic_store_n(&traffic->pairs[flow->link], pair, __ATOMIC_RELEASE);
    }

    if ((pair != NULL) && flow->is_large) {
        begin_large(traffic, pair, flow->size);
    }

    for (i = 0; i < flow->num_links; ++i) {
        link = flow->links[i];
        if (pair != NULL) {
            ++pair->links;
            ++pair->count[link];
            pair->bytes[link] += flow->bytes[i];
        }

        count_link(traffic, flow, link, 1);
    }

    pthread_mutex_unlock(&traffic->lock);
}

/* Remove a large transfer from its pair, with the average size of those queued,
 * and note in the history whether it was crossed */
static void end_large(pair_t *pair)
{
    const uint64_t size = pair->size / pair->queued;

    set_queued(pair, pair->queued - 1);
    uct_cuda_mp_history_end(&pair->met, size, pair->crossed > 0);
    pair->size    -= size;
    pair->crossed -= (pair->crossed > 0);
}

void uct_cuda_mp_traffic_end(uct_cuda_mp_traffic_t *traffic,
                             const uct_cuda_mp_flow_t *flow)
{
    pair_t *pair;
    uint16_t link;
    unsigned i;

    pthread_mutex_lock(&traffic->lock);
    pair = traffic->pairs[flow->link];
    if (flow->is_large && (pair != NULL) && (pair->queued > 0)) {
        /* also for a plain copy: the first one of a ring met no traffic at its
         * start */
        record_met(traffic, pair, pair->queued);
        end_large(pair);
    }

    for (i = 0; i < flow->num_links; ++i) {
        link = flow->links[i];
        if ((pair != NULL) && (pair->count[link] > 0)) {
            --pair->links;
            --pair->count[link];
            pair->bytes[link] = (pair->count[link] > 0) ?
                                        pair->bytes[link] - flow->bytes[i] :
                                        0;
        }

        count_link(traffic, flow, link, -1);
    }

    pthread_mutex_unlock(&traffic->lock);
}

unsigned uct_cuda_mp_traffic_others(uct_cuda_mp_traffic_t *traffic,
                                    uint32_t *pids, unsigned max)
{
    unsigned count = 0;

    pthread_mutex_lock(&traffic->lock);
    open_ledger(traffic);
    if (traffic->ledger != NULL) {
        count = uct_cuda_node_ledger_others(traffic->ledger, pids, max);
    }

    pthread_mutex_unlock(&traffic->lock);
    return count;
}
