# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Tools that examine a node, on emulated nodes.

# Run test/NAME/run with the installed ucx_mp_NAME
tools_run() {
    local -x UCX_MP_RUN=$ucx_mp_prefix/bin/ucx_mp_run
    local -x "UCX_MP_${1^^}=$ucx_mp_prefix/bin/ucx_mp_$1"
    passing_on "$1: [1-9][0-9]* passed" "$ucx_mp_top/test/$1/run"
}

# tools_topo SAMPLES: so many plans of each node
tools_topo() {
    UCX_MP_PROGRAMS=$ucx_mp_build/main/test/mpi UCX_MP_TOPO_SAMPLES=$1 \
        tools_run topo
}

# NVML takes 50 ms to start: only a process with a message that might be split may
# start it, once each. The dynamic linker's trace shows the processes.
tools_probe_lazy() {
    local mpirun programs trace=$ucx_mp_build/log/probe-lazy-loads
    local sizes min max want loaded
    mpirun=$(command -v mpirun) || { skip "no mpirun"; return; }
    programs=$ucx_mp_build/main/test/mpi
    for sizes in "1K 64K 0" "1M 16M 2"; do
        read -r min max want <<< "$sizes"
        rm -f "$trace".*
        LD_DEBUG=files LD_DEBUG_OUTPUT=$trace \
            passing_on '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
            "$ucx_mp_prefix/bin/ucx_mp_run" --emulate beluga "$mpirun" -n 2 \
            "$programs/ucx_mp_checked" --transfers 20 --min-size "$min" \
            --max-size "$max" --memory device || return
        loaded=$(cat "$trace".* | grep -c 'calling init: .*libnvidia-ml')
        [ "$loaded" -eq "$want" ] ||
            { say "$loaded loads of NVML, not $want ($min to $max)"; return 1; }
    done
    rm -f "$trace".*
}

