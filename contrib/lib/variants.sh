# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Out-of-tree builds of this tree, one folder per variant: build/NAME.

# main_variant MAKE_FOLDER...: configure build/main and make the folders. Only tests are in
# C++, and clang compiles them in half of g++'s time. Describing all variables to a debugger
# would take a seventh of gcc's time.
main_variant() {
    local cxx=g++
    ! have clang++ || cxx=clang++
    variant main "$@" -- "--prefix=$ucx_mp_prefix" "--libdir=$ucx_mp_prefix/lib" \
            --enable-werror CC=gcc "CXX=$cxx" CFLAGS="-g1 -O2"
}

# generate: make ./configure if it is missing or older than its sources
generate() {
    local stale
    if [ -f "$ucx_mp_top/config.status" ]; then
        say "this source tree was configured in place; run make distclean"
        return 1
    fi
    if [ -f "$ucx_mp_top/configure" ]; then
        stale=$(cd "$ucx_mp_top" &&
                find configure.ac config/m4 src test examples \
                     \( -name 'configure.ac' -o -name '*.m4' \
                        -o -name Makefile.am -o -name Makefile.inc \) \
                     -newer configure ! -name 'l*.m4')
        [ -n "$stale" ] || return 0
    fi
    "$ucx_mp_top/autogen.sh"
}

# configured CONFIGURE ARGUMENT...: configure in the present folder. The shell of configure,
# libtool and make is /bin/sh: where it is dash, it starts in half of bash's time. Builds by one C
# compiler share those of its results that depend on no other argument.
configured() {
    local configure=$1 word cache
    shift
    cache=$ucx_mp_build/configured-$(packages_installed | cksum | cut -d ' ' -f 1)
    for word; do
        case $word in CC=* | --host=*) cache+=-${word//[^a-zA-Z0-9_]/_} ;; esac
    done
    cp "$cache" config.cache 2>/dev/null || true
    CONFIG_SHELL=/bin/sh SHELL=/bin/sh "$configure" --quiet --cache-file=config.cache "$@" ||
        return
    [ -f config.cache ] || return 0
    grep -vEi 'ac_cv_env_|cxx|pkg_cv_|_header_uc|mpi_cc|python' config.cache > config.shared &&
        mv config.shared "$cache"
    rm -f config.cache
}

# variant NAME MAKE_FOLDER... -- CONFIGURE_ARGUMENT...: configure build/NAME if
# the arguments have changed, or configure's findings may have, and make the
# folders ('.' is everything).
variant() {
    local name=$1 folder=$ucx_mp_build/$1 subdirs=() headers arguments packages
    shift
    while [ "$1" != -- ]; do
        subdirs+=("$1")
        shift
    done
    shift

    generate || return 1
    headers=$(header_arguments && ucx_arguments "$@") || return 1
    # shellcheck disable=SC2206
    arguments=($headers "$@")
    packages=$(packages_installed)
    mkdir -p "$folder"
    if [ "$(cat "$folder/.arguments" 2>/dev/null)" != "${arguments[*]}" ] ||
       [ ! -f "$folder/Makefile" ]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        (cd "$folder" && configured "$ucx_mp_top/configure" "${arguments[@]}") ||
            return 1
        printf '%s' "${arguments[*]}" > "$folder/.arguments"
    elif [ "$(cat "$folder/.packages" 2>/dev/null)" != "$packages" ]; then
        (cd "$folder" && ./config.status --quiet --recheck &&
            ./config.status --quiet && rm -f config.cache) || return 1
    fi
    printf '%s' "$packages" > "$folder/.packages"
    for name in "${subdirs[@]}"; do
        make -C "$folder/$name" -j"$ucx_mp_make_jobs" --no-print-directory ||
            return 1
    done
}

# module_objects VARIANT CFLAGS PATTERN: compile the module's objects whose names match
# with these flags, before all others
module_objects() {
    local folder=$ucx_mp_build/$1/src objects
    objects=$(make -C "$folder" -s --no-print-directory \
        --eval='names: ; @echo $(am_libuct_cuda_objects_la_OBJECTS)' names) || return
    # shellcheck disable=SC2046
    make -C "$folder" -j"$ucx_mp_make_jobs" --no-print-directory \
        CFLAGS="$2" $(tr ' ' '\n' <<< "$objects" | grep -E "$3")
}

# dist_archive VERSION FOLDER: make ucx-mp-VERSION.tar.gz there, by "make dist"
dist_archive() {
    main_variant src &&
        make -C "$ucx_mp_build/main" --no-print-directory dist || return
    mv "$ucx_mp_build/main/ucx-mp-$1.tar.gz" "$2" ||
        { say "this is not version $1"; return 1; }
}
