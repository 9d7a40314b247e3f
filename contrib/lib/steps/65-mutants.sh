# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# Small mistakes made in the module on purpose: do the quick tests notice them?

# mutants_noticed: 150 of a seed and the given ones. What has been run is kept
# in build/mutants, so a run that was stopped goes on where it was.
mutants_noticed() {
    local headers
    headers=$(header_arguments) || return
    "$ucx_mp_top/test/mutants/run" --build "$ucx_mp_build/mutants" \
        --jobs "$ucx_mp_jobs" --configure "${headers//$'\n'/ }" \
        --page "$ucx_mp_top/docs/mutants.md"
}

step mutants long 28800 mutants_noticed \
     "small mistakes in the module are noticed: docs/mutants.md"
