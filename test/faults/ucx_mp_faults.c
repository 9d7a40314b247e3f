/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Let every driver call of the engine fail once, on an emulated node.
 *
 * For each function, and each of its calls in a transfer's life, a new engine
 * meets this failure. The transfer ends with an error, or arrives, or falls
 * back to one path. Its reported result must be true and final. The next
 * transfer must arrive. After the engine's end the process must hold the same
 * resources as before. GPU 1's memory belongs to another process, which also
 * checks the bytes.
 */
#define _GNU_SOURCE
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/multipath/multipath.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/unmap.h>

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Several plans for the staging memory set below, and odd */
#define FAULTS_SIZE       ((1ul << 20) + 12345)
/* Transfers that a failure may hit: two of a new engine, which has two banks of
   staging memory, and two that find everything ready, for other addresses */
#define FAULTS_TRANSFERS  4
#define FAULTS_STRIDE     (2ul << 20)
#define FAULTS_LIMIT_S    20 /* per case */
#define FAULTS_MAX_CALLS  100000
#define FAULTS_MAX_MAPPED 16

#define FAULTS_OURS  0 /* GPU of this process's end */
#define FAULTS_PEERS 1
#define FAULTS_OTHER 3 /* another GPU of this process */


typedef enum {
    WAY_PUT,   /* put to the other process */
    WAY_GET,   /* get from the other process */
    WAY_LOCAL, /* all in this process */
    WAY_LAST
} way_t;

static const char *const way_names[] = {"put", "get", "local"};


typedef enum {
    END_ARRIVED,
    END_ONE_PATH, /* left to the caller */
    END_ERROR,
    END_LAST
} end_t;


/* A message between the two processes */
typedef struct {
    enum {
        ASK_FILL,
        ASK_SUM
    } what;
    uint64_t seed;
} ask_t;


typedef struct {
    uct_cuda_node_mapping_t *mappings[FAULTS_MAX_MAPPED];
    unsigned                num_mappings;
} mapped_t;


static const struct {
    const char *member;
    const char *symbol;
} functions[] = {
#define FUNCTION(_name, _symbol, _args) {#_name, _symbol},
    UCT_CUDA_DRIVER_FUNCTIONS(FUNCTION, FUNCTION)
};

#define NUM_FUNCTIONS (sizeof(functions) / sizeof(functions[0]))


/* After a failure of these the driver keeps a resource, or leaves a context
   current: the engine cannot release it */
static const char *const releases[] = {
    "cuMemFree",       "cuMemHostUnregister", "cuStreamDestroy",
    "cuEventDestroy",  "cuGraphDestroy",      "cuGraphExecDestroy",
    "cuCtxPopCurrent", "cuIpcCloseMemHandle", "cuDevicePrimaryCtxRelease"
};


static struct {
    int   (*fault)(const char *faults);
    unsigned long long (*calls)(const char *name);
    const char *(*census)(char *text, size_t size);

    uct_cuda_plan_config_t  config;
    const char              *only;
    unsigned                max_nth;
    bool                    is_verbose;

    int                     to_peer, from_peer;
    uct_cuda_node_handle_t handle; /* peer's buffer */
    CUdeviceptr            memory;
    CUdeviceptr            ours; /* the source or destination; other transfers
                                    use the next place */
    unsigned               turn;
    CUdeviceptr            other;
    CUcontext              contexts[UCT_CUDA_MAX_GPUS];
    uint8_t                *host;
    uint64_t               seed;
    char                   doing[256];

    unsigned              cases, failed;
    unsigned              ends[END_LAST];
    unsigned              wake_ups, wake_ups_due;
} faults;


static void die(const char *format, ...)
        __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "ucx_mp_faults: ");
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    _exit(2);
}

/* Report a failed case; the others are still tried. */
static void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void fail(const char *format, ...)
{
    va_list ap;

    ++faults.failed;
    printf("FAILED %s: ", faults.doing);
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    printf("\n");
}

#define CHECKED(_function, ...) \
    do { \
        if (UCT_CUDA_CALL(_function, __VA_ARGS__) != UCS_OK) { \
            die("%s failed", #_function); \
        } \
    } while (0)


/* ------------------------------------------------------------------ bytes */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ (x >> 29);
}

