# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Installation and removal: make install, a module file, packages.

# files_in FOLDER: list its files, except folders shared with other packages
files_in() {
    (cd "$1" && find . ! -type d -o -name 'ucx-mp*') | sort
}

# Each page is found in its place, and pages named in other pages exist
installed_pages() {
    local tool page link rc=0
    for tool in "$1"/bin/ucx_mp_*; do
        [ -s "$1/share/man/man1/${tool##*/}.1" ] ||
            { say "no manual page of ${tool##*/}"; rc=1; }
    done
    cd "$1/share/doc/ucx-mp" || return
    for page in "$ucx_mp_top"/docs/*.md; do
        cmp "$page" "docs/${page##*/}" || rc=1
    done
    for page in README.md docs/*.md; do
        while read -r link; do
            [ -e "${page%"${page##*/}"}$link" ] ||
                { say "$page: no $link"; rc=1; }
        done < <(grep -oE '\]\([^):#]+\.(md|svg)' "$page" | cut -c 3- |
                 grep -vE '^(\.\./)*(contrib|examples|src|test)/')
    done
    return $rc
}

# make install beside other packages' files, and make uninstall
installed_and_gone() {
    local root=$ucx_mp_build/log/installed rc=0
    local make=(make -s -C "$ucx_mp_build/main" --no-print-directory
                DESTDIR="$root")
    local prefix=$root$ucx_mp_prefix
    rm -rf "$root"
    mkdir -p "$prefix"/{bin,share/man/man1,share/doc} || return
    touch "$prefix"/{bin/other,share/man/man1/other.1}
    files_in "$root" > "$root.before"
    "${make[@]}" install >/dev/null || return
    (installed_pages "$prefix") || rc=1
    PYTHONDONTWRITEBYTECODE='' PYTHONPATH=$prefix/share/ucx-mp/python \
        python3 -c 'import ucx_mp' || return
    "${make[@]}" uninstall >/dev/null || return
    files_in "$root" | diff "$root.before" - ||
        { say "left behind, or gone with it, in $root"; return 1; }
    rm -rf "$root" "$root.before"
    return $rc
}

# The kept manual pages equal the programs' help. Other releases of Python format options
# differently.
manual_pages() {
    local made=$ucx_mp_build/log/man
    have help2man || { skip "no help2man"; return; }
    python3 -c 'import sys
sys.exit(not (3, 10) <= sys.version_info < (3, 13))' ||
        { skip "this Python's --help looks otherwise"; return; }
    mkdir -p "$made" &&
        "$ucx_mp_top/contrib/lib/man_pages" "$ucx_mp_prefix/bin" "$made" &&
        diff -r "$ucx_mp_top/src/tools/man" "$made" ||
        { say "contrib/lib/man_pages makes them anew"; return 1; }
}

# The settings of "module load" find the programs and the Python package, also after the
# prefix has been moved
modulefile() {
    local moved=$ucx_mp_build/log/moved
    have modulecmd || { skip "no environment modules"; return; }
    rm -rf "$moved"
    mkdir -p "$moved"
    cp -r "$ucx_mp_prefix" "$moved/ucx-mp" || return
    (
        unset PYTHONPATH "${!UCX_@}"
        eval "$(MODULEPATH=$moved/ucx-mp/share/ucx-mp/modulefiles \
                modulecmd bash load ucx-mp)"
        ! compgen -e | grep '^UCX_' ||
            { say "... of which UCX would warn"; exit 1; }
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

# files_of FOLDER: list the files below a prefix by their place in one of ours; without files
# that only a build with an MPI's compiler has
files_of() {
    (cd "$1" && find . -type f -o -type l) |
        sed -e 's|^\./||' -e 's|^lib/[^/]*-linux-gnu/|lib/|' -e 's|^lib64/|lib/|' |
        grep -vE '^(share/(doc|man|lintian|licenses)|lib/python3)/|/ucx_mp_bw$|\.pyc$' | sort
}

# pages_in FOLDER [NAME]: list a package's pages below its share; documents by its name
pages_in() {
    ls "$1"/man/man1/ucx_mp_{run,topo,perf,tune,trace}.1* \
       "$1/doc/${2:-ucx-mp}"/{README.md,docs/{getting-started,mpi,python-and-nixl,reference}.md}
}

# Built, checked by lintian, unpacked: the same files in the same places
debian_package() {
    local unpacked=$ucx_mp_build/debian/unpacked
    have dh && have lintian || { skip "no debhelper, lintian"; return; }
    "$ucx_mp_top/contrib/debian/build" --no-install || return
    rm -rf "$unpacked"
    dpkg-deb -x "$ucx_mp_build"/debian/*.deb "$unpacked" || return
    diff <(files_of "$ucx_mp_prefix") <(files_of "$unpacked/usr") ||
        { say "the package and make install differ"; return 1; }
    dpkg-deb -I "$ucx_mp_build"/debian/*.deb prerm | grep py3clean > /dev/null ||
        { say "what Python compiles stays when it is removed"; return 1; }
    pages_in "$unpacked/usr/share" ucx-cuda-multipath &&
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
    pages_in "$unpacked/usr/share" ucx-cuda-multipath &&
        "$unpacked/usr/bin/ucx_mp_run" --doctor --emulate beluga
}

step install quick 60 installed_and_gone \
     "make install and make uninstall leave no file"
step man-pages quick 30 manual_pages \
     "manual pages agree with the programs' --help"
step modulefile full 60 modulefile \
     "the module file of a moved prefix: a checked message"
step rpm long 1800 rpm_package \
     "the RPM package: its files, a checked message"
step debian long 1800 debian_package \
     "the Debian package: lintian, its files, a checked message"
