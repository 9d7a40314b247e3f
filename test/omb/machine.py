# SPDX-License-Identifier: BSD-3-Clause
"""What is run, and on what machine, as far as it can be asked."""

import os
import platform
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__))))


def output_of(command, environ=None):
    """What a command prints; nothing if it cannot be run."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, env=environ,
                              stderr=subprocess.DEVNULL, timeout=30,
                              universal_newlines=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ''


def gpus_text():
    """Such as "4 x NVIDIA H200, 580.159"; what stands last is the driver."""
    gpus = output_of(['nvidia-smi', '--query-gpu=name,driver_version',
                      '--format=csv,noheader']).splitlines()
    return ['%d x %s' % (gpus.count(name), name) for name in sorted(set(gpus))]


def machine_text():
    model = ''
    with open('/proc/cpuinfo') as file:
        for line in file:
            if line.startswith('model name'):
                model = line.split(':', 1)[1].strip()
                break
    return ', '.join(gpus_text() + [
        '%d cores %s' % (os.cpu_count(), model),
        '%s %s' % (platform.system(), platform.release())])


def revision():
    return output_of(['git', '-C', TOP, 'describe', '--always',
                      '--dirty']).strip()
