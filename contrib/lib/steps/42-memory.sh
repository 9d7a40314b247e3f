# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Temporary GPU memory between messages: every byte arrives, and freed memory
# becomes free soon.

# memory_churn UCX NODE RANKS ARGUMENT...: run ucx_mp_churn over the
# distribution's UCX, a wheel's, which sees freed memory (cu12), an older one's,
# which does not see mappings (1.16-wheel), the same without any hooks, as in a
# distribution (1.16), or Open MPI 5's own (openmpi5)
memory_churn() {
    local mpirun programs folder ucx=$1 node=$2 ranks=$3 mpi=distribution
    shift 3
    [ "$ucx" != openmpi5 ] || mpi=openmpi5
    mpi_tools "$mpi" || return
    case $ucx in
    cu12)
        wheel_folder cu12 libucx-cu12==1.22.0 ||
            { skip "no libucx-cu12 1.22.0"; return; }
        folder=$ucx_mp_deps/cu12/libucx/lib ;;
    1.16*)
        wheel_folder ucx-1.16.0.post2 libucx-cu12==1.16.0.post2 ||
            { skip "no libucx-cu12 1.16.0"; return; }
        folder=$ucx_mp_deps/ucx-1.16.0.post2/libucx/lib
        if [ "$ucx" = 1.16 ]; then
            # of this step: similar ones run concurrently
            folder=$ucx_mp_build/ucx-1.16-no-hooks.$BASHPID
            cp -r "$ucx_mp_deps/ucx-1.16.0.post2/libucx/lib" "$folder" || return
            rm -f "$folder"/ucx/libucm_cuda*
            # shellcheck disable=SC2064
            trap "rm -rf '$folder'" EXIT
        fi ;;
    esac
    if [ -n "${folder:-}" ]; then
        local -x LD_LIBRARY_PATH=$folder
        local -x UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc
    fi
    passing_on '^ucx_mp_churn: [1-9][0-9]* steps, .* at the end, 0 wrong' \
        "$mpi_run" --quiet --emulate "$node" --slowdown 5 "$mpirun" -n "$ranks" \
        --oversubscribe "$programs/ucx_mp_churn" "$@"
}

step memory-churn-1.16 full 90 \
     "memory_churn 1.16 beluga 2 --steps 400 --kept 5 --max-size 4M" \
     "buffers are allocated and freed, UCX 1.16 without memory hooks"
step memory-churn-pools full 90 \
     "memory_churn 1.16 beluga 2 --steps 300 --kept 5 --kind async" \
     "stream-ordered buffers are allocated and freed, UCX 1.16"
step memory-churn-maps full 60 \
     "memory_churn 1.16-wheel beluga 2 --steps 100 --kind vmm" \
     "cuMemMap buffers, under a UCX with hooks for all other memory"
step memory-churn-range full 90 \
     "memory_churn 1.16 beluga 2 --steps 200 --kept 5 --kind range" \
     "pieces at the end of a cuMemMap range are mapped and unmapped"
step memory-churn-shared full 90 \
     "memory_churn 1.16 beluga 2 --steps 200 --kept 5 --kind pool" \
     "buffers of a shareable pool are allocated and freed"
step memory-churn-openmpi5 long 90 \
     "memory_churn openmpi5 beluga 2 --steps 300 --kept 5 --max-size 4M" \
     "buffers are allocated and freed under Open MPI 5"
step memory-churn-cu12 full 90 \
     "memory_churn cu12 beluga 2 --steps 300 --kept 5 --max-size 4M" \
     "buffers are allocated and freed, under a UCX with memory hooks"
step memory-churn-4 long 120 \
     "memory_churn distribution beluga 4 --steps 300 --max-size 4M" \
     "buffers are allocated and freed on four ranks"
for memory_ranks in 2 4 8; do
    step "memory-churn-long-$memory_ranks" long 3600 \
         "memory_churn 1.16 hgx-h200 $memory_ranks --steps 20000 --kept 3" \
         "buffers are allocated and freed 20,000 times on $memory_ranks ranks"
done

# Freed memory becomes free soon, while the ranks only make progress: on idle
# processors in a tenth of the second allowed here.
memory_freed() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on '^ucx_mp_freed: 4 kinds of memory, 0 not given back' \
        "$mpi_run" --quiet --emulate hgx-h200 --slowdown 1 "$mpirun" -n 2 \
        --oversubscribe "$programs/ucx_mp_freed" --within 1000
}

step memory-freed full 60 memory_freed \
     "freed memory of any kind returns to the GPU within a second"

