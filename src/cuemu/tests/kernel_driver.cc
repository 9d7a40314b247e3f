/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Loading and launching kernels by the driver's manual: errors, effects of
 * faults on a context, order in streams, time.
 */
#include "kernel_fixture.h"

class kernel_driver : public kernel {
protected:
    kernel_driver() : kernel("beluga", "plain.ptx")
    {
    }

    /* Wrap the body of `go` into a module; its one parameter is in %rd0. */
    static std::string module_of(const std::string &body)
    {
        return ".version 6.0\n.target sm_60\n.address_size 64\n"
               ".visible .entry go(.param .u64 go_param)\n{\n"
               ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n"
               "ld.param.u64 %rd0, [go_param];\n" + body + "\nret;\n}\n";
    }

    CUresult load_text(const std::string &text)
    {
        return cuModuleLoadData(&m_module, text.c_str());
    }

    /* Each thread writes its number */
    static constexpr const char *NUMBER =
            "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\n"
            "mov.u32 %r2, %ntid.x;\nmad.lo.s32 %r3, %r1, %r2, %r0;\n"
            "mul.wide.u32 %rd1, %r3, 4;\nadd.s64 %rd2, %rd0, %rd1;\n"
            "st.global.u32 [%rd2], %r3;\n";

    void faults(const std::string &body, CUdeviceptr arg, unsigned threads,
                CUresult expected)
    {
        run(1, [&](int) {
            CUdeviceptr other = 0;
            CUcontext ctx;

            use(0);
            CU_OK(load_text(module_of(body)));
            CUdeviceptr ptr = (arg == 1) ? alloc(4092) : arg;
            CU_OK(try_launch(function("go"), 1, threads, 0, nullptr, ptr));
            EXPECT_EQ(expected, cuCtxSynchronize());

            /* the context has failed and cannot be made again, as on H200,
               driver 580 */
            EXPECT_EQ(expected, cuMemAlloc(&other, 64));
            EXPECT_EQ(expected, cuStreamSynchronize(nullptr));
            CU_OK(cuCtxGetCurrent(&ctx));
            CU_OK(cuDevicePrimaryCtxReset(0));
            EXPECT_EQ(CUDA_ERROR_DEVICE_UNAVAILABLE,
                      cuDevicePrimaryCtxRetain(&ctx, 0));
            use(1);
            CU_OK(cuMemAlloc(&other, 64));
        });
    }
};

TEST_F(kernel_driver, invalid_ptx_is_refused)
{
    run(1, [&](int) {
        static const char elf[] = "\177ELF and so on";
        std::string good = module_of(NUMBER);

        use(0);
        CU_OK(load_text(good));
        CU_OK(cuModuleUnload(m_module));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(m_module));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(NULL, "x"));
        EXPECT_EQ(CUDA_ERROR_INVALID_PTX, load_text("nonsense"));
        EXPECT_EQ(CUDA_ERROR_INVALID_PTX, load_text(""));
        EXPECT_EQ(CUDA_ERROR_INVALID_PTX,
                  load_text(good.substr(0, good.size() / 2)));
        EXPECT_EQ(CUDA_ERROR_NO_BINARY_FOR_GPU,
                  cuModuleLoadData(&m_module, elf));
        CU_OK(load_text(read("plain.ptx"))); /* sm_75 on a V100 */
        CU_OK(cuModuleUnload(m_module));
        EXPECT_EQ(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                  load_text(".version 10.0\n.target sm_60\n"
                            ".address_size 64\n"));
        CU_OK(load_text(".version 9.9\n.target sm_60\n.address_size 64\n"));
        CU_OK(cuModuleUnload(m_module));

        /* The error names the word and its line, counted from 1 */
        const std::string log = expect_refused(
                CUDA_ERROR_NOT_SUPPORTED,
                module_of("tex.1d.v4.f32.s32 {%r0, %r1, %r2, %r3}, [%rd0, "
                          "{%r4}];"), "tex.1d.v4.f32.s32: the emulator lacks");
        EXPECT_NE(std::string::npos, log.find("line 10")) << log;
        EXPECT_EQ(std::string::npos, log.find("expected")) << log;
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  load_text(module_of("add.sloppy.f32 %r0, %r1, %r2;")));
        for (const char *wide : {"ld.global.u64 %w0, [%rd0];",
                                 "st.global.u64 [%rd0], %w0;",
                                 "ld.global.u32 %r0, [%w0];",
                                 "ld.global.v2.u64 {%w0, %w1}, [%rd0];"}) {
            expect_refused(CUDA_ERROR_NOT_SUPPORTED,
                           module_of(std::string(".reg .b128 %w<2>; ") + wide),
                           ".global");
        }
        EXPECT_EQ(CUDA_ERROR_INVALID_PTX,
                  load_text(module_of("bra nowhere;")));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  load_text(module_of("mov.u32 %r99, 1;")));
    });
}

