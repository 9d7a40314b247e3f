/* SPDX-License-Identifier: BSD-3-Clause */
/* A simulation: steps wait, then flow, then end. */
#include <uct/cuda/collective/cost.h>

#include <uct/cuda/collective/links.h>
#include <ucs/sys/math.h>

#include <float.h>
#include <stdlib.h>
#include <string.h>


#define MAX_RANKS UCT_CUDA_COLL_MAX_RANKS
#define MAX_GPUS  UCT_CUDA_MAX_GPUS

#define NUM_RESOURCES UCT_CUDA_COLL_NUM_RESOURCES

/* Of one step: a kernel reads and writes each GPU */
#define STEP_FLOWS (2 * MAX_GPUS + 1)

/* Bytes that are none any more, after so many divisions */
#define EMPTY 0.5


/* Two H200, by hand from one process (driver 580.159). A kernel on each that
 * reads and writes the other takes 16.5, 25, 64, 214, 801 and 3162 us for 1 MiB
 * to 1 GiB: 12 us and the bytes at 0.86 of the link. Copies in two chunks with
 * an adding kernel take 89, 218, 734 and 2787 us from 16 MiB on: of those 22 us
 * are the other GPU's submissions, and the rest is at 0.975 of the link, which
 * is what both directions leave to each other.
 *
 * submit: 2.9 us a copy, 0.35 us an event operation, as in
 * multipath/model_constants.c. wait: a stream looks for
 * another one's event every 8 to 9 us (docs/results/README.md). remote_wait:
 * assumed to be no less; word: a call as a copy's. Neither was measured on
 * GPUs: relays on 2 of beluga's, 64 MiB, carried out on the emulated node, take
 * 689 us where this says 687. copy_start: fitted to the same on another
 * machine, 242, 408, 755 and 2809 us for 64 MiB to 1 GiB. memory: a V100's
 * 900 GB/s, less what is lost. switched_chunks: by hand 256 MiB took 770 us
 * in two, 949 in four, 963 in eight, which the model has no reason for. */
