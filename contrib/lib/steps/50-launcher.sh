# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The launcher's own tests.

launcher_tests() {
    local folder=$ucx_mp_top/test/launcher
    [ -x "$folder/run" ] || { skip "no test/launcher/run"; return; }
    PATH=$ucx_mp_prefix/bin:$PATH passing_on '[1-9][0-9]* passed' "$folder/run"
}

step launcher full 180 launcher_tests "ucx_mp_run finds, sets, warns, cleans up"
