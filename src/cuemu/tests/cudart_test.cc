/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The emulated CUDA runtime, loaded as a program loads it. The functions are
 * declared here, since the libraries of CUDA 12 and CUDA 13 are both tested.
 */
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

class cudart : public ::testing::TestWithParam<const char*> {
protected:
    /* A session for this program alone, so that no other copies use its links.
       The driver creates the folder and removes it with the last process. */
    static void SetUpTestSuite()
    {
        std::string dir = "/dev/shm/cuemu_test_" + std::to_string(getpid());

        setenv("CUEMU_SESSION", dir.c_str(), 1);
        setenv("CUEMU_NODE", "beluga", 1);
    }

    void SetUp() override
    {
        const char *dir = getenv("CUEMU_LIB");
        std::string lib = std::string(dir == NULL ? "lib" : dir) + "/";

        /* load libcuda.so.1 by path: this program has no LD_LIBRARY_PATH */
        ASSERT_NE(nullptr, dlopen((lib + "libcuda.so.1").c_str(),
                                  RTLD_NOW | RTLD_GLOBAL)) << dlerror();
        m_handle = dlopen((lib + GetParam()).c_str(), RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(nullptr, m_handle) << dlerror();
    }

    template<typename... Args> int call(const char *name, Args... args)
    {
        int (*func)(Args...) = (int (*)(Args...))dlsym(m_handle, name);

        EXPECT_NE(nullptr, func) << name;
        return (func == nullptr) ? -1 : func(args...);
    }

    /* Register a fat binary, as a program does. */
    void *load(std::vector<uint64_t> *image)
    {
        void *(*reg)(void*) = (void *(*)(void*))dlsym(
                m_handle, "__cudaRegisterFatBinary");

        m_wrapper.data = image->data();
        return reg(&m_wrapper);
    }

    void add_kernel(void *module, const void *shadow, const char *name)
    {
        call("__cudaRegisterFunction", module, shadow, (char*)name, name, -1,
             (void*)0, (void*)0, (void*)0, (void*)0, (int*)0);
    }

    static bool is_13()
    {
        return strstr(GetParam(), ".13") != nullptr;
    }

    struct {
        uint32_t magic, version;
        void    *data, *name;
    } m_wrapper = {0x466243b1, 1, nullptr, nullptr};
    void *m_handle;
};

struct dim3 {
    unsigned x, y, z;
};

TEST_P(cudart, bytes_go_round_over_three_gpus)
{
    const size_t size = 3 << 20;
    std::vector<unsigned char> in(size), out(size);
    void *ptr[3], *stream, *event, *event2;
    int count = 0;
    float ms  = -1;

    for (size_t i = 0; i < size; ++i) {
        in[i] = (unsigned char)(i * 7 + (i >> 9));
    }

    ASSERT_EQ(0, call("cudaGetDeviceCount", &count));
    ASSERT_EQ(4, count);
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(0, call("cudaSetDevice", i));
        ASSERT_EQ(0, call("cudaMalloc", &ptr[i], size));
        ASSERT_EQ(0, call("cudaMemset", ptr[i], 0xee, size));
        if (i > 0) {
            int can = 0;
            EXPECT_EQ(0, call("cudaDeviceCanAccessPeer", &can, i, i - 1));
            EXPECT_EQ(1, can);
            int error = call("cudaDeviceEnablePeerAccess", i - 1, 0u);
            EXPECT_TRUE((error == 0) || (error == 704)) << error;
            EXPECT_EQ(error, call("cudaGetLastError"));
        }
    }

    ASSERT_EQ(0, call("cudaMemcpy", ptr[0], (const void*)in.data(), size, 1));
    ASSERT_EQ(0, call("cudaStreamSynchronize", (void*)nullptr));
    ASSERT_EQ(0, call("cudaSetDevice", 2));
    ASSERT_EQ(0, call("cudaStreamCreateWithFlags", &stream, 1u));
    ASSERT_EQ(0, call("cudaEventCreate", &event));
    ASSERT_EQ(0, call("cudaEventCreate", &event2));
    ASSERT_EQ(0, call("cudaEventRecord", event, stream));
    ASSERT_EQ(0, call("cudaMemcpyPeerAsync", ptr[1], 1, (const void*)ptr[0], 0,
                      size, stream));
    ASSERT_EQ(0, call("cudaMemcpyAsync", ptr[2], (const void*)ptr[1], size, 3,
                      stream));
    ASSERT_EQ(0, call("cudaEventRecord", event2, stream));
    ASSERT_EQ(0, call("cudaEventSynchronize", event2));
    ASSERT_EQ(0, call("cudaEventElapsedTime", &ms, event, event2));
    /* two copies of 3 MiB at 48 GB/s: 131 us and their fixed costs */
    EXPECT_GT(ms, 0.131);
    EXPECT_LT(ms, 0.131 * 1.25);
    ASSERT_EQ(0, call("cudaMemcpy", (void*)out.data(), (const void*)ptr[2],
                      size, 2));
    EXPECT_TRUE(in == out);

    EXPECT_EQ(0, call("cudaEventDestroy", event));
    EXPECT_EQ(0, call("cudaEventDestroy", event2));
    EXPECT_EQ(0, call("cudaStreamDestroy", stream));
    for (void *p : ptr) {
        EXPECT_EQ(0, call("cudaFree", p));
    }
    EXPECT_EQ(0, call("cudaGetLastError"));
}

