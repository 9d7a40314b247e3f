/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts about a release's tables, observed in libuct itself. */

#ifndef UCT_ABI_TABLES_H_
#define UCT_ABI_TABLES_H_

#include "layout.h"
#include "symbols.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Find a function of libuct by its name; NULL: missing. */
typedef uct_abi_fn_t (*uct_abi_find_t)(void *arg, const char *name);

/* Check which entries of the operation tables are called by functions of
   libuct, by calling them with dummy objects. Returns the name of the first
   function that is missing or calls another entry than described, or NULL. Only
   for releases whose functions do nothing before this call (1.21 and later). */
const char *uct_abi_tables_verify(const uct_abi_release_t *release,
                                  uct_abi_find_t find, void *arg);

/* Type of uct_iface_base_query_v2, if the release has it. */
typedef ucs_status_t (*uct_abi_query_v2_t)(uct_iface_h iface, void *attr);

/* Return whether it clears each field of uct_iface_attr_v2_t needed for lists
   at the described offset, if this field is requested, and no other. If not,
   lists must not be offered to UCX. */
int uct_abi_tables_has_lists(const uct_abi_release_t *release,
                             uct_abi_query_v2_t query);

/* Return the bit of field_mask for a field of uct_iface_attr_v2_t. */
static inline uint64_t
uct_abi_attr_v2_bit(const uct_abi_layout_t *layout, int field)
{
    return 1ul << (layout->offset[field] / 8 - 1);
}

#ifdef __cplusplus
}
#endif

#endif
