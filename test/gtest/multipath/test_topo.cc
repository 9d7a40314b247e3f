/* SPDX-License-Identifier: BSD-3-Clause */
/* Probing the node: links and limits from answers of NVML and the driver. */
#include "nodes.h"

#include <uct/cuda/base/driver.h>
#include <uct/cuda/base/nvml.h>

#include <uct/cuda/base/log.h>
#include <uct/cuda/base/wiring.h>

#include <cstring>
#include <map>
#include <vector>


/* One NVLink: its far end, and the GPU's number if it is one */
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

        /* Handles are GPU numbers, from 1 */
        m_nvml.nvmlDeviceGetHandleByPciBusId = [](const char *text,
                                                  nvmlDevice_t *device) {
            unsigned bus;

            sscanf(text, "0000:%x", &bus);
            *device = (nvmlDevice_t)(uintptr_t)(bus - 0x1a + 1);
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetNvLinkState = [](nvmlDevice_t device, unsigned link,
                                             nvmlEnableState_t *state) {
            ++self->m_questions;
            if (link >= links(device).size()) {
                return NVML_ERROR_INVALID_ARGUMENT;
            }
            *state = NVML_FEATURE_ENABLED;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetNvLinkVersion = [](nvmlDevice_t, unsigned,
                                               unsigned *version) {
            ++self->m_questions;
            *version = self->m_version;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetFieldValues = [](nvmlDevice_t device, int count,
                                             nvmlFieldValue_t *values) {
            ++self->m_questions;
            for (int i = 0; i < count; ++i) {
                nvmlFieldValue_t *value = &values[i];

                value->value.uiVal = 0;
                if (value->fieldId >= 170) { /* fields of NVLink-C2C, see
                                                nvml.h */
                    const unsigned answers[] = {self->m_c2c, 1, 44712};

                    value->value.uiVal = answers[value->fieldId - 170];
                } else if (value->fieldId ==
                           NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON) {
                    value->value.uiVal = self->m_speed;
                } else if (self->m_has_counts) {
                    for (const FakeLink &link : links(device)) {
                        value->value.uiVal +=
                                (value->fieldId ==
                                 NVML_FI_DEV_NVLINK_LINK_COUNT) ||
                                (link.type == NVML_NVLINK_DEVICE_TYPE_SWITCH);
                    }
                }
                value->nvmlReturn = (value->value.uiVal > 0) ?
                                            NVML_SUCCESS :
                                            NVML_ERROR_NOT_SUPPORTED;
            }
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetNvLinkRemoteDeviceType =
                [](nvmlDevice_t device, unsigned link,
                   nvmlIntNvLinkDeviceType_t *type) {
                    ++self->m_questions;
                    *type = links(device)[link].type;
                    return NVML_SUCCESS;
                };
        m_nvml.nvmlDeviceGetNvLinkRemotePciInfo = [](nvmlDevice_t device,
                                                     unsigned link,
                                                     nvmlPciInfo_t *pci) {
            ++self->m_questions;
            snprintf(pci->busId, sizeof(pci->busId), "00000000:%02x:00.0",
                     0x1a + links(device)[link].gpu);
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetMaxPcieLinkGeneration = [](nvmlDevice_t,
                                                       unsigned *value) {
            ++self->m_questions;
            *value = self->m_pcie;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetMaxPcieLinkWidth = [](nvmlDevice_t,
                                                  unsigned *value) {
            ++self->m_questions;
            *value = 16;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetCount = [](unsigned *count) {
            *count = (unsigned)self->m_links.size() + self->m_hidden;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetMigMode = [](nvmlDevice_t, unsigned *current,
                                         unsigned *pending) {
            ++self->m_questions;
            *current = *pending = self->m_mig;
            return NVML_SUCCESS;
        };
        m_nvml.nvmlDeviceGetTopologyCommonAncestor =
                [](nvmlDevice_t a, nvmlDevice_t b,
                   nvmlGpuTopologyLevel_t *level) {
                    *level = self->m_levels.empty() ?
                                     NVML_TOPOLOGY_SYSTEM :
                                     self->m_levels[(uintptr_t)a - 1]
                                                   [(uintptr_t)b - 1];
                    return NVML_SUCCESS;
                };

        uct_cuda_driver_override(&m_driver);
        uct_cuda_nvml_override(&m_nvml);
        /* independent of the machine that runs the test */
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

    /* Set as many GPUs as there are lists, all with the same far ends */
    void set_links(int gpus, int count, nvmlIntNvLinkDeviceType_t type, int gpu)
    {
        m_links.assign((size_t)gpus,
                       std::vector<FakeLink>((size_t)count,
                                             FakeLink{type, gpu}));
    }

    void probe()
    {
        ASSERT_EQ(UCS_OK, uct_cuda_topo_probe(&m_topo, false));
    }

    static test_topo *self;

    uct_cuda_driver_t                  m_driver;
    uct_cuda_nvml_t                    m_nvml;
    std::vector<std::vector<FakeLink>> m_links;
    unsigned                           m_version    = 2;
    unsigned                           m_speed      = 0;
    unsigned                           m_c2c        = 0;
    unsigned                           m_pcie       = 3;
    int                                m_can_access = 1;
    bool                               m_has_counts = true;
    unsigned                           m_hidden     = 0;
    unsigned                           m_mig        = 0;
    unsigned                           m_questions  = 0;
    std::map<uintptr_t, std::map<uintptr_t, nvmlGpuTopologyLevel_t>> m_levels;
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
    /* All traffic from GPU 0 shares one limit, all traffic to GPU 1 another */
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
    /* PCIe is left, shared with host copies */
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
    /* and copies to the other GPU, since no NVLink joins them */
    EXPECT_EQ(m_topo.gpus[0].to_host.limits[0], m_topo.links[0][1].limits[0]);
    EXPECT_EQ(m_topo.gpus[0].to_host.bandwidth, m_topo.links[0][1].bandwidth);
}

TEST_F(test_topo, links_to_grace)
{
    /* GH200: ten links of NVLink-C2C with 83 %, as for NVLink 4; and four
       fifths of the memory's 384 GB/s, which is less */
    set_links(2, 6, NVML_NVLINK_DEVICE_TYPE_GPU, 0);
    m_version = 6;
    m_c2c     = 10;
    probe();
    EXPECT_NEAR(384 * .8 * GB, m_topo.gpus[0].to_host.bandwidth, 1);
    EXPECT_NEAR(447.12 * .83 * GB,
                m_topo.limits[m_topo.gpus[1].from_host.limits[0]], 1);
}

TEST_F(test_topo, no_peer_access)
{
    set_links(2, 18, NVML_NVLINK_DEVICE_TYPE_SWITCH, 0);
    m_can_access = 0;
    probe();
    EXPECT_EQ(0, m_topo.links[0][1].bandwidth);
}

TEST_F(test_topo, nvml_without_some_functions)
{
    set_links(3, 0, NVML_NVLINK_DEVICE_TYPE_GPU, 0);
    m_nvml.nvmlDeviceGetNvLinkState           = NULL;
    m_nvml.nvmlDeviceGetMaxPcieLinkWidth      = NULL;
    probe();
    EXPECT_EQ(12 * GB, m_topo.links[0][1].bandwidth);
}

TEST_F(test_topo, more_gpus_than_fit)
{
    set_links(UCT_CUDA_MAX_GPUS + 4, 0, NVML_NVLINK_DEVICE_TYPE_GPU, 0);
    probe();
    EXPECT_EQ(UCT_CUDA_MAX_GPUS, m_topo.num_gpus);
}

TEST_F(test_topo, nvswitch_without_counts)
{
    /* an NVML without these fields is asked link by link, with the same
       result */
    uct_cuda_topo_t counted;

    set_links(4, 18, NVML_NVLINK_DEVICE_TYPE_SWITCH, 0);
    m_version = 6;
    probe();
    counted      = m_topo;
    m_has_counts = false;
    probe();
    EXPECT_EQ(0, memcmp(&counted, &m_topo, sizeof(m_topo)));
}

TEST_F(test_topo, few_queries)
{
    /* NVML takes up to 37 us per answer (measured on H200: 8 ms for 216), and
       10 ms are allowed for eight GPUs at NVSwitches or in a cube mesh */
    const unsigned most = 10000 / 37;

    set_links(8, 18, NVML_NVLINK_DEVICE_TYPE_SWITCH, 0);
    probe();
    EXPECT_LE(m_questions, most);

    m_questions = 0;
    set_links(8, 6, NVML_NVLINK_DEVICE_TYPE_GPU, 1);
    probe();
    EXPECT_LE(m_questions, most);
}

TEST_F(test_topo, details_name_the_switches)
{
    uct_cuda_wiring_t wiring;

    set_links(2, 18, NVML_NVLINK_DEVICE_TYPE_SWITCH, 100);
    m_driver.cuDeviceGetName = [](char *name, int size,
                                  CUdevice) -> CUresult {
        snprintf(name, (size_t)size, "A GPU");
        return CUDA_SUCCESS;
    };
    ASSERT_EQ(UCS_OK, uct_cuda_wiring_probe(&wiring, true));
    ASSERT_EQ(1u, wiring.gpus[0].num_peers);
    EXPECT_EQ(18u, wiring.gpus[0].peers[0].count);
    EXPECT_EQ(0x1a + 100, wiring.gpus[0].peers[0].bus_id.bus);
    EXPECT_STREQ("A GPU", wiring.gpus[1].name);
}

TEST_F(test_topo, switches_as_reported_by_nvml)
{
    /* 0 and 1 behind one switch, this switch and 2 behind another, 3 by
       itself */
    uct_cuda_wiring_t wiring;

    set_links(4, 0, NVML_NVLINK_DEVICE_TYPE_GPU, 0);
    for (uintptr_t a = 0; a < 4; ++a) {
        for (uintptr_t b = 0; b < 4; ++b) {
            m_levels[a][b] = (a + b == 1)         ? NVML_TOPOLOGY_SINGLE :
                             ((a < 3) && (b < 3)) ? NVML_TOPOLOGY_MULTIPLE :
                                                    NVML_TOPOLOGY_SYSTEM;
        }
    }

    ASSERT_EQ(UCS_OK, uct_cuda_wiring_probe(&wiring, false));
    ASSERT_EQ(2, wiring.num_switches);
    EXPECT_EQ(UCT_CUDA_WIRING_NONE, wiring.switches[0].parent);
    EXPECT_EQ(0, wiring.switches[1].parent);
    EXPECT_EQ(1, wiring.gpus[0].pci_switch);
    EXPECT_EQ(1, wiring.gpus[1].pci_switch);
    EXPECT_EQ(0, wiring.gpus[2].pci_switch);
    EXPECT_EQ(UCT_CUDA_WIRING_NONE, wiring.gpus[3].pci_switch);
}

static std::string logged;

TEST_F(test_topo, missing_facts_are_logged)
{
    uct_cuda_log_level_t level = uct_cuda_log_level;

    logged = "";
    uct_cuda_log_set([](uct_cuda_log_level_t, const char *, unsigned,
                        const char *,
                        const char *message) { logged += message; },
                     UCT_CUDA_LOG_DEBUG);
    set_links(2, 3, NVML_NVLINK_DEVICE_TYPE_GPU, 100);
    m_hidden = 2;
    probe();
    EXPECT_NE(std::string::npos, logged.find("2 more GPUs"));
    EXPECT_NE(std::string::npos,
              logged.find("gpu1: 3 NVLinks lead to 0000:7e:00.0"));
    EXPECT_EQ(std::string::npos, logged.find("MIG"));

    /* a slice has no links, even if its GPU has */
    set_links(2, 18, NVML_NVLINK_DEVICE_TYPE_SWITCH, 0);
    m_mig = NVML_DEVICE_MIG_ENABLE;
    probe();
    EXPECT_NE(std::string::npos, logged.find("gpu0 is a slice (MIG)"));
    EXPECT_EQ(12 * GB, m_topo.links[0][1].bandwidth);
    uct_cuda_log_set(NULL, level);
}

TEST_F(test_topo, nvml_without_gpus)
{
    /* a container without NVML: the driver only reports NVLink between GPUs;
       all then share the maximum of such a GPU */
    set_links(3, 6, NVML_NVLINK_DEVICE_TYPE_GPU, 1);
    m_nvml.nvmlDeviceGetHandleByPciBusId = [](const char *, nvmlDevice_t *) {
        return NVML_ERROR_NO_PERMISSION;
    };
    probe();
    EXPECT_EQ(12 * GB, m_topo.links[0][1].bandwidth);
    EXPECT_EQ(0u, m_questions);

    m_driver.cuDeviceGetP2PAttribute = [](int *value, CUdevice_P2PAttribute,
                                          CUdevice, CUdevice) -> CUresult {
        *value = 1;
        return CUDA_SUCCESS;
    };
    probe();
    EXPECT_LT(12 * GB, m_topo.links[0][1].bandwidth);
    EXPECT_EQ(m_topo.links[0][1].limits[0], m_topo.links[0][2].limits[0]);
    EXPECT_EQ(m_topo.links[0][1].limits[1], m_topo.links[2][1].limits[1]);
}

TEST_F(test_topo, probed_once)
{
    set_links(2, 2, NVML_NVLINK_DEVICE_TYPE_GPU, 1);
    ASSERT_NE(nullptr, uct_cuda_topo_get());
    m_questions = 0;
    EXPECT_EQ(uct_cuda_topo_get(), uct_cuda_topo_get());
    EXPECT_EQ(0u, m_questions);
}

TEST_F(test_topo, no_gpu)
{
    EXPECT_EQ(UCS_ERR_NO_DEVICE, uct_cuda_topo_probe(&m_topo, false));
}


/* UCX's status for a driver's result */
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