TEST_P(cudart, pointer_attributes_tell_the_kind_of_memory)
{
    struct {
        int  type, device;
        void *device_pointer, *host_pointer;
        long reserved[8];
    } attr;
    void *dev, *pinned, *managed;
    int local;

    ASSERT_EQ(0, call("cudaSetDevice", 1));
    ASSERT_EQ(0, call("cudaMalloc", &dev, (size_t)4096));
    ASSERT_EQ(0, call("cudaMallocHost", &pinned, (size_t)4096));
    ASSERT_EQ(0, call("cudaMallocManaged", &managed, (size_t)4096, 1u));

    ASSERT_EQ(0, call("cudaPointerGetAttributes", &attr, (const void*)dev));
    EXPECT_EQ(2, attr.type);
    EXPECT_EQ(1, attr.device);
    EXPECT_EQ(dev, attr.device_pointer);
    ASSERT_EQ(0, call("cudaPointerGetAttributes", &attr, (const void*)pinned));
    EXPECT_EQ(1, attr.type);
    EXPECT_EQ(pinned, attr.host_pointer);
    ASSERT_EQ(0, call("cudaPointerGetAttributes", &attr, (const void*)managed));
    EXPECT_EQ(3, attr.type);
    ASSERT_EQ(0, call("cudaPointerGetAttributes", &attr, (const void*)&local));
    EXPECT_EQ(0, attr.type);

    /* CUDA 12 has a shorter structure: nothing may be written behind it */
    if (strstr(GetParam(), ".so.12") != NULL) {
        memset(&attr, 0x5a, sizeof(attr));
        ASSERT_EQ(0, call("cudaPointerGetAttributes", &attr, (const void*)dev));
        EXPECT_EQ(0x5a5a5a5a5a5a5a5al, attr.reserved[0]);
    }

    memset(managed, 1, 4096); /* CPU access is allowed */
    memset(pinned, 1, 4096);
    EXPECT_EQ(0, call("cudaFree", dev));
    EXPECT_EQ(0, call("cudaFree", managed));
    EXPECT_EQ(0, call("cudaFreeHost", pinned));
}

TEST_P(cudart, errors_are_remembered_once)
{
    void *ptr = (void*)1;

    EXPECT_EQ(101, call("cudaSetDevice", 17));
    EXPECT_EQ(101, call("cudaPeekAtLastError"));
    EXPECT_EQ(101, call("cudaGetLastError"));
    EXPECT_EQ(0, call("cudaGetLastError"));

    EXPECT_EQ(0, call("cudaSetDevice", 0));
    EXPECT_EQ(2, call("cudaMalloc", &ptr, (size_t)1 << 50));
    EXPECT_EQ(nullptr, ptr);
    EXPECT_EQ(2, call("cudaGetLastError"));
    EXPECT_EQ(21, call("cudaMemcpy", ptr, (const void*)ptr, (size_t)1, 9));
    EXPECT_EQ(21, call("cudaGetLastError"));
    EXPECT_EQ(0, call("cudaFree", (void*)NULL));
    EXPECT_EQ(1, call("cudaFree", (void*)0x1234));
    call("cudaGetLastError");

    const char *(*text)(
        int) = (const char *(*)(int))dlsym(m_handle, "cudaGetErrorString");
    EXPECT_STREQ("out of memory", text(2));
    EXPECT_STREQ("no error", text(0));
    EXPECT_STREQ("unrecognized error code", text(-77));
    EXPECT_STREQ("invalid device context", text(201));
    EXPECT_STREQ("an illegal memory access was encountered", text(700));
    const char *(*name)(
        int) = (const char *(*)(int))dlsym(m_handle, "cudaGetErrorName");
    EXPECT_STREQ("cudaSuccess", name(0));
    EXPECT_STREQ("cudaErrorInvalidSymbol", name(13));
    EXPECT_STREQ("cudaErrorDeviceUninitialized", name(201));
    EXPECT_STREQ("cudaErrorIllegalInstruction", name(715));
    EXPECT_STREQ("cudaErrorInvalidPc", name(718));
    EXPECT_STREQ("unrecognized error code", name(1000));

    /* The device itself is no peer */
    EXPECT_EQ(101, call("cudaDeviceEnablePeerAccess", 0, 0u));
    EXPECT_EQ(101, call("cudaGetLastError"));
}

TEST_P(cudart, kernels_without_ptx_are_refused_and_symbols_known)
{
    static char shadow;
    struct {
        unsigned x, y, z;
    } one = {1, 1, 1};
    size_t size = 0;

    void **(*reg)(
        void *)   = (void **(*)(void *))dlsym(m_handle,
                                              "__cudaRegisterFatBinary");
    void **module        = reg(NULL);
    EXPECT_EQ(13, call("cudaGetSymbolSize", &size, (const void*)&shadow));
    call("__cudaRegisterVar", module, &shadow, &shadow, "shadow", 0,
         (size_t)24, 0, 0);
    EXPECT_EQ(0, call("cudaGetSymbolSize", &size, (const void*)&shadow));
    EXPECT_EQ(24u, size);
    EXPECT_EQ(801, call("cudaLaunchKernel", (const void*)&shadow, one, one,
                        (void**)NULL, (size_t)0, (void*)NULL));
    call("__cudaUnregisterFatBinary", module);
    EXPECT_EQ(13, call("cudaGetSymbolSize", &size, (const void*)&shadow));
    call("cudaGetLastError");
}

