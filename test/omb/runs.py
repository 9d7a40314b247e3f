# SPDX-License-Identifier: BSD-3-Clause
"""Starting benchmark programs, reading their figures, and stopping all that
they have started."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

TLS = 'self,sm,tcp,cuda_copy,cuda_ipc'
MIB = 1 << 20
# Slow enough for this machine to move an emulated node's bytes in time: the
# more bytes the node moves in a second, the slower
SLOWDOWN = {'narval': 100, 'hgx-h200': 100, 'h200-x2': 100}
SLOWDOWN_OTHER = 50
# Options that say where something is on this machine
PLACES = ('--wheel', '--ucx', '--launcher', '--base-launcher', '--programs',
          '--byhand', '--nccl', '--from',
          '--perftest', '--json', '--page', '--out')
# Messages of ucx_perftest before those that count, at least: some things are got
# ready while the first few go by what is there: the host path after 16
WARM_UP = 32
# Seconds that a test of ucx_perftest between GPUs lasts, at least: it warms up
# for 0.1 to 0.2 s at most, and the path through the host is there after 0.15 to
# 0.2 s (measured on 2 x H200), so that a fifth of a test may be without it
TEST_TIME = 0.5
FASTEST = 400e9         # B/s of a message between GPUs
QUICKEST = 10e-6        # seconds of one that is waited for
OSU = ('osu_bw', 'osu_bibw', 'osu_latency')


class Refused(Exception):
    """What a user asked for cannot be done; the text says what and why."""


# ----------------------------------------------------------------------- files

def one_a_line(data):
    """Text of a JSON file: an item of each of its lists a line."""
    return '{%s}\n' % ',\n'.join('%s: %s' % (json.dumps(name), (
        '[\n%s\n]' % ',\n'.join(json.dumps(item) for item in value)
        if isinstance(value, list) else json.dumps(value)))
                                 for name, value in data.items())


# ----------------------------------------------------------------------- sizes

def size_text(size):
    for shift, unit in ((30, 'GiB'), (20, 'MiB'), (10, 'KiB')):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return '%d %s' % (size >> shift, unit)
    return '%d B' % size


def size_of(text):
    shift = {'K': 10, 'M': 20, 'G': 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if shift else text
    if not digits.isdigit() or int(digits) == 0:
        raise Refused("'%s' is not a size (examples: 8, 64K, 256M)" % text)
    return int(digits) << shift


def growing(low, high, factor=2):
    sizes = []
    while low <= high:
        sizes.append(low)
        low *= factor
    return sizes


# --------------------------------------------------------------------- figures

def write_whole(path, text):
    """Whole or not at all: a run may be cut short here too."""
    with open(path + '.new', 'w', encoding='utf-8') as file:
        file.write(text)
    os.replace(path + '.new', path)


def set_aside(path):
    """Figures of a lent machine cannot be had again: what is at `path` is
    behind its name and .old from now on. Returns that; None if nothing was."""
    if not os.path.exists(path):
        return None
    os.replace(path, path + '.old')
    return path + '.old'


# ------------------------------------------------------------------- processes

def interrupted(_signum, _frame):
    raise KeyboardInterrupt


def stop_on_sigterm():
    """As by Ctrl-C: what was started is stopped, what there is is kept."""
    signal.signal(signal.SIGTERM, interrupted)


def free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


def listening(port):
    """Whether somebody listens, without connecting: perftest takes one only."""
    with open('/proc/net/tcp') as file:
        for line in file:
            words = line.split()
            if len(words) > 3 and words[3] == '0A' and \
                    words[1].endswith(':%04X' % port):
                return True
    return False


def start(command, environ):
    return subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            universal_newlines=True, start_new_session=True)


def finish(process, timeout):
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        return '', 'took more than %d s' % timeout
    except KeyboardInterrupt:
        stop(process)
        raise


def stop(process):
    """Ends a process of ours and what it has started."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            try:
                os.killpg(process.pid, signum)
                process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                pass
    for stream in (process.stdout, process.stderr):
        if stream and not stream.closed:
            stream.close()


def failed(process, text=None):
    """Why a process gave no figure."""
    if text is None:
        text = ''.join(finish(process, 5))
    lines = [line for line in text.splitlines() if line.strip('- ')]
    own = [line for line in lines if line.startswith('ucx_mp_')]
    return 'exit code %s: %s' % (process.returncode,
                                 ' / '.join((own or lines)[-3:]) or 'silent')


# ----------------------------------------------------------------- environment

def wheel_library(folder):
    """Where the libraries of an unpacked libucx wheel are; None without one."""
    if not folder:
        return None
    library = os.path.join(os.path.realpath(folder), 'libucx', 'lib')
    if not os.path.exists(os.path.join(library, 'libucp.so.0')):
        raise Refused('--wheel: there is no libucx/lib/libucp.so.0 in %s'
                      % folder)
    return library


def ucx_library(folder):
    """Where the libraries of a UCX are that is a folder of libraries."""
    for library in (folder, os.path.join(folder, 'lib')):
        if os.path.exists(os.path.join(library, 'libucp.so.0')):
            return os.path.realpath(library)
    raise Refused('--ucx: there is no libucp.so.0 in %s' % folder)


