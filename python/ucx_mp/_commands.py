# SPDX-License-Identifier: BSD-3-Clause
"""Commands of a Python environment: each runs the program of its name."""

import os
import runpy
import sys

from . import _files


def main():
    # the command may be called through a link of another name
    name = os.path.basename(os.path.realpath(sys.argv[0]))
    path = os.path.join(_files.prefix(), 'bin', name)
    if not os.path.isfile(path):
        sys.exit('%s: ucx_mp has no command of this name: %s is missing'
                 % (name, path))
    with open(path, 'rb') as file:
        is_script = file.read(2) == b'#!'
    sys.argv[0] = path
    if is_script:
        runpy.run_path(path, run_name='__main__')
    else:
        os.execv(path, sys.argv)
