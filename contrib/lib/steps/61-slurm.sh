# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Jobs of a Slurm started for them: srun inside and outside of the launcher,
# sbatch, GPUs hidden by Slurm; Open MPI and MPICH.

slurm=$ucx_mp_top/contrib/slurm
slurm_checked="--transfers 4 --min-size 1M --max-size 16M --memory device"

# slurm_is_here: without package installation it may be missing
slurm_is_here() {
    local program
    for program in munged slurmctld slurmd srun; do
        PATH=$PATH:/usr/sbin:/sbin have "$program" && continue
        skip "no $program: apt-get install munge slurm-wlm"
        return
    done
    [ -z "${SLURM_JOB_ID-}" ] || skip "this is a job of Slurm's"
}

# slurm_job PATTERN COMMAND...: run in a Slurm of its own, and check that
# nothing of it is left
slurm_job() {
    local pattern=$1 rc=0 left
    local -x TMPDIR
    shift
    TMPDIR=$(mktemp -d) || return
    passing_on "$pattern" "$slurm" "$@" || rc=$?
    left=$(grep -lzs "^SLURM_CONF=$TMPDIR/" /proc/[0-9]*/environ
           ls -d "$TMPDIR"/ucx_mp_slurm.* 2> /dev/null)
    [ -z "$left" ] || { say "left behind: $left"; rc=1; }
    rm -rf "$TMPDIR"
    return $rc
}

# slurm_ranks MPI PMI: the launcher in front of srun and behind it; variables
# for srun alone; each rank with one GPU. ucx_mp_checked fails if a byte is
# wrong.
slurm_ranks() {
    local programs=$ucx_mp_build/$1/test/mpi
    slurm_is_here || return
    [ -x "$programs/ucx_mp_checked" ] || { skip "no programs in $1"; return; }
    local -x run="$mpi_run --emulate beluga" pmi="--mpi=$2 -n 2"
    local -x checked="$programs/ucx_mp_checked $slurm_checked"
    # shellcheck disable=SC2016
    slurm_job '^all of it$' bash -c '
        said() {
            local pattern=$1 output rc=0
            shift
            output=$("$@" 2>&1) || rc=$?
            printf "%s\n" "$*" "$output"
            [ $rc -eq 0 ] && grep -Eq "$pattern" <<< "$output" && return
            echo "status $rc, or nothing says: $pattern"
            exit 1
        }
        all="2 ranks, 4 GPUs visible" one="2 ranks, 1 GPU visible"
        said "$all" $run srun $pmi $checked
        said "$all" srun $pmi $run $checked
        said "srun --export=NONE would" $run srun --export=NONE $pmi $checked
        SLURM_EXPORT_ENV=NONE said "$all" $run srun $pmi $checked
        said "$one" $run srun --gpus-per-task=1 $pmi $checked
        said "$one" srun --gpus-per-task=1 $pmi $run $checked
        echo all of it' || return
    ! ls -d /dev/shm/ucx_mp_run.slurm.* 2> /dev/null
}

# slurm_batch MPI PMI: a job script made by --print for real nodes; the emulated
# one is active already, without the module
slurm_batch() {
    local programs=$ucx_mp_build/$1/test/mpi
    slurm_is_here || return
    [ -x "$programs/ucx_mp_checked" ] || { skip "no programs in $1"; return; }
    local -x run=$mpi_run job=$ucx_mp_build/log/slurm-job-$1
    local -x srun="srun --mpi=$2 -n 2 $programs/ucx_mp_checked $slurm_checked"
    rm -f "$job".out
    # shellcheck disable=SC2016
    slurm_job '^ucx_mp_checked: [1-9][0-9]* transfers, .* 0 wrong' \
        "$mpi_run" --quiet --emulate beluga --stock bash -c '
        { echo "#!/bin/sh"; $run --print $srun; } > "$job.sh" || exit
        sbatch --wait -n 2 -o "$job.out" "$job.sh"
        rc=$?
        cat "$job.out"
        exit $rc'
}

# One quick check: the command's status, a signal to it, no daemon left
slurm_script() {
    local rc=0
    slurm_is_here || return
    slurm_job '^0 1 $' bash -c "srun -n 2 sh -c 'echo \$SLURM_PROCID' | sort |
        tr '\n' ' '" || return
    slurm_job . srun sh -c 'exit 3' || rc=$?
    [ $rc -eq 3 ] || { say "status $rc, not 3"; return 1; }
    rc=0
    slurm_job . timeout 2 srun sleep 60 || rc=$?
    [ $rc -eq 124 ] || { say "status $rc, not 124"; return 1; }
    rc=0
    "$slurm" --gpus 0 true || rc=$?
    [ $rc -eq 2 ] || { say "status $rc, not 2"; return 1; }
}

step slurm full 60 slurm_script \
     "contrib/slurm: a job, its exit status, an interrupted job"
step slurm-openmpi long 300 "slurm_ranks main pmix" \
     "srun before and after ucx_mp_run, --export=NONE, Open MPI"
step slurm-mpich long 300 "slurm_ranks mpich pmi2" "srun before and after ucx_mp_run, --export=NONE, MPICH"
step slurm-batch-openmpi long 120 "slurm_batch main pmix" \
     "sbatch with the output of ucx_mp_run --print, Open MPI"
step slurm-batch-mpich long 120 "slurm_batch mpich pmi2" "sbatch with the output of ucx_mp_run --print, MPICH"
alone slurm slurm-openmpi slurm-mpich slurm-batch-openmpi slurm-batch-mpich
