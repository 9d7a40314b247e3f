/* SPDX-License-Identifier: BSD-3-Clause */

/* Work that outlives its stream, its event or its process, and host functions
   that block. */
#include "driver_fixture.h"

#include <csignal>

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

/* A process is killed while a call of it takes time. The other one has no work
   in the node: nothing but the death itself lets time go on. */
TEST_F(driver, a_process_killed_in_a_call_does_not_stop_time)
{
    const std::function<void(int)> calls = [&](int rank) {
        use(0);
        while (m_shared->value[2] == 0) {
            CU_OK(cuMemFree(alloc(MiB)));
            ++m_shared->value[rank];
        }
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
