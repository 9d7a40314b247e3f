# SPDX-License-Identifier: BSD-3-Clause
"""Where the module and its company lie, told from where this file lies."""

import glob
import os

MODULE = 'libuct_cuda.so'


def prefix():
    """The folder with bin, lib and share: this package itself in a wheel, four
    folders up where it was installed as share/ucx-mp/python/ucx_mp."""
    here = os.path.dirname(os.path.realpath(__file__))
    if os.path.isdir(os.path.join(here, 'lib')):
        return here
    return os.path.normpath(os.path.join(here, '../../../..'))


def libdir():
    """The folder with the module and the shim, or None."""
    given = os.environ.get('UCX_MP_LIBDIR')
    top = prefix()
    tried = [given] if given else [
        os.path.join(top, 'lib', 'ucx-mp'),
        os.path.join(top, 'lib64', 'ucx-mp'),
        *glob.glob(os.path.join(top, 'lib', '*-linux-gnu*', 'ucx-mp'))]
    return next((path for path in tried
                 if os.path.exists(os.path.join(path, MODULE))), None)
