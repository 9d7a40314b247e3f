/* SPDX-License-Identifier: BSD-3-Clause */

/* Functions shared by the programs. */
#include "byhand.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYHAND_MAX_SIZES   64
#define BYHAND_MAX_SAMPLES 1000
#define BYHAND_MAX_CALLS   1000 /* maximum of calls per sample */
#define BYHAND_MAX_OPTIONS 8

byhand_driver_t cu;
int byhand_gpus;
CUcontext byhand_contexts[BYHAND_MAX_GPUS];

static const byhand_program_t *program;
static size_t sizes[BYHAND_MAX_SIZES];
static int num_sizes;
static size_t num_samples = 7, num_gpus, sample_ms = 20;
static FILE *json;
static int is_emulated;

/* CUmemcpyAttributes, missing in toolkits before 12.8 */
typedef struct {
    int      access_order;
    int      from_location[2], to_location[2];
    unsigned flags;
} byhand_copy_attributes_t;

static CUresult (*batch_async)(CUdeviceptr *to, CUdeviceptr *from,
                               size_t *sizes, size_t count,
                               byhand_copy_attributes_t *attributes,
                               size_t *first, size_t num_attributes,
                               size_t *failed, CUstream stream);


void byhand_die(const char *fmt, ...)
{
    va_list ap;

    fflush(stdout);
    fprintf(stderr, "%s: ", program->name);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(2);
}

void byhand_check(CUresult result, const char *what)
{
    const char *name = NULL;

    if (result != CUDA_SUCCESS) {
        cu.GetErrorName(result, &name);
        byhand_die("cu%s: %s (%d)", what, (name == NULL) ? "unknown" : name,
                   (int)result);
    }
}

/* ------------------------------------------------------------- command line */

static size_t byhand_number(const char *option, const char *text, size_t min,
                            size_t max)
{
    const char *units = "KMG", *unit;
    unsigned long long value;
    int shift = 0;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    unit  = (*end == '\0') ? NULL : strchr(units, *end);
    if (unit != NULL) {
        shift = 10 * (unit - units + 1);
        ++end;
    }
    if ((*text < '0') || (*text > '9') || (*end != '\0') || (errno != 0) ||
        (value > (max >> shift)) || (value << shift < min)) {
        byhand_die("--%s: '%s' is no number or size from %zu to %zu", option,
                   text, min, max);
    }
    return value << shift;
}

static size_t byhand_word(const char *option, const char *text,
                          const char *const *words)
{
    size_t i;

    for (i = 0; words[i] != NULL; ++i) {
        if (!strcmp(words[i], text)) {
            return i;
        }
    }
    byhand_die("--%s: '%s' is not known; see --help", option, text);
}

static void byhand_sizes(const char *text)
{
    char *copy = strdup(text);
    char *word, *rest, *colon;
    size_t size, last;

    num_sizes = 0;
    for (rest = copy; (word = strsep(&rest, ",")) != NULL;) {
        colon = strchr(word, ':');
        if (colon != NULL) {
            *colon++ = '\0';
        }
        size = byhand_number("sizes", word, 8, program->max_size);
        last = (colon == NULL) ? size :
                                 byhand_number("sizes", colon, size,
                                               program->max_size);
        for (; size <= last; size *= 2) {
            if ((num_sizes == BYHAND_MAX_SIZES) || (size % 8 != 0)) {
                byhand_die("--sizes: '%s': up to %d sizes, multiples of 8",
                           text, BYHAND_MAX_SIZES);
            }
            sizes[num_sizes++] = size;
        }
    }
    free(copy);
}

static void byhand_help(const byhand_option_t *options)
{
    int i;

    printf("Usage: %s [options]\n%s\n\n", program->name, program->about);
    for (; options->name != NULL; ++options) {
        printf("  --%-12s %s", options->name, options->help);
        if (options->words == NULL) {
            printf(" (%zu)\n", *options->value);
            continue;
        }
        for (i = 0; options->words[i] != NULL; ++i) {
            printf("%s%s", (i == 0) ? ": " : ", ", options->words[i]);
        }
        printf(" (%s)\n", options->words[*options->value]);
    }
    printf("  --sizes LIST   SIZE or MIN:MAX (powers of two), with commas "
           "(%s)\n"
           "  --json FILE    one JSON object a line a size; - is standard "
           "output\n\n"
           "One process, bare calls of the driver. GB/s are 10^9 bytes a "
           "second; exit\nstatus 1: wrong bytes.\n", program->sizes);
    exit(0);
}

