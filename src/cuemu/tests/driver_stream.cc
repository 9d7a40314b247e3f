/* SPDX-License-Identifier: BSD-3-Clause */

/* Work that outlives its stream, its event or its process, and host functions
   that block. */
#include "driver_fixture.h"

#include <csignal>
#include <fstream>

extern "C" int cuemu_get(void *dst, unsigned long long src, size_t size);

/* Return the last byte of memory as it is now. */
static char last_byte(CUdeviceptr ptr, size_t size)
{
    char byte = 0;

    EXPECT_EQ(0, cuemu_get(&byte, ptr + size - 1, 1));
    return byte;
}

TEST_F(driver, work_of_a_destroyed_stream_goes_on)
{
    run(1, [](int) {
        const size_t size = 64 * MiB;
        CUcontext ctx     = use(0);
        CUdeviceptr dst = alloc(size), src = alloc(size);
        CUevent e = event();
        CUstream s;

        for (unsigned flags : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING}) {
            CU_OK(cuMemsetD8(src, 'a' + flags, size));
            CU_OK(cuCtxSynchronize());
            CU_OK(cuStreamCreate(&s, flags));
            CU_OK(cuMemcpyAsync(dst, src, size, s));
            CU_OK(cuStreamDestroy(s));
            CU_OK(cuEventRecord(e, nullptr));
            EXPECT_EQ((flags == CU_STREAM_DEFAULT) ? CUDA_ERROR_NOT_READY :
                                                     CUDA_SUCCESS,
                      cuEventQuery(e));
            CU_OK(cuStreamCreate(&s, flags));
            CU_OK(cuMemcpyAsync(dst, src, MiB, s));
            CU_OK(cuStreamDestroy(s));
            CU_OK(cuCtxRecordEvent(ctx, e));
            EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(e));
            CU_OK(cuCtxSynchronize());
            EXPECT_EQ('a' + (int)flags, last_byte(dst, size));
        }

        void *host = pinned(4096);
        CU_OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        CU_OK(cuMemsetD8Async(dst, 'x', size, s));
        CU_OK(cuStreamDestroy(s));
        CU_OK(cuMemFreeHost(host));
        EXPECT_EQ('x', last_byte(dst, size));
    });
}

TEST_F(driver, waits_include_all_of_many_streams)
{
    run(1, [](int) {
        const size_t size = 64 * MiB;
        use(0);
        CUdeviceptr dst = alloc(size);
        void *host      = pinned(4096);
        CUstream first  = stream();

        for (int i = 0; i < 1100; ++i) {
            (void)stream();
        }
        CU_OK(cuMemsetD8Async(dst, 'a', size, first));
        CU_OK(cuCtxSynchronize());
        EXPECT_EQ('a', last_byte(dst, size));
        CU_OK(cuMemsetD8Async(dst, 'b', size, first));
        CU_OK(cuMemFreeHost(host));
        EXPECT_EQ('b', last_byte(dst, size));
    });
}

/* The node has room for 16384 operations. */
TEST_F(driver, events_that_nobody_asks_about_take_no_room)
{
    run(1, [](int) {
        use(0);
        CUstream s = stream();
        std::vector<CUevent> events;
        float ms = 0;

        for (unsigned flags : {CU_EVENT_DISABLE_TIMING, CU_EVENT_DEFAULT}) {
            events.clear();
            for (int i = 0; i < 17; ++i) {
                volatile uint32_t *word = flag();

                spin(s, word);
                for (int k = 0; k < 1000; ++k) {
                    events.push_back(event(flags));
                    CU_OK(cuEventRecord(events.back(), s));
                }
                *word = 1;
                CU_OK(cuStreamSynchronize(s));
            }
        }
        CU_OK(cuEventElapsedTime(&ms, events.front(), events.back()));
        EXPECT_GT(ms, 0);
        CU_OK(cuEventQuery(events[1]));
    });
}

/* A process is killed while a call of it takes time. The other one has queued
   no work, so that no service thread finds the dead. */
