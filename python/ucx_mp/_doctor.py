# SPDX-License-Identifier: BSD-3-Clause
"""ucx_mp_run --doctor: check this machine, and name the remedy for each fault.

Checks files, system, GPUs and each UCX found, then sends verified messages of
each kind between two processes (_transfer.py), started as by ucx_mp_run. Prints
one line per subject (--json: one object). Exit status:

    0   all messages arrived correctly
    1   the same, but a line names something slow and its remedy
    2   a message failed, or a requirement of messages
    3   nothing could be sent: no GPU, or no supported UCX
"""

import itertools
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

from ucx_mp import _hosts

EXIT_SLOW = 1
EXIT_FAILED = 2
EXIT_NOTHING_TRIED = 3
TRANSFER_LIMIT = 45             # seconds for all messages, unless ...
LIMIT_NAME = 'UCX_MP_DOCTOR_LIMIT'      # ... this says otherwise
STUBBORN_LIMIT = 5              # seconds from SIGTERM to SIGKILL
SHM_WANTED = 16 << 20           # bytes: the ledger, UCX's own, a session
FILES_WANTED = 1024             # open ones a process: Linux's default
SLOW_GBPS = 5                   # no direct GPU link is as slow
SLOW_HOST_GBPS = 2              # PCIe 3 has six times as much
DIRECT_HOST_UCX = (1, 16)       # sends host memory to a GPU without buffers
SLOW_SHARE = 0.5                # of what the model expects
KIND_TEXT = {'gpu-gpu': 'GPU to GPU',
             'host-gpu': 'host to GPU',
             'gpu-host': 'GPU to host',
             'locked-gpu': 'locked to GPU',
             'gpu-locked': 'GPU to locked'}

FIRST_PID_NAMESPACE = 0xeffffffc        # its inode, the same on all machines

# message in a line of UCX's log, without time, process and source line
UCX_SAYS = re.compile(r'\bUCX +(?:WARN|ERROR) +(.*)')

# the module's count of messages, and the bytes of each path
SUMMARY = re.compile(r'\b\d+ messages, (?:none|\d+) over several paths'
                     r'(?:: ([^;]*) MiB;)?')

# runs in a separate process: a broken driver may hang or crash it
GPUS = '''
import ctypes, json, sys
sys.path.insert(0, sys.argv[1])
from ucx_mp import _transfer
try:
    cuda = _transfer.Cuda()
    version = ctypes.c_int()
    cuda.call("cuDriverGetVersion", ctypes.byref(version))
    apart = []
    for one in range(cuda.count):
        for other in range(cuda.count):
            can = ctypes.c_int(1)
            if one != other:
                cuda.call("cuDeviceCanAccessPeer", ctypes.byref(can), one,
                          other)
            if not can.value:
                apart.append([one, other])
    print(json.dumps({"names": cuda.names(), "version": version.value,
                      "apart": apart}))
except _transfer.TransferError as error:
    print(json.dumps({"error": str(error)}))
'''


def pid_namespace():
    """Return the inode of this process's PID namespace, or None."""
    try:
        return os.stat('/proc/self/ns/pid').st_ino
    except OSError:
        return None


def way_of(said):
    """Return the paths of messages between two GPUs according to UCX's log lines
    at level info, and ': ' with a cure, or ''."""
    found = SUMMARY.search(said)
    if 'cannot map memory' in said:
        return "host memory, in UCX's buffers" if found else \
            'another transport of UCX', \
            ': peers cannot map this memory; in containers, start both ' \
            'processes in one PID namespace (--pid=host)'
    if not found:
        return 'another transport of UCX', \
            ': see UCX_TLS above, and the lines of UCX_LOG_LEVEL=info'
    paths = [name for name, mib in re.findall(r'(\S+) ([0-9.]+)(?:,|$)',
                                              found.group(1) or '')
             if float(mib) > 0]
    if 'has no peer access' in said:
        return ', '.join(paths) or 'host memory, by the driver', \
            ': the GPUs have no peer access; on bare metal, switch IOMMU and ' \
            'ACS off'
    if 'is not visible to this process' in said:
        return 'direct', ': let each process see all GPUs'
    return ', '.join(paths) or 'direct', ''


