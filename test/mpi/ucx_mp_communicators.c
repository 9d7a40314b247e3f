/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators: their cost before the first GPU buffer, calls that MPI allows
 * in a different order on each rank, and GPU buffers first used at different
 * times.
 *
 * ucx_mp_communicators [--host N] [--gpu N] [--calls N] [--first N] [--times N]
 *                      [--seed N] [--fatal 1]
 *   --host N   N communicators are made, used with host memory and kept: no
 *              additional descriptor, and no file of this project
 *   --gpu N    and N with GPU buffers
 *   --calls N  N collectives on each of a few communicators, whose ranks use
 *              GPU buffers from different calls on, and sometimes
 *   --first N  N new sizes of each collective with GPU buffers: time of the
 *              first call, and of the second
 *   --times N  N calls each with host buffers: their time
 *   --fatal 1  alone: an error on an intercommunicator ends all ranks
 *
 * Prints one line of results; the exit status is 0 if nothing was wrong.
 */
#include "gpu.h"
#include "on_gpus.h"
#include "util.h"

#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define MAX_COUNT 3000

static struct {
    int num_host, num_gpu, num_calls, num_first, num_times, seed,
        is_fatal;
} options = {.num_calls = 60, .seed = 1};

static int rank, size, wrong;

static uint64_t random_of(uint64_t a, uint64_t b, uint64_t c)
{
    return ucx_mp_hash(ucx_mp_hash(ucx_mp_hash(options.seed + a) + b) + c);
}

static int open_files(void)
{
    DIR *dir  = opendir("/proc/self/fd");
    int count = 0;

    while ((dir != NULL) && (readdir(dir) != NULL)) {
        ++count;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count - 3; /* "." and ".." and the directory itself */
}

static void expect(int is_so, const char *what)
{
    if (!is_so) {
        printf("rank %d: %s\n", rank, what);
        ++wrong;
    }
}


/* ------------------------------------------------------------------- orders */

/* MPI lets a root of a small message return before the others call, and senders
   to a root return before it calls: later messages must wait for these */
static void orders(MPI_Comm comm)
{
    enum { COUNT = 4 };
    int values[COUNT * 64], one[COUNT], token = 1, kind, i;

    for (kind = 0; kind < 4; ++kind) {
        const int is_from_root = (kind < 2);
        const int is_first     = (rank == 0) == is_from_root;

        memset(values, 0, sizeof(values));
        if ((rank == 0) && is_from_root) {
            for (i = 0; i < COUNT * size; ++i) {
                values[i] = (kind == 0) ? i % COUNT + 1 : 1 + i;
            }
        }
        for (i = 0; i < COUNT; ++i) {
            one[i] = is_from_root ? 0 : 1 + rank * COUNT + i;
        }

        if (!is_first) {
            for (i = 1; i < size; ++i) {
                if ((rank == 0) || (rank == i)) {
                    MPI_Recv(&token, 1, MPI_INT, (rank == 0) ? i : 0, kind,
                             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                }
            }
        }
        switch (kind) {
        case 0:
            MPI_Bcast(values, COUNT, MPI_INT, 0, comm);
            break;
        case 1:
            MPI_Scatter(values, COUNT, MPI_INT, one, COUNT, MPI_INT, 0, comm);
            break;
        case 2:
            MPI_Gather(one, COUNT, MPI_INT, values, COUNT, MPI_INT, 0, comm);
            break;
        default:
            MPI_Reduce(one, values, COUNT, MPI_INT, MPI_SUM, 0, comm);
            break;
        }
        if (is_first) {
            for (i = 1; i < size; ++i) {
                if ((rank == 0) || (rank == i)) {
                    MPI_Send(&token, 1, MPI_INT, (rank == 0) ? i : 0, kind,
                             MPI_COMM_WORLD);
                }
            }
        }

        for (i = 0; i < COUNT; ++i) {
            switch (kind) {
            case 0:
                expect(values[i] == i + 1, "a broadcast is wrong");
                break;
            case 1:
                expect(one[i] == 1 + rank * COUNT + i, "a scatter is wrong");
                break;
            case 2:
                expect((rank > 0) || (values[(size - 1) * COUNT + i] ==
                                      1 + (size - 1) * COUNT + i),
                       "a gather is wrong");
                break;
            default:
                expect((rank > 0) ||
                               (values[i] == size * (1 + i) +
                                                     COUNT * size *
                                                             (size - 1) / 2),
                       "a reduction is wrong");
                break;
            }
        }
    }
}


/* --------------------------------------------------------------------- many */

/* Make so many communicators with one sum each, and keep them. `mem` is the
   kind of buffers. */
static void many(int count, ucx_mp_mem_t mem)
{
    int *buffer = ucx_mp_mem_alloc(mem, sizeof(int));
    MPI_Comm *comms;
    int i, value, files;
    FILE *file;

    comms = malloc(count * sizeof(*comms));
    for (i = 0; i < count; ++i) {
        /* an MPI has a maximum, too */
        if (MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]) != MPI_SUCCESS) {
            printf("rank %d: the MPI has %d communicators\n", rank, i);
            count = i;
            break;
        }
    }

    files = open_files();
    for (i = 0; i < count; ++i) {
        value = rank + i;
        ucx_mp_mem_write(mem, buffer, &value, sizeof(value));
        MPI_Allreduce(MPI_IN_PLACE, buffer, 1, MPI_INT, MPI_SUM, comms[i]);
        ucx_mp_mem_read(mem, &value, buffer, sizeof(value));
        if (value != size * i + size * (size - 1) / 2) {
            expect(0, "a sum is wrong");
            break;
        }
    }

    file = fopen("/dev/null", "r");
    expect(file != NULL, "no file can be opened any more");
    if (file != NULL) {
        fclose(file);
    }
    if (mem == UCX_MP_MEM_HOST) {
        expect(open_files() == files, "communicators have opened files");
    }

    for (i = 0; i < count; ++i) {
        MPI_Comm_free(&comms[i]);
    }
    free(comms);
    ucx_mp_mem_free(mem, buffer);
}


