/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mp_plan_time: time plans on an emulated node without the transport.
 * Prints one JSON line per transfer, for the module's plans or for those on
 * standard input.
 */
#include "play.h"

#include <common/common.h>

#include <uct/cuda/base/number.h>
#include <uct/cuda/plan/transfer_planner.h>
#include <uct/cuda/plan/transfer_steps.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>


#define MAX_CELLS 4096


const char ucx_mp_tool_name[] = "ucx_mp_plan_time";


typedef struct {
    size_t     min_size;
    size_t     max_size;
    unsigned   factor;
    int        src; /* -1: one pair of each class */
    int        dst;
    bool       is_asked; /* plans come from standard input */
} options_t;

typedef struct {
    int    src;
    int    dst;
    size_t size;
} test_case_t;

/* A transfer to plan. */
typedef struct {
    const uct_cuda_topo_t        *topo;
    /* Constants of the model */
    const uct_cuda_plan_tuning_t *table;
    ucx_mp_player_t              *player;
    int                          src;
    int                          dst;
    size_t                       size;    /* Bytes */
    uct_cuda_plan_t              plan;    /* Plan of the last piece; no paths:
                                               one plain copy */
} tune_t;


static void usage(FILE *stream)
{
    fprintf(stream,
            "Usage: ucx_mp_run --emulate NODE ucx_mp_plan_time [options]\n"
            "What the module's plans take on the emulated node's timing core. "
            "One JSON line a\ntransfer.\n\n"
            "  --sizes MIN:MAX  sizes, each a multiple of the one before "
            "(1m:512m)\n"
            "  --factor N       that multiple (2)\n"
            "  --pair SRC,DST   only from one GPU to another (one pair of each "
            "class)\n"
            "  --plans          instead of the module's plans, those that "
            "standard input asks\n                   for, a line each: SIZE "
            "PATHS SHARES CHUNKS GRAPH, all but the\n                   size "
            "as values of the variables. Prints the seconds of each,\n"
            "                   or \"-\" where the planner has no such plan. "
            "Needs --pair\n"
            "  --help           this text\n\n"
            "UCX_CUDA_IPC_MULTIPATH_* variables hold as they do in the "
            "module; plans go\nthrough streams, or with _GRAPH=y as graphs "
            "that are there. A plan is printed as\nthe values of "
            "UCX_CUDA_IPC_MULTIPATH_PATHS, _SHARES and _CHUNKS that force it,\n"
            "beside UCX_CUDA_IPC_MULTIPATH=y.\n");
}

static void parse_sizes(const char *text, options_t *options)
{
    const char *end = "?";
    bool is_size    = uct_cuda_size_parse(text, &end, &options->min_size);

    options->max_size = options->min_size;
    if (is_size && (*end == ':')) {
        is_size = uct_cuda_size_parse(end + 1, &end, &options->max_size);
    }

    if (!is_size || (*end != '\0') ||
        (options->min_size < UCT_CUDA_PLAN_ALIGN) ||
        (options->max_size < options->min_size) ||
        (options->max_size > (4ul << 30))) {
        ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                        "--sizes: '%s' is not MIN:MAX with 4k <= MIN <= MAX "
                        "<= 4g", text);
    }
}

static void options_read(int argc, char **argv, options_t *options)
{
    static const struct option names[] = {
        {"sizes", required_argument, NULL, 's'},
        {"factor", required_argument, NULL, 'f'},
        {"pair", required_argument, NULL, 'p'},
        {"plans", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}
    };
    char tail;
    int c;

    *options = (options_t){.min_size = 1ul << 20, .max_size = 512ul << 20,
                           .factor = 2, .src = -1, .dst = -1};
    while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        switch (c) {
        case 's':
            parse_sizes(optarg, options);
            break;
        case 'f':
            options->factor = (unsigned)atoi(optarg);
            if (options->factor < 2) {
                ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                                "--factor: '%s' is not a number from 2 on",
                                optarg);
            }
            break;
        case 'p':
            if (sscanf(optarg, "%d,%d%c", &options->src, &options->dst,
                       &tail) != 2) {
                ucx_mp_tool_die(UCX_MP_TOOL_USAGE,
                                "--pair: '%s' is not SRC,DST", optarg);
            }
            break;
        case 'l':
            options->is_asked = true;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }

    if ((optind < argc) || (options->is_asked && (options->src < 0))) {
        usage(stderr);
        exit(2);
    }
}

