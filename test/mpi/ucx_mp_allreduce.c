/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Measure the time of an all-reduce, or of another collective, of GPU buffers
 * until the host knows that it is complete. Several ways are measured in
 * rotation within one group of processes:
 *
 *     mpi     MPI_Allreduce of the GPU buffers, through this project's library
 *             if it is preloaded
 *     nccl    ncclAllReduce on a stream, then cuStreamSynchronize
 *     staged  cuMemcpyDtoH, MPI_Allreduce of page-locked host memory (in
 *             place, also for GPU buffers out of place), cuMemcpyHtoD
 *
 * Sizes are defined as in NCCL's tests: the data of a rank in an all-reduce,
 * the blocks of all ranks together in calls with blocks. Roots are rank 0.
 *
 * Ways measured in one group of processes use the same UCX and the same
 * preloaded libraries. So the unmodified MPI has to be measured in another run.
 *
 * A sample is a barrier followed by successive calls. Its result is the time of
 * one call on the slowest rank. A round has one sample of each way, and the
 * order rotates from round to round. Before and after all rounds of a cell
 * (type, place, size) each way's result is checked.
 *
 * With --busy each GPU multiplies matrices meanwhile, on another stream. A
 * sample then also has the time of a product during the calls, and of one alone
 * right before.
 *
 * Elements are whole numbers below 4096 that differ by position, rank and call.
 * So sums are exact in floats for up to 4096 ranks, and stale or displaced data
 * and data summed twice are detected.
 */
#define _GNU_SOURCE
#include "driver.h"
#include "gpu.h"
#include "util.h"

#include <mpi.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALLRED_MAX_SIZE   ((size_t)1 << 30)
#define ALLRED_MAX_ROUNDS 1000
#define ALLRED_MAX_CALLS  1000 /* maximum of calls per sample */
#define ALLRED_TRIALS     3    /* calls; the fastest determines the calls of a
                                  sample */
#define ALLRED_MATRIX     4096 /* rows and columns */
#define ALLRED_PRODUCTS   20   /* of a sample */
#define ALLRED_COVER      2.0  /* time of the calls of a sample, relative to the
                                  products' alone: the products end first */

enum { WAY_MPI, WAY_NCCL, WAY_STAGED, WAY_LAST };
enum { TYPE_FLOAT, TYPE_DOUBLE, TYPE_LAST };
enum { PLACE_IN, PLACE_OUT, PLACE_LAST };

/* Named as MPI's calls */
enum {
    CALL_ALLREDUCE,
    CALL_REDUCE,
    CALL_BCAST,
    CALL_REDUCE_SCATTER,
    CALL_ALLGATHER,
    CALL_ALLTOALL
};

static const char *const allred_calls_names[] = {
    "allreduce", "reduce", "bcast", "reduce_scatter", "allgather", "alltoall",
    NULL
};
static const char *const allred_ways[]   = {"mpi", "nccl", "staged", NULL};
static const char *const allred_types[]  = {"float", "double", NULL};
static const char *const allred_places[] = {"in", "out", NULL};

/* Part of nccl.h used here; its enumerators' values are part of its ABI */
#define ALLRED_NCCL_FLOAT  7
#define ALLRED_NCCL_DOUBLE 8
#define ALLRED_NCCL_SUM    0

typedef struct {
    char internal[128];
} allred_nccl_id_t;

typedef struct {
    int (*get_version)(int *version_p);
    int (*get_id)(allred_nccl_id_t *id_p);
    int (*init)(void **comm_p, int ranks, allred_nccl_id_t id, int rank);
    int (*allreduce)(const void *send, void *recv, size_t count, int type,
                     int op, void *comm, void *stream);
    int (*reduce)(const void *send, void *recv, size_t count, int type, int op,
                  int root, void *comm, void *stream);
    int (*broadcast)(const void *send, void *recv, size_t count, int type,
                     int root, void *comm, void *stream);
    int (*reduce_scatter)(const void *send, void *recv, size_t count, int type,
                          int op, void *comm, void *stream);
    int (*allgather)(const void *send, void *recv, size_t count, int type,
                     void *comm, void *stream);
    int (*send)(const void *send, size_t count, int type, int peer, void *comm,
                void *stream);
    int (*recv)(void *recv, size_t count, int type, int peer, void *comm,
                void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*destroy)(void *comm);
    const char *(*error)(int result);
    void *comm;
    void *stream;
    char version[32];
} allred_nccl_t;

