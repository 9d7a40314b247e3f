/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX that the module is attached to, and how it is found. */

#ifndef UCT_ABI_HOST_H_
#define UCT_ABI_HOST_H_

#include "layout.h"
#include "symbols.h"

#include <limits.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UCT_ABI_EXPORT __attribute__((visibility("default")))

/* Exported symbol by which copies of this module recognize each other. */
#ifndef UCT_ABI_MARK
#define UCT_ABI_MARK "uct_abi_attach"
#endif

/* Maximum entries of an operation table of UCX. */
#define UCT_ABI_TABLE_MAX 16

typedef struct {
    const uct_abi_release_t *release;     /* NULL: not attached */
    const void              *libucs_base; /* start of libucs in memory */
    char                    libucs_path[PATH_MAX];
    char                    name[PATH_MAX + 32]; /* for messages */
    uct_abi_symbols_t       sym;

    /* Tables in the host's layout, shared by all objects of the module. */
    uct_abi_fn_t            md_ops[UCT_ABI_TABLE_MAX];
    uct_abi_fn_t            internal_ops[UCT_ABI_TABLE_MAX];
} uct_abi_host_t;

/* Written once, by a successful attach, before anything is registered. */
extern uct_abi_host_t uct_abi_host;

/* The host's module for GDRCopy is loaded. Set before a domain is opened. */
extern int uct_abi_has_gdrcopy;

/* Return the start in memory of the object (program or library) around this
   address; NULL if there is none. */
const void *uct_abi_object_base(const void *address);

/* Return whether the object around this address defines the symbol itself. */
int uct_abi_object_defines(const void *address, const char *symbol);

/* Find libucs by an address inside any library of a UCX: its start in memory
   and its path. UCS_ERR_NO_ELEM if there is none. */
ucs_status_t uct_abi_host_locate(const void *address, uct_abi_host_t *host_p);

/* Identify the release of a located UCX and fill in release and symbols.
   UCS_ERR_UNSUPPORTED, with the reason as text, if the module must not
   attach. */
ucs_status_t uct_abi_host_identify(const void *address, uct_abi_host_t *host_p,
                                   char *reason, size_t max);

/* Fill the operation tables for the host's release. */
void uct_abi_md_ops_emit(uct_abi_host_t *host);

void uct_abi_internal_ops_emit(uct_abi_host_t *host);

/* Return a configuration table in the host's layout, from malloc(); with base
   set it begins with libuct's interface variables. NULL: out of memory. */
void *uct_abi_config_emit(const uct_abi_host_t *host,
                          const uct_abi_config_t *config, int base);

/* Register all components of the module with the attached host. */
ucs_status_t uct_abi_component_register_all(const uct_abi_host_t *host);

/* Remove components with our names that are not ours from its lists. */
void uct_abi_component_displace(const uct_abi_host_t *host);

/* Return whether a component of another copy of this module is on the host's
   list. */
int uct_abi_component_is_twin_registered(const uct_abi_host_t *host);

/* Log through the attached host from now on. */
void uct_abi_log_attach(const uct_abi_host_t *host);

/* Print a warning without UCX, in UCX's form on stderr, about a UCX that the
   module must not call. UCX_LOG_LEVEL below warn silences it. */
void uct_abi_log_outside(const char *format, ...)
        __attribute__((format(printf, 1, 2)));

/* Result of a missing operation; wide enough for every operation's return
   type. */
long uct_abi_unsupported(void);

long uct_abi_zero(void);

/* Copy a field that is valid, or asked for, only with a bit of UCX's mask. */
#define UCT_ABI_TAKE(_mask, _bit, _to, _from) \
    if ((_mask) & (_bit)) { \
        (_to) = (_from); \
    }

static inline void uct_abi_slot_set(const uct_abi_layout_t *layout, void *table,
                                    int field, uct_abi_fn_t fn)
{
    if (uct_abi_has(layout, field)) {
        *(uct_abi_fn_t*)uct_abi_at(layout, table, field) = fn;
    }
}

static inline uct_abi_mem_type_t uct_abi_mem_type_from_host(int mem_type)
{
    return (mem_type == uct_abi_host.release->mem_type_unknown) ?
                   UCT_ABI_MEM_TYPE_UNKNOWN :
                   (uct_abi_mem_type_t)mem_type;
}

static inline int uct_abi_mem_type_to_host(uct_abi_mem_type_t mem_type)
{
    return (mem_type == UCT_ABI_MEM_TYPE_UNKNOWN) ?
                   uct_abi_host.release->mem_type_unknown :
                   (int)mem_type;
}

#ifdef __cplusplus
}
#endif

#endif
