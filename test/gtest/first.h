/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * First header of every test, precompiled once for all.
 */

#include <config.h>

#include <gtest/gtest.h>
