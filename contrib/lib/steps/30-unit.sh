# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Unit tests of the module and of the emulator.

# Optimizing the tests, or describing them to a debugger, takes longer than running them
unit_flags="-g0 -O0"

# precompiled VARIANT FOLDER CXXFLAGS: compile the precompiled header of test/gtest, and
# set precompiled to make's arguments for tests in the folder to use it. clang uses it
# only in front of any other -include.
precompiled() {
    local gtest=$ucx_mp_build/$1/test/gtest makefile=$ucx_mp_build/$1/$2/Makefile
    if grep -q '^PCH_CXXFLAGS = .' "$makefile"; then
        precompiled=("CXXFLAGS=$3"
            "CXX=$(sed -n 's/^CXX = //p' "$makefile") -include $gtest/first.h"
            "GTEST_LIBS=$gtest/first.o $(sed -n 's/^GTEST_LIBS = //p' "$makefile")")
        make -C "$gtest" --no-print-directory first.o CXXFLAGS="$3"
    else
        precompiled=("CXXFLAGS=$3 -I$gtest -I$ucx_mp_top/test/gtest -include first.h")
        make -C "$gtest" --no-print-directory first.h.gch CXXFLAGS="$3"
    fi
}

# unit_check VARIANT FOLDER: run make check in it, with an emulator whose ranks spin as
# users' ranks do, and keep its logs
unit_check() {
    local folder=$ucx_mp_build/$1/$2 precompiled rc=0 log
    local -x CUEMU_SPIN=y
    precompiled "$1" "$2" "$unit_flags" || return
    passing_on '^# TOTAL: *[1-9]' make -C "$folder" -j"$ucx_mp_make_jobs" \
        --no-print-directory check "${precompiled[@]}" || rc=$?
    find "$folder" -name '*.log' ! -name test-suite.log ! -name config.log |
        sort | while IFS= read -r log; do
            say "== ${log#"$ucx_mp_build"/}"
            cat "$log"
        done
    return $rc
}

# in_shards VARIANT CXXFLAGS PROGRAM...: run its test programs concurrently, each
# in as many shards as there are processors, and keep their logs. A program that
# tests nothing fails. Additional arguments of make are in in_shards_make.
in_shards() {
    local variant=$1 flags=$2 count=$ucx_mp_jobs rc=0 program shard pids
    local folder=$ucx_mp_build/$variant/test/gtest
    shift 2
    make -C "$ucx_mp_build/$variant/src" -j"$ucx_mp_make_jobs" --no-print-directory \
        libuct_cuda_objects.la libucx_mp_check.la || return
    make -C "$folder" -j"$ucx_mp_make_jobs" --no-print-directory CXXFLAGS="$flags" "$@" \
        ${in_shards_make:+"${in_shards_make[@]}"} >"$folder/build.log" 2>&1 ||
        { cat "$folder/build.log"; return 1; }
    for program; do
        program=$folder/$program
        pids=()
        for ((shard = 0; shard < count; ++shard)); do
            (cd "$folder" && GTEST_TOTAL_SHARDS=$count \
                GTEST_SHARD_INDEX=$shard exec "$program") \
                >"$program.$shard.log" 2>&1 &
            pids+=($!)
        done
        for ((shard = 0; shard < count; ++shard)); do
            wait "${pids[shard]}" || rc=1
            say "== ${program##*/}, part $((shard + 1)) of $count"
            cat "$program.$shard.log"
        done
        grep -qE '^\[  PASSED  \] [1-9]' "$program".*.log || {
            say "${program##*/} tested nothing"
            rc=1
        }
    done
    return $rc
}

unit_programs="test_abi test_collective test_cuda test_multipath"

# Tests excluded under the sanitizers: programs without sanitizers but with our
# libraries, since a sanitizer would have to be loaded first; and the engine's
# failures, covered by faults-sanitized
unit_never="*test_abi_host*:test_abi_stay_out*:*test_engine_failures*"
# Every day also tests for the best plan, for equal plans, and for the automatic
# executor, since both executors are tested
unit_long="*graph_auto*:*takes_least_time*:*is_not_worse_than*"
unit_long+=":*derived_and_new_plans_are_equal*"
# The planner's property tests that take longest: its other tests run sanitized
unit_long+=":CollPlan.random_requests*:CollPlan.many_ranks*"
unit_long+=":CollPlan.the_same_request*:CollPlan.trees_fill*:CollPlan.large_plans*"

