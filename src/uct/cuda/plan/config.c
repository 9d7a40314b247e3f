/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the MULTIPATH variables. */
#include <uct/cuda/plan/config.h>

#include <uct/cuda/base/size.h>
#include <uct/cuda/base/topo.h>

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>


/* Staging smaller than this holds no useful chunk in each of its slots */
#define MIN_STAGING_SIZE (1ul << 20)

#define LIST_ITEM_MAX 32


const uct_cuda_mp_config_var_t uct_cuda_mp_config_vars[] = {
    {"MULTIPATH", "auto",
     "Move large messages over several paths at once: \"auto\" where a model "
     "of the node expects a gain, \"y\" wherever there is a second path, \"n\" "
     "never."},
    {"MULTIPATH_MIN_SIZE", "auto",
     "Smaller messages take one path. \"auto\" leaves it to the model, and is "
     "1m when MULTIPATH=y."},
    {"MULTIPATH_PATHS", "auto",
     "Paths to use, of: direct, gpu<N> (staged in the memory of GPU N of this "
     "process), host. For example: direct,gpu2,gpu3,host."},
    {"MULTIPATH_MAX_GPU_PATHS", "4",
     "Most paths over GPUs, the direct one included."},
    {"MULTIPATH_HOST", "auto",
     "Stage a part in host memory: \"auto\" only while nothing runs the other "
     "way on the whole node, as far as that is known."},
    {"MULTIPATH_CHUNKS", "auto",
     "Chunks that a staged path's part is cut into: one number, or one for "
     "each of MULTIPATH_PATHS, of which those of a direct path mean nothing. "
     "For example: 1,8,8,4."},
    {"MULTIPATH_CHUNK_SIZE", "auto", "Size of a chunk; overrides "
                                     "MULTIPATH_CHUNKS."},
    {"MULTIPATH_MAX_CHUNKS", "32", "Most chunks when their number is chosen. "
                                   "More are used where a chunk would not fit "
                                   "into a staging slot."},
    {"MULTIPATH_SHARES", "auto",
     "Share of each of MULTIPATH_PATHS, as numbers in proportion. For example: "
     "0.6,0.3,0.1."},
    {"MULTIPATH_STAGING_SIZE", "64m",
     "Staging memory on each relay GPU, and in host memory. Allocated for the "
     "first message that needs it (MULTIPATH_START)."},
    {"MULTIPATH_START", "auto",
     "The first message over a GPU needs a context and staging memory there, "
     "which take the driver 0.1 s and more a GPU: \"wait\" lets it wait for "
     "them; with \"background\" threads make them, and messages take the paths "
     "that are ready; with \"auto\" threads make what the path through the "
     "host needs, which adds least, unless MULTIPATH_HOST or MULTIPATH_PATHS "
     "ask for it."},
    {"MULTIPATH_GRAPH", "auto", "Submit copies as a CUDA graph."},
    {"MULTIPATH_GRAPH_MIN_SIZE", "auto", "Smaller messages use streams."},
    {"MULTIPATH_GRAPH_CACHE_SIZE", "64", "Graphs kept; 0 keeps none."},
    {"MULTIPATH_TUNING_FILE", "auto",
     "Table of the model's constants as measured on nodes of this kind; the "
     "model decides what these variables leave open. \"auto\" is one that was "
     "installed for nodes like this, if there is any; empty is none."},
    {"MULTIPATH_LEDGER", "auto",
     "Directory, shared by all processes of the node, for the page in which "
     "they tell each other which links they use. \"auto\" is "
     UCT_CUDA_MP_LEDGER_DIR ", \"n\" does without."},
    {"MULTIPATH_TRACE", "",
     "Directory for a trace of all copies, which ucx_mp_trace makes a timeline "
     "of (ucx_mp_run --trace does both). Empty is none."},
    {NULL, NULL, NULL}
};


static const char *skip_space(const char *text)
{
    while (isspace((unsigned char)*text)) {
        ++text;
    }

    return text;
}

