# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Actions of programs on their GPUs between messages: resets, temporary contexts,
# memory freed while a kernel runs, unfinished copies, memory in reservations.

# lives_reset WAY MULTIPATH UCX [NODE]: run ucx_mp_reset's WAY with this UCX: the
# distribution's, Open MPI 5's or a wheel's folder, which sees memory being freed
lives_reset() {
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
lives_own_context() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on '^ucx_mp_context: 5 messages, 0 wrong' \
        "$mpi_run" --quiet --emulate beluga --slowdown 1 "$mpirun" -n 2 \
        "$programs/ucx_mp_context"
}

# lives_collectives WAY: run one of ucx_mp_reset's ways with sums
lives_collectives() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on '^ucx_mp_reset: 1 ways, finalized behind a reset, 0 wrong' \
        "$mpi_run" --quiet --emulate beluga --collectives y \
        "$mpirun" -n 2 "$programs/ucx_mp_reset" "$1"
}

# One path and several, under a UCX that sees freed memory and one that does not,
# each once a day
lives_level() {
    case $1 in
    distribution-y | cu12-n | contexts-y) echo full ;;
    *) echo long ;;
    esac
}

for lives_way in n y; do
    for lives_ucx in distribution cu12; do
        step "lives-reset-$lives_ucx-$lives_way" \
             "$(lives_level "$lives_ucx-$lives_way")" 90 \
             "lives_reset reset $lives_way $lives_ucx" \
             "the program resets devices between messages and before its end"
    done
    step "lives-contexts-$lives_way" "$(lives_level "contexts-$lives_way")" 90 \
         "lives_reset contexts $lives_way cu12" \
         "the program creates and destroys contexts between messages"
done
step lives-reset-openmpi5 full 90 "lives_reset reset auto openmpi5" \
     "the program resets devices while UCP 1.20 keeps GPU buffers"
step lives-own-context full 60 lives_own_context \
     "pool memory in a context created by the program"
step lives-collectives full 90 "lives_collectives collectives" \
     "the program resets devices between all-reduces of GPU memory"
step lives-kernel full 60 "lives_reset kernel auto cu12 hgx-h200" \
     "the program frees host memory while a kernel waits for a message"
step lives-copies full 60 "lives_reset copies n cu12" \
     "the program sends a buffer while a copy into it is running"
for lives_ucx in distribution cu12; do
    step "lives-mappings-$lives_ucx" full 60 \
         "lives_reset mappings y $lives_ucx" \
         "messages of memory mapped into a larger address reservation"
done
step lives-hostvmm full 60 "lives_reset hostvmm auto cu12" \
     "messages of host memory that only GPUs can access"
step lives-hostvmm-sums full 60 "lives_collectives hostvmm-sums" \
     "reductions of host memory that only GPUs can access"
