/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_mp_plan_time: what the module's plans take on an emulated node, and what
 * the best plans would, without the transport. One JSON line a transfer.
 */
#include "tool.h"

#include <uct/cuda/base/log.h>
#include <uct/cuda/base/size.h>

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define VAR_PREFIX "UCX_CUDA_IPC_"

#define MAX_CELLS 4096


typedef struct {
    size_t     min_size;
    size_t     max_size;
    unsigned   factor;
    int        src; /* or -1: one pair of each class */
    int        dst;
    bool       is_search;
} options_t;

typedef struct {
    int    src;
    int    dst;
    size_t size;
} cell_t;


static void usage(FILE *stream)
{
    fprintf(stream,
            "Usage: ucx_mp_run --emulate NODE ucx_mp_plan_time [options]\n"
            "What the module's plans take on the emulated node's timing core, "
            "and what the\nbest plans would take. One JSON line a transfer.\n\n"
            "  --sizes MIN:MAX  sizes, each a multiple of the one before "
            "(1m:512m)\n"
            "  --factor N       that multiple (2)\n"
            "  --pair SRC,DST   only from one GPU to another (one pair of each "
            "class)\n"
            "  --no-search      only the module's own plans\n"
            "  --help           this text\n\n"
            "UCX_CUDA_IPC_MULTIPATH_* variables hold as they do in the "
            "module; plans go\nthrough streams. A plan is printed as what "
            "UCX_CUDA_IPC_MULTIPATH_PATHS, _SHARES\nand _CHUNKS would have "
            "to say, beside UCX_CUDA_IPC_MULTIPATH=y.\n");
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
        (options->min_size < UCT_CUDA_MP_ALIGN) ||
        (options->max_size < options->min_size) ||
        (options->max_size > (4ul << 30))) {
        ucx_mp_tune_die("--sizes: '%s' is not MIN:MAX with 4k <= MIN <= MAX "
                        "<= 4g", text);
    }
}

static void options_read(int argc, char **argv, options_t *options)
{
    static const struct option names[] = {
        {"sizes", required_argument, NULL, 's'},
        {"factor", required_argument, NULL, 'f'},
        {"pair", required_argument, NULL, 'p'},
        {"no-search", no_argument, NULL, 'n'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}
    };
    char tail;
    int c;

    *options = (options_t){.min_size = 1ul << 20, .max_size = 512ul << 20,
                           .factor = 2, .src = -1, .dst = -1,
                           .is_search = true};
    while ((c = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        switch (c) {
        case 's':
            parse_sizes(optarg, options);
            break;
        case 'f':
            options->factor = (unsigned)atoi(optarg);
            if (options->factor < 2) {
                ucx_mp_tune_die("--factor: '%s' is no number from 2 on",
                                optarg);
            }
            break;
        case 'p':
            if (sscanf(optarg, "%d,%d%c", &options->src, &options->dst,
                       &tail) != 2) {
                ucx_mp_tune_die("--pair: '%s' is not SRC,DST", optarg);
            }
            break;
        case 'n':
            options->is_search = false;
            break;
        case 'h':
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(2);
        }
    }

    if (optind < argc) {
        usage(stderr);
        exit(2);
    }
}

static void config_read(uct_cuda_mp_config_t *config)
{
    const uct_cuda_mp_config_var_t *var;
    char error[512], name[64];
    const char *value;

    uct_cuda_mp_config_init(config);
    for (var = uct_cuda_mp_config_vars; var->name != NULL; ++var) {
        snprintf(name, sizeof(name), VAR_PREFIX "%s", var->name);
        value = getenv(name);
        if ((value != NULL) &&
            (uct_cuda_mp_config_set(config, var->name, value, error,
                                    sizeof(error)) != UCS_OK)) {
            ucx_mp_tune_die("%s: %s", name, error);
        }
    }

    if (uct_cuda_mp_config_check(config, error, sizeof(error)) != UCS_OK) {
        ucx_mp_tune_die("%s", error);
    }
}

static bool is_first_of_class(const uct_cuda_mp_tuning_t *table, int from,
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
                           const uct_cuda_mp_tuning_t *table,
                           const options_t *options, cell_t *cells)
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
                cells[count++] = (cell_t){i, j, size};
            }
        }
    }

    return count;
}