static void fill(uint8_t *buffer, uint64_t seed)
{
    uint64_t word;
    size_t i;

    for (i = 0; i < FAULTS_SIZE; i += sizeof(word)) {
        word = mix(seed + i);
        memcpy(buffer + i, &word,
               (FAULTS_SIZE - i < sizeof(word)) ? FAULTS_SIZE - i :
                                                  sizeof(word));
    }
}

/* The position counts: a displaced byte changes the sum */
static uint64_t sum(const uint8_t *buffer)
{
    uint64_t total = 0, word;
    size_t i;

    for (i = 0; i < FAULTS_SIZE; i += sizeof(word)) {
        word = 0;
        memcpy(&word, buffer + i,
               (FAULTS_SIZE - i < sizeof(word)) ? FAULTS_SIZE - i :
                                                  sizeof(word));
        total = mix(total + word + i);
    }

    return total;
}

/* Read with a function not called by the module, so that it cannot fail */
static void read_back(void *host, CUdeviceptr ptr, size_t size)
{
    static CUresult (*read)(void*, CUdeviceptr, size_t);

    if (read == NULL) {
        *(void**)&read = dlsym(dlopen("libcuda.so.1", RTLD_NOW),
                               "cuMemcpyDtoH_v2");
    }
    if ((read == NULL) || (read(host, ptr, size) != CUDA_SUCCESS)) {
        die("cuMemcpyDtoH failed");
    }
}

/* Fill memory and wait: its last bytes may arrive after the first call has
   returned. The engine's callers wait as well (uct_cuda_memory_sync()) */
static void gpu_fill(CUdeviceptr ptr, uint64_t seed)
{
    char byte;

    fill(faults.host, seed);
    CHECKED(cuMemcpyHtoD, ptr, faults.host, FAULTS_SIZE);
    read_back(&byte, ptr + FAULTS_SIZE - 1, 1);
}

static uint64_t gpu_sum(CUdeviceptr ptr)
{
    read_back(faults.host, ptr, FAULTS_SIZE);
    return sum(faults.host);
}

static uint64_t sum_of(uint64_t seed)
{
    fill(faults.host, seed);
    return sum(faults.host);
}


/* ------------------------------------------------------- the other process */

static void transmit(int fd, const void *data, size_t size)
{
    if (write(fd, data, size) != (ssize_t)size) {
        die("the other process is gone");
    }
}

static void receive(int fd, void *data, size_t size)
{
    size_t done = 0;
    ssize_t count;

    while (done < size) {
        count = read(fd, (char*)data + done, size - done);
        if (count <= 0) {
            die("the other process is gone");
        }
        done += (size_t)count;
    }
}

static void peer_main(int in, int out)
{
    uct_cuda_node_handle_t handle;
    CUcontext context;
    CUdeviceptr ptr;
    uint64_t answer;
    ask_t ask;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECKED(cuDevicePrimaryCtxRetain, &context, FAULTS_PEERS);
    CHECKED(cuCtxSetCurrent, context);
    CHECKED(cuMemAlloc, &ptr, FAULTS_SIZE);
    if (uct_cuda_node_handle_export((void*)ptr, &handle) != UCS_OK) {
        die("memory cannot be exported");
    }

    transmit(out, &handle, sizeof(handle));
    while (read(in, &ask, sizeof(ask)) == (ssize_t)sizeof(ask)) {
        if (ask.what == ASK_FILL) {
            gpu_fill(ptr, ask.seed);
            answer = 0;
        } else {
            answer = gpu_sum(ptr);
        }
        transmit(out, &answer, sizeof(answer));
    }

    _exit(0);
}

static uint64_t ask_peer(int what, uint64_t seed)
{
    ask_t ask = {.what = what, .seed = seed};
    uint64_t answer;

    transmit(faults.to_peer, &ask, sizeof(ask));
    receive(faults.from_peer, &answer, sizeof(answer));
    return answer;
}

