/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Find the entry of an operation table that a function of libuct calls.
 *
 * libuct's functions for transports' internal operations take an object, look
 * up its table and call one entry. This file passes an object whose table has a
 * different function in each entry. The one that runs shows the entry of this
 * operation in the running libuct, whatever version it reports.
 */

#include "tables.h"

#include <string.h>

/* More entries than any table of UCX, to detect calls of unknown ones. */
#define UCT_ABI_TABLES_SLOTS 64

/* uct_base_iface_t.internal_ops: after uct_iface_ops_t, in every release. */
#define UCT_ABI_TABLES_INTERNAL_OPS (sizeof(uct_iface_ops_t) / sizeof(void*))

#define UCT_ABI_TABLES_8(_, _n) \
    _(_n##0) _(_n##1) _(_n##2) _(_n##3) _(_n##4) _(_n##5) _(_n##6) _(_n##7)
#define UCT_ABI_TABLES_64(_) \
    UCT_ABI_TABLES_8(_, 00) UCT_ABI_TABLES_8(_, 01) UCT_ABI_TABLES_8(_, 02) \
    UCT_ABI_TABLES_8(_, 03) UCT_ABI_TABLES_8(_, 04) UCT_ABI_TABLES_8(_, 05) \
    UCT_ABI_TABLES_8(_, 06) UCT_ABI_TABLES_8(_, 07)

static __thread int uct_abi_tables_called; /* called entry; -1: no call */

/* Octal, so that two digits count to 64. */
#define UCT_ABI_TABLES_DEFINE(_n) \
    static long uct_abi_tables_slot_##_n(void) \
    { \
        uct_abi_tables_called = _n; \
        return 0; \
    }
UCT_ABI_TABLES_64(UCT_ABI_TABLES_DEFINE)

#define UCT_ABI_TABLES_NAME(_n) (uct_abi_fn_t)uct_abi_tables_slot_##_n,
static const uct_abi_fn_t uct_abi_tables_slots[UCT_ABI_TABLES_SLOTS] = {
    UCT_ABI_TABLES_64(UCT_ABI_TABLES_NAME)
};

/* All arguments behind the object point to zeros: no flag is set, no field
   requested, and an address or a length is not 0. */
typedef long (*uct_abi_tables_fn_t)(void *object, void *arg1, void *arg2,
                                    void *arg3, void *arg4, void *arg5);

static int uct_abi_tables_call(uct_abi_fn_t fn, void *object)
{
    uint64_t zeros[64] = {0};
    uct_abi_tables_fn_t call;

    memcpy(&call, &fn, sizeof(call));
    uct_abi_tables_called = -1;
    (void)call(object, zeros, zeros, zeros, zeros, zeros);
    return uct_abi_tables_called;
}

const char *uct_abi_tables_verify(const uct_abi_release_t *release,
                                  uct_abi_find_t find, void *arg)
{
    const void *iface[UCT_ABI_BASE_IFACE_SIZE / sizeof(void*)] = {NULL};
    const void *ep[1] = {iface};
    const void *md[2] = {uct_abi_tables_slots, NULL};
    const struct {
        const char *name;
        const void *object;
        int        offset;
    } functions[] = {
#define UCT_ABI_TABLES_MD(_name, _field) \
    {#_name, md, release->md_ops->offset[UCT_ABI_MD_OPS_##_field]}
#define UCT_ABI_TABLES_INTERNAL(_name, _object, _field) \
    {#_name, _object, \
     release->internal_ops->offset[UCT_ABI_INTERNAL_OPS_##_field]}
        UCT_ABI_TABLES_MD(uct_md_mem_reg_v2, mem_reg),
        UCT_ABI_TABLES_MD(uct_md_mem_dereg_v2, mem_dereg),
        UCT_ABI_TABLES_MD(uct_md_mem_query_v2, mem_query),
        UCT_ABI_TABLES_MD(uct_md_mkey_pack_v2, mkey_pack),
        UCT_ABI_TABLES_MD(uct_md_detect_memory_type, detect_memory_type),
        UCT_ABI_TABLES_MD(uct_md_mem_elem_pack, mem_elem_pack),
        UCT_ABI_TABLES_MD(uct_md_mem_elem_release, mem_elem_release),
        UCT_ABI_TABLES_INTERNAL(uct_iface_query_v2, iface, iface_query_v2),
        UCT_ABI_TABLES_INTERNAL(uct_iface_estimate_perf, iface,
                                iface_estimate_perf),
        UCT_ABI_TABLES_INTERNAL(uct_iface_is_reachable_v2, iface,
                                iface_is_reachable_v2),
        UCT_ABI_TABLES_INTERNAL(uct_ep_query, ep, ep_query),
        UCT_ABI_TABLES_INTERNAL(uct_ep_invalidate, ep, ep_invalidate),
        UCT_ABI_TABLES_INTERNAL(uct_ep_connect_to_ep_v2, ep,
                                ep_connect_to_ep_v2),
        UCT_ABI_TABLES_INTERNAL(uct_ep_is_connected, ep, ep_is_connected),
        UCT_ABI_TABLES_INTERNAL(uct_ep_get_device_ep, ep, ep_get_device_ep),
        UCT_ABI_TABLES_INTERNAL(uct_ep_put_sgl_zcopy, ep, ep_put_sgl_zcopy),
        UCT_ABI_TABLES_INTERNAL(uct_ep_get_sgl_zcopy, ep, ep_get_sgl_zcopy),
        UCT_ABI_TABLES_INTERNAL(uct_ep_outstanding_purge, ep,
                                ep_outstanding_purge)
    };
    uct_abi_fn_t fn;
    unsigned i;
    int called;

    iface[UCT_ABI_TABLES_INTERNAL_OPS] = uct_abi_tables_slots;

    for (i = 0; i < sizeof(functions) / sizeof(functions[0]); ++i) {
        if (functions[i].offset == UCT_ABI_NONE) {
            continue;
        }

        fn = find(arg, functions[i].name);
        if (fn == NULL) {
            return functions[i].name;
        }

        called = uct_abi_tables_call(fn, (void*)(uintptr_t)functions[i].object);
        if (called * (int)sizeof(void*) != functions[i].offset) {
            return functions[i].name;
        }
    }

    return NULL;
}

int uct_abi_tables_has_lists(const uct_abi_release_t *release,
                             uct_abi_query_v2_t query)
{
    const uct_abi_layout_t *layout = release->iface_attr_v2;
    uint64_t attr[16], expected[16];
    int field;

    if ((layout == NULL) || (query == NULL)) {
        return 0;
    }

    for (field = UCT_ABI_IFACE_ATTR_V2_field_mask + 1;
         field < UCT_ABI_IFACE_ATTR_V2_LAST; ++field) {
        if (!uct_abi_has(layout, field)) {
            continue;
        }

        memset(attr, 0xff, sizeof(attr));
        attr[0] = uct_abi_attr_v2_bit(layout, field);
        memcpy(expected, attr, sizeof(attr));
        *(uint64_t*)uct_abi_at(layout, expected, field) = 0;
        if ((query(NULL, attr) != UCS_OK) ||
            (memcmp(attr, expected, sizeof(attr)) != 0)) {
            return 0;
        }
    }

    return 1;
}
