/* SPDX-License-Identifier: BSD-3-Clause */

/* Load PTX of tests/kernels into the emulated driver and run it. */
#ifndef CUEMU_KERNEL_FIXTURE_H_
#define CUEMU_KERNEL_FIXTURE_H_

#include "driver_fixture.h"

#include <fstream>
#include <sstream>

class kernel : public driver {
protected:
    kernel(const char *node, const char *file) : m_node(node), m_file(file)
    {
    }

    void SetUp() override
    {
        driver::SetUp();
        setenv("CUEMU_NODE", m_node, 1);
        /* Tests compare bytes; those of time set another slowdown */
        setenv("CUEMU_SLOWDOWN", "1", 1);
    }

    static std::string read(const std::string &file)
    {
        std::ifstream stream(std::string(CUEMU_KERNELS) + "/" + file);
        std::stringstream text;

        EXPECT_TRUE(stream.good()) << file;
        text << stream.rdbuf();
        return text.str();
    }

    /* Make a device's context current and load the file's kernels into it. */
    void load(int device)
    {
        use(device);
        std::string text = read(m_file);
        ASSERT_EQ(CUDA_SUCCESS, cuModuleLoadData(&m_module, text.c_str()));
    }

    template<typename T> static CUdeviceptr upload(const std::vector<T> &data)
    {
        CUdeviceptr ptr = alloc(data.size() * sizeof(T));

        EXPECT_EQ(CUDA_SUCCESS, cuMemcpyHtoD(ptr, data.data(),
                                             data.size() * sizeof(T)));
        EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
        return ptr;
    }

    template<typename T>
    static void download(std::vector<T> &data, CUdeviceptr ptr)
    {
        EXPECT_EQ(CUDA_SUCCESS, cuMemcpyDtoH(data.data(), ptr,
                                             data.size() * sizeof(T)));
    }

    /* Expect the load of a text to fail, for a reason that contains `why`.
       Returns the driver's error text. */
    std::string expect_refused(CUresult result, const std::string &text,
                               const char *why = "")
    {
        char log[512]          = "";
        CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                                  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[]         = {log, (void*)sizeof(log)};

        EXPECT_EQ(result, cuModuleLoadDataEx(&m_module, text.c_str(), 2,
                                             options, values)) << text;
        EXPECT_NE(nullptr, strstr(log, why)) << log;
        return log;
    }

    CUfunction function(const char *name)
    {
        CUfunction func = nullptr;

        EXPECT_EQ(CUDA_SUCCESS, cuModuleGetFunction(&func, m_module, name))
                << name;
        return func;
    }

    struct size_t3 {
        unsigned x, y, z;

        size_t3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) :
                x(x_), y(y_), z(z_)
        {
        }
    };

    template<typename... Args>
    CUresult try_launch(CUfunction func, size_t3 grid, size_t3 block,
                        unsigned shared, CUstream stream, Args... args)
    {
        void *params[] = {(void*)&args..., nullptr};

        return cuLaunchKernel(func, grid.x, grid.y, grid.z, block.x, block.y,
                              block.z, shared, stream, params, nullptr);
    }

    /* Launch in the null stream, so that later copies wait for the kernel. */
    template<typename... Args>
    void launch(const char *name, size_t3 grid, size_t3 block, unsigned shared,
                Args... args)
    {
        EXPECT_EQ(CUDA_SUCCESS, try_launch(function(name), grid, block, shared,
                                           nullptr, args...));
    }

    CUmodule m_module = nullptr;

private:
    const char *m_node, *m_file;
};

#endif
