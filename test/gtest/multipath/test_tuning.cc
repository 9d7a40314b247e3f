/* SPDX-License-Identifier: BSD-3-Clause */
/* Tuning tables: what is read, what is refused and where, and what a planner
 * makes of them. */
#include "nodes.h"

#include <check/transfer_check.h>
#include <uct/cuda/plan/tuning.h>
#include <uct/cuda/run/graph_cost.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <unistd.h>
#include <vector>


class test_tuning : public ::testing::Test
{
protected:
    typedef std::unique_ptr<uct_cuda_mp_tuning_t, decltype(&free)> table_t;

    test_tuning() :
        m_node(beluga()), m_plan(new uct_cuda_mp_plan_t), m_table(NULL, free)
    {
    }

    ucs_status_t read(const std::string &text)
    {
        uct_cuda_mp_tuning_t *table = NULL;
        FILE *stream = fmemopen((void*)text.data(), text.size(), "r");
        ucs_status_t status;

        m_error[0] = '\0';
        status     = uct_cuda_mp_tuning_read(stream, "my.tune", &m_node,
                                             m_error, sizeof(m_error), &table);
        fclose(stream);
        m_table.reset(table);
        return status;
    }

    std::string print() const
    {
        std::ostringstream text;

        text.precision(17); /* Enough to be read back as they are */
        text << "ucx-mp-tuning " << UCT_CUDA_MP_TUNING_FORMAT << "\nnode "
             << m_table->node << "\ndate " << m_table->date << "\n";
        for (unsigned i = 0; uct_cuda_mp_model_constants[i].name != NULL; ++i) {
            if (m_table->model_set & (1u << i)) {
                text << "model " << uct_cuda_mp_model_constants[i].name << " "
                     << uct_cuda_mp_model_get(&m_table->model, i) << "\n";
            }
        }

        for (unsigned i = 0; i < m_table->num_lines; ++i) {
            print_line(text, m_table->lines[i]);
        }

        return text.str();
    }

    void print_line(std::ostream &text,
                    const uct_cuda_mp_tuning_line_t &line) const
    {
        static const char *executors[] = {"streams", "graph", "auto"};

        text << m_table->classes[line.pair_class] << " " << line.min_size
             << " " << line.max_size << " ";
        for (unsigned p = 0; p < line.num_paths; ++p) {
            const uct_cuda_mp_path_t &path = line.paths[p];

            text << ((p == 0) ? "" : ",")
                 << ((path.route == UCT_CUDA_MP_ROUTE_GPU) ?
                             "relay" + std::to_string(path.gpu) :
                     (path.route == UCT_CUDA_MP_ROUTE_HOST) ? "host" :
                                                              "direct")
                 << ":" << line.shares[p];
            if (line.chunks[p] > 0) {
                text << ":" << line.chunks[p];
            }
        }

        text << " " << executors[line.graph] << "\n";
    }

    void refused(const std::string &line, const char *because)
    {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, read(HEAD + line + "\n")) << line;
        /* The fourth line of the file */
        EXPECT_EQ(m_error, strstr(m_error, "my.tune:4: ")) << m_error;
        EXPECT_NE(nullptr, strstr(m_error, because)) << m_error;
    }

    /* Another node, and a table for it of these lines */
    void on(const uct_cuda_topo_t &node)
    {
        m_node = node;
    }

    void model(const std::string &lines)
    {
        table_t empty(uct_cuda_mp_tuning_create(&m_node), free);

        ASSERT_EQ(UCS_OK, read(std::string("ucx-mp-tuning 1\nnode ") +
                               empty->node + "\ndate 2026-11-21\n" + lines))
                << m_error;
    }

    bool wants_graph(const Config &config, unsigned *threshold_p = NULL)
    {
        return uct_cuda_mp_cost_wants_graph(m_plan.get(), config,
                                            &uct_cuda_mp_model_builtin,
                                            threshold_p);
    }

    void plan(const Config &config, int src, int dst, size_t size,
              const uct_cuda_mp_load_t *load = NULL)
    {
        char error[256] = "";

        uct_cuda_mp_plan_make(Know(m_node, config, load, m_table.get()),
                              End(src), End(dst), size, m_plan.get());
        EXPECT_EQ(UCS_OK,
                  uct_cuda_mp_plan_check(m_plan.get(), error, sizeof(error)))
                << error;
    }

    std::string paths() const
    {
        std::string text;
        char name[16];

        for (unsigned i = 0; i < m_plan->num_paths; ++i) {
            text += (i ? "," : "");
            text += uct_cuda_mp_path_str(&m_plan->paths[i].path, name,
                                         sizeof(name));
        }
        return text;
    }

    static const std::string            HEAD;
    static const std::string            PAIR;
    uct_cuda_topo_t                     m_node;
    std::unique_ptr<uct_cuda_mp_plan_t> m_plan;
    table_t                             m_table;
    char                                m_error[512];
};

