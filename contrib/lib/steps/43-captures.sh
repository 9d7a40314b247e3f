# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Programs that capture CUDA graphs during messages and collectives.

# captures MPI NODE SETTING... -- ARGUMENT...: run ucx_mp_capture with these settings of the
# module and arguments, two ranks
captures() {
    local mpirun programs node=$2 settings=()
    mpi_tools "$1" || return
    shift 2
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    passing_on \
        '^ucx_mp_capture: all ranks: [1-9][0-9]* captures, 0 broken, .* 0 lost, 0 wrong' \
        env CUEMU_CAPTURE_SAY=1 "${settings[@]}" "$mpi_run" --quiet --collectives y \
        --emulate "$node" "$mpirun" -n 2 "$programs/ucx_mp_capture" \
        --rounds 1 --idle 0.5 --limit 20 "$@"
}

step captures full 120 "captures distribution beluga -- --max-size 16M" \
     "the program captures graphs beside messages and collectives"
step captures-openmpi5 long 120 "captures openmpi5 hgx-h200 -- --max-size 16M" \
     "the program captures graphs, Open MPI 5 and UCX 1.20, hgx-h200"
# Threads that copy host memory; this machine may have no processor for them
step captures-threads full 120 \
     "captures openmpi5 beluga UCX_CUDA_IPC_HOST_COPY_THREADS=2 -- --max-size 16M" \
     "the program captures graphs while the module's threads copy"
# A refused query is repeated: the copy is not lost
step captures-refused full 60 \
     "captures distribution beluga CUEMU_FAULT=cuEventQuery:20:900,cuEventQuery:30:901 -- --max-size 1M --way beside" \
     "captures with a driver that refuses event queries"