static bool is_first_of_class(const uct_cuda_plan_tuning_t *table, int from,
                              int to)
{
    int i, j;

    for (i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        for (j = 0; j < UCT_CUDA_MAX_GPUS; ++j) {
            if ((i == from) && (j == to)) {
                return true;
            }
            if ((i != j) && (table->class_of[i][j] ==
                             table->class_of[from][to])) {
                return false;
            }
        }
    }

    return false;
}

static unsigned list_cells(const uct_cuda_topo_t *topo,
                           const uct_cuda_plan_tuning_t *table,
                           const options_t *options, test_case_t *cells)
{
    unsigned count = 0;
    size_t size;
    int i, j;

    for (i = 0; i < topo->num_gpus; ++i) {
        for (j = 0; j < topo->num_gpus; ++j) {
            if ((i == j) || !(topo->links[i][j].bandwidth > 0) ||
                ((options->src >= 0) ?
                         ((i != options->src) || (j != options->dst)) :
                         !is_first_of_class(table, i, j))) {
                continue;
            }

            for (size = options->min_size;
                 (size <= options->max_size) && (count < MAX_CELLS);
                 size *= options->factor) {
                cells[count++] = (test_case_t){i, j, size};
            }
        }
    }

    return count;
}

/* Plan a transfer by a configuration and time it, piece by piece as the engine
 * does; with MULTIPATH_GRAPH=y as graphs, otherwise through streams. @return
 * Timed seconds. @param predicted_p  The model's */
static double play(tune_t *tune, const uct_cuda_plan_config_t *config,
                   double *predicted_p)
{
    const uct_cuda_plan_load_t idle      = {.is_known = true,
                                            .uncrossed  = UINT64_MAX};
    const uct_cuda_plan_knowledge_t know = {
        .topo = tune->topo, .config = config, .load = &idle,
        .tuning = tune->table
    };
    const uct_cuda_end_t src = uct_cuda_end_gpu(tune->src);
    const uct_cuda_end_t dst = uct_cuda_end_gpu(tune->dst);
    size_t piece             = uct_cuda_plan_piece_size(
            tune->size, uct_cuda_plan_max_size(config));
    size_t left           = tune->size;
    uct_cuda_plan_t *plan = &tune->plan;

    *predicted_p = 0;
    uct_cuda_plan_make(&know, src, dst, piece, plan);
    if (plan->num_paths == 0) {
        *predicted_p = plan->single_seconds * ((left + piece - 1) / piece);
        return ucx_mp_player_single(tune->player, tune->src, tune->dst,
                                    tune->size);
    }

    ucx_mp_player_begin(tune->player, config->graph == UCT_CUDA_PLAN_YES);
    while (left > 0) {
        piece = (left < piece) ? left : piece;
        if (piece != plan->size) {
            uct_cuda_plan_make(&know, src, dst, piece, plan);
            if (plan->num_paths == 0) {
                uct_cuda_plan_single(src, dst, uct_cuda_end_none(),
                                     piece, plan);
            }
        }

        ucx_mp_player_submit(tune->player, plan);
        *predicted_p += plan->seconds;
        left         -= piece;
    }

    return ucx_mp_player_finish(tune->player);
}

/* Print "paths": "direct,gpu2", "shares": "0.4000,0.6000", "chunks": "1,8" */
static void plan_print(const uct_cuda_plan_t *plan)
{
    char paths[256];
    unsigned i;

    if (plan->num_paths == 0) {
        printf("\"paths\": \"direct\", \"shares\": \"1.0000\", "
               "\"chunks\": \"1\"");
        return;
    }

    printf("\"paths\": \"%s\", \"shares\": \"",
           uct_cuda_plan_paths_str(plan, paths, sizeof(paths)));
    for (i = 0; i < plan->num_paths; ++i) {
        printf("%s%.4f", (i > 0) ? "," : "",
               (double)plan->paths[i].bytes / plan->size);
    }

    printf("\", \"chunks\": \"");
    for (i = 0; i < plan->num_paths; ++i) {
        printf("%s%u", (i > 0) ? "," : "",
               (plan->paths[i].slots > 0) ? plan->paths[i].chunks : 1);
    }
    printf("\"");
}

