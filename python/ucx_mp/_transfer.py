# SPDX-License-Identifier: BSD-3-Clause
"""Verified messages between two processes, through UCP only, without an MPI.

    ucx_mp_run --ucx LIBUCP python3 _transfer.py LIBUCP [--size MIB]
        [--gpus A,B] [--peer WORD]... [KIND...]

A KIND is SOURCE-TARGET, each gpu, host (from malloc) or locked (page-locked by
the CUDA driver). Each is sent with new bytes, compared whole at the receiver,
and timed one message at a time. Prints a line of JSON a kind, the first one
about the UCX, its module and the GPUs. With --peer, the command that starts the
receiver, a line about both processes' namespaces comes before. It needs Python's
standard library only, and UCX's public calls (ucp.h), all of whose structures
grow at their end.
"""

import argparse
import ctypes
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

KINDS = ['gpu-gpu', 'host-gpu', 'gpu-host', 'locked-gpu', 'gpu-locked']
LIMIT = 30                      # seconds that a message may take
POISON = 0xA5
DATA_TAG, DONE_TAG = 1, 2
UCS_INPROGRESS = 1
UCS_ERR_LAST = -100
FEATURE_TAG = 1


class TransferError(Exception):
    """A failure, with a sentence for the user."""


class Ended(TransferError):
    """The other process has closed its pipe."""


# ------------------------------------------------------------------------- CUDA

class Cuda:
    """The CUDA driver's functions for memory."""

    def __init__(self):
        try:
            self.driver = ctypes.CDLL('libcuda.so.1')
        except OSError as error:
            raise TransferError('there is no CUDA driver: %s' % error)
        self.call('cuInit', 0)
        count = ctypes.c_int()
        self.call('cuDeviceGetCount', ctypes.byref(count))
        self.count = count.value

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorName(status, ctypes.byref(text))
            raise TransferError('%s: %s' % (name, (text.value or b'error %d'
                                                   % status).decode()))

    def names(self):
        found = []
        for device in range(self.count):
            name = ctypes.create_string_buffer(256)
            self.call('cuDeviceGetName', name, 256, device)
            found.append(name.value.decode())
        return found

    def use(self, device):
        context = ctypes.c_void_p()
        self.call('cuDevicePrimaryCtxRetain', ctypes.byref(context), device)
        self.call('cuCtxSetCurrent', context)


class Buffer:
    """A buffer in one of three memory types."""

    def __init__(self, cuda, sort, size):
        self.cuda, self.sort, self.size = cuda, sort, size
        address = ctypes.c_void_p()
        if sort == 'gpu':
            cuda.call('cuMemAlloc_v2', ctypes.byref(address),
                      ctypes.c_size_t(size))
        elif sort == 'locked':
            cuda.call('cuMemHostAlloc', ctypes.byref(address),
                      ctypes.c_size_t(size), 1)
        else:
            self.memory = ctypes.create_string_buffer(size)
            address.value = ctypes.addressof(self.memory)
        self.address = address

    def write(self, data):
        if self.sort == 'gpu':
            self.cuda.call('cuMemcpyHtoD_v2', self.address, data,
                           ctypes.c_size_t(self.size))
        else:
            ctypes.memmove(self.address, data, self.size)

    def read(self):
        if self.sort != 'gpu':
            return ctypes.string_at(self.address, self.size)
        data = ctypes.create_string_buffer(self.size)
        self.cuda.call('cuMemcpyDtoH_v2', data, self.address,
                       ctypes.c_size_t(self.size))
        return data.raw

    def poison(self):
        if self.sort == 'gpu':
            self.cuda.call('cuMemsetD8_v2', self.address,
                           ctypes.c_ubyte(POISON), ctypes.c_size_t(self.size))
            self.cuda.call('cuCtxSynchronize')
        else:
            ctypes.memset(self.address, POISON, self.size)


def pattern(size, seed):
    """Return bytes that differ in each MiB and in each message."""
    mib = bytes((seed * 7 + index * 31 + (index >> 8) * 13) & 0xff
                for index in range(4096)) * 256
    data = b''.join(b'%08d%08d' % (seed, index) + mib[16:]
                    for index in range((size >> 20) + 1))
    return data[:size]