/* Part of cublas_v2.h used here */
typedef struct {
    int (*create)(void **handle_p);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int trans_a, int trans_b, int m, int n, int k,
                const float *alpha, const void *a, int lda, const void *b,
                int ldb, const float *beta, void *c, int ldc);
    void *handle;
    void *stream;
    void *events[2]; /* before and after the products */
    void *matrices[3];
} allred_busy_t;

typedef struct {
    int          type, place;
    size_t       size;  /* bytes */
    size_t       count; /* elements */
    size_t       block; /* elements of a rank's block; `count`: no blocks */
    size_t       width; /* bytes of an element */
    MPI_Datatype datatype;
    void        *send;  /* GPU buffer; equal to recv if in place */
    void        *recv;
} cell_t;

/* Elements of this rank's buffer; `first` is an index into the whole data */
typedef struct {
    size_t first, count;
} span_t;

static struct {
    int            call;
    int            ways[WAY_LAST], num_ways;
    int            types[TYPE_LAST], num_types;
    int            places[PLACE_LAST], num_places;
    ucx_mp_sizes_t sizes;
    int            rounds;
    int            max_calls;
    double         time; /* target time of a sample, seconds */
    int            check;
    const char    *nccl_path;
    const char    *busy_path; /* cuBLAS library; NULL: GPUs do no other work */
    const char    *json_path;
} opts;

static allred_nccl_t nccl;
static allred_busy_t busy;
static int allred_rank, allred_ranks;
static void *gpu_buffers[2];
static void *host_buffer, *host_result; /* page-locked */
static FILE *json;
static int any_wrong;


/* Parse a comma-separated list of words into their indices. */
static int allred_parse_list(const char *option, const char *text,
                             const char *const *names, int *values, int max)
{
    char *copy = strdup(text);
    int count  = 0;
    char *word, *rest;

    for (rest = copy; (word = strsep(&rest, ",")) != NULL; ++count) {
        if (count == max) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "%s: '%s' has more than %d words",
                       option, text, max);
        }
        values[count] = ucx_mp_parse_choice(option, word, names);
    }
    free(copy);
    return count;
}

/* Return non-zero if calls in place are not compared: MPI's and NCCL's
   reduce-scatter in place differ, and NCCL has no all-to-all in place. */
static int allred_has_no_place(void)
{
    return (opts.call == CALL_REDUCE_SCATTER) || (opts.call == CALL_ALLTOALL);
}

static void allred_parse(int argc, char **argv)
{
    static const char *ways = "mpi", *types = "float", *places;
    static const char *sizes = "8:64M";
    static int has_no_check;
    static const ucx_mp_option_t options[] = {
        UCX_MP_CHOICE("call", opts.call, allred_calls_names,
                      "collective to measure"),
        UCX_MP_TEXT("ways", ways, "LIST",
                    "mpi: GPU buffers; nccl; staged: copies by hand, and "
                    "the MPI's call\n"
                    "                         on page-locked memory (mpi)"),
        UCX_MP_TEXT("types", types, "LIST", "float, double (float)"),
        UCX_MP_TEXT("places", places, "LIST",
                    "in: in place; out (in; of reduce_scatter and alltoall "
                    "out)"),
        UCX_MP_TEXT("sizes", sizes, "LIST",
                    "SIZE or MIN:MAX (powers of two between them), 8 to 1G, "
                    "multiples\n                         of 8 (8:64M)"),
        UCX_MP_NUMBER("rounds", opts.rounds, 1, ALLRED_MAX_ROUNDS, "N",
                      "samples of each way and cell (5)"),
        UCX_MP_FACTOR("time", opts.time, "SECONDS",
                      "aim for a sample (0.02)"),
        UCX_MP_NUMBER("calls", opts.max_calls, 1, 1000000, "N",
                      "maximum calls of a sample (1000)"),
        UCX_MP_FLAG("no-check", has_no_check, "do not check the results"),
        UCX_MP_TEXT("nccl", opts.nccl_path, "FILE",
                    "NCCL's library (libnccl.so.2)"),
        UCX_MP_TEXT("busy", opts.busy_path, "FILE",
                    "let the GPUs multiply matrices at the same time, with "
                    "this libcublas.so"),
        UCX_MP_TEXT("json", opts.json_path, "FILE",
                    "write a JSON object for each sample; - is standard "
                    "output"),
        {.name = NULL}
    };
    int i;

    opts.places[0]  = PLACE_LAST; /* all places possible for the call */
    opts.num_places = 1;
    opts.rounds     = 5;
    opts.max_calls  = ALLRED_MAX_CALLS;
    opts.time       = 0.02;
    opts.nccl_path  = "libnccl.so.2";
    ucx_mp_parse_options(
            argc, argv,
            "Measures a collective of GPU buffers, in several ways in turns. "
            "GB/s are bytes of a\nrank's buffer over the time, 10^9 a second. "
            "Exit code 1: a result was wrong.", options);
    opts.check     = !has_no_check;
    opts.num_ways  = allred_parse_list("--ways", ways, allred_ways, opts.ways,
                                       WAY_LAST);
    opts.num_types = allred_parse_list("--types", types, allred_types,
                                       opts.types, TYPE_LAST);
    if (places != NULL) {
        opts.num_places = allred_parse_list("--places", places, allred_places,
                                            opts.places, PLACE_LAST);
    }

    for (i = 0; i < opts.num_places; ++i) {
        if (opts.places[i] == PLACE_LAST) {
            opts.places[i] = allred_has_no_place() ? PLACE_OUT : PLACE_IN;
        } else if ((opts.places[i] == PLACE_IN) ? allred_has_no_place() :
                                                  (opts.call == CALL_BCAST)) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "--places: not '%s' with --call %s",
                       allred_places[opts.places[i]],
                       allred_calls_names[opts.call]);
        }
    }

    ucx_mp_parse_sizes("--sizes", sizes, ALLRED_MAX_SIZE, &opts.sizes);
    for (i = 0; i < opts.sizes.count; ++i) {
        if (opts.sizes.values[i] % sizeof(double) != 0) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "--sizes: %zu is no multiple of 8",
                       opts.sizes.values[i]);
        }
    }
}

