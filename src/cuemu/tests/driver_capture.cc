/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Capture of streams: the graph does the captured work. Effects of other calls
 * on a capture are the manual's, and those measured on H100 (driver 580).
 */
#include "driver_fixture.h"

#include <functional>
#include <thread>

namespace
{

const CUstreamCaptureMode GLOBAL  = CU_STREAM_CAPTURE_MODE_GLOBAL;
const CUstreamCaptureMode LOCAL   = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const CUstreamCaptureMode RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED;

class capture : public driver {
protected:
    static CUstreamCaptureStatus status(CUstream s)
    {
        CUstreamCaptureStatus result = CU_STREAM_CAPTURE_STATUS_NONE;

        EXPECT_EQ(CUDA_SUCCESS, cuStreamIsCapturing(s, &result));
        return result;
    }

    static void begin(CUstream s, CUstreamCaptureMode mode)
    {
        EXPECT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(s, mode));
    }

    /* End a capture with the expected result. */
    static void end(CUstream s, CUresult expected, const char *what)
    {
        CUgraph graph = (CUgraph)0x1;

        EXPECT_EQ(expected, cuStreamEndCapture(s, &graph)) << what;
        EXPECT_EQ(expected == CUDA_SUCCESS, graph != nullptr) << what;
        EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(s)) << what;
        if (expected == CUDA_SUCCESS) {
            EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph));
        }
    }

    static void exchange(CUstreamCaptureMode mode, CUstreamCaptureMode before)
    {
        EXPECT_EQ(CUDA_SUCCESS, cuThreadExchangeStreamCaptureMode(&mode));
        EXPECT_EQ(before, mode);
    }

    static CUgraphExec graph_of(CUstream s, size_t num_nodes)
    {
        CUgraphExec exec = nullptr;
        CUgraph graph    = nullptr;
        size_t count     = 0;

        EXPECT_EQ(CUDA_SUCCESS, cuStreamEndCapture(s, &graph));
        EXPECT_EQ(CUDA_SUCCESS, cuGraphGetNodes(graph, nullptr, &count));
        EXPECT_EQ(num_nodes, count);
        EXPECT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));
        EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph));
        return exec;
    }

    /* A call, and its effects on a capture: in global mode, and when the
       calling thread is in relaxed mode */
    struct call_t {
        const char               *name;
        CUresult                  as_is, relaxed;
        std::function<CUresult()> make;
    };

    std::vector<call_t> calls()
    {
        static CUdeviceptr device, spare;
        static void *host, *host_spare;
        static std::vector<char> pageable(1 << 20);
        static CUstream other, made;
        static CUevent done, unused;
        static unsigned flag = 1;
        static CUcontext ctx;
        static CUgraph graph;
        static CUgraphExec exec;
        static CUipcMemHandle handle;
        static size_t bytes, more;
        const CUresult breaks = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        const CUresult works  = CUDA_SUCCESS;

        ctx    = use(0);
        device = alloc(MiB);
        host   = pinned(MiB);
        other  = stream();
        done   = event();
        EXPECT_EQ(CUDA_SUCCESS, cuEventRecord(done, other));
        EXPECT_EQ(CUDA_SUCCESS, cuEventSynchronize(done));
        EXPECT_EQ(CUDA_SUCCESS, cuGraphCreate(&graph, 0));
        EXPECT_EQ(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, graph, 0));

        return {
            {"cuEventQuery", breaks, works, [] { return cuEventQuery(done); }},
            {"cuEventSynchronize", breaks, works,
             [] { return cuEventSynchronize(done); }},
            {"cuStreamQuery", breaks, works,
             [] { return cuStreamQuery(other); }},
            {"cuStreamSynchronize", breaks, works,
             [] { return cuStreamSynchronize(other); }},
            {"cuMemAlloc", breaks, works,
             [] { return cuMemAlloc(&spare, 4096); }},
            {"cuMemFree", breaks, works, [] { return cuMemFree(spare); }},
            {"cuMemHostAlloc", breaks, works,
             [] { return cuMemHostAlloc(&host_spare, 4096, 0); }},
            {"cuMemFreeHost", breaks, works,
             [] { return cuMemFreeHost(host_spare); }},
            {"cuMemHostRegister", breaks, works,
             [] { return cuMemHostRegister(pageable.data(), 4096, 0); }},
            {"cuMemHostUnregister", breaks, works,
             [] { return cuMemHostUnregister(pageable.data()); }},
            {"cuPointerSetAttribute", breaks, works,
             [] {
                 return cuPointerSetAttribute(
                         &flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device);
             }},
            {"cuGraphInstantiate", breaks, works,
             [] { return cuGraphInstantiateWithFlags(&exec, graph, 0); }},
            {"cuGraphLaunch", works, works,
             [] { return cuGraphLaunch(exec, other); }},
            {"cuGraphExecDestroy", breaks, works,
             [] { return cuGraphExecDestroy(exec); }},
            {"cuMemAllocAsync", breaks, works,
             [] { return cuMemAllocAsync(&spare, 4096, other); }},
            {"cuMemFreeAsync", breaks, works,
             [] { return cuMemFreeAsync(spare, other); }},
            {"cuCtxSynchronize", breaks, breaks,
             [] { return cuCtxSynchronize(); }},
            {"cuCtxSetFlags", breaks, breaks,
             [] { return cuCtxSetFlags(CU_CTX_SYNC_MEMOPS); }},
            {"cuEventRecord", works, works,
             [] { return cuEventRecord(done, other); }},
            {"cuMemcpyAsync", works, works,
             [] {
                 return cuMemcpyAsync(device, (CUdeviceptr)host, 4096, other);
             }},
            {"cuMemsetD8Async", works, works,
             [] { return cuMemsetD8Async(device, 1, 4096, other); }},
            {"cuStreamWaitEvent", works, works,
             [] { return cuStreamWaitEvent(other, done, 0); }},
            {"cuStreamWriteValue32", works, works,
             [] { return cuStreamWriteValue32(other, device, 1, 0); }},
            {"cuEventCreate", works, works,
             [] { return cuEventCreate(&unused, 0); }},
            {"cuEventDestroy", works, works,
             [] { return cuEventDestroy(unused); }},
            {"cuStreamCreate", works, works,
             [] { return cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); }},
            {"cuStreamDestroy", works, works,
             [] { return cuStreamDestroy(made); }},
            {"cuIpcGetMemHandle", works, works,
             [] { return cuIpcGetMemHandle(&handle, device); }},
            {"cuPointerGetAttribute", works, works,
             [] {
                 unsigned type;
                 return cuPointerGetAttribute(
                         &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device);
             }},
            {"cuMemGetInfo", works, works,
             [] { return cuMemGetInfo(&bytes, &more); }},
            {"cuCtxPushCurrent", works, works,
             [] {
                 CUresult result = cuCtxPushCurrent(ctx);
                 return (result != CUDA_SUCCESS) ? result :
                                                   cuCtxPopCurrent(&ctx);
             }},
            {"cuDevicePrimaryCtxRetain", works, works,
             [] { return cuDevicePrimaryCtxRetain(&ctx, 0); }},
            {"cuMemcpyHtoD", works, works,
             [] { return cuMemcpyHtoD(device, pageable.data(), MiB); }},
            {"cuMemcpyDtoH", works, works,
             [] { return cuMemcpyDtoH(pageable.data(), device, MiB); }},
        };
    }

    /* Make all calls, each during a new capture of this thread, in this thread
       or another one. */
    void make_calls(bool elsewhere, bool is_relaxed)
    {
        std::vector<call_t> all = calls();
        CUstream s              = stream();
        CUcontext ctx;

        CU_OK(cuCtxGetCurrent(&ctx));
        for (const call_t &call : all) {
            CUresult expected = is_relaxed ? call.relaxed : call.as_is;
            CUresult result;
            auto make = [&] {
                if (is_relaxed) {
                    exchange(RELAXED, GLOBAL);
                }
                result = call.make();
                if (is_relaxed) {
                    exchange(GLOBAL, RELAXED);
                }
            };

            begin(s, GLOBAL);
            if (elsewhere) {
                std::thread([&] {
                    EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(ctx));
                    make();
                }).join();
            } else {
                make();
            }
            EXPECT_EQ(expected, result) << call.name;
            EXPECT_EQ((expected == CUDA_SUCCESS) ?
                              CU_STREAM_CAPTURE_STATUS_ACTIVE :
                              CU_STREAM_CAPTURE_STATUS_INVALIDATED,
                      status(s)) << call.name;
            end(s, (expected == CUDA_SUCCESS) ?
                        CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                call.name);
            if ((expected != CUDA_SUCCESS) && (call.relaxed == CUDA_SUCCESS)) {
                EXPECT_EQ(CUDA_SUCCESS, call.make()) << call.name;
            }
        }
    }
};

} // namespace

