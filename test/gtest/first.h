/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each test reads first, which is compiled once for all of them.
 */

#include <config.h>

#include <gtest/gtest.h>
