/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Execution of a rank schedule: a stream for each queue, and an event after
 * each awaited step. Streams of this rank wait for each other's events. For
 * steps of another rank the host waits before it submits the next step.
 */
#include <uct/cuda/run/schedule.h>

#include <uct/cuda/base/clock.h>
#include <uct/cuda/run/submit.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define NO_STEP UINT32_MAX

/* Time after which the driver is queried for failures in any case, ns */
#define QUERY_INTERVAL 1000000

/* Without words: query again after this fraction of the time since the last
 * completion, which bounds the added delay */
#define QUERY_PART 64


/** Steps to be ended by another rank on one of its queues. */
typedef struct {
    uint8_t  rank;
    uint8_t  queue;
    uint32_t steps;
} remote_wait_t;

typedef struct {
    const uct_cuda_plan_step_t *step;
    uint32_t                   next;      /* next one of this queue, NO_STEP */
    uint32_t                   ordinal;   /* in the queue, from 1 */
    uint32_t                   event;     /* number, or NO_STEP */
    bool                       is_shared; /* another rank waits for it */
    /* a step of this rank waits for it */
    bool                       is_awaited;
    uint32_t                   local;     /* first of its waits */
    uint32_t                   num_local; /* waits for steps of this rank */
    uint32_t                   remote;
    uint32_t                   num_remote;
    bool                       is_submitted;
} own_step_t;

/* Position of a step of the plan */
typedef struct {
    uint32_t ordinal; /* in its queue, from 1 */
    uint32_t own;     /* among this rank's steps; NO_STEP: of another rank */
} number_t;

typedef struct {
    uint32_t first;
    uint32_t next;   /* to be submitted */
    uint32_t polled; /* first one not seen complete */
    CUstream stream;
} queue_t;

struct uct_cuda_run_schedule {
    uct_cuda_plan_coll_t plan;
    unsigned             rank;
    uint32_t             num_steps;
    uint32_t             num_events;
    unsigned             num_queues;
    own_step_t           *steps;
    uint32_t             num_local, num_remote;
    uint32_t             *local;  /* awaited steps of this rank */
    remote_wait_t        *remote;
    queue_t              queues[UCT_CUDA_PLAN_COLL_MAX_QUEUES];
    /* During a call */
    const uct_cuda_run_coll_call_t *run;
    uct_cuda_run_submit_t    submit;
    uint64_t                 ended; /* time of the last completion */
    uint64_t                 queried; /* time of the last driver query */
    bool                     is_logged; /* the wait since then was reported */
};


/* Return whether the host must see the step's end */
static bool is_watched(const own_step_t *step)
{
    return step->is_shared || (step->next == NO_STEP);
}

/* --------------------------------------------------------------- schedule */

const uct_cuda_plan_coll_t *
uct_cuda_run_schedule_plan(const uct_cuda_run_schedule_t *schedule)
{
    return &schedule->plan;
}

void uct_cuda_run_schedule_destroy(uct_cuda_run_schedule_t *schedule)
{
    if (schedule == NULL) {
        return;
    }

    uct_cuda_plan_coll_release(&schedule->plan);
    free(schedule->steps);
    free(schedule->local);
    free(schedule->remote);
    free(schedule);
}

/* Number all steps. @a counts: of each queue of each rank, zeros at first */
static void schedule_number(uct_cuda_run_schedule_t *schedule, uint32_t *counts,
                            number_t *numbers)
{
    const unsigned num_queues = schedule->plan.num_queues;
    const uct_cuda_plan_step_t *step;
    uint32_t i;

    for (i = 0; i < schedule->plan.list.num_steps; ++i) {
        step               = &schedule->plan.list.steps[i];
        numbers[i].ordinal = ++counts[step->rank * num_queues + step->queue];
        numbers[i].own     = (step->rank == schedule->rank) ?
                                     schedule->num_steps++ :
                                     NO_STEP;
    }
}

