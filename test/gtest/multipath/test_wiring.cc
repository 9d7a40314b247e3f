/* SPDX-License-Identifier: BSD-3-Clause */
/* Links and limits from the wiring, and the part of the wiring found in
   sysfs. */
#include "nodes.h"

#include <uct/cuda/base/wiring.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>


static const uct_cuda_bus_id_t nowhere = {0, 0, 0, 0};

/* Wiring described by hand, and the topology made of it */
class test_draw : public ::testing::Test
{
protected:
    test_draw() : m_wiring(), m_topo()
    {
    }

    /* GPUs with access to each other, one NUMA node, PCIe 3 x16 */
    void gpus(int count)
    {
        m_wiring.num_gpus = count;
        m_wiring.has_nvml = true;
        m_wiring.has_pci  = true;
        for (int i = 0; i < count; ++i) {
            uct_cuda_wiring_gpu_t *gpu = &m_wiring.gpus[i];

            gpu->bus_id.bus      = (uint8_t)(0x10 + i);
            gpu->numa            = numa(0);
            gpu->pci_switch      = UCT_CUDA_WIRING_NONE;
            gpu->pcie.generation = 3;
            gpu->pcie.width      = 16;
            gpu->nvlink_version  = 2;
            gpu->nvlink_rate     = 25.781e9;
            for (int j = 0; j < count; ++j) {
                m_wiring.access[i][j] = (i != j);
            }
        }
    }

    int numa(int os_index)
    {
        return uct_cuda_wiring_numa(&m_wiring, os_index);
    }

    void nvlinks(int from, int to, int count)
    {
        for (int i = 0; i < count; ++i) {
            uct_cuda_wiring_add_nvlink(&m_wiring.gpus[from],
                                       UCT_CUDA_WIRING_GPU, to, &nowhere);
            uct_cuda_wiring_add_nvlink(&m_wiring.gpus[to], UCT_CUDA_WIRING_GPU,
                                       from, &nowhere);
        }
    }

    int pci_switch(int parent, unsigned generation, std::set<int> gpus)
    {
        int index                    = m_wiring.num_switches++;
        uct_cuda_wiring_switch_t *sw = &m_wiring.switches[index];

        sw->bus_id.bus      = (uint8_t)(0x80 + index);
        sw->parent          = parent;
        sw->numa            = 0;
        sw->pcie.generation = generation;
        sw->pcie.width      = 16;
        for (int gpu : gpus) {
            m_wiring.gpus[gpu].pci_switch = index;
        }
        return index;
    }

    void draw()
    {
        uct_cuda_topo_build(&m_wiring, &m_topo);
    }

    double gbps(int from, int to) const
    {
        return m_topo.links[from][to].bandwidth / GB;
    }

    static std::set<int> limits(const uct_cuda_topo_link_t &link)
    {
        std::set<int> result;

        for (int limit : link.limits) {
            if (limit != UCT_CUDA_TOPO_NO_LIMIT) {
                result.insert(limit);
            }
        }
        return result;
    }

    /* Return the limits common to two links. */
    static std::set<int> shared(const uct_cuda_topo_link_t &a,
                                const uct_cuda_topo_link_t &b)
    {
        std::set<int> result;

        for (int limit : limits(a)) {
            if (limits(b).count(limit)) {
                result.insert(limit);
            }
        }
        return result;
    }

    const uct_cuda_topo_link_t &to_host(int gpu) const
    {
        return m_topo.gpus[gpu].to_host;
    }

    const uct_cuda_topo_link_t &from_host(int gpu) const
    {
        return m_topo.gpus[gpu].from_host;
    }

    uct_cuda_wiring_t m_wiring;
    uct_cuda_topo_t   m_topo;
};


