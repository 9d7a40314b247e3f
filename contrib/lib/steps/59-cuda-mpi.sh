# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# MPIs built with CUDA, as on GPU clusters: their messages, and collectives with
# our library preloaded. contrib/cuda-mpi builds them.

cuda_mpi_build() {
    "$ucx_mp_top/contrib/cuda-mpi" "$1"
}

# cuda_mpi_tools MPI [UCX]: set mpirun and programs; with the UCX of a wheel
cuda_mpi_tools() {
    mpi_tools "$1" || return
    if [ -n "${2-}" ]; then
        [ -d "$ucx_mp_deps/$2/libucx/lib" ] || { skip "no $2"; return; }
        LD_LIBRARY_PATH=$ucx_mp_deps/$2/libucx/lib:$LD_LIBRARY_PATH
    fi
}

# cuda_mpi_messages MPI [UCX]
cuda_mpi_messages() {
    local mpirun programs
    cuda_mpi_tools "$@" || return
    mpi_checked_run beluga 2 y --transfers 500 --max-size 64M --max-bytes 128M
}

# cuda_mpi_bw MPI [UCX]: compare all paths with one
cuda_mpi_bw() {
    local mpirun programs
    cuda_mpi_tools "$@" || return
    passing_on ' 268435456 +1[2-5][0-9]\.' \
        "$mpi_run" --emulate beluga "$mpirun" -n 2 "$programs/ucx_mp_bw" \
        --sizes 256M
}

# cuda_mpi_types [UCX]: messages of random datatypes by every call
cuda_mpi_types() {
    local mpirun programs
    cuda_mpi_tools openmpi-cuda "$@" || return
    passing_on '^ucx_mp_types: .* messages, .* 0 wrong' timeout 200 "$mpi_run" \
        --quiet --emulate beluga --slowdown 1 "$mpirun" -n 2 \
        "$programs/ucx_mp_types" --calls 600
}

# cuda_mpi_outstanding [UCX]: non-blocking reductions, by GPUs and staged
cuda_mpi_outstanding() {
    local mpirun programs
    cuda_mpi_tools openmpi-cuda "$@" || return
    passing_on '^ucx_mp_outstanding: .* [1-9][0-9]* times GPUs .* 0 wrong' \
        timeout 200 "$mpi_run" --quiet --emulate hgx-h200 --slowdown 1 \
        "$mpirun" -n 4 "$programs/ucx_mp_outstanding" --rounds 60 --host 10
}

