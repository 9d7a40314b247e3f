# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Threads and processes: many threads at once, under ThreadSanitizer and in
# MPI and UCP programs; processes that fork, exit, are killed, or share a pid.

# threads_sanitized: run the unit tests of code used by several threads, or starting
# threads, under ThreadSanitizer; the rest would take a quarter of an hour and
# libraries built with it. The executor makes no difference to the preparing threads:
# those tests run with one. A test that forks starts threads in the child. Only files
# with such tests are compiled.
threads_sanitized() {
    local in_shards_make files cxx=g++
    local filter='Threads.*:Queue.*:Ipc*:Host*:Ctx.*:Copy*:*layout*:*.threads*'
    filter+=':*test_engine_start*:test_ledger*:test_traffic*:*test_copy_host*'
    filter+=':CollControl*:CollRanks*:Call*:Links*'
    files=$(printf 'cuda/test_cuda-%s.o ' fake_driver test_{capture,copy_md} \
        test_{copy_short,ctx,host_bounce,host_cpus,host_pieces,host_pipeline} \
        test_{ipc_ep,ipc_list,ipc_multipath,node_exports,node_handle} \
        test_{node_mappings,node_process,node_unmap,queue,threads} \
        test_{driver,memory_cache}) # these two replace functions
    in_shards_make=(am_test_cuda_OBJECTS="$files")
    files=$(printf '%s.o ' multipath/fake_node collective/test_{agree,plan_cache,call,control})
    in_shards_make+=(am_test_collective_OBJECTS="$files")
    files=$(printf 'multipath/%s.o ' fake_node test_{copy_host,engine,ledger})
    in_shards_make+=(am_test_multipath_OBJECTS="$files")
    # clang compiles tests in half of g++'s time; its own library of ThreadSanitizer is
    # linked statically and does not start with the functions that test_cuda replaces
    if have clang++; then
        cxx=clang++
        in_shards_make+=(CXXLD=g++)
    fi
    variant threads -- --enable-werror --enable-tsan CC=gcc CXX=$cxx \
        CFLAGS="-g1 -O1" CXXFLAGS="$unit_flags" || return
    TSAN_OPTIONS="die_after_fork=0 second_deadlock_stack=1" \
    GTEST_FILTER="$filter:-*failures*:*every_call_fails_once*:*_start.*/graph_auto" \
        in_shards threads "$unit_flags" test_collective test_cuda test_multipath
}

step threads-sanitized full 900 threads_sanitized \
     "unit tests under ThreadSanitizer"

# threads_mpi MPI NODE: several threads per rank, each with its own communicator; for
# collectives with small stacks as well
threads_mpi() {
    local mpirun programs
    mpi_tools "$1" || return
    passing_on '^ucx_mp_threads: 4 threads .* [1-9][0-9]* transfers, 0 wrong' \
        "$mpi_run" --quiet --emulate "$2" "$mpirun" -n 2 \
        "$programs/ucx_mp_threads" --windows 4 --max-size 8M --freed 30 &&
        passing_on 'added and broadcast, 192 times on GPUs' \
            "$mpi_run" --quiet --collectives y --emulate "$2" "$mpirun" -n 2 \
            "$programs/ucx_mp_threads" --windows 3 --max-size 1M --collectives 4 \
            --stack 64K
}

# threads_mpich: freed receives and datatypes, and a few messages, by an MPI that releases its
# lock in the middle of its progress
threads_mpich() {
    local mpirun programs
    mpi_tools mpich || return
    passing_on '^ucx_mp_threads: 4 threads .* [1-9][0-9]* transfers, 0 wrong' \
        "$mpi_run" --quiet --emulate beluga "$mpirun" -n 2 \
        "$programs/ucx_mp_threads" --windows 2 --max-size 1M --freed 30
}

# ucp_run MODE UCX: run one mode of ucx_mp_ucp; UCX is a wheel's folder under
# build/deps, or empty: the distribution's
ucp_run() {
    local program=$ucx_mp_build/main/test/mpi/ucx_mp_ucp scheme
    [ -x "$program" ] || { skip "no MPI, and so no $program"; return; }
    ucp_environment "${2:-}" || return
    for scheme in get_zcopy put_zcopy; do
        UCX_RNDV_SCHEME=$scheme passing_on \
            "^ucx_mp_ucp: $1, process 0: [1-9][0-9]* messages, 0 wrong" \
            "$mpi_run" --quiet --emulate beluga "$program" "$1" || return
    done
}

# ucp_environment UCX: set the environment of a program without an MPI
ucp_environment() {
    export UCX_TLS=self,sm,tcp,cuda_copy,cuda_ipc UCX_LOG_LEVEL=error
    [ -n "$1" ] || return 0
    wheel_folder cu12 libucx-cu12==1.22.0 ||
        { skip "no libucx-cu12 1.22.0"; return; }
    export LD_LIBRARY_PATH=$ucx_mp_deps/$1/libucx/lib
}

