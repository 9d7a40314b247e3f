# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Folders, and messages of the two commands. Sourced, not run.

ucx_mp_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
ucx_mp_build=${UCX_MP_BUILD:-$ucx_mp_top/build}
ucx_mp_deps=$ucx_mp_build/deps
ucx_mp_prefix=$ucx_mp_build/install
ucx_mp_jobs=${UCX_MP_JOBS:-$(nproc)}
# Compilers wait for files, and other programs take their share of the processors
ucx_mp_make_jobs=$((2 * ucx_mp_jobs))

ucx_mp_wheels=${UCX_MP_WHEELS:-}

# The caller's variables must not change the UCX or module under test (and UCX
# warns about unknown variables with its prefix)
unset "${!UCX_@}" "${!CUEMU_@}" "${!OMPI_MCA_pml@}" "${!OMPI_MCA_btl@}" \
      "${!OMPI_MCA_mtl@}" "${!OMPI_MCA_osc@}" "${!OMPI_MCA_opal@}"
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1

say() {
    printf '%s\n' "$*"
}

# die MESSAGE: end the command with a message
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 2
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# as_root COMMAND...: run it as root, or fail if this would need a password
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# Only tests start MPI programs here; in a container they run as root
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