static void schedule_add(uct_cuda_run_schedule_t *schedule, uint32_t index,
                         const number_t *numbers)
{
    const uct_cuda_plan_coll_t *plan = &schedule->plan;
    const uct_cuda_plan_step_t *step = &plan->list.steps[index];
    const uint32_t *waits = uct_cuda_plan_step_waits(&plan->list, step);
    own_step_t *self                 = &schedule->steps[numbers[index].own];
    const uct_cuda_plan_step_t *before;
    remote_wait_t *remote;
    unsigned i;

    self->step    = step;
    self->next    = NO_STEP;
    self->event   = NO_STEP;
    self->ordinal = numbers[index].ordinal;
    self->local   = schedule->num_local;
    self->remote  = schedule->num_remote;
    for (i = 0; i < step->num_waits; ++i) {
        before = &plan->list.steps[waits[i]];
        if (before->rank != schedule->rank) {
            remote        = &schedule->remote[schedule->num_remote++];
            remote->rank  = before->rank;
            remote->queue = before->queue;
            remote->steps = numbers[waits[i]].ordinal;
        } else if (before->queue != step->queue) {
            schedule->local[schedule->num_local++] = numbers[waits[i]].own;
        }
    }
    self->num_local  = schedule->num_local - self->local;
    self->num_remote = schedule->num_remote - self->remote;
}

/* Mark steps of this rank awaited by another rank's step */
static void schedule_share(uct_cuda_run_schedule_t *schedule,
                           const uct_cuda_plan_step_t *step,
                           const number_t *numbers)
{
    const uint32_t *waits = uct_cuda_plan_step_waits(&schedule->plan.list,
                                                     step);
    uint32_t own;
    unsigned i;

    for (i = 0; i < step->num_waits; ++i) {
        own = numbers[waits[i]].own;
        if (own != NO_STEP) {
            schedule->steps[own].is_shared = true;
        }
    }
}

/* Put this rank's steps into queues, with an event after each awaited step and
 * after the last one of a queue */
static void schedule_queue(uct_cuda_run_schedule_t *schedule)
{
    uint32_t last[UCT_CUDA_PLAN_COLL_MAX_QUEUES];
    own_step_t *step;
    uint32_t i, w;
    unsigned queue;

    for (queue = 0; queue < UCT_CUDA_PLAN_COLL_MAX_QUEUES; ++queue) {
        schedule->queues[queue].first = NO_STEP;
        last[queue]                   = NO_STEP;
    }

    for (i = 0; i < schedule->num_steps; ++i) {
        step  = &schedule->steps[i];
        queue = step->step->queue;
        if (last[queue] == NO_STEP) {
            schedule->queues[queue].first = i;
        } else {
            schedule->steps[last[queue]].next = i;
        }
        last[queue] = i;
        for (w = 0; w < step->num_local; ++w) {
            schedule->steps[schedule->local[step->local + w]].is_awaited = true;
        }
        if (queue >= schedule->num_queues) {
            schedule->num_queues = queue + 1;
        }
    }

    for (i = 0; i < schedule->num_steps; ++i) {
        step = &schedule->steps[i];
        if (step->is_awaited || is_watched(step)) {
            step->event = schedule->num_events++;
        }
    }
}

ucs_status_t uct_cuda_run_schedule_create(uct_cuda_plan_coll_t *plan,
                                          unsigned rank,
                                          uct_cuda_run_schedule_t **schedule_p)
{
    uct_cuda_run_schedule_t *schedule = calloc(1, sizeof(*schedule));
    number_t *numbers                 = malloc((plan->list.num_steps + 1) *
                                               sizeof(*numbers));
    uint32_t *counts                  = calloc(plan->num_ranks *
                                               plan->num_queues + 1,
                                               sizeof(*counts));
    ucs_status_t status              = UCS_ERR_NO_MEMORY;
    uint32_t i;

    if ((schedule == NULL) || (numbers == NULL) || (counts == NULL)) {
        uct_cuda_plan_coll_release(plan);
        free(schedule);
        goto out;
    }

    schedule->plan = *plan;
    schedule->rank = rank;
    memset(plan, 0, sizeof(*plan));
    schedule_number(schedule, counts, numbers);
    schedule->steps = calloc(schedule->num_steps + 1, sizeof(*schedule->steps));
    schedule->local  = calloc(schedule->plan.list.num_waits + 1,
                              sizeof(*schedule->local));
    schedule->remote = calloc(schedule->plan.list.num_waits + 1,
                              sizeof(*schedule->remote));
    if ((schedule->steps == NULL) || (schedule->local == NULL) ||
        (schedule->remote == NULL)) {
        uct_cuda_run_schedule_destroy(schedule);
        goto out;
    }

    for (i = 0; i < schedule->plan.list.num_steps; ++i) {
        if (numbers[i].own != NO_STEP) {
            schedule_add(schedule, i, numbers);
        } else {
            schedule_share(schedule, &schedule->plan.list.steps[i], numbers);
        }
    }
    schedule_queue(schedule);
    *schedule_p = schedule;
    status      = UCS_OK;

out:
    free(counts);
    free(numbers);
    return status;
}


