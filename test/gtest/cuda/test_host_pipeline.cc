/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that copy pageable memory; the fake GPU's memory is the process's. */
#include "fake_driver.h"
#include "repeat.h"

extern "C" {
#include <uct/cuda/base/host/host_pipeline.h>
}

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <malloc.h>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#define MIB (1ul << 20)

static std::atomic<unsigned> copies_begun, copies, fail_at, registrations;
static std::atomic<unsigned> called;
static std::atomic<size_t> largest;
static std::atomic<bool> is_held;

/* The n-th copy fails, counted from 1 */
static CUresult copy(void *dst, const void *src, size_t length)
{
    ++copies_begun;
    while (is_held) {
        std::this_thread::yield();
    }

    if (++copies == fail_at) {
        return CUDA_ERROR_UNKNOWN;
    }

    if (length > largest) {
        largest = length;
    }
    memcpy(dst, src, length);
    return CUDA_SUCCESS;
}

class HostPipeline : public ::testing::Test
{
protected:
    FakeDriver driver;

    void SetUp() override
    {
        copies_begun = copies = fail_at = registrations = called = 0;
        largest       = 0;
        is_held       = false;
        driver.offer_host_threads();
        driver.table.cuMemHostRegister = [](void*, size_t, unsigned flags) {
            EXPECT_EQ(unsigned(CU_MEMHOSTREGISTER_PORTABLE), flags);
            ++registrations;
            return fake->fails("cuMemHostRegister") ? fake->fail_with :
                                                      CUDA_SUCCESS;
        };
        driver.table.cuStreamCreate = [](CUstream *stream, unsigned) {
            static uintptr_t number = 0x1000;
            *stream = reinterpret_cast<CUstream>(++number);
            return fake->fails("cuStreamCreate") ? fake->fail_with :
                                                   CUDA_SUCCESS;
        };
        driver.table.cuStreamDestroy    = [](CUstream) { return CUDA_SUCCESS; };
        driver.table.cuMemcpyHtoDAsync  = [](CUdeviceptr dst, const void *src,
                                            size_t length, CUstream) {
            return copy(reinterpret_cast<void*>(dst), src, length);
        };
        driver.table.cuMemcpyDtoHAsync = [](void *dst, CUdeviceptr src,
                                            size_t length, CUstream) {
            return copy(dst, reinterpret_cast<const void*>(src), length);
        };
        uct_cuda_host_pipeline_enable(3);
    }

    static ucs_status_t start(std::vector<char> &gpu, std::vector<char> &host,
                              size_t offset, size_t length, bool to_gpu,
                              uct_cuda_host_job_t **job_p)
    {
        return uct_cuda_host_pipeline_start(
                reinterpret_cast<CUdeviceptr>(gpu.data()) + offset,
                host.data() + offset, length, to_gpu, job_p);
    }

    static ucs_status_t wait(uct_cuda_host_job_t *job)
    {
        ucs_status_t status;

        while ((status = uct_cuda_host_pipeline_test(job)) == UCS_INPROGRESS) {
            std::this_thread::yield();
        }
        uct_cuda_host_pipeline_release(job);
        return status;
    }

    /* Fill by words: bytes take long if a tool watches every access. */
    static void fill(std::vector<char> &bytes, unsigned seed)
    {
        const size_t first = std::min(bytes.size(), REPEAT_PERIOD);
        char *at           = bytes.data();

        for (size_t i = 0; i < first; i += sizeof(uint64_t)) {
            uint64_t word = (i + seed) * 0x9e3779b97f4a7c15u;
            memcpy(at + i, &word, std::min(first - i, sizeof(word)));
        }
        repeat(at, bytes.size());
    }

    /* Check a copy of odd length at an odd address, and the bytes around it. */
    static void expect_copied(bool to_gpu, size_t size)
    {
        const size_t offset = 13, length = size - 29;
        std::vector<char> from(size), to(size, 77);
        std::vector<char> &gpu = to_gpu ? to : from, &host = to_gpu ? from : to;
        uct_cuda_host_job_t *job;

        fill(from, unsigned(size) + to_gpu);
        std::vector<char> want(to);
        memcpy(&want[offset], &from[offset], length);
        ASSERT_EQ(UCS_OK, start(gpu, host, offset, length, to_gpu, &job));
        ASSERT_EQ(UCS_OK, wait(job));
        if (memcmp(want.data(), to.data(), size) != 0) {
            auto byte = std::mismatch(want.begin(), want.end(), to.begin());
            FAIL() << "byte " << byte.first - want.begin() << " of " << size;
        }
    }
};

TEST_F(HostPipeline, every_byte_arrives_in_both_directions)
{
    for (size_t size : {4 * MIB + 29, 7 * MIB + 1000, 33 * MIB + 17}) {
        expect_copied(true, size);
        expect_copied(false, size);
    }

    /* Slots for at most three threads, once for all of these */
    EXPECT_GE(registrations, 1u);
    EXPECT_LE(registrations, 3u);
    EXPECT_EQ(MIB, largest);
}

