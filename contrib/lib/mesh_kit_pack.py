#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Pack the mesh kit: mesh_kit.py as a program that Python starts, the package of
our wheel, and the libraries of UCX's."""

import argparse
import os
import re
import zipfile

TIME = (1980, 1, 1, 0, 0, 0)    # two packings of the same files are the same
LIBRARY = re.compile(r'.*\.so\.0$')


def add(archive, name, data, is_program=False):
    info = zipfile.ZipInfo(name, TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (0o100755 if is_program else 0o100644) << 16
    archive.writestr(info, data)


def ucx_files(folder):
    """Yield the libraries that a program loads, each once, and the license."""
    for above, _, names in sorted(os.walk(folder)):
        inside = os.path.relpath(above, folder)
        for name in sorted(names):
            if (inside.startswith('libucx/lib') and LIBRARY.match(name)) or \
                    inside.endswith('.libs') or \
                    (name.startswith('LICENSE') and 'dist-info' in inside):
                yield os.path.normpath(os.path.join(inside, name)), \
                    os.path.join(above, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--output', required=True)
    parser.add_argument('--revision', required=True)
    parser.add_argument('--program', required=True)
    parser.add_argument('--ucx', required=True, help='unpacked wheel of UCX')
    parser.add_argument('wheel')
    options = parser.parse_args()
    os.makedirs(os.path.dirname(os.path.abspath(options.output)),
                exist_ok=True)
    part = options.output + '.part'
    with open(part, 'wb') as file:
        file.write(b'#!/usr/bin/env python3\n')
        with zipfile.ZipFile(file, 'w') as archive:
            with open(options.program, 'rb') as program:
                add(archive, '__main__.py', program.read())
            add(archive, 'revision', options.revision + '\n')
            with zipfile.ZipFile(options.wheel) as wheel:
                for info in wheel.infolist():
                    add(archive, 'python/' + info.filename, wheel.read(info),
                        (info.external_attr >> 16) & 0o111)
            for name, path in ucx_files(options.ucx):
                with open(path, 'rb') as library:
                    add(archive, name, library.read(), name.endswith('.so.0'))
    os.chmod(part, 0o755)
    os.replace(part, options.output)


if __name__ == '__main__':
    main()
