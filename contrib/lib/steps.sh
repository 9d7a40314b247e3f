# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Steps of contrib/check: registered by the files in steps/, run in their order, each
# in a process group of its own, with a time limit and a log.

step_names=()
declare -A step_mode step_limit step_function step_what

# step NAME MODE LIMIT FUNCTION WHAT: MODE is "quick" (also with --quick), "full" or
# "long" (only with --long); LIMIT is in seconds, for the step alone. FUNCTION may have
# arguments behind its name. It returns 0 for passed, 77 for skipped (its last line
# says why), else failed.
step() {
    step_names+=("$1")
    step_mode[$1]=$2
    step_limit[$1]=$3
    step_function[$1]=$4
    step_what[$1]=$5
}

# step_is_of NAME MODE: return whether the step belongs to quick, full or long. The
# builds belong to long, too.
step_is_of() {
    case $2:${step_mode[$1]} in
    quick:quick | full:quick | full:full | long:long) return 0 ;;
    long:*) [[ $1 = build || $1 = build-ompi5 || $1 = build-mpich ||
               $1 = build-mpi-abi || $1 = arm64-build ]] ;;
    *) return 1 ;;
    esac
}

# skip REASON: use as: skip "..."; return
skip() {
    say "$*"
    return 77
}

# passing_on PATTERN COMMAND...: run it, keep its output in the log, and fail if it
# fails or no output matches the pattern: a test program that tested nothing must not
# count.
passing_on() {
    local pattern=$1 rc=0 output
    shift
    output=$(mktemp)
    # the step's limit sends it
    trap 'cat "$output"; exit 124' TERM
    "$@" > "$output" 2>&1 || rc=$?
    trap - TERM
    cat "$output"
    if [ $rc -eq 0 ] && ! grep -Eq "$pattern" "$output"; then
        say "exit status 0, but nothing says: $pattern"
        rc=1
    fi
    rm -f "$output"
    return $rc
}

# steps_stop: end everything under way after a signal; background jobs and groups of
# their own get no Ctrl-C
steps_stop() {
    local group
    # shellcheck disable=SC2046
    kill -KILL $(jobs -p) 2>/dev/null
    for group in "$steps_folder"/group.*; do
        kill -KILL -- "-${group##*.}" 2>/dev/null
    done
    rm -rf "$steps_folder"
    exit 130
}

# processes_of PID: print this process and those that it started, with the kernel's
# function that each of its threads waits in
processes_of() {
    local thread child
    echo "runs: $1 $(tr '\0' ' ' < "/proc/$1/cmdline" | cut -c 1-160)"
    for thread in "/proc/$1/task/"*; do
        echo "  thread ${thread##*/}: $(cat "$thread/wchan")"
    done
    for child in $(cat "/proc/$1/task/"*/children); do
        processes_of "$child"
    done
}

# in_group SECONDS LOG FUNCTION...: run it with its output in LOG; after the limit,
# log what still runs, stop everything it started and return 124
in_group() {
    local limit=$1 log=$2 pid rc=0 watch
    shift 2
    : > "$log"
    set -m
    ( set +m; "$@" ) < /dev/null >> "$log" 2>&1 &
    pid=$!
    : > "$steps_folder/group.$pid"
    ( sleep "$limit"
      processes_of "$pid" >> "$log" 2>/dev/null
      echo "stopped: the limit of $limit s is over" >> "$log"
      kill -TERM -- "-$pid" 2>/dev/null
      sleep 5
      kill -KILL -- "-$pid" 2>/dev/null ) &
    watch=$!
    : > "$steps_folder/group.$watch"
    set +m
    wait "$pid" || rc=$?
    if kill -KILL -- "-$watch" 2>/dev/null; then
        wait "$watch" 2>/dev/null || true
    fi
    # ranks left behind by a failed mpirun
    kill -KILL -- "-$pid" 2>/dev/null || true
    rm -f "$steps_folder/group.$pid" "$steps_folder/group.$watch"
    if grep -q '^stopped: the limit of' "$log"; then
        rc=124
    fi
    return $rc
}

