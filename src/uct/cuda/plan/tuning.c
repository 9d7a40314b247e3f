/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the tuning table of a node, and finding it. */
#include <uct/cuda/plan/tuning.h>

#include <uct/cuda/base/file.h>
#include <uct/cuda/base/number.h>

#include <ucs/sys/math.h>

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define GIGA      1e9
#define MAGIC     "ucx-mp-tuning"

#define LINE_SIZE (UCT_CUDA_PLAN_NODE_SIZE + 64)

/* Words of an old row: class, smallest and largest size, paths, executor */
#define ROW_WORDS 5


typedef struct {
    const uct_cuda_topo_t  *topo;
    uct_cuda_plan_tuning_t *tuning;
    const char             *name;
    unsigned               line;
    char                   *error;
    size_t                 error_size;
} reader_t;


static void __attribute__((format(printf, 4, 5)))
append(char *buffer, size_t size, size_t *used, const char *format, ...)
{
    va_list ap;
    int length;

    va_start(ap, format);
    length = uct_cuda_vsnprintf(buffer + *used, size - *used, format, ap);
    va_end(ap);
    *used += ((size_t)length < size - *used) ? (size_t)length :
                                               size - *used - 1;
}

static int compare_down(const void *left, const void *right)
{
    double a = *(const double*)left;
    double b = *(const double*)right;

    return (a < b) - (a > b);
}

static void class_str(const uct_cuda_topo_t *topo, int from, int to,
                      char *buffer)
{
    const size_t size = UCT_CUDA_PLAN_CLASS_SIZE;
    double relays[UCT_CUDA_MAX_GPUS];
    uct_cuda_topo_link_t up, down;
    unsigned count = 0;
    size_t used    = 0;
    unsigned i;
    int relay;

    for (relay = 0; relay < topo->num_gpus; ++relay) {
        relays[count] = ucs_min(topo->links[from][relay].bandwidth,
                             topo->links[relay][to].bandwidth);
        if ((relay != from) && (relay != to) && (relays[count] > 0)) {
            ++count;
        }
    }

    qsort(relays, count, sizeof(relays[0]), compare_down);
    append(buffer, size, &used, "%.1f:",
           topo->links[from][to].bandwidth / GIGA);
    for (i = 0; i < count; ++i) {
        append(buffer, size, &used, "%s%.1f", (i == 0) ? "" : ",",
               relays[i] / GIGA);
    }

    up   = topo->gpus[from].to_host;
    down = uct_cuda_topo_numa_link(topo, uct_cuda_end_host(),
                                   uct_cuda_end_gpu(to),
                                   topo->gpus[from].numa);
    append(buffer, size, &used, ":%.1f",
           ucs_min(up.bandwidth, down.bandwidth) / GIGA);
}

static int compare_text(const void *left, const void *right)
{
    return strcmp(left, right);
}

static bool has_class(const uct_cuda_topo_t *topo, int from, int to)
{
    return (from != to) && (topo->links[from][to].bandwidth > 0);
}

/* Return the index of a pair's class. A new class is stored behind the others,
 * for the caller to count in num_classes. */
static int find_class(uct_cuda_plan_tuning_t *tuning,
                      const uct_cuda_topo_t *topo, int from, int to)
{
    char text[UCT_CUDA_PLAN_CLASS_SIZE];
    int i;

    class_str(topo, from, to, text);
    for (i = 0; (i < tuning->num_classes) && strcmp(text, tuning->classes[i]);
         ++i) {
    }

    memcpy(tuning->classes[i], text, sizeof(text));
    return i;
}

