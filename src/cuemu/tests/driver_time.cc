/* SPDX-License-Identifier: BSD-3-Clause */

/* Durations of copies, alone and concurrent, and arrival of their bytes. */
#include "driver_fixture.h"

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

/* 64 MiB take 1398 us over a link; 3 % are 42 us. */
TEST_F(driver, copy_takes_bytes_over_rate)
{
    run(1, [](int) {
        const size_t size = 64 * MiB;
        auto [src, dst]   = link(size);
        CUstream s        = stream();
        double ideal      = size / (BELUGA_LINK * 1e9);

        double seconds = timed_copy(dst, src, size, s);
        EXPECT_GE(seconds, ideal);
        EXPECT_LE(seconds, ideal * 1.03);
    });
}

/* A copy takes 0.7 us more if the receiving GPU's engine makes it. */
TEST_F(driver, pulling_takes_longer_than_pushing)
{
    setenv("CUEMU_NODE", "h200-x2", 1);
    setenv("CUEMU_SLOWDOWN", "100", 1);
    run(1, [](int) {
        CUcontext ctx[2] = {use(0), use(1)};
        CUdeviceptr buf[2];
        double seconds[2];

        for (int i = 0; i < 2; ++i) {
            CU_OK(cuCtxSetCurrent(ctx[i]));
            buf[i] = alloc(MiB);
            CU_OK(cuCtxEnablePeerAccess(ctx[!i], 0));
        }
        for (int i = 0; i < 2; ++i) {
            CU_OK(cuCtxSetCurrent(ctx[i]));
            seconds[i] = timed_copy(buf[1], buf[0], MiB, stream());
        }
        EXPECT_NEAR(0.7e-6, seconds[1] - seconds[0], 0.05e-6) << seconds[0];
    });
}

/* Return the microseconds from the call for a batch of copies to their end. */
static double batch_time(CUdeviceptr dst, CUdeviceptr src, size_t size,
                         size_t count, CUstream s, CUevent begin, CUevent end)
{
    std::vector<CUdeviceptr> to(count, dst), from(count, src);
    std::vector<size_t> sizes(count, size);
    CUmemcpyAttributes attributes = {};
    size_t first                  = 0;
    float ms                      = 0;

    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(begin, s));
#if CUDA_VERSION >= 13000
    EXPECT_EQ(CUDA_SUCCESS,
              cuMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count,
                                 &attributes, &first, 1, s));
#else
    size_t failed;
    EXPECT_EQ(CUDA_SUCCESS,
              cuMemcpyBatchAsync(to.data(), from.data(), sizes.data(), count,
                                 &attributes, &first, 1, &failed, s));
#endif
    EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(end, s));
    EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(end));
    EXPECT_EQ(CUDA_SUCCESS, cuEventElapsedTime(&ms, begin, end));
    return ms * 1e3;
}

/* H200, measured without UCX (docs/results/logs/h200-x2-blocks.txt): calls for
   8 and 32 copies of 64 KiB take 5.5 and 19.8 us. Each of 32 copies of 1 MiB
   takes 2.9 us, 2.7 us of them for the bytes. */
TEST_F(driver, a_batch_costs_what_was_measured)
{
    setenv("CUEMU_NODE", "h200-x2", 1);
    setenv("CUEMU_SLOWDOWN", "500", 1);
    run(1, [](int) {
        auto [src, dst] = link(MiB);
        CUstream s      = stream();
        CUevent begin = event(), end = event();
        double best[2] = {1e9, 1e9};

        EXPECT_NEAR(2.88, batch_time(dst, src, MiB, 32, s, begin, end) / 32,
                    2.88 * 0.07);
        for (int i = 0; i < 10; ++i) {
            double us = batch_time(dst, src, 64 << 10, (i % 2) ? 32 : 8, s,
                                   begin, end);

            best[i % 2] = std::min(best[i % 2], us);
        }
        EXPECT_NEAR(19.8 - 5.47, best[1] - best[0], 14.3 * 0.07);
        EXPECT_NEAR(5.47, best[0], 2.5) << "with the first copy's start";
    });
}