const uct_cuda_coll_model_t uct_cuda_coll_model_builtin = {
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


/* H100 3.35, A100 1.56, V100 0.9 TB/s by their data sheets, less what is lost
 * (H200, copies inside it: 4.3 of 4.8) */
void uct_cuda_coll_model_behind_switch(double ports,
                                       uct_cuda_coll_model_t *model)
{
    *model = uct_cuda_coll_model_builtin;
    if (ports > 350e9) {
        model->memory = 2.9e12;
    } else if (ports > 200e9) {
        model->memory = 1.3e12;
    }
}


typedef struct {
    double   bytes;       /* left when it got its rate */
    double   rate;        /* bytes/s; 0: none yet */
    double   since;       /* seconds: when that was */
    double   until;       /* ... and when it ends */
    uint32_t step;
    bool     is_shared;   /* it has its rate ... */
    bool     is_taken;    /* ... and others have the rest */
    uct_cuda_coll_way_t way;
} flow_t;


typedef struct {
    double   start;       /* seconds: not before */
    uint32_t waits;       /* steps it still waits for */
    uint32_t flows;       /* that have not ended */
} state_t;


typedef struct {
    const uct_cuda_coll_plan_t  *plan;
    const uct_cuda_topo_t       *topo;
    int                         gpus[UCT_CUDA_COLL_MAX_MEMBERS];
    const uct_cuda_coll_model_t *model;
    double   capacity[NUM_RESOURCES]; /* bytes/s */
    double   left[NUM_RESOURCES];
    double   rates[NUM_RESOURCES];    /* of each user */
    unsigned users[NUM_RESOURCES];
    bool     is_tight[NUM_RESOURCES];
    bool     is_old[NUM_RESOURCES]; /* its users have changed */
    int16_t  used[NUM_RESOURCES];
    unsigned num_used;
    double   now;
    state_t  *states;
    uint32_t *first;      /* successors of a step: from here to the next's */
    uint32_t *successors;
    uint32_t *ready;      /* steps that wait for their start only */
    uint32_t num_ready;
    flow_t   *flows;
    unsigned num_flows;
    uint32_t num_left;    /* steps that have not ended */
    bool     has_changed; /* rates are old */
    bool     is_broken;   /* a step has no link */
} sim_t;


/* ------------------------------------------------------------------ rates */

/* What a flow's tightest resource gives each of its users */
static double tightest(const sim_t *sim, const flow_t *flow)
{
    double rate = DBL_MAX;
    unsigned i;

    for (i = 0; i < flow->way.count; ++i) {
        rate = ucs_min(rate, sim->rates[flow->way.resources[i]]);
    }

    return rate;
}

/* Give their rates to the flows on resources that are the tightest of all of
 * their users. @return How many that were; at least one if any is left */
static unsigned share_some(sim_t *sim)
{
    unsigned f, i, u, count = 0;
    flow_t *flow;
    double rate;
    int r;

    for (u = 0; u < sim->num_used; ++u) {
        r                  = sim->used[u];
        sim->rates[r]      = (sim->users[r] > 0) ?
                                     ucs_max(sim->left[r] / sim->users[r], 1) :
                                     DBL_MAX;
        sim->is_tight[r]   = true;
    }

    for (f = 0; f < sim->num_flows; ++f) {
        flow = &sim->flows[f];
        rate = flow->is_shared ? 0 : tightest(sim, flow);
        for (i = 0; !flow->is_shared && (i < flow->way.count); ++i) {
            r = flow->way.resources[i];
            if (sim->rates[r] > rate) {
                sim->is_tight[r] = false;
            }
        }
    }

    for (f = 0; f < sim->num_flows; ++f) {
        flow = &sim->flows[f];
        for (i = 0; !flow->is_shared && (i < flow->way.count); ++i) {
            r = flow->way.resources[i];
            if (sim->is_tight[r]) {
                flow->is_shared = true;
                flow->rate      = sim->rates[r];
                ++count;
            }
        }
        for (i = 0; flow->is_shared && !flow->is_taken &&
                    (i < flow->way.count);
             ++i) {
            r = flow->way.resources[i];
            --sim->users[r];
            sim->left[r] -= flow->rate;
        }
        flow->is_taken = flow->is_shared;
    }

    return count;
}

/* Does a flow have to do with what has changed? Then all that it takes has. */
static bool touch(sim_t *sim, const flow_t *flow)
{
    bool is_touched = false;
    bool is_whole   = true;
    unsigned i;

    for (i = 0; i < flow->way.count; ++i) {
        is_touched |= sim->is_old[flow->way.resources[i]];
        is_whole   &= sim->is_old[flow->way.resources[i]];
    }
    for (i = 0; is_touched && !is_whole && (i < flow->way.count); ++i) {
        sim->is_old[flow->way.resources[i]] = true;
    }
    return is_touched && !is_whole;
}

/* From changed resources to all that are joined with them by flows */
static void spread_changes(sim_t *sim)
{
    bool has_spread = true;
    unsigned f;

    while (has_spread) {
        has_spread = false;
        for (f = 0; f < sim->num_flows; ++f) {
            has_spread |= touch(sim, &sim->flows[f]);
        }
    }
}

static void mark_way(sim_t *sim, const flow_t *flow)
{
    unsigned i;

    for (i = 0; i < flow->way.count; ++i) {
        sim->is_old[flow->way.resources[i]] = true;
    }
    sim->has_changed = true;
}

/* Max-min fair rates of all flows that changes concern */
static void share(sim_t *sim)
{
    flow_t *flow;
    unsigned f, i;
    int r;

    spread_changes(sim);
    sim->num_used = 0;
    for (f = 0; f < sim->num_flows; ++f) {
        flow            = &sim->flows[f];
        flow->is_shared = (flow->way.count == 0) ||
                          !sim->is_old[flow->way.resources[0]];
        flow->is_taken  = flow->is_shared;
        if (flow->is_shared) {
            continue;
        }

        flow->bytes -= flow->rate * (sim->now - flow->since);
        flow->since  = sim->now;
        for (i = 0; i < flow->way.count; ++i) {
            r = flow->way.resources[i];
            if (sim->users[r]++ == 0) {
                sim->used[sim->num_used++] = (int16_t)r;
                sim->left[r]               = sim->capacity[r];
            }
        }
    }

    while (share_some(sim) > 0) {
    }

    for (f = 0; f < sim->num_flows; ++f) {
        flow = &sim->flows[f];
        if (flow->since == sim->now) {
            flow->until = sim->now + flow->bytes / flow->rate;
        }
    }

    memset(sim->is_old, 0, sizeof(sim->is_old));
    sim->has_changed = false;
}


/* ------------------------------------------------------------------ steps */

static flow_t *add_flow(sim_t *sim, uint32_t step, double bytes)
{
    flow_t *flow = &sim->flows[sim->num_flows++];

    flow->step  = step;
    flow->bytes = bytes;
    flow->rate  = 0;
    flow->since = sim->now;
    ++sim->states[step].flows;
    return flow;
}

/* Bytes from one GPU's memory to another's, or inside one */
static void add_transfer(sim_t *sim, uint32_t step, int from, int to,
                         double bytes)
{
    flow_t *flow = add_flow(sim, step, bytes);

    uct_cuda_coll_links_direct(sim->topo, from, to, &flow->way);
    mark_way(sim, flow);
    sim->is_broken = sim->is_broken || (flow->way.count == 0);
}

static void start_reduction(sim_t *sim, uint32_t index)
{
    const uct_cuda_coll_step_t *step    = &sim->plan->steps[index];
    const uct_cuda_coll_place_t *places = uct_cuda_coll_step_sources(sim->plan,
                                                                     step);
    const double link                   = (double)step->bytes /
                        sim->model->kernel_rate;
    const int own = sim->gpus[step->rank];
    double local  = 0;
    unsigned i;
    int gpu;

    for (i = 0; i < step->num_sources + step->num_destinations; ++i) {
        gpu = sim->gpus[places[i].rank];
        if (gpu == own) {
            local += (double)step->bytes;
        } else if (i < step->num_sources) {
            add_transfer(sim, index, gpu, own, link);
        } else {
            add_transfer(sim, index, own, gpu, link);
        }
    }

    /* What its own memory does is half of a copy inside it */
    if (local > 0) {
        add_transfer(sim, index, own, own, local / 2);
    }
}

static void start_step(sim_t *sim, uint32_t index)
{
    const uct_cuda_coll_step_t *step = &sim->plan->steps[index];
    int from, to;

    if (step->type == UCT_CUDA_COLL_REDUCE) {
        start_reduction(sim, index);
        return;
    }

    from = sim->gpus[uct_cuda_coll_step_sources(sim->plan, step)->rank];
    to   = sim->gpus[uct_cuda_coll_step_destinations(sim->plan, step)->rank];
    add_transfer(sim, index, from, to,
                 (double)step->bytes / sim->model->copy_rate);
}

/* From a step's turn to its first byte */
static double start_time(const sim_t *sim, const uct_cuda_coll_step_t *step,
                         bool is_queued)
{
    const uct_cuda_coll_place_t *places = uct_cuda_coll_step_sources(sim->plan,
                                                                     step);
    uint32_t peers = 0;
    unsigned i;

    if (step->type == UCT_CUDA_COLL_COPY) {
        return is_queued ? sim->model->start : sim->model->copy_start;
    }

    for (i = 0; i < step->num_sources + step->num_destinations; ++i) {
        peers |= 1u << sim->gpus[places[i].rank];
    }
    peers &= ~(1u << sim->gpus[step->rank]);
    return sim->model->start + sim->model->peer * __builtin_popcount(peers);
}

static void end_step(sim_t *sim, uint32_t index)
{
    const uct_cuda_coll_step_t *steps = sim->plan->steps;
    const uct_cuda_coll_model_t *model = sim->model;
    state_t *state;
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
            state->start                  += start_time(sim, &steps[next],
                                                        delay == 0);
            sim->ready[sim->num_ready++] = next;
        }
    }
}