uct_cuda_plan_tuning_t *uct_cuda_plan_tuning_create(const uct_cuda_topo_t *topo)
{
    int counts[UCT_CUDA_MAX_GPUS * UCT_CUDA_MAX_GPUS] = {0};
    size_t used                                       = 0;
    uct_cuda_plan_tuning_t *tuning = calloc(1, sizeof(*tuning));
    int from, to, i;

    if (tuning == NULL) {
        return NULL;
    }

    for (from = 0; from < topo->num_gpus; ++from) {
        for (to = 0; to < topo->num_gpus; ++to) {
            if (has_class(topo, from, to)) {
                i                   = find_class(tuning, topo, from, to);
                tuning->num_classes = ucs_max(tuning->num_classes, i + 1);
            }
        }
    }

    /* sorted, so that the order of GPUs does not matter */
    qsort(tuning->classes, tuning->num_classes, sizeof(tuning->classes[0]),
          compare_text);
    for (from = 0; from < topo->num_gpus; ++from) {
        for (to = 0; to < topo->num_gpus; ++to) {
            tuning->class_of[from][to] = -1;
            if (has_class(topo, from, to)) {
                i                          = find_class(tuning, topo, from, to);
                tuning->class_of[from][to] = (int16_t)i;
                ++counts[i];
            }
        }
    }

    append(tuning->node, sizeof(tuning->node), &used, "%d gpus",
           topo->num_gpus);
    for (i = 0; i < tuning->num_classes; ++i) {
        append(tuning->node, sizeof(tuning->node), &used, ", %d x %s",
               counts[i], tuning->classes[i]);
    }

    tuning->model = uct_cuda_plan_model_builtin;
    snprintf(tuning->date, sizeof(tuning->date), "unknown");
    return tuning;
}

static ucs_status_t __attribute__((format(printf, 3, 4)))
refuse(const reader_t *reader, ucs_status_t status, const char *format, ...)
{
    size_t used = 0;
    va_list ap;

    append(reader->error, reader->error_size, &used, "%s:%u: ", reader->name,
           reader->line);
    va_start(ap, format);
    vsnprintf(reader->error + used, reader->error_size - used, format, ap);
    va_end(ap);
    return status;
}

#define wrong(_reader, ...) refuse(_reader, UCS_ERR_INVALID_PARAM, __VA_ARGS__)

/* Set a constant by name */
static ucs_status_t parse_constant(reader_t *reader, const char *name,
                                   const char *value)
{
    const uct_cuda_plan_model_constant_t *constant =
        uct_cuda_plan_model_constants;
    uct_cuda_plan_tuning_t *tuning                 = reader->tuning;
    unsigned i;

    for (i = 0; (constant[i].name != NULL) && strcmp(constant[i].name, name);
         ++i) {
    }

    if (constant[i].name == NULL) {
        return wrong(reader, "the model has no constant \"%s\"", name);
    }

    if (tuning->model_set & (1u << i)) {
        return wrong(reader, "constant \"%s\" appears twice", name);
    }

    if (!uct_cuda_plan_model_set(&tuning->model, i, value)) {
        return wrong(reader, "\"%s\" is not a value for \"%s\" (above %g, at "
                     "most %g)", value, name, constant[i].min, constant[i].max);
    }

    tuning->model_set |= 1u << i;
    return UCS_OK;
}

/* Parse "model", the name of a constant and its value; or ignore an old row,
 * with one note for all of them */
static ucs_status_t parse_line(reader_t *reader, char *text)
{
    static const char space[] = " \t";
    char *words[ROW_WORDS];
    unsigned count = 0;
    bool is_constant;
    char *word, *rest;

    for (word = strtok_r(text, space, &rest); word != NULL;
         word = strtok_r(NULL, space, &rest)) {
        if (count < ROW_WORDS) {
            words[count] = word;
        }
        ++count;
    }

    is_constant = (strcmp(words[0], "model") == 0);
    if (is_constant && (count == 3)) {
        return parse_constant(reader, words[1], words[2]);
    }

    if (is_constant || (count != ROW_WORDS)) {
        return wrong(reader, "expected three words: model, the name of a "
                     "constant, and its value");
    }

    return (reader->error[0] != '\0') ?
                   UCS_OK :
                   refuse(reader, UCS_OK, "rows of paths, shares and chunks "
                          "are ignored, the constants apply");
}

/* Return the value of a header line with this name, else NULL */
static char *header(char *text, const char *name)
{
    size_t length = strlen(name);

    return ((strncmp(text, name, length) == 0) && (text[length] == ' ')) ?
                   text + length + 1 :
                   NULL;
}

/* Check that a table is for this node. One for all of the node's GPUs, of which
 * this process sees a part, is nobody's mistake. A process that sees one GPU
 * does not count the hidden ones, and has no paths for a table. */
