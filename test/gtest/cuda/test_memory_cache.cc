/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages remembered as host memory. */
extern "C" {
#include <uct/abi/abi.h>
#include <uct/cuda/base/memory_cache.h>
}

#include <gtest/gtest.h>

#include <cerrno>

#include <sys/mman.h>
#include <unistd.h>

/* A fake UCX: the linker redirects the module's call here (--wrap) */
extern "C" ucs_status_t __wrap_uct_abi_on_unmap(uct_abi_unmap_cb_t)
{
    return UCS_OK;
}

class MemoryCache : public ::testing::Test
{
protected:
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    char *page;

    void SetUp() override
    {
        uct_cuda_memory_cache_enable();
        page = (char*)mmap(nullptr, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(MAP_FAILED, (void*)page);
    }

    void TearDown() override
    {
        munmap(page, size);
    }

    bool is_remembered(int permissions, size_t offset)
    {
        EXPECT_EQ(0, mprotect(page, size, permissions));
        uct_cuda_memory_cache_add_host(page + offset);
        return uct_cuda_memory_cache_is_host(page + offset);
    }
};

/* Unreadable memory is not host memory, even if the driver does not know it: it
   may be freed GPU memory, and become GPU memory again */
TEST_F(MemoryCache, readable_memory_is_remembered)
{
    errno = ENOENT;
    EXPECT_FALSE(is_remembered(PROT_NONE, 0));
    EXPECT_FALSE(is_remembered(PROT_NONE, size - 1));
    EXPECT_FALSE(uct_cuda_memory_cache_is_host(page));
    EXPECT_TRUE(is_remembered(PROT_READ, size - 1));
    EXPECT_TRUE(uct_cuda_memory_cache_is_host(page));
    EXPECT_FALSE(uct_cuda_memory_cache_is_host(page + size));
    EXPECT_EQ(ENOENT, errno);
}
