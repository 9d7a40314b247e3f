/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the MULTIPATH variables. */
#include <uct/cuda/plan/config.h>

#include <uct/cuda/base/number.h>
#include <uct/cuda/base/topo.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>


/* Smaller staging memory has no useful chunk in each of its slots */
#define MIN_STAGING_SIZE (1ul << 20)
#define MAX_STAGING_SIZE (1ul << 40)

/* Default of max_gpu_paths */
#define MAX_GPU_PATHS 4u

#define LIST_ITEM_MAX 32

#define FIELD(_name) offsetof(uct_cuda_plan_config_t, _name)


typedef struct {
    const char *name;
    unsigned   value;
} value_name_t;

_Static_assert((sizeof(uct_cuda_plan_ternary_t) == sizeof(unsigned)) &&
               (sizeof(uct_cuda_plan_start_t) == sizeof(unsigned)),
               "written as a number");

/* Parse an item of a list. @return false: invalid */
typedef bool (*read_item_t)(const char *item, unsigned index,
                            uct_cuda_plan_config_t *config);


static const char *skip_space(const char *text)
{
    while (isspace((unsigned char)*text)) {
        ++text;
    }

    return text;
}

static void *field_at(uct_cuda_plan_config_t *config, size_t offset)
{
    return (char*)config + offset;
}

/* Store the value of a name, which ignores case. @return false: unknown name */
static bool find_name(const char *text, const value_name_t *names, size_t count,
                      unsigned *value_p)
{
    size_t i;

    for (i = 0; i < count; ++i) {
        if (strcasecmp(text, names[i].name) == 0) {
            *value_p = names[i].value;
            return true;
        }
    }

    return false;
}

static bool read_ternary(const char *text, uct_cuda_plan_config_t *config,
                         size_t offset)
{
    return uct_cuda_plan_ternary_parse(text, field_at(config, offset));
}

bool uct_cuda_plan_ternary_parse(const char *text,
                                 uct_cuda_plan_ternary_t *value_p)
{
    static const value_name_t names[] = {
        {"y", UCT_CUDA_PLAN_YES},     {"yes", UCT_CUDA_PLAN_YES},
        {"on", UCT_CUDA_PLAN_YES},    {"1", UCT_CUDA_PLAN_YES},
        {"n", UCT_CUDA_PLAN_NO},      {"no", UCT_CUDA_PLAN_NO},
        {"off", UCT_CUDA_PLAN_NO},    {"0", UCT_CUDA_PLAN_NO},
        {"auto", UCT_CUDA_PLAN_AUTO}, {"try", UCT_CUDA_PLAN_AUTO},
    };

    return find_name(text, names, ucs_static_array_size(names),
                     (unsigned*)value_p);
}

static bool read_start(const char *text, uct_cuda_plan_config_t *config,
                       size_t offset)
{
    static const value_name_t names[] = {
        {"auto", UCT_CUDA_PLAN_START_AUTO},
        {"wait", UCT_CUDA_PLAN_START_WAIT},
        {"background", UCT_CUDA_PLAN_START_BACKGROUND}
    };

    return find_name(text, names, ucs_static_array_size(names),
                     field_at(config, offset));
}

/* Parse a size, or "inf": the largest size below SIZE_AUTO */
static bool read_size(const char *text, uct_cuda_plan_config_t *config,
                      size_t offset)
{
    size_t *value_p = field_at(config, offset);

    if (strcasecmp(text, "inf") == 0) {
        *value_p = UCT_CUDA_PLAN_SIZE_AUTO - 1;
        return true;
    }

    return uct_cuda_size_parse(text, NULL, value_p);
}

static bool read_auto_size(const char *text, uct_cuda_plan_config_t *config,
                           size_t offset)
{
    if (strcasecmp(text, "auto") == 0) {
        *(size_t*)field_at(config, offset) = UCT_CUDA_PLAN_SIZE_AUTO;
        return true;
    }

    return read_size(text, config, offset);
}

static bool read_staging_size(const char *text, uct_cuda_plan_config_t *config,
                              size_t offset)
{
    return read_size(text, config, offset) &&
           (config->staging_size >= MIN_STAGING_SIZE) &&
           (config->staging_size <= MAX_STAGING_SIZE);
}

