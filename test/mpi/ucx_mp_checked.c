/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * MPI ranks exchange buffers of random kind, size, alignment and order, and
 * compare every byte. One seed determines the complete run.
 *
 * The run is a sequence of steps. In a step some ranks send a window of
 * messages to others. Every rank computes the step from (seed, number of the
 * step), so that only the messages themselves are sent.
 */
#define _GNU_SOURCE
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

#define CHECKED_GUARD       256  /* bytes of poison around each message */
#define CHECKED_MAX_WINDOW  64
#define CHECKED_KEEP_SIZE   ((size_t)64 << 20) /* larger arenas are freed
                                                  sooner */
#define CHECKED_LARGE       ((size_t)1 << 20)
#define CHECKED_MAX_REPORTS 5
#define CHECKED_MAX_WRONG   20

enum { PATTERN_PAIR, PATTERN_RING, PATTERN_ALL, PATTERN_ANY };

static const char *const checked_patterns[] = {"pair", "ring", "all", "any",
                                               NULL};

/* Calls of MPI for the messages of a step */
enum {
    MODE_BLOCKING,    /* Send and Recv, or Sendrecv if both directions run */
    MODE_NONBLOCKING, /* Irecv, then Isend */
    MODE_UNEXPECTED,  /* Isend, then Irecv */
    MODE_SYNCHRONOUS, /* Irecv in reverse order, then Issend */
    MODE_LAST
};

static const char *const checked_modes[] = {"blocking", "nonblocking",
                                            "unexpected", "synchronous"};

enum { MEMORY_DEVICE, MEMORY_HOST, MEMORY_MANAGED, MEMORY_MIXED };

static const char *const checked_memories[] = {"device", "host", "managed",
                                               "mixed", NULL};
static const char *const checked_verifies[] = {"full", "sampled", NULL};

typedef struct {
    uint64_t transfers;
    uint64_t seed;
    size_t   min_size;
    size_t   max_size;
    size_t   max_bytes;
    int      memory;
    int      pattern;
    int      sampled;
    double   time_limit;
    unsigned stall_limit;
    int64_t  only_step;
    int      self_test;
} checked_options_t;

/* Facts of a step known to all ranks */
typedef struct {
    uint64_t number;
    uint64_t seed;
    int      pattern;
    int      mode;
    int      window;
    int      varied;    /* each message has a size of its own */
    int      forward;   /* first rank of a pair sends; ring turns right */
    int      backward;  /* second rank of a pair sends */
    size_t   size;      /* of a message, or its maximum */
    int     *order;     /* permutation of the ranks */
} checked_step_t;

typedef struct {
    uint64_t seed;
    int      peer;
    int      tag;
    size_t   size;
    size_t   offset;    /* in the arena */
} checked_message_t;

/* Memory of one kind to send from or receive into */
typedef struct {
    ucx_mp_mem_t mem;
    uint8_t     *ptr;
    size_t       capacity;
} checked_arena_t;

/* One direction of a step, seen from this rank */
typedef struct {
    checked_message_t *messages;
    int                count;
    checked_arena_t   *arena;
    size_t             bytes;    /* of the arena in use */
} checked_side_t;

static struct {
    checked_options_t opts;
    int               rank;
    int               size;
    checked_arena_t   arenas[2][UCX_MP_MEM_LAST];
    uint64_t          transfers;  /* received by this rank */
    uint64_t          bytes;
    uint64_t          wrong;
    uint64_t          steps;
    uint64_t          large;      /* messages of CHECKED_LARGE or more */
    char              stalled[256];
} checked;

