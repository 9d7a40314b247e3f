/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Calls that return before their bytes have arrived, and calls that wait for
 * unrelated work: seen on H100 and H200 with driver 580, or documented in "API
 * synchronization behavior".
 */
#include "driver_fixture.h"

#include <thread>

class driver_early : public driver {
protected:
    static const size_t STAGED = 64 << 10;

    /* A slowdown at which even a busy machine reads the memory before the
       copies end. */
    void SetUp() override
    {
        driver::SetUp();
        setenv("CUEMU_SLOWDOWN", "500", 1);
    }

    /* Read memory as it is now, without waiting for copies. */
    static std::vector<uint32_t> now(CUdeviceptr ptr, size_t bytes)
    {
        static CUstream s = stream();
        std::vector<uint32_t> words(bytes / 4);
        void *host = pinned(bytes);

        EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoHAsync(host, ptr, bytes, s));
        EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(s));
        memcpy(words.data(), host, bytes);
        return words;
    }

    static void plain(CUdeviceptr ptr, const std::vector<uint32_t> &words)
    {
        EXPECT_EQ(CUDA_SUCCESS,
                  cuMemcpyHtoD(ptr, words.data(), words.size() * 4));
    }

    static CUdeviceptr zeros(size_t bytes)
    {
        CUdeviceptr ptr = alloc(bytes);

        EXPECT_EQ(CUDA_SUCCESS, cuMemsetD8(ptr, 0, bytes));
        EXPECT_EQ(CUDA_SUCCESS, cuCtxSynchronize());
        return ptr;
    }

    /* Return whether `call` returns while a stream waits for a word. */
    static bool returns(const std::function<void()> &call)
    {
        volatile uint32_t *word = flag();

        spin(stream(), word);
        return driver::returns(word, call);
    }
};

TEST_F(driver_early, a_small_pageable_copy_ends_after_the_call)
{
    run(1, [](int) {
        for (size_t size : {(size_t)4, (size_t)4096, STAGED}) {
            use(0);
            CUdeviceptr ptr             = zeros(size);
            std::vector<uint32_t> words = pattern(size, 1), kept = words;

            plain(ptr, words);
            std::fill(words.begin(), words.end(), 0); /* the driver has copied
                                                         the bytes */
            EXPECT_EQ(std::vector<uint32_t>(size / 4), now(ptr, size)) << size;
            EXPECT_EQ(kept, get(ptr, size)) << size; /* in stream order */
            EXPECT_EQ(kept, now(ptr, size)) << size;
        }
    });
}

TEST_F(driver_early, it_ends_without_a_query)
{
    run(1, [](int) {
        use(0);
        CUdeviceptr ptr             = zeros(4096);
        std::vector<uint32_t> words = pattern(4096, 2), seen;

        plain(ptr, words);
        for (int i = 0; (i < 2000) && (seen != words); ++i) {
            usleep(1000);
            seen = now(ptr, 4096);
        }
        EXPECT_EQ(words, seen);
    });
}

TEST_F(driver_early, the_last_bytes_of_a_large_copy_end_after_the_call)
{
    run(1, [](int) {
        const size_t size = MiB, head = size - STAGED;

        use(0);
        CUdeviceptr ptr             = zeros(size);
        std::vector<uint32_t> words = pattern(size, 3), kept = words;

        plain(ptr, words);
        std::fill(words.begin(), words.end(), 0);
        EXPECT_EQ(0u, now(ptr + size - 4096, 4096).back());
        std::vector<uint32_t> seen = now(ptr, head);
        EXPECT_TRUE(std::equal(seen.begin(), seen.end(), kept.begin()));
        EXPECT_EQ(kept, get(ptr, size));
    });
}

TEST_F(driver_early, copies_of_rows_and_in_streams_end_after_the_call)
{
    run(1, [](int) {
        const size_t width = 96 << 10, rows = 3, size = width * rows;

        use(0);
        CUdeviceptr ptr             = zeros(size);
        std::vector<uint32_t> words = pattern(size, 4), kept = words;
        CUDA_MEMCPY2D copy          = {};

        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost       = words.data();
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice     = ptr;
        copy.WidthInBytes  = width;
        copy.Height        = rows;
        CU_OK(cuMemcpy2D(&copy));
        std::fill(words.begin(), words.end(), 0);
        EXPECT_EQ(0u, now(ptr + size - 4096, 4096).back());
        EXPECT_EQ(kept, get(ptr, size));

        CUstream s = stream();
        ptr        = zeros(4096);
        words      = kept;
        CU_OK(cuMemcpyHtoDAsync(ptr, words.data(), 4096, s));
        std::fill(words.begin(), words.end(), 0);
        EXPECT_EQ(0u, now(ptr, 4096).back());
        CU_OK(cuStreamSynchronize(s));
        EXPECT_EQ(kept[1023], now(ptr, 4096).back());
    });
}

TEST_F(driver_early, with_sync_memops_copies_end_in_the_call)
{
    run(1, [](int) {
        const unsigned on = 1;

        use(0);
        CUdeviceptr one             = zeros(4096), other = zeros(4096);
        std::vector<uint32_t> words = pattern(4096, 5);

        CU_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                    one));
        plain(one, words);
        EXPECT_EQ(words, now(one, 4096));
        plain(other, words);
        EXPECT_NE(words, now(other, 4096));

        CU_OK(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
        other = zeros(4096);
        plain(other, words);
        EXPECT_EQ(words, now(other, 4096));
    });
}