TEST_F(test_draw, triangle)
{
    gpus(3);
    nvlinks(0, 1, 2);
    nvlinks(1, 2, 2);
    nvlinks(0, 2, 2);
    for (int i = 0; i < 3; ++i) {
        m_wiring.gpus[i].uuid[15] = (uint8_t)(i + 1);
    }
    draw();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(i + 1, m_topo.gpus[i].uuid[15]);
    }
    EXPECT_NEAR(48, gbps(0, 1), .1);
    EXPECT_NEAR(48, gbps(2, 0), .1);
    EXPECT_TRUE(limits(m_topo.links[0][1]).empty());
    EXPECT_EQ(12, to_host(1).bandwidth / GB);
}

TEST_F(test_draw, dead_nvlink)
{
    /* one of two links is down: on both sides, or seen by one side only */
    gpus(3);
    nvlinks(0, 1, 2);
    nvlinks(1, 2, 1);
    uct_cuda_wiring_add_nvlink(&m_wiring.gpus[1], UCT_CUDA_WIRING_GPU, 2,
                               &nowhere);
    draw();
    EXPECT_NEAR(48, gbps(0, 1), .1);
    EXPECT_NEAR(24, gbps(1, 2), .1);
    EXPECT_NEAR(24, gbps(2, 1), .1);
    /* no NVLink at all between 0 and 2: PCIe */
    EXPECT_EQ(12, gbps(0, 2));
}

TEST_F(test_draw, link_reported_by_one_side)
{
    gpus(2);
    uct_cuda_wiring_add_nvlink(&m_wiring.gpus[1], UCT_CUDA_WIRING_GPU, 0,
                               &nowhere);
    draw();
    EXPECT_NEAR(24, gbps(0, 1), .1);
    EXPECT_NEAR(24, gbps(1, 0), .1);
}

TEST_F(test_draw, switch_shares_the_link_above)
{
    /* two GPUs behind each of two switches */
    gpus(4);
    pci_switch(UCT_CUDA_WIRING_NONE, 3, {0, 1});
    pci_switch(UCT_CUDA_WIRING_NONE, 3, {2, 3});
    draw();

    /* to the host: the link above the switch, and the memory */
    EXPECT_EQ(2u, shared(to_host(0), to_host(1)).size());
    EXPECT_EQ(1u, shared(to_host(0), to_host(2)).size());
    EXPECT_TRUE(shared(to_host(0), from_host(0)).empty());

    /* behind one switch the link above it is not used */
    EXPECT_TRUE(shared(m_topo.links[0][1], m_topo.links[1][0]).empty());
    EXPECT_EQ(2u, limits(m_topo.links[0][1]).size());

    /* from one to the other: both links above, and each GPU's own */
    EXPECT_EQ(4u, limits(m_topo.links[0][2]).size());
    EXPECT_EQ(2u, shared(m_topo.links[0][2], m_topo.links[1][3]).size());
    /* copies between GPUs do not touch host memory */
    EXPECT_EQ(2u, shared(m_topo.links[0][2], to_host(0)).size());
}

TEST_F(test_draw, switches_in_a_row_are_one)
{
    int outer;

    gpus(2);
    outer = pci_switch(UCT_CUDA_WIRING_NONE, 2, {});
    pci_switch(outer, 3, {0, 1});
    draw();
    /* own link, one for both switches, memory; as slow as the slowest */
    EXPECT_EQ(3u, limits(to_host(0)).size());
    EXPECT_EQ(6, to_host(0).bandwidth / GB);
    EXPECT_EQ(12, gbps(0, 1));
}

TEST_F(test_draw, slow_switch_of_one_gpu)
{
    gpus(2);
    pci_switch(UCT_CUDA_WIRING_NONE, 2, {1});
    draw();
    EXPECT_EQ(12, to_host(0).bandwidth / GB);
    EXPECT_EQ(6, to_host(1).bandwidth / GB);
    EXPECT_EQ(6, gbps(0, 1));
}

/* A virtual machine's bridges: as fast as the GPU's own link, and used only by
   plain copies */