static void checked_parse(int argc, char **argv)
{
    checked_options_t *o = &checked.opts;
    const ucx_mp_option_t options[] = {
        UCX_MP_NUMBER("transfers", o->transfers, 1, UINT64_MAX, "N",
                      "messages in all (200)"),
        UCX_MP_NUMBER("seed", o->seed, 0, UINT64_MAX, "S",
                      "seed of the random numbers (1)"),
        UCX_MP_SIZE("min-size", o->min_size, 0, SIZE_MAX,
                    "smallest message (0); sizes between are log-uniform"),
        UCX_MP_SIZE("max-size", o->max_size, 0, (size_t)1 << 30,
                    "largest message, up to 1G (512M)"),
        UCX_MP_SIZE("max-bytes", o->max_bytes, 0, SIZE_MAX,
                    "maximum bytes in flight of a rank (1G)"),
        UCX_MP_CHOICE("memory", o->memory, checked_memories,
                      "of all buffers; with a GPU the default is mixed"),
        UCX_MP_CHOICE("pattern", o->pattern, checked_patterns,
                      "ranks that exchange; any: one of these in each step"),
        UCX_MP_CHOICE("verify", o->sampled, checked_verifies,
                      "full: each byte"),
        UCX_MP_NUMBER("time-limit", o->time_limit, 1, 1000000, "S",
                      "stop after that many seconds (none)"),
        UCX_MP_NUMBER("stall-limit", o->stall_limit, 1, 1000000, "S",
                      "give up if a step takes longer (300)"),
        UCX_MP_NUMBER("step", o->only_step, 0, INT64_MAX, "N",
                      "do only this step of the sequence"),
        UCX_MP_FLAG("self-test", o->self_test,
                    "damage buffers, and check that the test detects it"),
        {.name = NULL}
    };

    *o = (checked_options_t){.transfers   = 200,
                             .seed        = 1,
                             .max_size    = (size_t)512 << 20,
                             .max_bytes   = (size_t)1 << 30,
                             .memory      = -1,
                             .pattern     = PATTERN_ANY,
                             .stall_limit = 300,
                             .only_step   = -1};
    ucx_mp_parse_options(argc, argv,
                         "2 or more ranks exchange buffers of random size and "
                         "place and compare every byte.", options);
    if (o->min_size > o->max_size) {
        ucx_mp_die(UCX_MP_EXIT_USAGE,
                   "--min-size is more than --max-size (%zu)", o->max_size);
    }
}

/* ---------------------------------------------------------------- planning */

static void checked_step_plan(checked_step_t *step, uint64_t number)
{
    const checked_options_t *o = &checked.opts;
    uint64_t state, j;
    int i, tmp, edges;

    step->number  = number;
    step->seed    = ucx_mp_hash3(o->seed, number, 0);
    state         = step->seed;
    step->pattern = (o->pattern == PATTERN_ANY) ?
                            (int)ucx_mp_random_below(&state, PATTERN_ANY) :
                            o->pattern;
    step->mode    = ucx_mp_random_below(&state, MODE_LAST);
    step->varied  = ucx_mp_random_below(&state, 2);
    step->size    = ucx_mp_random_size(&state, o->min_size, o->max_size);
    /* as many small windows as large ones: 1, 2..3, 4..7, up to 32..63, 64 */
    step->window  = 1 << ucx_mp_random_below(&state, 7);
    step->window += ucx_mp_random_below(&state, step->window);
    if (step->window > CHECKED_MAX_WINDOW) {
        step->window = CHECKED_MAX_WINDOW;
    }
    tmp           = ucx_mp_random_below(&state, 4);
    step->forward  = (tmp != 0); /* both directions half of the time */
    step->backward = (tmp < 2);

    for (i = 0; i < checked.size; ++i) {
        step->order[i] = i;
    }
    for (i = checked.size - 1; i > 0; --i) {
        j              = ucx_mp_random_below(&state, i + 1);
        tmp            = step->order[i];
        step->order[i] = step->order[j];
        step->order[j] = tmp;
    }

    edges = (step->pattern == PATTERN_ALL) ? (checked.size - 1) : 1;
    while ((step->window > 1) &&
           (step->size * step->window * edges > o->max_bytes)) {
        --step->window;
    }
    if (step->size * edges > o->max_bytes) {
        step->size = o->max_bytes / edges;
    }
}

/* Return whether `src` sends to `dst` in this step. */
static int checked_step_has_edge(const checked_step_t *step, int src, int dst)
{
    int is = 0, id = 0, i;

    if (src == dst) {
        return 0;
    }
    for (i = 0; i < checked.size; ++i) {
        is = (step->order[i] == src) ? i : is;
        id = (step->order[i] == dst) ? i : id;
    }
    switch (step->pattern) {
    case PATTERN_PAIR:
        return ((is ^ 1) == id) && (((is & 1) == 0) ? step->forward :
                                                      step->backward);
    case PATTERN_RING:
        return step->forward ? ((is + 1) % checked.size == id) :
                               ((id + 1) % checked.size == is);
    default:
        return 1;
    }
}

