/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Laplace's equation by Jacobi's method on several GPUs, one a rank: an
 * iteration updates every point from its neighbours, then gives the rows (and
 * columns) at the edge of each rank's part to the ranks beside it, by MPI
 * messages from GPU memory to GPU memory.
 */
#define _GNU_SOURCE
#include "jacobi.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PI 3.14159265358979323846

/* Ways that a boundary goes; also the messages' tags */
enum { DOWN, UP, RIGHT, LEFT, NUM_WAYS };

/* Order of jacobi_t's columns */
enum { TO_LEFT, TO_RIGHT, FROM_LEFT, FROM_RIGHT };


void jacobi_die(const char *fmt, ...)
{
    int rank = 0;
    char text[512];
    va_list args;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fflush(stdout);
    fprintf(stderr, "jacobi: rank %d: %s\n", rank, text);
    MPI_Abort(MPI_COMM_WORLD, JACOBI_WRONG);
    abort();
}

float jacobi_boundary(uint64_t row, uint64_t rows)
{
    return (float)sin(2 * PI * ((double)row + 0.5) / (double)rows);
}

gpu_ptr_t jacobi_at(const jacobi_t *job, int which, uint64_t row,
                    uint64_t index)
{
    return job->field[which] + (row * job->pitch + index) * sizeof(float);
}

/* Seconds of CLOCK_MONOTONIC, which on an emulated node is modelled time */
static double seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- kernels */

/* Rows first <= row < last of field[!from] */
static void update(jacobi_t *job, gpu_stream_t stream, int from, unsigned first,
                   unsigned last, int test)
{
    gpu_ptr_t in = job->field[from], out = job->field[!from];
    gpu_ptr_t residual = test ? job->residual : 0;
    void *args[] = {&in,    &out,  &job->columns, &job->pitch,
                    &first, &last, &residual};

    if (first < last) {
        gpu_launch(stream, job->update,
                   (job->columns / 4 + JACOBI_THREADS - 1) / JACOBI_THREADS,
                   (last - first + JACOBI_STRIP - 1) / JACOBI_STRIP,
                   JACOBI_THREADS, args);
    }
}

/* A column to or from contiguous memory, see jacobi.cu; waits */
static void copy_column(const jacobi_t *job, gpu_kernel_t kernel, int which,
                        gpu_ptr_t column, uint64_t index)
{
    gpu_ptr_t field = job->field[which];
    uint64_t pitch  = job->pitch;
    unsigned rows   = job->rows;
    void *args[]    = {&field, &column, &rows, &pitch, &index};

    gpu_launch(job->stream[0], kernel,
               (rows + JACOBI_THREADS - 1) / JACOBI_THREADS, 1, JACOBI_THREADS,
               args);
    gpu_stream_wait(job->stream[0]);
}

/* --------------------------------------------------------------- messages */

static int post(gpu_ptr_t to_send, int to, gpu_ptr_t to_receive, int from,
                unsigned count, int way, MPI_Request *requests)
{
    MPI_Irecv((void*)(uintptr_t)to_receive, (int)count, MPI_FLOAT, from, way,
              MPI_COMM_WORLD, &requests[0]);
    MPI_Isend((void*)(uintptr_t)to_send, (int)count, MPI_FLOAT, to, way,
              MPI_COMM_WORLD, &requests[1]);
    return 2;
}

/* Begins to send one edge of field[which] to where it goes, and to receive
   what comes from the opposite side. Number of requests. */
static int exchange(const jacobi_t *job, int which, int way,
                    MPI_Request *requests)
{
    unsigned rows = job->rows;

    switch (way) {
    case DOWN:
        return post(jacobi_at(job, which, rows, JACOBI_PAD), job->down,
                    jacobi_at(job, which, 0, JACOBI_PAD), job->up,
                    job->columns, way, requests);
    case UP:
        return post(jacobi_at(job, which, 1, JACOBI_PAD), job->up,
                    jacobi_at(job, which, rows + 1, JACOBI_PAD), job->down,
                    job->columns, way, requests);
    case RIGHT:
        return post(job->column[TO_RIGHT], job->right,
                    job->column[FROM_LEFT], job->left, rows, way, requests);
    default:
        return post(job->column[TO_LEFT], job->left,
                    job->column[FROM_RIGHT], job->right, rows, way, requests);
    }
}