/* Two NVLinks of 24 GB/s to each of three others, PCIe 3 */
const std::string test_tuning::PAIR = "48.0:48.0,48.0:12.0";
const std::string test_tuning::HEAD =
        "ucx-mp-tuning 1\nnode 4 gpus, 12 x 48.0:48.0,48.0:12.0\n"
        "date 2026-11-21\n";


TEST_F(test_tuning, reads_what_people_write)
{
    ASSERT_EQ(UCS_OK, read("# mine\n\n" + HEAD + "# small\n" + PAIR +
                           " 64k 1m direct:1 auto  \r\n" + PAIR + "\t1048577 " +
                           "2G relay2:.25:32,direct:0.75 streams"))
            << m_error;
    ASSERT_EQ(2u, m_table->num_lines);
    EXPECT_STREQ("2026-11-21", m_table->date);
    EXPECT_EQ(64 * KiB, m_table->lines[0].min_size);
    EXPECT_EQ(1 * MiB, m_table->lines[0].max_size);
    EXPECT_EQ(UCT_CUDA_MP_AUTO, m_table->lines[0].graph);
    EXPECT_EQ(2048 * MiB, m_table->lines[1].max_size);
    EXPECT_EQ(2, m_table->lines[1].paths[0].gpu);
    EXPECT_EQ(.25, m_table->lines[1].shares[0]);
    EXPECT_EQ(32u, m_table->lines[1].chunks[0]);
    EXPECT_EQ(0u, m_table->lines[1].chunks[1]);
    EXPECT_EQ(UCT_CUDA_MP_NO, m_table->lines[1].graph);
}

TEST_F(test_tuning, writes_what_it_reads)
{
    std::string text;

    ASSERT_EQ(UCS_OK, read(HEAD + PAIR + " 1 2 direct:0.1,host:0.2:3,relay1:"
                           "0.7:64 graph\n" + PAIR + " 3 4 direct:1 auto\n"))
            << m_error;
    text = print();
    ASSERT_EQ(UCS_OK, read(text)) << m_error;
    EXPECT_EQ(2u, m_table->num_lines);
    EXPECT_EQ(.1, m_table->lines[0].shares[0]);
    EXPECT_EQ(UCT_CUDA_MP_ROUTE_HOST, m_table->lines[0].paths[1].route);
    EXPECT_EQ(64u, m_table->lines[0].chunks[2]);
    EXPECT_EQ(UCT_CUDA_MP_YES, m_table->lines[0].graph);
    EXPECT_EQ(text, print());
}

TEST_F(test_tuning, only_headers)
{
    EXPECT_EQ(UCS_OK, read(HEAD)) << m_error;
    EXPECT_EQ(NULL, uct_cuda_mp_tuning_find(m_table.get(), End(0), End(1),
                                            MiB));
}

TEST_F(test_tuning, fingerprint_tells_nodes_apart)
{
    ASSERT_EQ(UCS_OK, read(HEAD));
    m_node = mesh_node(4, 93 * GB, 25 * GB);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(HEAD));
    EXPECT_EQ(m_error, strstr(m_error, "my.tune:2: made for another node"));
    m_node = mesh_node(3, 48 * GB, 12 * GB);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(HEAD));

    /* One dead link is another node; the order of the GPUs is not */
    m_node = beluga();
    uct_cuda_topo_set_link(&m_node, 2, 1, 0, -1, -1);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(HEAD));
    table_t a(uct_cuda_mp_tuning_create(&m_node), free);
    m_node = beluga();
    uct_cuda_topo_set_link(&m_node, 3, 0, 0, -1, -1);
    table_t b(uct_cuda_mp_tuning_create(&m_node), free);
    EXPECT_STREQ(a->node, b->node);
}