/* -------------------------------------------------------------------- mixed */

typedef struct {
    MPI_Comm comm;
    int      id, rank, size;
    int      *host[2], *gpu[2]; /* send buffer, receive buffer */
} mixed_t;

static void mixed_begin(mixed_t *mixed, int id, MPI_Comm comm)
{
    int i;

    mixed->comm = comm;
    mixed->id   = id;
    if (comm == MPI_COMM_NULL) {
        return;
    }

    MPI_Comm_rank(comm, &mixed->rank);
    MPI_Comm_size(comm, &mixed->size);
    for (i = 0; i < 2; ++i) {
        const size_t bytes = (i ? mixed->size : 1) * MAX_COUNT * sizeof(int);

        mixed->host[i] = ucx_mp_mem_alloc(UCX_MP_MEM_HOST, bytes);
        mixed->gpu[i]  = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, bytes);
    }
}

static int value_of(const mixed_t *mixed, int call, int who, int i)
{
    return (int)(random_of(mixed->id, call, who * 4099 + i) % 1000);
}

/* Return whether a rank's buffers are in GPU memory: none at first; mostly from
   its own first call on. */
static int is_on_gpu(const mixed_t *mixed, int call, int who)
{
    return (call >= (int)(random_of(mixed->id, 1 << 20, who) % 20)) &&
           (random_of(mixed->id, (1 << 21) + call, who) % 8 != 0);
}

static void mixed_call(mixed_t *mixed, int call)
{
    const int kind  = random_of(mixed->id, 1 << 22, call) % 3;
    const int count = 1 + random_of(mixed->id, 1 << 23, call) % MAX_COUNT;
    const int root  = random_of(mixed->id, 1 << 24, call) % mixed->size;
    const int on_gpu = is_on_gpu(mixed, call, mixed->rank);
    const ucx_mp_mem_t mem = on_gpu ? UCX_MP_MEM_DEVICE : UCX_MP_MEM_HOST;
    int *send              = on_gpu ? mixed->gpu[0] : mixed->host[0];
    int *recv              = on_gpu ? mixed->gpu[1] : mixed->host[1];
    const int blocks       = (kind == 1) ? mixed->size : 1;
    int i, who, want;

    for (i = 0; i < count; ++i) {
        mixed->host[0][i] = value_of(mixed, call, mixed->rank, i);
    }
    ucx_mp_mem_write(mem, send, mixed->host[0], count * sizeof(int));
    switch (kind) {
    case 0:
        MPI_Allreduce(send, recv, count, MPI_INT, MPI_SUM, mixed->comm);
        break;
    case 1:
        MPI_Allgather(send, count, MPI_INT, recv, count, MPI_INT, mixed->comm);
        break;
    default:
        recv = send;
        MPI_Bcast(send, count, MPI_INT, root, mixed->comm);
        break;
    }

    ucx_mp_mem_read(mem, mixed->host[1], recv, blocks * count * sizeof(int));
    for (i = 0; i < blocks * count; ++i) {
        want = value_of(mixed, call, (kind == 1) ? i / count : root, i % count);
        for (who = 0, want = kind ? want : 0; !kind && (who < mixed->size);
             ++who) {
            want += value_of(mixed, call, who, i);
        }
        if (mixed->host[1][i] != want) {
            printf("rank %d: communicator %d, call %d, kind %d, element %d: "
                   "%d, not %d\n", rank, mixed->id, call, kind, i,
                   mixed->host[1][i], want);
            ++wrong;
            return;
        }
    }
}

