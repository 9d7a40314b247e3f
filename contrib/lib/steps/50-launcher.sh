# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The launcher's own tests.

launcher_tests() {
    UCX_MP_RUN=$ucx_mp_prefix/bin/ucx_mp_run UCX_MP_BUILD=$ucx_mp_build \
        passing_on '[1-9][0-9]* passed' "$ucx_mp_top/test/launcher/run"
}

# A variable with a wrong value costs a sentence with its name, and no transport
launcher_values() {
    local right wrong names name rc=0
    local -a all=()
    right=$("$mpi_run" --quiet --emulate beluga ucx_info -d |
            grep '# *Transport') || return
    names=$("$mpi_run" --quiet --emulate beluga ucx_info -cf |
            grep -o '^UCX_CUDA_IPC_\(MULTIPATH\|COLLECTIVES$\|COLLECTIVES_ALGORITHM\)[A-Z_]*')
    # any text is a path
    names=$(grep -v '_TRACE$\|_TUNING_FILE$' <<< "$names")
    [ "$(wc -w <<< "$names")" -ge 12 ] || { say "found only: $names"; return 1; }
    for name in $names; do
        all+=("$name=?wrong")
    done
    wrong=$(env "${all[@]}" "$mpi_run" --quiet --emulate beluga ucx_info -d 2>&1)
    for name in $names; do
        [ "$(grep -c "$name:.*stays" <<< "$wrong")" -eq 1 ] ||
            { say "$name=?wrong is not told once"; rc=1; }
    done
    [ "$(grep '# *Transport' <<< "$wrong")" = "$right" ] ||
        { say "other transports than without"; rc=1; }
    grep -q cuda_ipc <<< "$right" || { say "no cuda_ipc at all"; rc=1; }
    [ $rc -ne 0 ] || echo "all right"
    return $rc
}

step values full 60 launcher_values \
     "a wrong value costs a sentence, and no transport"
step launcher full 300 launcher_tests "ucx_mp_run finds, sets, warns, cleans up"
