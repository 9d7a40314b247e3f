/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layouts of UCX's structures: one description per release.
 *
 * A structure whose fields moved is a table of offsets, one column per field. A
 * structure that only grew at its end is a plain declaration (args.h).
 */

#ifndef UCT_ABI_LAYOUT_H_
#define UCT_ABI_LAYOUT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UCT_ABI_RELEASE_FIRST 13 /* minor numbers of UCX 1.x */
#define UCT_ABI_RELEASE_LAST  23
#define UCT_ABI_NONE          (-1)
#define UCT_ABI_FIELDS_MAX    24

/* Processors, in the order of uct_abi_cpu_sizes_t */
enum {
    UCT_ABI_CPU_X86_64,
    UCT_ABI_CPU_AARCH64,
    UCT_ABI_CPU_LAST,
#if defined(__x86_64__)
    UCT_ABI_CPU = UCT_ABI_CPU_X86_64 /* The processor of this build */
#elif defined(__aarch64__)
    UCT_ABI_CPU = UCT_ABI_CPU_AARCH64
#else
#error "the sizes of UCX's structures on this processor are not known"
#endif
};

/* Fields in the order of the columns in layout.c. Names are UCX's. */
#define UCT_ABI_COMPONENT_FIELDS(_) \
    _(name) _(query_md_resources) _(md_open) _(cm_open) _(rkey_unpack) \
    _(rkey_ptr) _(rkey_release) _(rkey_compare) _(md_config) _(cm_config) \
    _(tl_list) _(list) _(flags) _(md_vfs_init)

#define UCT_ABI_TL_FIELDS(_) \
    _(name) _(query_devices) _(iface_open) _(config) _(list)

#define UCT_ABI_ENTRY_FIELDS(_) \
    _(name) _(prefix) _(table) _(size) _(list) _(flags)

#define UCT_ABI_FIELD_FIELDS(_) \
    _(name) _(dfl_value) _(doc) _(offset) _(parser)

#define UCT_ABI_MD_OPS_FIELDS(_) \
    _(close) _(query) _(mem_alloc) _(mem_free) _(mem_advise) _(mem_reg) \
    _(mem_dereg) _(mem_query) _(mkey_pack) _(mem_attach) \
    _(detect_memory_type) _(mem_elem_pack) _(is_sockaddr_accessible) \
    _(mem_elem_release)

#define UCT_ABI_INTERNAL_OPS_FIELDS(_) \
    _(iface_query_v2) _(iface_estimate_perf) _(iface_vfs_refresh) _(ep_query) \
    _(ep_invalidate) _(ep_connect_to_ep_v2) _(iface_is_reachable_v2) \
    _(ep_is_connected) _(ep_get_device_ep) _(ep_put_sgl_zcopy) \
    _(iface_mem_element_pack) _(ep_get_sgl_zcopy) _(ep_outstanding_purge)

#define UCT_ABI_MD_ATTR_FIELDS(_) \
    _(field_mask) _(max_alloc) _(max_reg) _(flags) _(reg_mem_types) \
    _(reg_nonblock_mem_types) _(cache_mem_types) _(gva_mem_types) \
    _(detect_mem_types) _(alloc_mem_types) _(access_mem_types) \
    _(dmabuf_mem_types) _(reg_cost) _(component_name) _(rkey_packed_size) \
    _(local_cpus) _(exported_mkey_packed_size) _(global_id) _(reg_alignment) \
    _(required_mem_flags)

#define UCT_ABI_PERF_ATTR_FIELDS(_) \
    _(field_mask) _(operation) _(local_memory_type) _(remote_memory_type) \
    _(local_sys_device) _(remote_sys_device) _(send_pre_overhead) \
    _(send_post_overhead) _(recv_overhead) _(bandwidth) _(path_bandwidth) \
    _(latency) _(max_inflight_eps) _(flags)

/* Each has a bit in field_mask: bit 0 for the field at offset 8, and so on */
#define UCT_ABI_IFACE_ATTR_V2_FIELDS(_) \
    _(field_mask) _(max_put_sgl_zcopy_count) _(max_get_sgl_zcopy_count) \
    _(cap_flags)

#define UCT_ABI_ENUM_COMPONENT(_f)    UCT_ABI_COMPONENT_##_f,
#define UCT_ABI_ENUM_TL(_f)           UCT_ABI_TL_##_f,
#define UCT_ABI_ENUM_ENTRY(_f)        UCT_ABI_ENTRY_##_f,
#define UCT_ABI_ENUM_FIELD(_f)        UCT_ABI_FIELD_##_f,
#define UCT_ABI_ENUM_MD_OPS(_f)       UCT_ABI_MD_OPS_##_f,
#define UCT_ABI_ENUM_INTERNAL_OPS(_f) UCT_ABI_INTERNAL_OPS_##_f,
#define UCT_ABI_ENUM_MD_ATTR(_f)      UCT_ABI_MD_ATTR_##_f,
#define UCT_ABI_ENUM_PERF_ATTR(_f)    UCT_ABI_PERF_ATTR_##_f,
#define UCT_ABI_ENUM_IFACE_ATTR_V2(_f) UCT_ABI_IFACE_ATTR_V2_##_f,

