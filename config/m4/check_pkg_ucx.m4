# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_UCX: UCX's installed headers. No library: the module finds the
# UCX that loads it at run time. Sets UCX_CPPFLAGS.

AC_DEFUN([UCX_MP_CHECK_UCX], [
    AC_ARG_WITH([ucx],
        [AS_HELP_STRING([--with-ucx=DIR],
            [UCX's installation, or the folder that a libucx-cu12 or
             libucx-cu13 wheel was unpacked into (default: pkg-config, then
             /usr)])],
        [], [with_ucx=])

    AS_CASE([$with_ucx],
        [no], [AC_MSG_ERROR([UCX's headers cannot be done without])],
        [''|yes],
        [ucx_mp_dirs=`test -z "$PKG_CONFIG" ||
                      $PKG_CONFIG --variable=includedir ucx 2>/dev/null`
         ucx_mp_dirs="$ucx_mp_dirs /usr/include /usr/local/include"],
        [ucx_mp_dirs="$with_ucx/include $with_ucx/libucx/include $with_ucx"])

    AC_MSG_CHECKING([for UCX's headers])
    ucx_mp_ucx_where=
    for ucx_mp_dir in $ucx_mp_dirs; do
        AS_IF([test -f "$ucx_mp_dir/uct/api/uct.h"],
              [ucx_mp_ucx_where=$ucx_mp_dir
               break])
    done
    AS_IF([test -z "$ucx_mp_ucx_where"],
          [AC_MSG_RESULT([no])
           AC_MSG_ERROR([no uct/api/uct.h in: $ucx_mp_dirs
  Install UCX's headers (Debian and Ubuntu: apt-get install libucx-dev; Fedora,
  RHEL: dnf install ucx-devel), or
    python3 -m pip install --no-deps --target ucx libucx-cu12==1.22.0
  and give the folder: --with-ucx=\$PWD/ucx])])
    AC_MSG_RESULT([$ucx_mp_ucx_where])
    AS_CASE([$ucx_mp_ucx_where], [/usr/include], [UCX_CPPFLAGS=],
            [UCX_CPPFLAGS="-isystem $ucx_mp_ucx_where"])

    AC_MSG_CHECKING([for UCX's release])
    ucx_mp_header=$ucx_mp_ucx_where/ucp/api/ucp_version.h
    ucx_mp_major=`sed -n 's/^#define UCP_API_MAJOR *//p' "$ucx_mp_header"`
    ucx_mp_minor=`sed -n 's/^#define UCP_API_MINOR *//p' "$ucx_mp_header"`
    ucx_mp_ucx_version=$ucx_mp_major.$ucx_mp_minor
    AC_MSG_RESULT([$ucx_mp_ucx_version])
    AS_IF([test "x$ucx_mp_major" != x1 || test "$ucx_mp_minor" -lt 13],
          [AC_MSG_ERROR([headers of UCX 1.13 or newer are needed, those in
  $ucx_mp_ucx_where are of $ucx_mp_ucx_version])])

    ucx_mp_save_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$UCX_CPPFLAGS $CPPFLAGS"
    AC_CHECK_HEADERS([uct/api/uct.h ucs/type/status.h], [],
        [AC_MSG_ERROR([UCX's headers in $ucx_mp_ucx_where are not whole])],
        [#include <uct/api/uct.h>])
    CPPFLAGS=$ucx_mp_save_CPPFLAGS
    AC_SUBST([UCX_CPPFLAGS])
    AC_SUBST([ucx_mp_ucx_where])
])
