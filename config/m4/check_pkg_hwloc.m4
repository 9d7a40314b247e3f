# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_HWLOC: hwloc's header, optional; the library is opened at run
# time, only where host staging wants to know the NUMA nodes.
# Sets HWLOC_CPPFLAGS, HWLOC_LIBS and defines HAVE_HWLOC.

AC_DEFUN([UCX_MP_CHECK_HWLOC], [
    AC_ARG_WITH([hwloc],
        [AS_HELP_STRING([--with-hwloc=DIR],
            [hwloc's installation (default: used if found; no: left out)])],
        [], [with_hwloc=check])

    HWLOC_CPPFLAGS=
    HWLOC_LIBS=
    ucx_mp_hwloc_happy=no
    AS_CASE([$with_hwloc],
        [no], [],
        [check|yes],
        [PKG_CHECK_MODULES([HWLOC], [hwloc >= 2.0],
            [ucx_mp_hwloc_happy=yes
             HWLOC_CPPFLAGS=$HWLOC_CFLAGS],
            [ucx_mp_hwloc_happy=no])],
        [HWLOC_CPPFLAGS="-I$with_hwloc/include"
         HWLOC_LIBS="-L$with_hwloc/lib -lhwloc"
         AS_IF([test -f "$with_hwloc/include/hwloc.h"],
               [ucx_mp_hwloc_happy=yes],
               [AC_MSG_ERROR([no hwloc.h in $with_hwloc/include])])])

    AS_IF([test "x$with_hwloc" = xyes && test "x$ucx_mp_hwloc_happy" = xno],
          [AC_MSG_ERROR([--with-hwloc was asked for, but pkg-config knows no
  hwloc 2.0 or newer (Debian and Ubuntu: apt-get install libhwloc-dev)])])
    AS_IF([test "x$ucx_mp_hwloc_happy" = xyes],
          [AC_DEFINE([HAVE_HWLOC], [1], [hwloc's header is there])])
    AC_SUBST([HWLOC_CPPFLAGS])
    AC_SUBST([HWLOC_LIBS])
])
