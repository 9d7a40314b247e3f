/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Surprising behaviour of the real driver, seen on H100 with driver 580 unless
 * noted otherwise.
 */
#include "driver_fixture.h"

#include <signal.h>
#include <thread>

class driver_real : public driver {
protected:
    /* Expect `call` to end its process by a signal. */
    void expect_death(const std::function<void()> &call)
    {
        pid_t pid  = start(0, [&](int) { call(); });
        int status = finish(pid);

        EXPECT_TRUE(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV))
                << "status " << status;
    }
};

TEST_F(driver_real, handles_after_a_reset)
{
    run(1, [](int) {
        CUcontext ctx = use(0), current, again;
        unsigned long long before = 0, after = 0;
        CUstream s = stream();
        CUevent e  = event();
        CUdeviceptr ptr;
        unsigned flags, type;
        CUdevice device;
        int active;

        alloc(MiB);
        void *host = pinned(4096);
        CU_OK(cuEventRecord(e, s));
        CU_OK(cuCtxGetId(ctx, &before));
        CU_OK(cuDevicePrimaryCtxReset(0));

        CU_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
        EXPECT_EQ(0, active);
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetId(ctx, &after));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&ptr, 64));
        CU_OK(cuCtxPushCurrent(ctx));
        CU_OK(cuCtxGetDevice(&device));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamCreate(&s, 0));
        CU_OK(cuCtxPopCurrent(&current));
        EXPECT_EQ(ctx, current);
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventQuery(e));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventSynchronize(e));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        (CUdeviceptr)(uintptr_t)host));

        /* the same handle for a new context */
        CU_OK(cuDevicePrimaryCtxRetain(&again, 0));
        EXPECT_EQ(ctx, again);
        CU_OK(cuCtxGetId(ctx, &after));
        EXPECT_NE(before, after);
        CU_OK(cuMemAlloc(&ptr, 64));
        CU_OK(cuStreamCreate(&s, 0));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamWaitEvent(s, e, 0));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventQuery(e));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventDestroy(e));

        /* each retain needs a release, also after a reset */
        CU_OK(cuDevicePrimaryCtxRelease(0));
        CU_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
        EXPECT_EQ(1, active);
        CU_OK(cuDevicePrimaryCtxRelease(0));
        CU_OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
        EXPECT_EQ(0, active);
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    });
}

TEST_F(driver_real, streams_after_a_reset)
{
    const std::function<void(CUstream)> calls[] = {
        [](CUstream s) { cuStreamQuery(s); },
        [](CUstream s) { cuStreamSynchronize(s); },
        [](CUstream s) { cuStreamDestroy(s); },
        [](CUstream s) {
            CUcontext ctx;
            cuDevicePrimaryCtxRetain(&ctx, 0);
            cuStreamQuery(s);
        },
        [](CUstream s) { cuCtxSetFlags(CU_CTX_SCHED_AUTO); }
    };

    for (const auto &call : calls) {
        expect_death([&] {
            use(0);
            CUstream s = stream();
            EXPECT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxReset(0));
            call(s);
        });
    }
}

/* The manual leaves it undefined. The real driver returns an error. */
TEST_F(driver_real, streams_of_a_destroyed_context)
{
    expect_death([] {
        use(0);
        CUcontext ctx = create_context(0);
        CUstream s    = stream();
        CUevent e     = event();
        unsigned long long id;
        CU_OK(cuCtxDestroy(ctx));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxGetId(ctx, &id));
        CU_OK(cuCtxPushCurrent(ctx));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventQuery(e));
        cuStreamQuery(s);
    });
}

