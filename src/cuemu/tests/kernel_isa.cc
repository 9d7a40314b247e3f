/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Single instructions that other compilers emit. Expected results are computed
 * here as "Parallel Thread Execution ISA" defines them.
 */
#include "kernel_fixture.h"

class kernel_isa : public kernel {
protected:
    kernel_isa() : kernel("hgx-h200", "")
    {
    }

    /* Wrap a body into a module of one kernel "k" with a parameter "out". %out
       is the global address of this thread's 4 bytes; %t is its number in the
       block. */
    static std::string module(const std::string &body,
                              const std::string &before = "")
    {
        return ".version 8.0\n.target sm_90\n.address_size 64\n" + before +
               ".visible .entry k(.param .u64 out)\n{\n"
               ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>, %t;\n"
               ".reg .f32 %f<8>; .reg .b64 %rd<8>, %out;\n"
               "mov.u32 %t, %tid.x; ld.param.u64 %rd1, [out];\n"
               "cvta.to.global.u64 %rd1, %rd1; mul.wide.u32 %rd2, %t, 4;\n"
               "add.s64 %out, %rd1, %rd2;\n" + body + "\nret;\n}\n";
    }

    void load_text(const std::string &text)
    {
        use(0);
        ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&m_module, text.c_str()));
    }

    /* Return the result of each of `threads` threads. */
    std::vector<uint32_t> results(const std::string &text, unsigned threads)
    {
        std::vector<uint32_t> out(threads);

        load_text(text);
        CUdeviceptr ptr = upload(out);
        launch("k", 1, threads, 0, ptr);
        download(out, ptr);
        return out;
    }
};

/* f(x) = g(x) + 1; g(x) = x * x for odd x, 7 for even x, with early returns */
static const char functions[] =
        ".func (.param .b32 g_ret) g(.param .b32 g_x);\n"
        ".func (.param .b32 f_ret) f(.param .b32 f_x)\n{\n"
        ".reg .b32 %r<4>;\nld.param.u32 %r1, [f_x];\n"
        "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;\n"
        "call.uni (r), g, (a); ld.param.b32 %r2, [r]; }\n"
        "add.u32 %r2, %r2, 1; st.param.b32 [f_ret], %r2; ret;\n}\n"
        ".func (.param .b32 g_ret) g(.param .b32 g_x)\n{\n"
        ".reg .b32 %r<4>; .reg .pred %p<2>;\nld.param.u32 %r1, [g_x];\n"
        "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra $ODD;\n"
        "mov.u32 %r3, 7; st.param.b32 [g_ret], %r3; ret;\n"
        "$ODD: mul.lo.u32 %r3, %r1, %r1; st.param.b32 [g_ret], %r3; ret;\n}\n";

TEST_F(kernel_isa, functions_are_called)
{
    run(1, [&](int) {
        std::vector<uint32_t> out = results(
                module("mov.u32 %r5, 0; setp.lt.u32 %p1, %t, 60;\n"
                       "{ .param .b32 a; .param .b32 r;\n"
                       "st.param.b32 [a], %t; st.param.b32 [r], %r5;\n"
                       "@%p1 call (r), f, (a); ld.param.b32 %r1, [r]; }\n"
                       "{ .param .b32 a; .param .b32 r;\n"
                       "st.param.b32 [a+0], %r1; call (r), f, (a);\n"
                       "ld.param.b32 %r2, [r+0]; }\n"
                       "st.global.u32 [%out], %r2;", functions), 100);
        auto g = [](uint32_t x) { return (x & 1) ? (x * x) : 7; };
        for (uint32_t i = 0; i < out.size(); ++i) {
            uint32_t once = (i < 60) ? (g(i) + 1) : 0;

            EXPECT_EQ(g(once) + 1, out[i]) << i;
        }
    });
}

