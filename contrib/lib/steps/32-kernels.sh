# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Kernels on the emulated node: those of the project, and others'.

kernels_run() {
    local folder=$ucx_mp_build/main/test/cuemu
    make -C "$folder" --no-print-directory CXXFLAGS="-g -O1" \
        tests/kernel_test || return
    CUEMU_LIB=$folder/lib passing_on '^\[  PASSED  \] [1-9]' \
        "$folder/tests/kernel_test"
}

# PTX is text that a compiler made: has it parted from its source?
kernels_ptx() {
    wheel_folder nvrtc11 nvidia-cuda-nvrtc-cu11==11.8.89 ||
        { skip "no nvidia-cuda-nvrtc-cu11 11.8.89"; return; }
    "$ucx_mp_top/src/kernels/regenerate" --check "$ucx_mp_deps/nvrtc11" &&
        "$ucx_mp_top/src/kernels/regenerate" --check "$ucx_mp_deps/nvrtc11" \
            "$ucx_mp_top/src/kernels/copy.cu" &&
        "$ucx_mp_top/src/kernels/regenerate" --check "$ucx_mp_deps/nvrtc11" \
            "$ucx_mp_top/examples/jacobi/jacobi.cu"
}

step emulator-kernels quick 120 kernels_run "kernels, ours and others', against plain C"
step kernels-ptx full 120 kernels_ptx "the PTX that is kept is what its source makes"
