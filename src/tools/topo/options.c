/* SPDX-License-Identifier: BSD-3-Clause */
/* Read the command line. */
#include "tool.h"

#include <uct/cuda/base/number.h>

#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>


static const char *help_text =
"usage: ucx_mp_topo [options]\n"
"       ucx_mp_topo --plan SRC DST SIZE [options]\n"
"       ucx_mp_topo --plan COLLECTIVE SIZE [GPU,GPU...] [options]\n"
"\n"
"Shows how the GPUs of this node are connected, and how the module would\n"
"split a message or a collective between them. Bandwidths are those of one\n"
"copy, in GB/s (10^9 bytes/s).\n"
"\n"
"examples:\n"
"  ucx_mp_topo                    matrix of this node's GPUs\n"
"  ucx_mp_topo --plan 0 1 256M    paths of a message of 256 MiB, GPU 0 to 1\n"
"  ucx_mp_run --emulate beluga ucx_mp_topo\n"
"                                 the same without GPUs: an emulated node\n"
"\n"
"output, one of:\n"
"  --text       matrix like that of nvidia-smi topo -m, with GB/s, and the\n"
"               cores, memory and RDMA NICs near each GPU (default)\n"
"  --xml        topology file in NCCL's format; run programs on a node like\n"
"               this one with ucx_mp_run --emulate FILE\n"
"  --json       all data found, and the links and limits used by the planner\n"
"  --time       seconds that each part of the search for GPUs and links takes\n"
"\n"
"options:\n"
"  --svg FILE   also draw a picture of the node, and of the plan with --plan\n"
"  --plan SRC DST SIZE\n"
"               plan a message of SIZE bytes (suffix K, M or G: powers of\n"
"               1024) from GPU SRC to GPU DST. One may be \"host\":\n"
"               page-locked memory of the other one's NUMA node. Prints the\n"
"               paths, shares, chunks, the expected time, and that of other\n"
"               sets of paths. Respects UCX_CUDA_IPC_MULTIPATH* variables\n"
"  --plan COLLECTIVE SIZE [GPU,GPU...]\n"
"               plan a collective with one rank per GPU, on all GPUs or those\n"
"               listed: allreduce (in place), reduce, bcast (root 0),\n"
"               reduce_scatter, allgather, gather, scatter or alltoall. SIZE:\n"
"               bytes of all blocks together. Prints the algorithm, chunks,\n"
"               relay GPUs, the expected time, that of other plans, and the\n"
"               limit set by the links. Respects\n"
"               UCX_CUDA_IPC_COLLECTIVES_MULTIPATH and _ALGORITHM\n"
"  --steps      with --plan: also list every copy and kernel\n"
"  --verbose    print to stderr which data could not be found\n"
"  --version    print the version\n"
"  --help       print this text\n"
"\n"
"Exit status: 0 success; 1 no GPU, or a file cannot be written; 2 wrong\n"
"argument or variable.\n";


static void usage_error(const char *format, const char *what)
{
    fflush(stdout);
    fprintf(stderr, "ucx_mp_topo: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "; see ucx_mp_topo --help\n");
    exit(UCX_MP_TOOL_USAGE);
}

/* Read a GPU's number, or "host". */
static uct_cuda_end_t read_end(const char *name, const char *text)
{
    const char *digits = (strncmp(text, "gpu", 3) == 0) ? text + 3 : text;
    char *end;
    long value;

    if (strcmp(text, "host") == 0) {
        return uct_cuda_end_host();
    }

    value = strtol(digits, &end, 10);
    if (!isdigit((unsigned char)digits[0]) || (*end != '\0') || (value < 0) ||
        (value >= UCT_CUDA_MAX_GPUS)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        "--plan: %s '%s' is not a GPU; expected a number from "
                        "0, or host",
                        name, text);
    }

    return uct_cuda_end_gpu((int)value);
}

static size_t read_size(const char *text)
{
    size_t size;

    if (!uct_cuda_size_parse(text, NULL, &size) || (size < 1) ||
        (size > 1000000000000000ul)) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        "--plan: SIZE '%s' is not a size; expected bytes from "
                        "1 on, such as 4096, 64K, 256M or 1G",
                        text);
    }

    return size;
}

void ucx_mp_topo_options_read(int argc, char **argv,
                              ucx_mp_topo_options_t *options)
{
    static int format;
    static const struct option known[] = {
        {"text", no_argument, &format, UCX_MP_TOPO_TEXT},
        {"xml", no_argument, &format, UCX_MP_TOPO_XML},
        {"json", no_argument, &format, UCX_MP_TOPO_JSON},
        {"svg", required_argument, NULL, 's'},
        {"time", no_argument, &format, UCX_MP_TOPO_TIME},
        {"plan", no_argument, NULL, 'p'},
        {"steps", no_argument, NULL, 'e'},
        {"verbose", no_argument, NULL, 'v'},
        {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}
    };
    int formats = 0;
    int option;

    memset(options, 0, sizeof(*options));
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":vh", known, NULL)) != -1) {
        switch (option) {
        case 0:
            options->format = (ucx_mp_topo_format_t)format;
            ++formats;
            break;
        case 's':
            options->svg = optarg;
            break;
        case 'p':
            options->plan = true;
            break;
        case 'e':
            options->steps = true;
            break;
        case 'v':
            options->verbose = true;
            break;
        case 'V':
            printf("ucx_mp_topo %s\n", PACKAGE_VERSION);
            exit(UCX_MP_TOOL_OK);
        case 'h':
            fputs(help_text, stdout);
            exit(UCX_MP_TOOL_OK);
        case ':':
            usage_error("%s needs an argument", argv[optind - 1]);
            break;
        default:
            usage_error("'%s' is not an option, or takes no argument",
                        argv[optind - 1]);
        }
    }

    if (formats > 1) {
        usage_error("use only one of %s", "--text, --xml, --json and --time");
    }

    if (options->plan && (options->format != UCX_MP_TOPO_TEXT) &&
        (options->format != UCX_MP_TOPO_JSON)) {
        usage_error("%s cannot show a plan",
                    (options->format == UCX_MP_TOPO_XML) ? "--xml" : "--time");
    }

    if (!options->plan) {
        if (optind < argc) {
            usage_error("'%s' is not an option", argv[optind]);
        }
        if (options->steps) {
            usage_error("%s needs --plan", "--steps");
        }
        return;
    }

    options->kind = (optind < argc) ?
                            uct_cuda_coll_kind_find(argv[optind]) :
                            -1;
    if (options->kind >= 0) {
        options->collective = argv[optind];
        if ((argc - optind < 2) || (argc - optind > 3)) {
            usage_error("--plan %s takes SIZE and optionally GPUs",
                        options->collective);
        }
        options->size = read_size(argv[optind + 1]);
        options->gpus = argv[optind + 2];
        return;
    }

    if (argc - optind != 3) {
        usage_error("%s takes three arguments: SRC DST SIZE", "--plan");
    }

    options->src  = read_end("SRC", argv[optind]);
    options->dst  = read_end("DST", argv[optind + 1]);
    options->size = read_size(argv[optind + 2]);
}
