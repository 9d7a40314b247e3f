/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulation: each step waits, flows, and ends. */
#include <uct/cuda/plan/collective_cost.h>

#include <uct/cuda/plan/fair_share.h>
#include <ucs/sys/math.h>

#include <float.h>
#include <stdlib.h>
#include <string.h>


#define MAX_RANKS UCT_CUDA_PLAN_COLL_MAX_RANKS
#define MAX_GPUS  UCT_CUDA_MAX_GPUS
#define MAX_LINKS (MAX_GPUS * MAX_GPUS)

#define NUM_RESOURCES UCT_CUDA_PLAN_COLL_NUM_RESOURCES

/* A smaller rest of bytes is a rounding error */
#define EMPTY 0.5

#define NONE UINT32_MAX


/* Two H200, by hand from one process (driver 580.159). A kernel on each GPU,
 * reading and writing the other's memory, takes 16.5, 25, 64, 214, 801 and 3162
 * us for 1 MiB to 1 GiB: 12 us, plus the bytes at 0.86 of the link. Copies in
 * two chunks with an adding kernel take 89, 218, 734 and 2787 us from 16 MiB
 * on: of those 22 us are the other GPU's submissions, and the rest runs at
 * 0.975 of the link, the loss caused by the other direction.
 *
 * submit: 2.9 us a copy, 0.35 us an event operation, as in
 * plan/model_constants.c. wait: a stream polls another one's event every 8 to 9
 * us (docs/results/by-hand.md). remote_wait: assumed to be no less; word: a
 * driver call like a copy's. Neither was measured on GPUs: relays on 2 GPUs of
 * beluga, 64 MiB, take 689 us on the emulated node and 687 in this model.
 * copy_start: fitted to the same copies on another machine, 242, 408, 755 and
 * 2809 us for 64 MiB to 1 GiB. memory: a V100's 900 GB/s, less losses.
 * switched_chunks: by hand 256 MiB took 770 us in two chunks, 949 in four, 963
 * in eight; the model cannot explain this. */
const uct_cuda_plan_coll_model_t uct_cuda_coll_model_builtin = {
    .begin       = 3e-6,
    .end         = 3.5e-6,
    .submit      = 3.6e-6,
    .word        = 2.9e-6,
    .start       = 3e-6,
    .copy_start  = 14e-6,
    .wait        = 8.5e-6,
    .remote_wait = 8.5e-6,
    .peer        = 1e-6,
    .copy_rate   = 0.975,
    .kernel_rate = 0.86,
    .memory      = 750e9,
    .switched_chunks = 2
};


/* Scale the built-in constants of steps by the factor between the measured and
 * the built-in constants of transfers. A chunk of a transfer is two copies and
 * four event operations, a step half of that.
 *
 * memory: by GPU generation. H100 3.35, A100 1.56, V100 0.9 TB/s by their data
 * sheets, less losses (H200, copies inside it: 4.3 of 4.8) */
void uct_cuda_plan_coll_model_of(const uct_cuda_plan_model_t *transfers,
                                 double ports,
                                 uct_cuda_plan_coll_model_t *model)
{
    *model              = uct_cuda_coll_model_builtin;
    model->submit       = transfers->submit_chunk / 2;
    model->word         = transfers->submit_copy;
    model->copy_rate   *= transfers->gpu_efficiency;
    model->kernel_rate *= transfers->gpu_efficiency;
    if (ports > 350e9) {
        model->memory = 2.9e12;
    } else if (ports > 200e9) {
        model->memory = 1.3e12;
    }
}


/* Bytes under way; all flows of a link have the same rate */
typedef struct {
    double   goal;        /* given() of the link when the flow ends, bytes */
    uint32_t step;
    uint32_t next;        /* next flow of the link by goal; NONE */
} sim_flow_t;


/* Flows from one GPU to another, or inside one */
typedef struct {
    double   given;       /* bytes of each flow until since; see given() */
    double   since;       /* time of the last update, s */
    unsigned at;          /* index in busy */
    uint32_t first;       /* flow that ends next; NONE */
    uct_cuda_plan_share_way_t way;
    uct_cuda_plan_share_flow_t shared; /* number and rate of the flows */
} sim_link_t;


typedef struct {
    double   start;       /* earliest start, s */
    uint32_t waits;       /* pending waits */
    uint32_t flows;       /* flows under way */
} phase_t;