# -------------------------------------------------------------------------- UCP

class Params(ctypes.Structure):
    """ucp_params_t and ucp_worker_params_t: the used fields, then padding."""
    _fields_ = [('field_mask', ctypes.c_uint64), ('first', ctypes.c_uint64),
                ('rest', ctypes.c_uint64 * 64)]


class EpParams(ctypes.Structure):
    _fields_ = [('field_mask', ctypes.c_uint64), ('address', ctypes.c_char_p),
                ('rest', ctypes.c_uint64 * 64)]


class RequestParam(ctypes.Structure):
    """ucp_request_param_t; zeroed: a message of contiguous bytes."""
    _fields_ = [('op_attr_mask', ctypes.c_uint32), ('flags', ctypes.c_uint32),
                ('rest', ctypes.c_uint64 * 32)]


class Ucp:
    """A context, a worker and an endpoint to the other process."""

    def __init__(self, path):
        self.ucp = ctypes.CDLL(path)
        for name in ('ucp_tag_send_nbx', 'ucp_tag_recv_nbx'):
            getattr(self.ucp, name).restype = ctypes.c_void_p
        self.ucp.ucp_get_version_string.restype = ctypes.c_char_p
        self.version = self.ucp.ucp_get_version_string().decode()
        major, minor, patch = (ctypes.c_uint() for _ in range(3))
        self.ucp.ucp_get_version(ctypes.byref(major), ctypes.byref(minor),
                                 ctypes.byref(patch))
        config = ctypes.c_void_p()
        self.check('ucp_config_read', self.ucp.ucp_config_read(
            None, None, ctypes.byref(config)))
        self.context, self.worker = ctypes.c_void_p(), ctypes.c_void_p()
        self.check('ucp_init', self.ucp.ucp_init_version(
            major, minor, ctypes.byref(Params(1, FEATURE_TAG)), config,
            ctypes.byref(self.context)))
        self.check('ucp_worker_create', self.ucp.ucp_worker_create(
            self.context, ctypes.byref(Params()), ctypes.byref(self.worker)))
        self.ep = ctypes.c_void_p()
        self.parent = os.getppid()
        self.other = None       # the process at the other end, if we started it

    def check(self, what, status):
        if status != 0:
            text = self.ucp.ucs_status_string
            text.restype = ctypes.c_char_p
            raise TransferError('%s: %s' % (what, text(status).decode()))

    def address(self):
        address, length = ctypes.c_void_p(), ctypes.c_size_t()
        self.check('ucp_worker_get_address', self.ucp.ucp_worker_get_address(
            self.worker, ctypes.byref(address), ctypes.byref(length)))
        return ctypes.string_at(address, length.value)

    def connect(self, address):
        self.check('ucp_ep_create', self.ucp.ucp_ep_create(
            self.worker, ctypes.byref(EpParams(1, address)),
            ctypes.byref(self.ep)))

    def wait(self, what, request):
        """Make progress until a request is complete."""
        if request is None:
            return
        status = ctypes.c_int64(request).value
        if UCS_ERR_LAST <= status < 0:
            self.end(what, status)
        request = ctypes.c_void_p(request)
        end = time.monotonic() + LIMIT
        while True:
            for _ in range(100):
                self.ucp.ucp_worker_progress(self.worker)
                status = self.ucp.ucp_request_check_status(request)
                if status != UCS_INPROGRESS:
                    self.ucp.ucp_request_free(request)
                    self.end(what, status)
                    return
            os.sched_yield()        # the other end may want this processor
            if os.getppid() != self.parent:
                os._exit(1)         # nobody waits for the answer any more
            if self.other is not None and self.other.poll() is not None:
                self.mourn(what)
            if time.monotonic() > end:
                raise TransferError('%s took more than %d s' % (what, LIMIT))

    def end(self, what, status):
        """Raise a request's error. If the other process has failed, its own
        error explains more."""
        if status != 0 and self.other is not None:
            try:
                self.other.wait(1)
            except subprocess.TimeoutExpired:
                pass
            else:
                self.mourn(what)
        self.check(what, status)

    def mourn(self, what):
        """Raise the other process's last error, or its exit status."""
        try:
            while True:
                hear(self.other.stdout)
        except Ended:
            code = self.other.returncode
        how = 'status %d' % code
        if code < 0:
            how = 'signal %d (%s)' % (-code, signal.Signals(-code).name)
        raise TransferError('the other process ended during the %s, with %s' %
                            (what, how))

    def send(self, buffer, size, tag):
        self.wait('send', self.ucp.ucp_tag_send_nbx(
            self.ep, buffer, ctypes.c_size_t(size), ctypes.c_uint64(tag),
            ctypes.byref(RequestParam())))

    def receive(self, buffer, size, tag):
        self.wait('receive', self.ucp.ucp_tag_recv_nbx(
            self.worker, buffer, ctypes.c_size_t(size), ctypes.c_uint64(tag),
            ctypes.c_uint64(0xffffffffffffffff), ctypes.byref(RequestParam())))


    def close(self):
        """Has the module sum up what it did."""
        self.ucp.ucp_worker_destroy(self.worker)
        self.ucp.ucp_cleanup(self.context)


