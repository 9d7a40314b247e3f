# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Check that the tests would notice: the engine is broken on purpose, and the
# checked program running on it must fail.

# sabotaged KIND GRAPH LOG [RELAY NODE MESSAGES]: run the checked program with
# one order of the engine removed, on a node where each order is needed
sabotaged() {
    local lib=$ucx_mp_build/main/test/faults/.libs/libucx_mp_sabotage.so
    local relay=${4:-gpu2} node=${5:-slow-hop}
    UCX_CUDA_IPC_MULTIPATH_PATHS=direct,$relay \
    UCX_CUDA_IPC_MULTIPATH_SHARES=0.5,0.5 \
    UCX_CUDA_IPC_MULTIPATH_CHUNKS=64 \
    UCX_CUDA_IPC_MULTIPATH_STAGING_SIZE=4m \
    UCX_CUDA_IPC_MULTIPATH_GRAPH=$2 \
    CUEMU_SABOTAGE=$1 LD_PRELOAD=$lib \
        "$mpi_run" --emulate "$ucx_mp_top/test/faults/$node.xml" \
        --multipath y "$mpirun" -n 2 "$programs/ucx_mp_checked" \
        --transfers "${6:-100}" --min-size 4M --max-size 16M --max-bytes 64M \
        --memory device > "$3" 2>&1
}

# sabotage_is_noticed GRAPH KIND...: and with no order removed all is right
sabotage_is_noticed() {
    local mpirun programs kind log graph=$1 rc=0
    shift
    mpi_tools distribution || return
    for kind in none "$@"; do
        log=$ucx_mp_build/log/sabotage-$kind-$graph.out
        if sabotaged "$kind" "$graph" "$log"; then
            if [ "$kind" = none ] && grep -E ', 0 wrong' "$log" &&
               sabotage_had_graphs "$graph" "$log" ', 0 changed in' 2; then
                continue
            fi
            say "$kind: nobody noticed, or nothing was tried"
        elif [ "$kind" = none ]; then
            say "wrong with nothing broken"
        elif grep -m 1 'WRONG data' "$log" &&
             grep -m 1 "^sabotage: $kind: [1-9]" "$log" &&
             sabotage_had_graphs "$graph" "$log" '' 1; then
            # mpirun may stop the other rank before it prints anything
            [ "$kind" != query ] ||
                grep -q ', [1-9][0-9]* changed in flight' "$log" && continue
            say "query: no graph was changed in flight"
        else
            say "$kind: stopped for another reason"
        fi
        rc=1
        tail -n 20 "$log"
    done
    return $rc
}

# sabotage_of_one GRAPH CASE...: a single wait that is missing or is for the copy
# before, or a single byte, among thousands. Each CASE is KIND:NUMBER/RELAY/NODE.
sabotage_of_one() {
    local mpirun programs kind relay node log graph=$1 rc=0
    shift
    mpi_tools distribution || return
    for kind in "$@"; do
        IFS=/ read -r kind relay node <<< "$kind"
        log=$ucx_mp_build/log/sabotage-${kind/:/-}-$relay-$graph.out
        if sabotaged "$kind" "$graph" "$log" "$relay" "$node" 20; then
            say "$kind, $relay: nobody noticed, or nothing was tried"
        elif grep -m 1 'WRONG data' "$log" &&
             grep -m 1 "^sabotage: ${kind%:*}: 1 of " "$log"; then
            continue
        else
            say "$kind, $relay: stopped for another reason"
        fi
        rc=1
        tail -n 20 "$log"
    done
    return $rc
}

# sabotage_had_graphs GRAPH LOG MORE RANKS: check for graphs if requested
sabotage_had_graphs() {
    [ "$1" = n ] ||
        [ "$(grep -cE " [1-9][0-9]* graphs launched.*$3" "$2")" -ge "$4" ]
}

step sabotage full 120 "sabotage_is_noticed n hops slots early" \
     "tests notice an engine without waits or with early completion"
# Each kind with one relay; with both of them by --long
step sabotage-one full 120 "sabotage_of_one n hops:7/gpu2/slow-fill
     slots:7/host/slow-hop late:7/host/slow-fill short:7/gpu2/slow-hop" \
     "tests notice one missing wait, or one wrong byte, among thousands"
step sabotage-one-long long 120 "sabotage_of_one n hops:7/host/slow-fill
     slots:7/gpu2/slow-hop late:7/gpu2/slow-fill short:7/host/slow-hop" \
     "tests notice one missing wait on the other relay"
step sabotage-graph full 120 "sabotage_is_noticed y hops slots early query" \
     "tests notice a broken engine with graphs"

