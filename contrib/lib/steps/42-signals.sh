# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# A signal every 0.1 ms in processes with GPUs, as under a profiler, with and
# without SA_RESTART: nothing fails, no byte is wrong.

# with_signals PROGRAM ARGUMENT...: add the library to those preloaded already.
# mpirun gives a rank a terminal, whose write() a signal interrupts even where
# there is room: stdio then loses the line. So what it prints goes by a pipe.
with_signals() {
    local library=$ucx_mp_build/main/test/faults/.libs/libucx_mp_ticks.so
    # shellcheck disable=SC2016
    signals=(sh -c "printed=\$(LD_PRELOAD=$library:\$LD_PRELOAD \"\$@\")
                    status=\$?
                    printf '%s\\n' \"\$printed\"
                    exit \$status" sh "$@")
}

# signals_mpi [RUN-OPTION...] -- PROGRAM ARGUMENT...: two ranks
signals_mpi() {
    local mpirun programs options=() signals
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    mpi_tools distribution || return
    with_signals "$programs/$1" "${@:2}"
    for UCX_MP_TICKS in restart plain; do
        export UCX_MP_TICKS
        passing_on "^$1: [1-9].* 0 wrong" "$mpi_run" --quiet --emulate beluga \
            "${options[@]}" "$mpirun" -n 2 "${signals[@]}" || return
    done
}

# signals_onesided: puts and gets of all kinds of memory, also by cuda_cma
signals_onesided() {
    local program=$ucx_mp_build/main/test/mpi/ucx_mp_ucp signals
    [ -x "$program" ] || { skip "no MPI, and so no $program"; return; }
    ucp_environment cu12 || return
    with_signals "$program" signals
    export UCX_CUDA_CMA_ENABLE=y UCX_TLS=$UCX_TLS,cuda_cma
    for UCX_MP_TICKS in restart plain; do
        export UCX_MP_TICKS
        passing_on \
            '^ucx_mp_ucp: signals, process 0: [1-9][0-9]* messages, 0 wrong' \
            "$mpi_run" --quiet --emulate beluga --slowdown 2 "${signals[@]}" ||
            return
    done
}

# signals_nixl: agents are created and destroyed
signals_nixl() {
    local signals nixl_before
    with_signals
    nixl_before=("${signals[@]}")
    export CUEMU_SLOWDOWN=5 # agents poll in Python: no figure depends on it
    for UCX_MP_TICKS in restart plain; do
        export UCX_MP_TICKS
        nixl_run random --count 40 --renew 20 || return
    done
}

# reconnect: endpoints to 300 workers of one peer, with a limit of 200 files
reconnect() {
    local program=$ucx_mp_build/main/test/mpi/ucx_mp_ucp
    [ -x "$program" ] || { skip "no MPI, and so no $program"; return; }
    ucp_environment cu12 || return
    export UCX_CUDA_CMA_ENABLE=y UCX_TLS=$UCX_TLS,cuda_cma
    passing_on '^ucx_mp_ucp: reconnect, process 1: 300 messages, 0 wrong' \
        "$mpi_run" --quiet --emulate pcie-only --slowdown 2 "$program" reconnect
}

step signals-messages full 60 \
     "signals_mpi -- ucx_mp_checked --transfers 20 --max-size 8M" \
     "messages while a signal arrives every 0.1 ms"
step signals-collectives full 60 \
     "signals_mpi --collectives y -- ucx_mp_collectives --alike 100 --on-gpus 50
      --calls 120 --seed 2" \
     "collectives on GPUs while a signal arrives every 0.1 ms"
step signals-cma full 90 signals_onesided \
     "cuda_cma transfers while a signal arrives every 0.1 ms"
step signals-nixl full 90 signals_nixl "NIXL transfers while a signal arrives every 0.1 ms"
step reconnect full 60 reconnect \
     "peers' workers connect and disconnect: no descriptor leaks"
