/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Tests of node files: the installed ones, and malformed ones.
 */
#include "core_fixture.h"
#include "../../../test/gtest/comma.h"

#include <unistd.h>

#include <fstream>

/* ------------------------------------------------------------- our nodes */

TEST(core_node, beluga_is_a_mesh_of_48)
{
    core_node node("beluga");

    EXPECT_STREQ("beluga", node->name);
    ASSERT_EQ(4, node->num_gpus);
    EXPECT_EQ(2, node->num_numa);
    EXPECT_FALSE(node->has_nvswitch);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(70, node->gpus[i].sm);
        EXPECT_EQ(6, node->gpus[i].num_nvlinks);
        EXPECT_EQ(2, node->gpus[i].nvlink_version);
        EXPECT_EQ(3, node->gpus[i].pcie_gen);
        EXPECT_EQ(16, node->gpus[i].pcie_width);
        for (int k = 0; k < 4; ++k) {
            if (i != k) {
                EXPECT_DOUBLE_EQ(48e9, node.route(i, k).solo_rate);
                EXPECT_TRUE(node.route(i, k).p2p);
            }
        }
    }
}

TEST(core_node, a_decimal_comma_in_the_programs_locale)
{
    const char *names[] = {"beluga", "narval", "gh200", "pcie-only"};
    std::vector<core_node> expected(std::begin(names), std::end(names));
    char text[8];

    Comma comma;
    if (!comma.is_set) {
        GTEST_SKIP() << "no locale with a decimal comma";
    }

    for (core_node &node : expected) {
        core_node read(node->name);
        EXPECT_EQ(0, memcmp(&*node, &*read, sizeof(cuemu_node_t)))
                << node->name;
    }

    EXPECT_EQ(2.5, cuemu_strtod("2.5", NULL));
    cuemu_print(text, sizeof(text), "%.1f", 2.5);
    EXPECT_STREQ("2.5", text);
    EXPECT_EQ(',', *localeconv()->decimal_point);
}

/* beluga's host path is one PCIe 3 link for both directions. The papers found
   that host staging hurts when both directions run. */
TEST(core_node, beluga_host_path_is_shared_by_both_directions)
{
    core_node node("beluga");
    node.no_fixed_times();
    core_sim s(*node);
    cuemu_place_t host = CUEMU_PLACE_NUMA(0);

    cuemu_op_id_t a_up   = s.copy(0, host, 1 << 28);
    cuemu_op_id_t a_down = s.copy(host, 1, 1 << 28);
    cuemu_sim_advance(s.sim, 1);
    EXPECT_DOUBLE_EQ(9.5e9, cuemu_sim_op_rate(s.sim, a_up));
    EXPECT_DOUBLE_EQ(9.5e9, cuemu_sim_op_rate(s.sim, a_down));
    s.copy(1, host, 1 << 28, {}, 1);
    s.copy(host, 0, 1 << 28, {}, 1);
    cuemu_sim_advance(s.sim, 2);
    EXPECT_DOUBLE_EQ(4.75e9, cuemu_sim_op_rate(s.sim, a_up));
    EXPECT_DOUBLE_EQ(4.75e9, cuemu_sim_op_rate(s.sim, a_down));
}

TEST(core_node, narval_is_a_mesh_of_four_links)
{
    core_node node("narval");

    ASSERT_EQ(4, node->num_gpus);
    EXPECT_EQ(80, node->gpus[0].sm);
    EXPECT_EQ(12, node->gpus[0].num_nvlinks);
    EXPECT_NEAR(93e9, node.route(0, 3).solo_rate, 1e9);
    EXPECT_NEAR(25e9, node.route(0, CUEMU_PLACE_NUMA(0)).solo_rate, 1e9);
    EXPECT_EQ(1, node->gpus[3].numa);
}

TEST(core_node, mist_goes_to_the_host_by_nvlink)
{
    core_node node("mist");

    ASSERT_EQ(4, node->num_gpus);
    EXPECT_DOUBLE_EQ(72e9, node.route(0, 1).solo_rate);
    EXPECT_DOUBLE_EQ(72e9, node.route(0, CUEMU_PLACE_NUMA(0)).solo_rate);
    EXPECT_DOUBLE_EQ(41e9, node.route(0, CUEMU_PLACE_NUMA(1)).solo_rate);
    EXPECT_DOUBLE_EQ(41e9, node.route(0, 2).solo_rate);
    EXPECT_EQ(CUEMU_PEER_CPU, node->gpus[0].nvlinks[3].peer_type);
}