TEST_F(driver, a_process_killed_in_a_call_stops_nobody)
{
    setenv("CUEMU_GPU_MEMORY", "256M", 1);
    const std::function<void(int)> calls = [&](int rank) {
        use(0);
        if (rank == 0) {
            (void)alloc(100 * MiB);
        }
        while (m_shared->value[2] == 0) {
            CU_OK(cuMemFree(alloc(MiB)));
            ++m_shared->value[rank];
        }
        (void)alloc(200 * MiB);
    };
    volatile uint64_t *value = m_shared->value;
    pid_t other              = start(1, calls);

    for (int i = 0; i < 5; ++i) {
        pid_t victim = start(0, calls);
        for (uint64_t begin = value[0]; value[0] < begin + 20;) {
            usleep(1000);
        }
        kill(victim, SIGKILL);
        EXPECT_TRUE(WIFSIGNALED(finish(victim)));
        uint64_t begin = value[1];
        for (int k = 0; (k < 200) && (value[1] < begin + 20); ++k) {
            usleep(10000);
        }
        EXPECT_LE(begin + 20, value[1]);
    }
    value[2] = 1;
    EXPECT_EQ(0, finish(other));
}

/* A host function waits for what another process does after its copy, asleep or
   not. */
TEST_F(driver, a_host_function_may_wait_for_another_process)
{
    volatile uint64_t *value = m_shared->value;
    const auto wait          = [](void *arg) {
        while (((volatile uint64_t*)arg)[0] == 0) {
            if (((volatile uint64_t*)arg)[1]) {
                usleep(100);
            }
        }
    };

    for (int sleeps = 0; sleeps < 2; ++sleeps) {
        value[0] = 0;
        value[1] = (uint64_t)sleeps;
        run(2, [&](int rank) {
            alarm(20);
            use(rank);
            CUdeviceptr ptr = alloc(MiB);
            CUstream s      = stream();

            if (rank == 0) {
                CU_OK(cuLaunchHostFunc(s, wait, (void*)value));
                CU_OK(cuMemsetD8Async(ptr, 'b', MiB, s));
                barrier();
                CU_OK(cuStreamSynchronize(s));
                EXPECT_EQ('b', last_byte(ptr, MiB));
            } else {
                barrier();
                CU_OK(cuMemsetD8Async(ptr, 'a', MiB, s));
                CU_OK(cuStreamSynchronize(s));
                EXPECT_EQ('a', last_byte(ptr, MiB));
                value[0] = 1;
            }
        });
    }
}

/* A host function waits for this process: for a copy, whose bytes no call of
   the driver moves, and for a host function of another stream. */
TEST_F(driver, a_host_function_may_wait_for_another_stream)
{
    run(1, [](int) {
        alarm(20);
        use(0);
        CUdeviceptr ptr = alloc(MiB);
        CUstream a = stream(), b = stream();
        volatile char *host = (char*)pinned(MiB);
        struct flags_t {
            volatile char *copied;
            volatile int   called, ended;
        } flags = {host + MiB - 1, 0, 0};
        const auto call = [](void *arg) { ((flags_t*)arg)->called = 1; };
        const auto wait = [](void *arg) {
            flags_t *all = (flags_t*)arg;

            while ((*all->copied != 'a') || !all->called) {
                usleep(100);
            }
            all->ended = 1;
        };

        CU_OK(cuMemsetD8(ptr, 'a', MiB));
        CU_OK(cuCtxSynchronize());
        CU_OK(cuLaunchHostFunc(a, wait, &flags));
        usleep(1000);
        CU_OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, ptr, MiB, b));
        CU_OK(cuLaunchHostFunc(b, call, &flags));
        while (!flags.ended) {
            usleep(1000);
        }
        CU_OK(cuCtxSynchronize());
    });
}

/* A host function takes no emulated time, as long as the machine is not much
   slower than it expects to be. */
TEST_F(driver, a_short_host_function_takes_no_time)
{
    run(1, [](int) {
        use(0);
        CUstream s = stream();

        EXPECT_LT(timed(s, [s] {
            return cuLaunchHostFunc(s, [](void*) { usleep(2000); }, nullptr);
        }), 50e-6);
    });
}

