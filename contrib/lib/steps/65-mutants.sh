# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Small mistakes made in the module on purpose: the quick tests must notice
# them.

# mutants_noticed: 120 of a seed and the given ones. Results are kept in
# build/mutants, so a stopped run continues later.
mutants_noticed() {
    local headers hashed
    headers=$(header_arguments) || return
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    hashed=$(find "$ucx_mp_deps/nixl" -name 'libucp-*.so*' 2>/dev/null |
             head -1)
    [ -z "$hashed" ] || export UCX_MP_TEST_UCX_HASHED=$hashed
    UCX_MP_TEST_UCX=$ucx_mp_deps/cu12/libucx/lib \
        "$ucx_mp_top/test/mutants/run" --build "$ucx_mp_build/mutants" \
        --jobs "$ucx_mp_jobs" --configure "${headers//$'\n'/ }" \
        --ucx "$ucx_mp_deps/cu12/libucx/lib" \
        --page "$ucx_mp_top/docs/mutants.md"
}

# Mistakes kept as text must apply to the current source
mutants_fit() {
    "$ucx_mp_top/test/mutants/run" --stale
}

step mutants-fit quick 30 mutants_fit \
     "the stored mutants of test/mutants match the source"
step mutants long 28800 mutants_noticed \
     "the tests notice small mistakes in the module (docs/mutants.md)"