class Doctor:
    """The checks, their lines, and the exit status."""

    def __init__(self, launcher, options):
        self.launcher = launcher        # ucx_mp_run itself, as a module
        self.options = options
        self.failed = 0
        self.looked = 0
        self.tried = 0
        self.install = None
        self.lines = []
        self.speeds = {}                # kind -> GB/s
        self.expected = {}              # set of paths -> GB/s, best first
        self.apart = []                 # pairs of GPUs that are no peers
        self.count = 0                  # GPUs
        self.speaker = 'UCX or %s said: ' % options.peer[0] if options.peer \
            else 'UCX said: '
        self.has_one_namespace = True   # both processes of a message
        self.has_equal_pids = False     # ... and different namespaces
        self.version = DIRECT_HOST_UCX  # of the tested UCX

    # ------------------------------------------------------------------ lines

    def line(self, word, subject, text):
        self.lines.append({'word': word, 'subject': subject, 'text': text})
        if not self.options.json:
            text = '%-7s %-14s %s' % (word, subject, text)
            encoding = sys.stdout.encoding or 'ascii'
            print(text.encode(encoding, 'backslashreplace').decode(encoding),
                  flush=True)

    def note(self, subject, text):
        """Print a hint that needs no action."""
        self.line('note', subject, text)

    def good(self, subject, text):
        self.line('ok', subject, text)

    def look(self, subject, text):
        self.looked += 1
        self.line('look', subject, text)

    def bad(self, subject, text):
        self.failed += 1
        self.line('FAILED', subject, text)

    # --------------------------------------------------------------- subjects

    def files(self):
        install = self.install
        for name in (self.launcher.MODULE, self.launcher.PRELOAD):
            try:
                path = install.library(name)
            except self.launcher.SetupError as error:
                self.bad('files', str(error))
                return False
            answer = self.launcher.probe([path], dict(os.environ))
            if answer['errors']:
                self.bad('files', '%s cannot be loaded: %s'
                         % (path, '; '.join(answer['errors'])))
                return False
        self.good('files', 'module and preload library in %s' % install.libdir)
        if install.cuemu_dir:
            self.good('emulator', 'nodes: %s' % ', '.join(install.node_names()))
        else:
            self.note('emulator', 'not built, since libxml2 was missing: only '
                      '--emulate does not work')
        return True

    def system(self):
        cores = len(os.sched_getaffinity(0))
        self.good('system', '%s, %s, Linux %s, %d cores for this process'
                  % (os.uname().machine, ' '.join(platform.libc_ver()) or
                     'C library unknown', os.uname().release, cores))
        if cores < 3:
            tell = self.note if self.options.emulate else self.look
            tell('cores', 'this process may use %d: the driver copies '
                 'pageable host memory; with 3 or more cores per rank, faster '
                 'threads do (mpirun --bind-to none)' % cores)
        try:
            free = shutil.disk_usage('/dev/shm').free
            if not os.access('/dev/shm', os.W_OK):
                self.look('/dev/shm', 'not writable: processes cannot announce '
                          'the links they use; name a folder in '
                          'UCX_CUDA_IPC_MULTIPATH_LEDGER')
            elif free < SHM_WANTED:
                self.look('/dev/shm', '%.1f MiB free, %d are needed; in a '
                          'container: --shm-size=1g or --ipc=host'
                          % (free / 2 ** 20, SHM_WANTED >> 20))
            else:
                self.good('/dev/shm', '%.0f MiB free' % (free / 2 ** 20))
        except OSError as error:
            self.look('/dev/shm', 'missing (%s): mount a tmpfs there'
                      % error.strerror)
        self.ptrace()
        self.namespaces()
        self.open_files()

    def ptrace(self):
        try:
            with open('/proc/sys/kernel/yama/ptrace_scope') as file:
                scope = int(file.read())
        except (OSError, ValueError):
            return
        if scope > 1:
            self.look('ptrace', 'kernel.yama.ptrace_scope is %d: processes '
                      "cannot read each other's memory, so UCX copies host "
                      'memory through shared memory; set it to 0' % scope)

    def namespaces(self):
        if pid_namespace() in (None, FIRST_PID_NAMESPACE):
            return
        self.note('PID namespace', 'not the first one, as in a container. This '
                  'is fine if all ranks of the node are in it. Ranks in several '
                  'PID namespaces cannot use cuda_cma and do not see which '
                  'links the others use. They cannot map memory of a process '
                  'with an equal PID, nor, without a common network namespace, '
                  'memory of cuMemCreate and pools. Use one container for all '
                  'ranks of a node, or --pid=host; --doctor --peer COMMAND '
                  'checks two containers')

    def open_files(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < FILES_WANTED:
            self.look('open files', 'a process may open %d: UCX and the CUDA '
                      'driver open files for each GPU and peer, and messages '
                      'fail at the limit; ulimit -n %d%s'
                      % (soft, FILES_WANTED, '' if hard >= FILES_WANTED or
                         hard == resource.RLIM_INFINITY else ' (as root: the '
                         'hard limit is %d)' % hard))

    def gpus(self):
        """Return the number of GPUs."""
        where = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
        words = self.under() if self.options.emulate else []
        try:
            result = subprocess.run(
                words + [sys.executable, '-I', '-c', GPUS, where],
                timeout=max(20, self.end - time.monotonic()),
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                errors='surrogateescape')
            answer = json.loads((result.stdout.splitlines() or ['{}'])[-1])
        except subprocess.TimeoutExpired:
            answer = {'error': 'the driver does not answer'}
        except ValueError:
            answer = {}
        names = answer.get('names', [])
        visible = os.environ.get('CUDA_VISIBLE_DEVICES')
        if not names:
            error = answer.get('error', 'the CUDA driver finds none')
            has_driver = 'libcuda' not in error
            self.look('GPUs', '%s; %s' % (
                error, 'CUDA_VISIBLE_DEVICES=%s may hide them' % visible
                if has_driver and visible is not None else
                '--doctor --emulate beluga checks the rest on an emulated node'))
            return 0
        kinds = ', '.join('%d x %s' % (names.count(name), name)
                          for name in dict.fromkeys(names))
        self.good('GPUs', '%s%s, driver for CUDA %d.%d'
                  % ('emulated (%s): ' % self.options.emulate
                     if self.options.emulate else '', kinds, answer['version'] // 1000,
                     answer['version'] % 1000 // 10))
        if len(names) == 1:
            self.look('GPUs', 'only one is visible%s: messages use the direct '
                      'path only' % (
                          ' (CUDA_VISIBLE_DEVICES=%s: let each process see all '
                          'GPUs)' % visible if visible else ''))
        self.apart = [pair for pair in answer['apart'] if pair[0] < pair[1]]
        if self.apart:
            self.look('peer access', 'these pairs of GPUs have none: %s; their '
                      'messages go through host memory (on bare metal, IOMMU '
                      'or ACS may be the cause: switch them off)' % ', '.join(
                          '%d-%d' % tuple(pair) for pair in self.apart))
        return len(names)

    # -------------------------------------------------------------------- UCX

    def command(self, target):
        """Report on the command given by the user."""
        launcher = self.launcher
        other = target.other_mpi()
        if other:
            self.bad('MPI', other)
        if target.others:
            self.look('UCX', 'the process may load more than one (%s): the '
                      'first to start gets the module, the others do not; '
                      '--ucx FILE names the right one'
                      % ', '.join('%s, %s' % (ucx.text, ucx.path) for ucx in
                                  [target.ucx] + target.others))
        if self.options.emulate and target.program and \
                launcher.is_elf(target.program) and \
                launcher.has_static_runtime(target.program, target.environ):
            self.bad('program', launcher.static_runtime(target.program))
        settings = launcher.Settings(os.environ)
        launcher.set_mpi(settings, target)
        for sentence in settings.notes:
            self.look('variables', sentence)
        _hosts.examine(self, target)

    def find_ucx(self):
        """Return the UCXs found on this machine, supported ones first."""
        launcher, options = self.launcher, self.options
        if options.command or options.ucx:
            target = launcher.Target(options.command or [sys.executable],
                                     os.environ, options.ucx)
            self.command(target)
            return [target.ucx] + target.others
        found = []
        for words in ([sys.executable], ['mpirun']):
            if not launcher.executable(words[0]):
                continue
            try:
                target = launcher.Target(words, os.environ)
            except launcher.SetupError as error:
                self.look('MPI', str(error))
                continue
            mpi = target.mpi
            if mpi:
                self.good('MPI', '%s%s (%s), UCX %s' % (
                    mpi.text, ', with CUDA' if mpi.has_cuda else '', mpi.path,
                    target.ucx.text))
            found += [ucx for ucx in [target.ucx] + target.others
                      if ucx.version or mpi]
        guess = launcher.Ucx.of_linker(os.environ)
        found += [guess] if guess.version else []
        first = {}
        for ucx in found:
            first.setdefault(os.path.realpath(ucx.path), ucx)
        return list(first.values())

    def ucx(self):
        """Return the UCX to test, or None."""
        chosen = None
        try:
            found = self.find_ucx()
        except self.launcher.SetupError as error:
            self.bad('UCX', str(error))
            return None
        for ucx in found:
            if not ucx.version:
                self.look('UCX', '%s: %s; --ucx FILE names another one'
                          % (ucx.how, ucx.errors))
                continue
            try:
                ucx.check()
            except self.launcher.SetupError as error:
                self.look('UCX', str(error))
                continue
            chosen = chosen or ucx
            self.good('UCX', '%s, %s (%s; its own CUDA module: %s)' % (
                ucx.text, ucx.path, ucx.how, ucx.stock_module() or 'none'))
        if chosen:
            self.gdr_copy(chosen)
        if not found:
            self.bad('UCX', 'not found; install one (pip install '
                     'libucx-cu12, or %s), or name one with --ucx' %
                     ('dnf install ucx' if shutil.which('dnf') else
                      'apt-get install libucx0'))
        return chosen

    def gdr_copy(self, ucx):
        """Report whether GDRCopy can carry small GPU messages."""
        module = ucx.stock_module('libuct_cuda_gdrcopy')
        if not module:
            self.note('gdr_copy', 'this UCX was built without GDRCopy: the '
                      'driver copies small GPU messages, some us each; in a '
                      'UCX built --with-gdrcopy the processor copies those of '
                      'a few KiB in less than 1 us')
            return
        environ = dict(os.environ)
        if self.options.emulate:
            environ['LD_LIBRARY_PATH'] = self.install.cuemu_dir
        gone = [name for name, path in self.launcher.linked_libraries(
            module, environ).items() if path == self.launcher.MISSING
            and 'gdrapi' in name]
        if gone:
            self.look('gdr_copy', '%s needs %s, which is missing: install '
                      'GDRCopy, to copy small GPU messages in less than 1 us '
                      'instead of some us' % (module, gone[0]))
        elif not (self.options.emulate or os.path.exists('/dev/gdrdrv')):
            self.look('gdr_copy', '%s is installed, but /dev/gdrdrv is missing: '
                      'load the kernel module gdrdrv, to copy small GPU '
                      'messages in less than 1 us instead of some us' % module)
        else:
            self.good('gdr_copy', '%s is loaded beside the module' % module)

    # --------------------------------------------------------------- messages

    def size(self):
        """Return the size of a test message, MiB."""
        return 4 if self.options.emulate else 64

    def under(self, *extra):
        """Return the words of ucx_mp_run with --emulate, if given."""
        words = [sys.executable, self.launcher.state.program, '--quiet']
        if self.options.emulate:
            words += ['--emulate', self.options.emulate]
        if self.options.slowdown:
            words += ['--slowdown', '%g' % self.options.slowdown]
        return words + list(extra)

    def expect(self, one=0, other=1):
        """Return the bandwidth expected by the model of the links, by paths."""
        topo = self.install.program('ucx_mp_topo')
        if not os.path.exists(topo):
            return {}
        try:
            text = subprocess.run(
                self.under(topo, '--plan', str(one), str(other),
                           '%dM' % self.size()),
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                timeout=max(1, self.end - time.monotonic()),
                errors='surrogateescape').stdout
        except subprocess.TimeoutExpired:
            return {}
        return {paths: float(speed) for speed, paths in re.findall(
            r' us +([0-9.]+) GB/s +[0-9.]+x +(\S+)\n',
            text.partition('\nby the model')[2])}

    def links(self):
        """Report links with different bandwidths in different sources."""
        topo = self.install.program('ucx_mp_topo')
        if not os.path.exists(topo):
            return
        try:
            text = subprocess.run(
                self.under(topo), stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, errors='surrogateescape',
                timeout=max(1, self.end - time.monotonic())).stdout
        except subprocess.TimeoutExpired:
            return
        doubts = re.findall(r'^(gpu\d+): (taken for PCIe .*)$', text, re.M)
        for what in dict.fromkeys(what for _, what in doubts):
            self.note('links', '%s: %s' % (', '.join(
                gpu for gpu, other in doubts if other == what), what))

    def peer(self, ucx, extra):
        """Return the words that start the receiver, with the launcher's: it may
        not inherit variables."""
        words = list(self.options.peer)
        if words and not self.options.emulate:
            words += self.under('--ucx', ucx.path, *extra)
        return words

    def apart_of(self, here, there):
        """Report what keeps the two processes of a message apart."""
        self.has_one_namespace = \
            here.get('pid namespace') == there.get('pid namespace')
        self.has_equal_pids = not self.has_one_namespace and \
            here['pid'] == there['pid']
        apart = [name for name in here if name != 'pid' and
                 here[name] != there.get(name)]
        text = 'process %d here, %d there; ' % (here['pid'], there['pid']) + \
            ('not shared: ' + ', '.join(apart) if apart else
             'all namespaces shared')
        if self.has_one_namespace:
            self.good('processes', text)
        elif self.has_equal_pids:
            self.look('processes', text + ': the CUDA driver shares no memory '
                      'between processes with equal PIDs; start both with '
                      '--pid=host, or in one container')
        elif 'net namespace' in apart:
            self.look('processes', text + ': memory of cuMemCreate and pools '
                      'is not shared, and UCX needs a network between them; '
                      'start both with --net=host')
        else:
            self.good('processes', text)

    def transfers(self, ucx, extra=(), kinds=(), said=None):
        """Run _transfer.py and yield its results; an error as {'error': ...}.
        With `said`, append UCX's log lines to it."""
        here = os.path.dirname(os.path.realpath(__file__))
        size = ['--size', '%d' % self.size(), '--rounds', '3'] \
            if self.options.emulate else []
        words = self.under('--ucx', ucx.path, *extra)
        words += [sys.executable, os.path.join(here, '_transfer.py'), ucx.path]
        words += list(kinds) + size
        words += ['--peer=' + word for word in self.peer(ucx, extra)]
        left = max(1, self.end - time.monotonic())
        environ = dict(os.environ)
        if said is not None:
            environ['UCX_CUDA_IPC_MULTIPATH_START'] = 'wait'
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, env=environ,
                                 errors='surrogateescape',
                                 start_new_session=True)
        said = [] if said is None else said
        late = threading.Event()

        def stop():
            late.set()
            try:
                os.killpg(child.pid, signal.SIGTERM)
            except OSError:
                pass        # it has ended by itself

        clock = threading.Timer(left, stop)
        clock.start()
        ear = threading.Thread(target=lambda: said.extend(child.stderr),
                               daemon=True)
        ear.start()
        had_error = False
        try:
            for text in child.stdout:
                try:
                    words = json.loads(text)
                except ValueError:
                    said.append(text)       # UCX's warnings go to stdout
                    continue
                had_error = had_error or 'error' in words
                yield words
            code = child.wait()
        finally:
            # end the child even if the caller stops early: at exit Python waits
            # for threads, and these wait for the child
            clock.cancel()
            if child.poll() is None:
                stop()
                try:
                    child.wait(STUBBORN_LIMIT)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
        # a receiver started by --peer may outlive SIGTERM, and keep stderr open
        ear.join(STUBBORN_LIMIT)
        if ear.is_alive():
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except OSError:
                pass        # it has left the session
            ear.join(1)
        # UCX prints the reason before its backtrace
        said = itertools.takewhile(
            lambda text: not text.startswith('==== backtrace'), list(said))
        said = [text.strip() for text in said if text.strip()]
        last = said[-3:]
        warned = dict.fromkeys(match.group(1) for match in map(
            UCX_SAYS.search, said) if match)
        if late.is_set():
            yield {'error': 'stopped after %.0f s' % left}
        elif code != 0 and not had_error:
            yield {'error': 'the process ended with status %d%s' % (
                code, ': ' + ' | '.join(last) if last else '')}
        elif had_error and last:
            yield {'said': ' | '.join(last)}
        for sentence in warned if code == 0 else ():
            yield {'warned': sentence}

    def one_path(self, ucx):
        """Return GB/s between two GPUs over the direct path alone, or None."""
        said = list(self.transfers(ucx, ['--multipath', 'n'], ['gpu-gpu']))
        return next((words['gbps'] for words in said
                     if words.get('kind') == 'gpu-gpu'), None)

    def messages(self, ucx):
        how = 'emulated' if self.options.emulate else 'measured'
        self.expected = self.expect()
        self.version = ucx.version
        waiting = list(KIND_TEXT)
        for words in self.transfers(ucx, kinds=waiting):
            if 'surroundings' in words:
                self.apart_of(*words['surroundings'])
            elif 'module' in words:
                self.module(words['module'], words['stays_out'])
            elif 'kind' in words:
                self.message(waiting.pop(0), words['gbps'], how)
            elif 'error' in words and waiting:
                self.tried += 1
                self.bad(KIND_TEXT[waiting.pop(0)], words['error'])
            elif 'said' in words:
                self.line('', '', self.speaker + words['said'])
            elif 'warned' in words:
                self.look('UCX said', words['warned'])
        for kind in waiting:
            self.look(KIND_TEXT[kind], 'not tried')
        one = self.one_path(ucx) if 'gpu-gpu' not in waiting else None
        if one:
            self.good('GPU to GPU', '%6.1f GB/s, %s, over the direct path alone%s'
                      % (one, how, self.beside(self.expected.get('direct'))))
        if one and self.count > 1:
            self.ways(ucx)
        # the other messages use the first two GPUs
        if self.apart and self.apart[0] != [0, 1] and one:
            self.no_peers(ucx, how)

    def ways(self, ucx):
        """Print the paths of each direction, and what to do about them."""
        for one, other in ((0, 1), (1, 0)):
            said = []
            gbps = 0
            for words in self.transfers(ucx, ['--summary'], [
                    'gpu-gpu', '--close', '--gpus',
                    '%d,%d' % (one, other)], said):
                if 'error' in words:
                    return      # which the messages have said, too
                gbps = words.get('gbps', gbps)
            paths, cure = way_of('\n'.join(said))
            expected = max(self.expect(one, other).values(), default=None)
            is_slow = gbps < SLOW_SHARE * (expected or 0) and \
                not self.options.emulate
            tell = self.good if not cure else \
                self.look if is_slow else self.note
            tell('path %d to %d' % (one, other), '%6.1f GB/s%s, %s%s' % (
                gbps, self.beside(expected), paths, cure))

    def no_peers(self, ucx, how):
        """Test a message between two GPUs without peer access."""
        one, other = self.apart[0]
        subject = 'GPU %d to %d' % (one, other)
        for words in self.transfers(ucx, [], ['gpu-gpu', '--gpus', '%d,%d'
                                              % (one, other)]):
            if 'kind' in words:
                self.tried += 1
                self.good(subject, '%6.1f GB/s, %s, every byte compared, '
                          'without peer access' % (words['gbps'], how))
            elif 'error' in words:
                self.tried += 1
                self.bad(subject, words['error'])
            elif 'said' in words:
                self.line('', '', self.speaker + words['said'])

    def module(self, path, stays_out):
        ours = os.path.realpath(self.install.library(self.launcher.MODULE))
        if path is None:
            self.bad('module', 'UCX has loaded no CUDA module; '
                     'UCX_LOG_LEVEL=info and the same command say more')
        elif os.path.realpath(path) != ours and not os.path.realpath(
                path).startswith(os.path.dirname(ours) + os.sep):
            self.bad('module', 'UCX has loaded another CUDA module, %s: is '
                     'UCX_MODULES or UCX_PLUGIN_PATH set?' % path)
        elif stays_out:
            self.bad('module', 'disabled: %s' % stays_out)
        else:
            self.good('module', 'in use (%s)' % path)

    def message(self, kind, gbps, how):
        self.tried += 1
        self.speeds[kind] = gbps
        expected = max(self.expected.values(), default=None) \
            if kind == 'gpu-gpu' else None
        text = '%6.1f GB/s, %s, every byte compared%s' % (
            gbps, how, self.beside(expected))
        if expected and gbps < SLOW_SHARE * expected:
            if self.options.emulate:
                self.note(KIND_TEXT[kind], text + ': an emulated node is as '
                          'slow as this machine is, or is busy')
            else:
                self.look(KIND_TEXT[kind], text + ': much slower than expected; '
                          'is there other work on these GPUs?')
            return
        if kind == 'gpu-gpu' and gbps < SLOW_GBPS and \
                not self.options.emulate:
            self.look(KIND_TEXT[kind], text + ': slower than any link between '
                      'GPUs; is UCX_TLS set, or peer access missing?')
            return
        if gbps < SLOW_HOST_GBPS and kind != 'gpu-gpu':
            tell = self.note if self.options.emulate else self.look
            tell(KIND_TEXT[kind], text + ': slower than PCIe, ' +
                 self.host_cure(kind))
            return
        self.good(KIND_TEXT[kind], text)

    def host_cure(self, kind):
        """Return the likely cause of slow messages of host memory, and its
        cure."""
        if self.has_equal_pids:
            return 'since both processes have the same PID; start both with ' \
                '--pid=host, or in one container'
        if self.version < DIRECT_HOST_UCX and (kind.endswith('-gpu') or
                                               not self.has_one_namespace):
            return 'since a UCX before 1.16 sends pieces of 8 KiB; use a newer ' \
                'one, or set UCX_PROTO_ENABLE=y with 1.15'
        return 'is UCX_TLS set, or this machine busy?'

    @staticmethod
    def beside(expected):
        return ' (%.1f by the model of the links)' % expected \
            if expected else ''

    def settings(self):
        """Report the effect of the environment's UCX variables."""
        launcher = self.launcher
        settings = launcher.Settings(os.environ)
        launcher.check_tls(settings, os.environ)
        if os.environ.get('OMPI_MCA_btl'):
            self.note('variables', "OMPI_MCA_btl=%s is for Open MPI's pml ob1; "
                      'with pml ucx it moves no messages'
                      % os.environ['OMPI_MCA_btl'])
        for sentence in settings.notes:
            self.look('variables', sentence)
        names = sorted(name for name in os.environ
                       if name.startswith('UCX_') and
                       not name.startswith('UCX_MP_'))
        if names:
            self.good('variables', 'set: %s' % ', '.join(
                '%s=%s' % (name, os.environ[name]) for name in names))

    # ------------------------------------------------------------------ whole

    def limit(self):
        text = os.environ.get(LIMIT_NAME, '')
        try:
            seconds = float(text or TRANSFER_LIMIT)
        except ValueError:
            seconds = 0
        if 0 < seconds <= 86400:
            return seconds
        self.look('variables', "%s=%s is not a number of seconds: using %d"
                  % (LIMIT_NAME, text, TRANSFER_LIMIT))
        return TRANSFER_LIMIT

    def examine(self):
        self.end = time.monotonic() + self.limit()
        try:
            self.install = self.launcher.Installation(
                os.environ,
                os.path.dirname(self.launcher.state.program))
            if self.options.emulate:
                self.install.node(self.options.emulate)
        except self.launcher.SetupError as error:
            self.bad('files', str(error))
            return
        if not self.files():
            return
        self.system()
        count = self.count = self.gpus()
        ucx = self.ucx()
        if ucx is None:
            return
        self.settings()
        if count == 0:
            self.look('messages', 'not tried, without a GPU')
            return
        self.links()
        self.messages(ucx)

    def result(self):
        code = EXIT_FAILED if self.failed else \
            EXIT_NOTHING_TRIED if not self.tried else \
            EXIT_SLOW if self.looked else 0
        if self.options.json:
            print(json.dumps({
                'status': code, 'emulated': self.options.emulate,
                'messages': self.tried, 'look': self.looked,
                'failed': self.failed, 'gbps': self.speeds,
                'gbps_by_model': self.expected,
                'lines': self.lines}, indent=1))
        else:
            print('%s, %d to look at, %d failed' % (
                '%d messages tried' % self.tried if self.tried else
                'no message tried', self.looked, self.failed))
        return code


def main(launcher, options):
    doctor = Doctor(launcher, options)
    doctor.examine()
    return doctor.result()
