/* SPDX-License-Identifier: BSD-3-Clause */
/* Processors available after affinity, other processes and control groups. */
#include "process.h"

extern "C" {
#include <uct/cuda/base/host/host_cpus.h>
}

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sched.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

class HostCpus : public ::testing::Test
{
protected:
    char m_root[32] = "/tmp/test_cpus.XXXXXX";
    cpu_set_t m_mask;

    void SetUp() override
    {
        ASSERT_NE(nullptr, mkdtemp(m_root));
        ASSERT_EQ(0, sched_getaffinity(0, sizeof(m_mask), &m_mask));
    }

    void TearDown() override
    {
        sched_setaffinity(0, sizeof(m_mask), &m_mask);
        uct_cuda_host_cpus_set_others(nullptr, 0);
        EXPECT_EQ(0, system((std::string("rm -r ") + m_root).c_str()));
    }

    void write(const std::string &path, const std::string &text)
    {
        std::string name = std::string(m_root) + path;

        for (size_t at = strlen(m_root); (at = name.find('/', at + 1)) !=
                                         std::string::npos;) {
            mkdir(name.substr(0, at).c_str(), 0700);
        }
        mkdir(name.substr(0, name.rfind('/')).c_str(), 0700);
        std::ofstream(name) << text;
    }

    unsigned quota(const char *groups)
    {
        return uct_cuda_host_cpus_quota(m_root, groups);
    }
};

TEST_F(HostCpus, quota_of_the_group_and_those_above)
{
    EXPECT_EQ(0u, quota("0::/\n"));
    EXPECT_EQ(0u, quota(""));
    EXPECT_EQ(0u, quota("nonsense\n:\n::"));

    write("/job/cpu.max", "400000 100000\n");
    write("/job/step/cpu.max", "max 100000\n");
    EXPECT_EQ(4u, quota("0::/job\n"));
    EXPECT_EQ(4u, quota("0::/job/step\n"));
    EXPECT_EQ(0u, quota("0::/other\n"));

    write("/job/step/cpu.max", "150000 100000\n");
    EXPECT_EQ(2u, quota("0::/job/step\n")); /* a quota of one and a half
                                               processors */
    write("/cpu.max", "100000 100000\n");
    EXPECT_EQ(1u, quota("0::/job/step\n"));
}

