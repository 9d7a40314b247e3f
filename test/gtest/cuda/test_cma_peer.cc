/* SPDX-License-Identifier: BSD-3-Clause */
/* Another process's memory: its identity, permitted copies and refused ones. */
#include "process.h"
#include "ticks.h"

extern "C" {
#include <uct/cuda/base/log.h>
#include <uct/cuda/cuda_cma/cuda_cma_peer.h>
}

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

class CmaPeer : public ::testing::Test
{
protected:
    struct Shared {
        uct_cuda_cma_addr_t addr;
        volatile int        is_ready;
    };

    static constexpr size_t size = 1ul << 20;
    uint8_t                 *memory; /* private: the child has its own copy */
    Shared                  *shared;
    pid_t                   child = -1;
    uct_cuda_cma_peer_t     *peer = nullptr;

    static void *map(size_t length, int flags)
    {
        return mmap(NULL, length, PROT_READ | PROT_WRITE,
                    MAP_ANONYMOUS | flags, -1, 0);
    }

    void SetUp() override
    {
        uct_cuda_cma_addr_t ours;

        uct_cuda_log_set([](uct_cuda_log_level_t, const char*, unsigned,
                            const char*, const char*) {}, UCT_CUDA_LOG_ERROR);
        memory = (uint8_t*)map(size, MAP_PRIVATE);
        shared = (Shared*)map(sizeof(*shared), MAP_SHARED);
        memset(memory, 'p', size);
        uct_cuda_cma_addr_self(1, &ours);
        child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test crashes */
            for (size_t i = 0; i < size; ++i) {
                memory[i] = (uint8_t)(i % 97);
            }
            uct_cuda_cma_addr_self(2, &shared->addr);
            shared->is_ready = 1;
            while (shared->is_ready == 1) {
                usleep(1000);
            }
            become_other();
        }
        while (!shared->is_ready) {
            usleep(100);
        }
    }

    void TearDown() override
    {
        if (peer != nullptr) {
            uct_cuda_cma_peer_put(peer);
        }
        end_child();
        munmap(memory, size);
        munmap(shared, sizeof(*shared));
    }

    virtual void become_other()
    {
        _exit(1);
    }

    void end_child()
    {
        if (child > 0) {
            reap(child);
            child = -1;
        }
    }

    const char *obstacle()
    {
        const char *reason = nullptr;

        return (uct_cuda_cma_peer_get(&shared->addr, &peer, &reason) ==
                UCS_OK) ? nullptr : reason;
    }

    ucs_status_t copy(uint8_t *local, size_t offset, size_t length, bool to)
    {
        return uct_cuda_cma_peer_copy(peer, local, (uintptr_t)memory + offset,
                                      length, to);
    }
};

TEST_F(CmaPeer, memory_is_read_and_written)
{
    std::vector<uint8_t> local(size, 'l');

    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }

    EXPECT_EQ(UCS_OK, copy(local.data(), 100, 5000, false));
    local.assign(size, 'x');
    EXPECT_EQ(UCS_OK, copy(local.data(), 0, size, true));
    EXPECT_EQ(2, local[99]);
    EXPECT_EQ('l', local[100]);
    EXPECT_EQ('l', local[5099]);
    EXPECT_EQ(5100 % 97, local[5100]);
    EXPECT_EQ('p', memory[100]);
}

TEST_F(CmaPeer, missing_memory_is_an_error)
{
    uint8_t local[16];

    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }

    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              uct_cuda_cma_peer_copy(peer, local, 64, sizeof(local), true));
    EXPECT_EQ(UCS_ERR_INVALID_ADDR,
              uct_cuda_cma_peer_copy(peer, local, 64, sizeof(local), false));
}

/* Also before its parent has waited for it, when its pid is still in use */
TEST_F(CmaPeer, nothing_is_written_after_its_death)
{
    uint8_t local[16] = {};
    siginfo_t info;

    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }

    kill(child, SIGKILL);
    ASSERT_EQ(0, waitid(P_PID, child, &info, WEXITED | WNOWAIT));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, copy(local, 0, sizeof(local), false));
    end_child();
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, copy(local, 0, sizeof(local), true));
    EXPECT_STREQ("there is no such process", obstacle());
}

/* A process with a dead process's pid: a child has its parent's word at the
   same address, and differs by its start time; another program differs by the
   word */
