/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line. */
#include "tool.h"

#include <uct/cuda/base/size.h>

#include <ctype.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>


static const char *help_text =
"usage: ucx_mp_perf [links] [calls] [graph] [matrix] [blocks] [options]\n"
"\n"
"Measures what the planner of messages assumes of this node. Without a word\n"
"the first three, else:\n"
"  links        GB/s (10^9 bytes/s) of each link: host and GPU, page-locked\n"
"               and pageable; pairs of GPUs one and both ways; over relays\n"
"               and over the host in chunks; sets of paths at the same time\n"
"  calls        processor time of driver calls, and of opening the memory of\n"
"               another process\n"
"  graph        life of a CUDA graph of one message's copies: create,\n"
"               construct, instantiate, first launch, launch, update and\n"
"               launch, beside the same copies by streams\n"
"  matrix       all pairs of GPUs: one way, both ways (the last of --sizes),\n"
"               and latency (8 bytes)\n"
"  blocks       64 MiB (--quick 8) in blocks that lie apart, between\n"
"               page-locked memory and a GPU, on it, and to another one: by a\n"
"               copy each, by batches of 128, by the module's kernel; --sizes\n"
"               are those of a block then (4K,16K,32K,64K,128K,1M; --quick\n"
"               4K,64K)\n"
"\n"
"  --quick          few repeats and one size, done in half a minute\n"
"  --sizes LIST     bytes of a copy, by commas (1M,16M,256M; --quick 64M)\n"
"  --nodes LIST     copies in a graph, by commas (1,2,4,8,16,32,64)\n"
"  --src GPU, --dst GPU\n"
"                   of what is measured for one pair only (0, 1)\n"
"  --repeats N      measurements of each figure (20; --quick 5)\n"
"  --json FILE      every figure as a JSON object\n"
"  --plot FILE      the matrices as a picture (SVG)\n"
"  --calibrate FILE instead of all this: the planner's constants for this\n"
"                   node, from messages of two MPI processes, as a table\n"
"                   (ucx_mp_tune --calibrate)\n"
"  --help, --version\n"
"\n"
"A figure is the median, with the smallest and the largest. No GPU at hand:\n"
"ucx_mp_run --emulate beluga ucx_mp_perf --quick\n"
"Exit code: 0; 1 no GPU, a failed driver call or a file that cannot be\n"
"written; 2 a wrong argument.\n";


void ucx_mp_perf_die(int code, const char *format, ...)
{
    va_list ap;

    fflush(stdout);
    fprintf(stderr, "ucx_mp_perf: ");
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    exit(code);
}

static unsigned long read_number(const char *option, const char *text,
                                 unsigned long least, unsigned long most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (!isdigit((unsigned char)text[0]) || (*end != '\0') ||
        (value < least) || (value > most)) {
        ucx_mp_perf_die(UCX_MP_PERF_USAGE,
                        "%s '%s' is not a number from %lu to %lu; see --help",
                        option, text, least, most);
    }

    return value;
}

static size_t read_size(const char *text)
{
    size_t size;

    if (!uct_cuda_size_parse(text, NULL, &size) || (size < 4096) ||
        (size > (4ul << 30))) {
        ucx_mp_perf_die(UCX_MP_PERF_USAGE,
                        "--sizes '%s' is not a size from 4K to 4G; see --help",
                        text);
    }

    return size;
}

/* Call read() for each item of a comma-separated list. */
static unsigned read_list(const char *option, const char *text,
                          void (*read)(const char *item, unsigned place,
                                       ucx_mp_perf_options_t *options),
                          ucx_mp_perf_options_t *options)
{
    unsigned count = 0;
    char *copy     = strdup(text);
    char *rest     = copy;
    char *item;

    while ((item = strsep(&rest, ",")) != NULL) {
        if (count == UCX_MP_PERF_MAX_LIST) {
            ucx_mp_perf_die(UCX_MP_PERF_USAGE, "%s: more than %d values",
                            option, UCX_MP_PERF_MAX_LIST);
        }
        read(item, count++, options);
    }

    free(copy);
    return count;
}

static void read_list_size(const char *item, unsigned place,
                           ucx_mp_perf_options_t *options)
{
    options->sizes[place] = read_size(item);
}

static void read_list_nodes(const char *item, unsigned place,
                            ucx_mp_perf_options_t *options)
{
    options->nodes[place] = (unsigned)read_number("--nodes", item, 1, 512);
}