TEST_F(HostPipeline, small_copies_use_no_threads)
{
    std::vector<char> gpu(5 * MIB), host(5 * MIB, 'x');
    uct_cuda_host_job_t *large, *job;

    EXPECT_EQ(UCS_ERR_UNSUPPORTED,
              start(gpu, host, 0, 4 * MIB - 1, true, &job));
    EXPECT_EQ(0u, copies);

    /* While threads are awake, smaller copies use them too */
    is_held = true;
    ASSERT_EQ(UCS_OK, start(gpu, host, 0, 4 * MIB, true, &large));
    EXPECT_EQ(UCS_ERR_UNSUPPORTED,
              start(gpu, host, 4 * MIB, MIB - 1, true, &job));
    ASSERT_EQ(UCS_OK, start(gpu, host, 4 * MIB, MIB, true, &job));
    is_held = false;
    EXPECT_EQ(UCS_OK, wait(large));
    EXPECT_EQ(UCS_OK, wait(job));
    EXPECT_EQ(host, gpu);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, start(gpu, host, 0, MIB, true, &job));
}

TEST_F(HostPipeline, many_copies_at_once)
{
    const unsigned count = 12;
    std::vector<std::vector<char>> gpu, host;
    std::vector<uct_cuda_host_job_t*> jobs(count);

    for (unsigned i = 0; i < count; ++i) {
        gpu.emplace_back((4 + (i % 5)) * MIB, char(i));
        host.emplace_back(gpu[i].size(), char(100 + i));
        fill((i % 2) ? host[i] : gpu[i], i);
    }

    for (unsigned i = 0; i < count; ++i) {
        ASSERT_EQ(UCS_OK, start(gpu[i], host[i], 0, gpu[i].size(), i % 2,
                                &jobs[i]));
    }
    for (unsigned i = 0; i < count; ++i) {
        EXPECT_EQ(UCS_OK, wait(jobs[count - 1 - i]));
    }
    for (unsigned i = 0; i < count; ++i) {
        EXPECT_EQ(gpu[i], host[i]) << "copy " << i;
    }
}

TEST_F(HostPipeline, a_failed_copy_is_reported_and_the_next_one_works)
{
    std::vector<char> gpu(16 * MIB), host(16 * MIB);
    uct_cuda_host_job_t *job;

    for (bool to_gpu : {true, false}) {
        copies  = 0;
        fail_at = 5;
        ASSERT_EQ(UCS_OK, start(gpu, host, 0, gpu.size(), to_gpu, &job));
        EXPECT_EQ(UCS_ERR_IO_ERROR, wait(job));
        /* Each thread may have had one more in flight */
        EXPECT_LE(copies, 5u + 3u * 4u);
        fail_at = 0;
        expect_copied(to_gpu, 5 * MIB);
    }
}

TEST_F(HostPipeline, a_failed_start_leaves_nothing)
{
    std::vector<char> gpu(4 * MIB), host(4 * MIB);
    uct_cuda_host_job_t *job;

    driver.renew_context();
    driver.fail   = "cuStreamCreate";
    EXPECT_EQ(UCS_ERR_IO_ERROR, start(gpu, host, 0, 4 * MIB, true, &job));
    EXPECT_EQ(0u, copies);
    expect_copied(true, 5 * MIB);
}

TEST_F(HostPipeline, without_locked_memory_the_driver_copies)
{
    driver.renew_context();
    driver.table.cuMemHostRegister = [](void*, size_t, unsigned) {
        ++registrations;
        return CUDA_ERROR_OUT_OF_MEMORY;
    };
    expect_copied(true, 5 * MIB);
    expect_copied(false, 33 * MIB);
    EXPECT_LE(registrations, 3u); /* asked once per thread and context */
}

/* Return the bytes from malloc() in this thread; 0 with a sanitizer, since it
   reports leaks itself. */
static size_t allocated()
{
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return (size_t)mallinfo().uordblks;
#endif
}

/* A program may reset its GPU any number of times */
TEST_F(HostPipeline, destroyed_contexts_leave_nothing_behind)
{
    std::vector<char> gpu(4 * MIB), host(4 * MIB);
    uct_cuda_host_job_t *job;
    size_t before = 0;

    /* The fake driver would keep a record of each event */
    driver.table.cuEventCreate = [](CUevent *event, unsigned) {
        *event = (CUevent)0x10;
        return CUDA_SUCCESS;
    };
    driver.table.cuEventDestroy = [](CUevent) { return CUDA_SUCCESS; };
    for (unsigned i = 0; i < 100; ++i) {
        driver.renew_context();
        ASSERT_EQ(UCS_OK, start(gpu, host, 0, gpu.size(), true, &job));
        ASSERT_EQ(UCS_OK, wait(job));
        before = (i == 49) ? allocated() : before;
    }
    EXPECT_LT(allocated(), before + 50 * 64);
}

