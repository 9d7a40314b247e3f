/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is reachable by cuda_ipc. */
extern "C" {
#include <uct/cuda/cuda_ipc/cuda_ipc_address.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

class IpcAddress : public ::testing::Test
{
protected:
    uct_cuda_ipc_device_addr_t device;
    uct_cuda_ipc_iface_addr_t iface;

    void SetUp() override
    {
        uct_cuda_ipc_device_addr_self(&device);
        uct_cuda_ipc_iface_addr_self(&iface);
    }
};

TEST_F(IpcAddress, own_process_is_not)
{
    EXPECT_FALSE(uct_cuda_ipc_addr_is_reachable(&device, &iface));
}

TEST_F(IpcAddress, other_process_of_the_machine_is)
{
    iface.pid += 1;
    EXPECT_TRUE(uct_cuda_ipc_addr_is_reachable(&device, &iface));
}

TEST_F(IpcAddress, same_pid_in_another_namespace_is)
{
    iface.pid_ns += 1;
    EXPECT_TRUE(uct_cuda_ipc_addr_is_reachable(&device, &iface));
}

TEST_F(IpcAddress, other_machine_is_not)
{
    iface.pid        += 1;
    device.machine[15] ^= 1;
    EXPECT_FALSE(uct_cuda_ipc_addr_is_reachable(&device, &iface));
}

TEST_F(IpcAddress, every_digit_of_the_machine_counts)
{
    static const uint8_t zeros[16] = {0};
    EXPECT_NE(0, memcmp(device.machine + 12, zeros, 4));
}

/* A stock peer's device address is 8 bytes and may end a page */
TEST_F(IpcAddress, stock_peer_is_not_and_no_more_than_8_bytes_are_read)
{
    size_t page = sysconf(_SC_PAGESIZE);
    char *pages = (char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, (void*)pages);
    ASSERT_EQ(0, mprotect(pages + page, page, PROT_NONE));
    memset(pages + page - 8, 0x5a, 8);
    iface.pid += 1;
    EXPECT_FALSE(uct_cuda_ipc_addr_is_reachable(pages + page - 8, &iface));
    munmap(pages, 2 * page);
}

TEST_F(IpcAddress, child_of_a_fork_has_its_own)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        uct_cuda_ipc_iface_addr_t own;
        uct_cuda_ipc_iface_addr_self(&own);
        _exit((own.pid == getpid()) && (own.pid != iface.pid) ? 0 : 1);
    }
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_EQ(0, status);
}

TEST_F(IpcAddress, missing_addresses_are_not)
{
    EXPECT_FALSE(uct_cuda_ipc_addr_is_reachable(NULL, &iface));
    EXPECT_FALSE(uct_cuda_ipc_addr_is_reachable(&device, NULL));
}
