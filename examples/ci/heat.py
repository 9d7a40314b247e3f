# SPDX-License-Identifier: BSD-3-Clause
"""Heat in a rod, on GPUs: each rank of MPI has a piece of it.

A step is a kernel of one's own; before it, neighbours exchange one cell by
messages between GPU buffers.
"""
import cupy

_STEP = cupy.RawKernel(r'''
extern "C" __global__ void step(const double *u, double *v, int n, double k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x + 1;

    if (i <= n) {
        v[i] = u[i] + k * (u[i - 1] - 2 * u[i] + u[i + 1]);
    }
}
''', 'step')


class Rod:
    """A piece of `cells` cells, with one more at each end: its neighbours'."""

    def __init__(self, cells, comm=None):
        self.comm = comm
        self.cells = cells
        self.u = cupy.zeros(cells + 2)
        self.v = cupy.zeros(cells + 2)

    def _exchange(self):
        if self.comm is None or self.comm.size == 1:
            return
        from mpi4py import MPI
        rank, size = self.comm.rank, self.comm.size
        left = rank - 1 if rank > 0 else MPI.PROC_NULL
        right = rank + 1 if rank + 1 < size else MPI.PROC_NULL
        cupy.cuda.get_current_stream().synchronize()
        self.comm.Sendrecv(self.u[-2:-1], right, recvbuf=self.u[:1],
                           source=left)
        self.comm.Sendrecv(self.u[1:2], left, recvbuf=self.u[-1:],
                           source=right)

    def step(self, k=0.25):
        """One step in time; the rod's own ends stay at 0."""
        self._exchange()
        threads = 128
        _STEP(((self.cells + threads - 1) // threads,), (threads,),
              (self.u, self.v, self.cells, k))
        self.u, self.v = self.v, self.u
        self.u[0] = self.u[-1] = 0

    def heat(self):
        """The whole rod's, on each rank."""
        own = self.u[1:-1].sum()
        if self.comm is None:
            return float(own)
        cupy.cuda.get_current_stream().synchronize()
        total = cupy.empty_like(own)
        self.comm.Allreduce(own, total)
        return float(total)
