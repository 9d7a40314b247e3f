/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Captures of streams into CUDA graphs, one after another, during all
 * activities of an MPI: while messages are in flight between GPUs and host
 * memory, with MPI_Test() inside; by another thread while this one sends,
 * receives and sums; for a while after all messages ended; while the MPI is
 * shut down. The program counts broken captures, messages that never end, and
 * wrong bytes.
 *
 * Runs on real GPUs and on emulated nodes, with any CUDA module of UCX.
 */
#include "driver.h"
#include "gpu.h"
#include "pattern.h"
#include "util.h"

#include <mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPTURE_SIZE     4096      /* bytes filled by a captured graph */
#define CAPTURE_IN_A_ROW 6        /* large messages */
#define CAPTURE_TESTS    3         /* MPI_Test() in a capture */
#define CAPTURE_GLOBAL   0         /* CU_STREAM_CAPTURE_MODE_GLOBAL */
#define CAPTURE_RELAXED  2
#define CAPTURE_POISON   UINT64_MAX /* seed of bytes that no message has */

enum {
    CAPTURES, BROKEN, GRAPHS, MESSAGES, LOST, WRONG, COLLECTIVES, NUM_COUNTS
};

/* A stream to capture, and memory filled by its graphs */
typedef struct {
    void     *stream;
    char     *from, *to;
    unsigned turn;
    long     captures, broken, graphs, wrong;
} captor_t;

typedef enum {
    AROUND,    /* each rank sends to the next one */
    IN_PIECES, /* the same, packed by a kernel */
    TO_SELF,
    ONE_WAY    /* even ranks send */
} course_t;

typedef struct {
    ucx_mp_mem_t from, to;
    course_t     course;
    const char   *name;
} kind_t;

static const kind_t kinds[] = {
    {UCX_MP_MEM_DEVICE, UCX_MP_MEM_DEVICE, ONE_WAY, "GPU to GPU, one way"},
    {UCX_MP_MEM_DEVICE, UCX_MP_MEM_DEVICE, AROUND, "GPU to GPU"},
    {UCX_MP_MEM_HOST, UCX_MP_MEM_DEVICE, AROUND, "host to GPU"},
    {UCX_MP_MEM_DEVICE, UCX_MP_MEM_HOST, AROUND, "GPU to host"},
    {UCX_MP_MEM_PINNED, UCX_MP_MEM_DEVICE, AROUND, "page-locked to GPU"},
    {UCX_MP_MEM_DEVICE, UCX_MP_MEM_DEVICE, IN_PIECES, "GPU to GPU in pieces"},
    {UCX_MP_MEM_DEVICE, UCX_MP_MEM_DEVICE, TO_SELF, "GPU to itself"},
    {UCX_MP_MEM_HOST, UCX_MP_MEM_DEVICE, TO_SELF, "host to its own GPU"}
};

#define NUM_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static const char *const ways[] = {"all", "inside", "idle", "beside",
                                   "collectives", NULL};

enum {
    ALL, INSIDE, IDLE, BESIDE, COLLECTIVE
};

static int rank, ranks, rounds = 3, way = ALL;
static size_t max_size       = 64 << 20;
static double idle_seconds   = 1, limit_seconds = 60;
static captor_t own, other;
static long counts[NUM_COUNTS];
static const char *doing     = "nothing";

/* The program's own calls break captures, too: it waits for those of its other
   thread */
static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static int stops;


/* ---------------------------------------------------------------- captures */

static void captor_init(captor_t *captor, unsigned flags)
{
    UCX_MP_DRIVER(stream_create, &captor->stream, flags);
    captor->from = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, CAPTURE_SIZE);
    captor->to   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, CAPTURE_SIZE);
}

/* Run a graph and check its work. */
static void graph_run(captor_t *captor, void *graph)
{
    unsigned char bytes[CAPTURE_SIZE];
    void *exec;
    size_t i;

    UCX_MP_DRIVER(graph_instantiate, &exec, graph, 0);
    UCX_MP_DRIVER(graph_launch, exec, captor->stream);
    UCX_MP_DRIVER(stream_synchronize, captor->stream);
    UCX_MP_DRIVER(exec_destroy, exec);
    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, bytes, captor->to, sizeof(bytes));
    for (i = 0; (i < sizeof(bytes)) &&
                (bytes[i] == (unsigned char)captor->turn); ++i) {
    }
    captor->wrong += (i < sizeof(bytes));
    ++captor->graphs;
}

/* Make one capture in the mode of torch.cuda.graph(), with a call of `inside`
   in it. Each step may find it broken. */
