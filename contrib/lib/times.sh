# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Time and result of each step's last run: build/log/times, one line per step:
# "NAME SECONDS passed|skipped|failed SECONDS", the last one processor time.
# Other steps' lines are kept.

times_file=$ucx_mp_build/log/times

# times_sum FILE: print the seconds in the output of bash's "times", rounded to
# integers
times_sum() {
    awk '{ for (i = 1; i <= NF; ++i) {
               split($i, part, /[ms]/)
               sum += 60 * part[1] + part[2]
           } }
         END { printf "%.0f\n", sum }' "$1" 2>/dev/null || say 0
}

# times_keep NAME SECONDS RESULT PROCESSOR_SECONDS: store a step's times
times_keep() {
    { grep -vs "^$1 " "$times_file"; say "$*"; } > "$times_file.new" &&
        mv "$times_file.new" "$times_file"
}

# times_print COUNT NAME...: print the longest of these steps, the longest first
times_print() {
    local count=$1
    shift
    [ $# -gt 0 ] && [ -s "$times_file" ] || return 1
    printf '%s\n' "$@" | awk 'NR == FNR { is_wanted[$1] = 1; next }
                              $1 in is_wanted' - "$times_file" |
        sort -k2,2nr -k1,1 | head -n "$count" |
        awk '{ printf "%6d s%6d s of processors  %s%s\n", $2, $4, $1,
                      $3 == "passed" ? "" : ", " $3 }'
}
