# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Ranks that use several GPUs each, on a node whose GPUs are all peers, and on one
# where some are not.

# gpus_run MPI NODE ARGUMENT...: two ranks, or as many threads per rank as
# requested
gpus_run() {
    local mpirun programs node=$2
    mpi_tools "$1" || return
    shift 2
    passing_on '^ucx_mp_gpus: .* [1-9][0-9]* times GPUs did its part, 0 wrong' \
        "$mpi_run" --quiet --collectives y --emulate "$node" --slowdown 5 \
        "$mpirun" -n 2 "$programs/ucx_mp_gpus" "$@"
}

# gpus_without_fragments ARGUMENT...: as gpus_several. UCX 1.22 keeps its pools of
# fragments, one for each kind of memory and GPU, inside a hash table. When it
# grows for a process with several GPUs, pools move while their fragments are in
# use; these then write into memory of others (a hang with seed 2, with any
# module)
gpus_without_fragments() {
    export UCX_RNDV_FRAG_MEM_TYPES=host
    gpus_several "$@"
}

# gpus_several MPI STEPS SEED: so many steps, some with memory of every allocator and UCX's
# fragments on one GPU, and some by threads with a GPU each
gpus_several() {
    gpus_run "$1" beluga --max-size 8M --steps "$2" --seed "$3" &&
        MP_TEST_ALLOCATOR=random UCX_RNDV_FRAG_MEM_TYPE=cuda \
            gpus_run "$1" beluga --max-size 8M --steps $(($2 / 2)) --seed 5 &&
        gpus_run "$1" dgx1 --max-size 2M --steps "$2" --seed "$3" &&
        gpus_run "$1" beluga --max-size 2M --steps $(($2 / 10)) --seed "$3" \
            --threads 4
}

step gpus full 120 "gpus_several distribution 100 1" \
     "random messages and collectives of ranks with several GPUs"
step gpus-openmpi5 long 120 "gpus_without_fragments openmpi5 300 2" \
     "ranks with several GPUs, Open MPI 5 and UCX 1.22"
step gpus-long long 7200 "gpus_several distribution 20000 3" \
     "20,000 random messages and collectives of ranks with several GPUs"
