# SPDX-License-Identifier: BSD-3-Clause
"""Compare UCX's CUDA module with ucx-cuda-multipath on this machine's GPUs.

    python3 mesh-kit.pyz            # 15 minutes, no root, installs nothing
    python3 mesh-kit.pyz --plan     # print the starts, and stop
    python3 mesh-kit.pyz --show mesh-kit-20260101-120000.json

Two processes send GPU messages through the UCX 1.22 in this file: with UCX's own
CUDA module and with ours, in turns, each in fresh processes. Every byte of every
message is compared. The result is one JSON file in the current folder, and a
table. It names no user and no host.
"""

import argparse
import ctypes
import datetime
import getpass
import hashlib
import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

FORMAT = 1
MIB = 1 << 20
MAX_WINDOW = 16
SIZES = [4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
# samples of a cell in one start, before and with a timer. Starts of one variant
# differ by up to a third, and the first samples are slow (2 x H200).
WARM, REPEATS = 5, 15
QUICK_REPEATS = 5
ROUNDS = 6                      # starts of each variant for each pair of GPUs
MAX_PAIRS = 3
START_LIMIT = 300               # seconds that one start may take
READY, GO, DONE, DATA = 11, 12, 13, 100
TILE = 16 * MIB + 43            # bytes, a prime: no chunk is a multiple of it

# name, options of ucx_mp_run, variables. The first of ours is compared with the
# best of UCX's, size by size.
VARIANTS = [
    ('stock', ['--stock'], {}),
    ('stock-put', ['--stock'], {'UCX_RNDV_SCHEME': 'put_zcopy'}),
    ('stock-get', ['--stock'], {'UCX_RNDV_SCHEME': 'get_zcopy'}),
    ('ours', [], {}),
    ('ours-no-host', [], {'UCX_CUDA_IPC_MULTIPATH_HOST': 'n'}),
    ('ours-y', [], {'UCX_CUDA_IPC_MULTIPATH': 'y'}),
]


class KitError(Exception):
    """A sentence for the user."""


def cells(sizes):
    """Return (direction, bytes of a message, messages at once). All messages at
    once have the bytes of the largest one."""
    found = []
    for size in sizes:
        window = min(MAX_WINDOW, max(sizes) // size)
        found.append(('one', size, 1))
        if window > 1:
            found.append(('one', size, window))
        found.append(('both', size, 1))
    return found


def pattern(seed, size):
    """Return bytes that depend on the seed and on every offset."""
    tile = hashlib.shake_128(b'%d' % seed).digest(min(TILE, size))
    return (tile * (size // len(tile) + 1))[:size]


# ------------------------------------------------------------- one of two ranks

class Rank:
    """A process with one GPU, two sources, and a target for messages."""

    def __init__(self, transfer, rank, gpu, libucp, size):
        self.transfer, self.rank = transfer, rank
        self.cuda = transfer.Cuda()
        if gpu >= self.cuda.count:
            raise transfer.TransferError('there is no GPU %d' % gpu)
        self.cuda.use(gpu)
        # before the driver's threads have work: UCX patches mmap()
        self.ucp = transfer.Ucp(libucp)
        self.patterns = [pattern(index, size) for index in range(4)]
        self.sources = [transfer.Buffer(self.cuda, 'gpu', size)
                        for _ in range(2)]
        for index, source in enumerate(self.sources):
            source.write(self.patterns[2 * rank + index])
        self.target = transfer.Buffer(self.cuda, 'gpu', size)
        self.copy = transfer.Buffer(self.cuda, 'locked', size)
        self.byte = ctypes.create_string_buffer(1)
        self.libc = ctypes.CDLL(None)

    def post(self, name, first, address, size, tag, *more):
        return getattr(self.ucp.ucp, name)(
            first, ctypes.c_void_p(address), ctypes.c_size_t(size),
            ctypes.c_uint64(tag), *more,
            ctypes.byref(self.transfer.RequestParam()))

    def post_messages(self, is_send, index, size, window):
        """Post all messages of a window and return their requests."""
        if is_send:
            base = self.sources[index].address.value
            return [self.post('ucp_tag_send_nbx', self.ucp.ep, base + i * size,
                              size, DATA + i) for i in range(window)]
        base = self.target.address.value
        return [self.post('ucp_tag_recv_nbx', self.ucp.worker, base + i * size,
                          size, DATA + i, ctypes.c_uint64(2 ** 64 - 1))
                for i in range(window)]

    def finish(self, requests):
        for request in requests:
            self.ucp.wait('message', request)

    def sample(self, index, direction, size, window):
        """Return the seconds from rank 0's first send until rank 1 has reported
        that all messages are complete (rank 0), else 0."""
        receives, sends = [], []
        if direction == 'both' or self.rank == 1:
            self.poison(size * window)
            receives = self.post_messages(False, index, size, window)
        if self.rank == 0:
            self.ucp.receive(self.byte, 1, READY)
            began = time.perf_counter()
            if direction == 'both':
                self.ucp.send(self.byte, 1, GO)
            sends = self.post_messages(True, index, size, window)
            self.finish(sends + receives)
            self.ucp.receive(self.byte, 1, DONE)
            return time.perf_counter() - began
        self.ucp.send(self.byte, 1, READY)
        if direction == 'both':
            self.ucp.receive(self.byte, 1, GO)
            sends = self.post_messages(True, index, size, window)
        self.finish(receives + sends)
        self.ucp.send(self.byte, 1, DONE)
        return 0

    def poison(self, size):
        self.cuda.call('cuMemsetD8_v2', self.target.address,
                       ctypes.c_ubyte(self.transfer.POISON),
                       ctypes.c_size_t(size))
        self.cuda.call('cuCtxSynchronize')

    def is_right(self, index, size):
        """Compare the target with the other rank's source."""
        self.cuda.call('cuMemcpyDtoH_v2', self.copy.address,
                       self.target.address, ctypes.c_size_t(size))
        return self.libc.memcmp(self.copy.address,
                                self.patterns[2 * (1 - self.rank) + index],
                                ctypes.c_size_t(size)) == 0

    def cell(self, repeats, direction, size, window):
        """Return the seconds of the timed samples, and the wrong ones' count."""
        seconds, wrong = [], 0
        for number in range(WARM + repeats):
            took = self.sample(number % 2, direction, size, window)
            if number >= WARM:
                seconds.append(took)
            if direction == 'both' or self.rank == 1:
                wrong += not self.is_right(number % 2, size * window)
        return seconds, wrong


def run_rank(options, transfer):
    """Be rank 0, which starts rank 1 and prints a line of JSON a cell; or be
    rank 1."""
    tell, hear = transfer.tell, transfer.hear
    gpus = [int(word) for word in options.pair.split(',')]
    planned = cells([int(word) for word in options.sizes.split(',')])
    size = max(size * window for _, size, window in planned)
    rank, child = (1 if options.second else 0), None
    heard, said = sys.stdin, sys.stdout
    if rank == 0:
        child = subprocess.Popen(
            [sys.executable] + sys.argv + ['--second'], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, universal_newlines=True)
        heard, said = child.stdout, child.stdin
    try:
        own = Rank(transfer, rank, gpus[rank], options.libucp, size)
        own.ucp.other = child
        tell(said, address=own.ucp.address().hex())
        own.ucp.connect(bytes.fromhex(hear(heard)['address']))
        if rank == 0:
            tell(sys.stdout, module=transfer.loaded_module()[0])
        for planned_cell in planned:
            seconds, wrong = own.cell(options.repeats, *planned_cell)
            if rank == 1:
                tell(said, wrong=wrong)
                continue
            wrong += hear(heard)['wrong']
            tell(sys.stdout, cell=planned_cell, seconds=seconds, wrong=wrong)
        if rank == 0:
            tell(said, quit=True)
            child.wait(transfer.LIMIT)
        else:
            hear(heard)
    except (transfer.TransferError, OSError,
            subprocess.TimeoutExpired) as error:
        tell(sys.stdout, error=str(error))
        if child is not None:
            child.kill()
        os._exit(1)
    # what UCX would tidy up at exit needs the other process
    os._exit(0)


# ------------------------------------------------------------------ the machine

class Kit:
    """The files beside this program, and how commands run with them."""

    def __init__(self, folder, options):
        self.options = options
        self.python = os.path.join(folder, 'python')
        self.bin = os.path.join(folder, 'python', 'ucx_mp', 'bin')
        self.libucp = os.path.join(folder, 'libucx', 'lib', 'libucp.so.0')
        self.program = os.path.join(folder, 'mesh_kit.py')
        with open(os.path.join(folder, 'revision')) as file:
            self.revision = file.read().strip()

    def launch(self, arguments, words=(), variables=None, limit=60):
        """Run a command in this kit's UCX; return status, stdout and stderr."""
        command = [sys.executable, os.path.join(self.bin, 'ucx_mp_run'),
                   '--quiet', '--ucx', self.libucp] + list(words)
        if self.options.emulate:
            command += ['--emulate', self.options.emulate]
        environment = dict(os.environ, PYTHONPATH=self.python,
                           **(variables or {}))
        process = subprocess.Popen(command + arguments, env=environment,
                                   stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE,
                                   start_new_session=True,
                                   universal_newlines=True)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 15)
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
            return None, '', 'took more than %d s' % limit
        return process.returncode, out, err

    def topo(self, *arguments):
        return self.launch([os.path.join(self.bin, 'ucx_mp_topo')] +
                           list(arguments))


def read_first(path, expression):
    try:
        with open(path) as file:
            found = re.search(expression, file.read(), re.M)
    except OSError:
        return None
    return found.group(1) if found else None


def output_of(command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=30,
                              universal_newlines=True).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None


def without_names(text):
    """Return a log's or a variable's text without this host's and user's name."""
    host = socket.gethostname()
    names = [(os.path.expanduser('~'), '$HOME'), (host, 'HOST'),
             (host.split('.')[0], 'HOST')]
    try:
        names.append((getpass.getuser(), 'USER'))
    except (KeyError, ImportError, OSError):
        pass                    # a user ID without a name
    for name, instead in names:
        if len(name) > 1:       # a home folder may be /
            text = re.sub(r'(?<![^\W_])%s(?![^\W_])' % re.escape(name), instead,
                          text)
    return text


def describe_machine(kit):
    """Return what somebody else needs to read the figures; no host, no user, no
    serial number."""
    status, out, err = kit.topo('--json')
    if status != 0:
        raise KitError('the GPUs cannot be examined: %s' %
                       (err.strip() or out.strip() or 'no driver'))
    topo = json.loads(out)
    for gpu in topo['gpus']:
        gpu.pop('uuid', None)
    return {
        'emulated': kit.options.emulate,
        'processor': read_first('/proc/cpuinfo', r'^model name\s*: (.*)$') or
                     platform.machine(),
        'processors': os.cpu_count(),
        'may_use': len(os.sched_getaffinity(0)),
        'memory_kib': read_first('/proc/meminfo', r'^MemTotal:\s*(\d+)'),
        'kernel': platform.release(),
        'libc': ' '.join(platform.libc_ver()),
        'driver': read_first('/proc/driver/nvidia/version',
                             r'NVRM version:\s*(.*)$'),
        'load_before': os.getloadavg(),
        'variables': {name: without_names(value)
                      for name, value in os.environ.items()
                      if re.match('UCX_|CUDA_VISIBLE|NCCL_', name)},
        'nvidia_smi_topo': None if kit.options.emulate else
                           output_of(['nvidia-smi', 'topo', '-m']),
        'topo': topo
    }


def choose_pairs(topo):
    """Return the first pair of GPUs of each kind of direct link, by its rate."""
    chosen = {}
    for link in topo['links']:
        if link['from'] < link['to']:
            rate = round(link['link']['gbps']) if link['access'] else 0
            chosen.setdefault((rate, link.get('how')),
                              (link['from'], link['to']))
    best = [chosen[key] for key in sorted(chosen, key=lambda key: -key[0])]
    return best[:MAX_PAIRS]


# --------------------------------------------------------------------- the runs

class Result:
    """All starts, kept in the file after each one."""

    def __init__(self, path, content):
        self.path, self.content = path, content

    def save(self):
        path = os.path.realpath(self.path)
        # a device or a pipe is written to, a file replaced as a whole
        is_special = os.path.exists(path) and not os.path.isfile(path)
        part = path if is_special else path + '.part'
        with open(part, 'w') as file:
            json.dump(self.content, file, indent=1)
        if not is_special:
            os.replace(part, path)


def run_start(kit, pair, variant, sizes, repeats):
    """Run one start; return its row, with an error instead of cells that did
    not run."""
    name, words, variables = variant
    row = {'pair': pair, 'variant': name, 'cells': []}
    status, out, err = kit.launch(
        [sys.executable, kit.program, '--rank', '--libucp', kit.libucp,
         '--pair', '%d,%d' % tuple(pair),
         '--sizes', ','.join(map(str, sizes)), '--repeats', str(repeats)],
        words, variables, START_LIMIT)
    for line in out.splitlines():
        if not line.startswith('{'):
            continue
        heard = json.loads(line)
        if 'cell' in heard:
            row['cells'].append(heard)
        else:
            row.update(heard)
    if status != 0 and 'error' not in row:
        row['error'] = (err.strip().splitlines() or ['status %s' % status])[-1]
    if 'error' in row:
        row['error'] = without_names(row['error'])
        row['log'] = without_names(err[-4000:])
    return row


def rate(cell):
    """Return GB/s of a cell's median sample; both ways count both directions."""
    direction, size, window = cell['cell']
    ways = 2 if direction == 'both' else 1
    return ways * size * window / statistics.median(cell['seconds']) / 1e9


def against(ours, others):
    """Return the median and the range of our ratios to the variant with the
    largest median, in the rounds that both have; as text."""
    found = [(statistics.median(other.values()),
              [ours[number] / other[number] for number in ours
               if number in other]) for other in others if other]
    found = [(rate, ratios) for rate, ratios in found if ratios]
    if not found:
        return '-'
    _, ratios = max(found)
    return '%.3f (%.3f..%.3f)' % (
        statistics.median(ratios), min(ratios), max(ratios))


def summarize(content):
    """Return lines of a table a pair, and whether all bytes were right."""
    lines, wrong, failed = [], 0, 0
    names = [variant['name'] for variant in content['variants']]
    for pair in content['pairs']:
        rates = {}
        for row in content['starts']:
            if row['pair'] != pair:
                continue
            failed += 'error' in row
            for cell in row['cells']:
                wrong += cell['wrong']
                rates.setdefault((tuple(cell['cell']), row['variant']),
                                 {})[row['round']] = rate(cell)
        lines += ['', 'GPU %d -> GPU %d, GB/s, medians of %d starts; ratios of '
                  'the same rounds' % (pair[0], pair[1], content['rounds']),
                  '%-19s' % 'messages' + ''.join('%13s' % name
                                                 for name in names) +
                  '  ours / stock          ours / best stock']
        for cell in [tuple(cell) for cell in content['cells']]:
            direction, size, window = cell
            medians = {name: statistics.median(rates[cell, name].values())
                       for name in names if (cell, name) in rates}
            text = '%-19s' % ('%d MiB, %s' % (
                size // MIB, 'both ways' if direction == 'both' else
                '%d at once' % window))
            text += ''.join('%13.1f' % medians[name] if name in medians else
                            '%13s' % '-' for name in names)
            if 'ours' in medians:
                ours = rates[cell, 'ours']
                text += '  %-21s %s' % (
                    against(ours, [rates.get((cell, 'stock'), {})]),
                    against(ours, [rates[cell, name] for name in medians
                                   if name.startswith('stock')]))
            lines.append(text)
    lines += ['', '%d starts, %d failed; samples with a wrong byte: %d' %
              (len(content['starts']), failed, wrong)]
    return lines, wrong == 0 and failed == 0


def show(path):
    try:
        with open(path) as file:
            content = json.load(file)
        if content['format'] != FORMAT:
            raise ValueError('format %r' % content['format'])
        print('\n'.join(summarize(content)[0]))
    except BrokenPipeError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        print('mesh-kit: %s is not a result of this kit: %s' % (path, error),
              file=sys.stderr)
        return 2
    return 0


def show_paths(kit, pair, sizes):
    """Return the paths that the module plans on an idle node, as text."""
    return {str(size): kit.topo('--plan', str(pair[0]), str(pair[1]),
                                str(size))[1] for size in sizes}


def run_all(kit, options):
    machine = describe_machine(kit)
    pairs = [[int(gpu) for gpu in options.gpus.split(',')]] if options.gpus \
        else [list(pair) for pair in choose_pairs(machine['topo'])]
    count = len(machine['topo']['gpus'])
    if count < 2:
        raise KitError('%d GPU is visible; the kit wants two or more' % count)
    for pair in pairs:
        if max(pair) >= count:
            raise KitError('--gpus: there is no GPU %d' % max(pair))
    sizes = SIZES[:2] if options.quick else SIZES
    rounds, repeats = (1, QUICK_REPEATS) if options.quick else (ROUNDS, REPEATS)
    variants = [VARIANTS[0], VARIANTS[3]] if options.quick else VARIANTS
    # each round begins with another variant: a start's place in a round matters
    starts = [(number, pair, variants[(number + place) % len(variants)])
              for number in range(rounds) for pair in pairs
              for place in range(len(variants))]
    print('%d GPUs (%s); pairs %s; %d variants x %d rounds: %d starts' % (
        count, machine['topo']['gpus'][0]['name'],
        ' '.join('%d->%d' % tuple(pair) for pair in pairs), len(variants),
        rounds, len(starts)))
    if options.plan:
        for number, pair, variant in starts:
            print('round %d: GPU %d -> %d, %s%s' % (
                number + 1, pair[0], pair[1], variant[0],
                ''.join(' %s=%s' % item for item in variant[2].items())))
        return 0
    now = datetime.datetime.now()
    result = Result(
        options.output or now.strftime('mesh-kit-%Y%m%d-%H%M%S.json'),
        {'format': FORMAT, 'kit': kit.revision, 'ucx': '1.22.0',
         'date': now.strftime('%Y-%m-%d'), 'machine': machine,
         'pairs': pairs, 'rounds': rounds, 'repeats': repeats,
         'cells': cells(sizes),
         'variants': [{'name': name, 'options': words, 'variables': variables}
                      for name, words, variables in variants],
         'paths': {'%d,%d' % tuple(pair): show_paths(kit, pair, sizes)
                   for pair in pairs},
         'starts': []})
    result.save()
    began = time.monotonic()
    for index, (number, pair, variant) in enumerate(starts):
        row = run_start(kit, pair, variant, sizes, repeats)
        row['round'] = number
        result.content['starts'].append(row)
        result.save()
        spent = time.monotonic() - began
        print('%3d of %d  GPU %d -> %d  %-13s %s  (%d s left)' % (
            index + 1, len(starts), pair[0], pair[1], variant[0],
            'failed: ' + row['error'] if 'error' in row else
            '%.1f GB/s of %d MiB' % (
                rate(row['cells'][-2]),
                row['cells'][-2]['cell'][1] // MIB),
            spent / (index + 1) * (len(starts) - index - 1)), flush=True)
    lines, is_good = summarize(result.content)
    result.content['summary'] = lines
    result.content['machine']['load_after'] = os.getloadavg()
    result.save()
    print('\n'.join(lines))
    print('\nresult: %s (%s)' % (result.path,
                                 'modelled, emulated ' + options.emulate
                                 if options.emulate else 'measured'))
    return 0 if is_good else 1


# ------------------------------------------------------------------------- main

def unpack(archive, folder):
    with zipfile.ZipFile(archive) as files:
        for info in files.infolist():
            path = files.extract(info, folder)
            os.chmod(path, (info.external_attr >> 16) & 0o777 or 0o644)
    shutil.copy(os.path.join(folder, '__main__.py'),
                os.path.join(folder, 'mesh_kit.py'))


def parse():
    parser = argparse.ArgumentParser(
        prog='mesh-kit.pyz', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--gpus', metavar='A,B', help='send from GPU A to GPU '
                        'B (default: one pair for each kind of link, up to %d)'
                        % MAX_PAIRS)
    parser.add_argument('--quick', action='store_true', help='one round of two '
                        'variants and small sizes: does it run here? (1 min)')
    parser.add_argument('--plan', action='store_true',
                        help='print the starts and run none')
    parser.add_argument('--output', metavar='FILE', help='the result (default: '
                        'mesh-kit-DATE-TIME.json in the current folder)')
    parser.add_argument('--show', metavar='FILE', help='print the table of a '
                        'result, and run nothing')
    parser.add_argument('--emulate', metavar='NODE', help='run on an emulated '
                        'node instead of GPUs, such as beluga')
    for name in ('--rank', '--second'):
        parser.add_argument(name, action='store_true', help=argparse.SUPPRESS)
    for name in ('--libucp', '--pair', '--sizes'):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument('--repeats', type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gpus and not re.match(r'\d+,\d+$', options.gpus):
        parser.error('--gpus: %s is not two GPUs, such as 0,1' % options.gpus)
    return options


def main():
    options = parse()
    if options.rank:
        from ucx_mp import _transfer
        run_rank(options, _transfer)
    folder = None
    try:
        if options.show:
            status = show(options.show)
            sys.stdout.flush()
            return status
        folder = tempfile.mkdtemp(prefix='mesh-kit.')
        unpack(sys.argv[0] if zipfile.is_zipfile(sys.argv[0]) else
               os.path.dirname(os.path.abspath(__file__)), folder)
        status = run_all(Kit(folder, options), options)
        sys.stdout.flush()
        return status
    except KitError as error:
        print('mesh-kit: %s' % error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('mesh-kit: interrupted; the result file has the starts so far',
              file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the reader has ended, as head does; nothing more is said at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())