typedef struct {
    const uct_cuda_plan_coll_t       *plan;
    const uct_cuda_topo_t            *topo;
    int                              gpus[UCT_CUDA_PLAN_COLL_MAX_MEMBERS];
    const uct_cuda_plan_coll_model_t *model;
    double   capacity[NUM_RESOURCES]; /* bytes/s */
    uct_cuda_plan_share_resource_t resources[NUM_RESOURCES];
    /* groups of resources joined by links, as trees: index of the parent, the
     * first of a group has its own; see group_of() */
    int16_t    groups[NUM_RESOURCES];
    /* groups with changed users, to be shared again */
    bool       is_old[NUM_RESOURCES];
    int16_t    old[NUM_RESOURCES];
    unsigned   num_old;
    double     now;
    phase_t    *states;
    uint32_t   *first;      /* index in successors, for each step */
    uint32_t   *successors;
    uint32_t   *ready;      /* heap of steps waiting for their start time */
    uint32_t   num_ready;
    sim_flow_t *flows;
    uint32_t   num_flows;   /* flows created so far */
    sim_link_t links[MAX_GPUS][MAX_GPUS];
    sim_link_t *busy[MAX_LINKS];
    double     speeds[MAX_LINKS];  /* bytes/s of each flow */
    double     until[MAX_LINKS];   /* end of the next flow, s */
    unsigned   num_busy;
    uint32_t   num_left;    /* steps left */
    bool       is_broken;   /* a step has no link */
} sim_t;


/* ------------------------------------------------------------------ rates */

static int group_of(sim_t *sim, int resource)
{
    int16_t *groups = sim->groups;

    while (groups[resource] != resource) {
        groups[resource] = groups[groups[resource]];
        resource         = groups[resource];
    }
    return resource;
}

static void mark_group(sim_t *sim, int group)
{
    if (!sim->is_old[group]) {
        sim->is_old[group]       = true;
        sim->old[sim->num_old++] = (int16_t)group;
    }
}

static void mark_way(sim_t *sim, const uct_cuda_plan_share_way_t *way)
{
    mark_group(sim, group_of(sim, way->resources[0]));
}

/* Merge the groups of all resources that a directed link uses. If one of them
 * needs new rates, the merged group does. */
static void join_way(sim_t *sim, const uct_cuda_plan_share_way_t *way)
{
    int first, other;
    unsigned i;

    for (i = 1; i < way->count; ++i) {
        first              = group_of(sim, way->resources[0]);
        other              = group_of(sim, way->resources[i]);
        sim->groups[other] = (int16_t)first;
        if (sim->is_old[other]) {
            mark_group(sim, first);
        }
    }
}

/* Return the bytes that a flow present since the link became busy has got until
 * now */
static double given(const sim_t *sim, const sim_link_t *link)
{
    return link->given + sim->speeds[link->at] * (sim->now - link->since);
}

/* Compute when a link's next flow ends at its present rate */
static void find_end(sim_t *sim, const sim_link_t *link)
{
    sim->until[link->at] = link->since +
                           (sim->flows[link->first].goal - link->given) /
                                   sim->speeds[link->at];
}

/* Compute max-min fair rates in all changed groups */
static void share(sim_t *sim)
{
    uct_cuda_plan_share_flow_t *flows[MAX_LINKS];
    sim_link_t *concerned[MAX_LINKS];
    unsigned l, i, count = 0;
    sim_link_t *link;
    int r;

    for (l = 0; l < sim->num_busy; ++l) {
        link = sim->busy[l];
        if (!sim->is_old[group_of(sim, link->way.resources[0])]) {
            continue;
        }

        concerned[count] = link;
        flows[count++]   = &link->shared;
        link->given      = given(sim, link);
        link->since      = sim->now;
        for (i = 0; i < link->way.count; ++i) {
            r = link->way.resources[i];
            uct_cuda_plan_share_add(&sim->resources[r], sim->capacity[r],
                                    link->shared.count);
        }
    }

    uct_cuda_plan_share(sim->resources, flows, count);
    for (l = 0; l < count; ++l) {
        sim->speeds[concerned[l]->at] = concerned[l]->shared.rate;
        find_end(sim, concerned[l]);
    }
    while (sim->num_old > 0) {
        sim->is_old[sim->old[--sim->num_old]] = false;
    }
}


/* ------------------------------------------------------------------ steps */

/* Start a flow between two GPUs' memories, or inside one. Set is_broken if no
 * link joins them. */
