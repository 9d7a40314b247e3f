# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Would the tests notice? The engine is broken on purpose, and the checked
# program on top has to turn red.

# sabotaged KIND LOG: the checked program with one order of the engine taken
# away, on a node where each of them is needed
sabotaged() {
    local lib=$ucx_mp_build/main/test/faults/.libs/libucx_mp_sabotage.so
    UCX_CUDA_IPC_MULTIPATH_PATHS=direct,gpu2 \
    UCX_CUDA_IPC_MULTIPATH_SHARES=0.5,0.5 \
    UCX_CUDA_IPC_MULTIPATH_CHUNKS=64 \
    UCX_CUDA_IPC_MULTIPATH_STAGING_SIZE=4m \
    CUEMU_SABOTAGE=$1 LD_PRELOAD=$lib \
        "$mpi_run" --emulate "$ucx_mp_top/test/faults/slow-hop.xml" \
        --multipath y "$mpirun" -n 2 "$programs/ucx_mp_checked" \
        --transfers 100 --min-size 4M --max-size 16M --max-bytes 64M \
        --memory device > "$2" 2>&1
}

sabotage_is_noticed() {
    local mpirun programs kind log rc=0
    mpi_tools distribution || return
    for kind in none hops slots early; do
        log=$ucx_mp_build/log/sabotage-$kind.out
        if sabotaged $kind "$log"; then
            [ $kind = none ] && grep -E ', 0 wrong' "$log" && continue
            say "$kind: nobody noticed"
            rc=1
        elif [ $kind = none ]; then
            say "wrong with nothing broken"
            rc=1
        elif grep -m 1 'WRONG data' "$log" &&
             grep -m 1 "^sabotage: $kind: [1-9]" "$log"; then
            continue
        else
            say "$kind: stopped for another reason"
            rc=1
        fi
        tail -n 20 "$log"
    done
    return $rc
}

step sabotage quick 120 sabotage_is_noticed \
     "broken on purpose: missing waits and early completion are noticed"

# faults_are_survived ARGUMENT...: every driver call of the engine fails once
faults_are_survived() {
    passing_on '^ucx_mp_faults: [1-9][0-9]+ cases, 0 failed; ' \
        "$mpi_run" --emulate beluga --slowdown 1 \
        "$ucx_mp_build/main/test/faults/ucx_mp_faults" "$@"
}

step faults quick 120 faults_are_survived \
     "every driver call of the engine fails once"
