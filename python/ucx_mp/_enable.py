# SPDX-License-Identifier: BSD-3-Clause
"""enable(): let a UCX that is loaded later find the module.

LD_PRELOAD has no effect in a running process. UCX_PLUGIN_PATH is not used: UCX
before 1.22 prints a warning about it, and the release is unknown here. Instead
the shim is loaded with RTLD_GLOBAL. Every UCX calls ucs_load_modules() by name,
even in wheels that rename their libraries, and finds the shim's function before
that of a libucs loaded later. Child processes get the shim through LD_PRELOAD.
"""

import ctypes
import hashlib
import os
import re
import stat
import sys

from . import _collectives, _files

PRELOAD = 'libucx_mp_preload.so'
# variables that make Open MPI use UCX, as set by ucx_mp_run
OPEN_MPI = {'OMPI_MCA_pml': 'ucx',
            'OMPI_MCA_opal_common_ucx_tls': 'any',
            'OMPI_MCA_opal_common_ucx_devices': 'any'}

_shim = None            # handle: keeps the shim loaded


def say(sentence):
    print('ucx_mp: ' + sentence, file=sys.stderr)


def loaded_libraries():
    """Return the paths of the shared objects in this process."""
    with open('/proc/self/maps', errors='surrogateescape') as maps:
        return set(re.findall(r' (/\S.*\.so[^/\n]*)$', maps.read(), re.M))


def loaded_ucx(libraries):
    """Return the paths of libucs among them, one per UCX."""
    return sorted(path for path in libraries
                  if re.match(r'libucs(-[0-9a-f]+)?\.so',
                              os.path.basename(path)))


def machine_of(path):
    """Return the processor number of an ELF file."""
    with open(path, 'rb') as file:
        return file.read(20)[18:20]


def unfit(libdir):
    """Return a sentence why this process cannot use the module, or None."""
    if libdir is None and os.environ.get('UCX_MP_LIBDIR'):
        return ('%s is not in UCX_MP_LIBDIR=%s'
                % (_files.MODULE, os.environ['UCX_MP_LIBDIR']))
    if libdir is None:
        return ('%s is not beside this package (%s); install the wheel, or '
                'point UCX_MP_LIBDIR to its folder'
                % (_files.MODULE, _files.prefix()))
    try:
        libc = os.confstr('CS_GNU_LIBC_VERSION')
    except (ValueError, OSError):
        libc = None
    if not libc:
        return 'this Python runs on musl or another C library than glibc'
    module = os.path.join(libdir, _files.MODULE)
    if machine_of(module) != machine_of('/proc/self/exe'):
        return ('%s is built for another processor than this one (%s)'
                % (module, os.uname().machine))
    return None


def prepend(name, value):
    old = [item for item in os.environ.get(name, '').split(':')
           if item and item != value]
    os.environ[name] = ':'.join([value] + old)


def plain(folder):
    """Return a path to the folder without blanks and colons, which separate
    paths in LD_PRELOAD: the folder, or a new link to it. The link stays for
    child processes. None if no link can be made."""
    if not re.search(r'[\s:]', folder):
        return folder
    name = 'ucx_mp.%d' % os.getuid()
    for base in ('/dev/shm', '/tmp', '/var/tmp'):
        private = os.path.join(base, name)
        link = os.path.join(private,
                            hashlib.sha1(folder.encode()).hexdigest()[:16])
        try:
            os.makedirs(private, 0o700, exist_ok=True)
            seen = os.lstat(private)
            if not stat.S_ISDIR(seen.st_mode) or seen.st_mode & 0o077 or \
                    seen.st_uid != os.getuid():
                continue        # somebody else's, or open to others
            if not os.path.lexists(link):
                os.symlink(folder, link)
            if os.path.realpath(link) == os.path.realpath(folder):
                return link
        except OSError:
            continue
    return None


def put_module(children):
    """Load the shim, also in child processes. Return whether it succeeded."""
    global _shim
    libdir = _files.libdir()
    why = unfit(libdir)
    if why is None:
        loaded = loaded_ucx(loaded_libraries())
        if loaded:
            why = ('enable() comes too late, UCX is loaded (%s); call it before '
                   'whatever imports UCX, or start the program with ucx_mp_run'
                   % ', '.join(loaded))
    shim = os.path.join(libdir, PRELOAD) if libdir else None
    if why is None:
        try:
            _shim = ctypes.CDLL(shim, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            why = str(error)
    if why is not None:
        say('the module is not loaded: %s' % why)
        return False

    if children:
        folder = plain(libdir)
        if folder is None:
            say('child processes run without the module: LD_PRELOAD cannot '
                'have blanks or colons in its paths (%s)'
                % shim)
        else:
            prepend('LD_PRELOAD', os.path.join(folder, PRELOAD))
    return True


def put_collectives():
    """Load the library for GPU collectives. Return whether it succeeded."""
    why = _collectives.put_in_front(_files.libdir(), loaded_libraries())
    if why is not None:
        say('collectives such as Allreduce are left to the MPI, and crash with '
            'GPU memory if it has no CUDA: %s' % why)
    return why is None


def enable(multipath=None, mpi=False, children=True):
    """Let the UCX loaded later by this process use the multi-path module.

    Call it before the first import that loads UCX or an MPI.

    multipath  'y', 'n' or 'auto': value for UCX_CUDA_IPC_MULTIPATH. None keeps
               the environment's (default).
    mpi        True: also prepare for mpi4py. Sets the variables that make an
               Open MPI use UCX, unless they are set, and loads the library for
               GPU collectives. Default: False.
    children   True (default): child processes get the module, too.

    Return True if everything is prepared. Otherwise print the reason to stderr
    and return False; the program runs as without this call. Under ucx_mp_run
    the arguments still count. Raise ValueError for a wrong argument.
    """
    if multipath not in (None, 'y', 'n', 'auto'):
        raise ValueError("multipath: 'y', 'n' or 'auto', not %r" % (multipath,))
    # ucx_mp_run, a parent or an earlier call may have loaded it
    is_ready = PRELOAD in {os.path.basename(path)
                           for path in loaded_libraries()} or \
        put_module(children)
    if multipath is not None and is_ready:
        os.environ['UCX_CUDA_IPC_MULTIPATH'] = multipath
    if mpi and is_ready:
        for name, value in OPEN_MPI.items():
            os.environ.setdefault(name, value)
    if mpi and _files.libdir() is not None:
        is_ready = put_collectives() and is_ready
    return is_ready


def status():
    """Return a sentence with the UCX and the CUDA module of this process."""
    libraries = loaded_libraries()
    ucx = loaded_ucx(libraries)
    modules = sorted(path for path in libraries if re.match(
        r'libuct_cuda(-[0-9a-f]+)?\.so', os.path.basename(path)))
    if not ucx:
        return ('no UCX is loaded yet; the module is %sprepared'
                % ('' if PRELOAD in {os.path.basename(path)
                                     for path in libraries} else 'not '))
    ours = _files.libdir()
    ours = os.path.realpath(ours) + os.sep if ours else None
    mine = [path for path in modules
            if ours and os.path.realpath(path).startswith(ours)]
    others = [path for path in modules if path not in mine]
    text = 'UCX %s; ' % ' and '.join(ucx)
    if mine:
        text += 'the multi-path module is loaded (%s)' % ', '.join(mine)
    else:
        text += ('the multi-path module is not loaded (UCX loads it when it '
                 'first looks for transports)')
    if others:
        text += "; another CUDA module as well: %s" % ', '.join(others)
    return text
