# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# What the build and the tests need, and how it is come by: distribution
# packages through apt, headers and other releases of UCX as Python wheels
# that are unpacked under build/deps. Whatever is there already is left alone.

ucx_mp_build_packages="autoconf automake libtool pkg-config make gcc g++
    binutils libucx-dev libxml2-dev libopenmpi-dev openmpi-bin
    libmpich-dev mpich
    python3 python3-pip python3-venv"
ucx_mp_check_packages="clang clang-format-14 shellcheck libgtest-dev help2man
    ucx-utils dpkg-dev valgrind libclang-rt-14-dev
    munge slurm-wlm environment-modules"

# install_hint PACKAGE...: the command that installs these, which go by Debian's
# names here, with what this machine has
install_hint() {
    local name names=
    have dnf || { say "as root: apt-get install $*"; return; }
    for name in "$@"; do
        case $name in
        build-essential | dpkg-dev | debhelper | dh-python | lintian | \
            clang-format-14) continue ;;
        g++) name=gcc-c++ ;;
        g++-aarch64-linux-gnu) name=gcc-c++-aarch64-linux-gnu ;;
        libclang-rt-14-dev) name=compiler-rt ;;
        libgtest-dev) name=gtest-devel ;;
        libmpich-dev) name=mpich-devel ;;
        libopenmpi-dev) name=openmpi-devel ;;
        openmpi-bin) name=openmpi ;;
        libucx-dev) name=ucx-devel ;;
        libucx0 | ucx-utils) name=ucx ;;
        libxml2-dev) name=libxml2-devel ;;
        pkg-config) name=pkgconf-pkg-config ;;
        python3-venv) name=python3-libs ;;
        rpm) name=rpm-build ;;
        shellcheck) name=ShellCheck ;;
        slurm-wlm) name=slurm ;;
        esac
        case " $names " in *" $name "*) ;; *) names="$names $name" ;; esac
    done
    say "as root: dnf install${names:- nothing}"
}

# packages_install PACKAGE...: those that dpkg does not know as installed. A
# tool that came another way (a python3 of one's own) does not count against
# it: without root we only say what is missing, and go on.
packages_install() {
    local name missing=

    if ! have dpkg-query; then
        say "packages are left to you here; $(install_hint "$@")"
        return 0
    fi
    for name in "$@"; do
        dpkg-query -W -f '${Status}\n' "$name" 2>/dev/null |
            grep -q 'ok installed' || missing="$missing $name"
    done
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086
    if ! as_root true; then
        say "missing, and neither root nor sudo here; $(install_hint $missing)"
        return 0
    fi
    say "installing$missing"
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends $missing >/dev/null 2>&1 ||
        packages_install_each $missing
    # Tests start daemons of their own: the machine goes without
    [[ $missing != *munge* && $missing != *slurm* ]] || ! have systemctl ||
        as_root systemctl disable --now munge slurmctld slurmd \
            >/dev/null 2>&1 || true
}

packages_install_each() {
    local name
    as_root apt-get update -qq >/dev/null 2>&1 || true
    for name in "$@"; do
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
                --no-install-recommends "$name" >/dev/null 2>&1 ||
            say "could not install $name ($(install_hint "$name"))"
    done
}

# packages_installed: those of them that are there, with their versions
packages_installed() {
    # shellcheck disable=SC2086
    dpkg-query -W $ucx_mp_build_packages $ucx_mp_check_packages 2>/dev/null
}

# into a folder of our own: pip's advice about root does not apply
export PIP_ROOT_USER_ACTION=ignore

# wheel_folder NAME REQUIREMENT...: unpacks wheels into build/deps/NAME.
# UCX_MP_WHEELS names a folder of wheels to take them from instead of the net.
# Steps that run side by side may want the same one.
wheel_folder() {
    local name=$1 folder=$ucx_mp_deps/$1
    shift
    [ ! -f "$folder/.complete" ] || return 0

    mkdir -p "$ucx_mp_deps"
    (
        flock 9
        [ ! -f "$folder/.complete" ] || exit 0
        say "unpacking $* into ${folder#"$ucx_mp_top"/}"
        rm -rf "$folder"
        # shellcheck disable=SC2046
        python3 -m pip install $(wheel_source) --quiet --no-deps \
            --disable-pip-version-check --target "$folder" "$@" ||
            { say "could not get $* for build/deps/$name"; exit 1; }
        touch "$folder/.complete"
    ) 9> "$ucx_mp_deps/.lock"
}

# wheel_venv REQUIREMENT...: installs wheels into the one virtual environment
# build/deps/venv, as somebody would who works in one.
wheel_venv() {
    local venv=$ucx_mp_deps/venv mark
    mark=$venv/.$(printf '%s_' "$@")

    [ ! -f "$mark" ] || return 0
    say "installing $* into ${venv#"$ucx_mp_top"/}"
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || return 1
    # shellcheck disable=SC2046
    if "$venv/bin/python" -m pip install $(wheel_source) --quiet \
           --disable-pip-version-check "$@"; then
        touch "$mark"
    else
        say "could not install $* into build/deps/venv"
        return 1
    fi
}

wheel_source() {
    if [ -n "$ucx_mp_wheels" ]; then
        printf '%s ' --no-index --find-links "$ucx_mp_wheels"
    fi
}

# apt_aside FOLDER ARGUMENT...: apt-get for a machine with nothing installed and
# with the package sources in FOLDER/parts; the system's own stay as they are
apt_aside() {
    local folder=$1
    shift
    mkdir -p "$folder/parts" "$folder/state/lists/partial" \
             "$folder/cache/archives/partial"
    : > "$folder/status"
    apt-get -q -y -o APT::Sandbox::User=root -o Debug::NoLocking=true \
        -o Dir::Etc::SourceList=/dev/null \
        -o Dir::Etc::SourceParts="$folder/parts" -o Dir::State="$folder/state" \
        -o Dir::State::status="$folder/status" \
        -o Dir::Cache="$folder/cache" "$@"
}

# ucx_arguments ARGUMENT...: configure's --with-ucx, of a wheel, where the system's
# UCX is too old to build with and no argument names another. Prints it.
ucx_arguments() {
    local version
    case " $* " in *" --with-ucx="*) return 0 ;; esac
    version=$(pkg-config --modversion ucx 2> /dev/null) || return 0
    [ "$(printf '%s\n' 1.13 "$version" | sort -V | head -n 1)" != 1.13 ] ||
        return 0
    wheel_folder ucx-1.17.0 libucx-cu12==1.17.0 >&2 || return 1
    printf '%s\n' "--with-ucx=$ucx_mp_deps/ucx-1.17.0"
}

# header_arguments: configure's --with-cuda and --with-nvml, from a toolkit if
# there is one with both headers, else from wheels. Prints them.
header_arguments() {
    local root
    for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr; do
        if [ -n "$root" ] && [ -f "$root/include/cuda.h" ] &&
           [ -f "$root/include/nvml.h" ]; then
            printf '%s\n' "--with-cuda=$root" "--with-nvml=$root"
            return 0
        fi
    done
    wheel_folder cuda nvidia-cuda-runtime nvidia-nvml-dev >&2 || return 1
    printf '%s\n' "--with-cuda=$ucx_mp_deps/cuda" \
                  "--with-nvml=$ucx_mp_deps/cuda"
}