static void capture(captor_t *captor, void (*inside)(void*), void *arg)
{
    void *graph = NULL;
    int error;

    ++captor->turn;
    UCX_MP_DRIVER(capture_begin, captor->stream, CAPTURE_GLOBAL);
    (void)ucx_mp_driver.memset_async((uintptr_t)captor->from,
                                     (unsigned char)captor->turn, CAPTURE_SIZE,
                                     captor->stream);
    inside(arg);
    (void)ucx_mp_driver.copy_async((uintptr_t)captor->to,
                                   (uintptr_t)captor->from, CAPTURE_SIZE,
                                   captor->stream);
    error = ucx_mp_driver.capture_end(captor->stream, &graph);
    ++captor->captures;
    if ((error != 0) && (++captor->broken == 1)) {
        ucx_mp_report("a capture broke while it did %s: %s", doing,
                      ucx_mp_gpu_error_name(error));
    }

    if (error == 0) {
        if ((captor == &own) && ((captor->turn % 16) == 1)) {
            graph_run(captor, graph);
        }
        (void)ucx_mp_driver.graph_destroy(graph);
    }
}

static void rest(void *arg)
{
    usleep(*(const unsigned*)arg);
}

/* Capture all the time, except while the program calls the driver itself. */
static void *other_main(void *ctx)
{
    unsigned us = 200;
    int mode    = CAPTURE_RELAXED;

    UCX_MP_DRIVER(ctx_set, ctx);
    UCX_MP_DRIVER(capture_mode, &mode);
    while (!__atomic_load_n(&stops, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&calls);
        capture(&other, rest, &us);
        pthread_mutex_unlock(&calls);
        usleep(20);
    }
    return NULL;
}

static void other_start(pthread_t *thread)
{
    void *ctx;

    stops = 0;
    UCX_MP_DRIVER(ctx_get, &ctx);
    if (pthread_create(thread, NULL, other_main, ctx) != 0) {
        ucx_mp_die(UCX_MP_EXIT_WRONG, "no thread");
    }
}

static void other_stop(pthread_t thread)
{
    __atomic_store_n(&stops, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
}


/* ---------------------------------------------------------------- messages */

typedef struct {
    const kind_t *kind;
    size_t       size;
    char         *out, *in;
    uint64_t     sent, received; /* seeds */
    MPI_Request  requests[2];
    int          is_received, is_over;
} message_t;

static void tally(void)
{
    counts[CAPTURES] = own.captures + other.captures;
    counts[BROKEN]   = own.broken + other.broken;
    counts[GRAPHS]   = own.graphs;
    counts[WRONG]   += own.wrong;
    own.wrong        = 0;
}

static void show(const char *who, const long *all)
{
    printf("ucx_mp_capture: %s: %ld captures, %ld broken, %ld graphs run, "
           "%ld messages, %ld lost, %ld wrong, %ld collectives\n", who,
           all[CAPTURES], all[BROKEN], all[GRAPHS], all[MESSAGES], all[LOST],
           all[WRONG], all[COLLECTIVES]);
    fflush(stdout);
}

/* End the job for a request that never ends, since it cannot be cancelled. */
static void lost(const message_t *message)
{
    char who[128];

    counts[LOST] += 1;
    tally();
    snprintf(who, sizeof(who), "rank %d lost %zu bytes %s", rank, message->size,
             message->kind->name);
    show(who, counts);
    MPI_Abort(MPI_COMM_WORLD, UCX_MP_EXIT_WRONG);
}

static uint64_t seed_of(int from, size_t kind, size_t size, int round)
{
    return ucx_mp_hash(((uint64_t)from << 48) + ((uint64_t)kind << 40) +
                       ((uint64_t)round << 32) + size);
}

static void message_make(message_t *message, const kind_t *kind, size_t size,
                         int round)
{
    const int last     = (kind->course == TO_SELF) ?
                                 rank :
                                 (rank + ranks - 1) % ranks;
    const size_t index = (size_t)(kind - kinds);

    message->kind     = kind;
    message->size     = size;
    message->is_over  = 0;
    message->sent     = seed_of(rank, index, size, round);
    message->received = seed_of(last, index, size, round);
    message->out      = ucx_mp_mem_alloc(kind->from, size);
    message->in       = ucx_mp_mem_alloc(kind->to, size);
    ucx_mp_pattern_fill(kind->from, message->out, size, message->sent);
    ucx_mp_pattern_fill(kind->to, message->in, size, CAPTURE_POISON);
}

static void message_check(message_t *message)
{
    counts[MESSAGES] += message->is_received;
    if (message->is_received) {
        counts[WRONG] += ucx_mp_pattern_is_wrong(
                message->kind->to, message->in, message->size,
                message->received, 0, "%s", message->kind->name);
    }
    ucx_mp_mem_free(message->kind->from, message->out);
    ucx_mp_mem_free(message->kind->to, message->in);
}

/* Make a type of `size` bytes whose second half comes first, with a gap at its
   end: a kernel packs it. */
static MPI_Datatype pieces_make(size_t size)
{
    const int lengths[]     = {(int)(size / 2), (int)(size / 2)};
    const MPI_Aint places[] = {(MPI_Aint)(size / 2), 0};
    MPI_Datatype halves, type;

    MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &halves);
    MPI_Type_create_resized(halves, 0, (MPI_Aint)size + 1, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&halves);
    return type;
}

