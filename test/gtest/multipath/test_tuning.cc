/* SPDX-License-Identifier: BSD-3-Clause */
/* Tuning tables: valid files, errors with their place, and the effect on
   plans. */
#include "comma.h"
#include "nodes.h"

#include <uct/cuda/base/number.h>
#include <uct/cuda/check/transfer_check.h>
#include <uct/cuda/plan/tuning.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>


class test_tuning : public ::testing::Test
{
protected:
    typedef std::unique_ptr<uct_cuda_plan_tuning_t, decltype(&free)> table_t;

    test_tuning() :
        m_node(beluga()), m_plan(new uct_cuda_plan_t), m_table(NULL, free)
    {
    }

    ucs_status_t read(const std::string &text)
    {
        uct_cuda_plan_tuning_t *table = NULL;
        FILE *stream = fmemopen((void*)text.data(), text.size(), "r");
        ucs_status_t status;

        m_error[0] = '\0';
        status = uct_cuda_plan_tuning_read(stream, "my.tune", &m_node, m_error,
                                           sizeof(m_error), &table);
        fclose(stream);
        m_table.reset(table);
        return status;
    }

    std::string print() const
    {
        std::ostringstream text;

        text.precision(17); /* Enough to be read back unchanged */
        text << "ucx-mp-tuning " << UCT_CUDA_PLAN_TUNING_FORMAT << "\nnode "
             << m_table->node << "\ndate " << m_table->date << "\n";
        for (unsigned i = 0; uct_cuda_plan_model_constants[i].name != NULL;
             ++i) {
            const uct_cuda_plan_model_constant_t &constant =
                    uct_cuda_plan_model_constants[i];

            if (m_table->model_set & (1u << i)) {
                text << "model " << constant.name << " "
                     << *(const double*)((const char*)&m_table->model +
                                         constant.offset)
                     << "\n";
            }
        }

        return text.str();
    }

    void refused(const std::string &line, const char *because)
    {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, read(HEAD + line + "\n")) << line;
        /* The fourth line of the file */
        EXPECT_EQ(m_error, strstr(m_error, "my.tune:4: ")) << m_error;
        EXPECT_NE(nullptr, strstr(m_error, because)) << m_error;
    }

    /* Use another node, and a table of these lines for it. */
    void on(const uct_cuda_topo_t &node)
    {
        m_node = node;
    }

    void model(const std::string &lines)
    {
        table_t empty(uct_cuda_plan_tuning_create(&m_node), free);

        ASSERT_EQ(UCS_OK, read(std::string("ucx-mp-tuning 1\nnode ") +
                               empty->node + "\ndate 2026-11-21\n" + lines))
                << m_error;
    }

    void plan(const Config &config, int src, int dst, size_t size,
              const uct_cuda_plan_load_t *load = NULL)
    {
        char error[256] = "";

        uct_cuda_plan_make(Know(m_node, config, load, m_table.get()),
                           End(src), End(dst), size, m_plan.get());
        EXPECT_EQ(UCS_OK,
                  uct_cuda_plan_check(m_plan.get(), error, sizeof(error)))
                << error;
    }

    std::string paths() const
    {
        return path_names(*m_plan);
    }

    static const std::string            HEAD;
    uct_cuda_topo_t                     m_node;
    std::unique_ptr<uct_cuda_plan_t> m_plan;
    table_t                             m_table;
    char                                m_error[512];
};

/* Two NVLinks of 24 GB/s to each of three others, PCIe 3 */
const std::string test_tuning::HEAD =
        "ucx-mp-tuning 1\nnode 4 gpus, 12 x 48.0:48.0,48.0:12.0\n"
        "date 2026-11-21\n";


TEST_F(test_tuning, hand_written_tables_are_read)
{
    ASSERT_EQ(UCS_OK, read("# mine\n\n" + HEAD + "# chunks\nmodel gap_gpu "
                           "4e-06  \r\nmodel\tjoin   .5e-6")) << m_error;
    EXPECT_STREQ("", m_error);
    EXPECT_STREQ("2026-11-21", m_table->date);
    EXPECT_EQ(4e-6, m_table->model.gap_gpu);
    EXPECT_EQ(.5e-6, m_table->model.join);
    EXPECT_EQ(UCS_OK, read(HEAD)) << m_error;
    EXPECT_EQ(0u, m_table->model_set);
}