TEST_F(test_draw, virtual_bridges)
{
    gpus(3);
    pci_switch(UCT_CUDA_WIRING_NONE, 1, {0});
    m_wiring.switches[0].pcie.width = 1;
    pci_switch(UCT_CUDA_WIRING_NONE, 1, {1, 2});
    m_wiring.switches[1].pcie.width = 4;
    m_wiring.access[0][1] = false;
    draw();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(12, to_host(i).bandwidth / GB);
        EXPECT_TRUE(to_host(i).is_doubtful);
        EXPECT_TRUE(from_host(i).is_doubtful);
    }
    EXPECT_TRUE(m_topo.links[1][2].is_doubtful);

    /* exactly a quarter may be a real switch: x16 of PCIe 1 */
    m_wiring.switches[0].pcie.width = m_wiring.switches[1].pcie.width = 16;
    draw();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(3, to_host(i).bandwidth / GB);
        EXPECT_FALSE(to_host(i).is_doubtful);
    }

    /* a switch without a speed is as fast as the links below it */
    m_wiring.switches[1].pcie = {0, 0};
    m_wiring.gpus[2].pcie     = {5, 16};
    draw();
    EXPECT_EQ(12, to_host(1).bandwidth / GB);
    EXPECT_EQ(55, to_host(2).bandwidth / GB);
    EXPECT_FALSE(to_host(1).is_doubtful);
}

/* A GPU's own link: the GPU's maximum, its generation, lanes in use */
TEST_F(test_draw, implausible_links)
{
    struct {
        int                    sm;
        uct_cuda_wiring_pcie_t port, own;
        unsigned               lanes;
        double                 gbps;
        bool                   is_doubtful;
    } cases[] = {
        {90, {1, 1}, {5, 16}, 0, 55, true},  /* a port of a virtual machine */
        {80, {1, 16}, {1, 16}, 16, 25, true}, /* saves power */
        {70, {1, 16}, {1, 16}, 16, 12, true},
        {70, {1, 16}, {3, 16}, 0, 12, true},
        {80, {1, 16}, {4, 16}, 16, 25, true},
        {80, {0, 0}, {0, 0}, 0, 25, false},  /* hidden */
        {90, {0, 0}, {0, 0}, 0, 55, false},
        {0, {0, 0}, {0, 0}, 0, 12, false},
        {80, {4, 8}, {4, 16}, 8, 12.5, false}, /* narrow slots */
        {80, {4, 1}, {4, 16}, 1, 25. / 16, false},
        {80, {4, 1}, {4, 16}, 0, 25, true},  /* not confirmed by any other
                                                value */
        {80, {3, 16}, {4, 16}, 16, 12, false}, /* an older mainboard */
        {70, {3, 16}, {3, 16}, 16, 12, false},
        {70, {4, 16}, {4, 16}, 16, 12, false}, /* as fast as the GPU can be */
    };

    gpus(2);
    for (auto &c : cases) {
        m_wiring.gpus[1].sm       = c.sm;
        m_wiring.gpus[1].pcie     = c.port;
        m_wiring.gpus[1].pcie_own = c.own;
        m_wiring.gpus[1].lanes    = c.lanes;
        draw();
        EXPECT_EQ(c.gbps, to_host(1).bandwidth / GB);
        EXPECT_EQ(c.is_doubtful, from_host(1).is_doubtful) << c.gbps;
        EXPECT_EQ(c.is_doubtful, m_topo.links[0][1].is_doubtful);
        EXPECT_FALSE(to_host(0).is_doubtful);
    }
}

TEST_F(test_draw, mixed_pcie)
{
    gpus(3);
    m_wiring.gpus[1].pcie.generation = 4;
    m_wiring.gpus[2].pcie.generation = 4;
    m_wiring.gpus[2].pcie.width      = 8;
    draw();
    EXPECT_EQ(12, gbps(0, 1));
    EXPECT_EQ(12.5, gbps(1, 2));
    EXPECT_EQ(25, to_host(1).bandwidth / GB);
    EXPECT_EQ(12.5, from_host(2).bandwidth / GB);
}