static void message_post(void *arg)
{
    message_t *message    = arg;
    const course_t course = message->kind->course;
    const int is_sent     = (course != ONE_WAY) || ((rank % 2) == 0);
    const int count       = (course == IN_PIECES) ? 1 : (int)message->size;
    MPI_Datatype type     = (course == IN_PIECES) ? pieces_make(message->size) :
                                                    MPI_BYTE;

    message->requests[0] = message->requests[1] = MPI_REQUEST_NULL;
    message->is_received = (course != ONE_WAY) || ((rank % 2) == 1);
    if (message->is_received) {
        MPI_Irecv(message->in, count, type,
                  (course == TO_SELF) ? rank : (rank + ranks - 1) % ranks, 0,
                  MPI_COMM_WORLD, &message->requests[0]);
    }
    if (is_sent) {
        MPI_Isend(message->out, count, type,
                  (course == TO_SELF) ? rank : (rank + 1) % ranks, 0,
                  MPI_COMM_WORLD, &message->requests[1]);
    }
    if (course == IN_PIECES) {
        MPI_Type_free(&type);
    }
}

static void message_test(void *arg)
{
    message_t *message = arg;
    int i;

    for (i = 0; i < CAPTURE_TESTS; ++i) {
        MPI_Testall(2, message->requests, &message->is_over,
                    MPI_STATUSES_IGNORE);
    }
}

/* Make captures with MPI inside, from posting to completion. */
static void message_inside(message_t *message)
{
    double end = ucx_mp_real_time() + limit_seconds;

    capture(&own, message_post, message);
    while (!message->is_over) {
        capture(&own, message_test, message);
        if (ucx_mp_real_time() > end) {
            lost(message);
        }
    }
}

/* Only use MPI; the other thread captures. */
static void message_beside(message_t *message)
{
    double end = ucx_mp_real_time() + limit_seconds;

    message_post(message);
    while (!message->is_over) {
        message_test(message);
        if (ucx_mp_real_time() > end) {
            lost(message);
        }
    }
}

static void message_run(void (*run)(message_t*), const kind_t *kind,
                        size_t size, int round)
{
    message_t message;

    doing = kind->name;
    pthread_mutex_lock(&calls);
    message_make(&message, kind, size, round);
    pthread_mutex_unlock(&calls);
    run(&message);
    pthread_mutex_lock(&calls);
    message_check(&message);
    pthread_mutex_unlock(&calls);
}

static void messages(void (*run)(message_t*), int round)
{
    size_t size, i;

    for (size = 1024; size <= max_size; size *= 16) {
        for (i = 0; i < NUM_KINDS; ++i) {
            message_run(run, &kinds[i], size, round);
        }
    }
}


/* ------------------------------------------------------------- collectives */

/* Memory of one size for collectives */
typedef struct {
    size_t  count;
    int32_t *gpu, *host;
} vector_t;

/* A sum, a broadcast, and a maximum of equal values, which is staged in host
   memory; as large as the messages */
static void collective_call(void *arg)
{
    const vector_t *vector = arg;
    const int count        = (int)vector->count;

    MPI_Allreduce(MPI_IN_PLACE, vector->gpu, count, MPI_INT32_T, MPI_SUM,
                  MPI_COMM_WORLD);
    MPI_Bcast(vector->gpu, count, MPI_INT32_T, 0, MPI_COMM_WORLD);
    MPI_Scan(MPI_IN_PLACE, vector->gpu, count, MPI_INT32_T, MPI_MAX,
             MPI_COMM_WORLD);
}

/* Call them in a capture of `captor`, if given. */
static void collective(vector_t *vector, captor_t *captor)
{
    const size_t size = vector->count * sizeof(*vector->host);
    size_t i, wrong = 0;

    pthread_mutex_lock(&calls);
    for (i = 0; i < vector->count; ++i) {
        vector->host[i] = (int32_t)(i % 1000) + rank;
    }
    ucx_mp_mem_write(UCX_MP_MEM_DEVICE, vector->gpu, vector->host, size);
    pthread_mutex_unlock(&calls);

    if (captor != NULL) {
        capture(captor, collective_call, vector);
    } else {
        collective_call(vector);
    }
    pthread_mutex_lock(&calls);
    ucx_mp_mem_read(UCX_MP_MEM_DEVICE, vector->host, vector->gpu, size);
    pthread_mutex_unlock(&calls);
    for (i = 0; i < vector->count; ++i) {
        wrong += (vector->host[i] != (int32_t)(i % 1000) * ranks +
                                     ranks * (ranks - 1) / 2);
    }
    counts[WRONG] += (wrong > 0);
    counts[COLLECTIVES] += 3;
}

