/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The emulated CUDA runtime, as a program loads it. The functions are declared
 * here: there is a library of CUDA 12 and one of CUDA 13 to look at.
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
    /* a node of one's own: nobody else's copies are on its links. The driver
       makes the folder, and removes it with its last process. */
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

        /* its libcuda.so.1 by path: this program has no LD_LIBRARY_PATH */
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

    void *m_handle;
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
    /* two copies of 3 MiB at 48 GB/s: 131 us and what they cost beside that */
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

TEST_P(cudart, pointers_tell_what_they_are)
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

    /* the program's structure of CUDA 12 is shorter: nothing behind it */
    if (strstr(GetParam(), ".so.12") != NULL) {
        memset(&attr, 0x5a, sizeof(attr));
        ASSERT_EQ(0, call("cudaPointerGetAttributes", &attr, (const void*)dev));
        EXPECT_EQ(0x5a5a5a5a5a5a5a5al, attr.reserved[0]);
    }

    memset(managed, 1, 4096); /* a CPU may */
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
}

TEST_P(cudart, kernels_are_refused_and_symbols_known)
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
    EXPECT_NE(0x5a, prop[size - 1]);
    EXPECT_EQ(0x5a, prop[size]);
}

INSTANTIATE_TEST_SUITE_P(
        libs, cudart,
        ::testing::Values("libcudart.so.12", "libcudart.so.13",
                          "libcudart-256e6409.so.12.9.79",
                          "libcudart-9f92e4c3.so.13.3.29"));