static bool parse_unsigned(const char *text, unsigned min, unsigned max,
                           unsigned *value_p)
{
    unsigned long value;
    char *end;

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

/* Copy the next item of a comma-separated list, without surrounding space, and
 * advance *text_p; it becomes NULL after the last item. @return false: the item
 * is empty or too long */
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

/* Parse a list of values for paths. @return Their number; 0: invalid */
static unsigned
read_list(const char *text, uct_cuda_plan_config_t *config, read_item_t read)
{
    unsigned count = 0;
    char item[LIST_ITEM_MAX];

    for (; text != NULL; ++count) {
        if ((count == UCT_CUDA_PLAN_MAX_PATHS) || !next_item(&text, item) ||
            !read(item, count, config)) {
            return 0;
        }
    }

    return count;
}

static bool
read_path(const char *item, unsigned index, uct_cuda_plan_config_t *config)
{
    uct_cuda_end_t via = uct_cuda_end_none();
    unsigned i;

    if ((strcasecmp(item, "direct") != 0) &&
        !uct_cuda_end_parse(item, &via)) {
        return false;
    }

    for (i = 0; i < index; ++i) {
        if (uct_cuda_end_equal(config->paths[i], via)) {
            return false;
        }
    }

    config->paths[index] = via;
    return true;
}

static bool read_paths(const char *text, uct_cuda_plan_config_t *config,
                       size_t offset)
{
    config->num_paths     = 0;
    config->max_gpu_paths = MAX_GPU_PATHS;
    if ((strcasecmp(text, "auto") == 0) ||
        parse_unsigned(text, 1, UCT_CUDA_PLAN_MAX_PATHS,
                       &config->max_gpu_paths)) {
        return true;
    }

    config->num_paths = read_list(text, config, read_path);
    return config->num_paths > 0;
}

static bool
read_share(const char *item, unsigned index, uct_cuda_plan_config_t *config)
{
    char *end;

    config->shares[index] = uct_cuda_strtod(item, &end);
    return (*end == '\0') && (config->shares[index] >= 0) &&
           (config->shares[index] <= 1e6);
}

static bool read_shares(const char *text, uct_cuda_plan_config_t *config,
                        size_t offset)
{
    const bool is_auto = (strcasecmp(text, "auto") == 0);
    double sum         = 0;
    unsigned i;

    config->num_shares = is_auto ? 0 : read_list(text, config, read_share);
    for (i = 0; i < config->num_shares; ++i) {
        sum += config->shares[i];
    }
    for (i = 0; i < config->num_shares; ++i) {
        config->shares[i] /= sum;
    }

    return is_auto || (sum > 0);
}

static bool read_chunk_count(const char *item, unsigned index,
                             uct_cuda_plan_config_t *config)
{
    return parse_unsigned(item, 1, UCT_CUDA_PLAN_MAX_CHUNKS,
                          &config->chunks[index]);
}

static bool read_chunks(const char *text, uct_cuda_plan_config_t *config,
                        size_t offset)
{
    const bool is_auto = (strcasecmp(text, "auto") == 0);

    config->num_chunks = is_auto ?
                                 0 :
                                 read_list(text, config, read_chunk_count);
    return is_auto || (config->num_chunks > 0);
}

static bool read_name(const char *text, uct_cuda_plan_config_t *config,
                      size_t offset)
{
    return snprintf(field_at(config, offset), UCT_CUDA_PLAN_NAME_SIZE, "%s",
                    text) < UCT_CUDA_PLAN_NAME_SIZE;
}

static bool read_ledger(const char *text, uct_cuda_plan_config_t *config,
                        size_t offset)
{
    uct_cuda_plan_ternary_t value;

    if (*text == '/') {
        return read_name(text, config, offset);
    }

    return uct_cuda_plan_ternary_parse(text, &value) &&
           read_name((value == UCT_CUDA_PLAN_NO) ?
                             "" :
                             UCT_CUDA_PLAN_LEDGER_DIR,
                     config, offset);
}


/* ---------------------------------------------------------------- variables */

#define TERNARY "y, n or auto"
#define NAME    "a path of fewer than 256 characters"

const uct_cuda_plan_config_var_t uct_cuda_plan_config_vars[] = {
    {"MULTIPATH", "auto",
     "Split large messages over several paths: \"auto\" where the model of the "
     "node expects a gain, \"y\" wherever there is a second path, \"n\" never.",
     read_ternary, FIELD(enable), TERNARY},
    {"MULTIPATH_MIN_SIZE", "auto",
     "Smaller messages use one path. \"auto\" asks the model, and is 1m with "
     "MULTIPATH=y.", read_auto_size, FIELD(min_size),
     "a size such as 512k or 4m, or auto"},
    {"MULTIPATH_PATHS", "auto",
     "Allowed paths, separated by commas: direct, gpu<N> (through GPU N of "
     "this process), host. For example: direct,gpu2,gpu3,host. Or the largest "
     "number of paths over GPUs, the direct one included. \"auto\" is 4.",
     read_paths, 0,
     "auto, a number from 1 to 8, or up to 8 different paths, separated by "
     "commas: direct, gpu0 to gpu15, host"},
    {"MULTIPATH_HOST", "auto",
     "Use the path through host memory. \"auto\": only after 16 times the "
     "message's size has gone one way (not with MULTIPATH=y), and only while "
     "no known traffic of the node goes the other way.", read_ternary,
     FIELD(host), TERNARY},
    {"MULTIPATH_CHUNKS", "auto",
     "Number of chunks in a staged path's share: one number, or one for each "
     "of MULTIPATH_PATHS (ignored for the direct path). For example: 1,8,8,4. "
     "A share has more chunks if a chunk would not fit into a staging slot.",
     read_chunks, 0,
     "auto, or up to 8 numbers from 1 to 64, separated by commas"},
    {"MULTIPATH_SHARES", "auto",
     "Share of the message for each of MULTIPATH_PATHS, in proportion. For "
     "example: 0.6,0.3,0.1.", read_shares, 0,
     "auto, or up to 8 numbers, separated by commas, none negative and not all "
     "0"},
    {"MULTIPATH_STAGING_SIZE", "64m",
     "Staging memory on each relay GPU, and in host memory. Allocated for the "
     "first message that uses it (MULTIPATH_START).", read_staging_size,
     FIELD(staging_size), "a size of at least 1m"},
    {"MULTIPATH_START", "auto",
     "How to create contexts and staging memory, which take 0.1 s or more for "
     "each GPU. \"wait\": the first message that uses them waits. "
     "\"background\": threads create them, and messages use the paths that are "
     "ready. \"auto\": messages wait for relays, and a thread prepares the "
     "host path, unless MULTIPATH_HOST or MULTIPATH_PATHS asks for that path.",
     read_start, FIELD(start), "auto, wait or background"},
    {"MULTIPATH_GRAPH", "auto",
     "Submit the copies of a message as a CUDA graph.", read_ternary,
     FIELD(graph), TERNARY},
    {"MULTIPATH_TUNING_FILE", "auto",
     "Tuning table: the model's constants, measured on nodes of this kind. "
     "\"auto\": the installed table that fits this node, if any. Empty: none.",
     read_name, FIELD(tuning_file), NAME},
    {"MULTIPATH_LEDGER", "auto",
     "Directory shared by all processes of the node; there they announce the "
     "links they use. \"auto\" is " UCT_CUDA_PLAN_LEDGER_DIR ", \"n\" is none.",
     read_ledger, FIELD(ledger),
     "auto, n, or the absolute path of a directory"},
    {"MULTIPATH_TRACE", "",
     "Directory for a trace of all copies; ucx_mp_trace makes a timeline of it "
     "(ucx_mp_run --trace does both). Empty: no trace.", read_name,
     FIELD(trace), NAME},
    {NULL, NULL, NULL, NULL, 0, NULL}
};


ucs_status_t uct_cuda_plan_config_set(uct_cuda_plan_config_t *config,
                                      const char *name, const char *value,
                                      char *error, size_t error_size)
{
    uct_cuda_plan_config_t changed = *config;
    const uct_cuda_plan_config_var_t *var;

    for (var = uct_cuda_plan_config_vars; var->name != NULL; ++var) {
        if (strcmp(var->name, name) == 0) {
            break;
        }
    }

    if (var->name == NULL) {
        return UCS_ERR_NO_ELEM;
    }

    if (!var->read(skip_space(value), &changed, var->offset)) {
        if (error != NULL) {
            snprintf(error, error_size,
                     "invalid value for %s: '%s'. Expected: %s", name, value,
                     var->expected);
        }
        return UCS_ERR_INVALID_PARAM;
    }

    *config = changed;
    return UCS_OK;
}

void uct_cuda_plan_config_init(uct_cuda_plan_config_t *config)
{
    const uct_cuda_plan_config_var_t *var;

    memset(config, 0, sizeof(*config));
    for (var = uct_cuda_plan_config_vars; var->name != NULL; ++var) {
        (void)uct_cuda_plan_config_set(config, var->name, var->dfl, NULL, 0);
    }
}

ucs_status_t uct_cuda_plan_config_check(const uct_cuda_plan_config_t *config,
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
        if (uct_cuda_end_is_host(config->paths[i]) &&
            (config->host == UCT_CUDA_PLAN_NO)) {
            snprintf(error, error_size,
                     "MULTIPATH_PATHS names host but MULTIPATH_HOST is n");
            return UCS_ERR_INVALID_PARAM;
        }
    }

    return UCS_OK;
}
