/* SPDX-License-Identifier: BSD-3-Clause */
/* The layouts in src/uct/abi, compared with those of eleven releases. */

#include "facts.h"

#include <uct/abi/abi.h>
#include <uct/abi/args.h>
#include <uct/abi/layout.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#define ABI_NAME(_field) #_field,

static const char *const component_fields[] = {
    UCT_ABI_COMPONENT_FIELDS(ABI_NAME) NULL
};
static const char *const tl_fields[] = {UCT_ABI_TL_FIELDS(ABI_NAME) NULL};
static const char *const entry_fields[] = {UCT_ABI_ENTRY_FIELDS(ABI_NAME) NULL};
static const char *const field_fields[] = {UCT_ABI_FIELD_FIELDS(ABI_NAME) NULL};
static const char *const md_ops_fields[] = {
    UCT_ABI_MD_OPS_FIELDS(ABI_NAME) NULL
};
static const char *const internal_ops_fields[] = {
    UCT_ABI_INTERNAL_OPS_FIELDS(ABI_NAME) NULL
};
static const char *const md_attr_fields[] = {
    UCT_ABI_MD_ATTR_FIELDS(ABI_NAME) NULL
};
static const char *const perf_attr_fields[] = {
    UCT_ABI_PERF_ATTR_FIELDS(ABI_NAME) NULL
};


class test_abi_layout : public ::testing::TestWithParam<unsigned>
{
protected:
    test_abi_layout() : m_facts(TEST_DATA_DIR "/abi-facts/facts.txt")
    {
    }

    void SetUp() override
    {
        m_minor   = GetParam();
        m_release = uct_abi_release_find(m_minor);
        ASSERT_NE(nullptr, m_release);
        ASSERT_EQ(m_minor, m_release->minor);
    }

    /* Check the release's offset of every field of the layout, and the layout
       for all fields of the release. */
    void check(const uct_abi_layout_t *layout, const char *object,
               const char *const *fields)
    {
        int known = 0;

        EXPECT_EQ(m_facts.get(object, "*", m_minor), layout->size) << object;
        for (unsigned i = 0; fields[i] != NULL; ++i) {
            EXPECT_EQ(m_facts.get(object, fields[i], m_minor),
                      layout->offset[i])
                    << object << "." << fields[i];
            known += layout->offset[i] != UCT_ABI_NONE;
        }
        EXPECT_EQ(m_facts.count(object, m_minor), known) << object;
    }

    void at(const char *object, const char *field, size_t offset)
    {
        int fact = m_facts.get(object, field, m_minor);

        if (fact != abi_facts::ABSENT) {
            EXPECT_EQ(fact, (int)offset) << object << "." << field;
        }
    }

    void size_is(const char *object, size_t size)
    {
        EXPECT_EQ(m_facts.get(object, "*", m_minor), (int)size) << object;
    }

    /* Check a structure whose declaration may be longer than an old
       release's. */
    void size_at_least(const char *object, size_t size)
    {
        int fact = m_facts.get(object, "*", m_minor);

        EXPECT_LE(fact, (int)size) << object;
    }

    void bit(const char *name, int value)
    {
        int fact = m_facts.constant(name, m_minor);

        if (fact != abi_facts::ABSENT) {
            EXPECT_EQ(fact, value) << name;
        }
    }

    abi_facts               m_facts;
    unsigned                m_minor;
    const uct_abi_release_t *m_release;
};

TEST_P(test_abi_layout, moved_structures)
{
    check(m_release->component, "uct_component", component_fields);
    check(m_release->tl, "uct_tl_t", tl_fields);
    check(m_release->entry, "ucs_config_global_list_entry_t", entry_fields);
    check(m_release->field, "ucs_config_field_t", field_fields);
    check(m_release->md_ops, "uct_md_ops_t", md_ops_fields);
    check(m_release->internal_ops, "uct_iface_internal_ops_t",
          internal_ops_fields);
    check(m_release->perf_attr, "uct_perf_attr_t", perf_attr_fields);

    EXPECT_LE(m_release->md_ops->size, 16 * (int)sizeof(void*));
    EXPECT_LE(m_release->internal_ops->size, 16 * (int)sizeof(void*));
}