static int allred_uses(int way)
{
    int i;

    for (i = 0; i < opts.num_ways; ++i) {
        if (opts.ways[i] == way) {
            return 1;
        }
    }
    return 0;
}

/* --------------------------------------------------------------------- NCCL */

static void *allred_symbol(void *lib, const char *name)
{
    void *symbol = dlsym(lib, name);

    if (symbol == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s is missing in the library", name);
    }
    return symbol;
}

static void allred_nccl_check(int result, const char *what)
{
    if (result != 0) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s: %s", what, nccl.error(result));
    }
}

/* Create one communicator of all ranks; its id comes from rank 0 by MPI. */
static void allred_nccl_init(void)
{
    void *lib = dlopen(opts.nccl_path, RTLD_NOW | RTLD_LOCAL);
    allred_nccl_id_t id;
    int version;

    if (lib == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "--nccl: %s", dlerror());
    }
    *(void**)&nccl.get_version = allred_symbol(lib, "ncclGetVersion");
    *(void**)&nccl.get_id      = allred_symbol(lib, "ncclGetUniqueId");
    *(void**)&nccl.init        = allred_symbol(lib, "ncclCommInitRank");
    *(void**)&nccl.allreduce   = allred_symbol(lib, "ncclAllReduce");
    *(void**)&nccl.reduce      = allred_symbol(lib, "ncclReduce");
    *(void**)&nccl.broadcast   = allred_symbol(lib, "ncclBroadcast");
    *(void**)&nccl.allgather   = allred_symbol(lib, "ncclAllGather");
    *(void**)&nccl.send        = allred_symbol(lib, "ncclSend");
    *(void**)&nccl.recv        = allred_symbol(lib, "ncclRecv");
    *(void**)&nccl.group_start = allred_symbol(lib, "ncclGroupStart");
    *(void**)&nccl.group_end   = allred_symbol(lib, "ncclGroupEnd");
    *(void**)&nccl.reduce_scatter = allred_symbol(lib, "ncclReduceScatter");
    *(void**)&nccl.destroy     = allred_symbol(lib, "ncclCommDestroy");
    *(void**)&nccl.error       = allred_symbol(lib, "ncclGetErrorString");

    if (allred_rank == 0) {
        allred_nccl_check(nccl.get_id(&id), "ncclGetUniqueId");
    }
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    allred_nccl_check(nccl.init(&nccl.comm, allred_ranks, id, allred_rank),
                      "ncclCommInitRank");
    UCX_MP_DRIVER(stream_create, &nccl.stream, 1 /* non-blocking */);
    allred_nccl_check(nccl.get_version(&version), "ncclGetVersion");
    snprintf(nccl.version, sizeof(nccl.version), ", NCCL %d.%d.%d",
             version / 10000, version / 100 % 100, version % 100);
}