static void start_peer(void)
{
    int there[2], back[2];
    pid_t pid;

    if ((pipe(there) != 0) || (pipe(back) != 0)) {
        die("pipe: %s", strerror(errno));
    }

    pid = fork();
    if (pid < 0) {
        die("fork: %s", strerror(errno));
    } else if (pid == 0) {
        close(there[1]);
        close(back[0]);
        peer_main(there[0], back[1]);
    }

    close(there[0]);
    close(back[1]);
    faults.to_peer   = there[1];
    faults.from_peer = back[0];
    receive(faults.from_peer, &faults.handle, sizeof(faults.handle));
}


/* ------------------------------------------------------------- a transfer */

/* Fill source and destination: with the expected bytes, and with others. */
static void prepare(way_t way, uint64_t seed)
{
    switch (way) {
    case WAY_PUT:
        gpu_fill(faults.ours, seed);
        (void)ask_peer(ASK_FILL, ~seed);
        break;
    case WAY_GET:
        (void)ask_peer(ASK_FILL, seed);
        gpu_fill(faults.ours, ~seed);
        break;
    default:
        gpu_fill(faults.ours, seed);
        gpu_fill(faults.other, ~seed);
        break;
    }
}

static uint64_t destination_sum(way_t way)
{
    return (way == WAY_PUT) ? ask_peer(ASK_SUM, 0) :
           (way == WAY_GET) ? gpu_sum(faults.ours) :
                              gpu_sum(faults.other);
}

static ucs_status_t map(void *arg, int device, CUdeviceptr *ptr_p)
{
    mapped_t *mapped = arg;
    uct_cuda_node_mapping_t *mapping;
    ucs_status_t status;

    if (mapped->num_mappings == FAULTS_MAX_MAPPED) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    status = uct_cuda_node_cache_get(&faults.handle, device, &mapping);
    if (status != UCS_OK) {
        return status;
    }

    mapped->mappings[mapped->num_mappings++] = mapping;
    *ptr_p                                   = mapping->mapped;
    return UCS_OK;
}

static void unmap(mapped_t *mapped)
{
    while (mapped->num_mappings > 0) {
        uct_cuda_node_cache_put(mapped->mappings[--mapped->num_mappings], true);
    }
}

static void CUDA_CB note_end(void *arg)
{
    __atomic_add_fetch((unsigned*)arg, 1, __ATOMIC_RELAXED);
}

/* Progress as a transport does, by polling or with a wake-up */
static end_t
carry_out(uct_cuda_mp_engine_t *engine, way_t way, mapped_t *mapped)
{
    const uct_cuda_end_t ours        = uct_cuda_end_gpu(FAULTS_OURS);
    const uct_cuda_end_t theirs      = uct_cuda_end_gpu(FAULTS_PEERS);
    uct_cuda_mp_transfer_t *transfer = NULL;
    uct_cuda_run_request_t request   = {
        .src_end     = (way == WAY_GET) ? theirs : ours,
        .dst_end     = (way == WAY_GET) ? ours : theirs,
        .size        = FAULTS_SIZE,
        .remote      = theirs,
        .is_mappable = true
    };
    uct_cuda_run_memory_t memory      = {
        .src     = faults.ours, /* only the local pointer */
        .dst     = faults.ours, /* only compared */
        .map     = map,
        .map_arg = mapped
    };
    ucs_status_t status;

    if (way == WAY_LOCAL) {
        memory.dst      = faults.other;
        request.dst_end = uct_cuda_end_gpu(FAULTS_OTHER);
        request.remote  = uct_cuda_end_none();
    }

    status = uct_cuda_mp_start(engine, &request, &memory, &transfer);
    if (status != UCS_OK) {
        return END_ERROR;
    }

    if (transfer == NULL) {
        return END_ONE_PATH;
    }

    if (((faults.seed & 1) == 0) &&
        (uct_cuda_mp_notify(transfer, note_end, &faults.wake_ups) == UCS_OK)) {
        ++faults.wake_ups_due;
    }

    do {
        status = uct_cuda_mp_test(transfer);
    } while (status == UCS_INPROGRESS);

    uct_cuda_mp_release(transfer);
    return (status == UCS_OK) ? END_ARRIVED : END_ERROR;
}

