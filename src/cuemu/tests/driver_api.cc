/* SPDX-License-Identifier: BSD-3-Clause */

/* Tests of the driver's functions: their results, and the order of their
   effects. */
#include "driver_fixture.h"

#include <cfenv>
#include <set>
#include <thread>

#include <dlfcn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

TEST_F(driver, nothing_before_init)
{
    run(1, [](int) {
        int count, version;

        EXPECT_EQ(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
        CU_OK(cuDriverGetVersion(&version));
        EXPECT_GE(version, 12000);
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuInit(1));
        CU_OK(cuInit(0));
        CU_OK(cuDeviceGetCount(&count));
        EXPECT_EQ(4, count);
    });
}

TEST_F(driver, missing_node)
{
    setenv("CUEMU_NODE", "no-such-node", 1);
    run(1, [](int) { EXPECT_EQ(CUDA_ERROR_NO_DEVICE, cuInit(0)); });
    setenv("CUEMU_NODE", "beluga", 1);
    setenv("CUEMU_SLOWDOWN", "fast", 1);
    run(1, [](int) { EXPECT_EQ(CUDA_ERROR_NO_DEVICE, cuInit(0)); });
}

TEST_F(driver, child_of_fork_is_refused)
{
    run(1, [this](int) {
        use(0);
        CUdeviceptr ptr = alloc(MiB);
        pid_t pid       = fork();
        if (pid == 0) {
            CUdeviceptr other;
            _exit(cuMemAlloc(&other, MiB) != CUDA_ERROR_NOT_INITIALIZED);
        }
        EXPECT_EQ(0, finish(pid));
        CU_OK(cuMemFree(ptr));
    });
}

TEST_F(driver, visible_devices)
{
    struct {
        const char *env;
        int         count;
    } cases[] = {{"2,0", 2}, {"1", 1}, {"0,9,1", 1}, {"", 0}, {"0,0", 0},
                 {"-1", 0}};

    for (auto &c : cases) {
        setenv("CUDA_VISIBLE_DEVICES", c.env, 1);
        run(1, [&](int) {
            int count = 0;
            EXPECT_EQ((c.count > 0) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE,
                      cuInit(0)) << c.env;
            if (c.count > 0) {
                CU_OK(cuDeviceGetCount(&count));
                EXPECT_EQ(c.count, count) << c.env;
            }
        });
    }

    /* device 0 of "2,0" is the third GPU of the node */
    CUuuid first[2];
    auto uuids = (CUuuid*)m_shared->value;
    const char *envs[] = {"0,1,2,3", "2,0"};
    for (int i = 0; i < 2; ++i) {
        setenv("CUDA_VISIBLE_DEVICES", envs[i], 1);
        run(1, [&](int) {
            CU_OK(cuInit(0));
            CU_OK(cuDeviceGetUuid(&uuids[0], (i == 0) ? 2 : 0));
        });
        first[i] = uuids[0];
    }
    EXPECT_EQ(0, memcmp(&first[0], &first[1], sizeof(CUuuid)));
}

TEST_F(driver, context_rules)
{
    run(1, [](int) {
        CUcontext ctx, current;
        CUdeviceptr ptr;
        unsigned flags;
        CUdevice device;
        int active;

        CU_OK(cuInit(0));
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&ptr, 1));
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(&ctx));
        EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 4));
        CU_OK(cuCtxGetCurrent(&current));
        EXPECT_EQ(nullptr, current);

        CU_OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
        EXPECT_EQ(0, active);
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(1));
        CU_OK(cuDevicePrimaryCtxRetain(&ctx, 1));
        CU_OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
        EXPECT_EQ(1, active);
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&ptr, 1));
        CU_OK(cuCtxPushCurrent(ctx));
        CU_OK(cuCtxGetDevice(&device));
        EXPECT_EQ(1, device);

        unsigned long long id[2];
        CU_OK(cuCtxGetId(nullptr, &id[0]));
        CU_OK(cuDevicePrimaryCtxRelease(1));
        EXPECT_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&ptr, 1));
        CU_OK(cuDevicePrimaryCtxRetain(&ctx, 1));
        CU_OK(cuCtxSetCurrent(ctx));
        CU_OK(cuCtxGetId(nullptr, &id[1]));
        EXPECT_NE(id[0], id[1]);

        CUcontext created = create_context(2);
        CU_OK(cuCtxGetDevice(&device));
        EXPECT_EQ(2, device);
        CU_OK(cuCtxDestroy(created));
        CU_OK(cuCtxGetCurrent(&current));
        EXPECT_EQ(ctx, current);
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
                  cuCtxPushCurrent((CUcontext)&active));
    });
}