def environment(library=None, keep=()):
    """Of the caller's variables, no UCX_ and CUEMU_ ones but UCX_TLS, where
    our files are, and those that begin as `keep` says; and the UCX to load."""
    keep = ('UCX_MP_LIBDIR',) + tuple(keep)
    environ = {name: value for name, value in os.environ.items()
               if not name.startswith(('CUEMU_', 'UCX_')) or
               name.startswith(keep)}
    environ['UCX_TLS'] = os.environ.get('UCX_TLS', TLS)
    environ['UCX_WARN_UNUSED_ENV_VARS'] = 'n'
    if os.geteuid() == 0:
        # a container or a lent machine: there is no other user
        environ['OMPI_ALLOW_RUN_AS_ROOT'] = '1'
        environ['OMPI_ALLOW_RUN_AS_ROOT_CONFIRM'] = '1'
    if library:
        environ['LD_LIBRARY_PATH'] = ':'.join([library] + [
            item for item in os.environ.get('LD_LIBRARY_PATH', '').split(':')
            if item])
    return environ


@contextlib.contextmanager
def session(environ, emulated):
    """A folder for what the processes of an emulated node share."""
    folder = tempfile.mkdtemp(prefix='ucx_mp_omb.', dir='/dev/shm') \
        if emulated else None
    if folder:
        environ['CUEMU_SESSION'] = folder
    try:
        yield
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def slowdown_of(node):
    """Real seconds for a modelled one, of an emulated node by name or file."""
    return SLOWDOWN.get(os.path.basename(node).replace('.xml', ''),
                        SLOWDOWN_OTHER)


def public_words(arguments, flags=('--resume',)):
    """The arguments without flags and those that say where something is."""
    kept = [word for index, word in enumerate(arguments)
            if word not in PLACES and word not in flags and
            (index == 0 or arguments[index - 1] not in PLACES)]
    return [word for word in kept if not word.startswith(
        tuple(place + '=' for place in PLACES))]


# -------------------------------------------------------------------- programs

def bound_cores(mpirun):
    """Two processors, of a core each, if mpirun binds ranks to cores; so that
    ucx_perftest does not wander where MPI's ranks do not."""
    if '--bind-to core' not in ' '.join(mpirun.split()):
        return None
    first = []
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            with open('/sys/devices/system/cpu/cpu%d/topology/'
                      'thread_siblings_list' % cpu) as file:
                siblings = file.read().strip()
        except OSError:
            siblings = str(cpu)
        if siblings not in [known for known, _ in first]:
            first.append((siblings, cpu))
        if len(first) == 2:
            return first[0][1], first[1][1]
    return None


def perftest_counts(memory, size, window, count, emulated):
    """How many messages of ucx_perftest are timed, `count` of `size` bytes or
    more, and how many go before."""
    if memory != 'D D' or size < MIB or emulated:
        return count, max(WARM_UP, count // 10)
    count = max(count, round(TEST_TIME / max(
        size / FASTEST, QUICKEST if window == 1 else 0)))
    return count, count


def perftest(launched, program, tests, environ, timeout, cores=None):
    """Runs a batch of ucx_perftest between two processes, each of them started
    as `launched` says and on a processor of its own if `cores` has two; tests
    are (name, arguments). Returns ({name: {heading: text}}, why some are
    missing, the client's command)."""
    port = free_port()
    batch = tempfile.NamedTemporaryFile('w', suffix='.tests')
    for name, arguments in tests:
        batch.write('%s %s\n' % (name, ' '.join(arguments)))
    batch.flush()
    common = ['-p', str(port), '-b', batch.name]
    bound = [['-c', str(core)] for core in cores] if cores else [[], []]
    command = launched([program, '127.0.0.1'] + common + bound[1] +
                       ['-v', '-f'])
    server = start(launched([program] + common + bound[0]), environ)
    with batch:
        try:
            deadline = time.monotonic() + min(60, timeout)
            while not listening(port):
                if server.poll() is not None:
                    return {}, failed(server), command
                if time.monotonic() > deadline:
                    return {}, 'the server does not listen', command
                time.sleep(0.05)
            client = start(command, environ)
            text, errors = finish(client, timeout)
            error = failed(client, text + errors) if client.returncode else \
                'no figure'
        finally:
            stop(server)
    names, rows, heads = {name for name, _ in tests}, {}, None
    for line in text.splitlines():
        words = [word.strip() for word in line.split(',')]
        if 'avg_lat' in words:
            heads = words
        elif heads and words[0] in names and len(words) == len(heads):
            rows[words[0]] = dict(zip(heads, words))
    return rows, error, command


def perftest_median(row):
    """The median time of an iteration, in microseconds."""
    return next(float(value) for name, value in row.items()
                if name.endswith('percentile_lat'))


def perftest_average(row):
    """GB/s over a whole run, its beginning and end included."""
    return float(row['avg_bw']) * MIB / 1e9


def json_rows(command, sides, environ, timeout):
    """Runs a program of ours; (the rows that it gave to --json, why some are
    missing)."""
    output = tempfile.NamedTemporaryFile('r', suffix='.json')
    process = start(command + ['--json', output.name] + sides, environ)
    text, errors = finish(process, timeout)
    error = failed(process, text + errors) if process.returncode else \
        'no figure'
    with output:
        # one that was stopped may have ended in the middle of a line
        return [json.loads(line) for line in output
                if line.endswith('}\n')], error


def osu_programs(folder, names):
    """{name: path} of OSU's programs somewhere below a folder."""
    found = {}
    for below, _, files in os.walk(folder):
        for name in names:
            if name in files:
                found.setdefault(name, os.path.join(below, name))
    for name in names:
        if name not in found:
            raise Refused('--omb: there is no %s below %s' % (name, folder))
    return found


def osu_rows(command, environ, timeout):
    """Runs one of OSU's programs; ({size: MB/s (10^6 bytes) or us}, why some
    are missing)."""
    process = start(command, environ)
    text, errors = finish(process, timeout)
    error = failed(process, text + errors) if process.returncode else \
        'no figure'
    return {int(size): float(value) for size, value in re.findall(
        r'^\s*(\d+)\s+([\d.]+)', text, re.MULTILINE)}, error
