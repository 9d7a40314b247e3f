# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The tree for arm64: cross-compiled, and run by qemu's user emulation.

# Warnings that need optimization are those of the build for x86_64, by the same release of
# gcc, except for src/uct/abi, which has other sizes here
arm64_build() {
    local program part parts=(src src/cuemu src/tools src/tools/tune python)
    [ "$(uname -m)" = x86_64 ] || { skip "this is no x86_64"; return; }
    for program in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++; do
        have $program || { skip "no $program"; return; }
    done
    arm64_root || { skip "no packages for arm64"; return; }
    arm64_compiler || return
    rm -rf "$ucx_mp_arm64_prefix"
    # installed files, and programs to run there
    variant arm64 -- --host=aarch64-linux-gnu \
        --enable-werror --prefix="$ucx_mp_arm64_prefix" \
        --libdir="$ucx_mp_arm64_prefix/lib" \
        --with-ucx="$ucx_mp_arm64_root/usr/include" \
        --with-mpicc="$ucx_mp_build/arm64-mpicc" \
        --with-openmpi-mpicc="$ucx_mp_build/arm64-mpicc" \
        "CC=aarch64-linux-gnu-gcc --sysroot=$ucx_mp_arm64_root" \
        "CXX=aarch64-linux-gnu-g++ --sysroot=$ucx_mp_arm64_root" \
        CFLAGS="-O0" CXXFLAGS="-O0" \
        LIBXML2_CFLAGS="-I$ucx_mp_arm64_root/usr/include/libxml2" \
        LIBXML2_LIBS=-lxml2 GTEST_CFLAGS=" " \
        GTEST_LIBS="-lgtest_main -lgtest -lpthread" || return
    module_objects arm64 -O1 '^uct/abi/' || return
    for part in "${parts[@]}" test/mpi; do
        make -C "$ucx_mp_build/arm64/$part" -j"$ucx_mp_make_jobs" --no-print-directory ||
            return
    done
    for part in "${parts[@]}"; do
        make -C "$ucx_mp_build/arm64/$part" --no-print-directory install ||
            return
    done
}

# arm64_ready: return whether the built files can be run
arm64_ready() {
    [ -x "$ucx_mp_arm64_prefix/bin/ucx_mp_run" ] ||
        { skip "arm64-build has not been run"; return; }
    have qemu-aarch64-static || { skip "no qemu-aarch64-static"; return; }
    [ "$(arm64_run uname -m 2>&1 | tail -n 1)" = aarch64 ] ||
        { skip "no binfmt_misc in a namespace of its own (Linux 6.7)"; return; }
}

# arm64_abi RELEASE...: check tables and symbols in Debian's UCX and in these, with
# the sizes of this processor
arm64_abi() {
    local program=$ucx_mp_build/arm64/test/gtest/test_abi release folders=()
    arm64_ready || return
    for release in "$@"; do
        folders+=("$(arm64_wheel "$release")") ||
            { skip "no libucx-cu12 $release for arm64"; return; }
    done
    make -C "${program%/*}" -j"$ucx_mp_make_jobs" --no-print-directory test_abi \
        abi_probe abi_load_ucx || return
    UCX_MP_TEST_UCX=$(IFS=:; echo "${folders[*]}") \
        passing_on '^\[  PASSED  \] [1-9][0-9]' arm64_run "$program"
}

# arm64_moves RELEASE: send a message from GPU to GPU through it, and compare every
# byte
arm64_moves() {
    local folder
    folder=$(arm64_wheel "$1") || { skip "no libucx-cu12 $1"; return; }
    UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc passing_on \
        '^ucx_mp_ucp: exit, process 0: [1-9][0-9]* messages, 0 wrong' \
        arm64_run env LD_LIBRARY_PATH="$folder" \
        "$ucx_mp_arm64_prefix/bin/ucx_mp_run" --emulate beluga \
        "$ucx_mp_build/arm64/test/mpi/ucx_mp_ucp" exit
}

# Every day layouts, tables and entry points, which may depend on the processor.
# Everything behind them is tested natively (ucx-abi)
arm64_runs() {
    local -x GTEST_FILTER='*layout*:*tables*:*serves*:*configuration_uses_ucxs_parser*'
    arm64_abi 1.22.0 && arm64_moves 1.22.0
}

# Five releases: the doctor's report, with messages of each kind, and MPI's own,
# with collectives
arm64_long() {
    local release folder
    local releases=(1.14.1.post2 1.16.0.post2 1.18.1 1.20.1 1.22.0)
    local -x UCX_MP_DOCTOR_LIMIT=180 # an emulated processor is slow
    arm64_abi "${releases[@]}" || return
    for release in "${releases[@]}"; do
        folder=$(arm64_wheel "$release") || return
        passing_on '^5 messages tried, .* 0 failed' arm64_run \
            "$ucx_mp_arm64_prefix/bin/ucx_mp_run" --emulate beluga --doctor \
            --ucx "$folder/libucp.so.0" || return
    done
    arm64_in_wheel "$folder/libucp.so.0" || return
    passing_on ' 0 wrong$' arm64_mpi ucx_mp_checked --transfers 20 \
        --max-size 4M &&
        passing_on ' 0 wrong elements$' arm64_mpi ucx_mp_allreduce_checked \
            --min-size 64K --max-size 1M
}

# arm64_in_wheel UCX: test the wheel for it, as pip installs it
arm64_in_wheel() {
    local folder=$ucx_mp_build/arm64-in-wheel wheel
    "$ucx_mp_top/contrib/wheel" --arch aarch64 --no-install || return
    wheel=$(ls "$ucx_mp_build"/dist/ucx_cuda_multipath-*_aarch64.whl) &&
        wheel_tag "$wheel" || return
    rm -rf "$folder"
    python3 -m pip install --quiet --disable-pip-version-check --no-deps \
        --only-binary :all: --platform manylinux_2_27_aarch64 \
        --target "$folder" "$wheel" || return
    passing_on '^5 messages tried, .* 0 failed' arm64_run \
        "$folder/ucx_mp/bin/ucx_mp_run" --emulate beluga --doctor --ucx "$1"
}

arm64_mpi() {
    local program=$1
    shift
    arm64_run "$ucx_mp_arm64_prefix/bin/ucx_mp_run" --quiet --emulate beluga \
        /usr/bin/mpirun.openmpi -n 2 "$ucx_mp_build/arm64/test/mpi/$program" \
        "$@"
}

step arm64-build full 300 arm64_build "build for arm64 with warnings as errors, and install"
step arm64 full 300 arm64_runs \
     "arm64 under qemu: tests of src/uct/abi, a message on an emulated node"
wide arm64
step arm64-releases long 3600 arm64_long \
     "arm64, five UCX releases: doctor, wheel, MPI messages, all-reduce"
