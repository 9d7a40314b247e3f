# SPDX-License-Identifier: BSD-3-Clause
"""Files of this project, and the UCX and MPI that a command loads."""

import functools
import mmap
import os
import re
import shutil
import signal
import stat
import subprocess
import sys

from . import EXIT_NOT_FOUND, MISSING, MODULE, SetupError
from .folders import matches, plain

OLDEST_UCX = (1, 13)
NEWEST_UCX = (1, 23)
COLLECTIVES = {'Open MPI': 'libucx_mp_openmpi.so', 'MPICH': 'libucx_mp_mpich.so'}
ABI_COLLECTIVES = 'libucx_mp_mpi_abi.so'    # MPI 5's standard ABI, of any MPI
LOAD_LIMIT = 60     # seconds
TOO_LATE = 'loading it took more than %d s' % LOAD_LIMIT
COMPONENT_PATH = 'mca_base_component_path'


def others(environ, name, value):
    """Return the other items of a list. An empty one is the current folder in
    LD_LIBRARY_PATH, unless the list is empty."""
    return [item for item in environ[name].split(':')
            if item != value] if environ.get(name) else []


def prepend(environ, name, value):
    """Put `value`, unless empty, in front of a colon-separated list."""
    if value:
        environ[name] = ':'.join([value] + others(environ, name, value))


def append(environ, name, value):
    if value:
        environ[name] = ':'.join(others(environ, name, value) + [value])


def word_after(command, *names):
    """Return the value of each occurrence of an option: the next word, or that
    behind --name=."""
    found = []
    for index, word in enumerate(command):
        option, equals, value = word.partition('=')
        if word in names:
            found += command[index + 1:index + 2]
        elif equals and word.startswith('--') and option in names:
            found.append(value)
    return found


def mca_from_command(command, name):
    """Return the value of `--mca name value`, or None."""
    for index, word in enumerate(command[:-2]):
        if word in ('-mca', '--mca') and command[index + 1] == name:
            return command[index + 2]
    return None


def words_of(path):
    try:
        with open(path, errors='surrogateescape') as file:
            return file.read().split()
    except OSError:
        return []       # mpirun itself reports this


class Installation:
    """Where the module, the shim, the emulator and the node files are."""

    def __init__(self, environ, here):
        """Start the search in `here`, the folder of ucx_mp_run."""
        self.bindir = here
        if environ.get('UCX_MP_LIBDIR'):
            tried = [environ['UCX_MP_LIBDIR']]
        else:
            prefix = os.path.dirname(here)
            top = os.path.dirname(prefix)
            tried = [os.path.join(prefix, 'lib', 'ucx-mp'),
                     os.path.join(prefix, 'lib64', 'ucx-mp')]
            tried += matches(prefix, 'lib', '*-linux-gnu*', 'ucx-mp')
            tried += [os.path.join(prefix, '.libs'),        # build tree
                      os.path.join(top, 'build', 'src', '.libs')]
        tried = [os.path.abspath(path) for path in tried]
        self.tried = tried
        self.libdir = next((path for path in tried
                            if os.path.exists(os.path.join(path, MODULE))),
                           tried[0])
        self.libdir = plain(self.libdir)
        self.cuemu_dir = self._first('libcuda.so.1', [
            os.path.join(self.libdir, 'cuemu'),
            os.path.join(self.libdir, '../../src/cuemu/lib')])
        self.node_dirs = [os.path.realpath(path) for path in [
            os.path.join(self.libdir, '../../share/ucx-mp/nodes'),
            os.path.join(self.libdir, '../../../share/ucx-mp/nodes'),
            os.path.join(here, '../../src/cuemu/nodes'),
            os.path.join(self.libdir, '../../src/cuemu/nodes')]
            if os.path.isdir(path)]
        if environ.get('UCX_MP_NODES'):
            self.node_dirs.insert(0, environ['UCX_MP_NODES'])

    @staticmethod
    def _first(name, folders):
        for folder in folders:
            if os.path.exists(os.path.join(folder, name)):
                return os.path.abspath(folder)
        return None

    def library(self, name):
        path = os.path.join(self.libdir, name)
        if not os.path.exists(path):
            raise SetupError(
                '%s is not built: looked in %s; build and install ucx-mp, or '
                'point UCX_MP_LIBDIR to the folder that holds it'
                % (name, ', '.join(self.tried)))
        return path

    def program(self, name):
        return os.path.join(self.bindir, name)

    def node_names(self):
        names = {os.path.basename(path)[:-len('.xml')]
                 for folder in self.node_dirs
                 for path in matches(folder, '*.xml')}
        return sorted(names)

    def node(self, name):
        """Return the path of a node's description, given by name or path, and
        check it."""
        path = name
        if os.sep not in name and not name.endswith('.xml'):
            found = [os.path.join(folder, name + '.xml')
                     for folder in self.node_dirs]
            path = next((item for item in found if os.path.exists(item)), None)
            if path is None:
                raise SetupError(
                    "--emulate: no node is called '%s'; there are: %s; or give "
                    'the path of an NCCL topology file (.xml)'
                    % (name, ', '.join(self.node_names()) or
                       'none, since the emulator is not built'))
        if not os.path.isfile(path):
            raise SetupError('--emulate: there is no file %s' % path)
        path = os.path.abspath(path)
        self.describe(path)
        return path

    @functools.lru_cache(None)
    def describe(self, path, sysfs=None):
        """Have the emulator check a node's file, and write the node's sysfs to a
        folder. Returns (number of GPUs, messages)."""
        if self.cuemu_dir is None:
            raise SetupError(
                '--emulate: the emulator is not built: no libcuda.so.1 in '
                '%s/cuemu; build and install ucx-mp (with libxml2), or point '
                'UCX_MP_LIBDIR to it' % self.libdir)
        words = [os.path.join(self.cuemu_dir, 'cuemu_node'), path]
        try:
            done = subprocess.run(words + [sysfs] * (sysfs is not None),
                                  stdout=subprocess.PIPE, timeout=60,
                                  stderr=subprocess.PIPE)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SetupError('--emulate: %s cannot be read: %s' % (path, error))
        said = [os.fsdecode(line) for line in (
            done.stderr if done.returncode else done.stdout).splitlines()]
        if done.returncode:
            raise SetupError('--emulate: %s' % (said or [
                '%s cannot be read: exit status %d of %s'
                % (path, done.returncode, words[0])])[-1])
        return int(said[0].split()[1]), said[1:]


