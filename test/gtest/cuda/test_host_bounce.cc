/* SPDX-License-Identifier: BSD-3-Clause */
/* Page-locked slots for small copies from GPUs. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/host/host_block.h>
#include <uct/cuda/base/host/host_bounce.h>
#include <uct/cuda/base/host/host_limits.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <sys/mman.h>
#include <sys/resource.h>
#include <vector>

static unsigned registrations;
static CUresult refuse;

class HostBounce : public ::testing::Test
{
protected:
    FakeDriver driver;

    void SetUp() override
    {
        registrations = 0;
        refuse        = CUDA_SUCCESS;
        driver.table.cuMemHostRegister = [](void*, size_t length,
                                            unsigned flags) {
            EXPECT_EQ(unsigned(CU_MEMHOSTREGISTER_PORTABLE), flags);
            EXPECT_GE(length, UCT_CUDA_HOST_BOUNCE_SLOTS *
                                      UCT_CUDA_HOST_BOUNCE_MAX_SIZE);
            ++registrations;
            return refuse;
        };
    }
};

TEST_F(HostBounce, slots_do_not_overlap_and_are_reused)
{
    std::vector<char*> slots;
    char *slot;

    EXPECT_EQ(nullptr,
              uct_cuda_host_bounce_get(UCT_CUDA_HOST_BOUNCE_MAX_SIZE + 1));
    EXPECT_EQ(0u, registrations);

    for (unsigned i = 0; i < UCT_CUDA_HOST_BOUNCE_SLOTS; ++i) {
        slot = static_cast<char*>(
                uct_cuda_host_bounce_get(UCT_CUDA_HOST_BOUNCE_MAX_SIZE));
        ASSERT_NE(nullptr, slot);
        memset(slot, int(i), UCT_CUDA_HOST_BOUNCE_MAX_SIZE);
        slots.push_back(slot);
    }

    EXPECT_EQ(1u, registrations);
    EXPECT_EQ(nullptr, uct_cuda_host_bounce_get(1));
    for (unsigned i = 0; i < slots.size(); ++i) {
        EXPECT_EQ(char(i), slots[i][0]);
        EXPECT_EQ(char(i), slots[i][UCT_CUDA_HOST_BOUNCE_MAX_SIZE - 1]);
    }

    uct_cuda_host_bounce_put(slots[3]);
    EXPECT_EQ(slots[3], uct_cuda_host_bounce_get(1));
    for (char *each : slots) {
        uct_cuda_host_bounce_put(each);
    }
}

TEST_F(HostBounce, another_context_registers_again)
{
    char *before = static_cast<char*>(uct_cuda_host_bounce_get(1));

    ASSERT_NE(nullptr, before);
    driver.renew_context();
    char *after = static_cast<char*>(uct_cuda_host_bounce_get(1));
    ASSERT_NE(nullptr, after);
    EXPECT_NE(before, after);
    EXPECT_EQ(2u, registrations);

    /* A slot from before is still accessible */
    before[0] = 1;
    uct_cuda_host_bounce_put(before);
    uct_cuda_host_bounce_put(after);
}

TEST_F(HostBounce, a_refused_registration_is_not_repeated)
{
    refuse = CUDA_ERROR_OUT_OF_MEMORY;
    EXPECT_EQ(nullptr, uct_cuda_host_bounce_get(1));
    EXPECT_EQ(nullptr, uct_cuda_host_bounce_get(1));
    EXPECT_EQ(1u, registrations);
}

TEST_F(HostBounce, lacking_memory_is_asked_for_again)
{
    constexpr size_t size = UCT_CUDA_HOST_BOUNCE_SLOTS *
                            UCT_CUDA_HOST_BOUNCE_MAX_SIZE;
    uct_cuda_host_block_t block = {};
    rlimit before, none;

    ASSERT_EQ(0, getrlimit(RLIMIT_AS, &before));
    none          = before;
    none.rlim_cur = 1;
    ASSERT_EQ(0, setrlimit(RLIMIT_AS, &none));
    ucs_status_t status = uct_cuda_host_block_lock(&block, size);
    ASSERT_EQ(0, setrlimit(RLIMIT_AS, &before));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, status);

    EXPECT_EQ(UCS_OK, uct_cuda_host_block_lock(&block, size));
    ASSERT_NE(nullptr, block.memory);
    munmap(block.memory, size);
}