static void create(uct_cuda_mp_engine_t **engine_p)
{
    if (uct_cuda_mp_engine_create(&faults.config, engine_p) != UCS_OK) {
        die("the engine cannot be created");
    }
}

static void destroy(uct_cuda_mp_engine_t *engine)
{
    uct_cuda_mp_engine_destroy(engine);
    uct_cuda_node_cache_purge_peer(faults.handle.pid_ns, faults.handle.pid);
    (void)uct_cuda_node_unmap_all(); /* it would be kept for a while */
}


/* ----------------------------------------------------------------- a case */

static bool is_release(const char *function)
{
    size_t i;

    for (i = 0; i < sizeof(releases) / sizeof(releases[0]); ++i) {
        if (strcmp(releases[i], function) == 0) {
            return true;
        }
    }

    return false;
}

static void reset_current(void)
{
    CUcontext current;

    /* A failed pop left this context */
    while ((UCT_CUDA_CALL_NOLOG(cuCtxPopCurrent, &current) == UCS_OK) &&
           (current != NULL)) {
    }
    CHECKED(cuCtxPushCurrent, faults.contexts[FAULTS_OURS]);
}

/* Try one transfer; every result reported by the engine must be true, and stay
   true. Driver functions called here are not used by the engine. */
static end_t try_transfer(uct_cuda_mp_engine_t *engine, way_t way)
{
    mapped_t mapped = {.num_mappings = 0};
    uint64_t seed   = ++faults.seed;
    uint64_t at_end;
    end_t end;

    faults.ours = faults.memory + (faults.turn++ / 2) % 2 * FAULTS_STRIDE;
    prepare(way, seed);
    end    = carry_out(engine, way, &mapped);
    at_end = destination_sum(way);
    unmap(&mapped);
    if (end == END_ARRIVED) {
        if (at_end != sum_of(seed)) {
            fail("it completed with wrong bytes");
        }
    } else {
        /* After the report the caller may reuse the memory */
        (void)usleep(500);
        if (destination_sum(way) != at_end) {
            fail("bytes came after the end");
        }
    }

    return end;
}

/* Let the n-th call of the function fail in the life of a new engine. */
static void
one_case(way_t way, const char *function, unsigned nth, CUresult result)
{
    char before[512], after[512], fault[128];
    uct_cuda_mp_engine_t *engine;
    unsigned i;

    snprintf(faults.doing, sizeof(faults.doing), "%s, call %u of %s returns %d",
             way_names[way], nth, function, result);
    if (faults.is_verbose) {
        printf("%s\n", faults.doing);
        fflush(stdout);
    }

    alarm(FAULTS_LIMIT_S);
    faults.turn = 0;
    ++faults.cases;
    faults.census(before, sizeof(before));
    create(&engine);

    snprintf(fault, sizeof(fault), "%s:%u:%d", function, nth, result);
    (void)faults.fault(fault);
    for (i = 0; i < FAULTS_TRANSFERS; ++i) {
        ++faults.ends[try_transfer(engine, way)];
    }
    (void)faults.fault(NULL);

    if (try_transfer(engine, way) == END_ERROR) {
        fail("a later transfer fails as well");
    }
    destroy(engine);

    if (is_release(function)) {
        reset_current();
    } else if (strcmp(before, faults.census(after, sizeof(after))) != 0) {
        fail("something was not given back\n    before %s\n    after  %s",
             before, after);
        reset_current();
    }
    alarm(0);
}

static void add_calls(unsigned long long counts[NUM_FUNCTIONS], int sign)
{
    size_t i;

    for (i = 0; i < NUM_FUNCTIONS; ++i) {
        counts[i] += sign * faults.calls(functions[i].member);
    }
}

/* Count the calls of each function in this life, without a failure, and at its
   end. */
