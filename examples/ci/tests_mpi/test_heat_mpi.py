# SPDX-License-Identifier: BSD-3-Clause
"""Tests of all ranks. mpirun -n 2 python -m pytest tests_mpi"""
import cupy
import numpy
import pytest
from mpi4py import MPI

from heat import Rod

comm = MPI.COMM_WORLD
cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()


def test_pieces_are_one_rod():
    cells, steps = 100, 30
    begin = numpy.zeros(comm.size * cells + 2)
    begin[1:-1] = numpy.random.default_rng(7).random(comm.size * cells)

    whole, piece = Rod(comm.size * cells), Rod(cells, comm)
    whole.u[:] = cupy.asarray(begin)
    first = comm.rank * cells
    piece.u[1:-1] = cupy.asarray(begin[first + 1:first + cells + 1])
    for _ in range(steps):
        whole.step()
        piece.step()

    numpy.testing.assert_allclose(
        cupy.asnumpy(piece.u[1:-1]),
        cupy.asnumpy(whole.u[first + 1:first + cells + 1]), rtol=1e-13)
    assert piece.heat() == pytest.approx(whole.heat(), rel=1e-12)


@pytest.mark.parametrize('size', [8, 1 << 16, 16 << 20])
def test_messages_between_gpus(size):
    peer = comm.rank ^ 1
    if peer >= comm.size:
        return
    mine = cupy.arange(size // 4, dtype='i4') * (comm.rank + 1)
    other = cupy.empty_like(mine)
    cupy.cuda.get_current_stream().synchronize()
    comm.Sendrecv(mine, peer, recvbuf=other, source=peer)
    assert bool((other == cupy.arange(size // 4, dtype='i4') *
                 (peer + 1)).all())