/* As src/cuemu marks its GPUs */
static void emulate(uct_cuda_topo_t *node, const char *name)
{
    for (int i = 0; i < node->num_gpus; ++i) {
        memset(node->gpus[i].uuid, 0, sizeof(node->gpus[i].uuid));
        memcpy(node->gpus[i].uuid, "emu", 3);
        memcpy(node->gpus[i].uuid + 3, name, strlen(name));
        node->gpus[i].uuid[15] = (uint8_t)(i + 1);
    }
}

TEST_F(test_tuning, emulated_is_not_real)
{
    std::string head = HEAD;

    head.insert(head.find("4 gpus"), "emulated beluga, ");
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(head));
    EXPECT_EQ(m_error, strstr(m_error, "my.tune:2: made for another node"));

    emulate(&m_node, "beluga");
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(HEAD));
    EXPECT_EQ(UCS_OK, read(head)) << m_error;

    /* Another node of the same links */
    emulate(&m_node, "cedar");
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(head));

    /* One GPU's UUID happens to begin so */
    m_node = beluga();
    memcpy(m_node.gpus[0].uuid, "emubeluga", 9);
    EXPECT_EQ(UCS_OK, read(HEAD)) << m_error;
}

TEST_F(test_tuning, largest_node_fits)
{
    /* Every pair of its own class: too many for one line, but no harm */
    m_node = mesh_node(16, 48 * GB, 12 * GB);
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 16; ++j) {
            if (i != j) {
                uct_cuda_topo_set_link(&m_node, i, j, (100 + 16 * i + j) * GB,
                                       -1, -1);
            }
        }
    }
    m_table.reset(uct_cuda_mp_tuning_create(&m_node));
    EXPECT_EQ(240, m_table->num_classes);
    EXPECT_EQ(UCS_OK, read(print())) << m_error;
}

TEST_F(test_tuning, headers)
{
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read("ucx-mp-tuning 2\n"));
    EXPECT_EQ(m_error, strstr(m_error, "my.tune:1: format 2 is newer"));
    for (const char *text :
         {"\n", "#\n", "ucx-mp-tuning\n", "ucx-mp-tuning 0\n",
          "ucx-mp-tuning x\n", "ucx-mp-tuning 1x\n", "ucx-mp-tuning -1\n",
          "ucx-mp-tuning 1\ndate x\n", "ucx-mp-tuning 1\n",
          "ucx-mp-tuning 99999999999999999999\n", "<system>\n"}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, read(text)) << text;
        EXPECT_EQ(m_error, strstr(m_error, "my.tune:")) << m_error;
    }
}

