/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Work of the driver as operations of the simulation: submission in stream
 * order, moving the bytes when a modelled copy ends, waiting.
 *
 * Due operations are served by any waiting thread of any process, or by a
 * process's service thread if no thread waits. While an operation is due, the
 * emulated clock stands still. So neither the time it takes to move bytes nor
 * the machine's load is visible in emulated time. A host function has a thread
 * of its own and stops the clock for CUEMU_CALL_BUSY_NS at most.
 */
#include "cuemu_work.h"
#include "cuemu_populate.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Real time for which a service thread lets the program serve first, ns; more
   while the program waits for an operation, as it may be preempted */
#define CUEMU_GRACE_NS      500000ull
#define CUEMU_GRACE_WAIT_NS 5000000ull

/* Rate of copies between host buffers, bytes/s; they use no links of the
   node */
#define CUEMU_HOST_COPY_RATE 10e9

uint64_t cuemu_stat_moves, cuemu_stat_bytes, cuemu_stat_torn;

static pthread_t cuemu_service_thread;
static int cuemu_service_running;
static volatile int cuemu_service_stop;
/* Interval at which an idle service thread looks for due operations, ns of real
   time: a killed process may leave the clock stopped at the end of its work */
#define CUEMU_LOOK_AROUND_NS 100000000ull

static uint32_t cuemu_service_word; /* futex: changed to wake the service
                                       thread */
static int cuemu_service_idle;
static int cuemu_num_watches;       /* watched operations not served yet */


/* Most waits for a word of memory at a time; the list is under the session's
   lock */
#define CUEMU_MAX_SPINS 64

/* Longest wait for a word in emulated time, longer than any test */
#define CUEMU_SPIN_MAX_TIME (1000000 * CUEMU_PS_PER_SEC)

/* Delay of a pageable copy's end while nothing waits for it: the time a GPU
   takes to switch between the contexts of two processes. It shows missing
   waits, as H200 do: with GPUs shared by ranks, collectives without a wait were
   wrong in 23 to 83 of 200 cases. */
#define CUEMU_LINGER_TIME (150 * CUEMU_PS_PER_US)

/* Longest time for which a host function stops the clock, ns of real time, if
   it is asleep then and if it runs: it may wait for something that needs time
   to go on. */
#define CUEMU_CALL_NS      10000000ull
#define CUEMU_CALL_BUSY_NS 1000000000ull

/* Interval for looking at stopped processes while the clock stands, ns of real
   time */
#define CUEMU_STOPPED_NS 20000000ull

/* Interval for reading the words that streams wait for, ns of real time */
#define CUEMU_SPIN_LOOK_NS 200000ull

typedef struct {
    cuemu_op_id_t op;
    int           gpu;   /* -1: `offset` is an address in this process */
    uint64_t      offset;
    uint32_t      value;
    unsigned      how;   /* CUstreamWaitValue_flags */
} cuemu_spin_t;

/* Emulated time during which a call holds up the calls of other threads */
static cuemu_time_t cuemu_hold_begin, cuemu_hold_end;

static cuemu_spin_t cuemu_spins[CUEMU_MAX_SPINS];
static int cuemu_num_spins;

static unsigned cuemu_num_unlocking; /* threads in cuemu_process_wait() */

/* ---------------------------------------------------------------- time */

/* Depth of nested calls of this thread, and its number in the clock */
static __thread struct {
    int depth;
    int counts;
    int tid;
    int place;
    cuemu_time_t first; /* when its queries began to find nothing; 0: the last
                           one found its work done */
} cuemu_call = {.place = -1};

void cuemu_work_call_begin(void)
{
    if ((++cuemu_call.depth == 1) && (cuemu_session.slot >= 0) &&
        !cuemu_process.forked) {
        if (cuemu_call.tid == 0) {
            cuemu_call.tid = (int)syscall(SYS_gettid);
        }
        cuemu_call.counts = 1;
        cuemu_call.place  = cuemu_clock_call_begin(
                &cuemu_session.shared->clock, cuemu_session.slot,
                cuemu_call.tid, cuemu_call.place);
    }
}

void cuemu_work_call_end(void)
{
    if ((--cuemu_call.depth == 0) && cuemu_call.counts) {
        cuemu_call.counts = 0;
        if (cuemu_session.slot >= 0) {
            cuemu_clock_call_end(&cuemu_session.shared->clock,
                                 cuemu_session.slot, cuemu_call.place);
        }
    }
}

cuemu_time_t cuemu_now(void)
{
    return cuemu_clock_now(&cuemu_session.shared->clock, cuemu_session.slot,
                           NULL);
}

cuemu_time_t cuemu_cost(cuemu_call_t call)
{
    return cuemu_session.node->cost.call[call];
}

/* Serve the due operations for which the clock stands still. If there are none
   for this process, wait until another one has served one, at most 0.2 ms of
   real time. */
static void cuemu_work_unclamp(void)
{
    cuemu_shared_t *sh = cuemu_session.shared;
    uint32_t served    = __atomic_load_n(&sh->served, __ATOMIC_ACQUIRE);

    if (cuemu_work_progress()) {
        return;
    }

    cuemu_session_wait_served(sh, served);
}

/* Wait until the emulated time `until`, until an operation is due or, unless
   `seen` is NULL, until shared->change differs from *seen. `idle`: see
   cuemu_clock_wait(). */
static void cuemu_work_rest(cuemu_time_t until, cuemu_time_t idle,
                            const uint64_t *seen)
{
    cuemu_shared_t *sh = cuemu_session.shared;

    cuemu_work_call_begin(); /* for cuInit(), which begins outside a call */
    cuemu_clock_wait(&sh->clock, cuemu_session.slot, cuemu_call.place, until,
                     idle, (seen == NULL) ? NULL : &sh->change,
                     (seen == NULL) ? 0 : *seen);
    cuemu_work_call_end();
}

void cuemu_work_spend_until(cuemu_time_t until)
{
    int clamped;

    while (cuemu_clock_now(&cuemu_session.shared->clock, cuemu_session.slot,
                           &clamped) < until) {
        if (clamped) {
            cuemu_work_unclamp();
        } else {
            cuemu_work_rest(until, until, NULL);
        }
    }
}

void cuemu_work_pause(void)
{
    if (!cuemu_work_progress()) {
        cuemu_work_spend_until(cuemu_now() + CUEMU_PS_PER_US);
    }
}

void cuemu_work_spend(cuemu_call_t call)
{
    cuemu_call.first = 0;
    cuemu_work_spend_until(cuemu_now() + cuemu_cost(call));
}

