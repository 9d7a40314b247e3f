# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# The other ways onto a machine: a module file, Debian's package.

# What "module load" sets finds the programs and the Python package, from
# wherever the prefix has been moved to
modulefile() {
    local moved=$ucx_mp_build/log/moved
    have modulecmd || { skip "no environment modules"; return; }
    rm -rf "$moved"
    mkdir -p "$moved"
    cp -r "$ucx_mp_prefix" "$moved/ucx-mp" || return
    (
        unset PYTHONPATH
        eval "$(MODULEPATH=$moved/ucx-mp/share/ucx-mp/modulefiles \
                modulecmd bash load ucx-mp)"
        [ "$(command -v ucx_mp_run)" = "$moved/ucx-mp/bin/ucx_mp_run" ] ||
            { say "ucx_mp_run is '$(command -v ucx_mp_run)'"; exit 1; }
        python3 -c 'import sys, ucx_mp; sys.exit(not ucx_mp.enable())' ||
            exit 1
        ucx_mp_run --doctor --emulate beluga
    )
    local status=$?
    rm -rf "$moved"
    return $status
}

# files_of FOLDER: what lies below a prefix, by its place in one of ours; without
# what only a build with an MPI's compiler has
files_of() {
    (cd "$1" && find . -type f -o -type l) |
        sed -e 's|^\./||' -e 's|^lib/[^/]*-linux-gnu/|lib/|' -e 's|^lib64/|lib/|' |
        grep -vE '^(share/(doc|man|lintian|licenses)|lib/python3)/|/ucx_mp_bw$|\.pyc$' | sort
}

# Built, looked at by lintian, unpacked: the same files at the same places
debian_package() {
    local unpacked=$ucx_mp_build/debian/unpacked
    have dh && have lintian || { skip "no debhelper, lintian"; return; }
    "$ucx_mp_top/contrib/debian/build" --no-install || return
    rm -rf "$unpacked"
    dpkg-deb -x "$ucx_mp_build"/debian/*.deb "$unpacked" || return
    diff <(files_of "$ucx_mp_prefix") <(files_of "$unpacked/usr") ||
        { say "the package and make install differ"; return 1; }
    "$unpacked/usr/bin/ucx_mp_run" --doctor --emulate beluga
}

# The same with RPM's, by Debian's rpmbuild
rpm_package() {
    local unpacked=$ucx_mp_build/rpm/unpacked
    have rpmbuild && have rpm2cpio && have cpio || { skip "no rpmbuild"; return; }
    "$ucx_mp_top/contrib/rpm/build" --no-install || return
    mkdir -p "$unpacked"
    (cd "$unpacked" && rpm2cpio "$ucx_mp_build"/rpm/*.rpm | cpio -idm --quiet) ||
        return
    diff <(files_of "$ucx_mp_prefix") <(files_of "$unpacked/usr") ||
        { say "the package and make install differ"; return 1; }
    ls "$unpacked"/usr/share/man/man1/ucx_mp_{run,topo,perf,tune,trace}.1* &&
        "$unpacked/usr/bin/ucx_mp_run" --doctor --emulate beluga
}

step modulefile full 60 modulefile \
     "a moved prefix by its module file, to a checked message"
step rpm long 1800 rpm_package \
     "the RPM package: the files of make install, man pages, a checked message"
step debian long 1800 debian_package \
     "Debian's package: lintian, the files of make install, a checked message"
