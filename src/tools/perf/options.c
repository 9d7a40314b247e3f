/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line. */
#include "tool.h"

#include <uct/cuda/base/number.h>

#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>


static const char *help_text =
"usage: ucx_mp_perf [links] [calls] [graph] [matrix] [blocks] [options]\n"
"\n"
"Measures bandwidths and costs of this node's GPUs, to compare with the\n"
"planner's assumptions. Bandwidths are in GB/s (10^9 bytes/s). Each figure is\n"
"a median, printed with the minimum and the maximum.\n"
"\n"
"examples:\n"
"  ucx_mp_perf --quick            links, calls and graphs in half a minute\n"
"  ucx_mp_perf matrix             all pairs of GPUs\n"
"  ucx_mp_run --emulate beluga ucx_mp_perf --quick\n"
"                                 the same without GPUs: an emulated node\n"
"\n"
"measurements (default: links calls graph):\n"
"  links        bandwidth of each link: host and GPU, with page-locked and\n"
"               pageable memory, both ways, with memory of another NUMA\n"
"               node; pairs of GPUs, one way and both ways, without access to\n"
"               each other's memory; all GPUs at once; in chunks through\n"
"               relay GPUs and host memory; several paths at the same time\n"
"  calls        processor time of driver calls, and of opening another\n"
"               process's memory\n"
"  graph        times of a CUDA graph with the copies of one message: create,\n"
"               construct, instantiate, first launch, launch, update and\n"
"               launch; and the same copies in streams\n"
"  matrix       all pairs of GPUs: bandwidth one way and both ways (with the\n"
"               last of --sizes), latency (8 bytes)\n"
"  blocks       64 MiB (--quick: 8 MiB) in separate blocks, between\n"
"               page-locked memory and a GPU, within a GPU, and between GPUs:\n"
"               with a copy for each, in batches of 128, and by the module's\n"
"               copy kernel\n"
"\n"
"options:\n"
"  --quick          fewer repeats and one size\n"
"  --sizes LIST     bytes of a copy, 4K to 4G, separated by commas (default:\n"
"                   1M,16M,256M; --quick: 64M); with blocks: bytes of a block\n"
"                   (default: 4K,16K,32K,64K,128K,1M; --quick: 4K,64K)\n"
"  --nodes LIST     copies in a graph (default: 1,2,4,8,16,32,64)\n"
"  --src GPU        source GPU where one pair is measured (default: 0)\n"
"  --dst GPU        target GPU where one pair is measured (default: 1)\n"
"  --repeats N      repeats of each measurement (default: 20; --quick: 5)\n"
"  --deviation P    repeat each measurement until the 95 % interval of its\n"
"                   median is within P %, 0.01 to 100, at most 1000 times\n"
"                   (graphs: the median of update and launch)\n"
"  --json FILE      also write all figures as one JSON object\n"
"  --plot FILE      also draw the matrices (SVG)\n"
"  --calibrate FILE only measure the planner's constants for this node, with\n"
"                   messages between two MPI processes, and write a tuning\n"
"                   table (runs ucx_mp_tune --calibrate)\n"
"  --help           print this text\n"
"  --version        print the version\n"
"\n"
"Exit status: 0 success; 1 no GPU, a failed driver call, or a file cannot be\n"
"written; 2 wrong argument.\n";


static unsigned long read_number(const char *option, const char *text,
                                 unsigned long least, unsigned long most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (!isdigit((unsigned char)text[0]) || (*end != '\0') ||
        (value < least) || (value > most)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        "%s '%s' is not a number from %lu to %lu; see --help",
                        option, text, least, most);
    }

    return value;
}

static double read_percent(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (!isdigit((unsigned char)text[0]) || (*end != '\0') ||
        !(value >= 0.01) || (value > 100)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        "--deviation '%s' is not a number from 0.01 to 100; "
                        "see --help",
                        text);
    }

    return value;
}

static size_t read_size(const char *text)
{
    size_t size;

    if (!uct_cuda_size_parse(text, NULL, &size) || (size < 4096) ||
        (size > (4ul << 30))) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        "--sizes '%s' is not a size from 4K to 4G; see --help",
                        text);
    }

    return size;
}

static size_t read_nodes(const char *text)
{
    return read_number("--nodes", text, 1, 512);
}

/* Read each item of a comma-separated list. @return Their number. */
static unsigned read_list(const char *option, const char *text,
                          size_t (*read)(const char *item), size_t *values)
{
    unsigned count = 0;
    char *copy     = strdup(text);
    char *rest     = copy;
    char *item;

    while ((item = strsep(&rest, ",")) != NULL) {
        if (count == UCX_MP_PERF_MAX_LIST) {
            ucx_mp_tool_die(UCX_MP_TOOL_USAGE, "%s: more than %d values",
                            option, UCX_MP_PERF_MAX_LIST);
        }
        values[count++] = read(item);
    }

    free(copy);
    return count;
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
            ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
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
    static const struct option known[] = {
        {"quick", no_argument, NULL, 'q'},
        {"sizes", required_argument, NULL, 'z'},
        {"nodes", required_argument, NULL, 'n'},
        {"src", required_argument, NULL, 's'},
        {"dst", required_argument, NULL, 'd'},
        {"repeats", required_argument, NULL, 'r'},
        {"deviation", required_argument, NULL, 'v'},
        {"json", required_argument, NULL, 'j'},
        {"plot", required_argument, NULL, 'p'},
        {"calibrate", required_argument, NULL, 'c'},
        {"version", no_argument, NULL, 'V'},
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
        case 'q':
            options->quick = true;
            break;
        case 'z':
            sizes = optarg;
            break;
        case 'n':
            nodes = optarg;
            break;
        case 's':
            options->src = (int)read_number("--src", optarg, 0,
                                            UCT_CUDA_MAX_GPUS - 1);
            break;
        case 'd':
            options->dst = (int)read_number("--dst", optarg, 0,
                                            UCT_CUDA_MAX_GPUS - 1);
            break;
        case 'r':
            options->repeats = (unsigned)read_number("--repeats", optarg, 3,
                                                     UCX_MP_PERF_MAX_REPEATS);
            break;
        case 'v':
            options->deviation = read_percent(optarg) / 100;
            break;
        case 'j':
            options->json = optarg;
            break;
        case 'p':
            options->plot = optarg;
            break;
        case 'c':
            options->calibrate = optarg;
            break;
        case 'V':
            puts("ucx_mp_perf " PACKAGE_VERSION);
            exit(UCX_MP_TOOL_OK);
        case 'h':
            fputs(help_text, stdout);
            exit(UCX_MP_TOOL_OK);
        case ':':
            ucx_mp_tool_die(UCX_MP_TOOL_USAGE, "%s needs a value; see --help",
                            argv[optind - 1]);
        default:
            ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                            "'%s' is not an option; see --help",
                            argv[optind - 1]);
        }
    }

    read_words(argc - optind, argv + optind, options);
    if (options->blocks && (options->links || options->matrix)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE, "blocks has other sizes than links "
                                           "and matrix: measure it alone");
    }
    if ((options->plot != NULL) && !options->matrix) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
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

    options->num_sizes = read_list("--sizes", sizes, read_size, options->sizes);
    options->num_nodes = read_list("--nodes", nodes, read_nodes,
                                   options->nodes);
}