void cuemu_work_spend_polling(cuemu_call_t call)
{
    cuemu_clock_t *clk = &cuemu_session.shared->clock;
    cuemu_time_t now   = cuemu_now(), until, idle;
    int clamped;

    if (clk->is_wall) {
        cuemu_work_spend_until(now + cuemu_cost(call));
        return;
    }

    if ((cuemu_call.first == 0) || (cuemu_call.place < 0)) {
        cuemu_call.first = now;
    }
    cuemu_clock_poll_until(clk, now, cuemu_call.first, cuemu_cost(call), &until,
                           &idle);
    cuemu_work_rest(until, idle, NULL);

    (void)cuemu_clock_now(clk, -1, &clamped);
    cuemu_call.first = clamped ? 0 : cuemu_call.first;
    cuemu_work_spend_until(now + cuemu_cost(call));
    if (cuemu_call.place >= 0) {
        clk->ranks[cuemu_session.slot].threads[cuemu_call.place].polled +=
                cuemu_now() - now;
    }
}

/* If two threads do this at the same time, others are held until the later one
   ends */
void cuemu_work_spend_held(cuemu_call_t call, cuemu_call_t held)
{
    const cuemu_time_t end = cuemu_now() + cuemu_cost(call);

    if (cuemu_cost(held) > 0) {
        __atomic_store_n(&cuemu_hold_begin, end - cuemu_cost(held),
                         __ATOMIC_RELAXED);
        __atomic_store_n(&cuemu_hold_end, end, __ATOMIC_RELEASE);
    }

    cuemu_work_spend_until(end);
}

void cuemu_work_wait_held(void)
{
    const cuemu_time_t end = __atomic_load_n(&cuemu_hold_end, __ATOMIC_ACQUIRE);

    if ((end > 0) && (cuemu_now() >= __atomic_load_n(&cuemu_hold_begin,
                                                     __ATOMIC_RELAXED))) {
        cuemu_work_spend_until(end);
    }
}

/*
 * For benchmarks, which find it by name: return by how much a rank may be ahead
 * of the node, and how much processor time of all ranks together was not
 * counted because they were further ahead. Both in seconds of emulated time.
 */
__attribute__((visibility("default")))
void cuemu_drift(double *ahead_p, double *forgotten_p);

void cuemu_drift(double *ahead_p, double *forgotten_p)
{
    const cuemu_clock_t *clk = &cuemu_session.shared->clock;

    *ahead_p     = CUEMU_CLOCK_AHEAD_NS * 1e-9 / clk->slowdown;
    *forgotten_p = (double)__atomic_load_n(&clk->forgotten_ns,
                                           __ATOMIC_RELAXED) * 1e-9 /
                   clk->slowdown;
}

/* --------------------------------------------------------- moving bytes */

static char *cuemu_payload_ptr(int gpu, uint64_t offset)
{
    return (gpu >= 0) ? (cuemu_session.memory[gpu] + offset) :
                        (char*)(uintptr_t)offset;
}

static uint64_t cuemu_span(uint64_t width, uint64_t height, uint64_t pitch)
{
    return (height == 0) ? 0 : ((height - 1) * pitch + width);
}

static void cuemu_serve_move(const cuemu_payload_t *p)
{
    const cuemu_move_t *move = (p->move >= 0) ?
                               &cuemu_session.shared->moves[p->move] : NULL;
    char *dst                = cuemu_payload_ptr(p->dst_gpu, p->dst);
    const char *src          = cuemu_payload_ptr(p->src_gpu, p->src);
    uint64_t row;

    if ((cuemu_populate(p->dst_gpu, p->dst,
                        cuemu_span(p->width, p->height, p->dst_pitch)) != 0) ||
        (cuemu_populate(p->src_gpu, p->src,
                        cuemu_span(p->width, p->height, p->src_pitch)) != 0)) {
        return;
    }

    if ((move != NULL) && (move->skip_end > move->skip_begin)) {
        memmove(dst, src, move->skip_begin);
        memmove(dst + move->skip_end, src + move->skip_end,
                p->width - move->skip_end);
        return;
    }

    for (row = 0; row < p->height; ++row) {
        memmove(dst + row * p->dst_pitch, src + row * p->src_pitch, p->width);
    }
}

/* Return non-zero if the write of a word follows a faulted kernel: it is never
   made (still missing after a second on an H100, driver 580). */
static int cuemu_is_lost(const cuemu_payload_t *p)
{
    const cuemu_context_t *ctx = (const cuemu_context_t*)(uintptr_t)p->stream;

    return (ctx != NULL) && (cuemu_context_fault(ctx) != CUDA_SUCCESS);
}

static void cuemu_serve_fill(const cuemu_payload_t *p)
{
    char *dst = cuemu_payload_ptr(p->dst_gpu, p->dst);
    uint64_t row, i;
    char *line;

    if (cuemu_is_lost(p) ||
        cuemu_populate(p->dst_gpu, p->dst,
                       cuemu_span(p->width, p->height, p->dst_pitch)) != 0) {
        return;
    }

    for (row = 0; row < p->height; ++row) {
        line = dst + row * p->dst_pitch;
        if (p->value_size == 1) {
            memset(line, (int)(p->value & 0xff), p->width);
            continue;
        }

        for (i = 0; i < p->width; i += p->value_size) {
            memcpy(line + i, &p->value, p->value_size);
        }
    }
}

/*
 * Return non-zero if the operation takes its time without writing memory: with
 * CUEMU_TIME_ONLY=SIZE copies and fills of at least SIZE bytes do. This gives
 * times of programs whose data is too large for this machine; their results are
 * wrong.
 */
static int cuemu_is_time_only(const cuemu_payload_t *p)
{
    uint64_t size = cuemu_session.shared->time_only;

    return (size > 0) && (p->width * p->height >= size);
}

static void cuemu_serve_call(const cuemu_payload_t *p)
{
    CUhostFn func;
    CUstreamCallback callback;

    cuemu_in_callback = 1;
    if (p->value != 0) {
        callback = (CUstreamCallback)(uintptr_t)p->func;
        callback((CUstream)(uintptr_t)p->stream, CUDA_SUCCESS,
                 (void*)(uintptr_t)p->arg);
    } else {
        func = (CUhostFn)(uintptr_t)p->func;
        func((void*)(uintptr_t)p->arg);
    }
    cuemu_in_callback = 0;
}

