# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# NIXL's agents on an emulated node: the transport between each two kinds of
# memory. nixl_check and nixl_run are in 35-releases.sh.

# nixl_enabled ARGUMENTS...: as in a notebook, only with ucx_mp.enable()
nixl_enabled() {
    local -x PYTHONPATH=$ucx_mp_prefix/share/ucx-mp/python
    nixl_check --stock --enable "$@"
}

# nixl_lists PROGRAM ARGUMENTS...: write as lists
nixl_lists() {
    local -x NIXL_UCX_SGL_ENABLE=y
    nixl_run "$@"
}

# host_lanes ENABLE: print the lanes chosen by an MPI's UCX, one per line
host_lanes() {
    UCX_CUDA_CMA_ENABLE=$1 UCX_LOG_LEVEL=info \
        "$mpi_run" --quiet --emulate beluga "$mpirun" -n 2 \
        "$programs/ucx_mp_bw" --sizes 4M:4M --iterations 1 --repeats 1 \
        --warmup 1 H H 2>&1 |
        grep -aoE 'ep_cfg\[.*' | sort -u
}

# An MPI's host messages use the same lanes as with cuda_cma off; when enabled,
# it would be one of them
mpi_host_lanes() {
    local mpirun programs lanes
    mpi_tools distribution || return
    lanes=$(host_lanes auto)
    say "$lanes"
    grep -q cma/memory <<< "$lanes" && [ "$lanes" = "$(host_lanes n)" ] ||
        { say "other lanes with UCX_CUDA_CMA_ENABLE=n"; return 1; }
    grep -q cuda_cma <<< "$(host_lanes y)" ||
        { say "none of cuda_cma with UCX_CUDA_CMA_ENABLE=y"; return 1; }
}

# nixl_bench NODE ARGUMENT...: set "output" of the caller to what contrib/nixl/bench says
# there, every byte compared
nixl_bench() {
    local node=$1 rc=0
    shift
    wheel_folder nixl nixl-cu12==1.5.1 || { skip "no nixl-cu12"; return; }
    wheel_folder numpy numpy || { skip "no numpy"; return; }
    output=$(PYTHONPATH=$ucx_mp_deps/nixl:$ucx_mp_deps/numpy \
             "$mpi_run" --emulate "$node" "$ucx_mp_top/contrib/nixl/bench" "$@" \
             --check) || rc=$?
    say "$output"
    return $rc
}

# nixl_reads NODE ROUTES: on a node without NVLink, for 16 MiB; through TCP they would be
# below 1 GB/s
nixl_reads() {
    local output
    nixl_bench "$1" --routes "$2" --shapes 1x16M || return
    [ "$(awk '/^[PVH][rw]V / && $2 > 5 { count++ } END { print count + 0 }' \
         <<< "$output")" -eq 3 ]
}

# nixl_allocators NODE: 16 MiB of memory that can be shared take at most twice as long as
# those of cuMemAlloc, many blocks at most 8 times (1 to 4). With a wait for the program's copies
# at each block it would be 20 times.
nixl_allocators() {
    local output
    nixl_bench "$1" --routes VwV,VrV --shapes 1x16M,200x64K --repeat 3 \
        --allocator alloc,vmm,pieces,pool || return
    awk '$1 !~ /^V[rw]V$/ { next }
         !($1 in one) { one[$1] = $2; many[$1] = $3 }
         { ++count; bad += $2 < 0.5 * one[$1] || $3 < 0.12 * many[$1] }
         END { exit !(count == 8 && bad == 0) }' <<< "$output"
}

# Every byte of both caches; sixteen rows
nixl_kv() {
    local output
    nixl_bench hgx-h200 --kv --model tiny --tokens 256 --repeat 1 \
        --layouts vllm,sglang,heads,cross || return
    [ "$(grep -c ' GB/s .* posting ' <<< "$output")" -eq 16 ]
}

# onesided MODE UCX: random puts and gets by UCP itself, and the rate of reads
onesided() {
    local program=$ucx_mp_build/main/test/mpi/ucx_mp_ucp
    [ -x "$program" ] || { skip "no MPI, and so no $program"; return; }
    ucp_environment "$2" || return
    passing_on "^ucx_mp_ucp: $1, process 0: [1-9][0-9]* messages, 0 wrong" \
        "$mpi_run" --quiet --emulate pcie-only "$program" "$1"
}

step mpi-host-lanes full 60 mpi_host_lanes \
     "host messages of MPI keep UCX's own lanes"