/* The program resets the GPU during copies */
TEST_F(HostPipeline, a_copy_in_a_destroyed_context_fails)
{
    std::vector<char> gpu(32 * MIB), host(32 * MIB);
    uct_cuda_host_job_t *first, *second, *third;

    is_held = true;
    ASSERT_EQ(UCS_OK, start(gpu, host, 0, 16 * MIB, true, &first));
    ASSERT_EQ(UCS_OK, start(gpu, host, 16 * MIB, 16 * MIB, true, &second));
    while (copies_begun < 3) {
        std::this_thread::yield(); /* all threads are in the first one */
    }
    driver.renew_context();
    is_held       = false;
    EXPECT_EQ(UCS_ERR_IO_ERROR, wait(first));

    /* the first use of a new context releases the old one's resources, unless a
       copy still uses them */
    ASSERT_EQ(UCS_OK, start(gpu, host, 0, 16 * MIB, true, &third));
    EXPECT_EQ(UCS_ERR_IO_ERROR, wait(second));
    EXPECT_EQ(UCS_OK, wait(third));
}

TEST_F(HostPipeline, a_copy_uses_the_permitted_threads)
{
    std::vector<char> gpu(32 * MIB), host(32 * MIB);
    uct_cuda_host_job_t *job;

    for (unsigned count : {1u, 2u}) {
        uct_cuda_host_pipeline_enable(count);
        copies_begun = 0;
        is_held      = true;
        ASSERT_EQ(UCS_OK, start(gpu, host, 0, gpu.size(), true, &job));
        while (copies_begun < count) {
            std::this_thread::yield();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_EQ(count, copies_begun);
        is_held = false;
        EXPECT_EQ(UCS_OK, wait(job));
    }
}

TEST_F(HostPipeline, the_callback_runs_at_the_end)
{
    std::vector<char> gpu(8 * MIB), host(8 * MIB);
    uct_cuda_host_job_t *job;

    ASSERT_EQ(UCS_OK, start(gpu, host, 0, gpu.size(), true, &job));
    uct_cuda_host_pipeline_notify(job, [](void*) { ++called; }, nullptr);
    uct_cuda_host_pipeline_release(job);
    EXPECT_EQ(1u, called);

    ASSERT_EQ(UCS_OK, start(gpu, host, 0, gpu.size(), true, &job));
    while (uct_cuda_host_pipeline_test(job) == UCS_INPROGRESS) {
        std::this_thread::yield();
    }
    uct_cuda_host_pipeline_notify(job, [](void*) { ++called; }, nullptr);
    EXPECT_EQ(2u, called);
    uct_cuda_host_pipeline_release(job);
}

static std::atomic<unsigned> mended;

/* Memory becomes writable on its first write, page by page, as in programs that
   track changes */
static void mend(int, siginfo_t *info, void*)
{
    const uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)4095;

    ++mended;
    if (mprotect((void*)page, 4096, PROT_READ | PROT_WRITE) != 0) {
        _exit(1);
    }
}

TEST_F(HostPipeline, page_faults_of_threads_reach_the_programs_handler)
{
    const size_t size       = 4 * MIB;
    struct sigaction action = {}, before;
    std::vector<char> gpu(size);
    uct_cuda_host_job_t *job;
    char *host;

    fill(gpu, 5);
    host = (char*)mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
    mended              = 0;
    action.sa_sigaction = mend;
    action.sa_flags     = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before);
    ASSERT_EQ(UCS_OK, uct_cuda_host_pipeline_start(
                              reinterpret_cast<CUdeviceptr>(gpu.data()), host,
                              size, false, &job));
    EXPECT_EQ(UCS_OK, wait(job));
    sigaction(SIGSEGV, &before, NULL);
    EXPECT_EQ(size / 4096, mended);
    EXPECT_EQ(0, memcmp(gpu.data(), host, size));
    munmap(host, size);
}

/* Too small to wake threads, and without a request for them */
TEST_F(HostPipeline, a_copy_without_alternative_gets_a_thread)
{
    std::vector<char> from(100), to(100);
    uct_cuda_host_job_t *job;
    uct_cuda_host_remote_t remote = {};

    remote.copy = [](void*, void *local, uint64_t address, size_t length,
                     bool to_local) {
        void *there = reinterpret_cast<void*>(address);

        memcpy(to_local ? local : there, to_local ? there : local, length);
        return UCS_OK;
    };

    uct_cuda_host_pipeline_enable(0);
    for (bool to_gpu : {false, true}) {
        std::vector<char> &gpu = to_gpu ? to : from, &host = to_gpu ? from : to;

        fill(from, 3 + to_gpu);
        EXPECT_EQ(UCS_ERR_UNSUPPORTED,
                  start(gpu, host, 0, gpu.size(), to_gpu, &job));
        ASSERT_EQ(UCS_OK, uct_cuda_host_pipeline_start_remote(
                                  reinterpret_cast<CUdeviceptr>(gpu.data()),
                                  reinterpret_cast<uint64_t>(host.data()),
                                  host.size(), to_gpu, &remote, &job));
        EXPECT_EQ(UCS_OK, wait(job));
        EXPECT_EQ(from, to);
    }
}
