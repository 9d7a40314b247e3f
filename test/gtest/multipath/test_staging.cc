/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging memory in the host: locked as a unit, and released by its owner. */
#include "end.h"
#include "fake_node.h"
#include "process.h"

extern "C" {
#include <uct/cuda/base/ctx.h>
#include <uct/cuda/run/staging.h>
}

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>


class test_staging : public ::testing::Test
{
protected:
    static const size_t SLOT = 64 << 10;

    test_staging() : m_node(2, 1)
    {
    }

    void SetUp() override
    {
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_retain(0, false, &m_ctx));
        ASSERT_EQ(UCS_OK, uct_cuda_ctx_push(m_ctx));
    }

    void TearDown() override
    {
        uct_cuda_ctx_pop();
        uct_cuda_ctx_release(0);
        EXPECT_EQ("", m_node.leaks());
    }

    ucs_status_t alloc()
    {
        return uct_cuda_run_staging_alloc(&m_staging, uct_cuda_end_host(), 0, 0,
                                          SLOT);
    }

    /* Return whether there is memory at its address. */
    bool is_mapped() const
    {
        return msync((void*)m_base, SLOT, MS_ASYNC) == 0;
    }

    FakeNode               m_node;
    CUcontext              m_ctx;
    uct_cuda_run_staging_t m_staging;
    CUdeviceptr            m_base;
};

TEST_F(test_staging, staging_memory_is_allocated_and_released)
{
    ASSERT_EQ(UCS_OK, alloc());
    m_base = m_staging.base;
    EXPECT_TRUE(is_mapped());
    EXPECT_NE("", m_node.leaks());
    uct_cuda_run_staging_free(&m_staging);
    EXPECT_EQ(0u, m_staging.base);
    EXPECT_FALSE(is_mapped());
}

TEST_F(test_staging, nothing_is_left_where_it_cannot_be_locked)
{
    m_node.host_memory = UCT_CUDA_PLAN_STAGING_SLOTS * SLOT - 1;
    EXPECT_EQ(UCS_ERR_NO_MEMORY, alloc());
    m_node.host_memory += 1;
    ASSERT_EQ(UCS_OK, alloc());
    uct_cuda_run_staging_free(&m_staging);
}

/* The driver has released it, and is not asked to */
TEST_F(test_staging, the_context_is_lost)
{
    ASSERT_EQ(UCS_OK, alloc());
    m_base = m_staging.base;
    m_node.reset_context(0);
    uct_cuda_run_staging_lose(&m_staging);
    EXPECT_FALSE(is_mapped());
    EXPECT_TRUE(m_node.complaints.empty());
}

/* The child's memory at the same address is not unmapped */
TEST_F(test_staging, a_forked_child_does_not_unmap_it)
{
    ASSERT_EQ(UCS_OK, alloc());
    m_base = m_staging.base;
    EXPECT_EQ(0, in_child([this] {
        const bool was_mapped = is_mapped();
        void *other         = mmap((void*)m_base, SLOT, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                                   0);

        uct_cuda_run_staging_lose(&m_staging);
        return was_mapped || (other != (void*)m_base) || !is_mapped();
    }));
    EXPECT_TRUE(is_mapped());
    uct_cuda_run_staging_free(&m_staging);
}