TEST_F(kernel_driver, invalid_launches_are_refused)
{
    run(1, [&](int) {
        CUfunction func;
        CUcontext ctx;
        int blocks = -1;

        use(0);
        CU_OK(load_text(module_of(NUMBER)));
        EXPECT_EQ(CUDA_ERROR_NOT_FOUND,
                  cuModuleGetFunction(&func, m_module, "g"));
        func              = function("go");
        CUdeviceptr ptr   = alloc(4096);
        CUstream s        = stream();
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  try_launch(func, 0, 32, 0, s, ptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  try_launch(func, 1, 1025, 0, s, ptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  try_launch(func, 1, size_t3(1, 1, 65), 0, s, ptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  try_launch(func, size_t3(1, 65536), 1, 0, s, ptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  try_launch(func, 1, 32, 48 * 1024 + 1, s, ptr));
        CU_OK(cuFuncSetAttribute(
                func, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                64 * 1024));
        CU_OK(try_launch(func, 1, 32, 48 * 1024 + 1, s, ptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                  try_launch((CUfunction)s, 1, 32, 0, s, ptr));

        /* Launch bounds (H200, driver 580) */
        std::string bounded = module_of(NUMBER);
        bounded.insert(bounded.find('{'), ".maxntid 64, 1, 1\n");
        CU_OK(load_text(bounded));
        CU_OK(try_launch(function("go"), 1, 64, 0, s, ptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  try_launch(function("go"), 1, 65, 0, s, ptr));
        CU_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &blocks, function("go"), 65, 0));
        EXPECT_EQ(0, blocks);

        /* A stream of another context */
        CU_OK(cuCtxGetCurrent(&ctx));
        use(1);
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                  try_launch(func, 1, 32, 0, stream(), ptr));

        /* A function is destroyed with its context */
        CU_OK(cuCtxSetCurrent(ctx));
        CU_OK(cuDevicePrimaryCtxReset(0));
        use(0);
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                  try_launch(func, 1, 32, 0, nullptr, ptr));
    });
}

TEST_F(kernel_driver, the_three_ways_to_launch)
{
    run(1, [&](int) {
        std::string text = module_of(NUMBER);
        CUlibrary library;
        CUkernel kernel;
        CUfunction func;
        CUmodule module;

        use(0);
        CU_OK(cuLibraryLoadData(&library, text.c_str(), NULL, NULL, 0, NULL,
                                NULL, 0));
        EXPECT_EQ(CUDA_ERROR_NOT_FOUND,
                  cuLibraryGetKernel(&kernel, library, "g"));
        CU_OK(cuLibraryGetKernel(&kernel, library, "go"));
        CU_OK(cuKernelGetFunction(&func, kernel));
        CU_OK(cuLibraryGetModule(&module, library));

        for (int way = 0; way < 3; ++way) {
            std::vector<unsigned> got(200), want(200);
            CUdeviceptr ptr  = upload(got);
            size_t size      = sizeof(ptr);
            void *params[]   = {&ptr};
            void *extra[]    = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ptr,
                                CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                                CU_LAUNCH_PARAM_END};
            CUlaunchConfig config = {};

            std::iota(want.begin(), want.end(), 0u);
            config.gridDimX  = 2;
            config.blockDimX = 100;
            config.gridDimY = config.gridDimZ = 1;
            config.blockDimY = config.blockDimZ = 1;
            if (way == 0) {
                CU_OK(cuLaunchKernel((CUfunction)kernel, 2, 1, 1, 100, 1, 1, 0,
                                     nullptr, params, nullptr));
            } else if (way == 1) {
                CU_OK(cuLaunchKernel(func, 2, 1, 1, 100, 1, 1, 0, nullptr,
                                     nullptr, extra));
            } else {
                CU_OK(cuLaunchKernelEx(&config, func, params, nullptr));
            }
            download(got, ptr);
            EXPECT_EQ(want, got) << way;
        }
        CU_OK(cuLibraryUnload(library));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                  cuLibraryGetKernel(&kernel, library, "go"));
    });
}