TEST_P(test_abi_layout, md_attr)
{
    if (m_minor > 13) {
        check(m_release->md_attr, "uct_md_attr_v2_t", md_attr_fields);
        return;
    }

    /* In 1.13 the query operation fills a uct_md_attr_t, with some fields
       inside a structure "cap" */
    EXPECT_EQ(m_facts.get("uct_md_attr_t", "*", 13), m_release->md_attr->size);
    int known = 0;
    for (unsigned i = 0; md_attr_fields[i] != NULL; ++i) {
        int offset = m_release->md_attr->offset[i];
        if (offset == UCT_ABI_NONE) {
            continue;
        }

        std::string name = md_attr_fields[i];
        std::vector<std::string> direct = {"reg_cost", "component_name",
                                           "rkey_packed_size", "local_cpus"};
        if (std::find(direct.begin(), direct.end(), name) == direct.end()) {
            name = "cap." + name;
        }
        EXPECT_EQ(m_facts.get("uct_md_attr_t", name, 13), offset) << name;
        ++known;
    }
    EXPECT_EQ(m_facts.count("uct_md_attr_t", 13), known);
}

TEST_P(test_abi_layout, config_parser)
{
    /* five functions, since 1.17 doc, then arg as the last one */
    int in_field = m_release->field->size -
                   m_release->field->offset[UCT_ABI_FIELD_parser];

    EXPECT_EQ(in_field - (int)sizeof(void*), m_release->parser->arg);
    EXPECT_EQ((m_release->field->size == 88) ? 40 : UCT_ABI_NONE,
              m_release->parser->doc);
}

TEST_P(test_abi_layout, global_opts)
{
    size_is("ucs_global_opts_t",
            (*m_release->global_opts_size)[UCT_ABI_CPU_X86_64]);
    size_is("aarch64:ucs_global_opts_t",
            (*m_release->global_opts_size)[UCT_ABI_CPU_AARCH64]);
    at("ucs_global_opts_t", "enable_memtype_cache",
       m_release->memtype_cache_opt);
    at("ucs_global_opts_t", "log_component", 0);
}

#define ABI_AT(_object, _field, _type, _member) \
    at(_object, _field, offsetof(_type, _member))
