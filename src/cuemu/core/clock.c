/* SPDX-License-Identifier: BSD-3-Clause */

/* Emulated time of a node. The model is described in cuemu_core.h, before
   CUEMU_CLOCK_RANKS. */
#include "cuemu_core.h"

#include <string.h>

/* Shortest interval between two reads of another rank's processor time;
   emulated time is no finer than this. All times named _NS are real time in
   ns. */
#define CUEMU_CLOCK_FRESH_NS  4000ull

/* Longest time for a rank to read its processor time */
#define CUEMU_CLOCK_LOOK_NS 1000ull

/* Time from the beginning of such a read until the kernel takes the value */
#define CUEMU_CLOCK_START_NS 200ull

/* After this time without running a rank may be asleep; interval for asking the
   kernel */
#define CUEMU_CLOCK_STUCK_NS  300000ull
#define CUEMU_CLOCK_ASK_NS    1000000ull

/* After this time without running a rank is asleep, if the kernel gives no
   answer */
#define CUEMU_CLOCK_SILENT_NS 20000000ull

/* Interval for asking whether a rank that does not continue after its wait is
   stopped */
#define CUEMU_CLOCK_STOPPED_NS 20000000ull

/* With a thread in the driver that does not wait for emulated time: time
   without running before a rank may be asleep. It is longer, as that thread may
   wait for a lock whose holder is preempted. */
#define CUEMU_CLOCK_LOCKED_NS 200000000ull

/* Shortest time without running that counts as a sleep, once the rank runs
   again */
#define CUEMU_CLOCK_AWAY_NS   200000ull

/* After this time outside the driver a thread may be asleep. If it is, it does
   not keep the waits of its rank's other threads from counting. */
#define CUEMU_CLOCK_ELSEWHERE_NS 1000000ull
#define CUEMU_CLOCK_GONE         1ull /* `left_ns` of such a thread */

/* A waiting thread spins while there are processors for all ranks that are
   awake and time moves, and for CUEMU_CLOCK_AWAKE_NS after it last moved. Then
   it sleeps until woken, and checks the clock itself at intervals that grow
   from LOOK_AROUND to LONGEST. */
#define CUEMU_CLOCK_AWAKE_NS       20000ull
#define CUEMU_CLOCK_LOOK_AROUND_NS 100000ull
#define CUEMU_CLOCK_LONGEST_NS     1000000ull

/* Sleep of a thread that finds the lock taken, or has no futex of its own */
#define CUEMU_CLOCK_SLEEP_NS 20000ull

/* Readers do not try the lock for so long after a thread has waited for it */
#define CUEMU_CLOCK_WANTED_NS 10000ull

/* Time after which a lock is taken over: its holder was killed or stopped */
#define CUEMU_CLOCK_LOCK_NS   300000000ull

/* Wait of a thread that polls: the fraction of the time since it last found
   something; its longest wait, in emulated time and in processor time (the
   longer counts); and its longest if all ranks wait */
#define CUEMU_CLOCK_POLL_PART 16
#define CUEMU_CLOCK_POLL      (2 * CUEMU_PS_PER_US)
#define CUEMU_CLOCK_POLL_NS   50000ull
#define CUEMU_CLOCK_POLL_IDLE (100 * CUEMU_PS_PER_US)

/* A rank that begins a longer wait than this ends the idle waits of others
   (emulated time) */
#define CUEMU_CLOCK_STIR CUEMU_PS_PER_US

/* If the next event is further away than this (emulated time), something else
   will come first, such as a write to a word that a stream waits for */
#define CUEMU_CLOCK_FAR (1000 * CUEMU_PS_PER_SEC)

#define CUEMU_LOAD(_ptr)        __atomic_load_n(_ptr, __ATOMIC_ACQUIRE)
#define CUEMU_STORE(_ptr, _val) __atomic_store_n(_ptr, _val, __ATOMIC_RELEASE)

static cuemu_time_t cuemu_clock_span(const cuemu_clock_t *clk, uint64_t ns)
{
    return (cuemu_time_t)((double)ns * (double)CUEMU_PS_PER_NS / clk->slowdown);
}

static cuemu_time_t cuemu_clock_ahead(const cuemu_clock_t *clk)
{
    return cuemu_clock_span(clk, CUEMU_CLOCK_AHEAD_NS);
}

/* Take the lock if it is free or overdue. Return its value, to be passed to
   cuemu_clock_unlock(); 0 if another thread holds it. */
static uint64_t cuemu_clock_try_lock(cuemu_clock_t *clk)
{
    uint64_t real_ns = cuemu_clock_source->real_ns() | 1;
    uint64_t owner   = __atomic_load_n(&clk->lock, __ATOMIC_RELAXED);

    if ((owner != 0) && (real_ns - owner < CUEMU_CLOCK_LOCK_NS ||
                         real_ns < owner)) {
        return 0;
    }
    return __atomic_compare_exchange_n(&clk->lock, &owner, real_ns, 0,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) ?
           real_ns : 0;
}

static uint64_t cuemu_clock_lock(cuemu_clock_t *clk)
{
    unsigned tries = 0;
    uint64_t real_ns;

    while ((real_ns = cuemu_clock_try_lock(clk)) == 0) {
        if (++tries % 64 == 0) {
            CUEMU_STORE(&clk->wanted_ns, cuemu_clock_source->real_ns());
            if (tries % 1024 == 0) {
                cuemu_clock_source->sleep(CUEMU_CLOCK_SLEEP_NS);
            }
        }
    }
    return real_ns;
}