# cuda_mpi_gaps: messages of datatypes with many pieces are 10 times as fast as
# by Open MPI's copies of each piece, and no others are slower. Without the
# kernel, they are Open MPI's
cuda_mpi_gaps() {
    local mpirun programs way words output=$ucx_mp_build/log/openmpi-cuda-gaps
    cuda_mpi_tools openmpi-cuda || return
    for way in n auto; do
        rm -f "$output-$way.out"
        for words in "100 --most 16 --rounds 25" \
                     "20 --least 200 --most 1100 --rounds 3" \
                     "2 --least 60000 --rounds 2"; do
            # shellcheck disable=SC2086
            timeout 200 "$mpi_run" --quiet --emulate hgx-h200 \
                --collectives $way --slowdown ${words%% *} "$mpirun" -n 2 \
                "$programs/ucx_mp_gaps" ${words#* } >> "$output-$way.out" 2>&1 ||
                { tail -n 20 "$output-$way.out"; return 1; }
        done
    done
    awk '/ wrong$/ { wrong += $2; next }
         NR == FNR { own[$1 $2 $3 $4] = $5; next }
         $1 $2 $3 $4 in own {
             ratio = own[$1 $2 $3 $4] / $5
             print $0, own[$1 $2 $3 $4], ratio
             late += ($2 == "device" && ratio < 0.95)
             slow += ($2 == "device" && $3 >= 200 && ratio < 10)
             lines++
         }
         END { exit !(lines > 18 && !wrong && !late && !slow) }' \
        "$output-n.out" "$output-auto.out" || return
    CUEMU_FAULT=cuModuleLoadData:1:2 passing_on '^ucx_mp_gaps: 0 wrong' \
        timeout 60 "$mpi_run" --quiet --emulate hgx-h200 --slowdown 20 \
        "$mpirun" -n 2 "$programs/ucx_mp_gaps" --least 8 --most 16 --rounds 2
}

# Without MPI_Reduce_scatter_block, wrong with empty blocks in Open MPI 4.1
cuda_mpi_calls="Allreduce Reduce Reduce_scatter Bcast Allgather Allgatherv
    Gather Scatter Alltoall Scan Exscan Gatherv Scatterv Alltoallv"

# cuda_mpi_collectives MPI COUNT [UCX]: host and GPU memory mixed, on
# communicators of all kinds; and again where GPUs can run most calls
cuda_mpi_collectives() {
    local mpirun programs call alike later but=0
    cuda_mpi_tools "$1" "${3-}" || return
    [ "$1" != mpich-cuda ] || but=1
    for call in $cuda_mpi_calls; do
        # UCX 1.13 fails with "!(RNDV_FRAG)" for a sent type with gaps, with its
        # own CUDA module too; here only Open MPI's linear all-to-all has
        # messages large enough
        [ "$call${3-}" != Alltoallv ] || continue
        # MPICH 4.0 with CUDA hangs or crashes in scans of GPU memory, also
        # without this library
        [[ $1 != mpich-cuda || $call != *can ]] || continue
        later=0
        [[ $1 = mpich-cuda || ! $call =~ ^(All)?[Rr]educe$|can$ ]] || later=1
        for alike in 0 90; do
            passing_on ' [1-9][0-9]* times .* 0 wrong' "$mpi_run" --quiet \
                --emulate beluga --slowdown 1 "$mpirun" -n 4 \
                "$programs/ucx_mp_collectives" --call "MPI_$call" \
                --later $later --calls $(($2 / 28 + 1)) --alike $alike --max-size 4M \
                --mpich-cuda $but || return
        done
    done
}

# cuda_mpi_own CALL: the reason for --mpich-cuda. MPICH without this library, on
# a wheel's UCX with its own CUDA module: wrong without the option, right with
# it
cuda_mpi_own() {
    local mpirun programs but rc output=$ucx_mp_build/log/mpich-cuda-own.out
    cuda_mpi_tools mpich-cuda ucx-1.21.0 || return
    for but in 0 1; do
        rc=0
        "$mpi_run" --quiet --stock --collectives n --emulate beluga \
            --slowdown 1 "$mpirun" -n 4 "$programs/ucx_mp_collectives" \
            --call "$1" --later 0 --calls 36 --max-size 4K \
            --mpich-cuda $but > "$output" 2>&1 || rc=$?
        cat "$output"
        if [ $but -eq 1 ]; then
            [ $rc -eq 0 ] && grep -q ' 0 wrong' "$output" || return 1
        elif ! grep -q 'which nobody may write' "$output"; then
            say "MPICH's $1 is right: --mpich-cuda need not leave it out"
            return 1
        fi
    done
}

# cuda_mpi_faster MPI RANKS US: an all-reduce of 64 MiB by our library
cuda_mpi_faster() {
    local mpirun programs
    cuda_mpi_tools "$1" || return
    passing_on ' 67108864 .* right' \
        "$mpi_run" --emulate mist --slowdown 300 "$mpirun" -n "$2" \
        "$programs/ucx_mp_allreduce" --sizes 64M --rounds 2 --calls 2 |
        awk -v most="$3" '{print} /67108864/ {us = $5}
                          END {exit !(us > 0 && us <= most)}'
}

for cuda_mpi in openmpi-cuda mpich-cuda; do
    step "build-$cuda_mpi" long 5400 "cuda_mpi_build ${cuda_mpi%-cuda}" \
         "build $cuda_mpi from the distribution's sources"
    step "$cuda_mpi-messages" long 300 "cuda_mpi_messages $cuda_mpi" \
         "checked messages under $cuda_mpi, the system's UCX"
    step "$cuda_mpi-messages-1.21" long 300 \
         "cuda_mpi_messages $cuda_mpi ucx-1.21.0" \
         "checked messages under $cuda_mpi, a wheel's UCX with CUDA"
    step "$cuda_mpi-bw" long 300 "cuda_mpi_bw $cuda_mpi" \
         "256 MiB on beluga over all paths, $cuda_mpi"
    step "$cuda_mpi-collectives" long 3600 \
         "cuda_mpi_collectives $cuda_mpi 2000" \
         "2,000 random collectives under $cuda_mpi"
    step "$cuda_mpi-collectives-1.21" long 3600 \
         "cuda_mpi_collectives $cuda_mpi 500 ucx-1.21.0" \
         "500 random collectives under $cuda_mpi, a wheel's UCX"
    step "$cuda_mpi-faster-2" long 300 "cuda_mpi_faster $cuda_mpi 2 1000" \
         "all-reduce of 64 MiB on mist, 2 ranks: at most 1.0 ms"
    step "$cuda_mpi-faster-4" long 300 "cuda_mpi_faster $cuda_mpi 4 1800" \
         "all-reduce of 64 MiB on mist, 4 ranks: at most 1.8 ms"
done

for cuda_mpi in "" -1.21; do
    step "openmpi-cuda-types$cuda_mpi" long 300 \
         "cuda_mpi_types ${cuda_mpi:+ucx$cuda_mpi.0}" \
         "messages of random datatypes in GPU memory, by every call"
    step "openmpi-cuda-outstanding$cuda_mpi" long 300 \
         "cuda_mpi_outstanding ${cuda_mpi:+ucx$cuda_mpi.0}" \
         "non-blocking reductions on GPUs and staged"
done
step openmpi-cuda-gaps long 900 cuda_mpi_gaps \
     "messages of many pieces 10 times as fast as Open MPI's own"

for cuda_mpi in MPI_Reduce MPI_Reduce_scatter; do
    step "mpich-cuda-own-$cuda_mpi" long 60 "cuda_mpi_own $cuda_mpi" \
         "$cuda_mpi of MPICH overwrites memory without this module"
done
