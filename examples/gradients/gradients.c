/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Replays the gradients of a training step: tensors become ready while the
 * backward pass runs, are fused in buckets as Horovod does, and are summed over
 * all ranks by MPI_Allreduce of GPU memory.
 *
 * The all-reduces are real, and timed; the GPU's arithmetic is not run. When a
 * gradient is ready follows from the model's file and the GPU's speed, and the
 * step's end from both: an all-reduce starts when the one before is done and
 * its bucket is complete. A bucket is either filled up to the threshold, in the
 * order of the gradients, or has what is there when the all-reduce before is
 * done.
 */
#define _GNU_SOURCE
#include <mpi.h>

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_TENSORS 4096
#define MAX_STEPS   1000
#define ALIGNMENT   64   /* elements, of a tensor in memory */

typedef unsigned long long gpu_ptr_t;

typedef struct {
    size_t count;  /* elements */
    size_t offset; /* among all gradients, elements */
    double ready;  /* seconds from the step's beginning */
} tensor_t;

typedef struct {
    int    calls;   /* all-reduces */
    size_t largest; /* bytes of one */
    double inside;  /* seconds of all of them */
    double seconds;
} step_t;

enum { MPI, STAGED, FORMULA, NONE };
enum { WHOLE, READY };

static const char *const ways[] = {"mpi", "staged", "formula", "none",
                                   NULL};

static const char *const fills[] = {"whole", "ready", NULL};

static struct {
    const char *model;
    int        way, fill, check;
    size_t     fusion, batch, scale, steps, warmup;
    double     tflops, images; /* images: 0, as tflops says */
    double     gbps;
    const char *json;
} opts = {
        "resnet50", MPI, WHOLE, 0, 64 << 20, 32, 1, 5, 2, 7, 0, 0, NULL};

static int rank, ranks;
static tensor_t tensors[MAX_TENSORS];
static int num_tensors;
static size_t num_elements; /* of all gradients, with their alignment */
static double backward_end; /* seconds */

static gpu_ptr_t gradients, bucket; /* on the GPU, floats */
static float *host;                 /* page-locked */
static void *stream;


/* The whole job ends with a sentence */
static void fail(const char *fmt, ...) __attribute__((noreturn));
static void fail(const char *fmt, ...)
{
    int running = 0;
    va_list ap;

    va_start(ap, fmt);
    fprintf(stderr, "gradients: ");
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    MPI_Initialized(&running);
    if (running) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    exit(2);
}

/* -------------------------------------------------------------------- a GPU */

/* What of the driver is called: name, exported symbol, arguments */
#define DRIVER(_) \
    _(Init, "cuInit", (unsigned)) \
    _(GetErrorName, "cuGetErrorName", (int, const char **)) \
    _(DeviceGetCount, "cuDeviceGetCount", (int *)) \
    _(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **, int)) \
    _(CtxSetCurrent, "cuCtxSetCurrent", (void *)) \
    _(MemAlloc, "cuMemAlloc_v2", (gpu_ptr_t *, size_t)) \
    _(MemAllocHost, "cuMemAllocHost_v2", (void **, size_t)) \
    _(MemcpyAsync, "cuMemcpyAsync", (gpu_ptr_t, gpu_ptr_t, size_t, void *)) \
    _(StreamCreate, "cuStreamCreate", (void **, unsigned)) \
    _(StreamSynchronize, "cuStreamSynchronize", (void *))

#define MEMBER(_name, _symbol, _args) int(*_name) _args;
#define SYMBOL(_name, _symbol, _args) {_symbol, (void **)&cu._name},

static struct {
    DRIVER(MEMBER)
} cu;

static int is_emulated;

#define CU(_call) gpu_check(cu._call, #_call)

static void gpu_check(int result, const char *what)
{
    const char *name = NULL;

    if (result != 0) {
        cu.GetErrorName(result, &name);
        fail("rank %d: cu%s: %s", rank, what, name ? name : "unknown error");
    }
}

