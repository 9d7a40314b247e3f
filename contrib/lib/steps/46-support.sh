# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Check that the MPI reports support of GPU memory when the library is
# preloaded.

# support MPI ANSWER ARGUMENT...: ARGUMENTs are those of ucx_mp_run
support() {
    local mpirun programs answer=$2
    mpi_tools "$1" || return
    [ -x "$programs/ucx_mp_support" ] ||
        { say "$programs/ucx_mp_support was not built"; return 1; }
    shift 2
    passing_on "^ucx_mp_support: 0 before MPI_Init, then $answer\$" \
        "$mpi_run" --quiet "$@" "$mpirun" -n 2 "$programs/ucx_mp_support"
}

step support full 60 "support distribution 1 --emulate beluga --collectives y" \
     "an MPI without CUDA reports GPU support"
step support-without full 60 \
     "support distribution 0 --emulate beluga --collectives n" \
     "an MPI without CUDA reports no GPU support without the library"
step support-stock full 60 \
     "support distribution 0 --stock --emulate beluga --collectives y" \
     "an MPI without CUDA reports no GPU support without the module"
for mpi_name in openmpi5 mpich; do
    step "support-$mpi_name" full 60 \
         "support $mpi_name 1 --emulate beluga --collectives y" \
         "an MPI without CUDA reports GPU support, $mpi_name"
done
