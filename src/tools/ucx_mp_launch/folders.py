# SPDX-License-Identifier: BSD-3-Clause
"""The folders of a run, in shared memory, gone when it ends."""

import atexit
import fcntl
import glob
import os
import re
import shutil
import stat
import tempfile
import time

from . import SetupError

SESSION_PREFIX = 'ucx_mp_run.'
UNNAMED_PREFIX = '.ucx_mp_run'  # of a run's folder until its lock is held
MADE_WITHIN = 60                # seconds
SHM_WANTED = 256 << 20          # bytes: ledger, session, emulated memory


class State:
    """Of this run."""
    settings_only = False       # --print: nothing is created
    folder = None
    step_folder = None
    notes = []                  # sentences on where run folders are
    when_last = []              # called before the step's folder goes ...
    when_done = []              # ... and when our command has ended


state = State()


def shared_place():
    """The folder that run folders are in: /dev/shm, or TMPDIR's where that
    cannot be written to or has less room than an emulated node may want."""
    shm, problem = '/dev/shm', None
    try:
        # the ranks of a job step have to come to the same
        free = shutil.disk_usage(shm)[0 if step_numbers() else 2]
        if not os.access(shm, os.W_OK | os.X_OK):
            problem = 'cannot be written to'
        elif free < SHM_WANTED:
            problem = 'has room for %.1f MiB' % (free / 2 ** 20)
        else:
            return shm
    except OSError as error:
        problem = 'cannot be used (%s)' % error.strerror
    try:
        base = tempfile.gettempdir()
        if problem.startswith('has') and shutil.disk_usage(base).free <= free:
            return shm
    except OSError as error:
        raise SetupError('%s %s, and there is no folder for temporary files: '
                         '%s; set TMPDIR, or give a container more (docker run '
                         '--shm-size=1g)' % (shm, problem, error.strerror))
    state.notes.append('%s %s: the files of this run are in %s; a container '
                       'gets more by docker run --shm-size=1g or --ipc=host'
                       % (shm, problem, base))
    return base


def temporary_folder():
    """A folder for this run, in shared memory, gone when it ends."""
    if state.folder is None:
        base = shared_place()
        if state.settings_only:
            state.folder = os.path.join(base, SESSION_PREFIX + '<new>')
            return state.folder
        sweep({base, '/dev/shm', os.environ.get('TMPDIR', '/tmp')})
        # the name that is swept comes when the lock is held
        made = tempfile.mkdtemp(prefix=UNNAMED_PREFIX, dir=base)
        hold(made)
        state.folder = os.path.join(base, '%s%d.%s' % (
            SESSION_PREFIX, os.getpid(), os.path.basename(made)[-8:]))
        os.rename(made, state.folder)
        atexit.register(shutil.rmtree, state.folder, ignore_errors=True)
    return state.folder


def hold(folder):
    """Locks a folder's file for this process's life; whether nobody else has.
    A lock is seen from all containers that share the folder, a pid is not."""
    descriptor = os.open(os.path.join(folder, 'lock'), os.O_RDWR | os.O_CREAT |
                         os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


def sweep(bases):
    """Removes the folders of runs that were killed. One that is being made or
    removed has no lock or none yet: it is left over once it is old."""
    for path in [path for base in bases
                 for prefix in (SESSION_PREFIX, UNNAMED_PREFIX)
                 for path in glob.glob(os.path.join(base, prefix + '*'))]:
        try:
            seen = os.lstat(path)
            is_named = os.path.basename(path).startswith(SESSION_PREFIX) and \
                os.path.exists(os.path.join(path, 'lock'))
            if seen.st_uid == os.getuid() and stat.S_ISDIR(seen.st_mode) and \
                    (is_named or time.time() - seen.st_mtime > MADE_WITHIN) \
                    and hold(path):
                remove(path)
        except OSError:
            pass


def remove(folder):
    """Removes a folder that nobody else holds. It goes at once: whoever comes
    now makes a new one."""
    gone = '%s.gone.%d' % (folder, os.getpid())
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def step_numbers():
    """What tells a step of a Slurm job from others; None, if this is none."""
    words = [os.environ.get(name, '') for name in
             ('SLURM_JOB_ID', 'SLURM_STEP_ID', 'SLURM_STEP_LAUNCHER_PORT')]
    return words if all(re.fullmatch(r'\d+', word) for word in words) else None


def step_folder():
    """A folder that the ranks of a step of a Slurm job share, each of which has
    a launcher of its own; the last one removes it. None, if this is no step."""
    words = step_numbers()
    if state.step_folder is not None or words is None:
        return state.step_folder
    base = os.path.dirname(temporary_folder())
    # a job's number is its Slurm's, and there may be two here: hence the port
    folder = os.path.join(base, '%sslurm.%d.%s'
                          % (SESSION_PREFIX, os.getuid(), '.'.join(words)))
    if not state.settings_only:
        while not share(folder):
            time.sleep(0.01)
    state.step_folder = folder
    return folder


def share(folder):
    """Holds a folder together with others; whether that succeeded."""
    path = os.path.join(folder, 'lock')
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if os.lstat(folder).st_uid != os.getuid():
            raise SetupError('%s is another user\'s' % folder)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC |
                             os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return False            # it has been removed meanwhile
    except OSError as error:
        raise SetupError('%s cannot be used: %s' % (path, error.strerror))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not os.path.samestat(os.stat(path), os.fstat(descriptor)):
            raise FileNotFoundError(path)
    except OSError:
        os.close(descriptor)    # whoever removes it has it
        return False

    def leave():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return              # others are there
        for call in state.when_last:
            call()
        try:
            remove(folder)
        except OSError:
            pass

    atexit.register(leave)
    return True


def plain(folder):
    """A path to that folder that LD_PRELOAD, which is split at blanks and
    colons, can have in it."""
    if not re.search(r'[\s:]', folder):
        return folder
    link = os.path.join(temporary_folder(), 'ucx-mp')
    if re.search(r'[\s:]', link):
        raise SetupError("blanks or colons in the paths of both ucx-mp (%s) and "
                         "temporary files (%s): LD_PRELOAD cannot have them; "
                         'set TMPDIR' % (folder, link))
    if not state.settings_only:
        os.symlink(folder, link)
    return link