/* Make a fat binary with one PTX text, as nvcc does: plain, or in the format of
   LZ4 or zstd without compression */
static std::vector<uint64_t> fat_binary(const std::string &ptx, uint64_t flags,
                                        unsigned sm)
{
    std::string data = ptx;
    size_t n         = ptx.size();

    if (flags & 0x2000) { /* literals only */
        data = "\xf0";
        for (n -= 15; n >= 255; n -= 255) {
            data += '\xff';
        }
        data += (char)n;
        data += ptx;
    } else if (flags & 0x8000) { /* a frame with one raw block */
        size_t block = (n << 3) | 1;
        data  = std::string("\x28\xb5\x2f\xfd\xa0", 5);
        data += std::string((const char*)&n, 4);
        data += std::string((const char*)&block, 3);
        data += ptx;
    }

    size_t size = (data.size() + 7) & ~(size_t)7;
    std::vector<uint64_t> image(2 + 10 + size / 8);
    unsigned char *p = (unsigned char*)image.data();
    auto put16       = [&](size_t at, uint16_t x) { memcpy(p + at, &x, 2); };
    auto put32       = [&](size_t at, uint32_t x) { memcpy(p + at, &x, 4); };
    auto put64       = [&](size_t at, uint64_t x) { memcpy(p + at, &x, 8); };
    put32(0, 0xba55ed50);
    put16(4, 1);
    put16(6, 16);
    put64(8, 80 + size);
    put16(16, 1); /* PTX */
    put16(18, 0x101);
    put32(20, 80);
    put64(24, size);
    put32(32, (uint32_t)data.size());
    put32(44, sm);
    put64(56, flags);
    put64(72, ptx.size());
    memcpy(p + 96, data.data(), data.size());
    return image;
}

