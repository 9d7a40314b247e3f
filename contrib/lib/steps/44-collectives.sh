# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Collectives of GPU buffers under MPIs without CUDA, with the library that ucx_mp_run preloads.

# test/mpi for the distribution's MPICH, whose header warns about its own MPI_STATUSES_IGNORE
build_mpich() {
    have mpicc.mpich || { skip "no mpicc.mpich"; return; }
    variant mpich test/mpi -- CC=gcc CXX=no CFLAGS=-O1 \
            --with-mpicc="$(command -v mpicc.mpich)"
}

# test/mpi for MPI 5's standard ABI, by PyPI's MPICH 5, which has UCX
build_mpi_abi() {
    wheel_prefix mpich-5.0.2 mpich==5.0.2 || { skip "no mpich 5.0.2 wheel"; return; }
    variant mpi-abi test/mpi -- CC=gcc CXX=g++ \
            --with-mpicc="$ucx_mp_deps/mpich-5.0.2/bin/mpicc_abi"
}

# mpi_abi_header: our mpi.h of the standard ABI has the values, sizes and functions of MPICH 5's
mpi_abi_header() {
    local folder theirs=$ucx_mp_deps/mpich-5.0.2/include rc=0
    wheel_prefix mpich-5.0.2 mpich==5.0.2 || { skip "no mpich 5.0.2 wheel"; return; }
    folder=$(mktemp -d) || return
    {
        printf '#include <mpi.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void)\n{\n'
        grep -oE '\bMPI_[A-Z][A-Z0-9_]*\b' "$ucx_mp_top/src/mpi/abi/mpi.h" | sort -u |
            sed -E '/^MPI_(SOURCE|TAG|ERROR)$/s/.*/offsetof(MPI_Status, &)/' |
            sed 's/$/\nsizeof(MPI_Status)\nsizeof(MPI_Aint)\nsizeof(MPI_Offset)\nsizeof(MPI_Count)/' |
            sort -u | sed 's/.*/printf("%s %ld\\n", "&", (long)(&));/'
        printf '}\n'
    } > "$folder/values.c"
    printf '#include <mpi.h>\n#include "%s"\n#include "%s"\n' "$ucx_mp_top/src/mpi/abi/mpi.h" \
           "$ucx_mp_build/main/src/mpi/calls.h" > "$folder/functions.c"
    (
        cd "$folder" || exit
        gcc -w -I"$ucx_mp_top/src/mpi/abi" -o ours values.c &&
            gcc -w -DMPI_ABI -I"$theirs" -o theirs values.c &&
            ./ours > ours.txt && ./theirs > theirs.txt &&
            diff ours.txt theirs.txt && [ "$(wc -l < ours.txt)" -gt 120 ] &&
            gcc -fsyntax-only -DMPI_ABI -I"$theirs" functions.c
    ) || rc=$?
    rm -rf "$folder"
    return $rc
}