TEST(core_node, gh200_goes_to_the_host_by_c2c)
{
    core_node node("gh200");

    /* ten links of 44.712 GB/s, six NVLink 4 of 26.562, 83 % of each; to the
     * memory of another superchip through both processors */
    ASSERT_EQ(4, node->num_gpus);
    EXPECT_EQ(18, node->gpus[0].num_nvlinks);
    EXPECT_NEAR(371e9, node.route(0, CUEMU_PLACE_NUMA(0)).solo_rate, 1e9);
    EXPECT_NEAR(132e9, node.route(0, 3).solo_rate, 1e9);
    EXPECT_DOUBLE_EQ(100e9, node.route(0, CUEMU_PLACE_NUMA(1)).solo_rate);
    EXPECT_NEAR(20e9, node.route(0, CUEMU_PLACE_PAGEABLE).solo_rate, 1e9);
}

TEST(core_node, dgx1_has_pairs_without_peer_access)
{
    core_node node("dgx1");

    ASSERT_EQ(8, node->num_gpus);
    EXPECT_DOUBLE_EQ(24e9, node.route(0, 1).solo_rate);
    EXPECT_DOUBLE_EQ(48e9, node.route(0, 3).solo_rate);
    EXPECT_TRUE(node.route(0, 4).p2p);
    EXPECT_FALSE(node.route(0, 5).p2p);
    EXPECT_LT(node.route(0, 5).solo_rate, 13e9);
    EXPECT_EQ(1, cuemu_node_pci_distance(&*node, 0, 1));
    EXPECT_EQ(3, cuemu_node_pci_distance(&*node, 0, 2));
    EXPECT_EQ(4, cuemu_node_pci_distance(&*node, 0, 4));
    EXPECT_EQ(0, cuemu_node_pci_distance(&*node, 2, 2));
}

TEST(core_node, hgx_h200_shares_ports)
{
    core_node node("hgx-h200");

    ASSERT_EQ(4, node->num_gpus);
    EXPECT_TRUE(node->has_nvswitch);
    EXPECT_EQ(18, node->gpus[2].num_nvlinks);
    EXPECT_STREQ("NVIDIA H200", node->gpus[2].name);
    EXPECT_DOUBLE_EQ(397e9, node.route(0, 3).solo_rate);
    EXPECT_DOUBLE_EQ(55e9, node.route(0, CUEMU_PLACE_NUMA(0)).solo_rate);
    EXPECT_EQ(node.route(0, 1).links[0], node.route(0, 2).links[0]);
}

TEST(core_node, pcie_only_meets_at_the_switch_or_not_at_all)
{
    core_node node("pcie-only");

    ASSERT_EQ(4, node->num_gpus);
    EXPECT_EQ(0, node->gpus[0].num_nvlinks);
    EXPECT_TRUE(node.route(0, 1).p2p);
    EXPECT_EQ(2, node.route(0, 1).num_links); /* one link up, one link down */
    EXPECT_TRUE(node.route(2, 3).p2p);
    EXPECT_FALSE(node.route(0, 2).p2p);
    EXPECT_GT(node.route(0, 2).setup, node.route(0, 1).setup);
}

/* The driver's copies go over the links of both GPUs, slower than these */
TEST(core_node, no_peers_go_through_the_host)
{
    core_node node("pcie-no-peers");

    ASSERT_EQ(4, node->num_gpus);
    EXPECT_FALSE(node.route(0, 1).p2p);
    EXPECT_FALSE(node.route(3, 0).p2p);
    EXPECT_TRUE(node.route(2, 2).p2p);
    EXPECT_EQ(5, node.route(0, 1).num_links);
    EXPECT_DOUBLE_EQ(42.5e9, node.route(0, 1).solo_rate);
    EXPECT_DOUBLE_EQ(55e9, node.route(0, CUEMU_PLACE_NUMA(0)).solo_rate);
    EXPECT_DOUBLE_EQ(764e9, node.route(2, 2).solo_rate);
}