TEST_F(driver_real, graphs_after_a_reset)
{
    const std::function<void(CUgraphExec)> calls[] = {
        [](CUgraphExec exec) { cuGraphExecDestroy(exec); },
        [](CUgraphExec exec) {
            use(0);
            cuGraphLaunch(exec, stream());
        }
    };

    for (const auto &call : calls) {
        expect_death([&] {
            CUcontext ctx      = use(0);
            CUDA_MEMCPY3D copy = graph_copy(alloc(MiB), alloc(MiB), MiB);
            CUgraph graph;
            CUgraphNode node;
            CUgraphExec exec;

            CU_OK(cuGraphCreate(&graph, 0));
            CU_OK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, ctx));
            CU_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
            CU_OK(cuDevicePrimaryCtxReset(0));
            CU_OK(cuGraphDestroy(graph));
            call(exec);
        });
    }
}

/* A destroyed context is removed from the peers on both sides */
TEST_F(driver_real, peers_after_a_reset)
{
    run(1, [](int) {
        CUcontext a = use(0), b = use(1), again;

        enable_peers(a, b);
        CU_OK(cuDevicePrimaryCtxReset(1));
        CU_OK(cuDevicePrimaryCtxRetain(&again, 1));
        CU_OK(cuCtxSetCurrent(a));
        CU_OK(cuCtxEnablePeerAccess(again, 0));
        CU_OK(cuCtxSetCurrent(again));
        CU_OK(cuCtxEnablePeerAccess(a, 0));
    });
}

TEST_F(driver_real, calls_that_wait_for_kernels)
{
    run(1, [](int) {
        use(0);
        CUstream s = stream();
        std::vector<char> pages(MiB), others(MiB), more(MiB);

        CU_OK(cuMemHostRegister(pages.data(), MiB, 0));
        void *host = pinned(4096);

        volatile uint32_t *word = flag();
        spin(s, word);
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
        EXPECT_FALSE(returns(word, [&] {
            EXPECT_EQ(CUDA_SUCCESS, cuMemHostUnregister(pages.data()));
        }));
        CU_OK(cuStreamSynchronize(s));

        *word = 0;
        spin(s, word);
        EXPECT_FALSE(returns(word, [&] {
            EXPECT_EQ(CUDA_SUCCESS, cuMemFreeHost(host));
        }));

        CUdeviceptr ptr = alloc(MiB);
        *word = 0;
        spin(s, word);
        EXPECT_FALSE(
            returns(word, [&] { EXPECT_EQ(CUDA_SUCCESS, cuMemFree(ptr)); }));

        /* Calls that do not wait */
        *word = 0;
        spin(s, word);
        EXPECT_TRUE(returns(word, [&] {
            CUdeviceptr fresh;
            EXPECT_EQ(CUDA_SUCCESS,
                      cuMemHostRegister(others.data(), MiB, 0));
            EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&fresh, MiB));
            EXPECT_EQ(CUDA_SUCCESS,
                      cuMemcpyAsync(fresh,
                                    (CUdeviceptr)(uintptr_t)others.data(), MiB,
                                    stream()));
            EXPECT_EQ(CUDA_SUCCESS,
                      cuMemcpyHtoD(fresh, more.data(), 4096));
        }));
        CU_OK(cuStreamSynchronize(s));
    });
}

/* cuMemFreeHost waits for work in another device's context, and copies of other
   threads wait meanwhile. */
TEST_F(driver_real, unlocking_delays_copies)
{
    run(1, [](int) {
        CUcontext ctx = use(1);
        CUstream s    = stream();
        use(0);
        std::vector<char> pages(MiB);
        void *host              = pinned(MiB);
        CUdeviceptr ptr         = alloc(MiB);
        CUstream other          = stream();
        volatile uint32_t *word = flag();

        CU_OK(cuMemHostRegister(pages.data(), MiB, 0));
        CU_OK(cuCtxPushCurrent(ctx));
        spin(s, word);
        CU_OK(cuCtxPopCurrent(&ctx));
        std::thread thread([&] {
            EXPECT_EQ(CUDA_SUCCESS, cuMemHostUnregister(pages.data()));
        });
        usleep(20000);
        EXPECT_FALSE(returns(word, [&] {
            EXPECT_EQ(CUDA_SUCCESS,
                      cuMemcpyHtoDAsync(ptr, host, MiB, other));
        }));
        thread.join();
    });
}