# collectives_run MPI[:RANKS] ARGUMENT...: four ranks by default
collectives_run() {
    local mpirun programs mpi=${1%:*} ranks=4
    [ "$mpi" = "$1" ] || ranks=${1#*:}
    mpi_tools "$mpi" || return
    [ -x "$programs/ucx_mp_collectives" ] ||
        { say "$programs/ucx_mp_collectives was not built"; return 1; }
    shift
    passing_on '^ucx_mp_collectives: [1-9][0-9]* collectives, .*[1-9][0-9]* times .* 0 wrong' \
        "$mpi_run" --emulate hgx-h200 --collectives y "$mpirun" -n "$ranks" \
        "$programs/ucx_mp_collectives" "$@"
}

# collectives_staged_rate: between GPUs that are no peers an all-reduce of 64 MiB is staged. It
# takes at most twice as long as by hand, through page-locked memory; pageable memory would
# take five times as long.
collectives_staged_rate() {
    local mpirun programs rows
    mpi_tools distribution || return
    rows=$("$mpi_run" --quiet --emulate pcie-no-peers "$mpirun" -n 2 \
           "$programs/ucx_mp_allreduce" --ways mpi,staged --sizes 64M --rounds 3 --time 0.001)
    say "$rows"
    awk '$NF == "right" { us[$1] = $5 }
         END { exit !(us["mpi"] > 0 && us["mpi"] < 2 * us["staged"]) }' <<< "$rows"
}

# collectives_faults: a failing driver call in a collective gives an MPI error that names the
# collective; memory that cannot be page-locked is no error
collectives_faults() {
    local mpirun programs fault log=$ucx_mp_build/log/collectives-faults.out
    mpi_tools distribution || return
    for fault in cuMemcpyAsync:20:700 cuMemcpy2DAsync:3:700 cuStreamCreate:1:2
    do
        if CUEMU_FAULT=$fault "$mpi_run" --quiet --emulate beluga "$mpirun" \
               -n 2 "$programs/ucx_mp_collectives" --calls 200 > "$log" 2>&1
        then
            say "$fault: nothing failed"
            return 1
        fi
        grep -aE 'fails: MPI_[A-Z].*: a GPU buffer could not be copied .*: CUDA_' \
             "$log" || { tail -n 20 "$log"; return 1; }
        if grep -a 'Signal:' "$log"; then
            return 1
        fi
    done
    CUEMU_FAULT=cuMemHostRegister:1:2 collectives_run distribution --calls 200
}

# collectives_relays: after a failure to map a rank's buffer the next plan has relays, after one
# to make their memory none has
collectives_relays() {
    local mpirun programs fault without count log=$ucx_mp_build/log/collectives-relays.out
    mpi_tools distribution || return
    for fault in cuIpcOpenMemHandle:0 cuMemCreate:6; do
        without=${fault#*:} fault=${fault%:*}
        CUEMU_FAULT=$fault:1:2 UCX_LOG_LEVEL=debug "$mpi_run" --emulate dgx1 \
            --collectives y "$mpirun" --oversubscribe -n 6 \
            "$programs/ucx_mp_allreduce_checked" --min-size 16M --max-size 16M \
            --calls 2 > "$log" 2>&1 || { tail -n 20 "$log"; return 1; }
        grep -aqE 'collective 1: .*falls back to the MPI: (map|make)' "$log" &&
            grep -aqE 'collective 2: .* us taken' "$log" ||
            { say "$fault: no call failed, or more than one"; return 1; }
        count=$(grep -acE 'using no relays' "$log") || true
        [ "$count" = "$without" ] ||
            { say "$fault: $count ranks use no relays"; return 1; }
    done
}

# other_calls: packing and files work, and unsupported calls are refused by name
other_calls() {
    local mpirun programs folder rc=0
    mpi_tools "$1" || return
    folder=$(mktemp -d) || return
    passing_on '^ucx_mp_calls: ([3-9]|1[0-9])[0-9] calls done, [2-4][0-9] begun and ended, [1-9][0-9]* refused by name, 0 wrong' \
        "$mpi_run" --emulate beluga --collectives y "$mpirun" -n 2 \
        "$programs/ucx_mp_calls" "$folder" || rc=$?
    rm -rf "$folder"
    return $rc
}

# every_buffer: check each function with a buffer in the headers of four MPIs
every_buffer() {
    local headers=() file
    wheel_folder mpich-4.3.2 mpich==4.3.2 || say "no mpich 4.3.2"
    for file in /usr/lib/*/openmpi/include/mpi.h /usr/include/*/mpich/mpi.h \
                "$ucx_mp_deps/venv/include/mpi.h" \
                "$ucx_mp_deps"/mpich-4.3.2/include/mpi.h; do
        [ ! -f "$file" ] || headers+=("$file")
    done
    [ ${#headers[@]} -gt 0 ] || { skip "no mpi.h"; return; }
    "$ucx_mp_top/test/mpi/buffers" "${headers[@]}"
}

# beside_run SEEN PROGRAM ARGUMENT...: SEEN of three ranks belong to the program, and a tool has
# counted each of their 40 calls
beside_run() {
    local seen=$1 program=$2 log=$folder/output
    shift 2
    timeout 400 "$mpi_run" --quiet --emulate mist --slowdown 1 "$@" \
        "$folder/$program" > "$log" 2>&1 &&
        [ "$(grep -c ': 40 calls made, 0 wrong' "$log")" -eq "$seen" ] &&
        [ "$(grep -c '^tool: .* 40 calls seen' "$log")" -eq "$seen" ] ||
        { say "$program $*"; tail -n 20 "$log"; return 1; }
}

# beside_build MPICC: build the tool as a library and in the program, the program without it,
# linked with the library, and with it inside; and a tool that keeps a rank
beside_build() {
    local source=$ucx_mp_top/test/mpi
    local objects=("$programs"/{driver,gpu,util}.o -ldl -lm)
    mkdir -p "$folder" && rm -f "$folder"/*
    "$1" -shared -fPIC -o "$folder/libtool.so" "$source/tool.c" &&
        "$1" -shared -fPIC -DKEEPS_A_RANK -o "$folder/libkeeper.so" \
            "$source/tool.c" &&
        "$1" -o "$folder/without" "$source/ucx_mp_tooled.c" \
            "${objects[@]}" &&
        "$1" -o "$folder/inside" "$source/ucx_mp_tooled.c" "$source/tool.c" \
            "${objects[@]}" &&
        "$1" -o "$folder/linked" "$source/ucx_mp_tooled.c" "${objects[@]}" \
            "$folder/libtool.so" "-Wl,-rpath,$folder" &&
        "$1" -o "$folder/kept" "$source/ucx_mp_tooled.c" "${objects[@]}" \
            "$folder/libkeeper.so" "-Wl,-rpath,$folder"
}

# beside_tools MPI: tools see every call, however they are loaded
beside_tools() {
    local mpirun programs folder=$ucx_mp_build/log/tooled-$1
    mpi_tools "$1" || return
    if [ "$1" = mpich ]; then
        beside_build mpicc.mpich || return
        set -- "$mpirun" -n 3
    else
        beside_build mpicc || return
        set -- "$mpirun" --oversubscribe -n 3
    fi
    LD_PRELOAD=$folder/libtool.so beside_run 3 without --collectives y "$@" &&
        beside_run 3 inside --collectives y "$@" &&
        beside_run 3 linked --collectives y "$@" &&
        LD_PRELOAD=$folder/libkeeper.so \
            beside_run 2 without --collectives y "$@" &&
        beside_run 2 kept --collectives y "$@"
}

# layouts: find the bytes of random datatypes from their construction
layouts() {
    local mpirun programs
    mpi_tools "$1" || return
    passing_on '^ucx_mp_layout: 3000 types, 0 wrong' \
        "$mpirun" --allow-run-as-root -n 1 "$programs/ucx_mp_layout"
}

# pieces MPI: datatypes whose blocks are allocations
pieces() { staged "$1" 2 ucx_mp_pieces '^ucx_mp_pieces: 78 types, .* 0 wrong'; }

# unstaged MPI: a rank that cannot stage its buffer returns an error in each call, and so does
# each rank that depends on its data
unstaged() {
    staged "$1" 3 ucx_mp_unstaged '^ucx_mp_unstaged: [1-9][0-9]* calls, 0 wrong'
}

# types MPI: messages of random datatypes by every call that sends or receives
types() { staged "$1" 2 ucx_mp_types '^ucx_mp_types: .* messages, .* 0 wrong'; }

# windows MPI [pt2pt|messages] [ARGUMENT...]: random one-sided calls, and gets of two threads, by
# Open MPI 4's component pt2pt, or rdma, which carries out gets by messages on machines where a
# process cannot read another's memory; locks of two threads by MPICH alone, whose locks without
# a check cost no message. Gets of host memory by its component ucx may end before
# the bytes are there, without any GPU as well.
windows() {
    local mpi=$1 osc=rdma threads=2
    shift
    [ "$mpi" = distribution ] || osc=^rdma
    [ "$mpi" != mpich ] || threads=3
    case ${1-} in # neither stands threads
    pt2pt) osc=pt2pt threads=0; shift; set -- --pt2pt "$@";;
    messages) export OMPI_MCA_btl_vader_single_copy_mechanism=emulated
              threads=0; shift;;
    esac
    export OMPI_MCA_osc=$osc
    [ "$threads" = 0 ] ||
        staged "$mpi" "$threads" ucx_mp_windows '^ucx_mp_windows: .* 100 gets, .* 0 wrong' \
            --threads || return
    staged "$mpi" 3 ucx_mp_windows \
        '^ucx_mp_windows: [1-9][0-9]* windows, .* 0 wrong' "$@"
}

# windows_no_peers MPI: memory that the driver copies in contexts of its own GPU only, on GPUs
# without peer access
windows_no_peers() {
    local kind node=pcie-no-peers
    for kind in vmm pool; do
        MP_TEST_ALLOCATOR=$kind windows "$1" || return
    done
}

# staged MPI RANKS PROGRAM PATTERN [ARGUMENT...], on node $node if it is set
staged() {
    local mpirun programs mpi=$1 ranks=$2 program=$3 pattern=$4
    shift 4
    mpi_tools "$mpi" || return
    [ -x "$programs/$program" ] ||
        { say "$programs/$program was not built"; return 1; }
    passing_on "$pattern" timeout 400 "$mpi_run" --quiet --emulate "${node-beluga}" \
        --slowdown 1 "$mpirun" -n "$ranks" "$programs/$program" "$@"
}

# fortran: mpif.h, mpi and mpi_f08; their bindings call the MPI's internal names
fortran() {
    local mpirun programs program=$ucx_mp_build/log/ucx_mp_f08
    mpi_tools distribution || return
    have mpifort || { skip "no mpifort"; return; }
    mpifort -w -fallow-argument-mismatch -J "$ucx_mp_build/log" -o "$program" \
        "$ucx_mp_top/test/mpi/ucx_mp_f08.f90" "$programs"/{driver,gpu,on_gpus,util}.o \
        -ldl -lm || { skip "no Fortran compiler that fits"; return; }
    passing_on '^ucx_mp_f08: 4 calls by GPUs, 0 wrong' \
        "$mpi_run" --emulate beluga --collectives y "$mpirun" -n 2 "$program"
}

# halo_exchange MPI: parts of one array, sent and received through one pointer; residuals beside
# messages
halo_exchange() {
    local mpirun programs
    mpi_tools "$1" || return
    passing_on '^ucx_mp_halo: 6 exchanges in place, 20 residuals, 0 wrong' \
        "$mpi_run" --quiet --emulate beluga --slowdown 1 "$mpirun" -n 2 \
        "$programs/ucx_mp_halo"
}

# collectives_log: check the log of a call at debug level; one rank comes late
collectives_log() {
    local mpirun programs log=$ucx_mp_build/log/collectives-log.out
    mpi_tools distribution || return
    UCX_LOG_LEVEL=debug timeout 400 "$mpi_run" --quiet --emulate beluga \
        --slowdown 1 --collectives y "$mpirun" -x UCX_LOG_LEVEL -n 2 \
        "$programs/ucx_mp_collectives" --calls 20 --alike 100 --later 0 \
        --call MPI_Allreduce --pause 2 > "$log" 2>&1 ||
        { tail -n 20 "$log"; return 1; }
    grep -E 'collective [0-9]+: all-reduce of [0-9]+ bytes, 2 ranks: [a-z ]+ \([a-z ]+: [0-9.]+ us\), [0-9]+ steps?, [0-9.]+ us expected, [0-9.]+ us taken' \
        "$log" | tail -n 2 &&
        grep -E 'collective [0-9]+: all-reduce of [0-9]+ bytes, 2 ranks: rank 0 waiting for rank 1, which has not made this call after 1 s' \
            "$log"
}

# collectives_waits: --waits names the late rank without the debug level
collectives_waits() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on 'WARN.*collective [0-9]+: all-reduce of .* rank 0 waiting for rank 1, which has not made' \
        timeout 400 "$mpi_run" --quiet --emulate beluga --slowdown 1 --waits \
        --collectives y "$mpirun" -n 2 "$programs/ucx_mp_collectives" --calls 20 \
        --alike 100 --later 0 --call MPI_Allreduce --pause 2
}

# collectives_stopped: while one rank is stopped, the other one reports that it waits for it,
# and the calls succeed when it continues
collectives_stopped() {
    local mpirun programs job pid log=$ucx_mp_build/log/collectives-stopped.out
    local says='collective [0-9]+: all-reduce of 65536 bytes.* rank 0 waiting for rank 1, '
    mpi_tools distribution || return
    rm -f "$log.pid"
    # shellcheck disable=SC2016
    timeout 400 "$mpi_run" --quiet --emulate beluga --slowdown 1 --waits \
        --collectives y "$mpirun" -n 2 sh -c '
            [ "$OMPI_COMM_WORLD_RANK" = 0 ] || echo $$ > "$0"
            exec "$@"' \
        "$log.pid" "$programs/ucx_mp_allreduce_checked" --calls 3000 \
        --check 0 --min-size 64K --max-size 64K --in-place n > "$log" 2>&1 &
    job=$!
    for _ in $(seq 100); do
        [ -s "$log.pid" ] && break
        sleep 0.1
    done
    # the time when it has started is unknown
    pid=$(cat "$log.pid") || return
    while kill -STOP "$pid" 2> /dev/null; do
        sleep 2
        kill -CONT "$pid"
        grep -qE "$says" "$log" && break
        sleep 1
    done
    wait "$job" || { tail -n 20 "$log"; return 1; }
    grep -E "WARN.*$says" "$log" || { tail -n 20 "$log"; return 1; }
}

# tuned_plans NAME FILE: print the plans of all-reduces on two GPUs, the first rank with one
# tuning table and the other without; one line per call, the same on both
tuned_plans() {
    local log=$ucx_mp_build/log/collectives-tuned-$1.out
    local variable=UCX_CUDA_IPC_MULTIPATH_TUNING_FILE
    local what="--max-size 16M --calls 2 --on-gpus 100"
    rm -f "$log".*
    # shellcheck disable=SC2086
    UCX_LOG_LEVEL=debug UCX_LOG_FILE=$log.%p timeout 400 "$mpi_run" --quiet \
        --emulate beluga --collectives y "$mpirun" -x UCX_LOG_LEVEL \
        -x UCX_LOG_FILE \
        -n 1 -x "$variable=$2" "$programs/ucx_mp_allreduce_checked" $what : \
        -n 1 -x "$variable=" "$programs/ucx_mp_allreduce_checked" $what \
        > "$log" 2>&1 || { tail -n 20 "$log" >&2; return 1; }
    cat "$log".* | grep -oE 'collective [0-9]+: all-reduce .* expected' |
        sort | uniq -c | awk -v name="$1" '
            $1 != 2 { print "not on both ranks: " $0 > "/dev/stderr"; bad = 1 }
            { $1 = ""; sub(", [0-9.]+ us expected", "")
              sub(" [(][a-z ]+: [0-9.]+ us[)]", ""); print }
            END { if (NR < 5) print "few calls: " name > "/dev/stderr"
                  exit bad || (NR < 5) }'
}

# collectives_tuned: all ranks use the first rank's knowledge of the node
collectives_tuned() {
    local mpirun programs
    local table=$ucx_mp_build/log/collectives-tuned.tune
    local plans=$ucx_mp_build/log/collectives-tuned
    mpi_tools distribution || return
    sed 's/^model submit_chunk .*/model submit_chunk 0.0005/' \
        "$ucx_mp_top/src/cuemu/nodes/beluga.tune" > "$table"
    tuned_plans without "" > "$plans-without.txt" &&
        tuned_plans with "$table" > "$plans-with.txt" || return
    diff "$plans-without.txt" "$plans-with.txt" > "$plans.diff" &&
        { say "the table changes no plan"; return 1; }
    tail -n 2 "$plans.diff"
}

# collectives_one_gpu: ranks that see one GPU each, unknown to the other rank
collectives_one_gpu() {
    local mpirun programs what="--max-size 1M --calls 2 --on-gpus 100"
    mpi_tools distribution || return
    # shellcheck disable=SC2086
    passing_on '^ucx_mp_allreduce_checked: [1-9][0-9]* calls .* 0 wrong' \
        "$mpi_run" --emulate beluga --collectives y "$mpirun" \
        -n 1 -x CUDA_VISIBLE_DEVICES=0 \
        "$programs/ucx_mp_allreduce_checked" $what : \
        -n 1 -x CUDA_VISIBLE_DEVICES=1 \
        "$programs/ucx_mp_allreduce_checked" $what
}

# allreduce NODE RANKS PERCENT ARGUMENT...: run a checked all-reduce with so many of its calls
# on GPUs
allreduce() {
    local node=$1 ranks=$2 percent=$3
    shift 3
    passing_on '^ucx_mp_allreduce_checked: [1-9][0-9]* calls .* 0 wrong' \
        "$mpi_run" --emulate "$node" --collectives y "$mpirun" \
        --oversubscribe -n "$ranks" "$programs/ucx_mp_allreduce_checked" \
        --on-gpus "$percent" "$@"
}

# allreduce_on_gpus: each algorithm; shared GPUs, copies over other GPUs, over peers of a third
# one only, without peers, and disabled; then buffers, types and operations of any kind
allreduce_on_gpus() {
    local mpirun programs
    mpi_tools distribution || return
    allreduce hgx-h200 2 100 --max-size 4M --calls 3 &&
        allreduce beluga 4 100 --max-size 1M --calls 3 &&
        UCX_CUDA_IPC_COLLECTIVES_ALGORITHM=flat \
            allreduce beluga 4 100 --max-size 4M --calls 3 &&
        CUDA_VISIBLE_DEVICES=0,1 allreduce beluga 4 100 --max-size 256K &&
        UCX_CUDA_IPC_COLLECTIVES_MULTIPATH=y \
            allreduce beluga 2 100 --min-size 1K --max-size 4M --calls 2 &&
        CUDA_VISIBLE_DEVICES=0,5,1,4 \
            allreduce dgx1 2 100 --max-size 64K --calls 2 &&
        allreduce pcie-only 4 0 --max-size 64K --calls 2 &&
        UCX_CUDA_IPC_COLLECTIVES=n \
            allreduce beluga 2 0 --max-size 64K --calls 2 &&
        passing_on ' [1-9][0-9]* times GPUs did its part, 0 wrong' \
            "$mpi_run" --emulate beluga --collectives y "$mpirun" -n 2 \
            "$programs/ucx_mp_collectives" --alike 100 --call MPI_Allreduce \
            --on-gpus 50 --calls 60
}

# collectives_on_gpus: each algorithm of each collective on links of two kinds; GPUs of which
# some pairs are not peers, where one collective has a plan and another one has not; ranks with
# different arguments
collectives_on_gpus() {
    local mpirun programs algorithm fault
    mpi_tools distribution || return
    for algorithm in kernel flat hierarchical; do
        UCX_CUDA_IPC_COLLECTIVES_ALGORITHM=$algorithm \
            passing_on ' 0 wrong' "$mpi_run" --emulate mist \
            --collectives y "$mpirun" --oversubscribe -n 4 \
            "$programs/ucx_mp_collectives" --alike 100 --on-gpus 50 \
            --calls 80 --seed 3 || return
    done
    passing_on '^MPI_Bcast: ([1-9][0-9]*) of \1 times on GPUs' "$mpi_run" \
        --emulate dgx1 --collectives y "$mpirun" --oversubscribe -n 8 \
        "$programs/ucx_mp_collectives" --alike 100 --calls 40 --seed 3 || return
    for fault in 'call:rank 0 calls all-reduce, rank 1 calls broadcast' \
                 'root:rank 0 calls with root 0, rank 1 with 1'; do
        passing_on "^rank 2: .*${fault#*:}" "$mpi_run" --emulate beluga \
            "$mpirun" --oversubscribe -n 3 \
            "$programs/ucx_mp_allreduce_checked" --min-size 1K --max-size 1K \
            --fault "${fault%%:*}" || return
    done
}

# allreduce_fault FAULT CALLS: a failing driver call makes so many calls of two ranks be staged,
# and no byte wrong
allreduce_fault() {
    local log=$ucx_mp_build/log/allreduce-faults.out
    CUEMU_FAULT=$1 "$mpi_run" --quiet --emulate beluga "$mpirun" -n 2 \
        "$programs/ucx_mp_allreduce_checked" --min-size 1K --max-size 16K \
        --calls 3 --in-place n > "$log" 2>&1 &&
        grep "^[a-z_]*: 9 calls of 2 ranks, $((18 - $2)) carried " "$log" &&
        grep ' 0 wrong' "$log" ||
        { say "$1:"; tail -n 20 "$log"; return 1; }
}

# allreduce_faults: after a failure before any write the call is staged, also in the middle if
# the sent data is intact; otherwise all ranks get an MPI error. If other GPUs are unavailable,
# copies do not use them.
allreduce_faults() {
    local mpirun programs fault algorithm
    local log=$ucx_mp_build/log/allreduce-faults.out
    mpi_tools distribution || return
    # A kernel that failed to load before all agreed is tried again
    allreduce_fault cuModuleLoadData:1:218 0 || return
    for fault in cuIpcOpenMemHandle:1:201 cuLaunchKernel:3:2 \
                 cuStreamWriteValue32:3:2; do
        allreduce_fault "$fault" 2 || return
    done
    for fault in cuMemCreate:1:2 cuMemImportFromShareableHandle:1:2; do
        UCX_CUDA_IPC_COLLECTIVES_MULTIPATH=y allreduce_fault "$fault" 2 ||
            return
    done
    if CUEMU_FAULT=cuLaunchKernel:3:2 "$mpi_run" --quiet --emulate beluga \
           "$mpirun" -n 2 "$programs/ucx_mp_allreduce_checked" --in-place y \
           > "$log" 2>&1 ||
       ! grep -a "fails: MPI_Allreduce: the GPUs' part failed: rank 0 " "$log"
    then
        tail -n 20 "$log"
        return 1
    fi

    # scratch memory that cannot grow for the largest size; smaller sizes follow
    CUEMU_FAULT=cuMemAlloc:9:2 UCX_CUDA_IPC_COLLECTIVES_ALGORITHM=flat \
        passing_on ' 13 calls of 3 ranks, 36 carried out on GPUs, 0 wrong ' \
            "$mpi_run" --quiet --emulate beluga "$mpirun" --oversubscribe -n 3 \
            "$programs/ucx_mp_allreduce_checked" --min-size 1K --calls 1 \
            --in-place y --down 1 || return

    # a rank that has ended before another one comes
    passing_on ' 2 calls of 3 ranks, 6 carried out on GPUs, 0 wrong ' \
        "$mpi_run" --quiet --emulate beluga --slowdown 1 "$mpirun" \
        --oversubscribe -n 3 "$programs/ucx_mp_allreduce_checked" \
        --min-size 1K --max-size 1K --calls 1 --fault leave || return

    # a rank with another size, and a rank that dies
    passing_on '^rank 2: .* rank 0 calls with 1024 bytes, rank 1 with 1028' \
        "$mpi_run" --emulate beluga "$mpirun" --oversubscribe -n 3 \
        "$programs/ucx_mp_allreduce_checked" --min-size 1K --max-size 1K \
        --fault differ &&
        passing_on "^rank 0: .* rank 1's buffer ends before the 1048576 bytes" \
            "$mpi_run" --emulate beluga "$mpirun" --oversubscribe -n 3 \
            "$programs/ucx_mp_allreduce_checked" --min-size 1K --max-size 1K \
            --fault short &&
        "$mpi_run" --emulate beluga "$mpirun" --oversubscribe \
            --enable-recovery -n 3 "$programs/ucx_mp_allreduce_checked" \
            --fault die > "$log" 2>&1
    [ "$(grep -c 'the process of rank [01] has ended' "$log")" -eq 2 ] ||
        { tail -n 20 "$log"; return 1; }

    # a failing kernel: an error on all ranks, in every algorithm
    for algorithm in kernel flat hierarchical; do
        UCX_CUDA_IPC_COLLECTIVES_ALGORITHM=$algorithm \
            "$mpi_run" --emulate beluga "$mpirun" --oversubscribe \
            --enable-recovery -n 3 "$programs/ucx_mp_allreduce_checked" \
            --min-size 1K --max-size 1K --fault kernel > "$log" 2>&1
        [ "$(grep -c "^rank [012]: .* the GPUs' part failed: " "$log")" -eq 3 ] ||
            { say "$algorithm:"; tail -n 20 "$log"; return 1; }
    done
}

# communicators MPI RANKS ARGUMENT...: communicators, at the machine's own speed
communicators() {
    local mpirun programs ranks=$2 oversubscribe=--oversubscribe
    mpi_tools "$1" || return
    [ "$1" != mpich ] || oversubscribe=
    shift 2
    timeout 400 "$mpi_run" --emulate beluga --slowdown 1 --collectives y \
        "$mpirun" ${oversubscribe:+"$oversubscribe"} -n "$ranks" \
        "$programs/ucx_mp_communicators" "$@" 2>&1
}

# communicators_mixed MPI RANKS ARGUMENT...: calls of host and GPU memory, some run on GPUs
communicators_mixed() {
    passing_on ' [1-9][0-9]* times GPUs .* 0 wrong' communicators "$@"
}

# communicators_many MPI HOST GPU: communicators of host memory with few descriptors, of GPU
# memory with the usual number
communicators_many() {
    # a call may fall back while a GPU is busy: ten of them at most
    (ulimit -n 256 &&
        passing_on "$2 communicators of host memory, .* 0 wrong" \
            communicators "$1" 2 --host "$2" --calls 0) &&
        (ulimit -n 1024 &&
            passing_on "$3 of GPU memory, .* ($((2 * $3))|$((2 * $3 / 10 - 1)).) times GPUs .* 0 wrong" \
                communicators "$1" 2 --gpu "$3" --calls 0)
}

# communicators_without: ranks without the library are detected before the first message to
# them; one rank reports it
communicators_without() {
    local mpirun programs log=$ucx_mp_build/log/communicators-without.out
    mpi_tools distribution || return
    timeout 400 "$mpi_run" --emulate beluga --slowdown 1 --collectives y \
        "$mpirun" --oversubscribe -n 2 "$programs/ucx_mp_communicators" --calls 0 : \
        -n 2 env -u LD_PRELOAD "$programs/ucx_mp_communicators" --calls 0 \
        > "$log" 2>&1 || { tail -n 20 "$log"; return 1; }
    grep '^ucx_mp_communicators: .* 0 wrong' "$log" &&
        [ "$(grep -c "^ucx_mp: rank 2 runs without ucx_mp's MPI interposition library" "$log")" \
          -eq 1 ] || { tail -n 20 "$log"; return 1; }
}

# communicators_stdin: ranks without a standard input, whose descriptor 0 is the first free
# one, know of each other
communicators_stdin() {
    local mpirun programs
    mpi_tools mpich || return
    # shellcheck disable=SC2016
    passing_on '^ucx_mp_communicators: .* [1-9][0-9]* times GPUs .* 0 wrong' \
        timeout 200 "$mpi_run" --quiet --emulate beluga --slowdown 1 --collectives y \
        "$mpirun" -n 2 sh -c 'exec "$@" 0<&-' sh "$programs/ucx_mp_communicators" --calls 5
}

# communicators_fatal MPI: an error on an intercommunicator ends all ranks, by the MPI
communicators_fatal() {
    local mpirun programs rc=0 log=$ucx_mp_build/log/communicators-fatal.out
    mpi_tools "$1" || return
    timeout 30 "$mpi_run" --quiet --emulate beluga --slowdown 1 --collectives y "$mpirun" -n 2 \
        "$programs/ucx_mp_communicators" --fatal 1 > "$log" 2>&1 || rc=$?
    [ $rc -ne 0 ] && [ $rc -ne 124 ] && grep 'nvalid rank' "$log" &&
        ! grep 'Segmentation fault' "$log" || { tail -n 20 "$log"; return 1; }
}

# communicators_unlike: some ranks use the library without functions of MPI 4, with an MPI that has
# them: they count calls differently, so no GPUs are used; this is reported
communicators_unlike() {
    local log=$ucx_mp_build/log/communicators-unlike.out program
    local mpirun=/usr/bin/mpirun.mpich
    [ -x "$mpirun" ] || { skip "no mpirun.mpich"; return; }
    program=$ucx_mp_build/mpich/test/mpi/ucx_mp_communicators
    timeout 400 "$mpi_run" --emulate beluga --slowdown 1 --collectives y "$mpirun" \
        -n 2 sh -c 'export LD_PRELOAD=$(echo "$LD_PRELOAD" | sed s/_mpi4//); exec "$@"' \
        sh "$program" --calls 0 : -n 2 "$program" --calls 0 \
        > "$log" 2>&1 || { tail -n 20 "$log"; return 1; }
    grep '^ucx_mp_communicators: .* 0 times GPUs .* 0 wrong' "$log" &&
        grep '^ucx_mp: rank 2 runs without ' "$log" &&
        grep '^ucx_mp: this MPI has functions of MPI 4' "$log" ||
        { tail -n 20 "$log"; return 1; }
}

# outstanding MPI RANKS ARGUMENT...: reductions with a request, several at once
outstanding() {
    local mpirun programs ranks=$2
    mpi_tools "$1" || return
    shift 2
    passing_on '^ucx_mp_outstanding: .* [1-9][0-9]* times GPUs .* 0 wrong' \
        timeout 1000 "$mpi_run" --quiet --emulate hgx-h200 --slowdown 1 \
        --collectives y "$mpirun" -n "$ranks" \
        "$programs/ucx_mp_outstanding" "$@"
}

# freed_while_sending: MPI_Comm_free with a reduction in progress, and a message that
# the sender has to progress
freed_while_sending() {
    UCX_RNDV_SCHEME=put_zcopy outstanding distribution 2 --rounds 0 --frees 1
}

# persistent MPI: persistent reductions of GPU memory run on GPUs; with a driver that fails once,
# the MPI carries out the declined start
persistent() {
    local log=$ucx_mp_build/log/persistent-$1.out rc=0
    outstanding "$1" 2 --rounds 20 --persistent 100 > "$log" 2>&1 || rc=$?
    cat "$log"
    [ $rc -eq 0 ] || return
    awk '/^ucx_mp_outstanding: / { all = 2 * $4; on_gpus = $15 }
         END { exit !(all > 300 && on_gpus >= 0.9 * all) }' "$log" ||
        { say "the MPI carries out too many"; return 1; }
    CUEMU_FAULT=cuIpcOpenMemHandle:1:201 \
        outstanding "$1" 2 --rounds 10 --persistent 100 --seed 6
}

step freed-while-sending full 60 freed_while_sending \
     "a communicator is freed during a message and a reduction"
step build-mpich full 600 build_mpich "build the MPI programs for MPICH"
step build-mpi-abi full 600 build_mpi_abi "build the MPI programs for MPI 5's standard ABI"
step mpi-abi-header full 60 mpi_abi_header \
     "this project's mpi.h of the standard ABI agrees with MPICH 5's"
step allreduce quick 180 allreduce_on_gpus \
     "all-reduces on GPUs, and those left to the MPI"
step collectives-on-gpus full 60 collectives_on_gpus \
     "each algorithm of each collective; ranks with different calls"
step allreduce-faults full 60 allreduce_faults \
     "a driver call fails in an all-reduce on GPUs"
step other-calls full 30 "other_calls distribution" \
     "other MPI calls on GPU memory work, or are refused by name"
step other-calls-openmpi5 full 30 "other_calls openmpi5" \
     "other MPI calls on GPU memory, Open MPI 5"
step other-calls-mpich full 30 "other_calls mpich" \
     "other MPI calls on GPU memory, MPICH"
step every-buffer full 60 every_buffer \
     "every MPI function with a buffer is wrapped, harmless or refused"
step beside-tools full 60 "beside_tools distribution" \
     "MPI profiling tools, preloaded and linked, see every call"
step beside-tools-mpich full 60 "beside_tools mpich" \
     "MPI profiling tools see every call, MPICH"
step layouts full 30 "layouts distribution" \
     "the byte ranges computed for datatypes are exact"
step collectives-gaps full 30 \
     "collectives_run distribution --seed 9 --calls 200 --call MPI_Sendrecv" \
     "messages with gaps that UCX 1.13 can only receive packed"
step scattered full 60 \
     "collectives_run distribution --seed 3 --calls 400 --scattered 60" \
     "datatypes with blocks in several allocations of mixed memory"
for mpi_name in openmpi5 mpich; do
    step "scattered-$mpi_name" full 60 \
         "collectives_run $mpi_name --seed 6 --calls 400 --scattered 60" \
         "datatypes with blocks in several allocations, $mpi_name"
done
step pieces full 150 "pieces distribution" \
     "datatypes whose blocks are whole allocations, adjacent and distant"
for mpi_name in openmpi5 mpich; do
    step "pieces-$mpi_name" full 150 "pieces $mpi_name" "datatypes whose blocks are whole allocations, $mpi_name"
done
step types full 60 "types distribution" \
     "messages of random datatypes in GPU memory by every call"
for mpi_name in openmpi5 mpich; do
    step "types-$mpi_name" full 60 "types $mpi_name" "messages of random datatypes in GPU memory, $mpi_name"
done
step windows full 60 "windows distribution" \
     "one-sided calls on windows in GPU and mixed memory"
step windows-messages full 60 "windows distribution messages" \
    "one-sided calls where the MPI cannot read other processes' memory"
step windows-no-peers full 60 "windows_no_peers distribution" \
    "one-sided calls on VMM and pool memory without peer access"
step windows-pt2pt full 60 "windows distribution pt2pt --seed 5" \
     "one-sided calls with Open MPI's component pt2pt"
for mpi_name in openmpi5 mpich; do
    step "windows-$mpi_name" full 60 "windows $mpi_name" \
         "one-sided calls on windows in GPU memory, $mpi_name"
done
step unstaged full 60 "unstaged distribution" \
     "a rank cannot stage its buffer: an error on dependent ranks, no hang"
for mpi_name in openmpi5 mpich; do
    step "unstaged-$mpi_name" full 60 "unstaged $mpi_name" \
         "a rank cannot stage its buffer, $mpi_name"
done
step fortran full 30 fortran \
     "collectives of GPU buffers from Fortran: mpif.h, mpi and mpi_f08"
step collectives-one-gpu full 30 collectives_one_gpu \
     "collectives of ranks that see one GPU each"
step halo-exchange full 60 "halo_exchange distribution" \
     "halo exchange within one array; reductions while messages wait"
step halo-exchange-openmpi5 long 60 "halo_exchange openmpi5" \
     "halo exchange within one array, Open MPI 5"
step collectives-log full 60 collectives_log \
     "debug lines: one per collective, and the rank that it waits for"
step collectives-waits full 60 collectives_waits \
     "--waits names a late rank in a warning"
# if it is stopped within the emulator, the other one stands still as well
step collectives-stopped long 60 collectives_stopped \
     "a stopped rank is named by the other rank"
step collectives-tuned full 60 collectives_tuned \
     "rank 0's tuning table changes the plans of all ranks equally"
step collectives-staged-rate full 60 collectives_staged_rate \
     "a staged all-reduce of 64 MiB is as fast as the copies by hand"
step collectives-faults full 60 collectives_faults \
     "a failing driver call gives an MPI error naming the collective"
step collectives-relays full 60 collectives_relays \
     "relays stay in use after a rank's buffer could not be mapped"
step unstaged-mpi-abi full 60 "unstaged mpi-abi" "a rank cannot stage its buffer, MPI 5's standard ABI"
step types-mpi-abi full 60 "types mpi-abi" "messages of random datatypes in GPU memory, MPI 5's standard ABI"
step other-calls-mpi-abi full 30 "other_calls mpi-abi" "other MPI calls on GPU memory, MPI 5's standard ABI"
step pieces-mpi-abi full 150 "pieces mpi-abi" "datatypes of whole allocations, MPI 5's standard ABI"
step collectives-mpi-abi full 100 \
     "collectives_run mpi-abi:3 --calls 350 --alike 50 --on-gpus 25" "350 random collectives, MPI 5's standard ABI"
step outstanding-mpi-abi full 100 "outstanding mpi-abi 2 --rounds 40" "several non-blocking reductions, MPI 5's standard ABI"
step outstanding-mpich-multiple full 60 \
     "outstanding mpich 2 --rounds 30 --host 20 --multiple 1" \
     "reductions declined by another rank, with MPI_THREAD_MULTIPLE"
for mpi_name in openmpi5 mpich mpi-abi; do
    step "persistent-$mpi_name" full 100 "persistent $mpi_name" \
         "persistent reductions, started in a different order on each rank"
done
for mpi_name in distribution openmpi5 mpich; do
    step "outstanding-$mpi_name" full 100 "outstanding $mpi_name 2 --rounds 40 --made 1" \
         "several non-blocking reductions of GPU memory at once"
    step "outstanding-$mpi_name-host" full 100 \
         "outstanding $mpi_name 4 --rounds 20 --host 20 --seed 2" \
         "non-blocking reductions of GPU and host memory between other calls"
    # MPICH 4.0 fails an assertion in some reduce-scatters of more ranks
    mpi_ranks=4
    [ $mpi_name != mpich ] || mpi_ranks=2
    step "outstanding-$mpi_name-long" long 1200 \
         "outstanding $mpi_name $mpi_ranks --rounds 500 --host 10 --seed 3" \
         "non-blocking reductions of GPU and host memory, 500 rounds"
done
step communicators full 60 "communicators_mixed distribution 3" \
     "ranks use GPU buffers from different calls on; roots return early"
step communicators-without full 60 communicators_without \
     "some ranks lack the MPI interposition library: right sums, no hang"
step communicators-stdin full 30 communicators_stdin "MPICH ranks with closed standard input"
step communicators-fatal full 60 "communicators_fatal mpich" \
     "an error on an intercommunicator of MPICH ends all ranks"
step communicators-unlike full 60 communicators_unlike \
     "some ranks load an older MPI interposition library"
step communicators-many full 60 "communicators_many distribution 10000 2000" \
     "10,000 communicators of host and 2,000 of GPU memory, few descriptors"
for mpi_name in openmpi5 mpich; do
    step "communicators-$mpi_name" long 60 \
         "communicators_mixed $mpi_name 4 --seed 2 --host 100 --gpu 100" \
         "ranks use GPU buffers from different calls on, $mpi_name"
done
# Three ranks of MPICH: sides of an intercommunicator differ. Only a short run: with three ranks
# MPICH 4.0 fails an assertion in some reduce-scatters in place, also with host memory and
# without this library.
for mpi_name in distribution openmpi5 mpich; do
    mpi_ranks=4
    [ $mpi_name != mpich ] || mpi_ranks=3
    step "collectives-$mpi_name" full 100 \
         "collectives_run $mpi_name:$mpi_ranks --calls 350 --alike 50 --on-gpus 25" \
         "350 random collectives of GPU and host buffers"
    step "collectives-$mpi_name-long" long 3600 \
         "collectives_run $mpi_name --calls 20000 --alike 50 --on-gpus 25 --seed 2 --max-size 4M" \
         "20,000 random collectives of GPU and host buffers"
done
modelled collectives-staged-rate