TEST(core_node, every_node_connects_everything)
{
    for (const char *name : {"beluga", "cedar", "dgx1", "h200-x2", "hgx-h200",
                             "mist", "narval", "pcie-no-peers", "pcie-only"}) {
        core_node node(name);
        std::vector<cuemu_place_t> places = {CUEMU_PLACE_PAGEABLE};

        for (int i = 0; i < node->num_gpus; ++i) {
            places.push_back(CUEMU_PLACE_GPU(i));
            EXPECT_GT(node->gpus[i].memory_bytes, 1ull << 30);
            EXPECT_NE('\0', node->gpus[i].name[0]);
            for (int k = 0; k < i; ++k) {
                EXPECT_NE(0, memcmp(node->gpus[i].uuid, node->gpus[k].uuid,
                                    16));
            }
        }
        for (int i = 0; i < node->num_numa; ++i) {
            places.push_back(CUEMU_PLACE_NUMA(i));
        }
        for (auto src : places) {
            for (auto dst : places) {
                const cuemu_route_t *route = cuemu_node_route(&*node, src, dst);
                ASSERT_NE(nullptr, route) << name << " " << src << ">" << dst;
                EXPECT_GT(route->solo_rate, 1e9);
            }
        }
        EXPECT_EQ(nullptr, cuemu_node_route(&*node, 15, 0));
        EXPECT_EQ(nullptr, cuemu_node_route(&*node, 0, 1000));
    }
}

/* ----------------------------------------------------------- broken files */

class core_xml : public ::testing::Test {
protected:
    void SetUp() override
    {
        char name[] = "/tmp/cuemu_node_XXXXXX";
        int fd      = mkstemp(name);

        ASSERT_GE(fd, 0);
        close(fd);
        m_path = name;
    }

    void TearDown() override
    {
        unlink(m_path.c_str());
    }

    /* Load `text` and expect an error message with the file, the line and
       `reason`. */
    void refuse(const std::string &text, int line, const std::string &reason)
    {
        cuemu_status_t status = load(text);

        EXPECT_EQ(CUEMU_ERR_PARSE, status) << text;
        EXPECT_NE(std::string::npos,
                  m_error.find(m_path + ":" + std::to_string(line) + ": "))
                << m_error;
        EXPECT_NE(std::string::npos, m_error.find(reason)) << m_error;
    }

    cuemu_status_t load(const std::string &text)
    {
        char error[CUEMU_ERRBUF_SIZE] = "";

        std::ofstream(m_path) << text;
        cuemu_status_t status = cuemu_node_load(m_path.c_str(), &m_node, error);
        m_error = error;
        return status;
    }

    /* Return a file of one CPU and one GPU with `inside`, beginning at line 1;
       then `after`. */
    static std::string one_gpu(const std::string &inside,
                               const std::string &after = "",
                               const std::string &speed = "16.0 GT/s PCIe")
    {
        return "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\">\n"
               "<pci busid=\"0000:01:00.0\" link_speed=\"" + speed +
               "\" link_width=\"16\">\n<gpu dev=\"0\" sm=\"80\">\n" + inside +
               "</gpu>\n</pci>\n</cpu>\n" + after + "</system>\n";
    }

    std::string  m_path;
    std::string  m_error;
    cuemu_node_t m_node;
};

TEST_F(core_xml, a_small_file_is_valid)
{
    EXPECT_EQ(CUEMU_OK, load(one_gpu(""))) << m_error;
    EXPECT_EQ(1, m_node.num_gpus);
    EXPECT_EQ(4, m_node.gpus[0].pcie_gen);
}

TEST_F(core_xml, missing_file)
{
    char error[CUEMU_ERRBUF_SIZE] = "";

    EXPECT_EQ(CUEMU_ERR_IO,
              cuemu_node_load("/nonexistent/n.xml", &m_node, error));
    EXPECT_STREQ("/nonexistent/n.xml: No such file or directory", error);
    EXPECT_EQ(CUEMU_ERR_IO, cuemu_node_load("/tmp", &m_node, error));
}

TEST_F(core_xml, broken_xml)
{
    refuse("<system>\n<cpu>\n</system>", 3, "broken XML");
    refuse("", 1, "broken XML");
    refuse("not at all", 1, "broken XML");
    std::string good = one_gpu("");
    for (size_t cut = 1; cut + 2 < good.size(); cut += 3) {
        EXPECT_EQ(CUEMU_ERR_PARSE, load(good.substr(0, cut)));
    }
}

TEST_F(core_xml, long_path)
{
    std::string path = m_path;

    m_path += std::string(200, 'x');
    EXPECT_EQ(CUEMU_ERR_PARSE, load("<graphs/>"));
    EXPECT_NE(std::string::npos, m_error.find("xxx:1: the root element"))
            << m_error;
    unlink(m_path.c_str());
    m_path = path;
}

