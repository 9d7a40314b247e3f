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

step build-mpich full 600 build_mpich "MPI programs for MPICH"
for mpi_name in distribution openmpi5 mpich; do
    step "collectives-$mpi_name" full 100 \
         "collectives_run $mpi_name --calls 1000" \
         "1,000 random collectives of GPU and host buffers"
    step "collectives-$mpi_name-long" long 3600 \
         "collectives_run $mpi_name --calls 20000 --seed 2 --max-size 4M" \
         "20,000 random collectives of GPU and host buffers"
done
