# SPDX-License-Identifier: BSD-3-Clause
"""Start benchmark programs, read their figures, and stop all processes
started."""

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
# Slowdowns with which this machine moves an emulated node's bytes in time: the
# more bytes the node moves per second, the larger
SLOWDOWN = {'narval': 100, 'hgx-h200': 100, 'h200-x2': 100}
SLOWDOWN_OTHER = 50
# Options with paths of this machine
PLACES = ('--wheel', '--ucx', '--launcher', '--base-launcher', '--programs',
          '--byhand', '--nccl', '--from',
          '--perftest', '--json', '--page', '--out')
# Least number of warm-up messages of ucx_perftest: the module prepares
# resources during the first few, the host path after 16
WARM_UP = 32
# Least seconds of a test of ucx_perftest between GPUs. It warms up for 0.1 to
# 0.2 s at most, and the host path is ready after 0.15 to 0.2 s (measured on 2 x
# H200), so a fifth of a test may run without it
TEST_TIME = 0.5
FASTEST = 400e9         # bytes/s, upper limit of a message between GPUs
QUICKEST = 10e-6        # seconds, lower limit of a message with a wait
OSU = ('osu_bw', 'osu_bibw', 'osu_latency')


class Refused(Exception):
    """The user's request is impossible; the text says why."""


# ----------------------------------------------------------------------- files

def one_a_line(data):
    """Return the text of a JSON file with one line per item of its lists."""
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
    """Replace a file completely or not at all, in case the run is
    interrupted."""
    with open(path + '.new', 'w', encoding='utf-8') as file:
        file.write(text)
    os.replace(path + '.new', path)


def set_aside(path):
    """Rename an existing file to its name with .old, since its figures may be
    impossible to measure again. Return the new name; None if there was no
    file."""
    if not os.path.exists(path):
        return None
    os.replace(path, path + '.old')
    return path + '.old'


# ------------------------------------------------------------------- processes

def interrupted(_signum, _frame):
    raise KeyboardInterrupt


def stop_on_sigterm():
    """Treat SIGTERM as Ctrl-C: stop started processes and keep the figures so
    far."""
    signal.signal(signal.SIGTERM, interrupted)


def free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


def listening(port):
    """Return whether a process listens on the port. Does not connect, because
    perftest accepts only one connection."""
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
    """End a started process with its children."""
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
    """Return the reason why a process gave no figure."""
    if text is None:
        text = ''.join(finish(process, 5))
    lines = [line for line in text.splitlines() if line.strip('- ')]
    own = [line for line in lines if line.startswith('ucx_mp_')]
    return 'exit code %s: %s' % (process.returncode,
                                 ' / '.join((own or lines)[-3:]) or 'silent')


# ----------------------------------------------------------------- environment

def wheel_library(folder):
    """Return the folder of the libraries of an unpacked libucx wheel; None
    without a wheel."""
    if not folder:
        return None
    library = os.path.join(os.path.realpath(folder), 'libucx', 'lib')
    if not os.path.exists(os.path.join(library, 'libucp.so.0')):
        raise Refused('--wheel: there is no libucx/lib/libucp.so.0 in %s'
                      % folder)
    return library


def ucx_library(folder):
    """Return the folder of a UCX's libraries: `folder` or its lib."""
    for library in (folder, os.path.join(folder, 'lib')):
        if os.path.exists(os.path.join(library, 'libucp.so.0')):
            return os.path.realpath(library)
    raise Refused('--ucx: there is no libucp.so.0 in %s' % folder)


def environment(library=None, keep=()):
    """Return the caller's environment with the UCX to load. Of UCX_ and CUEMU_
    variables it keeps only UCX_TLS, the paths of our files, and those with a
    prefix in `keep`."""
    keep = ('UCX_MP_LIBDIR',) + tuple(keep)
    environ = {name: value for name, value in os.environ.items()
               if not name.startswith(('CUEMU_', 'UCX_')) or
               name.startswith(keep)}
    environ['UCX_TLS'] = os.environ.get('UCX_TLS', TLS)
    environ['UCX_WARN_UNUSED_ENV_VARS'] = 'n'
    if os.geteuid() == 0:
        # in a container or on a machine for one user
        environ['OMPI_ALLOW_RUN_AS_ROOT'] = '1'
        environ['OMPI_ALLOW_RUN_AS_ROOT_CONFIRM'] = '1'
    if library:
        environ['LD_LIBRARY_PATH'] = ':'.join([library] + [
            item for item in os.environ.get('LD_LIBRARY_PATH', '').split(':')
            if item])
    return environ


@contextlib.contextmanager
def session(environ, emulated):
    """Provide a folder for the shared state of an emulated node's processes."""
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
    """Return the slowdown (real seconds per modelled one) for an emulated node
    by name or file."""
    return SLOWDOWN.get(os.path.basename(node).replace('.xml', ''),
                        SLOWDOWN_OTHER)


def public_words(arguments, flags=('--resume',)):
    """Return the arguments without `flags` and without options that contain
    paths of this machine."""
    kept = [word for index, word in enumerate(arguments)
            if word not in PLACES and word not in flags and
            (index == 0 or arguments[index - 1] not in PLACES)]
    return [word for word in kept if not word.startswith(
        tuple(place + '=' for place in PLACES))]


# -------------------------------------------------------------------- programs

def bound_cores(mpirun):
    """Return two processors on different cores if mpirun binds ranks to cores,
    so that ucx_perftest is bound as MPI's ranks are."""
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
    """Return the numbers of timed messages of ucx_perftest (`count` of `size`
    bytes, or more) and of warm-up messages."""
    if memory != 'D D' or size < MIB or emulated:
        return count, max(WARM_UP, count // 10)
    count = max(count, round(TEST_TIME / max(
        size / FASTEST, QUICKEST if window == 1 else 0)))
    return count, count


def perftest(launched, program, tests, environ, timeout, cores=None):
    """Run a batch of ucx_perftest between two processes. launched() adds the
    launcher's words to a command; `cores` may name a processor for each
    process; tests are (name, arguments). Returns ({name: {heading: text}}, the
    reason for missing ones, the client's command)."""
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
    """Return the median time of an iteration, in microseconds."""
    return next(float(value) for name, value in row.items()
                if name.endswith('percentile_lat'))


def perftest_average(row):
    """Return the GB/s of a whole run, with its beginning and end."""
    return float(row['avg_bw']) * MIB / 1e9


def json_rows(command, sides, environ, timeout):
    """Run a program of ours; return (its --json rows, the reason for missing
    ones)."""
    output = tempfile.NamedTemporaryFile('r', suffix='.json')
    process = start(command + ['--json', output.name] + sides, environ)
    text, errors = finish(process, timeout)
    error = failed(process, text + errors) if process.returncode else \
        'no figure'
    with output:
        # a stopped program may have written half a line
        return [json.loads(line) for line in output
                if line.endswith('}\n')], error


def osu_programs(folder, names):
    """Return {name: path} of OSU's programs below a folder."""
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
    """Run one of OSU's programs; return ({size: MB/s (10^6 bytes) or us}, the
    reason for missing ones)."""
    process = start(command, environ)
    text, errors = finish(process, timeout)
    error = failed(process, text + errors) if process.returncode else \
        'no figure'
    return {int(size): float(value) for size, value in re.findall(
        r'^\s*(\d+)\s+([\d.]+)', text, re.MULTILINE)}, error