/* ----------------------------------------------------- what else a GPU does */

static void allred_busy_check(int status, const char *what)
{
    if (status != 0) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "%s: status %d", what, status);
    }
}

static void allred_busy_init(void)
{
    void *lib = dlopen(opts.busy_path, RTLD_NOW | RTLD_LOCAL);
    size_t size = sizeof(float) * ALLRED_MATRIX * ALLRED_MATRIX;
    int i;

    if (lib == NULL) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "--busy: %s", dlerror());
    }
    *(void**)&busy.create     = allred_symbol(lib, "cublasCreate_v2");
    *(void**)&busy.set_stream = allred_symbol(lib, "cublasSetStream_v2");
    *(void**)&busy.gemm       = allred_symbol(lib, "cublasSgemm_v2");

    UCX_MP_DRIVER(stream_create, &busy.stream, 1 /* non-blocking */);
    for (i = 0; i < 2; ++i) {
        UCX_MP_DRIVER(event_create, &busy.events[i], 0);
    }
    for (i = 0; i < 3; ++i) {
        busy.matrices[i] = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
        ucx_mp_mem_set(UCX_MP_MEM_DEVICE, busy.matrices[i], 0, size);
    }
    allred_busy_check(busy.create(&busy.handle), "cublasCreate");
    allred_busy_check(busy.set_stream(busy.handle, busy.stream),
                      "cublasSetStream");
}

static void allred_busy_start(void)
{
    static const float one = 1;
    int i, n = ALLRED_MATRIX;

    UCX_MP_DRIVER(event_record, busy.events[0], busy.stream);
    for (i = 0; i < ALLRED_PRODUCTS; ++i) {
        allred_busy_check(busy.gemm(busy.handle, 0, 0, n, n, n, &one,
                                    busy.matrices[0], n, busy.matrices[1], n,
                                    &one, busy.matrices[2], n),
                          "cublasSgemm");
    }
    UCX_MP_DRIVER(event_record, busy.events[1], busy.stream);
}

/* Wait for the products and return the seconds of one, on the slowest rank. */
static double allred_busy_wait(void)
{
    double seconds;
    float ms;

    UCX_MP_DRIVER(stream_synchronize, busy.stream);
    UCX_MP_DRIVER(event_elapsed, &ms, busy.events[0], busy.events[1]);
    seconds = 1e-3 * ms / ALLRED_PRODUCTS;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    return seconds;
}

/* ------------------------------------------------------------- a collective */

static span_t allred_whole(const cell_t *cell)
{
    return (span_t){0, cell->count};
}

static span_t allred_block(const cell_t *cell, int rank)
{
    return (span_t){rank * cell->block, cell->block};
}

/* Return the elements sent by this rank. */
static span_t allred_sent(const cell_t *cell)
{
    if ((opts.call == CALL_BCAST) && (allred_rank != 0)) {
        return (span_t){0, 0};
    }
    return (opts.call == CALL_ALLGATHER) ? allred_block(cell, allred_rank) :
                                           allred_whole(cell);
}

/* Return the elements received by this rank. */
static span_t allred_received(const cell_t *cell)
{
    if ((opts.call == CALL_REDUCE) && (allred_rank != 0)) {
        return (span_t){0, 0};
    }
    return (opts.call == CALL_REDUCE_SCATTER) ?
                   allred_block(cell, allred_rank) :
                   allred_whole(cell);
}

static void *allred_at(const cell_t *cell, void *buffer, size_t element)
{
    return (char*)buffer + element * cell->width;
}

/* Make MPI's call on these buffers; equal buffers mean in place. */
static void allred_call_mpi(const cell_t *cell, const void *send, void *recv)
{
    const int is_root   = (allred_rank == 0);
    const void *in      = (send == recv) ? MPI_IN_PLACE : send;
    const MPI_Comm comm = MPI_COMM_WORLD;

    switch (opts.call) {
    case CALL_REDUCE:
        MPI_Reduce(is_root ? in : send, recv, cell->count, cell->datatype,
                   MPI_SUM, 0, comm);
        break;
    case CALL_BCAST:
        MPI_Bcast(recv, cell->count, cell->datatype, 0, comm);
        break;
    case CALL_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(in, recv, cell->block, cell->datatype, MPI_SUM,
                                 comm);
        break;
    case CALL_ALLGATHER:
        MPI_Allgather(in, cell->block, cell->datatype, recv, cell->block,
                      cell->datatype, comm);
        break;
    case CALL_ALLTOALL:
        MPI_Alltoall(in, cell->block, cell->datatype, recv, cell->block,
                     cell->datatype, comm);
        break;
    default:
        MPI_Allreduce(in, recv, cell->count, cell->datatype, MPI_SUM, comm);
        break;
    }
}