TEST_F(driver, time_does_not_depend_on_slowdown)
{
    for (const char *slowdown : {"5", "60"}) {
        setenv("CUEMU_SLOWDOWN", slowdown, 1);
        setenv("CUEMU_SESSION", (m_dir + "/" + slowdown).c_str(), 1);
        run(1, [](int) {
            const size_t size = 32 * MiB;
            auto [src, dst]   = link(size);
            double ideal      = size / (BELUGA_LINK * 1e9);
            double seconds = timed_copy(dst, src, size, stream());
            EXPECT_NEAR(1.0, seconds / ideal, 0.03);
        });
    }
}

/* Two processes on one link get half each; opposite directions each get the
   full link. */
TEST_F(driver, processes_share_a_link)
{
    for (int opposite = 0; opposite < 2; ++opposite) {
        run(2, [&](int rank) {
            const size_t size = 64 * MiB;
            int from          = opposite ? rank : 0;
            CUcontext peer    = use(1 - from);
            CUdeviceptr dst   = alloc(size);
            CUcontext ctx     = use(from);
            CUdeviceptr src   = alloc(size);
            CUstream s        = stream();

            enable_peers(ctx, peer);
            barrier();
            /* several in a row, so that different starts do not matter */
            CUevent begin = event(), end = event();
            float ms      = 0;
            CU_OK(cuEventRecord(begin, s));
            for (int i = 0; i < 8; ++i) {
                CU_OK(cuMemcpyAsync(dst, src, size, s));
            }
            CU_OK(cuEventRecord(end, s));
            CU_OK(cuEventSynchronize(end));
            CU_OK(cuEventElapsedTime(&ms, begin, end));
            m_shared->seconds[rank] = ms * 1e-3;
            barrier();
        });

        double ideal = 8 * 64 * MiB / (BELUGA_LINK * 1e9);
        double slower = std::max(m_shared->seconds[0], m_shared->seconds[1]);
        if (opposite) {
            EXPECT_LE(slower, ideal * 1.03);
        } else {
            EXPECT_GE(slower, 2 * ideal * 0.90);
            EXPECT_LE(slower, 2 * ideal * 1.03);
        }
    }
}

TEST_F(driver, without_peer_access_through_the_host)
{
    run(1, [](int) {
        const size_t size = 64 * MiB;
        CUcontext peer    = use(1);
        CUdeviceptr dst   = alloc(size);
        CUcontext ctx     = use(0);
        CUdeviceptr src   = alloc(size);
        CUstream s        = stream();
        auto words        = pattern(size, 1);

        put(src, words);
        double staged = timed_copy(dst, src, size, s);
        EXPECT_EQ(words, get(dst, size));
        enable_peers(ctx, peer);
        double direct = timed_copy(dst, src, size, s);
        /* PCIe 3 x16 has 16 GB/s on paper */
        EXPECT_GE(staged, size / 16e9);
        EXPECT_LE(direct, size / (BELUGA_LINK * 1e9) * 1.03);
    });
}

TEST_F(driver, bytes_arrive_when_the_copy_ends)
{
    run(1, [](int) {
        const size_t size = 64 * MiB;
        auto [src, dst]   = link(size);
        CUstream a        = stream(), b = stream();
        uint32_t *early   = (uint32_t*)pinned(4096);
        auto words        = pattern(size, 2);

        put(src, words);
        CU_OK(cuMemsetD32(dst, 0x11111111, size / 4));
        CU_OK(cuCtxSynchronize());

        /* a short copy in another stream reads while the long one runs */
        CU_OK(cuMemcpyAsync(dst, src, size, a));
        CU_OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)early, dst, 4096, b));
        CU_OK(cuStreamSynchronize(b));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(a));
        EXPECT_EQ(0x11111111u, early[0]);
        CU_OK(cuStreamSynchronize(a));
        EXPECT_EQ(words, get(dst, size));
    });
}

/* A relay whose second hop does not wait for the first one delivers wrong
   bytes, although both end at the same time. With the wait the bytes are
   right. */
