# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_GTEST: GoogleTest with its own main(), for the unit tests.
# Sets GTEST_CFLAGS, GTEST_LIBS and the conditional HAVE_GTEST. Linked with, since
# a pkg-config of the machine that builds may have answered.

AC_DEFUN([UCX_MP_CHECK_GTEST], [
    PKG_CHECK_MODULES([GTEST], [gtest_main],
        [ucx_mp_save_LIBS=$LIBS
         LIBS="$GTEST_LIBS $LIBS"
         AC_MSG_CHECKING([whether GoogleTest links])
         AC_LANG_PUSH([C++])
         AC_LINK_IFELSE(
             [AC_LANG_PROGRAM([[#include <gtest/gtest.h>]],
                              [[::testing::UnitTest::GetInstance();]])],
             [ucx_mp_gtest_happy=yes], [ucx_mp_gtest_happy=no])
         AC_LANG_POP([C++])
         AC_MSG_RESULT([$ucx_mp_gtest_happy])
         LIBS=$ucx_mp_save_LIBS],
        [ucx_mp_gtest_happy=no])
    AS_IF([test "x$ucx_mp_gtest_happy" = xno],
        [AC_MSG_WARN([no GoogleTest: the unit tests are left out (Debian and
  Ubuntu: apt-get install libgtest-dev; Fedora, RHEL: dnf install gtest-devel)])])
    AM_CONDITIONAL([HAVE_GTEST], [test "x$ucx_mp_gtest_happy" = xyes])
])
