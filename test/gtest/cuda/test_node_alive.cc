/* SPDX-License-Identifier: BSD-3-Clause */
/* Living processes among those that share a file. */
#include "process.h"

extern "C" {
#include <uct/cuda/node/alive.h>
}

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

class NodeAlive : public ::testing::Test
{
protected:
    char                  path[32] = "/tmp/ucx_mp_alive_XXXXXX";
    int                   fd;
    uct_cuda_node_alive_t *mine;

    void SetUp() override
    {
        fd = mkstemp(path);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(0, ftruncate(fd, 4096));
        mine = enter();
    }

    void TearDown() override
    {
        uct_cuda_node_alive_close(mine);
        close(fd);
        unlink(path);
    }

    /* Enter as another process would. */
    uct_cuda_node_alive_t *enter()
    {
        const int own = open(path, O_RDWR);
        uct_cuda_node_alive_t *alive;

        EXPECT_EQ(UCS_OK, uct_cuda_node_alive_open(own, &alive));
        close(own);
        return alive;
    }
};

TEST_F(NodeAlive, a_number_has_one_holder)
{
    uct_cuda_node_alive_t *other = enter();

    EXPECT_TRUE(uct_cuda_node_alive_hold(other, 3));
    EXPECT_FALSE(uct_cuda_node_alive_hold(mine, 3));
    EXPECT_TRUE(uct_cuda_node_alive_hold(mine, 4));
    EXPECT_TRUE(uct_cuda_node_alive_is_taken(mine, 3));
    EXPECT_TRUE(uct_cuda_node_alive_is_taken(other, 4));
    EXPECT_FALSE(uct_cuda_node_alive_is_taken(mine, 4)) << "its own";
    EXPECT_FALSE(uct_cuda_node_alive_is_taken(mine, 5));
    EXPECT_TRUE(uct_cuda_node_alive_any_is_taken(mine, 0, 4));
    EXPECT_FALSE(uct_cuda_node_alive_any_is_taken(mine, 0, 3));
    EXPECT_FALSE(uct_cuda_node_alive_any_is_taken(mine, 4, 100));

    uct_cuda_node_alive_release(other, 3);
    EXPECT_FALSE(uct_cuda_node_alive_is_taken(mine, 3));
    EXPECT_TRUE(uct_cuda_node_alive_wait(mine, 3));
    uct_cuda_node_alive_close(other);
}

/* One of two users in a process leaves, or only closes the file */
TEST_F(NodeAlive, closing_by_other_users_of_the_process_loses_nothing)
{
    uct_cuda_node_alive_t *first = enter(), *second = enter();

    ASSERT_TRUE(uct_cuda_node_alive_hold(first, 1));
    ASSERT_TRUE(uct_cuda_node_alive_hold(second, 2));
    uct_cuda_node_alive_close(second);
    close(open(path, O_RDWR));
    EXPECT_TRUE(uct_cuda_node_alive_is_taken(mine, 1));
    EXPECT_FALSE(uct_cuda_node_alive_is_taken(mine, 2));
    uct_cuda_node_alive_close(first);
    EXPECT_FALSE(uct_cuda_node_alive_is_taken(mine, 1));
}

TEST_F(NodeAlive, a_killed_process_is_not_alive)
{
    const pid_t pid = spawn(
        [this]() { return uct_cuda_node_alive_hold(enter(), 7); });
    siginfo_t info;

    EXPECT_TRUE(uct_cuda_node_alive_is_taken(mine, 7));
    kill(pid, SIGKILL);
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT); /* a zombie is dead */
    EXPECT_FALSE(uct_cuda_node_alive_is_taken(mine, 7));
    reap(pid);
}

/* Although a child has its parent's memory and descriptors */
TEST_F(NodeAlive, a_forked_child_holds_nothing)
{
    pid_t *child = (pid_t*)mmap(NULL, sizeof(*child), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, (void*)child);
    const pid_t pid = spawn([this, child]() {
        const int own                = open(path, O_RDWR);
        uct_cuda_node_alive_t *alive = NULL;

        if ((uct_cuda_node_alive_open(own, &alive) != UCS_OK) ||
            (mmap(NULL, 4096, PROT_READ, MAP_SHARED, own, 0) == MAP_FAILED) ||
            !uct_cuda_node_alive_hold(alive, 7)) {
            return false;
        }

        const pid_t forked = fork();
        if (forked == 0) {
            __atomic_store_n(child, getpid(), __ATOMIC_RELEASE);
            pause();
            _exit(0);
        }
        while (__atomic_load_n(child, __ATOMIC_ACQUIRE) == 0) {
            usleep(100);
        }
        return true;
    });

    EXPECT_TRUE(uct_cuda_node_alive_is_taken(mine, 7));
    reap(pid);
    EXPECT_FALSE(uct_cuda_node_alive_is_taken(mine, 7));
    kill(*child, SIGKILL);
    munmap(child, sizeof(*child));
}

TEST_F(NodeAlive, a_forked_child_releases_nothing)
{
    uct_cuda_node_alive_t *other = enter();

    ASSERT_TRUE(uct_cuda_node_alive_hold(other, 9));
    reap(spawn([other]() {
        const bool is_self = uct_cuda_node_alive_is_owner(other);

        uct_cuda_node_alive_release(other, 9);
        uct_cuda_node_alive_close(other);
        return !is_self;
    }));
    EXPECT_TRUE(uct_cuda_node_alive_is_owner(other));
    EXPECT_TRUE(uct_cuda_node_alive_is_taken(mine, 9));
    uct_cuda_node_alive_close(other);
}
