/* SPDX-License-Identifier: BSD-3-Clause */
/* Files while signals arrive, and beyond the process's size limit. */
#include "process.h"
#include "ticks.h"

extern "C" {
#include <uct/cuda/base/file.h>
#include <uct/cuda/base/retry.h>
}

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <vector>

/* A tmpfs of older kernels: a signal ends the call with EINTR, and the
   allocated space is released */
static unsigned interrupted;

extern "C" int posix_fallocate(int fd, off_t offset, off_t size)
{
    if ((size > (64 << 10)) || (interrupted > 0)) {
        interrupted -= (interrupted > 0);
        return EINTR;
    }

    return (syscall(SYS_fallocate, fd, 0, offset, size) == 0) ? 0 : errno;
}

class File : public ::testing::Test
{
protected:
    void SetUp() override
    {
        fd = mkstemp(path);
        ASSERT_LE(0, fd);
    }

    void TearDown() override
    {
        close(fd);
        unlink(path);
    }

    char path[32] = "/dev/shm/test_file.XXXXXX";
    int  fd       = -1;
};

TEST_F(File, reserving_survives_signals)
{
    const size_t size = 1ul << 20;
    struct stat st;

    interrupted = 20;
    EXPECT_TRUE(uct_cuda_file_reserve(fd, 0, size)) << strerror(errno);
    EXPECT_EQ(0u, interrupted);
    ASSERT_EQ(0, fstat(fd, &st));
    EXPECT_EQ(size, (size_t)st.st_size);
    EXPECT_LE(size / 512, (size_t)st.st_blocks);
}

TEST_F(File, odd_sizes_are_kept)
{
    struct stat st;

    EXPECT_TRUE(uct_cuda_file_reserve(fd, 100, 70001));
    ASSERT_EQ(0, fstat(fd, &st));
    EXPECT_EQ(70101, st.st_size);
}

TEST_F(File, written_bytes_are_read_back)
{
    const std::string text = "of a file";
    char found[32];

    EXPECT_TRUE(uct_cuda_file_write(fd, text.data(), text.size(), 5));
    EXPECT_EQ(text.size(), uct_cuda_file_read(fd, found, sizeof(found), 5));
    EXPECT_EQ(0, memcmp(text.data(), found, text.size()));
    EXPECT_EQ(4u, uct_cuda_file_read(fd, found, 4, 7));
    EXPECT_EQ(0u, uct_cuda_file_read(fd, found, 4, 100));
    EXPECT_EQ(7u, uct_cuda_file_text(path, found, 8));
    EXPECT_EQ('\0', found[7]);
    EXPECT_EQ(0u, uct_cuda_file_text("/nonexistent", found, sizeof(found)));
    EXPECT_EQ('\0', found[0]);
}

TEST_F(File, appended_bytes_are_at_the_end)
{
    const int end = open(path, O_WRONLY | O_APPEND);
    char found[8] = {};

    EXPECT_TRUE(uct_cuda_file_write(end, "abc", 3, 0));
    EXPECT_TRUE(uct_cuda_file_write(end, "def", 3, 0));
    EXPECT_EQ(6u, uct_cuda_file_text(path, found, sizeof(found)));
    EXPECT_STREQ("abcdef", found);
    close(end);
}

/* Refused where the kernel would end the program */
TEST_F(File, nothing_goes_beyond_the_limit)
{
    const struct rlimit limit = {1000, 1000};
    const char bytes[1001]    = {};

    EXPECT_EQ(1, in_child([&] {
        const int end = open(path, O_WRONLY | O_APPEND);
        setrlimit(RLIMIT_FSIZE, &limit);
        return uct_cuda_file_resize(fd, 1000) &&
               !uct_cuda_file_resize(fd, 1001) && (errno == EFBIG) &&
               uct_cuda_file_reserve(fd, 900, 100) &&
               !uct_cuda_file_reserve(fd, 900, 101) && (errno == EFBIG) &&
               uct_cuda_file_write(fd, bytes, 1000, 0) &&
               !uct_cuda_file_write(fd, bytes, 1001, 0) && (errno == EFBIG) &&
               !uct_cuda_file_write(end, bytes, 1, 0) && (errno == EFBIG);
    }));
}

/* The last descriptors are for the program and for UCX */
TEST_F(File, few_descriptors_are_left_to_the_program)
{
    const rlim_t number = (rlim_t)dup(fd) + UCT_CUDA_FILE_SPARE;
    struct rlimit before, limit;

    close((int)number - UCT_CUDA_FILE_SPARE);
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    limit          = before;
    limit.rlim_cur = number + 1;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    const int first = uct_cuda_file_keep(dup(fd)), second = dup(fd);

    EXPECT_LE(0, first);
    EXPECT_EQ(-1, uct_cuda_file_keep(second));
    EXPECT_EQ(EMFILE, errno);
    EXPECT_EQ(-1, close(second)) << "it is closed";
    EXPECT_EQ(-1, uct_cuda_file_keep(-1));
    EXPECT_TRUE(uct_cuda_file_has_room());
    limit.rlim_cur = first;
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
    EXPECT_FALSE(uct_cuda_file_has_room());
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    close(first);
}

TEST(Retry, a_pause_is_as_long_as_it_says)
{
    struct timespec begin, end;

    Ticks ticks;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    uct_cuda_sleep_ns(20 * 1000 * 1000);
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT_LE(20 * 1000 * 1000, (end.tv_sec - begin.tv_sec) * 1000000000 +
                                        end.tv_nsec - begin.tv_nsec);
}

TEST(Retry, a_result_is_returned_unchanged)
{
    struct pollfd none = {-1, POLLIN, 0};

    for (int flags : {0, SA_RESTART}) {
        Ticks ticks(flags);
        while (Ticks::count < 2000) {
            ASSERT_EQ(0, UCT_CUDA_RETRY(poll(&none, 1, 0)));
        }
    }
    EXPECT_EQ(-1, UCT_CUDA_RETRY(close(-1)));
    EXPECT_EQ(EBADF, errno);
}

/* The roots of these file systems have the same number */
TEST(FileInode, devices_are_distinguished)
{
    const int proc = open("/proc", O_RDONLY | O_DIRECTORY);
    const int sys  = open("/sys", O_RDONLY | O_DIRECTORY);

    EXPECT_NE(0u, uct_cuda_file_inode(proc));
    EXPECT_NE(uct_cuda_file_inode(proc), uct_cuda_file_inode(sys));
    close(proc);
    close(sys);
    EXPECT_EQ(0u, uct_cuda_file_inode(proc));
}