static int allred_nccl_alltoall(const cell_t *cell, int type)
{
    int result = nccl.group_start();
    int peer;

    for (peer = 0; (peer < allred_ranks) && (result == 0); ++peer) {
        result = nccl.send(allred_at(cell, cell->send, peer * cell->block),
                           cell->block, type, peer, nccl.comm, nccl.stream);
        if (result == 0) {
            result = nccl.recv(allred_at(cell, cell->recv, peer * cell->block),
                               cell->block, type, peer, nccl.comm, nccl.stream);
        }
    }
    return (result == 0) ? nccl.group_end() : result;
}

static void allred_call_nccl(const cell_t *cell)
{
    const int type = (cell->type == TYPE_FLOAT) ? ALLRED_NCCL_FLOAT :
                                                  ALLRED_NCCL_DOUBLE;
    int result;

    switch (opts.call) {
    case CALL_REDUCE:
        result = nccl.reduce(cell->send, cell->recv, cell->count, type,
                             ALLRED_NCCL_SUM, 0, nccl.comm, nccl.stream);
        break;
    case CALL_BCAST:
        result = nccl.broadcast(cell->recv, cell->recv, cell->count, type, 0,
                                nccl.comm, nccl.stream);
        break;
    case CALL_REDUCE_SCATTER:
        result = nccl.reduce_scatter(cell->send, cell->recv, cell->block, type,
                                     ALLRED_NCCL_SUM, nccl.comm, nccl.stream);
        break;
    case CALL_ALLGATHER:
        result = nccl.allgather((cell->send == cell->recv) ?
                                        allred_at(cell, cell->recv,
                                                  allred_rank * cell->block) :
                                        cell->send,
                                cell->recv, cell->block, type, nccl.comm,
                                nccl.stream);
        break;
    case CALL_ALLTOALL:
        result = allred_nccl_alltoall(cell, type);
        break;
    default:
        result = nccl.allreduce(cell->send, cell->recv, cell->count, type,
                                ALLRED_NCCL_SUM, nccl.comm, nccl.stream);
        break;
    }
    allred_nccl_check(result, "NCCL");
    UCX_MP_DRIVER(stream_synchronize, nccl.stream);
}

/* Return the address of a span in a buffer. In place, a rank's block lies at
   its position in the whole data. */
static void *allred_start(const cell_t *cell, void *buffer, span_t span)
{
    return ((opts.call == CALL_ALLGATHER) && (cell->send == cell->recv)) ?
                   allred_at(cell, buffer, span.first) :
                   buffer;
}

static void allred_call_staged(const cell_t *cell)
{
    const span_t sent     = allred_sent(cell);
    const span_t received = allred_received(cell);
    const int is_one      = (opts.call == CALL_ALLREDUCE) ||
                       (cell->send == cell->recv);
    void *result          = is_one ? host_buffer : host_result;

    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, allred_start(cell, host_buffer, sent),
                    allred_start(cell, cell->send, sent),
                    sent.count * cell->width);
    allred_call_mpi(cell, host_buffer, result);
    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, cell->recv, result,
                     received.count * cell->width);
}

static void allred_call(int way, const cell_t *cell)
{
    if (way == WAY_NCCL) {
        allred_call_nccl(cell);
    } else if (way == WAY_STAGED) {
        allred_call_staged(cell);
    } else {
        allred_call_mpi(cell, cell->send, cell->recv);
    }
}

static uint32_t allred_element(uint32_t index, uint32_t seed)
{
    uint32_t x = index * 2654435761u + seed;

    x ^= x >> 16;
    x *= 0x7feb352du;
    return (x ^ (x >> 15)) & 4095;
}

static uint32_t allred_seed(int round, int rank)
{
    static uint32_t seeds[64]; /* seeds of ranks 0 to 63 in this round */
    static int known = -1;
    int i;

    for (i = 0; (i < 64) && (round != known); ++i) {
        seeds[i] = (uint32_t)ucx_mp_hash(((uint64_t)round << 32) + i);
    }
    known = round;
    return (rank < 64) ? seeds[rank] :
                         (uint32_t)ucx_mp_hash(((uint64_t)round << 32) + rank);
}