/* Make communicators in each way, and call each of them in rotation. */
static void mixed_all(void)
{
    enum { NUM_COMMS = 6 };
    const int dims[] = {size}, periods[] = {1}, first[] = {0};
    mixed_t mixed[NUM_COMMS];
    MPI_Comm comms[NUM_COMMS];
    MPI_Group world, group;
    int i, call;

    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &comms[2]);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_excl(world, (size > 2), first, &group);
    MPI_Comm_create(MPI_COMM_WORLD, group, &comms[3]);
    comms[4] = MPI_COMM_NULL;
    if ((rank > 0) || (size == 2)) {
        MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, &comms[4]);
    }
    MPI_Comm_dup(comms[1], &comms[5]);

    for (i = 0; i < NUM_COMMS; ++i) {
        mixed_begin(&mixed[i], i, comms[i]);
    }
    for (call = 0; call < options.num_calls; ++call) {
        for (i = 0; i < NUM_COMMS; ++i) {
            if (comms[i] != MPI_COMM_NULL) {
                mixed_call(&mixed[i], call);
            }
        }
    }
    MPI_Group_free(&group);
    MPI_Group_free(&world);
}


/* -------------------------------------------------------------------- times */

static double median(double *times, int count)
{
    ucx_mp_sort(times, count);
    return times[count / 2];
}

/* Make one call of a kind; blocks of `count` bytes. @return Its time on the
   slowest rank, s. */
static double timed_call(int kind, char *send, char *recv, int count)
{
    const int peer = ((rank ^ 1) < size) ? (rank ^ 1) : MPI_PROC_NULL;
    double begin, time, most;

    MPI_Barrier(MPI_COMM_WORLD);
    begin = ucx_mp_time();
    switch (kind) {
    case 0:
        MPI_Allreduce(send, recv, count / 4, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
        break;
    case 1:
        MPI_Bcast(send, count, MPI_BYTE, 0, MPI_COMM_WORLD);
        break;
    case 2:
        MPI_Reduce(send, recv, count / 4, MPI_FLOAT, MPI_SUM, 0,
                   MPI_COMM_WORLD);
        break;
    case 3:
        MPI_Allgather(send, count / size, MPI_BYTE, recv, count / size,
                      MPI_BYTE, MPI_COMM_WORLD);
        break;
    case 4:
        MPI_Alltoall(send, count / size, MPI_BYTE, recv, count / size,
                     MPI_BYTE, MPI_COMM_WORLD);
        break;
    default:
        MPI_Sendrecv(send, count, MPI_BYTE, peer, 0, recv, count, MPI_BYTE,
                     peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    }
    time = ucx_mp_time() - begin;
    MPI_Allreduce(&time, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static const char *const kinds[] = {"MPI_Allreduce", "MPI_Bcast", "MPI_Reduce",
                                    "MPI_Allgather", "MPI_Alltoall",
                                    "MPI_Sendrecv"};

/* Measure new sizes, 256 B to 64 MiB, at most three per octave. */
static void first_calls(int count)
{
    const size_t max = (size_t)96 << 20;
    char *send       = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, max);
    char *recv       = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, max);
    double *times[2];
    int kind, i, j, bytes;

    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, send, 0, max);
    for (i = 0; i < 2; ++i) {
        times[i] = malloc(count * sizeof(**times));
    }
    for (kind = 0; kind < 5; ++kind) {
        /* kernels, memory and everything independent of the size */
        (void)timed_call(kind, send, recv, (int)max);
        (void)timed_call(kind, send, recv, 64 * size);
        for (i = 0; i < count; ++i) {
            bytes = (int)((256u << (i % 19)) +
                          64 * (random_of(kind, i, 0) % (4u << (i % 19))));
            bytes -= bytes % (4 * size);
            for (j = 0; j < 2; ++j) {
                times[j][i] = timed_call(kind, send, recv, bytes);
            }
        }
        if (rank == 0) {
            const double first = median(times[0], count);

            printf("%s: the first call of a size %.1f us (median of %d; at "
                   "most %.1f), the second %.1f\n", kinds[kind], first * 1e6,
                   count, times[0][count - 1] * 1e6,
                   median(times[1], count) * 1e6);
        }
    }
    free(times[0]);
    free(times[1]);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, send);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, recv);
}

static void host_times(int count)
{
    static const int sizes[] = {8, 1024, 65536};
    static char send[65536], recv[65536];
    double *times = malloc(count * sizeof(*times));
    unsigned i, j;
    int call;

    for (i = 0; i < 6; i += 5) {
        for (j = 0; j < sizeof(sizes) / sizeof(*sizes); ++j) {
            for (call = -100; call < count; ++call) {
                times[(call < 0) ? 0 : call] = timed_call(i, send, recv,
                                                          sizes[j]);
            }
            if (rank == 0) {
                printf("%s of host memory, %d bytes: %.3f us\n", kinds[i],
                       sizes[j], median(times, count) * 1e6);
            }
        }
    }
    free(times);
}