TEST_F(kernel_isa, functions_that_cannot_be_called_are_named)
{
    run(1, [&](int) {
        const char *recursive =
                ".func r()\n{\ncall.uni r;\nret;\n}\n";
        char log[512] = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                                  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[]         = {log, (void*)sizeof(log)};

        use(0);
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuModuleLoadDataEx(&m_module,
                                     module("call.uni r;", recursive).c_str(),
                                     2, options, values));
        EXPECT_NE(nullptr, strstr(log, "r is recursive")) << log;
        values[1] = (void*)sizeof(log);
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuModuleLoadDataEx(&m_module,
                                     module("call.uni cudaLaunchDevice;",
                                            ".extern .func cudaLaunchDevice();"
                                            "\n").c_str(), 2, options, values));
        EXPECT_NE(nullptr, strstr(log, "cudaLaunchDevice")) << log;
    });
}

/* bar.red over all threads of a block, with divergent warps */
TEST_F(kernel_isa, barriers_that_reduce)
{
    run(1, [&](int) {
        std::vector<uint32_t> out = results(
                module("setp.lt.u32 %p1, %t, 130; setp.ge.u32 %p2, %t, 0;\n"
                       "bar.red.popc.u32 %r1, 0, %p1;\n"
                       "bar.red.and.pred %p3, 0, %p1;\n"
                       "bar.red.and.pred %p4, 0, !%p2;\n"
                       "barrier.cta.red.or.pred %p5, 0, %p1;\n"
                       "bar.red.and.pred %p6, 0, %p2;\n"
                       "selp.u32 %r2, 1000, 0, %p3; add.u32 %r1, %r1, %r2;\n"
                       "selp.u32 %r2, 2000, 0, %p4; add.u32 %r1, %r1, %r2;\n"
                       "selp.u32 %r2, 4000, 0, %p5; add.u32 %r1, %r1, %r2;\n"
                       "selp.u32 %r2, 8000, 0, %p6; add.u32 %r1, %r1, %r2;\n"
                       "st.global.u32 [%out], %r1;"), 200);
        EXPECT_EQ(std::vector<uint32_t>(200, 130 + 4000 + 8000), out);
    });
}

TEST_F(kernel_isa, pairs_of_sixteen_bits)
{
    run(1, [&](int) {
        const uint32_t b = 0x8001fffe;
        auto each = [&](uint32_t a, int (*f)(int, int), bool is_signed) {
            uint32_t both = 0;
            for (unsigned j = 0; j < 32; j += 16) {
                uint16_t x = (uint16_t)(a >> j), y = (uint16_t)(b >> j);

                both |= (uint32_t)(uint16_t)(
                        is_signed ? f((int16_t)x, (int16_t)y) : f(x, y)) << j;
            }
            return both;
        };
        auto least = [](int x, int y) { return std::min(x, y); };
        auto most  = [](int x, int y) { return std::max(x, y); };
        auto sum   = [](int x, int y) { return x + y; };
        std::vector<uint32_t> out = results(
                module("mul.lo.u32 %r1, %t, 0x10f001;\n"
                       "mov.u32 %r2, 0x8001fffe;\n"
                       "min.u16x2 %r3, %r1, %r2; min.s16x2 %r4, %r1, %r2;\n"
                       "max.u16x2 %r5, %r1, %r2; max.s16x2 %r6, %r1, %r2;\n"
                       "add.u16x2 %r7, %r1, %r2; xor.b32 %r3, %r3, %r4;\n"
                       "mad.lo.u32 %r3, %r5, 3, %r3;\n"
                       "mad.lo.u32 %r3, %r6, 5, %r3;\n"
                       "mad.lo.u32 %r3, %r7, 7, %r3;\n"
                       "st.global.u32 [%out], %r3;"), 128);
        for (uint32_t i = 0; i < out.size(); ++i) {
            uint32_t a = i * 0x10f001;

            EXPECT_EQ((each(a, least, false) ^ each(a, least, true)) +
                      3 * each(a, most, false) + 5 * each(a, most, true) +
                      7 * each(a, sum, false), out[i]) << i;
        }
    });
}

/* set.f16.f16: 1.0 is 0x3c00; "num" is false if either operand is NaN */
TEST_F(kernel_isa, set_in_half_precision)
{
    run(1, [&](int) {
        std::vector<uint32_t> out = results(
                module("setp.eq.u32 %p1, %t, 3; mov.b16 %h1, 0x3c00;\n"
                       "selp.b16 %h1, 0x7e00, %h1, %p1; mov.b16 %h2, 0x4000;\n"
                       "set.nan.f16.f16 %h3, %h1, %h2;\n"
                       "set.lt.f16.f16 %h4, %h1, %h2;\n"
                       "mov.b32 %r1, {%h3, %h4};\n"
                       "st.global.u32 [%out], %r1;"), 5);
        for (uint32_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ((i == 3) ? 0x00003c00u : 0x3c000000u, out[i]) << i;
        }
    });
}

