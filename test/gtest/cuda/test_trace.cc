/* SPDX-License-Identifier: BSD-3-Clause */
/* A trace without room: the program continues, with one warning. */
#include "comma.h"
#include "process.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {
#include <uct/cuda/base/log.h>
#include <uct/cuda/base/trace.h>
}

static unsigned    warnings;
static std::string warning;

static void note(uct_cuda_log_level_t, const char*, unsigned, const char*,
                 const char *message)
{
    ++warnings;
    warning = message;
}

class Trace : public ::testing::Test
{
protected:
    void SetUp() override
    {
        ASSERT_NE(nullptr, mkdtemp(dir));
    }

    void TearDown() override
    {
        ASSERT_EQ(0, system((std::string("rm -rf ") + dir).c_str()));
    }

    std::string path()
    {
        return std::string(dir) + "/" + std::to_string(getpid()) + ".trace";
    }

    /* Check in a process of its own for one warning, beginning with the file's
       name. */
    void is_reported_once(void (*prepare)(const std::string &path),
                          const char *reason)
    {
        EXPECT_EQ(0, in_child([&] {
            prepare(path());
            uct_cuda_log_set(note, UCT_CUDA_LOG_WARN);
            uct_cuda_trace_start(dir);
            for (int i = 0; i < 100; ++i) {
                uct_cuda_trace_call("MPI_Bcast", 4096, "of a test", 1);
            }
            uct_cuda_trace_flush();
            return (warnings != 1) ? 1 :
                   (warning.find(path() + ": " + reason) == std::string::npos) ?
                                     2 :
                                     0;
        }));
    }

    char dir[32] = "/tmp/test_trace.XXXXXX";
};

TEST_F(Trace, a_disk_that_is_full)
{
    is_reported_once(
            [](const std::string &path) {
                (void)!symlink("/dev/full", path.c_str());
            },
            "No space left on device");
}

/* The kernel ends a process for writing beyond it */
TEST_F(Trace, a_limit_of_file_sizes)
{
    is_reported_once(
            [](const std::string&) {
                const struct rlimit limit = {300, 300};
                setrlimit(RLIMIT_FSIZE, &limit);
            },
            "File too large");
}

/* A program may have called setlocale() */
TEST_F(Trace, a_decimal_comma_in_the_programs_locale)
{
    const Comma comma;

    if (!comma.is_set) {
        GTEST_SKIP() << "no locale with a decimal comma";
    }

    EXPECT_EQ(1, in_child([this] {
        char line[512] = "";
        double begin, length;
        char last;
        FILE *file;

        uct_cuda_trace_start(dir);
        uct_cuda_trace_call("MPI_Bcast", 4096, "of a test", 1500000);
        file = fopen(path().c_str(), "r");
        while ((strstr(line, "\"bytes\"") == NULL) &&
               (fgets(line, sizeof(line), file) != NULL)) {
        }
        setlocale(LC_ALL, "C");
        return (sscanf(line, "%*[^}:]: %*[^}:]: %*[^}:]: %*[^}:]: %*d, "
                       "\"ts\": %lf, \"dur\": %lf%c", &begin, &length,
                       &last) == 3) &&
               (begin == 1500) && (length > 0) && (last == '}');
    }));
}