TEST_F(test_draw, sockets)
{
    uct_cuda_topo_link_t far_link, own_link;

    gpus(4);
    m_wiring.gpus[2].numa = m_wiring.gpus[3].numa = numa(8);
    draw();
    ASSERT_EQ(2, m_topo.num_numa);
    EXPECT_EQ(8, m_topo.gpus[3].numa);

    /* all traffic from one socket to the other shares one limit */
    EXPECT_EQ(1u, shared(m_topo.links[0][2], m_topo.links[1][3]).size());
    EXPECT_TRUE(shared(m_topo.links[0][2], m_topo.links[2][0]).size() == 0);
    EXPECT_EQ(2u, limits(m_topo.links[0][1]).size());

    /* to the other node's memory: its limit, and the socket's */
    own_link = uct_cuda_topo_numa_link(&m_topo, uct_cuda_end_gpu(0),
                                       uct_cuda_end_host(), 0);
    far_link = uct_cuda_topo_numa_link(&m_topo, uct_cuda_end_gpu(0),
                                       uct_cuda_end_host(), 8);
    EXPECT_EQ(limits(to_host(0)), limits(own_link));
    EXPECT_EQ(1u, shared(far_link, own_link).size());
    EXPECT_EQ(1u, shared(far_link, m_topo.links[0][2]).size() -
                          shared(own_link, m_topo.links[0][2]).size());
    EXPECT_EQ(1u, shared(far_link, to_host(2)).size());
    /* an invalid number means the GPU's own */
    EXPECT_EQ(limits(own_link),
              limits(uct_cuda_topo_numa_link(&m_topo, uct_cuda_end_gpu(0),
                                             uct_cuda_end_host(), 5)));
}

TEST_F(test_draw, numa_nodes_of_one_socket)
{
    gpus(2);
    m_wiring.gpus[1].numa    = numa(1);
    m_wiring.numa[0].socket = m_wiring.numa[1].socket = 0;
    draw();
    EXPECT_EQ(2u, limits(m_topo.links[0][1]).size());
    EXPECT_TRUE(shared(to_host(0), to_host(1)).empty());
}

TEST_F(test_draw, power9)
{
    /* AC922: GPUs of different sockets are joined through the processors, where
       no copy exceeds the X-bus' 41 GB/s (Comm|Scope) */
    gpus(4);
    m_wiring.gpus[2].numa = m_wiring.gpus[3].numa = numa(8);
    nvlinks(0, 1, 3);
    nvlinks(2, 3, 3);
    for (int gpu = 0; gpu < 4; ++gpu) {
        m_wiring.gpus[gpu].pcie.width = 2;
        for (int i = 0; i < 3; ++i) {
            uct_cuda_wiring_add_nvlink(&m_wiring.gpus[gpu],
                                       UCT_CUDA_WIRING_CPU,
                                       UCT_CUDA_WIRING_NONE, &nowhere);
        }
    }
    /* not used by any copy */
    pci_switch(UCT_CUDA_WIRING_NONE, 1, {0, 1});
    draw();
    EXPECT_NEAR(72, to_host(0).bandwidth / GB, .2);
    EXPECT_NEAR(72, gbps(0, 1), .2);
    EXPECT_NEAR(41, gbps(0, 2), .01);
    EXPECT_NEAR(41,
                uct_cuda_topo_numa_link(&m_topo, uct_cuda_end_host(),
                                        uct_cuda_end_gpu(2), 0)
                                .bandwidth /
                        GB,
                .01);
}