TEST_F(capture, copies_fills_and_host_functions_become_a_graph)
{
    run(1, [](int) {
        static int calls;
        const size_t size           = 256 << 10;
        std::vector<uint32_t> first = pattern(size, 1);
        std::vector<uint32_t> zero(size / 4), out(size / 4);
        CUgraphExec exec;

        use(0);
        CUdeviceptr a = alloc(size), b = alloc(size);
        uint32_t *in  = (uint32_t*)pinned(size);
        uint32_t *got = (uint32_t*)pinned(size);
        CUstream s    = stream();

        memset(got, 0, size);
        memcpy(in, first.data(), size);
        begin(s, GLOBAL);
        CU_OK(cuMemcpyHtoDAsync(a, in, size, s));
        CU_OK(cuMemsetD32Async(a, 7, 16, s));
        CU_OK(cuMemcpyDtoDAsync(b, a, size, s));
        CU_OK(cuMemcpyDtoHAsync(got, b, size, s));
        CU_OK(cuLaunchHostFunc(s, [](void*) { ++calls; }, nullptr));
        exec = graph_of(s, 5);
        CU_OK(cuStreamSynchronize(s));
        EXPECT_EQ(0, memcmp(got, zero.data(), size)) << "nothing has run yet";
        EXPECT_EQ(0, calls);

        for (uint32_t turn : {1, 2}) {
            std::vector<uint32_t> expected = pattern(size, turn);

            memcpy(in, expected.data(), size);
            std::fill(expected.begin(), expected.begin() + 16, 7);
            CU_OK(cuGraphLaunch(exec, s));
            CU_OK(cuStreamSynchronize(s));
            EXPECT_EQ(0, memcmp(got, expected.data(), size)) << turn;
            EXPECT_EQ((int)turn, calls);
        }
        CU_OK(cuGraphExecDestroy(exec));
    });
}

