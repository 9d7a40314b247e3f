/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Run calls of the emulated driver in one or several processes, in a session
 * folder of their own. The test process itself never starts the driver.
 */
#ifndef CUEMU_DRIVER_FIXTURE_H_
#define CUEMU_DRIVER_FIXTURE_H_

#include "../driver/toolkit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CU_OK(_call) ASSERT_EQ(CUDA_SUCCESS, (_call))

static const size_t MiB = (size_t)1 << 20;

/* Rate between two GPUs of beluga: two NVLink 2 links, GB/s */
static const double BELUGA_LINK = 48.0;

class driver : public ::testing::Test {
public:
    /* Memory shared by the processes of a test. */
    struct shared_t {
        std::atomic<int> arrived;
        std::atomic<int> generation;
        CUipcMemHandle   handle[4];
        uint64_t         value[16];
        double           seconds[16];
    };

protected:
    void SetUp() override
    {
        char dir[] = "/dev/shm/cuemu-test-XXXXXX";
        void *ptr;

        ASSERT_NE(nullptr, mkdtemp(dir));
        m_dir = dir;
        setenv("CUEMU_SESSION", dir, 1);
        setenv("CUEMU_NODE", "beluga", 1);
        setenv("CUEMU_SLOWDOWN", "20", 1);
        unsetenv("CUEMU_FAULT");
        unsetenv("CUEMU_GPU_MEMORY");
        unsetenv("CUEMU_REPORT");
        unsetenv("CUEMU_TIME_ONLY");
        unsetenv("CUDA_VISIBLE_DEVICES");

        ptr = mmap(nullptr, sizeof(shared_t), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(MAP_FAILED, ptr);
        m_shared = new (ptr) shared_t();
    }

    void TearDown() override
    {
        munmap(m_shared, sizeof(shared_t));
        std::string command = "rm -rf " + m_dir;
        EXPECT_EQ(0, system(command.c_str()));
    }

    /* Start a process for `body(rank)`. Its exit status reports failures. */
    pid_t start(int rank, const std::function<void(int)> &body)
    {
        fflush(stdout);
        fflush(stderr);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(120);
            body(rank);
            exit(HasFailure() ? 1 : 0);
        }

        return pid;
    }

    int finish(pid_t pid)
    {
        int status = -1;

        EXPECT_EQ(pid, waitpid(pid, &status, 0));
        return status;
    }

    void run(int count, const std::function<void(int)> &body)
    {
        std::vector<pid_t> pids;

        m_count = count;
        for (int rank = 0; rank < count; ++rank) {
            pids.push_back(start(rank, body));
        }

        for (pid_t pid : pids) {
            EXPECT_EQ(0, finish(pid)) << "a process failed";
        }
    }

    /* Wait for all processes of run(). */
    void barrier()
    {
        int generation = m_shared->generation;

        if (++m_shared->arrived == m_count) {
            m_shared->arrived = 0;
            ++m_shared->generation;
        } else {
            while (m_shared->generation == generation) {
                usleep(200);
            }
        }
    }