static void cuemu_serve(const cuemu_op_desc_t *desc)
{
    const cuemu_payload_t *p = (const cuemu_payload_t*)&desc->payload;

    switch (p->kind) {
    case CUEMU_PAYLOAD_MOVE:
        if (!cuemu_is_time_only(p)) {
            cuemu_serve_move(p);
            __atomic_add_fetch(&cuemu_stat_moves, 1, __ATOMIC_RELAXED);
            __atomic_add_fetch(&cuemu_stat_bytes, p->width * p->height,
                               __ATOMIC_RELAXED);
        }
        free((void*)(uintptr_t)p->arg); /* copy of pageable memory, or NULL */
        break;
    case CUEMU_PAYLOAD_FILL:
        if (!cuemu_is_time_only(p)) {
            cuemu_serve_fill(p);
        }
        break;
    case CUEMU_PAYLOAD_CALL:
        cuemu_serve_call(p);
        break;
    case CUEMU_PAYLOAD_KERNEL:
        ((void (*)(uint64_t))(uintptr_t)p->func)(p->arg);
        break;
    case CUEMU_PAYLOAD_WATCH:
        __atomic_sub_fetch(&cuemu_num_watches, 1, __ATOMIC_RELAXED);
        cuemu_clock_wake(&cuemu_session.shared->clock, cuemu_session.slot);
        break;
    default:
        break;
    }
}

/*
 * Show a missing wait between two copies. On real hardware a copy reads its
 * source during all of its time. So if a copy is about to overwrite bytes still
 * read by another, running copy, give the other one half the old and half the
 * new bytes: it is wrong in either order.
 */
static void cuemu_tear(cuemu_op_id_t id, const cuemu_op_desc_t *desc)
{
    const cuemu_payload_t *w = (const cuemu_payload_t*)&desc->payload;
    cuemu_shared_t *sh       = cuemu_session.shared;
    cuemu_time_t now         = cuemu_sim_time(cuemu_session.sim);
    const cuemu_op_desc_t *x_desc;
    const cuemu_payload_t *x;
    uint64_t w_end, begin, end;
    cuemu_op_state_t state;
    cuemu_time_t start;
    cuemu_move_t *move;
    int i;

    if (((w->kind != CUEMU_PAYLOAD_MOVE) && (w->kind != CUEMU_PAYLOAD_FILL)) ||
        cuemu_is_time_only(w)) {
        return;
    }

    w_end = w->dst + cuemu_span(w->width, w->height, w->dst_pitch);
    for (i = 0; i < sh->num_moves; ++i) {
        move = &sh->moves[i];
        if ((move->op == 0) || (move->op == id) ||
            (move->skip_end > move->skip_begin)) {
            continue;
        }

        x_desc = cuemu_sim_op_desc(cuemu_session.sim, move->op);
        if (x_desc == NULL) {
            continue;
        }

        x = (const cuemu_payload_t*)&x_desc->payload;
        if ((x->kind != CUEMU_PAYLOAD_MOVE) || (x->height != 1) ||
            (x->src_gpu != w->dst_gpu) || (x->src >= w_end) ||
            (x->src + x->width <= w->dst)) {
            continue;
        }

        if ((x->src_gpu < 0) && (x_desc->owner != desc->owner)) {
            continue; /* equal addresses of different processes */
        }

        if ((x_desc->flags & CUEMU_OP_OWNER_ONLY) &&
            (x_desc->owner != CUEMU_OWNER_COPY(cuemu_session.slot))) {
            continue;
        }

        state = cuemu_sim_op_query(cuemu_session.sim, move->op, NULL, &start,
                                   NULL);
        if ((start < 0) || (start >= now) ||
            ((state != CUEMU_OP_STATE_RUNNING) &&
             (state != CUEMU_OP_STATE_LANDING) &&
             (state != CUEMU_OP_STATE_DUE))) {
            continue;
        }

        begin = ((w->dst > x->src) ? w->dst : x->src) - x->src;
        end   = ((w_end < x->src + x->width) ? w_end : x->src + x->width) -
                x->src;
        end   = begin + (end - begin + 1) / 2;
        if (cuemu_populate(x->dst_gpu, x->dst + begin, end - begin) == 0) {
            memmove(cuemu_payload_ptr(x->dst_gpu, x->dst) + begin,
                    cuemu_payload_ptr(x->src_gpu, x->src) + begin,
                    end - begin);
            move->skip_begin = begin;
            move->skip_end   = end;
            __atomic_add_fetch(&cuemu_stat_torn, 1, __ATOMIC_RELAXED);
        }
    }
}

/* Note that a due operation was served. Call with the session's lock. */
static void cuemu_served(cuemu_op_id_t id, const cuemu_op_desc_t *desc)
{
    cuemu_shared_t *sh = cuemu_session.shared;
    const int move     = ((const cuemu_payload_t*)&desc->payload)->move;

    if (move >= 0) {
        sh->moves[move].op = 0;
    }

    cuemu_sim_served(cuemu_session.sim, id);
    ++sh->change;
    __atomic_add_fetch(&sh->served, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&sh->sleepers, __ATOMIC_SEQ_CST) > 0) {
        cuemu_clock_source->wake(&sh->served);
    }
}

/* Serve one due operation. Return 0 if there is none. Call with the session's
   lock, which is released meanwhile. */
static int cuemu_serve_one(int owner)
{
    cuemu_op_desc_t desc;
    cuemu_op_id_t id;

    id = cuemu_sim_service(cuemu_session.sim, owner, &desc);
    if (id == 0) {
        return 0;
    }

    cuemu_tear(id, &desc);
    cuemu_session_unlock();
    cuemu_serve(&desc);
    cuemu_session_lock();
    cuemu_served(id, &desc);
    return 1;
}

/* Return non-zero if a host function has stopped the clock for long enough. */
static int cuemu_call_is_long(const cuemu_slot_t *slot)
{
    const uint64_t now_ns = cuemu_real_ns();

    return (now_ns > slot->call_ns + CUEMU_CALL_BUSY_NS) ||
           ((now_ns > slot->call_ns + CUEMU_CALL_NS) && (slot->call_tid != 0) &&
            (cuemu_clock_source->is_running(slot->pid, slot->call_tid, 0) <=
             0));
}

/* Let the clock go on without host functions that take long. Call with the
   session's lock. */
static void cuemu_calls_suspend(cuemu_shared_t *sh)
{
    cuemu_slot_t *slot;

    for (slot = sh->slots; slot < sh->slots + CUEMU_MAX_PROCS; ++slot) {
        if ((slot->call != 0) && cuemu_call_is_long(slot)) {
            cuemu_sim_suspend(cuemu_session.sim, slot->call);
            slot->call = 0;
        }
    }
}