/* -------------------------------------------------------------------- run */

void uct_cuda_run_coll_events_release(uct_cuda_run_coll_events_t *events,
                                      uct_cuda_run_coll_device_t *device,
                                      bool is_alive)
{
    unsigned i;

    for (i = 0; is_alive && (i < events->count); ++i) {
        (void)UCT_CUDA_CALL(cuEventDestroy, events->events[i]);
    }
    if (events->words_of != NULL) {
        uct_cuda_run_coll_device_put_words(device, events->words_of);
    }
    free(events->events);
    memset(events, 0, sizeof(*events));
}

/* Replace the words by at least this many; without any, events are queried */
static void words_make(uct_cuda_run_coll_events_t *events,
                       uct_cuda_run_coll_device_t *device, unsigned count)
{
    if (events->words_of != NULL) {
        uct_cuda_run_coll_device_put_words(device, events->words_of);
    }

    events->words_of = uct_cuda_run_coll_device_get_words(device, count,
                                                          &events->words);
    events->run_number     = 0;
}

static ucs_status_t events_make(const uct_cuda_run_coll_call_t *run,
                                unsigned count)
{
    uct_cuda_run_coll_events_t *events = run->events;
    ucs_status_t status                = UCS_OK;
    CUevent *grown;

    if (count <= events->count) {
        return UCS_OK;
    }

    grown = realloc(events->events, count * sizeof(*grown));
    if (grown == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    words_make(events, run->device, count);
    events->events = grown;
    while ((events->count < count) && (status == UCS_OK)) {
        status = UCT_CUDA_CALL(cuEventCreate, &events->events[events->count],
                               CU_EVENT_DISABLE_TIMING);
        events->count += (status == UCS_OK);
    }
    return status;
}

ucs_status_t
uct_cuda_run_schedule_prepare(const uct_cuda_run_schedule_t *schedule,
                              const uct_cuda_run_coll_call_t *run)
{
    ucs_status_t status = events_make(run, schedule->num_events);
    CUstream stream;
    unsigned i;

    for (i = 0; (i < schedule->num_queues) && (status == UCS_OK); ++i) {
        status = uct_cuda_run_coll_device_stream(run->device, i, &stream);
    }
    return status;
}

static CUdeviceptr address(const void *arg, const uct_cuda_plan_place_t *place)
{
    const uct_cuda_run_coll_call_t *run =
        ((const uct_cuda_run_schedule_t *)arg)->run;

    return run->places[place->owner][place->buffer] + place->offset;
}

static uct_cuda_end_t
member_end(const uct_cuda_run_schedule_t *schedule, unsigned member)
{
    const uct_cuda_plan_coll_t *plan = &schedule->plan;

    return uct_cuda_end_gpu((member < plan->num_ranks) ?
                                    schedule->run->gpus[member] :
                                    plan->relays[member - plan->num_ranks]);
}

/* Fill the bar of a step; a reduction is in the row of its GPU */
static void name_bar(const void *arg, const uct_cuda_plan_step_t *step,
                     uct_cuda_run_submit_bar_t *bar)
{
    const uct_cuda_run_schedule_t *schedule = arg;
    const uct_cuda_plan_steps_t *list       = &schedule->plan.list;
    const bool is_copy = (step->type == UCT_CUDA_PLAN_STEP_COPY);

    bar->from = member_end(schedule,
                           is_copy ?
                               uct_cuda_plan_step_sources(list, step)->owner :
                               step->rank);
    bar->to   = member_end(schedule, is_copy ?
                           uct_cuda_plan_step_destinations(list, step)->owner :
                           step->rank);
    snprintf(bar->what, sizeof(bar->what), "%squeue %u",
             is_copy ? "" : "reduce, ", step->queue);
    uct_cuda_plan_coll_places_str(&schedule->plan, step, bar->places,
                                  sizeof(bar->places));
}

/* Return how many steps have ended on the awaited queue */
static uint32_t remote_steps(const uct_cuda_run_schedule_t *schedule,
                             const remote_wait_t *remote)
{
    return uct_cuda_node_control_steps(schedule->run->control, remote->rank,
                                       remote->queue, schedule->run->sequence);
}

/* Return whether all predecessors of a step have ended or are in a stream */
static bool may_submit(const uct_cuda_run_schedule_t *schedule,
                       const own_step_t *step)
{
    const remote_wait_t *remote;
    uint32_t i;

    for (i = 0; i < step->num_local; ++i) {
        if (!schedule->steps[schedule->local[step->local + i]].is_submitted) {
            return false;
        }
    }

    for (i = 0; i < step->num_remote; ++i) {
        remote = &schedule->remote[step->remote + i];
        if (remote_steps(schedule, remote) < remote->steps) {
            return false;
        }
    }
    return true;
}

/* Format the start of a line about a wait: the call, and the step's number */
static const char *step_name(const uct_cuda_run_schedule_t *schedule,
                             const own_step_t *step, char *text, size_t size)
{
    snprintf(text, size, "collective %lu: %s of %lu bytes: step %u of rank %u",
             (unsigned long)schedule->run->sequence,
             uct_cuda_coll_kind(schedule->plan.kind)->name,
             (unsigned long)schedule->plan.bytes,
             (unsigned)(step->step - schedule->plan.list.steps),
             schedule->rank);
    return text;
}

/* Report the missing predecessor of a step */
static void log_step(const uct_cuda_run_schedule_t *schedule,
                     const own_step_t *step)
{
    const remote_wait_t *remote;
    uint32_t i, done;
    char name[128];

    for (i = 0; i < step->num_remote; ++i) {
        remote = &schedule->remote[step->remote + i];
        done   = remote_steps(schedule, remote);
        if (done < remote->steps) {
            uct_cuda_log(schedule->run->level,
                         "%s waiting for rank %u: queue %u at step %u of %u",
                         step_name(schedule, step, name, sizeof(name)),
                         remote->rank, remote->queue, done, remote->steps);
        }
    }
}

/* Report the state of every queue after a long wait */
static void log_waits(const uct_cuda_run_schedule_t *schedule)
{
    const queue_t *queue;
    char name[128];
    unsigned i;

    for (i = 0; i < schedule->num_queues; ++i) {
        queue = &schedule->queues[i];
        if (queue->polled != queue->next) {
            uct_cuda_log(schedule->run->level,
                         "%s running on the GPU for more than 1 s",
                         step_name(schedule, &schedule->steps[queue->polled],
                                   name, sizeof(name)));
        } else if (queue->next != NO_STEP) {
            log_step(schedule, &schedule->steps[queue->next]);
        }
    }
}

static ucs_status_t submit(uct_cuda_run_schedule_t *schedule, own_step_t *step,
                           CUstream stream)
{
    const uct_cuda_run_coll_events_t *events = schedule->run->events;
    const own_step_t *before;
    ucs_status_t status;
    uintptr_t word;
    uint32_t i;

    for (i = 0; i < step->num_local; ++i) {
        before = &schedule->steps[schedule->local[step->local + i]];
        status = UCT_CUDA_CALL(cuStreamWaitEvent, stream,
                               events->events[before->event], 0);
        if (status != UCS_OK) {
            return status;
        }
    }

    status = uct_cuda_run_submit_step(&schedule->submit, step->step, stream);
    if ((status == UCS_OK) &&
        (step->is_awaited || (is_watched(step) && (events->words == NULL)))) {
        status = UCT_CUDA_CALL(cuEventRecord, events->events[step->event],
                               stream);
    }
    if ((status == UCS_OK) && is_watched(step) && (events->words != NULL)) {
        word   = (uintptr_t)&events->words[step->event];
        status = UCT_CUDA_CALL(cuStreamWriteValue32, stream, (CUdeviceptr)word,
                               events->run_number, 0);
    }
    step->is_submitted = (status == UCS_OK);
    return status;
}

/* Check whether a submitted step has ended: by its word or, with @a may_query,
 * by querying the driver. @return UCS_OK: it has. UCS_INPROGRESS: it has not,
 * or only the driver would know. Otherwise the driver's failure. */
static ucs_status_t step_ended(const uct_cuda_run_coll_events_t *events,
                               const queue_t *queue, const own_step_t *step,
                               bool may_query)
{
    const uct_cuda_driver_t *driver = uct_cuda_driver_get();
    const char *what                = "cuEventQuery";
    CUresult result;

    if ((events->words != NULL) &&
        (__atomic_load_n(&events->words[step->event], __ATOMIC_ACQUIRE) ==
         events->run_number)) {
        return UCS_OK;
    } else if (!may_query) {
        return UCS_INPROGRESS;
    }

    if (events->words == NULL) {
        result = driver->cuEventQuery(events->events[step->event]);
    } else {
        what   = "cuStreamQuery";
        result = driver->cuStreamQuery(queue->stream);
    }
    return (result == CUDA_ERROR_NOT_READY) ?
                   UCS_INPROGRESS :
                   uct_cuda_driver_check(__FILE__, __LINE__, __func__, what,
                                         result);
}

/* Check the submitted steps of a queue and report their ends to other ranks.
 * @return UCS_INPROGRESS: a step has ended. UCS_OK: none has. Otherwise the
 * driver's failure. */
static ucs_status_t queue_poll(const uct_cuda_run_schedule_t *schedule,
                               queue_t *queue, bool may_query)
{
    const uct_cuda_run_coll_call_t *run = schedule->run;
    ucs_status_t status                 = UCS_OK;
    ucs_status_t ended;
    const own_step_t *step;

    while (queue->polled != queue->next) {
        step = &schedule->steps[queue->polled];
        if (is_watched(step)) {
            ended = step_ended(run->events, queue, step, may_query);
            if (ended != UCS_OK) {
                return (ended == UCS_INPROGRESS) ? status : ended;
            }
            status = UCS_INPROGRESS;
            if (step->is_shared) {
                uct_cuda_node_control_step(run->control, step->step->queue,
                                           run->sequence, step->ordinal);
            }
        }
        queue->polled = step->next;
    }
    return status;
}

ucs_status_t uct_cuda_run_schedule_begin(uct_cuda_run_schedule_t *schedule,
                                         const uct_cuda_run_coll_call_t *run)
{
    ucs_status_t status = events_make(run, schedule->num_events);
    queue_t *queue;
    uint32_t i;

    for (i = 0; i < schedule->num_steps; ++i) {
        schedule->steps[i].is_submitted = false;
    }
    for (i = 0; i < schedule->num_queues; ++i) {
        schedule->queues[i].stream = NULL; /* its context may be gone */
    }

    schedule->run            = run;
    schedule->submit.list    = schedule->plan.list;
    schedule->submit.address = address;
    schedule->submit.bar     = name_bar;
    schedule->submit.arg     = schedule;
    schedule->submit.device  = run->device;
    schedule->submit.op      = run->op;
    schedule->submit.type    = run->type;

    schedule->is_logged = false;
    schedule->ended = schedule->queried = uct_cuda_now_ns();
    if (++run->events->run_number == 0) {
        ++run->events->run_number; /* unwritten words are 0 */
    }
    for (i = 0; (i < schedule->num_queues) && (status == UCS_OK); ++i) {
        queue         = &schedule->queues[i];
        queue->next   = queue->first;
        queue->polled = queue->first;
        status        = uct_cuda_run_coll_device_stream(run->device, i,
                                                        &queue->stream);
    }
    return status;
}

/* Wait for submitted work after a failure. @return The failure, or
 * UCS_ERR_ENDPOINT_TIMEOUT: the context is gone or has failed */
static ucs_status_t
run_drain(const uct_cuda_run_schedule_t *schedule, ucs_status_t status)
{
    unsigned i;

    if (status == UCS_ERR_NO_DEVICE) {
        return UCS_ERR_ENDPOINT_TIMEOUT; /* the context is gone */
    }

    for (i = 0; i < schedule->num_queues; ++i) {
        if ((schedule->queues[i].stream != NULL) &&
            (UCT_CUDA_CALL_NOLOG(cuStreamSynchronize,
                                 schedule->queues[i].stream) != UCS_OK)) {
            status = UCS_ERR_ENDPOINT_TIMEOUT;
        }
    }
    return status;
}

/* Submit the first ready step in the plan's order. One only: a driver call
 * takes microseconds, and other ranks wait for reports. @return UCS_INPROGRESS:
 * submitted. */
static ucs_status_t run_submit(uct_cuda_run_schedule_t *schedule)
{
    queue_t *first = NULL;
    ucs_status_t status;
    own_step_t *step;
    queue_t *queue;
    unsigned i;

    for (i = 0; i < schedule->num_queues; ++i) {
        queue = &schedule->queues[i];
        if ((queue->next != NO_STEP) &&
            ((first == NULL) || (queue->next < first->next)) &&
            may_submit(schedule, &schedule->steps[queue->next])) {
            first = queue;
        }
    }
    if (first == NULL) {
        return UCS_OK;
    }

    step   = &schedule->steps[first->next];
    status = submit(schedule, step, first->stream);
    if (status != UCS_OK) {
        return status;
    }

    first->next = step->next;
    return UCS_INPROGRESS;
}

/* Submit at most one step and poll all queues once. @a is_over_p: all steps
 * have ended. @return UCS_OK: nothing has changed. UCS_INPROGRESS: a step was
 * submitted or has ended. Otherwise a failure. */
static ucs_status_t run_progress(uct_cuda_run_schedule_t *schedule,
                                 bool *is_over_p)
{
    ucs_status_t result  = run_submit(schedule);
    const uint64_t now   = uct_cuda_now_ns();
    const uint64_t pause = (schedule->run->events->words != NULL) ?
                                   QUERY_INTERVAL :
                                   (now - schedule->ended) / QUERY_PART;
    const bool may_query = (now - schedule->queried >= pause);
    ucs_status_t status;
    unsigned i;

    if (may_query) {
        schedule->queried = now;
    }
    *is_over_p = true;
    for (i = 0; (i < schedule->num_queues) && (result >= UCS_OK); ++i) {
        if (schedule->queues[i].polled == NO_STEP) {
            continue;
        }

        status      = queue_poll(schedule, &schedule->queues[i], may_query);
        result      = (status == UCS_OK) ? result : status;
        *is_over_p &= (schedule->queues[i].polled == NO_STEP);
    }
    if (result == UCS_INPROGRESS) {
        schedule->ended   = now;
        schedule->is_logged = false;
    } else if (!schedule->is_logged &&
               (now - schedule->ended >= UCT_CUDA_RUN_REPORT_NS)) {
        schedule->is_logged = true;
        log_waits(schedule);
    }
    return result;
}

ucs_status_t uct_cuda_run_schedule_test(uct_cuda_run_schedule_t *schedule,
                                        ucs_status_t status)
{
    bool is_over = false;

    if (status == UCS_OK) {
        do {
            status = run_progress(schedule, &is_over);
        } while ((status == UCS_INPROGRESS) && !is_over);
    }
    if (status < UCS_OK) {
        return run_drain(schedule, status);
    }
    return is_over ? UCS_OK : UCS_INPROGRESS;
}
