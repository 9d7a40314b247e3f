# SPDX-License-Identifier: BSD-3-Clause
"""Tests of one process. pytest tests"""
import cupy
import numpy
import pytest

from heat import Rod


def on_cpu(u, steps, k):
    for _ in range(steps):
        u[1:-1] += k * (u[:-2] - 2 * u[1:-1] + u[2:])
    return u


@pytest.mark.parametrize('cells', [1, 127, 128, 1000])
def test_as_on_the_cpu(cells):
    rod = Rod(cells)
    begin = numpy.zeros(cells + 2)
    begin[1:-1] = numpy.random.default_rng(1).random(cells)
    rod.u[:] = cupy.asarray(begin)
    for _ in range(10):
        rod.step()
    numpy.testing.assert_allclose(cupy.asnumpy(rod.u), on_cpu(begin, 10, 0.25),
                                  rtol=1e-12, atol=1e-15)


def test_heat_only_leaves_by_the_ends():
    rod = Rod(64)
    rod.u[32] = 1
    for _ in range(20):
        rod.step()
    assert rod.heat() == pytest.approx(1)
    for _ in range(5000):
        rod.step()
    assert rod.heat() < 0.5


def test_there_are_gpus():
    assert cupy.cuda.runtime.getDeviceCount() >= 1
    with cupy.cuda.Device(0):
        free, total = cupy.cuda.runtime.memGetInfo()
    assert 0 < free <= total