static void read_words(int count, char **words, ucx_mp_perf_options_t *options)
{
    int i;

    for (i = 0; i < count; ++i) {
        if (strcmp(words[i], "links") == 0) {
            options->links = true;
        } else if (strcmp(words[i], "calls") == 0) {
            options->calls = true;
        } else if (strcmp(words[i], "graph") == 0) {
            options->graph = true;
        } else if (strcmp(words[i], "matrix") == 0) {
            options->matrix = true;
        } else if (strcmp(words[i], "blocks") == 0) {
            options->blocks = true;
        } else {
            ucx_mp_perf_die(UCX_MP_PERF_USAGE,
                            "'%s' is unknown; measure links, calls, graph, "
                            "matrix or blocks",
                            words[i]);
        }
    }

    if (count == 0) {
        options->links = options->calls = options->graph = true;
    }
}

void ucx_mp_perf_options_read(int argc, char **argv,
                              ucx_mp_perf_options_t *options)
{
    enum {
        OPTION_QUICK = 256,
        OPTION_SIZES,
        OPTION_NODES,
        OPTION_SRC,
        OPTION_DST,
        OPTION_REPEATS,
        OPTION_JSON,
        OPTION_PLOT,
        OPTION_CALIBRATE,
        OPTION_VERSION
    };
    static const struct option known[] = {
        {"quick", no_argument, NULL, OPTION_QUICK},
        {"sizes", required_argument, NULL, OPTION_SIZES},
        {"nodes", required_argument, NULL, OPTION_NODES},
        {"src", required_argument, NULL, OPTION_SRC},
        {"dst", required_argument, NULL, OPTION_DST},
        {"repeats", required_argument, NULL, OPTION_REPEATS},
        {"json", required_argument, NULL, OPTION_JSON},
        {"plot", required_argument, NULL, OPTION_PLOT},
        {"calibrate", required_argument, NULL, OPTION_CALIBRATE},
        {"version", no_argument, NULL, OPTION_VERSION},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}
    };
    const char *sizes = NULL;
    const char *nodes = "1,2,4,8,16,32,64";
    int option;

    memset(options, 0, sizeof(*options));
    options->dst = 1;
    opterr       = 0;
    while ((option = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
        switch (option) {
        case OPTION_QUICK:
            options->quick = true;
            break;
        case OPTION_SIZES:
            sizes = optarg;
            break;
        case OPTION_NODES:
            nodes = optarg;
            break;
        case OPTION_SRC:
            options->src = (int)read_number("--src", optarg, 0,
                                            UCT_CUDA_MAX_GPUS - 1);
            break;
        case OPTION_DST:
            options->dst = (int)read_number("--dst", optarg, 0,
                                            UCT_CUDA_MAX_GPUS - 1);
            break;
        case OPTION_REPEATS:
            options->repeats = (unsigned)read_number("--repeats", optarg, 3,
                                                     UCX_MP_PERF_MAX_REPEATS);
            break;
        case OPTION_JSON:
            options->json = optarg;
            break;
        case OPTION_PLOT:
            options->plot = optarg;
            break;
        case OPTION_CALIBRATE:
            options->calibrate = optarg;
            break;
        case OPTION_VERSION:
            puts("ucx_mp_perf " PACKAGE_VERSION);
            exit(UCX_MP_PERF_OK);
        case 'h':
            fputs(help_text, stdout);
            exit(UCX_MP_PERF_OK);
        case ':':
            ucx_mp_perf_die(UCX_MP_PERF_USAGE, "%s needs a value; see --help",
                            argv[optind - 1]);
        default:
            ucx_mp_perf_die(UCX_MP_PERF_USAGE,
                            "'%s' is not an option; see --help",
                            argv[optind - 1]);
        }
    }

    read_words(argc - optind, argv + optind, options);
    if (options->blocks && (options->links || options->matrix)) {
        ucx_mp_perf_die(UCX_MP_PERF_USAGE, "blocks have other sizes than links "
                                           "and matrix: ask for them alone");
    }
    if ((options->plot != NULL) && !options->matrix) {
        ucx_mp_perf_die(UCX_MP_PERF_USAGE,
                        "--plot needs the matrices: ucx_mp_perf matrix --plot "
                        "%s", options->plot);
    }
    if (sizes == NULL) {
        sizes = options->blocks ?
                        (options->quick ? "4K,64K" :
                                          "4K,16K,32K,64K,128K,1M") :
                        (options->quick ? "64M" : "1M,16M,256M");
    }

    if (options->repeats == 0) {
        options->repeats = options->quick ? 5 : 20;
    }

    options->num_sizes = read_list("--sizes", sizes, read_list_size, options);
    options->num_nodes = read_list("--nodes", nodes, read_list_nodes, options);
}
