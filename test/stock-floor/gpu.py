# SPDX-License-Identifier: BSD-3-Clause
"""Allocate memory of every kind by direct calls of the CUDA driver."""

import ctypes
import mmap

MIB = 1 << 20
SIZE = 4 * MIB     # of each allocation, two granules

PINNED, DEVICE, HOST_NUMA, READ_WRITE = 1, 1, 3, 3
RELEASE_THRESHOLD = 4   # of a pool
NONE, POSIX_FD, FABRIC = 0, 1, 8


class Location(ctypes.Structure):
    _fields_ = [('type', ctypes.c_int), ('id', ctypes.c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [('type', ctypes.c_int), ('handle_types', ctypes.c_int),
                ('location', Location), ('win32', ctypes.c_void_p),
                ('flags', ctypes.c_uint8 * 8)]


class AccessDescription(ctypes.Structure):
    _fields_ = [('location', Location), ('flags', ctypes.c_int)]


class PoolProperties(ctypes.Structure):
    _fields_ = [('type', ctypes.c_int), ('handle_types', ctypes.c_int),
                ('location', Location), ('win32', ctypes.c_void_p),
                ('max_size', ctypes.c_size_t), ('usage', ctypes.c_uint16),
                ('reserved', ctypes.c_uint8 * 54)]


class NoMemory(Exception):
    """The driver refused a step; its number and the result."""


class Gpu:
    """One GPU with its primary context current; allocations are never freed."""

    def __init__(self, device):
        self.cuda = ctypes.CDLL('libcuda.so.1')
        self.device = device
        self.kept = []
        self.call('cuInit', 0)
        context = ctypes.c_void_p()
        self.call('cuDevicePrimaryCtxRetain', ctypes.byref(context), device)
        self.call('cuCtxSetCurrent', context)

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise NoMemory('%s: %d' % (name, result))

    def plain(self):
        address = ctypes.c_uint64()
        self.call('cuMemAlloc_v2', ctypes.byref(address),
                  ctypes.c_size_t(SIZE))
        return address.value

    def managed(self):
        address = ctypes.c_uint64()
        self.call('cuMemAllocManaged', ctypes.byref(address),
                  ctypes.c_size_t(SIZE), 1)
        return address.value

    def locked_host(self):
        address = ctypes.c_void_p()
        self.call('cuMemHostAlloc', ctypes.byref(address),
                  ctypes.c_size_t(SIZE), 0)
        return address.value

    def pageable(self):
        memory = mmap.mmap(-1, SIZE)
        self.kept.append(memory)
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def _map(self, address, size, types, location=None):
        properties = AllocationProperties(
            PINNED, types, location or Location(DEVICE, self.device))
        handle = ctypes.c_uint64()
        self.call('cuMemCreate', ctypes.byref(handle), ctypes.c_size_t(size),
                  ctypes.byref(properties), ctypes.c_uint64(0))
        self.call('cuMemMap', ctypes.c_uint64(address), ctypes.c_size_t(size),
                  ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        access = AccessDescription(Location(DEVICE, self.device), READ_WRITE)
        self.call('cuMemSetAccess', ctypes.c_uint64(address),
                  ctypes.c_size_t(size), ctypes.byref(access),
                  ctypes.c_size_t(1))
        self.call('cuMemRelease', handle)

    def mapped(self, types, pieces=1):
        """Map the first part of a reservation eight times as large."""
        address = ctypes.c_uint64()
        self.call('cuMemAddressReserve', ctypes.byref(address),
                  ctypes.c_size_t(8 * SIZE), ctypes.c_size_t(0),
                  ctypes.c_uint64(0), ctypes.c_uint64(0))
        for piece in range(pieces):
            self._map(address.value + piece * SIZE // pieces, SIZE // pieces,
                      types)
        return address.value

    def mapped_host(self, types):
        """Map host memory without CPU access."""
        address = ctypes.c_uint64()
        self.call('cuMemAddressReserve', ctypes.byref(address),
                  ctypes.c_size_t(SIZE), ctypes.c_size_t(0),
                  ctypes.c_uint64(0), ctypes.c_uint64(0))
        self._map(address.value, SIZE, types, Location(HOST_NUMA, 0))
        return address.value

    def pooled(self, types=None):
        """Allocate from the default pool, or from a shareable one."""
        address = ctypes.c_uint64()
        if types is None:
            self.call('cuMemAllocAsync', ctypes.byref(address),
                      ctypes.c_size_t(SIZE), None)
        else:
            properties = PoolProperties(PINNED, types,
                                        Location(DEVICE, self.device))
            pool = ctypes.c_void_p()
            self.call('cuMemPoolCreate', ctypes.byref(pool),
                      ctypes.byref(properties))
            self.call('cuMemPoolSetAttribute', pool, RELEASE_THRESHOLD,
                      ctypes.byref(ctypes.c_uint64(1 << 40)))
            self.call('cuMemAllocFromPoolAsync', ctypes.byref(address),
                      ctypes.c_size_t(SIZE), pool, None)
        self.call('cuCtxSynchronize')
        return address.value

    def fill(self, address, size, value):
        self.call('cuMemsetD8_v2', ctypes.c_uint64(address),
                  ctypes.c_ubyte(value), ctypes.c_size_t(size))
        self.call('cuCtxSynchronize')

    def copy(self, to, source, size):
        """Copy between any two places supported by the driver."""
        self.call('cuMemcpy', ctypes.c_uint64(to), ctypes.c_uint64(source),
                  ctypes.c_size_t(size))
        self.call('cuCtxSynchronize')

    def read(self, address, size):
        out = ctypes.create_string_buffer(size)
        self.call('cuMemcpyDtoH_v2', out, ctypes.c_uint64(address),
                  ctypes.c_size_t(size))
        return out.raw


# Kinds of memory: (name, allocation, whether a peer should be able to reach it)
KINDS = [
    ('cuMemAlloc', lambda gpu: gpu.plain()),
    ('cuMemAllocManaged', lambda gpu: gpu.managed()),
    ('cuMemHostAlloc', lambda gpu: gpu.locked_host()),
    ('pageable', lambda gpu: gpu.pageable()),
    ('cuMemCreate, no handle', lambda gpu: gpu.mapped(NONE)),
    ('cuMemCreate, file descriptor', lambda gpu: gpu.mapped(POSIX_FD)),
    ('cuMemCreate, fabric', lambda gpu: gpu.mapped(FABRIC)),
    ('cuMemCreate, both', lambda gpu: gpu.mapped(POSIX_FD | FABRIC)),
    ('two mappings, file descriptor', lambda gpu: gpu.mapped(POSIX_FD, 2)),
    ('cuMemCreate of the host', lambda gpu: gpu.mapped_host(POSIX_FD)),
    ('cuMemAllocAsync', lambda gpu: gpu.pooled()),
    ('pool, no handle', lambda gpu: gpu.pooled(NONE)),
    ('pool, file descriptor', lambda gpu: gpu.pooled(POSIX_FD)),
    ('pool, fabric', lambda gpu: gpu.pooled(FABRIC)),
]