#define ABI_SAME(_object, _type, _member) \
    at(_object, #_member, offsetof(_type, _member))

TEST_P(test_abi_layout, arguments)
{
    ABI_SAME("uct_ep_params_t", uct_abi_host_ep_params_t, field_mask);
    ABI_SAME("uct_ep_params_t", uct_abi_host_ep_params_t, iface);
    ABI_SAME("uct_ep_params_t", uct_abi_host_ep_params_t, dev_addr);
    ABI_SAME("uct_ep_params_t", uct_abi_host_ep_params_t, iface_addr);
    ABI_SAME("uct_ep_params_t", uct_abi_host_ep_params_t, path_index);
    ABI_SAME("uct_ep_params_t", uct_abi_host_ep_params_t, dev_addr_length);
    ABI_SAME("uct_ep_params_t", uct_abi_host_ep_params_t, iface_addr_length);
    size_at_least("uct_ep_params_t", sizeof(uct_abi_host_ep_params_t));

#define REACHABLE "uct_iface_is_reachable_params_t"
    ABI_SAME(REACHABLE, uct_abi_host_reachable_params_t, field_mask);
    ABI_SAME(REACHABLE, uct_abi_host_reachable_params_t, device_addr);
    ABI_SAME(REACHABLE, uct_abi_host_reachable_params_t, iface_addr);
    ABI_SAME(REACHABLE, uct_abi_host_reachable_params_t, info_string);
    ABI_SAME(REACHABLE, uct_abi_host_reachable_params_t, info_string_length);
    ABI_SAME(REACHABLE, uct_abi_host_reachable_params_t, scope);
    ABI_SAME(REACHABLE, uct_abi_host_reachable_params_t, device_addr_length);
    ABI_SAME(REACHABLE, uct_abi_host_reachable_params_t, iface_addr_length);

#define CONNECTED "uct_ep_is_connected_params_t"
    ABI_SAME(CONNECTED, uct_abi_host_connected_params_t, field_mask);
    ABI_SAME(CONNECTED, uct_abi_host_connected_params_t, device_addr);
    ABI_SAME(CONNECTED, uct_abi_host_connected_params_t, iface_addr);
    ABI_SAME(CONNECTED, uct_abi_host_connected_params_t, ep_addr);

    ABI_SAME("uct_md_mem_attr_t", uct_abi_host_mem_attr_t, field_mask);
    ABI_SAME("uct_md_mem_attr_t", uct_abi_host_mem_attr_t, mem_type);
    ABI_SAME("uct_md_mem_attr_t", uct_abi_host_mem_attr_t, sys_dev);
    ABI_SAME("uct_md_mem_attr_t", uct_abi_host_mem_attr_t, base_address);
    ABI_SAME("uct_md_mem_attr_t", uct_abi_host_mem_attr_t, alloc_length);
    ABI_SAME("uct_md_mem_attr_t", uct_abi_host_mem_attr_t, dmabuf_fd);
    ABI_SAME("uct_md_mem_attr_t", uct_abi_host_mem_attr_t, dmabuf_offset);

#define MEM_REG "uct_md_mem_reg_params_t"
    ABI_SAME(MEM_REG, uct_abi_host_mem_reg_params_t, field_mask);
    ABI_SAME(MEM_REG, uct_abi_host_mem_reg_params_t, flags);
    ABI_SAME(MEM_REG, uct_abi_host_mem_reg_params_t, dmabuf_fd);
    ABI_SAME(MEM_REG, uct_abi_host_mem_reg_params_t, dmabuf_offset);
    ABI_SAME(MEM_REG, uct_abi_host_mem_reg_params_t, mem_type);

#define MEM_DEREG "uct_md_mem_dereg_params_t"
    ABI_SAME(MEM_DEREG, uct_abi_host_mem_dereg_params_t, field_mask);
    ABI_SAME(MEM_DEREG, uct_abi_host_mem_dereg_params_t, flags);
    ABI_SAME(MEM_DEREG, uct_abi_host_mem_dereg_params_t, memh);
    ABI_SAME(MEM_DEREG, uct_abi_host_mem_dereg_params_t, comp);
    size_is(MEM_DEREG, sizeof(uct_abi_host_mem_dereg_params_t));

    ABI_SAME("uct_rkey_unpack_params_t", uct_abi_host_rkey_unpack_params_t,
             field_mask);
    ABI_SAME("uct_rkey_unpack_params_t", uct_abi_host_rkey_unpack_params_t,
             sys_device);

    ABI_SAME("ucs_class_t", uct_abi_host_class_t, name);
    ABI_SAME("ucs_class_t", uct_abi_host_class_t, size);
    ABI_SAME("ucs_class_t", uct_abi_host_class_t, superclass);
    ABI_SAME("ucs_class_t", uct_abi_host_class_t, init);
    ABI_SAME("ucs_class_t", uct_abi_host_class_t, cleanup);
    size_is("ucs_class_t", sizeof(uct_abi_host_class_t));

    ABI_SAME("ucs_sys_bus_id_t", uct_abi_host_bus_id_t, domain);
    ABI_SAME("ucs_sys_bus_id_t", uct_abi_host_bus_id_t, bus);
    ABI_SAME("ucs_sys_bus_id_t", uct_abi_host_bus_id_t, slot);
    ABI_SAME("ucs_sys_bus_id_t", uct_abi_host_bus_id_t, function);
    size_is("ucs_sys_bus_id_t", sizeof(uct_abi_host_bus_id_t));

    ABI_SAME("ucm_event_t", uct_abi_host_mem_event_t, vm_unmapped.address);
    ABI_SAME("ucm_event_t", uct_abi_host_mem_event_t, vm_unmapped.size);
}

TEST_P(test_abi_layout, objects_of_the_module)
{
    size_is("uct_base_iface_t", UCT_ABI_BASE_IFACE_SIZE);
    EXPECT_EQ((size_t)UCT_ABI_BASE_IFACE_SIZE, offsetof(uct_abi_iface_t, ops));
    size_is("uct_base_ep_t", sizeof(uct_abi_ep_t));
    size_is("uct_md", offsetof(uct_abi_md_t, ops));
    at("uct_md", "ops", offsetof(uct_abi_md_t, host_ops));
    at("uct_md", "component", offsetof(uct_abi_md_t, host_component));
    size_is("uct_iface_config_t", sizeof(uct_abi_iface_config_t));

    size_is("uct_tl_device_resource_t", sizeof(uct_abi_tl_device_t));
    ABI_SAME("uct_tl_device_resource_t", uct_abi_tl_device_t, name);
    ABI_SAME("uct_tl_device_resource_t", uct_abi_tl_device_t, type);
    ABI_SAME("uct_tl_device_resource_t", uct_abi_tl_device_t, sys_device);
}

/* Types from the installed headers, of any release. */
TEST_P(test_abi_layout, installed_headers)
{
    size_is("uct_iface_ops_t", sizeof(uct_iface_ops_t));
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_put_short);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_put_bcopy);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_put_zcopy);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_get_short);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_get_bcopy);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_get_zcopy);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_pending_add);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_pending_purge);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_flush);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_fence);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_check);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_create);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, ep_destroy);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_flush);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_fence);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_progress_enable);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_progress_disable);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_progress);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_event_fd_get);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_event_arm);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_close);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_query);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_get_device_address);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_get_address);
    ABI_SAME("uct_iface_ops_t", uct_iface_ops_t, iface_is_reachable);

    size_is("uct_iface_attr_t", sizeof(uct_iface_attr_t));
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, cap.flags);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, cap.event_flags);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, cap.put.max_zcopy);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, cap.get.max_zcopy);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, device_addr_len);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, iface_addr_len);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, overhead);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, bandwidth);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, latency);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, priority);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, max_num_eps);
    ABI_SAME("uct_iface_attr_t", uct_iface_attr_t, dev_num_paths);
    /* written by uct_abi_iface_query */
    at("uct_iface_attr_t", "ctl_device",
       offsetof(uct_iface_attr_t, dev_num_paths) + sizeof(unsigned));

    size_is("uct_iface_params_t", sizeof(uct_iface_params_t));
    ABI_SAME("uct_iface_params_t", uct_iface_params_t, field_mask);
    ABI_SAME("uct_iface_params_t", uct_iface_params_t, open_mode);
    ABI_SAME("uct_iface_params_t", uct_iface_params_t, mode.device.tl_name);
    ABI_SAME("uct_iface_params_t", uct_iface_params_t, mode.device.dev_name);
    ABI_SAME("uct_iface_params_t", uct_iface_params_t, features);

    size_is("uct_iov_t", sizeof(uct_iov_t));
    ABI_SAME("uct_iov_t", uct_iov_t, buffer);
    ABI_SAME("uct_iov_t", uct_iov_t, length);
    ABI_SAME("uct_iov_t", uct_iov_t, memh);
    ABI_SAME("uct_iov_t", uct_iov_t, stride);
    ABI_SAME("uct_iov_t", uct_iov_t, count);
    size_is("uct_completion_t", sizeof(uct_completion_t));
    ABI_SAME("uct_completion_t", uct_completion_t, func);
    ABI_SAME("uct_completion_t", uct_completion_t, count);
    ABI_SAME("uct_completion_t", uct_completion_t, status);
    size_is("ucs_linear_func_t", sizeof(ucs_linear_func_t));
    size_is("uct_md_resource_desc_t", sizeof(uct_md_resource_desc_t));
    EXPECT_EQ(1u, sizeof(ucs_status_t));
    EXPECT_EQ(1u, sizeof(ucs_sys_device_t));
}

