# SPDX-License-Identifier: BSD-3-Clause
"""Facts on the machine and the software under test, as far as available."""

import os
import platform
import shlex
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__))))


def output_of(command, environ=None):
    """Return the output of a command; '' if it cannot be run."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, env=environ,
                              stderr=subprocess.DEVNULL, timeout=30,
                              universal_newlines=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ''


def counted(names):
    return ['%d x %s' % (names.count(name), name)
            for name in sorted(set(names))]


def asked(what):
    """Query nvidia-smi; return one line per GPU."""
    return output_of(['nvidia-smi', '--query-gpu=' + what,
                      '--format=csv,noheader']).splitlines()


def gpus():
    """Return the GPUs, such as ["4 x NVIDIA H200"]."""
    return counted(asked('name'))


def devices():
    """Return nvidia-smi's list of GPUs, line by line."""
    return output_of(['nvidia-smi', '-L']).splitlines()


def machine_text():
    """Return text with GPUs, driver, processor and system."""
    model = ''
    with open('/proc/cpuinfo') as file:
        for line in file:
            if line.startswith('model name'):
                model = line.split(':', 1)[1].strip()
                break
    return ', '.join(counted(['%s, driver %s' % tuple(line.split(', ', 1))
                              for line in asked('name,driver_version')
                              if ', ' in line]) + [
        '%d cores %s' % (os.cpu_count(), model),
        '%s %s' % (platform.system(), platform.release())])


def ucx_version(environ):
    """Return the release of the libucp loaded by programs with this
    environment."""
    script = ('import ctypes; ucp = ctypes.CDLL("libucp.so.0"); '
              'ucp.ucp_get_version_string.restype = ctypes.c_char_p; '
              'print(ucp.ucp_get_version_string().decode())')
    return output_of([sys.executable, '-c', script], environ).strip() or \
        'unknown'


def mpi_version(mpirun):
    """Return mpirun's version, such as "mpirun (Open MPI) 4.1.6"."""
    lines = output_of(shlex.split(mpirun)[:1] + ['--version']).splitlines()
    return lines[0].strip() if lines else ''


def revision(launcher=None):
    """Return the revision that `launcher` (ucx_mp_run) was built from, possibly
    older than the sources; the sources' own if it has none."""
    if launcher:
        path = os.path.join(os.path.dirname(os.path.realpath(launcher)), '..',
                            'share', 'ucx-mp', 'revision')
        try:
            with open(path) as file:
                return file.read().strip()
        except OSError:
            return 'unknown'
    return output_of(['git', '-C', TOP, 'describe', '--always',
                      '--dirty']).strip()
