# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_MPI_FRONT: headers of Open MPI and of MPICH, for the MPI
# interposition libraries (src/mpi). Nothing is linked. Sets
# OPENMPI_CPPFLAGS, MPICH_CPPFLAGS and the conditionals HAVE_OPENMPI,
# HAVE_MPICH, and HAVE_MPI_ABI: the library of the standard ABI needs Python
# only. A cross build wants the compilers named, as those in PATH are of the
# machine that builds.

# UCX_MP_MPI_HEADERS(NAME, VARIABLE, MACRO, WRAPPERS): the first of those
# compiler wrappers whose mpi.h defines the macro tells the include folders
AC_DEFUN([UCX_MP_MPI_HEADERS], [
    AC_ARG_WITH([$1-mpicc],
        [AS_HELP_STRING([--with-$1-mpicc=PROGRAM],
            [$2's C compiler, for its headers (default: $4; no: left out)])],
        [], [AS_IF([test "x$cross_compiling" = xyes], [with_$1_mpicc=no],
                   [with_$1_mpicc="$4"])])
    AS_IF([test "x$with_$1_mpicc" = xno || test "$PYTHON" = :],
          [with_$1_mpicc=])

    AC_MSG_CHECKING([for headers of $1])
    ucx_mp_$1_where=no
    $2_CPPFLAGS=
    for ucx_mp_mpicc in $with_$1_mpicc; do
        AS_IF([test "$ucx_mp_$1_where" = no &&
               ucx_mp_words=`$ucx_mp_mpicc -show 2>/dev/null`],
              [ucx_mp_flags_here=
               for ucx_mp_word in $ucx_mp_words; do
                   AS_CASE([$ucx_mp_word],
                       [-I*], [ucx_mp_flags_here="$ucx_mp_flags_here -isystem `AS_ECHO([$ucx_mp_word]) | sed s/^-I//`"])
               done
               ucx_mp_save_CPPFLAGS=$CPPFLAGS
               CPPFLAGS="$CPPFLAGS $ucx_mp_flags_here"
               AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
                   #include <mpi.h>
                   #ifndef $3
                   #error another MPI
                   #endif
                   ]], [])],
                   [ucx_mp_$1_where=$ucx_mp_mpicc
                    $2_CPPFLAGS=$ucx_mp_flags_here])
               CPPFLAGS=$ucx_mp_save_CPPFLAGS])
    done
    AC_MSG_RESULT([$ucx_mp_$1_where])
    AC_SUBST([$2_CPPFLAGS])
    AM_CONDITIONAL([HAVE_$2], [test "$ucx_mp_$1_where" != no])
])

AC_DEFUN([UCX_MP_CHECK_MPI_FRONT], [
    UCX_MP_MPI_HEADERS([openmpi], [OPENMPI], [OPEN_MPI],
                       [mpicc.openmpi mpicc])
    UCX_MP_MPI_HEADERS([mpich], [MPICH], [MPICH_VERSION], [mpicc.mpich mpicc])
    AM_CONDITIONAL([HAVE_MPI_ABI], [test "$PYTHON" != :])
])
