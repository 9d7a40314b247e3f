/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The module in real UCXs, and its refusal of others.
 *
 * Each test runs a program of its own with the preload shim or the plugin path
 * set for it. UCX_MP_TEST_UCX names folders of UCX libraries to try besides the
 * system's, "/a/lib:/b/lib"; UCX_MP_TEST_UCX_HASHED names a libucp of release
 * 1.23.
 */

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>
#include <sys/stat.h>
#include <sys/wait.h>

static std::string g_libs = ABI_LIBS; /* libtool's folder of built libraries */
static std::string g_shim = ABI_SHIM;
static std::string g_facts = TEST_DATA_DIR "/abi-facts/facts.txt";

struct result {
    int         status;
    std::string output;

    unsigned count(const std::string &text) const
    {
        unsigned found = 0;

        for (size_t at = output.find(text); at != std::string::npos;
             at = output.find(text, at + 1)) {
            ++found;
        }

        return found;
    }
};

/* Run a shell command; both output streams are the output. */
static result run(const std::string &command)
{
    FILE *stream = popen(("exec 2>&1; " + command).c_str(), "r");
    result res   = {-1, ""};
    char line[4096];
    int status;

    if (stream == NULL) {
        return res;
    }

    while (fgets(line, sizeof(line), stream) != NULL) {
        res.output += line;
    }
    status     = pclose(stream);
    res.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return res;
}

static std::vector<std::string> ucx_folders()
{
    std::vector<std::string> folders = {""}; /* the system's UCX */
    const char *more                 = getenv("UCX_MP_TEST_UCX");
    std::istringstream list((more == NULL) ? "" : more);
    std::string folder;

    while (std::getline(list, folder, ':')) {
        folders.push_back(folder);
    }

    return folders;
}

class test_abi_host : public ::testing::TestWithParam<std::string>
{
protected:
    static std::string shim(const std::string &module = "libuct_cuda_fake.so")
    {
        return "LD_PRELOAD=" + g_shim + " UCX_MP_MODULE=" + g_libs + "/" +
               module + " ";
    }

    std::string libucp() const
    {
        return GetParam().empty() ? "libucp.so.0" :
                                    GetParam() + "/libucp.so.0";
    }

    std::string library_path() const
    {
        return GetParam().empty() ?
                       "" :
                       "LD_LIBRARY_PATH=" + GetParam() + " ";
    }

    std::string probe() const
    {
        return g_libs + "/../abi_probe " + g_facts + " " + libucp();
    }

    std::string ucx_info() const
    {
        return GetParam().empty() ? "ucx_info" :
                                    GetParam() + "/../bin/ucx_info";
    }

    /* Make a folder with the module under all names used by a libucs. */
    std::string plugin_folder(const std::string &module = "libuct_cuda_fake.so")
    {
        char name[] = "/tmp/ucx_mp_abi_XXXXXX";

        m_folder = mkdtemp(name);
        for (const char *end : {"", ".0", ".0.0.0"}) {
            std::string link = m_folder + "/libuct_cuda.so" + end;
            EXPECT_EQ(0, symlink((g_libs + "/" + module).c_str(),
                                 link.c_str()));
        }
        return m_folder;
    }

    void TearDown() override
    {
        if (!m_folder.empty()) {
            run("rm -r " + m_folder);
        }
    }

    std::string m_folder;
};

#define RUN_OR_SKIP(_res, _command) \
    result _res = run(_command); \
    if (_res.status == 77) { \
        GTEST_SKIP() << _res.output; \
    }

TEST_P(test_abi_host, serves_through_the_shim)
{
    RUN_OR_SKIP(res, library_path() + shim() + probe());
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(0u, res.count("WARN")) << res.output;
}

TEST_P(test_abi_host, without_the_shim_the_module_is_absent)
{
    RUN_OR_SKIP(res, library_path() + "env -u LD_PRELOAD " + probe());
    EXPECT_EQ(1, res.status) << res.output;
}