static void byhand_parse(int argc, char **argv)
{
    byhand_option_t all[BYHAND_MAX_OPTIONS + 4] = {
        {"gpus", "GPUs of the node to take, 0 for all", &num_gpus, 0,
         BYHAND_MAX_GPUS, NULL},
        {"samples", "samples a size", &num_samples, 1, BYHAND_MAX_SAMPLES,
         NULL},
        {"time", "milliseconds that a sample is to take", &sample_ms, 1, 10000,
         NULL}};
    struct option longopts[BYHAND_MAX_OPTIONS + 8] = {
        {"sizes", required_argument, NULL, 's'},
        {"json", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'}};
    const byhand_option_t *option;
    int c, count = 3, i;

    for (option = program->options; option->name != NULL; ++option) {
        all[count++] = *option;
    }
    for (i = 0; i < count; ++i) {
        longopts[3 + i] = (struct option){all[i].name, required_argument, NULL,
                                          256 + i};
    }
    byhand_sizes(program->sizes);
    while ((c = getopt_long(argc, argv, "h", longopts, NULL)) != -1) {
        if (c >= 256) {
            option         = &all[c - 256];
            *option->value = (option->words != NULL) ?
                                     byhand_word(option->name, optarg,
                                                 option->words) :
                                     byhand_number(option->name, optarg,
                                                   option->min, option->max);
        } else if (c == 's') {
            byhand_sizes(optarg);
        } else if (c == 'j') {
            json = !strcmp(optarg, "-") ? stdout : fopen(optarg, "w");
            if (json == NULL) {
                byhand_die("--json: cannot write %s: %s", optarg,
                           strerror(errno));
            }
        } else if (c == 'h') {
            byhand_help(all);
        } else {
            exit(2); /* getopt has printed the error */
        }
    }
    if (optind != argc) {
        byhand_die("'%s' is not an option", argv[optind]);
    }
}

/* --------------------------------------------------------------------- GPUs */

static void byhand_load(void)
{
#define BYHAND_SYMBOL(_name, _symbol, _args) {_symbol, (void**)&cu._name},
    const struct {
        const char *name;
        void       **address_p;
    } symbols[] = {BYHAND_DRIVER(BYHAND_SYMBOL)};
    void *lib   = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    size_t i;

    if (lib == NULL) {
        byhand_die("no CUDA driver: %s", dlerror());
    }
    for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); ++i) {
        *symbols[i].address_p = dlsym(lib, symbols[i].name);
        if (*symbols[i].address_p == NULL) {
            byhand_die("the CUDA driver has no %s", symbols[i].name);
        }
    }
    is_emulated           = (dlsym(lib, "cuemu_drift") != NULL);
    *(void**)&batch_async = dlsym(lib, "cuMemcpyBatchAsync");
}

void byhand_begin_apart(int argc, char **argv,
                        const byhand_program_t *this_program, int least)
{
    int i;

    program = this_program;
    byhand_parse(argc, argv);
    byhand_load();
    CU(Init(0));
    CU(DeviceGetCount(&byhand_gpus));
    if (byhand_gpus < least) {
        byhand_die("needs %d GPUs, and there are %d", least, byhand_gpus);
    }
    if (num_gpus > (size_t)byhand_gpus) {
        byhand_die("--gpus: there are %d", byhand_gpus);
    }
    if ((num_gpus > 0) && (num_gpus < (size_t)least)) {
        byhand_die("--gpus: %d at least", least);
    }
    byhand_gpus = (num_gpus > 0) ? (int)num_gpus : byhand_gpus;
    if (byhand_gpus > BYHAND_MAX_GPUS) {
        byhand_gpus = BYHAND_MAX_GPUS;
    }

    for (i = 0; i < byhand_gpus; ++i) {
        CU(DevicePrimaryCtxRetain(&byhand_contexts[i], i));
    }
}

void byhand_begin(int argc, char **argv, const byhand_program_t *this_program,
                  int least)
{
    int i, k, can;

    byhand_begin_apart(argc, argv, this_program, least);
    for (i = 0; i < byhand_gpus; ++i) {
        byhand_on(i);
        for (k = 0; k < byhand_gpus; ++k) {
            if (k == i) {
                continue;
            }
            CU(DeviceCanAccessPeer(&can, i, k));
            if (!can) {
                byhand_die("GPU %d cannot reach the memory of GPU %d", i, k);
            }
            CU(CtxEnablePeerAccess(byhand_contexts[k], 0));
        }
    }
}

void byhand_on(int gpu)
{
    CU(CtxSetCurrent(byhand_contexts[gpu]));
}

CUdeviceptr byhand_gpu_memory(int gpu, size_t size)
{
    CUdeviceptr address;

    byhand_on(gpu);
    CU(MemAlloc(&address, size));
    return address;
}

void *byhand_host_memory(size_t size)
{
    void *address;

    byhand_on(0);
    CU(MemHostAlloc(&address, size, CU_MEMHOSTALLOC_PORTABLE));
    return address;
}