TEST_F(driver_real, words_that_end_a_wait)
{
    run(1, [](int) {
        use(0);
        CUstream s              = stream();
        volatile uint32_t *word = flag(), *passed = flag();
        CUdeviceptr addr        = (CUdeviceptr)(uintptr_t)word;
        CUdeviceptr gpu         = alloc(4096);
        uint32_t pageable       = 0;

        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(s, addr + 2, 1,
                                                                0));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32(s, addr, 1, 4));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuStreamWaitValue32(s, (CUdeviceptr)(uintptr_t)&pageable, 1,
                                      0));
        CU_OK(cuMemsetD32(gpu, 0, 1));
        CU_OK(cuCtxSynchronize());
        CU_OK(cuStreamWaitValue32(s, addr, 5, CU_STREAM_WAIT_VALUE_EQ));
        CU_OK(cuStreamWriteValue32(s, (CUdeviceptr)(uintptr_t)passed, 1, 0));
        CU_OK(cuStreamWaitValue32(s, addr, 8, CU_STREAM_WAIT_VALUE_AND));
        CU_OK(cuStreamWaitValue32(s, gpu, 3, CU_STREAM_WAIT_VALUE_GEQ));
        usleep(5000);
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
        *word = 5;
        while (*passed == 0) {
            usleep(1000);
        }
        *word = 9;
        usleep(5000);
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
        CU_OK(cuMemsetD32Async(gpu, 4, 1, stream()));
        CU_OK(cuStreamSynchronize(s));
    });
}

TEST_F(driver_real, words_that_a_stream_writes)
{
    run(1, [](int) {
        use(0);
        CUstream s              = stream();
        volatile uint32_t *held = flag(), *word = flag();
        CUdeviceptr addr        = (CUdeviceptr)(uintptr_t)word;
        uint32_t pageable       = 0;

        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(s, addr + 2, 1,
                                                                 0));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32(s, addr, 1,
                                                                 2));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuStreamWriteValue32(s, (CUdeviceptr)(uintptr_t)&pageable, 1,
                                       0));
        spin(s, held);
        CU_OK(cuStreamWriteValue32(s, addr, 7, 0));
        usleep(5000);
        EXPECT_EQ(0u, *word);
        *held = 1;
        CU_OK(cuStreamSynchronize(s));
        EXPECT_EQ(7u, *word);
    });
}

/* Other streams of the program see the old bytes until the program waits. */
TEST_F(driver_real, copies_inside_gpu_memory_are_not_waited_for)
{
    run(1, [](int) {
        const size_t size = 32 * MiB;
        const auto a = pattern(size, 1), b = pattern(size, 2);
        CUcontext ctx   = use(0), peer = use(1);
        CUdeviceptr far = alloc(size);
        enable_peers(ctx, peer);
        CU_OK(cuCtxSetCurrent(ctx));
        CUdeviceptr src = alloc(size), dst = alloc(size);
        unsigned on     = 1;

        put(src, a);
        put(dst, b);
        CU_OK(cuMemcpyDtoD(dst, src, size));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
        CU_OK(cuCtxSynchronize());
        EXPECT_EQ(a, get(dst, size));
        CU_OK(cuMemcpy(far, src, size));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
        CU_OK(cuMemcpyPeer(far, peer, src, ctx, size));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
        CU_OK(cuMemsetD8(dst, 3, size));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(nullptr));
        CU_OK(cuCtxSynchronize());

        /* set for either address, or for the context (the manual) */
        CU_OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                    dst));
        CU_OK(cuMemcpyDtoD(dst, src, size));
        CU_OK(cuStreamQuery(nullptr));
        CU_OK(cuMemcpyDtoD(src, dst, size));
        CU_OK(cuStreamQuery(nullptr));
        CU_OK(cuMemsetD8(dst, 3, size));
        CU_OK(cuStreamQuery(nullptr));