static void add_transfer(sim_t *sim, uint32_t step, int from, int to,
                         double bytes)
{
    sim_link_t *link = &sim->links[from][to];
    uint32_t index   = sim->num_flows++;
    sim_flow_t *flow = &sim->flows[index];
    uint32_t *link_bytes;

    if (link->shared.count++ == 0) {
        uct_cuda_plan_coll_links_direct(sim->topo, from, to, &link->way);
        join_way(sim, &link->way);
        link->shared.way       = &link->way;
        link->shared.cap       = DBL_MAX;
        link->first            = NONE;
        link->given            = 0;
        link->since            = sim->now;
        link->at               = sim->num_busy++;
        sim->busy[link->at]    = link;
        sim->speeds[link->at]  = 0;
    }

    flow->step = step;
    flow->goal = given(sim, link) + bytes;
    for (link_bytes = &link->first;
         (*link_bytes != NONE) && (sim->flows[*link_bytes].goal < flow->goal);
         link_bytes = &sim->flows[*link_bytes].next) {
    }
    flow->next = *link_bytes;
    *link_bytes      = index;
    ++sim->states[step].flows;
    sim->is_broken |= (link->way.count == 0);
    mark_way(sim, &link->way);
}

static void start_reduction(sim_t *sim, uint32_t index)
{
    const uct_cuda_plan_step_t *step    = &sim->plan->list.steps[index];
    const uct_cuda_plan_place_t *places =
        uct_cuda_plan_step_sources(&sim->plan->list, step);
    const double link_bytes             = (double)step->bytes /
                        sim->model->kernel_rate;
    const int own = sim->gpus[step->rank];
    double local  = 0;
    unsigned i;
    int gpu;

    for (i = 0; i < step->num_sources + step->num_destinations; ++i) {
        gpu = sim->gpus[places[i].owner];
        if (gpu == own) {
            local += (double)step->bytes;
        } else if (i < step->num_sources) {
            add_transfer(sim, index, gpu, own, link_bytes);
        } else {
            add_transfer(sim, index, own, gpu, link_bytes);
        }
    }

    /* bytes in its own memory count half of a copy inside it */
    if (local > 0) {
        add_transfer(sim, index, own, own, local / 2);
    }
}

static void start_step(sim_t *sim, uint32_t index)
{
    const uct_cuda_plan_step_t *step = &sim->plan->list.steps[index];
    int from, to;

    if (step->type == UCT_CUDA_PLAN_STEP_REDUCE) {
        start_reduction(sim, index);
        return;
    }

    from = sim->gpus[uct_cuda_plan_step_sources(&sim->plan->list, step)->owner];
    to   = sim->gpus[uct_cuda_plan_step_destinations(&sim->plan->list, step)
                       ->owner];
    add_transfer(sim, index, from, to,
                 (double)step->bytes / sim->model->copy_rate);
}

/* Add a step to the heap, earliest on top */
static void push_ready(sim_t *sim, uint32_t step)
{
    uint32_t at = sim->num_ready++;
    uint32_t up;

    for (; at > 0; at = up) {
        up = (at - 1) / 2;
        if (sim->states[sim->ready[up]].start <= sim->states[step].start) {
            break;
        }
        sim->ready[at] = sim->ready[up];
    }
    sim->ready[at] = step;
}

static uint32_t pop_ready(sim_t *sim)
{
    const uint32_t top  = sim->ready[0];
    const uint32_t last = sim->ready[--sim->num_ready];
    uint32_t at         = 0;
    uint32_t down;

    for (down = 1; down < sim->num_ready; down = 2 * at + 1) {
        down += (down + 1 < sim->num_ready) &&
                (sim->states[sim->ready[down + 1]].start <
                 sim->states[sim->ready[down]].start);
        if (sim->states[last].start <= sim->states[sim->ready[down]].start) {
            break;
        }
        sim->ready[at] = sim->ready[down];
        at             = down;
    }
    sim->ready[at] = last;
    return top;
}

/* Return the time from a step's turn to its first byte, s. @a is_queued: its
 * turn came with the end of a step in its own queue */
static double start_time(const sim_t *sim, const uct_cuda_plan_step_t *step,
                         bool is_queued)
{
    const uct_cuda_plan_place_t *places =
        uct_cuda_plan_step_sources(&sim->plan->list, step);
    uint32_t peers = 0;
    unsigned i;

    if (step->type == UCT_CUDA_PLAN_STEP_COPY) {
        return is_queued ? sim->model->start : sim->model->copy_start;
    }

    for (i = 0; i < step->num_sources + step->num_destinations; ++i) {
        peers |= 1u << sim->gpus[places[i].owner];
    }
    peers &= ~(1u << sim->gpus[step->rank]);
    return sim->model->start + sim->model->peer * __builtin_popcount(peers);
}