TEST_F(driver, bad_arguments)
{
    run(1, [](int) {
        CUcontext peer = use(1), ctx = use(0);
        CUdeviceptr a = alloc(8192), big = alloc(4 * MiB);
        CUdeviceptr ptr;
        std::vector<char> host(8192);
        CUstream s = stream();
        CUevent e  = event();
        int dummy, can;

        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&ptr, 0));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(nullptr, 1));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree(a + 1));
        CU_OK(cuMemFree(0));

        /* beyond the end; no device memory; host memory declared as device
           memory */
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemcpyHtoD(big + 4 * MiB - 10, host.data(), 11));
        CU_OK(cuMemcpyHtoD(big + 4 * MiB - 10, host.data(), 10));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemcpyHtoD(big + 64 * MiB, host.data(), 1));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemcpyDtoD(a, (CUdeviceptr)(uintptr_t)host.data(), 8));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemsetD8((CUdeviceptr)(uintptr_t)host.data(), 0, 8));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32(a + 2, 0, 1));

        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize((CUstream)e));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery((CUevent)s));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventQuery((CUevent)&dummy));
        CU_OK(cuStreamDestroy(s));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                  cuMemcpyAsync(a, big, 8, s));
        CU_OK(cuEventDestroy(e));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(e, nullptr));

        CU_OK(cuDeviceCanAccessPeer(&can, 0, 1));
        EXPECT_EQ(1, can);
        CU_OK(cuCtxEnablePeerAccess(peer, 0));
        EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
                  cuCtxEnablePeerAccess(peer, 0));
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess(ctx, 0));
        CU_OK(cuCtxDisablePeerAccess(peer));
        EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
                  cuCtxDisablePeerAccess(peer));

        const char *text = nullptr;
        CU_OK(cuGetErrorName(CUDA_ERROR_INVALID_HANDLE, &text));
        EXPECT_STREQ("CUDA_ERROR_INVALID_HANDLE", text);
        CU_OK(cuGetErrorString(CUDA_ERROR_LAUNCH_FAILED, &text));
        EXPECT_STREQ("unspecified launch failure", text);
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuGetErrorString((CUresult)12345, &text));
        EXPECT_EQ(nullptr, text);
    });
}

TEST_F(driver, host_memory)
{
    run(1, [](int) {
        std::vector<char> buffer(1 << 20);
        char *ptr = buffer.data() + 4096;
        CUdeviceptr dptr;
        unsigned type;

        use(0);
        CUdeviceptr dev = alloc(65536);
        CU_OK(cuMemHostRegister(ptr, 65536, CU_MEMHOSTREGISTER_PORTABLE));
        EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                  cuMemHostRegister(ptr, 65536, 0));
        EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                  cuMemHostRegister(ptr + 60000, 65536, 0));
        CU_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    (CUdeviceptr)(uintptr_t)(ptr + 5)));
        EXPECT_EQ((unsigned)CU_MEMORYTYPE_HOST, type);
        /* half of the range is registered: its beginning decides */
        CU_OK(cuMemcpyAsync(dev, (CUdeviceptr)(uintptr_t)(ptr - 4096), 8192,
                            nullptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemcpyAsync(dev, (CUdeviceptr)(uintptr_t)(ptr + 61440),
                                8192, nullptr));
        CU_OK(cuMemHostUnregister(ptr));
        EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                  cuMemHostUnregister(ptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        (CUdeviceptr)(uintptr_t)ptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemHostRegister((void*)(uintptr_t)dev, 4096, 0));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuMemHostRegister((void*)(uintptr_t)0x5000, 4096, 0));

        char *pin = (char*)pinned(10000);
        memset(pin, 1, 10000);
        CU_OK(cuMemHostGetDevicePointer(&dptr, pin, 0));
        EXPECT_EQ((CUdeviceptr)(uintptr_t)pin, dptr);
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pin + 1));
        CU_OK(cuMemFreeHost(pin));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pin));
    });
}