/* Two streams are joined twice; work after the join sees the writes of both. */
TEST_F(capture, streams_join_by_events)
{
    run(1, [](int) {
        const size_t half = MiB;
        std::vector<uint32_t> left = pattern(half, 1), right = pattern(half, 2);
        CUgraphExec exec;
        CUgraph graph, graph_now;
        const CUgraphNode *deps;
        size_t count;
        cuuint64_t id, other_id;
        CUstreamCaptureStatus state;

        use(0);
        CUdeviceptr a = alloc(2 * half), b = alloc(2 * half);
        CUstream s = stream(), t = stream();
        CUevent fork = event(), join = event(), after = event();

        put(a, left);
        put(a + half, right);
        begin(s, GLOBAL);
        CU_OK(cuEventRecord(fork, s));
        CU_OK(cuStreamWaitEvent(t, fork, 0));
        EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(t));
        CU_OK(cuMemcpyDtoDAsync(b, a, half, s));
        CU_OK(cuMemcpyDtoDAsync(b + half, a + half, half, t));
#if CUDA_VERSION >= 13000
        const CUgraphEdgeData *edges;

        CU_OK(cuStreamGetCaptureInfo(s, &state, &id, &graph_now, &deps, &edges,
                                     &count));
        CU_OK(cuStreamGetCaptureInfo(t, &state, &other_id, &graph, nullptr,
                                     nullptr, nullptr));
#else
        CU_OK(cuStreamGetCaptureInfo_v2(s, &state, &id, &graph_now, &deps,
                                        &count));
        CU_OK(cuStreamGetCaptureInfo_v2(t, &state, &other_id, &graph, nullptr,
                                        nullptr));
#endif
        EXPECT_EQ(1u, count);
        EXPECT_NE(nullptr, deps[0]);
        EXPECT_EQ(id, other_id);
        EXPECT_EQ(graph, graph_now);
        CU_OK(cuEventRecord(join, t));
        CU_OK(cuStreamWaitEvent(s, join, 0));
        CU_OK(cuMemcpyDtoDAsync(a, b + half, half, s));
        exec = graph_of(s, 3);
        EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(t));

        CU_OK(cuGraphLaunch(exec, s));
        CU_OK(cuEventRecord(after, s));
        CU_OK(cuEventSynchronize(after));
        EXPECT_EQ(left, get(b, half));
        EXPECT_EQ(right, get(b + half, half));
        EXPECT_EQ(right, get(a, half));
        CU_OK(cuGraphExecDestroy(exec));

        /* nothing waits for the other stream's last work */
        begin(s, GLOBAL);
        CU_OK(cuEventRecord(fork, s));
        CU_OK(cuStreamWaitEvent(t, fork, 0));
        CU_OK(cuMemsetD8Async(b, 1, half, t));
        end(s, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a fork");
        CU_OK(cuStreamQuery(t));
    });
}