TEST_P(test_abi_layout, constants)
{
    EXPECT_EQ(m_facts.constant("UCS_MEMORY_TYPE_UNKNOWN", m_minor),
              m_release->mem_type_unknown);
    bit("UCS_MEMORY_TYPE_HOST", UCT_ABI_MEM_TYPE_HOST);
    bit("UCS_MEMORY_TYPE_CUDA", UCT_ABI_MEM_TYPE_CUDA);
    bit("UCS_MEMORY_TYPE_CUDA_MANAGED", UCT_ABI_MEM_TYPE_CUDA_MANAGED);

    bit("UCT_EP_PARAM_FIELD_IFACE", UCT_ABI_EP_PARAM_IFACE);
    bit("UCT_EP_PARAM_FIELD_DEV_ADDR", UCT_ABI_EP_PARAM_DEV_ADDR);
    bit("UCT_EP_PARAM_FIELD_IFACE_ADDR", UCT_ABI_EP_PARAM_IFACE_ADDR);
    bit("UCT_EP_PARAM_FIELD_PATH_INDEX", UCT_ABI_EP_PARAM_PATH_INDEX);
    bit("UCT_EP_PARAM_FIELD_DEV_ADDR_LENGTH",
        UCT_ABI_EP_PARAM_DEV_ADDR_LENGTH);
    bit("UCT_EP_PARAM_FIELD_IFACE_ADDR_LENGTH",
        UCT_ABI_EP_PARAM_IFACE_ADDR_LENGTH);

    bit("UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR",
        UCT_ABI_REACHABLE_DEVICE_ADDR);
    bit("UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR",
        UCT_ABI_REACHABLE_IFACE_ADDR);
    bit("UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING",
        UCT_ABI_REACHABLE_INFO_STRING);
    bit("UCT_IFACE_IS_REACHABLE_FIELD_INFO_STRING_LENGTH",
        UCT_ABI_REACHABLE_INFO_STRING_LENGTH);
    bit("UCT_IFACE_IS_REACHABLE_FIELD_SCOPE", UCT_ABI_REACHABLE_SCOPE);
    bit("UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR_LENGTH",
        UCT_ABI_REACHABLE_DEVICE_ADDR_LENGTH);
    bit("UCT_IFACE_IS_REACHABLE_FIELD_IFACE_ADDR_LENGTH",
        UCT_ABI_REACHABLE_IFACE_ADDR_LENGTH);

    bit("UCT_MD_MEM_ATTR_FIELD_MEM_TYPE", UCT_ABI_MEM_ATTR_MEM_TYPE);
    bit("UCT_MD_MEM_ATTR_FIELD_SYS_DEV", UCT_ABI_MEM_ATTR_SYS_DEV);
    bit("UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS", UCT_ABI_MEM_ATTR_BASE_ADDRESS);
    bit("UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH", UCT_ABI_MEM_ATTR_ALLOC_LENGTH);
    bit("UCT_MD_MEM_ATTR_FIELD_DMABUF_FD", UCT_ABI_MEM_ATTR_DMABUF_FD);
    bit("UCT_MD_MEM_ATTR_FIELD_DMABUF_OFFSET", UCT_ABI_MEM_ATTR_DMABUF_OFFSET);
    bit("UCT_MD_MEM_ATTR_V2_FIELD_MEM_TYPE", UCT_ABI_MEM_ATTR_MEM_TYPE);
    bit("UCT_MD_MEM_ATTR_V2_FIELD_SYS_DEV", UCT_ABI_MEM_ATTR_SYS_DEV);
    bit("UCT_MD_MEM_ATTR_V2_FIELD_BASE_ADDRESS",
        UCT_ABI_MEM_ATTR_BASE_ADDRESS);
    bit("UCT_MD_MEM_ATTR_V2_FIELD_ALLOC_LENGTH",
        UCT_ABI_MEM_ATTR_ALLOC_LENGTH);
    bit("UCT_MD_MEM_ATTR_V2_FIELD_DMABUF_FD", UCT_ABI_MEM_ATTR_DMABUF_FD);
    bit("UCT_MD_MEM_ATTR_V2_FIELD_DMABUF_OFFSET",
        UCT_ABI_MEM_ATTR_DMABUF_OFFSET);

    bit("UCT_MD_MEM_REG_FIELD_FLAGS", UCT_ABI_MEM_REG_FLAGS);
    bit("UCT_MD_MEM_REG_FIELD_DMABUF_FD", UCT_ABI_MEM_REG_DMABUF_FD);
    bit("UCT_MD_MEM_REG_FIELD_DMABUF_OFFSET", UCT_ABI_MEM_REG_DMABUF_OFFSET);
    bit("UCT_MD_MEM_REG_FIELD_MEM_TYPE", UCT_ABI_MEM_REG_MEM_TYPE);
    bit("UCT_MD_MEM_DEREG_FIELD_MEMH", UCT_ABI_MEM_DEREG_FIELD_MEMH);
    bit("UCT_MD_MEM_DEREG_FIELD_FLAGS", UCT_ABI_MEM_DEREG_FIELD_FLAGS);
    bit("UCT_MD_MEM_DEREG_FIELD_COMPLETION",
        UCT_ABI_MEM_DEREG_FIELD_COMPLETION);
    bit("UCT_MD_MEM_DEREG_FLAG_INVALIDATE", UCT_ABI_MEM_DEREG_INVALIDATE);
    bit("UCT_MD_MKEY_PACK_FIELD_FLAGS", 1);
    bit("UCT_MD_MKEY_PACK_FLAG_EXPORT", (m_minor < 15) ? 2 : 4);
    bit("UCT_RKEY_UNPACK_FIELD_SYS_DEVICE", 1);

    bit("UCT_EP_OP_AM_SHORT", UCT_ABI_EP_OP_AM_SHORT);
    bit("UCT_EP_OP_PUT_SHORT", UCT_ABI_EP_OP_PUT_SHORT);
    bit("UCT_EP_OP_PUT_ZCOPY", UCT_ABI_EP_OP_PUT_ZCOPY);
    bit("UCT_EP_OP_GET_SHORT", UCT_ABI_EP_OP_GET_SHORT);
    bit("UCT_EP_OP_GET_ZCOPY", UCT_ABI_EP_OP_GET_ZCOPY);
    bit("UCT_EP_OP_RNDV_ZCOPY", UCT_ABI_EP_OP_RNDV_ZCOPY);
    bit("UCT_EP_OP_ATOMIC_FETCH", UCT_ABI_EP_OP_ATOMIC_FETCH);
    /* later operations are not used */
    EXPECT_GE(m_facts.constant("UCT_EP_OP_LAST", m_minor),
              (int)UCT_ABI_EP_OP_UNKNOWN);
}

