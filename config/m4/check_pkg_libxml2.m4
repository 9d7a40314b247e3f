# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_LIBXML2: libxml2, which the emulated node reads its description
# with. Sets LIBXML2_CFLAGS, LIBXML2_LIBS and the conditional HAVE_LIBXML2. Linked
# with, since a pkg-config of the machine that builds may have answered.

AC_DEFUN([UCX_MP_CHECK_LIBXML2], [
    PKG_CHECK_MODULES([LIBXML2], [libxml-2.0],
        [ucx_mp_save_CFLAGS=$CFLAGS
         ucx_mp_save_LIBS=$LIBS
         CFLAGS="$CFLAGS $LIBXML2_CFLAGS"
         LIBS="$LIBXML2_LIBS $LIBS"
         AC_MSG_CHECKING([whether libxml2 links])
         AC_LINK_IFELSE(
             [AC_LANG_PROGRAM([[#include <libxml/parser.h>]],
                              [[xmlCleanupParser();]])],
             [ucx_mp_libxml2_happy=yes], [ucx_mp_libxml2_happy=no])
         AC_MSG_RESULT([$ucx_mp_libxml2_happy])
         CFLAGS=$ucx_mp_save_CFLAGS
         LIBS=$ucx_mp_save_LIBS],
        [ucx_mp_libxml2_happy=no])
    AS_IF([test "x$ucx_mp_libxml2_happy" = xno],
        [AC_MSG_WARN([no libxml2: the emulated node is left out (Debian and
  Ubuntu: apt-get install libxml2-dev; Fedora, RHEL: dnf install libxml2-devel)])])
    AM_CONDITIONAL([HAVE_LIBXML2], [test "x$ucx_mp_libxml2_happy" = xyes])
])
