/* SPDX-License-Identifier: BSD-3-Clause */
/* What libuct itself shows of a release's tables. */

#ifndef UCT_ABI_TABLES_H_
#define UCT_ABI_TABLES_H_

#include "layout.h"
#include "symbols.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a function of libuct is; NULL: not there. */
typedef uct_abi_fn_t (*uct_abi_find_t)(void *arg, const char *name);

/* Which entries of the operation tables functions of libuct call, seen by
 * calling them on objects of no substance: the name of the first that is
 * missing or calls another entry than the description says, or NULL. Only for a
 * release whose functions do nothing before they call (1.21 and later). */
const char *uct_abi_tables_verify(const uct_abi_release_t *release,
                                  uct_abi_find_t find, void *arg);

/* What uct_iface_base_query_v2 is, where there is one. */
typedef ucs_status_t (*uct_abi_query_v2_t)(uct_iface_h iface, void *attr);

/* Does it clear each field of uct_iface_attr_v2_t that lists need where the
 * description has it, when that one is asked for, and no other? If not, UCX had
 * better not hear of lists. */
int uct_abi_tables_has_lists(const uct_abi_release_t *release,
                             uct_abi_query_v2_t query);

/* The bit of field_mask for a field of uct_iface_attr_v2_t. */
static inline uint64_t
uct_abi_attr_v2_bit(const uct_abi_layout_t *layout, int field)
{
    return 1ul << (layout->offset[field] / 8 - 1);
}

#ifdef __cplusplus
}
#endif

#endif