TEST_F(driver, pointer_attributes)
{
    run(1, [](int) {
        CUcontext ctx = use(1), got = nullptr;
        CUdeviceptr dev = alloc(4 * MiB), managed, base;
        unsigned type, is_managed;
        int ordinal, legacy;
        uint64_t handles;
        size_t size;
        CUpointer_attribute attrs[] = {
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES
        };
        void *data[] = {&type, &is_managed, &ordinal, &got, &legacy, &handles};

        CU_OK(cuPointerGetAttributes(6, attrs, data, dev + 12345));
        EXPECT_EQ((unsigned)CU_MEMORYTYPE_DEVICE, type);
        EXPECT_EQ(0u, is_managed);
        EXPECT_EQ(1, ordinal);
        EXPECT_EQ(ctx, got);
        EXPECT_EQ(1, legacy);
        EXPECT_EQ(0u, handles);
        CU_OK(cuMemGetAddressRange(&base, &size, dev + 4 * MiB - 1));
        EXPECT_EQ(dev, base);
        EXPECT_EQ(4 * MiB, size);
        CU_OK(cuCtxSetCurrent(nullptr));
        EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT,
                  cuMemGetAddressRange(&base, &size, dev));
        CU_OK(cuPointerGetAttributes(6, attrs, data, dev));
        EXPECT_EQ((unsigned)CU_MEMORYTYPE_DEVICE, type);
        CU_OK(cuCtxSetCurrent(ctx));

        CU_OK(cuMemAllocManaged(&managed, 8192, CU_MEM_ATTACH_GLOBAL));
        memset((void*)(uintptr_t)managed, 7, 8192);
        CU_OK(cuPointerGetAttributes(6, attrs, data, managed));
        EXPECT_EQ(1u, is_managed);
        EXPECT_EQ((unsigned)CU_MEMORYTYPE_DEVICE, type);
        CU_OK(cuMemcpyDtoD(dev, managed, 8192));
        EXPECT_EQ(0x07070707u, get(dev, 8192)[2047]);
        CU_OK(cuMemFree(managed));

        /* unknown to the driver: no error, zeros */
        CU_OK(cuPointerGetAttributes(6, attrs, data,
                                     (CUdeviceptr)(uintptr_t)&size));
        EXPECT_EQ(0u, type);
        EXPECT_EQ(nullptr, got);
        EXPECT_EQ(-2, ordinal);

        CU_OK(cuMemFree(dev));
        CU_OK(cuPointerGetAttributes(6, attrs, data, dev));
        EXPECT_EQ(0u, type);
        EXPECT_EQ(CUDA_ERROR_NOT_FOUND,
                  cuMemGetAddressRange(&base, &size, dev));
    });
}

TEST_F(driver, out_of_memory)
{
    setenv("CUEMU_GPU_MEMORY", "64M", 1);
    run(1, [](int) {
        size_t free_bytes, total;
        CUdeviceptr a, b, c;

        use(0);
        CU_OK(cuMemGetInfo(&free_bytes, &total));
        EXPECT_EQ(64 * MiB, total);
        /* nothing to tell: a real GPU has no room either */
        testing::internal::CaptureStderr();
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&a, 65 * MiB));
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&a, (size_t)1 << 50));
        EXPECT_EQ("", testing::internal::GetCapturedStderr());
        CU_OK(cuMemAlloc(&a, 32 * MiB));
        CU_OK(cuMemAlloc(&b, 32 * MiB));
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&c, 1));
        /* limits of other GPUs are their own */
        use(1);
        CU_OK(cuMemAlloc(&c, 64 * MiB));
        CU_OK(cuMemFree(a));
        use(0);
        CU_OK(cuMemAlloc(&a, 30 * MiB));
    });
}

/* Mount a file system for this process alone; false: it has no right to. */
static bool mount_small(const std::string &dir, const char *size)
{
    if ((unshare(CLONE_NEWNS) != 0) ||
        (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ||
        (mount("tmpfs", dir.c_str(), "tmpfs", 0, size) != 0)) {
        printf("not tried: no right to mount a file system\n");
        return false;
    }
    return true;
}

/* The GPUs' memory is larger than the file system of their files. */
TEST_F(driver, full_file_system)
{
    std::string dir = m_dir + "/small";

    ASSERT_EQ(0, mkdir(dir.c_str(), 0700));
    setenv("CUEMU_SESSION", dir.c_str(), 1);
    run(1, [&](int) {
        if (!mount_small(dir, "size=64m")) {
            return;
        }

        CUdeviceptr ptr;
        use(0);
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&ptr, 80 * MiB));
        /* each fits alone, both do not: writing to them fails */
        CUdeviceptr a = alloc(40 * MiB), b = alloc(40 * MiB);
        CU_OK(cuMemsetD8(a, 1, 40 * MiB));
        (void)cuMemsetD8(b, 1, 40 * MiB);
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSynchronize());
        /* pointers can still be queried, and memory can be freed */
        CUmemorytype type;
        CU_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    a));
        EXPECT_EQ(CU_MEMORYTYPE_DEVICE, type);
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemcpyHtoD(a, &type, 4));
        CU_OK(cuMemFree(a));
    });
}

/* Too small for the session itself: an error message, and no GPU */
TEST_F(driver, tiny_file_system)
{
    std::string dir = m_dir + "/tiny";

    ASSERT_EQ(0, mkdir(dir.c_str(), 0700));
    setenv("CUEMU_SESSION", dir.c_str(), 1);
    run(1, [&](int) {
        if (!mount_small(dir, "size=64k")) {
            return;
        }

        EXPECT_NE(CUDA_SUCCESS, cuInit(0));
    });
}

