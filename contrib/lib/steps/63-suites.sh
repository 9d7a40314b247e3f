# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Test suites of other projects, on emulated nodes.

# loaded_file LIBRARY: print the file that the dynamic linker takes
loaded_file() {
    ldconfig -p | awk -v name="$1" '$1 == name { print $NF; exit }'
}

# mpi4py_mpich: MPICH's wheel, for its library; the file of Debian's has a name
# that mpi4py's wheel does not search for
mpi4py_mpich() {
    local folder=$ucx_mp_deps/mpi4py-mpich name=mpich-5.0.2
    [ ! -f "$folder/.complete" ] || return 0
    mkdir -p "$folder/debian"
    (
        flock 9
        [ ! -f "$folder/.complete" ] || exit 0
        # shellcheck disable=SC2046
        python3 -m pip download $(wheel_source) --quiet --no-deps \
            --disable-pip-version-check --dest "$folder" mpich==5.0.2 &&
            python3 -m zipfile -e "$folder"/$name-*.whl "$folder" &&
            cp -r "$folder/$name.data/data/." "$folder" &&
            chmod +x "$folder"/bin/* &&
            ln -sf "$(loaded_file libmpich.so.12)" \
               "$folder/debian/libmpi.so.12" && touch "$folder/.complete"
    ) 9> "$ucx_mp_deps/.lock"
}

# mpi4py_suite MPI NODE RANKS ARGUMENT...: mpi4py's tests with CuPy arrays give
# NumPy's verdicts
mpi4py_suite() {
    local mpi=$1 node=$2 ranks=$3 venv=$ucx_mp_deps/venv mpirun kind=openmpi
    local -x CUPY_CACHE_DIR=$ucx_mp_build/cupy-cache UCX_MP_RUN=$mpi_run
    local -x MPI4PY_LIBMPI LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
    shift 3
    cupy_wheels || return
    source_folder mpi4py==4.1.2 || { skip "no sources of mpi4py"; return; }
    case $mpi in
    openmpi5)
        mpirun=$venv/bin/mpirun MPI4PY_LIBMPI=$venv/lib/libmpi.so.40 ;;
    distribution)
        mpirun=/usr/bin/mpirun.openmpi
        MPI4PY_LIBMPI=$(loaded_file libmpi.so.40) ;;
    mpich*)
        mpi4py_mpich || { skip "no MPICH from PyPI"; return; }
        kind=mpich
        mpirun=$ucx_mp_deps/mpi4py-mpich/bin/mpirun
        LD_LIBRARY_PATH=$ucx_mp_deps/mpi4py-mpich/lib
        if [ "$mpi" = mpich ]; then
            mpirun=/usr/bin/mpirun.mpich
            LD_LIBRARY_PATH=$ucx_mp_deps/mpi4py-mpich/debian
        fi
        MPI4PY_LIBMPI=$LD_LIBRARY_PATH/libmpi.so.12 ;;
    esac
    [ -x "$mpirun" ] || { skip "no $mpirun"; return; }
    passing_on '^mpi4py: [1-9]' \
        env PATH="$venv/bin:$PATH" OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
        python "$ucx_mp_top/test/mpi4py/run" --mpi $kind --name "$mpi" \
        --mpirun "$mpirun" --emulate "$node" --ranks "$ranks" \
        --log "$ucx_mp_build/log/mpi4py-$mpi.out" \
        --tests "$ucx_mp_deps/mpi4py-4.1.2/test" "$@"
}

step mpi4py full 300 \
     "mpi4py_suite openmpi5 beluga 2 --types d test_p2p_buf test_cco_vec test_rma" \
     "mpi4py's own tests with CuPy arrays"
step mpi4py-long long 3600 \
     "mpi4py_suite openmpi5 beluga 2 --types bdF --stall 600 test_address
      test_cco_buf test_cco_buf_inter test_cco_nb_buf test_cco_nb_vec
      test_cco_ngh_buf test_cco_pr_buf test_cco_pr_ngh_buf test_cco_pr_vec
      test_cco_vec test_cco_vec_inter test_comm test_p2p_buf
      test_p2p_buf_matched test_pack test_rma test_win" \
     "more of mpi4py's own tests, more types"
for mpi_name in distribution mpich mpich5; do
    step "mpi4py-$mpi_name" long 1200 \
         "mpi4py_suite $mpi_name beluga 2 --types d --stall 300 test_p2p_buf
          test_pack" \
         "mpi4py's own tests of messages and packing, $mpi_name"
done