/* Wake the sleeping threads whose wait is over. */
static void cuemu_clock_rouse(cuemu_clock_t *clk)
{
    cuemu_time_t limit = CUEMU_LOAD(&clk->limit);
    cuemu_time_t now   = CUEMU_LOAD(&clk->time);
    cuemu_clock_thread_t *thread;
    uint32_t asleep;
    int rank;

    for (rank = 0; rank < clk->num_ranks; ++rank) {
        for (thread = clk->ranks[rank].threads;
             thread < clk->ranks[rank].threads + CUEMU_CLOCK_THREADS;
             ++thread) {
            asleep = 1;
            if (CUEMU_LOAD(&thread->is_asleep) &&
                ((now >= limit) || (CUEMU_LOAD(&thread->until) <= now)) &&
                __atomic_compare_exchange_n(&thread->is_asleep, &asleep, 0, 0,
                                            __ATOMIC_ACQ_REL,
                                            __ATOMIC_RELAXED)) {
                cuemu_clock_source->wake(&thread->is_asleep);
            }
        }
    }
}

static void cuemu_clock_unlock(cuemu_clock_t *clk, uint64_t owner)
{
    __atomic_compare_exchange_n(&clk->lock, &owner, 0, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_RELAXED);
    if (__atomic_load_n(&clk->num_asleep, __ATOMIC_SEQ_CST) > 0) {
        cuemu_clock_rouse(clk);
    }
}

/* ----------------------------------------------------------------- ranks */

typedef enum {
    CUEMU_RANK_RUNS,   /* some thread is outside the driver */
    CUEMU_RANK_CALLS,  /* inside the driver, without waiting */
    CUEMU_RANK_WAITS   /* all threads wait in the driver, not counting those
                          asleep outside it */
} cuemu_rank_state_t;

/* Return the state of a rank's threads. Sets *until_p to the first end of a
   wait (0: no thread waits), and *idle_p to the first end if all ranks wait. */
static cuemu_rank_state_t cuemu_rank_threads(const cuemu_clock_rank_t *rank,
                                             cuemu_time_t *until_p,
                                             cuemu_time_t *idle_p)
{
    int waits = 0, calls = 0, others = 0;
    const cuemu_clock_thread_t *thread;

    *until_p = 0;
    *idle_p  = CUEMU_TIME_INF;
    for (thread = rank->threads; thread < rank->threads + CUEMU_CLOCK_THREADS;
         ++thread) {
        if (thread->tid == 0) {
            continue;
        }

        if (thread->until != 0) {
            *until_p = ((waits == 0) || (thread->until < *until_p)) ?
                       thread->until : *until_p;
            *idle_p  = (thread->idle < *idle_p) ? thread->idle : *idle_p;
            ++waits;
        } else if (thread->left_ns == 0) {
            ++calls;
        } else {
            others += (thread->left_ns != CUEMU_CLOCK_GONE);
        }
    }
    if (waits == 0) {
        return ((calls > 0) && (others == 0)) ? CUEMU_RANK_CALLS :
                                                CUEMU_RANK_RUNS;
    }
    return (calls + others > 0) ? CUEMU_RANK_RUNS : CUEMU_RANK_WAITS;
}

static int cuemu_rank_is(const cuemu_clock_rank_t *rank,
                         cuemu_rank_state_t state)
{
    cuemu_time_t until, idle;

    return cuemu_rank_threads(rank, &until, &idle) == state;
}

/* Return non-zero if a thread of the rank is inside the driver; with `runs`
   only if it does not wait for emulated time. */
static int cuemu_rank_is_inside(const cuemu_clock_rank_t *rank, int runs)
{
    const cuemu_clock_thread_t *thread;

    for (thread = rank->threads; thread < rank->threads + CUEMU_CLOCK_THREADS;
         ++thread) {
        if ((thread->tid != 0) && (thread->left_ns == 0) &&
            (!runs || (thread->until == 0))) {
            return 1;
        }
    }
    return 0;
}

/* Mark as CUEMU_CLOCK_GONE those of the rank's threads that left the driver
   more than CUEMU_CLOCK_ELSEWHERE_NS ago and are asleep. Threads that run are
   asked about again after that time. */
static void cuemu_rank_settle(cuemu_clock_rank_t *rank, uint64_t real_ns)
{
    cuemu_clock_thread_t *thread;

    for (thread = rank->threads; thread < rank->threads + CUEMU_CLOCK_THREADS;
         ++thread) {
        if ((thread->tid != 0) && (thread->left_ns > CUEMU_CLOCK_GONE) &&
            (real_ns > thread->left_ns + CUEMU_CLOCK_ELSEWHERE_NS)) {
            thread->left_ns =
                    (cuemu_clock_source->is_running(rank->pid, thread->tid,
                                                    0) > 0) ?
                            real_ns : CUEMU_CLOCK_GONE;
        }
    }
}

/* Return the rank's processor time without that of the emulator's thread, ns; 0
   if unknown. */
static uint64_t cuemu_rank_cpu(const cuemu_clock_rank_t *rank)
{
    uint64_t cpu_ns     = cuemu_clock_source->cpu_ns(rank->pid);
    uint64_t service_ns = CUEMU_LOAD(&rank->service_ns);

    return (cpu_ns > service_ns) ? cpu_ns - service_ns : 0;
}

/* Note that the rank ran just now. Move its time into the range from the node's
   time to the look-ahead. */