TEST_P(test_abi_host, serves_as_a_plugin_and_once_with_both)
{
    std::string plugin = "UCX_PLUGIN_PATH=" + plugin_folder() + " ";

    RUN_OR_SKIP(res, library_path() + plugin + probe());
    if (res.count("UCX 1.22.") == 0) {
        /* older releases have no plugins: they need the shim */
        EXPECT_EQ(1, res.status) << res.output;
    } else {
        EXPECT_EQ(0, res.status) << res.output;
    }

    res = run(library_path() + shim() + plugin + probe());
    EXPECT_EQ(0, res.status) << res.output;

    /* two files make two copies of the module: one is used */
    run("cp --remove-destination " + g_libs + "/libuct_cuda_fake.so " +
        m_folder + "/libuct_cuda.so.0");
    res = run(library_path() + shim() + plugin + probe());
    EXPECT_EQ(0, res.status) << res.output;
}

/* A program linked against UCX has its own copies of UCX's variables, used by
   the libraries. */
TEST_P(test_abi_host, program_with_copied_variables)
{
    result res = run(library_path() + shim() + ucx_info() + " -cf");

    /* An old system's program with a wheel's libraries may fail for other
       reasons */
    if ((res.status == 127) ||
        (res.count("has different size in shared object") > 0)) {
        GTEST_SKIP() << res.output;
    }

    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(12u, res.count("\nUCX_CUDA_COPY_FAKE_")) << res.output;
    EXPECT_EQ(12u, res.count("\nUCX_CUDA_IPC_FAKE_")) << res.output;
    EXPECT_EQ(1u, res.count("\nUCX_CUDA_IPC_ALLOC=")) << res.output;
    EXPECT_EQ(1u, res.count("\nUCX_CUDA_COPY_FAKE_TIME=5.00us\n")) <<
            res.output;

    res = run(library_path() + shim() + "UCX_LOG_LEVEL=info " + ucx_info() +
              " -d");
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(2u, res.count("UCX  INFO  fake memory domain")) << res.output;
    EXPECT_EQ(2u, res.count("Device: fake")) << res.output;
}

TEST_P(test_abi_host, rival_module_is_kept_out)
{
    RUN_OR_SKIP(res, library_path() + shim() + "UCX_LOG_LEVEL=debug " +
                             probe());
    if (res.count("UCX 1.22.") == 0) {
        /* here a list of names selects modules, without cuda */
        EXPECT_EQ(0u, res.count("/libuct_cuda.so")) << res.output;
        return;
    }

    /* here all files of a folder are loaded: the rival is loaded, then
       displaced */
    std::string plugin = "UCX_PLUGIN_PATH=" +
                         plugin_folder("libuct_cuda_rival.so") + " ";

    EXPECT_EQ(1, run(library_path() + plugin + probe()).status);
    res = run(library_path() + shim() + plugin + "UCX_LOG_LEVEL=debug " +
              probe());
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(2u, res.count("took the place of component")) << res.output;

    res = run(library_path() + shim() + plugin + ucx_info() + " -cf");
    EXPECT_EQ(12u, res.count("\nUCX_CUDA_COPY_FAKE_")) << res.output;
}

TEST_P(test_abi_host, configuration_uses_ucxs_parser)
{
    RUN_OR_SKIP(res, library_path() + shim() +
                             "UCX_CUDA_COPY_FAKE_UINT=many " + probe());
    EXPECT_EQ(1, res.status);
    EXPECT_GE(res.count("FAKE_UINT"), 1u) << res.output;
    EXPECT_GE(res.count("many"), 1u) << res.output;

    /* a value from the environment arrives */
    res = run(library_path() + shim() + "UCX_CUDA_IPC_FAKE_UINT=8 " + probe());
    EXPECT_EQ(1u, res.count("configuration has wrong values: 0x10")) <<
            res.output;
}

TEST_P(test_abi_host, no_gpu_no_resource)
{
    RUN_OR_SKIP(res, library_path() + shim() + "UCX_MP_FAKE_NO_GPU=y " +
                             g_libs + "/../abi_load_ucx " + libucp());
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ("the program runs on\n", res.output);
}