TEST_F(test_draw, grace)
{
    /* two superchips without NVLink between them: NVLink-C2C in the place of
       PCIe, and copies between the GPUs through both processors */
    gpus(2);
    m_wiring.gpus[1].numa = numa(1);
    for (int gpu = 0; gpu < 2; ++gpu) {
        m_wiring.gpus[gpu].pcie.width = 1;
        m_wiring.gpus[gpu].num_c2c    = 10;
        m_wiring.gpus[gpu].c2c_rate   = 447.12 * GB;
    }
    draw();
    EXPECT_NEAR(371.1, m_topo.limits[to_host(0).limits[0]] / GB, .2);
    EXPECT_NEAR(384 * .8, to_host(0).bandwidth / GB, .01);
    EXPECT_NEAR(100, gbps(0, 1), .01);
}

TEST_F(test_draw, no_nvml)
{
    /* the driver reports NVLink, and its bandwidth is unknown: all paths share
       it, so the planner uses no relay */
    gpus(4);
    m_wiring.has_nvml = false;
    for (int i = 0; i < 4; ++i) {
        m_wiring.gpus[i].sm = 70;
        for (int j = 0; j < 4; ++j) {
            m_wiring.atomics[i][j] = (i != j);
        }
    }
    draw();
    EXPECT_NEAR(6 * 25 * .93, gbps(0, 1), .1);
    EXPECT_FALSE(shared(m_topo.links[0][1], m_topo.links[0][2]).empty());
    EXPECT_FALSE(shared(m_topo.links[0][1], m_topo.links[2][1]).empty());
}

TEST_F(test_draw, gpus_of_unknown_location)
{
    gpus(2);
    m_wiring.num_numa = 0;
    m_wiring.gpus[0].numa = m_wiring.gpus[1].numa = UCT_CUDA_WIRING_NONE;
    m_wiring.gpus[0].pcie = m_wiring.gpus[1].pcie = {0, 0};
    draw();
    EXPECT_EQ(0, m_topo.gpus[1].numa);
    EXPECT_EQ(12, gbps(0, 1));
    EXPECT_EQ(12, to_host(0).bandwidth / GB);
}

TEST_F(test_draw, as_large_as_it_gets)
{
    /* 16 GPUs, each with a NUMA node of its own, behind nested switches and at
       NVSwitches: no table overflows, all links have limits */
    int outer;

    gpus(UCT_CUDA_MAX_GPUS);
    for (int i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        m_wiring.gpus[i].numa = numa(i);
        for (int k = 0; k < 18; ++k) {
            uct_cuda_wiring_add_nvlink(&m_wiring.gpus[i],
                                       UCT_CUDA_WIRING_SWITCH,
                                       UCT_CUDA_WIRING_NONE, &nowhere);
        }
    }
    for (int i = 0; i < UCT_CUDA_MAX_GPUS; i += 4) {
        outer = pci_switch(UCT_CUDA_WIRING_NONE, 3, {});
        pci_switch(outer, 3, {i, i + 1});
        pci_switch(outer, 3, {i + 2, i + 3});
    }
    draw();
    ASSERT_LE(m_topo.num_limits, UCT_CUDA_TOPO_MAX_LIMITS);
    for (int i = 0; i < UCT_CUDA_MAX_GPUS; ++i) {
        EXPECT_GE(limits(to_host(i)).size(), 3u);
        for (int j = 0; j < UCT_CUDA_MAX_GPUS; ++j) {
            ASSERT_TRUE((i == j) || (limits(m_topo.links[i][j]).size() == 2));
        }
        for (int limit : limits(to_host(i))) {
            EXPECT_LT(limit, m_topo.num_limits);
        }
    }
}


/* A sysfs tree made by the test */
class test_sysfs : public ::testing::Test
{
protected:
    test_sysfs() : m_wiring()
    {
        char name[] = "/tmp/test_sysfs.XXXXXX";

        EXPECT_NE(nullptr, mkdtemp(name));
        m_root = name;
        setenv("SYSFS_PATH", name, 1);
    }

    ~test_sysfs()
    {
        unsetenv("SYSFS_PATH");
        std::filesystem::remove_all(m_root);
    }

    void put(const std::string &path, const std::string &text)
    {
        std::filesystem::path file = m_root / path;

        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }

    /* Add a device at a path below devices/, and its entry on the bus. */
    void device(const std::string &path, const std::string &speed = "",
                const std::string &width = "",
                const std::string &vendor = "0x10de",
                const std::string &numa = "0")
    {
        std::filesystem::path bus = m_root / "bus/pci/devices";
        std::filesystem::path full = m_root / "devices" / path;

        put("devices/" + path + "/vendor", vendor);
        put("devices/" + path + "/numa_node", numa);
        if (speed != "") {
            put("devices/" + path + "/max_link_speed", speed);
            put("devices/" + path + "/max_link_width", width);
        }
        std::filesystem::create_directories(bus);
        std::filesystem::create_symlink(full, bus / full.filename());
    }

    void gpu(const char *bus_id)
    {
        uct_cuda_wiring_gpu_t *gpu = &m_wiring.gpus[m_wiring.num_gpus++];

        EXPECT_TRUE(uct_cuda_bus_id_parse(bus_id, &gpu->bus_id));
        gpu->numa       = UCT_CUDA_WIRING_NONE;
        gpu->pci_switch = UCT_CUDA_WIRING_NONE;
    }

    std::filesystem::path m_root;
    uct_cuda_wiring_t     m_wiring;
};


/* By default it is in the usual place, without such a GPU */
TEST_F(test_sysfs, the_systems_sysfs_is_the_default)
{
    for (const char *path : {(const char*)NULL, ""}) {
        (path == NULL) ? unsetenv("SYSFS_PATH") : setenv("SYSFS_PATH", path, 1);
        m_wiring = {};
        gpu("ffff:ff:1f.7");
        uct_cuda_wiring_read_host(&m_wiring);
        EXPECT_EQ(UCT_CUDA_WIRING_NONE, m_wiring.gpus[0].numa);
    }
}

TEST_F(test_sysfs, gpus_behind_a_switch)
{
    const std::string port = "pci0000:15/0000:15:01.0";
    const std::string up   = port + "/0000:16:00.0";

    /* the slot is narrower than the switch */
    device(port, "16.0 GT/s PCIe", "8", "0x8086");
    device(up, "32.0 GT/s PCIe", "16", "0x1000");
    device(up + "/0000:17:00.0", "32.0 GT/s PCIe", "16", "0x1000");
    device(up + "/0000:17:01.0", "32.0 GT/s PCIe", "16", "0x1000");
    device(up + "/0000:17:00.0/0000:18:00.0", "32.0 GT/s PCIe", "16");
    device(up + "/0000:17:01.0/0000:1b:00.0", "32.0 GT/s PCIe", "16");
    gpu("0000:18:00.0");
    gpu("00000000:1B:00.0");
    uct_cuda_wiring_read_host(&m_wiring);

    EXPECT_TRUE(m_wiring.has_pci);
    ASSERT_EQ(1, m_wiring.num_switches);
    EXPECT_EQ(0x16, m_wiring.switches[0].bus_id.bus);
    EXPECT_EQ(UCT_CUDA_WIRING_NONE, m_wiring.switches[0].parent);
    EXPECT_EQ(4u, m_wiring.switches[0].pcie.generation);
    EXPECT_EQ(8u, m_wiring.switches[0].pcie.width);
    EXPECT_EQ(0, m_wiring.gpus[0].pci_switch);
    EXPECT_EQ(0, m_wiring.gpus[1].pci_switch);
    EXPECT_EQ(5u, m_wiring.gpus[1].pcie.generation);
    EXPECT_EQ(0, m_wiring.numa[m_wiring.gpus[1].numa].os_index);
}

