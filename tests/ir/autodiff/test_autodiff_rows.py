"""The gradient of every row, on its examples: finite differences, and what Paddle does at kinks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ir import Builder, Input, Program, Value
from ir.literal import parse_type
from ir.opdef import OPS, Example, no_gradient
from ir.types import F32, F64, Type
from tests.ir.autodiff.differences import check, gradient, gradients_of

pytestmark = pytest.mark.sampled


def wide(e: Example) -> Example:
    """The example in f64."""
    attrs = {k: F64 if v == F32 else v for k, v in e.attrs.items()}
    return replace(e, types=tuple(t.replace("f32", "f64") for t in e.types), attrs=attrs)


def program_of(name: str, e: Example) -> Program:
    b = Builder()
    values = [Value(parse_type(t), f"x{k}") for k, t in enumerate(e.types)]
    results = b.emit(name, values, dict(e.attrs))
    inputs = tuple(Input(v, "arg", v.name) for v in values)
    return Program(name, inputs, tuple(b.ops), results)


def arrays_of(e: Example) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    out = []
    for t in map(parse_type, e.types):
        shape = t.concrete({})
        if t.dtype.kind == "f":
            out.append(rng.uniform(e.low, e.high, shape))
        elif t.dtype.kind == "b":
            out.append(rng.integers(0, 2, shape).astype(bool))
        else:
            out.append(rng.integers(int(e.low), int(e.high) + 1, shape, t.dtype.numpy))
    return out


def differentiable(e: Example, name: str) -> bool:
    types = list(map(parse_type, e.types))
    results = OPS[name].result_types(types, dict(e.attrs) | {})
    return any(t.dtype == F64 for t in types) and any(t.dtype == F64 for t in results)


def full_attrs(name: str, e: Example) -> Example:
    return replace(e, attrs={**OPS[name].attrs, **e.attrs})


def is_empty(e: Example) -> bool:
    """Whether the largest of its elements is the largest of none, which is infinite."""
    return 0 in parse_type(e.types[0]).shape


#: stand in backward programs only
BACKWARD = ("max_unpool",)
CASES = [
    (name, k)
    for name, row in OPS.items()
    if row.ref is not None and name not in ("detach", "keep_gradient", *BACKWARD)
    for k, e in enumerate(row.examples)
    if differentiable(full_attrs(name, wide(e)), name) and not (row.reduce and is_empty(e))
]


@pytest.mark.quick(
    "exp-0", "tanh-0", "pow-0", "matmul-0", "sum-0", "softmax-0", "gather-0", "slice-0", "concat-0"
)
@pytest.mark.parametrize("name, k", CASES)
def test_gradient_against_finite_differences(name, k):
    e = wide(OPS[name].examples[k])
    if name in ("set_dynamic_index", "dynamic_index") and e.low < 0:
        e = replace(e, low=0.0)
    check(program_of(name, e), arrays_of(e), native=True)


@pytest.mark.quick
@pytest.mark.parametrize("name", OPS)
def test_every_row_says_what_its_gradient_is(name):
    """A gradient, an expansion, none; or nothing that could have one."""
    row = OPS[name]
    if row.grad is not None or row.expand is not None or row.writes or row.effect:
        return
    if name in BACKWARD:
        return
    assert row.grad is not no_gradient
    for e in row.examples:
        assert not differentiable(full_attrs(name, wide(e)), name)


#: row, attributes, operands, gradients of each operand for a gradient of ones: as eager Paddle
KINKS = {
    "relu": ("relu", {}, [[-1.0, 0.0, 1.0]], [[0.0, 0.0, 1.0]]),
    "abs": ("abs", {}, [[-1.0, 0.0, 1.0]], [[-1.0, 0.0, 1.0]]),
    "clip": ("clip", {"min": -0.5, "max": 0.5}, [[-1, -0.5, 0, 0.5, np.nan]], [[0, 1, 1, 1, 0]]),
    "maximum": ("maximum", {}, [[1, 2, 3], [2, 2, 2]], [[0, 0.5, 1], [1, 0.5, 0]]),
    "minimum": ("minimum", {}, [[1, 2, 3], [2, 2, 2]], [[1, 0.5, 0], [0, 0.5, 1]]),
    "maximum nan": ("maximum", {}, [[np.nan, 1.0], [1.0, np.nan]], [[0.0, 0.0], [0.0, 0.0]]),
    "max": ("max", {}, [[1.0, 3.0, 3.0]], [[0.0, 0.5, 0.5]]),
    "min": ("min", {}, [[1.0, 1.0, 3.0]], [[0.5, 0.5, 0.0]]),
    "prod": ("prod", {}, [[2.0, 0.0, 3.0]], [[0.0, np.nan, 0.0]]),
    "leaky_relu": ("leaky_relu", {"negative_slope": 0.1}, [[-1, 0, 1]], [[0.1, 1, 1]]),
    "elu": ("elu", {"alpha": 0.5}, [[0.0, 1.0]], [[0.5, 1.0]]),
    "softplus": ("softplus", {"threshold": 0.5}, [[0.0, 1.0]], [[0.5, 1.0]]),
    "hardtanh": ("hardtanh", {"min": -0.5, "max": 0.5}, [[-1, -0.5, 0, 0.5]], [[0, 0, 1, 0]]),
    "thresholded_relu": ("thresholded_relu", {"threshold": 0.5}, [[0, 0.5, 1]], [[0, 0, 1]]),
    "hardsigmoid": ("hardsigmoid", {"slope": 0.25}, [[-2, 0, 2]], [[0, 0.25, 0]]),
    "hardswish": ("hardswish", {}, [[-3.0, 0.0, 3.0]], [[0, 0.5, 1]]),
    "copysign": ("copysign", {}, [[-2, 0, 2], [1, 1, -1]], [[-1, 0, -1], [0, 0, 0]]),
    "logit": ("logit", {}, [[0.5, 2.0]], [[4.0, np.nan]]),
    "sqrt": ("sqrt", {}, [[0.0, 4.0]], [[np.inf, 0.25]]),
    "pow": (
        "pow",
        {},
        [[0, 0, 2, -1], [2, 0, 3, 2]],
        [[0, 0, 12, -2], [0, 0, 8 * np.log(2), np.nan]],
    ),
    "remainder": ("remainder", {}, [[5, -5, 4], [3, 3, 2]], [[1, 1, 1], [-1, 2, -2]]),
    "floor_divide": ("floor_divide", {}, [[5.0], [3.0]], [[0.0], [0.0]]),
    "divide": ("divide", {}, [[0.0, 1.0], [0.0, 0.0]], [[np.inf, np.inf], [np.nan, -np.inf]]),
}


@pytest.mark.quick("maximum nan", "softplus", "hardswish", "floor_divide")
@pytest.mark.parametrize("case", KINKS)
def test_kinks_are_those_of_paddle(case):
    name, attrs, operands, want = KINKS[case]
    arrays = [np.array(a, np.float64) for a in operands]
    e = Example(tuple(f"f64[{a.size}]" for a in arrays), attrs)
    p = program_of(name, e)
    g = gradient(p)
    seeds = [np.ones(g.forward.outputs[0].type.concrete({}))]
    with np.errstate(all="ignore"):
        found = gradients_of(g, arrays, seeds)
    for have, expected in zip(found, want):
        np.testing.assert_allclose(have, np.array(expected, np.float64), rtol=1e-12)


def test_the_type_of_a_gradient_is_that_of_its_operand():
    e = Example(("f64[3,1]", "f64[4]"))
    g = gradient(program_of("add", e))
    assert [v.type for v in g.backward.outputs] == [Type(F64, (3, 1)), Type(F64, (4,))]
