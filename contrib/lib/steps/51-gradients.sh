# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Gradients of training on emulated nodes, small, every element checked.

# gradients_run NODE OPTION...: run the example with four ranks
gradients_run() {
    local mpirun program=$ucx_mp_build/main/examples/gradients/gradients
    mpirun=$(command -v mpirun) || { skip "no mpirun"; return; }
    passing_on '^resnet50, .* images/s .* without communication .* sums right$' \
        "$ucx_mp_prefix/bin/ucx_mp_run" --emulate "$1" --collectives y \
        "$mpirun" -n 4 "$program" --scale 64 --steps 1 --warmup 1 --check \
        "${@:2}"
}

gradients_all() {
    gradients_run mist --way mpi && gradients_run mist --way staged &&
        gradients_run cedar --way mpi --fusion 1G
}

# The kept pages equal those made from their data files
gradients_page() {
    local results=$ucx_mp_top/docs/results page name rc=0
    page=$(mktemp)
    for name in gradients gradients-cuda-mpi; do
        "$ucx_mp_top/examples/gradients/figure" --only-page \
            --json "$results/$name.json" --page "$page" &&
            diff "$results/$name.md" "$page" || rc=1
    done
    "$ucx_mp_top/test/omb/own_way" --from "$results/own-way.json" \
        --page "$page" && diff "$results/own-way.md" "$page" || rc=1
    rm -f "$page"
    return $rc
}

step gradients full 60 gradients_all \
     "examples/gradients: ResNet50 scaled to 1/64 on mist and cedar"
step gradients-page quick 20 gradients_page \
     "docs/results/gradients*.md and own-way.md agree with their files"
modelled gradients
