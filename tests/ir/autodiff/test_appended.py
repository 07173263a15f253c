"""Buffers that a loop only appends to: their last value is the residual, not one per iteration."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Scan, parse
from ir.autodiff.append_only_buffers import appended
from ir.uses import walk
from tests.ir.autodiff.differences import check, functional, gradient

TEXT = """program grows(%x: f64[T,3] arg "x", %y: f64[2,3] arg "y") {
  %e = full(value=0.0, shape=[T+4,3], dtype=f64) : f64[T+4,3]
  %b0 = set_slice(%e, %y, axis=0, start=0)       : f64[T+4,3]
  %z = full(value=0.5, shape=[3], dtype=f64)     : f64[3]
  scan t < T {
    seq   %xt = %x[t]                            : f64[3]
    carry %b = %b0 then %b2 last %bT             : f64[T+4,3]
    carry %h = %z then %h2 last %hT              : f64[3]
    body
      %p = slice(%b, axis=0, start=START, length=LENGTH) : f64[LENGTH,3]
      %q = tanh(%p)                              : f64[LENGTH,3]
      %s = sum(%q, axes=[0])                     : f64[3]
      %g = multiply(%s, %xt)                     : f64[3]
      %h2 = sin(%g)                              : f64[3]
      %r = reshape(%h2, shape=[1,3])             : f64[1,3]
      %b2 = set_slice(%b, %r, axis=0, start=PLACE) : f64[T+4,3]
  }
  return %hT, %bT
}"""


def grows(start="0", length="t+2", place="t+2"):
    return TEXT.replace("START", start).replace("LENGTH", length).replace("PLACE", place)


def loops(program):
    return [n for n in walk(program.ops) if isinstance(n, Scan)]


def stacked(g):
    """The ranks of what the forward loop collects."""
    return [p.outer.type.ndim for s in loops(g.forward) for p in s.ports if hasattr(p, "outer")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [{}, {"start": "1", "length": "t+1"}, {"length": "t+1"}, {"place": "t+3"}],
    ids=str,
)
def test_a_prefix_is_read_of_the_last_value(words):
    text = grows(**words)
    (loop,) = loops(functional(text))
    assert {v.name for v in appended(loop, ())} == {"b", "b2"}
    assert 3 not in stacked(gradient(text))
    rng = np.random.default_rng(0)
    for t in (1, 2, 6):
        check(text, [rng.normal(size=(t, 3)), rng.normal(size=(2, 3))], native=True)


@pytest.mark.slow
@pytest.mark.sampled(every=12)
@pytest.mark.parametrize(
    "words",
    [
        {"length": "t+3"},
        {"length": "T+4"},
        {"place": "0"},
        {"place": "T-t"},
        {"place": "t"},
        {"start": "1", "length": "t+2"},
    ],
    ids=str,
)
def test_what_changes_later_is_kept_for_each_iteration(words):
    text = grows(**words)
    (loop,) = loops(functional(text))
    assert not appended(loop, ())
    rng = np.random.default_rng(0)
    for t in (1, 2, 6):
        check(text, [rng.normal(size=(t, 3)), rng.normal(size=(2, 3))], native=True)


def test_another_reader_keeps_it_for_each_iteration():
    text = grows().replace(
        "%g = multiply(%s, %xt)  ", "%u = mean(%b, axes=[0]) : f64[3]\n      %g = multiply(%s, %u)"
    )
    (loop,) = loops(parse(text))
    assert not appended(loop, ())
    rng = np.random.default_rng(0)
    check(text, [rng.normal(size=(4, 3)), rng.normal(size=(2, 3))], native=True)


@pytest.mark.parametrize("checkpoint", ["sqrt", 3])
def test_checkpoints(checkpoint):
    text = grows().replace("[T,3]", "[10,3]").replace("T", "10")
    rng = np.random.default_rng(0)
    check(text, [rng.normal(size=(10, 3)), rng.normal(size=(2, 3))], checkpoint=checkpoint)


def test_a_loop_in_a_loop():
    """The buffer of an inner loop is kept once for each iteration of the outer one."""
    inner = grows().split("\n")
    body = "\n".join(inner[1:-2]).replace("%x[t]", "%x1[t]").replace("%y", "%y1")
    text = "\n".join(
        [
            inner[0].replace("grows(", "outer("),
            "  %w = full(value=0.0, shape=[3], dtype=f64) : f64[3]",
            "  scan %k < 3 {",
            "    const %x1 = %x : f64[T,3]",
            "    const %y1 = %y : f64[2,3]",
            "    carry %c = %w then %c2 last %cT : f64[3]",
            "    body",
            body,
            "      %c2 = add(%hT, %c) : f64[3]",
            "  }",
            "  return %cT",
            "}",
        ]
    )
    rng = np.random.default_rng(0)
    for t in (1, 5):
        check(text, [rng.normal(size=(t, 3)), rng.normal(size=(2, 3))], native=True)