static void cuemu_rank_align(const cuemu_clock_t *clk, cuemu_clock_rank_t *rank,
                             uint64_t real_ns)
{
    rank->seen_ns = rank->ran_ns = real_ns;
    if (rank->time < clk->time) {
        rank->time = clk->time;
    } else if (rank->time > clk->time + cuemu_clock_ahead(clk)) {
        rank->time = clk->time + cuemu_clock_ahead(clk);
    }
}

/* Do as cuemu_rank_align(), and leave out the rank's processor time up to
   now. */
static void cuemu_rank_restart(const cuemu_clock_t *clk,
                               cuemu_clock_rank_t *rank, uint64_t real_ns)
{
    rank->cpu_ns = cuemu_rank_cpu(rank);
    cuemu_rank_align(clk, rank, real_ns);
}

/* Add the rank's new processor time to its time, but no more than real time has
   passed: parallel threads do not add up. */
static void cuemu_rank_count(const cuemu_clock_t *clk, cuemu_clock_rank_t *rank,
                             uint64_t cpu_ns, uint64_t real_ns)
{
    uint64_t ran    = (cpu_ns > rank->cpu_ns) ? cpu_ns - rank->cpu_ns : 0;
    uint64_t passed = (real_ns > rank->seen_ns) ? real_ns - rank->seen_ns : 0;

    if (ran > passed + CUEMU_CLOCK_AWAY_NS) {
        rank->cpu_ns = cpu_ns - passed;
        ran          = passed;
    } else if (ran > passed) {
        ran = passed; /* counts next time: the two clocks differ slightly */
    }

    if (ran > 0) {
        rank->cpu_ns += ran;
        rank->time   += cuemu_clock_span(clk, ran);
        rank->ran_ns  = real_ns;
    }
    rank->seen_ns = real_ns;
}

/* Return for how long the rank did not run, in ns; 0 if too short for a
   sleep. */
static uint64_t cuemu_rank_away(const cuemu_clock_rank_t *rank, uint64_t cpu_ns,
                                uint64_t real_ns)
{
    uint64_t known = rank->seen_ns + CUEMU_CLOCK_AWAY_NS + cpu_ns;

    return (real_ns + rank->cpu_ns > known) ?
           real_ns + rank->cpu_ns - rank->seen_ns - cpu_ns : 0;
}

/* Add a sleep to the rank's time. `away`: time without running, from
   cuemu_rank_away(); the part spent waiting for a processor is left out. So is
   all of it while a thread of the rank is in the driver, because the sleeper
   may wait for that thread. */
static void cuemu_rank_sleep(const cuemu_clock_t *clk, cuemu_clock_rank_t *rank,
                             uint64_t away)
{
    uint64_t delay_ns = cuemu_clock_source->delay_ns(rank->pid);
    uint64_t delayed  = delay_ns - rank->delay_ns;

    rank->delay_ns = delay_ns;
    if (away > delayed) {
        if (!cuemu_rank_is_inside(rank, 0)) {
            rank->time += cuemu_clock_span(clk, away - delayed);
        }
        rank->seen_ns += away;
    }
}

/* Add the processor time and the sleeps of the caller's rank since its last
   update to its time. Return zero if the rank is inside the driver, whose work
   takes no time, or was marked as asleep: its time is then only moved into the
   range from the node's time to the look-ahead. */
static int cuemu_rank_publish(const cuemu_clock_t *clk,
                              cuemu_clock_rank_t *rank, uint64_t real_ns)
{
    uint64_t cpu_ns, away;

    if (cuemu_rank_is(rank, CUEMU_RANK_CALLS)) {
        rank->is_asleep = 0;
        cuemu_rank_align(clk, rank, real_ns);
        return 0; /* cuemu_clock_call_end() does the rest */
    } else if (rank->is_asleep) {
        rank->is_asleep = 0;
        cuemu_rank_restart(clk, rank, real_ns);
        return 0;
    }

    cpu_ns = cuemu_rank_cpu(rank);
    away   = cuemu_rank_away(rank, cpu_ns, real_ns);
    if (away > 0) {
        cuemu_rank_sleep(clk, rank, away);
    }
    cuemu_rank_count(clk, rank, cpu_ns, real_ns);
    return 1;
}

/* Leave the clock's own work out of the rank's processor time: this update,
   begun at `real_ns`, and the start of the next one. */
static void cuemu_rank_skip(cuemu_clock_rank_t *rank, uint64_t real_ns)
{
    uint64_t now  = cuemu_clock_source->real_ns();
    uint64_t used = (now > real_ns) ? now - real_ns : 0;

    rank->cpu_ns += CUEMU_CLOCK_START_NS +
                    ((used < CUEMU_CLOCK_LOOK_NS) ? used : CUEMU_CLOCK_LOOK_NS);
}

/* Return the time beyond which the rank does not let the node's time go: the
   end of its wait, or its own time; CUEMU_TIME_INF if it is asleep without a
   wait. A thread whose wait is over may need long to get a processor, and other
   threads of its rank may run meanwhile: their processor time does not make its
   wait longer. Sets *waits_p if the rank waits, and *idle_p to the time that
   holds instead if all ranks wait. */
