# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_LIBXML2: libxml2, which the emulated node reads its description
# with. Sets LIBXML2_CFLAGS, LIBXML2_LIBS and the conditional HAVE_LIBXML2.

AC_DEFUN([UCX_MP_CHECK_LIBXML2], [
    PKG_CHECK_MODULES([LIBXML2], [libxml-2.0],
        [ucx_mp_libxml2_happy=yes],
        [ucx_mp_libxml2_happy=no
         AC_MSG_WARN([no libxml2: the emulated node is left out (Debian and
  Ubuntu: apt-get install libxml2-dev)])])
    AM_CONDITIONAL([HAVE_LIBXML2], [test "x$ucx_mp_libxml2_happy" = xyes])
])