TEST_F(driver, missing_dependency_is_detected)
{
    run(1, [](int) {
        const size_t size = 16 * MiB;
        CUcontext ctx[3]  = {use(0), use(1), use(2)};
        CUdeviceptr buf[3];

        for (int i = 0; i < 3; ++i) {
            CU_OK(cuCtxSetCurrent(ctx[i]));
            buf[i] = alloc(size);
            CU_OK(cuMemsetD32(buf[i], 0x22222222, size / 4));
            CU_OK(cuCtxSynchronize());
            for (int k = 0; k < 3; ++k) {
                if (k != i) {
                    CU_OK(cuCtxEnablePeerAccess(ctx[k], 0));
                }
            }
        }

        CU_OK(cuCtxSetCurrent(ctx[0]));
        CUstream a = stream(), b = stream();
        CUevent e  = event(CU_EVENT_DISABLE_TIMING);
        for (int wait = 0; wait < 2; ++wait) {
            auto words = pattern(size, 3 + wait);
            put(buf[0], words);
            CU_OK(cuMemcpyAsync(buf[1], buf[0], size, a));
            if (wait) {
                CU_OK(cuEventRecord(e, a));
                CU_OK(cuStreamWaitEvent(b, e, 0));
            }
            CU_OK(cuMemcpyAsync(buf[2], buf[1], size, b));
            CU_OK(cuStreamSynchronize(a));
            CU_OK(cuStreamSynchronize(b));
            EXPECT_EQ(wait != 0, words == get(buf[2], size));
            EXPECT_EQ(words, get(buf[1], size));
        }
    });
}

/* A program that overwrites a staging buffer before it was read delivers wrong
   bytes. */
TEST_F(driver, early_refill_is_detected)
{
    run(1, [](int) {
        const size_t size = 16 * MiB;
        auto [slot, dst]  = link(size);
        CUdeviceptr next  = alloc(size);
        CUstream a        = stream(), b = stream();
        CUevent e         = event(CU_EVENT_DISABLE_TIMING);

        for (int wait = 0; wait < 2; ++wait) {
            auto words = pattern(size, 5 + wait);
            put(slot, words);
            CU_OK(cuMemsetD32(next, 0x33333333, size / 4));
            CU_OK(cuMemcpyAsync(dst, slot, size, a));
            if (wait) {
                CU_OK(cuEventRecord(e, a));
                CU_OK(cuStreamWaitEvent(b, e, 0));
            }
            CU_OK(cuMemcpyAsync(slot, next, size, b));
            CU_OK(cuStreamSynchronize(a));
            CU_OK(cuStreamSynchronize(b));
            EXPECT_EQ(wait != 0, words == get(dst, size));
        }
    });
}

TEST_F(driver, report_of_a_process)
{
    std::string path = m_dir + "/report";

    setenv("CUEMU_REPORT", path.c_str(), 1);
    run(1, [](int) {
        use(0);
        CUdeviceptr ptr = alloc(MiB);
        put(ptr, pattern(MiB, 7));
        (void)get(ptr, MiB);
    });

    FILE *file = fopen(path.c_str(), "r");
    ASSERT_NE(nullptr, file);
    char line[512] = "";
    EXPECT_NE(nullptr, fgets(line, sizeof(line), file));
    EXPECT_EQ(nullptr, fgets(line + 400, 100, file));
    fclose(file);
    /* one copy in two pieces, and one back */
    EXPECT_NE(nullptr, strstr(line, "\"copies\": 3, \"bytes\": 2097152,"))
            << line;
}

/* Return by how much the emulated clock moves, as a program reads it, while all
   programs sleep for `ms`, ns. */
static double program_ns(const std::string &lib, int ms)
{
    const std::string date = "LD_PRELOAD=" + lib +
                             "/libcuemu_preload.so date +%s%N; ";
    std::string command    = date + "sleep " + std::to_string(ms * 1e-3) +
                             "; " + date;
    FILE *pipe             = popen(("echo $(" + command + ")").c_str(), "r");
    double begin = -1, end = -1;

    EXPECT_NE(nullptr, pipe);
    EXPECT_EQ(2, fscanf(pipe, "%lf %lf", &begin, &end));
    pclose(pipe);
    return end - begin;
}

TEST_F(driver, programs_read_the_emulated_clock)
{
    const char *lib = getenv("CUEMU_LIB");

    if (lib == nullptr) {
        GTEST_SKIP() << "CUEMU_LIB is not set";
    }

    setenv("CUEMU_SLOWDOWN", "50", 1);
    run(1, [&](int) {
        struct timespec begin, end;
        /* before the session exists: real time */
        EXPECT_GE(program_ns(lib, 100), 1e8);

        use(0);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        double emulated = program_ns(lib, 500);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double real     = (end.tv_sec - begin.tv_sec) * 1e9 + end.tv_nsec -
                          begin.tv_nsec;
        EXPECT_GE(emulated, 5e8 / 50 * 0.99);
        EXPECT_LE(emulated, real / 50 * 1.01);
    });
}

