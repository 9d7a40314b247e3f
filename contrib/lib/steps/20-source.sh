# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The source itself: style, shell scripts, and dependencies of the built files.

source_format() {
    # another release formats differently with the same settings
    { clang-format-14 --version || clang-format --version; } 2>/dev/null |
        grep -q 'version 14\.' || { skip "no clang-format-14"; return; }
    "$ucx_mp_top/contrib/lib/format"
}

source_shell() {
    have shellcheck || { skip "no shellcheck"; return; }
    cd "$ucx_mp_top" || return
    # files that source each other are checked one by one, so the origin and use of variables
    # are unknown
    shellcheck -S warning -e SC1090,SC2034,SC2154 autogen.sh .ci/run contrib/demo contrib/check \
        contrib/cuda-mpi contrib/old-system contrib/slurm contrib/wheel contrib/debian/build \
        contrib/rpm/build contrib/lib/man_pages \
        contrib/lib/standalone contrib/lib/*.sh contrib/lib/steps/*.sh
}

# python_files: print the names of all Python files but Spack's, whose names Spack defines
python_files() {
    git -C "$ucx_mp_top" ls-files '*.py' ':!contrib/spack'
    git -C "$ucx_mp_top" grep -lE '^#!/usr/bin/(env )?python3' -- ':!*.py'
}

# Above all, names without a definition. ucx_mp_run hands on names that it does not use.
source_python() {
    local said
    have pyflakes3 || { skip "no pyflakes3"; return; }
    git -C "$ucx_mp_top" rev-parse >/dev/null 2>&1 || { skip "no git repository"; return; }
    cd "$ucx_mp_top" || return
    said=$(python_files | xargs -r pyflakes3 2>&1 |
        grep -v '^src/tools/ucx_mp_launch/command.py:.* imported but unused$')
    [ -z "$said" ] && [ -n "$(python_files)" ] || { echo "$said"; return 1; }
}

source_standalone() {
    local prefix rc=0 library
    for prefix in "$ucx_mp_prefix" "$ucx_mp_prefix-1.22"; do
        [ "$prefix" = "$ucx_mp_prefix" ] || [ -d "$prefix" ] || continue
        "$ucx_mp_top/contrib/lib/standalone" \
            "$prefix/lib/ucx-mp/libuct_cuda.so" \
            "$prefix/lib/ucx-mp/libucx_mp_preload.so" || rc=1
        for library in "$prefix"/lib/ucx-mp/libucx_mp_{{openmpi,mpich}{,_mpi4},mpi_abi}.so; do
            [ ! -e "$library" ] ||
                "$ucx_mp_top/contrib/lib/standalone" "$library" || rc=1
        done
    done
    source_functions || rc=1
    return $rc
}

# MPI_ functions exported by a library
source_functions_of() {
    nm -D --defined-only "$1" | awk '$3 ~ /^P?MPI_/ { sub(/@.*/, "", $3); print $3 }' | sort
}

# The library for Open MPI 4 exports no function missing in that MPI: programs look functions up
source_functions() {
    local mpi shown
    mpi=$(ldconfig -p | awk '$1 == "libmpi.so.40" { print $NF; exit }')
    shown=$ucx_mp_prefix/lib/ucx-mp/libucx_mp_openmpi.so
    [ -n "$mpi" ] && [ -e "$shown" ] || return 0
    shown=$(comm -23 <(source_functions_of "$shown") <(source_functions_of "$mpi"))
    [ -z "$shown" ] || { echo "not in $mpi:" $shown; return 1; }
}

source_links() {
    python3 "$ucx_mp_top/contrib/lib/links"
}

source_names() {
    python3 "$ucx_mp_top/contrib/lib/names"
}

source_layers() {
    python3 "$ucx_mp_top/contrib/lib/layers"
}

source_lines() {
    "$ucx_mp_top/test/logs/lines"
}

# contrib/check's own selection, messages and files, with steps of one line each
source_check() {
    passing_on '^check: [1-9][0-9]* passed' "$ucx_mp_top/test/check/run"
}

step format     quick 180 source_format     "sources follow .clang-format"
step shell      quick  60 source_shell      "shellcheck accepts every script"
step pyflakes   quick  60 source_python     "pyflakes finds no fault in Python files"
step standalone quick  60 source_standalone "the libraries link neither UCX nor CUDA"
step links      quick  10 source_links      "links between pages lead to existing files and headings"
step names      quick  10 source_names      "files, functions, steps and log lines that pages name exist"
step layers     quick  10 source_layers     "no include leads to a higher layer or forms a circle"
step lines      quick  10 source_lines      "log lines equal the reviewed list test/logs/lines.txt"
step check      quick  60 source_check      "tests of contrib/check itself"
# not names, which reads the files that autogen.sh makes and removes
unbuilt format shell pyflakes links layers lines check
