# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# A program behaves the same with and without the module: ucx_mp_harmless on emulated nodes,
# with our module and, to verify its expectations, with the stock module.

# harmless_run MPI ARGUMENTS...: MPI is one of mpi_tools, or ucx-1.22: the distribution's
# MPI with the wheel's UCX. ARGUMENTS are those of ucx_mp_run, "--", then those of the
# program.
harmless_run() {
    local mpirun programs mpi=$1 run=()
    shift
    if [ "$mpi" = ucx-1.22 ]; then
        wheel_folder cu12 libucx-cu12==1.22.0 ||
            { skip "no libucx-cu12 1.22.0"; return; }
        export LD_LIBRARY_PATH=$ucx_mp_deps/cu12/libucx/lib
        export UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc
        mpi=distribution
    fi
    mpi_tools $mpi || return
    while [ "$1" != -- ]; do
        run+=("$1")
        shift
    done
    shift
    passing_on \
        '^ucx_mp_harmless: [1-9][0-9]* steps, [1-9][0-9]* messages, .* 0 refused, 0 wrong' \
        "$mpi_run" --quiet "${run[@]}" "$mpirun" -n 2 \
        "$programs/ucx_mp_harmless" "$@"
}

# harmless_noticed: the program detects changes that a bad module would make
harmless_noticed() {
    local mpirun programs
    mpi_tools distribution || return
    passing_on '^ucx_mp_harmless: self-test: passed: [1-9]' \
        "$mpi_run" --quiet --emulate beluga "$mpirun" -n 1 \
        "$programs/ucx_mp_harmless" --self-test --max-size 32M
}

# harmless_resets RUN...: also reset contexts. UCP keeps GPU memory of its own for messages
# in fragments, allocated in the program's context, and does not learn that a reset frees
# it: no module can help. Here this is host memory.
harmless_resets() {
    UCX_RNDV_FRAG_MEM_TYPES=host "$@"
}

# harmless_long MPI NODE SEED ARGUMENTS...: 100,000 steps of 20 seeds
harmless_long() {
    local mpi=$1 node=$2 seed=$3 i
    shift 3
    for i in $(seq 0 19); do
        harmless_run "$mpi" --emulate "$node" --slowdown 2 -- --steps 5000 \
            --seed $((seed + i)) "$@" || return
    done
}

step harmless-noticed full 60 harmless_noticed \
     "ucx_mp_harmless notices each change that it imitates"
# Expectations change only with the program
step harmless-stock long 180 "harmless_run ucx-1.22 --stock --emulate hgx-h200
     --slowdown 2 -- --steps 1000 --seed 11" \
     "1,000 random steps of a program with UCX's own module"
step harmless-ucx-1.22 full 240 "harmless_run ucx-1.22 --emulate hgx-h200
     --slowdown 2 -- --steps 500 --seed 1" \
     "500 random steps of a program, UCX 1.22"
step harmless-distribution full 240 "harmless_run distribution
     --emulate beluga --slowdown 2 -- --steps 500 --seed 2" \
     "500 random steps of a program, the distribution's MPI"
step harmless-openmpi5 full 240 "harmless_run openmpi5 --emulate hgx-h200
     --slowdown 2 -- --steps 500 --seed 3" \
     "500 random steps of a program, Open MPI 5 and UCX 1.20"
step harmless-resets full 240 "harmless_resets harmless_run ucx-1.22
     --emulate hgx-h200 --slowdown 2 -- --steps 250 --seed 2 --resets" \
     "250 random steps of a program, with context resets"
step harmless-long-hgx long 14400 "harmless_long ucx-1.22 hgx-h200 100" \
     "100,000 random steps of a program, UCX 1.22, hgx-h200"
step harmless-long-beluga long 14400 "harmless_long ucx-1.22 beluga 200" \
     "100,000 random steps of a program, UCX 1.22, beluga"
step harmless-long-distribution long 14400 \
     "harmless_long distribution hgx-h200 300" \
     "100,000 random steps of a program, the distribution's MPI"
step harmless-long-openmpi5 long 14400 "harmless_long openmpi5 beluga 500" \
     "100,000 random steps of a program, Open MPI 5 and UCX 1.20"
step harmless-long-resets long 14400 \
     "harmless_resets harmless_long ucx-1.22 hgx-h200 400 --resets" \
     "100,000 random steps of a program, with context resets"
