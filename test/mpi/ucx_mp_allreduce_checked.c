/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * MPI_Allreduce of floats in GPU memory: each size in place and out of place.
 * Checks every byte, counts the calls run by GPUs, and measures the time of a
 * call.
 *
 * The terms are whole numbers, so that the sum is the same in any order.
 */
#include "gpu.h"
#include "on_gpus.h"
#include "util.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_OFFSET 64 /* elements */
#define GUARD      64

static int world_rank, world_size;
static size_t ar_min = 4, ar_max = (size_t)4 << 20;
static long ar_calls = 5;
static long ar_expect = -1; /* percentage of calls expected to run on GPUs */
static int ar_check = 1;
static int ar_in_place = 2; /* no, yes, both */
static int ar_down;         /* repeat the sizes, the largest first */
static long ar_host_first; /* calls before any use of a GPU */

/* An error by rank 1 before all other calls */
enum {
    FAULT_NONE,
    FAULT_DIFFER, /* one float more: an error on all ranks, nothing else */
    FAULT_SHORT,  /* a buffer that ends too early; likewise */
    FAULT_DIE,    /* the rank ends; the others get an error, and the program
                     ends */
    FAULT_CALL,   /* another collective */
    FAULT_ROOT,   /* a broadcast with another root */
    FAULT_LEAVE,  /* no error: the last rank falls back, and frees its
                     communicator */
    FAULT_REJECTED, /* no result buffer: an error on this rank alone, which
                       repeats the call */
    FAULT_KERNEL  /* a failed kernel and its unusable context: an error on all
                     ranks, and the program ends */
};
static int ar_fault = FAULT_NONE;


static float term(int rank, size_t i, long call)
{
    return (float)((ucx_mp_hash(i * 31 + call) >> (5 * (rank % 8))) % 1000) +
           rank;
}

/* Make one call. Returns the number of wrong bytes. */
static size_t try_call(float *send, float *recv, float *host, size_t count,
                       int is_in_place, int shift, long call, double *seconds)
{
    const size_t all = count + 2 * GUARD;
    float *from      = send + shift, *to = recv + shift, expected;
    size_t wrong     = 0, i;
    char text[MPI_MAX_ERROR_STRING];
    double began;
    int rank, rc, length;

    for (i = 0; ar_check && (i < all); ++i) {
        host[i] = (i < GUARD) || (i >= GUARD + count) ?
                          -1 :
                          term(world_rank, i - GUARD, call);
    }
    if (ar_check) {
        ucx_mp_mem_write(UCX_MP_MEM_DEVICE, is_in_place ? to : from, host,
                         all * sizeof(float));
        if (!is_in_place) {
            ucx_mp_mem_set(UCX_MP_MEM_DEVICE, to, 0xbf, all * sizeof(float));
        }
    }

    MPI_Barrier(MPI_COMM_WORLD);
    began = ucx_mp_time();
    rc    = MPI_Allreduce(is_in_place ? MPI_IN_PLACE : from + GUARD, to + GUARD,
                          (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    *seconds = ucx_mp_time() - began;
    if (rc != MPI_SUCCESS) {
        MPI_Error_string(rc, text, &length);
        ucx_mp_die(UCX_MP_EXIT_WRONG, "fails: %s", text);
    }
    if (!ar_check) {
        return 0;
    }

    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, host, to, all * sizeof(float));
    for (i = 0; i < all; ++i) {
        if ((i < GUARD) || (i >= GUARD + count)) {
            expected = -1;
            if (!is_in_place) {
                memset(&expected, 0xbf, sizeof(expected));
            }
        } else {
            expected = 0;
            for (rank = 0; rank < world_size; ++rank) {
                expected += term(rank, i - GUARD, call);
            }
        }
        if ((host[i] != expected) && (wrong++ == 0)) {
            fprintf(stderr,
                    "ucx_mp_allreduce_checked: rank %d, %zu floats%s, call "
                    "%ld: element %zd is %g, not %g\n",
                    world_rank, count, is_in_place ? " in place" : "", call,
                    (ssize_t)(i - GUARD), (double)host[i], (double)expected);
        }
    }
    return wrong;
}

/* Let the last rank fall back with a host buffer. When the first rank calls,
   the last one has left. */
static void try_leaving(float *recv)
{
    enum { COUNT = 16 };
    const int last = world_size - 1;
    float host[COUNT] = {0};
    MPI_Comm comm;
    int rc;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Bcast(recv, COUNT, MPI_FLOAT, last, comm);
    if (world_rank == last) {
        host[COUNT - 1] = 7;
    } else if (world_rank == 0) {
        usleep(1000000);
    }
    rc = MPI_Bcast((world_rank == last) ? host : recv, COUNT, MPI_FLOAT, last,
                   comm);
    if (rc != MPI_SUCCESS) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "a rank that has left is missed");
    }
    MPI_Comm_free(&comm);

    if (world_rank != last) {
        ucx_mp_mem_read(UCX_MP_MEM_DEVICE, host, recv, sizeof(host));
    }
    if (host[COUNT - 1] != 7) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "a broadcast brought %g",
                   (double)host[COUNT - 1]);
    }
}

