/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * CPU time of the engine's calls beside the driver's, in one process and one
 * run: a transfer as a CUDA graph against a direct launch of the same copies,
 * the same with new addresses, and the cost of a transfer left on one path.
 * Runs on real GPUs or, for a first look, on an emulated node.
 */
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/topo.h>
#include <uct/cuda/multipath/multipath.h>
#include <uct/cuda/plan/transfer_planner.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COST_BUFFERS 2 /* pairs of buffers, for new addresses every time */


typedef struct {
    size_t      size;
    unsigned    repeats;
    const char  *paths;
    const char  *chunks;
    int         src, dst;
} options_t;


/* The plan's copies as a graph, by direct driver calls */
typedef struct {
    CUgraph       graph;
    CUgraphExec   exec;
    CUgraphNode   nodes[UCT_CUDA_PLAN_MAX_STEPS];
    CUdeviceptr   staging[UCT_CUDA_PLAN_MAX_PATHS];
    void          *host;
    CUdeviceptr   buffers[COST_BUFFERS][2]; /* source, destination */
    CUcontext     ctx[UCT_CUDA_MAX_GPUS];
    CUstream      stream;
    CUevent       event;
} bare_t;


static options_t options = {
    .size    = 64ul << 20,
    .repeats = 200,
    .paths   = "direct,host",
    .chunks  = "7",
    .src     = 0,
    .dst     = 1
};

static uct_cuda_plan_t plan;
static bare_t          bare;


static void die(const char *what)
{
    fprintf(stderr, "ucx_mp_cost: %s\n", what);
    exit(1);
}

static void check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "ucx_mp_cost: %s: %s\n", what,
                uct_cuda_result_name(result));
        exit(1);
    }
}

