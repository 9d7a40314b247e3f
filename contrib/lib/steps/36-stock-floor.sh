# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Answers of the stock CUDA module to UCX 1.22, compared with ours.

stock_floor() {
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    "$ucx_mp_top/test/stock-floor/compare" \
        --ucx "$ucx_mp_deps/cu12/libucx/lib" \
        --launcher "$ucx_mp_prefix/bin/ucx_mp_run" \
        --check "$ucx_mp_top/docs/stock-floor.md"
}

step stock-floor full 300 stock_floor \
     "both modules' answers to UCX equal docs/stock-floor.md"