# named ARRAY VALUE NAME...: store the value for each of these steps
named() {
    local -n array=$1
    local value=$2 name
    shift 2
    for name in "$@"; do
        [ -n "${step_function[$name]:-}" ] || die "no step '$name'"
        array[$name]+=" $value"
    done
}

# alone NAME...: steps whose results depend on the load of the processors
declare -A step_is_alone
alone() { named step_is_alone yes "$@"; }

# wide NAME...: steps that keep all processors busy for a while: only one at a time.
# Most other steps wait for modelled time or for a program's start, and may run beside
# it.
declare -A step_is_wide
wide() { named step_is_wide yes "$@"; }

# after STEP NAME...: these need the step's results, or make the same files, and wait
# for it if it runs. All others depend only on the builds.
declare -A step_after
after() { named step_after "$@"; }

# unbuilt NAME...: steps that look at the sources alone. They run beside the first build, part of
# which (configure) keeps one processor busy.
declare -A step_is_unbuilt
unbuilt() { named step_is_unbuilt yes "$@"; }

# modelled NAME...: steps that assert modelled times, and the emulator's own: emulated
# time follows the ranks' work. Elsewhere it is the wall clock, which is quicker for many
# small messages.
declare -A step_is_modelled
modelled() { named step_is_modelled yes "$@"; }

# timed FILE COMMAND...: write the processor time of the command and its children to
# FILE, in the form of "times"
timed() {
    local file=$1 rc=0
    shift
    "$@" || rc=$?
    times > "$file"
    return $rc
}

# step_run NAME: write its status, its seconds and processor seconds in one write;
# processor seconds are 0 if it did not end by itself
step_run() {
    local name=$1 log=$ucx_mp_build/log/$1.log rc=0 began=$SECONDS
    # Other steps and other programs use the processors, too, and wheels are unpacked
    # one after the other
    local limit=$((5 * ${step_limit[$name]}))
    export CUEMU_TIME=${step_is_modelled[$name]:+ranks}
    CUEMU_TIME=${CUEMU_TIME:-wall}
    # other steps can use the processors of ranks that wait; unit_check() and
    # mpi_no_peer_rate() let them spin, as by default
    export CUEMU_SPIN=n
    # shellcheck disable=SC2086
    in_group "$limit" "$log" timed "$steps_folder/$name.times" \
        ${step_function[$name]} || rc=$?
    echo "$rc $((SECONDS - began)) $(times_sum "$steps_folder/$name.times")" \
        > "$steps_folder/$name.new"
    mv "$steps_folder/$name.new" "$steps_folder/$name.result"
}

# step_failures NAME: print which tests of it failed, and the first line of each reason
step_failures() {
    grep -aE -A 3 '^(not ok|FAIL:|FAILED|\[  FAILED  \] [^0-9])|: Failure$' \
         "$ucx_mp_build/log/$1.log" | cut -c 1-160 | sed 's/^/    /' | head -30
}

# step_report NAME: print its line, and the end of the log if it failed; count it in
# steps_passed, steps_failed_names, steps_skipped_names
step_report() {
    local log=$ucx_mp_build/log/$1.log rc=1 seconds=0 busy=0 result
    [ ! -e "$steps_folder/$1.result" ] ||
        read -r rc seconds busy < "$steps_folder/$1.result"
    grep -aE '^\[ +(PASSED|FAILED|SKIPPED) +\]|^(# (TOTAL|FAIL|ERROR):)' \
         "$log" | sed 's/^/    /' | head -40
    case $rc in
    0)
        result=passed
        steps_passed=$((steps_passed + 1))
        say "    passed, $seconds s" ;;
    77)
        result=skipped
        steps_skipped_names+=("$1")
        say "    skipped: $(tail -n 1 "$log")" ;;
    *)
        result=failed
        steps_failed_names+=("$1")
        tail -n 40 "$log" | sed 's/^/    | /'
        say "    FAILED ($rc), $seconds s; log: ${log#"$ucx_mp_top"/}" ;;
    esac
    times_keep "$1" "$seconds" "$result" "$busy"
}