TEST_F(test_tuning, wrong_lines)
{
    refused("48.0:48.0,48.0:13.0 1 2 direct:1 auto", "is of class");
    refused(PAIR + " 1 2 direct:1", "not five words");
    refused(PAIR + " 1 2 direct:1 auto more", "not five words");
    refused(PAIR + " 1 2 direct:1 auto more and more", "not five words");
    refused("x", "not five words");
    refused(PAIR + " 2 1 direct:1 auto", "no range");
    refused(PAIR + " -1 1 direct:1 auto", "no range");
    refused(PAIR + " 1 2x direct:1 auto", "no range");
    refused(PAIR + " 1 2mm direct:1 auto", "no range");
    refused(PAIR + " 1 99999999999g direct:1 auto", "no range");
    refused(PAIR + " 1 99999999999999999999 direct:1 auto", "no range");
    refused(PAIR + " 1 2 direct auto", "has no share");
    refused(PAIR + " 1 2 direct:1,, auto", "empty path");
    refused(PAIR + " 1 2 , auto", "empty path");
    refused(PAIR + " 1 2 relay3:1 auto", "no path \"relay3\"");
    refused(PAIR + " 1 2 relay0:1 auto", "no path \"relay0\"");
    refused(PAIR + " 1 2 gpu2:1 auto", "no path \"gpu2\"");
    refused(PAIR + " 1 2 direct:.5,direct:.5 auto", "twice");
    refused(PAIR + " 1 2 direct:nan auto", "share \"nan\"");
    refused(PAIR + " 1 2 direct:0,host:1 auto", "share \"0\"");
    refused(PAIR + " 1 2 direct:-1 auto", "share \"-1\"");
    refused(PAIR + " 1 2 direct:2 auto", "share \"2\"");
    refused(PAIR + " 1 2 direct:.5 auto", "sum is 0.5");
    refused(PAIR + " 1 2 direct:1:0 auto", "chunks \"0\"");
    refused(PAIR + " 1 2 direct:1:65 auto", "chunks \"65\"");
    refused(PAIR + " 1 2 direct:1:8:1 auto", "chunks \"8:1\"");
    refused(PAIR + " 1 2 direct:1 maybe", "executor \"maybe\"");
    refused(std::string("\0x", 2), "no line of text");
    refused(std::string(4096, 'x'), "no line of text");

    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              read(HEAD + PAIR + " 1 9 direct:1 auto\n" + PAIR +
                   " 9 10 direct:1 auto\n"));
    EXPECT_EQ(m_error,
              strstr(m_error, "my.tune:5: sizes that line 4 has already"));
}

TEST_F(test_tuning, no_file)
{
    uct_cuda_mp_tuning_t *table;

    EXPECT_EQ(UCS_ERR_NO_ELEM,
              uct_cuda_mp_tuning_load("/nowhere/x.tune", &m_node, m_error,
                                      sizeof(m_error), &table));
    EXPECT_NE(nullptr, strstr(m_error, "/nowhere/x.tune: "));
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              uct_cuda_mp_tuning_load("/", &m_node, m_error, sizeof(m_error),
                                      &table));
}

TEST_F(test_tuning, planner_follows)
{
    uct_cuda_mp_load_t load = {};

    ASSERT_EQ(UCS_OK,
              read(HEAD + PAIR + " 8m 16m direct:0.5,relay2:0.5:5 streams\n" +
                   PAIR + " 32m 64m direct:1 auto\n" + PAIR +
                   " 128m 256m direct:0.9,host:.1 auto\n"));
    plan(Config(), 0, 1, 16 * MiB);
    EXPECT_EQ("direct,gpu3", paths());
    EXPECT_EQ(8 * MiB, m_plan->paths[0].bytes);
    EXPECT_EQ(5u, m_plan->paths[1].chunks);

    /* Ranks turn with the source */
    plan(Config(), 1, 2, 16 * MiB);
    EXPECT_EQ("direct,gpu0", paths());

    /* One path by the table, several by the model */
    plan(Config(), 0, 1, 64 * MiB);
    EXPECT_EQ("", paths());
    plan(Config(), 0, 1, 64 * MiB + 1);
    EXPECT_EQ("direct,gpu2,gpu3", paths());

    /* The user's word comes first */
    plan(Config().set("_PATHS", "direct,gpu2"), 0, 1, 16 * MiB);
    EXPECT_EQ("direct,gpu2", paths());
    plan(Config().set("_CHUNKS", "7"), 0, 1, 16 * MiB);
    EXPECT_EQ("direct,gpu3", paths());
    EXPECT_EQ(7u, m_plan->paths[1].chunks);

    /* ... and so does whether the host's path may be used */
    plan(Config(), 0, 1, 128 * MiB);
    EXPECT_EQ("direct,gpu2,gpu3", paths());
    load.is_known = true;
    plan(Config(), 0, 1, 128 * MiB, &load);
    EXPECT_EQ("direct,host", paths());
    load.active[uct_cuda_mp_lane(End(0), End(HOST))] = 1;
    plan(Config(), 0, 1, 128 * MiB, &load);
    EXPECT_NE("direct,host", paths());
}