/* Return element `index` of a rank's whole data, or of the sum (rank -1). */
static double allred_value_of(size_t index, int round, int rank)
{
    double sum = 0;
    int i;

    if (rank >= 0) {
        return allred_element(index, allred_seed(round, rank));
    }
    for (i = 0; i < allred_ranks; ++i) {
        sum += allred_element(index, allred_seed(round, i));
    }
    return sum;
}

/* Return the value that this rank must receive as element `index` of the
   whole. */
static double allred_expected(const cell_t *cell, size_t index, int round)
{
    const int owner = (int)(index / cell->block);

    switch (opts.call) {
    case CALL_BCAST:
        return allred_value_of(index, round, 0);
    case CALL_ALLGATHER:
        return allred_value_of(index, round, owner);
    case CALL_ALLTOALL:
        return allred_value_of(allred_rank * cell->block + index % cell->block,
                               round, owner);
    default:
        return allred_value_of(index, round, -1);
    }
}

static void allred_fill(const cell_t *cell, int round)
{
    const uint32_t seed = allred_seed(round, allred_rank);
    const span_t sent   = allred_sent(cell);
    size_t i;

    for (i = 0; i < sent.count; ++i) {
        if (cell->type == TYPE_FLOAT) {
            ((float*)host_buffer)[i] = allred_element(sent.first + i, seed);
        } else {
            ((double*)host_buffer)[i] = allred_element(sent.first + i, seed);
        }
    }
    ucx_mp_mem_set(UCX_MP_MEM_DEVICE, cell->recv, 0xff, cell->size);
    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, allred_start(cell, cell->send, sent),
                     host_buffer, sent.count * cell->width);
}

static double allred_value(const cell_t *cell, size_t index)
{
    return (cell->type == TYPE_FLOAT) ? ((float*)host_buffer)[index] :
                                        ((double*)host_buffer)[index];
}

/* Compare a buffer with the expected result, or with this rank's input
   (`is_sent`). Return non-zero if all elements are right; otherwise print the
   first wrong one. */
static int allred_holds(const cell_t *cell, const void *buffer, int way,
                        int round, int is_sent)
{
    const span_t span = is_sent ? allred_sent(cell) : allred_received(cell);
    size_t i, wrong = 0, first = 0;
    double expected = 0, wanted = 0;

    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, host_buffer, buffer,
                    span.count * cell->width);
    for (i = 0; i < span.count; ++i) {
        expected = is_sent ? allred_value_of(span.first + i, round,
                                             allred_rank) :
                             allred_expected(cell, span.first + i, round);
        if ((allred_value(cell, i) != expected) && (wrong++ == 0)) {
            first  = i;
            wanted = expected;
        }
    }
    if (wrong > 0) {
        fprintf(stderr, "ucx_mp_allreduce: rank %d: WRONG %s: %s, %zu bytes of "
                "%s, %s place: element %zu is %.9g, not %.9g; %zu wrong\n",
                allred_rank, is_sent ? "contribution" : "result",
                allred_ways[way], cell->size, allred_types[cell->type],
                allred_places[cell->place], first, allred_value(cell, first),
                wanted, wrong);
    }
    return wrong == 0;
}

/* Make a checked call. Return non-zero if the result is right on all ranks. */
static int allred_check(int way, const cell_t *cell, int round)
{
    int right;

    allred_fill(cell, round);
    MPI_Barrier(MPI_COMM_WORLD);
    allred_call(way, cell);
    right = allred_holds(cell, cell->recv, way, round, 0);
    if (cell->send != cell->recv) {
        right &= allred_holds(cell, cell->send, way, round, 1);
    }
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    any_wrong |= !right;
    return right;
}

/* -------------------------------------------------------------- measurement */

/* Make `calls` calls and return the seconds of one, on the slowest rank.
   `is_busy`: while the GPU multiplies matrices. */
static double allred_sample(int way, const cell_t *cell, int calls,
                            int is_busy)
{
    double seconds;
    int i;

    MPI_Barrier(MPI_COMM_WORLD);
    if (is_busy) {
        allred_busy_start();
    }
    seconds = ucx_mp_time();
    for (i = 0; i < calls; ++i) {
        allred_call(way, cell);
    }
    seconds = (ucx_mp_time() - seconds) / calls;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX,
                   MPI_COMM_WORLD);
    return seconds;
}