/* Let the MPI reject the call of rank 1. No other rank learns of it. */
static void try_rejected(const float *send)
{
    if ((world_rank == 1) &&
        (MPI_Allreduce(send, MPI_IN_PLACE, (int)(ar_max / sizeof(*send)),
                       MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS)) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "a call without a result succeeds");
    }
}

/* Fail the next kernel of this process on an emulated node. */
static void fail_kernel(void)
{
    int (*fault)(const char *faults);

    *(void**)&fault = ucx_mp_gpu_function("cuemu_fault");
    if ((fault == NULL) || (fault("kernel:1:700") != 0)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "not on an emulated node");
    }
}

static void try_fault(const float *send, float *recv)
{
    const double began = ucx_mp_real_time();
    int count          = 256;
    float *wide        = recv;
    char text[MPI_MAX_ERROR_STRING];
    int rc, length;

    if (ar_fault == FAULT_NONE) {
        return;
    } else if (ar_fault == FAULT_LEAVE) {
        try_leaving(recv);
        return;
    } else if (ar_fault == FAULT_REJECTED) {
        try_rejected(send);
        return;
    }

    MPI_Allreduce(send, recv, 256, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if ((ar_fault == FAULT_DIE) && (world_rank == 1)) {
        raise(SIGKILL);
    } else if ((ar_fault == FAULT_KERNEL) && (world_rank == 1)) {
        fail_kernel();
    } else if (ar_fault == FAULT_DIFFER) {
        count += (world_rank == 1);
    } else if (ar_fault == FAULT_SHORT) {
        count = 1 << 18;
        if (world_rank != 1) {
            wide = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, count * sizeof(float));
        }
    }

    if ((ar_fault == FAULT_ROOT) ||
        ((ar_fault == FAULT_CALL) && (world_rank == 1))) {
        rc = MPI_Bcast(recv, count, MPI_FLOAT,
                       (ar_fault == FAULT_ROOT) && (world_rank == 1),
                       MPI_COMM_WORLD);
    } else {
        rc = MPI_Allreduce((ar_fault == FAULT_SHORT) ? MPI_IN_PLACE : send,
                           wide, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rc == MPI_SUCCESS) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "the call succeeds");
    }

    MPI_Error_string(rc, text, &length);
    printf("rank %d: within %d s: %s\n", world_rank,
           (int)(ucx_mp_real_time() - began) + 1, text);
    fflush(stdout);
    if ((ar_fault == FAULT_DIE) || (ar_fault == FAULT_KERNEL)) {
        _exit(UCX_MP_EXIT_OK);
    }
}

