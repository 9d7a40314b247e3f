# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_GTEST: GoogleTest with its own main(), for the unit tests.
# Sets GTEST_CFLAGS, GTEST_LIBS and the conditional HAVE_GTEST.

AC_DEFUN([UCX_MP_CHECK_GTEST], [
    PKG_CHECK_MODULES([GTEST], [gtest_main],
        [ucx_mp_gtest_happy=yes],
        [ucx_mp_gtest_happy=no
         AC_MSG_WARN([no GoogleTest: the unit tests are left out (Debian and
  Ubuntu: apt-get install libgtest-dev)])])
    AM_CONDITIONAL([HAVE_GTEST], [test "x$ucx_mp_gtest_happy" = xyes])
])