static void gpu_open(void)
{
    const struct {
        const char *name;
        void       **address;
    } symbols[] = {DRIVER(SYMBOL)};
    void *lib   = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int count   = 0, local;
    void *context;
    MPI_Comm node;
    size_t i;

    if (lib == NULL) {
        fail("no GPU: %s (ucx_mp_run --emulate NODE has some)", dlerror());
    }
    for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); ++i) {
        *symbols[i].address = dlsym(lib, symbols[i].name);
        if (*symbols[i].address == NULL) {
            fail("the CUDA driver has no %s", symbols[i].name);
        }
    }
    is_emulated = (dlsym(lib, "cuemu_drift") != NULL);

    CU(Init(0));
    CU(DeviceGetCount(&count));
    if (count == 0) {
        fail("the CUDA driver shows no GPU");
    }
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_free(&node);
    CU(DevicePrimaryCtxRetain(&context, local % count));
    CU(CtxSetCurrent(context));
    CU(StreamCreate(&stream, 1));
}

/* Page-locked memory has an address for the GPU, too: the same one */
static void copy(gpu_ptr_t to, gpu_ptr_t from, size_t elements)
{
    CU(MemcpyAsync(to, from, elements * sizeof(float), stream));
}

/* ------------------------------------------------------------- command line */

static void usage(void)
{
    printf("Usage: gradients [options]    (under mpirun)\n"
           "Replays the gradients of data-parallel training: images a second.\n"
           "\n"
           "  --model NAME   resnet50, vgg16, densenet201, resnet152, or a "
           "file of the\n"
           "                 kind that examples/gradients/models writes\n"
           "  --fusion SIZE  most bytes of a bucket, of more than one gradient "
           "(64M)\n"
           "  --fill FILL    whole: buckets are filled up to that; ready: with "
           "what is there\n"
           "                 when the all-reduce before is done (whole)\n"
           "  --way WAY      mpi: MPI_Allreduce of GPU memory; staged: of host "
           "memory, with\n"
           "                 copies by hand; formula: as long as --gbps says; "
           "none: no\n"
           "                 communication (mpi)\n"
           "  --gbps F       10^9 bytes of a bucket a second, by formula\n"
           "  --batch N      images a rank and step (32)\n"
           "  --tflops F     10^12 operations a second that a GPU trains with "
           "(7)\n"
           "  --images F     instead: images a second that a GPU trains with\n"
           "  --steps N      timed steps (5)\n"
           "  --warmup N     steps before them (2)\n"
           "  --scale N      of each tensor the N-th part, to try the program "
           "(1)\n"
           "  --check        look at every element after the last step\n"
           "  --json FILE    one JSON object a line; - is standard output\n"
           "  --help         this text\n\n"
           "Exit status 1: wrong sums.\n");
    exit(0);
}

/* Whole number, with K, M or G behind it */
static size_t number(const char *option, const char *text, size_t least,
                     size_t most)
{
    static const char units[] = "KMG";
    unsigned long long value;
    const char *unit;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    unit  = (*end == '\0') ? NULL : strchr(units, *end);
    if (unit != NULL) {
        value <<= 10 * (unit - units + 1);
        ++end;
    }
    if ((*text < '0') || (*text > '9') || (*end != '\0') || (errno != 0) ||
        (value < least) || (value > most)) {
        fail("--%s: '%s' is no number from %zu to %zu", option, text, least,
             most);
    }
    return value;
}

static int word(const char *option, const char *text, const char *const *words)
{
    int i;

    for (i = 0; words[i] != NULL; ++i) {
        if (!strcmp(words[i], text)) {
            return i;
        }
    }
    fail("--%s: '%s' is not known; see --help", option, text);
}

static double positive(const char *option, const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (!(value > 0) || (value > 1e9) || (*end != '\0')) {
        fail("--%s: '%s' is no number above 0", option, text);
    }
    return value;
}

