# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_PCH: whether the C++ compiler can compile the functions of a
# precompiled header once, into an object of their own (clang). Sets PCH_CXXFLAGS
# and the conditional PCH_HAS_CODE.

AC_DEFUN([UCX_MP_CHECK_PCH], [
    ucx_mp_pch_flags="-fpch-instantiate-templates -fpch-codegen"
    AC_LANG_PUSH([C++])
    AC_CACHE_CHECK([whether $CXX compiles a precompiled header's functions],
        [ucx_mp_cv_cxx_pch_code],
        [ucx_mp_save_CXXFLAGS=$CXXFLAGS
         CXXFLAGS="$CXXFLAGS -Werror $ucx_mp_pch_flags"
         AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
                           [ucx_mp_cv_cxx_pch_code=yes],
                           [ucx_mp_cv_cxx_pch_code=no])
         CXXFLAGS=$ucx_mp_save_CXXFLAGS])
    AC_LANG_POP([C++])
    AS_IF([test "x$ucx_mp_cv_cxx_pch_code" = xyes],
          [PCH_CXXFLAGS=$ucx_mp_pch_flags], [PCH_CXXFLAGS=])
    AC_SUBST([PCH_CXXFLAGS])
    AM_CONDITIONAL([PCH_HAS_CODE], [test "x$ucx_mp_cv_cxx_pch_code" = xyes])
])