#define CALL(_function, ...) \
    check(uct_cuda_driver_get()->_function(__VA_ARGS__), #_function)


static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static int compare_times(const void *a, const void *b)
{
    const double x = *(const double*)a;
    const double y = *(const double*)b;

    return (x > y) - (x < y);
}

static void print_times(const char *what, double *times, unsigned count)
{
    qsort(times, count, sizeof(*times), compare_times);
    printf("%-44s %8.2f us  (%.2f..%.2f)\n", what, times[count / 2],
           times[count / 20], times[count - 1 - count / 20]);
}


/* ------------------------------------------------------------ bare driver */

static int step_device(const uct_cuda_plan_step_t *step)
{
    return uct_cuda_end_device(
            uct_cuda_plan_gpu_end(uct_cuda_plan_link_from(step->queue),
                                  uct_cuda_plan_link_to(step->queue)));
}

static uintptr_t bare_address(const uct_cuda_plan_place_t *place, unsigned path,
                              unsigned pair)
{
    const uintptr_t offset = place->slot * plan.slot_size + place->offset;

    if (place->buffer != UCT_CUDA_BUFFER_SCRATCH) {
        return bare.buffers[pair][place->buffer == UCT_CUDA_BUFFER_RECV] +
               offset;
    }
    return (uct_cuda_plan_place_is_host_staging(place) ? (uintptr_t)bare.host :
                                     bare.staging[path]) + offset;
}

static void bare_copy(unsigned number, unsigned pair, CUDA_MEMCPY3D *copy)
{
    const uct_cuda_plan_step_t *step        = &plan.steps[number];
    const uct_cuda_plan_place_t *from_place = uct_cuda_plan_from(&plan, number);
    const uct_cuda_plan_place_t *to_place   = uct_cuda_plan_to(&plan, number);
    const uintptr_t from = bare_address(from_place, step->part, pair);
    const uintptr_t to   = bare_address(to_place, step->part, pair);

    memset(copy, 0, sizeof(*copy));
    copy->srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy->dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy->srcDevice     = from;
    copy->dstDevice     = to;
    if (uct_cuda_plan_place_is_host_staging(from_place)) {
        copy->srcMemoryType = CU_MEMORYTYPE_HOST;
        copy->srcHost       = (void*)from;
    } else if (uct_cuda_plan_place_is_host_staging(to_place)) {
        copy->dstMemoryType = CU_MEMORYTYPE_HOST;
        copy->dstHost       = (void*)to;
    }

    copy->WidthInBytes = step->bytes;
    copy->Height       = copy->Depth = 1;
}

static void bare_build(void)
{
    CUgraphNode last[UCT_CUDA_PLAN_NUM_LINKS] = {NULL};
    const uct_cuda_plan_step_t *step;
    CUgraphNode after[2];
    CUDA_MEMCPY3D copy;
    unsigned i, count;

    CALL(cuGraphCreate, &bare.graph, 0);
    for (i = 0; i < plan.num_steps; ++i) {
        step  = &plan.steps[i];
        count = 0;
        if (last[step->queue] != NULL) {
            after[count++] = last[step->queue];
        }

        if (uct_cuda_plan_step_has_wait(&plan, i)) {
            after[count++] = bare.nodes[plan.waits[i]];
        }

        bare_copy(i, 0, &copy);
        CALL(cuGraphAddMemcpyNode, &bare.nodes[i], bare.graph, after, count,
             &copy, bare.ctx[step_device(step)]);
        last[step->queue] = bare.nodes[i];
    }

    CALL(cuGraphInstantiateWithFlags, &bare.exec, bare.graph, 0);
}

static void bare_setup(const uct_cuda_topo_t *topo)
{
    unsigned p, pair;
    int gpu;

    for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
        if (uct_cuda_ctx_retain(gpu, false, &bare.ctx[gpu]) != UCS_OK) {
            die("no context");
        }
    }

    for (gpu = 0; gpu < topo->num_gpus; ++gpu) {
        if (gpu != options.src) {
            (void)uct_cuda_ctx_enable_peer(options.src, gpu);
            (void)uct_cuda_ctx_enable_peer(gpu, options.dst);
        }
    }

    for (pair = 0; pair < COST_BUFFERS; ++pair) {
        (void)uct_cuda_ctx_push(bare.ctx[options.src]);
        CALL(cuMemAlloc, &bare.buffers[pair][0], options.size);
        uct_cuda_ctx_pop();
        (void)uct_cuda_ctx_push(bare.ctx[options.dst]);
        CALL(cuMemAlloc, &bare.buffers[pair][1], options.size);
        uct_cuda_ctx_pop();
    }

    for (p = 0; p < plan.num_paths; ++p) {
        if (uct_cuda_end_is_gpu(plan.paths[p].via)) {
            gpu = uct_cuda_end_device(plan.paths[p].via);
            (void)uct_cuda_ctx_push(bare.ctx[gpu]);
            CALL(cuMemAlloc, &bare.staging[p],
                 plan.slot_size * UCT_CUDA_PLAN_SLOTS);
            uct_cuda_ctx_pop();
        }
    }

    (void)uct_cuda_ctx_push(bare.ctx[options.src]);
    CALL(cuMemHostAlloc, &bare.host, plan.slot_size * UCT_CUDA_PLAN_SLOTS,
         CU_MEMHOSTALLOC_PORTABLE);
    CALL(cuStreamCreate, &bare.stream, CU_STREAM_NON_BLOCKING);
    CALL(cuEventCreate, &bare.event, CU_EVENT_DISABLE_TIMING);
    bare_build();
}

/* Launch, with new or the same addresses; returns the time until it is
   submitted. */
static double bare_launch(unsigned pair, bool retarget)
{
    double start = now();
    CUDA_MEMCPY3D copy;
    double end;
    unsigned i;

    for (i = 0; retarget && (i < plan.num_steps); ++i) {
        if ((uct_cuda_plan_from(&plan, i)->buffer == UCT_CUDA_BUFFER_SEND) ||
            (uct_cuda_plan_to(&plan, i)->buffer == UCT_CUDA_BUFFER_RECV)) {
            bare_copy(i, pair, &copy);
            CALL(cuGraphExecMemcpyNodeSetParams, bare.exec, bare.nodes[i],
                 &copy, bare.ctx[step_device(&plan.steps[i])]);
        }
    }

    CALL(cuGraphLaunch, bare.exec, bare.stream);
    CALL(cuEventRecord, bare.event, bare.stream);
    end = now();
    CALL(cuEventSynchronize, bare.event);
    return end - start;
}