static void parse(int argc, char **argv)
{
    static const struct option longopts[] = {
        {"model", required_argument, NULL, 'm'},
        {"fusion", required_argument, NULL, 'f'},
        {"fill", required_argument, NULL, 'F'},
        {"way", required_argument, NULL, 'w'},
        {"batch", required_argument, NULL, 'b'},
        {"tflops", required_argument, NULL, 't'},
        {"images", required_argument, NULL, 'i'},
        {"gbps", required_argument, NULL, 'g'},
        {"steps", required_argument, NULL, 's'},
        {"warmup", required_argument, NULL, 'W'},
        {"scale", required_argument, NULL, 'S'},
        {"check", no_argument, NULL, 'c'},
        {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "h", longopts, NULL)) != -1) {
        switch (c) {
        case 'm':
            opts.model = optarg;
            break;
        case 'f':
            opts.fusion = number("fusion", optarg, 4, (size_t)8 << 30);
            break;
        case 'w':
            opts.way = word("way", optarg, ways);
            break;
        case 'F':
            opts.fill = word("fill", optarg, fills);
            break;
        case 'b':
            opts.batch = number("batch", optarg, 1, 1 << 20);
            break;
        case 't':
            opts.tflops = positive("tflops", optarg);
            break;
        case 'i':
            opts.images = positive("images", optarg);
            break;
        case 'g':
            opts.gbps = positive("gbps", optarg);
            break;
        case 's':
            opts.steps = number("steps", optarg, 1, MAX_STEPS);
            break;
        case 'W':
            opts.warmup = number("warmup", optarg, 0, MAX_STEPS);
            break;
        case 'S':
            opts.scale = number("scale", optarg, 1, 1 << 20);
            break;
        case 'c':
            opts.check = 1;
            break;
        case 'j':
            opts.json = optarg;
            break;
        case 'h':
            usage();
            break;
        default:
            exit(2); /* getopt has said why */
        }
    }
    if (optind != argc) {
        fail("'%s' is not an option", argv[optind]);
    }
    if ((opts.way == FORMULA) != (opts.gbps > 0)) {
        fail("--way formula and --gbps go together");
    }
    if (opts.check && (opts.way >= FORMULA)) {
        fail("--check: nothing is added with --way %s", ways[opts.way]);
    }
}

/* Tensors of a file, in the order in which they are ready */
static void load_model(void)
{
    char path[4096], line[256], name[256];
    double gflop, now = 0, unit;
    size_t count;
    int number = 0, i;
    FILE *file;

    snprintf(path, sizeof(path), "%s%s%s",
             strchr(opts.model, '/') ? "" : GRADIENTS_DIR "/", opts.model,
             strchr(opts.model, '/') ? "" : ".txt");
    file = fopen(path, "r");
    if (file == NULL) {
        fail("--model: there is no model '%s': %s: %s (resnet50, vgg16, "
             "densenet201, resnet152, or a file that examples/gradients/models "
             "wrote)", opts.model, path, strerror(errno));
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        ++number;
        if ((line[0] == '#') || (line[0] == '\n')) {
            continue;
        }
        if (sscanf(line, "forward %lf", &gflop) == 1) {
            now += gflop;
            continue;
        }
        if ((sscanf(line, "%255s %zu %lf", name, &count, &gflop) != 3) ||
            (count == 0) || (count > ((size_t)1 << 34)) || !(gflop >= 0) ||
            (num_tensors == MAX_TENSORS)) {
            fail("%s:%d: not 'NAME ELEMENTS GFLOP', or more than %d of them",
                 path, number, MAX_TENSORS);
        }
        now                         += gflop;
        tensors[num_tensors].count   = 1 + (count - 1) / opts.scale;
        tensors[num_tensors].offset  = num_elements;
        tensors[num_tensors].ready   = now;
        num_elements += (tensors[num_tensors].count + ALIGNMENT - 1) /
                        ALIGNMENT * ALIGNMENT;
        ++num_tensors;
    }
    fclose(file);
    if (num_tensors == 0) {
        fail("%s: no tensor in it", path);
    }

    /* so far it was GFLOP of an image */
    unit = opts.batch * ((opts.images > 0) ? 1 / (opts.images * now) :
                                             1e-3 / opts.tflops);
    for (i = 0; i < num_tensors; ++i) {
        tensors[i].ready *= unit;
    }
    backward_end = now * unit;
}