TEST_F(kernel_driver, variables_of_a_module)
{
    run(1, [&](int) {
        const std::string text =
                ".version 6.0\n.target sm_60\n.address_size 64\n"
                ".global .align 4 .u32 count = 41;\n"
                ".const .align 4 .b8 table[8] = {1, 2, 3, 4, 5};\n"
                ".global .align 8 .f64 real = 0d3ff8000000000000;\n"
                ".visible .entry go(.param .u64 go_param)\n{\n"
                ".reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"
                "ld.param.u64 %rd0, [go_param];\n"
                "atom.global.add.u32 %r0, [count], 1;\n"
                "st.global.u32 [%rd0], %r0;\n"
                "ld.const.u32 %r1, [table+4];\n"
                "st.global.u32 [%rd0+4], %r1;\n"
                "ld.global.u64 %rd1, [real];\n"
                "st.global.u64 [%rd0+8], %rd1;\nret;\n}\n";
        struct {
            unsigned count, table;
            double   real;
        } got = {};
        unsigned count = 0;
        CUdeviceptr at;
        size_t size;

        use(0);
        CU_OK(load_text(text));
        CUdeviceptr ptr = alloc(64);
        CU_OK(try_launch(function("go"), 1, 1, 0, nullptr, ptr));
        CU_OK(cuMemcpyDtoH(&got, ptr, sizeof(got)));
        EXPECT_EQ(41u, got.count);
        EXPECT_EQ(5u, got.table);
        EXPECT_EQ(1.5, got.real);
        CU_OK(cuModuleGetGlobal(&at, &size, m_module, "count"));
        EXPECT_EQ(4u, size);
        CU_OK(cuMemcpyDtoH(&count, at, 4));
        EXPECT_EQ(42u, count);
        EXPECT_EQ(CUDA_ERROR_NOT_FOUND,
                  cuModuleGetGlobal(&at, &size, m_module, "counts"));
        CU_OK(cuModuleUnload(m_module));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(&count, at, 4));
    });
}

/* clang and nvcc -G declare shared variables outside of kernels */
TEST_F(kernel_driver, shared_variables_of_a_module)
{
    run(1, [&](int) {
        const std::string head =
                ".version 6.0\n.target sm_60\n.address_size 64\n"
                ".shared .align 4 .b8 first[8];\n"
                ".shared .align 8 .f64 second;\n";
        const std::string body =
                "(.param .u64 p)\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"
                "ld.param.u64 %rd0, [p];\nmov.u32 %r0, 7;\nmov.u64 %rd1, 9;\n"
                "st.shared.u32 [first+4], %r0;\nst.shared.u64 [second], %rd1;\n"
                "ld.shared.u32 %r1, [first+4];\nld.shared.u32 %r2, [second];\n"
                "add.u32 %r1, %r1, %r2;\nst.global.u32 [%rd0], %r1;\nret;\n}\n";
        std::vector<unsigned> got(1);

        use(0);
        CU_OK(load_text(head + ".visible .entry one" + body +
                        ".visible .entry two" + body));
        for (const char *name : {"one", "two"}) {
            int size        = 0;
            CUdeviceptr ptr = upload(std::vector<unsigned>(1, 0));

            CU_OK(try_launch(function(name), 1, 1, 0, nullptr, ptr));
            download(got, ptr);
            EXPECT_EQ(16u, got[0]);
            CU_OK(cuFuncGetAttribute(&size, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                                     function(name)));
            EXPECT_EQ(16, size);
        }
    });
}