TEST_F(test_tuning, constants_of_the_model)
{
    double seconds;

    ASSERT_EQ(UCS_OK, read(HEAD + "model gap_gpu 4e-05\n"
                           "model\tstart_host   -1e-6\n")) << m_error;
    EXPECT_EQ(40e-6, m_table->model.gap_gpu);
    EXPECT_EQ(-1e-6, m_table->model.start_host);
    EXPECT_EQ(uct_cuda_mp_model_builtin.join, m_table->model.join);
    EXPECT_EQ(UCS_OK, read(print())) << m_error;
    EXPECT_EQ(40e-6, m_table->model.gap_gpu);

    /* Where a chunk more costs 40 us, there are fewer of them */
    plan(Config(), 0, 1, 16 * MiB);
    EXPECT_FALSE(m_plan->is_tuned);
    EXPECT_GE(2, m_plan->paths[1].chunks);
    m_table.reset();
    plan(Config(), 0, 1, 16 * MiB);
    EXPECT_LE(4, m_plan->paths[1].chunks);

    /* All links between GPUs half as fast: so is a copy, but for its 8 us */
    plan(Config(), 0, 1, 16 * MiB);
    seconds = m_plan->single_seconds - 8e-6;
    ASSERT_EQ(UCS_OK, read(HEAD + "model gpu_efficiency .5\n")) << m_error;
    plan(Config(), 0, 1, 16 * MiB);
    EXPECT_NEAR(2 * seconds, m_plan->single_seconds - 8e-6, 1e-9);

    refused("model gap_gpu", "three words");
    refused("model gap_gpu 1e-6 s", "three words");
    refused("model gap 1e-6", "no constant \"gap\"");
    refused("model gap_gpu 4us", "no value for \"gap_gpu\"");
    refused("model gap_gpu nan", "no value for \"gap_gpu\"");
    refused("model gap_gpu 0", "no value for \"gap_gpu\"");
    refused("model gap_gpu 1", "no value for \"gap_gpu\"");
    refused("model socket_efficiency 0", "at most 4");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              read(HEAD + "model join 1e-6\nmodel join 1e-6\n"));
    EXPECT_EQ(m_error, strstr(m_error, "my.tune:5: ")) << m_error;
}

/* Seconds of one path, and of the plan where it has several, are worked out by
 * hand from what each link gives */
TEST_F(test_tuning, constant_of_links_between_sockets)
{
    const double size  = 64 * MiB;
    const auto expects = [&](const char *text, int dst, double gbps) {
        model(text);
        plan(Config(), 0, dst, 64 * MiB);
        EXPECT_NEAR(8e-6 + size / (gbps * GB), m_plan->single_seconds, 1e-9)
                << text;
    };

    on(two_sockets(72 * GB, 72 * GB, 40 * GB));
    expects("", 2, 40);

    /* Up to where GPUs' own links hold it up */
    expects("model socket_efficiency .5\n", 2, 20);
    expects("model socket_efficiency 1.5\n", 2, 60);
    expects("model socket_efficiency 3\nmodel host_efficiency .75\n", 2, 54);

    /* It is no link between GPUs of a socket */
    expects("model gpu_efficiency .5\n", 2, 40);
    expects("model socket_efficiency .5\n", 1, 72);

    /* What goes over it has all of it already, whatever it gives */
    for (const char *text : {"", "model socket_efficiency .7\n",
                             "model gpu_efficiency .7\n"}) {
        model(text);
        plan(Config().set("_HOST", "y"), 0, 2, 64 * MiB);
        EXPECT_EQ("", paths()) << text;
    }

    /* Staged in the source's memory and read from the other socket, as fast as
     * the PCIe links are or the link between the sockets */
    on(two_sockets(24 * GB, 12 * GB, 40 * GB));
    m_node.links[0][2] = m_node.links[0][1];
    for (double share : {1., .15}) {
        model("model socket_efficiency " + std::to_string(share) + "\n");
        plan(Config().set("", "y").set("_PATHS", "host"), 0, 2, 64 * MiB);
        ASSERT_EQ("host", paths());
        EXPECT_NEAR(size / (((share < 1) ? 6 : 12) * GB), m_plan->seconds,
                    .1 * m_plan->seconds);
    }
}