# All of them; beside step "sanitized" only those it excludes: nothing of test_cuda,
# three files of test_collective (one for the linker's --wrap) and one of test_multipath.
# These two programs are removed afterwards.
unit_tests() {
    local programs=$unit_programs in_shards_make=() name files parts=() rc=0
    if [ "$mode" = full ] && [ ${#only[@]} -eq 0 ]; then
        export GTEST_FILTER=$unit_never:$unit_long
        programs=${programs/test_cuda/}
        for name in collective multipath; do
            files=$(cd "$ucx_mp_top/test/gtest" && grep -lE \
                        "__wrap_mmap|$(tr -d '*' <<< "${GTEST_FILTER//:/|}")" $name/*.cc)
            in_shards_make+=("am_test_${name}_OBJECTS=$(
                printf '%s ' multipath/fake_node.o ${files//.cc/.o})")
            parts+=("$ucx_mp_build/main/test/gtest/test_$name")
        done
        rm -f "${parts[@]}"
    fi
    # shellcheck disable=SC2086
    in_shards main "$unit_flags" $programs || rc=$?
    rm -f "${parts[@]}"
    # The library for an Open MPI is built if there is one
    in_shards_make=()
    [ ! -e "$ucx_mp_build/main/src/libucx_mp_openmpi_objects.la" ] ||
        GTEST_FILTER='*' in_shards main "$unit_flags" test_mpi || rc=$?
    return $rc
}

# The module under ASAN and UBSAN, for the unit tests and for libFuzzer. Planners, checkers,
# executors and what fuzzers read are optimized, since tests run them for long. The rest
# compiles in less than half of the time without.
sanitized_flags="$unit_flags -fno-sanitize=undefined"
# Planners and executors count nothing for fuzzers, but in what reads tuning tables
sanitized_tables='^uct/cuda/plan/(tuning|model_constants)[.]'
sanitized_unfuzzed='^uct/cuda/(multipath|plan|run)/'
sanitized_plain='^uct/(abi|cuda/(base|copy|cuda_cma|cuda_copy|cuda_ipc|collective))/'
sanitized_build() {
    local compilers=(CC=gcc CXX=g++) flags=''
    ! have clang || {
        compilers=(CC=clang CXX=clang++)
        flags=-fsanitize=fuzzer-no-link
    }
    variant sanitized -- --enable-werror --enable-debug --enable-asan \
        --enable-ubsan "${compilers[@]}" CFLAGS="-g1 -O1 $flags" \
        CXXFLAGS="$sanitized_flags" LDFLAGS=-fsanitize=address,undefined || return
    module_objects sanitized "-g1 -O1 $flags" "$sanitized_tables" &&
        module_objects sanitized "-g1 -O1" "$sanitized_unfuzzed" &&
        module_objects sanitized "-g1 -O0 $flags" "$sanitized_plain"
}

# unit_sanitized [LESS]: run the tests within one process, without those in this
# pattern
unit_sanitized() {
    local precompiled
    sanitized_build || return
    export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1
    export UBSAN_OPTIONS=print_stacktrace=1
    # a test queries its rules; it has no sanitizers
    mkdir -p "$ucx_mp_build/sanitized/src/cuemu/lib" &&
        ln -sf "$ucx_mp_build/main/src/cuemu/lib/libcuda.so.1" \
            "$ucx_mp_build/sanitized/src/cuemu/lib" || return
    # shellcheck disable=SC2086
    GTEST_FILTER="-$unit_never${1:+:$1}" \
        in_shards sanitized "$sanitized_flags" $unit_programs || return
    precompiled sanitized src/cuemu "$sanitized_flags" &&
        make -C "$ucx_mp_build/sanitized/src/cuemu" -j"$ucx_mp_make_jobs" \
            --no-print-directory tests/core_test "${precompiled[@]}" || return
    CUEMU_NODES=$ucx_mp_top/src/cuemu/nodes \
        "$ucx_mp_build/sanitized/src/cuemu/tests/core_test"
}

# UCX 1.22 with its own CUDA module: proof that the emulator acts as a driver, and
# the baseline of every modelled comparison
unit_stock() {
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    "$ucx_mp_top/src/cuemu/tests/stock_ucx.sh" "$ucx_mp_deps/cu12" \
        "$ucx_mp_build/main/src/cuemu/lib"
}

step unit      quick 600 unit_tests "unit tests of the module"
step emulator  full  600 "unit_check main src/cuemu" "unit tests of the emulated node"
step sanitized full  600 "unit_sanitized $unit_long" \
     "unit tests under ASAN and UBSAN"
step sanitized-all long 900 unit_sanitized "all unit tests under ASAN and UBSAN"
step emulator-stock full 180 unit_stock "UCX 1.22 with its own CUDA module on the emulated node"
wide unit sanitized sanitized-all
modelled unit emulator sanitized sanitized-all
