/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * First header of every test, precompiled once for all.
 */

#include <config.h>

#include <gtest/gtest.h>

#ifdef __clang__
/* The tests' usual headers and comparisons: clang compiles their templates
   once, with this header. gcc would compile them with each test. */
#include <ucs/type/status.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

template<typename A, typename B> void first_compare_equal(A a, B b)
{
    EXPECT_EQ(a, b);
    EXPECT_NE(a, b);
}

template<typename A> void first_compare(A a)
{
    first_compare_equal(a, a);
    EXPECT_LT(a, a);
    EXPECT_LE(a, a);
    EXPECT_GT(a, a);
    EXPECT_GE(a, a);
}

inline void first_comparisons()
{
    first_compare(0);
    first_compare(0u);
    first_compare(0l);
    first_compare(0ul);
    first_compare(0.0);
    first_compare_equal(0u, 0ul);
    first_compare_equal(UCS_OK, UCS_OK);
    first_compare_equal(std::string(), std::string());
    EXPECT_EQ("", std::string());
    EXPECT_STREQ("", "");
    EXPECT_TRUE(true) << "" << 0 << 0ul << 0u << std::string();
}
#endif
