# SPDX-License-Identifier: BSD-3-Clause
"""Build OSU's programs for GPU memory from OSU's archive, with the MPI in
PATH."""

import glob
import hashlib
import os
import re
import shutil
import subprocess
import tempfile

import machine
import prepare
import runs
from runs import Refused

FOLDER = os.path.join(prepare.BUILD, 'deps', 'omb')
COMPLETE = '.complete'


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else 'silent'


def logged(command, folder, log, what):
    """Run a part of the build, with its output in a file."""
    with open(log, 'w', encoding='utf-8') as file:
        code = subprocess.run(command, cwd=folder, stdout=file, stderr=file,
                              stdin=subprocess.DEVNULL).returncode
    if code:
        with open(log, encoding='utf-8', errors='replace') as file:
            text = file.read()
        said = re.findall(r'^.*error.*$', text, re.MULTILINE | re.IGNORECASE)
        raise Refused('%s failed (%s): %s' % (
            what, log, last_line(said[0] if said else text)))


def find_mpi():
    """Return the paths of the MPI's compiler and launcher, after a test of the
    compiler."""
    for name in ('mpicc', 'mpirun'):
        if not shutil.which(name):
            raise Refused('there is no %s in PATH: an MPI with its compiler '
                          'is wanted (Debian: libopenmpi-dev, openmpi-bin)'
                          % name)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, 'mpi.c')
        with open(source, 'w') as file:
            file.write('#include <mpi.h>\n'
                       'int main(void) { return MPI_Init(0, 0); }\n')
        try:
            tried = subprocess.run(
                ['mpicc', source, '-o', os.path.join(folder, 'mpi')],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                universal_newlines=True)
        except OSError as error:
            raise Refused('mpicc cannot be run: %s' % error.strerror)
    if tried.returncode:
        raise Refused('mpicc compiles no MPI program (is a C compiler '
                      'installed?): %s' % last_line(tried.stdout))
    return shutil.which('mpicc')


def first(patterns):
    return next((path for pattern in patterns
                 for path in sorted(glob.glob(pattern))), None)


def link(path, folder, name):
    place = os.path.join(folder, name)
    if os.path.lexists(place):
        os.remove(place)
    os.symlink(os.path.realpath(path), place)


def compilers_headers(root):
    """Return the folder of the compiler's headers included by cuda_runtime.h.
    Wheels have them in a package of its own; fetch it then."""
    runtime = first([os.path.join(root, 'nvidia_cuda_runtime-*.dist-info')])
    requirement = 'nvidia-cuda-crt'
    if runtime:
        requirement += '==' + re.search(r'-(.+)\.dist-info', runtime).group(1)
    if prepare.sourced('wheel_folder cuda-crt ' + requirement):
        raise Refused('CUDA: there is no crt/host_config.h below %s, and %s '
                      'is not to be had' % (root, requirement))
    return os.path.dirname(os.path.dirname(first(
        [os.path.join(prepare.BUILD, 'deps', 'cuda-crt', 'nvidia', '*',
                      'include', 'crt', 'host_config.h')])))


def find_cuda(folder, launcher):
    """Return the folders of CUDA's headers. Fills `folder` with libraries to
    link with: a machine without driver or toolkit has none by these names."""
    root = prepare.cuda_root()
    roots = [root] + glob.glob(os.path.join(root, 'nvidia', '*'))
    headers = first(os.path.join(item, 'include', 'cuda_runtime.h')
                    for item in roots)
    runtime = first(os.path.join(item, below, 'libcudart.so*')
                    for item in roots
                    for below in ('lib64', 'lib', 'lib/*-linux-gnu'))
    driver = first(
        [os.path.join(item, 'lib64/stubs/libcuda.so') for item in roots] +
        ['/usr/lib/*-linux-gnu/libcuda.so.1', '/usr/lib64/libcuda.so.1',
         # any version serves for linking: the loaded one is chosen at run time
         os.path.join(os.path.dirname(launcher), '..', 'lib*', 'ucx-mp',
                      'cuemu', 'libcuda.so.1')])
    for what, path in (('cuda_runtime.h', headers), ('libcudart.so', runtime),
                       ('libcuda.so', driver)):
        if not path:
            raise Refused('CUDA: there is no %s for OSU\'s programs below %s'
                          % (what, root))
    os.makedirs(folder, exist_ok=True)
    link(driver, folder, 'libcuda.so')
    link(runtime, folder, 'libcudart.so')
    # programs ask for the name with its first number alone
    name = os.path.basename(os.path.realpath(runtime))
    link(runtime, folder, '.'.join(name.split('.')[:3]))
    headers = os.path.dirname(headers)
    if os.path.exists(os.path.join(headers, 'crt', 'host_config.h')):
        return [headers]
    return [headers, compilers_headers(root)]


def unpack(archive, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tried = subprocess.run(
        ['tar', '-xf', os.path.abspath(archive), '-C', folder,
         '--strip-components', '1', '--no-same-owner'],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        universal_newlines=True)
    if tried.returncode:
        lines = tried.stdout.strip().splitlines()
        raise Refused('%s: not an archive: %s' % (
            archive, lines[0] if lines else 'tar says nothing'))
    if not os.access(os.path.join(folder, 'configure'), os.X_OK):
        raise Refused("%s: there is no configure in it: it is not OSU's "
                      'archive (--help)' % archive)


def build(archive, launcher, names):
    """Return {name: path} of programs, built once per archive and MPI."""
    try:
        with open(archive, 'rb') as file:
            digest = hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        raise Refused('%s: %s' % (archive, error.strerror))
    mpicc = find_mpi()
    stamp = '%s\n%s\n%s\n' % (digest, os.path.realpath(mpicc),
                              machine.mpi_version('mpirun'))
    folder = os.path.join(FOLDER, digest[:12])
    complete = os.path.join(folder, COMPLETE)
    installed = os.path.join(folder, 'install')
    try:
        with open(complete, encoding='utf-8') as file:
            if file.read() == stamp:
                return runs.osu_programs(installed, names)
    except OSError:
        pass
    source = os.path.join(folder, 'source')
    unpack(archive, source)
    shutil.rmtree(installed, ignore_errors=True)
    libraries = os.path.join(folder, 'lib')
    headers = find_cuda(libraries, launcher)
    prepare.say('building %s under %s ...' % (os.path.basename(archive), folder))
    # without OSU's kernels: they need nvcc, and none of these programs uses
    # them; with a run path that LD_LIBRARY_PATH overrides, for emulated nodes
    compilers = ['CC=mpicc'] + ['CXX=mpicxx'] * bool(shutil.which('mpicxx'))
    logged(['./configure', '--prefix=' + installed, '--enable-cuda=basic',
            '--with-cuda-include=' + headers[0],
            '--with-cuda-libpath=' + libraries,
            'CPPFLAGS=' + ' '.join('-I' + item for item in headers[1:]),
            'LDFLAGS=-Wl,--enable-new-dtags'] + compilers, source,
           os.path.join(folder, 'configure.log'), 'configure')
    for target in ('all', 'install'):
        logged(['make', '-j%d' % len(os.sched_getaffinity(0)), target], source,
               os.path.join(folder, 'make-%s.log' % target), 'make ' + target)
    found = runs.osu_programs(installed, names)
    runs.write_whole(complete, stamp)
    return found
