# SPDX-License-Identifier: BSD-3-Clause
"""Averaging gradients over all ranks while the backward pass still runs.

Gradients are gathered in buckets ("fusion buffers", as Horovod calls them), the
last layers' first, since their gradients are ready first. When all gradients of
a bucket are there they are copied into its flat buffer, which one all-reduce
sums up.

The parameters of a bucket lie in one flat parameter, whose gradient that buffer
is: the optimizer gets the flat ones, for a few large tensors are submitted sooner
than some hundred small ones. The host does not wait for the last all-reduce: the
GPU does, and finds the optimizer's step and part of the next forward pass behind.
"""

import ctypes
import queue
import threading
import time

import torch


class Bucket:
    """Parameters that are updated, and whose gradients travel, together."""

    def __init__(self, params):
        self.params, self.missing = params, len(params)
        self.flat = torch.nn.Parameter(torch.cat(
            [param.detach().flatten() for param in params]))
        self.grad = torch.empty_like(self.flat.detach())
        for param, part in zip(params, self._parts(self.flat.detach())):
            param.data = part
        self.views = self._parts(self.grad)

    def _parts(self, flat):
        return [part.view_as(param) for part, param in zip(flat.split(
            [param.numel() for param in self.params]), self.params)]

    def gather(self, ranks):
        torch._foreach_copy_(self.views, [param.grad for param in self.params])
        self.grad.div_(ranks)
        for param in self.params:
            param.grad = None       # the next one is stored, not added
        self.missing = len(self.params)


class Counter:
    """How many calls have ended, for the host and for the GPU to wait on.

    A thread counts on, in a word of page-locked memory that a stream can wait
    for (cuStreamWaitValue32), as an operation of NCCL's makes a stream wait.
    What the driver must stop all streams for (memory, a kernel's first use)
    would then wait for a thread that waits for the driver. So the host waits
    until steps are alike.
    """

    STEPS_ALIKE = 5     # in which PyTorch got no memory from the driver

    def __init__(self, device):
        self.device, self.count, self.alike, self.reserved = device, 0, 0, None
        self.changed, self.driver = threading.Condition(), None
        if device.type == 'cuda':
            self.driver = ctypes.CDLL('libcuda.so.1')
            self.memory = torch.zeros(1, dtype=torch.int32, pin_memory=True)
            self.word = ctypes.c_uint32.from_address(self.memory.data_ptr())

    def advance(self):
        with self.changed:
            self.count += 1
            if self.driver is not None:
                self.word.value = self.count    # modulo 2^32, as CUDA's
            self.changed.notify_all()

    def wait_on_host(self, count):
        with self.changed:
            self.changed.wait_for(lambda: self.count >= count)

    def wait(self, count):
        """Once a step: what is submitted after this starts after `count`
        calls."""
        if self.driver is None or not self._steps_alike():
            self.wait_on_host(count)
            return
        at_least = 0    # CU_STREAM_WAIT_VALUE_GEQ
        status = self.driver.cuStreamWaitValue32_v2(
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            ctypes.c_uint64(self.memory.data_ptr()), ctypes.c_uint32(count),
            ctypes.c_uint(at_least))
        if status != 0:
            self.wait_on_host(count)

    def _steps_alike(self):
        if self.alike < self.STEPS_ALIKE:
            reserved = torch.cuda.memory_reserved(self.device)
            self.alike = self.alike + 1 if reserved == self.reserved else 0
            self.reserved = reserved
        return self.alike >= self.STEPS_ALIKE


class Mpi:
    """Sums by MPI_Allreduce. It blocks, so a thread calls it; that thread is
    the only one that calls MPI meanwhile."""

    def __init__(self, comm, device):
        self.comm, self.device = comm, device
        self.todo, self.seconds, self.error = queue.Queue(), 0.0, None
        self.started, self.ended = 0, Counter(device)
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def start(self, bucket):
        """Sums a bucket that has been gathered; returns what wait() takes."""
        event = None
        if self.device.type == 'cuda':
            event = torch.cuda.Event()
            event.record()      # behind the copies into the flat buffer
        self.started += 1
        self.todo.put((bucket, event))
        return self.started

    def wait(self, started):
        self.ended.wait(started[-1])    # they end in order
        if self.error is not None:
            raise self.error

    def drain(self):
        self.ended.wait_on_host(self.started)
        if self.error is not None:
            raise self.error

    def close(self):
        self.todo.put(None)
        self.thread.join()

    def reduce(self, flat):
        # the GPU buffer itself: MPI is done when this returns
        self.comm.Allreduce(_in_place(), flat)

    def _work(self):
        if self.device.type == 'cuda':
            torch.cuda.set_device(self.device)
        for bucket, event in iter(self.todo.get, None):
            try:
                if event is not None:
                    event.synchronize()
                began = time.perf_counter()
                if self.error is None:
                    self.reduce(bucket.grad)
                self.seconds += time.perf_counter() - began
            except Exception as error:      # raised where it is waited for
                self.error = error
            self.ended.advance()


