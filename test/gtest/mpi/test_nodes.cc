/* SPDX-License-Identifier: BSD-3-Clause */
/* When ranks of several nodes agree on an all-reduce. */
#include <gtest/gtest.h>

extern "C" {
#include "fake_mpi.h"

#include <mpi/nodes.h>
}

#include <vector>

#define MIB (1ul << 20)

class Nodes : public ::testing::Test
{
protected:
    void SetUp() override
    {
        fake_mpi_open();
        m_nodes = ucx_mp_mpi_nodes_create(1);
        ASSERT_NE(nullptr, m_nodes);
    }

    void TearDown() override
    {
        fake_mpi_others = nullptr;
        ucx_mp_mpi_nodes_destroy(m_nodes, ucx_mp_mpi_real.comm_world);
    }

    /* An all-reduce of host memory. Returns whether the ranks agreed on it. */
    bool call(size_t bytes, int kind = UCT_CUDA_COLL_KIND_ALLREDUCE,
              const char *type = "float")
    {
        const int before             = fake_mpi_reductions;
        ucx_mp_mpi_collective_t args = {};
        int rc                       = -1;

        m_buffer.resize(4 * MIB);
        args.name     = "MPI_Allreduce";
        args.kind     = kind;
        args.sendbuf  = m_buffer.data();
        args.recvbuf  = m_buffer.data();
        args.count    = bytes / 4;
        args.datatype = (MPI_Datatype)fake_mpi_handle(type);
        args.op       = (MPI_Op)fake_mpi_handle("op_sum");
        EXPECT_FALSE(ucx_mp_mpi_nodes_collective(m_nodes, &args, &rc));
        EXPECT_GE(before + 1, fake_mpi_reductions);
        return fake_mpi_reductions > before;
    }

    /* The calls of so many that agree, counted from 1 */
    std::vector<int> agreed(int calls, size_t bytes = MIB)
    {
        std::vector<int> found;

        for (int i = 1; i <= calls; ++i) {
            if (call(bytes)) {
                found.push_back(i);
            }
        }
        return found;
    }

    ucx_mp_mpi_nodes_t *m_nodes;
    std::vector<char>  m_buffer;
};

TEST_F(Nodes, calls_with_host_buffers_agree_ever_more_rarely)
{
    EXPECT_EQ((std::vector<int>{1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 2047,
                                4095, 8191, 12287}),
              agreed(13000));
}

TEST_F(Nodes, sizes_are_counted_apart)
{
    agreed(100, MIB);
    EXPECT_EQ((std::vector<int>{1, 3, 7}), agreed(10, 2 * MIB));
    EXPECT_EQ((std::vector<int>{27}), agreed(50, MIB)); /* the 127th */
}

TEST_F(Nodes, what_is_small_or_no_all_reduce_agrees_on_nothing)
{
    EXPECT_FALSE(call((MIB / 4) - 4));
    EXPECT_FALSE(call(MIB, UCT_CUDA_COLL_KIND_BCAST));
    EXPECT_FALSE(call(MIB, UCT_CUDA_COLL_KIND_ALLREDUCE, "byte"));
    EXPECT_FALSE(call(0));
    EXPECT_TRUE(call(MIB / 4));
}

/* The third term is whether no rank has a GPU buffer */
TEST_F(Nodes, while_a_rank_has_a_gpu_buffer_each_call_agrees)
{
    fake_mpi_others = [](int *result, int) { result[2] = 0; };
    EXPECT_EQ(20u, agreed(20).size());
    fake_mpi_others = nullptr;
    EXPECT_EQ((std::vector<int>{1, 3, 7}), agreed(10));
}