static cuemu_time_t cuemu_rank_bound(cuemu_clock_rank_t *rank, uint64_t real_ns,
                                     int *waits_p, cuemu_time_t *idle_p)
{
    cuemu_time_t until;

    *waits_p = (cuemu_rank_threads(rank, &until, idle_p) == CUEMU_RANK_WAITS);
    if (!*waits_p && (until != 0) &&
        (rank->space == cuemu_clock_source->space())) {
        cuemu_rank_settle(rank, real_ns);
        *waits_p = (cuemu_rank_threads(rank, &until, idle_p) ==
                    CUEMU_RANK_WAITS) || rank->is_asleep;
    }
    if (*waits_p) {
        return until;
    } else if (rank->is_asleep) {
        return CUEMU_TIME_INF;
    }
    return ((until != 0) && (until < rank->time)) ? until : rank->time;
}

/* Ask the kernel whether the rank sleeps. Return 0, without asking, if that was
   done less than CUEMU_CLOCK_ASK_NS ago. If the kernel does not tell, the rank
   sleeps after CUEMU_CLOCK_SILENT_NS. `still`: time since it last ran, ns. */
static int cuemu_rank_is_asleep(cuemu_clock_rank_t *rank, uint64_t still,
                                uint64_t real_ns)
{
    int running;

    if (real_ns - rank->asked_ns < CUEMU_CLOCK_ASK_NS) {
        return 0;
    }

    rank->asked_ns = real_ns;
    running = cuemu_clock_source->is_running(rank->pid, 0, rank->service);
    return (running < 0) ? (still > CUEMU_CLOCK_SILENT_NS) : !running;
}

/* Update the time of another rank, or mark the rank as asleep. Return non-zero
   if the node's time can go further now. */
static int cuemu_rank_poll(cuemu_clock_t *clk, cuemu_clock_rank_t *rank,
                           uint64_t real_ns)
{
    int is_here     = (rank->space == cuemu_clock_source->space());
    uint64_t cpu_ns = is_here ? cuemu_rank_cpu(rank) : 0;
    uint64_t still, least, away;

    if (cpu_ns > rank->cpu_ns) {
        if (cuemu_rank_is(rank, CUEMU_RANK_CALLS)) {
            cuemu_rank_restart(clk, rank, real_ns);
            return 0;
        }

        away = cuemu_rank_away(rank, cpu_ns, real_ns);
        if ((away > 0) && cuemu_rank_is_asleep(rank, away, real_ns)) {
            cuemu_rank_sleep(clk, rank, away);
        }
        cuemu_rank_count(clk, rank, cpu_ns, real_ns);
        return 1;
    }

    still = (real_ns > rank->ran_ns) ? real_ns - rank->ran_ns : 0;
    least = cuemu_rank_is_inside(rank, 1) ? CUEMU_CLOCK_LOCKED_NS :
                                            CUEMU_CLOCK_STUCK_NS;
    if ((still >= least) &&
        ((cpu_ns == 0) || cuemu_rank_is_asleep(rank, still, real_ns))) {
        rank->is_asleep = 1;
        rank->asked_ns  = real_ns;
    }
    return rank->is_asleep;
}

/* Wake a rank marked as asleep if it has used processor time since: its time
   goes on from the node's. Looks at most once in CUEMU_CLOCK_ASK_NS. */
static void cuemu_rank_listen(cuemu_clock_t *clk, cuemu_clock_rank_t *rank,
                              uint64_t real_ns)
{
    if ((real_ns - rank->asked_ns >= CUEMU_CLOCK_ASK_NS) &&
        (rank->space == cuemu_clock_source->space())) {
        rank->asked_ns = real_ns;
        if (cuemu_rank_cpu(rank) > rank->cpu_ns) {
            rank->is_asleep = 0;
            cuemu_rank_restart(clk, rank, real_ns);
        }
    }
}

/* Return non-zero if a waiting rank is stopped, or was killed. Asks
   the kernel at most once in CUEMU_CLOCK_STOPPED_NS; in between returns the
   last answer. */
static int cuemu_rank_is_stopped(cuemu_clock_rank_t *rank, uint64_t real_ns)
{
    if ((real_ns > rank->stop_asked_ns + CUEMU_CLOCK_STOPPED_NS) &&
        (rank->space == cuemu_clock_source->space())) {
        rank->stop_asked_ns = real_ns;
        rank->is_stopped    = (cuemu_clock_source->is_running(rank->pid,
                                                              rank->pid, 0) ==
                               CUEMU_CLOCK_STOPPED);
    }
    return rank->is_stopped;
}

static void cuemu_rank_forget(cuemu_clock_t *clk, cuemu_clock_rank_t *rank)
{
    cuemu_time_t most = clk->time + cuemu_clock_ahead(clk);
    uint64_t ns;

    if (rank->time > most) {
        ns = (uint64_t)((double)(rank->time - most) /
                        (double)CUEMU_PS_PER_NS * clk->slowdown);
        rank->time         = most;
        clk->forgotten_ns += ns;
    }
}

/* ------------------------------------------------------------------ time */

/* Return the rank with the lowest limit of the node's time, its limit in
   *bound_p and whether it waits in *waits_p. If all ranks wait, the limit is
   the first end of their idle waits. NULL if no rank limits time; *waits_p then
   tells whether any waits. */
