/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes as rows: their places in memory and when packed. */
#include <gtest/gtest.h>

extern "C" {
#include <mpi/strided.h>
}

#include <random>
#include <vector>

class Rows : public ::testing::Test
{
protected:
    typedef std::vector<ptrdiff_t> Bytes; /* offsets in memory, in packed
                                             order */

    void TearDown() override
    {
        ucx_mp_mpi_layout_free(&m_layout);
        ucx_mp_mpi_layout_free(&m_element);
    }

    static Bytes bytes_of(const ucx_mp_mpi_layout_t &layout)
    {
        Bytes bytes(layout.size, PTRDIFF_MIN);

        for (size_t i = 0; i < layout.count; ++i) {
            const ucx_mp_mpi_strided_t &rows = layout.rows[i];

            for (size_t row = 0; row < rows.count; ++row) {
                for (size_t b = 0; b < rows.length; ++b) {
                    bytes.at(rows.packed + row * rows.step + b) =
                            rows.offset + (ptrdiff_t)row * rows.stride +
                            (ptrdiff_t)b;
                }
            }
        }
        return bytes;
    }

    /* Add rows at these places, each of so many bytes. */
    void add(ucx_mp_mpi_layout_t *layout, Bytes *bytes, ptrdiff_t offset,
             size_t length)
    {
        ASSERT_EQ(0, ucx_mp_mpi_layout_add_row(layout, offset, length));
        for (size_t b = 0; b < length; ++b) {
            bytes->push_back(offset + (ptrdiff_t)b);
        }
    }

    ucx_mp_mpi_layout_t m_layout  = {};
    ucx_mp_mpi_layout_t m_element = {};
};

TEST_F(Rows, adjacent_rows_are_one)
{
    Bytes bytes;

    add(&m_layout, &bytes, 8, 4);
    add(&m_layout, &bytes, 12, 8);
    EXPECT_EQ(1u, m_layout.count);
    EXPECT_EQ(12u, m_layout.rows[0].length);
    EXPECT_EQ(bytes, bytes_of(m_layout));
}

TEST_F(Rows, equally_spaced_rows_are_a_plane)
{
    Bytes bytes;

    for (int i = 0; i < 10; ++i) {
        add(&m_layout, &bytes, 100 * i, 8);
    }
    ASSERT_EQ(1u, m_layout.count);
    EXPECT_EQ(10u, m_layout.rows[0].count);
    EXPECT_EQ(100, m_layout.rows[0].stride);
    EXPECT_EQ(8u, m_layout.rows[0].step);
    EXPECT_EQ(bytes, bytes_of(m_layout));
}

TEST_F(Rows, empty_rows_are_ignored)
{
    ASSERT_EQ(0, ucx_mp_mpi_layout_add_row(&m_layout, 5, 0));
    EXPECT_EQ(0u, m_layout.size);
    EXPECT_EQ(Bytes(), bytes_of(m_layout));
}

/* Elements of random rows at any distance: the same bytes in the same order as
   computed one by one */
TEST_F(Rows, any_elements)
{
    std::mt19937 random(1);

    for (int round = 0; round < 2000; ++round) {
        const size_t count     = 1 + random() % 5;
        const ptrdiff_t extent = (ptrdiff_t)(random() % 200) - 60;
        const ptrdiff_t offset = (ptrdiff_t)(random() % 50) - 25;
        Bytes element, bytes;
        ptrdiff_t at = 0;

        TearDown();
        m_layout = m_element = {};
        for (int rows = 1 + random() % 4; rows > 0; --rows) {
            const size_t length = 1 + random() % 8;

            at += (random() % 3) * 4;
            add(&m_element, &element, at, length);
            at += (ptrdiff_t)length;
        }
        add(&m_layout, &bytes, -500, 3);
        ASSERT_EQ(0, ucx_mp_mpi_layout_add_elements(&m_layout, offset, count,
                                                    extent, &m_element));
        for (size_t i = 0; i < count; ++i) {
            for (ptrdiff_t byte : element) {
                bytes.push_back(offset + (ptrdiff_t)i * extent + byte);
            }
        }
        ASSERT_EQ(bytes, bytes_of(m_layout)) << "round " << round;
    }
}
