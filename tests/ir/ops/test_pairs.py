"""Complex numbers as pairs of floats: every row that takes them does the same on pairs."""

from __future__ import annotations

import numpy as np
import pytest

from ir import OPS, parse
from ir.literal import parse_type
from ir.opdef import ShapeError, complete_attrs
from ir.pairs import RECORDED
from ir.passes import fuse
from ir.program import Fused
from ir.types import C64, F32, Type, complex_type, pair_type

MOVING = [n for n, row in OPS.items() if row.pairs and row.ref and n not in RECORDED]


def examples(name):
    """The operand types of the row's examples, complex where they are floats."""
    for e in OPS[name].examples:
        types = [parse_type(t) for t in e.types]
        if any(t.dtype is F32 for t in types):
            yield [t.with_dtype(C64) if t.dtype is F32 else t for t in types], e


def array(t, e, rng):
    if t.dtype is C64:
        return (rng.normal(size=t.shape) + 1j * rng.normal(size=t.shape)).astype(np.complex64)
    return np.floor(rng.uniform(e.low, e.high, t.shape)).astype(t.dtype.numpy)


def as_pairs(a):
    if a.dtype != np.complex64:
        return a
    return np.stack((a.real, a.imag), -1)


@pytest.mark.parametrize("name", MOVING)
def test_a_row_does_the_same_on_pairs(name):
    row, rng = OPS[name], np.random.default_rng(0)
    for types, e in examples(name):
        attrs = complete_attrs(row, e.attrs)
        try:
            results = row.result_types(types, attrs)
        except ShapeError:
            assert attrs.get("combine", "assign") not in ("assign", "add")
            continue
        arrays = [array(t, e, rng) for t in types]
        want = row.ref(*arrays, **attrs)
        there = row.pairs(types[0], results[0], **attrs)
        have = row.ref(*map(as_pairs, arrays), **there)
        every = (want, have) if isinstance(want, tuple) else ((want,), (have,))
        laid = row.result_types([pair_type(t) if t.dtype is C64 else t for t in types], there)
        for a, b, t, own in zip(*every, laid, results, strict=True):
            np.testing.assert_array_equal(as_pairs(np.asarray(a)), b)
            assert t == (pair_type(own) if own.dtype is C64 else own)


@pytest.mark.parametrize("name", [n for n, row in OPS.items() if not row.pairs and row.examples])
def test_no_other_row_takes_complex_numbers(name):
    for types, e in examples(name):
        with pytest.raises(ShapeError):
            OPS[name].result_types(types, complete_attrs(OPS[name], e.attrs))


def test_what_makes_a_type_makes_no_complex_one():
    with pytest.raises(ShapeError, match="complex"):
        OPS["full"].result_types([], complete_attrs(OPS["full"], {"value": 1, "dtype": C64}))
    for name in ("iota", "cast"):
        row = OPS[name]
        attrs = {"iota": {"n": 3}}.get(name, {}) | {"dtype": C64}
        operands = [Type(F32, (3,))] if row.operands else []
        with pytest.raises(ShapeError):
            row.result_types(operands, complete_attrs(row, attrs))


def test_types_there_and_back():
    t = Type(C64, (3, 4))
    assert str(pair_type(t)) == "f32[3,4,2]"
    assert complex_type(pair_type(t)) == t


def test_both_parts_are_one_kernel():
    """Unless a path leads from one to the other through what is no part of a kernel."""
    one = 'program f(%x: f32[4,2] arg "x", %y: f32[4,2] arg "y") {\n'
    parts = "".join(
        f"  %{n}{k} = index(%{n}, axis=-1, index={k}) : f32[4]\n" for n in "xy" for k in (0, 1)
    )
    apart = "  %a = multiply(%x0, %y1) : f32[4]\n  %b = multiply(%x1, %y0) : f32[4]\n"
    behind = apart + "  %s = cumsum(%a, axis=0) : f32[4]\n  %t = add(%s, %x1) : f32[4]\n"
    for body, other, kernels in ((apart, "b", 1), (behind, "t", 0)):
        stack = f"  %z = stack(%a, %{other}, axis=-1) : f32[4,2]\n  return %z\n}}"
        program = parse(one + parts + body + stack)
        assert sum(isinstance(n, Fused) for n in fuse(program).ops) == kernels