static ucs_status_t check_node(const reader_t *reader, const char *node)
{
    const uct_cuda_topo_t *topo = reader->topo;
    const long num_gpus         = strtol(node, NULL, 10);

    if (strcmp(node, reader->tuning->node) == 0) {
        return UCS_OK;
    }

    if ((num_gpus > topo->num_gpus) &&
        ((topo->num_gpus == 1) ||
         (num_gpus == topo->num_gpus + topo->num_hidden))) {
        return refuse(reader, UCS_ERR_NO_DEVICE, "made for the node's %ld "
                      "GPUs, of which this process sees %d",
                      num_gpus, topo->num_gpus);
    }

    return refuse(reader, UCS_ERR_UNSUPPORTED, "made for another node, \"%s\"; "
                  "this one is \"%s\"",
                  node, reader->tuning->node);
}

/* Parse format, node and date, the first lines in this order */
static ucs_status_t parse_header(reader_t *reader, char *text,
                                 unsigned *headers)
{
    static const char *names[] = {MAGIC, "node", "date"};
    char *value                = header(text, names[*headers]);
    unsigned long format;
    char *end;

    if (value == NULL) {
        return wrong(reader, "expected \"%s ...\"", names[*headers]);
    }

    switch ((*headers)++) {
    case 0:
        errno  = 0;
        format = strtoul(value, &end, 10);
        if (!isdigit((unsigned char)value[0]) || (*end != '\0') ||
            (format == 0) || (errno != 0)) {
            return wrong(reader, "\"%s\" is not a format number", value);
        }

        if (format > UCT_CUDA_PLAN_TUNING_FORMAT) {
            return refuse(reader, UCS_ERR_UNSUPPORTED, "format %s is newer "
                          "than this module, which reads %d", value,
                          UCT_CUDA_PLAN_TUNING_FORMAT);
        }
        return UCS_OK;
    case 1:
        return check_node(reader, value);
    default:
        if ((strlen(value) == 0) ||
            (strlen(value) >= sizeof(reader->tuning->date))) {
            return wrong(reader, "\"%s\" is not a date", value);
        }
        strcpy(reader->tuning->date, value);
        return UCS_OK;
    }
}

static ucs_status_t read_lines(reader_t *reader, FILE *stream)
{
    ucs_status_t status = UCS_OK;
    unsigned headers    = 0;
    char text[LINE_SIZE];
    size_t length;
    int c = 0;

    while ((status == UCS_OK) && (c != EOF)) {
        ++reader->line;
        for (length = 0; ((c = fgetc(stream)) != EOF) && (c != '\n');) {
            if ((length + 1 == sizeof(text)) || (c == '\0')) {
                return wrong(reader, "expected a line of text of fewer than %d "
                             "characters", LINE_SIZE);
            }
            text[length++] = (char)c;
        }

        while ((length > 0) && isspace((unsigned char)text[length - 1])) {
            --length;
        }

        text[length] = '\0';
        if ((length == 0) || (text[0] == '#')) {
            continue;
        }

        status = (headers < 3) ? parse_header(reader, text, &headers) :
                                 parse_line(reader, text);
    }

    if (status != UCS_OK) {
        return status;
    }

    if (ferror(stream)) {
        return refuse(reader, UCS_ERR_IO_ERROR, "cannot be read");
    }

    return (headers < 3) ? wrong(reader, "ends before the lines with format, "
                                 "node and date") :
                           UCS_OK;
}

ucs_status_t uct_cuda_plan_tuning_read(FILE *stream, const char *name,
                                       const uct_cuda_topo_t *topo, char *error,
                                       size_t error_size,
                                       uct_cuda_plan_tuning_t **tuning_p)
{
    reader_t reader = {
        .topo = topo, .name = name, .error = error, .error_size = error_size
    };
    ucs_status_t status;

    error[0]      = '\0';
    reader.tuning = uct_cuda_plan_tuning_create(topo);
    if (reader.tuning == NULL) {
        return refuse(&reader, UCS_ERR_NO_MEMORY, "out of memory");
    }

    status = read_lines(&reader, stream);
    if (status != UCS_OK) {
        free(reader.tuning);
        return status;
    }

    *tuning_p = reader.tuning;
    return UCS_OK;
}