TEST_F(driver, an_allocator_reads_the_emulated_clock)
{
    const char *lib = getenv("CUEMU_LIB");

    if (lib == nullptr) {
        GTEST_SKIP() << "CUEMU_LIB is not set";
    }

    /* the last library's constructor is the first to run */
    const std::string preload = std::string(lib) + "/libcuemu_preload.so";
    const std::string allocator = std::string(lib) +
                                  "/../tests/clock_in_malloc.so";
    const std::string command   = "LD_PRELOAD='" + preload + ":" + allocator +
                                  "' sleep 0";

    ASSERT_EQ(0, access(preload.c_str(), R_OK));
    ASSERT_EQ(0, access(allocator.c_str(), R_OK));
    if (strverscmp(gnu_get_libc_version(), "2.34") < 0) {
        GTEST_SKIP() << "each thread's first dlsym() allocates memory";
    }

    setenv("CUEMU_SLOWDOWN", "50", 1);
    run(1, [&](int) {
        EXPECT_EQ(0, system(command.c_str())) << "without a session";
        use(0);
        EXPECT_EQ(0, system(command.c_str())) << "in a session";
    });
}

/* Open the library that programs preload */
static void *open_preload()
{
    const char *lib  = getenv("CUEMU_LIB");
    std::string path = (lib == nullptr) ? "" : std::string(lib) + "/";
    void *preload    = dlopen((path + "libcuemu_preload.so").c_str(),
                              RTLD_NOW | RTLD_LOCAL);

    EXPECT_NE(nullptr, preload) << dlerror();
    return preload;
}

/* Return the emulated time as a program with CUEMU_LIB preloaded reads it,
   ms. */
static double emulated_ms()
{
    void *preload = open_preload();
    timespec now  = {};

    if (preload != nullptr) {
        auto get_time = (int (*)(clockid_t, timespec*))dlsym(preload,
                                                             "clock_gettime");
        get_time(CLOCK_MONOTONIC, &now);
    }
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

static double real_ms()
{
    timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

/* Return how long a program waits that gives up 100 ms after now, as it reads
   the emulated clock */
static double waited_ms(void *preload, clockid_t id,
                        std::function<int(const timespec*)> wait)
{
    auto get_time = (int (*)(clockid_t, timespec*))dlsym(preload,
                                                         "clock_gettime");
    double begin  = real_ms();
    timespec end;

    get_time(id, &end);
    end.tv_nsec += 100000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        ++end.tv_sec;
    }
    int rc = wait(&end);
    EXPECT_TRUE((rc == 0) || (rc == ETIMEDOUT) ||
                ((rc == -1) && (errno == ETIMEDOUT))) << rc;
    return real_ms() - begin;
}

/* The emulated clock is half a second behind: ends that are taken for the real
   clock's are over */
TEST_F(driver, programs_wait_as_long_as_they_ask)
{
    if (getenv("CUEMU_LIB") == nullptr) {
        GTEST_SKIP() << "CUEMU_LIB is not set";
    }

    setenv("CUEMU_SLOWDOWN", "50", 1);
    run(1, [&](int) {
        void *preload = open_preload();
        ASSERT_NE(nullptr, preload);
        pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t cond   = PTHREAD_COND_INITIALIZER, steady;
        pthread_condattr_t attr;
        sem_t sem;

        use(0);
        usleep(500000);
        sem_init(&sem, 0, 0);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&steady, &attr);
        pthread_mutex_lock(&mutex);

        auto cond_wait = (decltype(&pthread_cond_timedwait))
            dlsym(preload, "pthread_cond_timedwait");
        auto clock_wait = (decltype(&pthread_cond_clockwait))
            dlsym(preload, "pthread_cond_clockwait");
        auto sem_wait   = (decltype(&sem_timedwait))dlsym(preload,
                                                          "sem_timedwait");
        auto lock_wait = (decltype(&pthread_mutex_timedlock))
            dlsym(preload, "pthread_mutex_timedlock");
        auto sleep      = (decltype(&clock_nanosleep))dlsym(preload,
                                                            "clock_nanosleep");
        auto call       = (decltype(&syscall))dlsym(preload, "syscall");
        auto set_timer  = (decltype(&timerfd_settime))dlsym(preload,
                                                            "timerfd_settime");
        int timer       = timerfd_create(CLOCK_MONOTONIC, 0);
        const double waits[] = {
            waited_ms(preload, CLOCK_REALTIME, [&](const timespec *end) {
                return cond_wait(&cond, &mutex, end);
            }),
            waited_ms(preload, CLOCK_MONOTONIC, [&](const timespec *end) {
                return cond_wait(&steady, &mutex, end);
            }),
            waited_ms(preload, CLOCK_MONOTONIC, [&](const timespec *end) {
                return clock_wait(&cond, &mutex, CLOCK_MONOTONIC, end);
            }),
            waited_ms(preload, CLOCK_REALTIME,
                      [&](const timespec *end) { return sem_wait(&sem, end); }),
            waited_ms(preload, CLOCK_REALTIME,
                      [&](const timespec *end) {
                return lock_wait(&mutex, end);
            }),
            waited_ms(preload, CLOCK_MONOTONIC, [&](const timespec *end) {
                return sleep(CLOCK_MONOTONIC, TIMER_ABSTIME, end, nullptr);
            }),
            waited_ms(preload, CLOCK_MONOTONIC, [&](const timespec *end) {
                /* as std::future::wait_for() */
                int word = 0;
                return (int)call(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, end,
                                 nullptr, FUTEX_BITSET_MATCH_ANY);
            }),
            waited_ms(preload, CLOCK_MONOTONIC, [&](const timespec *end) {
                const itimerspec value = {{}, *end};
                pollfd poll_fd         = {timer, POLLIN, 0};
                return set_timer(timer, TFD_TIMER_ABSTIME, &value, nullptr) ||
                       (poll(&poll_fd, 1, 2000) != 1);
            })
        };
        for (const double &ms : waits) {
            EXPECT_GE(ms, 99) << &ms - waits;
        }
    });
}