static cuemu_clock_rank_t *cuemu_clock_last(cuemu_clock_t *clk,
                                            uint64_t real_ns,
                                            cuemu_time_t *bound_p,
                                            int *waits_p)
{
    cuemu_clock_rank_t *last = NULL, *rank;
    cuemu_time_t bound, idle, least = CUEMU_TIME_INF;
    int waits, any_waits = 0, all = 1;

    *bound_p = CUEMU_TIME_INF;
    *waits_p = 0;
    for (rank = clk->ranks; rank < clk->ranks + clk->num_ranks; ++rank) {
        if ((rank->pid == 0) ||
            (rank->is_stopped && cuemu_rank_is_stopped(rank, real_ns))) {
            continue;
        }

        if (rank->is_asleep) {
            cuemu_rank_listen(clk, rank, real_ns);
        }
        bound      = cuemu_rank_bound(rank, real_ns, &waits, &idle);
        any_waits |= waits;
        all       &= waits || (bound == CUEMU_TIME_INF);
        /* a wait that is over counts as running */
        idle  = (bound <= clk->time) ? bound : idle;
        least = (waits && (idle < least)) ? idle : least;
        if (bound < *bound_p) {
            *bound_p = bound;
            *waits_p = waits;
            last     = rank;
        }
    }
    if ((last != NULL) && all) {
        *bound_p = least;
    }
    *waits_p = (last == NULL) ? any_waits : *waits_p;
    return last;
}

static void cuemu_clock_move(cuemu_clock_t *clk, cuemu_time_t time,
                             uint64_t real_ns)
{
    if (time > clk->time) {
        CUEMU_STORE(&clk->time, time);
        clk->moved_ns = real_ns;
    }
}

/* Move the node's time by the real time since it last moved. */
static void cuemu_clock_move_on(cuemu_clock_t *clk, uint64_t real_ns)
{
    if (real_ns > clk->moved_ns) {
        cuemu_clock_move(clk, clk->time +
                         cuemu_clock_span(clk, real_ns - clk->moved_ns),
                         real_ns);
    }
}

/* Update the node's time. Has no effect on a virtual or stopped clock. Call
   with the lock. `self`: the caller's rank, whose processor time is counted
   first; -1: none. */
static void cuemu_clock_turn(cuemu_clock_t *clk, int self, uint64_t real_ns)
{
    cuemu_clock_rank_t *last, *rank;
    cuemu_time_t bound;
    int is_counted = 0, waits, tries;

    if ((clk->slowdown <= 0) || clk->is_stopped) {
        return;
    }

    if (clk->is_wall) {
        cuemu_clock_move_on(clk, real_ns);
        return;
    }

    if (self >= 0) {
        is_counted = cuemu_rank_publish(clk, &clk->ranks[self], real_ns);
    }

    for (tries = 0; tries < 2 * CUEMU_CLOCK_RANKS; ++tries) {
        last = cuemu_clock_last(clk, real_ns, &bound, &waits);
        if (last == NULL) {
            /* all wait for the simulation, or all sleep */
            if (waits && (clk->limit - clk->time < CUEMU_CLOCK_FAR)) {
                cuemu_clock_move(clk, clk->limit, real_ns);
            } else {
                cuemu_clock_move_on(clk, real_ns);
            }
            break;
        }

        if (waits && (bound <= clk->time) &&
            cuemu_rank_is_stopped(last, real_ns)) {
            continue;
        }

        if (waits) {
            cuemu_clock_move(clk, (bound < clk->limit) ? bound : clk->limit,
                             real_ns);
            break;
        }

        cuemu_clock_move(clk, bound, real_ns);
        if (((self >= 0) && (last == &clk->ranks[self])) ||
            (real_ns < last->looked_ns + CUEMU_CLOCK_FRESH_NS)) {
            break;
        }

        last->looked_ns = real_ns;
        if (!cuemu_rank_poll(clk, last, real_ns)) {
            break;
        }
    }

    for (rank = clk->ranks; rank < clk->ranks + clk->num_ranks; ++rank) {
        if (rank->pid != 0) {
            cuemu_rank_forget(clk, rank);
        }
    }

    if (is_counted) {
        cuemu_rank_skip(&clk->ranks[self], real_ns);
    }
}

cuemu_status_t cuemu_clock_init(cuemu_clock_t *clk, double slowdown)
{
    if (!(slowdown >= 0) || (slowdown > 1e6) ||
        ((slowdown > 0) && (slowdown < 1e-3))) {
        return CUEMU_ERR_INVALID;
    }

    memset(clk, 0, sizeof(*clk));
    clk->slowdown = slowdown;
    clk->limit    = CUEMU_TIME_INF;
    clk->moved_ns = cuemu_clock_source->real_ns();
    return CUEMU_OK;
}

void cuemu_clock_attach(cuemu_clock_t *clk, int rank, int pid)
{
    uint64_t owner        = cuemu_clock_lock(clk);
    cuemu_clock_rank_t *r = &clk->ranks[rank];

    cuemu_clock_turn(clk, -1, owner);
    memset(r, 0, sizeof(*r));
    r->space = cuemu_clock_source->space();
    r->pid   = pid;
    cuemu_rank_restart(clk, r, owner);
    if (rank >= clk->num_ranks) {
        clk->num_ranks = rank + 1;
    }
    cuemu_clock_unlock(clk, owner);
}

void cuemu_clock_detach(cuemu_clock_t *clk, int rank)
{
    uint64_t owner = cuemu_clock_lock(clk);

    memset(&clk->ranks[rank], 0, sizeof(clk->ranks[rank]));
    cuemu_clock_unlock(clk, owner);
}

/* Return non-zero if a thread waits for the lock: readers do not take it
   then. */
static int cuemu_clock_is_wanted(const cuemu_clock_t *clk)
{
    uint64_t wanted_ns = CUEMU_LOAD(&clk->wanted_ns);

    return (wanted_ns != 0) && (cuemu_clock_source->real_ns() <
                                wanted_ns + CUEMU_CLOCK_WANTED_NS);
}