TEST_F(HostCpus, quota_in_the_old_layout)
{
    write("/cpu/job/cpu.cfs_quota_us", "300000\n");
    write("/cpu/job/cpu.cfs_period_us", "100000\n");
    write("/cpu/free/cpu.cfs_quota_us", "-1\n");
    write("/cpu/free/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(3u, quota("7:memory:/job\n4:cpu,cpuacct:/job\n"));
    EXPECT_EQ(0u, quota("4:cpu,cpuacct:/free\n"));
    EXPECT_EQ(0u, quota("7:memory:/job\n"));
}

/* Two processes on all processors have half of them each; a process bound
   elsewhere takes none */
TEST_F(HostCpus, processors_are_shared)
{
    const unsigned all = CPU_COUNT(&m_mask);
    uint32_t others[2];

    uct_cuda_host_cpus_set_others(nullptr, 0);
    const unsigned alone = uct_cuda_host_cpus_share();
    EXPECT_GE(alone, 1u);
    EXPECT_LE(alone, all);

    const pid_t child = spawn([] { return true; });
    others[0] = uint32_t(child);
    others[1] = uint32_t(getpid()); /* does not count */
    uct_cuda_host_cpus_set_others(others, 2);
    EXPECT_LE(uct_cuda_host_cpus_share(), (all + 1) / 2);

    if (all >= 2) {
        cpu_set_t first, rest = m_mask;
        int cpu = 0;

        while (!CPU_ISSET(cpu, &m_mask)) {
            ++cpu;
        }
        CPU_ZERO(&first);
        CPU_SET(cpu, &first);
        CPU_CLR(cpu, &rest);
        ASSERT_EQ(0, sched_setaffinity(child, sizeof(first), &first));
        ASSERT_EQ(0, sched_setaffinity(0, sizeof(rest), &rest));
        uct_cuda_host_cpus_set_others(others, 1);
        EXPECT_GE(uct_cuda_host_cpus_share() + 1, (alone == all) ? all : 1);
    }

    reap(child);
    sched_setaffinity(0, sizeof(m_mask), &m_mask);
    uct_cuda_host_cpus_set_others(others, 1); /* it has ended */
    EXPECT_EQ(alone, uct_cuda_host_cpus_share());
}

/* Short work of a helper thread leaves the caller's only processor to the
   caller, and stays on the caller's processors if there are several */
TEST_F(HostCpus, short_work_runs_beside_the_only_processor)
{
    auto look = [](void *arg) -> void * {
        sched_getaffinity(0, sizeof(cpu_set_t), (cpu_set_t*)arg);
        return nullptr;
    };
    cpu_set_t only, seen;
    pthread_t thread;

    ASSERT_TRUE(uct_cuda_host_cpus_start_beside(look, &seen, &thread));
    pthread_join(thread, nullptr);
    if (CPU_COUNT(&m_mask) == 1) {
        EXPECT_GE(CPU_COUNT(&seen), 1);
        GTEST_SKIP() << "there is one processor";
    }

    EXPECT_TRUE(CPU_EQUAL(&m_mask, &seen));
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &m_mask)) {
            continue;
        }

        CPU_ZERO(&only);
        CPU_SET(cpu, &only);
        ASSERT_EQ(0, sched_setaffinity(0, sizeof(only), &only));
        ASSERT_TRUE(uct_cuda_host_cpus_start_beside(look, &seen, &thread));
        pthread_join(thread, nullptr);
        sched_setaffinity(0, sizeof(m_mask), &m_mask);
        EXPECT_FALSE(CPU_ISSET(cpu, &seen));
        EXPECT_GE(CPU_COUNT(&seen), 1);
    }
}

/* A driver thread inherits the processors of its caller; finally it gets those
   of the program's thread. Other threads keep theirs */
TEST_F(HostCpus, the_drivers_threads_get_the_callers_processors)
{
    static pthread_barrier_t barrier;
    static cpu_set_t own;
    static pthread_t threads[2];
    static const char *const names[2] = {"cuda-EvtHandlr", "cuda-worker"};
    auto wait = [](void *) -> void * {
        pthread_barrier_wait(&barrier);
        return nullptr;
    };
    auto create = [](void *arg) -> void * {
        auto *func = (void *(**)(void*))arg;

        sched_getaffinity(0, sizeof(own), &own);
        for (int i = 0; i < 2; ++i) {
            pthread_create(&threads[i], nullptr, *func, nullptr);
            pthread_setname_np(threads[i], names[i]);
        }
        return nullptr;
    };
    void *(*func)(void*) = wait;
    cpu_set_t only, seen[2];
    pthread_t thread;
    int cpu = 0;

    if (CPU_COUNT(&m_mask) == 1) {
        GTEST_SKIP() << "there is one processor";
    }

    while (!CPU_ISSET(cpu, &m_mask)) {
        ++cpu;
    }
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    pthread_barrier_init(&barrier, nullptr, 3);
    ASSERT_EQ(0, sched_setaffinity(0, sizeof(only), &only));
    ASSERT_TRUE(uct_cuda_host_cpus_start_beside(create, &func, &thread));
    pthread_join(thread, nullptr);
    sched_setaffinity(0, sizeof(m_mask), &m_mask);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(0, pthread_getaffinity_np(threads[i], sizeof(seen[i]),
                                            &seen[i]));
    }
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 2; ++i) {
        pthread_join(threads[i], nullptr);
    }
    pthread_barrier_destroy(&barrier);
    EXPECT_FALSE(CPU_ISSET(cpu, &own));
    EXPECT_TRUE(CPU_EQUAL(&only, &seen[0]));
    EXPECT_TRUE(CPU_EQUAL(&own, &seen[1]));
}