TEST_P(cudart, kernels_that_a_program_carries_run)
{
    const std::string ptx =
            ".version 6.0\n.target sm_60\n.address_size 64\n"
            ".global .align 4 .u32 step = 3;\n"
            ".visible .entry fill(.param .u64 fill_0, .param .u32 fill_1)\n{\n"
            ".reg .b32 %r<6>;\n.reg .b64 %rd<4>;\n"
            "ld.param.u64 %rd0, [fill_0];\nld.param.u32 %r0, [fill_1];\n"
            "mov.u32 %r1, %tid.x;\nld.global.u32 %r2, [step];\n"
            "mad.lo.s32 %r3, %r1, %r2, %r0;\nmul.wide.u32 %rd1, %r1, 4;\n"
            "add.s64 %rd2, %rd0, %rd1;\nst.global.u32 [%rd2], %r3;\nret;\n}\n";
    dim3 one = {1, 1, 1}, many = {100, 1, 1};
    static char kernel, variable;

    /* also code of a newer GPU than the node's: nvcc 13 makes none for sm_70 */
    for (uint64_t flags : {0x11, 0x2011, 0x8011, 0x10}) {
        const unsigned sm           = (flags == 0x10) ? 120 : 70;
        std::vector<uint64_t> image = fat_binary(ptx, flags, sm);
        unsigned got[100], first = 1000, step = 7;
        void *ptr, *module = load(&image), *function;

        add_kernel(module, &kernel, "fill");
        call("__cudaRegisterVar", module, &variable, &variable, "step", 0,
             (size_t)4, 0, 1);
        ASSERT_EQ(0, call("cudaMalloc", &ptr, sizeof(got)));
        for (unsigned expected : {3, 7}) {
            void *args[] = {&ptr, &first};
            ASSERT_EQ(0, call("cudaLaunchKernel", (const void*)&kernel, one,
                              many, args, (size_t)0, (void*)0)) << flags;
            ASSERT_EQ(0, call("cudaMemcpy", (void*)got, (const void*)ptr,
                              sizeof(got), 2));
            for (unsigned i = 0; i < 100; ++i) {
                EXPECT_EQ(1000 + expected * i, got[i]);
            }
            EXPECT_EQ(0, call("cudaMemcpyToSymbol", (const void*)&variable,
                              (const void*)&step, (size_t)4, (size_t)0, 1));
        }
        EXPECT_EQ(1, call("cudaMemcpyToSymbol", (const void*)&variable,
                          (const void*)&step, (size_t)4, (size_t)1, 1));
        EXPECT_EQ(is_13() ? 400 : 98, /* H200, driver 580 */
                  call("cudaLaunchKernel", (const void*)&one, one, many,
                       (void**)0, (size_t)0, (void*)0));
        int blocks = 0;
        for (const void *func : {(void*)&kernel, (void*)&one}) {
            const int error = (func == &kernel) ? 0 : 98;
            EXPECT_EQ(error, call("cudaGetFuncBySymbol", &function, func));
            EXPECT_EQ(error, call("cudaFuncSetAttribute", func, 8, 65536));
            EXPECT_EQ(error,
                      call("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                           &blocks, func, 100, (size_t)0));
        }
        EXPECT_EQ(20, blocks);
        call("__cudaUnregisterFatBinary", module);
        EXPECT_EQ(0, call("cudaFree", ptr));
        call("cudaGetLastError");
    }
}

/* A kernel that nvcc -default-stream per-thread calls, with a managed variable;
   dimensions that no kernel may have (H200, driver 580) */
TEST_P(cudart, a_program_with_streams_per_thread)
{
    const std::string ptx =
            ".version 6.0\n.target sm_60\n.address_size 64\n"
            ".global .attribute(.managed) .align 4 .u32 step = 3;\n"
            ".visible .entry fill(.param .u64 fill_0)\n{\n"
            ".reg .b32 %r<6>;\n.reg .b64 %rd<4>;\n"
            "ld.param.u64 %rd0, [fill_0];\nmov.u32 %r1, %tid.x;\n"
            "ld.global.u32 %r2, [step];\nmul.lo.s32 %r3, %r1, %r2;\n"
            "mul.wide.u32 %rd1, %r1, 4;\nadd.s64 %rd2, %rd0, %rd1;\n"
            "st.global.u32 [%rd2], %r3;\nret;\n}\n";
    std::vector<uint64_t> image = fat_binary(ptx, 0x11, 70);
    static unsigned *step;
    static char kernel;
    unsigned long long id[3];
    size_t size;
    unsigned got[64], one = 1;
    const char *name = "";
    void *ptr, *module = load(&image);
    void *args[] = {&ptr};

    add_kernel(module, &kernel, "fill");
    call("__cudaRegisterManagedVar", module, (void**)&step, (char*)"step",
         "step", 0, (size_t)4, 0, 0);
    EXPECT_EQ(13, call("cudaGetSymbolSize", &size, (const void*)nullptr));
    call("__cudaInitModule", module);
    ASSERT_NE(nullptr, step);
    EXPECT_EQ(3u, *step);
    *step = 5;
    ASSERT_EQ(0, call("cudaMalloc", &ptr, sizeof(got)));
    ASSERT_EQ(0, call("cudaMemset_ptds", ptr, 0, sizeof(got)));
    const int error = is_13() ? 1 : 9;
    for (dim3 bad : {dim3{1025, 1, 1}, dim3{0, 1, 1}, dim3{1, 1, 65}}) {
        EXPECT_EQ(error, call("cudaLaunchKernel_ptsz", (const void*)&kernel,
                          dim3{1, 1, 1}, bad, args, (size_t)0, (void*)0));
        for (const char *name :
             {"cudaLaunchKernel", "cudaLaunchCooperativeKernel"}) {
            EXPECT_EQ(error, call(name, (const void*)&kernel, dim3{1, 65536, 1},
                              dim3{1, 1, 1}, args, (size_t)0, (void*)0));
        }
    }
    EXPECT_EQ(error, call("cudaGetLastError"));
    ASSERT_EQ(0, call("cudaLaunchKernel_ptsz", (const void*)&kernel,
                      dim3{1, 1, 1}, dim3{64, 1, 1}, args, (size_t)0,
                      (void*)0));
    ASSERT_EQ(0, call("cudaMemcpyToSymbolAsync_ptsz", (const void*)step,
                      (const void*)&one, (size_t)4, (size_t)0, 1, (void*)0));
    ASSERT_EQ(0, call("cudaMemcpy_ptds", (void*)got, (const void*)ptr,
                      sizeof(got), 2));
    for (unsigned i = 0; i < 64; ++i) {
        EXPECT_EQ(5 * i, got[i]);
    }
    EXPECT_EQ(1u, *step);
    ASSERT_EQ(0, call("cudaStreamGetId", (void*)0, &id[0]));
    ASSERT_EQ(0, call("cudaStreamGetId", (void*)2, &id[1]));
    ASSERT_EQ(0, call("cudaStreamGetId_ptsz", (void*)0, &id[2]));
    EXPECT_NE(id[0], id[2]);
    EXPECT_EQ(id[1], id[2]); /* cudaStreamPerThread */
    EXPECT_EQ(0, call("cudaFuncGetName", &name, (const void*)&kernel));
    EXPECT_STREQ("fill", name);
    call("__cudaUnregisterFatBinary", module);
    EXPECT_EQ(0, call("cudaFree", ptr));
}

/* cudaGraphAdd*Node, other parameters for a node, and for all nodes of a graph
   of the same form */
TEST_P(cudart, a_graph_built_by_hand)
{
    const std::string ptx =
            ".version 6.0\n.target sm_60\n.address_size 64\n"
            ".visible .entry add(.param .u64 add_0, .param .u32 add_1)\n{\n"
            ".reg .b32 %r<6>;\n.reg .b64 %rd<4>;\n"
            "ld.param.u64 %rd0, [add_0];\nld.param.u32 %r0, [add_1];\n"
            "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd1, %r1, 4;\n"
            "add.s64 %rd2, %rd0, %rd1;\nld.global.u32 %r2, [%rd2];\n"
            "add.u32 %r2, %r2, %r0;\nst.global.u32 [%rd2], %r2;\nret;\n}\n";
    std::vector<uint64_t> image = fat_binary(ptx, 0x11, 70);
    struct {
        void    *dst;
        size_t   pitch;
        unsigned value, size;
        size_t   width, height;
    } fill = {nullptr, 0, 100, 4, 32, 1};
    struct {
        void   (*fn)(void*);
        void    *user;
    } host = {[](void *user) { ++*(int*)user; }, nullptr};
    static char kernel;
    unsigned got[32], step = 5;
    int calls = 0, type = -1;
    void *ptr, *module = load(&image), *graph, *other, *exec, *nodes[5];
    void *stream;
    void *args[] = {&ptr, &step};
    struct {
        const void *func;
        unsigned    grid[3], block[3], shared;
        void      **args, **extra;
    } launch = {&kernel, {1, 1, 1}, {32, 1, 1}, 0, args, nullptr};
    struct {
        int   result;
        void *node, *from;
    } info;
    size_t count = 0;

    auto run = [&](void *which) {
        memset(got, 0, sizeof(got));
        EXPECT_EQ(0, call("cudaGraphLaunch", which, stream));
        EXPECT_EQ(0, call("cudaStreamSynchronize", stream));
        return got[31];
    };
    auto build = [&](void **graph_p, bool with_host) {
        EXPECT_EQ(0, call("cudaGraphCreate", graph_p, 0u));
        EXPECT_EQ(0, call("cudaGraphAddMemsetNode", &nodes[0], *graph_p,
                          (void**)nullptr, (size_t)0, (void*)&fill));
        EXPECT_EQ(0, call("cudaGraphAddKernelNode", &nodes[1], *graph_p,
                          &nodes[0], (size_t)1, (void*)&launch));
        EXPECT_EQ(0, call("cudaGraphAddMemcpyNode1D", &nodes[2], *graph_p,
                          &nodes[1], (size_t)1, (void*)got, (const void*)ptr,
                          sizeof(got), 2));
        if (with_host) {
            EXPECT_EQ(0, call("cudaGraphAddHostNode", &nodes[3], *graph_p,
                              &nodes[2], (size_t)1, (void*)&host));
        }
    };

    add_kernel(module, &kernel, "add");
    ASSERT_EQ(0, call("cudaMalloc", &ptr, sizeof(got)));
    ASSERT_EQ(0, call("cudaStreamCreate", &stream));
    fill.dst  = ptr;
    host.user = &calls;
    build(&graph, true);
    EXPECT_EQ(0, call("cudaGraphNodeGetType", nodes[1], &type));
    EXPECT_EQ(0, type);
    EXPECT_EQ(0, call("cudaGraphGetRootNodes", graph, (void**)nullptr, &count));
    EXPECT_EQ(1u, count);
    ASSERT_EQ(0, call("cudaGraphInstantiateWithFlags", &exec, graph, 0ull));
    EXPECT_EQ(105u, run(exec));
    EXPECT_EQ(1, calls);
    for (unsigned enabled : {0, 1}) {
        EXPECT_EQ(0, call("cudaGraphNodeSetEnabled", exec, nodes[1], enabled));
        EXPECT_EQ(100 + step * enabled, run(exec));
    }

    step = 7;
    EXPECT_EQ(0, call("cudaGraphExecKernelNodeSetParams", exec, nodes[1],
                      (void*)&launch));
    EXPECT_EQ(107u, run(exec));
    EXPECT_EQ(1, call("cudaGraphExecKernelNodeSetParams", exec, nodes[0],
                      (void*)&launch));

    fill.value = 200;
    step       = 9;
    build(&other, true);
    EXPECT_EQ(0, call("cudaGraphExecUpdate", exec, other, (void*)&info));
    EXPECT_EQ(0, info.result);
    EXPECT_EQ(209u, run(exec));
    EXPECT_EQ(0, call("cudaGraphDestroy", other));
    build(&other, false);
    EXPECT_EQ(910, call("cudaGraphExecUpdate", exec, other, (void*)&info));
    EXPECT_EQ(2, info.result); /* cudaGraphExecUpdateErrorTopologyChanged */
    EXPECT_EQ(0, call("cudaGraphAddEmptyNode", &nodes[4], other, &nodes[2],
                      (size_t)1));
    EXPECT_EQ(910, call("cudaGraphExecUpdate", exec, other, (void*)&info));
    EXPECT_EQ(3, info.result); /* ... NodeTypeChanged */
    EXPECT_EQ(nodes[4], info.node);
    EXPECT_EQ(209u, run(exec));
    EXPECT_EQ(6, calls);

    EXPECT_EQ(0, call("cudaGraphExecDestroy", exec));
    EXPECT_EQ(0, call("cudaGraphDestroy", other));
    EXPECT_EQ(0, call("cudaGraphDestroy", graph));
    EXPECT_EQ(0, call("cudaStreamDestroy", stream));
    call("__cudaUnregisterFatBinary", module);
    EXPECT_EQ(0, call("cudaFree", ptr));
    call("cudaGetLastError");
}

/* Boxes of bytes: the second and third row of the slices from the second on */
TEST_P(cudart, boxes)
{
    struct box {
        size_t x, y, z;
    };
    struct pitched {
        void  *ptr;
        size_t pitch, xsize, ysize;
    } memory;
    struct {
        void   *src_array;
        box     src_pos;
        pitched src;
        void   *dst_array;
        box     dst_pos;
        pitched dst;
        box     extent;
        int     kind;
    } copy;
    std::vector<unsigned char> in(50 * 4 * 3), out(in.size(), 9);

    for (size_t i = 0; i < in.size(); ++i) {
        in[i] = (unsigned char)i;
    }
    ASSERT_EQ(0, call("cudaMalloc3D", &memory, box{50, 4, 3}));
    EXPECT_EQ(50u, memory.xsize);
    ASSERT_EQ(0, call("cudaMemset3D", memory, 7, box{50, 4, 3}));
    memset(&copy, 0, sizeof(copy));
    copy.src    = pitched{in.data(), 50, 50, 4};
    copy.dst    = memory;
    copy.extent = box{50, 4, 2};
    copy.kind   = 1;
    ASSERT_EQ(0, call("cudaMemcpy3D", (const void*)&copy));
    copy.src     = memory;
    copy.dst     = pitched{out.data(), 50, 50, 4};
    copy.src_pos = copy.dst_pos = box{10, 1, 1};
    copy.extent  = box{30, 2, 2};
    copy.kind    = 2;
    ASSERT_EQ(0, call("cudaMemcpy3DAsync", (const void*)&copy, (void*)0));
    ASSERT_EQ(0, call("cudaDeviceSynchronize"));
    for (size_t i = 0; i < out.size(); ++i) {
        const size_t x = i % 50, y = i / 50 % 4, z = i / 200;
        const bool inside = (x >= 10) && (x < 40) && ((y == 1) || (y == 2));

        EXPECT_EQ(!inside || (z == 0) ? 9 : (z == 1) ? in[i] : 7, out[i]) << i;
    }
    copy.src_array = &copy;
    EXPECT_EQ(801, call("cudaMemcpy3D", (const void*)&copy));
    EXPECT_EQ(0, call("cudaFree", memory.ptr));
    call("cudaGetLastError");
}

/* From cudaStreamBeginCapture to cudaGraphLaunch; mode 0 is global. */
TEST_P(cudart, a_captured_stream_is_a_graph)
{
    const size_t size = 4096;
    std::vector<unsigned char> out(size, 1), expected(size, 0x5a);
    void *ptr, *more, *stream, *graph, *exec;
    int status, relaxed = 2;
    size_t count = 0;

    ASSERT_EQ(0, call("cudaMalloc", &ptr, size));
    ASSERT_EQ(0, call("cudaMemset", ptr, 0, size));
    ASSERT_EQ(0, call("cudaStreamCreateWithFlags", &stream, 1u));
    ASSERT_EQ(0, call("cudaStreamBeginCapture", stream, 0));
    ASSERT_EQ(0, call("cudaMemsetAsync", ptr, 0x5a, size, stream));
    ASSERT_EQ(0, call("cudaThreadExchangeStreamCaptureMode", &relaxed));
    EXPECT_EQ(0, relaxed);
    ASSERT_EQ(0, call("cudaMalloc", &more, size));
    EXPECT_EQ(0, call("cudaStreamIsCapturing", stream, &status));
    EXPECT_EQ(1, status);
    ASSERT_EQ(0, call("cudaStreamEndCapture", stream, &graph));
    ASSERT_EQ(0, call("cudaGraphGetNodes", graph, (void*)0, &count));
    EXPECT_EQ(1u, count);
    ASSERT_EQ(0, call("cudaGraphInstantiate", &exec, graph, 0ull));
    ASSERT_EQ(0, call("cudaGraphLaunch", exec, stream));
    ASSERT_EQ(0, call("cudaStreamSynchronize", stream));
    ASSERT_EQ(0, call("cudaMemcpy", (void*)out.data(), (const void*)ptr, size,
                      2));
    EXPECT_TRUE(out == expected);
    ASSERT_EQ(0, call("cudaThreadExchangeStreamCaptureMode", &relaxed));
    EXPECT_EQ(2, relaxed);

    /* In global mode an allocation breaks the capture */
    ASSERT_EQ(0, call("cudaStreamBeginCapture", stream, 0));
    EXPECT_EQ(900, call("cudaMalloc", &more, size));
    EXPECT_EQ(400, call("cudaEventQuery", (void*)0)); /* H200, driver 580 */
    EXPECT_EQ(901, call("cudaStreamEndCapture", stream, &graph));
    EXPECT_EQ(901, call("cudaGetLastError"));
    EXPECT_EQ(0, call("cudaGraphExecDestroy", exec));
    EXPECT_EQ(0, call("cudaStreamDestroy", stream));
    EXPECT_EQ(0, call("cudaFree", ptr));
}

TEST_P(cudart, device_properties_fit_the_release)
{
    bool old = (strstr(GetParam(), ".so.12") != NULL);
    std::vector<unsigned char> prop(2048, 0x5a);
    size_t size = old ? 1032 : 1008;
    uint64_t memory;
    int sm_count;

    ASSERT_EQ(0, call(old ? "cudaGetDeviceProperties_v2" :
                            "cudaGetDeviceProperties", prop.data(), 0));
    EXPECT_STREQ("Tesla V100-SXM2-16GB", (const char*)prop.data());
    memcpy(&memory, &prop[288], 8);
    EXPECT_EQ(16160ull << 20, memory);
    EXPECT_EQ(7, prop[360]);
    EXPECT_EQ(0, prop[364]);
    memcpy(&sm_count, &prop[old ? 388 : 384], 4);
    EXPECT_EQ(80, sm_count);
    memcpy(&memory, &prop[old ? 696 : 672], 8); /* sharedMemPerBlockOptin */
    EXPECT_EQ(98304u, memory);
    EXPECT_EQ(1, prop[old ? 688 : 668]); /* cooperativeLaunch */
    EXPECT_EQ(32, prop[old ? 712 : 688]); /* maxBlocksPerMultiProcessor */
    EXPECT_NE(0x5a, prop[size - 1]);
    EXPECT_EQ(0x5a, prop[size]);
}

/* Pools trimmed explicitly, as by programs with a cache of their own */
TEST_P(cudart, pools_report_their_memory)
{
    const size_t size  = 8 << 20;
    uint64_t threshold = ~0ull, reserved = 0;
    void *pool, *ptr, *other;

    ASSERT_EQ(0, call("cudaDeviceGetDefaultMemPool", &pool, 0));
    ASSERT_EQ(0, call("cudaDeviceGetMemPool", &other, 0));
    EXPECT_EQ(pool, other);
    /* cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrReservedMemCurrent */
    ASSERT_EQ(0, call("cudaMemPoolSetAttribute", pool, 4, (void*)&threshold));
    ASSERT_EQ(0, call("cudaMallocFromPoolAsync", &ptr, size, pool,
                      (void*)nullptr));
    ASSERT_EQ(0, call("cudaMemPoolGetAttribute", pool, 5, (void*)&reserved));
    EXPECT_LE(size, reserved);
    ASSERT_EQ(0, call("cudaFreeAsync", ptr, (void*)nullptr));
    ASSERT_EQ(0, call("cudaStreamSynchronize", (void*)nullptr));
    ASSERT_EQ(0, call("cudaMemPoolTrimTo", pool, (size_t)0));
    ASSERT_EQ(0, call("cudaMemPoolGetAttribute", pool, 5, (void*)&reserved));
    EXPECT_EQ(0u, reserved);
    EXPECT_EQ(101, call("cudaDeviceGetMemPool", &other, 99));
    EXPECT_EQ(101, call("cudaGetLastError"));
}

/* cudaMemPoolProps, for descriptors */
TEST_P(cudart, pools_are_exported)
{
    struct {
        int      type, handles, where, id;
        void    *attributes;
        uint64_t rest[8];
    } props = {1, 1, 1, 0, nullptr, {0}};
    void *pool, *other, *ptr, *no_stream = nullptr;
    char data[64];
    int fd = -1;

    ASSERT_EQ(0, call("cudaMemPoolCreate", &pool, &props));
    ASSERT_EQ(0, call("cudaMallocFromPoolAsync", &ptr, (size_t)4096, pool,
                      no_stream));
    EXPECT_EQ(0, call("cudaMemPoolExportToShareableHandle", &fd, pool, 1, 0u));
    EXPECT_LE(0, fd);
    EXPECT_EQ(0, call("cudaMemPoolExportPointer", data, ptr));
    EXPECT_EQ(0, call("cudaMemPoolImportFromShareableHandle", &other,
                      (void*)(intptr_t)fd, 1, 0u));
    EXPECT_EQ(0, call("cudaMemPoolDestroy", other));
    close(fd);
    EXPECT_EQ(0, call("cudaFreeAsync", ptr, no_stream));
    EXPECT_EQ(0, call("cudaMemPoolDestroy", pool));
}

/* Pageable memory where the kind names device memory is refused; page-locked,
   managed and device memory are taken by either name (H200, driver 580). */
TEST_P(cudart, copies_need_a_kind_that_fits)
{
    enum { host_to_host, to_device, to_host, on_device };
    static char pageable[64];
    void *device, *managed, *locked;
    const size_t size = 4;

    ASSERT_EQ(0, call("cudaMalloc", &device, (size_t)64));
    ASSERT_EQ(0, call("cudaMallocManaged", &managed, (size_t)64, 1u));
    ASSERT_EQ(0, call("cudaMallocHost", &locked, (size_t)64));

    auto expect = [&](int error, void *dst, const void *src, int kind) {
        EXPECT_EQ(error, call("cudaMemcpy", dst, src, size, kind)) << kind;
        EXPECT_EQ(error, call("cudaMemcpyAsync", dst, src, size, kind,
                              (void*)nullptr)) << kind;
        EXPECT_EQ(error, call("cudaMemcpy2D", dst, size, src, size, size,
                              (size_t)1, kind)) << kind;
    };
    for (void *known : {device, managed, locked}) {
        for (int kind : {host_to_host, to_device, to_host, on_device}) {
            expect(0, known, device, kind);
            expect(0, device, known, kind);
            expect((kind == to_device) || (kind == on_device), pageable, known,
                   kind);
            expect((kind == to_host) || (kind == on_device), known, pageable,
                   kind);
        }
    }
    expect(1, pageable, pageable + 8, on_device);
    expect(0, pageable, pageable + 8, host_to_host);

    /* no memory at all; beyond the end */
    expect(1, nullptr, device, to_host);
    expect(1, device, nullptr, to_device);
    expect(1, (void*)0x10, device, on_device);
    expect(1, device, (void*)0x10, on_device);
    expect(1, pageable, (char*)device + 62, to_host);
    EXPECT_EQ(0, call("cudaMemcpy", (void*)0, (const void*)0, (size_t)0, 4));

    EXPECT_EQ(0, call("cudaFree", device));
    EXPECT_EQ(0, call("cudaFree", managed));
    EXPECT_EQ(0, call("cudaFreeHost", locked));
    EXPECT_EQ(1, call("cudaGetLastError"));
}

/* Rows of a wider array: a halo */
TEST_P(cudart, rows_are_copied_and_filled_by_their_pitch)
{
    const size_t pitch = 512, width = 77, height = 9;
    std::vector<unsigned char> out(width * height), all(pitch * height);
    std::vector<unsigned char> expected(pitch * height, 5);
    void *ptr, *stream;

    for (size_t row = 0; row < height; ++row) {
        memset(&expected[row * pitch + 3], 9, width);
    }

    ASSERT_EQ(0, call("cudaStreamCreate", &stream));
    ASSERT_EQ(0, call("cudaMalloc", &ptr, pitch * height));
    ASSERT_EQ(0, call("cudaMemset", ptr, 5, pitch * height));
    ASSERT_EQ(0, call("cudaMemset2D", (void*)((char*)ptr + 3), pitch, 9, width,
                      height));
    ASSERT_EQ(0, call("cudaMemcpy", (void*)all.data(), ptr, all.size(), 4));
    EXPECT_EQ(expected, all);
    ASSERT_EQ(0, call("cudaMemcpy2D", (void*)out.data(), width,
                      (void*)((char*)ptr + 3), pitch, width, height, 4));
    EXPECT_EQ(std::vector<unsigned char>(width * height, 9), out);

    ASSERT_EQ(0, call("cudaMemset2DAsync", ptr, pitch, 5, pitch, height,
                      stream));
    out.assign(width * height, 7);
    ASSERT_EQ(0, call("cudaMemcpy2DAsync", (void*)((char*)ptr + 1), pitch,
                      (void*)out.data(), width, width, height - 1, 1, stream));
    ASSERT_EQ(0, call("cudaStreamSynchronize", stream));
    ASSERT_EQ(0, call("cudaMemcpy", (void*)all.data(), ptr, all.size(), 4));
    expected.assign(pitch * height, 5);
    for (size_t row = 0; row + 1 < height; ++row) {
        memset(&expected[row * pitch + 1], 7, width);
    }
    EXPECT_EQ(expected, all);

    /* cudaErrorInvalidPitchValue */
    EXPECT_EQ(12, call("cudaMemcpy2D", (void*)out.data(), width - 1, ptr, pitch,
                       width, height, 4));
    EXPECT_EQ(12, call("cudaGetLastError"));
    EXPECT_EQ(0, call("cudaMemcpy2D", (void*)out.data(), width, ptr, pitch,
                      (size_t)0, height, 4));
    EXPECT_EQ(0, call("cudaFree", ptr));
    EXPECT_EQ(0, call("cudaStreamDestroy", stream));
}

/* Arguments of hints are checked, although the hints have no effect. */
TEST_P(cudart, hints_for_managed_memory)
{
    void *ptr = nullptr, *none = nullptr, *plain = nullptr;
    size_t size   = 4096;
    struct {
        int type, id;
    } place = {1, 0}, far = {1, 99};

    ASSERT_EQ(0, call("cudaMallocManaged", &ptr, size, 1u));
    ASSERT_EQ(0, call("cudaMalloc", &plain, size));
    if (is_13()) {
        EXPECT_EQ(1, call("cudaMemAdvise", plain, size, 1, place));
        EXPECT_EQ(0, call("cudaMemPrefetchAsync", ptr, size, place, 0u, none));
        EXPECT_EQ(101, call("cudaMemPrefetchAsync", ptr, size, far, 0u, none));
        EXPECT_EQ(0, call("cudaMemAdvise", ptr, size, 1, place));
        EXPECT_EQ(1, call("cudaMemAdvise", ptr, size, -1, place));
    } else {
        EXPECT_EQ(0, call("cudaMemPrefetchAsync", ptr, size, 0, none));
        EXPECT_EQ(0, call("cudaMemPrefetchAsync", ptr, size, -1, none));
        EXPECT_EQ(101, call("cudaMemPrefetchAsync", ptr, size, 99, none));
        EXPECT_EQ(0, call("cudaMemAdvise", ptr, size, 1, 0));
        EXPECT_EQ(1, call("cudaMemAdvise", ptr, size, -1, 0));
        EXPECT_EQ(1, call("cudaMemPrefetchAsync", plain, size, 0, none));
    }
    EXPECT_EQ(0, call("cudaFree", plain));
    EXPECT_EQ(0, call("cudaFree", ptr));
}

/* Functions without an implementation print their name and return "not
   supported" */
TEST_P(cudart, lacking_functions_are_named)
{
    testing::internal::CaptureStderr();
    EXPECT_EQ(801, call("cudaMallocArray"));
    EXPECT_EQ(801, call("cudaMallocArray"));
    std::string text = testing::internal::GetCapturedStderr();

    size_t first = text.find("has no cudaMallocArray");
    EXPECT_NE(std::string::npos, first) << text;
    EXPECT_EQ(std::string::npos, text.find("cudaMallocArray", first + 30));
}

INSTANTIATE_TEST_SUITE_P(
        libs, cudart,
        ::testing::Values("libcudart.so.12", "libcudart.so.13",
                          "libcudart-256e6409.so.12.9.79",
                          "libcudart-9f92e4c3.so.13.3.29"));