/* The first collective loads kernels and closes mappings. It is called while a
   blocking stream is under capture: of another one it may invalidate a
   capture. */
static void collectives(void)
{
    pthread_t thread;
    vector_t vector;
    size_t size;

    doing = "collectives";
    for (size = 4096; size <= max_size; size *= 16) {
        vector.count = size / sizeof(*vector.gpu);
        vector.host  = malloc(size);
        vector.gpu   = ucx_mp_mem_alloc(UCX_MP_MEM_DEVICE, size);
        collective(&vector, &other);
        collective(&vector, &own);
        other_start(&thread);
        collective(&vector, NULL);
        other_stop(thread);
        ucx_mp_mem_free(UCX_MP_MEM_DEVICE, vector.gpu);
        free(vector.host);
    }
}

/* Stay idle without MPI calls, after enough large messages to make it prepare
   for more. */
static void idle(int round)
{
    unsigned us = 5000;
    message_t message;
    double end;
    int i;

    message_make(&message, &kinds[0], max_size, round);
    for (i = 0; i < CAPTURE_IN_A_ROW; ++i) {
        message.is_over = 0;
        message_beside(&message);
    }

    doing = "nothing";
    end   = ucx_mp_real_time() + idle_seconds;
    while (ucx_mp_real_time() < end) {
        capture(&own, rest, &us);
    }
    message_check(&message);
}


/* -------------------------------------------------------------------- main */

static void parse(int argc, char **argv)
{
    static const ucx_mp_option_t options[] = {
        UCX_MP_NUMBER("rounds", rounds, 1, 1 << 20, "N", "of each way"),
        UCX_MP_SIZE("max-size", max_size, 1024, (size_t)1 << 30,
                    "largest message, 1K to 1G"),
        UCX_MP_SECONDS("idle", idle_seconds, "of captures with no message"),
        UCX_MP_SECONDS("limit", limit_seconds, "of a message"),
        UCX_MP_CHOICE("way", way, ways, "when streams are captured"),
        {.name = NULL}
    };

    ucx_mp_parse_options(argc, argv, "Messages of programs that capture "
                         "streams, on an even number of ranks.", options);
    if (ranks % 2) {
        ucx_mp_die(UCX_MP_EXIT_USAGE, "an even number of ranks, not %d", ranks);
    }
}

static int goes(int what)
{
    return (way == ALL) || (way == what);
}

static void run(void)
{
    pthread_t thread;
    int i;

    for (i = 0; i < rounds; ++i) {
        if (goes(INSIDE)) {
            messages(message_inside, 3 * i);
        }
        if (goes(IDLE)) {
            messages(message_beside, 3 * i + 1);
            idle(3 * i + 1);
        }
        if (goes(BESIDE)) {
            other_start(&thread);
            messages(message_beside, 3 * i + 2);
            other_stop(thread);
        }
        if (goes(COLLECTIVE)) {
            collectives();
        }
    }
}

int main(int argc, char **argv)
{
    long all[NUM_COUNTS], before;
    MPI_Datatype type;
    pthread_t thread;
    int level;

    ucx_mp_program = "ucx_mp_capture";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    ucx_mp_get_rank(&rank, &ranks);
    parse(argc, argv);
    ucx_mp_gpu_require(rank);

    ucx_mp_driver_load();
    captor_init(&own, 1);   /* CU_STREAM_NON_BLOCKING, as PyTorch's streams */
    captor_init(&other, 0); /* as cudaStreamCreate() makes them */
    type = pieces_make(1024); /* loads the kernel before the captures */
    MPI_Type_free(&type);
    run();
    tally();
    MPI_Reduce(counts, all, NUM_COUNTS, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        show("all ranks", all);
    }

    MPI_Barrier(MPI_COMM_WORLD);
    doing  = "MPI_Finalize()";
    before = other.broken;
    other_start(&thread);
    MPI_Finalize();
    other_stop(thread);
    if (other.broken != before) {
        printf("ucx_mp_capture: rank %d: %ld broken in MPI_Finalize()\n", rank,
               other.broken - before);
    }
    return (counts[BROKEN] + counts[LOST] + counts[WRONG] + other.broken -
            before > 0) ? UCX_MP_EXIT_WRONG : UCX_MP_EXIT_OK;
}
