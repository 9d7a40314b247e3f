/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging memory, without a driver: copies have failed, so nothing is
   page-locked. */
#include <gtest/gtest.h>

extern "C" {
#include <mpi/pool.h>
}

#include <cstdint>
#include <vector>

class Pool : public ::testing::Test
{
protected:
    void *get(size_t size)
    {
        ucx_mp_mpi_block_t *block = ucx_mp_mpi_pool_get(size, size, &m_copy);

        if (block == nullptr) {
            return nullptr;
        }
        m_blocks.push_back(block);
        return block->address;
    }

    void TearDown() override
    {
        for (ucx_mp_mpi_block_t *block : m_blocks) {
            ucx_mp_mpi_pool_put(block);
        }
    }

    ucx_mp_mpi_copy_t m_copy = failed();
    std::vector<ucx_mp_mpi_block_t*> m_blocks;

private:
    static ucx_mp_mpi_copy_t failed()
    {
        ucx_mp_mpi_copy_t copy = {};

        copy.result = CUDA_ERROR_UNKNOWN;
        return copy;
    }
};

TEST_F(Pool, sizes)
{
    EXPECT_EQ(nullptr, get(SIZE_MAX));
    EXPECT_EQ(nullptr, get(SIZE_MAX - 4096));
    EXPECT_NE(nullptr, get(0));
    EXPECT_NE(nullptr, get(((size_t)1 << 30) + 1));
    for (int i = 0; i < 16; ++i) {
        EXPECT_NE(nullptr, get((size_t)64 << 20));
    }
    /* the pool is full, and all its blocks are in use */
    for (int i = 0; i < 2000; ++i) {
        ASSERT_NE(nullptr, get(0));
    }
}

TEST_F(Pool, reuse)
{
    void *address = get(100);

    ucx_mp_mpi_pool_put(m_blocks.back());
    m_blocks.pop_back();
    EXPECT_EQ(address, get(1000));
}