/* Return the kind of memory of `rank` for side 0 (send) or 1 (receive). */
static ucx_mp_mem_t
checked_step_mem(const checked_step_t *step, int rank, int side)
{
    uint64_t state = ucx_mp_hash3(step->seed, rank, 100 + side);

    switch (checked.opts.memory) {
    case MEMORY_DEVICE:
        return UCX_MP_MEM_DEVICE;
    case MEMORY_MANAGED:
        return UCX_MP_MEM_MANAGED;
    case MEMORY_HOST:
        return (ucx_mp_gpu_present() && !ucx_mp_random_below(&state, 4)) ?
                       UCX_MP_MEM_PINNED :
                       UCX_MP_MEM_HOST;
    default:
        switch (ucx_mp_random_below(&state, 8)) {
        case 0:
        case 1:
            return UCX_MP_MEM_HOST;
        case 2:
            return UCX_MP_MEM_PINNED;
        case 3:
            return UCX_MP_MEM_MANAGED;
        default:
            return UCX_MP_MEM_DEVICE;
        }
    }
}

/* Return the misalignment of a message at the sender or receiver, bytes. */
static size_t checked_misalignment(uint64_t *state)
{
    static const size_t offsets[] = {0, 0, 0, 1, 3, 4, 8, 16, 64, 255,
                                     256, 511, 4095, 4096, 65536 - 8};
    const size_t count            = sizeof(offsets) / sizeof(offsets[0]);

    return offsets[ucx_mp_random_below(state, count)];
}

/* List the messages between this rank and others on one side of a step. */
static void checked_side_plan(checked_side_t *side, const checked_step_t *step,
                              int is_recv)
{
    size_t place = CHECKED_GUARD;
    checked_message_t *msg;
    uint64_t state;
    int distance, peer, src, dst, i;

    side->count = 0;
    for (distance = 1; distance < checked.size; ++distance) {
        /* in the order of partners in MODE_BLOCKING */
        peer = is_recv ? (checked.rank - distance + checked.size) :
                         (checked.rank + distance);
        peer %= checked.size;
        src  = is_recv ? peer : checked.rank;
        dst  = is_recv ? checked.rank : peer;
        if (!checked_step_has_edge(step, src, dst)) {
            continue;
        }
        for (i = 0; i < step->window; ++i) {
            msg       = &side->messages[side->count++];
            msg->seed = ucx_mp_hash3(step->seed, (src << 16) | dst, i + 1);
            msg->peer = peer;
            msg->tag  = i;
            state     = msg->seed;
            msg->size = step->size;
            if (step->varied) {
                msg->size = ucx_mp_random_size(&state, checked.opts.min_size,
                                               step->size);
            }
            state     = msg->seed + (is_recv ? 1000 : 2000);

            place       = (place + 255) & ~(size_t)255;
            place      += checked_misalignment(&state);
            msg->offset = place;
            place      += msg->size + CHECKED_GUARD;
        }
    }
    side->bytes = place;
}

/* ------------------------------------------------------------------ memory */

static void checked_arena_release(checked_arena_t *arena)
{
    if (arena->capacity > 0) {
        ucx_mp_mem_free(arena->mem, arena->ptr);
        arena->capacity = 0;
    }
}

static void checked_side_prepare(checked_side_t *side,
                                 const checked_step_t *step, int is_recv)
{
    ucx_mp_mem_t mem = checked_step_mem(step, checked.rank, is_recv);
    uint64_t state   = ucx_mp_hash3(step->seed, checked.rank, 200 + is_recv);

    side->arena      = &checked.arenas[is_recv][mem];
    side->arena->mem = mem;
    if ((side->arena->capacity < side->bytes) ||
        (ucx_mp_random_below(&state, 8) == 0)) {
        checked_arena_release(side->arena);
        side->arena->ptr      = ucx_mp_mem_alloc(mem, side->bytes);
        side->arena->capacity = side->bytes;
    }
}

/* Free some memory during a run, so that caches of mappings and registrations
   meet reused addresses, and large arenas do not accumulate. */