/* While ranks run, poll() ends by the emulated clock, at most 1 s later than by
   the real one. */
TEST_F(driver, programs_poll_by_the_emulated_clock)
{
    if (getenv("CUEMU_LIB") == nullptr) {
        GTEST_SKIP() << "CUEMU_LIB is not set";
    }

    setenv("CUEMU_SLOWDOWN", "50", 1);
    run(1, [&](int) {
        void *preload = open_preload();
        ASSERT_NE(nullptr, preload);
        auto wait     = (decltype(&poll))dlsym(preload, "poll");

        use(0);
        double begin = emulated_ms();
        EXPECT_EQ(0, wait(nullptr, 0, 4));
        EXPECT_NEAR(4, emulated_ms() - begin, 1);

        begin = emulated_ms();
        EXPECT_EQ(0, wait(nullptr, 0, 200));
        EXPECT_NEAR(1200 / 50, emulated_ms() - begin, 4);
        begin = emulated_ms();
        EXPECT_EQ(0, wait(nullptr, 0, 0));
        EXPECT_NEAR(0, emulated_ms() - begin, 1);
    });
}

/* Copies from another process's memory are work of the modelled processor:
   0.5 us, and 52.4 us for 1 MiB, whatever the slowdown. */
TEST_F(driver, reads_of_another_process_take_modelled_time)
{
    if (getenv("CUEMU_LIB") == nullptr) {
        GTEST_SKIP() << "CUEMU_LIB is not set";
    }

    setenv("CUEMU_SLOWDOWN", "100", 1);
    run(1, [&](int) {
        void *preload = open_preload();
        ASSERT_NE(nullptr, preload);
        auto read = (decltype(&process_vm_readv))dlsym(preload,
                                                       "process_vm_readv");
        std::vector<char> to(MiB), from(MiB, 7);
        iovec here = {to.data(), MiB}, there = {from.data(), MiB};

        use(0);
        double begin = emulated_ms();
        for (int i = 0; i < 50; ++i) {
            ASSERT_EQ((ssize_t)MiB, read(getpid(), &here, 1, &there, 1, 0));
        }
        EXPECT_NEAR(50 * 0.0529, emulated_ms() - begin, 0.2);
        EXPECT_EQ(from, to);
        EXPECT_EQ(-1, read(getpid(), &here, 1, &there, 1, 1));
        EXPECT_EQ(EINVAL, errno);
    });
}