/* ----------------------------------------------------------------- engine */

static void request_fill(unsigned pair, size_t size,
                         uct_cuda_run_request_t *request,
                         uct_cuda_run_memory_t *memory)
{
    memset(request, 0, sizeof(*request));
    memset(memory, 0, sizeof(*memory));
    memory->src         = bare.buffers[pair][0];
    memory->dst         = bare.buffers[pair][1];
    request->src_end    = uct_cuda_end_gpu(options.src);
    request->dst_end    = uct_cuda_end_gpu(options.dst);
    request->size       = size;
}

static double engine_launch(uct_cuda_mp_engine_t *engine, unsigned pair)
{
    uct_cuda_mp_transfer_t *transfer;
    uct_cuda_run_request_t request;
    uct_cuda_run_memory_t memory;
    double start, end;

    request_fill(pair, options.size, &request, &memory);
    start = now();
    if ((uct_cuda_mp_start(engine, &request, &memory, &transfer) != UCS_OK) ||
        (transfer == NULL)) {
        die("the engine does not take the transfer");
    }

    end = now();
    while (uct_cuda_mp_test(transfer) == UCS_INPROGRESS) {
    }

    uct_cuda_mp_release(transfer);
    return end - start;
}

static uct_cuda_mp_engine_t *engine_create(const uct_cuda_plan_config_t *config)
{
    uct_cuda_mp_engine_t *engine;

    if (uct_cuda_mp_engine_create(config, &engine) != UCS_OK) {
        die("no engine");
    }

    return engine;
}

static void set(uct_cuda_plan_config_t *config, const char *name,
                const char *value)
{
    char error[256];

    if (uct_cuda_plan_config_set(config, name, value, error, sizeof(error)) !=
        UCS_OK) {
        die(error);
    }
}

/* Measure transfers that stay on one path: AUTO, on a node without a gain, of a
   size with a query, and of one below the smallest size. */
static void measure_left_alone(double *times)
{
    uct_cuda_mp_transfer_t *transfer;
    uct_cuda_run_request_t request;
    uct_cuda_run_memory_t memory;
    uct_cuda_mp_engine_t *engine;
    uct_cuda_plan_config_t config;
    const unsigned batch = 100;
    const size_t sizes[] = {64ul << 10, 64ul << 20};
    char what[64];
    double start;
    unsigned i, j, s;

    uct_cuda_plan_config_init(&config);
    engine = engine_create(&config);
    for (s = 0; s < 2; ++s) {
        if (sizes[s] > options.size) {
            continue;
        }

        request_fill(0, sizes[s], &request, &memory);
        for (i = 0; i < options.repeats; ++i) {
            start = now();
            for (j = 0; j < batch; ++j) {
                transfer = NULL;
                if (uct_cuda_mp_may_split(engine, request.size)) {
                    (void)uct_cuda_mp_start(engine, &request, &memory,
                                            &transfer);
                    if (transfer != NULL) {
                        uct_cuda_mp_release(transfer);
                        s = 2;
                        break;
                    }
                }
            }
            times[i] = (now() - start) / batch;
            if (s == 2) {
                break;
            }
        }

        if (s == 2) {
            printf("auto stripes 64 MiB here: nothing is left on one path\n");
            break;
        }

        snprintf(what, sizeof(what), "left on one path, %zu KiB: added",
                 sizes[s] >> 10);
        print_times(what, times, options.repeats);
    }

    uct_cuda_mp_engine_destroy(engine);
}


static void usage(FILE *stream)
{
    fprintf(stream,
            "Usage: ucx_mp_cost [options]\n"
            "CPU time of the engine's calls beside the driver's bare ones.\n\n"
            "  --size MIB      of the transfer (64)\n"
            "  --paths LIST    MULTIPATH_PATHS (direct,host)\n"
            "  --chunks N      of a staged path (7: 15 copies with direct)\n"
            "  --repeats N     (200)\n"
            "  --help          this text\n");
}