TEST_F(core_xml, other_root)
{
    refuse("<graphs version=\"1\"/>", 1, "not an NCCL topology file");
}

TEST_F(core_xml, no_gpu)
{
    refuse("<system version=\"1\">\n<cpu numaid=\"0\"/>\n</system>", 1,
           "no GPU");
}

TEST_F(core_xml, nvlink_to_nowhere)
{
    refuse(one_gpu("<nvlink target=\"0000:99:00.0\" count=\"2\" "
                   "tclass=\"0x030200\"/>\n"), 5, "0000:99:00.0");
    refuse(one_gpu("<nvlink count=\"2\"/>\n"), 5, "without a target");
    refuse(one_gpu("<nvlink target=\"x\" count=\"-2\" tclass=\"0x68000\"/>\n"),
           5, "count=\"-2\"");
    refuse(one_gpu("<nvlink target=\"x\" count=\"24\" tclass=\"0x68000\"/>\n"
                   "<nvlink target=\"y\" count=\"24\" tclass=\"0x68000\"/>\n"),
           6, "more than 36");
}

TEST_F(core_xml, speeds)
{
    refuse(one_gpu("", "", "-8.0 GT/s PCIe"), 3, "link_speed=\"-8.0");
    refuse(one_gpu("", "", "fast"), 3, "link_speed=\"fast\"");
    EXPECT_EQ(CUEMU_OK, load(one_gpu("", "", ""))) << m_error;
    EXPECT_EQ(CUEMU_OK, load(one_gpu("", "", "32.0 GT/s PCIe")));
    EXPECT_EQ(5, m_node.gpus[0].pcie_gen);
}

TEST_F(core_xml, gpu_attributes)
{
    refuse("<system>\n<cpu>\n<pci busid=\"0000:01:00.0\">\n<gpu dev=\"0\"/>\n"
           "</pci></cpu></system>", 4, "no sm");
    refuse("<system>\n<cpu>\n<pci busid=\"0000:01:00.0\">\n"
           "<gpu dev=\"0\" sm=\"x\"/>\n</pci></cpu></system>", 4, "sm=\"x\"");
    refuse("<system>\n<cpu>\n<pci busid=\"zebra\"/></cpu></system>", 3,
           "zebra");
    refuse("<system><cpu>\n<pci busid=\"0000:01:00.0\">\n"
           "<gpu dev=\"0\" sm=\"70\"/></pci>\n<pci busid=\"0000:02:00.0\">\n"
           "<gpu dev=\"0\" sm=\"70\"/></pci></cpu></system>", 5,
           "two GPUs with dev=\"0\"");
}

/* Mistakes and peculiarities found in files of real machines and clouds. */
TEST_F(core_xml, files_of_real_machines)
{
    std::string gpus[2];

    for (int i = 0; i < 2; ++i) {
        gpus[i] = "<pci busid=\"0001:0" + std::to_string(i) + ":00.0\" "
                  "link_speed=\"Unknown speed\" link_width=\"" +
                  std::string(i ? "255" : "63") + "\"><gpu dev=\"" +
                  std::to_string(i) + "\" sm=\"80\">"
                  "<nvlink target=\"0001:00:00.0\" count=\"12\" "
                  "tclass=\"0x030200\"/></gpu></pci>";
    }
    ASSERT_EQ(CUEMU_OK, load("<system><cpu numaid=\"-1\">" + gpus[0] +
                             gpus[1] + "</cpu></system>")) << m_error;
    for (int i = 0; i < 2; ++i) {
        /* gpu0's link names gpu0 by mistake; it connects gpu1 */
        EXPECT_EQ(12, m_node.gpus[i].num_nvlinks);
        EXPECT_EQ(1 - i, m_node.gpus[i].nvlinks[0].peer_gpu);
        /* without link attributes: the generation's default */
        EXPECT_EQ(4, m_node.gpus[i].pcie_gen);
        EXPECT_EQ(16, m_node.gpus[i].pcie_width);
        EXPECT_DOUBLE_EQ(25e9, cuemu_node_route(&m_node, i, CUEMU_PLACE_NUMA(0))
                         ->own_rate);
    }

    /* of two hosts connected by NVLink only the first is read; two parts of a
       GPU are two GPUs */
    std::string parts = "<pci busid=\"0002:81:00.0\">"
                        "<gpu dev=\"0\" sm=\"107\" mlopart=\"0\">"
                        "<nvlink target=\"fffffff:ff:ff.0\" count=\"36\" "
                        "tclass=\"0x068000\"/></gpu>"
                        "<gpu dev=\"0\" sm=\"107\" mlopart=\"1\"/></pci>";
    ASSERT_EQ(CUEMU_OK, load("<system version=\"2\"><cpu host_hash=\"0x1\">" +
                             parts + "</cpu><cpu host_hash=\"0x2\">" + gpus[0] +
                             parts + "</cpu></system>")) << m_error;
    ASSERT_EQ(2, m_node.num_gpus);
    EXPECT_EQ(36, m_node.gpus[0].num_nvlinks);
    EXPECT_STREQ("0002:81:00.0", m_node.gpus[0].busid);
    EXPECT_STREQ("0002:81:01.0", m_node.gpus[1].busid);

    refuse("<system>\n<cpu affinity=\"-1\"/></system>", 2, "is not a mask");
    refuse("<system>\n<cpu affinity=\"" + std::string(3000, '0') +
           "\"/></system>", 2, "0...\" of <cpu> is not a mask");
}