TEST_F(test_sysfs, nested_switches)
{
    const std::string outer = "pci0000:00/0000:00:01.0/0000:01:00.0";
    const std::string inner = outer + "/0000:02:00.0/0000:03:00.0";

    device(outer, "16.0 GT/s PCIe", "16", "0x1000");
    device(inner, "16.0 GT/s PCIe", "16", "0x1000");
    device(inner + "/0000:04:00.0/0000:05:00.0");
    device(outer + "/0000:02:01.0/0000:06:00.0");
    gpu("0000:05:00.0");
    gpu("0000:06:00.0");
    uct_cuda_wiring_read_host(&m_wiring);

    ASSERT_EQ(2, m_wiring.num_switches);
    EXPECT_EQ(1, m_wiring.switches[0].bus_id.bus);
    EXPECT_EQ(3, m_wiring.switches[1].bus_id.bus);
    EXPECT_EQ(0, m_wiring.switches[1].parent);
    EXPECT_EQ(1, m_wiring.gpus[0].pci_switch);
    EXPECT_EQ(0, m_wiring.gpus[1].pci_switch);
}

TEST_F(test_sysfs, root_port_and_virtual_machine)
{
    device("pci0000:20/0000:20:01.0/0000:21:00.0", "8.0 GT/s PCIe", "16");
    device("pci0000:00/0000:00:05.0", "Unknown", "255");
    gpu("0000:21:00.0");
    gpu("0000:00:05.0");
    uct_cuda_wiring_read_host(&m_wiring);

    EXPECT_TRUE(m_wiring.has_pci);
    EXPECT_EQ(0, m_wiring.num_switches);
    EXPECT_EQ(UCT_CUDA_WIRING_NONE, m_wiring.gpus[0].pci_switch);
    EXPECT_EQ(3u, m_wiring.gpus[0].pcie.generation);
    EXPECT_EQ(0u, m_wiring.gpus[1].pcie.generation);
}

/* A link is as fast as the slower of its ends: here a slot of eight lanes */
TEST_F(test_sysfs, slower_port_above_the_gpu)
{
    device("pci0000:20/0000:20:01.0", "16.0 GT/s PCIe", "8");
    device("pci0000:20/0000:20:01.0/0000:21:00.0", "32.0 GT/s PCIe", "16");
    gpu("0000:21:00.0");
    uct_cuda_wiring_read_host(&m_wiring);
    EXPECT_EQ(4u, m_wiring.gpus[0].pcie.generation);
    EXPECT_EQ(8u, m_wiring.gpus[0].pcie.width);
}

/* A virtual machine's port is not the link's end: the GPU uses more lanes, or a
   higher speed, than the port has, idle or not */
TEST_F(test_sysfs, port_of_a_virtual_machine)
{
    const std::string port = "pci0000:20/0000:20:01.0";
    const std::string path = "devices/" + port + "/0000:21:00.0";
    struct {
        const char *width, *speed, *lanes;
        unsigned   generation;
    } cases[] = {
        {"1", "2.5 GT/s PCIe", "16", 5}, {"16", "32.0 GT/s PCIe", "16", 5},
        {"1", "2.5 GT/s PCIe", "1", 1}, {"16", "2.5 GT/s PCIe", "255", 1}
    };

    device(port, "2.5 GT/s PCIe", "1");
    device(port + "/0000:21:00.0", "32.0 GT/s PCIe", "16");
    for (auto &c : cases) {
        put("devices/" + port + "/max_link_width", c.width);
        put(path + "/current_link_speed", c.speed);
        put(path + "/current_link_width", c.lanes);
        m_wiring = {};
        gpu("0000:21:00.0");
        uct_cuda_wiring_read_host(&m_wiring);
        EXPECT_EQ(c.generation, m_wiring.gpus[0].pcie.generation) << c.lanes;
        EXPECT_EQ(5u, m_wiring.gpus[0].pcie_own.generation);
    }
}

