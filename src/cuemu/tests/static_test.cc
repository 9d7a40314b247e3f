/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * preload/static.c redirects NVIDIA's CUDA runtime to the emulated one, in a
 * program and in a library opened later.
 */
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

extern "C" int fake_call(int *count, int *early);

/* GPUs of the emulated node used here */
static const int num_gpus = 4;

/* 0 * 1000 + 801: the first call succeeded, the second is not supported */
static bool is_emulated(int result, int count, int early)
{
    return (result == 801) && (count == num_gpus) && (early == num_gpus);
}

/* Run in a process of its own on the emulated node. */
static int inside(const char *library)
{
    int (*call)(int*, int*) = fake_call;
    int count = -1, early = -1;

    if (*library != '\0') {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

        call = (handle == NULL) ? NULL :
               (int (*)(int*, int*))dlsym(handle, "fake_call");
        if (call == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }

    int result = call(&count, &early);
    fprintf(stderr, "result %d, count %d, early %d\n", result, count, early);
    return is_emulated(result, count, early) ? 0 : 1;
}

#ifdef __x86_64__
class static_runtime : public ::testing::TestWithParam<const char*> {
};

TEST_P(static_runtime, is_replaced)
{
    const char *dir     = getenv("CUEMU_LIB");
    std::string lib     = (dir == NULL) ? "lib" : dir;
    std::string preload = lib + "/libcuemu_preload.so", text;
    std::string session = "/dev/shm/cuemu_test_" + std::to_string(getpid());
    int fds[2], status;
    char buffer[512];
    ssize_t length;

    ASSERT_EQ(0, pipe(fds));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 2);
        close(fds[0]);
        close(fds[1]);
        setenv("LD_PRELOAD", preload.c_str(), 1);
        setenv("LD_LIBRARY_PATH", lib.c_str(), 1);
        setenv("CUEMU_NODE", "beluga", 1);
        setenv("CUEMU_SESSION", session.c_str(), 1);
        execl("/proc/self/exe", "static_test", "--inside",
              (*GetParam() == '\0') ? "" : (lib + "/../" + GetParam()).c_str(),
              (char*)NULL);
        _exit(127);
    }
    close(fds[1]);
    while ((length = read(fds[0], buffer, sizeof(buffer))) > 0) {
        text.append(buffer, (size_t)length);
    }
    close(fds[0]);
    ASSERT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status) << text;
    EXPECT_NE(std::string::npos, text.find("has no cudaFrobnicate")) << text;
}

INSTANTIATE_TEST_SUITE_P(where, static_runtime,
                         ::testing::Values("", "tests/fake_cudart.so"));
#endif

int main(int argc, char **argv)
{
    if ((argc == 3) && (strcmp(argv[1], "--inside") == 0)) {
        return inside(argv[2]);
    }

    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
