# SPDX-License-Identifier: BSD-3-Clause
"""Folders of a run, in shared memory, removed when it ends."""

import atexit
import fcntl
import glob
import os
import re
import shutil
import stat
import time

from . import SetupError

SESSION_PREFIX = 'ucx_mp_run.'
UNNAMED_PREFIX = '.ucx_mp_run'  # before the folder's lock is held
MADE_WITHIN = 60                # seconds
SHM_WANTED = 256 << 20          # bytes: ledger, session, emulated memory


class State:
    """State of this run."""
    program = None              # the path of ucx_mp_run
    settings_only = False       # --print: nothing is created
    folder = None
    step_folder = None
    notes = []                  # sentences about the place of run folders
    when_last = []              # called before the step's folder is removed
    when_done = []              # called when the command has ended


state = State()


def matches(folder, *patterns):
    """Return the paths below a folder of any name that match."""
    return glob.glob(os.path.join(glob.escape(folder), *patterns))


def shared_place():
    """Return the parent of run folders: /dev/shm, or TMPDIR if /dev/shm is not
    writable or has less room than an emulated node may need."""
    shm, problem = '/dev/shm', None
    try:
        # all ranks of a job step must choose the same place
        free = shutil.disk_usage(shm)[0 if step_numbers() else 2]
        if not os.access(shm, os.W_OK | os.X_OK):
            problem = 'cannot be written to'
        elif free < SHM_WANTED:
            problem = 'has only %.1f MiB free' % (free / 2 ** 20)
        else:
            return shm
    except OSError as error:
        problem = 'cannot be used (%s)' % error.strerror
    import tempfile             # takes a tenth of the start of most runs
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
    """Make a folder for this run in shared memory, removed when it ends."""
    if state.folder is None:
        base = shared_place()
        if state.settings_only:
            state.folder = os.path.join(base, SESSION_PREFIX + '<new>')
            return state.folder
        sweep({base, '/dev/shm', os.environ.get('TMPDIR', '/tmp')})
        # rename it to the name that sweep() removes once the lock is held
        made = make(os.path.join(base, UNNAMED_PREFIX))
        hold(made)
        state.folder = os.path.join(base, '%s%d.%s' % (
            SESSION_PREFIX, os.getpid(), os.path.basename(made)[-8:]))
        os.rename(made, state.folder)
        atexit.register(shutil.rmtree, state.folder, ignore_errors=True)
    return state.folder


def make(prefix):
    """Make a folder of a random name for this user, and return its path."""
    while True:
        folder = prefix + os.urandom(4).hex()
        try:
            os.mkdir(folder, 0o700)
            return folder
        except FileExistsError:
            pass


def hold(folder):
    """Lock a folder's file until this process ends; return whether it succeeded.
    All containers that share the folder see a lock, but not a pid."""
    descriptor = os.open(os.path.join(folder, 'lock'), os.O_RDWR | os.O_CREAT |
                         os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


def sweep(bases):
    """Remove folders of killed runs. A folder being made or removed may have no
    lock: it is removed if it is old."""
    for path in [path for base in bases
                 for prefix in (SESSION_PREFIX, UNNAMED_PREFIX)
                 for path in matches(base, prefix + '*')]:
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
    """Remove a folder that no other process holds. It disappears at once: a
    process that comes now makes a new one."""
    gone = '%s.gone.%d' % (folder, os.getpid())
    os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)


def step_numbers():
    """Return numbers that identify a Slurm job step; None outside of one."""
    words = [os.environ.get(name, '') for name in
             ('SLURM_JOB_ID', 'SLURM_STEP_ID', 'SLURM_STEP_LAUNCHER_PORT')]
    return words if all(re.fullmatch(r'\d+', word) for word in words) else None


def step_folder():
    """Return a folder shared by the ranks of a Slurm job step, each with a
    launcher of its own; the last launcher removes it. None outside of a step."""
    words = step_numbers()
    if state.step_folder is not None or words is None:
        return state.step_folder
    base = os.path.dirname(temporary_folder())
    # two Slurms on this machine may use one job number: hence the port
    folder = os.path.join(base, '%sslurm.%d.%s'
                          % (SESSION_PREFIX, os.getuid(), '.'.join(words)))
    if not state.settings_only:
        while not share(folder):
            time.sleep(0.01)
    state.step_folder = folder
    return folder


def share(folder):
    """Hold a folder together with other processes; return whether it succeeded."""
    path = os.path.join(folder, 'lock')
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if os.lstat(folder).st_uid != os.getuid():
            raise SetupError('%s is another user\'s' % folder)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC |
                             os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        return False            # removed meanwhile
    except OSError as error:
        raise SetupError('%s cannot be used: %s' % (path, error.strerror))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not os.path.samestat(os.stat(path), os.fstat(descriptor)):
            raise FileNotFoundError(path)
    except OSError:
        os.close(descriptor)    # another process is removing it
        return False

    def leave():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return              # others still hold it
        for call in state.when_last:
            call()
        try:
            remove(folder)
        except OSError:
            pass

    atexit.register(leave)
    return True


def plain(folder):
    """Return a path to the folder without blanks and colons, at which LD_PRELOAD
    is split."""
    if not re.search(r'[\s:]', folder):
        return folder
    link = os.path.join(temporary_folder(), 'ucx-mp')
    if re.search(r'[\s:]', link):
        raise SetupError("LD_PRELOAD cannot contain blanks or colons, but the "
                         "paths of ucx-mp (%s) and of temporary files (%s) do; "
                         'set TMPDIR' % (folder, link))
    if state.settings_only:
        return folder           # the link would not exist
    os.symlink(folder, link)
    return link