/* Let the clock go on without processes that a signal or a debugger has
   stopped: a GPU does not wait for them. Asks the kernel once in
   CUEMU_STOPPED_NS. Call with the session's lock. */
static void cuemu_stopped_put_off(cuemu_shared_t *sh)
{
    static uint64_t asked_ns;
    const uint64_t now_ns = cuemu_real_ns();
    const cuemu_time_t until = cuemu_sim_time(cuemu_session.sim) +
                               1000 * CUEMU_PS_PER_US;
    int slot;

    if (now_ns < asked_ns + CUEMU_STOPPED_NS) {
        return;
    }

    asked_ns = now_ns;
    for (slot = 0; slot < CUEMU_MAX_PROCS; ++slot) {
        if ((sh->slots[slot].pid != 0) && (slot != cuemu_session.slot) &&
            (sh->clock.ranks[slot].space == cuemu_clock_source->space()) &&
            (cuemu_clock_source->is_running(sh->slots[slot].pid,
                                            sh->slots[slot].pid,
                                            0) == CUEMU_CLOCK_STOPPED)) {
            cuemu_sim_put_off(cuemu_session.sim, CUEMU_OWNER_COPY(slot), until);
            cuemu_sim_put_off(cuemu_session.sim, CUEMU_OWNER_CALL(slot), until);
        }
    }
}

static int cuemu_spin_is_over(const cuemu_spin_t *spin)
{
    uint32_t word = __atomic_load_n((const uint32_t*)cuemu_payload_ptr(
                                            spin->gpu, spin->offset),
                                    __ATOMIC_ACQUIRE);

    switch (spin->how) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return (int32_t)(word - spin->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return word == spin->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word & spin->value) != 0;
    default:
        return ~(word | spin->value) != 0;
    }
}

/* End the running waits whose word meets the condition, and forget those that
   have ended. Return non-zero if it ended any. Call with the session's lock. */
static int cuemu_spins_poll(void)
{
    cuemu_sim_t *sim = cuemu_session.sim;
    int i, any = 0;

    for (i = 0; i < cuemu_num_spins; ++i) {
        if (cuemu_sim_op_done(sim, cuemu_spins[i].op)) {
            cuemu_spins[i--] = cuemu_spins[--cuemu_num_spins];
        } else if ((cuemu_sim_op_query(sim, cuemu_spins[i].op, NULL, NULL,
                                       NULL) == CUEMU_OP_STATE_RUNNING) &&
                   cuemu_spin_is_over(&cuemu_spins[i])) {
            cuemu_sim_op_end(sim, cuemu_spins[i].op);
            any = 1;
        }
    }

    return any;
}

static void cuemu_poll(void)
{
    cuemu_shared_t *sh  = cuemu_session.shared;
    cuemu_time_t before = cuemu_sim_time(cuemu_session.sim);

    if (cuemu_sim_num_due(cuemu_session.sim) > 0) {
        cuemu_calls_suspend(sh);
        cuemu_stopped_put_off(sh);
    }
    cuemu_clock_poll(&sh->clock, cuemu_session.sim);
    if ((cuemu_num_spins > 0) && cuemu_spins_poll()) {
        ++sh->change;
        cuemu_clock_poll(&sh->clock, cuemu_session.sim);
    }
    if (cuemu_sim_time(cuemu_session.sim) != before) {
        ++sh->change;
    }
}

static void cuemu_service_poke(void)
{
    __atomic_add_fetch(&cuemu_service_word, 1, __ATOMIC_SEQ_CST);
    cuemu_clock_source->wake(&cuemu_service_word);
}

int cuemu_work_progress(void)
{
    int any = 0, calls;
    uint64_t change;

    cuemu_session_lock();
    change = cuemu_session.shared->change;
    cuemu_poll();
    while (cuemu_serve_one(CUEMU_OWNER_COPY(cuemu_session.slot))) {
        any = 1;
        cuemu_poll();
    }

    any  |= (change != cuemu_session.shared->change);
    calls = cuemu_sim_owner_is_due(cuemu_session.sim,
                                   CUEMU_OWNER_CALL(cuemu_session.slot));
    if (!any && (cuemu_sim_num_due(cuemu_session.sim) > 0)) {
        cuemu_session_reap(0);
    }
    cuemu_session_unlock();

    if (calls) {
        cuemu_service_poke();
    }

    return any;
}

/* ------------------------------------------------------- service thread */

/* Report this thread's processor time to the clock, which leaves it out. */
static void cuemu_service_count(void)
{
    static __thread uint64_t counted;
    cuemu_clock_rank_t *rank =
            &cuemu_session.shared->clock.ranks[cuemu_session.slot];
    const uint64_t ns = cuemu_clock_source->thread_ns();

    __atomic_add_fetch(&rank->service_ns, ns - counted, __ATOMIC_RELEASE);
    counted = ns;
}

typedef struct {
    cuemu_op_id_t   id;
    cuemu_op_desc_t desc;
} cuemu_host_call_t;

/* Run a host function, in a thread of its own: it may wait for anything but the
   driver. */
static void *cuemu_call_main(void *arg)
{
    cuemu_host_call_t *call = arg;
    cuemu_slot_t *slot      = &cuemu_session.shared->slots[cuemu_session.slot];

    __atomic_store_n(&slot->call_tid, (int32_t)syscall(SYS_gettid),
                     __ATOMIC_RELAXED);
    cuemu_serve(&call->desc);

    cuemu_session_lock();
    if (slot->call == call->id) {
        slot->call = 0;
        cuemu_service_count(); /* before time moves on */
    }
    cuemu_served(call->id, &call->desc);
    cuemu_poll();
    cuemu_session_unlock();

    cuemu_service_poke();
    free(call);
    return NULL;
}

/* Start the process's next due host function, unless another one runs that has
   not been suspended. Return non-zero if it did. Call with the session's
   lock. */
static int cuemu_call_start(void)
{
    const int owner         = CUEMU_OWNER_CALL(cuemu_session.slot);
    cuemu_slot_t *slot      = &cuemu_session.shared->slots[cuemu_session.slot];
    cuemu_host_call_t *call = NULL;
    pthread_t thread;

    if ((slot->call != 0) ||
        !cuemu_sim_owner_is_due(cuemu_session.sim, owner) ||
        ((call = malloc(sizeof(*call))) == NULL)) {
        return 0;
    }

    call->id       = cuemu_sim_service(cuemu_session.sim, owner, &call->desc);
    slot->call     = call->id;
    slot->call_tid = 0;
    slot->call_ns  = cuemu_real_ns();
    if (pthread_create(&thread, NULL, cuemu_call_main, call) == 0) {
        pthread_detach(thread);
    } else {
        cuemu_session_unlock();
        (void)cuemu_call_main(call);
        cuemu_session_lock();
    }
    return 1;
}