static void parse(int argc, char **argv)
{
    static const struct option longopts[] = {
        {"size", required_argument, NULL, 's'},
        {"paths", required_argument, NULL, 'p'},
        {"chunks", required_argument, NULL, 'c'},
        {"repeats", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}
    };
    char *end;
    int c;

    while ((c = getopt_long(argc, argv, "h", longopts, NULL)) != -1) {
        end = "";
        switch (c) {
        case 's':
            options.size = strtoul(optarg, &end, 10) << 20;
            break;
        case 'r':
            options.repeats = (unsigned)strtoul(optarg, &end, 10);
            break;
        case 'p':
            options.paths = optarg;
            break;
        case 'c':
            options.chunks = optarg;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }

        if (*end != '\0') {
            fprintf(stderr, "ucx_mp_cost: '%s' is not a number\n", optarg);
            exit(2);
        }
    }

    if ((optind < argc) || (options.repeats < 20) ||
        (options.repeats > 100000) || (options.size < (1ul << 20)) ||
        (options.size > UCT_CUDA_PLAN_MAX_SIZE)) {
        fprintf(stderr, "ucx_mp_cost: sizes are 1 to 1024 MiB, repeats 20 to "
                        "100000\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    const uct_cuda_topo_t *topo;
    uct_cuda_plan_knowledge_t know = {0};
    uct_cuda_plan_config_t config;
    uct_cuda_mp_engine_t *engine;
    double *times;
    unsigned i;

    parse(argc, argv);
    topo = uct_cuda_topo_get();
    if ((topo == NULL) || (topo->num_gpus < 2)) {
        die("two GPUs are needed");
    }

    times = calloc(options.repeats, sizeof(*times));
    if (times == NULL) {
        die("out of memory");
    }

    uct_cuda_plan_config_init(&config);
    set(&config, "MULTIPATH", "y");
    set(&config, "MULTIPATH_PATHS", options.paths);
    set(&config, "MULTIPATH_CHUNKS", options.chunks);
    set(&config, "MULTIPATH_LEDGER", "n");
    set(&config, "MULTIPATH_GRAPH", "y");
    know.topo   = topo;
    know.config = &config;
    uct_cuda_plan_make(&know, uct_cuda_end_gpu(options.src),
                       uct_cuda_end_gpu(options.dst), options.size,
                       &plan);
    if (plan.num_paths == 0) {
        die("one path is all there is");
    }

    bare_setup(topo);
    printf("%zu MiB, %s, %u copies; median (5 %%..95 %%) of %u\n",
           options.size >> 20, options.paths, plan.num_steps,
           options.repeats);

    engine = engine_create(&config);
    for (i = 0; i < 20; ++i) {
        (void)engine_launch(engine, 0);
        (void)bare_launch(0, false);
    }

    for (i = 0; i < options.repeats; ++i) {
        times[i] = bare_launch(0, false);
    }
    print_times("graph, bare: launch, record", times, options.repeats);
    for (i = 0; i < options.repeats; ++i) {
        times[i] = engine_launch(engine, 0);
    }
    print_times("graph, engine: same addresses", times, options.repeats);

    for (i = 0; i < options.repeats; ++i) {
        times[i] = bare_launch(i % COST_BUFFERS, true);
    }
    print_times("graph, bare: update, launch, record", times,
                options.repeats);

    for (i = 0; i < options.repeats; ++i) {
        times[i] = engine_launch(engine, (i / 2) % COST_BUFFERS);
    }
    print_times("graph, engine: other addresses", times, options.repeats);
    uct_cuda_mp_engine_destroy(engine);

    set(&config, "MULTIPATH_GRAPH", "n");
    engine = engine_create(&config);
    for (i = 0; i < options.repeats; ++i) {
        times[i] = engine_launch(engine, 0);
    }
    print_times("streams, engine", times, options.repeats);
    uct_cuda_mp_engine_destroy(engine);

    measure_left_alone(times);
    return 0;
}
