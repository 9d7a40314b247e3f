/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The emulated NVML, loaded as a program loads it: its answers for each node.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS

#include "../nvml/nvml_toolkit.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

/* A fresh copy of the library for a node: it reads its node only once. */
class nvml_library {
public:
    explicit nvml_library(const char *node, const std::string &file = path())
    {
        setenv("CUEMU_NODE", node, 1);
        m_handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
        EXPECT_NE(nullptr, m_handle) << dlerror();
    }

    ~nvml_library()
    {
        dlclose(m_handle);
    }

    static std::string path()
    {
        const char *dir = getenv("CUEMU_LIB");

        return std::string(dir == NULL ? "lib" : dir) + "/libnvidia-ml.so.1";
    }

    template<typename F> F *get(F *, const char *name)
    {
        void *symbol = dlsym(m_handle, name);

        EXPECT_NE(nullptr, symbol) << name;
        return (F*)symbol;
    }

private:
    void *m_handle;
};

#define CALL(_lib, _func, ...) \
    (_lib).get((decltype(&_func))nullptr, #_func)(__VA_ARGS__)

TEST(nvml, beluga)
{
    nvml_library lib("beluga");
    unsigned count, value;
    nvmlDevice_t gpu[4];
    nvmlPciInfo_t pci;
    char text[96];

    EXPECT_EQ(NVML_ERROR_UNINITIALIZED,
              CALL(lib, nvmlDeviceGetCount_v2, &count));
    ASSERT_EQ(NVML_SUCCESS, CALL(lib, nvmlInit_v2));
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetCount_v2, &count));
    EXPECT_EQ(4u, count);
    for (unsigned i = 0; i < 4; ++i) {
        ASSERT_EQ(NVML_SUCCESS,
                  CALL(lib, nvmlDeviceGetHandleByIndex_v2, i, &gpu[i]));
    }
    EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT,
              CALL(lib, nvmlDeviceGetHandleByIndex_v2, 4, &gpu[3]));

    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetName, gpu[0], text, 96));
    EXPECT_STREQ("Tesla V100-SXM2-16GB", text);
    EXPECT_EQ(NVML_ERROR_INSUFFICIENT_SIZE,
              CALL(lib, nvmlDeviceGetName, gpu[0], text, 5));
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetPciInfo_v3, gpu[1], &pci));
    EXPECT_STREQ("00000000:1C:00.0", pci.busId);
    EXPECT_STREQ("0000:1C:00.0", pci.busIdLegacy);
    EXPECT_EQ(0x1cu, pci.bus);

    /* all ways to get a handle give the same one */
    nvmlDevice_t other;
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetHandleByPciBusId_v2,
                                 pci.busId, &other));
    EXPECT_EQ(gpu[1], other);
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetHandleByPciBusId_v2,
                                 "0000:1c:00.0", &other));
    EXPECT_EQ(gpu[1], other);
    EXPECT_EQ(NVML_ERROR_NOT_FOUND, CALL(lib, nvmlDeviceGetHandleByPciBusId_v2,
                                         "0000:77:00.0", &other));
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetUUID, gpu[2], text, 96));
    EXPECT_EQ(40u, strlen(text));
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetHandleByUUID, text, &other));
    EXPECT_EQ(gpu[2], other);

    /* two links to each of the three others */
    unsigned to[4] = {0, 0, 0, 0};
    for (unsigned l = 0; l < 6; ++l) {
        nvmlIntNvLinkDeviceType_t type;
        nvmlEnableState_t state;
        EXPECT_EQ(NVML_SUCCESS,
                  CALL(lib, nvmlDeviceGetNvLinkState, gpu[0], l, &state));
        EXPECT_EQ(NVML_FEATURE_ENABLED, state);
        EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetNvLinkRemoteDeviceType,
                                     gpu[0], l, &type));
        EXPECT_EQ(NVML_NVLINK_DEVICE_TYPE_GPU, type);
        EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetNvLinkRemotePciInfo_v2,
                                     gpu[0], l, &pci));
        EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetHandleByPciBusId_v2,
                                     pci.busId, &other));
        EXPECT_EQ(NVML_SUCCESS,
                  CALL(lib, nvmlDeviceGetIndex, other, &value));
        ++to[value];
    }
    EXPECT_EQ(0u, to[0]);
    EXPECT_EQ(2u, to[1]);
    EXPECT_EQ(2u, to[2]);
    EXPECT_EQ(2u, to[3]);
    nvmlEnableState_t state;
    EXPECT_EQ(NVML_SUCCESS,
              CALL(lib, nvmlDeviceGetNvLinkState, gpu[0], 6, &state));
    EXPECT_EQ(NVML_FEATURE_DISABLED, state);
    EXPECT_EQ(NVML_SUCCESS,
              CALL(lib, nvmlDeviceGetNvLinkVersion, gpu[0], 0, &value));
    EXPECT_EQ(2u, value);
    EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT,
              CALL(lib, nvmlDeviceGetNvLinkVersion, gpu[0], 6, &value));

    nvmlFieldValue_t fields[3];
    memset(fields, 0, sizeof(fields));
    fields[0].fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT;
    fields[1].fieldId = NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON;
    fields[2].fieldId = 9999;
    EXPECT_EQ(NVML_SUCCESS,
              CALL(lib, nvmlDeviceGetFieldValues, gpu[0], 3, fields));
    EXPECT_EQ(NVML_SUCCESS, fields[0].nvmlReturn);
    EXPECT_EQ(6u, fields[0].value.uiVal);
    EXPECT_EQ(25781u, fields[1].value.uiVal);
    EXPECT_EQ(NVML_ERROR_NOT_SUPPORTED, fields[2].nvmlReturn);

    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlShutdown));
    EXPECT_EQ(NVML_ERROR_UNINITIALIZED, CALL(lib, nvmlShutdown));
}