/* Kernels of a long module are parsed on their first use: an error in one does
   not affect the others. */
TEST_F(kernel_isa, long_modules)
{
    run(1, [&](int) {
        std::string text = module("st.global.u32 [%out], %t;") +
                           "// " + std::string(1 << 20, 'x') + "\n"
                           ".visible .entry bad()\n{\nfrobnicate.b32;\nret;\n}"
                           "\n.visible .entry braces()\n{\n/* } */ // }\n"
                           "{ ret; }\n}\n.visible .entry last()\n{\nret;\n}\n";
        std::vector<uint32_t> out = results(text, 70);
        CUfunction func;
        int version = 0;

        for (uint32_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(i, out[i]);
        }
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuModuleGetFunction(&func, m_module, "bad"));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuModuleGetFunction(&func, m_module, "bad"));
        EXPECT_EQ(CUDA_SUCCESS,
                  cuModuleGetFunction(&func, m_module, "braces"));
        CU_OK(cuModuleGetFunction(&func, m_module, "last"));
        CU_OK(cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION,
                                 func));
        EXPECT_EQ(90, version);
    });
}

/* The driver's linker makes a loadable module: a kernel of one text calls a
   function of another. Machine code is refused with an error message. */
TEST_F(kernel_isa, texts_are_linked)
{
    run(1, [&](int) {
        std::string caller = module(
                "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %t;\n"
                "call.uni (r), f, (a); ld.param.b32 %r1, [r]; }\n"
                "st.global.u32 [%out], %r1;",
                ".extern .func (.param .b32 f_ret) f(.param .b32 f_x);\n");
        std::string callee = ".version 8.0\n.target sm_90\n.address_size 64\n" +
                             std::string(functions);
        std::string data   = ".version 8.0\n.target sm_90\n.address_size 64\n"
                             ".visible .global .u32 x = 1;\n";
        std::vector<uint32_t> out(64);
        char log[256] = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                                  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[]         = {log, (void*)sizeof(log)}, *image;
        CUlinkState link;
        size_t size;

        auto add = [&](std::string &text, CUjitInputType type) {
            return cuLinkAddData(link, type, &text[0], text.size() + 1, "x", 0,
                                 nullptr, nullptr);
        };

        use(0);
        CU_OK(cuLinkCreate(2, options, values, &link));
        CU_OK(add(caller, CU_JIT_INPUT_PTX));
        CU_OK(add(callee, CU_JIT_INPUT_PTX));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, add(callee, CU_JIT_INPUT_CUBIN));
        EXPECT_NE(nullptr, strstr(log, "cuLinkAddData")) << log;
        CU_OK(cuLinkComplete(link, &image, &size));
        CU_OK(cuModuleLoadData(&m_module, image));
        CU_OK(cuLinkDestroy(link));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(link));

        CUdeviceptr ptr = upload(out);
        launch("k", 1, 64, 0, ptr);
        download(out, ptr);
        for (uint32_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(((i & 1) ? (i * i) : 7) + 1, out[i]) << i;
        }

        /* Two variables of the same name are refused */
        CU_OK(cuLinkCreate(0, nullptr, nullptr, &link));
        CU_OK(add(data, CU_JIT_INPUT_PTX));
        CU_OK(add(data, CU_JIT_INPUT_PTX));
        CU_OK(cuLinkComplete(link, &image, &size));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
                  cuModuleLoadData(&m_module, image));
        CU_OK(cuLinkDestroy(link));
    });
}