/* Calls with host memory, large enough for several nodes to agree on each */
static long try_host(long calls)
{
    enum { COUNT = 1 << 16 };
    unsigned long long agreements;
    long wrong = 0, call;
    float *buffer;
    int i;

    buffer = calloc(COUNT, sizeof(*buffer));
    for (call = 0; (call < calls) && (buffer != NULL); ++call) {
        for (i = 0; i < COUNT; ++i) {
            buffer[i] = 1 + (float)call;
        }
        MPI_Allreduce(MPI_IN_PLACE, buffer, COUNT, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
        wrong += (buffer[COUNT - 1] != world_size * (1 + (float)call));
    }
    ucx_mp_between_nodes(&agreements);
    if ((world_rank == 0) && (calls > 0)) {
        printf("%llu agreements for %ld calls of host memory\n", agreements,
               calls);
    }
    free(buffer);
    return wrong;
}

/* Return the next larger size, and after the last one the smaller ones on
   request; 0 at the end. */
static size_t next_size(size_t bytes)
{
    static int is_down;

    if (!is_down && (bytes * 4 <= ar_max)) {
        return bytes * 4;
    }

    is_down = 1;
    return (ar_down && (bytes / 4 >= ar_min)) ? bytes / 4 : 0;
}

static void parse(int argc, char **argv)
{
    static const char *const in_place_names[] = {"n", "y", "both", NULL};
    static const char *const fault_names[] = {"none", "differ", "short", "die",
                                              "call", "root", "leave",
                                              "rejected", "kernel",
                                              NULL};
    static const ucx_mp_option_t options[] = {
        UCX_MP_SIZE("min-size", ar_min, 4, (size_t)4 << 30, "smallest buffer"),
        UCX_MP_SIZE("max-size", ar_max, 4, (size_t)4 << 30, "largest buffer"),
        UCX_MP_NUMBER("calls", ar_calls, 1, 1 << 20, "N", "of each size"),
        UCX_MP_NUMBER("check", ar_check, 0, 1, "0", "look at no result"),
        UCX_MP_CHOICE("in-place", ar_in_place, in_place_names, "which calls"),
        UCX_MP_CHOICE("fault", ar_fault, fault_names, "what a rank does wrong"),
        UCX_MP_NUMBER("down", ar_down, 0, 1, "1", "sizes go down again"),
        UCX_MP_NUMBER("host-first", ar_host_first, 1, 1 << 20, "CALLS",
                      "with host buffers before all else"),
        UCX_MP_NUMBER("on-gpus", ar_expect, 0, 100, "PERCENT",
                      "of the calls that GPUs have to carry out"),
        {.name = NULL}
    };

    ucx_mp_parse_options(argc, argv, "All-reduces of GPU buffers, checked.",
                         options);
    if (ar_max < ar_min) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "--min-size is more than --max-size");
    }
}

int main(int argc, char **argv)
{
    long mine[4] = {0, 0, 0, 0}, all[4], call = 0, before;
    float *send, *recv, *host;
    unsigned long long agreements;
    double *seconds;
    size_t bytes, room;
    int in_place, shift;
    long i;

    ucx_mp_program = "ucx_mp_allreduce_checked";
    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&world_rank, &world_size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    parse(argc, argv);
    mine[0] = try_host(ar_host_first);
    ucx_mp_gpu_require(world_rank);

    room    = ar_max + (MAX_OFFSET + 2 * GUARD) * sizeof(float);
    send    = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, room);
    recv    = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, room);
    host    = malloc(room);
    seconds = malloc(ar_calls * sizeof(*seconds));
    if ((host == NULL) || (seconds == NULL)) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "no memory");
    }

    try_fault(send, recv);
    for (bytes = ar_min; bytes != 0; bytes = next_size(bytes)) {
        for (in_place = 0; in_place < 2; ++in_place) {
            if ((ar_in_place < 2) && (in_place != ar_in_place)) {
                continue;
            }
            before = ucx_mp_on_gpus();
            for (i = 0; i < ar_calls; ++i, ++call) {
                /* sometimes the same on every rank, so that kernels use
                   vectors */
                shift = (call % 3 == 0) ? 0 :
                        (int)(ucx_mp_hash(call + 100 * (call % 3 == 1) *
                                          world_rank) % MAX_OFFSET);
                shift = ar_check ? shift : 0;
                mine[0] += (long)try_call(send, recv, host,
                                          bytes / sizeof(float), in_place,
                                          shift, call, &seconds[i]);
                ++mine[1];
            }
            mine[2] += ucx_mp_on_gpus() - before;
            ucx_mp_sort(seconds, ar_calls);
            if (world_rank == 0) {
                printf("%zu bytes%s: %.1f us, %.1f GB/s; %ld of %ld calls on "
                       "GPUs\n", bytes, in_place ? " in place" : "",
                       seconds[ar_calls / 2] * 1e6,
                       bytes / seconds[ar_calls / 2] / 1e9,
                       ucx_mp_on_gpus() - before, ar_calls);
                fflush(stdout);
            }
        }
    }

    mine[3] = (long)ucx_mp_between_nodes(&agreements);
    MPI_Allreduce(mine, all, 4, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, send);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, recv);
    if (world_rank == 0) {
        if (all[3] > 0) {
            printf("%ld bytes given to the MPI to add up between nodes\n",
                   all[3]);
        }
        printf("ucx_mp_allreduce_checked: %ld calls of %d ranks, %ld carried "
               "out on GPUs, %ld wrong elements\n", call, world_size, all[2],
               all[0]);
    }
    MPI_Finalize();
    if ((ar_expect >= 0) && (100 * all[2] != ar_expect * all[1])) {
        if (world_rank == 0) {
            fprintf(stderr,
                    "ucx_mp_allreduce_checked: not %ld %% of the calls were "
                    "carried out on GPUs\n", ar_expect);
        }
        return UCX_MP_EXIT_WRONG;
    }
    return (all[0] > 0) ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}