step_title() {
    printf '%-24s %s\n' "$1" "${step_what[$1]}"
}

# steps_each NAME...: run them one after the other
steps_each() {
    local name
    for name in "$@"; do
        step_title "$name"
        step_run "$name"
        step_report "$name"
    done
}

# steps_longest_first NAME...: sort them by their last run's time or, if unknown, by
# their limit, so that no long step is left for the end. All others wait for the build.
steps_longest_first() {
    local name
    { cat "$times_file" 2>/dev/null
      for name in "$@"; do
          say "$name ${step_limit[$name]}"
      done; } |
        awk 'NF > 2 { took[$1] = $2; next }
             { print ($1 == "build" ? 1e6 : $1 in took ? took[$1] : $2 / 5), $1 }' |
        sort -s -k1,1nr | cut -d ' ' -f 2
}

# step_may_begin NAME: return whether it need not wait for an unfinished step of
# steps_at_once
step_may_begin() {
    local name
    for name in ${step_after[$1]:-}; do
        [ -z "${pending[$name]:-}" ] || return 1
    done
    [ -n "${step_is_wide[$1]:-}" ] || return 0
    for name in "${under_way[@]}"; do
        [ -z "${step_is_wide[$name]:-}" ] || return 1
    done
}

# steps_at_once NAME...: run them concurrently, two for each processor, since many wait for
# half of their time; report each when it ends
steps_at_once() {
    local name index is_lost queue under_way=()
    local most=$((ucx_mp_jobs > 1 ? 2 * ucx_mp_jobs : 1))
    local -A pending=()
    mapfile -t queue < <(steps_longest_first "$@")
    for name in "$@"; do
        pending[$name]=yes
    done
    while [ ${#pending[@]} -gt 0 ]; do
        for index in "${!queue[@]}"; do
            name=${queue[index]}
            [ ${#under_way[@]} -lt $most ] || break
            step_may_begin "$name" || continue
            step_run "$name" &
            under_way+=("$name")
            unset "queue[index]"
        done
        [ ${#under_way[@]} -gt 0 ] || die "these wait for each other: ${queue[*]}"
        wait -n
        is_lost=$?      # 127: no job is left
        for index in "${!under_way[@]}"; do
            name=${under_way[index]}
            [ $is_lost -eq 127 ] ||
                [ -e "$steps_folder/$name.result" ] || continue
            step_title "$name"
            step_report "$name"
            unset "under_way[index]" "pending[$name]"
        done
    done
}

# steps_run NAME...: run the build beside steps that need none, the other builds concurrently,
# then concurrent steps, then the others in order. Sets steps_passed, steps_failed_names,
# steps_skipped_names.
steps_run() {
    local name first=() builds=() beside=() others=()
    steps_passed=0 steps_failed_names=() steps_skipped_names=()
    mkdir -p "$ucx_mp_build/log"
    steps_folder=$(mktemp -d) || die "no room for a temporary folder"
    trap steps_stop INT TERM HUP

    for name in "$@"; do
        if [ "$name" = build ] || [ -n "${step_is_unbuilt[$name]:-}" ]; then
            first+=("$name")
        elif [[ $name == build-* || $name == *-build ]]; then
            builds+=("$name")
        elif [ -n "${step_is_alone[$name]:-}" ]; then
            others+=("$name")
        else
            beside+=("$name")
        fi
    done

    steps_at_once ${first[0]:+"${first[@]}"}
    steps_at_once ${builds[0]:+"${builds[@]}"}
    steps_at_once ${beside[0]:+"${beside[@]}"}
    steps_each ${others[0]:+"${others[@]}"}
    rm -rf "$steps_folder"
    trap - INT TERM HUP
}