static uint64_t cuemu_service_grace(void)
{
    return (__atomic_load_n(&cuemu_num_watches, __ATOMIC_RELAXED) > 0) ?
           CUEMU_GRACE_WAIT_NS : CUEMU_GRACE_NS;
}

/*
 * Serve host functions at once, other operations only after they were due for
 * cuemu_service_grace(): a waiting program shall notice first, while the clock
 * still stands at the operation's end. Call with the session's lock.
 */
static void cuemu_service_serve(void)
{
    static cuemu_time_t due_since = -1;
    static uint64_t seen_ns       = 0;
    int any;

    do {
        cuemu_poll();
        any = cuemu_call_start();
        if (!any && (cuemu_sim_num_due(cuemu_session.sim) > 0)) {
            if (cuemu_sim_time(cuemu_session.sim) != due_since) {
                due_since = cuemu_sim_time(cuemu_session.sim);
                seen_ns   = cuemu_real_ns();
            } else if (cuemu_real_ns() - seen_ns >= cuemu_service_grace()) {
                any = cuemu_serve_one(CUEMU_OWNER_COPY(cuemu_session.slot));
            }
        }
        if (any) {
            cuemu_service_count(); /* before time moves on */
        }
    } while (any && !cuemu_service_stop);
}

static void *cuemu_service_main(void *arg)
{
    cuemu_shared_t *sh = cuemu_session.shared;
    uint64_t wait_ns;
    uint32_t word;

    sh->clock.ranks[cuemu_session.slot].service = (int32_t)syscall(SYS_gettid);
    while (!cuemu_service_stop) {
        word = __atomic_load_n(&cuemu_service_word, __ATOMIC_SEQ_CST);

        cuemu_session_lock();
        cuemu_service_serve();

        cuemu_session_reap(0);
        if ((cuemu_sim_num_live(cuemu_session.sim,
                                CUEMU_OWNER_COPY(cuemu_session.slot)) == 0) &&
            (cuemu_sim_num_live(cuemu_session.sim,
                                CUEMU_OWNER_CALL(cuemu_session.slot)) == 0)) {
            wait_ns = CUEMU_LOOK_AROUND_NS;
            __atomic_store_n(&cuemu_service_idle, 1, __ATOMIC_SEQ_CST);
        } else if (cuemu_sim_num_due(cuemu_session.sim) > 0) {
            wait_ns = cuemu_service_grace(); /* others may serve meanwhile */
        } else {
            wait_ns = cuemu_clock_real_until(&sh->clock,
                                             cuemu_sim_next(cuemu_session.sim));
            wait_ns = (wait_ns > 50000000ull) ? 50000000ull :
                                                (wait_ns + CUEMU_GRACE_NS / 5);
            if ((cuemu_num_spins > 0) && (wait_ns > CUEMU_SPIN_LOOK_NS)) {
                wait_ns = CUEMU_SPIN_LOOK_NS;
            }
        }
        cuemu_session_unlock();

        cuemu_service_count();
        cuemu_clock_source->wait(&cuemu_service_word, word, wait_ns);
        __atomic_store_n(&cuemu_service_idle, 0, __ATOMIC_SEQ_CST);
    }

    return NULL;
}

/* Do cuemu_work_progress() for the program's sched_yield() and return its
   result; 0 inside a driver call, after a fork, and outside a session. */
static int cuemu_work_yield(void)
{
    return (cuemu_call.depth == 0) && !cuemu_process.forked &&
           (cuemu_session.slot >= 0) && cuemu_work_progress();
}

/* Let the preloaded library call `serve` from sched_yield(); NULL: no longer.
   Has no effect without that library. */
static void cuemu_work_on_yield(int (*serve)(void))
{
    int (**hook)(void) = (int (**)(void))dlsym(RTLD_DEFAULT,
                                               "cuemu_yield_serve");

    if (hook != NULL) {
        __atomic_store_n(hook, serve, __ATOMIC_RELEASE);
    }
}