static void count_calls(way_t way, unsigned long long counts[NUM_FUNCTIONS],
                        unsigned long long destroys[NUM_FUNCTIONS])
{
    uct_cuda_mp_engine_t *engine;
    size_t i;

    snprintf(faults.doing, sizeof(faults.doing), "%s, nothing broken",
             way_names[way]);
    faults.turn = 0;
    create(&engine);
    memset(counts, 0, NUM_FUNCTIONS * sizeof(*counts));
    memset(destroys, 0, NUM_FUNCTIONS * sizeof(*destroys));
    add_calls(counts, -1);
    for (i = 0; i < FAULTS_TRANSFERS; ++i) {
        if (try_transfer(engine, way) != END_ARRIVED) {
            fail("several paths were not used");
        }
    }
    add_calls(counts, 1);

    add_calls(destroys, -1);
    destroy(engine);
    add_calls(destroys, 1);
}

/* Fail while the engine is destroyed: resources refused by the driver are lost,
   and the process continues. */
static void destroy_case(way_t way, const char *function, unsigned nth)
{
    uct_cuda_mp_engine_t *engine;
    char fault[128];

    snprintf(faults.doing, sizeof(faults.doing),
             "%s, call %u of %s fails as the engine goes", way_names[way], nth,
             function);
    alarm(FAULTS_LIMIT_S);
    faults.turn = 0;
    ++faults.cases;
    create(&engine);
    ++faults.ends[try_transfer(engine, way)];
    snprintf(fault, sizeof(fault), "%s:%u:%d", function, nth,
             CUDA_ERROR_UNKNOWN);
    (void)faults.fault(fault);
    destroy(engine);
    (void)faults.fault(NULL);
    reset_current();

    create(&engine);
    if (try_transfer(engine, way) == END_ERROR) {
        fail("the next engine's transfer fails as well");
    }
    destroy(engine);
    alarm(0);
}

/* Return whether this program calls the function itself. */
static bool is_ours(const char *function)
{
    return (strcmp(function, "cuMemcpyHtoD") == 0) ||
           (strcmp(function, "cuMemcpyDtoH") == 0);
}

/* Return the next call to fail: the first so many, and the last. */
static unsigned next(unsigned nth, unsigned long long count)
{
    return ((nth < faults.max_nth) || (nth >= count)) ? nth + 1 :
                                                        (unsigned)count;
}

static void all_cases(way_t way)
{
    unsigned long long counts[NUM_FUNCTIONS], destroys[NUM_FUNCTIONS];
    unsigned nth, before = faults.cases;
    const char *name;
    size_t i;

    /* The first engine of a process creates permanent resources */
    count_calls(way, counts, destroys);
    count_calls(way, counts, destroys);
    for (i = 0; i < NUM_FUNCTIONS; ++i) {
        name = functions[i].member;
        if (((counts[i] == 0) && (destroys[i] == 0)) || is_ours(name) ||
            ((faults.only != NULL) && (strcmp(faults.only, name) != 0))) {
            continue;
        }

        printf("  %-6s %-28s %4llu calls, and %llu at the end\n",
               way_names[way], name, counts[i], destroys[i]);
        for (nth = 1; nth <= counts[i]; nth = next(nth, counts[i])) {
            one_case(way, name, nth, CUDA_ERROR_UNKNOWN);
            if (nth <= 3) {
                one_case(way, name, nth, CUDA_ERROR_OUT_OF_MEMORY);
            }
        }

        for (nth = 1; nth <= destroys[i]; nth = next(nth, destroys[i])) {
            destroy_case(way, name, nth);
        }
        fflush(stdout);
    }

    if (faults.cases - before < 10) {
        die("only %u cases: nothing was tried", faults.cases - before);
    }
}


/* ------------------------------------------------------------------- main */

static void on_alarm(int signum)
{
    static const char text[] = "ucx_mp_faults: no end: ";

    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)!write(STDERR_FILENO, faults.doing, strlen(faults.doing));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(1);
}

static void set(const char *name, const char *value)
{
    char error[256];

    if (uct_cuda_plan_config_set(&faults.config, name, value, error,
                                 sizeof(error)) != UCS_OK) {
        die("%s", error);
    }
}

