/* SPDX-License-Identifier: BSD-3-Clause */
/* Read the command line. */
#include "tool.h"

#include <uct/cuda/base/size.h>

#include <ctype.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>


static const char *help_text =
"usage: ucx_mp_topo [options]\n"
"       ucx_mp_topo --plan SRC DST SIZE [options]\n"
"       ucx_mp_topo --plan COLLECTIVE SIZE [options]\n"
"\n"
"Shows how this node's GPUs are wired, as GB/s (10^9 bytes/s) that one copy\n"
"gets, and which plan a message between two of them would get.\n"
"\n"
"what is printed:\n"
"  --text       a matrix as of nvidia-smi topo -m, with GB/s (the default),\n"
"               and the cores, memory and RDMA NICs near each GPU\n"
"  --xml        the node as NCCL writes it. ucx_mp_topo --xml > mynode.xml,\n"
"               and ucx_mp_run --emulate mynode.xml ... runs on its like\n"
"  --json       everything that was found out, and the links and limits that\n"
"               the planner sees\n"
"  --time       what the parts of a process's probe take\n"
"and in addition:\n"
"  --svg FILE   a picture, with --plan that plan's paths in it\n"
"\n"
"  --plan SRC DST SIZE\n"
"               the plan of a message of SIZE bytes (64K, 256M, 1G) from GPU\n"
"               SRC to GPU DST: paths, shares, chunks, the model's time, and\n"
"               what other sets of paths would take. One of them may be\n"
"               \"host\": page-locked memory of its NUMA node.\n"
"               UCX_CUDA_IPC_MULTIPATH* variables count as in a program\n"
"  --plan COLLECTIVE SIZE [GPU,GPU...]\n"
"               the plan of an MPI_Allreduce of SIZE bytes in place, a rank a\n"
"               GPU, or on these GPUs: algorithm, chunks, other GPUs that\n"
"               copies go over, the model's time, what other plans would\n"
"               take, and what the links allow. COLLECTIVE: allreduce,\n"
"               reduce, bcast (root 0), reduce_scatter, allgather, gather,\n"
"               scatter, alltoall; of these, SIZE is of all blocks.\n"
"               UCX_CUDA_IPC_COLLECTIVES_MULTIPATH and _ALGORITHM count as in\n"
"               a program\n"
"  --steps      with --plan: every single copy and kernel\n"
"\n"
"  --verbose    what could not be found out, on standard error\n"
"  --version, --help\n"
"\n"
"No GPU at hand: ucx_mp_run --emulate beluga ucx_mp_topo\n"
"Exit code: 0; 1 no GPU, or a file that cannot be written; 2 a wrong argument\n"
"or variable.\n";


void ucx_mp_topo_die(int code, const char *format, ...)
{
    va_list ap;

    fflush(stdout);
    fprintf(stderr, "ucx_mp_topo: ");
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    exit(code);
}

static void usage_error(const char *format, const char *what)
{
    fflush(stdout);
    fprintf(stderr, "ucx_mp_topo: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "; see ucx_mp_topo --help\n");
    exit(UCX_MP_TOPO_USAGE);
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
        ucx_mp_topo_die(UCX_MP_TOPO_USAGE,
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
        ucx_mp_topo_die(UCX_MP_TOPO_USAGE,
                        "--plan: SIZE '%s' is not a size; expected bytes from "
                        "1 on, such as 4096, 64K, 256M or 1G",
                        text);
    }

    return size;
}

void ucx_mp_topo_options_read(int argc, char **argv,
                              ucx_mp_topo_options_t *options)
{
    enum {
        OPTION_TEXT = 256,
        OPTION_XML,
        OPTION_JSON,
        OPTION_SVG,
        OPTION_TIME,
        OPTION_PLAN,
        OPTION_STEPS,
        OPTION_VERSION
    };
    static const struct option known[] = {
        {"text", no_argument, NULL, OPTION_TEXT},
        {"xml", no_argument, NULL, OPTION_XML},
        {"json", no_argument, NULL, OPTION_JSON},
        {"svg", required_argument, NULL, OPTION_SVG},
        {"time", no_argument, NULL, OPTION_TIME},
        {"plan", no_argument, NULL, OPTION_PLAN},
        {"steps", no_argument, NULL, OPTION_STEPS},
        {"verbose", no_argument, NULL, 'v'},
        {"version", no_argument, NULL, OPTION_VERSION},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}
    };
    int formats = 0;
    int option;

    memset(options, 0, sizeof(*options));
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":vh", known, NULL)) != -1) {
        switch (option) {
        case OPTION_TEXT:
            options->format = UCX_MP_TOPO_TEXT;
            ++formats;
            break;
        case OPTION_XML:
            options->format = UCX_MP_TOPO_XML;
            ++formats;
            break;
        case OPTION_JSON:
            options->format = UCX_MP_TOPO_JSON;
            ++formats;
            break;
        case OPTION_SVG:
            options->svg = optarg;
            break;
        case OPTION_TIME:
            options->format = UCX_MP_TOPO_TIME;
            ++formats;
            break;
        case OPTION_PLAN:
            options->plan = true;
            break;
        case OPTION_STEPS:
            options->steps = true;
            break;
        case 'v':
            options->verbose = true;
            break;
        case OPTION_VERSION:
            printf("ucx_mp_topo %s\n", PACKAGE_VERSION);
            exit(UCX_MP_TOPO_OK);
        case 'h':
            fputs(help_text, stdout);
            exit(UCX_MP_TOPO_OK);
        case ':':
            usage_error("%s needs an argument", argv[optind - 1]);
            break;
        default:
            usage_error("'%s' is not an option, or takes no argument",
                        argv[optind - 1]);
        }
    }

    if (formats > 1) {
        usage_error("use only one of %s",
                    "--text, --xml, --json and --time");
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
            usage_error("%s is for --plan", "--steps");
        }
        return;
    }

    options->kind = (optind < argc) ?
                            uct_cuda_plan_coll_kind_find(argv[optind]) :
                            -1;
    if (options->kind >= 0) {
        options->collective = argv[optind];
        if ((argc - optind < 2) || (argc - optind > 3)) {
            usage_error("--plan %s takes SIZE, and maybe GPUs",
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