/* ----------------------------------------------------------------- faults */

TEST_F(kernel_driver, an_illegal_address)
{
    faults(NUMBER, 0x1000, 32, CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(kernel_driver, past_the_end)
{
    faults(NUMBER, 1, 1024, CUDA_ERROR_ILLEGAL_ADDRESS); /* the buffer has 4092
                                                            bytes */
}

TEST_F(kernel_driver, host_memory_that_is_not_page_locked)
{
    static unsigned here[64];

    faults(NUMBER, (CUdeviceptr)(uintptr_t)here, 32,
           CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(kernel_driver, a_misaligned_address)
{
    faults("st.global.u32 [%rd0+2], %r0;", 1, 1, CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_F(kernel_driver, a_trap)
{
    faults("trap;", 1, 1, CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(kernel_driver, shared_memory_out_of_bounds)
{
    faults("st.shared.u32 [%r0+4096], %r0;", 1, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Thread 0 waits for a thread that waits at another barrier. */
TEST_F(kernel_driver, a_barrier_some_threads_never_reach)
{
    faults("mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p0, %r0, 0;\n"
           "@%p0 bar.sync 1;\n@!%p0 bar.sync 2;", 1, 64,
           CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST_F(kernel_driver, a_loop_without_end)
{
    setenv("CUEMU_KERNEL_LIMIT", "1e6", 1);
    faults("again:\nld.volatile.global.u32 %r0, [%rd0];\n"
           "setp.eq.u32 %p0, %r0, 12345;\n@!%p0 bra again;", 1, 32,
           CUDA_ERROR_LAUNCH_TIMEOUT);
    unsetenv("CUEMU_KERNEL_LIMIT");
}

/* As on H200, driver 580 */
TEST_F(kernel_driver, calls_in_a_failed_context)
{
    run(1, [&](int) {
        const CUresult failed = CUDA_ERROR_ILLEGAL_ADDRESS;
        CUcontext ctx         = use(0);
        CUdeviceptr ptr       = alloc(64), other;
        CUstream s            = stream();
        CUevent e             = event(), more;
        size_t bytes, total;
        void *host;
        int value;

        CU_OK(load_text(module_of(NUMBER)));
        CUfunction func = function("go");
        CU_OK(try_launch(func, 1, 1, 0, nullptr, (CUdeviceptr)0x10));
        EXPECT_EQ(failed, cuCtxSynchronize());

        EXPECT_EQ(failed, cuStreamQuery(s));
        EXPECT_EQ(failed, cuEventQuery(e));
        EXPECT_EQ(failed, cuEventCreate(&more, 0));
        EXPECT_EQ(failed, cuEventDestroy(e));
        EXPECT_EQ(failed, cuStreamDestroy(s));
        EXPECT_EQ(failed, cuMemAlloc(&other, 4));
        EXPECT_EQ(failed, cuMemFree(ptr));
        EXPECT_EQ(failed, cuMemAllocHost(&host, 64));
        EXPECT_EQ(failed, cuMemcpy(ptr, ptr, 4));
        EXPECT_EQ(failed, cuMemGetInfo(&bytes, &total));
        EXPECT_EQ(failed, cuFuncGetAttribute(
                                  &value, CU_FUNC_ATTRIBUTE_NUM_REGS, func));
        EXPECT_EQ(failed, try_launch(func, 1, 1, 0, nullptr, ptr));

        CU_OK(cuCtxGetCurrent(&ctx));
        CU_OK(cuCtxSetCurrent(ctx));
        CU_OK(cuDeviceGetCount(&value));
        CU_OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
        CU_OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    ptr));
    });
}

/* The fault counts kernels at the beginning of their run. */
TEST_F(kernel_driver, a_kernel_fails_on_request)
{
    setenv("CUEMU_FAULT", "kernel:2:700", 1);
    run(1, [&](int) {
        std::vector<unsigned> got(64);

        use(0);
        CU_OK(load_text(module_of(NUMBER)));
        CUdeviceptr ptr = upload(got);
        CU_OK(try_launch(function("go"), 2, 32, 0, nullptr, ptr));
        CU_OK(cuCtxSynchronize());
        CU_OK(try_launch(function("go"), 2, 32, 0, nullptr, ptr));
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(nullptr));
    });
    unsetenv("CUEMU_FAULT");
}

TEST_F(kernel_driver, a_peers_memory_before_and_after_it_is_opened)
{
    for (bool open : {true, false}) {
        run(1, [&](int) {
            std::vector<unsigned> got(32), want(32);
            CUcontext ctx[2];

            ctx[1]          = use(1);
            CUdeviceptr ptr = upload(got);
            ctx[0]          = use(0);
            CU_OK(load_text(module_of(NUMBER)));
            if (open) {
                CU_OK(cuCtxEnablePeerAccess(ctx[1], 0));
            }
            CU_OK(try_launch(function("go"), 1, 32, 0, nullptr, ptr));
            EXPECT_EQ(open ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS,
                      cuCtxSynchronize());
            if (open) {
                std::iota(want.begin(), want.end(), 0u);
                CU_OK(cuCtxSetCurrent(ctx[1]));
                download(got, ptr);
                EXPECT_EQ(want, got);
            }
        });
    }
}

TEST_F(kernel_driver, access_is_a_pair_of_contexts_and_has_a_direction)
{
    /* Access of each context to memory of another one, after the primary
       context of GPU 0 enabled access to GPU 1 */
    static const struct {
        int user, owner;
        CUresult expected;
    } tries[] = {
        {0, 1, CUDA_SUCCESS},
        {1, 0, CUDA_ERROR_ILLEGAL_ADDRESS},
        {2, 1, CUDA_ERROR_ILLEGAL_ADDRESS},
        {0, 3, CUDA_ERROR_ILLEGAL_ADDRESS},
    };

    for (auto &t : tries) {
        run(1, [&](int) {
            CUcontext ctx[4];
            CUdeviceptr memory[4], pointer;

            ctx[0] = use(0);
            ctx[1] = use(1);
            ctx[2] = create_context(0);
            ctx[3] = create_context(1);
            for (int i = 0; i < 4; ++i) {
                CU_OK(cuCtxSetCurrent(ctx[i]));
                memory[i] = alloc(4096);
            }

            CU_OK(cuCtxSetCurrent(ctx[0]));
            CU_OK(cuCtxEnablePeerAccess(ctx[1], 0));
            CU_OK(cuCtxSetCurrent(ctx[2]));
            EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
                      cuCtxDisablePeerAccess(ctx[1]));

            CU_OK(cuCtxSetCurrent(ctx[t.user]));
            CU_OK(load_text(module_of(NUMBER)));
            EXPECT_EQ((t.expected == CUDA_SUCCESS) ? CUDA_SUCCESS :
                                                     CUDA_ERROR_INVALID_VALUE,
                      cuPointerGetAttribute(
                              &pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                              memory[t.owner]));
            CU_OK(try_launch(function("go"), 1, 32, 0, nullptr,
                             memory[t.owner]));
            EXPECT_EQ(t.expected, cuCtxSynchronize());
        });
    }
}

/* Memory opened from another process is accessible with and without peer
   access, and opening it enables none (2 x H100) */
TEST_F(kernel_driver, opened_memory_is_accessible_by_itself)
{
    run(2, [&](int rank) {
        CUdeviceptr ptr = 0;

        CUcontext ctx = use(rank);
        if (rank == 0) {
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[0], alloc(4096)));
            barrier();
            barrier();
            return;
        }

        barrier();
        CU_OK(load_text(module_of(NUMBER)));
        CUcontext owner = use(0);
        CUdeviceptr own = alloc(4096);
        CU_OK(cuCtxSetCurrent(ctx));
        CU_OK(cuIpcOpenMemHandle(&ptr, m_shared->handle[0],
                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
                  cuCtxDisablePeerAccess(owner));
        CU_OK(cuCtxEnablePeerAccess(owner, 0));
        CU_OK(cuCtxDisablePeerAccess(owner));
        CU_OK(cuMemcpyDtoD(alloc(4096), ptr, 4096));
        CU_OK(try_launch(function("go"), 1, 32, 0, nullptr, ptr));
        CU_OK(cuCtxSynchronize());
        CU_OK(try_launch(function("go"), 1, 32, 0, nullptr, own));
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
        barrier();
    });
}

/* The handles of one process and GPU "may only be opened by one CUcontext per
   CUdevice". Copies in other contexts may use the memory (2 x H100) */
TEST_F(kernel_driver, one_context_of_a_gpu_opens_a_processs_handles)
{
    run(2, [&](int rank) {
        CUdeviceptr ptr = 0, other = 0;

        CUcontext ctx = use(0);
        if (rank == 0) {
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[0], alloc(4096)));
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[1], alloc(8192)));
            barrier();
            barrier();
            return;
        }

        barrier();
        CU_OK(cuIpcOpenMemHandle(&ptr, m_shared->handle[0],
                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        create_context(0);
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                  cuIpcOpenMemHandle(&other, m_shared->handle[1],
                                     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        CU_OK(cuMemcpyDtoD(alloc(4096), ptr, 4096));
        use(1);
        CU_OK(cuIpcOpenMemHandle(&other, m_shared->handle[1],
                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        CU_OK(cuMemcpyDtoD(alloc(4096), ptr, 4096));
        CU_OK(cuCtxSetCurrent(ctx));
        CU_OK(cuIpcOpenMemHandle(&other, m_shared->handle[1],
                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        barrier();
    });
}

/* A word to be written after a faulting kernel is never written (H100). */
TEST_F(kernel_driver, nothing_is_written_behind_a_kernel_that_faults)
{
    run(1, [&](int) {
        unsigned *word = nullptr;
        CUstream stream;

        use(0);
        CU_OK(cuMemHostAlloc((void**)&word, sizeof(*word),
                             CU_MEMHOSTALLOC_PORTABLE));
        *word = 1;
        CU_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CU_OK(load_text(module_of(NUMBER)));
        CU_OK(try_launch(function("go"), 1, 32, 0, stream, (CUdeviceptr)16));
        CU_OK(cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)word, 2, 0));
        EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
        usleep(20000);
        EXPECT_EQ(1u, *(volatile unsigned*)word);
    });
}

TEST_F(kernel_driver, page_locked_memory_of_the_host)
{
    run(1, [&](int) {
        unsigned *here;

        use(0);
        CU_OK(load_text(module_of(NUMBER)));
        CU_OK(cuMemHostAlloc((void**)&here, 4096, 0));
        CU_OK(try_launch(function("go"), 8, 128, 0, nullptr,
                         (CUdeviceptr)(uintptr_t)here));
        CU_OK(cuCtxSynchronize());
        for (unsigned i = 0; i < 1024; ++i) {
            EXPECT_EQ(i, here[i]);
        }
    });
}

TEST_F(kernel_driver, memory_of_another_process)
{
    run(2, [&](int rank) {
        std::vector<unsigned> got(4096), want(4096);
        CUdeviceptr ptr = 0;

        use(rank);
        std::iota(want.begin(), want.end(), 0u);
        if (rank == 0) {
            ptr = upload(got);
            CU_OK(cuIpcGetMemHandle(&m_shared->handle[0], ptr));
            barrier();
            barrier();
            download(got, ptr);
            EXPECT_EQ(want, got);
        } else {
            barrier();
            CU_OK(load_text(module_of(NUMBER)));
            CU_OK(cuIpcOpenMemHandle(&ptr, m_shared->handle[0],
                                     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
            CU_OK(try_launch(function("go"), 64, 64, 0, nullptr, ptr));
            CU_OK(cuCtxSynchronize());
            barrier();
        }
    });
}

/* ------------------------------------------------------------ order, time */

/* Half of a kernel's blocks see memory as it was at the kernel's beginning.
   This shows a missing wait of a kernel for a copy, and of a copy for a
   kernel. */
TEST_F(kernel_driver, a_missing_wait_is_detected)
{
    setenv("CUEMU_SLOWDOWN", "20", 1);
    for (bool waits : {true, false}) {
        run(1, [&](int) {
            const size_t size = 16 << 20, n = size / 16;
            std::vector<unsigned> old(size / 4, 1), fresh(size / 4, 2),
                    got(size / 4);
            CUstream first, second;
            CUevent done;

            setenv("CUEMU_NODE", "narval", 1);
            load(0);
            first  = stream();
            second = stream();
            CU_OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
            CUdeviceptr from = upload(fresh), in = upload(old);
            CUdeviceptr out = upload(old);
            CU_OK(cuMemcpyAsync(in, from, size, first));
            if (waits) {
                CU_OK(cuEventRecord(done, first));
                CU_OK(cuStreamWaitEvent(second, done, 0));
            }
            CU_OK(try_launch(function("copy_stride"), 108, 512, 0, second, out,
                             in, n));
            CU_OK(cuCtxSynchronize());
            download(got, out);
            size_t right = (size_t)std::count(got.begin(), got.end(), 2u);
            if (waits) {
                EXPECT_EQ(got.size(), right);
            } else {
                EXPECT_LT(right, got.size());
            }
        });
    }
}

/* Bytes read by all threads of a warp cross the link once: 16 MiB of host
   memory, 16 bytes per thread or per warp. */
TEST_F(kernel_driver, bytes_shared_by_a_warp_are_read_once)
{
    const unsigned blocks = 2048, threads = 512;

    setenv("CUEMU_SLOWDOWN", "20", 1);
    run(1, [&](int) {
        double took[2];

        use(0);
        CUstream s = stream();
        void *host = pinned((size_t)blocks * threads * 16);
        for (int shared = 0; shared < 2; ++shared) {
            CU_OK(load_text(module_of(std::string(
                    "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\n"
                    "mov.u32 %r2, %ntid.x;\nmad.lo.s32 %r3, %r1, %r2, %r0;\n") +
                    (shared ? "and.b32 %r3, %r3, -32;\n" : "") +
                    "mul.wide.u32 %rd1, %r3, 16;\nadd.s64 %rd2, %rd0, %rd1;\n"
                    "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd2];\n")));
            took[shared] = timed(s, [&] {
                return try_launch(function("go"), blocks, threads, 0, s, host);
            });
            CU_OK(cuModuleUnload(m_module));
        }
        /* a launch takes some microseconds of 640 and 20 */
        EXPECT_GT(took[0] / took[1], 20);
        EXPECT_LE(took[0] / took[1], 32);
    });
}

/* A small kernel by hand on H200 (docs/results/by-hand.md), us: alone it is
   seen after 8.5, of which 0.2 is the event and 1.4 the query; each further one
   of a stream takes 2.8 */
TEST_F(kernel_driver, h200_x2_small_kernels_are_as_measured)
{
    setenv("CUEMU_NODE", "h200-x2", 1);
    setenv("CUEMU_SLOWDOWN", "100", 1);
    run(1, [&](int) {
        double took[2];

        use(0);
        CU_OK(load_text(module_of(NUMBER)));
        CUevent begin   = event(), end = event();
        CUstream s      = stream();
        CUdeviceptr ptr = alloc(4096);
        for (int further = 0; further < 2; ++further) {
            float ms = 0;

            CU_OK(cuEventRecord(begin, s));
            for (int i = 0; i <= 63 * further; ++i) {
                CU_OK(try_launch(function("go"), 1, 32, 0, s, ptr));
            }
            CU_OK(cuEventRecord(end, s));
            CU_OK(cuEventSynchronize(end));
            CU_OK(cuEventElapsedTime(&ms, begin, end));
            took[further] = ms * 1e3;
        }
        EXPECT_NEAR(8.5 - 0.2 - 1.4, took[0], 0.5);
        EXPECT_NEAR(2.8, (took[1] - took[0]) / 63, 0.2);
    });
}

/* CUEMU_TIME_ONLY: times are the same, but large copies move no bytes, and only
   the first and last blocks of a grid run. */
TEST_F(kernel_driver, time_only_keeps_the_times)
{
    const unsigned blocks = 8192, threads = 512;
    const size_t size     = (size_t)blocks * threads * 4;

    setenv("CUEMU_SLOWDOWN", "20", 1);
    for (int only = 0; only < 2; ++only) {
        setenv("CUEMU_SESSION", (m_dir + (only ? "/only" : "/all")).c_str(), 1);
        if (only) {
            setenv("CUEMU_TIME_ONLY", "32M", 1);
        }
        run(1, [&](int) {
            use(0);
            CU_OK(load_text(module_of(NUMBER)));
            CUstream s      = stream();
            CUdeviceptr ptr = alloc(size), twice = alloc(2 * size);

            CU_OK(cuMemsetD32(ptr, ~0u, size / 4));
            CU_OK(cuCtxSynchronize());
            m_shared->seconds[2 * only] = timed(s, [&] {
                return try_launch(function("go"), blocks, threads, 0, s, ptr);
            });
            m_shared->seconds[2 * only + 1] = timed(s, [&] {
                return cuMemsetD32Async(twice, 7, size / 2, s);
            });

            std::vector<unsigned> got(size / 4);
            download(got, ptr);
            EXPECT_EQ(0u, got[0]);
            EXPECT_EQ(got.size() - 1, got.back());
            EXPECT_EQ(only ? ~0u : (unsigned)got.size() / 2,
                      got[got.size() / 2]);
            download(got, twice);
            EXPECT_EQ(only ? 0u : 7u, got[1]);
        });
    }
    unsetenv("CUEMU_TIME_ONLY");

    EXPECT_NEAR(1.0, m_shared->seconds[2] / m_shared->seconds[0], 0.001);
    EXPECT_NEAR(1.0, m_shared->seconds[3] / m_shared->seconds[1], 0.001);
}

/* A kernel on all of a GPU's processors delays other kernels, but no copies. A
   kernel that leaves room delays neither */
TEST_F(kernel_driver, a_full_gpu_keeps_kernels_waiting)
{
    static const char body[] = "mov.u32 %r0, 1000000;\nnanosleep.u32 %r0;\n"
                               "nanosleep.u32 %r0;\n";

    run(1, [&](int) {
        use(0);
        CU_OK(load_text(module_of(body)));
        CUfunction sleeper = function("go");
        CU_OK(load_text(module_of(NUMBER)));
        CUfunction other = function("go");
        CUstream a = stream(), b = stream(), c = stream();
        CUdeviceptr ptr = alloc(4096), copy = alloc(4096);
        int sms = 0;

        CU_OK(cuDeviceGetAttribute(
                &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        for (unsigned blocks : {2u * (unsigned)sms - 1, 2u * (unsigned)sms}) {
            const bool is_full = blocks == 2u * (unsigned)sms;

            CU_OK(try_launch(sleeper, blocks, 1024, 0, a, ptr));
            CU_OK(try_launch(other, 1, 256, 0, b, ptr));
            CU_OK(cuMemcpyDtoDAsync(copy, ptr, 4096, c));
            CU_OK(cuStreamSynchronize(c));
            EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(a)) << blocks;
            CU_OK(cuStreamSynchronize(b));
            EXPECT_EQ(is_full ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY,
                      cuStreamQuery(a)) << blocks;
            CU_OK(cuStreamSynchronize(a));
        }
    });
}