/* A virtual machine's bridge is not modelled as a link, unless a <cuemu>
   element sets its rate. */
TEST_F(core_xml, virtual_bridges)
{
    std::string text = one_gpu("");
    size_t at        = text.find("<pci");

    text.insert(at, "<pci busid=\"0000:00:01.0\" class=\"0x060400\" "
                "link_speed=\"2.5 GT/s PCIe\" link_width=\"1\">");
    text.insert(text.find("</cpu>"), "</pci>");
    ASSERT_EQ(CUEMU_OK, load(text)) << m_error;
    EXPECT_DOUBLE_EQ(25e9, cuemu_node_route(&m_node, 0, CUEMU_PLACE_NUMA(0))
                     ->solo_rate);
    text.insert(text.find("</system>"), "<cuemu set=\"link\" "
                "name=\"bridge.*\" gbps=\"0.2\" source=\"a riser\"/>");
    ASSERT_EQ(CUEMU_OK, load(text)) << m_error;
    EXPECT_DOUBLE_EQ(0.2e9, cuemu_node_route(&m_node, 0, CUEMU_PLACE_NUMA(0))
                     ->solo_rate);
}

TEST_F(core_xml, nesting_without_end)
{
    std::string text = "<system><cpu>";

    for (int i = 0; i < 200; ++i) {
        char pci[64];
        snprintf(pci, sizeof(pci), "\n<pci busid=\"%04x:01:00.0\">", i);
        text += pci;
    }
    for (int i = 0; i < 200; ++i) {
        text += "</pci>";
    }
    refuse(text + "</cpu></system>", 7, "nested");
}

TEST_F(core_xml, overrides)
{
    EXPECT_EQ(CUEMU_OK,
              load(one_gpu("",
                           "<cuemu set=\"link\" name=\"pcie.*\" gbps=\"20\" "
                           "source=\"test\"/>\n"
                           "<cuemu set=\"shared\" name=\"s\" "
                           "members=\"pcie.0.up pcie.0.down\" gbps=\"15\" "
                           "source=\"test\"/>\n"
                           "<cuemu set=\"cost\" name=\"ipc-open\" us=\"7\" "
                           "source=\"test\"/>\n"
                           "<cuemu set=\"copy\" name=\"pcie.0.up\" "
                           "setup_us=\"9\" source=\"test\"/>\n"
                           "<cuemu set=\"copy\" name=\"pageable-d2h\" "
                           "complete_us=\"8\" small_us=\"32\" "
                           "source=\"test\"/>\n"
                           "<cuemu set=\"gpu\" name=\"0\" model=\"Toy\" "
                           "memory_mib=\"64\" source=\"test\"/>\n")))
            << m_error;
    const cuemu_route_t *up   = cuemu_node_route(&m_node, 0,
                                                 CUEMU_PLACE_NUMA(0));
    const cuemu_route_t *down = cuemu_node_route(&m_node, CUEMU_PLACE_NUMA(0),
                                                 0);
    EXPECT_DOUBLE_EQ(15e9, up->solo_rate);
    EXPECT_DOUBLE_EQ(15e9, down->solo_rate);
    EXPECT_EQ(9 * CUEMU_PS_PER_US, up->setup);
    EXPECT_NE(9 * CUEMU_PS_PER_US, down->setup);
    EXPECT_EQ(8 * CUEMU_PS_PER_US,
              cuemu_node_route(&m_node, 0, CUEMU_PLACE_PAGEABLE)->complete);
    EXPECT_EQ(cuemu_node_route(&m_node, 0, CUEMU_PLACE_PAGEABLE)->setup +
                      16 * CUEMU_PS_PER_US,
              cuemu_route_setup(cuemu_node_route(&m_node, 0,
                                                 CUEMU_PLACE_PAGEABLE),
                                32768));
    for (auto other : {up, down,
                       cuemu_node_route(&m_node, CUEMU_PLACE_PAGEABLE, 0)}) {
        EXPECT_NE(8 * CUEMU_PS_PER_US, other->complete);
    }
    EXPECT_EQ(7 * CUEMU_PS_PER_US, m_node.cost.call[CUEMU_CALL_IPC_OPEN]);
    EXPECT_STREQ("Toy", m_node.gpus[0].name);
    EXPECT_EQ(64ull << 20, m_node.gpus[0].memory_bytes);
}

