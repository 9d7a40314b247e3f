/* SPDX-License-Identifier: BSD-3-Clause */
/* What the engine is told of copies that it does not carry. */
extern "C" {
#include <uct/cuda/cuda_ipc/cuda_ipc_multipath.h>
#include <multipath/end.h>
}

#include <gtest/gtest.h>

#include <memory>

class IpcMultipath : public ::testing::Test
{
protected:
    IpcMultipath() : iface(new uct_cuda_ipc_iface_t())
    {
        uct_cuda_mp_config_t config;
        char error[256];

        uct_cuda_mp_config_init(&config);
        EXPECT_EQ(UCS_OK, uct_cuda_mp_config_set(&config, "MULTIPATH_LEDGER",
                                                 "n", error, sizeof(error)));
        EXPECT_EQ(UCS_OK, uct_cuda_mp_engine_create(&config, &iface->engine));
    }

    ~IpcMultipath() override
    {
        uct_cuda_mp_engine_destroy(iface->engine);
    }

    bool is_counted(int peer, int local, bool is_put)
    {
        uct_cuda_op_t op = {};

        rkey.gpu = End(peer);
        uct_cuda_ipc_multipath_count(iface.get(), &rkey, End(local),
                                     16ul << 20, is_put, &op);
        op.release(&op);
        return op.counted != UCT_CUDA_MP_NOT_COUNTED;
    }

    std::unique_ptr<uct_cuda_ipc_iface_t> iface;
    uct_cuda_ipc_rkey_t rkey = {};
};

/* Ranks that see one GPU each: a copy to another one's is on no link that this
 * process knows, and on none to the host */
TEST_F(IpcMultipath, hidden_peers_are_no_host_memory)
{
    for (bool is_put : {true, false}) {
        for (int local : {HOST, 1}) {
            EXPECT_FALSE(is_counted(HIDDEN, local, is_put)) << local << is_put;
            EXPECT_TRUE(is_counted(2, local, is_put)) << local << is_put;
        }
    }
}
