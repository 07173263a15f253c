"""Ranges and affine forms against all numbers that they speak of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from executor.plan.trip_counts import ranges_of
from ir import Builder, Input, Program, Value, evaluate
from ir.analysis.affine import emitted
from ir.analysis.ranges import (
    Range,
    compared,
    extreme,
    index_range,
    interval,
    natural_bound,
    never_negative,
)
from ir.literal import parse_dim
from ir.types import I64, Size, Type, evaluate_dim, line, slope

INDEX = Size.named("i")
#: `for i in range(T)`, in it `for j in range(i)` and `for k in range(0, T - i, 2)`
RANGES = {
    "i": index_range(Size.named("T")),
    "j": index_range(INDEX),
    "k": Range(0, Size.named("T") - INDEX - 1, (2, Size.named("T") - INDEX - 1)),
}
DIMS = (
    "i i+1 T-i T-i-1 i-j i-j-1 j-i 3-2*j B*i+j B-i i+j i-2*j T-2*k-i i*j i*i T*i-i*i i*j-j T*j-i*j "
    "2*k 2*k+i k-j T*i-B*i B*T-B*i-i T-j-1 T-2 i*i-T*T 4 T"
).split()


def numbers(b: int, t: int) -> Iterator[dict[str, int]]:
    """All indices for these sizes."""
    for i in range(t):
        for j, k in itertools.product(range(i), range((t - i + 1) // 2)):
            yield {"B": b, "T": t, "i": i, "j": j, "k": k}


EVERY = [q for b, t in itertools.product((0, 1, 4), (1, 2, 5)) for q in numbers(b, t)]


@pytest.mark.parametrize("text", DIMS)
def test_extremes_are_extreme(text):
    d = parse_dim(text)
    low, high = (extreme(d, RANGES.get, largest) for largest in (False, True))
    for q in EVERY:
        value = evaluate_dim(d, q)
        assert low is None or evaluate_dim(low, q) <= value
        assert high is None or evaluate_dim(high, q) >= value
    if never_negative(d, (), RANGES.get):
        assert all(evaluate_dim(d, q) >= 0 for q in EVERY)
    room = natural_bound(d, RANGES.get)
    assert room is not None and room.names <= {"B", "T"} if isinstance(room, Size) else True
    assert all(evaluate_dim(room, q) >= evaluate_dim(d, q) or evaluate_dim(d, q) < 0 for q in EVERY)


@pytest.mark.parametrize(
    "text, least, most",
    [
        ("i", "0", "T-1"),
        ("i-j-1", "0", "T-2"),
        ("T-i-1", "0", "T-1"),
        ("B*i+j", "0", "B*T-B+T-2"),
        ("3-2*j", "-2*T+7", "3"),
        ("B", "B", "B"),
        ("2*k+i", "0", "T-1"),
        ("i*i", "0", "T*T-2*T+1"),
        ("T*j-i*j", "0", "None"),
        ("T*i-B*i", "None", "None"),
    ],
)
def test_extremes_are_at_the_ends(text, least, most):
    """For i < T and j < i, which is at most T - 2 and as an extreme i - 1."""
    d = parse_dim(text)
    assert [str(extreme(d, RANGES.get, largest)) for largest in (False, True)] == [least, most]


def test_what_falls_with_some_and_rises_with_others_has_no_extreme():
    assert extreme(parse_dim("i*i-2*i"), RANGES.get, largest=True) is None


@pytest.mark.parametrize("text", ["n", "2*n+1", "T-n", "n*n-n", "B*n-n+T", "n*m-2*m+B", "m*T-m"])
@pytest.mark.parametrize("trip", ["5", "T", "T-B", "2*T+3"])
def test_room_is_never_too_small(text, trip):
    """`n` counts up to `trip`, `m` up to `n`."""
    d, ranges = parse_dim(text), {}
    ranges["n"] = ranges_of(parse_dim(trip), ranges.get)[1]
    ranges["m"] = ranges_of(parse_dim("n"), ranges.get)[1]
    found = natural_bound(d, ranges.get)
    for b, t in ((0, 0), (1, 4), (6, 2), (3, 3)):
        sizes = {"B": b, "T": t}
        for n in range(max(0, evaluate_dim(parse_dim(trip), sizes)) + 1):
            for m in range(n + 1):
                exact = evaluate_dim(d, {**sizes, "n": n, "m": m})
                assert evaluate_dim(found, sizes) >= exact or exact < 0


def test_what_nothing_bounds_has_no_room():
    assert ranges_of(1 << 62, {}.get) == (Range(0, None), Range(0, None))
    endless = {"n": Range(0, None)}.get
    assert ranges_of(Size.named("n"), endless)[1].most is None
    assert natural_bound(parse_dim("n+T"), endless) is None
    assert str(natural_bound(parse_dim("T-n"), endless)) == "T"
    assert str(extreme(parse_dim("T-n"), endless, largest=True)) == "T"
    assert extreme(parse_dim("T-n"), endless, largest=False) is None


HOLDS = {
    "lt": lambda n: n < 0,
    "le": lambda n: n <= 0,
    "gt": lambda n: n > 0,
    "ge": lambda n: n >= 0,
    "eq": lambda n: n == 0,
    "ne": lambda n: n != 0,
}


@pytest.mark.parametrize("op", HOLDS)
def test_comparisons_bound_what_differs_by_a_number(op):
    """`i - 3 op 0`, of i, 2 - i, and of 2 * i, which they say nothing about."""
    at = [i for i in range(-9, 10) if HOLDS[op](i - 3)]
    for d in (INDEX, 2 - INDEX):
        values = [evaluate_dim(d, {"i": i}) for i in at]
        for end, best in zip(compared(d, [(op, INDEX - 3)]), (min(values), max(values))):
            assert end is None and abs(best) > 4 or end == best or op == "ne"
    assert compared(2 * INDEX, [(op, INDEX - 3)]) == (None, None)


def test_comparisons_and_ranges_meet():
    """In `if i < 4` and `if i >= 1`, of i from 0 to 8."""
    ranges, known = {"i": Range(0, 8)}.get, [("lt", INDEX - 4), ("ge", INDEX - 1)]
    assert interval(INDEX, ranges, known) == (1, 3)
    assert interval(INDEX, ranges, []) == (0, 8)
    assert interval(Size.named("B"), ranges, [("ge", Size.named("B") - 2)]) == (2, Size.named("B"))


# ---------------------------------------------------------------- affine forms
@pytest.mark.parametrize("text", [*DIMS, "0", "T*T+B"])
def test_lines(text):
    """`start + step * i` is the number, where there is such."""
    d, q = parse_dim(text), {"B": 2, "T": 5, "j": 3, "k": 1}
    found = line(d, "i")
    assert (found is None) == ("i*i" in text) and (found is None) == (slope(d, "i") is None)
    for i in range(5) if found is not None else ():
        start, step = (evaluate_dim(p, q) for p in found)
        assert start + step * i == evaluate_dim(d, {**q, "i": i})


@pytest.mark.parametrize("text", [*DIMS, "0", "-3*i*j+i*j*j-7"])
def test_polynomials_as_ops(text):
    """Names that are no values are sizes."""
    d, b, sizes = parse_dim(text), Builder(), Value(Type(I64, (Size.named("B"), Size.named("T"))))
    indices = {n: Value(Type(I64), n) for n in "ijk"}
    out = emitted(d, indices, lambda name, xs, attrs: b.emit(name, xs, attrs)[0])
    inputs = tuple(Input(v, "arg", v.name) for v in (sizes, *indices.values()))
    program = Program("p", inputs, tuple(b.ops), (out,))
    for q in EVERY[::7]:
        given = [np.zeros((q["B"], q["T"]), int), *(np.asarray(q[n]) for n in "ijk")]
        assert evaluate(program, given)[0][0] == evaluate_dim(d, q)