#if CUDA_VERSION >= 12010
        CU_OK(cuCtxSetFlags(CU_CTX_SYNC_MEMOPS));
        CU_OK(cuMemcpyDtoD(far, src, size));
        CU_OK(cuStreamQuery(nullptr));
#endif
    });
}

/* By the manual: when the call returns, the source has been read, and a copy
   into pageable memory has ended. */
TEST_F(driver_real, pageable_memory_is_reusable_after_the_call)
{
    run(1, [](int) {
        const size_t size = 4 * MiB;
        const auto a      = pattern(size, 1);
        auto words        = a;
        use(0);
        CUdeviceptr ptr   = alloc(size);
        CUstream s        = stream();

        CU_OK(cuMemcpyHtoDAsync(ptr, words.data(), size, s));
        words.assign(words.size(), 0);
        CU_OK(cuMemcpyDtoHAsync(words.data(), ptr, size, s));
        EXPECT_EQ(a, words);
    });
}

TEST_F(driver_real, mappings_in_a_larger_reservation)
{
    run(1, [](int) {
        const size_t chunk             = 2 * MiB;
        const CUmemAllocationProp prop = memory_of(0);
        const CUmemAccessDesc access   = access_of(0);
        CUmemGenericAllocationHandle handle[2];
        unsigned long long id[2];
        CUdeviceptr va, base;
        size_t size;

        use(0);
        CU_OK(cuMemAddressReserve(&va, 8 * chunk, 0, 0, 0));
        for (int i = 0; i < 2; ++i) {
            const CUdeviceptr ptr = va + (CUdeviceptr)(i + 1) * chunk;

            CU_OK(cuMemCreate(&handle[i], chunk, &prop, 0));
            CU_OK(cuMemMap(ptr, chunk, 0, handle[i], 0));
            CU_OK(cuMemSetAccess(ptr, chunk, &access, 1));
            CU_OK(cuPointerGetAttribute(
                    &base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr + 4096));
            CU_OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                        ptr + 4096));
            EXPECT_EQ(va, base);
            EXPECT_EQ(8 * chunk, size);
            CU_OK(cuMemGetAddressRange(&base, &size, ptr + 4096));
            EXPECT_EQ(ptr, base);
            EXPECT_EQ(chunk, size);
            CU_OK(cuPointerGetAttribute(&id[i], CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                        ptr));
        }
        EXPECT_NE(id[0], id[1]);
        EXPECT_EQ(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, va));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuPointerGetAttribute(&base,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                        va));

        /* a copy across both */
        const auto words = pattern(64, 7);
        put(va + 2 * chunk - 32, words);
        EXPECT_EQ(words, get(va + 2 * chunk - 32, 64));

        /* memory without a context survives a reset */
        CU_OK(cuDevicePrimaryCtxReset(0));
        use(0);
        CU_OK(cuMemGetAddressRange(&base, &size, va + chunk));
        CU_OK(cuMemUnmap(va + chunk, 2 * chunk));
        CU_OK(cuMemAddressFree(va, 8 * chunk));
        CU_OK(cuMemRelease(handle[0]));
        CU_OK(cuMemRelease(handle[1]));
    });
}

/* More addresses than the driver has reserved at first (driver/memory.c) */
TEST_F(driver_real, reservations_beyond_all_memory)
{
    setenv("CUEMU_GPU_MEMORY", "64M", 1);
    run(1, [&](int) {
        const size_t sizes[]           = {3072 * MiB, 3072 * MiB, 8192 * MiB};
        const size_t chunk             = 2 * MiB;
        const CUmemAllocationProp prop = memory_of(0);
        const CUmemAccessDesc access   = access_of(0);
        CUmemGenericAllocationHandle handle;
        CUdeviceptr va[3], again;

        use(0);
        for (int i = 0; i < 3; ++i) {
            const auto words = pattern(64, i);
            CUdeviceptr last;

            CU_OK(cuMemAddressReserve(&va[i], sizes[i], 0, 0, 0));
            last = va[i] + sizes[i] - chunk;
            CU_OK(cuMemCreate(&handle, chunk, &prop, 0));
            CU_OK(cuMemMap(last, chunk, 0, handle, 0));
            CU_OK(cuMemRelease(handle));
            CU_OK(cuMemSetAccess(last, chunk, &access, 1));
            put(last, words);
            EXPECT_EQ(words, get(last, 64));
            CU_OK(cuMemUnmap(last, chunk));
        }
        CU_OK(cuMemAddressFree(va[1], sizes[1]));
        CU_OK(cuMemAddressReserve(&again, sizes[1], 0, 0, 0));
        EXPECT_EQ(va[1], again);
        CU_OK(cuMemAddressFree(again, sizes[1]));
        CU_OK(cuMemAddressFree(va[0], sizes[0]));
        CU_OK(cuMemAddressFree(va[2], sizes[2]));
    });
}