TEST_P(test_abi_host, topology_events_and_memory_types)
{
    RUN_OR_SKIP(res, library_path() + shim() + "UCX_LOG_LEVEL=info " +
                             "UCX_MP_FAKE_TRY_HOST=y " + probe());
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(1u, res.count("host tried")) << res.output;
    EXPECT_EQ(0u, res.count("not so")) << res.output;
    /* the cache existed, and is off for later look-ups */
    EXPECT_EQ(1u, res.count("memory type before: not in the cache")) <<
            res.output;
    EXPECT_EQ(1u, res.count("memory type after: no cache")) << res.output;

    res = run(library_path() + shim() + probe());
    EXPECT_EQ(1u, res.count("memory type after: not in the cache")) <<
            res.output;
}

/* libucm is not linked to libucs and looks for modules with CUDA hooks; here
   the symbols of both are invisible to others */
TEST_P(test_abi_host, the_module_does_not_change_the_search_for_hooks)
{
    std::string watch = library_path() +
                        "ABI_TEST_QUICK_EXIT=y ABI_TEST_HOOKS=y "
                        "UCX_MODULE_LOG_LEVEL=info UCX_LOG_LEVEL=info ";
    std::string load  = g_libs + "/../abi_load_ucx " + libucp();

    RUN_OR_SKIP(without, watch + load);
    result with = run(watch + shim() + load);
    auto looks  = [](const result &res) {
        return res.count("for ucm\n") + res.count("framework 'ucm'");
    };

    EXPECT_EQ(0, with.status) << with.output;
    EXPECT_GT(looks(without), 0u) << without.output;
    EXPECT_EQ(looks(without), looks(with)) << with.output;
}

TEST_P(test_abi_host, log_follows_ucx_level)
{
    RUN_OR_SKIP(res, library_path() + shim() + "UCX_LOG_LEVEL=info " +
                             probe());
    EXPECT_EQ(2u, res.count("fake memory domain")) << res.output;
    EXPECT_EQ(2u, res.count("UCX  INFO  fake memory domain")) << res.output;
    EXPECT_EQ(0u, res.count("registered component")) << res.output;

    res = run(library_path() + shim() + "UCX_LOG_LEVEL=debug " + probe());
    EXPECT_EQ(2u, res.count("registered component")) << res.output;
}

INSTANTIATE_TEST_SUITE_P(ucx, test_abi_host,
                         ::testing::ValuesIn(ucx_folders()));


class test_abi_stay_out : public test_abi_host
{
protected:
    static result fake(const std::string &library,
                       const std::string &environment)
    {
        return run(environment + " " + shim() + g_libs +
                   "/../abi_load_ucx " + g_libs + "/" + library);
    }

    static void expect_out(const result &res, const std::string &reason)
    {
        EXPECT_EQ(0, res.status) << res.output;
        EXPECT_EQ(1u, res.count("WARN")) << res.output;
        EXPECT_EQ(1u, res.count(reason)) << res.output;
        /* this UCX has loaded its own modules */
        EXPECT_EQ(3u, res.count("load uct: ib:cuda:cma, 5")) << res.output;
        EXPECT_EQ(3u, res.count("nothing registered")) << res.output;
        EXPECT_EQ(0u, res.count("logged through")) << res.output;
        EXPECT_EQ(1u, res.count("the program runs on")) << res.output;
    }
};

TEST_F(test_abi_stay_out, newer_release)
{
    expect_out(fake("libfake_ucx.so", "FAKE_UCX_VERSION=1.24"),
               "it is release 1.24, and the releases known are 1.13 to 1.23");
}

TEST_F(test_abi_stay_out, older_release)
{
    expect_out(fake("libfake_ucx.so", "FAKE_UCX_VERSION=1.12"),
               "it is release 1.12");
}

TEST_F(test_abi_stay_out, next_major_release)
{
    expect_out(fake("libfake_ucx.so", "FAKE_UCX_VERSION=2.20"),
               "it is release 2.20");
}