# Nodes not used for any table, test or default: every byte arrives
tools_new_nodes() {
    local mpirun node
    mpirun=$(command -v mpirun) || { skip "no mpirun"; return; }
    for node in "$ucx_mp_top"/test/topo/nodes/*.xml; do
        passing_on '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
            "$ucx_mp_prefix/bin/ucx_mp_run" --emulate "$node" --multipath y \
            "$mpirun" -n 2 "$ucx_mp_build/main/test/mpi/ucx_mp_checked" \
            --transfers 4 --min-size 1M --max-size 16M --memory device ||
            return
    done
}

step topo full 240 "tools_topo 20" \
     "ucx_mp_topo on every node: text, picture, XML, plans"
step topo-long long 600 "tools_topo 1000" "ucx_mp_topo on every node, 1,000 plans each"
step probe-lazy full 60 tools_probe_lazy \
     "only processes with large messages start NVML"
step new-nodes full 120 tools_new_nodes \
     "checked transfers on node files used by no other test"

tools_perf() {
    tools_run perf
}

step perf full 240 tools_perf \
     "ucx_mp_perf: links as in the node file, graphs, wrong arguments"

# tools_tune NODE...: tune nodes unknown to all other tests
tools_tune() {
    local -x UCX_MP_TUNE_NODES="$*"
    tools_run tune
}

step tune full 240 "tools_tune dead-link mixed-pcie" \
     "ucx_mp_tune: plans near the best ones, forcing variables, tables"
step tune-long long 240 "tools_tune board6 dead-link mixed-pcie triangle" \
     "ucx_mp_tune on more nodes"

# Four kinds of nodes; all twenty seeds, and others, are run by hand
tools_perturbed() {
    local -x UCX_MP_TUNE=$ucx_mp_prefix/bin/ucx_mp_tune
    passing_on '^90 cells: mean ' "$ucx_mp_top/test/tune/perturbed" 4 2
}

step perturbed full 60 tools_perturbed \
     "calibrated plans on nodes with link rates changed by up to 30 %"

tools_trace() {
    command -v mpirun >/dev/null || { skip "no mpirun"; return; }
    UCX_MP_PROGRAMS=$ucx_mp_build/main/test/mpi tools_run trace
}

step trace full 120 tools_trace \
     "ucx_mp_run --trace: copies of each message, their links and order"

# calls_refuses TEXT FOLDER OPTION...: the report fails with this text
calls_refuses() {
    local text=$1 output
    shift
    output=$("$ucx_mp_top/test/calls/report" "$@" 2>&1) && return 1
    say "$output"
    [[ $output == *"$text"* && $output != *Traceback* ]]
}

# 2 + 10 messages and the one of --validate are as many copies of one process,
# each with an event, queried until the copy has ended
tools_calls() {
    local out=$ucx_mp_build/log/calls report=$ucx_mp_top/test/calls/report
    command -v mpirun >/dev/null || { skip "no mpirun"; return; }
    rm -rf "$out" && mkdir -p "$out/ours" "$out/none" || return
    "$ucx_mp_prefix/bin/ucx_mp_run" --quiet --emulate beluga --multipath n \
        mpirun -n 2 env LD_BIND_NOW=1 CUDA_CALLS_DIR="$out/ours" \
        LD_AUDIT="$ucx_mp_build/main/test/calls/.libs/ucx_mp_calls.so" \
        "$ucx_mp_build/main/test/mpi/ucx_mp_bw" --sizes 4M --iterations 10 \
        --warmup 2 --repeats 1 --validate D D || return
    [ "$(cat "$out"/ours/*.calls |
        grep -c 'cuMemcpyDtoDAsync_v2 400000 ')" = 13 ] || return
    passing_on '^\| cuEventRecord \| 1.00 \|' "$report" --skip 0 "$out/ours" \
        | tee "$out/report" &&
        grep -Eq '^\| until it is seen to have ended \| [0-9.]+ \(' \
            "$out/report" &&
        calls_refuses 'has more than 13 copies' "$out/ours" --skip 13 &&
        calls_refuses "'-1' is not a number" "$out/ours" --skip=-1 &&
        calls_refuses 'has no records' "$out/none" || return
    echo "1 2 3" > "$out/none/1.calls"
    calls_refuses 'line 1: not a call' "$out/none" || return
    echo "1 2 3 cuInit x 0" > "$out/none/1.calls"
    calls_refuses 'line 1: not a call' "$out/none"
}

step calls full 60 tools_calls \
     "test/calls: driver calls of a program, and the time of a copy"

# Instructions of the module's own functions per put, of which the model takes
# some 20,000: for 1 MiB not more than at 4eb010f (38,502 instructions), for a
# split one today's number for 57 copies and a tenth, for one by one path today's
# 1,574 and some questions whether it is over; and no allocation
tools_instructions() {
    have valgrind || { skip "no valgrind"; return; }
    local -x CUEMU_TIME_ONLY=64K    # the driver's instructions do not count
    local size most way
    for size in "1M 38500 auto" "64M 89000 auto" "4M 1700 n"; do
        read -r size most way <<< "$size"
        UCX_CUDA_IPC_MULTIPATH=$way passing_on ' 0 allocations in [1-9]' \
            "$ucx_mp_top/test/cost/instructions" \
            --run "$ucx_mp_prefix/bin/ucx_mp_run" \
            --puts "$ucx_mp_build/main/test/cost/ucx_mp_puts" \
            --size "$size" --at-most "$most" || return
    done
}

step instructions full 120 tools_instructions \
     "a put: number of instructions in the module, no allocation"

# A program on an emulated node under valgrind: a copy from beyond the end of a host
# block is reported with the call, the same copy from a larger block is not
tools_valgrind() {
    have valgrind || { skip "no valgrind"; return; }
    local -x CUEMU_GPU_MEMORY=256M      # valgrind keeps a record of all mapped memory
    local folder=$ucx_mp_build/valgrind
    local run=("$ucx_mp_prefix/bin/ucx_mp_run" --quiet --emulate beluga --slowdown 1)
    rm -rf "$folder"
    mkdir -p "$folder"
    cat > "$folder/overrun.c" <<'C'
#include <cuda.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    char *host = calloc(1, atoi(argv[1]));
    CUdeviceptr memory;
    CUcontext context;

    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
           cuCtxSetCurrent(context) || cuMemAlloc(&memory, 64) ||
           cuMemcpyHtoD(memory, host, 64) || cuMemcpyDtoH(host, memory, 32);
}
C
    gcc -g -I"$ucx_mp_build/deps/cuda/include" -o "$folder/overrun" \
        "$folder/overrun.c" -L"$ucx_mp_prefix/lib/ucx-mp/cuemu" -l:libcuda.so.1 ||
        return
    passing_on 'ERROR SUMMARY: 0 errors' "${run[@]}" valgrind --leak-check=no \
        --error-exitcode=9 "$folder/overrun" 64 || return
    if "${run[@]}" valgrind --leak-check=no --error-exitcode=9 \
           "$folder/overrun" 32 > "$folder/said" 2>&1; then
        echo "a copy of 64 bytes from a block of 32 is not reported"
        return 1
    fi
    grep -q 'after a block of size 32' "$folder/said" &&
        grep -q 'by .*: main (overrun.c:1[0-9])' "$folder/said" ||
        { cat "$folder/said"; return 1; }
}

step valgrind full 120 tools_valgrind \
     "a program on an emulated node under valgrind"

# Instructions for plans of a collective: a communicator's first one, and one for
# a new size, which delays calls of some us. Limits are a quarter above the
# current values. The daily run omits similar ones.
#
# tools_plans daily|long
tools_plans() {
    have valgrind || { skip "no valgrind"; return; }
    local node kind ranks size first new when
    while read -r node kind ranks size first new when; do
        [ "$when" = "$1" ] || continue
        passing_on 'instructions the first plan' \
            "$ucx_mp_top/test/cost/plans" \
            --run "$ucx_mp_prefix/bin/ucx_mp_run" \
            --plans "$ucx_mp_build/main/test/cost/ucx_mp_plans" \
            --node "$node" --kind "$kind" --ranks "$ranks" \
            --size "$size" --first-at-most "$first" --new-at-most "$new" || return
    done << 'END'
h200-x2  allreduce  2   2621440    810000  103000  daily
dgx1     allreduce  8   2621440 142000000  113000  daily
hgx-h200 bcast      8   2621440 139000000  108000  long
dgx1     allreduce 16   2621440  95000000   79000  long
dgx1     allreduce  8  67108864 265000000  267000  long
dgx1     allreduce 16  67108864 215000000  561000  daily
hgx-h200 allreduce 16   2621440   2260000  317000  daily
hgx-h200 bcast     16   2621440  19300000   78000  daily
dgx1     allreduce 32   2621440  60300000  118000  long
dgx1     allreduce 64   2621440  40400000  292000  daily
hgx-h200 allreduce 64   2621440  27300000  202000  daily
END
}

step plans full 180 "tools_plans daily" \
     "time to plan a collective, first call and new size"
step plans-long long 180 "tools_plans long" "time to plan a collective, other numbers of ranks"
alone calls
modelled tune perf trace
