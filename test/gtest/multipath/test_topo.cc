/* SPDX-License-Identifier: BSD-3-Clause */
/* Probing the node: from what NVML and the driver say to links and limits. */
#include "nodes.h"

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/nvml.h>

#include <cstring>
#include <vector>


/* One NVLink: what is at its far end, and which GPU if it is one */
struct FakeLink {
    nvmlIntNvLinkDeviceType_t type;
    int                       gpu; /* 100 and more: hidden from the process */
};

class test_topo : public ::testing::Test
{
protected:
    test_topo() : m_driver(), m_nvml()
    {
        self = this;

        m_driver.cuDeviceGetCount = [](int *count) -> CUresult {
            *count = (int)self->m_links.size();
            return CUDA_SUCCESS;
        };
        m_driver.cuDeviceGetPCIBusId = [](char *text, int size,
                                          CUdevice gpu) -> CUresult {
            snprintf(text, (size_t)size, "0000:%02X:00.0", 0x1a + gpu);
            return CUDA_SUCCESS;
        };
        m_driver.cuDeviceGetUuid = [](CUuuid *uuid, CUdevice gpu) -> CUresult {
            memset(uuid->bytes, gpu + 1, sizeof(uuid->bytes));
            return CUDA_SUCCESS;
        };
        m_driver.cuDeviceGetAttribute = [](int *value, CUdevice_attribute,
                                           CUdevice gpu) -> CUresult {
            *value = gpu / 2;
            return CUDA_SUCCESS;
        };
        m_driver.cuDeviceCanAccessPeer = [](int *can, CUdevice,
                                            CUdevice) -> CUresult {
            *can = self->m_can_access;
            return CUDA_SUCCESS;
        };

        /* Handles are GPU numbers, 1 up */
        m_nvml.nvmlDeviceGetHandleByPciBusId = [](const char *text,
                                                  nvmlDevice_t *device) {
            unsigned bus;

            sscanf(text, "0000:%x", &bus);
            *device = (nvmlDevice_t)(uintptr_t)(bus - 0x1a + 1);
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetNvLinkState = [](nvmlDevice_t device, unsigned link,
                                             nvmlEnableState_t *state) {
            if (link >= links(device).size()) {
                return NVML_ERROR_INVALID_ARGUMENT;
            }
            *state = NVML_FEATURE_ENABLED;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetNvLinkVersion = [](nvmlDevice_t, unsigned,
                                               unsigned *version) {
            *version = self->m_version;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetFieldValues = [](nvmlDevice_t, int,
                                             nvmlFieldValue_t *value) {
            value->nvmlReturn  = self->m_speed ? NVML_SUCCESS :
                                                 NVML_ERROR_NOT_SUPPORTED;
            value->value.uiVal = self->m_speed;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetNvLinkRemoteDeviceType =
                [](nvmlDevice_t device, unsigned link,
                   nvmlIntNvLinkDeviceType_t *type) {
                    *type = links(device)[link].type;
                    return NVML_SUCCESS;
                };
        m_nvml.nvmlDeviceGetNvLinkRemotePciInfo = [](nvmlDevice_t device,
                                                     unsigned link,
                                                     nvmlPciInfo_t *pci) {
            snprintf(pci->busId, sizeof(pci->busId), "00000000:%02x:00.0",
                     0x1a + links(device)[link].gpu);
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetMaxPcieLinkGeneration = [](nvmlDevice_t,
                                                       unsigned *value) {
            *value = self->m_pcie;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetMaxPcieLinkWidth = [](nvmlDevice_t,
                                                  unsigned *value) {
            *value = 16;
            return NVML_SUCCESS;
        };

        uct_cuda_driver_override(&m_driver);
        uct_cuda_nvml_override(&m_nvml);
        /* nothing of the machine that the test runs on */
        setenv("SYSFS_PATH", "/nonexistent", 1);
    }

    ~test_topo()
    {
        uct_cuda_driver_override(NULL);
        uct_cuda_nvml_override(NULL);
        unsetenv("SYSFS_PATH");
    }

    static const std::vector<FakeLink> &links(nvmlDevice_t device)
    {
        return self->m_links[(uintptr_t)device - 1];
    }

    /* As many GPUs as there are lists, all with the same far ends */
    void set_links(int gpus, int count, nvmlIntNvLinkDeviceType_t type, int gpu)
    {
        m_links.assign((size_t)gpus,
                       std::vector<FakeLink>((size_t)count,
                                             FakeLink{type, gpu}));
    }

    void probe()
    {
        ASSERT_EQ(UCS_OK, uct_cuda_topo_probe(&m_topo));
    }

    static test_topo *self;

    uct_cuda_driver_t                  m_driver;
    uct_cuda_nvml_t                    m_nvml;
    std::vector<std::vector<FakeLink>> m_links;
    unsigned                           m_version    = 2;
    unsigned                           m_speed      = 0;
    unsigned                           m_pcie       = 3;
    int                                m_can_access = 1;
    uct_cuda_topo_t                    m_topo;
};

test_topo *test_topo::self;


TEST_F(test_topo, mesh)
{
    /* V100: 25.781 GB/s a link, two links a pair; copies get 48 GB/s */
    m_speed = 25781;
    for (int gpu = 0; gpu < 4; ++gpu) {
        m_links.push_back({});
        for (int peer = 0; peer < 4; ++peer) {
            if (peer != gpu) {
                m_links.back().insert(m_links.back().end(), 2,
                                      {NVML_NVLINK_DEVICE_TYPE_GPU, peer});
            }
        }
    }

    probe();
    ASSERT_EQ(4, m_topo.num_gpus);
    EXPECT_NEAR(48 * GB, m_topo.links[0][1].bandwidth, .1 * GB);
    EXPECT_NEAR(48 * GB, m_topo.links[3][2].bandwidth, .1 * GB);
    EXPECT_EQ(0, m_topo.links[2][2].bandwidth);
    EXPECT_EQ(UCT_CUDA_TOPO_NO_LIMIT, m_topo.links[0][1].limits[0]);
    EXPECT_EQ(12 * GB, m_topo.gpus[0].to_host.bandwidth);
    EXPECT_EQ(1, m_topo.gpus[3].numa);
    EXPECT_EQ(2, uct_cuda_topo_find_uuid(&m_topo, m_topo.gpus[2].uuid));
}

TEST_F(test_topo, nvswitch)
{
    /* H200: 18 links of 26.562 GB/s; copies get 396 GB/s */
    set_links(4, 18, NVML_NVLINK_DEVICE_TYPE_SWITCH, 0);
    m_version = 6;
    m_speed   = 26562;
    m_pcie    = 5;
    probe();
    EXPECT_NEAR(396 * GB, m_topo.links[0][1].bandwidth, 1 * GB);
    EXPECT_EQ(55 * GB, m_topo.gpus[1].from_host.bandwidth);
    /* All that leaves GPU 0 shares one limit, all that enters GPU 1 another */
    EXPECT_EQ(m_topo.links[0][1].limits[0], m_topo.links[0][2].limits[0]);
    EXPECT_EQ(m_topo.links[0][1].limits[1], m_topo.links[3][1].limits[1]);
    EXPECT_NE(m_topo.links[0][1].limits[0], m_topo.links[1][0].limits[0]);
    EXPECT_NEAR(396 * GB, m_topo.limits[m_topo.links[0][1].limits[0]], 1 * GB);
}

TEST_F(test_topo, switch_that_a_virtual_machine_hides)
{
    set_links(2, 12, NVML_NVLINK_DEVICE_TYPE_UNKNOWN, 100);
    m_version = 4;
    probe();
    EXPECT_NEAR(12 * 25 * .93 * GB, m_topo.links[0][1].bandwidth, 1 * GB);
    EXPECT_NE(UCT_CUDA_TOPO_NO_LIMIT, m_topo.links[0][1].limits[0]);
}

TEST_F(test_topo, links_to_hidden_gpus_lead_nowhere)
{
    set_links(2, 2, NVML_NVLINK_DEVICE_TYPE_GPU, 100);
    probe();
    /* What is left is PCIe, with the host's copies on the same wires */
    EXPECT_EQ(12 * GB, m_topo.links[0][1].bandwidth);
    EXPECT_EQ(m_topo.gpus[0].to_host.limits[0], m_topo.links[0][1].limits[0]);
    EXPECT_EQ(m_topo.gpus[1].from_host.limits[0], m_topo.links[0][1].limits[1]);
}

TEST_F(test_topo, links_to_the_processor)
{
    /* AC922: three links to the CPU carry host copies instead of PCIe */
    set_links(2, 3, NVML_NVLINK_DEVICE_TYPE_IBMNPU, 0);
    probe();
    EXPECT_NEAR(3 * 25 * .93 * GB, m_topo.gpus[0].to_host.bandwidth, 1 * GB);
    /* ... and what goes to the other GPU, which no NVLink leads to */
    EXPECT_EQ(m_topo.gpus[0].to_host.limits[0], m_topo.links[0][1].limits[0]);
    EXPECT_EQ(m_topo.gpus[0].to_host.bandwidth, m_topo.links[0][1].bandwidth);
}

TEST_F(test_topo, no_peer_access)
{
    set_links(2, 18, NVML_NVLINK_DEVICE_TYPE_SWITCH, 0);
    m_can_access = 0;
    probe();
    EXPECT_EQ(0, m_topo.links[0][1].bandwidth);
}

TEST_F(test_topo, nvml_without_anything)
{
    set_links(3, 0, NVML_NVLINK_DEVICE_TYPE_GPU, 0);
    m_nvml.nvmlDeviceGetNvLinkState           = NULL;
    m_nvml.nvmlDeviceGetMaxPcieLinkWidth      = NULL;
    probe();
    EXPECT_EQ(12 * GB, m_topo.links[0][1].bandwidth);
}

TEST_F(test_topo, more_gpus_than_fit)
{
    set_links(UCT_CUDA_TOPO_MAX_GPUS + 4, 0, NVML_NVLINK_DEVICE_TYPE_GPU, 0);
    probe();
    EXPECT_EQ(UCT_CUDA_TOPO_MAX_GPUS, m_topo.num_gpus);
}

TEST_F(test_topo, no_gpu)
{
    EXPECT_EQ(UCS_ERR_NO_DEVICE, uct_cuda_topo_probe(&m_topo));
}


/* What a driver's result means to UCX */
TEST(test_driver, status)
{
    EXPECT_EQ(UCS_OK, uct_cuda_status(CUDA_SUCCESS));
    EXPECT_EQ(UCS_INPROGRESS, uct_cuda_status(CUDA_ERROR_NOT_READY));
    EXPECT_EQ(UCS_ERR_NO_MEMORY, uct_cuda_status(CUDA_ERROR_OUT_OF_MEMORY));
    EXPECT_EQ(UCS_ERR_NO_DEVICE, uct_cuda_status(CUDA_ERROR_DEINITIALIZED));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, uct_cuda_status(CUDA_ERROR_INVALID_VALUE));
    EXPECT_EQ(UCS_ERR_IO_ERROR, uct_cuda_status(CUDA_ERROR_LAUNCH_FAILED));
}

TEST(test_driver, function_that_the_driver_lacks)
{
    uct_cuda_driver_t empty = {};

    uct_cuda_driver_override(&empty);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, UCT_CUDA_CALL(cuMemPoolDestroy, NULL));
    uct_cuda_driver_override(NULL);
}