# memory_imported: with the distribution's UCX, which sees no allocation, and with two that
# see them and take all other memory for the host's; 1.16 does not see mappings
memory_imported() {
    local mpirun programs ucx
    mpi_tools distribution || return
    wheel_folder ucx-1.16.0.post2 libucx-cu12==1.16.0.post2 ||
        { skip "no libucx-cu12 1.16.0"; return; }
    ucp_environment cu12 || return
    for ucx in '' ucx-1.16.0.post2 cu12; do
        LD_LIBRARY_PATH=${ucx:+$ucx_mp_deps/$ucx/libucx/lib} \
            passing_on '^ucx_mp_imported: rank 0, 60 messages, 0 wrong' \
            "$mpi_run" --quiet --emulate beluga --slowdown 5 "$mpirun" -n 2 \
            --oversubscribe "$programs/ucx_mp_imported" || return
    done
}

step memory-imported full 60 memory_imported \
     "messages of a peer's memory imported by the program, and of device variables"

# memory_torch ALLOCATOR: run test/torch/churn with one of PyTorch's allocators;
# it reports missing packages itself
memory_torch() {
    local mpirun programs output rc=0
    mpi_tools distribution || return
    output=$("$mpi_run" --quiet --emulate beluga "$mpirun" -n 2 --oversubscribe \
             -x PYTORCH_CUDA_ALLOC_CONF="$1" python3 \
             "$ucx_mp_top/test/torch/churn" --steps 60 --max-mib 8 2>&1) ||
        rc=$?
    say "$output"
    ! grep -q '^churn: skipped' <<< "$output" ||
        { skip "$(grep '^churn: skipped' <<< "$output" | head -1)"; return; }
    return $rc
}

step memory-torch full 120 "memory_torch expandable_segments:False" \
     "PyTorch allocates and frees tensors (skipped without PyTorch)"

# memory_allocators TIMES: messages and collectives of memory of all allocators
memory_allocators() {
    local mpirun programs
    mpi_tools distribution || return
    local -x MP_TEST_ALLOCATOR=random
    passing_on '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
        "$mpi_run" --quiet --emulate beluga "$mpirun" -n 2 --oversubscribe \
        "$programs/ucx_mp_checked" --transfers $((100 * $1)) --max-size 16M \
        --max-bytes 32M --memory device || return
    MP_TEST_ALLOCATOR=pieces
    passing_on '^ucx_mp_collectives: .* [1-9][0-9]* times GPUs .* 0 wrong' \
        "$mpi_run" --quiet --emulate hgx-h200 --collectives y "$mpirun" -n 2 \
        --oversubscribe "$programs/ucx_mp_collectives" --calls $((60 * $1)) \
        --alike 100 --memory device
}

# memory_descriptors LIMIT: messages arrive where few descriptors are left, or none
memory_descriptors() {
    local mpirun programs
    mpi_tools distribution || return
    local -x MP_TEST_ALLOCATOR=large
    (ulimit -n "$1" &&
     passing_on '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
        "$mpi_run" --quiet --emulate beluga "$mpirun" -n 2 --oversubscribe \
        "$programs/ucx_mp_checked" --transfers 60 --min-size 1M \
        --max-size 16M --memory device)
}

for memory_limit in 48 64; do
    step "memory-descriptors-$memory_limit" full 90 \
         "memory_descriptors $memory_limit" \
         "cuMemCreate memory with at most $memory_limit open files"
done

# memory_rates NODE: 64 MiB of memory that can be shared take at most 1.4 times as
# long as those of cuMemAlloc; through host memory they would take three times as long
memory_rates() {
    local mpirun programs kind rate first
    mpi_tools distribution || return
    for kind in alloc vmm pieces large pool; do
        rate=$(MP_TEST_ALLOCATOR=$kind "$mpi_run" --quiet --emulate "$1" \
               "$mpirun" -n 2 --oversubscribe "$programs/ucx_mp_bw" \
               --sizes 64M --iterations 5 --repeats 3 --validate |
               awk '/right$/ { print $2 }')
        say "$kind: $rate GB/s (modelled)"
        first=${first:-$rate}
        awk -v rate="${rate:-0}" -v first="$first" \
            'BEGIN { exit !(rate >= 0.7 * first) }' || return
    done
}

step memory-allocators full 120 "memory_allocators 1" \
     "messages of every allocator's memory, every byte compared"
step memory-allocators-long long 1800 "memory_allocators 20" "memory-allocators, 20 times as long"
step memory-rates full 120 "memory_rates beluga" \
     "memory of every shareable allocator is as fast as cuMemAlloc's"
step memory-rates-hgx long 120 "memory_rates hgx-h200" "memory of every shareable allocator on hgx-h200: rates"
modelled memory-rates memory-rates-hgx