TEST_F(capture, calls_of_the_capturing_thread)
{
    run(1, [&](int) { make_calls(false, false); });
}

TEST_F(capture, calls_of_another_thread)
{
    run(1, [&](int) { make_calls(true, false); });
}

TEST_F(capture, calls_in_relaxed_mode)
{
    run(1, [&](int) {
        make_calls(false, true);
        make_calls(true, true);
    });
}

/* The modes of the capture and of the calling thread decide whether an unsafe
   call breaks a capture. */
TEST_F(capture, modes_follow_the_manual)
{
    static const struct {
        CUstreamCaptureMode capture, thread;
        bool own_breaks, other_breaks;
    } cases[] = {
        {GLOBAL, GLOBAL, true, true},     {GLOBAL, LOCAL, true, false},
        {GLOBAL, RELAXED, false, false},  {LOCAL, GLOBAL, true, false},
        {LOCAL, LOCAL, true, false},      {LOCAL, RELAXED, false, false},
        {RELAXED, GLOBAL, false, false},  {RELAXED, LOCAL, false, false},
        {RELAXED, RELAXED, false, false},
    };

    run(1, [](int) {
        CUcontext ctx = use(0);
        CUstream s    = stream();

        for (const auto &c : cases) {
            for (bool elsewhere : {false, true}) {
                bool breaks = elsewhere ? c.other_breaks : c.own_breaks;
                auto make   = [&] {
                    CUdeviceptr ptr;

                    EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(ctx));
                    exchange(c.thread, GLOBAL);
                    EXPECT_EQ(breaks ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED :
                                       CUDA_SUCCESS,
                              cuMemAlloc(&ptr, 64))
                            << c.capture << c.thread << elsewhere;
                    exchange(GLOBAL, c.thread);
                };

                begin(s, c.capture);
                if (elsewhere) {
                    std::thread(make).join();
                } else {
                    make();
                }
                end(s, breaks ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED :
                                CUDA_SUCCESS, "modes");
            }
        }

        CUstreamCaptureMode none = (CUstreamCaptureMode)3;
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuThreadExchangeStreamCaptureMode(&none));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture(s, none));
    });
}

