# SPDX-License-Identifier: BSD-3-Clause
"""enable(): the module put under a UCX that is not loaded yet.

It is too late for LD_PRELOAD, and which UCX will come is not known, so
UCX_PLUGIN_PATH, of which releases before 1.22 complain, is not set. But every
UCX calls ucs_load_modules() by its name, also those of wheels that hash the
names of their libraries: the shim, loaded with its symbols for all
(RTLD_GLOBAL), is found before a libucs that comes later. Processes that this
one starts get it by LD_PRELOAD.
"""

import ctypes
import hashlib
import os
import re
import stat
import sys

from . import _collectives, _files

PRELOAD = 'libucx_mp_preload.so'
# what makes an Open MPI choose its UCX, as ucx_mp_run sets it
OPEN_MPI = {'OMPI_MCA_pml': 'ucx',
            'OMPI_MCA_opal_common_ucx_tls': 'any',
            'OMPI_MCA_opal_common_ucx_devices': 'any'}

_shim = None            # the handle: the shim stays for the process's life


def say(sentence):
    print('ucx_mp: ' + sentence, file=sys.stderr)


def loaded_libraries():
    """Paths of the shared objects in this process."""
    with open('/proc/self/maps') as maps:
        return set(re.findall(r' (/\S.*\.so[^/\n]*)$', maps.read(), re.M))


def loaded_ucx(libraries):
    """Paths of the libucs that are there, one a UCX."""
    return sorted(path for path in libraries
                  if re.match(r'libucs(-[0-9a-f]+)?\.so',
                              os.path.basename(path)))


def machine_of(path):
    """The processor that an ELF file is for, as its number."""
    with open(path, 'rb') as file:
        return file.read(20)[18:20]


def unfit(libdir):
    """Why the module cannot be in this process, or None."""
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
    """A path to that folder that LD_PRELOAD, which is split at blanks and
    colons, can have in it: a link, which stays for the children's sake. None if
    there can be none."""
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


def put_module(multipath, children):
    """Prepares the module; whether that worked."""
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
        say('the module stays out: %s' % why)
        return False

    if children:
        folder = plain(libdir)
        if folder is None:
            say('processes that this one starts do without the module: '
                'LD_PRELOAD cannot have blanks or colons in its paths (%s)'
                % shim)
        else:
            prepend('LD_PRELOAD', os.path.join(folder, PRELOAD))
    if multipath is not None:
        os.environ['UCX_CUDA_IPC_MULTIPATH'] = multipath
    return True


def put_collectives():
    """The same for the collectives of GPU memory."""
    why = _collectives.put_in_front(_files.libdir(), loaded_libraries())
    if why is not None:
        say('collectives such as Allreduce are left to the MPI, and crash with '
            'GPU memory if it has no CUDA: %s' % why)
    return why is None


def enable(multipath=None, mpi=False, children=True):
    """Puts the module under the UCX that this process loads from now on.

    multipath: 'y', 'n' or 'auto', sets UCX_CUDA_IPC_MULTIPATH. mpi: before
    mpi4py's MPI is imported: also sets what an Open MPI with UCX needs to choose
    it, where that is not set, and puts the collectives of GPU memory in front of
    the MPI. children: processes that this one starts get the module too. Under
    ucx_mp_run everything is there already and stays.

    Returns whether all of it is prepared; if not, a sentence on stderr says why,
    and the program runs on as it was. Wrong arguments are a ValueError.
    """
    if multipath not in (None, 'y', 'n', 'auto'):
        raise ValueError("multipath: 'y', 'n' or 'auto', not %r" % (multipath,))
    is_ready = True
    if _shim is None:
        if PRELOAD in {os.path.basename(path) for path in loaded_libraries()}:
            return True         # ucx_mp_run, or a parent that has enabled it
        is_ready = put_module(multipath, children)
    if mpi and is_ready:
        for name, value in OPEN_MPI.items():
            os.environ.setdefault(name, value)
    if mpi and _files.libdir() is not None:
        is_ready = put_collectives() and is_ready
    return is_ready


def status():
    """A sentence on what this process has: UCX, and whose CUDA module."""
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
