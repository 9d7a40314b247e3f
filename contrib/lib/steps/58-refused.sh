# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The module makes no calls that the driver refuses: compute-sanitizer's
# memcheck would list them among the program's own mistakes.

# refused PROGRAM ARGUMENT...: two ranks, a program of test/mpi
refused() {
    local mpirun programs program=$1 refused
    shift
    mpi_tools distribution || return
    refused=$(mktemp) || return
    CUEMU_REFUSED=$refused passing_on ' 0 (results )?wrong$' \
        "$mpi_run" --quiet --emulate beluga "$mpirun" -n 2 \
        "$programs/$program" "$@" || { rm -f "$refused"; return 1; }
    if [ -s "$refused" ]; then
        say "refused by the driver (times, call, error):"
        sort "$refused" | uniq -c
        rm -f "$refused"
        return 1
    fi
    rm -f "$refused"
}

step refused full 60 \
     "refused ucx_mp_checked --transfers 30 --max-size 8M" \
     "messages make no driver call that fails"
for refused_memory in device pool vmm; do
    step "refused-$refused_memory" full 60 \
         "refused ucx_mp_filled --memory $refused_memory --steps 30" \
         "messages and collectives of $refused_memory memory: no driver call fails"
done
step refused-mixed full 60 \
     "refused ucx_mp_churn --kind mixed --steps 60" \
     "memory of all kinds allocated and freed: no driver call fails"