/* Time the module's own plan of a transfer. */
static void play_cell(const cuemu_node_t *node,
                      const uct_cuda_plan_config_t *config,
                      tune_t *tune)
{
    const uct_cuda_plan_tuning_t *table = tune->table;
    double predicted;
    const double seconds                = play(tune, config, &predicted);

    printf("{\"node\": \"%s\", \"class\": \"%s\", \"src\": %d, \"dst\": %d, "
           "\"size\": %zu, \"single_seconds\": %.9f, \"model\": {",
           node->name, table->classes[table->class_of[tune->src][tune->dst]],
           tune->src, tune->dst, tune->size,
           ucx_mp_player_single(tune->player, tune->src, tune->dst,
                                tune->size));
    plan_print(&tune->plan);
    printf(", \"seconds\": %.9f}, \"predicted_seconds\": %.9f}\n", seconds,
           predicted);
    fflush(stdout);
}

/* Time the plans on standard input. */
static void play_lines(const uct_cuda_plan_config_t *plain,
                       tune_t *tune)
{
    char size[32], paths[256], shares[256], chunks[256], graph[16];
    uct_cuda_plan_config_t config = *plain;
    double seconds, predicted;
    const char *end;

    config.enable   = UCT_CUDA_PLAN_YES;
    config.min_size = 0;
    while (scanf("%31s %255s %255s %255s %15s", size, paths, shares, chunks,
                 graph) == 5) {
        if (!uct_cuda_size_parse(size, &end, &tune->size) || (*end != '\0') ||
            (tune->size == 0)) {
            ucx_mp_tool_die(UCX_MP_TOOL_USAGE, "--plans: '%s' is not a size",
                            size);
        }

        ucx_mp_tool_config_set(&config, "MULTIPATH_PATHS", paths);
        ucx_mp_tool_config_set(&config, "MULTIPATH_SHARES", shares);
        ucx_mp_tool_config_set(&config, "MULTIPATH_CHUNKS", chunks);
        ucx_mp_tool_config_set(&config, "MULTIPATH_GRAPH", graph);
        ucx_mp_tool_config_check(&config);
        seconds = play(tune, &config, &predicted);
        if (tune->plan.num_paths == config.num_paths) {
            printf("%.9f\n", seconds);
        } else {
            printf("-\n");
        }
    }
}

/* Return the table of the configuration, or a table without constants. */
static uct_cuda_plan_tuning_t *
table_read(const uct_cuda_topo_t *topo, const uct_cuda_plan_config_t *config)
{
    uct_cuda_plan_tuning_t *table;
    char error[512];

    if (uct_cuda_plan_tuning_get(config->tuning_file, topo, error,
                                 sizeof(error), &table) != UCS_OK) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "%s", error);
    }

    if ((table == NULL) &&
        ((table = uct_cuda_plan_tuning_create(topo)) == NULL)) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "out of memory");
    }

    return table;
}

int main(int argc, char **argv)
{
    static test_case_t cells[MAX_CELLS];
    static cuemu_node_t node;
    static tune_t tune;
    uct_cuda_plan_tuning_t *table;
    uct_cuda_plan_config_t config;
    char error[CUEMU_ERRBUF_SIZE];
    const uct_cuda_topo_t *topo;
    options_t options;
    unsigned count, i;

    options_read(argc, argv, &options);
    ucx_mp_tool_log(UCT_CUDA_LOG_WARN);
    ucx_mp_tool_config_read(&config);
    if ((getenv("CUEMU_NODE") == NULL) ||
        (cuemu_node_load_env(&node, error) != CUEMU_OK)) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "this is for emulated nodes: ucx_mp_run --emulate NODE "
                        "ucx_mp_plan_time ...");
    }

    topo = uct_cuda_topo_get();
    if (topo == NULL) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED, "no GPU is visible to the module");
    }

    table = table_read(topo, &config);
    count = list_cells(topo, table, &options, cells);
    if (count == 0) {
        ucx_mp_tool_die(UCX_MP_TOOL_FAILED,
                        "no pair of GPUs with peer access matches");
    }

    tune.topo  = topo;
    tune.table = table;
    for (i = 0; i < (options.is_asked ? 1 : count); ++i) {
        tune.player = ucx_mp_player_create(&node, topo);
        tune.src    = cells[i].src;
        tune.dst    = cells[i].dst;
        tune.size   = cells[i].size;
        if (options.is_asked) {
            play_lines(&config, &tune);
        } else {
            play_cell(&node, &config, &tune);
        }
        ucx_mp_player_destroy(tune.player);
    }

    free(table);
    return 0;
}
