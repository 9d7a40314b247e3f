/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings of several memory domains, and the ones in effect for the
   process. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/host/host_limits.h>
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_md.h>
#include <uct/cuda/node/mappings.h>
#include <uct/cuda/node/process.h>
#include <uct/cuda/node/unmap.h>
#include <uct/cuda/process_settings.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

class Settings : public ::testing::Test
{
protected:
    FakeDriver driver;

    void TearDown() override
    {
        close(open(true, UCT_ABI_ULUNITS_AUTO));
    }

    uct_abi_md_t *open(bool zcopy, unsigned long threads,
                       unsigned long regions = UCT_ABI_ULUNITS_AUTO)
    {
        const uct_abi_config_t &config = uct_cuda_ipc_component.config;
        std::vector<char> values(config.size);
        uct_abi_md_t *md = nullptr;

        for (unsigned i = 0; config.fields[i].type != UCT_ABI_CONFIG_END; ++i) {
            const char *name = config.fields[i].name;
            char *value      = &values[config.fields[i].offset];

            if (strcmp(name, "HOST_ZCOPY") == 0) {
                *(int*)value = zcopy;
            } else if (strcmp(name, "HOST_COPY_THREADS") == 0) {
                *(unsigned long*)value = threads;
            } else if (strcmp(name, "CACHE_MAX_REGIONS") == 0) {
                *(unsigned long*)value = regions;
            } else if (strcmp(name, "CACHE_MAX_SIZE") == 0) {
                *(size_t*)value = UCT_ABI_MEMUNITS_AUTO;
            } else if (config.fields[i].type == UCT_ABI_CONFIG_STRING) {
                *(const char**)value = config.fields[i].dfl;
            } else if (strcmp(name, "ENABLE_MNNVL") == 0) {
                *(int*)value = UCT_ABI_NO;
            }
        }
        EXPECT_EQ(UCS_OK,
                  uct_cuda_ipc_component.md_open(&uct_cuda_ipc_component,
                                                 "cuda_ipc", values.data(),
                                                 &md));
        return md;
    }

    /* Return whether there are threads. A copy without threads is refused
       before it asks for a stream, not available here. */
    bool has_threads()
    {
        std::vector<char> host(UCT_CUDA_HOST_THREADS_MIN_SIZE);
        uct_cuda_host_job_t *job;
        ucs_status_t status;

        driver.offer_host_threads();
        driver.table.cuStreamCreate = [](CUstream*, unsigned) {
            return CUDA_ERROR_UNKNOWN;
        };
        status = uct_cuda_host_pipeline_start(0, host.data(), host.size(), true,
                                              &job);
        EXPECT_NE(UCS_OK, status);
        return status != UCS_ERR_UNSUPPORTED;
    }

    void close(uct_abi_md_t *md)
    {
        md->ops->close(md);
    }
};

TEST_F(Settings, the_first_memory_domain_decides_until_all_are_closed)
{
    uct_abi_md_t *first = open(true, 3);
    EXPECT_TRUE(uct_cuda_settings_host_zcopy());
    EXPECT_TRUE(has_threads());

    uct_abi_md_t *second = open(false, 0);
    EXPECT_TRUE(uct_cuda_settings_host_zcopy());
    EXPECT_TRUE(has_threads());

    close(first); /* the second one was promised the same */
    uct_abi_md_t *third = open(false, 0);
    EXPECT_TRUE(uct_cuda_settings_host_zcopy());
    EXPECT_TRUE(has_threads());
    close(second);
    close(third);
    EXPECT_TRUE(uct_cuda_settings_host_zcopy()); /* threads of copies still in
                                                    flight */

    first  = open(false, 0);
    second = open(true, 3);
    EXPECT_FALSE(uct_cuda_settings_host_zcopy());
    EXPECT_FALSE(has_threads());
    close(first);
    close(second);
}

/* There is one cache for all memory domains */
TEST_F(Settings, the_first_limits_of_the_cache_apply)
{
    const auto mapped = [](unsigned count) {
        for (unsigned i = 1; i <= count; ++i) {
            uct_cuda_node_handle_t handle = {};
            uct_cuda_node_mapping_t *mapping;

            handle.type      = UCT_CUDA_NODE_HANDLE_LEGACY;
            handle.machine   = uct_cuda_node_machine_self();
            handle.pid       = 42;
            handle.base      = i * 0x10000;
            handle.length    = 0x10000;
            handle.buffer_id = i;
            EXPECT_EQ(UCS_OK, uct_cuda_node_cache_get(&handle, 0, &mapping));
            uct_cuda_node_cache_put(mapping, true);
        }
        count = uct_cuda_node_cache_count();
        uct_cuda_node_cache_purge_peer(0, 42);
        uct_cuda_node_unmap_all();
        return count;
    };

    uct_abi_md_t *first = open(true, 3, 2), *second = open(true, 3, 1);
    EXPECT_EQ(2u, mapped(4));
    close(first);
    EXPECT_EQ(2u, mapped(4));
    close(second);

    first  = open(true, 3, 3);
    second = open(true, 3, 1);
    EXPECT_EQ(3u, mapped(4));
    close(first);
    close(second);
}
