# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Requirements of the build and the tests, and their sources: distribution packages
# through apt, headers and other releases of UCX as Python wheels, unpacked under
# build/deps. Existing ones are not changed.

ucx_mp_build_packages="autoconf automake libtool pkg-config make gcc g++
    binutils libucx-dev libxml2-dev libopenmpi-dev openmpi-bin
    libmpich-dev mpich
    python3 python3-pip python3-venv"
ucx_mp_check_packages="clang clang-format-14 shellcheck pyflakes3 locales libgtest-dev help2man
    ucx-utils dpkg-dev valgrind libclang-rt-14-dev
    munge slurm-wlm environment-modules"

# install_hint PACKAGE...: print the command to install these (Debian's names) on
# this machine
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
        locales) name=glibc-locale-source ;;
        pyflakes3) name=python3-pyflakes ;;
        shellcheck) name=ShellCheck ;;
        slurm-wlm) name=slurm ;;
        esac
        case " $names " in *" $name "*) ;; *) names="$names $name" ;; esac
    done
    say "as root: dnf install${names:- nothing}"
}

# packages_install PACKAGE...: install those unknown to dpkg. A tool installed in
# another way (a separate python3) is accepted: without root only print missing
# packages, and go on.
packages_install() {
    local name unit missing='' daemons=''

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
    for unit in munge slurmctld slurmd; do
        systemctl cat "$unit" >/dev/null 2>&1 || daemons="$daemons $unit"
    done
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
            --no-install-recommends $missing >/dev/null 2>&1 ||
        packages_install_each $missing
    # Tests start daemons of their own: disable those that came with the packages
    # shellcheck disable=SC2086
    [[ $missing != *munge* && $missing != *slurm* ]] || ! have systemctl ||
        [ -z "$daemons" ] ||
        as_root systemctl disable --now $daemons >/dev/null 2>&1 || true
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

# packages_installed: print the installed ones, with their versions
packages_installed() {
    # shellcheck disable=SC2086
    dpkg-query -W $ucx_mp_build_packages $ucx_mp_check_packages 2>/dev/null
}

# into a folder of our own: pip's advice about root does not apply
export PIP_ROOT_USER_ACTION=ignore

# wheel_folder NAME REQUIREMENT...: unpack wheels into build/deps/NAME.
# UCX_MP_WHEELS names a folder of wheels to use instead of the network. Concurrent
# steps may need the same one.
wheel_folder() { wheel_unpack --target "$@"; }

# wheel_prefix NAME REQUIREMENT...: the same for wheels with programs: build/deps/NAME
# has bin, lib and include (pip's --target leaves out their lib)
wheel_prefix() { wheel_unpack --prefix "$@"; }

# wheel_unpack OPTION NAME REQUIREMENT...
wheel_unpack() {
    local option=$1 name=$2 folder=$ucx_mp_deps/$2
    shift 2
    [ ! -f "$folder/.complete" ] || return 0

    mkdir -p "$ucx_mp_deps"
    (
        flock 9
        [ ! -f "$folder/.complete" ] || exit 0
        say "unpacking $* into ${folder#"$ucx_mp_top"/}"
        rm -rf "$folder"
        # shellcheck disable=SC2046
        python3 -m pip install $(wheel_source) --quiet --no-deps \
            --disable-pip-version-check "$option" "$folder" "$@" ||
            { say "could not get $* for build/deps/$name"; exit 1; }
        touch "$folder/.complete"
    ) 9> "$ucx_mp_deps/.lock"
}

# source_folder NAME==VERSION: unpack a source package into build/deps/NAME-VERSION
source_folder() {
    local name=${1/==/-} folder=$ucx_mp_deps/${1/==/-}
    [ ! -f "$folder/.complete" ] || return 0

    mkdir -p "$ucx_mp_deps"
    (
        flock 9
        [ ! -f "$folder/.complete" ] || exit 0
        rm -rf "$folder"
        # shellcheck disable=SC2046
        python3 -m pip download $(wheel_source) --quiet --no-deps \
            --disable-pip-version-check --no-binary "${1%%=*}" \
            --dest "$folder" "$1" &&
            tar -xzf "$folder/$name.tar.gz" -C "$folder" --strip-components 1 ||
            { say "could not get the sources of $1"; exit 1; }
        touch "$folder/.complete"
    ) 9> "$ucx_mp_deps/.lock"
}

# wheel_venv REQUIREMENT...: install wheels into the one virtual environment
# build/deps/venv, as a user would.
wheel_venv() {
    local venv=$ucx_mp_deps/venv mark
    mark=$venv/.$(printf '%s_' "$@")

    (
        flock 9 # other steps install into it, too
        [ ! -f "$mark" ] || exit 0
        say "installing $* into ${venv#"$ucx_mp_top"/}"
        [ -x "$venv/bin/python" ] || python3 -m venv "$venv" || exit 1
        # shellcheck disable=SC2046
        "$venv/bin/python" -m pip install $(wheel_source) --quiet \
            --disable-pip-version-check "$@" ||
            { say "could not install $* into build/deps/venv"; exit 1; }
        touch "$mark"
    ) 9> "$ucx_mp_deps/.venv-lock"
}

# python_starts_bare: put a python3 into PATH that has the packages of the present one, but
# runs none of the code in their .pth files: it may take longer than Python's own start
python_starts_bare() {
    local folder=$ucx_mp_build/python sites
    sites=$(python3 -c 'import glob, os, site
sites = [path for path in site.getsitepackages() if os.path.isdir(path)]
if any(line.startswith("import") for path in sites
       for file in glob.glob(path + "/*.pth") for line in open(file)):
    print("\n".join(sites))') && [ -n "$sites" ] || return 0
    rm -rf "$folder"
    python3 -m venv --without-pip "$folder" &&
        echo "$sites" > "$(echo "$folder"/lib/python3*/site-packages)/others.pth" ||
        return 0
    PATH=$folder/bin:$PATH
}

wheel_source() {
    if [ -n "$ucx_mp_wheels" ]; then
        printf '%s ' --no-index --find-links "$ucx_mp_wheels"
    fi
}

# apt_aside FOLDER ARGUMENT...: run apt-get as on a machine without packages, with
# the package sources in FOLDER/parts; the system's own lists are not changed
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

# ucx_arguments ARGUMENT...: print configure's --with-ucx for a wheel, if the
# system's UCX is too old to build with and no argument names another one.
ucx_arguments() {
    local version
    case " $* " in *" --with-ucx="*) return 0 ;; esac
    version=$(pkg-config --modversion ucx 2> /dev/null) || return 0
    [ "$(printf '%s\n' 1.13 "$version" | sort -V | head -n 1)" != 1.13 ] ||
        return 0
    wheel_folder ucx-1.17.0 libucx-cu12==1.17.0 >&2 || return 1
    printf '%s\n' "--with-ucx=$ucx_mp_deps/ucx-1.17.0"
}

# header_arguments: print configure's --with-cuda and --with-nvml, for a toolkit
# with both headers, otherwise for wheels.
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