TEST(nvml, hgx_h200_sees_switches)
{
    nvml_library lib("hgx-h200");
    nvmlIntNvLinkDeviceType_t type;
    nvmlGpuFabricInfoV_t fabric;
    nvmlDevice_t gpu;
    nvmlMemory_t memory;
    unsigned value;
    int major, minor;

    ASSERT_EQ(NVML_SUCCESS, CALL(lib, nvmlInitWithFlags, 0));
    ASSERT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetHandleByIndex_v2, 0, &gpu));
    for (unsigned l = 0; l < 18; ++l) {
        EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetNvLinkRemoteDeviceType,
                                     gpu, l, &type));
        EXPECT_EQ(NVML_NVLINK_DEVICE_TYPE_SWITCH, type);
    }
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetCudaComputeCapability, gpu,
                                 &major, &minor));
    EXPECT_EQ(9, major);
    EXPECT_EQ(0, minor);
    EXPECT_EQ(NVML_SUCCESS,
              CALL(lib, nvmlDeviceGetMaxPcieLinkGeneration, gpu, &value));
    EXPECT_EQ(5u, value);
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetMemoryInfo, gpu, &memory));
    EXPECT_EQ(143771ull << 20, memory.total);
    setenv("CUEMU_GPU_MEMORY", "1048576", 1);
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetMemoryInfo, gpu, &memory));
    EXPECT_EQ(1048576ull, memory.total);
    unsetenv("CUEMU_GPU_MEMORY");
    EXPECT_EQ(NVML_ERROR_NOT_SUPPORTED,
              CALL(lib, nvmlDeviceGetGpuFabricInfoV, gpu, &fabric));
    EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT,
              CALL(lib, nvmlDeviceGetIndex, (nvmlDevice_t)&value, &value));
}

TEST(nvml, pcie_only_reports_pairs_without_peer_access)
{
    nvml_library lib("pcie-only");
    nvmlGpuTopologyLevel_t level;
    nvmlGpuP2PStatus_t status;
    nvmlEnableState_t state;
    nvmlDevice_t gpu[3];
    unsigned value;

    ASSERT_EQ(NVML_SUCCESS, CALL(lib, nvmlInit));
    for (unsigned i = 0; i < 3; ++i) {
        ASSERT_EQ(NVML_SUCCESS,
                  CALL(lib, nvmlDeviceGetHandleByIndex, i, &gpu[i]));
    }
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetTopologyCommonAncestor,
                                 gpu[0], gpu[1], &level));
    EXPECT_EQ(NVML_TOPOLOGY_SINGLE, level);
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetTopologyCommonAncestor,
                                 gpu[0], gpu[2], &level));
    EXPECT_EQ(NVML_TOPOLOGY_SYSTEM, level);
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetP2PStatus, gpu[0], gpu[1],
                                 NVML_P2P_CAPS_INDEX_READ, &status));
    EXPECT_EQ(NVML_P2P_STATUS_OK, status);
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetP2PStatus, gpu[0], gpu[2],
                                 NVML_P2P_CAPS_INDEX_READ, &status));
    EXPECT_NE(NVML_P2P_STATUS_OK, status);
    EXPECT_EQ(NVML_ERROR_NOT_SUPPORTED,
              CALL(lib, nvmlDeviceGetNvLinkState, gpu[0], 0, &state));
    EXPECT_EQ(NVML_ERROR_NOT_SUPPORTED,
              CALL(lib, nvmlDeviceGetNvLinkVersion, gpu[0], 0, &value));
}