TEST_F(CmaPeer, a_reused_pid_is_another_process)
{
    const uct_cuda_cma_addr_t addr = shared->addr;

    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }
    uct_cuda_cma_peer_put(peer);
    peer = nullptr;

    ++shared->addr.start_time;
    EXPECT_STREQ("the process has ended, or not to be seen", obstacle());
    shared->addr = addr;
    ++shared->addr.number;
    EXPECT_STREQ("it is another process", obstacle());
    shared->addr = addr;
    ++shared->addr.process.pid_ns;
    EXPECT_STREQ("another pid namespace", obstacle());
    shared->addr = addr;
    EXPECT_EQ(nullptr, obstacle());
}

/* Return the number of this process's open descriptors. */
static unsigned num_fds()
{
    unsigned count = 0;
    DIR *folder    = opendir("/proc/self/fd");

    while (readdir(folder) != NULL) {
        ++count;
    }
    closedir(folder);
    return count;
}

/* A copy in flight keeps it, also after the endpoint's end */
TEST_F(CmaPeer, a_peer_stays_while_it_is_held)
{
    const unsigned before = num_fds();
    uint8_t local[16]     = {};

    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }

    const unsigned with = num_fds();
    uct_cuda_cma_peer_hold(peer);
    uct_cuda_cma_peer_put(peer);
    EXPECT_EQ(with, num_fds());
    EXPECT_EQ(UCS_OK, copy(local, 0, sizeof(local), true));
    EXPECT_EQ(15, local[15]);
    uct_cuda_cma_peer_put(peer);
    peer = nullptr;
    EXPECT_EQ(before, num_fds());
}

/* UCX keeps endpoints closed by their peer: one descriptor per process */
TEST_F(CmaPeer, endpoints_of_a_process_share_one_descriptor)
{
    const unsigned before = num_fds();
    uct_cuda_cma_peer_t *same[3];

    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }

    const unsigned with = num_fds();
    for (auto &one : same) {
        ++shared->addr.process.iface;
        ASSERT_EQ(UCS_OK, uct_cuda_cma_peer_get(&shared->addr, &one, NULL));
        EXPECT_EQ(peer, one);
        EXPECT_EQ(with, num_fds());
    }
    for (auto *one : same) {
        uct_cuda_cma_peer_put(one);
    }
    EXPECT_EQ(with, num_fds());
    uct_cuda_cma_peer_put(peer);
    peer = nullptr;
    EXPECT_EQ(before, num_fds());
}

/* Queried while signals arrive, with and without SA_RESTART: poll() is never
   restarted */
TEST_F(CmaPeer, a_signal_is_not_a_death)
{
    uint8_t local[64] = {};

    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }

    for (int flags : {0, SA_RESTART}) {
        Ticks ticks(flags);
        while (Ticks::count < 3000) {
            ASSERT_EQ(UCT_CUDA_CMA_PEER_THERE, uct_cuda_cma_peer_state(peer));
            ASSERT_EQ(UCS_OK, copy(local, 0, sizeof(local), true));
            ASSERT_EQ(UCS_OK, copy(local, 0, sizeof(local), false));
        }
    }
}

/* By a process without access to /proc, and for a peer not yet waited for by
   its parent */
TEST_F(CmaPeer, an_end_is_seen_behind_a_chroot)
{
    char dir[] = "/tmp/test_cma_peer.XXXXXX";
    const int pidfd = (int)syscall(434, getpid(), 0); /* pidfd_open() */
    siginfo_t info;

    close(pidfd);
    if ((pidfd < 0) || (obstacle() != nullptr)) {
        GTEST_SKIP() << "no cross-memory attach here, or no pidfds";
    }

    ASSERT_NE(nullptr, mkdtemp(dir));
    kill(child, SIGKILL);
    ASSERT_EQ(0, waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
    EXPECT_EQ(0, in_child([&] {
        return (chroot(dir) == 0) &&
               (uct_cuda_cma_peer_state(peer) != UCT_CUDA_CMA_PEER_ENDED);
    }));
    rmdir(dir);
}

/* A daemon closes all descriptors it does not know: the number is free, then
   refers to a readable file */
TEST_F(CmaPeer, a_descriptor_that_was_closed_is_not_a_death)
{
    const int next = dup(0);
    int pipes[2];

    close(next);
    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }

    close(next);
    EXPECT_EQ(UCT_CUDA_CMA_PEER_THERE, uct_cuda_cma_peer_state(peer));
    ASSERT_EQ(0, pipe(pipes));
    EXPECT_EQ(next, pipes[0]);
    ASSERT_EQ(1, write(pipes[1], "", 1));
    EXPECT_EQ(UCT_CUDA_CMA_PEER_THERE, uct_cuda_cma_peer_state(peer));
    end_child();
    EXPECT_EQ(UCT_CUDA_CMA_PEER_ENDED, uct_cuda_cma_peer_state(peer));
    close(pipes[1]);
}

