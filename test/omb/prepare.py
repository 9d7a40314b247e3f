# SPDX-License-Identifier: BSD-3-Clause
"""Find the programs to run, and build or fetch missing ones."""

import os
import subprocess
import sys

from machine import TOP
from runs import Refused

BUILD = os.environ.get('UCX_MP_BUILD', os.path.join(TOP, 'build'))


def say(message):
    print(message, file=sys.stderr, flush=True)


def sourced(command):
    """Run a function of contrib/lib, with its output on standard error."""
    script = '. contrib/lib/common.sh; . contrib/lib/packages.sh; ' + command
    return subprocess.run(['bash', '-c', script], cwd=TOP, stdout=sys.stderr,
                          env=dict(os.environ, UCX_MP_BUILD=BUILD)).returncode


def cuda_root():
    """Return the folder of a CUDA toolkit, or of fetched wheels with its
    headers, as used by our build."""
    for root in (os.environ.get('CUDA_HOME'), os.environ.get('CUDA_PATH'),
                 '/usr/local/cuda', '/usr'):
        if root and all(os.path.exists(os.path.join(root, 'include', name))
                        for name in ('cuda_runtime.h', 'crt/host_config.h')):
            return root
    script = ('. contrib/lib/common.sh; . contrib/lib/packages.sh; '
              'header_arguments')
    tried = subprocess.run(['bash', '-c', script], cwd=TOP,
                           stdout=subprocess.PIPE, universal_newlines=True,
                           env=dict(os.environ, UCX_MP_BUILD=BUILD))
    roots = [word[len('--with-cuda='):] for word in tried.stdout.split('\n')
             if word.startswith('--with-cuda=')]
    if not roots:
        raise Refused("CUDA's headers are neither here nor to be had")
    return roots[0]


def launcher(named):
    """Return the path of ucx_mp_run: the user's, or build/'s, built if
    missing."""
    path = named or os.path.join(BUILD, 'install', 'bin', 'ucx_mp_run')
    if named is None and not os.path.exists(path):
        say('building (contrib/check --only build) ...')
        if subprocess.run([os.path.join(TOP, 'contrib', 'check'), '--only',
                           'build'], stdout=sys.stderr).returncode:
            raise Refused('the build failed')
    if not os.path.exists(path):
        raise Refused('--launcher: there is no %s' % path)
    return path


def programs(named, needed):
    """Return the folder of our MPI programs."""
    path = named or os.path.join(BUILD, 'main', 'test', 'mpi')
    if needed and not os.path.exists(os.path.join(path, 'ucx_mp_bw')):
        raise Refused('--programs: there is no ucx_mp_bw in %s (is an MPI '
                      'compiler installed?)' % path)
    return path


def wheel(named):
    """Return the folder with stock UCX 1.22: the user's, or build/deps/cu12,
    fetched if missing."""
    path = named or os.path.join(BUILD, 'deps', 'cu12')
    if named is None and sourced('wheel_folder cu12 libucx-cu12==1.22.0'):
        raise Refused("no stock UCX to compare with: --wheel names the folder "
                      'that libucx-cu12 or libucx-cu13 was unpacked into')
    return path