/* The kernel ends a process that exceeds RLIMIT_FSIZE. */
TEST_F(driver, limit_of_file_sizes)
{
    std::string dir = m_dir + "/limited";

    ASSERT_EQ(0, mkdir(dir.c_str(), 0700));
    setenv("CUEMU_SESSION", dir.c_str(), 1);
    run(1, [&](int) {
        const struct rlimit limit = {1 << 20, 1 << 20};

        ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &limit));
        EXPECT_NE(CUDA_SUCCESS, cuInit(0));
    });
}

/* The size of a session's state stands behind its magic number. */
TEST_F(driver, session_of_another_version)
{
    run(1, [](int) { CU_OK(cuInit(0)); });
    for (off_t size : {512, -1024}) {
        std::string path = m_dir + "/state";
        int fd           = open(path.c_str(), O_RDWR);
        uint64_t bytes;
        struct stat st;

        ASSERT_EQ(0, fstat(fd, &st));
        bytes = st.st_size + size;
        ASSERT_EQ(0, ftruncate(fd, bytes));
        ASSERT_EQ((ssize_t)sizeof(bytes),
                  pwrite(fd, &bytes, sizeof(bytes), sizeof(uint64_t)));
        close(fd);
        run(1, [](int) { EXPECT_NE(CUDA_SUCCESS, cuInit(0)); });
    }
}

TEST_F(driver, faults_on_demand)
{
    setenv("CUEMU_FAULT", "cuMemAlloc:2:2,cuStreamCreate:1:801,junk", 1);
    run(1, [](int) {
        CUdeviceptr ptr;
        CUstream s;

        use(0);
        CU_OK(cuMemAlloc(&ptr, 4096));
        EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&ptr, 4096));
        CU_OK(cuMemAlloc(&ptr, 4096));
        EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuStreamCreate(&s, 0));
        CU_OK(cuStreamCreate(&s, 0));
    });
}

extern "C" int cuemu_fault(const char *faults);
extern "C" unsigned long long cuemu_calls(const char *name);
extern "C" const char *cuemu_census(char *text, size_t size);

TEST_F(driver, faults_from_now_on)
{
    setenv("CUEMU_FAULT", "cuMemAlloc:1:2", 1);
    run(1, [](int) {
        CUdeviceptr ptr;

        use(0);
        EXPECT_EQ(0u, cuemu_calls("cuMemAlloc"));
        EXPECT_EQ(0, cuemu_fault("cuMemAlloc:2:999"));
        CU_OK(cuMemAlloc(&ptr, 4096));
        EXPECT_EQ(CUDA_ERROR_UNKNOWN, cuMemAlloc(&ptr, 4096));
        EXPECT_EQ(0, cuemu_fault("cuMemAlloc:1:999"));
        EXPECT_EQ(CUDA_ERROR_UNKNOWN, cuMemAlloc(&ptr, 4096));
        EXPECT_EQ(0, cuemu_fault("cuMemAlloc:1:999"));
        EXPECT_EQ(0, cuemu_fault(nullptr));
        CU_OK(cuMemAlloc(&ptr, 4096));
        EXPECT_EQ(4u, cuemu_calls("cuMemAlloc"));
        EXPECT_EQ(-1, cuemu_fault("cuMemAlloc:0:999"));
    });
}

TEST_F(driver, census)
{
    run(1, [](int) {
        char before[512], during[512], after[512];
        CUcontext ctx = use(0), top;
        CUdeviceptr ptr;
        CUstream s;
        CUevent e;

        cuemu_census(before, sizeof(before));
        s   = stream();
        e   = event();
        ptr = alloc(MiB);
        CU_OK(cuCtxPushCurrent(ctx));
        use(1);
        cuemu_census(during, sizeof(during));
        EXPECT_NE(nullptr, strstr(during, "contexts=2 streams=3 events=1 "))
                << during; /* each context has a stream of its own */
        EXPECT_NE(nullptr, strstr(during, " device=1/0 ")) << during;
        EXPECT_NE(nullptr, strstr(during, " retained.1=1 ")) << during;
        EXPECT_NE(nullptr, strstr(during, " current=2")) << during;
        CU_OK(cuDevicePrimaryCtxRelease(1));
        CU_OK(cuCtxPopCurrent(&top));
        CU_OK(cuMemFree(ptr));
        CU_OK(cuStreamDestroy(s));
        CU_OK(cuEventDestroy(e));
        EXPECT_STREQ(before, cuemu_census(after, sizeof(after)));
    });
}

TEST_F(driver, stream_keeps_order)
{
    run(1, [](int) {
        const size_t size = 4 * MiB;
        use(0);
        CUdeviceptr a = alloc(size), b = alloc(size), c = alloc(size);
        CUstream s    = stream();

        for (uint32_t i = 0; i < 20; ++i) {
            CU_OK(cuMemsetD32Async(a, i, size / 4, s));
            CU_OK(cuMemcpyAsync((i & 1) ? b : c, a, size, s));
        }
        CU_OK(cuStreamSynchronize(s));
        EXPECT_EQ(std::vector<uint32_t>(size / 4, 19), get(b, size));
        EXPECT_EQ(std::vector<uint32_t>(size / 4, 18), get(c, size));
    });
}