TEST_F(CmaPeer, a_peer_is_unreachable_if_the_kernel_refuses)
{
    shared->addr.place = 64; /* an address without readable memory */
    EXPECT_EQ(0, strncmp("the kernel does not let", obstacle(), 23));
}

/* The image of a peer that has executed another program: this program, with the
   old one's memory at the same address, and a file that reports it. Runs before
   main(). */
static void run_as_other_image() __attribute__((constructor));

static void run_as_other_image()
{
    const char *text = getenv("CMA_PEER_IMAGE");
    unsigned long address, size;
    int fd;

    if ((text == NULL) ||
        (sscanf(text, "%lx,%lx,%d", &address, &size, &fd) != 3)) {
        return;
    }

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    void *memory = mmap((void*)address, size, PROT_READ | PROT_WRITE,
                        MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED, -1, 0);
    memset(memory, 'n', size);
    (void)!write(fd, "r", 1);
    while (getppid() != 1) {
        usleep(1000);
        for (size_t i = 0; i < size; ++i) {
            if (((const char*)memory)[i] != 'n') {
                (void)!write(fd, "w", 1);
                _exit(1);
            }
        }
    }
    _exit(0);
}

/* After execve() a process has the same pid, start time and pidfd. With
   addresses in the usual order the new image has other addresses. Without
   randomization the old word's address exists, too. */
class CmaPeerImage : public CmaPeer, public ::testing::WithParamInterface<int>
{
protected:
    int pipes[2];

    void SetUp() override
    {
        ASSERT_EQ(0, pipe(pipes));
        fcntl(pipes[0], F_SETFL, O_NONBLOCK);
        CmaPeer::SetUp();
    }

    /* Replace the fixture's child. */
    void become_other() override
    {
        char text[80];

        snprintf(text, sizeof(text), "%lx,%lx,%d", (unsigned long)memory,
                 (unsigned long)size, pipes[1]);
        setenv("CMA_PEER_IMAGE", text, 1);
        personality((unsigned long)GetParam());
        execl("/proc/self/exe", "image", NULL);
        _exit(1);
    }

    /* Return the new image's report, 0 if there is none. */
    char word(unsigned ms)
    {
        struct pollfd fd = {pipes[0], POLLIN, 0};
        char c           = 0;

        return ((poll(&fd, 1, (int)ms) == 1) && (read(pipes[0], &c, 1) == 1)) ?
                       c :
                       0;
    }

    void TearDown() override
    {
        CmaPeer::TearDown();
        close(pipes[0]);
        close(pipes[1]);
    }
};

TEST_P(CmaPeerImage, nothing_is_copied_to_another_program)
{
    uint8_t local[64] = {};

    if (obstacle() != nullptr) {
        GTEST_SKIP() << "no cross-memory attach here";
    }

    EXPECT_EQ(UCS_OK, copy(local, 0, sizeof(local), true));
    shared->is_ready = 2;
    ASSERT_EQ('r', word(20000));
    memset(local, 'l', sizeof(local));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, copy(local, 0, sizeof(local), false));
    EXPECT_EQ(0, word(200)) << "the other program's memory was written to";
    EXPECT_EQ(UCT_CUDA_CMA_PEER_REPLACED, uct_cuda_cma_peer_state(peer));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, copy(local, 0, sizeof(local), true));
}

INSTANTIATE_TEST_SUITE_P(personality, CmaPeerImage,
                         ::testing::Values(0, (int)ADDR_NO_RANDOMIZE),
                         [](const ::testing::TestParamInfo<int> &info) {
                             return info.param ? "fixed" : "random";
                         });