/* Return the emulated milliseconds of copies that a program polls for one by
   one. */
static double polled_copies(CUdeviceptr dst, CUdeviceptr src, CUstream s,
                            CUevent e)
{
    double begin = emulated_ms();

    for (int i = 0; i < 300; ++i) {
        EXPECT_EQ(CUDA_SUCCESS, cuMemcpyAsync(dst, src, MiB, s));
        EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(e, s));
        while (cuEventQuery(e) == CUDA_ERROR_NOT_READY) {
        }
    }
    return emulated_ms() - begin;
}

/* A rank polls UCX without a yield while another one calls the driver. The
   poller waits at least 0.5 us of emulated time after fruitless polls. */
TEST_F(driver, programs_that_poll_ucx_hold_up_nobody)
{
    const char *lib = getenv("CUEMU_LIB");

    if (lib == nullptr) {
        GTEST_SKIP() << "CUEMU_LIB is not set";
    }

    auto *ended = (volatile int*)mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto *took  = (volatile double*)ended + 1;

    ASSERT_NE(MAP_FAILED, (void*)ended);
    run(2, [&](int rank) {
        std::string path = std::string(lib) + "/";

        ASSERT_NE(nullptr, dlopen((path + "libcuemu_preload.so").c_str(),
                                  RTLD_NOW | RTLD_GLOBAL)) << dlerror();
        void *ucp = dlopen((path + "../tests/fake_ucp.so").c_str(), RTLD_NOW);
        ASSERT_NE(nullptr, ucp) << dlerror();
        auto poll = (unsigned long (*)(const volatile int*))dlsym(
                ucp, "fake_ucp_poll");

        use(0);
        barrier();
        if (rank == 0) {
            double begin = emulated_ms();

            for (int i = 0; i < 100; ++i) {
                CU_OK(cuMemFree(alloc(MiB)));
            }
            *took  = emulated_ms() - begin;
            *ended = 1;
        } else {
            unsigned long polls = poll(ended);
            EXPECT_LT(polls, 2000 * *took + 1000);
        }
    });
    munmap((void*)ended, 4096);
}

/* Three other programs compete for this one's processor. */
TEST_F(driver, other_programs_take_no_emulated_time)
{
    if (getenv("CUEMU_LIB") == nullptr) {
        GTEST_SKIP() << "CUEMU_LIB is not set";
    }

    run(1, [](int) {
        auto [src, dst] = link(MiB);
        CUstream s      = stream();
        CUevent e       = event();
        pid_t hogs[3];
        cpu_set_t one;

        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        ASSERT_EQ(0, sched_setaffinity(0, sizeof(one), &one));
        (void)polled_copies(dst, src, s, e);
        double quiet = 1e9, busy = 1e9;
        for (int i = 0; i < 3; ++i) {
            quiet = std::min(quiet, polled_copies(dst, src, s, e));
            for (pid_t &hog : hogs) {
                hog = fork();
                if (hog == 0) {
                    prctl(PR_SET_PDEATHSIG, SIGKILL);
                    for (volatile unsigned k = 0;; ++k) {
                    }
                }
            }
            busy = std::min(busy, polled_copies(dst, src, s, e));
            for (pid_t hog : hogs) {
                kill(hog, SIGKILL);
                waitpid(hog, NULL, 0);
            }
        }
        /* four times by the wall clock; caches shared with others cost a rank's
           own processor time, too */
        EXPECT_NEAR(1, busy / quiet, 0.1) << quiet << " ms, " << busy;
    });
}

extern "C" int cuemu_put(unsigned long long dst, const void *src, size_t size);
extern "C" int cuemu_get(void *dst, unsigned long long src, size_t size);