# faults_are_survived ARGUMENT...: every driver call of the engine fails once
faults_are_survived() {
    passing_on '^ucx_mp_faults: [1-9][0-9]+ cases, 0 failed; ' \
        "$mpi_run" --emulate beluga --slowdown 1 \
        "$ucx_mp_build/main/test/faults/ucx_mp_faults" "$@"
}

# mpi_with VARIABLE=VALUE ARGUMENT...: the checked program's output, and status
mpi_with() {
    local setting=$1
    shift
    env "$setting" "$mpi_run" --emulate beluga --slowdown 5 --multipath y \
        "$mpirun" -n 2 "$programs/ucx_mp_checked" --transfers 60 \
        --max-bytes 16M "$@" 2>&1
}

# mpi_goes_on SETTING...: a failure with a fallback is handled by it
mpi_goes_on() {
    local setting output rc=0
    for setting in "$@"; do
        say "== $setting"
        if ! output=$(mpi_with "$setting" --min-size 1 --max-size 4M) ||
           ! grep -E ' 0 wrong' <<< "$output"; then
            say "$output"
            rc=1
        fi
    done
    return $rc
}

# mpi_gives_up SETTING...: other failures give MPI's own error, and never a
# signal, wrong bytes or a hang
mpi_gives_up() {
    local setting output rc=0
    for setting in "$@"; do
        say "== $setting"
        if output=$(mpi_with "$setting" --memory device --min-size 64K \
                             --max-size 8M) ||
           grep -E 'on signal|WRONG|no end of' <<< "$output"; then
            say "$output"
            rc=1
        fi
    done
    return $rc
}

mpi_faults() {
    local mpirun programs rc=0
    mpi_tools "$1" || return
    mpi_goes_on UCX_CUDA_COPY_MAX_EVENTS=1 \
                CUEMU_FAULT=cuMemHostRegister:2:999 \
                CUEMU_FAULT=cuEventRecord:5:999 || rc=1
    [ "$1" = distribution ] || return $rc
    mpi_goes_on CUEMU_FAULT=cuPointerGetAttributes:5:999 \
                CUEMU_FAULT=cuMemcpyHtoDAsync:2:999 \
                CUEMU_FAULT=cuMemcpyDtoHAsync:1:999 \
                CUEMU_FAULT=cuStreamCreate:2:999 \
                CUEMU_FAULT=cuEventCreate:2:2 || rc=1
    mpi_gives_up CUEMU_FAULT=cuEventQuery:3:999 \
                 CUEMU_FAULT=cuMemcpyDtoDAsync:1:999 || rc=1
    return $rc
}

# campaign ARGUMENT...: checked transfers with every path set and executor
campaign() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on '^[1-9][0-9]+ transfers, 0 wrong$' \
        "$ucx_mp_top/test/mpi/campaign" --emulate beluga \
        --launcher "$mpi_run" --programs "$programs" --mpirun "$mpirun" "$@"
}

# The same under ASAN and UBSAN, which detect leaks and reuse of memory after a
# failure. Started directly: a sanitizer must be loaded first.
faults_sanitized() {
    local folder=$ucx_mp_build/sanitized rc=0 session
    [ -f "$folder/Makefile" ] || { skip "no sanitized build"; return; }
    make -C "$folder/test/faults" --no-print-directory ucx_mp_faults || return
    session=$(mktemp -d) || return
    env ASAN_OPTIONS=detect_leaks=1 \
        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        CUEMU_NODE=beluga CUEMU_SLOWDOWN=1 CUEMU_SESSION="$session" \
        LD_LIBRARY_PATH="$ucx_mp_build/main/src/cuemu/lib" \
        "$folder/test/faults/ucx_mp_faults" --max-calls 2 || rc=$?
    rm -rf "$session"
    return $rc
}

step faults full 120 "faults_are_survived --max-calls 12" \
     "every driver call of the engine fails once"
step faults-graph full 120 "faults_are_survived --max-calls 12 --set
     MULTIPATH_GRAPH=y" \
     "every driver call of the engine fails once, with graphs"
step faults-sanitized full 180 faults_sanitized \
     "every driver call of the engine fails once, under ASAN and UBSAN"
after sanitized faults-sanitized
for mpi_name in distribution openmpi5; do
    step "mpi-faults-$mpi_name" full 120 "mpi_faults $mpi_name" \
         "driver calls fail under MPI: a fallback, or an MPI error"
done
step campaign full 240 "campaign --transfers 240 --ranks 4 --max-size 1M
     --executor streams --executor graph" "checked transfers with every set of paths, streams and graphs"
step campaign-long long 3600 campaign \
     "10,000 checked transfers, streams and graphs, 2 and 4 ranks"
step campaign-switch long 120 "campaign --emulate hgx-h200 --transfers 160
     --ranks 2 --max-size 1M" "checked transfers with every set of paths on hgx-h200"