/* A child allocates memory and waits; then it is killed. */
TEST(nvml, memory_of_processes)
{
    const std::string session = "/dev/shm/cuemu_nvml_" +
                                std::to_string(getpid());
    std::string driver        = nvml_library::path();
    nvmlProcessInfo_t infos[2];
    unsigned count = 0;
    nvmlMemory_t memory;
    nvmlDevice_t gpu[2];
    char done = 0;
    int fds[2];

    driver.replace(driver.rfind('/'), std::string::npos, "/libcuda.so.1");
    setenv("CUEMU_SESSION", session.c_str(), 1);
    nvml_library lib("beluga");
    ASSERT_EQ(NVML_SUCCESS, CALL(lib, nvmlInit_v2));
    for (unsigned i = 0; i < 2; ++i) {
        ASSERT_EQ(NVML_SUCCESS,
                  CALL(lib, nvmlDeviceGetHandleByIndex_v2, i, &gpu[i]));
    }
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetComputeRunningProcesses_v3,
                                 gpu[1], &count, NULL));
    EXPECT_EQ(0u, count);

    ASSERT_EQ(0, pipe(fds));
    pid_t pid = fork();
    if (pid == 0) {
        void *cuda = dlopen(driver.c_str(), RTLD_NOW), *ctx, *ptr;
        auto call  = [cuda](const char *name, auto... args) {
            return ((int (*)(decltype(args)...))dlsym(cuda, name))(args...);
        };

        done = (call("cuInit", 0u) == 0) &&
               (call("cuDevicePrimaryCtxRetain", &ctx, 1) == 0) &&
               (call("cuCtxSetCurrent", ctx) == 0) &&
               (call("cuMemAlloc_v2", &ptr, (size_t)64 << 20) == 0);
        (void)!write(fds[1], &done, 1);
        pause();
    }
    ASSERT_EQ(1, read(fds[0], &done, 1));
    EXPECT_EQ(1, done);
    EXPECT_EQ(NVML_ERROR_INSUFFICIENT_SIZE,
              CALL(lib, nvmlDeviceGetComputeRunningProcesses_v3, gpu[1],
                   &count, NULL));
    EXPECT_EQ(1u, count);
    count = 2;
    EXPECT_EQ(NVML_SUCCESS, CALL(lib, nvmlDeviceGetComputeRunningProcesses_v3,
                                 gpu[1], &count, infos));
    EXPECT_EQ(1u, count);
    EXPECT_EQ((unsigned)pid, infos[0].pid);
    EXPECT_LE(64ull << 20, infos[0].usedGpuMemory);
    EXPECT_EQ(NVML_SUCCESS,
              CALL(lib, nvmlDeviceGetMemoryInfo, gpu[1], &memory));
    EXPECT_EQ(infos[0].usedGpuMemory, memory.used);
    EXPECT_EQ(memory.total, memory.used + memory.free);
    EXPECT_EQ(NVML_SUCCESS,
              CALL(lib, nvmlDeviceGetMemoryInfo, gpu[0], &memory));
    EXPECT_EQ(0u, memory.used);

    kill(pid, SIGKILL);
    EXPECT_EQ(pid, waitpid(pid, NULL, 0));
    EXPECT_EQ(NVML_SUCCESS,
              CALL(lib, nvmlDeviceGetMemoryInfo, gpu[1], &memory));
    EXPECT_EQ(0u, memory.used);
    unsetenv("CUEMU_SESSION");
    EXPECT_EQ(0, system(("rm -rf " + session).c_str()));
}

TEST(nvml, a_missing_node_is_a_missing_driver)
{
    nvml_library lib("no-such-node");

    EXPECT_EQ(NVML_ERROR_DRIVER_NOT_LOADED, CALL(lib, nvmlInit_v2));
    EXPECT_STREQ("Driver Not Loaded",
                 CALL(lib, nvmlErrorString, NVML_ERROR_DRIVER_NOT_LOADED));
}

TEST(nvml, a_node_lies_beside_the_library)
{
    const char *nodes = getenv("CUEMU_NODES");
    char dir[]        = "/tmp/cuemu_nvml_XXXXXX";

    if (nodes == NULL) {
        GTEST_SKIP() << "CUEMU_NODES is not set";
    }

    ASSERT_NE(nullptr, mkdtemp(dir));
    std::string top  = dir, saved = nodes;
    std::string lib  = top + "/lib", file = lib + "/libnvidia-ml.so.1";
    std::string node = top + "/nodes/own.xml";
    ASSERT_EQ(0, mkdir(lib.c_str(), 0700));
    ASSERT_EQ(0, mkdir((top + "/nodes").c_str(), 0700));
    ASSERT_EQ(0, symlink(nvml_library::path().c_str(), file.c_str()));
    ASSERT_EQ(0, symlink((saved + "/beluga.xml").c_str(), node.c_str()));
    unsetenv("CUEMU_NODES");
    {
        nvml_library own("own", file);
        EXPECT_EQ(NVML_SUCCESS, CALL(own, nvmlInit_v2));
    }
    setenv("CUEMU_NODES", saved.c_str(), 1);
    EXPECT_EQ(0, system(("rm -rf " + top).c_str()));
}