/* Linux's values for devices without a link, and for sleeping ones */
TEST_F(test_sysfs, invalid_widths)
{
    for (const char *width : {"0", "63", "255", "-1", "x"}) {
        device("pci0000:20/0000:20:01.0/0000:21:00.0", "16.0 GT/s PCIe", width);
        m_wiring = {};
        gpu("0000:21:00.0");
        uct_cuda_wiring_read_host(&m_wiring);
        EXPECT_EQ(0u, m_wiring.gpus[0].pcie.generation) << width;
        EXPECT_EQ(0u, m_wiring.gpus[0].lanes);
        std::filesystem::remove(m_root / "bus/pci/devices/0000:21:00.0");
    }
}

TEST_F(test_sysfs, another_device_at_the_same_path)
{
    /* an emulated GPU's bus id may be a real network card's */
    device("pci0000:20/0000:20:01.0/0000:21:00.0", "32.0 GT/s PCIe", "16",
           "0x15b3");
    gpu("0000:21:00.0");
    uct_cuda_wiring_read_host(&m_wiring);
    EXPECT_FALSE(m_wiring.has_pci);
    EXPECT_EQ(0u, m_wiring.gpus[0].pcie.generation);
}

TEST_F(test_sysfs, numa_nodes)
{
    /* AC922: nodes 0 and 8 have processors, 252 to 255 are GPU memory */
    put("devices/system/node/has_cpu", "0,8");
    put("devices/system/node/node0/cpulist", "0-79");
    put("devices/system/node/node8/cpulist", "80-159");
    put("devices/system/cpu/cpu0/topology/physical_package_id", "0");
    put("devices/system/cpu/cpu80/topology/physical_package_id", "8");
    device("pci0035:00/0035:00:00.0/0035:03:00.0", "", "", "0x10de", "8");
    gpu("0035:03:00.0");
    uct_cuda_wiring_read_host(&m_wiring);

    ASSERT_EQ(2, m_wiring.num_numa);
    EXPECT_EQ(0, m_wiring.numa[0].os_index);
    EXPECT_EQ(8, m_wiring.numa[1].os_index);
    EXPECT_EQ(8, m_wiring.numa[1].socket);
    EXPECT_EQ(1, m_wiring.gpus[0].numa);
}

TEST_F(test_sysfs, unknown_numa_node)
{
    device("pci0000:20/0000:20:01.0/0000:21:00.0", "", "", "0x10de", "-1");
    gpu("0000:21:00.0");
    uct_cuda_wiring_read_host(&m_wiring);
    EXPECT_EQ(UCT_CUDA_WIRING_NONE, m_wiring.gpus[0].numa);
}

TEST_F(test_sysfs, invalid_contents)
{
    /* lists, numbers and paths that no kernel writes */
    put("devices/system/node/has_cpu", "7-3,,x,99999999999-");
    put("devices/system/node/node7/cpulist", "none");
    device("pci0000:20/here/0000:21:00.0");
    device("elsewhere/0000:22:00.0");
    gpu("0000:21:00.0");
    gpu("0000:22:00.0");
    uct_cuda_wiring_read_host(&m_wiring);
    EXPECT_FALSE(m_wiring.has_pci);
    EXPECT_EQ(0, m_wiring.num_switches);
}

TEST_F(test_sysfs, missing_files)
{
    gpu("0000:21:00.0");
    uct_cuda_wiring_read_host(&m_wiring);
    EXPECT_FALSE(m_wiring.has_pci);
    EXPECT_EQ(0, m_wiring.num_numa);
}


TEST(test_bus_id, texts)
{
    uct_cuda_bus_id_t bus_id;
    char text[32];

    ASSERT_TRUE(uct_cuda_bus_id_parse("00010000:AB:1f.7", &bus_id));
    EXPECT_EQ(0x10000u, bus_id.domain);
    EXPECT_STREQ("10000:ab:1f.7",
                 uct_cuda_bus_id_str(&bus_id, text, sizeof(text)));
    for (const char *wrong : {"", "0000:1a:00", "0000:1a:00.0x", "pci0000:15",
                              "1a", "0000-1a-00.0"}) {
        EXPECT_FALSE(uct_cuda_bus_id_parse(wrong, &bus_id)) << wrong;
    }
}
