# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The launcher's own tests.

launcher_tests() {
    UCX_MP_RUN=$ucx_mp_prefix/bin/ucx_mp_run UCX_MP_BUILD=$ucx_mp_build \
        passing_on '[1-9][0-9]* passed' "$ucx_mp_top/test/launcher/run"
}

# Make a locale with a decimal comma and a library to set it, and print their
# folder
comma_locale() {
    local folder=$ucx_mp_build/comma
    mkdir -p "$folder" || return
    localedef -i de_DE -f ISO-8859-1 "$folder/comma" > /dev/null 2>&1
    [ -e "$folder/comma/LC_NUMERIC" ] || return
    echo '#include <locale.h>
          __attribute__((constructor)) static void set(void) {
              setlocale(LC_ALL, "");
          }' | "${CC:-cc}" -x c -shared -fPIC -o "$folder/set.so" - || return
    echo "$folder"
}

# A variable with a wrong value gives a message with its name, and no transport
launcher_values() {
    local right wrong names name value prefix comma rc=0
    local -a all=()
    right=$("$mpi_run" --quiet --emulate beluga ucx_info -d |
            grep '# *Transport') || return
    names=$("$mpi_run" --quiet --emulate beluga ucx_info -cf |
            grep -o '^UCX_CUDA_IPC_\(MULTIPATH\|COLLECTIVES$\|COLLECTIVES_ALGORITHM\)[A-Z_]*')
    # any text is a valid path: their files are looked for
    names=$(grep -v '_TRACE$\|_TUNING_FILE$' <<< "$names")
    [ "$(wc -w <<< "$names")" -ge 11 ] || { say "found only: $names"; return 1; }
    for value in '?wrong' -1 1e999 'direct,,' 'a b;c'; do
        all=()
        for name in $names; do
            all+=("$name=$value")
        done
        wrong=$(env "${all[@]}" "$mpi_run" --quiet --emulate beluga \
                    ucx_info -d 2>&1)
        for name in $names; do
            [ "$(grep -c "$name:.*using the default" <<< "$wrong")" -eq 1 ] ||
                { say "$name=$value is not told once"; rc=1; }
        done
        [ "$(grep '# *Transport' <<< "$wrong")" = "$right" ] ||
            { say "$value: other transports than without"; rc=1; }
    done
    prefix=UCX_CUDA_IPC_MULTIPATH_
    # each is valid, but not with the others
    wrong=$(env "${prefix}CHUNKS=1,8" \
                "$mpi_run" --quiet --emulate beluga ucx_info -d 2>&1)
    if ! grep -q "${prefix}CHUNKS.*using automatic paths" <<< "$wrong" ||
        grep -A8 'Transport: cuda_ipc' <<< "$wrong" | grep 'failed to open'; then
        say "CHUNKS without PATHS: not told, or no transport"
        rc=1
    fi
    wrong=$(env "${prefix}PATHS=direct,gpu9" "${prefix}LEDGER=/nowhere/at/all" \
                "${prefix}TRACE=/nowhere/at/all" "${prefix}TUNING_FILE=/nowhere" \
                "$mpi_run" --quiet --emulate beluga ucx_info -d 2>&1)
    for value in 'PATHS: gpu9' 'LEDGER: /nowhere/at' 'TRACE: /nowhere/at' \
                 'TUNING_FILE: cannot read /nowhere'; do
        [ "$(grep -c "$prefix$value" <<< "$wrong")" -eq 1 ] ||
            { say "$prefix$value is not told once"; rc=1; }
    done
    [ "$(grep '# *Transport' <<< "$wrong")" = "$right" ] ||
        { say "other transports without what is missing"; rc=1; }
    # UCX reads defaults in the program's locale
    comma=$(comma_locale) || { say "no locale with a decimal comma"; return 1; }
    wrong=$(LOCPATH=$comma LC_ALL=comma \
                LD_PRELOAD=$ucx_mp_build/comma/set.so \
                "$mpi_run" --quiet --emulate beluga ucx_info -d 2>&1)
    [ "$(grep '# *Transport' <<< "$wrong")" = "$right" ] ||
        { say "other transports with a decimal comma: $wrong"; rc=1; }
    grep -q cuda_ipc <<< "$right" || { say "no cuda_ipc at all"; rc=1; }
    [ $rc -ne 0 ] || echo "all right"
    return $rc
}

step values full 60 launcher_values \
     "a wrong value of a variable gives one warning and disables nothing"
step launcher full 300 launcher_tests "tests of ucx_mp_run (test/launcher/run)"