/* One way after the other, each over before the next begins, or both at once */
static void exchange_both(const jacobi_t *job, int which, int one, int other,
                          int at_once)
{
    MPI_Request requests[4];
    int count = exchange(job, which, one, requests);

    if (!at_once) {
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        count = 0;
    }
    count += exchange(job, which, other, requests + count);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

/* Columns do not lie in memory as messages want them */
static void exchange_columns(const jacobi_t *job, int which)
{
    uint64_t first = JACOBI_PAD, last = JACOBI_PAD + job->columns - 1;

    if (job->opts.grid[1] == 1) {
        return;
    }

    copy_column(job, job->column_get, which, job->column[TO_LEFT], first);
    copy_column(job, job->column_get, which, job->column[TO_RIGHT], last);
    exchange_both(job, which, RIGHT, LEFT,
                  job->opts.mode == JACOBI_OVERLAPPED);
    if (job->left != MPI_PROC_NULL) {
        copy_column(job, job->column_put, which, job->column[FROM_LEFT],
                    first - 1);
    }
    if (job->right != MPI_PROC_NULL) {
        copy_column(job, job->column_put, which, job->column[FROM_RIGHT],
                    last + 1);
    }
}

/* ------------------------------------------------- does MPI take pointers? */

static void mpi_touched_gpu(int number)
{
    static const char text[] =
        "jacobi: MPI used GPU memory as if it were the host's: this MPI takes "
        "no GPU pointers. Start it under ucx_mp_run.\n";

    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(JACOBI_WRONG);
}

/* A message of 4 bytes, which an MPI that takes the pointer for the host's
   copies with the CPU */
static void check_mpi(const jacobi_t *job)
{
    struct sigaction guard = {.sa_handler = mpi_touched_gpu}, before;
    void *residual         = (void*)(uintptr_t)job->residual;
    void *column           = (void*)(uintptr_t)job->column[0];

    sigaction(SIGSEGV, &guard, &before);
    MPI_Sendrecv(residual, 1, MPI_FLOAT, job->down, 0, column, 1, MPI_FLOAT,
                 job->up, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sigaction(SIGSEGV, &before, NULL);
}

/* -------------------------------------------------------------- iteration */

/* The papers' way. While all messages go one way round the ring, the other way
   and the links across it are free for parts of them. */
static double iterate_ordered(jacobi_t *job, int from, int test)
{
    double begin = seconds(), updated;

    update(job, job->stream[0], from, 1, job->rows + 1, test);
    gpu_stream_wait(job->stream[0]);
    updated = seconds() - begin;
    exchange_both(job, !from, DOWN, UP, 0);
    exchange_columns(job, !from);
    return updated;
}

/* What the neighbours wait for comes first; the rest while it travels. */
static double iterate_overlapped(jacobi_t *job, int from, int test)
{
    unsigned rows = job->rows;
    double begin  = seconds(), updated;

    update(job, job->stream[0], from, 1, 2, test);
    update(job, job->stream[0], from, (rows > 1) ? rows : 2, rows + 1, test);
    gpu_stream_wait(job->stream[0]);
    updated = seconds() - begin;
    update(job, job->stream[1], from, 2, rows, test);
    exchange_both(job, !from, DOWN, UP, 1);
    gpu_stream_wait(job->stream[1]);
    exchange_columns(job, !from);
    return updated;
}

/* The largest change of any rank. Bits of floats that are not negative have the
   order of whole numbers, with NaN as the largest. */
static float reduce_residual(const jacobi_t *job)
{
    uint32_t bits, most;
    float residual;

    if (job->opts.reduce_on_gpu) {
        MPI_Allreduce(MPI_IN_PLACE, (void*)(uintptr_t)job->residual, 1,
                      MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
        gpu_get(&most, job->residual, sizeof(most));
    } else {
        gpu_get(&bits, job->residual, sizeof(bits));
        MPI_Allreduce(&bits, &most, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
    }
    memcpy(&residual, &most, sizeof(residual));
    return residual;
}

static int has_converged(const jacobi_t *job)
{
    return (job->opts.tolerance > 0) &&
           (job->tests[job->num_tests - 1].residual <= job->opts.tolerance);
}

/* One iteration and what goes with it; 0: it has converged */
static int step(jacobi_t *job)
{
    const jacobi_options_t *opts = &job->opts;
    int from = job->done % 2, test;
    float residual;

    test = ((job->done + 1) % opts->test_every == 0) ||
           (job->done + 1 == opts->iterations);
    if (test) {
        gpu_stream_zero4(job->stream[0], job->residual);
        gpu_stream_wait(job->stream[0]);
    }

    job->updating[job->done] = (opts->mode == JACOBI_OVERLAPPED) ?
                               iterate_overlapped(job, from, test) :
                               iterate_ordered(job, from, test);
    ++job->done;
    if (!test) {
        return 1;
    }

    residual                               = reduce_residual(job);
    job->tests[job->num_tests].residual    = residual;
    job->tests[job->num_tests++].iteration = job->done;
    return !has_converged(job);
}

static void show_progress(const jacobi_t *job, double begin)
{
    int tenth = (job->opts.iterations + 9) / 10;

    if (!job->opts.quiet && (job->rank == 0) && (job->done % tenth == 0)) {
        fprintf(stderr, "jacobi: %d of %d iterations, %.3g ms each", job->done,
                job->opts.iterations, (seconds() - begin) / job->done * 1e3);
        if (job->num_tests > 0) {
            fprintf(stderr, ", residual %.4g after %d",
                    job->tests[job->num_tests - 1].residual,
                    job->tests[job->num_tests - 1].iteration);
        }
        fprintf(stderr, "\n");
    }
}

/* The longest of all ranks, to rank 0 */
static void gather_times(double *values, int count, int rank)
{
    if (rank == 0) {
        MPI_Reduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MAX, 0,
                   MPI_COMM_WORLD);
    } else {
        MPI_Reduce(values, NULL, count, MPI_DOUBLE, MPI_MAX, 0,
                   MPI_COMM_WORLD);
    }
}

static void solve(jacobi_t *job)
{
    double begin, timed = 0, last, now;
    int go_on;

    check_mpi(job);
    MPI_Barrier(MPI_COMM_WORLD);
    begin = last = seconds();
    do {
        if (job->done == job->opts.untimed) {
            MPI_Barrier(MPI_COMM_WORLD);
            timed = last = seconds();
        }

        go_on = step(job);
        now   = seconds();
        job->seconds[job->done - 1] = now - last;
        last                        = now;
        show_progress(job, begin);
    } while (go_on && (job->done < job->opts.iterations));

    MPI_Barrier(MPI_COMM_WORLD);
    job->elapsed = seconds() - timed;
    gather_times(&job->elapsed, 1, job->rank);
    gather_times(job->seconds, job->done, job->rank);
    gather_times(job->updating, job->done, job->rank);
}

/* ----------------------------------------------------------------- set-up */

static void place(jacobi_t *job)
{
    int rows = job->opts.grid[0], columns = job->opts.grid[1];
    int row = job->rank / columns, column = job->rank % columns;

    job->up    = (row + rows - 1) % rows * columns + column;
    job->down  = (row + 1) % rows * columns + column;
    job->left  = (column == 0) ? MPI_PROC_NULL : (job->rank - 1);
    job->right = (column == columns - 1) ? MPI_PROC_NULL : (job->rank + 1);

    job->rows         = (unsigned)(job->opts.rows / (uint64_t)rows);
    job->columns      = (unsigned)(job->opts.columns / (uint64_t)columns);
    job->first_row    = (uint64_t)row * job->rows;
    job->first_column = (uint64_t)column * job->columns;
    job->pitch        = ((uint64_t)job->columns + 31) / 32 * 32 +
                        2 * JACOBI_PAD;
}

static void open_gpu(void)
{
    char why[256];
    MPI_Comm local;
    int local_rank;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &local);
    MPI_Comm_rank(local, &local_rank);
    MPI_Comm_free(&local);
    if (gpu_open(local_rank, why, sizeof(why)) == 0) {
        jacobi_die("%s", why);
    }
}

static void create(jacobi_t *job)
{
    size_t field  = (job->rows + 2ull) * job->pitch * sizeof(float);
    size_t column = job->rows * sizeof(float);
    size_t room   = (column + 127) / 128 * 128;
    float *values;
    unsigned i;

    open_gpu();
    if (2 * field > gpu_memory_free()) {
        jacobi_die("%u rows of %u columns take %.1f GiB of the GPU's memory, "
                   "and %.1f are free: choose a smaller --row-size, --rows or "
                   "--domain", job->rows, job->columns, 2 * field / 0x1p30,
                   gpu_memory_free() / 0x1p30);
    }

    job->tests    = calloc((size_t)job->opts.iterations, sizeof(*job->tests));
    job->seconds  = calloc((size_t)job->opts.iterations, sizeof(double));
    job->updating = calloc((size_t)job->opts.iterations, sizeof(double));
    values        = malloc(column);
    if ((job->tests == NULL) || (job->seconds == NULL) ||
        (job->updating == NULL) || (values == NULL)) {
        jacobi_die("no memory for the times of %d iterations",
                   job->opts.iterations);
    }

    job->stream[0]  = gpu_stream_create();
    job->stream[1]  = gpu_stream_create();
    job->update     = gpu_kernel("jacobi_update");
    job->column_get = gpu_kernel("jacobi_column_get");
    job->column_put = gpu_kernel("jacobi_column_put");
    job->residual   = gpu_alloc(128 + 4 * room);
    for (i = 0; i < 4; ++i) {
        job->column[i] = job->residual + 128 + i * room;
    }

    /* Zero, but for what stands beside the first and the last column */
    for (i = 0; i < job->rows; ++i) {
        values[i] = jacobi_boundary(job->first_row + i, job->opts.rows);
    }
    gpu_put(job->column[FROM_LEFT], values, column);
    for (i = 0; i < 2; ++i) {
        job->field[i] = gpu_alloc(field);
        gpu_zero(job->field[i], field);
        if (job->left == MPI_PROC_NULL) {
            copy_column(job, job->column_put, (int)i, job->column[FROM_LEFT],
                        JACOBI_PAD - 1);
        }
        if (job->right == MPI_PROC_NULL) {
            copy_column(job, job->column_put, (int)i, job->column[FROM_LEFT],
                        JACOBI_PAD + job->columns);
        }
    }
    free(values);
}

static void destroy(jacobi_t *job)
{
    int i;

    for (i = 0; i < 2; ++i) {
        gpu_free(job->field[i]);
    }
    gpu_free(job->residual);
    free(job->tests);
    free(job->seconds);
    free(job->updating);
}

/* ----------------------------------------------------------------- report */

static void report(const jacobi_t *job)
{
    const jacobi_test_t *last = &job->tests[job->num_tests - 1];
    int timed                 = job->done - job->opts.untimed;
    uint32_t bits;

    memcpy(&bits, &last->residual, sizeof(bits));
    printf("jacobi: %d ranks, %llu x %llu points, %s, boundary rows of %llu "
           "bytes\n", job->num_ranks, (unsigned long long)job->opts.rows,
           (unsigned long long)job->opts.columns,
           (job->opts.mode == JACOBI_ORDERED) ? "ordered" : "overlapped",
           (unsigned long long)job->columns * sizeof(float));
    printf("jacobi: %d iterations%s, residual %.9g (0x%08x)\n", job->done,
           has_converged(job) ? ", converged" : "",
           last->residual, bits);
    if (timed > 0) {
        printf("jacobi: %.6f s for %d iterations, %.3f ms each\n", job->elapsed,
               timed, job->elapsed / timed * 1e3);
    }
    if (job->opts.check) {
        printf("jacobi: %llu points compared with the host's solution, %llu "
               "differ\n",
               (unsigned long long)(job->opts.rows * job->opts.columns),
               (unsigned long long)job->wrong);
    }
}

static int run(jacobi_t *job)
{
    uint64_t wrong;

    place(job);
    create(job);
    solve(job);
    if (job->opts.check) {
        wrong = jacobi_check(job);
        MPI_Allreduce(&wrong, &job->wrong, 1, MPI_UINT64_T, MPI_SUM,
                      MPI_COMM_WORLD);
    }
    if (job->opts.field != NULL) {
        jacobi_write_field(job);
    }
    if (job->rank == 0) {
        report(job);
        if (job->opts.json != NULL) {
            jacobi_write_json(job);
        }
    }
    destroy(job);
    return (job->wrong > 0) ? JACOBI_WRONG : JACOBI_OK;
}

int main(int argc, char **argv)
{
    jacobi_t job = {.rank = 0};
    int code;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.num_ranks);
    if (jacobi_options_parse(&job.opts, argc, argv, job.rank, job.num_ranks,
                             &code)) {
        code = run(&job);
    }
    MPI_Finalize();
    return code;
}
