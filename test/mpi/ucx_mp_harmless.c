/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Check that a program behaves the same with and without a transport. MPI ranks
 * send each other random parts of host arrays and GPU buffers. Between, before
 * and during messages they copy other parts themselves, register and unregister
 * pages, free and allocate, and enable peer access. Every result of the driver
 * must follow from the program's own calls; every byte is compared.
 *
 * Messages are the same for all ranks by (seed, number of the step). Their
 * place, and everything else, is each rank's own choice by (seed, step, rank).
 */
#include "harmless.h"
#include "driver.h"
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HARMLESS_MAX_MESSAGES 4
#define HARMLESS_MAX_BAD      20    /* calls refused or wrong, of all ranks */
#define HARMLESS_LOOK_EVERY   200   /* steps between comparisons of all
                                       memory */

/* Calls of MPI for the messages of a step */
enum {
    MODE_BLOCKING,    /* one after the other */
    MODE_SENDRECV,
    MODE_NONBLOCKING, /* Irecv, then Isend, calls of the program, Waitall */
    MODE_SYNCHRONOUS, /* Issend, then Irecv */
    MODE_PROBED,      /* Isend; the receiver probes first */
    MODE_LAST
};

static const char *const harmless_modes[] = {"blocking", "sendrecv",
                                             "nonblocking", "synchronous",
                                             "probed"};

typedef struct {
    int      src, dst;
    size_t   size;
    uint64_t seed;
} harmless_message_t;

/* Facts of a step known to all ranks */
typedef struct {
    int                mode;
    int                num_messages;
    harmless_message_t messages[HARMLESS_MAX_MESSAGES];
    int                is_window;  /* puts and gets */
    int                is_last;    /* last step of this window */
    size_t             slice;      /* bytes per writer in a new window */
    int                is_reset;
    uint64_t           random;
} harmless_step_t;

/* The MPI window: each rank writes to its own slice of every other rank's
   memory */
static struct {
    int                is_valid;
    MPI_Win            win;
    size_t             slice;
    harmless_buffer_t *buffer;
    uint8_t           *mirror; /* this rank's slices of the others */
} harmless_window;

static char harmless_stall_text[256];

static void harmless_parse(int argc, char **argv)
{
    harmless_options_t *o = &harmless.opts;
    const ucx_mp_option_t options[] = {
        UCX_MP_NUMBER("steps", o->steps, 1, UINT64_MAX, "N", "in all (2000)"),
        UCX_MP_NUMBER("seed", o->seed, 0, UINT64_MAX, "S",
                      "seed of the random numbers (1)"),
        UCX_MP_SIZE("max-size", o->max_size, (size_t)1 << 20, (size_t)1 << 30,
                    "largest array and message, 1M to 1G (96M)"),
        UCX_MP_NUMBER("time-limit", o->time_limit, 1, 1000000, "S",
                      "stop after that many seconds (none)"),
        UCX_MP_NUMBER("stall-limit", o->stall_limit, 1, 1000000, "S",
                      "give up if a step takes longer (300)"),
        UCX_MP_FLAG("resets", o->resets, "reset GPUs' contexts, too"),
        UCX_MP_FLAG("host-only", o->host_only,
                    "nothing of CUDA, although there is a GPU"),
        UCX_MP_FLAG("no-windows", o->no_windows, "no MPI windows"),
        UCX_MP_FLAG("self-test", o->self_test,
                    "play a transport that meddles: it has to be noticed"),
        UCX_MP_FLAG("verbose", o->verbose, "say every call"),
        {.name = NULL}
    };

    *o = (harmless_options_t){.steps       = 2000,
                              .seed        = 1,
                              .max_size    = (size_t)96 << 20,
                              .stall_limit = 300};
    ucx_mp_parse_options(
            argc, argv,
            "Messages of random parts of host arrays and GPU buffers, among "
            "the program's own\ncopies, registrations and other calls to the "
            "driver: each has to end as if there\nwere no transport, and every "
            "byte has to be right.", options);
}

/* ----------------------------------------------------------------- planning */