class Host(Mpi):
    """The same for an MPI without GPU support: copies by hand, through
    page-locked memory, on a stream beside the backward pass."""

    def __init__(self, comm, device):
        self.buffers = {}
        self.stream = torch.cuda.Stream(device) if device.type == 'cuda' \
            else None
        super().__init__(comm, device)

    def reduce(self, flat):
        host = self.buffers.get(flat.data_ptr())
        if host is None:
            host = self.buffers[flat.data_ptr()] = torch.empty_like(
                flat, device='cpu', pin_memory=self.stream is not None)
        with torch.cuda.stream(self.stream):
            host.copy_(flat)
            self.comm.Allreduce(_in_place(), host.numpy())
            flat.copy_(host)
        if self.stream is not None:
            self.stream.synchronize()


class Distributed:
    """Sums by torch.distributed: NCCL on GPUs."""

    seconds = None      # it runs on the GPU, beside the rest

    def __init__(self, _comm, _device):
        pass

    def start(self, bucket):
        return torch.distributed.all_reduce(bucket.grad, async_op=True)

    def wait(self, started):
        for work in started:
            work.wait()

    def drain(self):
        pass

    def close(self):
        pass


def _in_place():
    from mpi4py import MPI
    return MPI.IN_PLACE


class Averager:
    """Averages a model's gradients over `ranks` ranks, in buckets of at most
    `bucket_bytes` (a larger gradient is a bucket of its own)."""

    LAYERS_AHEAD = 50

    def __init__(self, model, reducer, ranks, bucket_bytes):
        self.reducer, self.ranks = reducer, ranks
        self.buckets, self.bucket_of = [], {}
        params, room = [], 0
        for param in reversed(list(model.parameters())):
            size = param.numel() * param.element_size()
            if params and (size > room or param.dtype != params[0].dtype):
                self._add(params)
                params, room = [], 0
            if not params:
                room = bucket_bytes
            params.append(param)
            room -= size
        self._add(params)
        self.next, self.started = 0, []
        self.hooks = [param.register_post_accumulate_grad_hook(self._ready)
                      for param in self.bucket_of]
        # The driver takes some thousand kernels. Then the host waits within,
        # and the thread that calls MPI behind it, for which the GPU waits: so
        # the next step goes on this far, and in _ready() at the latest.
        layers = [module for module in model.modules()
                  if not list(module.children())]
        self.hooks.append(
            layers[:self.LAYERS_AHEAD][-1].register_forward_pre_hook(
                lambda *_: self.reducer.drain()))

    def parameters(self):
        """What the optimizer is to update."""
        return [bucket.flat for bucket in self.buckets]

    def _add(self, params):
        bucket = Bucket(params)
        self.buckets.append(bucket)
        self.bucket_of.update((param, bucket) for param in params)

    def _ready(self, param):
        if not self.started:
            self.reducer.drain()
        self.bucket_of[param].missing -= 1
        # in the same order on all ranks, whatever order gradients come in
        while self.next < len(self.buckets) and \
                self.buckets[self.next].missing == 0:
            bucket = self.buckets[self.next]
            bucket.gather(self.ranks)
            self.started.append(self.reducer.start(bucket))
            self.next += 1

    def wait(self):
        """After backward(): what the stream gets from here on finds averages
        in the flat gradients."""
        if self.next < len(self.buckets):
            raise RuntimeError('%d parameters got no gradient' % sum(
                bucket.missing for bucket in self.buckets[self.next:]))
        self.reducer.wait(self.started)
        for bucket in self.buckets:
            bucket.flat.grad = bucket.grad
        self.next, self.started = 0, []

    def drain(self):
        """Before the host waits for the GPU, or asks it for memory (a larger
        batch): all calls have ended when this is done."""
        self.reducer.drain()

    def close(self):
        for hook in self.hooks:
            hook.remove()
        self.reducer.close()