static bool is_stopped(pid_t pid)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;

    std::getline(file, text);
    return text.find(") T ") != std::string::npos;
}

static volatile pid_t stopped_pid;
static volatile int num_helped;

static void help(int)
{
    kill(stopped_pid, SIGCONT);
    num_helped = num_helped + 1;
}

/* A process that is stopped with copies to its memory and a host function under
   way holds up no other process. If it is stopped with the session's lock it
   does, which happens in some rounds on a busy machine. */
TEST_F(driver, a_stopped_process_holds_up_no_other)
{
    run(2, [this](int rank) {
        static char host[32 << 20];

        use(rank);
        CUstream s      = stream();
        CUdeviceptr ptr = alloc(sizeof(host));
        CU_OK(cuMemsetD8(ptr, 7, sizeof(host)));
        if (rank == 1) {
            m_shared->value[0] = getpid();
        }
        barrier();
        for (int i = 0; i < 10; ++i) {
            if (rank == 1) {
                for (int k = 0; k < 3; ++k) {
                    CU_OK(cuMemcpyDtoHAsync(host, ptr, sizeof(host), s));
                    CU_OK(cuLaunchHostFunc(s, [](void*) {}, nullptr));
                }
                m_shared->value[1] = i + 1;
                raise(SIGSTOP);
                CU_OK(cuStreamSynchronize(s));
                EXPECT_EQ(7, host[sizeof(host) - 1]);
            } else {
                const pid_t pid = m_shared->value[0];
                while (m_shared->value[1] != (uint64_t)i + 1) {
                    usleep(1000); /* a process that runs holds back time */
                }
                stopped_pid = pid;
                signal(SIGALRM, help);
                while (!is_stopped(pid)) {
                    usleep(1000);
                }
                alarm(2);
                for (int k = 0; k < 6; ++k) {
                    CU_OK(cuMemcpyDtoHAsync(host, ptr, sizeof(host), s));
                    CU_OK(cuStreamSynchronize(s));
                }
                alarm(0);
                kill(pid, SIGCONT);
            }
            barrier();
        }
        EXPECT_LT(num_helped, 7);
    });
}

TEST_F(driver, a_process_ends_within_a_host_function)
{
    run(1, [](int) {
        alarm(20);
        use(0);
        CU_OK(cuLaunchHostFunc(stream(), [](void*) { pause(); }, nullptr));
        usleep(100000);
    });
}

/* A GPU whose copy uses an address that was unmapped meanwhile fails: so does
   the copy's context. Another mapping of the memory may go. */
TEST_F(driver, a_copy_of_unmapped_memory_fails)
{
    for (int bad = 0; bad < 2; ++bad) {
        run(1, [&](int) {
            const size_t size              = 64 * MiB;
            const CUmemAllocationProp prop = memory_of(0);
            const CUmemAccessDesc access   = access_of(0);
            CUmemGenericAllocationHandle handle;
            CUdeviceptr va[2];

            use(0);
            CUdeviceptr src = alloc(size);
            CUstream s      = stream();
            CU_OK(cuMemCreate(&handle, size, &prop, 0));
            for (CUdeviceptr &ptr : va) {
                ptr = map(handle, size);
                CU_OK(cuMemSetAccess(ptr, size, &access, 1));
            }
            CU_OK(cuMemcpyAsync(va[0], src, size, s));
            CU_OK(cuStreamSynchronize(s));
            CU_OK(cuMemcpyAsync(va[0], src, size, s));
            CU_OK(cuMemUnmap(va[1], size));
            if (bad) {
                CU_OK(cuMemUnmap(va[0], size));
            }
            EXPECT_EQ(bad ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS,
                      cuStreamSynchronize(s));
            if (!bad) {
                CU_OK(cuMemUnmap(va[0], size));
                CU_OK(cuStreamSynchronize(s));
            }
        });
    }
}
