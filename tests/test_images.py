"""Convolutions, pooling and batch norm are rows: eager's results and gradients, no foreign op."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

import executor
import ir
from ir.core import Builder, Input, Program, Value
from ir.opdef import ShapeError
from ir.types import F32, F64, Type
from tests.conftest import mostly_slow
from tests.gradients import BOUNDS, agree, data


def native(f, *args, dtype="float64", calls=1):
    """As eager, gradients too, and nothing is left to Paddle."""
    static = agree(f, *args, dtype=dtype, calls=calls)
    assert not static.report(*args).foreign_counts
    return static


# ---------------------------------------------------------------- convolutions
CONVS = {
    "padding": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": 1}),
    "same": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": "SAME", "stride": 2}),
    "same, dilation": (
        (2, 3, 9, 10),
        (4, 3, 2, 3),
        {"padding": "SAME", "stride": (1, 2), "dilation": 2},
    ),
    "valid": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": "VALID", "stride": 2, "dilation": 2}),
    "one side": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": [1, 2, 0, 1]}),
    "pairs": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": [[0, 0], [0, 0], [1, 2], [0, 1]]}),
    "depthwise": ((2, 3, 9, 10), (6, 1, 3, 3), {"groups": 3, "padding": 1, "stride": 2}),
    "groups": ((2, 4, 9, 10), (6, 2, 3, 3), {"groups": 2, "padding": 1, "stride": 2}),
    "1x1": ((2, 4, 9, 10), (20, 4, 1, 1), {}),
    "1x1, groups": ((2, 4, 9, 10), (20, 2, 1, 1), {"groups": 2}),
    "1x1, stride": ((2, 4, 9, 10), (20, 4, 1, 1), {"stride": 2}),
    "1x1, one pixel": ((3, 4, 1, 1), (20, 4, 1, 1), {}),
    "7x7": ((2, 4, 30, 31), (8, 4, 7, 7), {"padding": 3, "stride": 2}),
    "parts": ((2, 150, 5, 4), (7, 150, 3, 3), {"padding": 1}),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name, dtype):
    x, w, options = CONVS[name]
    bias = data(w[0], seed=2, dtype=dtype)

    def f(x, w, b):
        return F.conv2d(x, w, b, **options)

    native(f, data(*x, dtype=dtype), data(*w, seed=1, dtype=dtype) / 8, bias, dtype=dtype)


def test_convolution_along_one_axis():
    def f(x, w, b):
        return F.conv1d(x, w, b, padding=2, stride=2, dilation=2)

    native(f, data(2, 3, 20), data(4, 3, 3, seed=1), data(4, seed=2))


def random_conv(rng):
    """A program of one convolution, and its operands."""
    while True:
        groups, c, o = int(rng.choice([1, 1, 1, 2, 3])), *(int(q) for q in rng.integers(1, 16, 2))
        n, h, w, *taps = (int(q) for q in (*rng.integers(1, 4, 1), *rng.integers(1, 36, 2),
                                           *rng.integers(1, 6, 2)))  # fmt: skip
        attrs = {
            "stride": tuple(int(q) for q in rng.integers(1, 4, 2)),
            "padding": tuple((int(a), int(b)) for a, b in rng.integers(-1, 4, (2, 2))),
            "dilation": tuple(int(q) for q in rng.choice([1, 1, 1, 2, 3], 2)),
            "groups": groups,
        }
        dtype, b = rng.choice([F32, F64]), Builder()
        shapes = (n, c * groups, h, w), (o * groups, c, *taps)
        values = [Value(Type(dtype, shape)) for shape in shapes]
        try:
            out = b.conv(*values, **attrs)
        except ShapeError:
            continue
        inputs = tuple(Input(v, "arg", f"x{k}") for k, v in enumerate(values))
        return Program("conv", inputs, tuple(b.ops), (out,)), [
            rng.standard_normal(v.type.shape).astype(dtype.numpy) for v in values
        ]


@pytest.mark.parametrize("seed", mostly_slow(range(8)))
def test_random_convolutions(seed):
    """Against NumPy in double precision, also where memory that is dead holds NaN."""
    rng = np.random.default_rng(seed)
    for k in range(6):
        program, arrays = random_conv(rng)
        (want,), _ = ir.evaluate(program, arrays)
        (got,) = executor.compile(program, poison=k % 2 == 0)(*arrays)
        bound = BOUNDS[str(want.dtype)] / 10
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound, err_msg=str(program))
