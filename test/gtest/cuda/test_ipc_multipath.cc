/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies outside of the engine, as reported to it. */
extern "C" {
#include <uct/cuda/copy/method.h>
#include <multipath/end.h>
}

#include <gtest/gtest.h>

class IpcMultipath : public ::testing::Test
{
protected:
    IpcMultipath()
    {
        uct_cuda_plan_config_t config;
        char error[256];

        uct_cuda_plan_config_init(&config);
        EXPECT_EQ(UCS_OK, uct_cuda_plan_config_set(&config, "MULTIPATH_LEDGER",
                                                   "n", error, sizeof(error)));
        EXPECT_EQ(UCS_OK, uct_cuda_mp_engine_create(&config, &engine));
    }

    ~IpcMultipath() override
    {
        uct_cuda_mp_engine_destroy(engine);
    }

    bool is_counted(int peer, int local, bool is_put)
    {
        const uint16_t counted = uct_cuda_mp_single_begin(
                engine, End(is_put ? local : peer), End(is_put ? peer : local),
                16ul << 20);

        uct_cuda_mp_single_end(engine, counted);
        return counted != UCT_CUDA_MP_NOT_COUNTED;
    }

    uct_cuda_mp_engine_t *engine;
};

/* Ranks that see one GPU each: a copy to another rank's GPU uses no link known
   to this process, and no link to the host */
TEST_F(IpcMultipath, hidden_peers_are_no_host_memory)
{
    for (bool is_put : {true, false}) {
        for (int local : {HOST, 1}) {
            EXPECT_FALSE(is_counted(HIDDEN, local, is_put)) << local << is_put;
            EXPECT_TRUE(is_counted(2, local, is_put)) << local << is_put;
        }
    }
}
