/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that uses a UCX like any other, and checks that the fake module
 * (fake_module.c) is in it and gives its expected answers:
 *
 *     abi_probe FACTS LIBUCP [--absent]
 *
 * It loads LIBUCP as a plugin host would (RTLD_LOCAL), and knows the release's
 * structures only from the facts. Exit status 0: all as expected; 1: not, with
 * one line each on stdout; 77: LIBUCP cannot be loaded. ABI_TEST_QUICK_EXIT:
 * end without destructors (some wheels' libraries crash in theirs).
 */

#include "facts.h"

#include <uct/api/uct.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

static int g_failures;

#define CHECK(_condition) \
    do { \
        if (!(_condition)) { \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #_condition); \
            ++g_failures; \
        } \
    } while (0)

/* Return a function of the UCX under test, with the prototype of this build's
   header: only for functions that never changed. */
#define FN(_name) ((decltype(&::_name))symbol(#_name))

class probe
{
public:
    probe(const char *facts, const char *libucp) :
        m_facts(facts), m_libucp(dlopen(libucp, RTLD_NOW | RTLD_LOCAL))
    {
        if (m_libucp == NULL) {
            printf("%s\n", dlerror());
            exit(77);
        }

        auto get_version = function<void(unsigned*, unsigned*, unsigned*)>(
                "ucp_get_version");
        unsigned major, patch;

        get_version(&major, &m_minor, &patch);
        printf("UCX %u.%u.%u\n", major, m_minor, patch);
    }

    int run(bool absent)
    {
        uct_component_h *components, found[2] = {NULL, NULL};
        unsigned num_components, counts[2]    = {0, 0};
        const char *names[]                   = {"cuda_cpy", "cuda_ipc"};

        /* query twice: components must be loaded only once */
        CHECK(FN(uct_query_components)(&components, &num_components) ==
              UCS_OK);
        FN(uct_release_component_list)(components);
        CHECK(FN(uct_query_components)(&components, &num_components) ==
              UCS_OK);

        for (unsigned i = 0; i < num_components; ++i) {
            uct_component_attr_t attr = {};

            attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                              UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
            CHECK(FN(uct_component_query)(components[i], &attr) == UCS_OK);
            for (unsigned j = 0; j < 2; ++j) {
                if (strcmp(attr.name, names[j]) == 0) {
                    found[j] = components[i];
                    ++counts[j];
                    CHECK(attr.md_resource_count == 1);
                }
            }
        }

        FN(uct_release_component_list)(components);
        for (unsigned j = 0; j < 2; ++j) {
            CHECK(counts[j] == (absent ? 0 : 1));
        }

        if (absent) {
            return g_failures != 0;
        }

        printf("memory type before: %s\n", memory_type_lookup());
        for (unsigned j = 0; j < 2; ++j) {
            if (found[j] != NULL) {
                component(found[j], names[j]);
            }
        }

        printf("memory type after: %s\n", memory_type_lookup());
        return g_failures != 0;
    }

private:
    /* Look up memory as UCP does first with every buffer. */
    const char *memory_type_lookup()
    {
        auto lookup = function<ucs_status_t(const void*, size_t, void*)>(
                "ucs_memtype_cache_lookup");
        void *info = make("ucs_memory_info_t");
        char data;

        switch (lookup(&data, 1, info)) {
        case UCS_ERR_NO_ELEM:
            return "not in the cache";
        case UCS_ERR_UNSUPPORTED:
            return "no cache";
        default:
            return "unexpected";
        }
    }

    void *symbol(const char *name)
    {
        void *value = dlsym(m_libucp, name);

        if (value == NULL) {
            printf("no symbol %s\n", name);
            exit(1);
        }

        return value;
    }

    template<typename F>
    F *function(const char *name)
    {
        return (F*)symbol(name);
    }

    template<typename T>
    T &at(void *base, const char *object, const char *field)
    {
        int offset = m_facts.get(object, field, m_minor);

        if (offset == abi_facts::ABSENT) {
            printf("release 1.%u has no %s.%s\n", m_minor, object, field);
            exit(1);
        }

        return *(T*)((char*)base + offset);
    }

    bool has(const char *object, const char *field)
    {
        return m_facts.get(object, field, m_minor) != abi_facts::ABSENT;
    }

    /* Allocate a structure of the release's size: zeroed, with canaries
       behind. */
    void *make(const char *object)
    {
        size_t size = m_facts.get(object, "*", m_minor);

        memset(m_buffer, 0, size);
        memset(m_buffer + size, 0x5a, sizeof(m_buffer) - size);
        m_size = size;
        return m_buffer;
    }

    bool intact()
    {
        for (size_t i = m_size; i < sizeof(m_buffer); ++i) {
            if (m_buffer[i] != 0x5a) {
                return false;
            }
        }

        return true;
    }

    void component(uct_component_h component, const char *name)
    {
        uct_md_config_t *config;
        uct_md_h md;

        if (FN(uct_md_config_read)(component, NULL, NULL, &config) !=
            UCS_OK) {
            CHECK(!"configuration can be read");
            return;
        }
        if (FN(uct_md_open)(component, name, config, &md) != UCS_OK) {
            CHECK(!"memory domain opens");
            return;
        }
        FN(uct_config_release)(config);

        md_query(md, name);
        md_memory(md);
        md_keys(component, md);
        md_iface(md);
        FN(uct_md_close)(md);
    }

    void md_query(uct_md_h md, const char *name)
    {
        uct_md_attr_t attr = {};

        CHECK(FN(uct_md_query)(md, &attr) == UCS_OK);
        CHECK(attr.cap.max_alloc == 1 << 20);
        CHECK(attr.cap.max_reg == 1 << 21);
        CHECK(attr.cap.reg_mem_types == 3);
        CHECK(attr.cap.detect_mem_types == 4);
        CHECK(attr.cap.alloc_mem_types == 2);
        CHECK(attr.cap.access_mem_types == 3);
        CHECK(attr.reg_cost.c == 1e-6);
        CHECK(attr.reg_cost.m == 2e-9);
        CHECK(attr.rkey_packed_size == 24);
        CHECK(strcmp(attr.component_name, name) == 0);
        CHECK(attr.local_cpus.ucs_bits[0] != 0);

        uint64_t flags = 1 | 2 | 256;
        if (m_minor >= 15) {
            flags |= 2048 | 4096;
        }
        if (m_minor >= 19) {
            flags |= 8192;
        }
        if (m_minor >= 21) {
            flags |= 64; /* without RKEY_PTR, which earlier releases
                            misunderstand */
        }
        CHECK(attr.cap.flags == flags);

        if (m_minor < 14) {
            return;
        }

#define V2(_type, _field) at<_type>(v2, "uct_md_attr_v2_t", _field)
        auto query_v2 = function<ucs_status_t(uct_md_h, void*)>(
                "uct_md_query_v2");
        void *v2 = make("uct_md_attr_v2_t");

        V2(uint64_t, "field_mask") = UINT64_MAX;
        CHECK(query_v2(md, v2) == UCS_OK);
        CHECK(intact());
        CHECK(V2(uint64_t, "max_alloc") == 1 << 20);
        CHECK(V2(size_t, "max_reg") == 1 << 21);
        CHECK(V2(uint64_t, "flags") == flags);
        CHECK(V2(uint64_t, "reg_mem_types") == 3);
        CHECK(V2(uint64_t, "cache_mem_types") == 2);
        CHECK(V2(uint64_t, "detect_mem_types") == 4);
        CHECK(V2(uint64_t, "alloc_mem_types") == 2);
        CHECK(V2(uint64_t, "access_mem_types") == 3);
        CHECK(V2(uint64_t, "dmabuf_mem_types") == 2);
        CHECK(V2(double, "reg_cost") == 1e-6);
        CHECK(V2(size_t, "rkey_packed_size") == 24);
        CHECK(V2(size_t, "exported_mkey_packed_size") == 0);
        CHECK(strcmp(&V2(char, "component_name"), name) == 0);
        if (has("uct_md_attr_v2_t", "reg_alignment")) {
            CHECK(V2(size_t, "reg_alignment") == 1);
        }
        if (has("uct_md_attr_v2_t", "gva_mem_types")) {
            CHECK(V2(uint64_t, "gva_mem_types") == 0);
        }
    }

    void md_memory(uct_md_h md)
    {
        char data[64];
        ucs_memory_type_t mem_type;
        uct_md_mem_attr_t attr;
        uct_mem_h memh;

        CHECK(FN(uct_md_detect_memory_type)(md, data, sizeof(data),
                                            &mem_type) == UCS_OK);
        CHECK((int)mem_type == 2);

        memset(&attr, 0x5a, sizeof(attr));
        attr.field_mask = 15;
        CHECK(FN(uct_md_mem_query)(md, data, sizeof(data), &attr) == UCS_OK);
        CHECK((int)attr.mem_type == 2);
        CHECK(attr.sys_dev == 5);
        CHECK((uintptr_t)attr.base_address == (uintptr_t)data - 16);
        CHECK(attr.alloc_length == sizeof(data) + 32);

        CHECK(FN(uct_md_mem_query)(md, data, 1, &attr) == UCS_OK);
        CHECK((int)attr.mem_type ==
              m_facts.constant("UCS_MEMORY_TYPE_UNKNOWN", m_minor));
        CHECK(attr.sys_dev == 0xff);
        CHECK(attr.base_address == data);
        CHECK(attr.alloc_length == 1);

        CHECK(FN(uct_md_mem_reg)(md, data, sizeof(data),
                                 UCT_MD_MEM_ACCESS_RMA, &memh) == UCS_OK);
        CHECK(memh == (void*)data);
        CHECK(FN(uct_md_mem_dereg)(md, memh) == UCS_OK);
        CHECK(FN(uct_md_mem_reg)(md, data, sizeof(data),
                                 UCT_MD_MEM_ACCESS_LOCAL_READ, &memh) ==
              UCS_ERR_INVALID_PARAM);

        uct_alloc_method_t method    = UCT_ALLOC_METHOD_MD;
        uct_mem_alloc_params_t alloc = {};
        uct_allocated_memory_t memory;

        alloc.name       = "abi test";
        alloc.mds.count  = 1;
        alloc.mds.mds    = &md;
        alloc.mem_type   = UCS_MEMORY_TYPE_CUDA;
        alloc.flags      = UCT_MD_MEM_ACCESS_ALL;
        alloc.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_NAME |
                           UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                           UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                           UCT_MEM_ALLOC_PARAM_FIELD_FLAGS;
        CHECK(FN(uct_mem_alloc)(4096, &method, 1, &alloc, &memory) == UCS_OK);
        CHECK(memory.method == UCT_ALLOC_METHOD_MD);
        CHECK(FN(uct_mem_free)(&memory) == UCS_OK);
    }

    void md_keys(uct_component_h component, uct_md_h md)
    {
        uint64_t key[3] = {};
        char memory[8];
        uct_rkey_bundle_t bundle;

        CHECK(FN(uct_md_mkey_pack)(md, (uct_mem_h)memory, key) == UCS_OK);
        CHECK(key[0] == 0x464b4d50);
        CHECK(key[1] == (uintptr_t)memory);
        CHECK(FN(uct_rkey_unpack)(component, key, &bundle) == UCS_OK);
        CHECK(bundle.rkey == (uintptr_t)memory);
        CHECK(FN(uct_rkey_release)(component, &bundle) == UCS_OK);

        key[0] = 1;
        CHECK(FN(uct_rkey_unpack)(component, key, &bundle) ==
              UCS_ERR_UNREACHABLE);

        if (m_minor >= 16) {
            auto compare = function<ucs_status_t(uct_component_h, uct_rkey_t,
                                                 uct_rkey_t, const void*,
                                                 int*)>("uct_rkey_compare");
            uint64_t params = 0;
            int result;

            CHECK(compare(component, 7, 9, &params, &result) == UCS_OK);
            CHECK(result < 0);
            CHECK(compare(component, 9, 9, &params, &result) == UCS_OK);
            CHECK(result == 0);
            CHECK(compare(component, 9, 9, &params, NULL) ==
                  UCS_ERR_INVALID_PARAM);
            params = 1;
            CHECK(compare(component, 9, 9, &params, &result) ==
                  UCS_ERR_INVALID_PARAM);
        }

        if (m_minor >= 19) {
            auto unpack = function<ucs_status_t(uct_component_h, const void*,
                                                const void*,
                                                uct_rkey_bundle_t*)>(
                    "uct_rkey_unpack_v2");
            void *params = make("uct_rkey_unpack_params_t");

            key[0] = 0x464b4d50;
            at<uint64_t>(params, "uct_rkey_unpack_params_t",
                         "field_mask") = 1;
            at<uint8_t>(params, "uct_rkey_unpack_params_t", "sys_device") = 3;
            CHECK(unpack(component, key, params, &bundle) == UCS_OK);
            CHECK(FN(uct_rkey_release)(component, &bundle) == UCS_OK);
        }
    }

    void md_iface(uct_md_h md)
    {
        uct_iface_params_t params = {};
        uct_tl_resource_desc_t *resources;
        uct_iface_config_t *config;
        uct_worker_h worker;
        uct_iface_h iface;
        unsigned count;
        void *async;

        CHECK(FN(uct_md_query_tl_resources)(md, &resources, &count) ==
              UCS_OK);
        CHECK(count == 1);
        CHECK(strcmp(resources[0].dev_name, "fake") == 0);
        CHECK(resources[0].dev_type == UCT_DEVICE_TYPE_ACC);

        auto async_create  = function<ucs_status_t(int, void**)>(
                "ucs_async_context_create");
        auto async_destroy = function<void(void*)>(
                "ucs_async_context_destroy");
        CHECK(async_create(1, &async) == UCS_OK);
        CHECK(FN(uct_worker_create)((ucs_async_context_t*)async,
                                    UCS_THREAD_MODE_SINGLE,
                                    &worker) == UCS_OK);
        CHECK(FN(uct_md_iface_config_read)(md, resources[0].tl_name, NULL,
                                           NULL, &config) == UCS_OK);

        params.field_mask           = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                                      UCT_IFACE_PARAM_FIELD_DEVICE |
                                      UCT_IFACE_PARAM_FIELD_FEATURES;
        params.features             = UCT_IFACE_FEATURE_AM |
                                      UCT_IFACE_FEATURE_GET |
                                      UCT_IFACE_FEATURE_TAG |
                                      m_facts.constant(
                                              "UCT_IFACE_FEATURE_FLUSH_REMOTE",
                                              m_minor);
        params.open_mode            = UCT_IFACE_OPEN_MODE_DEVICE;
        params.mode.device.tl_name  = resources[0].tl_name;
        params.mode.device.dev_name = resources[0].dev_name;
        if (FN(uct_iface_open)(md, worker, &params, config, &iface) !=
            UCS_OK) {
            CHECK(!"interface opens");
        } else {
            iface_query(iface);
            iface_query_v2(iface);
            iface_perf(iface);
            iface_peer(iface);
            iface_transfer(iface);
            FN(uct_iface_close)(iface);
        }

        FN(uct_config_release)(config);
        FN(uct_worker_destroy)(worker);
        async_destroy(async);
        FN(uct_release_tl_resource_list)(resources);
    }

    void iface_query(uct_iface_h iface)
    {
        uct_iface_attr_t attr;

        memset(&attr, 0x5a, sizeof(attr));
        CHECK(FN(uct_iface_query)(iface, &attr) == UCS_OK);
        CHECK(attr.cap.put.max_short == 4096);
        CHECK(attr.cap.get.max_zcopy == SIZE_MAX);
        CHECK(attr.device_addr_len == 8);
        CHECK(attr.bandwidth.shared == 123e9);
        CHECK(attr.dev_num_paths == 1);      /* libuct's base value */
        CHECK(attr.cap.am.max_short == 0);   /* libuct's base value */
        /* UCT_ABI_IFACE_USE_TAG, and _RMA if UCX chooses by cost */
        CHECK(attr.priority == ((m_minor >= 16) ? 3 : 1));
        CHECK(((attr.cap.flags >> 54) & 1) == (m_minor >= 18));
        if (has("uct_iface_attr_t", "ctl_device")) {
            CHECK(at<uint8_t>(&attr, "uct_iface_attr_t", "ctl_device") ==
                  0xff);
        }

        unsigned &progress_flags = at<unsigned>(iface, "uct_base_iface_t",
                                                "progress_flags");
        iface->ops.iface_progress_enable(iface, UCT_PROGRESS_SEND);
        CHECK(progress_flags == UCT_PROGRESS_SEND);
        CHECK(iface->ops.iface_progress(iface) == 1);
        iface->ops.iface_progress_disable(iface, UCT_PROGRESS_SEND);
        CHECK(progress_flags == 0);
        /* enabled twice: closing must disable it */
        iface->ops.iface_progress_enable(iface, UCT_PROGRESS_SEND |
                                                        UCT_PROGRESS_RECV);
        CHECK(iface->ops.iface_fence(iface, 0) == UCS_OK);
        CHECK(iface->ops.iface_flush(iface, 0, NULL) == UCS_OK);
        CHECK(iface->ops.iface_event_arm(iface, 0) == UCS_ERR_UNSUPPORTED);
    }

    /* UCX's query before it sends lists: bit, offset and value of the number of
       puts, in 1.23 of gets, and of the flags; nothing else is written */
    void iface_query_v2(uct_iface_h iface)
    {
        const uint64_t most                = UINT64_MAX;
        const std::vector<uint64_t> answer = (m_minor >= 23) ?
                                                 std::vector<uint64_t>{most,
                                                                       most,
                                                                       3} :
                                                 std::vector<uint64_t>{most, 1};

        if (m_minor < 22) {
            return;
        }

        auto query = function<ucs_status_t(uct_iface_h, void*)>(
                "uct_iface_query_v2");
        for (size_t i = 0; i < answer.size(); ++i) {
            std::vector<uint64_t> attr(10, 0x5a), expected;

            attr[0]         = 1ul << i;
            expected        = attr;
            expected[i + 1] = answer[i];
            CHECK(query(iface, attr.data()) == UCS_OK);
            CHECK(attr == expected);
        }
    }

    void iface_perf(uct_iface_h iface)
    {
#define PERF(_type, _field) at<_type>(perf, "uct_perf_attr_t", _field)
        auto estimate = function<ucs_status_t(uct_iface_h, void*)>(
                "uct_iface_estimate_perf");
        void *perf    = make("uct_perf_attr_t");
        uint64_t mask = 0;

        for (const char *name :
             {"OPERATION", "LOCAL_MEMORY_TYPE", "REMOTE_MEMORY_TYPE",
              "SEND_PRE_OVERHEAD", "SEND_POST_OVERHEAD", "RECV_OVERHEAD",
              "BANDWIDTH", "PATH_BANDWIDTH", "LATENCY", "MAX_INFLIGHT_EPS",
              "FLAGS"}) {
            int bit = m_facts.constant(std::string("UCT_PERF_ATTR_FIELD_") +
                                       name, m_minor);
            mask |= (bit == abi_facts::ABSENT) ? 0 : bit;
        }

        PERF(uint64_t, "field_mask")      = mask;
        PERF(int, "operation")            = 5; /* put_zcopy */
        PERF(int, "local_memory_type")    = 1;
        PERF(int, "remote_memory_type")   = m_facts.constant(
                "UCS_MEMORY_TYPE_UNKNOWN", m_minor);
        CHECK(estimate(iface, perf) == UCS_OK);
        CHECK(intact());
        CHECK(PERF(double, "send_pre_overhead") == 1e-6);
        CHECK(PERF(double, "send_post_overhead") == 2e-6);
        CHECK(PERF(double, "recv_overhead") == 3e-6);
        CHECK(PERF(uct_ppn_bandwidth_t, "bandwidth").shared == 246e9);
        CHECK(PERF(double, "latency") == 4e-6);
        CHECK(PERF(size_t, "max_inflight_eps") ==
              ((m_minor < 19) ? 43 : 42)); /* the fake's input is_answered */
        if (has("uct_perf_attr_t", "path_bandwidth")) {
            CHECK(PERF(uct_ppn_bandwidth_t, "path_bandwidth").shared ==
                  246e9);
        }

        /* devices arrive if their bit is set, otherwise not */
        for (int device : {0, 8, 16}) {
            perf                            = make("uct_perf_attr_t");
            PERF(uint64_t, "field_mask")    = device | 32 | 128;
            PERF(uint8_t, "local_sys_device")  = 5;
            PERF(uint8_t, "remote_sys_device") = 6;
            CHECK(estimate(iface, perf) == UCS_OK);
            CHECK(PERF(double, "send_pre_overhead") ==
                  ((device == 8) ? 5 : 1e-6));
            CHECK(PERF(double, "recv_overhead") == ((device == 16) ? 6 : 3e-6));
        }

        /* fields not requested are not written */
        perf                         = make("uct_perf_attr_t");
        PERF(uint64_t, "field_mask") = 256; /* bandwidth */
        CHECK(estimate(iface, perf) == UCS_OK);
        CHECK(PERF(uct_ppn_bandwidth_t, "bandwidth").shared == 123e9);
        CHECK(PERF(double, "send_pre_overhead") == 0);
        CHECK(PERF(double, "latency") == 0);
        CHECK(PERF(size_t, "max_inflight_eps") == 0);
    }

    void iface_peer(uct_iface_h iface)
    {
        uint64_t own[2], stranger = 12345;

        CHECK(FN(uct_iface_get_device_address)(iface,
                                               (uct_device_addr_t*)&own[0]) ==
              UCS_OK);
        CHECK(FN(uct_iface_get_address)(iface, (uct_iface_addr_t*)&own[1]) ==
              UCS_OK);
        CHECK(FN(uct_iface_is_reachable)(iface, (uct_device_addr_t*)&own[0],
                                         (uct_iface_addr_t*)&own[1]));
        CHECK(!FN(uct_iface_is_reachable)(iface,
                                          (uct_device_addr_t*)&stranger,
                                          (uct_iface_addr_t*)&own[1]));
        if (m_minor < 15) {
            return;
        }

#define REACH(_type, _field) \
    at<_type>(reach, "uct_iface_is_reachable_params_t", _field)
        auto is_reachable = function<int(uct_iface_h, const void*)>(
                "uct_iface_is_reachable_v2");
        void *reach = make("uct_iface_is_reachable_params_t");
        char info[32];

        for (int scope = 0; scope < 2; ++scope) {
            REACH(uint64_t, "field_mask") = 1 | 2 | 16;
            REACH(void*, "device_addr")   = &own[0];
            REACH(void*, "iface_addr")    = &own[1];
            REACH(int, "scope")           = scope;
            CHECK(is_reachable(iface, reach));
        }

        memset(info, 'x', sizeof(info));
        REACH(uint64_t, "field_mask")       = 1 | 2 | 4 | 8;
        REACH(void*, "device_addr")         = &stranger;
        REACH(char*, "info_string")         = info;
        REACH(size_t, "info_string_length") = sizeof(info);
        CHECK(!is_reachable(iface, reach));
        CHECK(strcmp(info, "not a fake") == 0);
        REACH(size_t, "info_string_length") = 4;
        CHECK(!is_reachable(iface, reach));
        CHECK(strcmp(info, "not") == 0);

        /* here our own address counts as one on the same device */
        uint64_t other = own[0] ^ 0x100000000;
        REACH(uint64_t, "field_mask")       = 1 | 2 | 4 | 8 | 16;
        REACH(void*, "device_addr")         = &other;
        REACH(int, "scope")                 = 0;
        REACH(size_t, "info_string_length") = sizeof(info);
        CHECK(!is_reachable(iface, reach));
        CHECK(info[0] != '\0');

        memset(info, 'x', sizeof(info));
        REACH(uint64_t, "field_mask") = 2 | 4 | 8;
        CHECK(!is_reachable(iface, reach));
        /* 1.15 finds the same before it asks the transport, and logs it */
        CHECK(!strncmp(info, (m_minor == 15) ? "xxxx" : "a device address",
                       (m_minor == 15) ? 4 : 16));
    }

    void iface_transfer(uct_iface_h iface)
    {
        uint64_t source = 0x123456789abcdef, target = 0, own = 0x464b4d50;
        uct_ep_params_t params = {};
        uct_pending_req_t req  = {};
        uct_iov_t iov;
        uct_ep_h ep;

        params.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                            UCT_EP_PARAM_FIELD_DEV_ADDR |
                            UCT_EP_PARAM_FIELD_IFACE_ADDR;
        params.iface      = iface;
        params.dev_addr   = (uct_device_addr_t*)&own;
        params.iface_addr = (uct_iface_addr_t*)&own;
        CHECK(FN(uct_ep_create)(&params, &ep) == UCS_OK);
        CHECK(ep->iface == iface);

        iov.buffer = &source;
        iov.length = sizeof(source);
        iov.memh   = NULL;
        iov.stride = 0;
        iov.count  = 1;
        CHECK(iface->ops.ep_put_zcopy(ep, &iov, 1, (uintptr_t)&target, 0,
                                      NULL) == UCS_OK);
        CHECK(target == source);
        target = 77;
        CHECK(iface->ops.ep_get_zcopy(ep, &iov, 1, (uintptr_t)&target, 0,
                                      NULL) == UCS_OK);
        CHECK(source == 77);
        source = 88;
        CHECK(iface->ops.ep_put_short(ep, &source, sizeof(source),
                                      (uintptr_t)&target, 0) == UCS_OK);
        CHECK(target == 88);

        /* operations missing in the module */
        CHECK(iface->ops.ep_am_short(ep, 0, 0, NULL, 0) ==
              UCS_ERR_UNSUPPORTED);
        CHECK(iface->ops.ep_put_bcopy(ep, NULL, NULL, 0, 0) ==
              (ssize_t)UCS_ERR_UNSUPPORTED);
        CHECK(iface->ops.ep_check(ep, 0, NULL) == UCS_ERR_UNSUPPORTED);
        CHECK(iface->ops.ep_pending_add(ep, &req, 0) == UCS_ERR_BUSY);
        CHECK(iface->ops.ep_fence(ep, 0) == UCS_OK);
        CHECK(iface->ops.ep_flush(ep, 0, NULL) == UCS_OK);

        if (m_minor >= 22) {
            ep_lists(ep);
        }

        if (m_minor >= 16) {
            auto is_connected  = function<int(uct_ep_h, const void*)>(
                    "uct_ep_is_connected");
            const char *object = "uct_ep_is_connected_params_t";
            void *peer         = make(object);

            at<uint64_t>(peer, object, "field_mask")   = 1 | 2;
            at<void*>(peer, object, "device_addr")     = &own;
            at<void*>(peer, object, "iface_addr")      = &own;
            CHECK(is_connected(ep, peer));
            at<void*>(peer, object, "device_addr") = &source;
            CHECK(!is_connected(ep, peer));
        }

        FN(uct_ep_destroy)(ep);
    }

    void ep_lists(uct_ep_h ep)
    {
        typedef ucs_status_t(list_t)(uct_ep_h, void *const*, const size_t*,
                                     const uct_mem_h*, const uint64_t*,
                                     const uct_rkey_t*, const size_t*,
                                     const size_t*, size_t, uct_completion_t*);
        auto put             = function<list_t>("uct_ep_put_sgl_zcopy");
        uint64_t source[2]   = {5, 6}, target[2] = {};
        void *buffers[]      = {&source[0], &source[1]};
        size_t lengths[]     = {8, 8};
        uint64_t remote[]    = {(uintptr_t)&target[1], (uintptr_t)&target[0]};
        uct_rkey_t rkeys[]   = {40, 50};
        uct_completion_t end = {};

        CHECK(put(ep, buffers, lengths, NULL, remote, rkeys, NULL, NULL, 2,
                  &end) == 42);
        CHECK((target[0] == 6) && (target[1] == 5));
        if (m_minor >= 23) {
            CHECK(function<list_t>("uct_ep_get_sgl_zcopy")(
                          ep, buffers, lengths, NULL, remote, rkeys, NULL, NULL,
                          1, &end) == 100);
        }

        /* Repeated elements, and missing arrays */
        CHECK(put(ep, buffers, lengths, NULL, remote, rkeys, lengths, NULL, 2,
                  &end) == UCS_ERR_UNSUPPORTED);
        CHECK(put(ep, buffers, lengths, NULL, remote, rkeys, NULL, lengths, 2,
                  &end) == UCS_ERR_UNSUPPORTED);
        CHECK(put(ep, NULL, lengths, NULL, remote, rkeys, NULL, NULL, 2,
                  &end) == UCS_ERR_INVALID_PARAM);
        CHECK(put(ep, buffers, NULL, NULL, remote, rkeys, NULL, NULL, 2,
                  &end) == UCS_ERR_INVALID_PARAM);
        CHECK(put(ep, buffers, lengths, NULL, NULL, rkeys, NULL, NULL, 2,
                  &end) == UCS_ERR_INVALID_PARAM);
        CHECK(put(ep, buffers, lengths, NULL, remote, NULL, NULL, NULL, 2,
                  &end) == UCS_ERR_INVALID_PARAM);
    }

    abi_facts     m_facts;
    void          *m_libucp;
    unsigned      m_minor;
    size_t        m_size;
    unsigned char m_buffer[1024] __attribute__((aligned(16)));
};

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s FACTS LIBUCP [--absent]\n", argv[0]);
        return 2;
    }

    int status = probe(argv[1], argv[2])
                         .run((argc > 3) &&
                              (strcmp(argv[3], "--absent") == 0));
    if (getenv("ABI_TEST_QUICK_EXIT") != NULL) {
        fflush(stdout);
        _exit(status);
    }

    return status;
}