/* Return the number of calls of a sample. */
static int allred_calls(int way, const cell_t *cell)
{
    double least = opts.time, seconds;
    int i;

    for (i = 0; i < ALLRED_TRIALS; ++i) {
        seconds = allred_sample(way, cell, 1, 0);
        least   = (seconds < least) ? seconds : least;
    }
    if (least * opts.max_calls < opts.time) {
        return opts.max_calls;
    }
    return (least < opts.time) ? opts.time / least : 1;
}

/* Write a sample as JSON. `products`: seconds of a product alone, and beside
   the calls. */
static void allred_put(int way, const cell_t *cell, int round, int calls,
                       double seconds, const double *products)
{
    char more[128] = "";

    if (opts.busy_path != NULL) {
        snprintf(more, sizeof(more), ", \"product_alone\": %.9g, "
                 "\"product\": %.9g", products[0], products[1]);
    }
    if (json == NULL) {
        return;
    }
    fprintf(json,
            "{\"call\": \"%s\", \"way\": \"%s\", \"type\": \"%s\", "
            "\"place\": \"%s\", "
            "\"size\": %zu, \"ranks\": %d, \"round\": %d, \"calls\": %d, "
            "\"seconds\": %.9g, \"modelled\": %s, "
            "\"checked\": %s%s%s%s%s}\n",
            allred_calls_names[opts.call], allred_ways[way],
            allred_types[cell->type],
            allred_places[cell->place], cell->size, allred_ranks, round, calls,
            seconds, ucx_mp_gpu_emulated() ? "true" : "false",
            opts.check ? "true" : "false",
            more, (way == WAY_NCCL) ? ", \"library\": \"" : "",
            (way == WAY_NCCL) ? nccl.version + 2 : "",
            (way == WAY_NCCL) ? "\"" : "");
    fflush(json);
}

static void allred_cell(const cell_t *cell)
{
    static double samples[WAY_LAST][ALLRED_MAX_ROUNDS];
    int calls[WAY_LAST], right[WAY_LAST];
    int i, round, way;
    double median, products[2] = {0, 0};

    for (i = 0; i < opts.num_ways; ++i) {
        way        = opts.ways[i];
        right[way] = !opts.check || allred_check(way, cell, 0);
        calls[way] = allred_calls(way, cell);
    }
    for (round = 0; round < opts.rounds; ++round) {
        for (i = 0; i < opts.num_ways; ++i) {
            way = opts.ways[(round + i) % opts.num_ways];
            /* warms up; also needed for the number of calls with --busy */
            median = allred_sample(way, cell, 1 + calls[way] / 10, 0);
            if (opts.busy_path != NULL) {
                allred_busy_start();
                products[0] = allred_busy_wait();
                calls[way]  = 1 + (ALLRED_COVER * ALLRED_PRODUCTS *
                                   products[0] / median);
            }
            samples[way][round] = allred_sample(way, cell, calls[way],
                                                opts.busy_path != NULL);
            if (opts.busy_path != NULL) {
                products[1] = allred_busy_wait();
            }
            if (right[way]) {
                allred_put(way, cell, round, calls[way], samples[way][round],
                           products);
            }
        }
    }

    for (i = 0; i < opts.num_ways; ++i) {
        way = opts.ways[i];
        if (opts.check) {
            right[way] &= allred_check(way, cell, 1);
        }
        ucx_mp_sort(samples[way], opts.rounds);
        median = (samples[way][opts.rounds / 2] +
                  samples[way][(opts.rounds - 1) / 2]) / 2;
        if ((allred_rank == 0) && (json != stdout)) {
            printf("%-7s %-6s %-5s %12zu %12.2f %12.2f %12.2f %9.2f  %s",
                   allred_ways[way], allred_types[cell->type],
                   allred_places[cell->place], cell->size, median * 1e6,
                   samples[way][0] * 1e6, samples[way][opts.rounds - 1] * 1e6,
                   cell->size / median * 1e-9, !opts.check ? "not checked" :
                                               right[way]  ? "right" :
                                                             "WRONG");
            if (opts.busy_path != NULL) {
                printf(", a product %.2f us, alone %.2f", products[1] * 1e6,
                       products[0] * 1e6);
            }
            printf("\n");
            fflush(stdout);
        }
    }
}

/* --------------------------------------------------------------------- main */

