/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes joined with others by NVLink. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/fabric.h>
#include <uct/cuda/base/nvml.h>
}

#include <gtest/gtest.h>

#include <cstring>

/* nvmlGpuFabricInfo_t */
static struct {
    uint8_t  cluster[16];
    uint32_t status;
    uint32_t clique;
    uint8_t  state;
} info;

static int has_handles;
static unsigned questions;

class Fabric : public ::testing::Test
{
protected:
    FakeDriver driver;
    uct_cuda_nvml_t nvml;
    uct_cuda_fabric_t fabric;

    /* A node of a cluster */
    void SetUp() override
    {
        has_handles = 1;
        questions   = 0;
        memset(&info, 0, sizeof(info));
        info.cluster[7] = 9;
        info.clique     = 4;
        info.state      = 3; /* completed */

        driver.table.cuDeviceGetAttribute = [](int *value,
                                               CUdevice_attribute attribute,
                                               CUdevice) {
            *value = has_handles;
            return ((int)attribute == 128) ? CUDA_SUCCESS :
                                             CUDA_ERROR_INVALID_VALUE;
        };
        driver.table.cuDeviceGetPCIBusId = [](char *text, int length,
                                              CUdevice) {
            snprintf(text, length, "0000:1B:00.0");
            return CUDA_SUCCESS;
        };
        memset(&nvml, 0, sizeof(nvml));
        nvml.nvmlDeviceGetHandleByPciBusId = [](const char *text,
                                                nvmlDevice_t *device) {
            *device = (nvmlDevice_t)1;
            return (strcmp(text, "0000:1B:00.0") == 0) ? NVML_SUCCESS :
                                                         NVML_ERROR_NOT_FOUND;
        };
        nvml.nvmlDeviceGetGpuFabricInfo = [](nvmlDevice_t, void *out) {
            ++questions;
            memcpy(out, &info, sizeof(info));
            return NVML_SUCCESS;
        };
        uct_cuda_nvml_override(&nvml);
    }

    void TearDown() override
    {
        uct_cuda_nvml_override(NULL);
    }
};

TEST_F(Fabric, node_of_a_cluster)
{
    ASSERT_TRUE(uct_cuda_fabric_find(&fabric));
    EXPECT_EQ(0, memcmp(fabric.cluster, info.cluster, sizeof(info.cluster)));
    EXPECT_EQ(4u, fabric.clique);
}

/* Values of an HGX node */
TEST_F(Fabric, node_behind_a_switch_of_its_own)
{
    memset(info.cluster, 0, sizeof(info.cluster));
    EXPECT_FALSE(uct_cuda_fabric_find(&fabric));
}

TEST_F(Fabric, node_without_registration)
{
    info.state = 2;
    EXPECT_FALSE(uct_cuda_fabric_find(&fabric));
    info.state  = 3;
    info.status = NVML_ERROR_UNKNOWN;
    EXPECT_FALSE(uct_cuda_fabric_find(&fabric));
}

TEST_F(Fabric, nvml_without_fabric_support)
{
    nvml.nvmlDeviceGetGpuFabricInfo = NULL;
    EXPECT_FALSE(uct_cuda_fabric_find(&fabric));
}

/* NVML is slow to start */
TEST_F(Fabric, nvml_is_not_loaded_without_need)
{
    has_handles = 0;
    EXPECT_FALSE(uct_cuda_fabric_find(&fabric));
    EXPECT_EQ(0u, questions);
}