# ucp_containers UCX: two pid namespaces; the processes have the same pid, and share
# memory by file descriptors of the same number
ucp_containers() {
    local program=$ucx_mp_build/main/test/mpi/ucx_mp_ucp folder rc=0 pid role
    local apart="unshare --fork --pid --mount-proc"
    [ -x "$program" ] || { skip "no MPI, and so no $program"; return; }
    $apart true 2>/dev/null ||
        { skip "this user may not have pid namespaces of its own"; return; }
    ucp_environment "${1:-}" || return
    folder=$(mktemp -d) || return
    for role in 0 1; do
        # shellcheck disable=SC2086
        "$mpi_run" --quiet --emulate beluga $apart "$program" pids $role \
            "$folder/socket" > "$folder/$role.log" 2>&1 &
        pid[role]=$!
    done
    for role in 0 1; do
        wait "${pid[role]}" || rc=1
        cat "$folder/$role.log"
        grep -q '^ucx_mp_ucp: pid 1$' "$folder/$role.log" || rc=1
    done
    rm -rf "$folder"
    return $rc
}

# ucp_apart KIND UCX FOLDER: run both processes of ucx_mp_ucp plain in common namespaces, or
# in some of their own, with different or equal numbers; their logs go into FOLDER
ucp_apart() {
    local program=$ucx_mp_build/main/test/mpi/ucx_mp_ucp rc=0 pid role words=()
    ucp_environment "$2" && mkdir "$3" "$3/session" || return
    [ "$1" = common ] || words=(unshare --fork --pid --mount-proc --ipc)
    for role in 0 1; do
        # the shell is process 1 there
        [ "$1$role" != different1 ] || words+=(sh -c '"$@"; exit $?' sh)
        CUEMU_SESSION=$3/session UCX_LOG_LEVEL=info "$mpi_run" --quiet --emulate hgx-h200 \
            "${words[@]}" "$program" plain $role "$3/socket" > "$3/$role.log" 2>&1 &
        pid[role]=$!
    done
    for role in 0 1; do
        wait "${pid[role]}" || rc=1
    done
    [ $rc -eq 0 ] || cat "$3"/*.log
    return $rc
}

# ucp_namespaces [UCX]: with PID, IPC and mount namespaces of their own two processes map each
# other's memory as in common ones, if their numbers differ. The driver shares no memory between
# equal numbers: both say so once, and messages take another transport.
ucp_namespaces() {
    local folder rc=0 kind mapped
    [ -x "$ucx_mp_build/main/test/mpi/ucx_mp_ucp" ] || { skip "no MPI"; return; }
    unshare --fork --pid --mount-proc --ipc true 2>/dev/null ||
        { skip "this user may not have namespaces of its own"; return; }
    folder=$(mktemp -d) || return
    for kind in common different equal; do
        ucp_apart $kind "${1:-}" "$folder/$kind" || { rc=1; break; }
        cat "$folder/$kind"/?.log | grep '^ucx_mp_ucp' | sed "s/^/$kind: /"
        mapped=$(cat "$folder/$kind"/?.log |
                 sed -n 's/.* INFO  \([0-9]*\) messages, .*/\1/p' | xargs)
        case $kind in
        equal) [ "$(grep -l 'cannot map memory of pid 1:' "$folder/equal"/?.log |
                     wc -l)" -eq 2 ] && [ -z "$mapped" ] ;;
        *) [ "$mapped" = "2 2" ] ;;
        esac || { say "messages by the module: $mapped"; rc=1; }
        ! grep -E 'WRONG| ERROR ' "$folder/$kind"/?.log || rc=1
    done
    rm -rf "$folder"
    return $rc
}

step threads-mpi full 240 "threads_mpi distribution hgx-h200" \
     "four threads per rank, each with a communicator"
step threads-mpi-mpich full 60 threads_mpich \
     "threads in MPI at once, MPICH"
step threads-mpi-openmpi5 long 240 "threads_mpi openmpi5 beluga" \
     "four threads per rank, each with a communicator, Open MPI 5"
step threads-workers full 120 "ucp_run threads cu12" \
     "one UCP worker per thread, of one UCP context and of several"
# The distribution's UCX asserts when it is destroyed with requests left
step ucp-destroy full 120 "ucp_run destroy cu12" \
     "workers are destroyed while copies run"
step ucp-killed full 120 "ucp_run killed" \
     "a peer is killed while copies run, and another connects"
step ucp-killed-1.22 long 120 "ucp_run killed cu12" "a peer is killed while copies run, UCX 1.22"
step ucp-fork full 120 "ucp_run fork" \
     "child processes execute programs and exit during messages"
step ucp-exit full 60 "ucp_run exit" \
     "a process ends with all UCX objects open"
step ucp-order full 120 "ucp_run order cu12" \
     "memory, endpoints and workers are closed in unusual orders"
step ucp-type full 60 "ucp_run type cu12" \
     "UCX keeps the type of memory when another context is retained"
step ucp-pointers full 60 "ucp_run pointers cu12" \
     "pointers to a peer's memory stay valid when other endpoints close"
step ucp-containers full 60 ucp_containers \
     "two processes with equal PIDs in two namespaces"
step ucp-containers-1.22 long 60 "ucp_containers cu12" \
     "two processes with equal PIDs in two namespaces, UCX 1.22"
step ucp-namespaces full 120 "ucp_namespaces cu12" \
     "containers that share some namespaces: mapping, or another transport"
wide threads-sanitized
modelled threads-sanitized