TEST_F(test_abi_stay_out, known_release_in_name_only)
{
    expect_out(fake("libfake_ucx.so", "FAKE_UCX_VERSION=1.20"),
               "it says 1.20 but lacks the symbol");
}

TEST_F(test_abi_stay_out, statistics)
{
    expect_out(fake("libfake_ucx_stats.so", "FAKE_UCX_VERSION=1.20"),
               "it was built with statistics");
}

TEST_F(test_abi_stay_out, no_version)
{
    expect_out(fake("libfake_ucx_nameless.so", ""),
               "its libucp, which would tell the version, was not found");
}

TEST_F(test_abi_stay_out, warning_obeys_log_level)
{
    result res = fake("libfake_ucx.so",
                      "FAKE_UCX_VERSION=1.24 UCX_LOG_LEVEL=error");

    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(0u, res.count("WARN")) << res.output;
}

TEST_F(test_abi_stay_out, second_ucx_gets_nothing)
{
    RUN_OR_SKIP(res, "FAKE_UCX_VERSION=1.20 " + shim() + g_libs +
                             "/../abi_load_ucx libucp.so.0 " + g_libs +
                             "/libfake_ucx.so");
    expect_out(res, "CUDA module: already attached to the UCX in");
}

TEST_F(test_abi_stay_out, unknown_first_then_known)
{
    RUN_OR_SKIP(res, "FAKE_UCX_VERSION=1.24 UCX_LOG_LEVEL=debug " + shim() +
                             g_libs + "/../abi_load_ucx " + g_libs +
                             "/libfake_ucx.so libucp.so.0");
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(2u, res.count("registered component")) << res.output;
    EXPECT_EQ(1u, res.count("it is release 1.24")) << res.output;
}

/* NIXL's UCX: release 1.23 with a known layout, under hashed names. */
TEST_F(test_abi_stay_out, hashed_library_names)
{
    const char *libucp = getenv("UCX_MP_TEST_UCX_HASHED");

    if (libucp == NULL) {
        GTEST_SKIP() << "UCX_MP_TEST_UCX_HASHED names no libucp";
    }

    std::string quick  = "ABI_TEST_QUICK_EXIT=y ";
    std::string probed = g_libs + "/../abi_probe " + g_facts + " " + libucp;
    result res         = run(quick + shim() + probed);
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(0u, res.count("WARN")) << res.output;

    res = run(quick + "UCX_PLUGIN_PATH=" + plugin_folder() + " " + probed);
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(0u, res.count("WARN")) << res.output;

    /* the module refuses the second UCX of a process */
    res = run(quick + shim() + g_libs + "/../abi_load_ucx libucp.so.0 " +
              libucp);
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(1u, res.count("already attached to the UCX in")) <<
            res.output;
}

TEST_F(test_abi_stay_out, shim_without_its_module)
{
    result res = run("FAKE_UCX_VERSION=1.20 LD_PRELOAD=" + g_shim +
                     " UCX_MP_MODULE=/nowhere/libuct_cuda.so " + g_libs +
                     "/../abi_load_ucx " + g_libs + "/libfake_ucx.so");

    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(1u, res.count("/nowhere/libuct_cuda.so")) << res.output;
    EXPECT_EQ(3u, res.count("load uct: ib:cuda:cma, 5")) << res.output;

    /* a library other than the module */
    res = run("FAKE_UCX_VERSION=1.20 LD_PRELOAD=" + g_shim +
              " UCX_MP_MODULE=" + g_libs + "/libfake_ucx.so " + g_libs +
              "/../abi_load_ucx " + g_libs + "/libfake_ucx_stats.so");
    EXPECT_EQ(0, res.status) << res.output;
    EXPECT_EQ(1u, res.count("is not libuct_cuda.so of ucx-cuda-multipath")) <<
            res.output;
    EXPECT_EQ(3u, res.count("load uct: ib:cuda:cma, 5")) << res.output;
}