static size_t harmless_message_size(uint64_t *random)
{
    const size_t max   = harmless.opts.max_size;
    const size_t large = (size_t)16 << 20;

    switch (ucx_mp_random_below(random, 16)) {
    case 0:
        return ucx_mp_random_size(random, (max < large) ? max : large, max);
    case 1:
    case 2:
    case 3:
        return ucx_mp_random_size(random, 1, (size_t)64 << 10);
    default:
        return ucx_mp_random_size(random, (size_t)64 << 10,
                                  (max < large) ? max : large);
    }
}

static void harmless_plan(harmless_step_t *step)
{
    uint64_t random = ucx_mp_hash3(harmless.opts.seed, harmless.step, 0);
    harmless_message_t *msg;
    int i;

    step->mode         = (int)ucx_mp_random_below(&random, MODE_LAST);
    step->num_messages = (ucx_mp_random_below(&random, 4) > 0);
    if (step->num_messages && (ucx_mp_random_below(&random, 4) == 0)) {
        step->num_messages += 1 + (int)ucx_mp_random_below(
                                          &random, HARMLESS_MAX_MESSAGES - 1);
    }
    if ((step->mode == MODE_SENDRECV) && step->num_messages) {
        step->num_messages = 2;
    }
    for (i = 0; i < step->num_messages; ++i) {
        msg       = &step->messages[i];
        msg->src  = (int)ucx_mp_random_below(&random, harmless.size);
        msg->dst  = (int)ucx_mp_random_below(&random, harmless.size - 1);
        msg->dst += (msg->dst >= msg->src);
        if ((step->mode == MODE_SENDRECV) && (i == 1)) {
            msg->src = step->messages[0].dst;
            msg->dst = step->messages[0].src;
        }
        msg->size = harmless_message_size(&random);
        msg->seed = ucx_mp_random(&random);
    }
    step->is_window = (ucx_mp_random_below(&random, 25) == 0) &&
                      !harmless.opts.no_windows;
    step->is_last   = (ucx_mp_random_below(&random, 3) == 0);
    step->slice     = ucx_mp_random_size(&random, HARMLESS_PAGE,
                                         harmless.opts.max_size / 12);
    step->slice     = (step->slice + HARMLESS_PAGE - 1) & ~(HARMLESS_PAGE - 1);
    step->is_reset  = (ucx_mp_random_below(&random, 100) == 0) &&
                      harmless.opts.resets && (harmless.num_gpus > 0);
    step->random    = ucx_mp_random(&random);
}

/* ----------------------------------------------------------------- messages */

static void harmless_do_some(uint64_t at_most)
{
    uint64_t count = harmless_below(at_most + 1);

    while (count-- > 0) {
        harmless_do_something();
    }
}

static void harmless_post(const harmless_message_t *msg,
                          const harmless_range_t *part, int tag, int mode,
                          MPI_Request *request)
{
    void *ptr = harmless_ptr(part);
    int count = (int)msg->size;

    if (msg->dst == harmless.rank) {
        MPI_Irecv(ptr, count, MPI_BYTE, msg->src, tag, MPI_COMM_WORLD, request);
    } else if (mode == MODE_SYNCHRONOUS) {
        MPI_Issend(ptr, count, MPI_BYTE, msg->dst, tag, MPI_COMM_WORLD,
                   request);
    } else {
        MPI_Isend(ptr, count, MPI_BYTE, msg->dst, tag, MPI_COMM_WORLD, request);
    }
}

/* Messages between other ranks are not this rank's */
static int harmless_is_mine(const harmless_message_t *msg)
{
    return (msg->src == harmless.rank) || (msg->dst == harmless.rank);
}

