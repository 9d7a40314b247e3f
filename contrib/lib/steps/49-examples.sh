# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The examples, small, on emulated nodes.

# jacobi_run JACOBI-OPTION...: four ranks, rows of 128 KiB
jacobi_run() {
    local program=$ucx_mp_build/main/examples/jacobi/jacobi
    [ -x "$program" ] || { say "$program was not built"; return 1; }
    "$mpi_run" --quiet --emulate beluga mpirun -n 4 "$program" --quiet \
        --domain 32x32768 --iterations 200 "$@"
}

# The residual after 200 iterations, by one path, by several and by graphs, with
# the field divided in two ways, in both orders, and as the host has it: the
# same bits. Messages of 128 and 64 KiB, split from 32 KiB on.
jacobi_check() {
    local log=$ucx_mp_build/log/jacobi.out variant graph options
    have mpirun || { skip "no mpirun"; return; }
    : > "$log"
    UCX_CUDA_IPC_MULTIPATH=n jacobi_run --check >> "$log" 2>&1 ||
        { tail -n 20 "$log"; return 1; }
    for variant in 'n --mode ordered' 'y --mode overlapped --grid 2x2'; do
        read -r graph options <<< "$variant"
        # shellcheck disable=SC2086
        UCX_CUDA_IPC_MULTIPATH=y UCX_CUDA_IPC_MULTIPATH_MIN_SIZE=32K \
        UCX_CUDA_IPC_MULTIPATH_GRAPH=$graph \
            jacobi_run $options >> "$log" 2>&1 ||
            { tail -n 20 "$log"; return 1; }
    done
    cat "$log"
    grep -q '1048576 points compared with the host.s solution, 0 differ$' \
         "$log" &&
        [ "$(grep -c '200 iterations, residual ' "$log")" -eq 3 ] &&
        [ "$(grep '200 iterations, residual ' "$log" | sort -u | wc -l)" -eq 1 ]
}

# The page that is kept is what its figures' file makes
jacobi_page() {
    local folder rc=0 name
    folder=$(mktemp -d)
    cp "$ucx_mp_top/docs/results/jacobi.json" "$folder" &&
        python3 "$ucx_mp_top/examples/jacobi/figure_page.py" \
            "$folder/jacobi.json" "$folder/jacobi.md" || rc=1
    for name in jacobi.md jacobi-beluga.svg jacobi-narval.svg; do
        diff "$ucx_mp_top/docs/results/$name" "$folder/$name" || rc=1
    done
    rm -rf "$folder"
    return $rc
}

step jacobi quick 120 jacobi_check \
     "examples/jacobi: any paths, any division, the host: the same bits"
step jacobi-page quick 20 jacobi_page \
     "docs/results/jacobi.md is made of jacobi.json"
