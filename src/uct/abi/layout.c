/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layouts of UCX's structures by release. A test compares them with
 * test/abi-facts. They are valid for x86_64 and aarch64, since pointers,
 * integers and alignments are the same; sizes that differ are given for each.
 */

#include "layout.h"

#define NO UCT_ABI_NONE

/* name, query_md_resources, md_open, cm_open, rkey_unpack, rkey_ptr,
 * rkey_release, rkey_compare, md_config, cm_config, tl_list, list, flags,
 * md_vfs_init */
static const uct_abi_layout_t component_13 =
        {208, {0, 16, 24, 32, 40, 48, 56, NO, 64, 112, 160, 176, 192, 200}};
static const uct_abi_layout_t component_15 =
        {224, {0, 16, 24, 32, 40, 48, 56, NO, 64, 120, 176, 192, 208, 216}};
static const uct_abi_layout_t component_16 =
        {232, {0, 16, 24, 32, 40, 48, 56, 64, 72, 128, 184, 200, 216, 224}};

/* name, query_devices, iface_open, config, list */
static const uct_abi_layout_t tl_13 = {96, {0, 16, 24, 32, 80}};
static const uct_abi_layout_t tl_15 = {104, {0, 16, 24, 32, 88}};

/* name, prefix, table, size, list, flags */
static const uct_abi_layout_t entry_13 = {48, {0, 8, 16, 24, 32, NO}};
static const uct_abi_layout_t entry_15 = {56, {0, 8, 16, 24, 32, 48}};

/* name, dfl_value, doc, offset, parser */
static const uct_abi_layout_t field_13 = {80, {0, 8, 16, 24, 32}};
static const uct_abi_layout_t field_17 = {88, {0, 8, 16, 24, 32}};

/* inside the parser: doc, arg */
static const uct_abi_parser_layout_t parser_13 = {NO, 40};
static const uct_abi_parser_layout_t parser_17 = {40, 48};

/* close, query, mem_alloc, mem_free, mem_advise, mem_reg, mem_dereg, mem_query,
 * mkey_pack, mem_attach, detect_memory_type, mem_elem_pack,
 * is_sockaddr_accessible, mem_elem_release */
static const uct_abi_layout_t md_ops_13 =
        {88, {0, 8, 16, 24, 32, 40, 48, 56, 64, NO, 80, NO, 72, NO}};
static const uct_abi_layout_t md_ops_14 =
        {96, {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 88, NO, 80, NO}};
static const uct_abi_layout_t md_ops_16 =
        {88, {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, NO, NO, NO}};
static const uct_abi_layout_t md_ops_21 =
        {96, {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, NO, NO}};
static const uct_abi_layout_t md_ops_22_1 =
        {104, {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, NO, 96}};

/* iface_query_v2, iface_estimate_perf, iface_vfs_refresh, ep_query,
 * ep_invalidate, ep_connect_to_ep_v2, iface_is_reachable_v2, ep_is_connected,
 * ep_get_device_ep, ep_put_sgl_zcopy, iface_mem_element_pack,
 * ep_get_sgl_zcopy, ep_outstanding_purge */
static const uct_abi_layout_t internal_ops_13 =
        {32, {NO, 0, 8, 16, 24, NO, NO, NO, NO, NO, NO, NO, NO}};
static const uct_abi_layout_t internal_ops_14 =
        {40, {NO, 0, 8, 16, 24, 32, NO, NO, NO, NO, NO, NO, NO}};
static const uct_abi_layout_t internal_ops_15 =
        {48, {NO, 0, 8, 16, 24, 32, 40, NO, NO, NO, NO, NO, NO}};
static const uct_abi_layout_t internal_ops_16 =
        {56, {NO, 0, 8, 16, 24, 32, 40, 48, NO, NO, NO, NO, NO}};
static const uct_abi_layout_t internal_ops_20 =
        {80, {0, 8, 16, 32, 40, 48, 56, 64, 72, NO, 24, NO, NO}};
static const uct_abi_layout_t internal_ops_21 =
        {64, {NO, 0, 8, 16, 24, 32, 40, 48, 56, NO, NO, NO, NO}};
static const uct_abi_layout_t internal_ops_22 =
        {80, {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, NO, NO, NO}};

static const uct_abi_layout_t internal_ops_23 =
        {96, {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, NO, 80, 88}};