static void harmless_exchange_blocking(const harmless_step_t *step,
                                       const harmless_range_t *parts)
{
    const harmless_message_t *msg;
    int i;

    for (i = 0; i < step->num_messages; ++i) {
        msg = &step->messages[i];
        if (msg->src == harmless.rank) {
            MPI_Send(harmless_ptr(&parts[i]), (int)msg->size, MPI_BYTE,
                     msg->dst, i, MPI_COMM_WORLD);
        } else if (msg->dst == harmless.rank) {
            MPI_Recv(harmless_ptr(&parts[i]), (int)msg->size, MPI_BYTE,
                     msg->src, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
}

static void harmless_exchange(const harmless_step_t *step,
                              const harmless_range_t *parts)
{
    MPI_Request requests[HARMLESS_MAX_MESSAGES];
    const harmless_message_t *msg;
    int i, out, in, pass, count = 0;

    if (step->mode == MODE_BLOCKING) {
        harmless_exchange_blocking(step, parts);
        return;
    }
    if (step->mode == MODE_SENDRECV) {
        if ((step->num_messages > 0) && harmless_is_mine(step->messages)) {
            out = (step->messages[0].src == harmless.rank) ? 0 : 1;
            in  = 1 - out;
            msg = &step->messages[out];
            MPI_Sendrecv(harmless_ptr(&parts[out]), (int)msg->size, MPI_BYTE,
                         msg->dst, out, harmless_ptr(&parts[in]),
                         (int)step->messages[in].size, MPI_BYTE, msg->dst, in,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        return;
    }

    /* receives are posted before or after sends */
    for (pass = 0; pass < 2; ++pass) {
        for (i = 0; i < step->num_messages; ++i) {
            msg = &step->messages[i];
            in  = (msg->dst == harmless.rank);
            if (!harmless_is_mine(msg) ||
                (in != (pass == (step->mode != MODE_NONBLOCKING)))) {
                continue;
            }
            if (in && (step->mode == MODE_PROBED)) {
                MPI_Probe(msg->src, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            harmless_post(msg, &parts[i], i, step->mode, &requests[count++]);
        }
    }
    if (count > 0) {
        harmless_do_some(3);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

static void harmless_run_messages(const harmless_step_t *step)
{
    harmless_range_t parts[HARMLESS_MAX_MESSAGES];
    const harmless_message_t *msg;
    char what[128];
    int i, is_in;

    for (i = 0; i < step->num_messages; ++i) {
        msg   = &step->messages[i];
        is_in = (msg->dst == harmless.rank);
        if (!harmless_is_mine(msg)) {
            continue;
        }
        harmless_find_or_new(&parts[i], msg->size, HARMLESS_TO_SEND |
                             (is_in ? HARMLESS_TO_WRITE : 0));
        if (!is_in) {
            harmless_fill(&parts[i], msg->seed);
        }
        harmless_set_busy(&parts[i], is_in);
        harmless_log("%s %s %d: %zu bytes, buffer %d (%s) + %zu",
                     harmless_modes[step->mode], is_in ? "from" : "to",
                     is_in ? msg->src : msg->dst, msg->size,
                     harmless_index(parts[i].buffer),
                     harmless_kind_names[parts[i].buffer->kind],
                     parts[i].begin);
    }
    if (harmless.num_gpus > 0) {
        /* the current GPU need not be that of the sent memory */
        harmless_gpu_use((int)harmless_below(harmless.num_gpus));
    }
    harmless_exchange(step, parts);
    for (i = 0; i < step->num_messages; ++i) {
        msg = &step->messages[i];
        if (msg->dst == harmless.rank) {
            snprintf(what, sizeof(what), "a %s message of %zu bytes from rank "
                     "%d", harmless_modes[step->mode], msg->size, msg->src);
            ucx_mp_pattern_bytes(harmless_shadow(&parts[i]), msg->size,
                                 msg->seed);
            harmless_verify(&parts[i], HARMLESS_GUARD, what);
            ++harmless.counts[HARMLESS_NUM_MESSAGES];
            harmless.counts[HARMLESS_NUM_BYTES] += msg->size;
        }
    }
}

/* ------------------------------------------------------------------ windows */

static void harmless_window_create(size_t slice)
{
    const size_t size = slice * (size_t)harmless.size;

    harmless_window.buffer = harmless_buffer_new(HARMLESS_WINDOW, 0, size);
    harmless_window.slice  = slice;
    harmless_window.mirror = calloc(1, size);
    if (harmless_window.mirror == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "out of memory");
    }
    harmless_log("a window of %zu bytes", size);
    MPI_Win_create(harmless_window.buffer->ptr, (MPI_Aint)size, 1,
                   MPI_INFO_NULL, MPI_COMM_WORLD, &harmless_window.win);
    harmless_window.is_valid = 1;
}

static void harmless_window_free(void)
{
    if (!harmless_window.is_valid) {
        return;
    }
    MPI_Win_free(&harmless_window.win);
    harmless_verify_buffer(harmless_window.buffer, "a window");
    harmless_buffer_free(harmless_window.buffer, 0);
    free(harmless_window.mirror);
    harmless_window.is_valid = 0;
}

/* Each rank puts to the next rank's memory and gets from there. All ranks know
   these, so each knows the expected contents of its own */
static void harmless_run_window(const harmless_step_t *step)
{
    const int target    = (harmless.rank + 1) % harmless.size;
    const int writer    = (harmless.rank + harmless.size - 1) % harmless.size;
    harmless_range_t put, get, slot;
    uint64_t random;
    size_t size, at, slice;

    if (!harmless_window.is_valid) {
        harmless_window_create(step->slice);
    }
    /* no other part may use it while others write */
    slot.buffer = harmless_window.buffer;
    slot.begin  = 0;
    slot.size   = slot.buffer->size;
    harmless_set_busy(&slot, 1);
    slice  = harmless_window.slice;
    random = step->random;
    size   = ucx_mp_random_size(&random, 1, slice);
    at     = ucx_mp_random_below(&random, slice - size + 1);

    /* to this rank's slice there */
    harmless_find_or_new(&put, size, HARMLESS_TO_SEND | HARMLESS_HOST_ONLY);
    harmless_fill(&put, ucx_mp_hash3(step->random, harmless.rank, 1));
    harmless_set_busy(&put, 0);
    MPI_Win_fence(0, harmless_window.win);
    MPI_Put(harmless_ptr(&put), (int)size, MPI_BYTE, target,
            (MPI_Aint)(harmless.rank * slice + at), (int)size, MPI_BYTE,
            harmless_window.win);
    harmless_do_some(2);
    MPI_Win_fence(0, harmless_window.win);
    memcpy(harmless_window.mirror + target * slice + at, harmless_shadow(&put),
           size);

    slot.begin = writer * slice + at;
    slot.size  = size;
    ucx_mp_pattern_bytes(harmless_shadow(&slot), size,
                         ucx_mp_hash3(step->random, writer, 1));
    harmless_verify(&slot, HARMLESS_GUARD, "a put");

    size = ucx_mp_random_size(&random, 1, slice);
    at   = ucx_mp_random_below(&random, slice - size + 1);
    harmless_find_or_new(&get, size, HARMLESS_TO_SEND | HARMLESS_TO_WRITE |
                                     HARMLESS_HOST_ONLY);
    harmless_set_busy(&get, 1);
    MPI_Get(harmless_ptr(&get), (int)size, MPI_BYTE, target,
            (MPI_Aint)(harmless.rank * slice + at), (int)size, MPI_BYTE,
            harmless_window.win);
    harmless_do_some(2);
    MPI_Win_fence(0, harmless_window.win);
    memcpy(harmless_shadow(&get), harmless_window.mirror + target * slice + at,
           size);
    harmless_verify(&get, HARMLESS_GUARD, "a get");
    harmless.counts[HARMLESS_NUM_WINDOWS] += 2;
    if (step->is_last) {
        harmless_window_free();
    }
}

/* -------------------------------------------------------------------- steps */

static void harmless_stalled(int signum)
{
    ssize_t ignored;

    ignored = write(STDERR_FILENO, harmless_stall_text,
                    strlen(harmless_stall_text));
    (void)ignored;
    (void)signum;
    _exit(UCX_MP_EXIT_WRONG);
}

static void harmless_watch(const harmless_step_t *step)
{
    alarm(0);
    snprintf(harmless_stall_text, sizeof(harmless_stall_text),
             "ucx_mp_harmless: rank %d: no end of step %" PRIu64 " (%d %s "
             "messages%s%s) in %u s, seed %" PRIu64 "\n", harmless.rank,
             harmless.step, step->num_messages, harmless_modes[step->mode],
             step->is_window ? ", a window" : "",
             step->is_reset ? ", a reset" : "", harmless.opts.stall_limit,
             harmless.opts.seed);
    alarm(harmless.opts.stall_limit);
}

static void harmless_look_at_all(const char *what)
{
    int i;

    for (i = 0; i < HARMLESS_MAX_BUFFERS; ++i) {
        if (harmless.buffers[i].is_valid) {
            harmless_verify_buffer(&harmless.buffers[i], what);
        }
    }
}

static void harmless_run_step(const harmless_step_t *step)
{
    harmless.random = ucx_mp_hash3(harmless.opts.seed, harmless.step,
                                     (uint64_t)harmless.rank + 1);
    harmless_do_some(3);
    harmless_run_messages(step);
    if (harmless_below(2)) {
        harmless_do_some(2);
    }
    if (step->is_window) {
        harmless_run_window(step);
    }
    harmless_wait_copies();
    harmless_memory_settle();

    if (step->is_reset) {
        harmless_window_free(); /* MPI may have registered it with the GPU */
        MPI_Barrier(MPI_COMM_WORLD);
        harmless_reset();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if ((harmless.step % HARMLESS_LOOK_EVERY) == HARMLESS_LOOK_EVERY - 1) {
        harmless_look_at_all("looked at after many steps");
    }
}

static void harmless_progress(double start, double *shown,
                              const uint64_t *totals)
{
    double now = ucx_mp_real_time();

    if ((harmless.rank == 0) && (now - *shown >= 10)) {
        *shown = now;
        fprintf(stderr, "ucx_mp_harmless: %" PRIu64 " steps, %" PRIu64
                " messages, %" PRIu64 " refused, %" PRIu64 " wrong, %.0f s\n",
                harmless.step, totals[HARMLESS_NUM_MESSAGES],
                totals[HARMLESS_NUM_REFUSED], totals[HARMLESS_NUM_WRONG],
                now - start);
    }
}

static void harmless_add_up(uint64_t *totals)
{
    MPI_Allreduce(harmless.counts, totals, HARMLESS_NUM_LAST, MPI_UINT64_T,
                  MPI_SUM, MPI_COMM_WORLD);
}

static void harmless_run(uint64_t *totals)
{
    const harmless_options_t *o = &harmless.opts;
    double start                = ucx_mp_real_time();
    double shown                = start;
    harmless_step_t step;
    int stop = 0;

    signal(SIGALRM, harmless_stalled);
    for (harmless.step = 0; (harmless.step < o->steps) && !stop;
         ++harmless.step) {
        harmless_plan(&step);
        harmless_watch(&step);
        harmless_run_step(&step);
        harmless_add_up(totals);
        harmless_progress(start, &shown, totals);
        stop = (totals[HARMLESS_NUM_REFUSED] + totals[HARMLESS_NUM_WRONG] >=
                HARMLESS_MAX_BAD);
        if ((o->time_limit > 0) && !stop) {
            stop = (ucx_mp_real_time() - start >= o->time_limit);
            MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    harmless_window_free();
    harmless_look_at_all("looked at in the end");
    harmless_memory_free_all();
    harmless_add_up(totals);
    alarm(0);
}

/* --------------------------------------------------------------- self-test */

/* Act as a bad transport could, and check the counter that must change. */
static int harmless_self_test(void)
{
    harmless_range_t range;
    uint64_t *refused = &harmless.counts[HARMLESS_NUM_REFUSED];
    uint64_t *wrong   = &harmless.counts[HARMLESS_NUM_WRONG];
    int failed        = 0;
    uint8_t *byte;

    /* a byte, a registration: half of an array, then copies of it */
    range.buffer  = &harmless.buffers[1];
    range.begin   = 0;
    range.size    = HARMLESS_PAGE;
    byte          = range.buffer->ptr + 5;
    *byte        ^= 1;
    harmless_verify(&range, HARMLESS_GUARD, "self-test");
    failed       += (*wrong != 1);

    if (harmless.num_gpus > 0) {
        range.size = range.buffer->size & ~(HARMLESS_PAGE - 1);
        ucx_mp_driver.host_register(range.buffer->ptr, range.size / 2, 0);
        for (harmless.step = 0; harmless.step < 400; ++harmless.step) {
            harmless.random = ucx_mp_hash3(1, harmless.step, 0);
            harmless_do_something();
            harmless_wait_copies();
            harmless_memory_settle();
        }
        failed += (*refused == 0) + (*wrong < 2);
        ucx_mp_driver.host_unregister(range.buffer->ptr);
    }
    if (harmless.rank == 0) {
        printf("ucx_mp_harmless: self-test: %s: %" PRIu64 " refused, %" PRIu64
               " wrong\n", failed ? "FAILED" : "passed", *refused, *wrong);
    }
    return failed ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}

/* --------------------------------------------------------------------- main */

static void harmless_start(void)
{
    char why[256] = "";
    int count     = 0;

    if (!harmless.opts.host_only) {
        count = ucx_mp_gpu_init(ucx_mp_gpu_local_rank(harmless.rank), why,
                                sizeof(why));
    }
    if (harmless.rank == 0) {
        printf("ucx_mp_harmless: %d ranks, %d GPU%s visible%s%s%s, seed "
               "%" PRIu64 "\n", harmless.size, count, (count == 1) ? "" : "s",
               why[0] ? " (" : "", why, why[0] ? ")" : "", harmless.opts.seed);
        fflush(stdout);
    }
    if (count > 0) {
        harmless_driver_init(count);
    }
    harmless.random = ucx_mp_hash3(harmless.opts.seed, UINT64_MAX,
                                     (uint64_t)harmless.rank + 1);
    harmless_memory_init();
}

int main(int argc, char **argv)
{
    uint64_t totals[HARMLESS_NUM_LAST] = {0};
    int ret;

    ucx_mp_program = "ucx_mp_harmless";
    harmless_parse(argc, argv);

    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&harmless.rank, &harmless.size);
    harmless_start();
    if (harmless.opts.self_test) {
        ret = harmless_self_test();
        MPI_Finalize();
        return ret;
    }
    if (harmless.size < 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs 2 ranks or more (mpirun -n 2)");
    }

    harmless_run(totals);
    if (harmless.rank == 0) {
        printf("ucx_mp_harmless: %" PRIu64 " steps, %" PRIu64 " messages, %"
               PRIu64 " MiB, %" PRIu64 " copies, %" PRIu64
               " asynchronous copies, %" PRIu64 " registrations, %" PRIu64
               " allocations, %" PRIu64 " window transfers, %" PRIu64
               " peer calls, %" PRIu64 " other calls, %" PRIu64 " resets, %"
               PRIu64 " refused, %" PRIu64 " wrong\n", harmless.step,
               totals[HARMLESS_NUM_MESSAGES],
               totals[HARMLESS_NUM_BYTES] >> 20, totals[HARMLESS_NUM_COPIES],
               totals[HARMLESS_NUM_ASYNC], totals[HARMLESS_NUM_REGISTRATIONS],
               totals[HARMLESS_NUM_ALLOCATIONS],
               totals[HARMLESS_NUM_WINDOWS], totals[HARMLESS_NUM_PEERS],
               totals[HARMLESS_NUM_OTHERS], totals[HARMLESS_NUM_RESETS],
               totals[HARMLESS_NUM_REFUSED], totals[HARMLESS_NUM_WRONG]);
        fflush(stdout);
    }
    MPI_Finalize();
    return ((totals[HARMLESS_NUM_REFUSED] == 0) &&
            (totals[HARMLESS_NUM_WRONG] == 0)) ? UCX_MP_EXIT_OK :
                                                 UCX_MP_EXIT_WRONG;
}