TEST_F(driver, a_test_sees_memory_as_it_is_now)
{
    run(1, [](int) {
        const size_t size = 32 * MiB;
        char seen         = 0;
        use(0);
        CUdeviceptr dst = alloc(size), src = alloc(size);
        CUstream s      = stream();

        CU_OK(cuMemsetD8(src, 'a', size));
        CU_OK(cuMemsetD8(dst, 'b', size));
        CU_OK(cuCtxSynchronize());
        EXPECT_EQ(0, cuemu_put(src + size - 1, "c", 1));
        CU_OK(cuMemcpyAsync(dst, src, size, s));
        EXPECT_EQ(0, cuemu_get(&seen, dst + size - 1, 1));
        EXPECT_EQ('b', seen); /* the copy is running */
        CU_OK(cuStreamSynchronize(s));
        EXPECT_EQ(0, cuemu_get(&seen, dst + size - 1, 1));
        EXPECT_EQ('c', seen);
        EXPECT_EQ(-1, cuemu_get(&seen, dst + size - 1, 2));
        EXPECT_EQ(-1, cuemu_get(&seen, (uintptr_t)&seen, 1));
    });
}

/* Write a node like beluga with other costs of calls, and use it. */
static bool use_costs(const std::string &dir, const std::string &costs)
{
    const char *nodes = getenv("CUEMU_NODES");
    if (nodes == nullptr) {
        return false;
    }

    std::ifstream in(std::string(nodes) + "/beluga.xml");
    std::stringstream text;
    text << in.rdbuf();
    std::string node = text.str();
    node.insert(node.find("</system>"), costs);
    std::ofstream(dir + "/node.xml") << node;
    setenv("CUEMU_NODE", (dir + "/node.xml").c_str(), 1);
    return true;
}

static std::string cost(const std::string &name, int us)
{
    return "<cuemu set=\"cost\" name=\"" + name + "\" us=\"" +
           std::to_string(us) + "\" source=\"test\"/>\n";
}

/* A node file may set the time to create a context. Each thread spends it
   separately, and calls of other threads do not wait. */
TEST_F(driver, contexts_of_several_threads)
{
    if (!use_costs(m_dir, cost("context", 10000))) {
        GTEST_SKIP() << "CUEMU_NODES is not set";
    }

    run(1, [](int) {
        double begin = emulated_ms();
        use(0);
        EXPECT_GE(emulated_ms() - begin, 10);

        std::vector<std::thread> threads;
        std::atomic<int> ready(0);
        for (int device : {1, 2, 3}) {
            threads.emplace_back([device, &ready] {
                CUcontext none;
                CU_OK(cuCtxGetCurrent(&none));
                for (++ready; ready < 4;) {
                }
                use(device);
            });
        }
        while (ready < 3) {
        }
        begin = emulated_ms();
        ++ready;
        EXPECT_EQ(CUDA_SUCCESS, cuMemFree(alloc(MiB)));
        EXPECT_LT(emulated_ms() - begin, 9.5);
        for (std::thread &thread : threads) {
            thread.join();
        }
        EXPECT_GE(emulated_ms() - begin, 10);
        EXPECT_LT(emulated_ms() - begin, 25);

        begin = emulated_ms();
        use(1); /* already created: takes no time */
        EXPECT_LT(emulated_ms() - begin, 5);
    });
}

/* During the last part of the creation calls of other threads may wait. */
TEST_F(driver, a_context_holds_up_other_threads_at_its_end)
{
    if (!use_costs(m_dir,
                   cost("context", 20000) + cost("context-hold", 10000))) {
        GTEST_SKIP() << "CUEMU_NODES is not set";
    }

    run(1, [](int) {
        use(0);

        /* the first call must come in time: a busy machine may keep this thread
           from running for longer, once */
        double begin, first = 0, second = 0;
        for (int i = 0; (i < 10) && ((i == 0) || (first >= 9.5)); ++i) {
            begin = emulated_ms();
            std::thread thread([] { use(1); }); /* 20 ms */
            EXPECT_EQ(CUDA_SUCCESS, cuMemFree(alloc(MiB)));
            first = emulated_ms() - begin;
            usleep(250000);
            EXPECT_EQ(CUDA_SUCCESS, cuMemFree(alloc(MiB)));
            second = emulated_ms() - begin;
            thread.join();
            if (first >= 9.5) {
                CU_OK(cuDevicePrimaryCtxReset(1));
            }
        }
        EXPECT_LT(first, 9.5);
        EXPECT_GE(second, 19.5);

        begin = emulated_ms();
        EXPECT_EQ(CUDA_SUCCESS, cuMemFree(alloc(MiB)));
        EXPECT_LT(emulated_ms() - begin, 5);
    });
}