step nixl-enable full 60 "nixl_enabled --transport cuda_ipc VwV PwV" \
     "NIXL with ucx_mp.enable() instead of ucx_mp_run"
step nixl-host full 120 "nixl_check --transport cuda_ipc PwV HwV PrV HrV" \
     "NIXL: an agent's host memory to and from a peer's GPU"
step nixl-peer-host full 120 "nixl_check --transport cuda_cma VwH VwP VrH
                              VrP" \
     "NIXL: an agent's GPU memory to and from a peer's host memory"
step nixl-near full 120 "nixl_check --near --transport cuda_ipc VwV VrV PwV
                         HwV PrV HrV" \
     "NIXL: two agents in one process"
step nixl-lists full 60 "nixl_check --transport cuda_ipc --lists VwV PwV" \
     "NIXL: lists of blocks in one call"
step nixl-random-lists long 600 "nixl_lists random --count 2000 --renew 500" \
     "NIXL: 2,000 random transfers, writes as lists"
step nixl-freed full 60 "nixl_run freed --within 1" \
     "NIXL: freed memory returns to the GPU after peers have read it"
step nixl-random full 120 "nixl_run random --count 350 --renew 60" \
     "NIXL: 350 random transfers, agents restarted, every allocator"
step nixl-connector full 60 "nixl_run connector --hidden" \
     "NIXL: 120 requests like those of vLLM's connector"
step nixl-connector-host full 60 "nixl_run connector --host" "NIXL: requests like those of LMCache with host memory"
step nixl-allocators long 180 "nixl_allocators beluga" \
     "NIXL: memory of every shareable allocator is as fast as cuMemAlloc's"
step nixl-grows full 240 "nixl_run grows" \
     "NIXL: 500 transfers of growing and shrinking ranges, no memory leak"
step nixl-grows-long long 2400 "nixl_run grows --long" "NIXL: 5,000 transfers of growing and shrinking ranges"
step nixl-kept full 120 "nixl_run grows --kept --count 200" \
     "NIXL: 200 replacements of memory under one registration"
# nixl_kept_unhooked: without UCX's part that hooks the driver, as where no CUDA runtime
# is found, and after the first use of a GPU: the module hooks cuMemMap itself
nixl_kept_unhooked() {
    local folder=$ucx_mp_deps/nixl-unhooked
    wheel_folder nixl nixl-cu12==1.5.1 || { skip "no nixl-cu12"; return; }
    rm -rf "$folder" && cp -rl "$ucx_mp_deps/nixl" "$folder" &&
        find "$folder" -name 'libucm_cuda*' -delete &&
        nixl_run_of "${folder##*/}" nixl-cu12==1.5.1 grows --kept --count 100
}
step nixl-kept-unhooked full 120 nixl_kept_unhooked "NIXL: 100 replacements of memory without UCX's hooks"
step nixl-kept-long long 1200 "nixl_run grows --kept --long" "NIXL: 5,000 replacements of memory under one registration"
step nixl-cu13 full 60 "nixl_run_of nixl-cu13 nixl-cu13==1.5.1 check
                        --transport cuda_ipc VwV PwV" \
     "NIXL: the wheel for CUDA 13, which has its own CUDA module"
step nixl-20000 long 14400 "nixl_run random --long" \
     "NIXL: 20,000 random transfers"
step nixl-reads full 120 "nixl_reads pcie-only VrV,PrV,HrV" \
     "NIXL: GPU memory is read without TCP on a node without NVLink"
step nixl-no-peers full 120 "nixl_reads pcie-no-peers VwV,VrV,PrV" \
     "NIXL: GPU memory is read and written without peer access"
step onesided full 300 "onesided onesided cu12" \
     "500 random UCP puts, gets and lists, with memory freed meanwhile"
step onesided-imported full 60 "onesided imported cu12" \
     "UCP reads and writes memory that the peer has from a third process"
step onesided-beside full 300 "onesided beside cu12" \
     "100 random UCP puts and gets beside messages"
step nixl-full full 60 "nixl_run full --seconds 0.1 --blocks 500" \
     "NIXL: small blocks while a kernel of the program fills the GPU"
step nixl-kv full 60 nixl_kv \
     "NIXL: a KV cache's blocks in four layouts"
step nixl-busy full 60 "nixl_run random --busy --count 200" \
     "NIXL: 200 transfers while the peer allocates, copies, captures, frees"
step nixl-death full 60 "nixl_run random --death" \
     "NIXL: an agent's process is killed during a transfer"
modelled nixl-allocators
