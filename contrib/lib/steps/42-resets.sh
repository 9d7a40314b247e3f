# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Actions of programs on their GPUs between messages: resets, temporary contexts,
# memory freed while a kernel runs, unfinished copies, memory in reservations.

# reset_run WAY MULTIPATH UCX [NODE]: run ucx_mp_reset's WAY with this UCX: the
# distribution's, Open MPI 5's or a wheel's folder, which sees memory being freed
reset_run() {
    local mpirun programs way=$1 multipath=$2 ucx=$3 node=${4:-beluga}
    if [ "$ucx" = openmpi5 ]; then
        mpi_tools openmpi5 || return
    else
        mpi_tools distribution || return
    fi
    if [ "$ucx" != distribution ] && [ "$ucx" != openmpi5 ]; then
        wheel_folder "$ucx" libucx-cu12==1.22.0 ||
            { skip "no libucx-cu12 1.22.0"; return; }
        local -x LD_LIBRARY_PATH=$ucx_mp_deps/$ucx/libucx/lib
        local -x UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc
    fi
    UCX_CUDA_IPC_MULTIPATH_MIN_SIZE=1m passing_on \
        '^ucx_mp_reset: 1 ways, finalized behind a reset, 0 wrong' \
        "$mpi_run" --quiet --emulate "$node" --multipath "$multipath" \
        "$mpirun" -n 2 "$programs/ucx_mp_reset" "$way"
}

# A program's own context, without a primary one
own_context() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on '^ucx_mp_reset: own context, 5 messages, 0 wrong' \
        "$mpi_run" --quiet --emulate beluga --slowdown 1 "$mpirun" -n 2 \
        "$programs/ucx_mp_reset" own-context
}

# reset_collectives WAY: run one of ucx_mp_reset's ways with sums
reset_collectives() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on '^ucx_mp_reset: 1 ways, finalized behind a reset, 0 wrong' \
        "$mpi_run" --quiet --emulate beluga --collectives y \
        "$mpirun" -n 2 "$programs/ucx_mp_reset" "$1"
}

# One path and several, under a UCX that sees freed memory and one that does not,
# each once a day
reset_level() {
    case $1 in
    distribution-y | cu12-n | contexts-y) echo full ;;
    *) echo long ;;
    esac
}

for reset_way in n y; do
    for reset_ucx in distribution cu12; do
        step "reset-$reset_ucx-$reset_way" \
             "$(reset_level "$reset_ucx-$reset_way")" 90 \
             "reset_run reset $reset_way $reset_ucx" \
             "the program resets devices between messages and before its end"
    done
    step "contexts-$reset_way" "$(reset_level "contexts-$reset_way")" 90 \
         "reset_run contexts $reset_way cu12" \
         "the program creates and destroys contexts between messages"
done
step reset-openmpi5 full 90 "reset_run reset auto openmpi5" \
     "the program resets devices while UCP 1.20 keeps GPU buffers"
step own-context full 60 own_context \
     "pool memory in a context created by the program"
step reset-collectives full 90 "reset_collectives collectives" \
     "the program resets devices between all-reduces of GPU memory"
step freed-behind-kernel full 60 "reset_run kernel auto cu12 hgx-h200" \
     "the program frees host memory while a kernel waits for a message"
step sent-behind-copy full 60 "reset_run copies n cu12" \
     "the program sends a buffer while a copy into it is running"
for reset_ucx in distribution cu12; do
    step "reservations-$reset_ucx" full 60 \
         "reset_run mappings y $reset_ucx" \
         "messages of memory mapped into a larger address reservation"
done
step host-vmm full 60 "reset_run hostvmm auto cu12" \
     "messages of host memory that only GPUs can access"
step host-vmm-sums full 60 "reset_collectives hostvmm-sums" \
     "reductions of host memory that only GPUs can access"