TEST_F(core_xml, wrong_overrides)
{
    struct {
        const char *element;
        const char *reason;
    } wrong[] = {
        {"set=\"link\" name=\"pcie.*\" gbps=\"-3\" source=\"t\"",
         "gbps=\"-3\""},
        {"set=\"link\" name=\"pcie.*\" gbps=\"0\" source=\"t\"", "gbps="},
        {"set=\"link\" name=\"pcie.*\" source=\"t\"", "gbps="},
        {"set=\"link\" name=\"wire\" gbps=\"1\" source=\"t\"", "\"wire\""},
        {"set=\"link\" name=\"pcie.*\" gbps=\"1\"", "source"},
        {"set=\"shared\" name=\"s\" members=\"x\" gbps=\"1\" source=\"t\"",
         "\"x\""},
        {"set=\"shared\" name=\"s\" gbps=\"1\" source=\"t\"", "members"},
        {"set=\"cost\" name=\"tea\" us=\"1\" source=\"t\"", "\"tea\""},
        {"set=\"cost\" name=\"ipc-open\" source=\"t\"", "us="},
        {"set=\"copy\" name=\"nvlink.*\" setup_us=\"1\" source=\"t\"",
         "nvlink"},
        {"set=\"gpu\" name=\"7\" model=\"x\" source=\"t\"", "GPU \"7\""},
        {"set=\"gpu\" name=\"0\" memory_mib=\"1\" source=\"t\"", "memory_mib"},
        {"set=\"color\" name=\"0\" source=\"t\"", "color"},
        {"set=\"link\" gbps=\"1\" source=\"t\"", "without a name"}
    };

    for (auto &w : wrong) {
        refuse(one_gpu("", std::string("<cuemu ") + w.element + "/>\n"), 8,
               w.reason);
    }
}

/* Replace each byte of a good file in turn: the result is an error message or a
   node, never a crash. */
TEST_F(core_xml, damaged_files_do_not_crash)
{
    const char *dir = getenv("CUEMU_NODES");
    std::ifstream in(std::string(dir == NULL ? "nodes" : dir) + "/mist.xml");
    std::string good((std::istreambuf_iterator<char>(in)),
                     std::istreambuf_iterator<char>());
    unsigned seed = 1;

    ASSERT_GT(good.size(), 1000u);
    for (int i = 0; i < 400; ++i) {
        std::string bad = good;
        for (int k = 0; k < 3; ++k) {
            seed = seed * 1103515245u + 12345u;
            bad[(seed >> 8) % bad.size()] = "<>\"/=0 -9\nxA"[(seed >> 4) % 12];
        }
        cuemu_status_t status = load(bad);
        if (status != CUEMU_OK) {
            EXPECT_NE(std::string::npos, m_error.find(m_path)) << m_error;
        }
    }
}

/* ---------------------------------------------------------------- finding */

TEST(core_find, names_and_paths)
{
    char path[256], error[CUEMU_ERRBUF_SIZE];

    EXPECT_EQ(CUEMU_OK, cuemu_node_find("beluga", NULL, path, sizeof(path),
                                        error)) << error;
    EXPECT_NE(nullptr, strstr(path, "/beluga.xml"));
    EXPECT_EQ(CUEMU_ERR_IO, cuemu_node_find("atlantis", "/nowhere", path,
                                            sizeof(path), error));
    EXPECT_NE(nullptr, strstr(error, "\"atlantis\"")) << error;
    EXPECT_EQ(CUEMU_OK, cuemu_node_find("./some/where.xml", NULL, path,
                                        sizeof(path), error));
    EXPECT_STREQ("./some/where.xml", path);
}
