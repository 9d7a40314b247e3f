# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Build the Python wheel: a compiler that links against an old glibc on any machine, a libxml2
# to link into the emulated node, and the tree built with both. Each part is skipped if it
# exists.

ucx_mp_wheel_packages="autoconf automake libtool pkg-config make gcc binutils
    dpkg-dev python3 python3-pip"
ucx_mp_zig=$ucx_mp_deps/zig
ucx_mp_zig_version=0.17.1
ucx_mp_wheel_glibc=2.27

# wheel_for ARCH: x86_64 or aarch64, independent of this machine
wheel_for() {
    ucx_mp_wheel_arch=$1
    ucx_mp_wheel_host=$1-linux-gnu
    ucx_mp_wheel_build=$ucx_mp_build/wheel-$1
    ucx_mp_wheel_tools=$ucx_mp_zig/$1
    ucx_mp_wheel_libxml2=$ucx_mp_deps/libxml2-static-$1
}

# zig keeps its own compiled libraries beside it, for the next run
export ZIG_GLOBAL_CACHE_DIR=$ucx_mp_deps/zig-cache
export ZIG_LOCAL_CACHE_DIR=$ucx_mp_deps/zig-cache

# zig from PyPI, and cc, c++, ar and ranlib as configure needs them: one word. zig compiles
# its own libraries for each level of optimization: those without any would take most of the
# wheel's time, for a test of configure that names no level. Debugging information would be stripped.
wheel_compiler() {
    local name word target="-target $ucx_mp_wheel_host.$ucx_mp_wheel_glibc -O2 -g0"
    wheel_folder zig "ziglang==$ucx_mp_zig_version" || return
    mkdir -p "$ucx_mp_wheel_tools" || return
    for name in cc c++ ar ranlib; do
        word=$name
        case $name in cc|c++) word="$name $target" ;; esac
        printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$ucx_mp_zig/ziglang/zig" \
               "$word" > "$ucx_mp_wheel_tools/$name" &&
            chmod +x "$ucx_mp_wheel_tools/$name" || return
    done
}