/* Calls that conflict with the capture itself fail in relaxed mode, too */
TEST_F(capture, calls_that_a_captured_stream_refuses)
{
    run(1, [](int) {
        CUgraph graph;

        use(0);
        CUdeviceptr a = alloc(MiB);
        CUstream s = stream(), t = stream();
        CUevent e = event(), outside = event();

        exchange(RELAXED, GLOBAL);
        begin(s, GLOBAL);
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(s));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                  cuMemsetD8Async(a, 1, 16, s));
        end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamQuery");
        begin(s, GLOBAL);
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  cuStreamSynchronize(s));
        end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamSynchronize");

        begin(s, GLOBAL);
        CU_OK(cuEventRecord(e, s));
        EXPECT_EQ(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
        end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuEventQuery");
        EXPECT_EQ(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(e));
        CU_OK(cuEventRecord(e, s));
        CU_OK(cuEventSynchronize(e));

        CU_OK(cuEventRecord(outside, t));
        begin(s, GLOBAL);
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                  cuStreamWaitEvent(s, outside, 0));
        end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an event from outside");
        begin(s, GLOBAL);
        CU_OK(cuStreamWaitEvent(s, outside, CU_EVENT_WAIT_EXTERNAL));
        end(s, CUDA_SUCCESS, "an external event");

        begin(s, GLOBAL);
        begin(t, GLOBAL);
        CU_OK(cuEventRecord(e, t));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(s, e, 0));
        end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "another capture");
        end(t, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "another capture");

        begin(s, GLOBAL);
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(s, GLOBAL));
        std::thread([&] {
            EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                      cuStreamEndCapture(s, &graph));
        }).join();
        CU_OK(cuEventRecord(e, s));
        CU_OK(cuStreamWaitEvent(t, e, 0));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                  cuStreamEndCapture(t, &graph));
        end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an end elsewhere");
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &graph));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  cuStreamBeginCapture(CU_STREAM_LEGACY, GLOBAL));
    });
}

/* cuCtxRecordEvent() conflicts with captures in its context alone, in whatever
   mode (the manual) */
TEST_F(capture, a_record_in_a_context)
{
    run(1, [](int) {
        CUcontext other = use(1);
        CUevent e       = event();

        CUcontext ctx = use(0);
        CUstream s    = stream();
        CUevent own   = event();

        exchange(RELAXED, GLOBAL);
        begin(s, RELAXED);
        CU_OK(cuCtxRecordEvent(other, e));
        EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(s));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  cuCtxRecordEvent(ctx, own));
        end(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuCtxRecordEvent");
    });
}

/* The legacy stream waits for blocking streams, also in calls without a
   stream */
TEST_F(capture, a_blocking_stream_and_the_legacy_one)
{
    run(1, [](int) {
        CUstreamCaptureStatus state;
        CUstream blocking;
        uint32_t word = 1;

        use(0);
        CUdeviceptr a = alloc(MiB);
        CUstream s    = stream();

        CU_OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
        begin(s, GLOBAL);
        CU_OK(cuMemcpyHtoD(a, &word, sizeof(word)));
        CU_OK(cuStreamIsCapturing(nullptr, &state));
        EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, state);
        end(s, CUDA_SUCCESS, "not a blocking stream");

        begin(blocking, RELAXED);
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                  cuStreamIsCapturing(nullptr, &state));
        EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(blocking));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                  cuMemcpyHtoD(a, &word, sizeof(word)));
        end(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuMemcpyHtoD");
        begin(blocking, RELAXED);
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                  cuMemsetD8Async(a, 1, 16, nullptr));
        end(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "a fill");

        /* The thread's default stream is blocking, others are not */
        begin(CU_STREAM_PER_THREAD, RELAXED);
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                  cuMemcpyDtoH(&word, a, sizeof(word)));
        end(CU_STREAM_PER_THREAD, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            "the thread's stream");
        CU_OK(cuMemcpyDtoH(&word, a, sizeof(word)));
    });
}

/* Streams and devices destroyed during a capture */
TEST_F(capture, captures_end_with_their_streams)
{
    run(1, [](int) {
        CUdeviceptr ptr;
        CUgraph graph;

        use(0);
        CUstream s = stream(), t = stream();
        CUevent e = event();

        begin(s, GLOBAL);
        CU_OK(cuStreamDestroy(s));
        CU_OK(cuMemAlloc(&ptr, 64));

        s = stream();
        begin(s, GLOBAL);
        CU_OK(cuEventRecord(e, s));
        CU_OK(cuStreamWaitEvent(t, e, 0));
        CU_OK(cuStreamDestroy(t));
        EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                  cuStreamEndCapture(s, &graph));

        use(1);
        s = stream();
        begin(s, LOCAL);
        exchange(RELAXED, GLOBAL);
        CU_OK(cuDevicePrimaryCtxReset(1));
        exchange(GLOBAL, RELAXED);
        use(0);
        CU_OK(cuMemAlloc(&ptr, 64));
    });
}
