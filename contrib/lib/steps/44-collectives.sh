# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Collectives of GPU buffers under MPIs without CUDA, in front of which
# ucx_mp_run puts a library of ours.

# test/mpi for the distribution's MPICH, whose header warns of its own
# MPI_STATUSES_IGNORE
build_mpich() {
    have mpicc.mpich || { skip "no mpicc.mpich"; return; }
    variant mpich test/mpi -- CC=gcc CXX=g++ \
            --with-mpicc="$(command -v mpicc.mpich)"
}

# collectives_run MPI ARGUMENT...: four ranks
collectives_run() {
    local mpirun programs
    case $1 in
    mpich)
        mpirun=$(command -v mpirun.mpich) || { skip "no mpirun.mpich"; return; }
        programs=$ucx_mp_build/mpich/test/mpi ;;
    *)  mpi_tools "$1" || return ;;
    esac
    [ -x "$programs/ucx_mp_collectives" ] ||
        { say "$programs/ucx_mp_collectives was not built"; return 1; }
    shift
    passing_on '^ucx_mp_collectives: [1-9][0-9]* collectives, .*[1-9][0-9]* times .* 0 wrong' \
        "$mpi_run" --emulate hgx-h200 --collectives y "$mpirun" -n 4 \
        "$programs/ucx_mp_collectives" "$@"
}

# collectives_faults: a call of the driver that fails in a collective is an MPI
# error that names the collective; memory that cannot be page-locked is none
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

step collectives-faults quick 60 collectives_faults \
     "a failing driver ends in an MPI error that names the collective"
step build-mpich full 600 build_mpich "MPI programs for MPICH"
for mpi_name in distribution openmpi5 mpich; do
    step "collectives-$mpi_name" full 100 \
         "collectives_run $mpi_name --calls 1000" \
         "1,000 random collectives of GPU and host buffers"
    step "collectives-$mpi_name-long" long 3600 \
         "collectives_run $mpi_name --calls 20000 --seed 2 --max-size 4M" \
         "20,000 random collectives of GPU and host buffers"
done