static void usage(void)
{
    printf("Usage: ucx_mp_run --emulate NODE ucx_mp_faults [options]\n"
           "Every driver call that the multi-path engine makes fails once.\n\n"
           "  --set NAME=VALUE  a MULTIPATH variable, such as "
           "MULTIPATH_GRAPH=y\n"
           "  --max-calls N     of each function the first N calls fail, and "
           "the last (all)\n"
           "  --only FUNCTION   such as cuEventRecord\n"
           "  --verbose         name each case, and what the engine says\n"
           "  --help            this text\n");
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"set", required_argument, NULL, 's'},
        {"max-calls", required_argument, NULL, 'm'},
        {"only", required_argument, NULL, 'o'},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}
    };
    char *value;
    int c;

    faults.max_nth = FAULTS_MAX_CALLS;
    uct_cuda_plan_config_init(&faults.config);
    set("MULTIPATH", "y");
    set("MULTIPATH_MIN_SIZE", "64k");
    set("MULTIPATH_PATHS", "direct,gpu2,host");
    set("MULTIPATH_CHUNKS", "3");
    set("MULTIPATH_STAGING_SIZE", "1m");
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 's':
            value = strchr(optarg, '=');
            if (value == NULL) {
                die("--set: '%s' is not NAME=VALUE", optarg);
            }
            *value = '\0';
            set(optarg, value + 1);
            break;
        case 'm':
            faults.max_nth = (unsigned)atoi(optarg);
            if (faults.max_nth == 0) {
                die("--max-calls: '%s' is no number of calls", optarg);
            }
            break;
        case 'o':
            faults.only = optarg;
            break;
        case 'v':
            faults.is_verbose = true;
            break;
        case 'h':
            usage();
            exit(0);
        default:
            exit(2); /* getopt has printed the error */
        }
    }
}

static void quiet(uct_cuda_log_level_t level, const char *file, unsigned line,
                  const char *function, const char *message)
{
}

static void set_up(void)
{
    void *driver;
    int device, peer;

    faults.host = malloc(FAULTS_SIZE);
    if (faults.host == NULL) {
        die("out of memory");
    }

    start_peer();
    driver        = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    *(void**)&faults.fault  = (driver == NULL) ? NULL :
                                                 dlsym(driver, "cuemu_fault");
    if (faults.fault == NULL) {
        die("this is no emulated node (ucx_mp_run --emulate)");
    }

    *(void**)&faults.calls  = dlsym(driver, "cuemu_calls");
    *(void**)&faults.census = dlsym(driver, "cuemu_census");

    if (uct_cuda_device_count() < 4) {
        die("needs a node with four GPUs");
    }

    /* Keep contexts, so that leaks in them are visible */
    for (device = 0; device < 4; ++device) {
        CHECKED(cuDevicePrimaryCtxRetain, &faults.contexts[device], device);
    }

    CHECKED(cuCtxPushCurrent, faults.contexts[FAULTS_OTHER]);
    CHECKED(cuMemAlloc, &faults.other, FAULTS_SIZE);
    /* As a program does whose GPUs need access to each other */
    for (device = 0; device < 4; ++device) {
        CHECKED(cuCtxSetCurrent, faults.contexts[device]);
        for (peer = 0; peer < 4; ++peer) {
            if (peer != device) {
                CHECKED(cuCtxEnablePeerAccess, faults.contexts[peer], 0);
            }
        }
    }

    CHECKED(cuCtxSetCurrent, faults.contexts[FAULTS_OURS]);
    CHECKED(cuMemAlloc, &faults.memory, FAULTS_STRIDE + FAULTS_SIZE);
}

int main(int argc, char **argv)
{
    way_t way;

    parse(argc, argv);
    signal(SIGALRM, on_alarm);
    set_up();
    if (!faults.is_verbose) {
        uct_cuda_log_set(quiet, UCT_CUDA_LOG_ERROR);
    }

    for (way = 0; way < WAY_LAST; ++way) {
        all_cases(way);
    }

    if (faults.wake_ups != faults.wake_ups_due) {
        fail("%u wake-ups of %u came", faults.wake_ups, faults.wake_ups_due);
    }

    printf("ucx_mp_faults: %u cases, %u failed; of their transfers %u arrived, "
           "%u ended in an error, %u were left to one path\n",
           faults.cases, faults.failed, faults.ends[END_ARRIVED],
           faults.ends[END_ERROR], faults.ends[END_ONE_PATH]);
    return (faults.failed == 0) ? 0 : 1;
}