/* A limit that several paths share gives what the links do that it is of */
TEST_F(test_tuning, constants_hold_for_shared_limits)
{
    const double size = 256 * MiB;

    /* A slower switch leaves no room for relays */
    on(hgx());
    model("model gpu_efficiency .8\n");
    plan(Config(), 0, 1, 256 * MiB);
    EXPECT_EQ("", paths());

    /* The relay's path and the host's leave the GPU by one link, beside the
     * direct one; to fill them and between chunks they lose up to a tenth */
    on(two_sockets(72 * GB, 72 * GB, 40 * GB));
    for (double share : {.75, 1., 1.25}) {
        model("model host_efficiency " + std::to_string(share) + "\n");
        plan(Config().set("_HOST", "y"), 0, 1, 256 * MiB);
        EXPECT_LT(size / ((72 + share * 72) * GB), m_plan->seconds) << share;
        EXPECT_GT(1.1 * size / ((72 + share * 72) * GB), m_plan->seconds)
                << share;
    }
}

/* Each copy begins that much later, one path or several */
TEST_F(test_tuning, constants_of_submission)
{
    double single, several;

    model("");
    plan(Config(), 0, 1, 16 * MiB);
    single  = m_plan->single_seconds;
    several = m_plan->seconds;
    model("model submit_copy 4.9e-06\nmodel submit_chunk 11.2e-06\n");
    plan(Config(), 0, 1, 16 * MiB);
    EXPECT_NEAR(single + 2e-6, m_plan->single_seconds, 1e-9);
    EXPECT_LT(several + 2e-6, m_plan->seconds);
}

/* The user's variables, then the table, then the model: paths and shares */
TEST_F(test_tuning, order_of_paths)
{
    ASSERT_EQ(UCS_OK, read(HEAD + PAIR +
                           " 1m 256m relay2:.6,direct:.4 auto\n"));

    plan(Config(), 0, 1, 100 * MiB);
    EXPECT_EQ("gpu3,direct", paths());
    EXPECT_TRUE(m_plan->is_tuned);
    EXPECT_NEAR(60. * MiB, m_plan->paths[0].bytes, 8 * KiB);
    EXPECT_NEAR(40. * MiB, m_plan->paths[1].bytes, 8 * KiB);

    plan(Config().set("_PATHS", "direct,gpu3"), 0, 1, 100 * MiB);
    EXPECT_EQ("direct,gpu3", paths());
    EXPECT_FALSE(m_plan->is_tuned);
    EXPECT_GT(m_plan->paths[0].bytes, 50 * MiB);

    plan(Config().set("_PATHS", "direct,gpu3").set("_SHARES", "3,1"), 0, 1,
         100 * MiB);
    EXPECT_NEAR(75. * MiB, m_plan->paths[0].bytes, 8 * KiB);

    plan(Config().set("_MIN_SIZE", "101m"), 0, 1, 100 * MiB);
    EXPECT_EQ("", paths());
    plan(Config().set("", "n"), 0, 1, 100 * MiB);
    EXPECT_EQ("", paths());

    /* Two paths over GPUs are in the line */
    plan(Config().set("_MAX_GPU_PATHS", "2"), 0, 1, 100 * MiB);
    EXPECT_EQ("gpu3,direct", paths());
    plan(Config().set("_MAX_GPU_PATHS", "1"), 0, 1, 100 * MiB);
    EXPECT_EQ("", paths());

    /* Beyond the table's sizes */
    plan(Config(), 0, 1, 1 * MiB - 1);
    EXPECT_FALSE(m_plan->is_tuned);
}

TEST_F(test_tuning, order_of_one_path)
{
    ASSERT_EQ(UCS_OK, read(HEAD + PAIR + " 1m 256m direct:1 auto\n"));

    plan(Config(), 0, 1, 64 * MiB);
    EXPECT_EQ("", paths());
    EXPECT_TRUE(m_plan->is_tuned);
    /* "y": wherever there is a second path */
    plan(Config().set("", "y"), 0, 1, 64 * MiB);
    EXPECT_EQ("direct,gpu2,gpu3", paths());
    EXPECT_FALSE(m_plan->is_tuned);
}