/* Calls that a real driver refuses (H200, driver 580) */
TEST_F(driver_real, frees_only_once_and_whole)
{
    run(1, [&](int) {
        const size_t chunk             = 2 * MiB;
        const CUmemAllocationProp prop = memory_of(0);
        const CUmemAccessDesc access   = access_of(0);
        CUmemGenericAllocationHandle handle;
        CUdeviceptr ptr, va;
        use(0);

        CU_OK(cuMemAllocAsync(&ptr, chunk, nullptr));
        CU_OK(cuMemFreeAsync(ptr, nullptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(ptr, nullptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(ptr));

        CU_OK(cuMemAddressReserve(&va, 4 * chunk, 0, 0, 0));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(va, 2 * chunk));
        CU_OK(cuMemCreate(&handle, 2 * chunk, &prop, 0));
        CU_OK(cuMemMap(va, 2 * chunk, 0, handle, 0));
        CU_OK(cuMemRelease(handle));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemSetAccess(va, chunk, &access, 1));
        CU_OK(cuMemSetAccess(va, 2 * chunk, &access, 1));
        CU_OK(cuMemUnmap(va, 2 * chunk));
        CU_OK(cuMemAddressFree(va, 4 * chunk));
    });
}

/* H200, driver 580 */
TEST_F(driver_real, limits_are_remembered)
{
    run(1, [&](int) {
        auto limit = [](int which) {
            size_t value = 0;

            EXPECT_EQ(CUDA_SUCCESS, cuCtxGetLimit(&value, (CUlimit)which));
            return value;
        };
        const CUlimit sync_depth = CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH;
        size_t value;
        use(0);

        EXPECT_EQ(1024u, limit(CU_LIMIT_STACK_SIZE));
        EXPECT_EQ(8650752u, limit(CU_LIMIT_PRINTF_FIFO_SIZE));
        EXPECT_EQ(8388608u, limit(CU_LIMIT_MALLOC_HEAP_SIZE));
        EXPECT_EQ(2048u, limit(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT));
        EXPECT_EQ(64u, limit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY));
        EXPECT_EQ(11796480u, limit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
        EXPECT_EQ(232448u, limit(7)); /* CU_LIMIT_SHMEM_SIZE */

        CU_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4000));
        CU_OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * MiB));
        CU_OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 5000));
        CU_OK(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, MiB));
        EXPECT_EQ(4000u, limit(CU_LIMIT_STACK_SIZE));
        EXPECT_EQ(64 * MiB, limit(CU_LIMIT_MALLOC_HEAP_SIZE));
        EXPECT_EQ(524288u, limit(CU_LIMIT_PRINTF_FIFO_SIZE));
        EXPECT_EQ(3932160u, limit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
        CU_OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 16 * MiB));
        EXPECT_EQ(16 * MiB, limit(CU_LIMIT_PRINTF_FIFO_SIZE));

        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024 * MiB));
        EXPECT_EQ(CUDA_ERROR_UNSUPPORTED_LIMIT,
                  cuCtxGetLimit(&value, sync_depth));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuCtxSetLimit((CUlimit)77, 1));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(&value, (CUlimit)77));
    });
}