# wheel_source_package NAME: download its newest source package into the current folder, from
# the sources of this system's own packages; changes none of the system's lists, and needs no
# root.
wheel_source_package() {
    local file apt=$PWD/apt
    if [ -n "${UCX_MP_LIBXML2:-}" ]; then
        cp "$UCX_MP_LIBXML2"/"$1"_* .
        return
    fi
    mkdir -p "$apt/parts" "$apt/state/lists/partial" \
             "$apt/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -f "$file" ] || sed 's/^deb /deb-src /' "$file" \
            > "$apt/parts/${file##*/}.list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" \
            > "$apt/parts/${file##*/}"
    done
    set -- -q -o Dir::Etc::SourceList=/dev/null \
        -o Dir::Etc::SourceParts="$apt/parts" -o Dir::State="$apt/state" \
        -o Dir::Cache="$apt/cache" -o Dir::State::status=/var/lib/dpkg/status \
        "$1"
    # if one of many lists is unavailable, the package may be in another one
    apt-get "${@:1:$#-1}" update
    apt-get "${@:1:$#-1}" source --download-only "${!#}"
}

# libxml2 with its parser only: no ICU, iconv, lzma, zlib, network; hidden, so that it does not
# conflict with a program's own libxml2
wheel_libxml2() {
    local folder=$ucx_mp_wheel_libxml2 
    local work=$ucx_mp_deps/libxml2-work-$ucx_mp_wheel_arch
    local made_of="zig $ucx_mp_zig_version, glibc $ucx_mp_wheel_glibc"
    # its own Makefiles would run the automake of their time
    local still="AUTOMAKE=: ACLOCAL=: AUTOCONF=: AUTOHEADER=:"

    [ "$(cat "$folder/.complete" 2>/dev/null)" != "$made_of" ] || return 0
    have dpkg-source ||
        { say "no dpkg-source here, which the wheel is made with on Debian and" \
              "Ubuntu (as root: apt-get install dpkg-dev)"; return 1; }
    rm -rf "$work" "$folder"
    mkdir -p "$work/build"
    (
        cd "$work" || exit
        wheel_source_package libxml2 &&
            dpkg-source --no-check -x libxml2_*.dsc source && cd build || exit
        CONFIG_SHELL=/bin/sh SHELL=/bin/sh ../source/configure --quiet --host="$ucx_mp_wheel_host" \
            --prefix="$folder" --disable-shared --with-minimum --with-threads \
            --without-icu --without-iconv --without-lzma --without-zlib \
            CC="$ucx_mp_wheel_tools/cc" AR="$ucx_mp_wheel_tools/ar" \
            RANLIB="$ucx_mp_wheel_tools/ranlib" \
            CFLAGS="-O2 -w -fPIC -fvisibility=hidden" LDFLAGS=-Wl,-s || exit
        # shellcheck disable=SC2086
        make -s -j"$ucx_mp_make_jobs" $still libxml2.la &&
            make -s $still install-libLTLIBRARIES &&
            make -s -C include $still install || exit
        cp ../source/Copyright "$folder/LICENSE.libxml2"
    ) || return
    rm -rf "$work"
    printf '%s' "$made_of" > "$folder/.complete"
}

# Only headers of MPI are used, and these declare the same on both processors: C's types have
# the same sizes there. The prefix is the package's usual place in a Python installation:
# programs find everything relative to themselves.
wheel_configure() {
    local folder=$ucx_mp_wheel_build arguments sum
    wheel_folder cuda nvidia-cuda-runtime nvidia-nvml-dev || return
    wheel_folder cu12 libucx-cu12==1.22.0 || return
    generate || return
    arguments=(--prefix=/ucx_mp --libdir=/ucx_mp/lib 
        --host="$ucx_mp_wheel_host"
        --with-mpicc=no
        --with-openmpi-mpicc="mpicc.openmpi mpicc"
        --with-mpich-mpicc="mpicc.mpich mpicc" --with-ucx="$ucx_mp_deps/cu12"
        --with-cuda="$ucx_mp_deps/cuda" --with-nvml="$ucx_mp_deps/cuda"
        CC="$ucx_mp_wheel_tools/cc" CXX=no AR="$ucx_mp_wheel_tools/ar"
        RANLIB="$ucx_mp_wheel_tools/ranlib" CFLAGS=-O2 "LDFLAGS=-Wl,-s"
        LIBXML2_CFLAGS="-I$ucx_mp_wheel_libxml2/include/libxml2"
        LIBXML2_LIBS="$ucx_mp_wheel_libxml2/lib/libxml2.a")
    if [ "$(cat "$folder/.arguments" 2>/dev/null)" = "${arguments[*]}" ] &&
       [ -f "$folder/Makefile" ]; then
        return 0
    fi
    # results of configure for a compiler stay valid
    sum=$(cksum <<< "$ucx_mp_zig_version ${arguments[*]}")
    sum=${sum%% *}
    rm -rf "$folder"
    mkdir -p "$folder"
    (cd "$folder" &&
        CONFIG_SHELL=/bin/sh SHELL=/bin/sh "$ucx_mp_top/configure" --quiet \
        --cache-file="$ucx_mp_deps/wheel-config-$sum.cache" \
        "${arguments[@]}") || return
    printf '%s' "${arguments[*]}" > "$folder/.arguments"
}

wheel_make() {
    local folder=$ucx_mp_wheel_build
    local subdir
    rm -rf "$folder/stage"
    for subdir in src src/cuemu src/tools src/tools/tune python; do
        make -C "$folder/$subdir" -j"$ucx_mp_make_jobs" --no-print-directory -s &&
            make -C "$folder/$subdir" --no-print-directory -s install \
                 DESTDIR="$folder/stage" || return
    done
    make -C "$folder" --no-print-directory -s install-data-am \
         DESTDIR="$folder/stage"
}

# wheel_pack FOLDER: make the wheel and print its path
wheel_pack() {
    python3 "$ucx_mp_top/contrib/lib/wheel_pack.py" \
        --version "$(sed -n 's/^AC_INIT(\[ucx-mp\], \[\([^]]*\)\].*/\1/p' \
                         "$ucx_mp_top/configure.ac")" \
        --glibc "$ucx_mp_wheel_glibc" --arch "$ucx_mp_wheel_arch" \
        --output "$1" \
        --license "$ucx_mp_top/LICENSE" \
        --license "$ucx_mp_wheel_libxml2/LICENSE.libxml2" \
        "$ucx_mp_wheel_build/stage/ucx_mp"
}