/* Old tables had rows: they load, and a sentence names the first */
TEST_F(test_tuning, rows_of_old_tables_are_skipped)
{
    ASSERT_EQ(UCS_OK, read(HEAD + "model gap_gpu 4e-05\n"
                           "# 8m: one path 45.9, model 95.4, this 96.2 GB/s\n"
                           "48.0:48.0,48.0:12.0 1m 16m direct:0.4,relay1:0.6:8 "
                           "auto\nmodel join 1e-06\n"
                           "48.0:48.0,48.0:12.0\t17m 1g direct:1 streams\n"))
            << m_error;
    EXPECT_STREQ("my.tune:6: rows of paths, shares and chunks are ignored, "
                 "the constants apply", m_error);
    EXPECT_EQ(40e-6, m_table->model.gap_gpu);
    EXPECT_EQ(1e-6, m_table->model.join);

    /* Errors come first */
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              read(HEAD + "48.0:48.0,48.0:12.0 1m 16m direct:1 auto\nx\n"));
    EXPECT_EQ(m_error, strstr(m_error, "my.tune:5: expected three words"));
}

/* A process that sees one GPU does not count the others */
TEST_F(test_tuning, a_single_gpu_is_one_of_the_node)
{
    m_node          = mesh_node(4, 48 * GB, 12 * GB);
    m_node.num_gpus = 1;
    EXPECT_EQ(UCS_ERR_NO_DEVICE, read(HEAD));
    EXPECT_STREQ("my.tune:2: made for the node's 4 GPUs, of which this process "
                 "sees 1",
                 m_error);
}

TEST_F(test_tuning, the_fingerprint_distinguishes_nodes)
{
    ASSERT_EQ(UCS_OK, read(HEAD));
    m_node = mesh_node(4, 93 * GB, 25 * GB);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(HEAD));
    EXPECT_EQ(m_error, strstr(m_error, "my.tune:2: made for another node"));
    m_node = mesh_node(3, 48 * GB, 12 * GB);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(HEAD));

    /* A dead link makes another node; another order of GPUs does not */
    m_node = beluga();
    uct_cuda_topo_set_link(&m_node, 2, 1, 0, -1, -1);
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, read(HEAD));
    table_t a(uct_cuda_plan_tuning_create(&m_node), free);
    m_node = beluga();
    uct_cuda_topo_set_link(&m_node, 3, 0, 0, -1, -1);
    table_t b(uct_cuda_plan_tuning_create(&m_node), free);
    EXPECT_STREQ(a->node, b->node);
}

TEST_F(test_tuning, largest_node_fits)
{
    /* Every pair has a class of its own: too many for one line, but valid */
    m_node = mesh_node(16, 48 * GB, 12 * GB);
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 16; ++j) {
            if (i != j) {
                uct_cuda_topo_set_link(&m_node, i, j, (100 + 16 * i + j) * GB,
                                       -1, -1);
            }
        }
    }
    m_table.reset(uct_cuda_plan_tuning_create(&m_node));
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
    refused("x", "expected three words");
    refused("48.0:48.0,48.0:12.0 1 2 direct:1", "expected three words");
    refused("48.0:48.0,48.0:12.0 1 2 direct:1 auto more",
            "expected three words");
    refused(std::string("\0x", 2), "expected a line of text");
    refused(std::string(4096, 'x'), "expected a line of text");
}

TEST_F(test_tuning, no_file)
{
    uct_cuda_plan_tuning_t *table;

    EXPECT_EQ(UCS_ERR_NO_ELEM,
              uct_cuda_plan_tuning_get("/nowhere/x.tune", &m_node, m_error,
                                       sizeof(m_error), &table));
    EXPECT_NE(nullptr, strstr(m_error, "/nowhere/x.tune: "));
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              uct_cuda_plan_tuning_get("/", &m_node, m_error, sizeof(m_error),
                                       &table));
}

/* Reading does not block */
TEST_F(test_tuning, a_fifo_is_no_table)
{
    char dir[]             = "/tmp/ucx-mp-tuning-XXXXXX";
    const std::string path = std::string(mkdtemp(dir)) + "/x.tune";
    uct_cuda_plan_tuning_t *table;

    ASSERT_EQ(0, mkfifo(path.c_str(), 0600));
    alarm(20);
    EXPECT_EQ(UCS_ERR_IO_ERROR,
              uct_cuda_plan_tuning_get(path.c_str(), &m_node, m_error,
                                       sizeof(m_error), &table));
    alarm(0);
    unlink(path.c_str());
    rmdir(dir);
}

