/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose file descriptor stands for cuMemCreate memory of another process. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/cuda_ipc/cuda_ipc_address.h>
#include <uct/cuda/cuda_ipc/cuda_ipc_handle.h>
}

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static char imported[16]; /* what the descriptor leads to */
static unsigned imports;

class IpcHandle : public ::testing::Test
{
protected:
    FakeDriver driver;
    uct_cuda_ipc_handle_t handle;
    pid_t child = -1;

    /* A peer, and a descriptor of it that is another file's in this process */
    void SetUp() override
    {
        uct_cuda_ipc_iface_addr_t self;
        int ready[2];
        char byte;

        imports = 0;
        memset(imported, 0, sizeof(imported));
        driver.table.cuMemImportFromShareableHandle =
                [](CUmemGenericAllocationHandle *allocation, void *fd,
                   CUmemAllocationHandleType) {
                    ++imports;
                    *allocation = 1;
                    return (pread((int)(intptr_t)fd, imported,
                                  sizeof(imported) - 1, 0) > 0) ?
                                   CUDA_SUCCESS :
                                   CUDA_ERROR_INVALID_VALUE;
                };
        driver.table.cuMemAddressReserve =
                [](CUdeviceptr *address, size_t, size_t, CUdeviceptr,
                   unsigned long long) {
                    *address = 0x70000000;
                    return CUDA_SUCCESS;
                };
        driver.table.cuMemMap = [](CUdeviceptr, size_t, size_t,
                                   CUmemGenericAllocationHandle,
                                   unsigned long long) { return CUDA_SUCCESS; };
        driver.table.cuMemSetAccess = [](CUdeviceptr, size_t,
                                         const CUmemAccessDesc *,
                                         size_t) { return CUDA_SUCCESS; };
        driver.table.cuMemRelease = [](CUmemGenericAllocationHandle) {
            return CUDA_SUCCESS;
        };

        memset(&handle, 0, sizeof(handle));
        handle.type   = UCT_CUDA_IPC_HANDLE_FD;
        handle.length = 4096;
        handle.os.fd  = memfd_create("own", MFD_CLOEXEC);
        ASSERT_EQ(3, write(handle.os.fd, "own", 3));

        ASSERT_EQ(0, pipe(ready));
        child = fork();
        if (child == 0) {
            int fd = memfd_create("peer", MFD_CLOEXEC);
            if ((write(fd, "peer", 4) != 4) ||
                (dup2(fd, handle.os.fd) < 0) || (write(ready[1], "", 1) != 1)) {
                _exit(1);
            }
            for (;;) {
                pause();
            }
        }
        close(ready[1]);
        ASSERT_EQ(1, read(ready[0], &byte, 1));
        close(ready[0]);

        uct_cuda_ipc_iface_addr_self(&self);
        handle.pid    = child;
        handle.pid_ns = self.pid_ns;
    }

    void TearDown() override
    {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(handle.os.fd);
    }

    ucs_status_t open()
    {
        CUdeviceptr mapped;

        return uct_cuda_ipc_handle_open(&handle, 0, &mapped);
    }

    /* Does the kernel let this process have another's descriptors? */
    bool may_fetch()
    {
        int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
        int fd    = (int)syscall(SYS_pidfd_getfd, pidfd, handle.os.fd, 0);

        close(pidfd);
        close(fd);
        return fd >= 0;
    }
};

TEST_F(IpcHandle, descriptor_is_the_exporters)
{
    if (!may_fetch()) {
        GTEST_SKIP() << "pidfd_getfd: " << strerror(errno);
    }

    EXPECT_EQ(UCS_OK, open());
    EXPECT_STREQ("peer", imported);
}

/* Here it would be some other process that has this pid */
TEST_F(IpcHandle, pid_of_another_namespace_is_not_looked_up)
{
    ++handle.pid_ns;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open());
    handle.pid_ns = 0;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open());
    EXPECT_EQ(0u, imports);
}

TEST_F(IpcHandle, exporter_that_is_gone_is_unreachable)
{
    handle.pid = INT32_MAX;
    EXPECT_EQ(UCS_ERR_UNREACHABLE, open());
    EXPECT_EQ(0u, imports);
}