/* With the attribute set, the bytes of a first message are right. */
TEST_F(driver_early, the_attribute_waits_for_earlier_copies)
{
    run(1, [](int) {
        const unsigned on = 1;

        use(0);
        CUdeviceptr ptr             = zeros(MiB);
        std::vector<uint32_t> words = pattern(MiB, 8);

        plain(ptr, words);
        CU_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                    ptr));
        EXPECT_EQ(words, now(ptr, MiB));
    });
}

/* A wait for a blocking stream does not include the last bytes of a pageable
   copy, a wait for an event in that stream does. No other way works for memory
   without the attribute. */
TEST_F(driver_early,
       an_event_in_a_blocking_stream_waits_and_the_stream_does_not)
{
    run(1, [](int) {
        use(0);
        CUdeviceptr ptr             = zeros(4096);
        volatile uint32_t *word     = flag();
        std::vector<uint32_t> words = pattern(4096, 10);
        CUstream s = nullptr, other = nullptr;
        CUevent e = event();

        CU_OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
        CU_OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
        plain(ptr, words);
        CU_OK(cuStreamSynchronize(s));
        EXPECT_NE(words, now(ptr, 4096));
        CU_OK(cuEventRecord(e, s));
        CU_OK(cuEventSynchronize(e));
        EXPECT_EQ(words, now(ptr, 4096));

        words = pattern(4096, 11);
        plain(ptr, words);
        spin(other, word); /* a wait in another stream does not delay it,
                              either */
        CU_OK(cuEventRecord(e, s));
        CU_OK(cuEventSynchronize(e));
        EXPECT_EQ(words, now(ptr, 4096));
        *word = 1;
        CU_OK(cuStreamSynchronize(other));
    });
}

TEST_F(driver_early, with_sync_memops_copies_wait_for_queued_work)
{
    run(1, [](int) {
        const unsigned on = 1;

        use(0);
        CUdeviceptr ptr             = zeros(4096);
        std::vector<uint32_t> words = pattern(4096, 9);

        EXPECT_TRUE(returns([&] { plain(ptr, words); }));
        CU_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                    ptr));
        EXPECT_FALSE(returns([&] { plain(ptr, words); }));
    });
}

TEST_F(driver_early, copies_from_page_locked_memory_end_in_the_call)
{
    run(1, [](int) {
        use(0);
        CUdeviceptr ptr             = zeros(4096);
        std::vector<uint32_t> words = pattern(4096, 6);
        void *host                  = pinned(4096);

        memcpy(host, words.data(), 4096);
        CU_OK(cuMemcpyHtoD(ptr, host, 4096));
        EXPECT_EQ(words, now(ptr, 4096));
    });
}

TEST_F(driver_early, calls_that_wait_for_queued_work)
{
    run(1, [](int) {
        static const char ptx[] = ".version 7.0\n.target sm_70\n"
                                  ".address_size 64\n"
                                  ".visible .entry nothing()\n{\n    ret;\n}\n";
        CUmodule module;
        CUfunction function;

        use(0);
        EXPECT_FALSE(returns([] {
            EXPECT_EQ(CUDA_SUCCESS, cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
        }));
        EXPECT_FALSE(returns(
            [&] { EXPECT_EQ(CUDA_SUCCESS, cuModuleLoadData(&module, ptx)); }));
        EXPECT_TRUE(returns([&] {
            EXPECT_EQ(CUDA_SUCCESS,
                      cuModuleGetFunction(&function, module, "nothing"));
        }));
        CUdeviceptr ptr = alloc(MiB);
        EXPECT_FALSE(returns([&] { EXPECT_EQ(CUDA_SUCCESS, cuMemFree(ptr)); }));
        void *host = pinned(MiB);
        EXPECT_FALSE(
                returns([&] { EXPECT_EQ(CUDA_SUCCESS, cuMemFreeHost(host)); }));
    });
}

TEST_F(driver_early, calls_that_do_not_wait)
{
    run(1, [](int) {
        use(0);
        EXPECT_TRUE(returns([] {
            CUdeviceptr ptr             = alloc(MiB);
            std::vector<uint32_t> words = pattern(4096, 7);
            const unsigned on           = 1;
            std::vector<char> locked(MiB);

            plain(ptr, words);
            EXPECT_EQ(CUDA_SUCCESS,
                      cuPointerSetAttribute(
                              &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
            pinned(MiB);
            EXPECT_EQ(CUDA_SUCCESS,
                      cuMemHostRegister(locked.data(), locked.size(), 0));
            CUstream s = stream();
            CUevent e  = event();
            EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(s));
            EXPECT_EQ(CUDA_SUCCESS, cuStreamDestroy(s));
            EXPECT_EQ(CUDA_SUCCESS, cuEventDestroy(e));
        }));
    });
}

TEST_F(driver_early, a_context_says_whether_it_is_idle)
{
    run(1, [](int) {
        CUcontext ctx           = use(0);
        volatile uint32_t *word = flag();
        CUstream s              = stream(), other = nullptr;
        CUevent e               = event();

        CU_OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
        CU_OK(cuCtxRecordEvent(ctx, e));
        CU_OK(cuEventQuery(e));
        spin(s, word);
        CU_OK(cuCtxRecordEvent(ctx, e));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(e));
        *word = 1;
        CU_OK(cuEventSynchronize(e));
        *word = 0;
        spin(other, word);
        CU_OK(cuCtxRecordEvent(ctx, e));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(e));
        *word = 1;
        CU_OK(cuStreamSynchronize(other));
        CU_OK(cuEventQuery(e));
    });
}
