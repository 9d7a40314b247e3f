/* SPDX-License-Identifier: BSD-3-Clause */
/* Use of a libcuda, depending on its functions and version. It is loaded once
   in a process's life, so each case has a process of its own. */
extern "C" {
#include <uct/cuda/base/driver.h>
}

#include <gtest/gtest.h>

#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <unistd.h>

/* A libcuda instead of the machine's, with all functions but one */
static struct {
    bool       is_used;
    bool       is_found;
    const char *lacks;
    CUresult   init;
    CUresult   get_count;
    int        count;
} library;

extern "C" {

void *__real_dlopen(const char *name, int flags);
void *__real_dlsym(void *handle, const char *symbol);
int __real_dlclose(void *handle);

static CUresult fake_init(unsigned)
{
    return library.init;
}

static CUresult fake_get_count(int *count)
{
    *count = library.count;
    return library.get_count;
}

static CUresult fake_error_name(CUresult, const char **name)
{
    *name = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
}

static CUresult fake_uuid(CUuuid*, CUdevice)
{
    return CUDA_SUCCESS;
}

static CUresult fake_other()
{
    return CUDA_ERROR_UNKNOWN;
}

void *__wrap_dlopen(const char *name, int flags)
{
    if (!library.is_used || (name == NULL) ||
        (strcmp(name, "libcuda.so.1") != 0)) {
        return __real_dlopen(name, flags);
    }

    return library.is_found ? &library : NULL;
}

void *__wrap_dlsym(void *handle, const char *symbol)
{
    if (handle != &library) {
        return __real_dlsym(handle, symbol);
    }

    return (strcmp(symbol, library.lacks) == 0)      ? NULL :
           (strcmp(symbol, "cuDeviceGetUuid_v2") == 0) ? (void*)fake_uuid :
           (strcmp(symbol, "cuInit") == 0)           ? (void*)fake_init :
           (strcmp(symbol, "cuDeviceGetCount") == 0) ? (void*)fake_get_count :
           (strcmp(symbol, "cuGetErrorName") == 0)   ? (void*)fake_error_name :
                                                       (void*)fake_other;
}

int __wrap_dlclose(void *handle)
{
    return (handle == &library) ? 0 : __real_dlclose(handle);
}
}

class Driver : public ::testing::Test
{
protected:
    void SetUp() override
    {
        /* The process starts anew and runs only this test */
        ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    }

    /* Load it, and end the process with 0 if the result is as expected. */
    [[noreturn]] static void load(ucs_status_t expected,
                                  const std::function<void()> &change)
    {
        library = {true, true, "", CUDA_SUCCESS, CUDA_SUCCESS, 1};
        change();
        _exit(((uct_cuda_driver_get() != NULL) == (expected == UCS_OK)) &&
                             (uct_cuda_driver_status() == expected) ?
                     0 :
                     1);
    }

    static void expect(ucs_status_t expected,
                       const std::function<void()> &change)
    {
        EXPECT_EXIT(load(expected, change), ::testing::ExitedWithCode(0), "");
    }
};

TEST_F(Driver, a_driver_with_a_gpu_is_used)
{
    expect(UCS_OK, [] {});
    expect(UCS_OK, [] { library.count = 8; });
    expect(UCS_OK, [] { library.lacks = "cuMemcpyBatchAsync"; });
}

/* The older function names the GPU of a slice (MIG), not the slice */
TEST_F(Driver, the_newer_uuid_is_used)
{
    const auto uuid = [](const char *lacks) {
        library = {true, true, lacks, CUDA_SUCCESS, CUDA_SUCCESS, 1};
        _exit((uct_cuda_driver_get()->cuDeviceGetUuid(NULL, 0) ==
               CUDA_SUCCESS) ? 1 : 2);
    };

    EXPECT_EXIT(uuid(""), ::testing::ExitedWithCode(1), "");
    EXPECT_EXIT(uuid("cuDeviceGetUuid_v2"), ::testing::ExitedWithCode(2), "");
}

TEST_F(Driver, a_driver_without_a_gpu_is_not_used)
{
    expect(UCS_ERR_NO_DEVICE, [] { library.is_found = false; });
    expect(UCS_ERR_NO_DEVICE, [] { library.count = 0; });
    expect(UCS_ERR_NO_DEVICE, [] { library.init = CUDA_ERROR_NO_DEVICE; });
    expect(UCS_ERR_NO_DEVICE, [] { library.get_count = CUDA_ERROR_NO_DEVICE; });
}

TEST_F(Driver, a_refusing_driver_is_not_used)
{
    expect(UCS_ERR_UNSUPPORTED,
           [] { library.init = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; });
    expect(UCS_ERR_UNSUPPORTED, [] { library.get_count = CUDA_ERROR_UNKNOWN; });
    expect(UCS_ERR_UNSUPPORTED, [] { library.lacks = "cuMemcpyAsync"; });
}