TEST_P(test_abi_layout, perf_bits)
{
    const struct {
        const char *name;
        uint16_t   value;
    } bits[] = {
        {"UCT_PERF_ATTR_FIELD_PATH_BANDWIDTH",
         m_release->perf_bits->path_bandwidth},
        {"UCT_PERF_ATTR_FIELD_LATENCY", m_release->perf_bits->latency},
        {"UCT_PERF_ATTR_FIELD_MAX_INFLIGHT_EPS",
         m_release->perf_bits->max_inflight_eps},
        {"UCT_PERF_ATTR_FIELD_FLAGS", m_release->perf_bits->flags}
    };

    for (const auto &moved : bits) {
        int fact = m_facts.constant(moved.name, m_minor);
        EXPECT_EQ((fact == abi_facts::ABSENT) ? 0 : fact, moved.value)
                << moved.name;
    }

    /* bits written as numbers in iface.c */
    bit("UCT_PERF_ATTR_FIELD_OPERATION", 1 << 0);
    bit("UCT_PERF_ATTR_FIELD_LOCAL_MEMORY_TYPE", 1 << 1);
    bit("UCT_PERF_ATTR_FIELD_REMOTE_MEMORY_TYPE", 1 << 2);
    bit("UCT_PERF_ATTR_FIELD_LOCAL_SYS_DEVICE", 1 << 3);
    bit("UCT_PERF_ATTR_FIELD_REMOTE_SYS_DEVICE", 1 << 4);
    bit("UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD", 1 << 5);
    bit("UCT_PERF_ATTR_FIELD_SEND_POST_OVERHEAD", 1 << 6);
    bit("UCT_PERF_ATTR_FIELD_RECV_OVERHEAD", 1 << 7);
    bit("UCT_PERF_ATTR_FIELD_BANDWIDTH", 1 << 8);
}

