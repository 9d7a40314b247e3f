# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Our module compared with UCX 1.22's own CUDA module on the same emulated node, and
# both with the rates of the node's links. All figures are modelled.

# compare NODE TESTS VARIANTS SIZES RULE...
#
# Three rounds if runs differ: a median of two is their mean, and one disturbed run
# changes it.
compare() {
    local out=$ucx_mp_build/log/compare-$1-$2
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    rm -rf "$out"
    "$ucx_mp_top/test/omb/compare" --emulate "$1" --slowdown 50 \
        --tests "$2" --variants "$3" --sizes "$4" --rounds "${rounds:-3}" \
        --effort 0.1 --out "$out" \
        --wheel "$ucx_mp_deps/cu12" --launcher "$ucx_mp_prefix/bin/ucx_mp_run" \
        --programs "$ucx_mp_build/main/test/mpi" ||
        say "some runs gave no figure"    # checked below
    shift 4
    python3 "$ucx_mp_top/contrib/lib/check_figures.py" "$out/samples.json" "$@"
}

compare_beluga_put() {
    # two bricks of NVLink 2 between each pair of GPUs: 48 GB/s; bench-emulated
    # has several paths
    compare beluga put1 stock,single 64M:64M \
            put1/stock/64M=48~3 put1/single/64M=48~3 \
            'put1/single:stock/64M>=0.98'
}

compare_beluga_mpi() {
    compare beluga bw stock,multi 256M:256M 'bw/multi:stock/256M>=2.85'
}

compare_hgx_put() {
    # all paths leave through the same links, which one copy does not fill; nothing is
    # claimed below 100 us of modelled time
    compare hgx-h200 put1 stock,ours 64M:64M 'put1/ours:stock/64M>=1.06'
}

compare_small() {
    # a message of 1 MiB and its answer of 4 bytes from GPU memory, sent eagerly
    # as stock's module sends it
    local rounds=7    # each takes less than a second
    compare hgx-h200 bw stock,ours 1M:1M 'bw/ours:stock/1M>=1.07'
}

# compare_host VARIANTS RULE...: compare messages of host memory
compare_host() {
    # between page-locked host memory and GPU memory: one PCIe link with the stock
    # module, 55 GB/s, and with the other GPUs' links most of the host memory's rate,
    # 158 and 132
    local rounds=1    # all within 2 %
    compare hgx-h200 bw4-pd,bw4-dp "$1" 16M:16M "${@:2}"
}

step compare-beluga-put long 480 compare_beluga_put \
     "one put on beluga: 48 GB/s with UCX's module and by one path"
# bench-emulated tests it every day, with 64 MiB
step compare-beluga-mpi long 300 compare_beluga_mpi \
     "MPI bandwidth on beluga, window 1: 3 times UCX's module"
step compare-hgx-put full 300 compare_hgx_put \
     "one put on hgx-h200: 1.1 times UCX's module"
step compare-small full 100 compare_small \
     "MPI bandwidth on hgx-h200, 1 MiB, window 1: 1.1 times UCX's module"
step compare-host full 150 "compare_host stock,ours
     bw4-pd/ours:stock/16M>=2.5 bw4-dp/ours:stock/16M>=2.2" \
     "page-locked host memory on hgx-h200, window 4: 2.2 times UCX's module"
step compare-host-single long 150 "compare_host stock,single
     bw4-pd/single:stock/16M>=0.98 bw4-dp/single:stock/16M>=0.98" \
     "page-locked host memory by one link: not slower than UCX's module"
modelled compare-beluga-put compare-beluga-mpi compare-hgx-put compare-small \
         compare-host compare-host-single