TEST_F(driver, default_stream_orders_blocking_streams)
{
    run(1, [](int) {
        const size_t size = 16 * MiB;
        CUstream blocking, free_running;
        CUdeviceptr a, b;
        uint32_t value;

        use(0);
        a = alloc(size);
        b = alloc(size);
        CU_OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
        CU_OK(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
        for (CUstream s : {blocking, free_running}) {
            bool waits = (s == blocking);
            CU_OK(cuMemsetD32(a, 1, size / 4));
            CU_OK(cuMemsetD32(b, 1, size / 4));
            CU_OK(cuCtxSynchronize());
            /* a long fill in the stream, then a short one in the default
               stream */
            CU_OK(cuMemsetD32Async(a, 2, size / 4, s));
            CU_OK(cuMemcpyDtoH(&value, a, 4));
            EXPECT_EQ(waits ? 2u : 1u, value);
            CU_OK(cuStreamSynchronize(s));
            /* and the other way round */
            CU_OK(cuMemsetD32Async(b, 3, size / 4, nullptr));
            CU_OK(cuMemcpyAsync(a, b, 4, s));
            CU_OK(cuStreamSynchronize(s));
            CU_OK(cuCtxSynchronize());
            CU_OK(cuMemcpyDtoH(&value, a, 4));
            EXPECT_EQ(waits ? 3u : 1u, value);
        }
    });
}

TEST_F(driver, events)
{
    run(1, [](int) {
        const size_t size = 32 * MiB;
        auto [src, dst]   = link(size);
        CUstream s        = stream();
        CUevent begin = event(), end = event();
        CUevent untimed = event(CU_EVENT_DISABLE_TIMING), other;
        float ms;

        CU_OK(cuEventQuery(end)); /* never recorded: does not wait */
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                  cuEventElapsedTime(&ms, begin, end));
        CU_OK(cuEventRecord(begin, s));
        CU_OK(cuMemcpyAsync(dst, src, size, s));
        CU_OK(cuEventRecord(end, s));
        CU_OK(cuEventRecord(untimed, s));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(end));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, begin, end));
        while (cuEventQuery(end) == CUDA_ERROR_NOT_READY) {
        }
        CU_OK(cuEventQuery(end));
        CU_OK(cuEventElapsedTime(&ms, begin, end));
        EXPECT_GE(ms * 1e-3, size / (BELUGA_LINK * 1e9));
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
                  cuEventElapsedTime(&ms, begin, untimed));

        /* an event of another context cannot be recorded in this stream */
        use(1);
        other = event();
        EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(other, s));
        /* but a stream may wait for it */
        CU_OK(cuEventRecord(other, nullptr));
        CU_OK(cuStreamWaitEvent(s, other, 0));
        CU_OK(cuStreamSynchronize(s));
    });
}

struct call_t {
    std::atomic<int> done{0};
    uint32_t        *seen = nullptr;
    uint32_t         value = 0;
    CUresult         inner = CUDA_SUCCESS;
};

static void CUDA_CB on_host(void *arg)
{
    call_t *call = (call_t*)arg;
    int count;

    call->value = call->seen[0];
    call->inner = cuDeviceGetCount(&count);
    call->done  = 1;
}

static void CUDA_CB on_stream(CUstream, CUresult status, void *arg)
{
    ((call_t*)arg)->inner = status;
    ((call_t*)arg)->done  = 1;
}

TEST_F(driver, host_functions_run_in_their_turn)
{
    run(1, [](int) {
        const size_t size = 4 * MiB;
        use(0);
        CUdeviceptr src = alloc(size);
        uint32_t *dst   = (uint32_t*)pinned(size);
        CUstream s      = stream();
        call_t first, second;

        CU_OK(cuMemsetD32(src, 77, size / 4));
        CU_OK(cuCtxSynchronize());
        dst[0]     = 1;
        first.seen = dst;
        CU_OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)dst, src, size, s));
        CU_OK(cuLaunchHostFunc(s, on_host, &first));
        CU_OK(cuStreamAddCallback(s, on_stream, &second, 0));
        EXPECT_EQ(0, first.done);
        /* no thread waits in the driver: the callback runs nevertheless */
        for (int i = 0; (i < 5000) && !second.done; ++i) {
            usleep(1000);
        }
        EXPECT_EQ(1, first.done);
        EXPECT_EQ(1, second.done);
        EXPECT_EQ(77u, first.value);
        EXPECT_EQ(CUDA_ERROR_NOT_PERMITTED, first.inner);
        EXPECT_EQ(CUDA_SUCCESS, second.inner);
    });
}

