# SPDX-License-Identifier: BSD-3-Clause
"""A timeline of all ranks (--trace)."""

import os
import subprocess
import sys

from .folders import state, step_folder, temporary_folder

FOLDER = 'UCX_CUDA_IPC_MULTIPATH_TRACE'


def set_trace(settings, options, install, target):
    """Set the folder where processes write their parts, and the process that
    joins them. The command's exit code does not change: a trace is not part of
    the program."""
    folder, name = temporary_folder(), options.trace
    rank = first_set('OMPI_COMM_WORLD_RANK', 'PMIX_RANK', 'PMI_RANK')
    step = step_folder() if target.launcher is None else None
    if step is not None:
        # launchers on a node share the folder, nodes share the file
        folder = os.path.join(step, 'trace')
        if first_set('SLURM_STEP_NUM_NODES') not in (None, '1'):
            name = with_word(name, os.uname().nodename)
        if not state.settings_only:
            os.makedirs(folder, exist_ok=True)
    elif target.launcher is None and rank is not None:
        name = with_word(name, rank)
        settings.note('--trace: rank %s writes its own timeline to %s; for one '
                      'of all ranks put ucx_mp_run in front of mpirun'
                      % (rank, name))

    def write():
        subprocess.call([sys.executable, install.program('ucx_mp_trace'),
                         settings.environ[FOLDER], '-o', name] +
                        ['--quiet'] * options.quiet)

    settings.put(FOLDER, folder, '--trace')
    (state.when_done if step is None else state.when_last).append(write)


def first_set(*names):
    return next(filter(None, map(os.environ.get, names)), None)


def with_word(path, word):
    """Insert a word: timeline.json and 3 give timeline.3.json."""
    root, ending = os.path.splitext(path)
    return '%s.%s%s' % (root, word, ending)