cuemu_time_t cuemu_clock_now(cuemu_clock_t *clk, int rank, int *clamped_p)
{
    cuemu_time_t limit, now;
    uint64_t owner;

    if ((clk->slowdown > 0) && !CUEMU_LOAD(&clk->is_stopped) &&
        !cuemu_clock_is_wanted(clk) &&
        ((owner = cuemu_clock_try_lock(clk)) != 0)) {
        cuemu_clock_turn(clk, rank, owner);
        cuemu_clock_unlock(clk, owner);
    }

    /* read in this order: cuemu_clock_restart() sets the time back to the limit
       before the limit moves */
    limit = CUEMU_LOAD(&clk->limit);
    now   = CUEMU_LOAD(&clk->time);
    if (clamped_p != NULL) {
        *clamped_p = (now >= limit);
    }
    return (now < limit) ? now : limit;
}

/* Restart a clock that stopped for service, at the limit. Work of the ranks
   meanwhile takes no time. */
static void cuemu_clock_restart(cuemu_clock_t *clk, uint64_t real_ns)
{
    cuemu_clock_rank_t *rank;

    CUEMU_STORE(&clk->time, clk->limit);
    for (rank = clk->ranks; rank < clk->ranks + clk->num_ranks; ++rank) {
        if ((rank->pid != 0) && !rank->is_asleep &&
            !cuemu_rank_is(rank, CUEMU_RANK_WAITS)) {
            cuemu_rank_restart(clk, rank, real_ns);
        }
    }
    clk->real_clamped_ns += real_ns - clk->stopped_ns;
    clk->moved_ns         = real_ns;
    CUEMU_STORE(&clk->is_stopped, 0);
}

cuemu_time_t cuemu_clock_poll(cuemu_clock_t *clk, cuemu_sim_t *sim)
{
    uint64_t owner = cuemu_clock_lock(clk);
    cuemu_time_t reached;

    if (clk->is_stopped && (cuemu_sim_num_due(sim) == 0)) {
        cuemu_clock_restart(clk, owner);
    }

    if (clk->is_stopped) {
        reached = clk->limit;
        cuemu_sim_advance(sim, reached);
    } else {
        cuemu_clock_turn(clk, -1, owner);
        reached = cuemu_sim_advance(sim, clk->time);
        if (cuemu_sim_num_due(sim) > 0) {
            clk->stopped_ns = owner;
            CUEMU_STORE(&clk->limit, reached);
            CUEMU_STORE(&clk->is_stopped, 1);
        } else {
            CUEMU_STORE(&clk->limit, cuemu_sim_next(sim));
        }
    }

    cuemu_clock_unlock(clk, owner);
    return reached;
}

uint64_t cuemu_clock_real_until(cuemu_clock_t *clk, cuemu_time_t t)
{
    cuemu_time_t now = cuemu_clock_now(clk, -1, NULL);
    double ns;

    if (t <= now) {
        return 0;
    } else if (t == CUEMU_TIME_INF) {
        return UINT64_MAX;
    }

    ns = (double)(t - now) / (double)CUEMU_PS_PER_NS * clk->slowdown;
    return (ns < 9e18) ? (uint64_t)ns + 1 : UINT64_MAX;
}

cuemu_time_t cuemu_clock_advance(cuemu_clock_t *clk, cuemu_sim_t *sim,
                                 cuemu_time_t t)
{
    cuemu_time_t reached = cuemu_sim_advance(sim, t);

    clk->is_stopped = (cuemu_sim_num_due(sim) > 0);
    CUEMU_STORE(&clk->time, reached);
    CUEMU_STORE(&clk->limit, clk->is_stopped ? reached : CUEMU_TIME_INF);
    return reached;
}

/* --------------------------------------------------------------- waiting */

/* Find an entry of `threads` for a thread: its own, a free one, or that of the
   thread longest outside the driver; -1 if all are inside. */
static int cuemu_rank_place(const cuemu_clock_rank_t *rank, int tid, int hint)
{
    int i, best = -1;

    if ((hint >= 0) && (rank->threads[hint].tid == tid)) {
        return hint;
    }

    for (i = 0; i < CUEMU_CLOCK_THREADS; ++i) {
        if ((rank->threads[i].tid == 0) || (rank->threads[i].tid == tid)) {
            return i;
        }

        if ((rank->threads[i].left_ns > 0) &&
            ((best < 0) ||
             (rank->threads[i].left_ns < rank->threads[best].left_ns))) {
            best = i;
        }
    }
    return best;
}

int cuemu_clock_call_begin(cuemu_clock_t *clk, int rank, int tid, int hint)
{
    cuemu_clock_rank_t *r = &clk->ranks[rank];
    uint64_t owner;
    int thread;

    if (clk->is_wall) {
        return -1;
    }

    owner  = cuemu_clock_lock(clk);
    thread = cuemu_rank_place(r, tid, hint);
    CUEMU_STORE(&r->calls, r->calls + 1);
    cuemu_clock_turn(clk, rank, owner);
    if (thread >= 0) {
        r->threads[thread].tid     = tid;
        r->threads[thread].left_ns = 0;
        r->threads[thread].until   = 0;
        r->threads[thread].cpu_ns  = cuemu_rank_is(r, CUEMU_RANK_CALLS) ?
                                     0 : cuemu_clock_source->thread_ns();
    }
    cuemu_clock_unlock(clk, owner);
    return thread;
}