/* ------------------------------------------------------------------- a step */

/* Copies gradients into a bucket at `to`, or back from it */
static void pack(int first, int last, gpu_ptr_t to, int back)
{
    size_t at = 0;
    gpu_ptr_t tensor, part;
    int i;

    for (i = first; i <= last; ++i) {
        tensor = gradients + tensors[i].offset * sizeof(float);
        part   = to + at * sizeof(float);
        copy(back ? tensor : part, back ? part : tensor, tensors[i].count);
        at += tensors[i].count;
    }
    CU(StreamSynchronize(stream));
}

/* Sums gradients over all ranks. Returns the slowest rank's seconds. */
static double reduce(int first, int last, size_t elements)
{
    gpu_ptr_t one  = gradients + tensors[first].offset * sizeof(float);
    gpu_ptr_t many = (opts.way == STAGED) ? (gpu_ptr_t)(uintptr_t)host : bucket;
    int is_packed  = (first != last) || (opts.way == STAGED);
    double added   = 0, seconds;

    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    if (is_packed) {
        pack(first, last, many, 0);
    }
    if (opts.way == FORMULA) {
        added = elements * sizeof(float) / (opts.gbps * 1e9);
    } else {
        MPI_Allreduce(MPI_IN_PLACE,
                      (void *)(uintptr_t)(is_packed ? many : one), elements,
                      MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (is_packed) {
        pack(first, last, many, 1);
    }
    seconds = MPI_Wtime() - seconds + added;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    return seconds;
}

static step_t step(void)
{
    step_t result = {0};
    double now    = 0, seconds;
    size_t elements;
    int first, last;

    for (first = 0; (opts.way != NONE) && (first < num_tensors);
         first = last + 1) {
        if (now < tensors[first].ready) {
            now = tensors[first].ready;
        }
        last     = first;
        elements = tensors[first].count;
        while ((last + 1 < num_tensors) &&
               ((opts.fill == WHOLE) || (tensors[last + 1].ready <= now)) &&
               ((elements + tensors[last + 1].count) * sizeof(float) <=
                opts.fusion)) {
            elements += tensors[++last].count;
        }
        if (now < tensors[last].ready) {
            now = tensors[last].ready;
        }
        seconds        = reduce(first, last, elements);
        now           += seconds;
        result.inside += seconds;
        ++result.calls;
        if (elements * sizeof(float) > result.largest) {
            result.largest = elements * sizeof(float);
        }
    }
    result.seconds = (now > backward_end) ? now : backward_end;
    return result;
}

/* ----------------------------------------------------------- right or wrong */

/* Whole number below 4096 that position and rank determine */
static float element(size_t index, int source)
{
    uint32_t x = (uint32_t)index * 2654435761u + source * 0x9e3779b9u;

    x ^= x >> 16;
    x *= 0x7feb352du;
    return (x ^ (x >> 15)) & 4095;
}

static void fill(void)
{
    size_t i, k;

    for (i = 0; i < (size_t)num_tensors; ++i) {
        for (k = 0; k < tensors[i].count; ++k) {
            host[k] = element(tensors[i].offset + k, rank);
        }
        copy(gradients + tensors[i].offset * sizeof(float),
             (uintptr_t)host, tensors[i].count);
        CU(StreamSynchronize(stream));
    }
}

static int is_right(void)
{
    int right = 1, source;
    float expected;
    size_t i, k;

    for (i = 0; right && (i < (size_t)num_tensors); ++i) {
        copy((uintptr_t)host, gradients + tensors[i].offset * sizeof(float),
             tensors[i].count);
        CU(StreamSynchronize(stream));
        for (k = 0; right && (k < tensors[i].count); ++k) {
            for (source = 0, expected = 0; source < ranks; ++source) {
                expected += element(tensors[i].offset + k, source);
            }
            if (host[k] != expected) {
                fprintf(stderr, "gradients: rank %d: WRONG: tensor %zu element "
                        "%zu is %.9g, not %.9g\n", rank, i, k, host[k],
                        expected);
                right = 0;
            }
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return right;
}

/* --------------------------------------------------------------------- main */

static int by_seconds(const void *a, const void *b)
{
    double x = ((const step_t *)a)->seconds, y = ((const step_t *)b)->seconds;

    return (x > y) - (x < y);
}

static void report(step_t *steps, size_t count, int right)
{
    double images = (double)opts.batch * ranks;
    FILE *json;
    step_t median;
    size_t i;

    if (opts.json != NULL) {
        json = strcmp(opts.json, "-") ? fopen(opts.json, "a") : stdout;
        if (json == NULL) {
            fail("--json: cannot write %s: %s", opts.json, strerror(errno));
        }
        fprintf(json, "{\"model\": \"%s\", \"way\": \"%s\", \"ranks\": %d, "
                "\"fusion\": %zu, \"fill\": \"%s\", \"batch\": %zu, "
                "\"scale\": %zu, \"modelled\": %s, \"limit\": %.9g, "
                "\"steps\": [", opts.model,
                ways[opts.way], ranks, opts.fusion, fills[opts.fill],
                opts.batch, opts.scale, is_emulated ? "true" : "false",
                backward_end);
        for (i = 0; i < count; ++i) {
            fprintf(json, "%s{\"seconds\": %.9g, \"inside\": %.9g, \"calls\": "
                    "%d, \"largest\": %zu}", i ? ", " : "", steps[i].seconds,
                    steps[i].inside, steps[i].calls, steps[i].largest);
        }
        fprintf(json, "]}\n");
        if (json != stdout) {
            fclose(json);
        }
    }
    if ((opts.json == NULL) || strcmp(opts.json, "-")) {
        qsort(steps, count, sizeof(*steps), by_seconds);
        median = steps[count / 2];
        printf("%s, %s, %d ranks, %s: %.1f images/s (%.1f..%.1f of %zu steps), "
               "without communication %.1f; a step: %d all-reduces of up to "
               "%.1f MiB, %.2f ms in them, %.2f ms not hidden%s\n",
               opts.model, ways[opts.way], ranks,
               is_emulated ? "modelled" : "all-reduces measured",
               images / median.seconds, images / steps[count - 1].seconds,
               images / steps[0].seconds, count, images / backward_end,
               median.calls, median.largest / 1048576.0, median.inside * 1e3,
               (median.seconds - backward_end) * 1e3,
               !opts.check ? "" : right ? "; sums right" : "; sums WRONG");
    }
}

int main(int argc, char **argv)
{
    static step_t steps[MAX_STEPS];
    size_t count, largest = 0, room, i;
    int right = 1;

    parse(argc, argv);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) {
        fail("one rank has nothing to add up (mpirun -n 2)");
    }
    load_model();
    gpu_open();
    for (i = 0; i < (size_t)num_tensors; ++i) {
        largest = (tensors[i].count > largest) ? tensors[i].count : largest;
    }
    room = opts.fusion / sizeof(float);
    room = (room < num_elements) ? room : num_elements;
    CU(MemAlloc(&gradients, num_elements * sizeof(float)));
    CU(MemAlloc(&bucket, room * sizeof(float)));
    room = (room > largest) ? room : largest;
    CU(MemAllocHost((void **)&host, room * sizeof(float)));

    for (i = 0; i < opts.warmup; ++i) {
        step();
    }
    for (count = 0; count < opts.steps; ++count) {
        if (opts.check && (count + 1 == opts.steps)) {
            fill(); /* sums of sums are no whole numbers for long */
        }
        steps[count] = step();
    }
    if (opts.check) {
        right = is_right();
    }
    if (rank == 0) {
        report(steps, count, right);
    }
    MPI_Finalize();
    return !right;
}