static void checked_side_done(checked_side_t *side, const checked_step_t *step,
                              int is_recv)
{
    uint64_t state = ucx_mp_hash3(step->seed, checked.rank, 300 + is_recv);

    if ((side->arena->capacity > CHECKED_KEEP_SIZE) &&
        (ucx_mp_random_below(&state, 2) == 0)) {
        checked_arena_release(side->arena);
    }
}

/* ---------------------------------------------------------------- exchange */

static void checked_post(const checked_side_t *side, int is_recv, int index,
                         int synchronous, MPI_Request *request)
{
    const checked_message_t *msg = &side->messages[index];
    void *ptr                    = side->arena->ptr + msg->offset;

    if (is_recv) {
        MPI_Irecv(ptr, msg->size, MPI_BYTE, msg->peer, msg->tag, MPI_COMM_WORLD,
                  request);
    } else if (synchronous) {
        MPI_Issend(ptr, msg->size, MPI_BYTE, msg->peer, msg->tag,
                   MPI_COMM_WORLD, request);
    } else {
        MPI_Isend(ptr, msg->size, MPI_BYTE, msg->peer, msg->tag, MPI_COMM_WORLD,
                  request);
    }
}

static void checked_exchange_blocking(const checked_side_t *send,
                                      const checked_side_t *recv)
{
    const checked_message_t *s, *r;
    void *sptr, *rptr;
    int i;

    for (i = 0; (i < send->count) || (i < recv->count); ++i) {
        s    = (i < send->count) ? &send->messages[i] : NULL;
        r    = (i < recv->count) ? &recv->messages[i] : NULL;
        sptr = (s != NULL) ? (send->arena->ptr + s->offset) : NULL;
        rptr = (r != NULL) ? (recv->arena->ptr + r->offset) : NULL;
        if (r == NULL) {
            MPI_Send(sptr, s->size, MPI_BYTE, s->peer, s->tag, MPI_COMM_WORLD);
        } else if (s == NULL) {
            MPI_Recv(rptr, r->size, MPI_BYTE, r->peer, r->tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            MPI_Sendrecv(sptr, s->size, MPI_BYTE, s->peer, s->tag, rptr,
                         r->size, MPI_BYTE, r->peer, r->tag, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        }
    }
}

static void checked_exchange(const checked_step_t *step,
                             const checked_side_t *send,
                             const checked_side_t *recv, MPI_Request *requests)
{
    int n = 0, i;

    switch (step->mode) {
    case MODE_BLOCKING:
        checked_exchange_blocking(send, recv);
        return;
    case MODE_UNEXPECTED:
        for (i = 0; i < send->count; ++i) {
            checked_post(send, 0, i, 0, &requests[n++]);
        }
        for (i = 0; i < recv->count; ++i) {
            checked_post(recv, 1, i, 0, &requests[n++]);
        }
        break;
    case MODE_SYNCHRONOUS:
        for (i = recv->count - 1; i >= 0; --i) {
            checked_post(recv, 1, i, 0, &requests[n++]);
        }
        for (i = 0; i < send->count; ++i) {
            checked_post(send, 0, i, 1, &requests[n++]);
        }
        break;
    default:
        for (i = 0; i < recv->count; ++i) {
            checked_post(recv, 1, i, 0, &requests[n++]);
        }
        for (i = 0; i < send->count; ++i) {
            checked_post(send, 0, i, 0, &requests[n++]);
        }
        break;
    }
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

/* ------------------------------------------------------------ verification */

static void checked_report(const checked_step_t *step,
                           const checked_message_t *msg, const char *where,
                           const ucx_mp_pattern_error_t *error)
{
    if (checked.wrong++ >= CHECKED_MAX_REPORTS) {
        return;
    }
    fprintf(stderr,
            "ucx_mp_checked: rank %d: WRONG %s: message of %zu bytes from rank "
            "%d (%s to %s, %s, %s, window %d): offset %zu expected 0x%02x got "
            "0x%02x, %zu bytes wrong%s%s; transfer seed 0x%" PRIx64
            "; again: --seed %" PRIu64 " --step %" PRIu64 "\n",
            checked.rank, where, msg->size, msg->peer,
            ucx_mp_mem_names[checked_step_mem(step, msg->peer, 0)],
            ucx_mp_mem_names[checked_step_mem(step, checked.rank, 1)],
            checked_patterns[step->pattern], checked_modes[step->mode],
            step->window, error->offset, error->expected, error->got,
            error->count, error->hint[0] ? ": " : "", error->hint, msg->seed,
            checked.opts.seed, step->number);
}

static void checked_verify(const checked_step_t *step,
                           const checked_side_t *recv, uint8_t poison)
{
    ucx_mp_mem_t mem = recv->arena->mem;
    const checked_message_t *msg;
    ucx_mp_pattern_error_t error;
    uint8_t *ptr;
    int i;

    for (i = 0; i < recv->count; ++i) {
        msg = &recv->messages[i];
        ptr = recv->arena->ptr + msg->offset;
        if (ucx_mp_pattern_check(mem, ptr, msg->size, msg->seed,
                                 checked.opts.sampled, poison, &error)) {
            checked_report(step, msg, "data", &error);
        }
        if (ucx_mp_pattern_check_value(mem, ptr - CHECKED_GUARD, CHECKED_GUARD,
                                       poison, &error)) {
            checked_report(step, msg, "guard zone before the data", &error);
        }
        if (ucx_mp_pattern_check_value(mem, ptr + msg->size, CHECKED_GUARD,
                                       poison, &error)) {
            checked_report(step, msg, "guard zone after the data", &error);
        }
        ++checked.transfers;
        checked.large += (msg->size >= CHECKED_LARGE);
        checked.bytes += msg->size;
    }
}

/* -------------------------------------------------------------------- steps */

static void checked_stalled(int signum)
{
    ssize_t ignored;

    ignored = write(STDERR_FILENO, checked.stalled, strlen(checked.stalled));
    (void)ignored;
    _exit(UCX_MP_EXIT_WRONG);
}

static void checked_watch(const checked_step_t *step)
{
    alarm(0);
    snprintf(checked.stalled, sizeof(checked.stalled),
             "ucx_mp_checked: rank %d: no end of step %" PRIu64
             " (%s, %s, %d x %zu bytes) in %u s; again: --seed %" PRIu64
             " --step %" PRIu64 "\n",
             checked.rank, step->number, checked_patterns[step->pattern],
             checked_modes[step->mode], step->window, step->size,
             checked.opts.stall_limit, checked.opts.seed, step->number);
    alarm(checked.opts.stall_limit);
}

static void checked_step_run(checked_step_t *step, checked_side_t *send,
                             checked_side_t *recv, MPI_Request *requests)
{
    /* a byte as frequent in the pattern as any other */
    uint8_t poison = ucx_mp_hash(step->seed + 7);
    int i;

    checked_side_plan(send, step, 0);
    checked_side_plan(recv, step, 1);
    checked_side_prepare(send, step, 0);
    checked_side_prepare(recv, step, 1);

    for (i = 0; i < send->count; ++i) {
        ucx_mp_pattern_fill(send->arena->mem,
                            send->arena->ptr + send->messages[i].offset,
                            send->messages[i].size, send->messages[i].seed);
    }
    ucx_mp_mem_set(recv->arena->mem, recv->arena->ptr, poison, recv->bytes);
    if ((step->seed & 1) != 0) {
        /* half of the steps start together, half do not */
        MPI_Barrier(MPI_COMM_WORLD);
    }

    checked_exchange(step, send, recv, requests);
    checked_verify(step, recv, poison);
    checked_side_done(send, step, 0);
    checked_side_done(recv, step, 1);
}

static void checked_progress(double start, double *shown, uint64_t transfers,
                             uint64_t bytes)
{
    int tty    = isatty(STDERR_FILENO);
    double now = ucx_mp_real_time();

    if ((checked.rank != 0) || (now - *shown < (tty ? 0.5 : 10))) {
        return;
    }
    *shown = now;
    fprintf(stderr, "%sucx_mp_checked: %" PRIu64 " transfers, %.1f GiB, %.0f s"
            "%s", tty ? "\r" : "", transfers, bytes / 1073741824.0,
            now - start, tty ? "   " : "\n");
    fflush(stderr);
}

static void checked_run(uint64_t totals[4])
{
    const checked_options_t *o = &checked.opts;
    const int max_messages     = CHECKED_MAX_WINDOW * (checked.size - 1);
    double start               = ucx_mp_real_time();
    double shown               = start;
    checked_side_t send = {0}, recv = {0};
    checked_step_t step = {0};
    MPI_Request *requests;
    uint64_t counts[4], number;
    int stop = 0;

    requests      = calloc(2 * max_messages, sizeof(*requests));
    send.messages = calloc(max_messages, sizeof(*send.messages));
    recv.messages = calloc(max_messages, sizeof(*recv.messages));
    step.order    = calloc(checked.size, sizeof(*step.order));
    if (!requests || !send.messages || !recv.messages || !step.order) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "out of memory");
    }

    signal(SIGALRM, checked_stalled);
    number = (o->only_step >= 0) ? o->only_step : 0;
    do {
        checked_step_plan(&step, number++);
        checked_watch(&step);
        checked_step_run(&step, &send, &recv, requests);
        ++checked.steps;

        counts[0] = checked.transfers;
        counts[1] = checked.bytes;
        counts[2] = checked.wrong;
        counts[3] = checked.large;
        MPI_Allreduce(counts, totals, 4, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        checked_progress(start, &shown, totals[0], totals[1]);
        if (checked.rank == 0) {
            stop = (totals[0] >= o->transfers) || (o->only_step >= 0) ||
                   (totals[2] >= CHECKED_MAX_WRONG) ||
                   ((o->time_limit > 0) &&
                    (ucx_mp_real_time() - start >= o->time_limit));
        }
        MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
    } while (!stop);
    alarm(0);

    if ((checked.rank == 0) && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\n");
    }
    free(step.order);
    free(recv.messages);
    free(send.messages);
    free(requests);
}

/* --------------------------------------------------------------- self-test */

static int checked_expect(const char *what, ucx_mp_mem_t mem, int wrong,
                          const ucx_mp_pattern_error_t *error, size_t offset,
                          const char *hint)
{
    if (wrong && (error->offset == offset) && (strstr(error->hint, hint))) {
        return 0;
    }
    fprintf(stderr, "ucx_mp_checked: self-test: %s in %s memory: %s at %zu "
            "(\"%s\"), expected at %zu (\"%s\")\n", what,
            ucx_mp_mem_names[mem], wrong ? "noticed" : "not noticed",
            error->offset, error->hint, offset, hint);
    return 1;
}

/* Damage a buffer in each way possible for a transport. */
static int checked_self_test_mem(ucx_mp_mem_t mem)
{
    const size_t size     = ((size_t)9 << 20) + 13;
    const size_t at       = ((size_t)5 << 20) + 8;
    const uint8_t poison  = 0x5a;
    const uint64_t seed   = 42;
    int failed            = 0;
    ucx_mp_pattern_error_t error;
    uint8_t bytes[64], *ptr;
    int wrong;

    ptr = ucx_mp_mem_alloc(mem, size + CHECKED_GUARD);
    ucx_mp_mem_set(mem, ptr, poison, size + CHECKED_GUARD);
    ucx_mp_pattern_fill(mem, ptr, size, seed);
    wrong = ucx_mp_pattern_check(mem, ptr, size, seed, 0, poison, &error) ||
            ucx_mp_pattern_check_value(mem, ptr + size, CHECKED_GUARD, poison,
                                       &error);
    if (wrong) {
        fprintf(stderr, "ucx_mp_checked: self-test: good %s memory is called "
                "wrong at %zu\n", ucx_mp_mem_names[mem], error.offset);
        ++failed;
    }

    ucx_mp_mem_set(mem, ptr + at, poison, 64);
    wrong   = ucx_mp_pattern_check(mem, ptr, size, seed, 0, poison, &error);
    failed += checked_expect("missing bytes", mem, wrong, &error, at,
                             "never written");

    ucx_mp_mem_read(mem, bytes, ptr + 4096, sizeof(bytes));
    ucx_mp_mem_write(mem, ptr + at, bytes, sizeof(bytes));
    wrong   = ucx_mp_pattern_check(mem, ptr, size, seed, 0, poison, &error);
    failed += checked_expect("a displaced block", mem, wrong, &error, at,
                             "byte 4096 of");

    ucx_mp_pattern_fill(mem, ptr, size, seed + 1);
    ucx_mp_pattern_fill(mem, ptr, at, seed);
    wrong   = ucx_mp_pattern_check(mem, ptr, size, seed, 0, poison, &error);
    failed += checked_expect("another transfer's tail", mem, wrong, &error, at,
                             "stale");

    ucx_mp_pattern_fill(mem, ptr, size, seed);
    ucx_mp_mem_read(mem, bytes, ptr + size - 1, 1);
    bytes[0] ^= 1;
    ucx_mp_mem_write(mem, ptr + size - 1, bytes, 1);
    wrong   = ucx_mp_pattern_check(mem, ptr, size, seed, 1, poison, &error);
    failed += checked_expect("the last byte", mem, wrong, &error, size - 1, "");

    ucx_mp_mem_set(mem, ptr + size + 3, poison ^ 1, 1);
    wrong   = ucx_mp_pattern_check_value(mem, ptr + size, CHECKED_GUARD, poison,
                                         &error);
    failed += checked_expect("a byte behind the end", mem, wrong, &error, 3,
                             "");
    ucx_mp_mem_free(mem, ptr);
    return failed;
}

static int checked_self_test(void)
{
    int failed = checked_self_test_mem(UCX_MP_MEM_HOST);

    if (ucx_mp_gpu_present()) {
        failed += checked_self_test_mem(UCX_MP_MEM_PINNED);
        failed += checked_self_test_mem(UCX_MP_MEM_MANAGED);
        failed += checked_self_test_mem(UCX_MP_MEM_DEVICE);
    }
    if (checked.rank == 0) {
        printf("ucx_mp_checked: self-test: %s\n", failed ? "FAILED" : "passed");
    }
    return failed ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}

/* --------------------------------------------------------------------- main */

static void checked_choose_gpu(void)
{
    char why[256] = "";
    int local_rank, count = 0;
    MPI_Comm node;

    local_rank = ucx_mp_gpu_local_rank(-1);
    if (local_rank < 0) {
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0,
                            MPI_INFO_NULL, &node);
        MPI_Comm_rank(node, &local_rank);
        MPI_Comm_free(&node);
    }
    if (checked.opts.memory != MEMORY_HOST) {
        count = ucx_mp_gpu_init(local_rank, why, sizeof(why));
        if ((count == 0) && (checked.opts.memory >= 0)) {
            ucx_mp_die(UCX_MP_EXIT_WRONG, "--memory %s: %s",
                       checked_memories[checked.opts.memory], why);
        }
    }
    if (checked.opts.memory < 0) {
        checked.opts.memory = (count > 0) ? MEMORY_MIXED : MEMORY_HOST;
    }
    if (checked.rank == 0) {
        printf("ucx_mp_checked: %d ranks, %d GPU%s visible%s%s%s, %s memory, "
               "seed %" PRIu64 "\n", checked.size, count,
               (count == 1) ? "" : "s", why[0] ? " (" : "", why,
               why[0] ? ")" : "", checked_memories[checked.opts.memory],
               checked.opts.seed);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    uint64_t totals[4] = {0};
    int ret, i;

    ucx_mp_program = "ucx_mp_checked";
    checked_parse(argc, argv);

    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&checked.rank, &checked.size);

    checked_choose_gpu();
    if (checked.opts.self_test) {
        ret = checked_self_test();
        MPI_Finalize();
        return ret;
    }
    if (checked.size < 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "needs 2 ranks or more (mpirun -n 2)");
    }

    checked_run(totals);
    for (i = 0; i < 2 * UCX_MP_MEM_LAST; ++i) {
        checked_arena_release(&checked.arenas[i / UCX_MP_MEM_LAST]
                                             [i % UCX_MP_MEM_LAST]);
    }
    if (checked.rank == 0) {
        printf("ucx_mp_checked: %" PRIu64 " steps, %" PRIu64 " transfers of 1 "
               "MiB or more\n", checked.steps, totals[3]);
        printf("ucx_mp_checked: %" PRIu64 " transfers, %" PRIu64
               " bytes, %" PRIu64 " wrong\n", totals[0], totals[1], totals[2]);
        fflush(stdout);
    }
    MPI_Finalize();
    return (totals[2] == 0) ? UCX_MP_EXIT_OK : UCX_MP_EXIT_WRONG;
}