TEST_F(test_tuning, order_of_chunks)
{
    ASSERT_EQ(UCS_OK,
              read(HEAD + PAIR + " 1m 256m direct:.5,relay1:.25:40,relay2:.25 "
                   "auto\n"));

    plan(Config(), 0, 1, 32 * MiB);
    ASSERT_EQ("direct,gpu2,gpu3", paths());
    EXPECT_EQ(40u, m_plan->paths[1].chunks); /* more than _MAX_CHUNKS */
    EXPECT_NE(40u, m_plan->paths[2].chunks); /* the model's */
    EXPECT_GT(m_plan->paths[2].chunks, 1u);
    EXPECT_LE(m_plan->paths[2].chunks, 32u);

    plan(Config().set("_CHUNKS", "4"), 0, 1, 32 * MiB);
    EXPECT_TRUE(m_plan->is_tuned);
    EXPECT_EQ(4u, m_plan->paths[1].chunks);
    EXPECT_EQ(4u, m_plan->paths[2].chunks);
    plan(Config().set("_CHUNK_SIZE", "1m"), 0, 1, 32 * MiB);
    EXPECT_TRUE(m_plan->is_tuned);
    EXPECT_EQ(8u, m_plan->paths[1].chunks);
}

TEST_F(test_tuning, order_of_executors)
{
    unsigned threshold = 99;

    ASSERT_EQ(UCS_OK,
              read(HEAD + PAIR + " 1m 4m relay1:1:1 graph\n" +
                   PAIR + " 16m 32m direct:.5,relay1:.5:16 streams\n" +
                   PAIR + " 64m 128m direct:.2,relay1:.4:64,relay2:.4:64 "
                   "auto\n"));

    /* Two copies: by cost never a graph */
    plan(Config(), 0, 1, 4 * MiB);
    ASSERT_EQ(2, m_plan->num_steps);
    EXPECT_TRUE(wants_graph(Config(), &threshold));
    EXPECT_EQ(0u, threshold);
    EXPECT_FALSE(wants_graph(Config().set("_GRAPH", "n")));
    EXPECT_FALSE(wants_graph(Config().set("_GRAPH_MIN_SIZE", "5m")));
    EXPECT_FALSE(wants_graph(Config().set("_GRAPH_CACHE_SIZE", "0")));
    m_plan->graph = UCT_CUDA_MP_AUTO;
    EXPECT_FALSE(wants_graph(Config()));

    /* Many: by cost surely one, in time, for streams could not keep up */
    plan(Config(), 0, 1, 32 * MiB);
    EXPECT_FALSE(wants_graph(Config()));
    EXPECT_TRUE(wants_graph(Config().set("_GRAPH", "y")));
    plan(Config(), 0, 1, 64 * MiB);
    EXPECT_TRUE(wants_graph(Config(), &threshold));
    EXPECT_GT(threshold, 0u);

    /* Not the line's plan, so not its executor either */
    plan(Config().set("_PATHS", "direct,gpu2,gpu3").set("_CHUNKS", "20"), 0, 1,
         32 * MiB);
    EXPECT_TRUE(wants_graph(Config()));
}

/* A line was found with its links idle; and relays keep their rank when others
 * are busy */
TEST_F(test_tuning, busy_links)
{
    uct_cuda_mp_load_t load = {};

    ASSERT_EQ(UCS_OK, read(HEAD + PAIR +
                           " 1m 256m direct:.5,relay2:.5 auto\n"));
    load.active[uct_cuda_mp_lane(End(0), End(2))] = 1;
    plan(Config(), 0, 1, 64 * MiB, &load);
    EXPECT_EQ("direct,gpu3", paths());
    EXPECT_TRUE(m_plan->is_tuned);
    load.active[uct_cuda_mp_lane(End(3), End(1))] = 1;
    plan(Config(), 0, 1, 64 * MiB, &load);
    EXPECT_FALSE(m_plan->is_tuned);
}

/* In a window other shares and chunks are best than alone */
TEST_F(test_tuning, windows)
{
    uct_cuda_mp_load_t load = {};

    ASSERT_EQ(UCS_OK, read(HEAD + PAIR +
                           " 1m 256m direct:.5,relay2:.5 auto\n"));
    plan(Config(), 0, 1, 64 * MiB, &load);
    EXPECT_TRUE(m_plan->is_tuned);
    load.queued = 1;
    plan(Config(), 0, 1, 64 * MiB, &load);
    EXPECT_FALSE(m_plan->is_tuned);
    EXPECT_LT(2, m_plan->num_paths);
}

