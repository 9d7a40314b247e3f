/* SPDX-License-Identifier: BSD-3-Clause */
/* What is kept of contexts, of which there are many, and which go. */
#include "fake_driver.h"

extern "C" {
#include <uct/cuda/base/memory.h>
}

#include <gtest/gtest.h>

#include <set>

static constexpr unsigned MANY = 100;

/* Contexts by number, from 1; each is at an address of its own */
class Contexts : public testing::Test
{
protected:
    FakeDriver driver;
    static std::set<CUcontext> dead;

    Contexts()
    {
        dead.clear();
        first                       = driver.ctx_id << 16;
        driver.table.cuCtxGetId     = [](CUcontext context,
                                     unsigned long long *id) {
            *id = first + (uintptr_t)context;
            return dead.count(context) ? CUDA_ERROR_CONTEXT_IS_DESTROYED :
                                         CUDA_SUCCESS;
        };
        driver.table.cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
    }

    CUcontext at(unsigned number)
    {
        return (CUcontext)(uintptr_t)number;
    }

    void use(unsigned number)
    {
        driver.context = at(number);
    }

    static unsigned long long first;
};

std::set<CUcontext> Contexts::dead;
unsigned long long Contexts::first;

/* More contexts than any table would have room for, used in turns */
TEST_F(Contexts, many_have_one_stream_and_event_each)
{
    for (unsigned round = 0; round < 3; ++round) {
        for (unsigned i = 1; i <= MANY; ++i) {
            use(i);
            EXPECT_TRUE(uct_cuda_memory_legacy_is_idle());
        }
        EXPECT_EQ(MANY, driver.streams.size());
        EXPECT_EQ(MANY, driver.events.size());
    }
}