/* ------------------------------------------------------------------- time */

/* Whom each step holds up: by waits, and as the one before in its queue */
static void find_successors(sim_t *sim, uint32_t *previous)
{
    const uct_cuda_coll_plan_t *plan = sim->plan;
    uint32_t last[MAX_RANKS][UCT_CUDA_COLL_MAX_QUEUES];
    const uct_cuda_coll_step_t *step;
    const uint32_t *waits;
    uint32_t i, w, count, total;

    memset(last, 0xff, sizeof(last));
    for (i = 0; i < plan->num_steps; ++i) {
        step                          = &plan->steps[i];
        waits                         = uct_cuda_coll_step_waits(plan, step);
        previous[i]                   = last[step->rank][step->queue];
        last[step->rank][step->queue] = i;
        sim->states[i].waits          = step->num_waits;
        for (w = 0; w < step->num_waits; ++w) {
            ++sim->first[waits[w] + 1];
        }
        if (previous[i] != UINT32_MAX) {
            ++sim->states[i].waits;
            ++sim->first[previous[i] + 1];
        }
    }

    for (i = 0; i < plan->num_steps; ++i) {
        sim->first[i + 1] += sim->first[i];
    }

    total = sim->first[plan->num_steps];

    /* Filled from behind; first[] moves down to where it belongs */
    for (i = plan->num_steps; i > 0; --i) {
        step  = &plan->steps[i - 1];
        waits = uct_cuda_coll_step_waits(plan, step);
        for (w = 0; w < step->num_waits; ++w) {
            count                  = --sim->first[waits[w] + 1];
            sim->successors[count] = i - 1;
        }
        if (previous[i - 1] != UINT32_MAX) {
            count                  = --sim->first[previous[i - 1] + 1];
            sim->successors[count] = i - 1;
        }
    }
    for (i = 0; i < plan->num_steps; ++i) {
        sim->first[i] = sim->first[i + 1];
    }
    sim->first[plan->num_steps] = total;
}

