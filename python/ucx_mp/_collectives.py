# SPDX-License-Identifier: BSD-3-Clause
"""Load the library for GPU collectives before mpi4py loads its MPI.

The library does not depend on an MPI. Loaded with RTLD_GLOBAL, its symbols are
found before those of an MPI loaded later by mpi4py's extension. Once an MPI is
loaded it is too late: its functions may be bound already.
"""

import ctypes
import glob
import importlib.util
import os
import re
import subprocess
import sys

LIBRARIES = {'Open MPI': 'libucx_mp_openmpi.so', 'MPICH': 'libucx_mp_mpich.so'}
# libraries for an MPI with functions of MPI 4
MPI4_LIBRARIES = {name: library.replace('.so', '_mpi4.so')
                  for name, library in LIBRARIES.items()}
ABI = "MPI's standard ABI"
LIBRARIES[ABI] = MPI4_LIBRARIES[ABI] = 'libucx_mp_mpi_abi.so'
# libraries needed by mpi4py's extension
SONAMES = {'Open MPI': (b'libmpi.so.40',),
           'MPICH': (b'libmpi.so.12', b'libmpich.so.12'),
           ABI: (b'libmpi_abi.so.1', b'libmpi_abi.so.0')}
# variable set by each mpirun
RANK = {'Open MPI': 'OMPI_COMM_WORLD_RANK', 'MPICH': 'PMI_RANK'}
OTHERS = ('OMPI_MCA_coll_ucc_enable', 'OMPI_MCA_coll_hcoll_enable')


def loaded_mpi(libraries):
    """Return the path of the MPI in this process, or None."""
    return next((path for path in sorted(libraries) if re.match(
        r'libmpi(ch|_abi)?(-[0-9a-f]+)?\.so', os.path.basename(path))), None)


def coming_mpis():
    """Return {MPI: path of mpi4py's extension for it}; None: no mpi4py."""
    spec = importlib.util.find_spec('mpi4py')
    if spec is None:
        return None
    found = {}
    for folder in spec.submodule_search_locations or ():
        for path in glob.glob(os.path.join(glob.escape(folder), 'MPI*.so')):
            with open(path, 'rb') as file:
                text = file.read()
            found.update((name, path) for name, sonames in SONAMES.items()
                         if any(b'\0' + soname + b'\0' in text
                                for soname in sonames))
    return {name: found[name] for name in SONAMES if name in found}


def has_mpi4(extension):
    """Return whether the extension's MPI has functions of MPI 4; None: unknown.
    Runs another process: this one must not load the MPI yet."""
    ask = ('import ctypes, sys; '
           'print(hasattr(ctypes.CDLL(sys.argv[1]), "MPI_Isendrecv"))')
    program = sys.executable or ''
    if not os.path.basename(program).startswith('python'):
        return False            # a program with Python in it is not started
    try:
        answer = subprocess.run(
            [program, '-I', '-c', ask, extension], check=True, timeout=60,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return {b'True': True, b'False': False}.get(b''.join(answer[-1:]))


def chosen_mpi(names):
    """Return the MPI chosen by mpi4py among these, or None: unknown."""
    told = re.sub('[ _-]', '', os.environ.get('MPI4PY_MPIABI', '')).lower()
    if told:
        return {'openmpi': 'Open MPI', 'mpich': 'MPICH',
                'impi': 'MPICH', 'mpiabi': ABI}.get(told)
    if len(names) > 1:
        names = [name for name in names if RANK.get(name) in os.environ]
    return next(iter(names)) if len(names) == 1 else None


def put_in_front(libdir, libraries):
    """Load the library. Return None, or a sentence with the reason why not."""
    known = {*LIBRARIES.values(), *MPI4_LIBRARIES.values()}
    if any(os.path.basename(path) in known for path in libraries):
        return None
    mpi = loaded_mpi(libraries)
    if mpi is not None:
        return ('enable(mpi=True) comes too late, the MPI is loaded (%s); call '
                'it before "from mpi4py import MPI", or start the program with '
                'ucx_mp_run mpirun' % mpi)
    other = next((name for name in OTHERS if os.environ.get(
        name, '0').lower() not in ('0', 'n', 'no', 'f', 'false')), None)
    if other is not None:
        return '%s=%s has switched on others' % (other, os.environ[other])
    names = coming_mpis()
    if names is None:
        return None             # nobody calls an MPI from Python
    name = chosen_mpi(names)
    if name is None:
        return ('it is unknown which MPI mpi4py will load (%s): set '
                'MPI4PY_MPIABI=openmpi or mpich, or start the program '
                'with ucx_mp_run mpirun' % (' or '.join(names) or
                                            'none that we know'))
    is_4 = has_mpi4(names[name]) if name in names else None
    if is_4 is None:
        return ('what the MPI has could not be asked (%s); start the program '
                'with ucx_mp_run mpirun' % names.get(name, name))
    path = os.path.join(libdir, (MPI4_LIBRARIES if is_4 else LIBRARIES)[name])
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return None