static ucs_status_t load(const char *path, const uct_cuda_topo_t *topo,
                         char *error, size_t error_size,
                         uct_cuda_plan_tuning_t **tuning_p)
{
    ucs_status_t status;
    FILE *stream;

    stream = uct_cuda_file_stream(path);
    if (stream == NULL) {
        status = (errno == ENOENT) ? UCS_ERR_NO_ELEM : UCS_ERR_IO_ERROR;
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
        return status;
    }

    status = uct_cuda_plan_tuning_read(stream, path, topo, error, error_size,
                                       tuning_p);
    fclose(stream);
    return status;
}

/* Return whether a file is for this node; other files may have any format */
static bool file_is_for(const char *path, const char *node)
{
    char line[UCT_CUDA_PLAN_NODE_SIZE + 8];
    bool is_found = false;
    FILE *stream;

    stream = uct_cuda_file_stream(path);
    if (stream == NULL) {
        return false;
    }

    while (!is_found && (fgets(line, sizeof(line), stream) != NULL) &&
           (line[0] != '\n')) {
        line[strcspn(line, "\n")] = '\0';
        is_found = (strncmp(line, "node ", 5) == 0) &&
                   (strcmp(line + 5, node) == 0);
    }

    fclose(stream);
    return is_found;
}

static int is_table(const struct dirent *entry)
{
    const char *suffix = strrchr(entry->d_name, '.');

    return (suffix != NULL) && (strcmp(suffix, ".tune") == 0);
}

/* Return the folder of installed tables: beside the loaded library, whose tree
 * may have been moved or belong to a wheel, if there is such a folder, else as
 * configured. @a path: storage */
static const char *installed_folder(char *path, size_t size)
{
    /* from lib/ucx-mp; from its plugin folder, lib/TRIPLET/ucx-mp; from bin */
    static const char *const ways[] = {"../..", "../../..", ".."};
    const char *slash;
    Dl_info info;
    unsigned i;

    if (!dladdr((const void*)installed_folder, &info) ||
        ((slash = strrchr(info.dli_fname, '/')) == NULL)) {
        return UCX_MP_TUNING_DIR;
    }

    for (i = 0; i < sizeof(ways) / sizeof(ways[0]); ++i) {
        if ((snprintf(path, size, "%.*s/%s/share/ucx-mp/tuning",
                      (int)(slash - info.dli_fname), info.dli_fname,
                      ways[i]) < (int)size) &&
            (access(path, R_OK | X_OK) == 0)) {
            return path;
        }
    }

    return UCX_MP_TUNING_DIR;
}

/* Find the first installed table for this node, by name */
static bool find_installed(const uct_cuda_topo_t *topo, char *path, size_t size)
{
    const char *folder            = getenv("UCX_MP_TUNING_DIR");
    uct_cuda_plan_tuning_t *empty = uct_cuda_plan_tuning_create(topo);
    bool is_found                 = false;
    struct dirent **entries;
    char beside[512];
    int count, i;

    folder = (folder == NULL) ? installed_folder(beside, sizeof(beside)) :
                                folder;
    count  = (empty == NULL) ? 0 :
                               scandir(folder, &entries, is_table, alphasort);
    for (i = 0; i < count; ++i) {
        if (!is_found) {
            is_found = (snprintf(path, size, "%s/%s", folder,
                                 entries[i]->d_name) < (int)size) &&
                       file_is_for(path, empty->node);
        }
        free(entries[i]);
    }

    if (count > 0) {
        free(entries);
    }

    free(empty);
    return is_found;
}

ucs_status_t uct_cuda_plan_tuning_get(const char *setting,
                                      const uct_cuda_topo_t *topo, char *error,
                                      size_t error_size,
                                      uct_cuda_plan_tuning_t **tuning_p)
{
    const bool is_auto = (strcmp(setting, "auto") == 0);
    char path[512];

    *tuning_p = NULL;
    error[0]  = '\0';
    if ((setting[0] == '\0') ||
        (is_auto && !find_installed(topo, path, sizeof(path)))) {
        return UCS_OK;
    }

    return load(is_auto ? path : setting, topo, error, error_size, tuning_p);
}