static void cuemu_service_start(void)
{
    sigset_t all, old;

    if (cuemu_service_running) {
        return;
    }

    cuemu_work_on_yield(cuemu_work_yield);

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    if (pthread_create(&cuemu_service_thread, NULL, cuemu_service_main,
                       NULL) == 0) {
        cuemu_service_running = 1;
    } else {
        fprintf(stderr, "cuemu: cannot start the service thread\n");
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void cuemu_work_stop(void)
{
    const cuemu_slot_t *slot;

    if (!cuemu_service_running) {
        return;
    }

    cuemu_work_on_yield(NULL);
    cuemu_service_stop = 1;
    cuemu_service_poke();
    pthread_join(cuemu_service_thread, NULL);
    cuemu_service_running = 0;

    slot = &cuemu_session.shared->slots[cuemu_session.slot];
    while (!cuemu_in_callback &&
           (__atomic_load_n(&slot->call, __ATOMIC_ACQUIRE) != 0) &&
           (cuemu_real_ns() < slot->call_ns + CUEMU_CALL_NS)) {
        cuemu_clock_source->sleep(100000);
    }
}

/* ----------------------------------------------------------- submission */

/* Return a free entry of shared->moves; -1 if there is none: cuemu_tear() then
   ignores the copy. */
static int cuemu_move_get(void)
{
    cuemu_shared_t *sh = cuemu_session.shared;
    int i;

    for (i = 0; i < CUEMU_MAX_MOVES; ++i) {
        if (sh->moves[i].op == 0) {
            sh->moves[i].skip_begin = 0;
            sh->moves[i].skip_end   = 0;
            if (i >= sh->num_moves) {
                sh->num_moves = i + 1;
            }
            return i;
        }
    }

    return -1;
}

int cuemu_work_settle(cuemu_event_t *event)
{
    uint64_t change = __atomic_load_n(&cuemu_session.shared->change,
                                      __ATOMIC_ACQUIRE);

    if (event->op == 0) {
        return 1;
    }

    cuemu_session_lock();
    if (cuemu_sim_op_done(cuemu_session.sim, event->op)) {
        event->end = cuemu_sim_op_end_time(cuemu_session.sim, event->op);
        cuemu_sim_op_release(cuemu_session.sim, event->op);
        event->op = 0;
    } else {
        event->change = change;
    }
    cuemu_session_unlock();
    return event->op == 0;
}

/* Make room in a full simulation, which holds the operations of events. */
static void cuemu_work_settle_all(void)
{
    cuemu_event_t *event;

    for (event = cuemu_object_next(CUEMU_OBJ_EVENT, NULL); event != NULL;
         event = cuemu_object_next(CUEMU_OBJ_EVENT, event)) {
        (void)cuemu_work_settle(event);
    }
}

cuemu_op_id_t cuemu_work_add(cuemu_work_t *work, const cuemu_op_id_t *deps,
                             unsigned num_deps, cuemu_time_t at)
{
    cuemu_shared_t *sh = cuemu_session.shared;
    cuemu_op_id_t id   = 0;
    cuemu_status_t status;
    int poke;

    cuemu_service_start();
    work->desc.not_before = at;
    if (work->payload.kind != CUEMU_PAYLOAD_CALL) {
        work->desc.owner = CUEMU_OWNER_COPY(cuemu_session.slot);
    } else {
        work->desc.owner = CUEMU_OWNER_CALL(cuemu_session.slot);
    }

    for (;;) {
        cuemu_session_lock();
        cuemu_poll();
        work->payload.move = ((work->payload.kind == CUEMU_PAYLOAD_MOVE) ?
                              cuemu_move_get() : -1);
        memcpy(&work->desc.payload, &work->payload, sizeof(work->payload));
        status = cuemu_sim_op_add(cuemu_session.sim, cuemu_now(), &work->desc,
                                  deps, num_deps, &id);
        if (status == CUEMU_OK) {
            if (work->payload.move >= 0) {
                sh->moves[work->payload.move].op = id;
            }
            cuemu_poll();
            ++sh->change;
        }
        poke = __atomic_load_n(&cuemu_service_idle, __ATOMIC_SEQ_CST);
        cuemu_session_unlock();

        if (status != CUEMU_ERR_FULL) {
            break;
        }

        cuemu_work_settle_all();
        cuemu_work_pause();
    }

    if (status != CUEMU_OK) {
        fprintf(stderr, "cuemu: cannot model an operation from place %d to %d: "
                "%s\n", work->desc.src, work->desc.dst,
                cuemu_status_string(status));
        return 0;
    }

    if (poke) {
        cuemu_service_poke();
    }

    return id;
}

void cuemu_work_release(cuemu_event_t *event)
{
    if (event->op != 0) {
        cuemu_session_lock();
        cuemu_sim_op_release(cuemu_session.sim, event->op);
        cuemu_session_unlock();
        event->op = 0;
    }
}

void cuemu_work_record(cuemu_event_t *event, const cuemu_op_id_t *ops,
                       unsigned count, cuemu_time_t start, cuemu_time_t at)
{
    cuemu_work_t mark = {.desc.kind = CUEMU_OP_MARK};

    /* the operation of an event without a time may be forgotten when done */
    mark.desc.flags = (event->flags & CU_EVENT_DISABLE_TIMING) ? 0 :
                      CUEMU_OP_HOLD;
    cuemu_work_release(event);
    event->recorded = 1;
    event->polled   = 0;
    event->change   = ~0ull;
    event->start    = start;
    event->end      = at;
    event->op       = (count == 0) ? 0 : cuemu_work_add(&mark, ops, count, at);
}

#define CUEMU_MAX_DEPS 64

typedef struct {
    cuemu_op_id_t ids[CUEMU_MAX_DEPS];
    unsigned      count;
} cuemu_deps_t;

/* Return an operation that ends with all of them; 0 if there are none. */
static cuemu_op_id_t cuemu_deps_join(const cuemu_deps_t *deps, cuemu_time_t at)
{
    cuemu_work_t mark = {.desc.kind = CUEMU_OP_MARK};

    return (deps->count == 0) ? 0 :
           (deps->count == 1) ? deps->ids[0] :
                                cuemu_work_add(&mark, deps->ids, deps->count,
                                               at);
}

static void cuemu_deps_add(cuemu_deps_t *deps, cuemu_op_id_t id,
                           cuemu_time_t at)
{
    if (id == 0) {
        return;
    }

    if (deps->count == CUEMU_MAX_DEPS) {
        deps->ids[0] = cuemu_deps_join(deps, at);
        deps->count  = 1;
    }

    deps->ids[deps->count++] = id;
}

/* End the delay of a stream's newest operation. */
static void cuemu_work_hurry(cuemu_stream_t *stream)
{
    if (stream->lingers == 0) {
        return;
    }

    cuemu_session_lock();
    cuemu_poll();
    cuemu_sim_op_end(cuemu_session.sim, stream->lingers);
    cuemu_poll();
    ++cuemu_session.shared->change;
    cuemu_session_unlock();
    stream->lingers = 0;
}

static void cuemu_deps_add_stream(cuemu_deps_t *deps,
                                  cuemu_stream_t *stream, cuemu_time_t at)
{
    unsigned i;

    cuemu_work_hurry(stream);
    cuemu_deps_add(deps, stream->last, at);
    for (i = 0; i < stream->num_waits; ++i) {
        cuemu_deps_add(deps, stream->waits[i], at);
    }
}

cuemu_op_id_t cuemu_work_submit(cuemu_stream_t *stream, cuemu_work_t *work,
                                const cuemu_op_id_t *extra, unsigned num_extra,
                                cuemu_time_t at)
{
    cuemu_context_t *ctx = stream->ctx;
    cuemu_stream_t *other;
    cuemu_deps_t deps = {.count = 0};
    unsigned i;

    cuemu_deps_add_stream(&deps, stream, at);
    if (stream == ctx->null_stream) {
        for (other = ctx->streams; other != NULL; other = other->next) {
            if (!(other->flags & CU_STREAM_NON_BLOCKING)) {
                cuemu_deps_add_stream(&deps, other, at);
            }
        }
        cuemu_deps_add(&deps, ctx->orphans[0], at);
    } else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
        cuemu_deps_add_stream(&deps, ctx->null_stream, at);
    }

    for (i = 0; i < num_extra; ++i) {
        cuemu_deps_add(&deps, extra[i], at);
    }

    if (stream->num_waits > 0) {
        work->desc.flags |= CUEMU_OP_CROSS_STREAM;
    }

    stream->last      = cuemu_work_add(work, deps.ids, deps.count, at);
    stream->num_waits = 0;
    stream->submitted = at;
    return stream->last;
}

cuemu_op_id_t cuemu_work_tail(cuemu_stream_t *stream)
{
    int joins = (stream->num_waits > 0);
    cuemu_work_t mark = {.desc.kind = CUEMU_OP_MARK};
    const cuemu_stream_t *other;

    if (stream == stream->ctx->null_stream) {
        joins |= !cuemu_work_done(stream->ctx->orphans[0]);
        for (other = stream->ctx->streams; other != NULL;
             other = other->next) {
            if (!(other->flags & CU_STREAM_NON_BLOCKING) &&
                ((other->last != 0) || (other->num_waits > 0))) {
                joins = 1;
            }
        }
    }

    if (joins) {
        cuemu_work_submit(stream, &mark, NULL, 0, cuemu_now());
    }

    cuemu_work_hurry(stream);
    if ((stream->last != 0) && cuemu_work_done(stream->last)) {
        stream->last = 0;
    }

    return stream->last;
}

void cuemu_work_orphan(cuemu_stream_t *stream)
{
    const int kind        = (stream->flags & CU_STREAM_NON_BLOCKING) != 0;
    cuemu_op_id_t *orphan = &stream->ctx->orphans[kind];
    cuemu_deps_t deps     = {.count = 0};

    cuemu_deps_add(&deps, *orphan, cuemu_now());
    cuemu_deps_add(&deps, cuemu_work_tail(stream), cuemu_now());
    *orphan = cuemu_deps_join(&deps, cuemu_now());
}

cuemu_op_id_t cuemu_context_tail(cuemu_context_t *ctx)
{
    cuemu_deps_t deps = {.count = 0};
    cuemu_stream_t *stream;

    cuemu_deps_add(&deps, ctx->orphans[1], cuemu_now());
    cuemu_deps_add(&deps, cuemu_work_tail(ctx->null_stream), cuemu_now());
    for (stream = ctx->streams; stream != NULL; stream = stream->next) {
        cuemu_deps_add(&deps, cuemu_work_tail(stream), cuemu_now());
    }
    return cuemu_deps_join(&deps, cuemu_now());
}

void cuemu_work_hurry_all(void)
{
    cuemu_stream_t *stream;

    for (stream = cuemu_object_next(CUEMU_OBJ_STREAM, NULL); stream != NULL;
         stream = cuemu_object_next(CUEMU_OBJ_STREAM, stream)) {
        cuemu_work_hurry(stream);
    }
}

cuemu_op_id_t cuemu_work_linger(cuemu_stream_t *stream, cuemu_time_t now)
{
    cuemu_work_t work = {.desc.kind     = CUEMU_OP_DELAY,
                         .desc.duration = CUEMU_LINGER_TIME};

    /* behind other work a copy is delayed anyway */
    return (cuemu_work_tail(stream) != 0) ?
           0 : cuemu_work_submit(stream, &work, NULL, 0, now);
}

cuemu_op_id_t cuemu_work_last(cuemu_stream_t *stream)
{
    cuemu_work_hurry(stream);
    return ((stream->last == 0) || cuemu_work_done(stream->last)) ?
           0 : stream->last;
}

CUresult cuemu_work_wait_value(cuemu_stream_t *stream,
                               const cuemu_range_t *word, uint32_t value,
                               unsigned how, cuemu_time_t at)
{
    CUresult result   = CUDA_ERROR_OUT_OF_MEMORY;
    cuemu_work_t work = {.desc.kind     = CUEMU_OP_DELAY,
                         .desc.duration = CUEMU_SPIN_MAX_TIME};
    cuemu_spin_t spin = {.gpu = word->gpu, .offset = word->offset,
                         .value = value, .how = how};

    spin.op = cuemu_work_submit(stream, &work, NULL, 0, at);
    cuemu_session_lock();
    if (cuemu_num_spins < CUEMU_MAX_SPINS) {
        cuemu_spins[cuemu_num_spins++] = spin;
        result                         = CUDA_SUCCESS;
    } else {
        cuemu_sim_op_end(cuemu_session.sim, spin.op);
    }
    cuemu_session_unlock();
    cuemu_service_poke();
    return result;
}

/* Return non-zero if `ctx` has access to `peer`. */
static int cuemu_work_has_access(const cuemu_context_t *ctx,
                                 const cuemu_context_t *peer)
{
    return (ctx != NULL) && cuemu_context_has_peer(ctx, peer);
}

int cuemu_work_is_direct(const cuemu_range_t *dst, const cuemu_range_t *src)
{
    const cuemu_route_t *route;
    int a = dst->place, b = src->place;

    if ((a >= CUEMU_MAX_GPUS) || (b >= CUEMU_MAX_GPUS) || (a == b)) {
        return 1;
    }

    /* the route of GPUs that are no peers is the driver's through the host */
    route = cuemu_node_route(cuemu_session.node, b, a);
    return (route != NULL) && (!route->p2p ||
                               (dst->reached && src->reached) ||
                               cuemu_work_has_access(dst->ctx, src->ctx) ||
                               cuemu_work_has_access(src->ctx, dst->ctx));
}

void cuemu_work_set_move(cuemu_work_t *work, const cuemu_range_t *dst,
                         uint64_t dst_pitch, const cuemu_range_t *src,
                         uint64_t src_pitch, uint64_t width, uint64_t height)
{
    cuemu_op_desc_t *desc = &work->desc;
    cuemu_payload_t *p    = &work->payload;

    memset(work, 0, sizeof(*work));
    desc->kind  = CUEMU_OP_COPY;
    desc->flags = CUEMU_OP_NEEDS_SERVICE;
    if ((dst->gpu < 0) || (src->gpu < 0)) {
        desc->flags |= CUEMU_OP_OWNER_ONLY;
    }

    desc->src   = src->place;
    desc->dst   = dst->place;
    desc->bytes = width * height;
    if ((src->place >= CUEMU_MAX_GPUS) && (dst->place >= CUEMU_MAX_GPUS)) {
        desc->kind     = CUEMU_OP_DELAY;
        desc->duration = (cuemu_time_t)((double)desc->bytes /
                                        CUEMU_HOST_COPY_RATE *
                                        (double)CUEMU_PS_PER_SEC);
    }

    p->kind      = CUEMU_PAYLOAD_MOVE;
    p->src_gpu   = src->gpu;
    p->dst_gpu   = dst->gpu;
    p->src       = src->offset;
    p->dst       = dst->offset;
    p->value     = src->addr;
    p->func      = dst->addr;
    p->width     = width;
    p->height    = height;
    p->src_pitch = src_pitch;
    p->dst_pitch = dst_pitch;
}

void cuemu_work_set_call(cuemu_work_t *work, cuemu_payload_kind_t kind,
                         void *func, void *arg)
{
    memset(work, 0, sizeof(*work));
    work->desc.kind    = CUEMU_OP_MARK;
    work->desc.flags   = CUEMU_OP_NEEDS_SERVICE | CUEMU_OP_OWNER_ONLY;
    work->payload.kind = (int32_t)kind;
    work->payload.func = (uint64_t)(uintptr_t)func;
    work->payload.arg  = (uint64_t)(uintptr_t)arg;
}

void cuemu_work_set_engine(cuemu_work_t *work, const cuemu_context_t *ctx,
                           const cuemu_range_t *dst, const cuemu_range_t *src)
{
    work->payload.stream = (uint64_t)(uintptr_t)ctx;
    if ((dst->gpu >= 0) && (src->gpu >= 0) && (dst->gpu != src->gpu) &&
        (ctx->gpu != src->gpu)) {
        work->desc.flags |= CUEMU_OP_PULLED;
    }
}

void cuemu_work_stage(cuemu_work_t *work, const cuemu_op_id_t *deps,
                      unsigned num_deps, cuemu_time_t at,
                      cuemu_op_id_t halves[2])
{
    cuemu_work_t half = *work;
    int numa          = cuemu_session.node->gpus[work->desc.src].numa;

    half.desc.flags   = 0;
    half.payload.kind = CUEMU_PAYLOAD_NONE;
    half.desc.dst     = CUEMU_PLACE_NUMA(numa);
    halves[0]         = cuemu_work_add(&half, deps, num_deps, at);
    half.desc.src     = CUEMU_PLACE_NUMA(numa);
    half.desc.dst     = work->desc.dst;
    halves[1]         = cuemu_work_add(&half, deps, num_deps, at);
    work->desc.kind   = CUEMU_OP_MARK;
}

/* Return non-zero if a copy's rows from `begin` on overlap an address range. */
static int cuemu_rows_overlap(const cuemu_payload_t *p, uint64_t begin,
                              uint64_t pitch, uint64_t addr, uint64_t size)
{
    return (begin < addr + size) &&
           (addr < begin + cuemu_span(p->width, p->height, pitch));
}

void cuemu_work_fault(uint64_t addr, uint64_t size)
{
    const cuemu_shared_t *sh = cuemu_session.shared;
    const int owner          = CUEMU_OWNER_COPY(cuemu_session.slot);
    const cuemu_op_desc_t *desc;
    const cuemu_payload_t *p;
    cuemu_context_t *ctx;
    int i;

    cuemu_session_lock();
    for (i = 0; i < sh->num_moves; ++i) {
        desc = cuemu_sim_op_desc(cuemu_session.sim, sh->moves[i].op);
        if ((desc == NULL) || (desc->owner != owner)) {
            continue;
        }

        p = (const cuemu_payload_t*)&desc->payload;
        if (cuemu_rows_overlap(p, p->value, p->src_pitch, addr, size) ||
            cuemu_rows_overlap(p, p->func, p->dst_pitch, addr, size)) {
            ctx = (cuemu_context_t*)(uintptr_t)p->stream;
            fprintf(stderr, "cuemu: GPU %d: a copy accesses memory after its "
                            "cuMemUnmap\n", ctx->gpu);
            cuemu_context_fail(ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
        }
    }
    cuemu_session_unlock();
}

cuemu_op_id_t cuemu_work_copy(cuemu_stream_t *stream, cuemu_work_t *work,
                              int direct, cuemu_time_t at)
{
    cuemu_op_id_t halves[2], before;

    if (direct) {
        return cuemu_work_submit(stream, work, NULL, 0, at);
    }

    before = cuemu_work_tail(stream);
    cuemu_work_stage(work, &before, 1, at, halves);
    return cuemu_work_submit(stream, work, halves, 2, at);
}

/* -------------------------------------------------------------- waiting */

int cuemu_work_done(cuemu_op_id_t op)
{
    int done;

    cuemu_session_lock();
    done = cuemu_sim_op_done(cuemu_session.sim, op);
    cuemu_session_unlock();
    return done;
}

void cuemu_work_watch(cuemu_op_id_t op)
{
    cuemu_work_t mark = {
        .desc.kind    = CUEMU_OP_MARK,
        .desc.flags   = CUEMU_OP_NEEDS_SERVICE | CUEMU_OP_OWNER_ONLY,
        .payload.kind = CUEMU_PAYLOAD_WATCH
    };

    __atomic_add_fetch(&cuemu_num_watches, 1, __ATOMIC_RELAXED);
    cuemu_lock();
    cuemu_work_add(&mark, &op, 1, cuemu_now());
    cuemu_unlock();
}

void cuemu_work_wait(cuemu_op_id_t op)
{
    cuemu_shared_t *sh = cuemu_session.shared;
    uint64_t seen      = ~0ull, change;
    int clamped;

    if ((op != 0) && !cuemu_work_done(op)) {
        cuemu_work_watch(op);
    }

    while (op != 0) {
        change = __atomic_load_n(&sh->change, __ATOMIC_ACQUIRE);
        if (change != seen) {
            seen = change;
            if (cuemu_work_done(op)) {
                return;
            }
        }

        cuemu_clock_now(&sh->clock, cuemu_session.slot, &clamped);
        if (clamped) {
            cuemu_work_unclamp();
        } else {
            cuemu_work_rest(CUEMU_TIME_INF, CUEMU_TIME_INF, &seen);
        }
    }
}

void cuemu_context_wait(cuemu_context_t *ctx)
{
    cuemu_op_id_t tail;

    cuemu_lock();
    tail = cuemu_context_tail(ctx);
    cuemu_unlock();
    cuemu_work_wait(tail);
}

void cuemu_process_wait(void)
{
    cuemu_deps_t deps = {.count = 0};
    cuemu_op_id_t tail;
    cuemu_context_t *ctx;

    __atomic_add_fetch(&cuemu_num_unlocking, 1, __ATOMIC_SEQ_CST);
    cuemu_lock();
    for (ctx = cuemu_object_next(CUEMU_OBJ_CONTEXT, NULL); ctx != NULL;
         ctx = cuemu_object_next(CUEMU_OBJ_CONTEXT, ctx)) {
        if (ctx->alive) {
            cuemu_deps_add(&deps, cuemu_context_tail(ctx), cuemu_now());
        }
    }
    tail = cuemu_deps_join(&deps, cuemu_now());
    cuemu_unlock();

    cuemu_work_wait(tail);
    __atomic_sub_fetch(&cuemu_num_unlocking, 1, __ATOMIC_SEQ_CST);
}

void cuemu_process_wait_unlocked(void)
{
    while (__atomic_load_n(&cuemu_num_unlocking, __ATOMIC_SEQ_CST) > 0) {
        cuemu_work_pause();
    }
}
