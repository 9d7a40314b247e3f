# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_MPI: an MPI compiler, for the checked programs in test/mpi.
# Sets MPI_CC and the conditional HAVE_MPI. An mpicc in PATH is of the machine that
# builds: a cross build wants it named.

AC_DEFUN([UCX_MP_CHECK_MPI], [
    AC_ARG_WITH([mpicc],
        [AS_HELP_STRING([--with-mpicc=PROGRAM],
            [MPI's C compiler (default: mpicc in PATH; no: left out)])],
        [], [AS_IF([test "x$cross_compiling" = xyes], [with_mpicc=no],
                   [with_mpicc=check])])

    MPI_CC=
    AS_CASE([$with_mpicc],
        [no], [],
        [check|yes], [AC_PATH_PROG([MPI_CC], [mpicc])],
        [MPI_CC=$with_mpicc])

    ucx_mp_mpi_happy=no
    AS_IF([test -n "$MPI_CC"],
          [AC_MSG_CHECKING([whether $MPI_CC compiles])
           ucx_mp_save_CC=$CC
           CC=$MPI_CC
           AC_LANG_PUSH([C])
           AC_LINK_IFELSE(
               [AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Init(0, 0);]])],
               [ucx_mp_mpi_happy=yes])
           AC_LANG_POP([C])
           CC=$ucx_mp_save_CC
           AC_MSG_RESULT([$ucx_mp_mpi_happy])])
    AS_IF([test "x$ucx_mp_mpi_happy" = xno &&
           test "x$with_mpicc" != xcheck && test "x$with_mpicc" != xno],
          [AC_MSG_ERROR([$MPI_CC cannot build an MPI program])])
    AS_IF([test "x$ucx_mp_mpi_happy" = xno && test "x$with_mpicc" = xcheck],
          [AC_MSG_WARN([no MPI: test/mpi is left out (Debian and Ubuntu:
  apt-get install libopenmpi-dev openmpi-bin; Fedora, RHEL: dnf install
  openmpi-devel, and module load mpi)])])
    AC_SUBST([MPI_CC])
    AM_CONDITIONAL([HAVE_MPI], [test "x$ucx_mp_mpi_happy" = xyes])
])
