# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Fuzz the readers of external files and keys; those in Python have mutators in
# test/trace and test/launcher.

# fuzz_readers SECONDS [SEED [RUNS]]: for each reader, at most so many inputs
fuzz_readers() {
    have clang || { skip "no clang"; return; }
    echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return 0; }' |
        clang -x c -fsanitize=fuzzer,address -o /dev/null - 2>/dev/null ||
        { skip "clang has no libFuzzer (libclang-rt-14-dev)"; return; }
    sanitized_build || return
    make -C "$ucx_mp_build/sanitized/src" -j"$ucx_mp_make_jobs" --no-print-directory \
        libuct_cuda_objects.la libucx_mp_check.la &&
        make -C "$ucx_mp_build/sanitized/src/cuemu" -j"$ucx_mp_make_jobs" \
            --no-print-directory libcuemu_core.la || return
    FUZZ_SEED=${2:-0} FUZZ_RUNS=${3:--1} UCX_MP_RUN=$mpi_run \
        passing_on '^fuzz: keys: inputs: [1-9]' \
        "$ucx_mp_top/test/fuzz/run" "$ucx_mp_build/sanitized" "$1"
}

# A check's verdict does not change by chance; an hour's run searches elsewhere each time
step fuzz full 300 "fuzz_readers 60 1 60000" \
     "fuzzed readers of node files, tuning tables and keys, 60,000 inputs"
step fuzz-long long 4500 "fuzz_readers 1800" "fuzzed readers of node files, tuning tables and keys, one hour"
after sanitized fuzz    # use its build
after sanitized-all fuzz-long
wide fuzz