TEST_P(test_abi_layout, md_flags)
{
    static const char *const names[] = {
        "ALLOC",    "REG",           "NEED_MEMH",     "NEED_RKEY",
        "ADVISE",   "FIXED",         "RKEY_PTR",      "SOCKADDR",
        "INVALIDATE", "EXPORTED_MKEY", "REG_DMABUF",  "INVALIDATE_RMA",
        "INVALIDATE_AMO", "MEMTYPE_COPY"
    };
    uint64_t flags = 0;

    for (const char *name : names) {
        int fact = m_facts.constant(std::string("UCT_MD_FLAG_") + name,
                                    m_minor);
        flags |= (fact == abi_facts::ABSENT) ? 0 : fact;
    }

    EXPECT_EQ(flags, m_release->md_flags);
    bit("UCT_MD_FLAG_ALLOC", UCT_ABI_MD_FLAG_ALLOC);
    bit("UCT_MD_FLAG_REG", UCT_ABI_MD_FLAG_REG);
    bit("UCT_MD_FLAG_NEED_MEMH", UCT_ABI_MD_FLAG_NEED_MEMH);
    bit("UCT_MD_FLAG_NEED_RKEY", UCT_ABI_MD_FLAG_NEED_RKEY);
    bit("UCT_MD_FLAG_ADVISE", UCT_ABI_MD_FLAG_ADVISE);
    bit("UCT_MD_FLAG_FIXED", UCT_ABI_MD_FLAG_FIXED);
    bit("UCT_MD_FLAG_RKEY_PTR", UCT_ABI_MD_FLAG_RKEY_PTR);
    bit("UCT_MD_FLAG_INVALIDATE", UCT_ABI_MD_FLAG_INVALIDATE);
    bit("UCT_MD_FLAG_REG_DMABUF", UCT_ABI_MD_FLAG_REG_DMABUF);
    bit("UCT_MD_FLAG_MEMTYPE_COPY", UCT_ABI_MD_FLAG_MEMTYPE_COPY);
}

INSTANTIATE_TEST_SUITE_P(release, test_abi_layout,
                         ::testing::Range(
                                 (unsigned)UCT_ABI_RELEASE_FIRST,
                                 (unsigned)UCT_ABI_RELEASE_LAST + 1));

TEST(test_abi_release, unknown_releases_are_not_found)
{
    EXPECT_EQ(nullptr, uct_abi_release_find(0));
    EXPECT_EQ(nullptr, uct_abi_release_find(12));
    EXPECT_EQ(nullptr, uct_abi_release_find(24));
    EXPECT_EQ(nullptr, uct_abi_release_find(~0u));
}

/* Programs linked to the module's parts, and a module without an attached
   UCX */
TEST(test_abi_unattached, topology_is_not_known)
{
    ucs_sys_device_t device = 7;

    EXPECT_EQ(UCS_ERR_UNSUPPORTED,
              uct_abi_topo_sys_device(0, 1, 0, 0, &device));
    EXPECT_EQ(7, device);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED,
              uct_abi_topo_sys_device_set_name(device, "GPU0", 1));
    EXPECT_EQ(0u, uct_abi_system_id());
}
