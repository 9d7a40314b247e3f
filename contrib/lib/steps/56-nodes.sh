# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# All-reduces of communicators over several nodes: emulated nodes on this
# machine, joined by its TCP.

# nodes_run NODES RANKS PROGRAM ARGUMENT...: run on mist; prints the output
nodes_run() {
    local nodes=$1 ranks=$2 program=$3
    shift 3
    "$mpi_run" --quiet --emulate mist --nodes "$nodes" --collectives y \
        "$mpirun" --oversubscribe -n "$ranks" "$programs/$program" "$@"
}

# nodes_bytes NODES RANKS HOW_MANY: every byte is right, and each node's sum is
# sent between nodes once: for calls of 256 KiB and 1 MiB, in place and out of
# place
nodes_bytes() {
    local log=$ucx_mp_build/log/nodes.out
    nodes_run "$1" "$2" ucx_mp_allreduce_checked --min-size 64K --max-size 1M \
        --calls 1 > "$log" 2>&1 || { tail -n 20 "$log"; return 1; }
    grep -E '^ucx_mp_allreduce_checked: 6 calls .* 0 wrong' "$log" &&
        grep "^$((2 * (256 + 1024) * 1024 * $3)) bytes given to the MPI" "$log" ||
        { tail -n 20 "$log"; return 1; }
}

# nodes_all: equal and different numbers of ranks per node; then counts, types,
# operations and communicators of any kind, and buffers of any memory
nodes_all() {
    local mpirun programs
    mpi_tools distribution || return
    nodes_bytes 2 4 2 && nodes_bytes 2,1,1,1 5 4 &&
        passing_on ' [1-9][0-9]* times GPUs did its part, 0 wrong' \
            nodes_run 3,1 4 ucx_mp_collectives --call MPI_Allreduce \
            --memory device --max-size 2M --calls 50 &&
        passing_on '^ucx_mp_collectives: 50 collectives, .* 0 wrong' \
            nodes_run 2 4 ucx_mp_collectives --call MPI_Allreduce \
            --max-size 2M --calls 50
}

# nodes_gpus: buffers on any GPU of a rank, by each allocator of GPU memory. The driver refuses
# copies of some to or from contexts of other GPUs.
nodes_gpus() {
    local mpirun programs kind
    mpi_tools distribution || return
    for kind in alloc vmm pool; do
        MP_TEST_ALLOCATOR=$kind \
            passing_on '^ucx_mp_gpus: .* 0 wrong' \
            nodes_run 2 2 ucx_mp_gpus --max-size 2M --steps 60 || return
    done
}

# nodes_host: without GPU buffers ranks agree on fewer and fewer calls, 1, 3, 7,
# 15 and so on up to 63; with one, from the 127th on, on all again
nodes_host() {
    local mpirun programs log=$ucx_mp_build/log/nodes-host.out
    mpi_tools distribution || return
    nodes_run 2 2 ucx_mp_allreduce_checked --host-first 100 --min-size 256K \
        --max-size 256K --calls 30 --in-place n > "$log" 2>&1 &&
        grep '^6 agreements for 100 calls of host memory' "$log" &&
        grep "^$((4 * 2 * 256 * 1024)) bytes given to the MPI" "$log" &&
        grep '^ucx_mp_allreduce_checked: 30 calls .* 0 wrong' "$log" ||
        { tail -n 20 "$log"; return 1; }
}

# nodes_fault NAME:CALL:ERROR: every byte is right, with the GPUs' part and
# without
nodes_fault() {
    CUEMU_FAULT=$1 passing_on '^ucx_mp_allreduce_checked: 4 calls .* 0 wrong' \
        nodes_run 2 4 ucx_mp_allreduce_checked --min-size 256K --max-size 1M \
        --calls 1
}

# nodes_faults: a node whose GPUs fail sums in host memory, only this node. No other rank learns of
# a call that the MPI rejects on one rank. Other failures give an error on all nodes, and no rank
# waits for another.
nodes_faults() {
    local mpirun programs log=$ucx_mp_build/log/nodes-faults.out
    mpi_tools distribution || return
    nodes_fault cuModuleLoadData:1:218 && nodes_fault cuMemHostRegister:1:2 &&
        passing_on '^ucx_mp_allreduce_checked: 4 calls .* 0 wrong' \
            nodes_run 2 4 ucx_mp_allreduce_checked --fault rejected \
            --min-size 256K --max-size 1M --calls 1 || return
    nodes_run 2 4 ucx_mp_allreduce_checked --fault short --min-size 1K \
        --max-size 1K > "$log" 2>&1 || { tail -n 20 "$log"; return 1; }
    [ "$(grep -c "^rank [023]: .* another rank's buffer ends" "$log")" -eq 3 ] &&
        grep "^rank 1: .* this rank's buffer ends before" "$log" ||
        { tail -n 20 "$log"; return 1; }
    if CUEMU_FAULT=cuMemcpyAsync:3:700 nodes_run 2 4 ucx_mp_allreduce_checked \
           --min-size 1M --max-size 1M --calls 1 > "$log" 2>&1 ||
       ! grep -a 'fails: MPI_Allreduce: ' "$log"
    then
        tail -n 20 "$log"
        return 1
    fi
}

step nodes full 120 nodes_all \
     "all-reduces over two and four emulated nodes, bytes counted"
step nodes-gpus full 60 nodes_gpus \
     "several nodes: buffers that a rank has on several GPUs"
step nodes-host full 30 nodes_host \
     "several nodes: programs on host memory agree on few calls"
step nodes-faults full 120 nodes_faults \
     "several nodes: a fault on one is staged there or fails on all"