TEST_F(test_tuning, constants_of_the_model)
{
    double seconds;

    ASSERT_EQ(UCS_OK, read(HEAD + "model gap_gpu 4e-05\n"
                           "model\tstart_host   -1e-6\n")) << m_error;
    EXPECT_EQ(40e-6, m_table->model.gap_gpu);
    EXPECT_EQ(-1e-6, m_table->model.start_host);
    EXPECT_EQ(uct_cuda_plan_model_builtin.join, m_table->model.join);
    EXPECT_EQ(UCS_OK, read(print())) << m_error;
    EXPECT_EQ(40e-6, m_table->model.gap_gpu);

    /* An additional chunk costs 40 us, so there are fewer */
    plan(Config(), 0, 1, 16 * MiB);
    EXPECT_GE(2, m_plan->paths[1].chunks);
    m_table.reset();
    plan(Config(), 0, 1, 16 * MiB);
    EXPECT_LE(4, m_plan->paths[1].chunks);

    /* All links between GPUs half as fast: so is a copy, except its 8 us */
    plan(Config(), 0, 1, 16 * MiB);
    seconds = m_plan->single_seconds - 8e-6;
    ASSERT_EQ(UCS_OK, read(HEAD + "model gpu_efficiency .5\n")) << m_error;
    plan(Config(), 0, 1, 16 * MiB);
    EXPECT_NEAR(2 * seconds, m_plan->single_seconds - 8e-6, 1e-9);

    refused("model gap_gpu", "three words");
    refused("model gap_gpu 1e-6 s", "three words");
    refused("model gap 1e-6", "no constant \"gap\"");
    refused("model gap_gpu 4us", "not a value for \"gap_gpu\"");
    refused("model gap_gpu nan", "not a value for \"gap_gpu\"");
    refused("model gap_gpu 0", "not a value for \"gap_gpu\"");
    refused("model gap_gpu 1", "not a value for \"gap_gpu\"");
    refused("model socket_efficiency 0", "at most 4");
    EXPECT_EQ(UCS_ERR_INVALID_PARAM,
              read(HEAD + "model join 1e-6\nmodel join 1e-6\n"));
    EXPECT_EQ(m_error, strstr(m_error, "my.tune:5: ")) << m_error;
}

/* Seconds of one path, and of a plan with several, are calculated from each
   link's rate */
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

    /* Up to the limit of the GPUs' own links */
    expects("model socket_efficiency .5\n", 2, 20);
    expects("model socket_efficiency 1.5\n", 2, 60);
    expects("model socket_efficiency 3\nmodel host_efficiency .75\n", 2, 54);

    /* It is no link between GPUs of a socket */
    expects("model gpu_efficiency .5\n", 2, 40);
    expects("model socket_efficiency .5\n", 1, 72);

    /* One path uses all of it already, at any rate */
    for (const char *text : {"", "model socket_efficiency .7\n",
                             "model gpu_efficiency .7\n"}) {
        model(text);
        plan(Config().set("_HOST", "y"), 0, 2, 64 * MiB);
        EXPECT_EQ("", paths()) << text;
    }

    /* Staged in the source's memory and read from the other socket, as fast as
       the PCIe links or the link between the sockets */
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

/* A limit shared by several paths scales with its links */
TEST_F(test_tuning, constants_hold_for_shared_limits)
{
    const double size = 256 * MiB;

    /* A slower switch leaves no room for relays */
    on(hgx());
    model("model gpu_efficiency .8\n");
    plan(Config(), 0, 1, 256 * MiB);
    EXPECT_EQ("", paths());

    /* The relay's path and the host's leave the GPU by one link, beside the
       direct one; filling and gaps between chunks cost up to a tenth */
    on(two_sockets(72 * GB, 72 * GB, 40 * GB));
    for (double share : {.75, 1., 1.25}) {
        model("model host_efficiency " + std::to_string(share) + "\n");
        plan(Config().set("_HOST", "y"), 0, 1, 256 * MiB);
        EXPECT_LT(size / ((72 + share * 72) * GB), m_plan->seconds) << share;
        EXPECT_GT(1.1 * size / ((72 + share * 72) * GB), m_plan->seconds)
                << share;
    }
}

/* Each copy begins later by this time, with one path or several */
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
        return uct_cuda_plan_tuning_get(setting, &m_node, m_text,
                                        sizeof(m_text), &m_found);
    }

    char                     m_dir[32] = "/tmp/test_tuning.XXXXXX";
    std::vector<std::string> m_paths;
    uct_cuda_plan_tuning_t     *m_found = NULL;
    char                       m_text[512];
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

/* A program may have called setlocale() */
TEST_F(test_tuning, a_decimal_comma_changes_nothing)
{
    uct_cuda_plan_config_t config;
    const char *end;
    size_t size;
    Comma comma;

    if (!comma.is_set) {
        GTEST_SKIP() << "no locale with a decimal comma";
    }

    ASSERT_EQ(UCS_OK, read(HEAD + "model gap_gpu 4.5e-06\n")) << m_error;
    EXPECT_EQ(4.5e-6, m_table->model.gap_gpu);
    uct_cuda_plan_config_init(&config);
    EXPECT_EQ(UCS_OK,
              uct_cuda_plan_config_set(&config, "MULTIPATH_SHARES", "0.6,0.4",
                                       m_error, sizeof(m_error)))
            << m_error;
    EXPECT_EQ(2u, config.num_shares);
    EXPECT_EQ(0.6, config.shares[0]);
    ASSERT_TRUE(uct_cuda_size_parse("1.5k", &end, &size));
    EXPECT_EQ(1536u, size);
    EXPECT_STREQ("", end);
    EXPECT_EQ(',', *localeconv()->decimal_point);
}