static void end_step(sim_t *sim, uint32_t index)
{
    const uct_cuda_plan_step_t *steps = sim->plan->list.steps;
    const uct_cuda_plan_coll_model_t *model = sim->model;
    phase_t *state;
    uint32_t s, next;
    double delay;

    --sim->num_left;
    for (s = sim->first[index]; s < sim->first[index + 1]; ++s) {
        next  = sim->successors[s];
        state = &sim->states[next];
        delay = (steps[next].rank != steps[index].rank)   ? model->remote_wait :
                (steps[next].queue != steps[index].queue) ? model->wait :
                                                            0;
        state->start = ucs_max(state->start, sim->now + delay);
        if (--state->waits == 0) {
            state->start += start_time(sim, &steps[next], delay == 0);
            push_ready(sim, next);
        }
    }
}


/* ------------------------------------------------------------------- time */

static size_t count_queues(const uct_cuda_plan_coll_t *plan)
{
    return (size_t)plan->num_ranks * plan->num_queues;
}

/* Find the successors of each step, by waits and the next one in its queue, and
 * count the predecessors of each. Scratch memory: @a previous, one for each
 * step, and @a queues, one for each queue of each rank */
static void find_successors(sim_t *sim, uint32_t *previous, uint32_t *queues)
{
    const uct_cuda_plan_coll_t *plan = sim->plan;
    const uct_cuda_plan_step_t *step;
    const uint32_t *waits;
    uint32_t i, w, count, total;
    uint32_t *last;

    memset(queues, 0xff, count_queues(plan) * sizeof(*queues));
    for (i = 0; i < plan->list.num_steps; ++i) {
        step                 = &plan->list.steps[i];
        waits                = uct_cuda_plan_step_waits(&plan->list, step);
        last                 = &queues[step->rank * plan->num_queues +
                                       step->queue];
        previous[i]          = *last;
        *last                = i;
        sim->states[i].waits = step->num_waits;
        for (w = 0; w < step->num_waits; ++w) {
            ++sim->first[waits[w] + 1];
        }
        if (previous[i] != NONE) {
            ++sim->states[i].waits;
            ++sim->first[previous[i] + 1];
        }
    }

    for (i = 0; i < plan->list.num_steps; ++i) {
        sim->first[i + 1] += sim->first[i];
    }

    total = sim->first[plan->list.num_steps];

    /* filled backwards, moving first[] down to its final place */
    for (i = plan->list.num_steps; i > 0; --i) {
        step  = &plan->list.steps[i - 1];
        waits = uct_cuda_plan_step_waits(&plan->list, step);
        for (w = 0; w < step->num_waits; ++w) {
            count                  = --sim->first[waits[w] + 1];
            sim->successors[count] = i - 1;
        }
        if (previous[i - 1] != NONE) {
            count                  = --sim->first[previous[i - 1] + 1];
            sim->successors[count] = i - 1;
        }
    }
    for (i = 0; i < plan->list.num_steps; ++i) {
        sim->first[i] = sim->first[i + 1];
    }
    sim->first[plan->list.num_steps] = total;
}

/* Return whether another rank waits for the step */
static bool is_shared(const sim_t *sim, uint32_t index)
{
    const uct_cuda_plan_step_t *steps = sim->plan->list.steps;
    uint32_t s;

    for (s = sim->first[index]; s < sim->first[index + 1]; ++s) {
        if (steps[sim->successors[s]].rank != steps[index].rank) {
            return true;
        }
    }
    return false;
}

/* Compute when each rank submits its steps, one after the other, and make those
 * without waits ready */
static void submit(sim_t *sim)
{
    const uct_cuda_plan_coll_t *plan = sim->plan;
    double at[MAX_RANKS];
    unsigned rank;
    uint32_t i;

    for (rank = 0; rank < MAX_RANKS; ++rank) {
        at[rank] = sim->model->begin;
    }

    for (i = 0; i < plan->list.num_steps; ++i) {
        at[plan->list.steps[i].rank] += sim->model->submit +
                                   (is_shared(sim, i) ? sim->model->word : 0);
        sim->states[i].start     = at[plan->list.steps[i].rank];
        if (sim->states[i].waits == 0) {
            sim->states[i].start += start_time(sim, &plan->list.steps[i],
                                               false);
            push_ready(sim, i);
        }
    }
}