static bool parse_ternary(const char *text, uct_cuda_mp_ternary_t *value_p)
{
    static const struct {
        const char            *name;
        uct_cuda_mp_ternary_t value;
    } names[] = {
        {"y", UCT_CUDA_MP_YES},     {"yes", UCT_CUDA_MP_YES},
        {"on", UCT_CUDA_MP_YES},    {"1", UCT_CUDA_MP_YES},
        {"n", UCT_CUDA_MP_NO},      {"no", UCT_CUDA_MP_NO},
        {"off", UCT_CUDA_MP_NO},    {"0", UCT_CUDA_MP_NO},
        {"auto", UCT_CUDA_MP_AUTO}, {"try", UCT_CUDA_MP_AUTO},
    };
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strcasecmp(text, names[i].name) == 0) {
            *value_p = names[i].value;
            return true;
        }
    }

    return false;
}

/* Or "inf"; "auto" where that makes sense */
static bool parse_size(const char *text, bool allow_auto, size_t *value_p)
{
    if (allow_auto && (strcasecmp(text, "auto") == 0)) {
        *value_p = UCT_CUDA_MP_SIZE_AUTO;
        return true;
    }

    if (strcasecmp(text, "inf") == 0) {
        *value_p = UCT_CUDA_MP_SIZE_AUTO - 1;
        return true;
    }

    return uct_cuda_size_parse(text, NULL, value_p);
}

static bool parse_unsigned(const char *text, bool allow_auto, unsigned min,
                           unsigned max, unsigned *value_p)
{
    unsigned long value;
    char *end;

    if (allow_auto && (strcasecmp(text, "auto") == 0)) {
        *value_p = 0;
        return true;
    }

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }

    errno = 0;
    value = strtoul(text, &end, 10);
    if ((*end != '\0') || (errno != 0) || (value < min) || (value > max)) {
        return false;
    }

    *value_p = (unsigned)value;
    return true;
}

/* Next item of a comma-separated list, without the space around it. False at
 * an empty or over-long item. *text_p becomes NULL behind the last one. */
static bool next_item(const char **text_p, char item[LIST_ITEM_MAX])
{
    const char *start = skip_space(*text_p);
    const char *end   = strchr(start, ',');
    size_t length;

    *text_p = (end == NULL) ? NULL : end + 1;
    length  = (end == NULL) ? strlen(start) : (size_t)(end - start);
    while ((length > 0) && isspace((unsigned char)start[length - 1])) {
        --length;
    }

    if ((length == 0) || (length >= LIST_ITEM_MAX)) {
        return false;
    }

    memcpy(item, start, length);
    item[length] = '\0';
    return true;
}

static bool parse_path(const char *item, uct_cuda_mp_path_t *path)
{
    unsigned gpu;

    path->gpu = 0;
    if (strcasecmp(item, "direct") == 0) {
        path->route = UCT_CUDA_MP_ROUTE_DIRECT;
    } else if (strcasecmp(item, "host") == 0) {
        path->route = UCT_CUDA_MP_ROUTE_HOST;
    } else if ((strncasecmp(item, "gpu", 3) == 0) &&
               parse_unsigned(item + 3, false, 0, UCT_CUDA_MAX_GPUS - 1,
                              &gpu)) {
        path->route = UCT_CUDA_MP_ROUTE_GPU;
        path->gpu   = (int)gpu;
    } else {
        return false;
    }

    return true;
}

static bool parse_paths(const char *text, uct_cuda_mp_config_t *config)
{
    unsigned count = 0;
    uct_cuda_mp_path_t *path;
    char item[LIST_ITEM_MAX];
    unsigned i;

    if (strcasecmp(text, "auto") == 0) {
        config->num_paths = 0;
        return true;
    }

    while (text != NULL) {
        path = &config->paths[count];
        if ((count == UCT_CUDA_MP_MAX_PATHS) || !next_item(&text, item) ||
            !parse_path(item, path)) {
            return false;
        }

        for (i = 0; i < count; ++i) {
            if (uct_cuda_mp_path_equal(&config->paths[i], path)) {
                return false;
            }
        }

        ++count;
    }

    config->num_paths = count;
    return true;
}