/* Does another rank wait for it? */
static bool is_shared(const sim_t *sim, uint32_t index)
{
    const uct_cuda_coll_step_t *steps = sim->plan->steps;
    uint32_t s;

    for (s = sim->first[index]; s < sim->first[index + 1]; ++s) {
        if (steps[sim->successors[s]].rank != steps[index].rank) {
            return true;
        }
    }
    return false;
}

/* Each rank submits its steps one after the other */
static void submit(sim_t *sim)
{
    const uct_cuda_coll_plan_t *plan = sim->plan;
    double at[MAX_RANKS];
    unsigned rank;
    uint32_t i;

    for (rank = 0; rank < MAX_RANKS; ++rank) {
        at[rank] = sim->model->begin;
    }

    for (i = 0; i < plan->num_steps; ++i) {
        at[plan->steps[i].rank] += sim->model->submit +
                                   (is_shared(sim, i) ? sim->model->word : 0);
        sim->states[i].start     = at[plan->steps[i].rank];
        if (sim->states[i].waits == 0) {
            sim->states[i].start         += start_time(sim, &plan->steps[i],
                                                       false);
            sim->ready[sim->num_ready++] = i;
        }
    }
}

/* On to the next moment at which a step starts or a flow ends */
static void advance(sim_t *sim)
{
    double until = DBL_MAX;
    flow_t *flow;
    uint32_t i, step;
    unsigned f;

    if (sim->has_changed) {
        share(sim);
    }

    for (i = 0; i < sim->num_ready; ++i) {
        until = ucs_min(until, sim->states[sim->ready[i]].start);
    }
    for (f = 0; f < sim->num_flows; ++f) {
        until = ucs_min(until, sim->flows[f].until);
    }

    sim->now = ucs_max(until, sim->now);
    for (f = 0; f < sim->num_flows;) {
        flow = &sim->flows[f];
        if ((flow->until - sim->now) * flow->rate > EMPTY) {
            ++f;
            continue;
        }

        step = flow->step;
        mark_way(sim, flow);
        *flow = sim->flows[--sim->num_flows];
        if (--sim->states[step].flows == 0) {
            end_step(sim, step);
        }
    }

    for (i = 0; i < sim->num_ready;) {
        step = sim->ready[i];
        if (sim->states[step].start > sim->now) {
            ++i;
            continue;
        }

        sim->ready[i] = sim->ready[--sim->num_ready];
        start_step(sim, step);
    }
}

ucs_status_t uct_cuda_coll_cost(const uct_cuda_coll_plan_t *plan,
                                const uct_cuda_topo_t *topo, const int *gpus,
                                const uct_cuda_coll_model_t *model,
                                double *seconds_p)
{
    const size_t count  = plan->num_steps;
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
    sim->num_left   = plan->num_steps;
    sim->states     = calloc(count + 1, sizeof(*sim->states));
    sim->first      = calloc(count + 1, sizeof(*sim->first));
    sim->ready      = calloc(count + 1, sizeof(*sim->ready));
    sim->successors = calloc(plan->num_waits + count + 1,
                             sizeof(*sim->successors));
    sim->flows      = calloc((size_t)MAX_RANKS * plan->num_queues * STEP_FLOWS +
                                     1,
                             sizeof(*sim->flows));
    previous        = calloc(count + 1, sizeof(*previous));
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

    uct_cuda_coll_links_capacity(topo, model->memory, sim->capacity);
    find_successors(sim, previous);
    submit(sim);
    while ((sim->num_left > 0) && !sim->is_broken) {
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
