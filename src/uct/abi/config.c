/* SPDX-License-Identifier: BSD-3-Clause */
/* Configuration variables: UCX's field tables made from our description. */

#include "host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* UCX's functions for a type, without their common prefix ucs_config_, and the
   type's text in ucx_info. */
typedef struct {
    const char *read;
    const char *write;
    const char *clone;
    const char *release;
    const char *help;
    const char *text;
} uct_abi_config_parser_t;

#define UCT_ABI_PLAIN(_read, _write, _clone, _text) \
    {"sscanf_" _read, "sprintf_" _write, "clone_" _clone, "release_nop", \
     "help_generic", _text}

static const uct_abi_config_parser_t uct_abi_config_parsers[] = {
    [UCT_ABI_CONFIG_BOOL] = UCT_ABI_PLAIN("bool", "bool", "int", "<y|n>"),
    [UCT_ABI_CONFIG_TERNARY] = UCT_ABI_PLAIN("ternary", "ternary_auto", "int",
                                             "<yes|no|try>"),
    [UCT_ABI_CONFIG_TERNARY_AUTO] = UCT_ABI_PLAIN("ternary_auto",
                                                  "ternary_auto", "int",
                                                  "<yes|no|try|auto>"),
    [UCT_ABI_CONFIG_ON_OFF_AUTO] = UCT_ABI_PLAIN("on_off_auto", "on_off_auto",
                                                 "int", "<on|off|auto>"),
    [UCT_ABI_CONFIG_UINT] = UCT_ABI_PLAIN("uint", "uint", "uint",
                                          "unsigned integer or \"inf\""),
    [UCT_ABI_CONFIG_ULUNITS] = UCT_ABI_PLAIN("ulunits", "ulunits", "ulong",
                                             "number, \"inf\" or \"auto\""),
    [UCT_ABI_CONFIG_MEMUNITS] = UCT_ABI_PLAIN(
            "memunits", "memunits", "ulong",
            "bytes: <number>[b|kb|mb|gb], \"inf\" or \"auto\""),
    [UCT_ABI_CONFIG_DOUBLE] = UCT_ABI_PLAIN("double", "double", "double",
                                            "number"),
    [UCT_ABI_CONFIG_TIME] = UCT_ABI_PLAIN("time", "time", "double",
                                          "time: <number>[m|s|ms|us|ns]"),
    [UCT_ABI_CONFIG_BW] = UCT_ABI_PLAIN(
            "bw", "bw", "double",
            "bandwidth: <number>[T|G|M|K]B|b[[p|/]s] or \"auto\""),
    [UCT_ABI_CONFIG_ENUM] = {"sscanf_enum", "sprintf_enum", "clone_uint",
                             "release_nop", "help_enum", NULL},
    [UCT_ABI_CONFIG_STRING] = {"sscanf_string", "sprintf_string",
                               "clone_string", "release_string",
                               "help_generic", "string"}
};

static const uct_abi_config_parser_t uct_abi_config_parser_table =
        {"sscanf_table", NULL, "clone_table", "release_table", "help_table",
         NULL};

static void *uct_abi_config_symbol(void *libucs, const char *end)
{
    char name[64];

    if (end == NULL) {
        return NULL;
    }

    snprintf(name, sizeof(name), "ucs_config_%s", end);
    return dlsym(libucs, name);
}

static void uct_abi_config_field_emit(const uct_abi_release_t *release,
                                      void *libucs,
                                      const uct_abi_config_parser_t *parser,
                                      const char *name, const char *dfl,
                                      const char *doc, size_t offset,
                                      const void *arg, void *field)
{
    void **functions = uct_abi_at(release->field, field, UCT_ABI_FIELD_parser);
    char *base       = (char*)functions;

    *(const char**)uct_abi_at(release->field, field, UCT_ABI_FIELD_name) = name;
    *(const char**)uct_abi_at(release->field, field,
                              UCT_ABI_FIELD_dfl_value) = dfl;
    *(const char**)uct_abi_at(release->field, field, UCT_ABI_FIELD_doc) = doc;
    *(size_t*)uct_abi_at(release->field, field, UCT_ABI_FIELD_offset) = offset;

    functions[0] = uct_abi_config_symbol(libucs, parser->read);
    functions[1] = uct_abi_config_symbol(libucs, parser->write);
    functions[2] = uct_abi_config_symbol(libucs, parser->clone);
    functions[3] = uct_abi_config_symbol(libucs, parser->release);
    functions[4] = uct_abi_config_symbol(libucs, parser->help);
    if (release->parser->doc != UCT_ABI_NONE) {
        *(void**)(base + release->parser->doc) =
                uct_abi_config_symbol(libucs, "doc_nop");
    }
    *(const void**)(base + release->parser->arg) = arg;
}

void *uct_abi_config_emit(const uct_abi_host_t *host,
                          const uct_abi_config_t *config, int base)
{
    const uct_abi_release_t *release = host->release;
    size_t size                      = (size_t)release->field->size;
    const uct_abi_config_field_t *field;
    const void *arg;
    char *table, *next;
    size_t count;
    void *libucs;

    for (count = 0; (config->fields != NULL) &&
                    (config->fields[count].type != UCT_ABI_CONFIG_END);
         ++count) {
    }

    libucs = dlopen(host->libucs_path, RTLD_LAZY | RTLD_NOLOAD);
    if (libucs == NULL) {
        return NULL;
    }

    table = calloc(count + 2, size); /* with the base variables, and a zeroed
                                        last entry */
    if (table == NULL) {
        goto out;
    }

    next = table;
    if (base) {
        uct_abi_config_field_emit(release, libucs, &uct_abi_config_parser_table,
                                  "", "", NULL, 0,
                                  host->sym.uct_iface_config_table, next);
        next += size;
    }

    for (field = config->fields; count > 0; --count, ++field, next += size) {
        if (field->type == UCT_ABI_CONFIG_ENUM) {
            arg = field->names;
        } else {
            arg = uct_abi_config_parsers[field->type].text;
        }
        uct_abi_config_field_emit(release, libucs,
                                  &uct_abi_config_parsers[field->type],
                                  field->name, field->dfl, field->doc,
                                  field->offset, arg, next);
    }

out:
    dlclose(libucs);
    return table;
}
