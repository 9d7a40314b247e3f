/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Emulated time of a node. Readers take a snapshot by sequence count; writers
 * hold the caller's lock.
 */

#include "cuemu_core.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

typedef int (*cuemu_clock_gettime_func_t)(clockid_t, struct timespec*);

/*
 * The program's clock_gettime() may be an interposed one that shows emulated
 * time; real time comes from libc's own.
 */
static cuemu_clock_gettime_func_t cuemu_clock_libc(void)
{
    static cuemu_clock_gettime_func_t libc_func;
    cuemu_clock_gettime_func_t func;
    void *libc, *symbol;

    func = __atomic_load_n(&libc_func, __ATOMIC_RELAXED);
    if (func != NULL) {
        return func;
    }

    libc   = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    symbol = (libc == NULL) ? NULL : dlsym(libc, "clock_gettime");
    if (symbol == NULL) {
        return clock_gettime;
    }
    memcpy(&func, &symbol, sizeof(func));
    __atomic_store_n(&libc_func, func, __ATOMIC_RELAXED);
    return func;
}

/* so that signal handlers find it done */
static void __attribute__((constructor)) cuemu_clock_library_init(void)
{
    cuemu_clock_libc();
}

static uint64_t cuemu_clock_real_ns(void)
{
    struct timespec ts;

    cuemu_clock_libc()(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ul + (uint64_t)ts.tv_nsec;
}

#define CUEMU_LOAD(_ptr)         __atomic_load_n(_ptr, __ATOMIC_RELAXED)
#define CUEMU_STORE(_ptr, _val)  __atomic_store_n(_ptr, _val, __ATOMIC_RELAXED)

/* A writer that died in between left an odd count: make it odd anyway. */
static void cuemu_clock_write_begin(cuemu_clock_t *clk)
{
    CUEMU_STORE(&clk->seq, clk->seq | 1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static void cuemu_clock_write_end(cuemu_clock_t *clk)
{
    __atomic_store_n(&clk->seq, clk->seq + 1, __ATOMIC_RELEASE);
}

static void cuemu_clock_set(cuemu_clock_t *clk, cuemu_time_t base,
                            uint64_t base_real_ns, cuemu_time_t limit)
{
    cuemu_clock_write_begin(clk);
    CUEMU_STORE(&clk->base, base);
    CUEMU_STORE(&clk->base_real_ns, base_real_ns);
    CUEMU_STORE(&clk->limit, limit);
    cuemu_clock_write_end(clk);
}

static cuemu_time_t cuemu_clock_extend(cuemu_time_t base, uint64_t base_real_ns,
                                       uint64_t real_ns, double slowdown)
{
    if ((slowdown <= 0) || (real_ns <= base_real_ns)) {
        return base;
    }
    return base + (cuemu_time_t)((double)(real_ns - base_real_ns) *
                                 (double)CUEMU_PS_PER_NS / slowdown);
}

cuemu_status_t cuemu_clock_init(cuemu_clock_t *clk, double slowdown)
{
    if (!(slowdown >= 0) || (slowdown > 1e6) ||
        ((slowdown > 0) && (slowdown < 1e-3))) {
        return CUEMU_ERR_INVALID;
    }

    memset(clk, 0, sizeof(*clk));
    clk->slowdown     = slowdown;
    clk->limit        = CUEMU_TIME_INF;
    clk->base_real_ns = cuemu_clock_real_ns();
    return CUEMU_OK;
}

cuemu_time_t cuemu_clock_now(const cuemu_clock_t *clk, int *clamped_p)
{
    unsigned tries = 0;
    uint64_t seq, base_real_ns;
    cuemu_time_t base, limit, now;

    do {
        seq          = __atomic_load_n(&clk->seq, __ATOMIC_ACQUIRE);
        base         = CUEMU_LOAD(&clk->base);
        base_real_ns = CUEMU_LOAD(&clk->base_real_ns);
        limit        = CUEMU_LOAD(&clk->limit);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        /* gives up on a writer that was killed; the next one repairs it */
    } while (((seq & 1) || (seq != CUEMU_LOAD(&clk->seq))) &&
             (++tries < 100000));

    now = cuemu_clock_extend(base, base_real_ns, cuemu_clock_real_ns(),
                             clk->slowdown);
    if (clamped_p != NULL) {
        *clamped_p = (now >= limit);
    }
    return (now < limit) ? now : limit;
}

cuemu_time_t cuemu_clock_poll(cuemu_clock_t *clk, cuemu_sim_t *sim)
{
    uint64_t real_ns = cuemu_clock_real_ns();
    cuemu_time_t base     = clk->base;
    uint64_t base_real_ns = clk->base_real_ns;
    cuemu_time_t now, reached;
    double lost;

    now = cuemu_clock_extend(base, base_real_ns, real_ns, clk->slowdown);
    if (clk->stopped) {
        if (cuemu_sim_num_due(sim) > 0) {
            cuemu_sim_advance(sim, clk->limit);
            return clk->limit;
        }

        /* served: time goes on from where it stood */
        lost = (double)(now - clk->limit) * clk->slowdown /
               (double)CUEMU_PS_PER_NS;
        clk->real_clamped_ns += (lost > 0) ? (uint64_t)lost : 0;
        clk->stopped          = 0;
        now = base            = clk->limit;
        base_real_ns          = real_ns;
    }

    reached = cuemu_sim_advance(sim, now);
    if (cuemu_sim_num_due(sim) > 0) {
        clk->stopped = 1;
        cuemu_clock_set(clk, base, base_real_ns, reached);
        return reached;
    }

    cuemu_clock_set(clk, base, base_real_ns, cuemu_sim_next(sim));
    return now;
}

/* A base in the real future: until then the time is that of the base. */
void cuemu_clock_hold(cuemu_clock_t *clk, uint64_t max_real_ns)
{
    uint64_t real_ns = cuemu_clock_real_ns();
    cuemu_time_t now;

    if ((clk->slowdown <= 0) || clk->stopped) {
        return; /* it stands still anyway */
    }

    now = cuemu_clock_extend(clk->base, clk->base_real_ns, real_ns,
                             clk->slowdown);
    cuemu_clock_release(clk);
    clk->real_clamped_ns += max_real_ns;
    cuemu_clock_set(clk, (now < clk->limit) ? now : clk->limit,
                    real_ns + max_real_ns, clk->limit);
}

void cuemu_clock_release(cuemu_clock_t *clk)
{
    uint64_t real_ns = cuemu_clock_real_ns();

    if (clk->base_real_ns > real_ns) {
        clk->real_clamped_ns -= clk->base_real_ns - real_ns;
        cuemu_clock_set(clk, clk->base, real_ns, clk->limit);
    }
}

uint64_t cuemu_clock_real_until(const cuemu_clock_t *clk, cuemu_time_t t)
{
    cuemu_time_t now = cuemu_clock_now(clk, NULL);
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

    clk->stopped = (cuemu_sim_num_due(sim) > 0);
    cuemu_clock_set(clk, reached, clk->base_real_ns,
                    clk->stopped ? reached : CUEMU_TIME_INF);
    return reached;
}

int cuemu_clock_observe(cuemu_clock_t *clk, cuemu_time_t start,
                        cuemu_time_t end, cuemu_time_t observed)
{
    cuemu_time_t late = observed - end;

    ++clk->num_observed;
    if (late > clk->max_late) {
        clk->max_late = late;
    }
    if (late * 100 <= end - start) {
        return 0;
    }

    ++clk->num_late;
    return 1;
}
