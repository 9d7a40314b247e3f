#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Packs an installed tree as a Python wheel, after it has been looked through.

Every ELF file may need the C library up to --glibc, and libraries that come
along; nothing else. Two runs over the same tree give the same bytes.
"""

import argparse
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile

NAME = 'ucx_cuda_multipath'
PACKAGE = 'ucx_mp'
LIBC = re.compile(r'(lib(c|m|dl|rt|pthread)\.so\.\d+|ld-linux-.*\.so\.\d+)$')
PAGES = re.compile(r'share/(man|doc)/')

METADATA = '''Metadata-Version: 2.1
Name: ucx-cuda-multipath
Version: {version}
Summary: GPU messages over all paths of a node, for UCX
License: BSD-3-Clause
Requires-Python: >=3.6
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
{licenses}Description-Content-Type: text/markdown

A CUDA transport module for UCX 1.13 to 1.23. It sends one large GPU message over
all paths of a node, and loads into the UCX of MPI, UCXX or NIXL:

    ucx_mp_run mpirun -n 2 ./your_program

or, in a Python program, before the first import that loads UCX:

    import ucx_mp
    ucx_mp.enable()

`ucx_mp_run --doctor` checks whether this works on your machine.
'''


def fail(message):
    sys.exit('wheel: ' + message)


def readelf(option, path):
    return subprocess.run(['readelf', '-W', option, path], check=True,
                          stdout=subprocess.PIPE,
                          universal_newlines=True).stdout


def number(text):
    return tuple(int(part) for part in text.split('.'))


def check_library(path, name, own, glibc):
    """Return violations in an ELF file's dependencies, as sentences."""
    wrong = []
    dynamic = readelf('-d', path)
    for needed in re.findall(r'\(NEEDED\).*\[(.*)\]', dynamic):
        if not LIBC.match(needed) and needed not in own:
            wrong.append('%s needs %s' % (name, needed))
    for folders in re.findall(r'\((?:RPATH|RUNPATH)\).*\[(.*)\]', dynamic):
        wrong.append('%s looks for libraries in %s' % (name, folders))
    versions = set(re.findall(r'Name: GLIBC_([\d.]+)', readelf('-V', path)))
    newest = max((number(version) for version in versions), default=(0,))
    if newest > number(glibc):
        wrong.append('%s needs glibc %s, newer than %s'
                     % (name, '.'.join(map(str, newest)), glibc))
    return wrong, newest


def tree(folder):
    """Return (name in the wheel, path) of every file, and the targets of links;
    without a second copy of the emulated driver or runtime."""
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != '__pycache__')
        for name in sorted(names):
            path = os.path.join(above, name)
            if name in ('libcuda.so', 'libcudart.so'):
                continue
            yield os.path.relpath(path, folder), path


class Wheel:
    """The archive, and the record of its files."""

    def __init__(self, path):
        self.archive = zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, is_program=False):
        info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (0o100755 if is_program else 0o100644) << 16
        self.archive.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        self.record.append('%s,sha256=%s,%d' % (
            name, digest.decode().rstrip('='), len(data)))

    def close(self, name):
        self.add(name, ('\n'.join(self.record + [name + ',,']) +
                        '\n').encode())
        self.archive.close()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--version', required=True)
    parser.add_argument('--arch', required=True, help='x86_64 or aarch64')
    parser.add_argument('--glibc', required=True, help='the newest that may '
                        'be needed')
    parser.add_argument('--license', action='append', default=[],
                        help='a text that comes along')
    parser.add_argument('--output', required=True, help='folder')
    parser.add_argument('prefix', help='the installed tree: bin, lib, share')
    return parser.parse_args()


def main():
    options = parse()
    files = []
    for name, path in tree(options.prefix):
        # the package itself; the rest of the tree lies inside it
        inside = 'share/ucx-mp/python/' + PACKAGE + '/'
        files.append((name[len(inside):] if name.startswith(inside) else name,
                      path))
    if '__init__.py' not in dict(files):
        fail('no %s in %s' % (PACKAGE, options.prefix))

    own = {os.path.basename(path) for _, path in files}
    wrong, newest = [], (0,)
    for name, path in files:
        with open(path, 'rb') as file:
            is_elf = file.read(4) == b'\x7fELF'
        if is_elf:
            found, needs = check_library(path, name, own, options.glibc)
            wrong += found
            newest = max(newest, needs)
    if wrong:
        fail('; '.join(wrong))

    tag = 'py3-none-manylinux_%s_%s' % (options.glibc.replace('.', '_'),
                                        options.arch)
    final = os.path.join(options.output, '%s-%s-%s.whl'
                         % (NAME, options.version, tag))
    info = '%s-%s.dist-info/' % (NAME, options.version)
    wheel = Wheel(final + '.part')
    for name, path in sorted(files):
        # man's folder, for the commands that pip puts into bin
        into = PACKAGE if not PAGES.match(name) else '%s-%s.data/data' % (
            NAME, options.version)
        with open(path, 'rb') as file:
            wheel.add(into + '/' + name, file.read(),
                      os.access(path, os.X_OK))
    licenses = ''
    for path in options.license:
        with open(path, 'rb') as file:
            wheel.add(info + os.path.basename(path), file.read())
        licenses += 'License-File: %s\n' % os.path.basename(path)
    wheel.add(info + 'METADATA', METADATA.format(
        version=options.version, licenses=licenses).encode())
    wheel.add(info + 'WHEEL', ('Wheel-Version: 1.0\nGenerator: contrib/wheel\n'
                               'Root-Is-Purelib: false\nTag: %s\n'
                               % tag).encode())
    wheel.add(info + 'entry_points.txt', (
        '[console_scripts]\n' + ''.join(
            '%s = %s._commands:main\n' % (name[len('bin/'):], PACKAGE)
            for name, _ in sorted(files) if name.startswith('bin/'))).encode())
    wheel.close(info + 'RECORD')
    os.replace(final + '.part', final)
    print('%d files, %.1f MB, glibc %s or newer'
          % (len(files), os.path.getsize(final) / 1e6,
             '.'.join(map(str, newest))))
    print(final)


if __name__ == '__main__':
    main()