enum {
    UCT_ABI_COMPONENT_FIELDS(UCT_ABI_ENUM_COMPONENT)
    UCT_ABI_COMPONENT_LAST
};
enum { UCT_ABI_TL_FIELDS(UCT_ABI_ENUM_TL) UCT_ABI_TL_LAST };
enum { UCT_ABI_ENTRY_FIELDS(UCT_ABI_ENUM_ENTRY) UCT_ABI_ENTRY_LAST };
enum { UCT_ABI_FIELD_FIELDS(UCT_ABI_ENUM_FIELD) UCT_ABI_FIELD_LAST };
enum { UCT_ABI_MD_OPS_FIELDS(UCT_ABI_ENUM_MD_OPS) UCT_ABI_MD_OPS_LAST };
enum {
    UCT_ABI_INTERNAL_OPS_FIELDS(UCT_ABI_ENUM_INTERNAL_OPS)
    UCT_ABI_INTERNAL_OPS_LAST
};
enum { UCT_ABI_MD_ATTR_FIELDS(UCT_ABI_ENUM_MD_ATTR) UCT_ABI_MD_ATTR_LAST };
enum {
    UCT_ABI_PERF_ATTR_FIELDS(UCT_ABI_ENUM_PERF_ATTR)
    UCT_ABI_PERF_ATTR_LAST
};
enum {
    UCT_ABI_IFACE_ATTR_V2_FIELDS(UCT_ABI_ENUM_IFACE_ATTR_V2)
    UCT_ABI_IFACE_ATTR_V2_LAST
};

/* Layout of one structure in a group of releases, in bytes. */
typedef struct {
    int16_t size;
    int16_t offset[UCT_ABI_FIELDS_MAX]; /* UCT_ABI_NONE: missing */
} uct_abi_layout_t;

/* Bytes of a structure whose size depends on the processor. */
typedef int16_t uct_abi_cpu_sizes_t[UCT_ABI_CPU_LAST];

/* The parser inside a configuration field: function pointers, then arg. */
typedef struct {
    int16_t doc; /* UCT_ABI_NONE before 1.17 */
    int16_t arg;
} uct_abi_parser_layout_t;

/* Bits of uct_perf_attr_t.field_mask that moved; 0: missing. */
typedef struct {
    uint16_t path_bandwidth;
    uint16_t latency;
    uint16_t max_inflight_eps;
    uint16_t flags;
} uct_abi_perf_bits_t;

typedef struct {
    unsigned                      minor;
    const uct_abi_layout_t        *component;
    const uct_abi_layout_t        *tl;
    const uct_abi_layout_t        *entry;
    const uct_abi_layout_t        *field;
    const uct_abi_parser_layout_t *parser;
    const uct_abi_layout_t        *md_ops;
    const uct_abi_layout_t        *internal_ops;
    const uct_abi_layout_t        *md_attr;
    const uct_abi_layout_t        *perf_attr;
    const uct_abi_perf_bits_t     *perf_bits;
    const uct_abi_layout_t        *iface_attr_v2; /* NULL: lists are not
                                                     supported */
    int16_t                       memtype_cache_opt; /* offset of
                                        ucs_global_opts.enable_memtype_cache */
    const uct_abi_cpu_sizes_t     *global_opts_size;
    int                           mem_type_unknown;
    uint64_t                      md_flags;      /* flags known to the
                                                    release */
    const char                    *born_symbol;  /* libuct or libucs exports it
                                                    from this release on */
} uct_abi_release_t;

/* Return the first description with this minor number, or NULL. */
const uct_abi_release_t *uct_abi_release_find(unsigned minor);

/* Return the next description in UCX's order of changes, or NULL. Several may
   have one number: a layout can change without a new number. */
const uct_abi_release_t *
uct_abi_release_next(const uct_abi_release_t *release);

static inline void *
uct_abi_at(const uct_abi_layout_t *layout, const void *base, int field)
{
    return (char*)(uintptr_t)base + layout->offset[field];
}

static inline int uct_abi_has(const uct_abi_layout_t *layout, int field)
{
    return layout->offset[field] != UCT_ABI_NONE;
}

#ifdef __cplusplus
}
#endif

#endif
