# SPDX-License-Identifier: BSD-3-Clause
"""Two NIXL agents with memory to move: in two processes, or both in this one.

Memory comes from the CUDA driver itself (no framework is needed), so that it
may be an emulated one.
"""

import ctypes
import importlib
import mmap
import multiprocessing
import os
import threading
import time

GPU, LOCKED, PAGEABLE = 'V', 'P', 'H'
KINDS = {GPU: 'GPU memory', LOCKED: 'page-locked host memory',
         PAGEABLE: 'pageable host memory'}
CONTEXT_MAPPED = 1      # CU_MEMHOSTALLOC_PORTABLE
GRANULE = 2 << 20       # bytes; every GPU maps multiples of it
# Allocators of GPU memory: bytes in a piece, 0 for one piece; None: a pool
ALLOCATORS = {'alloc': None, 'vmm': 0, 'pieces': GRANULE,
              'large': 10 * GRANULE, 'pool': None, 'async': None}


class Failure(Exception):
    """A sentence on what did not work."""


class Driver:
    """The CUDA driver, with the primary context of one GPU."""

    def __init__(self, device):
        try:
            self.cuda = ctypes.CDLL('libcuda.so.1')
        except OSError as error:
            raise Failure('no CUDA driver: %s' % error)
        self.device = device
        self.no_capture = threading.Lock()
        self.call('cuInit', 0)
        self.context = ctypes.c_void_p()
        self.call('cuDevicePrimaryCtxRetain', ctypes.byref(self.context),
                  device)
        self.enter()

    def enter(self):
        self.call('cuCtxSetCurrent', self.context)

    def write(self, address, data, waits=True):
        """Write GPU memory; if it does not wait, the last bytes may arrive
        later, if the memory is not of cuMemAlloc."""
        self.enter()
        self.call('cuMemcpyHtoD_v2', ctypes.c_uint64(address), data,
                  ctypes.c_size_t(len(data)))
        if waits:
            with self.no_capture:       # which such a wait would break
                self.call('cuCtxSynchronize')

    def in_use(self):
        """Return the bytes in use on this GPU; an emulated pool collects freed
        memory when its process asks."""
        self.enter()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call('cuMemGetInfo_v2', ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise Failure('%s on GPU %s: CUDA error %d'
                          % (name, getattr(self, 'device', '?'), result))


class Properties(ctypes.Structure):
    """CUmemAllocationProp or CUmemPoolProps: exportable as a descriptor."""

    _fields_ = [('type', ctypes.c_int), ('handle_types', ctypes.c_int),
                ('location_type', ctypes.c_int), ('location', ctypes.c_int),
                ('rest', ctypes.c_uint64 * 9)]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [('location_type', ctypes.c_int), ('location', ctypes.c_int),
                ('flags', ctypes.c_int)]


class Range:
    """A reserved address range, in which pieces come and go."""

    def __init__(self, driver, size):
        self.driver = driver
        self.size = size
        address = ctypes.c_uint64()
        driver.call('cuMemAddressReserve', ctypes.byref(address),
                    ctypes.c_size_t(size), ctypes.c_size_t(0),
                    ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.address = address.value

    def map(self, offset, size):
        """Map a new piece, whose size is a multiple of GRANULE."""
        call, device = self.driver.call, self.driver.device
        handle = ctypes.c_uint64()
        address = ctypes.c_uint64(self.address + offset)
        size = ctypes.c_size_t(size)
        call('cuMemCreate', ctypes.byref(handle), size,
             ctypes.byref(Properties(1, 1, 1, device)), ctypes.c_uint64(0))
        call('cuMemMap', address, size, ctypes.c_size_t(0), handle,
             ctypes.c_uint64(0))
        call('cuMemRelease', handle)
        call('cuMemSetAccess', address, size,
             ctypes.byref(Access(1, device, 3)), ctypes.c_size_t(1))

    def unmap(self, offset, size):
        self.driver.call('cuMemUnmap', ctypes.c_uint64(self.address + offset),
                         ctypes.c_size_t(size))

    def free(self):
        """Give the addresses back; no piece is mapped."""
        self.driver.call('cuMemAddressFree', ctypes.c_uint64(self.address),
                         ctypes.c_size_t(self.size))


def create_pool(driver, release_threshold=0):
    """Return a pool created for sharing. The module shares its memory if the
    pool keeps what is freed: below the threshold, in bytes."""
    pool = ctypes.c_void_p()
    driver.call('cuMemPoolCreate', ctypes.byref(pool),
                ctypes.byref(Properties(1, 1, 1, driver.device)))
    driver.call('cuMemPoolSetAttribute', pool, 4,
                ctypes.byref(ctypes.c_uint64(release_threshold)))
    return pool


def allocate_from_pool(driver, size, pool):
    """Return the address of memory of a pool."""
    address = ctypes.c_uint64()
    driver.call('cuMemAllocFromPoolAsync', ctypes.byref(address),
                ctypes.c_size_t(size), pool, None)
    driver.call('cuStreamSynchronize', None)
    return address.value


def allocate(driver, size, allocator):
    """Return the address of GPU memory that lives until the end."""
    address = ctypes.c_uint64()
    piece = ALLOCATORS[allocator]
    if piece is not None:
        # small memory crosses the border of two pieces, too
        begin = piece and piece - GRANULE // 4
        piece = piece or -(-size // GRANULE) * GRANULE
        mapped = -(-(begin + size) // piece) * piece
        pieces = Range(driver, 2 * mapped)      # room, as PyTorch reserves it
        for offset in range(0, mapped, piece):
            pieces.map(offset, piece)
        return pieces.address + begin
    if allocator == 'pool':
        return allocate_from_pool(driver, size, create_pool(driver, 1 << 40))
    if allocator == 'alloc':
        driver.call('cuMemAlloc_v2', ctypes.byref(address),
                    ctypes.c_size_t(size))
    else:
        driver.call('cuMemAllocAsync', ctypes.byref(address),
                    ctypes.c_size_t(size), None)
        driver.call('cuStreamSynchronize', None)
    return address.value


class Memory:
    """Some bytes, of one kind."""

    def __init__(self, driver, kind, size, allocator='alloc'):
        self.driver = driver
        self.kind = kind
        self.size = size
        self.device = driver.device if kind == GPU else 0
        self.segment = 'VRAM' if kind == GPU else 'DRAM'
        driver.enter()
        if kind == GPU:
            self.address = allocate(driver, size, allocator)
        elif kind == LOCKED:
            address = ctypes.c_void_p()
            driver.call('cuMemHostAlloc', ctypes.byref(address),
                        ctypes.c_size_t(size), CONTEXT_MAPPED)
            self.address = address.value
        else:
            self.map = mmap.mmap(-1, size)
            self.address = ctypes.addressof(
                ctypes.c_char.from_buffer(self.map))

    def write(self, data, offset=0, waits=True):
        if self.kind != GPU:
            ctypes.memmove(self.address + offset, data, len(data))
        else:
            self.driver.write(self.address + offset, data, waits)

    def read(self):
        self.driver.enter()
        if self.kind != GPU:
            return ctypes.string_at(self.address, self.size)
        data = ctypes.create_string_buffer(self.size)
        self.driver.call('cuMemcpyDtoH_v2', data,
                         ctypes.c_uint64(self.address),
                         ctypes.c_size_t(self.size))
        return data.raw

    def blocks(self, ranges):
        """NIXL's descriptors of (offset, length) pairs."""
        return [(self.address + offset, length, self.device)
                for offset, length in ranges]


def nixl_api():
    """NIXL's Python module, of whichever wheel is there."""
    missing = []
    for name in ('nixl_cu12', 'nixl_cu13'):
        try:
            return importlib.import_module(name + '._api')
        except ImportError as error:
            missing.append(str(error))
    raise Failure('no NIXL here: %s' % '; '.join(missing))


def complete(nixl, handle, message=b'', limit_s=120):
    """Start a prepared transfer and wait for its end; return the seconds that
    the call took which started it, and all."""
    begin = time.perf_counter()
    state = nixl.transfer(handle, message)
    posting = time.perf_counter() - begin
    while state == 'PROC':
        state = nixl.check_xfer_state(handle)
        if time.perf_counter() - begin > limit_s:
            raise Failure('a transfer is not done after %d s' % limit_s)
    taken = time.perf_counter() - begin
    if state != 'DONE':
        raise Failure('a transfer ended in state %s' % state)
    return posting, taken


class Busy(threading.Thread):
    """Memory that comes and goes, copies and captures, as programs have them
    beside their transfers."""

    def __init__(self, driver):
        super().__init__(daemon=True)
        self.driver = driver
        self.rounds = 0
        self.wrong = []
        self.goes_on = True
        self.start()

    def capture(self, stream, address, size):
        call, graph = self.driver.call, ctypes.c_void_p()
        with self.driver.no_capture:
            call('cuStreamBeginCapture_v2', stream, 0)      # of all threads
            call('cuMemsetD8Async', address, 7, size, stream)
            call('cuStreamEndCapture', stream, ctypes.byref(graph))
        if not graph.value:
            raise Failure('a capture was broken')
        call('cuGraphDestroy', graph)

    def one_round(self, stream):
        size = ctypes.c_size_t(4096 << self.rounds % 9)
        address, call = ctypes.c_uint64(), self.driver.call
        back = (ctypes.c_ubyte * size.value)()
        call('cuMemAlloc_v2', ctypes.byref(address), size)
        call('cuMemcpyHtoD_v2', address, b'x' * size.value, size)
        self.capture(stream, address, size)
        call('cuMemcpyDtoH_v2', back, address, size)
        call('cuMemFree_v2', address)
        if bytes(back) != b'x' * size.value:
            raise Failure('the program reads back what it has not written')

    def run(self):
        stream = ctypes.c_void_p()
        try:
            self.driver.enter()
            self.driver.call('cuStreamCreate', ctypes.byref(stream), 1)
            while self.goes_on:
                self.one_round(stream)
                self.rounds += 1
        except Failure as error:
            self.wrong.append(str(error))

    def end(self):
        """How many rounds, and what was wrong."""
        self.goes_on = False
        self.join()
        return self.rounds, self.wrong


class Agent:
    """A NIXL agent with one piece of memory of each kind, registered."""

    def __init__(self, name, device, size, kinds=tuple(KINDS),
                 allocator='alloc'):
        api = nixl_api()
        self.name = name
        self.driver = Driver(device)
        self.memory = {kind: Memory(self.driver, kind, size, allocator)
                       for kind in kinds}
        self.nixl = api.nixl_agent(name,
                                   api.nixl_agent_config(backends=['UCX']))
        self.registered = [
            self.nixl.register_memory([(memory.address, size, memory.device,
                                        '')], memory.segment)
            for memory in self.memory.values()]

    def card(self):
        """What a peer has to know."""
        return (self.nixl.get_agent_metadata(),
                {kind: memory.address for kind, memory in self.memory.items()},
                self.driver.device)

    def close(self):
        for registered in self.registered:
            self.nixl.deregister_memory(registered)
        self.registered = []
        self.nixl = None

    def notifications(self, sender, count, limit_s=30):
        """Waits for so many notifications of an agent; in order."""
        end = time.monotonic() + limit_s
        got = []
        while len(got) < count and time.monotonic() < end:
            got += self.nixl.get_new_notifs().get(sender, [])
        return got

    def be_busy(self):
        """A program of its own, in a thread: see Busy."""
        self.busy = Busy(self.driver)

    def answer(self, request, *arguments):
        """What a peer asks for; both in one process and by a pipe."""
        if request == 'card':
            return self.card()
        if request == 'write':
            return self.memory[arguments[0]].write(*arguments[1:])
        if request == 'read':
            return self.memory[arguments[0]].read()
        if request == 'connect':
            return self.nixl.add_remote_agent(arguments[0])
        if request == 'notifications':
            return self.notifications(*arguments)
        if request == 'busy':
            return self.be_busy()
        if request == 'calm':
            return self.busy.end()
        raise Failure('no request %s' % request)


class NearPeer:
    """An agent in this process."""

    def __init__(self, *arguments):
        self.agent = Agent(*arguments)

    def ask(self, *request):
        return self.agent.answer(*request)

    def close(self):
        self.agent.close()


def serve(pipe, agent_class, arguments):
    """The other process."""
    try:
        agent = agent_class(*arguments)
        while True:
            pipe.send((True, agent.answer(*pipe.recv())))
    except EOFError:
        pass
    except Exception as error:          # told to the asking process
        pipe.send((False, '%s: %s' % (type(error).__name__, error)))
    os._exit(0)


class FarPeer:
    """An agent in a process of its own."""

    def __init__(self, *arguments, agent_class=Agent):
        spawn = multiprocessing.get_context('spawn')
        self.pipe, other = spawn.Pipe()
        self.process = spawn.Process(target=serve, daemon=True,
                                     args=(other, agent_class, arguments))
        self.process.start()
        other.close()

    def ask(self, *request):
        try:
            self.pipe.send(request)
            good, answer = self.pipe.recv()
        except (EOFError, BrokenPipeError):
            raise Failure('the other process is gone')
        if not good:
            raise Failure('in the other process: %s' % answer)
        return answer

    def close(self):
        self.pipe.close()
        self.process.join(10)


class Pair:
    """An agent and its peer, connected."""

    def __init__(self, near, size, devices=(0, 1), suffix='',
                 kinds=tuple(KINDS), allocator='alloc'):
        peer_class = NearPeer if near else FarPeer
        self.peer = peer_class('target' + suffix, devices[1], size, kinds,
                               allocator)
        self.agent = Agent('initiator' + suffix, devices[0], size, kinds,
                           allocator)
        metadata, self.addresses, self.peer_device = self.peer.ask('card')
        self.peer_name = self.agent.nixl.add_remote_agent(metadata)
        if isinstance(self.peer_name, bytes):
            self.peer_name = self.peer_name.decode()

    def remote_blocks(self, kind, ranges):
        device = self.peer_device if kind == GPU else 0
        return [(self.addresses[kind] + offset, length, device)
                for offset, length in ranges]

    def prepare(self, operation, kind, ranges, remote_kind, remote_ranges,
                message=b''):
        nixl = self.agent.nixl
        memory = self.agent.memory[kind]
        local = nixl.get_xfer_descs(memory.blocks(ranges), memory.segment)
        remote = nixl.get_xfer_descs(
            self.remote_blocks(remote_kind, remote_ranges),
            'VRAM' if remote_kind == GPU else 'DRAM')
        return nixl.initialize_xfer(operation, local, remote, self.peer_name,
                                    message)

    def run(self, handle, message=b'', limit_s=120):
        """Starts a prepared transfer, waits; its time in seconds, of which
        self.posting within the call that starts it."""
        self.posting, taken = complete(self.agent.nixl, handle, message,
                                       limit_s)
        return taken

    def release(self, handle):
        self.agent.nixl.release_xfer_handle(handle)

    def close(self):
        self.agent.nixl.remove_remote_agent(self.peer_name)
        self.agent.close()
        self.peer.close()