/* Return whether the next flow of a busy link has ended */
static bool has_end(const sim_t *sim, unsigned at)
{
    return (sim->until[at] - sim->now) * sim->speeds[at] <= EMPTY;
}

/* End the flows of a link whose end has come. If none are left the last busy
 * link takes its place in the list. */
static void end_flows(sim_t *sim, sim_link_t *link)
{
    unsigned last;
    uint32_t step;

    do {
        step        = sim->flows[link->first].step;
        link->first = sim->flows[link->first].next;
        mark_way(sim, &link->way);
        if (--link->shared.count > 0) {
            find_end(sim, link);
        }
        if (--sim->states[step].flows == 0) {
            end_step(sim, step);
        }
    } while ((link->shared.count > 0) && has_end(sim, link->at));

    if (link->shared.count == 0) {
        last                    = --sim->num_busy;
        sim->busy[link->at]     = sim->busy[last];
        sim->speeds[link->at]   = sim->speeds[last];
        sim->until[link->at]    = sim->until[last];
        sim->busy[link->at]->at = link->at;
    }
}

/* Advance to the next start of a step or end of a flow */
static void advance(sim_t *sim)
{
    double until = DBL_MAX;
    sim_link_t *link;
    unsigned l;

    if (sim->num_old > 0) {
        share(sim);
    }

    if (sim->num_ready > 0) {
        until = sim->states[sim->ready[0]].start;
    }
    for (l = 0; l < sim->num_busy; ++l) {
        until = ucs_min(until, sim->until[l]);
    }

    sim->now = ucs_max(until, sim->now);
    for (l = 0; l < sim->num_busy;) {
        if (!has_end(sim, l)) {
            ++l;
            continue;
        }

        link = sim->busy[l];
        end_flows(sim, link);
        l += (link->shared.count > 0);
    }

    while ((sim->num_ready > 0) &&
           (sim->states[sim->ready[0]].start <= sim->now)) {
        start_step(sim, pop_ready(sim));
    }
}

ucs_status_t uct_cuda_plan_coll_cost(const uct_cuda_plan_coll_t *plan,
                                     const uct_cuda_topo_t *topo,
                                     const int *gpus,
                                     const uct_cuda_plan_coll_model_t *model,
                                     double limit, double *seconds_p)
{
    const size_t count  = plan->list.num_steps;
    sim_t *sim          = calloc(1, sizeof(*sim));
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    uint32_t *previous;
    unsigned i;

    if (sim == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    sim->plan       = plan;
    sim->topo       = topo;
    sim->model      = model;
    sim->num_left   = plan->list.num_steps;
    sim->states     = calloc(count + 1, sizeof(*sim->states));
    sim->first      = calloc(count + 1, sizeof(*sim->first));
    sim->ready      = calloc(count + 1, sizeof(*sim->ready));
    sim->successors = calloc(plan->list.num_waits + count + 1,
                             sizeof(*sim->successors));
    sim->flows      = calloc(plan->list.num_places + 1, sizeof(*sim->flows));
    previous        = calloc(count + count_queues(plan) + 1,
                             sizeof(*previous));
    if ((sim->states == NULL) || (sim->first == NULL) || (sim->ready == NULL) ||
        (sim->successors == NULL) || (sim->flows == NULL) ||
        (previous == NULL)) {
        goto out;
    }

    for (i = 0; i < plan->num_ranks + plan->num_relays; ++i) {
        sim->gpus[i] = (i < plan->num_ranks) ?
                               gpus[i] :
                               plan->relays[i - plan->num_ranks];
    }

    for (i = 0; i < NUM_RESOURCES; ++i) {
        sim->groups[i] = (int16_t)i;
    }
    uct_cuda_plan_coll_links_capacity(topo, model->memory, sim->capacity);
    find_successors(sim, previous, previous + count);
    submit(sim);
    while ((sim->num_left > 0) && !sim->is_broken &&
           (sim->now + model->end <= limit)) {
        advance(sim);
    }

    status     = sim->is_broken ? UCS_ERR_UNSUPPORTED : UCS_OK;
    *seconds_p = sim->now + model->end;

out:
    free(previous);
    free(sim->flows);
    free(sim->successors);
    free(sim->ready);
    free(sim->first);
    free(sim->states);
    free(sim);
    return status;
}