/* field_mask, max_alloc, max_reg, flags, reg_mem_types, reg_nonblock_mem_types,
   cache_mem_types, gva_mem_types, detect_mem_types, alloc_mem_types,
   access_mem_types, dmabuf_mem_types, reg_cost, component_name,
   rkey_packed_size, local_cpus, exported_mkey_packed_size, global_id,
   reg_alignment, required_mem_flags. 1.13 has uct_md_attr_t, later releases
   have uct_md_attr_v2_t. */
static const uct_abi_layout_t md_attr_13 =
        {224, {NO, 0, 8, 16, 24, NO, NO, NO, 32, 40, 48, NO, 56, 72, 88, 96,
               NO, NO, NO, NO}};
static const uct_abi_layout_t md_attr_14 =
        {512, {0, 8, 16, 24, 32, NO, 40, NO, 48, 56, 64, 72, 80, 96, 112, 120,
               248, 256, NO, NO}};
static const uct_abi_layout_t md_attr_15 =
        {520, {0, 8, 16, 24, 32, 40, 48, NO, 56, 64, 72, 80, 88, 104, 120, 128,
               256, 264, NO, NO}};
static const uct_abi_layout_t md_attr_16 =
        {528, {0, 8, 16, 24, 32, 40, 48, NO, 56, 64, 72, 80, 88, 104, 120, 128,
               256, 264, 520, NO}};
static const uct_abi_layout_t md_attr_18 =
        {536, {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 112, 128, 136,
               264, 272, 528, NO}};
static const uct_abi_layout_t md_attr_22 =
        {544, {0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 112, 128, 136,
               264, 272, 528, 536}};

/* field_mask, operation, local_memory_type, remote_memory_type,
 * local_sys_device, remote_sys_device, send_pre_overhead, send_post_overhead,
 * recv_overhead, bandwidth, path_bandwidth, latency, max_inflight_eps, flags */
static const uct_abi_layout_t perf_attr_13 =
        {88, {0, 8, 12, 16, 20, 21, 24, 32, 40, 48, NO, 64, 80, NO}};
static const uct_abi_layout_t perf_attr_17 =
        {96, {0, 8, 12, 16, 20, 21, 24, 32, 40, 48, NO, 64, 80, 88}};
static const uct_abi_layout_t perf_attr_19 =
        {112, {0, 8, 12, 16, 20, 21, 24, 32, 40, 48, 64, 80, 96, 104}};

/* path_bandwidth, latency, max_inflight_eps, flags */
static const uct_abi_perf_bits_t perf_bits_13 = {0, 1 << 9, 1 << 10, 0};
static const uct_abi_perf_bits_t perf_bits_17 = {0, 1 << 9, 1 << 10, 1 << 11};
static const uct_abi_perf_bits_t perf_bits_19 = {1 << 9, 1 << 10, 1 << 11,
                                                 1 << 12};

/* field_mask, max_put_sgl_zcopy_count, max_get_sgl_zcopy_count, cap_flags */
static const uct_abi_layout_t iface_attr_v2_22 = {56, {0, 8, NO, 16}};
static const uct_abi_layout_t iface_attr_v2_23 = {64, {0, 8, 16, 24}};

/* ucs_global_opts includes the processor's own options: x86_64 (thresholds of
   its copies), aarch64 (none) */
static const uct_abi_cpu_sizes_t global_opts_13 = {360, 344};
static const uct_abi_cpu_sizes_t global_opts_14 = {352, 336};
static const uct_abi_cpu_sizes_t global_opts_18 = {432, 400};
static const uct_abi_cpu_sizes_t global_opts_22 = {448, 416};

#define MD_FLAGS_13 0x1ff              /* up to INVALIDATE */
#define MD_FLAGS_14 (MD_FLAGS_13 | 0x600)  /* EXPORTED_MKEY, REG_DMABUF */
#define MD_FLAGS_15 (MD_FLAGS_14 | 0x1800) /* INVALIDATE_RMA, _AMO */
#define MD_FLAGS_19 (MD_FLAGS_15 | 0x2000) /* MEMTYPE_COPY */