    /* Make the primary context of a device current. */
    static CUcontext use(int device)
    {
        CUcontext ctx = nullptr;

        EXPECT_EQ(CUDA_SUCCESS, cuInit(0));
        EXPECT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&ctx, device));
        EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(ctx));
        return ctx;
    }

    /* Create a context beside the primary one and make it current. */
    static CUcontext create_context(int device)
    {
        CUcontext ctx = nullptr;

#if CUDA_VERSION >= 13000
        EXPECT_EQ(CUDA_SUCCESS, cuCtxCreate(&ctx, nullptr, 0, device));
#else
        EXPECT_EQ(CUDA_SUCCESS, cuCtxCreate(&ctx, 0, device));
#endif
        return ctx;
    }

    static CUdeviceptr alloc(size_t size)
    {
        CUdeviceptr ptr = 0;

        EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&ptr, size));
        return ptr;
    }

    static CUstream stream()
    {
        CUstream s = nullptr;

        EXPECT_EQ(CUDA_SUCCESS, cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        return s;
    }

    static CUevent event(unsigned flags = 0)
    {
        CUevent e = nullptr;

        EXPECT_EQ(CUDA_SUCCESS, cuEventCreate(&e, flags));
        return e;
    }

    static void *pinned(size_t size)
    {
        void *ptr = nullptr;

        EXPECT_EQ(CUDA_SUCCESS, cuMemHostAlloc(&ptr, size, 0));
        return ptr;
    }

    static void enable_peers(CUcontext a, CUcontext b)
    {
        EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(b));
        EXPECT_EQ(CUDA_SUCCESS, cuCtxEnablePeerAccess(a, 0));
        EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(a));
        EXPECT_EQ(CUDA_SUCCESS, cuCtxEnablePeerAccess(b, 0));
    }

    /* Memory of GPU 0, whose context is current, and of its peer GPU 1 */
    struct link_t {
        CUdeviceptr src, dst;
    };

    static link_t link(size_t size)
    {
        CUcontext peer  = use(1);
        CUdeviceptr dst = alloc(size);
        CUcontext ctx   = use(0);

        enable_peers(ctx, peer);
        return {alloc(size), dst};
    }

    static CUmemAllocationProp
    memory_of(int id, int types = CU_MEM_HANDLE_TYPE_NONE,
              int location = CU_MEM_LOCATION_TYPE_DEVICE)
    {
        CUmemAllocationProp prop = {};

        prop.type                 = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location.type        = (CUmemLocationType)location;
        prop.location.id          = id;
        prop.requestedHandleTypes = (CUmemAllocationHandleType)types;
        return prop;
    }

    static CUmemAccessDesc
    access_of(int id, int flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
              int location = CU_MEM_LOCATION_TYPE_DEVICE)
    {
        CUmemAccessDesc access = {};

        access.location.type = (CUmemLocationType)location;
        access.location.id   = id;
        access.flags         = (CUmemAccess_flags)flags;
        return access;
    }

    /* Map memory at an address of its own, without access. */
    static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t size)
    {
        CUdeviceptr va = 0;

        EXPECT_EQ(CUDA_SUCCESS, cuMemAddressReserve(&va, size, 0, 0, 0));
        EXPECT_EQ(CUDA_SUCCESS, cuMemMap(va, size, 0, handle, 0));
        return va;
    }

    /* Export memory as a descriptor, for import_memory() of the other
       process. */
    int export_memory(CUmemGenericAllocationHandle handle)
    {
        int fd = -1;

        EXPECT_EQ(CUDA_SUCCESS,
                  cuMemExportToShareableHandle(
                          &fd, handle,
                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        offer(fd);
        return fd;
    }

    /* Let the other process take() a descriptor. */
    void offer(int fd)
    {
        m_shared->value[0] = (uint64_t)getpid();
        m_shared->value[1] = (uint64_t)fd;
    }

    int take()
    {
        int pidfd = (int)syscall(SYS_pidfd_open, m_shared->value[0], 0);
        int fd    = (int)syscall(SYS_pidfd_getfd, pidfd, m_shared->value[1],
                                 0);

        EXPECT_LE(0, fd);
        close(pidfd);
        return fd;
    }

    static CUmemGenericAllocationHandle import_memory(int fd)
    {
        CUmemGenericAllocationHandle handle = 0;

        EXPECT_EQ(CUDA_SUCCESS,
                  cuMemImportFromShareableHandle(
                          &handle, (void*)(intptr_t)fd,
                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        return handle;
    }

    /* Return the kernel's permissions, "---p" or "rw-p"; empty: not mapped */
    static std::string mapped(CUdeviceptr va)
    {
        std::string perms;
        unsigned long begin, end;
        char line[512], what[8];
        FILE *maps = fopen("/proc/self/maps", "r");

        while ((maps != NULL) && (fgets(line, sizeof(line), maps) != NULL)) {
            if ((sscanf(line, "%lx-%lx %4s", &begin, &end, what) == 3) &&
                (begin <= va) && (va < end)) {
                perms = what;
            }
        }
        fclose(maps);
        return perms;
    }

    static CUDA_MEMCPY3D graph_copy(CUdeviceptr dst, CUdeviceptr src,
                                    size_t size)
    {
        CUDA_MEMCPY3D copy = {};

        copy.dstMemoryType = copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice     = dst;
        copy.srcDevice     = src;
        copy.WidthInBytes  = size;
        copy.Height        = 1;
        copy.Depth         = 1;
        return copy;
    }

    /* Return a word for cuStreamWaitValue32(). A stream waiting for it stands
       for a running kernel. */
    static volatile uint32_t *flag()
    {
        volatile uint32_t *word = (volatile uint32_t*)pinned(4096);

        *word = 0;
        return word;
    }

    /* Let the stream's next work wait until the word is set. */
    static void spin(CUstream s, volatile uint32_t *word)
    {
        EXPECT_EQ(CUDA_SUCCESS,
                  cuStreamWaitValue32(s, (CUdeviceptr)(uintptr_t)word, 1,
                                      CU_STREAM_WAIT_VALUE_GEQ));
    }

    /* Run `call` while a stream waits for a word. Returns non-zero if it
       returns early; otherwise it must return once the word is set. */
    static bool returns(volatile uint32_t *word,
                        const std::function<void()> &call)
    {
        std::atomic<bool> is_over(false);
        bool result;
        CUcontext ctx;

        EXPECT_EQ(CUDA_SUCCESS, cuCtxGetCurrent(&ctx));
        std::thread thread([&] {
            EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(ctx));
            call();
            is_over = true;
        });
        for (int i = 0; (i < 300) && !is_over; ++i) {
            usleep(1000);
        }

        result = is_over;
        *word  = 1;
        thread.join();
        return result;
    }

    /* Return words that differ for each position and seed: displaced bytes are
       detected. */
    static std::vector<uint32_t> pattern(size_t bytes, uint32_t seed)
    {
        std::vector<uint32_t> words(bytes / 4);

        for (size_t i = 0; i < words.size(); ++i) {
            words[i] = (uint32_t)(i * 2654435761u) ^ (seed * 0x9e3779b9u);
        }

        return words;
    }

    /* Write words to memory, visible to every stream on return. */
    static void put(CUdeviceptr ptr, const std::vector<uint32_t> &words)
    {
        EXPECT_EQ(CUDA_SUCCESS,
                  cuMemcpyHtoD(ptr, words.data(), words.size() * 4));
        EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
    }

    static std::vector<uint32_t> get(CUdeviceptr ptr, size_t bytes)
    {
        std::vector<uint32_t> words(bytes / 4);

        EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(words.data(), ptr, bytes));
        return words;
    }

    /* Return the modelled seconds of the operations submitted by `work`. They
       start after all are submitted, so the processor's time does not count. */
    static double timed(CUstream s, const std::function<CUresult()> &work)
    {
        CUevent begin = event(), end = event();
        volatile uint32_t *word = flag();
        float ms                = 0;

        spin(s, word);
        EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(begin, s));
        EXPECT_EQ(CUDA_SUCCESS, work());
        EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(end, s));
        *word = 1;
        EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(end));
        EXPECT_EQ(CUDA_SUCCESS, cuEventElapsedTime(&ms, begin, end));
        EXPECT_EQ(CUDA_SUCCESS, cuMemFreeHost((void*)word));
        return ms * 1e-3;
    }

    /* Return the modelled seconds of one copy between two events: the best of a
       few, since a busy machine can only add time. */
    static double timed_copy(CUdeviceptr dst, CUdeviceptr src, size_t size,
                             CUstream s)
    {
        CUevent begin = event(), end = event();
        double best   = 1e9;
        float ms      = 0;

        for (int i = 0; i < 5; ++i) {
            /* queued behind another copy: only the second one counts */
            EXPECT_EQ(CUDA_SUCCESS, cuMemcpyAsync(dst, src, size, s));
            EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(begin, s));
            EXPECT_EQ(CUDA_SUCCESS, cuMemcpyAsync(dst, src, size, s));
            EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(end, s));
            EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(end));
            EXPECT_EQ(CUDA_SUCCESS, cuEventElapsedTime(&ms, begin, end));
            best = std::min(best, ms * 1e-3);
        }

        return best;
    }

    std::string m_dir;
    shared_t   *m_shared = nullptr;
    int         m_count  = 1;
};

#endif