/* Fortran programs are often built with -ffpe-trap=invalid,zero,overflow */
TEST_F(driver, the_first_call_raises_no_floating_point_exception)
{
    run(1, [](int) {
        feclearexcept(FE_ALL_EXCEPT);
        CU_OK(cuInit(0));
        EXPECT_EQ(0, fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW));
    });
}

TEST_F(driver, many_threads_and_streams)
{
    run(1, [](int) {
        CUcontext ctx = use(0);
        std::vector<std::thread> threads;
        std::atomic<int> wrong{0};

        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&, t]() {
                const size_t size = 256 * 1024;
                EXPECT_EQ(CUDA_SUCCESS, cuCtxSetCurrent(ctx));
                CUstream s    = stream();
                CUdeviceptr a = alloc(size), b = alloc(size);
                uint32_t *host = (uint32_t*)pinned(size);
                for (uint32_t i = 0; i < 50; ++i) {
                    uint32_t value = i * 16 + t;
                    cuMemsetD32Async(a, value, size / 4, s);
                    cuMemcpyAsync(b, a, size, s);
                    cuMemcpyAsync((CUdeviceptr)(uintptr_t)host, b, size, s);
                    cuStreamSynchronize(s);
                    wrong += (host[0] != value) ||
                             (host[size / 4 - 1] != value);
                }
                cuMemFree(a);
                cuMemFree(b);
                cuMemFreeHost(host);
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        EXPECT_EQ(0, wrong);
    });
}

TEST_F(driver, pitched_copies)
{
    run(1, [](int) {
        use(0);
        CUdeviceptr dev;
        size_t pitch;
        CUDA_MEMCPY2D copy = {};
        std::vector<uint8_t> in(100 * 30), out(100 * 30);

        std::iota(in.begin(), in.end(), 0);
        CU_OK(cuMemAllocPitch(&dev, &pitch, 100, 30, 4));
        EXPECT_EQ(0u, pitch % 512);
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost       = in.data();
        copy.srcPitch      = 100;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice     = dev;
        copy.dstPitch      = pitch;
        copy.WidthInBytes  = 100;
        copy.Height        = 30;
        CU_OK(cuMemcpy2D(&copy));
        EXPECT_EQ(in[2900], (uint8_t)get(dev + 29 * pitch, 4)[0]);

        CUDA_MEMCPY2D back = {};
        back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        back.srcDevice     = dev;
        back.srcPitch      = pitch;
        back.srcXInBytes   = 10;
        back.srcY          = 2;
        back.dstMemoryType = CU_MEMORYTYPE_HOST;
        back.dstHost       = out.data();
        back.dstPitch      = 50;
        back.WidthInBytes  = 50;
        back.Height        = 20;
        CU_OK(cuMemcpy2D(&back));
        EXPECT_EQ(in[2 * 100 + 10], out[0]);
        EXPECT_EQ(in[21 * 100 + 59], out[19 * 50 + 49]);
    });
}

TEST_F(driver, graph_of_a_relay)
{
    run(1, [](int) {
        const size_t size = 8 * MiB;
        CUcontext ctx[3]  = {use(0), use(1), use(2)};
        CUdeviceptr buf[3], src2, dst2;

        for (int i = 0; i < 3; ++i) {
            CU_OK(cuCtxSetCurrent(ctx[i]));
            buf[i] = alloc(size);
            for (int k = 0; k < 3; ++k) {
                if (k != i) {
                    CU_OK(cuCtxEnablePeerAccess(ctx[k], 0));
                }
            }
        }
        dst2 = alloc(size);
        CU_OK(cuCtxSetCurrent(ctx[0]));
        src2 = alloc(size);

        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode hop[2], end;
        CUDA_MEMCPY3D copy;
        call_t call;
        CUDA_HOST_NODE_PARAMS host = {on_host, &call};
        uint32_t zero              = 0;
        CUstream s                 = stream();

        call.seen = &zero;
        CU_OK(cuGraphCreate(&graph, 0));
        copy = graph_copy(buf[1], buf[0], size);
        CU_OK(cuGraphAddMemcpyNode(&hop[0], graph, nullptr, 0, &copy, ctx[0]));
        copy = graph_copy(buf[2], buf[1], size);
        CU_OK(cuGraphAddMemcpyNode(&hop[1], graph, &hop[0], 1, &copy, ctx[0]));
        CU_OK(cuGraphAddHostNode(&end, graph, &hop[1], 1, &host));
        copy.WidthInBytes = 0;
        CUgraphNode bad;
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuGraphAddMemcpyNode(&bad, graph, nullptr, 0, &copy,
                                       ctx[0]));

        size_t count = 0;
        CU_OK(cuGraphGetNodes(graph, nullptr, &count));
        EXPECT_EQ(3u, count);
        CU_OK(cuGraphGetRootNodes(graph, nullptr, &count));
        EXPECT_EQ(1u, count);

        CU_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        auto words = pattern(size, 60);
        put(buf[0], words);
        CU_OK(cuGraphLaunch(exec, s));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
        CU_OK(cuStreamSynchronize(s));
        EXPECT_EQ(1, call.done);
        EXPECT_EQ(words, get(buf[2], size));

        /* other addresses, the same shape */
        words = pattern(size, 61);
        put(src2, words);
        copy = graph_copy(buf[1], src2, size);
        CU_OK(cuGraphExecMemcpyNodeSetParams(exec, hop[0], &copy, ctx[0]));
        copy = graph_copy(dst2, buf[1], size);
        CU_OK(cuGraphExecMemcpyNodeSetParams(exec, hop[1], &copy, ctx[0]));
        CU_OK(cuGraphLaunch(exec, s));
        CU_OK(cuStreamSynchronize(s));
        EXPECT_EQ(words, get(dst2, size));

        /* memory of another context than at instantiation; two dimensions */
        copy = graph_copy(dst2, buf[2], size);
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuGraphExecMemcpyNodeSetParams(exec, hop[0], &copy, ctx[0]));
        copy              = graph_copy(buf[1], src2, size / 2);
        copy.Height       = 2;
        copy.dstPitch     = copy.srcPitch = size / 2;
        copy.WidthInBytes = size / 2;
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuGraphExecMemcpyNodeSetParams(exec, hop[0], &copy, ctx[0]));

        CU_OK(cuGraphDestroy(graph));
        CU_OK(cuGraphExecDestroy(exec));
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, s));
    });
}