static void parse(int argc, char **argv)
{
#define NUMBER(_name, _member, _help) \
    UCX_MP_NUMBER(_name, options._member, 0, 1000000, "N", _help)
    static const ucx_mp_option_t table[] = {
        NUMBER("host", num_host, "communicators of host memory"),
        NUMBER("gpu", num_gpu, "communicators of GPU memory"),
        NUMBER("calls", num_calls, "of each"),
        NUMBER("first", num_first, "calls of host memory before"),
        NUMBER("times", num_times, "calls that are timed"),
        NUMBER("seed", seed, "seed of the random numbers"),
        UCX_MP_NUMBER("fatal", options.is_fatal, 0, 1, "1",
                      "an error on an intercommunicator ends all ranks"),
        {.name = NULL}
    };
#undef NUMBER

    ucx_mp_parse_options(argc, argv, "Communicators of ranks whose GPU buffers "
                         "come at different times.", table);
}

static int errors;
static char error_text[MPI_MAX_ERROR_STRING];

static void on_error(MPI_Comm *comm, int *rc, ...)
{
    int length;

    ++errors;
    MPI_Error_string(*rc, error_text, &length);
}

/* The program gets each error once, as from the MPI alone. MPICH's texts name
   the call. No rank waits for others. */
static void errors_once(void *buffer, const char *what)
{
    MPI_Errhandler handler;

    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Errhandler_free(&handler);

    errors = 0;
    MPI_Bcast(buffer, 1, MPI_INT, 0, MPI_COMM_NULL);
    expect(errors == 1, what);
#ifndef OPEN_MPI
    expect(strstr(error_text, "MPI_Bcast") != NULL, what);
#endif

    errors = 0;
    MPI_Bcast(buffer, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
    expect(errors == 1, what);

#ifdef OPEN_MPI
    errors = 0;
    MPI_Bcast(buffer, 1, MPI_INT, 0, (MPI_Comm)NULL);
    expect(errors == 1, what);

    errors = 0;
    MPI_Reduce_scatter(MPI_IN_PLACE, buffer, NULL, MPI_INT, MPI_SUM,
                       MPI_COMM_WORLD);
    expect(errors == 1, what);
#endif
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

/* In host and in GPU memory */
static void errors_all(void)
{
    void *buffer = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, sizeof(int));
    int on_host  = 0;

    errors_once(&on_host, "an error with host memory is told once");
    errors_once(buffer, "an error with GPU memory is told once");
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, buffer);
}

/* An error of one rank, with the error handler that an intercommunicator has by
   default, ends the others, which wait for this one. */
static void end_all(void)
{
    const int is_left = (rank == 0);
    MPI_Comm side, both;
    int value = 0;

    MPI_Comm_split(MPI_COMM_WORLD, is_left, rank, &side);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, is_left, 0, &both);
    if (is_left) {
        MPI_Send(&value, 1, MPI_INT, size, 0, both);
    } else {
        MPI_Recv(&value, 1, MPI_INT, 0, 0, both, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv)
{
    int on_gpus, all[2], mine[2];
    MPI_Comm comm;

    ucx_mp_program = "ucx_mp_communicators";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&rank, &size);
    parse(argc, argv);
    if (options.is_fatal) {
        end_all();
        return ucx_mp_finish(1);
    }

    orders(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    orders(comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    many(options.num_host, UCX_MP_MEM_HOST);

    if (options.num_times > 0) {
        host_times(options.num_times);
    }

    if ((options.num_gpu > 0) || (options.num_calls > 0) ||
        (options.num_first > 0)) {
        ucx_mp_gpu_require(ucx_mp_gpu_local_rank(rank));
        orders(comm);
        many(options.num_gpu, UCX_MP_MEM_DEVICE);
        mixed_all();
        errors_all();
        if (options.num_first > 0) {
            first_calls(options.num_first);
        }
    }
    orders(comm);
    MPI_Comm_free(&comm);

    on_gpus = (int)ucx_mp_on_gpus();
    mine[0] = wrong;
    mine[1] = on_gpus;
    MPI_Reduce(mine, all, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ucx_mp_communicators: %d communicators of host memory, %d of "
               "GPU memory, %d calls each of 6, %d times GPUs did their part, "
               "%d wrong\n", options.num_host, options.num_gpu,
               options.num_calls, all[1], all[0]);
    }
    MPI_Bcast(all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return (all[0] == 0) ? UCX_MP_EXIT_OK : UCX_MP_EXIT_WRONG;
}
