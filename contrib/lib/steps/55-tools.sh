# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The tools that look at a node, on emulated ones.

tools_topo() {
    UCX_MP_RUN=$ucx_mp_prefix/bin/ucx_mp_run \
    UCX_MP_TOPO=$ucx_mp_prefix/bin/ucx_mp_topo \
        passing_on 'topo: [1-9][0-9]* passed' "$ucx_mp_top/test/topo/run"
}

step topo quick 120 tools_topo \
     "ucx_mp_topo: every node as text, picture, XML that comes back, and plans"