/* Lines below what the model would split, and of nodes where it never does */
TEST_F(test_tuning, smallest_size)
{
    size_t untuned = uct_cuda_mp_plan_min_size(Know(m_node, Config()),
                                               m_plan.get());

    ASSERT_GT(untuned, 100 * KiB);
    ASSERT_EQ(UCS_OK, read(HEAD + PAIR + " 100k 101k relay1:1 auto\n"));
    EXPECT_EQ(100 * KiB,
              uct_cuda_mp_plan_min_size(Know(m_node, Config(), NULL,
                                             m_table.get()),
                                        m_plan.get()));
    EXPECT_EQ(untuned, uct_cuda_mp_plan_min_size(
                               Know(m_node, Config().set("_MIN_SIZE", "102k"),
                                    NULL, m_table.get()),
                               m_plan.get()));

    m_node = hgx();
    m_table.reset(uct_cuda_mp_tuning_create(&m_node));
    ASSERT_EQ(UCS_OK,
              read("ucx-mp-tuning 1\nnode " + std::string(m_table->node) +
                   "\ndate x\n" + m_table->classes[0] +
                   " 5m 5m direct:.9,relay1:.1 auto\n"))
            << m_error;
    EXPECT_EQ(5 * MiB,
              uct_cuda_mp_plan_min_size(Know(m_node, Config(), NULL,
                                             m_table.get()),
                                        m_plan.get()));
}

/* A folder of installed tables */
class test_tuning_installed : public test_tuning
{
protected:
    test_tuning_installed()
    {
        EXPECT_NE(nullptr, mkdtemp(m_dir));
        setenv("UCX_MP_TUNING_DIR", m_dir, 1);
    }

    ~test_tuning_installed()
    {
        unsetenv("UCX_MP_TUNING_DIR");
        for (const std::string &path : m_paths) {
            unlink(path.c_str());
        }
        rmdir(m_dir);
        free(m_found);
    }

    void add(const std::string &name, const std::string &text)
    {
        m_paths.push_back(std::string(m_dir) + "/" + name);
        std::ofstream(m_paths.back()) << text;
    }

    ucs_status_t get(const char *setting)
    {
        free(m_found);
        m_found = NULL;
        m_text[0] = '\0';
        return uct_cuda_mp_tuning_get(setting, &m_node, m_text, sizeof(m_text),
                                      &m_found);
    }

    char                     m_dir[32] = "/tmp/test_tuning.XXXXXX";
    std::vector<std::string> m_paths;
    uct_cuda_mp_tuning_t     *m_found = NULL;
    char                     m_text[512];
};

TEST_F(test_tuning_installed, the_one_for_this_node)
{
    EXPECT_EQ(UCS_OK, get("auto"));
    EXPECT_EQ(nullptr, m_found);

    add("a.tune", "ucx-mp-tuning 99\nnode some other, of a later format\n");
    add("b.tune", HEAD + "model gap_gpu 4e-05\n");
    add("c.tune", HEAD + "model gap_gpu 5e-05\n");
    add("b.text", HEAD + "model gap_gpu 6e-05\n");
    EXPECT_EQ(UCS_OK, get("auto")) << m_text;
    ASSERT_NE(nullptr, m_found);
    EXPECT_EQ(4e-5, m_found->model.gap_gpu);

    EXPECT_EQ(UCS_OK, get(""));
    EXPECT_EQ(nullptr, m_found);
    EXPECT_EQ(UCS_OK, get(m_paths[2].c_str())) << m_text;
    ASSERT_NE(nullptr, m_found);
    EXPECT_EQ(5e-5, m_found->model.gap_gpu);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, get(m_paths[0].c_str()));
    EXPECT_EQ(nullptr, m_found);
}

TEST_F(test_tuning_installed, wrong_line)
{
    add("a.tune", HEAD + "model gap_gpu fast\n");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, get("auto"));
    EXPECT_EQ(nullptr, m_found);
    EXPECT_NE(nullptr, strstr(m_text, "/a.tune:4")) << m_text;
}