def loaded_module():
    """Return the CUDA module loaded by UCX (None: none; ours first), and the
    reason why ours does not work with this UCX, or ''."""
    with open('/proc/self/maps', errors='surrogateescape') as maps:
        paths = re.findall(r' (/.*/libuct_cuda\.so[^/\n]*)$', maps.read(),
                           re.M)
    for path in paths:
        stays_out = getattr(ctypes.CDLL(path), 'uct_abi_stays_out', None)
        if stays_out is not None:
            stays_out.restype = ctypes.c_char_p
            return path, stays_out().decode()
    return (paths + [None])[0], ''


# -------------------------------------------------------------- two processes

class Peer:
    """One process: its GPU, its UCX, and one buffer at a time."""

    def __init__(self, options, rank):
        self.rounds = options.rounds
        self.cuda = Cuda()
        if self.cuda.count == 0:
            raise TransferError('the CUDA driver shows no GPU')
        self.device = options.gpus[rank] % self.cuda.count
        self.cuda.use(self.device)
        self.size = options.size << 20
        self.ucp = Ucp(options.ucx)
        self.done = ctypes.create_string_buffer(1)
        self.buffer = None

    def take(self, sort):
        if self.buffer is None or self.buffer.sort != sort:
            self.buffer = Buffer(self.cuda, sort, self.size)


def surroundings():
    """Return what decides whether two processes of a node can share memory."""
    found = {'pid': os.getpid()}
    for name in ('pid', 'net', 'ipc'):
        try:
            found[name + ' namespace'] = os.stat('/proc/self/ns/' + name).st_ino
        except OSError:
            pass
    try:
        found['/dev/shm'] = os.stat('/dev/shm').st_dev
    except OSError:
        pass
    return found


def tell(stream, **words):
    stream.write(json.dumps(words) + '\n')
    stream.flush()


def hear(stream):
    """Return the next line of JSON, and pass other lines on: UCX writes its
    warnings to stdout, and so may the command that starts the receiver."""
    words = None
    while words is None:
        line = stream.readline()
        if not line:
            raise Ended('the other process ended')
        try:
            words = json.loads(line) if line.startswith('{') else None
        except ValueError:
            pass
        if words is None:
            sys.stderr.write(line)
    if 'error' in words:
        raise TransferError('the receiver: ' + words['error'])
    return words


def receiver(options, heard, said):
    peer = Peer(options, 1)
    ucp = peer.ucp
    tell(said, address=ucp.address().hex(), surroundings=surroundings())
    ucp.connect(bytes.fromhex(hear(heard)['address']))
    while True:
        order = hear(heard)
        if 'sort' not in order:
            if options.close:
                ucp.close()
            return
        peer.take(order['sort'])
        if order['seed']:
            peer.buffer.poison()
        ucp.receive(peer.buffer.address, peer.size, DATA_TAG)
        ucp.send(peer.done, 1, DONE_TAG)
        if order['seed']:
            data = peer.buffer.read()
            good = pattern(peer.size, order['seed'])
            wrong = None
            if data != good:
                wrong = next(index for index in range(peer.size)
                             if data[index] != good[index])
            tell(said, wrong=wrong)