void cuemu_clock_call_end(cuemu_clock_t *clk, int rank, int thread)
{
    cuemu_clock_rank_t *r = &clk->ranks[rank];
    uint64_t owner, used, cpu_ns, left;

    if (clk->is_wall) {
        return;
    }

    owner = cuemu_clock_lock(clk);
    if (cuemu_rank_is(r, CUEMU_RANK_CALLS)) {
        cuemu_rank_restart(clk, r, owner);
        cuemu_rank_skip(r, owner);
    } else if ((thread >= 0) && (r->threads[thread].cpu_ns > 0)) {
        /* another thread of the rank waits in the driver: leave out the
           processor time of this one's call, unless the end of a wait has */
        used        = cuemu_clock_source->thread_ns() -
                      r->threads[thread].cpu_ns;
        cpu_ns      = cuemu_rank_cpu(r);
        left        = (cpu_ns > r->cpu_ns) ? cpu_ns - r->cpu_ns : 0;
        used        = (used < left) ? used : left;
        r->cpu_ns  += used;
        r->seen_ns += used;
    }
    if (thread >= 0) {
        r->threads[thread].left_ns = owner;
    }
    cuemu_clock_unlock(clk, owner);
}

void cuemu_clock_poll_until(const cuemu_clock_t *clk, cuemu_time_t now,
                            cuemu_time_t first, cuemu_time_t least,
                            cuemu_time_t *until_p, cuemu_time_t *idle_p)
{
    cuemu_time_t part    = (now - first) / CUEMU_CLOCK_POLL_PART;
    cuemu_time_t longest = cuemu_clock_span(clk, CUEMU_CLOCK_POLL_NS);
    cuemu_time_t idle;

    longest  = (longest > CUEMU_CLOCK_POLL) ? longest : CUEMU_CLOCK_POLL;
    longest  = (longest > least) ? longest : least;
    part     = (part > least) ? part : least;
    idle     = (part < CUEMU_CLOCK_POLL_IDLE) ? part : CUEMU_CLOCK_POLL_IDLE;
    *until_p = now + ((part < longest) ? part : longest);
    *idle_p  = ((now + idle > *until_p) ? (now + idle) : *until_p) + 1;
}

static void cuemu_rank_stir(cuemu_clock_t *clk, const cuemu_clock_rank_t *self)
{
    cuemu_time_t now = (self->time > clk->time) ? self->time : clk->time;
    cuemu_clock_thread_t *thread;
    cuemu_clock_rank_t *rank;

    for (rank = clk->ranks; rank < clk->ranks + clk->num_ranks; ++rank) {
        for (thread = rank->threads;
             (rank != self) && (thread < rank->threads + CUEMU_CLOCK_THREADS);
             ++thread) {
            if ((thread->idle > thread->until) && (thread->until > now)) {
                thread->idle = now;
                CUEMU_STORE(&thread->until, now);
            }
        }
    }
}

void cuemu_clock_stir(cuemu_clock_t *clk, int rank)
{
    uint64_t owner = cuemu_clock_lock(clk);

    cuemu_rank_stir(clk, &clk->ranks[rank]);
    cuemu_clock_unlock(clk, owner);
}

void cuemu_clock_wait_begin(cuemu_clock_t *clk, int rank, int thread,
                            cuemu_time_t until, cuemu_time_t idle)
{
    uint64_t owner = cuemu_clock_lock(clk);

    if ((idle == until) && (until - clk->time > CUEMU_CLOCK_STIR)) {
        cuemu_rank_stir(clk, &clk->ranks[rank]);
    }
    if (thread >= 0) {
        clk->ranks[rank].threads[thread].idle = idle;
        CUEMU_STORE(&clk->ranks[rank].threads[thread].until, until);
    }
    cuemu_clock_turn(clk, -1, owner);
    cuemu_clock_unlock(clk, owner);
}

/* Let a thread continue from the end of its wait, though other threads of the
   rank ran meanwhile: they had processors of their own. */
static void cuemu_rank_resume(const cuemu_clock_t *clk,
                              cuemu_clock_rank_t *rank,
                              cuemu_clock_thread_t *thread, uint64_t real_ns)
{
    rank->time = (clk->time < clk->limit) ? clk->time : clk->limit;
    cuemu_rank_restart(clk, rank, real_ns);
    if (thread->cpu_ns > 0) {
        thread->cpu_ns = cuemu_clock_source->thread_ns();
    }
}

void cuemu_clock_wait_end(cuemu_clock_t *clk, int rank, int thread)
{
    cuemu_clock_rank_t *r = &clk->ranks[rank];
    uint64_t owner        = cuemu_clock_lock(clk);
    int waited            = cuemu_rank_is(r, CUEMU_RANK_WAITS) || r->is_asleep;
    cuemu_time_t until    = 0;

    if (thread >= 0) {
        until                    = r->threads[thread].until;
        r->threads[thread].until = 0;
    }
    r->is_asleep = 0;
    if (waited) {
        /* processor time counts again from the end of the call */
        r->time = (clk->time < clk->limit) ? clk->time : clk->limit;
        cuemu_rank_align(clk, r, owner);
    } else if ((until != 0) && (until <= clk->time)) {
        cuemu_rank_resume(clk, r, &r->threads[thread], owner);
    }
    cuemu_clock_unlock(clk, owner);
}

/* Return non-zero if the wait is over, as cuemu_clock_wait_over() does, but
   without updating the clock. */
