/* SPDX-License-Identifier: BSD-3-Clause */
/* What is asked of the driver about a buffer, and how often. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/memory.h>
}

#include <gtest/gtest.h>

class Memory : public ::testing::Test
{
protected:
    FakeDriver driver;
    char buffer[2];

    void SetUp() override
    {
        driver.gpu_device = 3;
        driver.offer_gpu_memory((CUdeviceptr)buffer, sizeof(buffer));
    }

    int place(const void *address)
    {
        CUcontext context = nullptr;
        int found         = -2;

        uct_cuda_memory_place(address, &found, &context);
        EXPECT_EQ(driver.context, context);
        return found;
    }
};

TEST_F(Memory, an_answer_serves_one_operation)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(&buffer[0], 1, &memory);
    uct_cuda_memory_remember(&buffer[0], &memory);
    EXPECT_EQ(3, place(&buffer[0]));
    EXPECT_EQ(1u, driver.questions);

    driver.gpu_device = 5;
    EXPECT_EQ(5, place(&buffer[0]));
    EXPECT_EQ(2u, driver.questions);
}

TEST_F(Memory, another_question_ends_an_answer)
{
    uct_cuda_memory_t memory;

    uct_cuda_memory_query(&buffer[0], 1, &memory);
    uct_cuda_memory_remember(&buffer[0], &memory);
    driver.gpu_device = 5;
    EXPECT_EQ(5, place(&buffer[1]));
    uct_cuda_memory_query(&buffer[0], 1, &memory);
    EXPECT_EQ(5, place(&buffer[0]));
    EXPECT_EQ(4u, driver.questions);
}
