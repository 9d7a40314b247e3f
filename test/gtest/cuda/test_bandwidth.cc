/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX_CUDA_COPY_BW as stock UCX writes it. */
extern "C" {
#include <uct/cuda/cuda_copy/cuda_copy_bandwidth.h>
}

#include "comma.h"

#include <gtest/gtest.h>

#include <cstring>

static const double MB = 1024.0 * 1024.0;

TEST(Bandwidth, list_with_keys)
{
    uct_cuda_copy_bandwidth_t bw = {0, 0, 0, 0};
    char error[256];
    ASSERT_EQ(UCS_OK, uct_cuda_copy_bandwidth_parse(
                              "10000MBs,h2d:8300MBs,d2h:11660MBs,d2d:320GBs",
                              &bw, error, sizeof(error)));
    EXPECT_DOUBLE_EQ(10000 * MB, bw.dflt);
    EXPECT_DOUBLE_EQ(8300 * MB, bw.h2d);
    EXPECT_DOUBLE_EQ(11660 * MB, bw.d2h);
    EXPECT_DOUBLE_EQ(320 * 1024 * MB, bw.d2d);
}

TEST(Bandwidth, decimal_points_in_any_locale)
{
    uct_cuda_copy_bandwidth_t bw = {0, 0, 0, 0};
    char error[256];
    Comma comma;
    ASSERT_EQ(UCS_OK, uct_cuda_copy_bandwidth_parse("12.5MBs", &bw, error,
                                                    sizeof(error)));
    EXPECT_DOUBLE_EQ(12.5 * MB, bw.dflt);
}

TEST(Bandwidth, one_value_leaves_the_rest)
{
    uct_cuda_copy_bandwidth_t bw = {1, 2, 3, 4};
    char error[256];
    ASSERT_EQ(UCS_OK, uct_cuda_copy_bandwidth_parse("8Gbps", &bw, error,
                                                    sizeof(error)));
    EXPECT_DOUBLE_EQ(1024 * MB, bw.dflt);
    EXPECT_DOUBLE_EQ(2, bw.h2d);
}

/* UCX's type of a bandwidth has the word "auto" */
TEST(Bandwidth, auto_leaves_a_value)
{
    uct_cuda_copy_bandwidth_t bw = {1, 2, 3, 4};
    char error[256];
    ASSERT_EQ(UCS_OK, uct_cuda_copy_bandwidth_parse("auto,h2d:auto,d2h:1GBs",
                                                    &bw, error,
                                                    sizeof(error)));
    EXPECT_DOUBLE_EQ(1, bw.dflt);
    EXPECT_DOUBLE_EQ(2, bw.h2d);
    EXPECT_DOUBLE_EQ(1024 * MB, bw.d2h);
}

TEST(Bandwidth, wrong_values_are_named_and_change_nothing)
{
    for (const char *text :
         {"fast", "automatic", "h2d:", "x2y:1GBs", "1GBs,h2d:-1GBs",
          "h2d:1GBs,d2h:1XBs", "1GBs,,2GBs"}) {
        uct_cuda_copy_bandwidth_t bw = {1, 2, 3, 4};
        char error[256]              = "";
        EXPECT_EQ(UCS_ERR_INVALID_PARAM,
                  uct_cuda_copy_bandwidth_parse(text, &bw, error,
                                                sizeof(error)))
                << text;
        EXPECT_NE(nullptr, strstr(error, text)) << error;
        EXPECT_DOUBLE_EQ(2, bw.h2d);
    }
}
