#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Makes ./configure out of configure.ac. Needs autoconf, automake and libtool.

set -eu
cd "$(dirname "$0")"

for tool in autoreconf automake libtoolize; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "autogen.sh: $tool is missing; on Debian and Ubuntu:" \
             "apt-get install autoconf automake libtool pkg-config" >&2
        exit 1
    fi
done

mkdir -p config/aux
autoreconf --install --force "$@"