/* printf() in kernels: each argument has its own alignment */
TEST_F(kernel_isa, kernels_print)
{
    run(1, [&](int) {
        std::string text = module(
                "setp.eq.u32 %p1, %t, 5; @!%p1 bra $NO;\n"
                "mov.b64 %rd3, buffer; cvta.local.u64 %rd4, %rd3;\n"
                "st.local.u32 [%rd3], %t; mov.f64 %d1, 0d3FF8000000000000;\n"
                "st.local.f64 [%rd3+8], %d1; mov.u64 %rd5, word;\n"
                "cvta.global.u64 %rd5, %rd5; st.local.u64 [%rd3+16], %rd5;\n"
                "mov.u64 %rd6, format; cvta.global.u64 %rd6, %rd6;\n"
                "{ .param .b64 a; .param .b64 b; .param .b32 r;\n"
                "st.param.b64 [a], %rd6; st.param.b64 [b], %rd4;\n"
                "call.uni (r), vprintf, (a, b); }\n$NO:",
                ".extern .func (.param .b32 r) vprintf(.param .b64 a,\n"
                ".param .b64 b);\n"
                ".global .align 1 .b8 format[18] = {37, 100, 32, 37, 45, 54,\n"
                "46, 50, 102, 124, 37, 115, 32, 37, 37, 10, 0, 0};\n"
                ".global .align 1 .b8 word[3] = {111, 107, 0};\n");
        size_t at = text.find(".reg .f32");

        text.insert(at, ".local .align 8 .b8 buffer[24]; .reg .f64 %d<2>;\n");
        load_text(text);
        CUdeviceptr ptr = alloc(4);
        testing::internal::CaptureStdout();
        launch("k", 1, 32, 0, ptr);
        CU_OK(cuCtxSynchronize());
        fflush(stdout);
        EXPECT_EQ("5 1.50  |ok %\n", testing::internal::GetCapturedStdout());
    });
}

extern "C" {
typedef struct CUlinkState_st *jit_t;
int nvJitLinkCreate(jit_t *jit, uint32_t num_options, const char **options);
int nvJitLinkAddData(jit_t jit, int type, const void *data, size_t size,
                     const char *name);
int nvJitLinkComplete(jit_t jit);
int nvJitLinkGetLinkedCubinSize(jit_t jit, size_t *size);
int nvJitLinkGetLinkedCubin(jit_t jit, void *image);
int nvJitLinkGetErrorLogSize(jit_t jit, size_t *size);
int nvJitLinkDestroy(jit_t *jit);
}

/* The nvJitLink replacement turns PTX (2) into a loadable module and refuses
   LTO-IR (3). Queries of cuda.core about a kernel work. */
TEST_F(kernel_isa, nvjitlink_makes_loadable_modules)
{
    run(1, [&](int) {
        std::string text = module("st.global.u32 [%out], %t;");
        std::vector<char> image;
        size_t size = 0, offset = 9;
        CUlibrary library;
        CUkernel kernel;
        int value = 0;
        jit_t jit;

        use(0);
        EXPECT_EQ(0, nvJitLinkCreate(&jit, 0, nullptr));
        EXPECT_NE(0, nvJitLinkComplete(jit));
        EXPECT_NE(0, nvJitLinkAddData(jit, 3, "BC", 2, "x"));
        EXPECT_EQ(0, nvJitLinkGetErrorLogSize(jit, &size));
        EXPECT_LT(20u, size);
        EXPECT_EQ(0, nvJitLinkAddData(jit, 2, text.c_str(), text.size(), "x"));
        EXPECT_EQ(0, nvJitLinkComplete(jit));
        EXPECT_EQ(0, nvJitLinkGetLinkedCubinSize(jit, &size));
        image.resize(size);
        EXPECT_EQ(0, nvJitLinkGetLinkedCubin(jit, image.data()));
        EXPECT_EQ(0, nvJitLinkDestroy(&jit));

        CU_OK(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0,
                                nullptr, nullptr, 0));
        CU_OK(cuLibraryGetKernel(&kernel, library, "k"));
        CU_OK(cuKernelGetAttribute(&value,
                                   CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                   kernel, 0));
        EXPECT_EQ(1024, value);
        CU_OK(cuLibraryUnload(library));
        CU_OK(cuModuleLoadData(&m_module, text.c_str()));
        CU_OK(cuFuncGetParamInfo(function("k"), 0, &offset, &size));
        EXPECT_EQ(0u, offset);
        EXPECT_EQ(8u, size);
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuFuncGetParamInfo(function("k"), 1, &offset, &size));
    });
}
