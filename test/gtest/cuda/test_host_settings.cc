/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose word counts, of several memory domains, about host memory. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/host/host_pipeline.h>
#include <uct/cuda/base/host/host_settings.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_md.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

class HostSettings : public ::testing::Test
{
protected:
    FakeDriver driver;

    void TearDown() override
    {
        close(open(true, UCT_ABI_ULUNITS_AUTO));
    }

    uct_abi_md_t *open(bool zcopy, unsigned long threads)
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
                *(unsigned long*)value = UCT_ABI_ULUNITS_AUTO;
            } else if (strcmp(name, "CACHE_MAX_SIZE") == 0) {
                *(size_t*)value = UCT_ABI_MEMUNITS_AUTO;
            } else if (config.fields[i].type == UCT_ABI_CONFIG_STRING) {
                *(const char**)value = config.fields[i].dfl;
            } else if (strcmp(name, "ENABLE_MNNVL") == 0) {
                *(int*)value = UCT_ABI_NO;
            } else if (config.fields[i].type == UCT_ABI_CONFIG_STRING) {
                *(const char**)value = config.fields[i].dfl;
            }
        }
        EXPECT_EQ(UCS_OK,
                  uct_cuda_ipc_component.md_open(&uct_cuda_ipc_component,
                                                 "cuda_ipc", values.data(),
                                                 &md));
        return md;
    }

    void close(uct_abi_md_t *md)
    {
        md->ops->close(md);
    }
};

TEST_F(HostSettings, the_first_memory_domain_decides_until_all_are_closed)
{
    uct_abi_md_t *first = open(true, 3);
    EXPECT_TRUE(uct_cuda_host_is_direct());
    EXPECT_TRUE(uct_cuda_host_pipeline_has_threads());

    uct_abi_md_t *second = open(false, 0);
    EXPECT_TRUE(uct_cuda_host_is_direct());
    EXPECT_TRUE(uct_cuda_host_pipeline_has_threads());

    close(first); /* the second one was promised nothing else */
    uct_abi_md_t *third = open(false, 0);
    EXPECT_TRUE(uct_cuda_host_is_direct());
    EXPECT_TRUE(uct_cuda_host_pipeline_has_threads());
    close(second);
    close(third);
    EXPECT_TRUE(uct_cuda_host_is_direct()); /* of copies still under way */

    first  = open(false, 0);
    second = open(true, 3);
    EXPECT_FALSE(uct_cuda_host_is_direct());
    EXPECT_FALSE(uct_cuda_host_pipeline_has_threads());
    close(first);
    close(second);
}
