# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The launcher's own tests.

launcher_tests() {
    UCX_MP_RUN=$ucx_mp_prefix/bin/ucx_mp_run UCX_MP_BUILD=$ucx_mp_build \
        passing_on '[1-9][0-9]* passed' "$ucx_mp_top/test/launcher/run"
}

step launcher full 300 launcher_tests "ucx_mp_run finds, sets, warns, cleans up"