static bool parse_shares(const char *text, uct_cuda_mp_config_t *config)
{
    unsigned count = 0;
    double sum     = 0;
    char item[LIST_ITEM_MAX];
    char *end;
    unsigned i;

    if (strcasecmp(text, "auto") == 0) {
        config->num_shares = 0;
        return true;
    }

    while (text != NULL) {
        if ((count == UCT_CUDA_MP_MAX_PATHS) || !next_item(&text, item)) {
            return false;
        }

        config->shares[count] = strtod(item, &end);
        if ((*end != '\0') || !(config->shares[count] >= 0) ||
            !(config->shares[count] <= 1e6)) {
            return false;
        }

        sum += config->shares[count++];
    }

    if (!(sum > 0)) {
        return false;
    }

    for (i = 0; i < count; ++i) {
        config->shares[i] /= sum;
    }

    config->num_shares = count;
    return true;
}

static bool parse_chunks(const char *text, uct_cuda_mp_config_t *config)
{
    unsigned count = 0;
    char item[LIST_ITEM_MAX];

    if (strcasecmp(text, "auto") == 0) {
        config->num_chunks = 0;
        return true;
    }

    for (; text != NULL; ++count) {
        if ((count == UCT_CUDA_MP_MAX_PATHS) || !next_item(&text, item) ||
            !parse_unsigned(item, false, 1, UCT_CUDA_MP_MAX_CHUNKS,
                            &config->chunks[count])) {
            return false;
        }
    }

    config->num_chunks = count;
    return true;
}

static bool parse_text(const char *text, char *value, size_t size)
{
    return (size_t)snprintf(value, size, "%s", text) < size;
}

static bool parse_ledger(const char *text, uct_cuda_mp_config_t *config)
{
    uct_cuda_mp_ternary_t value;

    if (*text == '/') {
        return parse_text(text, config->ledger, sizeof(config->ledger));
    } else if (!parse_ternary(text, &value)) {
        return false;
    }

    return parse_text((value == UCT_CUDA_MP_NO) ? "" : UCT_CUDA_MP_LEDGER_DIR,
                      config->ledger, sizeof(config->ledger));
}

static bool parse_start(const char *text, uct_cuda_mp_start_t *value_p)
{
    static const char *names[] = {
        [UCT_CUDA_MP_START_AUTO]       = "auto",
        [UCT_CUDA_MP_START_WAIT]       = "wait",
        [UCT_CUDA_MP_START_BACKGROUND] = "background"
    };
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        if (strcasecmp(text, names[i]) == 0) {
            *value_p = (uct_cuda_mp_start_t)i;
            return true;
        }
    }

    return false;
}

static bool config_read(uct_cuda_mp_config_t *config, const char *name,
                        const char *value, const char **expected_p)
{
    static const char *ternary = "y, n or auto";
    static const char *size    = "a size such as 512k or 4m, or auto";

    name += strlen("MULTIPATH");
    *expected_p = ternary;
    if (*name == '\0') {
        return parse_ternary(value, &config->enable);
    } else if (strcmp(name, "_HOST") == 0) {
        return parse_ternary(value, &config->host);
    } else if (strcmp(name, "_GRAPH") == 0) {
        return parse_ternary(value, &config->graph);
    }

    *expected_p = "auto, wait or background";
    if (strcmp(name, "_START") == 0) {
        return parse_start(value, &config->start);
    }

    *expected_p = size;
    if (strcmp(name, "_MIN_SIZE") == 0) {
        return parse_size(value, true, &config->min_size);
    } else if (strcmp(name, "_GRAPH_MIN_SIZE") == 0) {
        return parse_size(value, true, &config->graph_min_size);
    } else if (strcmp(name, "_CHUNK_SIZE") == 0) {
        *expected_p = "a size of at least 4k, or auto";
        return parse_size(value, true, &config->chunk_size) &&
               (config->chunk_size >= 4096);
    } else if (strcmp(name, "_STAGING_SIZE") == 0) {
        *expected_p = "a size of at least 1m";
        return parse_size(value, false, &config->staging_size) &&
               (config->staging_size >= MIN_STAGING_SIZE) &&
               (config->staging_size <= (1ul << 40));
    } else if (strcmp(name, "_MAX_GPU_PATHS") == 0) {
        *expected_p = "a number from 1 to 8";
        return parse_unsigned(value, false, 1, UCT_CUDA_MP_MAX_PATHS,
                              &config->max_gpu_paths);
    } else if (strcmp(name, "_CHUNKS") == 0) {
        *expected_p = "auto, or up to 8 numbers from 1 to 64, with commas "
                      "between";
        return parse_chunks(value, config);
    } else if (strcmp(name, "_MAX_CHUNKS") == 0) {
        *expected_p = "a number from 1 to 64";
        return parse_unsigned(value, false, 1, UCT_CUDA_MP_MAX_CHUNKS,
                              &config->max_chunks);
    } else if (strcmp(name, "_GRAPH_CACHE_SIZE") == 0) {
        *expected_p = "a number up to 65536";
        return parse_unsigned(value, false, 0, 65536,
                              &config->graph_cache_size);
    } else if (strcmp(name, "_PATHS") == 0) {
        *expected_p = "auto, or up to 8 different ones of direct, gpu0 to "
                      "gpu15, host, with commas between";
        return parse_paths(value, config);
    } else if (strcmp(name, "_SHARES") == 0) {
        *expected_p = "auto, or up to 8 numbers that are not negative nor all "
                      "0, with commas between";
        return parse_shares(value, config);
    } else if (strcmp(name, "_LEDGER") == 0) {
        *expected_p = "auto, n, or a directory's path from the root on";
        return parse_ledger(value, config);
    } else if (strcmp(name, "_TRACE") == 0) {
        *expected_p = "a path of less than 256 characters";
        return parse_text(value, config->trace, sizeof(config->trace));
    }

    *expected_p = "a path of less than 256 characters";
    return parse_text(value, config->tuning_file, sizeof(config->tuning_file));
}

