# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# NIXL's agents on an emulated node: which memory goes to which, by what.
# nixl_check is in 35-releases.sh.

# nixl_enabled ARGUMENTS...: as a notebook has it, by ucx_mp.enable() alone
nixl_enabled() {
    local -x PYTHONPATH=$ucx_mp_prefix/share/ucx-mp/python
    nixl_check --stock --enable "$@"
}

step nixl-enable full 60 "nixl_enabled --transport cuda_ipc VwV PwV" \
     "NIXL with ucx_mp.enable(), without the launcher"
step nixl-host full 120 "nixl_check --transport cuda_ipc PwV HwV PrV HrV" \
     "host memory of one NIXL agent, GPU memory of another's process"
step nixl-peer-host full 120 "nixl_check --transport cuda_cma VwH VrP" \
     "GPU memory of one NIXL agent, host memory of another's process"
step nixl-near full 120 "nixl_check --near --transport cuda_ipc VwV VrV PwV
                         HwV PrV HrV" \
     "two NIXL agents in one process"
