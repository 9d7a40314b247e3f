/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The emulated libraries export each name that other projects look up in them
 * (lookups.txt).
 */
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

class lookups : public ::testing::Test {
protected:
    static void *load(const std::string &name)
    {
        const char *dir = getenv("CUEMU_LIB");
        void *handle    = dlopen(((dir == NULL ? "lib/" : std::string(dir) +
                                                          "/") + name).c_str(),
                                 RTLD_NOW | RTLD_GLOBAL);

        EXPECT_NE(nullptr, handle) << dlerror();
        return handle;
    }

    /* Return the functions in the list with this prefix. */
    static std::vector<std::string> names(const std::string &prefix)
    {
        std::vector<std::string> found;
        std::ifstream file(CUEMU_LOOKUPS);
        std::string line, word;

        EXPECT_TRUE(file.good()) << CUEMU_LOOKUPS;
        while (std::getline(file, line)) {
            std::istringstream words(line);

            while ((line[0] == ' ') && (words >> word)) {
                if ((word.compare(0, prefix.size(), prefix) == 0) &&
                    isupper(word[prefix.size()])) {
                    found.push_back(word);
                }
            }
        }
        return found;
    }

    static void expect_all(const std::string &library,
                           const std::string &prefix)
    {
        const std::vector<std::string> all = names(prefix);
        void *handle                       = load(library);

        ASSERT_LT(10u, all.size());
        for (const std::string &name : all) {
            EXPECT_NE(nullptr, dlsym(handle, name.c_str()))
                    << library << " has no " << name;
        }
    }
};

TEST_F(lookups, driver)
{
    expect_all("libcuda.so.1", "cu");
}

TEST_F(lookups, runtime)
{
    load("libcuda.so.1");
    expect_all("libcudart.so.12", "cuda");
    expect_all("libcudart.so.13", "cuda");
}

TEST_F(lookups, nvml)
{
    expect_all("libnvidia-ml.so.1", "nvml");
}