CUstream byhand_stream(int gpu)
{
    CUstream stream;

    byhand_on(gpu);
    CU(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CUevent byhand_event(int gpu)
{
    CUevent event;

    byhand_on(gpu);
    CU(EventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

void byhand_copy_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,
                       size_t count, CUstream stream)
{
    byhand_copy_attributes_t as_in_stream = {.access_order = 1};
    size_t first                          = 0;
    size_t failed;

    if (batch_async == NULL) {
        byhand_die("the CUDA driver has no cuMemcpyBatchAsync, as those before "
                   "12.8");
    }
    byhand_check(batch_async(to, from, sizes, count, &as_in_stream, &first, 1,
                             &failed, stream),
                 "MemcpyBatchAsync");
}

int byhand_holds(CUdeviceptr memory, const void *bytes, size_t size)
{
    void *got = malloc(size);
    int right;

    if (got == NULL) {
        byhand_die("out of memory");
    }
    CU(MemcpyDtoH(got, memory, size));
    right = (memcmp(got, bytes, size) == 0);
    free(got);
    return right;
}

/* -------------------------------------------------------------- measurement */

size_t byhand_max_size(void)
{
    size_t max = 0;
    int i;

    for (i = 0; i < num_sizes; ++i) {
        max = (sizes[i] > max) ? sizes[i] : max;
    }
    return max;
}

unsigned byhand_element(size_t index, int source)
{
    uint32_t x = (uint32_t)index * 2654435761u + source * 0x9e3779b9u;

    x ^= x >> 16;
    x *= 0x7feb352du;
    return (x ^ (x >> 15)) & 4095;
}

double byhand_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Seconds of a call */
static double byhand_sample(void (*once)(size_t), size_t size, size_t calls)
{
    double start = byhand_now();
    size_t i;

    for (i = 0; i < calls; ++i) {
        once(size);
    }
    return (byhand_now() - start) / calls;
}

static int byhand_compare(const void *a, const void *b)
{
    double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

double byhand_median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), byhand_compare);
    return values[count / 2];
}

static void byhand_measure(const char *label, double factor, size_t size,
                           int right, void (*once)(size_t))
{
    double samples[BYHAND_MAX_SAMPLES], least = 1e9, median;
    size_t i, calls;

    for (i = 0; i < 3; ++i) {
        samples[0] = byhand_sample(once, size, 1);
        least      = (samples[0] < least) ? samples[0] : least;
    }
    calls = (least * 1e3 * BYHAND_MAX_CALLS < sample_ms) ?
                    BYHAND_MAX_CALLS :
                    1 + (size_t)(sample_ms * 1e-3 / least);
    if (json != NULL) {
        fprintf(json, "{\"program\": \"%s\", \"label\": \"%s\", \"size\": %zu, "
                "\"gpus\": %d, \"calls\": %zu, \"right\": %s, \"modelled\": "
                "%s, \"seconds\": [", program->name, label, size, byhand_gpus,
                calls, right ? "true" : "false",
                is_emulated ? "true" : "false");
    }
    for (i = 0; i < num_samples; ++i) {
        byhand_sample(once, size, 1 + calls / 10); /* warms up */
        samples[i] = byhand_sample(once, size, calls);
        if (json != NULL) {
            fprintf(json, "%s%.9g", (i == 0) ? "" : ", ", samples[i]);
        }
    }
    if (json != NULL) {
        fprintf(json, "]}\n");
        fflush(json);
    }

    qsort(samples, num_samples, sizeof(double), byhand_compare);
    median = (samples[num_samples / 2] + samples[(num_samples - 1) / 2]) / 2;
    if (json != stdout) {
        printf("%12zu %12.2f %12.2f %12.2f %10.2f  %s\n", size, median * 1e6,
               samples[0] * 1e6, samples[num_samples - 1] * 1e6,
               factor * size / median * 1e-9, right ? "right" : "WRONG");
        fflush(stdout);
    }
}

int byhand_run(const char *label, double factor, void (*prepare)(size_t size),
               void (*once)(size_t size), int (*is_right)(size_t size))
{
    int i, right, status = 0;
    char name[128];

    CU(DeviceGetName(name, sizeof(name), 0));
    if (json != stdout) {
        printf("# %s: %s, %d x %s, %s\n%12s %12s %12s %12s %10s\n",
               program->name, label, byhand_gpus, name,
               is_emulated ? "modelled (emulated node)" : "measured",
               "bytes", "us", "min", "max", "GB/s");
    }
    for (i = 0; i < num_sizes; ++i) {
        prepare(sizes[i]);
        once(sizes[i]);
        right = is_right(sizes[i]);
        byhand_measure(label, factor, sizes[i], right, once);
        status |= !right;
    }
    return status;
}
