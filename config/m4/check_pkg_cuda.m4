# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_CUDA: the CUDA driver's header, cuda.h. No library: libcuda is
# opened at run time. Sets CUDA_CPPFLAGS.

AC_DEFUN([UCX_MP_CHECK_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda=DIR],
            [a CUDA toolkit, or the folder that an nvidia-cuda-runtime wheel
             was unpacked into (default: CUDA_HOME, CUDA_PATH,
             /usr/local/cuda, /usr)])],
        [], [with_cuda=])

    AS_CASE([$with_cuda],
        [no], [AC_MSG_ERROR([cuda.h cannot be done without; no GPU and no
  driver are needed, only the header])],
        [''|yes],
        [ucx_mp_roots="$CUDA_HOME $CUDA_PATH /usr/local/cuda /usr"],
        [ucx_mp_roots=$with_cuda])

    # a toolkit's folder for servers with arm64, such as Grace
    AS_CASE([$host_cpu], [aarch64], [ucx_mp_target=sbsa],
            [ucx_mp_target=$host_cpu])
    AC_MSG_CHECKING([for cuda.h])
    ucx_mp_cuda_where=
    for ucx_mp_root in $ucx_mp_roots; do
        for ucx_mp_dir in include targets/$ucx_mp_target-linux/include \
                          nvidia/cu13/include nvidia/cuda_runtime/include \
                          cu13/include cuda_runtime/include .; do
            AS_IF([test -z "$ucx_mp_cuda_where" &&
                   test -f "$ucx_mp_root/$ucx_mp_dir/cuda.h"],
                  [ucx_mp_cuda_where=`cd "$ucx_mp_root/$ucx_mp_dir" && pwd`])
        done
    done
    AS_IF([test -z "$ucx_mp_cuda_where"],
          [AC_MSG_RESULT([no])
           AC_MSG_ERROR([no cuda.h under: $ucx_mp_roots
  A toolkit is not needed, this header and nvml.h are:
    python3 -m pip install --no-deps --target cuda nvidia-cuda-runtime \\
        nvidia-nvml-dev
  and give the folder: --with-cuda=\$PWD/cuda])])
    AC_MSG_RESULT([$ucx_mp_cuda_where])
    AS_CASE([$ucx_mp_cuda_where], [/usr/include], [CUDA_CPPFLAGS=],
            [CUDA_CPPFLAGS="-isystem $ucx_mp_cuda_where"])

    AC_MSG_CHECKING([for CUDA's version])
    ucx_mp_number=`sed -n 's/^#define CUDA_VERSION *//p' \
                       "$ucx_mp_cuda_where/cuda.h"`
    AS_IF([test -z "$ucx_mp_number" || test "$ucx_mp_number" -lt 12000],
          [AC_MSG_ERROR([cuda.h of CUDA 12.0 or newer is needed, not that in
  $ucx_mp_cuda_where (CUDA_VERSION "$ucx_mp_number"). The driver may be older:
  the module takes what it has. The headers alone, of any toolkit:
    python3 -m pip install --no-deps --target cuda nvidia-cuda-runtime \\
        nvidia-nvml-dev
  and give the folder: --with-cuda=\$PWD/cuda])])
    ucx_mp_cuda_version=`expr $ucx_mp_number / 1000`.`expr \
                         $ucx_mp_number % 1000 / 10`
    AC_MSG_RESULT([$ucx_mp_cuda_version])
    AC_SUBST([CUDA_CPPFLAGS])
    AC_SUBST([ucx_mp_cuda_where])
])
