# SPDX-License-Identifier: BSD-3-Clause
"""Averaging gradients over all ranks while the backward pass still runs.

Gradients are gathered in buckets ("fusion buffers", as Horovod calls them), the
last layers' first, since their gradients are ready first. When all gradients of
a bucket are there they are copied into its flat buffer, which one all-reduce
sums up.

The parameters of a bucket lie in one flat parameter, whose gradient that buffer
is: the optimizer gets the flat ones. After the last all-reduce the GPU waits for
what the host submits next, and a few large tensors are submitted sooner than
some hundred small ones.
"""

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


class Mpi:
    """Sums by MPI_Allreduce. It blocks, so a thread calls it; that thread is
    the only one that calls MPI meanwhile."""

    def __init__(self, comm, device):
        self.comm, self.device = comm, device
        self.todo, self.seconds, self.error = queue.Queue(), 0.0, None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def start(self, bucket):
        """Sums a bucket that has been gathered; returns what wait() takes."""
        event = None
        if self.device.type == 'cuda':
            event = torch.cuda.Event()
            event.record()      # behind the copies into the flat buffer
        done = threading.Event()
        self.todo.put((bucket, event, done))
        return done

    def wait(self, done):
        done.wait()
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
        for bucket, event, done in iter(self.todo.get, None):
            try:
                if event is not None:
                    event.synchronize()
                began = time.perf_counter()
                self.reduce(bucket.grad)
                self.seconds += time.perf_counter() - began
            except Exception as error:      # raised where it is waited for
                self.error = error
            done.set()


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

    def wait(self, work):
        work.wait()

    def close(self):
        pass


def _in_place():
    from mpi4py import MPI
    return MPI.IN_PLACE


class Averager:
    """Averages a model's gradients over `ranks` ranks, in buckets of at most
    `bucket_bytes` (a larger gradient is a bucket of its own)."""

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

    def parameters(self):
        """What the optimizer is to update."""
        return [bucket.flat for bucket in self.buckets]

    def _add(self, params):
        bucket = Bucket(params)
        self.buckets.append(bucket)
        self.bucket_of.update((param, bucket) for param in params)

    def _ready(self, param):
        self.bucket_of[param].missing -= 1
        # in the same order on all ranks, whatever order gradients come in
        while self.next < len(self.buckets) and \
                self.buckets[self.next].missing == 0:
            bucket = self.buckets[self.next]
            bucket.gather(self.ranks)
            self.started.append(self.reducer.start(bucket))
            self.next += 1

    def wait(self):
        """After backward(): the flat gradients are averages when this is
        done."""
        if self.next < len(self.buckets):
            raise RuntimeError('%d parameters got no gradient' % sum(
                bucket.missing for bucket in self.buckets[self.next:]))
        for bucket, started in zip(self.buckets, self.started):
            self.reducer.wait(started)
            bucket.flat.grad = bucket.grad
        self.next, self.started = 0, []

    def close(self):
        for hook in self.hooks:
            hook.remove()
        self.reducer.close()