def executable(word, folders=()):
    """Return the path of the program that a shell would run for `word`, or else of
    one in these folders, or None. A relative path is first one in the folders."""
    tried = [word] + [os.path.join(folder, word) for folder in folders]
    if os.sep in word:
        tried.append(tried.pop(0))
    path = next(filter(None, map(shutil.which, tried)), None)
    return os.path.abspath(path) if path else None


def is_elf(path):
    try:
        with open(path, 'rb') as file:
            return file.read(4) == b'\x7fELF'
    except OSError:
        return False


@functools.lru_cache(None)
def own_linker():
    """Return the path of this process's dynamic linker; None if it is not glibc's."""
    with open('/proc/self/maps', errors='surrogateescape') as maps:
        found = re.search(r' (/.*/ld-linux[^/\s]*)\n', maps.read())
    return found and found.group(1)


@functools.lru_cache(None)
def said_by_ldd(path, environ):
    """Return ldd's lines. `environ` are pairs of names and values. This process's
    linker gives the same answer as ldd, which is a slow script, for files of the
    same kind as itself, and an error for others."""
    for linker, more in ((own_linker(), {'LD_TRACE_LOADED_OBJECTS': '1'}),
                         ('ldd', {})):
        result = linker and subprocess.run(
            [linker, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=dict(environ, **more), errors='surrogateescape')
        if result and result.returncode == 0:
            break
    return result.stdout.splitlines()


def linked_libraries(path, environ):
    """Return {soname: path or MISSING} of the libraries that the dynamic linker
    would load for `path`, a program or a library. Runs none of its code."""
    libraries = {}
    for line in said_by_ldd(path, tuple(environ.items())):
        match = re.match(r'\t(.+?)(?: => (.+?))?(?: \(0x[0-9a-f]+\))?$', line)
        where = match and (match.group(2) or match.group(1))
        if where and '/' in where:      # relative, if LD_LIBRARY_PATH is
            where = os.path.abspath(where)
        if where and (where[0] == '/' or where == MISSING):
            libraries[os.path.basename(match.group(1))] = where
    return libraries


def together(first, then):
    """Return the libraries of a process that loads `first` and `then`: the first
    library of each name serves both."""
    found = {soname: path for soname, path in first.items() if path != MISSING}
    return dict(then, **found)


def linked(libraries, stem):
    """Return (soname, path) of the library named `stem` + '.so*'."""
    for soname, path in libraries.items():
        if re.match(re.escape(stem) + r'(-[0-9a-f]+)?\.so', soname):
            return soname, path
    return None, None


def data_of(path):
    """Return a file's bytes, to search them; empty if it cannot be read."""
    try:
        with open(path, 'rb') as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return b''


def contains(path, text):
    return data_of(path).find(text) >= 0


def strings_of_folders(path):
    """Return the folders of libraries named inside a library."""
    # a pattern that begins with plain characters is found 10 times as fast
    return [os.fsdecode(found) for found in re.findall(
        rb'\0(/[^\0\n:]*/lib[^\0\n:]*)(?=\0)', data_of(path))]


def interpreter(path):
    """Return the interpreter in the first line of a script, or None."""
    try:
        with open(path, 'rb') as file:
            first = os.fsdecode(file.readline(256))
    except OSError:
        return None
    if not first.startswith('#!'):
        return None
    words = first[2:].split()
    if words and os.path.basename(words[0]) == 'env':
        words = [word for word in words[1:] if not word.startswith('-')]
    return executable(words[0]) if words else None


def is_shell(path):
    return os.path.basename(path) in ('sh', 'bash', 'dash', 'ksh', 'zsh')


def ignores_preload(path):
    """Return whether the dynamic linker ignores LD_PRELOAD for a program, since it
    gets rights of another user."""
    seen = os.stat(path)
    try:
        attributes = os.listxattr(path)
    except OSError:
        attributes = []
    return bool(seen.st_mode & stat.S_ISUID and seen.st_uid != os.geteuid() or
                seen.st_mode & stat.S_ISGID and seen.st_gid != os.getegid() or
                os.geteuid() and 'security.capability' in attributes)


def is_python(path):
    return bool(re.match(r'(python|pypy)[\d.]*$', os.path.basename(path)))


# Without modules that take longer to import than the libraries to load. Arguments are
# groups of libraries with an empty one between them; if there are several, each is
# loaded in a process of its own.
PROBE = r'''
import ctypes, os, sys
def answer(name, text):
    print("\nucx_mp_run:" + name, text.hex())
def load(path):
    def has(name):
        try:
            return hasattr(library, name)
        except ValueError:          # an error message with a path that is not UTF-8
            return False
    try:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except (OSError, ValueError) as error:
        return answer("error", str(error).encode())
    if has("MPI_Get_library_version"):
        text = ctypes.create_string_buffer(65536)
        length = ctypes.c_int()
        library.MPI_Get_library_version(text, ctypes.byref(length))
        answer("mpi", text.value)
        # MPICH's may be asked after MPI_Init only
        if b"Open MPI" in text.value and \
                has("MPIX_Query_cuda_support") and \
                library.MPIX_Query_cuda_support():
            answer("cuda", b"y")
    if has("ucp_get_version_string"):
        library.ucp_get_version_string.restype = ctypes.c_char_p
        answer("version", library.ucp_get_version_string())
        if has("ucs_stats_node_alloc"):
            answer("statistics", b"y")
def report(group):
    for path in group:
        load(path)
    with open("/proc/self/maps", "rb") as maps:
        answer("maps", b"".join(line for line in maps if b"/libuc" in line))
groups = [[]]
for path in sys.argv[1:]:
    groups[-1].append(path) if path else groups.append([])
for group in groups[:-1]:
    child = os.fork()
    if not child:
        report(group)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
report(groups[-1])
'''


def read_answer(lines):
    """Return the names and values printed by PROBE."""
    answer = {'errors': []}
    for line in lines:
        name, _, value = line.partition(' ')
        text = os.fsdecode(bytes.fromhex(value))
        if name == 'error':
            answer['errors'].append(text)
        elif name != 'maps':
            answer[name] = text
        for path, stem in re.findall(
                r'(?m) (/.*/(libuc[ps])(?:-[0-9a-f]+)?\.so[^/\s]*)$',
                text if name == 'maps' else ''):
            answer[stem] = path
    return answer


def run_probe(groups, environ):
    """Load each group of libraries in a process of its own, without other packages to
    start faster and without modules of the current folder. Returns (lines of the
    report, the last error)."""
    words = [word for group in groups for word in ['', *group]][1:]
    child = subprocess.Popen(
        [sys.executable, '-I', '-S', '-c', PROBE, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ,
        errors='surrogateescape', start_new_session=True)
    try:
        out, err = child.communicate(timeout=LOAD_LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)    # also what it has forked
        out, err = child.communicate()[0], TOO_LATE
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        raise
    return [line[len('ucx_mp_run:'):] for line in out.splitlines()
            if line.startswith('ucx_mp_run:')], (
        err.strip().splitlines() or ['exit code %d' % child.returncode])[-1]


# answers of probe_both() that nobody has asked for yet, by libraries and environment
early_answers = {}


def asked(libraries, environ):
    return tuple(libraries), tuple(environ.items())


def probe_both(first, second, environ):
    """Report on `first` as probe() does. The same start of Python also loads
    `second`, for a later call with the same environment."""
    if not second:
        return probe(first, environ)
    lines, error = run_probe([first, second], environ)
    ends = [index + 1 for index, line in enumerate(lines)
            if line.startswith('maps ')]
    failed = {'errors': [error]}
    if error == TOO_LATE:       # do not wait as long again
        early_answers[asked(second, environ)] = failed
        return read_answer(lines[:ends[0]]) if ends else failed
    if len(ends) != 2 or ends[1] != len(lines):
        return probe(first, environ)    # one has ended early: ask about each alone
    early_answers[asked(second, environ)] = read_answer(lines[ends[0]:])
    return read_answer(lines[:ends[0]])


def probe(libraries, environ):
    """Load libraries in a process of its own, and return its report."""
    known = early_answers.pop(asked(libraries, environ), None)
    if known:
        return known
    lines, error = run_probe([libraries], environ)
    if lines and lines[-1].startswith('maps '):
        return read_answer(lines)
    return {'errors': [error]}


class Ucx:
    """The UCX that the command will load."""

    def __init__(self, answer, path, how):
        numbers = re.findall(r'\d+', answer.get('version', ''))[:3]
        self.version = tuple(map(int, numbers))     # () if unknown
        self.path = answer.get('libucp', path)
        self.libucs = answer.get('libucs', path)
        self.statistics = answer.get('statistics', False)
        self.errors = '; '.join(answer['errors']) or 'it reports no version'
        self.how = how                  # how it was found, in words

    @property
    def text(self):
        return '.'.join(map(str, self.version)) or 'of unknown release'

    @classmethod
    def among(cls, libraries, environ, how):
        """Return the UCX among a process's libraries, or None."""
        soname, path = linked(libraries, 'libucp')
        if path is None:
            return None
        if path == MISSING:
            return cls({'errors': ['%s is not found here' % soname]}, MISSING,
                       how)
        return cls(probe(cls.files(libraries), environ), path, how)

    @staticmethod
    def files(libraries):
        """Return the paths of UCX's libraries among a process's. In this order
        each finds those it depends on."""
        paths = [linked(libraries, stem)[1]
                 for stem in ('libucm', 'libucs', 'libuct', 'libucp')]
        return [path for path in paths if path not in (None, MISSING)]

    @classmethod
    def at(cls, path, environ, how):
        """Return the UCX of a libucp."""
        return cls.among(together({os.path.basename(path): path},
                                  linked_libraries(path, environ)), environ,
                         how)

    @classmethod
    def of_linker(cls, environ):
        """Return the UCX that the dynamic linker finds: a guess, used last."""
        return cls(probe(['libucp.so.0'], environ), MISSING, 'found by the '
                   'dynamic linker; the command itself names none')

    def stock_module(self, name='libuct_cuda'):
        """UCX's own CUDA module, or another of its modules, or None."""
        found = self.libucs != MISSING and matches(
            os.path.dirname(os.path.realpath(self.libucs)), 'ucx',
            name + '.so*')
        return found[0] if found else None

    def measures_gpus(self):
        """Return whether its ucx_perftest supports GPU memory, which needs a
        module."""
        return self.libucs == MISSING or \
            self.stock_module('libucx_perftest_cuda') is not None

    def plugin_suffix(self):
        """Return the suffix of plugin file names that this UCX loads."""
        return re.search(r'\.so.*|$',
                         os.path.basename(self.libucs)).group() or '.so.0'

    def check(self):
        if not self.version:
            return      # the caller reports the assumption
        if self.version[:2] < OLDEST_UCX:
            problem = 'older than 1.13, the oldest supported release'
        elif self.version[:2] > NEWEST_UCX:
            problem = 'newer than 1.23, the newest supported release'
        elif self.statistics:
            problem = ('built with statistics (--enable-stats), which is not '
                       'supported')
        else:
            return
        raise SetupError('the command uses UCX %s (%s), which is %s. --stock '
                         "runs it with UCX's own modules"
                         % (self.text, self.path, problem))


class Mpi:
    """An MPI library: its kind, and its UCX."""

    NAMES = (('Open MPI', b'Open MPI v'), ('MPICH', b'MPICH Version'),
             ('MVAPICH', b'MVAPICH'))

    def __init__(self, path, environ, loaded):
        """Examine the library at `path`, in a process with `loaded` libraries."""
        self.path = path
        libraries = linked_libraries(path, environ)
        folders, component, process = self._look(None, libraries, environ)
        answer = probe_both([path], Ucx.files(together(loaded, process)), environ)
        text = answer.get('mpi')
        if text and self._name(text) != self.name:
            folders, component, process = self._look(text, libraries, environ)
        self.version = '.'.join(re.findall(r'\d+', text or '')[:3])
        # as far as it is visible before MPI_Init
        self.has_cuda = bool(
            answer.get('cuda') or linked(libraries, 'libcuda')[0] or
            linked(libraries, 'libcudart')[0] or
            first_of(folders, 'mca_accelerator_cuda.so', 'mca_btl_smcuda.so'))
        self.ucx, self.why_none = None, None    # or the reason if none was found
        how = 'through %s' % component if component else \
            'linked into %s' % self.path
        if linked(process, 'libucp')[0]:
            self.ucx = Ucx.among(together(loaded, process), environ, how)
        elif component:
            self.why_none = ('%s needs no libucp: its UCX is linked in '
                             'statically, where no module can be added'
                             % component)
        elif self.name == 'Open MPI':
            self.why_none = 'no component mca_pml_ucx.so in %s' % (
                ', '.join(folders) or 'any folder')
        elif self.name == 'MPICH':
            self.why_none = 'it needs no libucp'

    def _name(self, text):
        """Return the name in its own words. A library that cannot be loaded here,
        for instance without a driver, still shows its name: text is None."""
        return next(
            (name for name, mark in self.NAMES
             if (name in text if text else contains(self.path, mark))), 'MPI')

    def _look(self, text, libraries, environ):
        """Set its name. Return the folders of components, the one for UCX or None
        if none is needed, and the libraries of a process with it."""
        self.name = self._name(text)
        # others may have an Open MPI beside them
        folders = [] if self.name in ('MPICH', 'MVAPICH') else \
            self._component_folders(libraries, environ)
        component = None
        if linked(libraries, 'libucp')[0] is None:
            component = first_of(folders, 'mca_pml_ucx.so')
        if component:
            libraries = together(libraries,
                                 linked_libraries(component, environ))
        return folders, component, libraries

    def _component_folders(self, libraries, environ):
        """Return the folders where an Open MPI looks for components, in order."""
        folders = environ.get('OMPI_MCA_' + COMPONENT_PATH, '').split(':')
        bases = [os.path.join(environ['OPAL_PREFIX'], 'lib')] \
            if environ.get('OPAL_PREFIX') else []
        # the library contains the folder it was built for
        bases += strings_of_folders(linked(libraries, 'libopen-pal')[1] or
                                    self.path)
        for path in (self.path, os.path.realpath(self.path)):
            base = os.path.dirname(path)
            bases += [base, os.path.join(base, 'openmpi', 'lib')]
        for base in dict.fromkeys(bases):
            folders += sorted(matches(base, 'openmpi*'))
        return [folder for folder in dict.fromkeys(folders)
                if os.path.isdir(folder)]

    @property
    def text(self):
        return ('%s %s' % (self.name, self.version)).strip()

    @property
    def is_abi(self):
        """Whether this is the library of MPI 5's standard ABI."""
        return os.path.basename(self.path).startswith('libmpi_abi.so')

    def collectives(self):
        """Return the name of the MPI interposition library, or None. The
        variant for MPI 4 exports functions that an older MPI lacks, which
        programs would notice."""
        if self.is_abi:
            return ABI_COLLECTIVES
        name = COLLECTIVES.get(self.name)
        if name is not None and contains(self.path, b'MPI_Isendrecv\0'):
            name = name.replace('.so', '_mpi4.so')
        return name


def first_of(folders, *names):
    """Return the path of the first existing file of these names, or None."""
    return next((os.path.join(folder, name)
                 for folder in folders for name in names
                 if os.path.exists(os.path.join(folder, name))), None)


def is_hydra(path):
    """Return whether an mpirun is MPICH's."""
    return bool(re.search(r'hydra|mpich',
                          os.path.basename(os.path.realpath(path))))


def mpi_of_launcher(path):
    """Return the libmpi of an mpirun, or None."""
    real = os.path.realpath(path)
    folders = []
    for launcher in (path, real):
        prefix = os.path.dirname(os.path.dirname(launcher))
        folders += [os.path.join(prefix, 'lib'), os.path.join(prefix, 'lib64')]
        folders += matches(prefix, 'lib', '*-linux-gnu*')
    names = ['libmpich.so.12', 'libmpi.so.12'] if is_hydra(path) else []
    names += ['libmpi.so.40', 'libmpi.so.12', 'libmpich.so.12', 'libmpi.so',
              'libmpi_abi.so.1', 'libmpi_abi.so.0']
    return next(filter(None, (first_of(folders, name) for name in names)), None)


# programs beside this one that load no UCX
NO_UCX = ('ucx_mp_perf', 'ucx_mp_topo', 'ucx_mp_trace')
LAUNCHERS = re.compile(
    r'(mpirun|mpiexec|orterun|prterun)([.](openmpi|mpich|hydra|gforker))?$')


def importing(path):
    """Return a pattern for Python text that loads the UCX at `path`, by its
    package: libucx/lib is ucxx's, nixl_cu12.libs NIXL's."""
    folder = os.path.dirname(path)
    if folder.endswith('.libs'):
        name = os.path.basename(folder)[:-len('.libs')]
        names = [name, re.sub(r'_cu\d+$', '', name)]
    else:
        names = ['libucx', 'ucxx', 'ucp', 'distributed_ucxx']
    return r'(?m)(^|;)\s*(import|from)\s+(\w+\s*,\s*)*(%s)\b' % '|'.join(
        map(re.escape, names))


# programs that run another one, named behind their options
WRAPPERS = {'chrt', 'env', 'gdb', 'ionice', 'ltrace', 'nice', 'nohup', 'nsys',
            'numactl', 'perf', 'prlimit', 'salloc', 'setarch', 'setsid', 'stdbuf',
            'strace', 'taskset', 'time', 'timeout', 'unshare', 'valgrind'}
# a launcher's options with a folder where ranks or their programs are
FOLDER_OPTIONS = ('-wdir', '--wdir', '-wd', '--wd', '-path', '--path', '-D',
                  '--chdir')
# a launcher as a word of a shell's line, also by its path
HIDDEN_LAUNCHER = re.compile(
    rb'(?m)^(?:[^#\n]*[;&|(`\s])?["\']?(?:[^\s#="\']*/)?(mpirun|mpiexec|srun)["\']?'
    rb'(?=\s|$)')
# words before a subcommand, or before a value that may be the name of a program
NOT_PROGRAM = {'nsys', 'perf', '-e', '-s', '--signal'}


def program_of(word, folders=()):
    """Return the path of the program that a word names; None for an option."""
    return None if word.startswith('-') else executable(word, folders)


def is_wrapper(word):
    return os.path.basename(word) in WRAPPERS and program_of(word) is not None


def behind_wrappers(words, folders=()):
    """Return the index of the program that these words run; their number if
    there is none."""
    return next((index for index, word in enumerate(words)
                 if program_of(word, folders) and not is_wrapper(word) and not (
                     index and words[index - 1] in NOT_PROGRAM)), len(words))


def split_applications(words):
    """Return a launcher's words as one list per application."""
    found = [[]]
    for word in words:
        if word == ':':
            found.append([])
        else:
            found[-1].append(word)
    return found


class Target:
    """The program to run, and the UCX it will load."""

    def __init__(self, command, environ, named=None):
        self.environ = dict(environ)
        self.command = list(command)
        self.path = executable(command[0])
        self.launcher = None            # index of mpirun in the command, or None
        self.folders = []               # where it looks for programs, besides PATH
        self.program = None             # program of the ranks
        self.mpi = None
        self.ucx = None
        self.others = []                # other UCXs that may be loaded
        self.certain = True             # this UCX is certain
        self.is_told = False            # found by a Python program's imports
        self.wheel_libs = None          # library folder for a wheel's programs
        if self.path is None:
            self._not_found(command[0])
        self._find_programs()
        self._set_ranks_environment()
        self.named = self._named_ucx(named) if named is not None else None
        self._find_ucx()
        self.certain = bool(self.ucx.version) and (self.certain or
                                                   self.named is not None)

    @staticmethod
    def _not_found(word):
        if os.path.isdir(word):
            raise SetupError('%s is a folder, not a program' % word,
                             EXIT_NOT_FOUND)
        if os.path.exists(word) and not os.access(word, os.X_OK):
            raise SetupError('%s is not executable' % word, EXIT_NOT_FOUND)
        raise SetupError('%s: command not found%s' % (
            word, ' in PATH; ./%s is here' % word if os.path.exists(word) else
            ''), EXIT_NOT_FOUND)

    def _find_programs(self):
        """Find launcher and candidate programs in the command's words."""
        first = behind_wrappers(self.command)
        words = self.command[:first + 1]
        name = os.path.basename(program_of(words[-1]) or '')
        if LAUNCHERS.match(name) or name == 'srun':
            self.launcher = first
            words = self.command[first + 1:]
            # Open MPI and Slurm look in the current folder, too
            self.folders = ':'.join(word_after(words, *FOLDER_OPTIONS) +
                                    ['.']).split(':')
        else:
            # words behind the program are its arguments
            words = list(filter(is_wrapper, words[:first])) + words[first:]
        self.candidates = list(filter(None, map(self.program_of, words)))
        if self.launcher is not None and not self.candidates:
            for path in word_after(words, '-app', '--app', '-configfile',
                                   '--configfile'):
                self.candidates += filter(None, map(self.program_of,
                                                    words_of(path)))
        if self.launcher is not None and not self.candidates:
            words = [word for word in self.command[self.launcher + 1:]
                     if not word.startswith('-') and not word.isdigit() and
                     word not in self.folders]
            if words:
                self._not_found(words[-1] if len(words) == 1 else words[0])

    def program_of(self, word):
        return program_of(word, self.folders)

    def applications(self):
        """Return (begin of the words, of a wrapper or the program, of the program)
        for each of the launcher's applications, or for the command."""
        start, found, parts = 0, [], [self.command]
        if self.launcher is not None:
            start = self.launcher + 1
            parts = split_applications(self.command[start:])
        for words in parts:
            # an option's value may be the name of another program
            paths = list(map(self.program_of, words))
            at = paths.index(self.program) if self.program in paths else 0
            program = at + behind_wrappers(words[at:], self.folders)
            wrapper = next((index for index in range(program)
                            if is_wrapper(words[index])), program)
            found.append((start, start + wrapper, start + program))
            start += len(words) + 1
        return found

    def launchers_words(self):
        """Return the launcher's own words, as one list per application."""
        return [self.command[start:end] for start, end, _ in
                self.applications() if self.launcher is not None]

    def _set_ranks_environment(self):
        """Apply variables that the command sets only for the ranks."""
        for index, word in enumerate(self.command):
            name, equals, value = word.partition('=')
            if name not in ('LD_LIBRARY_PATH', 'OPAL_PREFIX', 'UCX_MODULES',
                            'UCX_TLS'):
                continue
            if equals:                                  # after -x or env
                self.environ[name] = value
            elif self.command[index - 1].endswith('env'):       # MPICH's
                self.environ[name] = ''.join(self.command[index + 1:index + 2])
            elif self.command[index - 1] == '-u':               # env's
                self.environ.pop(name, None)
        path = mca_from_command(self.command, COMPONENT_PATH)
        if path is not None:
            self.environ['OMPI_MCA_' + COMPONENT_PATH] = path
        if self.launcher is None:
            return
        path = executable(self.command[self.launcher])
        prefix = word_after(self.command, '-prefix', '--prefix')
        if LAUNCHERS.match(os.path.basename(path)) and not is_hydra(path):
            # Open MPI sets the ranks' library path if it is called by its path,
            # or if it was built to
            certain = prefix or os.path.isabs(self.command[self.launcher])
            prefix = prefix or [os.path.dirname(os.path.dirname(path))]
            (prepend if certain else append)(
                self.environ, 'LD_LIBRARY_PATH', os.path.join(prefix[0], 'lib'))

    def _find_ucx(self):
        libmpi, libraries = self._find_program()
        if libmpi is None and self.launcher is not None:
            libmpi = self._launchers_mpi(libraries)
        if libmpi is not None:
            self.mpi = Mpi(libmpi, self.environ, libraries)
        if self.ucx is not None:
            return      # of a Python installation
        self.ucx = self.named or (self.mpi and self.mpi.ucx) or \
            Ucx.among(libraries, self.environ, 'linked into %s' % self.program)
        if self.ucx is None and self.mpi and self.mpi.why_none:
            raise SetupError(
                'no UCX in this MPI (%s, %s): %s; multi-path needs an MPI '
                'with UCX'
                % (self.mpi.text, libmpi, self.mpi.why_none))
        if self.ucx is None:
            self.ucx = Ucx.of_linker(self.environ)
            self.certain = False

    def hidden_launcher(self):
        """Return a sentence if a shell or a script runs a launcher, else None."""
        index = behind_wrappers(self.command)
        words = self.command[index:]
        path = words and program_of(words[0])
        if not path or self.mpi or self.launcher is not None:
            return None
        if is_shell(path):
            text = data_of(words[1]) if words[1:] and os.path.isfile(
                words[1]) else os.fsencode(' '.join(words))
        elif is_elf(path) or not is_shell(interpreter(path) or 'sh'):
            return None
        else:
            text = data_of(path)
        found = HIDDEN_LAUNCHER.search(text)
        if not found or text.find(b'ucx_mp_run') >= 0:
            return None
        return ('%s calls %s, whose MPI is not examined: put ucx_mp_run in '
                'front of it there' % (words[0], found.group(1).decode()))

    def other_mpi(self):
        """Return a sentence if mpirun belongs to another MPI than the program,
        else None."""
        if self.launcher is None or self.mpi is None:
            return None
        path = executable(self.command[self.launcher])
        if os.path.basename(path) == 'srun':
            return None
        own = mpi_of_launcher(path)
        if own is None or os.path.realpath(own) == \
                os.path.realpath(self.mpi.path) or (self.mpi.is_abi and \
                os.path.dirname(own) == os.path.dirname(self.mpi.path)):
            return None
        return ('%s belongs to another MPI (%s) than the one %s is linked '
                "with (%s): each rank may run alone; use that MPI's mpirun"
                % (path, own, self.program, self.mpi.path))

    def _launchers_mpi(self, libraries):
        """Return the launcher's libmpi, or None. Slurm's srun has none: use the
        one found on this machine, unless the program does not use MPI."""
        path = executable(self.command[self.launcher])
        if os.path.basename(path) == 'srun':
            if libraries:
                return None
            self.certain = False
            path = executable('mpirun') or path
        return mpi_of_launcher(path)

    def _find_program(self):
        """Set the program; return its libmpi, or None, and all its libraries."""
        for path in self.candidates:
            script = interpreter(path)
            actual = script or path
            if is_python(actual):
                self.program = self.program or path
                if self.named is None and self._find_python_ucx(actual):
                    break
                continue
            if script or not is_elf(actual):
                continue
            libraries = linked_libraries(actual, self.environ)
            self._add_wheel_libraries(actual, libraries)
            found = [linked(libraries, stem)
                     for stem in ('libmpi', 'libmpich', 'libmpi_abi', 'libucp')]
            for soname, where in found:
                if where == MISSING and self.launcher is None:
                    raise SetupError('%s needs %s, which the dynamic linker '
                                     'does not find; set LD_LIBRARY_PATH'
                                     % (path, soname))
            if any(where for _, where in found):
                self.program = path
                return next((where for _, where in found[:3]
                             if where not in (None, MISSING)), None), libraries
        if self.program is None and self.candidates:
            self.program = self.candidates[0]
        return None, {}

    def _named_ucx(self, folder):
        """Return the UCX named by the user, as a folder or a libucp."""
        paths = [folder] if os.path.isfile(folder) else \
            sorted(matches(folder, 'libucp*.so*')) + \
            sorted(matches(folder, 'lib', 'libucp*.so*'))
        if not paths:
            raise SetupError('--ucx: there is no libucp.so in %s' % folder)
        if not is_elf(paths[0]):
            raise SetupError('--ucx: %s cannot be loaded: it is not a library'
                             % paths[0])
        return Ucx.at(os.path.abspath(paths[0]), self.environ, 'named by --ucx')

    def _add_wheel_libraries(self, path, libraries):
        """Support PyPI's wheels, whose programs have no path to the libraries
        beside them.
        """
        own = os.path.join(os.path.dirname(os.path.dirname(
            os.path.realpath(path))), 'lib')
        soname, libucp = linked(libraries, 'libucp')
        if (soname and os.path.exists(os.path.join(own, soname)) and
                os.path.basename(os.path.dirname(own)) == 'libucx' and
                libucp != os.path.join(own, soname)):
            self.wheel_libs = own
            prepend(self.environ, 'LD_LIBRARY_PATH', own)
            libraries.update(linked_libraries(path, self.environ))

    def assumption(self):
        """Return a sentence if it is uncertain which UCX will be loaded."""
        ucx = self.ucx
        if ucx.version:
            return ('the command may load another UCX than the one assumed, '
                    '%s, %s (%s); --ucx FILE names it%s'
                    % (ucx.text, ucx.path, ucx.how, ''.join(
                        ', such as %s (%s)' % (other.path, other.text)
                        for other in self.others)))
        return ('the release of the UCX that the command will load (%s) is '
                'unknown: %s; assuming one from %d.%d to %d.%d, --ucx FILE names '
                'it'
                % ((ucx.how, ucx.errors) + OLDEST_UCX + NEWEST_UCX))

    def _find_python_ucx(self, python):
        """Find the UCXs in packages of a Python installation."""
        # '' is the current folder
        code = ('import sys; sys.path[:] = [p for p in sys.path if p]; '
                'import json; print(json.dumps([sys.prefix, sys.path]))')
        try:
            result = subprocess.run([python, '-c', code], timeout=60,
                                    stdout=subprocess.PIPE, env=self.environ,
                                    stderr=subprocess.DEVNULL,
                                    universal_newlines=True)
            import json         # few runs need it at their start
            prefix, sites = json.loads(result.stdout.splitlines()[-1])
        except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
            return False
        if self.launcher is not None:
            return False    # the MPI decides
        found = []
        for site in sites:
            found += matches(site, 'libucx', 'lib', 'libucp.so.0')
            found += matches(site, '*.libs', 'libucp-*.so*')
        found += matches(prefix, 'lib', 'libucp.so.0')
        found += matches(prefix, 'lib', 'openmpi', 'libucp.so.0')
        text = self._python_text()
        ucxs = [Ucx.at(path, self.environ, 'in the Python installation %s'
                       % prefix) for path in found]
        for ucx in ucxs:
            ucx.is_imported = re.search(importing(ucx.path), text) is not None
        ucxs = [ucx for ucx in ucxs if ucx.version]
        # of several, prefer the imported one, then one that the module supports
        ucxs.sort(key=lambda ucx: (not ucx.is_imported, not (
            OLDEST_UCX <= ucx.version[:2] <= NEWEST_UCX)))
        if not ucxs:
            return False
        self.ucx, self.others = ucxs[0], ucxs[1:]
        if self.ucx.is_imported and self.others:
            self.ucx.how += ', imported by the program'
        self.certain = not self.others
        self.is_told = [ucx.is_imported for ucx in ucxs].count(True) == 1
        return True

    def _python_text(self):
        """Return the text of a Python command, as far as its words show it: that
        of -c, an import of the module of -m, or a script."""
        start = [is_python(word) for word in self.command + ['python']].index(
            True) + 1
        words = self.command[start:] or self.command
        for index, word in enumerate(words):
            if word in ('-c', '-m'):
                return ''.join(['import ' * (word == '-m')] +
                               words[index + 1:index + 2])
            path = executable(word) or word
            if os.path.isfile(path) and not is_elf(path):
                return data_of(path)[:1 << 20].decode('utf-8', 'replace')
        return ''
