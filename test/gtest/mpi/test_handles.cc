/* SPDX-License-Identifier: BSD-3-Clause */
/* Combinations of operations and types. */
#include <gtest/gtest.h>

extern "C" {
#include "fake_mpi.h"

#include <mpi/handles.h>
}

#include <string>

class Handles : public ::testing::Test
{
protected:
    void SetUp() override
    {
        fake_mpi_open();
    }

    bool known(const std::string &op, const char *type)
    {
        return ucx_mp_mpi_handles_known(
                (MPI_Op)fake_mpi_handle(("op_" + op).c_str()),
                (MPI_Datatype)fake_mpi_handle(type), &m_op, &m_type);
    }

    /* Return the operations defined for a type: "sum prod". */
    std::string operations(const char *type)
    {
        std::string found;

        for (const char *op : {"sum", "prod", "max", "min", "land", "lor",
                               "lxor", "band", "bor", "bxor", "minloc",
                               "maxloc"}) {
            if (known(op, type)) {
                found += std::string(found.empty() ? "" : " ") + op;
            }
        }
        return found;
    }

    ucx_mp_op_t   m_op;
    ucx_mp_type_t m_type;
};

TEST_F(Handles, operations_are_those_that_mpi_allows)
{
    const std::string numbers = "sum prod max min";

    EXPECT_EQ(numbers, operations("float"));
    EXPECT_EQ(numbers, operations("double"));
    EXPECT_EQ(numbers + " land lor lxor band bor bxor", operations("int"));
    EXPECT_EQ(numbers + " land lor lxor band bor bxor",
              operations("signed_char"));
    EXPECT_EQ(numbers + " band bor bxor", operations("aint"));
    EXPECT_EQ("sum prod", operations("c_float_complex"));
    EXPECT_EQ("land lor lxor", operations("c_bool"));
    EXPECT_EQ("band bor bxor", operations("byte"));
    EXPECT_EQ("minloc maxloc", operations("2int"));
}

TEST_F(Handles, handles_name_the_kernels_types_and_operations)
{
    ASSERT_TRUE(known("max", "unsigned"));
    EXPECT_EQ(UCX_MP_OP_MAX, m_op);
    EXPECT_EQ(UCX_MP_TYPE_U32, m_type);
    ASSERT_TRUE(known("sum", "c_float_complex"));
    EXPECT_EQ(UCX_MP_OP_SUM, m_op);
    EXPECT_EQ(UCX_MP_TYPE_C32, m_type);
    ASSERT_TRUE(known("minloc", "2int"));
    EXPECT_EQ(UCX_MP_OP_MINLOC, m_op);
    EXPECT_EQ(UCX_MP_TYPE_I32_I32, m_type);
}

TEST_F(Handles, types_of_another_size_are_left_to_the_mpi)
{
    EXPECT_EQ("", operations("long"));
    EXPECT_EQ("", operations("no_such_type"));
}

TEST_F(Handles, handles_for_the_librarys_own_calls)
{
    EXPECT_EQ(fake_mpi_handle("byte"), (void*)ucx_mp_mpi_pmpi.byte);
    EXPECT_EQ(fake_mpi_handle("int"), (void*)ucx_mp_mpi_pmpi.integer);
    EXPECT_EQ(fake_mpi_handle("op_min"), (void*)ucx_mp_mpi_pmpi.min);
}
