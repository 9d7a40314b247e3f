# SPDX-License-Identifier: BSD-3-Clause
#
# UCX_MP_CHECK_NVML: NVML's header, nvml.h. No library: libnvidia-ml is opened
# at run time. Sets NVML_CPPFLAGS. Wants UCX_MP_CHECK_CUDA before it.

AC_DEFUN([UCX_MP_CHECK_NVML], [
    AC_ARG_WITH([nvml],
        [AS_HELP_STRING([--with-nvml=DIR],
            [where nvml.h is, or the folder that an nvidia-nvml-dev wheel was
             unpacked into (default: beside cuda.h, then /usr)])],
        [], [with_nvml=])

    AS_CASE([$with_nvml],
        [no], [AC_MSG_ERROR([nvml.h cannot be done without])],
        [''|yes], [ucx_mp_roots="$ucx_mp_cuda_where $with_cuda /usr"],
        [ucx_mp_roots=$with_nvml])

    AC_MSG_CHECKING([for nvml.h])
    ucx_mp_nvml_where=
    for ucx_mp_root in $ucx_mp_roots; do
        for ucx_mp_dir in include . nvidia/cu13/include \
                          nvidia/nvml_dev/include cu13/include \
                          nvml_dev/include; do
            AS_IF([test -z "$ucx_mp_nvml_where" &&
                   test -f "$ucx_mp_root/$ucx_mp_dir/nvml.h"],
                  [ucx_mp_nvml_where=`cd "$ucx_mp_root/$ucx_mp_dir" && pwd`])
        done
    done
    AS_IF([test -z "$ucx_mp_nvml_where"],
          [AC_MSG_RESULT([no])
           AC_MSG_ERROR([no nvml.h under: $ucx_mp_roots
  It comes with a toolkit's cuda-nvml-dev package, or alone:
    python3 -m pip install --no-deps --target nvml nvidia-nvml-dev
  and give the folder: --with-nvml=\$PWD/nvml])])
    AC_MSG_RESULT([$ucx_mp_nvml_where])
    # after cuda.h's folder on the command line: a wheel may hold both headers
    AS_CASE([$ucx_mp_nvml_where],
            [/usr/include], [NVML_CPPFLAGS=],
            [NVML_CPPFLAGS="-isystem $ucx_mp_nvml_where"])
    AC_SUBST([NVML_CPPFLAGS])
    AC_SUBST([ucx_mp_nvml_where])
])