static const uct_abi_release_t uct_abi_releases[] = {
    {13, &component_13, &tl_13, &entry_13, &field_13, &parser_13, &md_ops_13,
     &internal_ops_13, &md_attr_13, &perf_attr_13, &perf_bits_13, NULL,
     144, &global_opts_13, 5, MD_FLAGS_13,
     "ucs_memtype_cache_global_instance"},
    {14, &component_13, &tl_13, &entry_13, &field_13, &parser_13, &md_ops_14,
     &internal_ops_14, &md_attr_14, &perf_attr_13, &perf_bits_13, NULL,
     140, &global_opts_14, 5, MD_FLAGS_14,
     "uct_md_mem_reg_v2"},
    {15, &component_15, &tl_15, &entry_15, &field_13, &parser_13, &md_ops_14,
     &internal_ops_15, &md_attr_15, &perf_attr_13, &perf_bits_13, NULL,
     140, &global_opts_14, 5, MD_FLAGS_15,
     "ucs_numa_distance"},
    {16, &component_16, &tl_15, &entry_15, &field_13, &parser_13, &md_ops_16,
     &internal_ops_16, &md_attr_16, &perf_attr_13, &perf_bits_13, NULL,
     140, &global_opts_14, 6, MD_FLAGS_15,
     "uct_rkey_compare"},
    {17, &component_16, &tl_15, &entry_15, &field_17, &parser_17, &md_ops_16,
     &internal_ops_16, &md_attr_16, &perf_attr_17, &perf_bits_17, NULL,
     140, &global_opts_14, 9, MD_FLAGS_15,
     "ucs_config_doc_nop"},
    {18, &component_16, &tl_15, &entry_15, &field_17, &parser_17, &md_ops_16,
     &internal_ops_16, &md_attr_18, &perf_attr_17, &perf_bits_17, NULL,
     140, &global_opts_18, 9, MD_FLAGS_15,
     "uct_iface_fill_info_str_buf"},
    {19, &component_16, &tl_15, &entry_15, &field_17, &parser_17, &md_ops_16,
     &internal_ops_16, &md_attr_18, &perf_attr_19, &perf_bits_19, NULL,
     140, &global_opts_18, 9, MD_FLAGS_19,
     "uct_rkey_unpack_v2"},
    {20, &component_16, &tl_15, &entry_15, &field_17, &parser_17, &md_ops_16,
     &internal_ops_20, &md_attr_18, &perf_attr_19, &perf_bits_19, NULL,
     140, &global_opts_18, 9, MD_FLAGS_19,
     "uct_ep_get_device_ep"},
    {21, &component_16, &tl_15, &entry_15, &field_17, &parser_17, &md_ops_21,
     &internal_ops_21, &md_attr_18, &perf_attr_19, &perf_bits_19, NULL,
     140, &global_opts_18, 10, MD_FLAGS_19,
     "uct_md_mem_elem_pack"},
    {22, &component_16, &tl_15, &entry_15, &field_17, &parser_17, &md_ops_21,
     &internal_ops_22, &md_attr_22, &perf_attr_19, &perf_bits_19,
     &iface_attr_v2_22, 140, &global_opts_22, 10, MD_FLAGS_19,
     "uct_md_mem_query_v2"},
    /* current state of the 1.22 branch */
    {22, &component_16, &tl_15, &entry_15, &field_17, &parser_17, &md_ops_22_1,
     &internal_ops_22, &md_attr_22, &perf_attr_19, &perf_bits_19,
     &iface_attr_v2_22, 140, &global_opts_22, 10, MD_FLAGS_19,
     "uct_md_mem_elem_release"},
    {23, &component_16, &tl_15, &entry_15, &field_17, &parser_17, &md_ops_22_1,
     &internal_ops_23, &md_attr_22, &perf_attr_19, &perf_bits_19,
     &iface_attr_v2_23, 140, &global_opts_22, 10, MD_FLAGS_19,
     "uct_ep_get_sgl_zcopy"}
};

#define NUM_RELEASES (sizeof(uct_abi_releases) / sizeof(uct_abi_releases[0]))

const uct_abi_release_t *uct_abi_release_find(unsigned minor)
{
    unsigned i;

    for (i = 0; i < NUM_RELEASES; ++i) {
        if (uct_abi_releases[i].minor == minor) {
            return &uct_abi_releases[i];
        }
    }

    return NULL;
}

const uct_abi_release_t *uct_abi_release_next(const uct_abi_release_t *release)
{
    return (release == &uct_abi_releases[NUM_RELEASES - 1]) ? NULL :
                                                              release + 1;
}