def send_one(peer, said, sort, seed):
    """Return the seconds of one message, until the receiver confirms it."""
    tell(said, sort=sort, seed=seed)
    began = time.perf_counter()
    peer.ucp.send(peer.buffer.address, peer.size, DATA_TAG)
    peer.ucp.receive(peer.done, 1, DONE_TAG)
    return time.perf_counter() - began


def send_kind(peer, heard, said, kind, seed):
    source, target = kind.split('-')
    peer.take(source)
    wrong = None
    for warm in range(2):
        peer.buffer.write(pattern(peer.size, seed + warm))
        send_one(peer, said, target, seed + warm)
        wrong = hear(heard)['wrong']
        if wrong is not None:
            raise TransferError('byte %d of %d is wrong' % (wrong, peer.size))
    seconds = []
    for _ in range(peer.rounds):
        seconds.append(send_one(peer, said, target, 0))
    return peer.size / statistics.median(seconds) / 1e9


def sender(options, child):
    heard, said = child.stdout, child.stdin
    peer = Peer(options, 0)
    peer.ucp.other = child
    other = {}
    while 'address' not in other:
        other = hear(heard)
    if options.peer:
        tell(sys.stdout, surroundings=[surroundings(), other['surroundings']])
    tell(said, address=peer.ucp.address().hex())
    peer.ucp.connect(bytes.fromhex(other['address']))
    module, stays_out = loaded_module()
    tell(sys.stdout, ucx=peer.ucp.version, module=module, stays_out=stays_out,
         gpus=peer.cuda.names(), size=peer.size)
    for index, kind in enumerate(options.kinds):
        speed = send_kind(peer, heard, said, kind, 1 + index * 10)
        tell(sys.stdout, kind=kind, gbps=round(speed, 2))
    tell(said, quit=True)
    if options.close:
        peer.ucp.close()
        sys.stderr.writelines(heard)    # what the receiver's UCX said


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('ucx', help='path of libucp')
    parser.add_argument('kinds', nargs='*', metavar='KIND',
                        help='one or more of %s (all)' % ', '.join(KINDS))
    parser.add_argument('--size', type=int, default=64, metavar='MIB')
    parser.add_argument('--rounds', type=int, default=5, metavar='N',
                        help='timed messages, after two that are not')
    parser.add_argument('--gpus', metavar='A,B', default='0,1',
                        help='of the sender and of the receiver (0,1)')
    parser.add_argument('--close', action='store_true',
                        help='close UCX at the end')
    parser.add_argument('--peer', action='append', default=[], metavar='WORD',
                        help='of the command that starts the receiver, such '
                        'as docker exec -i NAME')
    parser.add_argument('--receiver', action='store_true',
                        help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.kinds = options.kinds or KINDS
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error('%s is not one of %s' % (kind, ', '.join(KINDS)))
    words = options.gpus.split(',')
    if len(words) != 2 or not all(word.isdigit() for word in words):
        parser.error('--gpus: %s is not two GPUs, such as 0,1' % options.gpus)
    options.gpus = [int(word) for word in words]
    if not 1 <= options.size <= 1024:
        parser.error('--size: 1 to 1024 MiB, not %d' % options.size)
    if options.rounds < 1:
        parser.error('--rounds: 1 or more, not %d' % options.rounds)
    return options


def start_receiver(options):
    words = options.peer + [sys.executable] + sys.argv + ['--receiver']
    try:
        return subprocess.Popen(words, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, errors='replace')
    except OSError as error:
        raise TransferError('%s cannot be run: %s' % (words[0], error.strerror))


def main():
    options = parse()
    if options.receiver:
        try:
            receiver(options, sys.stdin, sys.stdout)
        except (TransferError, OSError) as error:
            tell(sys.stdout, error=str(error))
            os._exit(1)
        os._exit(0)
    child = None
    code = 0
    try:
        child = start_receiver(options)
        sender(options, child)
        child.wait(LIMIT)
    except (TransferError, OSError, subprocess.TimeoutExpired) as error:
        tell(sys.stdout, error=str(error))
        if child is not None:
            child.kill()
        code = 1
    # skip UCX's cleanup at exit: it needs the other process
    os._exit(code)


if __name__ == '__main__':
    main()