static void allred_prepare(void)
{
    size_t size = 0;
    Dl_info where;
    int i;

    for (i = 0; i < opts.sizes.count; ++i) {
        size = (opts.sizes.values[i] > size) ? opts.sizes.values[i] : size;
    }
    ucx_mp_gpu_require(ucx_mp_gpu_local_rank(allred_rank));
    ucx_mp_driver_load();
    for (i = 0; i < 2; ++i) {
        gpu_buffers[i] = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
    }
    host_buffer = ucx_mp_mem_alloc(UCX_MP_MEM_PINNED, size);
    host_result = ucx_mp_mem_alloc(UCX_MP_MEM_PINNED,
                                   allred_uses(WAY_STAGED) ? size : 1);

    if (allred_uses(WAY_NCCL)) {
        allred_nccl_init();
    }
    if (opts.busy_path != NULL) {
        allred_busy_init();
    }
    if (allred_rank != 0) {
        return;
    }
    if (allred_uses(WAY_MPI) &&
        (dladdr((void*)MPI_Allreduce, &where) != 0) &&
        (strstr(where.dli_fname, "/libmpi") != NULL)) {
        fprintf(stderr, "ucx_mp_allreduce: nothing stands in front of %s: one "
                "without CUDA dies of GPU buffers (ucx_mp_run --collectives "
                "y)\n", where.dli_fname);
    }
    if (opts.json_path != NULL) {
        json = !strcmp(opts.json_path, "-") ? stdout :
                                              fopen(opts.json_path, "w");
        if (json == NULL) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "--json: cannot write %s: %m",
                       opts.json_path);
        }
    }
    if (json != stdout) {
        printf("# ucx_mp_allreduce, %s, %d ranks, %s%s\n%-7s %-6s %-5s %12s "
               "%12s %12s %12s %9s\n",
               (opts.call == CALL_ALLREDUCE) ? "sum" :
                                               allred_calls_names[opts.call],
               allred_ranks,
               ucx_mp_gpu_emulated() ? "modelled (emulated node)" : "measured",
               nccl.version, "way",
               "type", "place", "bytes", "us", "min", "max", "GB/s");
        fflush(stdout);
    }
}

static void allred_run(void)
{
    static const MPI_Datatype datatypes[] = {MPI_FLOAT, MPI_DOUBLE};
    static const size_t widths[]          = {sizeof(float), sizeof(double)};
    const int has_blocks = allred_has_no_place() ||
                           (opts.call == CALL_ALLGATHER);
    cell_t cell;
    int i, k, m;

    for (i = 0; has_blocks && (i < opts.sizes.count); ++i) {
        if (opts.sizes.values[i] % (sizeof(double) * allred_ranks) != 0) {
            ucx_mp_die(UCX_MP_EXIT_USAGE, "--sizes: %zu is no multiple of 8 "
                       "for each rank", opts.sizes.values[i]);
        }
    }

    for (i = 0; i < opts.num_types; ++i) {
        for (k = 0; k < opts.num_places; ++k) {
            for (m = 0; m < opts.sizes.count; ++m) {
                cell.type     = opts.types[i];
                cell.place    = opts.places[k];
                cell.size     = opts.sizes.values[m];
                cell.width    = widths[cell.type];
                cell.count    = cell.size / cell.width;
                cell.block    = cell.count / (has_blocks ? allred_ranks : 1);
                cell.datatype = datatypes[cell.type];
                cell.send     = gpu_buffers[0];
                cell.recv     = gpu_buffers[cell.place == PLACE_OUT];
                allred_cell(&cell);
            }
        }
    }
}

int main(int argc, char **argv)
{
    ucx_mp_program = "ucx_mp_allreduce";
    allred_parse(argc, argv);

    MPI_Init(&argc, &argv);
    ucx_mp_get_rank(&allred_rank, &allred_ranks);
    allred_prepare();
    allred_run();

    if ((json != NULL) && (json != stdout)) {
        fclose(json);
    }
    if (nccl.comm != NULL) {
        nccl.destroy(nccl.comm);
    }
    ucx_mp_mem_free(UCX_MP_MEM_PINNED, host_buffer);
    ucx_mp_mem_free(UCX_MP_MEM_PINNED, host_result);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu_buffers[0]);
    ucx_mp_mem_free(UCX_MP_MEM_DEVICE, gpu_buffers[1]);
    return ucx_mp_finish(any_wrong);
}
