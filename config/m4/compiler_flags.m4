# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_COMPILER_FLAGS: warnings, language level, debugging and sanitizers.
# Sets BASE_CPPFLAGS, BASE_CFLAGS, BASE_CXXFLAGS.

AC_DEFUN([UCX_MP_COMPILER_FLAGS], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [warnings are errors])],
        [], [enable_werror=no])
    AC_ARG_ENABLE([debug],
        [AS_HELP_STRING([--enable-debug],
            [no optimisation, assertions, every plan is checked before use])],
        [], [enable_debug=no])
    AC_ARG_ENABLE([asan],
        [AS_HELP_STRING([--enable-asan], [build with AddressSanitizer])],
        [], [enable_asan=no])
    AC_ARG_ENABLE([ubsan],
        [AS_HELP_STRING([--enable-ubsan],
            [build with UndefinedBehaviorSanitizer, every finding fatal])],
        [], [enable_ubsan=no])
    AC_ARG_ENABLE([tsan],
        [AS_HELP_STRING([--enable-tsan],
            [build with ThreadSanitizer; not together with the others])],
        [], [enable_tsan=no])

    AS_CASE([$host_os], [linux*], [],
        [AC_MSG_ERROR([Linux only: $host_os is not supported])])
    AS_CASE([$host_cpu], [x86_64|aarch64], [],
        [AC_MSG_ERROR([x86_64 and aarch64 only: src/uct/abi/layout.h does not
  know UCX's sizes on $host_cpu])])

    ucx_mp_flags="-Wall -Wextra -Wno-unused-parameter"
    AS_IF([test "x$enable_werror" != xno],
          [ucx_mp_flags="$ucx_mp_flags -Werror"])
    AS_IF([test "x$enable_debug" != xno],
          [ucx_mp_flags="$ucx_mp_flags -O0 -g3"
           AC_DEFINE([ENABLE_DEBUG], [1],
                     [Assertions, and plans checked before they are used])])
    AM_CONDITIONAL([DEBUG], [test "x$enable_debug" != xno])

    ucx_mp_sanitize=
    AS_IF([test "x$enable_asan" != xno],
          [ucx_mp_sanitize="-fsanitize=address"])
    AS_IF([test "x$enable_ubsan" != xno],
          [ucx_mp_sanitize="$ucx_mp_sanitize -fsanitize=undefined"
           ucx_mp_sanitize="$ucx_mp_sanitize -fno-sanitize-recover=undefined"])
    AS_IF([test "x$enable_tsan" != xno],
          [ucx_mp_sanitize="-fsanitize=thread"])
    AS_IF([test -n "$ucx_mp_sanitize"],
          [ucx_mp_flags="$ucx_mp_flags $ucx_mp_sanitize"
           ucx_mp_flags="$ucx_mp_flags -fno-omit-frame-pointer -g"])
    AM_CONDITIONAL([SANITIZE], [test -n "$ucx_mp_sanitize"])

    # config.h by -include: no source has to remember it
    BASE_CPPFLAGS='-I$(top_srcdir)/src -I$(top_builddir)/src'
    BASE_CPPFLAGS="$BASE_CPPFLAGS "'-include $(top_builddir)/config.h'
    # written so that a source which defines it itself agrees; C++ always does
    # lists of sys/queue.h are read backwards through another struct's type
    BASE_CFLAGS="-std=gnu11 -fno-strict-aliasing -D_GNU_SOURCE= $ucx_mp_flags"
    BASE_CXXFLAGS="-std=c++17 $ucx_mp_flags"
    AC_SUBST([BASE_CPPFLAGS])
    AC_SUBST([BASE_CFLAGS])
    AC_SUBST([BASE_CXXFLAGS])
])
