# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The kernels of the project.

# Compare the kept PTX with the compiler's result for its source
kernels_ptx() {
    wheel_folder nvrtc11 nvidia-cuda-nvrtc-cu11==11.8.89 ||
        { skip "no nvidia-cuda-nvrtc-cu11 11.8.89"; return; }
    "$ucx_mp_top/src/kernels/regenerate" --check "$ucx_mp_deps/nvrtc11" &&
        "$ucx_mp_top/src/kernels/regenerate" --check "$ucx_mp_deps/nvrtc11" \
            "$ucx_mp_top/src/kernels/copy.cu" &&
        "$ucx_mp_top/src/kernels/regenerate" --check "$ucx_mp_deps/nvrtc11" \
            "$ucx_mp_top/src/kernels/pack.cu" &&
        "$ucx_mp_top/src/kernels/regenerate" --check "$ucx_mp_deps/nvrtc11" \
            "$ucx_mp_top/examples/jacobi/jacobi.cu"
}

step kernels-ptx full 120 kernels_ptx "the stored PTX equals what the compiler makes of its source"
