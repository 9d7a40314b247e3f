# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Calls during a program's own work on its GPU: copies that have not ended when they return, and
# work that waits for the program.

# filled WAY RANKS ARGUMENTS...: memory filled by plain cuMemcpyHtoD; WAY is the value of
# UCX_CUDA_IPC_COLLECTIVES
filled() {
    local mpirun programs way=$1 ranks=$2
    shift 2
    mpi_tools distribution || return
    UCX_CUDA_IPC_COLLECTIVES=$way \
        passing_on '^ucx_mp_filled: 200 calls .* 0 results wrong' \
        "$mpi_run" --quiet --emulate beluga "$mpirun" \
        -x UCX_CUDA_IPC_COLLECTIVES -n "$ranks" "$programs/ucx_mp_filled" "$@"
}

# busy STREAM [UCX]: a stream of this kind waits for the program; with a wheel's UCX
busy() {
    local mpirun programs ucx=${2-}
    mpi_tools distribution || return
    if [ -n "$ucx" ]; then
        wheel_folder "$ucx" libucx-cu12==1.22.0 ||
            { skip "no libucx-cu12 1.22.0"; return; }
        local -x LD_LIBRARY_PATH=$ucx_mp_deps/$ucx/libucx/lib
    fi
    passing_on '^ucx_mp_busy: [1-9][0-9]* calls .* [1-9][0-9]* collectives on GPUs, 0 results wrong' \
        "$mpi_run" --quiet --emulate beluga "$mpirun" -n 2 \
        "$programs/ucx_mp_busy" "$1"
}

for filled_memory in device pool vmm; do
    step "filled-$filled_memory" full 90 \
         "filled y 4 --memory $filled_memory" \
         "plain copies fill $filled_memory memory just before MPI calls"
    step "filled-$filled_memory-host" full 90 \
         "filled n 2 --memory $filled_memory" \
         "plain copies fill $filled_memory memory before staged collectives"
done
for busy_stream in non-blocking blocking legacy; do
    step "busy-$busy_stream" full 120 "busy $busy_stream" \
         "MPI calls while a $busy_stream stream waits for the program"
done
step busy-ucx-1.22 full 120 "busy non-blocking cu12" \
     "MPI calls while a stream waits for the program, under UCX 1.22"