static int cuemu_clock_is_over(const cuemu_clock_t *clk, int rank, int thread,
                               cuemu_time_t until)
{
    cuemu_time_t now = CUEMU_LOAD(&clk->time);

    if (thread >= 0) {
        /* cuemu_clock_stir() of another rank may have shortened the wait */
        until = CUEMU_LOAD(&clk->ranks[rank].threads[thread].until);
    }
    return (now >= until) || (now >= CUEMU_LOAD(&clk->limit));
}

int cuemu_clock_wait_over(cuemu_clock_t *clk, int rank, int thread,
                          cuemu_time_t until)
{
    cuemu_clock_now(clk, -1, NULL);
    return cuemu_clock_is_over(clk, rank, thread, until);
}

static void cuemu_clock_relax(void)
{
    int i;

    for (i = 0; i < 40; ++i) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ __volatile__("yield");
#endif
    }
}

/* Sleep until another thread has moved time to the end of the wait, at most
   `ns` of real time. */
static void cuemu_clock_doze(cuemu_clock_t *clk, int rank, int thread,
                             cuemu_time_t until, uint64_t ns)
{
    uint32_t *word = &clk->ranks[rank].threads[thread].is_asleep;

    __atomic_add_fetch(&clk->num_asleep, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    if (!cuemu_clock_wait_over(clk, rank, thread, until)) {
        cuemu_clock_source->wait(word, 1, ns);
    }
    __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&clk->num_asleep, 1, __ATOMIC_SEQ_CST);
}

/* Spin until the wait is over, *word differs from `value`, time has stood still
   for CUEMU_CLOCK_AWAKE_NS, or processors are short. */
static void cuemu_clock_spin(cuemu_clock_t *clk, int rank, int thread,
                             cuemu_time_t until, const uint64_t *word,
                             uint64_t value)
{
    int most          = cuemu_clock_source->num_processors();
    uint64_t since    = 0, looked = 0, real_ns;
    cuemu_time_t last = -1, now;

    while (!cuemu_clock_is_over(clk, rank, thread, until) &&
           ((word == NULL) || (CUEMU_LOAD(word) == value)) &&
           (clk->num_ranks - CUEMU_LOAD(&clk->num_asleep) <= most)) {
        now     = CUEMU_LOAD(&clk->time);
        real_ns = cuemu_clock_source->real_ns();
        if (now != last) {
            last  = now;
            since = real_ns;
        } else if (real_ns - since >= CUEMU_CLOCK_AWAKE_NS) {
            break;
        }

        if (real_ns - looked >= CUEMU_CLOCK_FRESH_NS) {
            looked = real_ns;
            cuemu_clock_now(clk, -1, NULL);
        }
        cuemu_clock_relax();
    }
}

/* Wait by the wall clock. */
static void cuemu_clock_wait_wall(cuemu_clock_t *clk, cuemu_time_t until,
                                  const uint64_t *word, uint64_t value)
{
    uint64_t ns;
    int clamped;

    while ((cuemu_clock_now(clk, -1, &clamped) < until) && !clamped &&
           ((word == NULL) || (CUEMU_LOAD(word) == value))) {
        ns = cuemu_clock_real_until(clk, (until < clk->limit) ? until :
                                                                clk->limit);
        if (ns < CUEMU_CLOCK_AWAKE_NS) {
            cuemu_clock_relax();
        } else {
            cuemu_clock_source->sleep((ns / 2 < CUEMU_CLOCK_LOOK_AROUND_NS) ?
                                              ns / 2 :
                                              CUEMU_CLOCK_LOOK_AROUND_NS);
        }
    }
}

void cuemu_clock_wait(cuemu_clock_t *clk, int rank, int thread,
                      cuemu_time_t until, cuemu_time_t idle,
                      const uint64_t *word, uint64_t value)
{
    uint64_t ns = CUEMU_CLOCK_LOOK_AROUND_NS;

    if (clk->is_wall) {
        cuemu_clock_wait_wall(clk, until, word, value);
        return;
    }

    cuemu_clock_wait_begin(clk, rank, thread, until, idle);
    while (!cuemu_clock_is_over(clk, rank, thread, until) &&
           ((word == NULL) || (CUEMU_LOAD(word) == value))) {
        cuemu_clock_spin(clk, rank, thread, until, word, value);
        if (thread >= 0) {
            cuemu_clock_doze(clk, rank, thread, until, ns);
            ns = (2 * ns < CUEMU_CLOCK_LONGEST_NS) ? 2 * ns :
                                                     CUEMU_CLOCK_LONGEST_NS;
        } else if (!cuemu_clock_wait_over(clk, rank, thread, until)) {
            cuemu_clock_source->sleep(CUEMU_CLOCK_SLEEP_NS);
        }
    }
    cuemu_clock_wait_end(clk, rank, thread);
}

void cuemu_clock_wake(cuemu_clock_t *clk, int rank)
{
    cuemu_clock_thread_t *threads = clk->ranks[rank].threads;
    uint64_t owner                = cuemu_clock_lock(clk);
    cuemu_time_t now = (clk->time < clk->limit) ? clk->time : clk->limit;
    int i;

    for (i = 0; i < CUEMU_CLOCK_THREADS; ++i) {
        if (threads[i].until == CUEMU_TIME_INF) {
            CUEMU_STORE(&threads[i].until, (now > 0) ? now : 1);
        }
    }
    cuemu_clock_unlock(clk, owner);
}