/* A launch uses the graph's parameters at the time of the launch. Launches of
   one executable graph run one at a time, also on several streams (CUDA driver
   API, cuGraphExecMemcpyNodeSetParams and cuGraphLaunch) */
TEST_F(driver, graph_changed_in_flight)
{
    run(1, [](int) {
        const size_t size = 64 * MiB;
        CUcontext ctx[2]  = {use(0), use(1)};
        CUdeviceptr dst[2], src[2];
        CUDA_MEMCPY3D copy;
        CUgraphExec exec;
        CUgraphNode node;
        CUgraph graph;

        CU_OK(cuCtxSetCurrent(ctx[1]));
        dst[0] = alloc(size);
        dst[1] = alloc(size);
        CU_OK(cuCtxSetCurrent(ctx[0]));
        CU_OK(cuCtxEnablePeerAccess(ctx[1], 0));
        src[0]           = alloc(size);
        src[1]           = alloc(size);
        const auto first = pattern(size, 70), second = pattern(size, 71);
        put(src[0], first);
        put(src[1], second);

        CU_OK(cuGraphCreate(&graph, 0));
        copy = graph_copy(dst[0], src[0], size);
        CU_OK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, ctx[0]));
        CU_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));

        CUstream s[2] = {stream(), stream()};
        CU_OK(cuGraphLaunch(exec, s[0]));
        copy = graph_copy(dst[1], src[1], size);
        CU_OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, ctx[0]));
        CU_OK(cuGraphLaunch(exec, s[1]));
        EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(s[0]));
        CU_OK(cuStreamSynchronize(s[1]));
        EXPECT_EQ(CUDA_SUCCESS, cuStreamQuery(s[0])); /* the first launch ended
                                                         first */
        EXPECT_EQ(first, get(dst[0], size));
        EXPECT_EQ(second, get(dst[1], size));

        CU_OK(cuGraphExecDestroy(exec));
        CU_OK(cuGraphDestroy(graph));
    });
}

TEST_F(driver, graph_refuses_cycles)
{
    run(1, [](int) {
        CUgraph graph;
        CUgraphNode a, b;

        use(0);
        CU_OK(cuGraphCreate(&graph, 0));
        CU_OK(cuGraphAddEmptyNode(&a, graph, nullptr, 0));
        CU_OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
#if CUDA_VERSION >= 13000
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuGraphAddDependencies(graph, &b, &a, nullptr, 1));
#else
        EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
                  cuGraphAddDependencies(graph, &b, &a, 1));
#endif
        CU_OK(cuGraphDestroy(graph));
    });
}

/* 2^60 paths lead from the last node to the first one */
TEST_F(driver, graphs_with_many_paths)
{
    run(1, [](int) {
        CUgraphNode layer[2], next[2], last;
        CUgraph graph;

        use(0);
        CU_OK(cuGraphCreate(&graph, 0));
        CU_OK(cuGraphAddEmptyNode(&layer[0], graph, nullptr, 0));
        CU_OK(cuGraphAddEmptyNode(&layer[1], graph, nullptr, 0));
        for (int i = 0; i < 60; ++i) {
            CU_OK(cuGraphAddEmptyNode(&next[0], graph, layer, 2));
            CU_OK(cuGraphAddEmptyNode(&next[1], graph, layer, 2));
            std::copy(next, next + 2, layer);
        }
        CU_OK(cuGraphAddEmptyNode(&last, graph, nullptr, 0));
#if CUDA_VERSION >= 13000
        CU_OK(cuGraphAddDependencies(graph, &layer[0], &last, nullptr, 1));
#else
        CU_OK(cuGraphAddDependencies(graph, &layer[0], &last, 1));
#endif
        CU_OK(cuGraphDestroy(graph));
    });
}

