# SPDX-License-Identifier: BSD-3-Clause
"""Locations of the installed files, relative to this file."""

import glob
import os

MODULE = 'libuct_cuda.so'


def prefix():
    """Return the folder with bin, lib and share: in a wheel this package; after
    "make install" (share/ucx-mp/python/ucx_mp) four folders up."""
    here = os.path.dirname(os.path.realpath(__file__))
    if os.path.isdir(os.path.join(here, 'lib')):
        return here
    return os.path.normpath(os.path.join(here, '../../../..'))


def libdir():
    """Return the folder with the module and the shim, or None."""
    given = os.environ.get('UCX_MP_LIBDIR')
    top = prefix()
    # not in the current folder of a child process
    tried = [os.path.abspath(given)] if given else [
        os.path.join(top, 'lib', 'ucx-mp'),
        os.path.join(top, 'lib64', 'ucx-mp'),
        *glob.glob(os.path.join(glob.escape(top), 'lib', '*-linux-gnu*',
                                'ucx-mp'))]
    return next((path for path in tried
                 if os.path.exists(os.path.join(path, MODULE))), None)
