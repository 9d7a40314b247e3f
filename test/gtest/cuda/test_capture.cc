/* SPDX-License-Identifier: BSD-3-Clause */
/* Driver calls that would break the program's captures are made in relaxed
   mode, and no others. The driver's table is replaced once in a process's life,
   so each case has a process of its own. */
extern "C" {
#include <uct/cuda/base/capture.h>
#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/thread.h>
}

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>

static const CUstreamCaptureMode RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED;

static __thread CUstreamCaptureMode mode;
static __thread unsigned exchanges;
static CUstreamCaptureMode seen; /* mode during the last call of a function */
static CUresult answer;

static CUresult fake_exchange(CUstreamCaptureMode *mode_p)
{
    std::swap(*mode_p, mode);
    ++exchanges;
    return CUDA_SUCCESS;
}

static CUresult fake_call()
{
    seen = mode;
    return answer;
}

static void *report_mode(void *arg)
{
    *(CUstreamCaptureMode*)arg = mode;
    return nullptr;
}

class Capture : public ::testing::Test
{
protected:
    void SetUp() override
    {
        /* The process starts anew and runs only this test */
        ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    }

    /* Make a table whose functions all do the same. */
    static uct_cuda_driver_t make_table()
    {
        uct_cuda_driver_t table;

        for (size_t i = 0; i < sizeof(table) / sizeof(void*); ++i) {
            reinterpret_cast<void**>(&table)[i] = (void*)fake_call;
        }
        table.cuThreadExchangeStreamCaptureMode = fake_exchange;
        return table;
    }

    static void run(const std::function<void()> &body)
    {
        EXPECT_EXIT((body(), _exit(HasFailure() ? 1 : 0)),
                    ::testing::ExitedWithCode(0), "");
    }
};

TEST_F(Capture, unsafe_calls_are_made_in_relaxed_mode)
{
    run([] {
        uct_cuda_driver_t table = make_table();

        uct_cuda_capture_wrap(&table);
        EXPECT_EQ(CUDA_SUCCESS, table.cuEventQuery(nullptr));
        EXPECT_EQ(RELAXED, seen);
        EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
        EXPECT_EQ(2u, exchanges);
        EXPECT_EQ(CUDA_SUCCESS, table.cuEventRecord(nullptr, nullptr));
        EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, seen);
        EXPECT_EQ(2u, exchanges);

        /* The program's own mode is restored */
        mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        EXPECT_EQ(CUDA_SUCCESS, table.cuMemFree(0));
        EXPECT_EQ(RELAXED, seen);
        EXPECT_EQ(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, mode);
    });
}

TEST_F(Capture, nested_relaxing_exchanges_the_mode_once)
{
    run([] {
        uct_cuda_driver_t table = make_table();

        uct_cuda_capture_wrap(&table);
        const bool outer = uct_cuda_capture_relax();
        const bool inner = uct_cuda_capture_relax();
        EXPECT_EQ(CUDA_SUCCESS, table.cuEventQuery(nullptr));
        EXPECT_EQ(RELAXED, seen);
        uct_cuda_capture_restore(inner);
        EXPECT_EQ(CUDA_SUCCESS, table.cuMemFree(0));
        EXPECT_EQ(RELAXED, seen);
        EXPECT_EQ(1u, exchanges);
        uct_cuda_capture_restore(outer);
        EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    });
}

TEST_F(Capture, a_refused_query_is_repeated)
{
    run([] {
        uct_cuda_driver_t table = make_table();

        uct_cuda_capture_wrap(&table);
        for (CUresult refusal : {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED}) {
            answer = refusal;
            EXPECT_EQ(CUDA_ERROR_NOT_READY, table.cuEventQuery(nullptr));
            EXPECT_EQ(CUDA_ERROR_NOT_READY, table.cuStreamQuery(nullptr));
            EXPECT_EQ(refusal, table.cuEventSynchronize(nullptr));
            EXPECT_EQ(UCS_ERR_NO_RESOURCE, uct_cuda_status(refusal));
        }
        answer = CUDA_ERROR_ILLEGAL_ADDRESS;
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, table.cuEventQuery(nullptr));
    });
}

TEST_F(Capture, an_old_driver_is_called_unchanged)
{
    run([] {
        uct_cuda_driver_t table = make_table();

        table.cuThreadExchangeStreamCaptureMode = nullptr;
        table.cuMemAllocAsync                   = nullptr;
        uct_cuda_capture_wrap(&table);
        EXPECT_EQ(CUDA_SUCCESS, table.cuEventQuery(nullptr));
        EXPECT_EQ(0u, exchanges);
        EXPECT_EQ(nullptr, table.cuMemAllocAsync);
    });
}

TEST_F(Capture, threads_of_the_module_are_in_relaxed_mode)
{
    run([] {
        uct_cuda_driver_t table = make_table();
        pthread_t thread;

        uct_cuda_capture_wrap(&table);
        ASSERT_TRUE(uct_cuda_thread_start(report_mode, &seen, &thread));
        pthread_join(thread, nullptr);
        EXPECT_EQ(RELAXED, seen);
        EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    });
}

/* Calls that the emulated driver treats as unsafe, by measurements, are never
   made as they are. Calls that break captures even in relaxed mode are not
   made */
TEST_F(Capture, the_emulated_driver_agrees)
{
    run([] {
        uct_cuda_driver_t table = make_table();
        void *driver = dlopen(CUEMU_DRIVER, RTLD_NOW | RTLD_LOCAL);
        int (*kind)(const char*);

        ASSERT_NE(nullptr, driver) << dlerror();
        kind = (int (*)(const char*))dlsym(driver, "cuemu_capture_kind");
        ASSERT_NE(nullptr, kind);
        uct_cuda_capture_wrap(&table);

        /* Calls that break captures in every mode are not made, except one
           query before a kernel is loaded: uct_cuda_ctx_is_idle() */
#define COMPARE(_name, _symbol, _args) \
    if (std::string(_symbol) != "cuCtxRecordEvent") { \
        EXPECT_GE(1, kind(_symbol)) << _symbol; \
    } \
    if (std::string(_symbol) != "cuThreadExchangeStreamCaptureMode") { \
        EXPECT_EQ(kind(_symbol) == 1, \
                  (void*)table._name != (void*)fake_call) << _symbol; \
    }
        UCT_CUDA_DRIVER_FUNCTIONS(COMPARE, COMPARE)
    });
}
