# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# arm64 on another machine: a tree of Debian's arm64 packages under build/deps, the cross
# compiler, and programs run by qemu's user emulation.

ucx_mp_arm64_packages="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu
    qemu-user-static"
ucx_mp_arm64_root=$ucx_mp_deps/arm64-root
ucx_mp_arm64_prefix=$ucx_mp_prefix-arm64

# arm64_apt FOLDER ARGUMENT...: use the sources of this system's own packages
arm64_apt() {
    local folder=$1 file
    shift
    mkdir -p "$folder/parts"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*debian*; do
        [ ! -f "$file" ] || cp "$file" "$folder/parts/"
    done
    apt_aside "$folder" -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        -o APT::Install-Recommends=false "$@"
}

# Headers and libraries to build with, and to run programs; unpacked without running the
# packages' scripts
arm64_root() {
    local root=$ucx_mp_arm64_root work=$ucx_mp_deps/arm64-packages package
    [ ! -f "$root/.complete" ] || return 0
    have dpkg-deb || return 1
    say "unpacking arm64's packages into ${root#"$ucx_mp_top"/}"
    rm -rf "$root" "$work"
    mkdir -p "$root" "$work"
    arm64_apt "$work" update && arm64_apt "$work" install --download-only \
        bash coreutils libc-bin libc6-dev libgtest-dev libopenmpi-dev \
        libstdc++6 libucx-dev libxml2-dev openmpi-bin python3 ucx-utils || return
    for package in "$work"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$root" || return
    done
    ln -sf bash "$root/bin/sh"
    rm -rf "$work"
    touch "$root/.complete"
}

# arm64_compiler: MPI's, as configure asks for it
arm64_compiler() {
    local libraries=$ucx_mp_arm64_root/usr/lib/aarch64-linux-gnu/openmpi
    cat > "$ucx_mp_build/arm64-mpicc" <<END
#!/bin/sh
[ "\$1" != -show ] || { echo aarch64-linux-gnu-gcc "-I$libraries/include"; exit; }
exec aarch64-linux-gnu-gcc "--sysroot=$ucx_mp_arm64_root" \\
    -isystem "$libraries/include" "\$@" "-L$libraries/lib" -lmpi
END
    chmod +x "$ucx_mp_build/arm64-mpicc"
}

# arm64_run COMMAND...: run in this folder as on an arm64 machine, with that tree as the
# system's files. qemu is registered with the kernel in namespaces of our own (since Linux
# 6.7): this needs no privileges and leaves nothing behind.
arm64_run() {
    unshare --user --map-root-user --mount sh -ec '
        root=$1 here=$PWD
        shift
        mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
        magic="\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        magic="$magic\x02\x00\xb7\x00"
        mask="\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff"
        mask="$mask\xfe\xff\xff\xff"
        printf ":aarch64:M::%s:%s:%s:F" "$magic" "$mask" \
            "$(command -v qemu-aarch64-static)" \
            > /proc/sys/fs/binfmt_misc/register
        for folder in /*/; do
            case $folder in
            /bin/ | /boot/ | /etc/ | /lib*/ | /sbin/ | /usr/ | /var/) ;;
            *)  mkdir -p "$root$folder"
                mount --rbind "$folder" "$root$folder" ;;
            esac
        done
        PATH=/usr/bin:/bin
        export PATH
        exec /usr/sbin/chroot "$root" /bin/sh -c "cd \"\$0\" && exec \"\$@\"" "$here" "$@"
        ' arm64_run "$ucx_mp_arm64_root" "$@"
}

# arm64_wheel RELEASE: unpack this UCX for arm64 and print its folder
arm64_wheel() {
    local folder=$ucx_mp_deps/arm64-ucx-$1
    if [ ! -f "$folder/.complete" ]; then
        rm -rf "$folder"
        # shellcheck disable=SC2046
        python3 -m pip install $(wheel_source) --quiet --no-deps \
            --disable-pip-version-check --only-binary :all: \
            --platform manylinux_2_28_aarch64 --target "$folder" \
            "libucx-cu12==$1" >&2 && touch "$folder/.complete" || return
    fi
    say "$folder/libucx/lib"
}