TEST_F(driver, stream_ordered_memory)
{
    run(1, [](int) {
        CUdeviceptr ptr, second;
        CUmemoryPool pool, got = nullptr;
        CUcontext ctx;

        use(0);
        CUstream s = stream();
        CU_OK(cuMemAllocAsync(&ptr, 3 * MiB, s));
        CU_OK(cuMemsetD32Async(ptr, 5, 3 * MiB / 4, s));
        CU_OK(cuStreamSynchronize(s));
        EXPECT_EQ(5u, get(ptr + 3 * MiB - 4, 4)[0]);
        CU_OK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
        EXPECT_EQ(nullptr, ctx);
        CU_OK(cuDeviceGetDefaultMemPool(&pool, 0));
        CU_OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                    ptr));
        EXPECT_EQ(pool, got);
        CU_OK(cuMemFreeAsync(ptr, s));
        CU_OK(cuStreamSynchronize(s));
        CU_OK(cuMemAllocAsync(&second, 3 * MiB, s));
        EXPECT_EQ(ptr, second);
    });
}

/* Memory hooks must be able to move these functions' first instructions. */
TEST_F(driver, entries_can_be_hooked)
{
    static const char *names[] = {
        "cuMemAlloc", "cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocPitch",
        "cuMemAllocPitch_v2", "cuMemMap", "cuMemAllocAsync",
        "cuMemAllocFromPoolAsync", "cuMemFree", "cuMemFree_v2",
        "cuMemFreeHost", "cuMemUnmap", "cuMemFreeAsync"
    };
    /* push %rbp; mov %rsp, %rbp; sub $16, %rsp; mov $0, %eax: 13 bytes, and a
       far jump takes 12 */
    /* The first ten bytes as driver 580 has them (read on an H200) */
    static const uint8_t prologue[] = {0x55, 0x48, 0x89, 0xe5, 0x41, 0x54,
                                       0x48, 0x83, 0xec, 0x08, 0xb8, 0x00,
                                       0x00, 0x00, 0x00};
    std::set<void*> seen;

    for (const char *name : names) {
        void *entry = dlsym(RTLD_DEFAULT, name);
        ASSERT_NE(nullptr, entry) << name;
        EXPECT_TRUE(seen.insert(entry).second) << name << " is an alias";
#ifdef __x86_64__
        EXPECT_EQ(0, memcmp(entry, prologue, sizeof(prologue))) << name;
#endif
    }
}

TEST_F(driver, entries_by_name)
{
    CUdriverProcAddressQueryResult status;
    void *func = nullptr;

    CU_OK(cuGetProcAddress("cuMemAlloc", &func, 12000, 0, &status));
    EXPECT_EQ(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), func);
    CU_OK(cuGetProcAddress("cuCtxSetFlags", &func, 12010, 0, &status));
    EXPECT_EQ(CU_GET_PROC_ADDRESS_SUCCESS, status);
    CU_OK(cuGetProcAddress("cuNoSuchThing", &func, 12010, 0, &status));
    EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
    EXPECT_EQ(nullptr, func);

    for (const char *name : {"cuCtxSetFlags", "cuMulticastCreate"}) {
        CU_OK(cuGetProcAddress(name, &func, 12000, 0, &status));
        EXPECT_EQ(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
        EXPECT_EQ(nullptr, func);
        CU_OK(cuGetProcAddress(name, &func, 12000, 0, nullptr));
        EXPECT_EQ(nullptr, func);
    }
    /* the first version of cuGetProcAddress() has no status */
    typedef CUresult (*first_t)(const char*, void**, int, cuuint64_t);
    first_t first = (first_t)dlsym(RTLD_DEFAULT, "cuGetProcAddress");
    EXPECT_EQ(CUDA_ERROR_NOT_FOUND, first("cuCtxSetFlags", &func, 12000, 0));
}

TEST_F(driver, private_tables_are_refused)
{
    const void *table = &table;
    CUuuid id         = {};

    ::testing::internal::CaptureStderr();
    EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuGetExportTable(&table, &id));
    EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, cuGetExportTable(&table, &id));
    std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(std::string::npos, text.find("-cudart shared"));
    EXPECT_EQ(text.find("cuemu:"), text.rfind("cuemu:")) << "said once";
}
