# SPDX-License-Identifier: BSD-3-Clause
"""ucx_mp_run --doctor: what works on this machine, what does not, what to do.

It looks at the files, the system, the GPUs and the UCXs that it finds, and then
sends checked messages of each kind between two processes (_transfer.py), as
ucx_mp_run would run them. One line a subject; the exit status is

    0   every message arrived whole
    1   something does not work; its line says what and what to do
    3   no message could be tried: no GPU, or no UCX that the module can serve
"""

import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time

EXIT_FAILED = 1
EXIT_NOTHING_TRIED = 3
TRANSFER_LIMIT = 45             # seconds for all messages, unless ...
LIMIT_NAME = 'UCX_MP_DOCTOR_LIMIT'      # ... this says otherwise
SHM_WANTED = 16 << 20           # bytes: the ledger, UCX's own, a session
SLOW_GBPS = 5                   # no direct GPU link is as slow
KIND_TEXT = {'gpu-gpu': 'GPU to GPU',
             'host-gpu': 'host to GPU',
             'gpu-host': 'GPU to host',
             'locked-gpu': 'locked to GPU',
             'gpu-locked': 'GPU to locked'}

# in a process of its own: a driver may take its time, or the process with it
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


class Doctor:
    """The lines, and what they amount to."""

    def __init__(self, launcher, options):
        self.launcher = launcher        # ucx_mp_run itself, as a module
        self.options = options
        self.failed = 0
        self.looked = 0
        self.tried = 0
        self.install = None

    # ------------------------------------------------------------------ lines

    def line(self, word, subject, text):
        print('%-7s %-14s %s' % (word, subject, text), flush=True)

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
        self.good('files', 'module and shim in %s' % install.libdir)
        if install.cuemu_dir:
            self.good('emulator', 'nodes: %s' % ', '.join(install.node_names()))
        else:
            self.look('emulator', 'not built (libxml2 was missing): --emulate '
                      'will not work, everything else will')
        return True

    def system(self):
        cores = len(os.sched_getaffinity(0))
        self.good('system', '%s, %s, Linux %s, %d cores for this process'
                  % (os.uname().machine, ' '.join(platform.libc_ver()) or
                     'C library unknown', os.uname().release, cores))
        if cores < 3:
            self.look('cores', 'this process may use %d: host memory that is '
                      'not page-locked is copied by the driver, not by threads;'
                      ' give each rank more (mpirun --bind-to none)' % cores)
        try:
            free = shutil.disk_usage('/dev/shm').free
            if not os.access('/dev/shm', os.W_OK):
                self.look('/dev/shm', 'cannot be written: processes cannot tell '
                          'each other which links they use; name a folder in '
                          'UCX_CUDA_IPC_MULTIPATH_LEDGER')
            elif free < SHM_WANTED:
                self.look('/dev/shm', '%.1f MiB free, %d are wanted; in a '
                          'container: --shm-size=1g or --ipc=host'
                          % (free / 2 ** 20, SHM_WANTED >> 20))
            else:
                self.good('/dev/shm', '%.0f MiB free' % (free / 2 ** 20))
        except OSError as error:
            self.look('/dev/shm', 'not there (%s): mount it (a tmpfs)'
                      % error.strerror)
        self.ptrace()

    def ptrace(self):
        try:
            with open('/proc/sys/kernel/yama/ptrace_scope') as file:
                scope = int(file.read())
        except (OSError, ValueError):
            return
        if scope > 1:
            self.look('ptrace', 'kernel.yama.ptrace_scope is %d: one process '
                      "cannot read another one's memory, UCX's cma falls back "
                      'to copies through shared memory; set it to 0' % scope)

    def gpus(self, environ):
        """How many GPUs there are."""
        where = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
        try:
            result = subprocess.run(
                [sys.executable, '-c', GPUS, where], timeout=20, env=environ,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                universal_newlines=True)
            answer = json.loads((result.stdout.splitlines() or ['{}'])[-1])
        except subprocess.TimeoutExpired:
            answer = {'error': "the driver has not answered in 20 s"}
        except ValueError:
            answer = {}
        names = answer.get('names', [])
        if not names:
            self.look('GPUs', '%s; --doctor --emulate beluga tries the rest on '
                      'an emulated node' % answer.get(
                          'error', 'none that the CUDA driver shows'))
            return 0
        kinds = ', '.join('%d x %s' % (names.count(name), name)
                          for name in dict.fromkeys(names))
        self.good('GPUs', '%s, driver for CUDA %d.%d'
                  % (kinds, answer['version'] // 1000,
                     answer['version'] % 1000 // 10))
        visible = os.environ.get('CUDA_VISIBLE_DEVICES')
        if len(names) == 1:
            self.look('GPUs', 'one only%s: there are no further paths, messages '
                      'take the direct one' % (
                          ' (CUDA_VISIBLE_DEVICES=%s: let each process see all '
                          'GPUs)' % visible if visible else ''))
        if answer['apart']:
            self.look('peer access', 'the driver lets these pairs not reach '
                      'each other: %s; between them there is the host\'s path '
                      'only (IOMMU or ACS may be in the way; on bare metal, '
                      'switch them off)' % ', '.join(
                          '%d-%d' % (one, other) for one, other
                          in answer['apart'] if one < other))
        return len(names)

    # -------------------------------------------------------------------- UCX

    def find_ucx(self):
        """UCXs that are here, those that the module can serve first."""
        launcher, options = self.launcher, self.options
        if options.command or options.ucx:
            target = launcher.Target(options.command or [sys.executable],
                                     os.environ, options.ucx)
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
        """The UCX to try, or None."""
        chosen = None
        try:
            found = self.find_ucx()
        except self.launcher.SetupError as error:
            self.bad('UCX', str(error))
            return None
        for ucx in found:
            if not ucx.version:
                self.look('UCX', '%s: %s; --ucx FILE names it, where it is '
                          'another one' % (ucx.how, ucx.errors))
                continue
            try:
                ucx.check()
            except self.launcher.SetupError as error:
                self.look('UCX', str(error))
                continue
            chosen = chosen or ucx
            self.good('UCX', '%s, %s (%s; its own CUDA module: %s)' % (
                ucx.text, ucx.path, ucx.how, ucx.stock_module() or 'none'))
        if not found:
            self.bad('UCX', 'none is here; install one (pip install '
                     'libucx-cu12, or %s), or name one with --ucx' %
                     ('dnf install ucx' if shutil.which('dnf') else
                      'apt-get install libucx0'))
        return chosen

    # --------------------------------------------------------------- messages

    def transfers(self, ucx, extra=(), kinds=()):
        """Yields what _transfer.py prints; an error as {'error': sentence}."""
        here = os.path.dirname(os.path.realpath(__file__))
        size = ['--size', '4', '--rounds', '3'] if self.options.emulate else []
        words = [sys.executable, os.path.realpath(self.launcher.__file__),
                 '--quiet', '--ucx', ucx.path]
        if self.options.emulate:
            words += ['--emulate', self.options.emulate]
        if self.options.slowdown:
            words += ['--slowdown', '%g' % self.options.slowdown]
        words += list(extra)
        words += [sys.executable, os.path.join(here, '_transfer.py'), ucx.path]
        words += list(kinds) + size
        left = max(1, self.end - time.monotonic())
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE,
                                 universal_newlines=True,
                                 start_new_session=True)
        said = []
        late = threading.Event()

        def stop():
            late.set()
            try:
                os.killpg(child.pid, signal.SIGTERM)
            except OSError:
                pass        # it has ended by itself

        clock = threading.Timer(left, stop)
        clock.start()
        ear = threading.Thread(target=lambda: said.extend(child.stderr))
        ear.start()
        had_error = False
        try:
            for text in child.stdout:
                try:
                    words = json.loads(text)
                except ValueError:
                    continue
                had_error = had_error or 'error' in words
                yield words
            code = child.wait()
        finally:
            # also if nobody wants to hear more: Python waits for its threads,
            # and they for the child
            clock.cancel()
            if child.poll() is None:
                stop()
                try:
                    child.wait(5)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
        ear.join()
        # UCX's reason stands in front of its backtrace
        said = itertools.takewhile(
            lambda text: not text.startswith('==== backtrace'), said)
        last = [text.strip() for text in said if text.strip()][-3:]
        if late.is_set():
            yield {'error': 'stopped, since it took more than %.0f s' % left}
        elif code != 0 and not had_error:
            yield {'error': 'the process ended with status %d%s' % (
                code, ': ' + ' | '.join(last) if last else '')}
        elif had_error and last:
            yield {'said': ' | '.join(last)}

    def one_path(self, ucx):
        """GB/s between two GPUs over the direct path alone, or None."""
        said = list(self.transfers(ucx, ['--multipath', 'n'], ['gpu-gpu']))
        return next((words['gbps'] for words in said
                     if words.get('kind') == 'gpu-gpu'), None)

    def messages(self, ucx):
        how = 'modelled' if self.options.emulate else 'measured'
        waiting = list(KIND_TEXT)
        for words in self.transfers(ucx, kinds=waiting):
            if 'module' in words:
                self.module(words['module'], words['stays_out'])
            elif 'kind' in words:
                self.message(waiting.pop(0), words['gbps'], how)
            elif 'error' in words and waiting:
                self.tried += 1
                self.bad(KIND_TEXT[waiting.pop(0)], words['error'])
            elif 'said' in words:
                self.line('', '', 'UCX said: ' + words['said'])
        for kind in waiting:
            self.look(KIND_TEXT[kind], 'not tried')
        one = self.one_path(ucx) if 'gpu-gpu' not in waiting else None
        if one:
            self.good('GPU to GPU', '%6.1f GB/s over the direct path alone' % one)

    def module(self, path, stays_out):
        ours = os.path.realpath(self.install.library(self.launcher.MODULE))
        if path is None:
            self.bad('module', 'UCX has loaded no CUDA module; '
                     'UCX_LOG_LEVEL=info and the same command say more')
        elif os.path.realpath(path) != ours and not os.path.realpath(
                path).startswith(os.path.dirname(ours) + os.sep):
            self.bad('module', "UCX has loaded %s, which is not ours: is "
                     'UCX_MODULES or UCX_PLUGIN_PATH set?' % path)
        elif stays_out:
            self.bad('module', 'stays out, because %s' % stays_out)
        else:
            self.good('module', 'in use (%s)' % path)

    def message(self, kind, gbps, how):
        self.tried += 1
        text = '%6.1f GB/s, %s, every byte compared' % (gbps, how)
        if kind == 'gpu-gpu' and gbps < SLOW_GBPS and \
                not self.options.emulate:
            self.look(KIND_TEXT[kind], text + ': slower than any link between '
                      'GPUs; is UCX_TLS set, or peer access off?')
            return
        self.good(KIND_TEXT[kind], text)

    def settings(self, ucx):
        """What the variables that are set will do."""
        launcher = self.launcher
        settings = launcher.Settings(os.environ)
        launcher.check_tls(settings)
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
        self.look('variables', "%s=%s is no number of seconds: it is %d"
                  % (LIMIT_NAME, text, TRANSFER_LIMIT))
        return TRANSFER_LIMIT

    def examine(self):
        self.end = time.monotonic() + self.limit()
        try:
            self.install = self.launcher.Installation(os.environ)
            if self.options.emulate:
                self.install.node(self.options.emulate)
        except self.launcher.SetupError as error:
            self.bad('files', str(error))
            return
        if not self.files():
            return
        self.system()
        if self.options.emulate:
            count = 2
            self.good('GPUs', 'emulated: %s' % self.options.emulate)
        else:
            count = self.gpus(dict(os.environ))
        ucx = self.ucx()
        if ucx is None:
            return
        self.settings(ucx)
        if count == 0:
            self.look('messages', 'not tried, without a GPU')
            return
        self.messages(ucx)

    def result(self):
        print('%s, %d to look at, %d failed' % (
            '%d messages tried' % self.tried if self.tried else
            'no message tried', self.looked, self.failed))
        if self.failed:
            return EXIT_FAILED
        return 0 if self.tried else EXIT_NOTHING_TRIED


def main(launcher, options):
    doctor = Doctor(launcher, options)
    doctor.examine()
    return doctor.result()