static void print_choice(const char *name, const ucx_mp_tune_choice_t *choice)
{
    printf("\"%s\": {", name);
    ucx_mp_tune_choice_print(choice, stdout);
    printf(", \"seconds\": %.9f}", choice->seconds);
}

static void print_cell(const cuemu_node_t *node,
                       const uct_cuda_mp_tuning_t *table, const cell_t *cell,
                       const ucx_mp_tune_found_t *found, bool is_search)
{
    printf("{\"node\": \"%s\", \"class\": \"%s\", \"src\": %d, \"dst\": %d, "
           "\"size\": %zu, \"single_seconds\": %.9f, ",
           node->name, table->classes[table->class_of[cell->src][cell->dst]],
           cell->src, cell->dst, cell->size, found->single);
    print_choice("model", &found->model);
    printf(", \"predicted_seconds\": %.9f", found->predicted);
    if (is_search) {
        printf(", ");
        print_choice("best", &found->best);
        printf(", \"ratio\": %.4f, \"plays\": %lu",
               found->model.seconds / found->best.seconds, found->plays);
    }
    printf("}\n");
    fflush(stdout);
}

/* The table that the configuration names, or one that sets no constant */
static uct_cuda_mp_tuning_t *
table_read(const uct_cuda_topo_t *topo, const uct_cuda_mp_config_t *config)
{
    uct_cuda_mp_tuning_t *table;
    char error[512];

    if (uct_cuda_mp_tuning_get(config->tuning_file, topo, error, sizeof(error),
                               &table) != UCS_OK) {
        ucx_mp_tune_die("%s", error);
    }

    if ((table == NULL) &&
        ((table = uct_cuda_mp_tuning_create(topo)) == NULL)) {
        ucx_mp_tune_die("out of memory");
    }

    return table;
}

static void show_progress(unsigned done, unsigned count)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%u of %u%s", done, count,
                (done == count) ? "\n" : "");
    }
}

static void log_message(uct_cuda_log_level_t level, const char *file,
                        unsigned line, const char *function,
                        const char *message)
{
    fprintf(stderr, "ucx_mp_plan_time: %s\n", message);
}

int main(int argc, char **argv)
{
    static cell_t cells[MAX_CELLS];
    static cuemu_node_t node;
    ucx_mp_tune_found_t found;
    uct_cuda_mp_tuning_t *table;
    uct_cuda_mp_config_t config;
    char error[CUEMU_ERRBUF_SIZE];
    const uct_cuda_topo_t *topo;
    ucx_mp_tune_case_t tune;
    options_t options;
    unsigned count, i;

    options_read(argc, argv, &options);
    uct_cuda_log_set(log_message, UCT_CUDA_LOG_WARN);
    config_read(&config);
    if ((getenv("CUEMU_NODE") == NULL) ||
        (cuemu_node_load_env(NULL, &node, error) != CUEMU_OK)) {
        ucx_mp_tune_die("this is for emulated nodes: ucx_mp_run --emulate NODE "
                        "ucx_mp_plan_time ...");
    }

    topo = uct_cuda_topo_get();
    if (topo == NULL) {
        ucx_mp_tune_die("the module sees no GPU");
    }

    table = table_read(topo, &config);
    count = list_cells(topo, table, &options, cells);
    if (count == 0) {
        ucx_mp_tune_die("no such pair of peers");
    }

    tune.topo   = topo;
    tune.config = &config;
    tune.table  = table;
    for (i = 0; i < count; ++i) {
        show_progress(i, count);
        tune.player = ucx_mp_player_create(&node, topo);
        tune.src    = cells[i].src;
        tune.dst    = cells[i].dst;
        tune.size   = cells[i].size;
        ucx_mp_tune_model(&tune, &found);
        if (options.is_search) {
            ucx_mp_tune_search(&tune, &found);
        }
        print_cell(&node, table, &cells[i], &found, options.is_search);
        ucx_mp_player_destroy(tune.player);
    }

    show_progress(count, count);
    free(table);
    return 0;
}