ucs_status_t uct_cuda_mp_config_set(uct_cuda_mp_config_t *config,
                                    const char *name, const char *value,
                                    char *error, size_t error_size)
{
    uct_cuda_mp_config_t changed = *config;
    const uct_cuda_mp_config_var_t *var;
    const char *expected;

    for (var = uct_cuda_mp_config_vars; var->name != NULL; ++var) {
        if (strcmp(var->name, name) == 0) {
            break;
        }
    }

    if (var->name == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    if (!config_read(&changed, name, skip_space(value), &expected)) {
        if (error != NULL) {
            snprintf(error, error_size,
                     "invalid value for %s: '%s'. Expected: %s", name, value,
                     expected);
        }
        return UCS_ERR_INVALID_PARAM;
    }

    *config = changed;
    return UCS_OK;
}

void uct_cuda_mp_config_init(uct_cuda_mp_config_t *config)
{
    const uct_cuda_mp_config_var_t *var;

    memset(config, 0, sizeof(*config));
    for (var = uct_cuda_mp_config_vars; var->name != NULL; ++var) {
        (void)uct_cuda_mp_config_set(config, var->name, var->dfl, NULL, 0);
    }
}

ucs_status_t uct_cuda_mp_config_check(const uct_cuda_mp_config_t *config,
                                      char *error, size_t error_size)
{
    unsigned i;

    if ((config->num_shares > 0) &&
        (config->num_shares != config->num_paths)) {
        snprintf(error, error_size,
                 "MULTIPATH_SHARES names %u shares but MULTIPATH_PATHS names "
                 "%u paths",
                 config->num_shares, config->num_paths);
        return UCS_ERR_INVALID_PARAM;
    }

    if ((config->num_chunks > 1) &&
        (config->num_chunks != config->num_paths)) {
        snprintf(error, error_size,
                 "MULTIPATH_CHUNKS names chunks of %u paths but "
                 "MULTIPATH_PATHS names %u paths",
                 config->num_chunks, config->num_paths);
        return UCS_ERR_INVALID_PARAM;
    }

    for (i = 0; i < config->num_paths; ++i) {
        if ((config->paths[i].route == UCT_CUDA_MP_ROUTE_HOST) &&
            (config->host == UCT_CUDA_MP_NO)) {
            snprintf(error, error_size,
                     "MULTIPATH_PATHS names host but MULTIPATH_HOST is n");
            return UCS_ERR_INVALID_PARAM;
        }
    }

    return UCS_OK;
}
