"""Copies that read across the lines of memory, and reads and writes of every second element."""

from __future__ import annotations

import numpy as np
import pytest

import executor
from executor.cpu.backend import machine
from executor.cpu.kernel_table import matching
from executor.cpu.kernels.elementwise import transposing_kernel
from executor.launches import Map
from executor.memory import Buffer, View
from ir import Builder, Input, Program, Type, Value
from ir.passes import run
from ir.scalar.language import input_
from ir.types import F32, F64, I32, I64

RNG = np.random.default_rng(0)


def array(dtype, *shape):
    return np.floor(RNG.uniform(-99, 99, shape)).astype(dtype.numpy)


def result(make, *arrays):
    values = [Value(Type(dtype, a.shape), f"x{k}") for k, (dtype, a) in enumerate(arrays)]
    b = Builder()
    out = make(b, *values)
    inputs = tuple(Input(v, "arg", v.name) for v in values)
    program = Program("f", inputs, tuple(b.ops), (out,))
    (found,) = executor.compile(run(program))(*(a for _, a in arrays))
    return found


@pytest.mark.parametrize("dtype", [F32, F64, I32, I64], ids=str)
@pytest.mark.parametrize("rows, columns", [(16, 32), (17, 35), (70, 16), (33, 1), (3, 40), (0, 20)])
def test_transposed(dtype, rows, columns):
    x = array(dtype, 2, rows, columns)
    have = result(lambda b, v: b.assign(b.transpose(v, perm=(0, 2, 1))), (dtype, x))
    np.testing.assert_array_equal(have, x.transpose(0, 2, 1))


@pytest.mark.parametrize("rows, columns", [(16, 24), (9, 17), (2, 3)])
def test_pairs_are_transposed_as_one(rows, columns):
    x = array(F32, 3, rows, columns, 2)
    have = result(lambda b, v: b.assign(b.transpose(v, perm=(2, 0, 1, 3))), (F32, x))
    np.testing.assert_array_equal(have, x.transpose(2, 0, 1, 3))


@pytest.mark.parametrize("factor, n", [(2, 16), (3, 19), (4, 40), (2, 5)])
@pytest.mark.parametrize("dtype", [F32, F64, I32], ids=str)
def test_pixels_are_shuffled_line_by_line(dtype, factor, n):
    """The last axis of the result is shorter than a vector, and lies far apart in what is read."""
    x, y = array(dtype, 2, factor, 3, n), array(dtype, 2, 3, n, factor)
    shuffled = lambda b, v: b.transpose(v, perm=(0, 2, 3, 1))  # noqa: E731
    want = x.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(result(lambda b, v: b.assign(shuffled(b, v)), (dtype, x)), want)
    have = result(lambda b, v, w: b.add(shuffled(b, v), w), (dtype, x), (dtype, y))
    np.testing.assert_array_equal(have, want + y)


@pytest.mark.parametrize("n", [1, 15, 16, 31, 64, 100])
@pytest.mark.parametrize("dtype", [F32, F64, I32], ids=str)
def test_every_second_element(dtype, n):
    x, y = array(dtype, 3, n, 2), array(dtype, 3, n, 2)

    def product(b, x, y):
        (a, c), (d, e) = ([b.index(v, axis=-1, index=k) for k in (0, 1)] for v in (x, y))
        re = b.subtract(b.multiply(a, d), b.multiply(c, e))
        return b.stack(re, b.add(b.multiply(a, e), b.multiply(c, d)), axis=-1)

    a, c, d, e = x[..., 0], x[..., 1], y[..., 0], y[..., 1]
    want = np.stack((a * d - c * e, a * e + c * d), -1)
    np.testing.assert_allclose(result(product, (dtype, x), (dtype, y)), want, rtol=1e-6)


def test_which_copies_go_by_blocks():
    def chosen(shape, source, target, dtype=F32):
        views = [
            View(Buffer("input", k, 0), dtype, 0, shape, s) for k, s in enumerate((source, target))
        ]
        m = Map(shape, views[:1], (input_(0, dtype),), views[1:])
        return matching(machine().target, m).make is transposing_kernel

    assert chosen((64, 32), (1, 64), (32, 1))
    assert chosen((64, 32, 2), (2, 128, 1), (64, 2, 1))
    assert not chosen((64, 32), (32, 1), (32, 1))
    assert not chosen((64, 32), (0, 64), (32, 1))
    assert not chosen((2, 32), (1, 2), (32, 1))
