"""Buffers that are longer than the steps that ran: every rewrite of loops keeps what they hold.

A stack has as many steps as ran. A buffer of any other length is a carry, which says by the place
that an iteration writes to which end is filled; the rest is as it was initially. Loops with such
buffers go through every pass about loops, as do their backward programs: values and gradients stay,
and a second application changes nothing.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from ir import VerifyError, parse, verify
from ir.interpreter import evaluate
from ir.passes import PIPELINE
from tests.ir.autodiff.differences import gradient, gradients_of, residuals
from tests.ir.test_ir_random import program

LOOPS = {
    # filled from its first place on, and never to its end
    "front": """
program p(%x: f64[T,3] arg "x", %h0: f64[3] arg "h", %n: i64[] arg "n") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %b0 = full(value=0.0, shape=[T+2, 3], dtype=f64)  : f64[T+2,3]
  %starts = less_than(%zero, %n)  : bool[]
  while %t < T as n1 {
    go    %starts then %more
    const %n1 = %n  : i64[]
    seq   %xt = %x[t]  : f64[3]
    carry %h = %h0 then %h2  : f64[3]
    carry %b = %b0 then %b2 last %bT  : f64[T+2,3]
    body
      %a = add(%h, %xt)  : f64[3]
      %h2 = tanh(%a)  : f64[3]
      %b2 = set_dynamic_index(%b, %h2, %t, axis=0)  : f64[T+2,3]
      %more = less_than(%t, %n1)  : bool[]
  }
  return %bT
}""",
    # a ring: step t is at t % 3
    "ring": """
program p(%x: f64[T,3] arg "x", %h0: f64[3] arg "h", %n: i64[] arg "n") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %b0 = full(value=0.0, shape=[3, 3], dtype=f64)  : f64[3,3]
  %starts = less_than(%zero, %n)  : bool[]
  while %t < T as n1 {
    go    %starts then %more
    const %n1 = %n  : i64[]
    seq   %xt = %x[t]  : f64[3]
    carry %h = %h0 then %h2  : f64[3]
    carry %b = %b0 then %b2 last %bT  : f64[3,3]
    body
      %a = add(%h, %xt)  : f64[3]
      %h2 = tanh(%a)  : f64[3]
      %k = full(value=3, dtype=i64)  : i64[]
      %i = remainder(%t, %k)  : i64[]
      %b2 = set_dynamic_index(%b, %h2, %i, axis=0)  : f64[3,3]
      %more = less_than(%t, %n1)  : bool[]
  }
  return %bT
}""",
    # the last three steps, as passes keep them, behind a tensor that they are joined to
    "last": """
program p(%x: f64[T,3] arg "x", %h0: f64[3] arg "h", %n: i64[] arg "n") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %starts = less_than(%zero, %n)  : bool[]
  while %t < T as n1 {
    go    %starts then %more
    const %n1 = %n  : i64[]
    seq   %xt = %x[t]  : f64[3]
    carry %h = %h0 then %h2  : f64[3]
    stack %ys = %h2 axis 1  : f64[3,n1]
    body
      %a = add(%h, %xt)  : f64[3]
      %h2 = tanh(%a)  : f64[3]
      %more = less_than(%t, %n1)  : bool[]
  }
  %one = reshape(%h0, shape=[3, 1])  : f64[3,1]
  %three = concat(%one, %one, %one, axis=1)  : f64[3,3]
  %whole = concat(%three, %ys, axis=1)  : f64[3,n1+3]
  %l = slice(%whole, axis=1, start=n1, length=3)  : f64[3,3]
  return %l
}""",
    # a loop whose last steps only are differentiated, with a buffer filled from its end on
    "truncated": """
program p(%x: f64[T,3] arg "x", %y: f64[2,3] arg "y", %h0: f64[3] arg "h", %n: i64[] arg "n") {
  %b0 = full(value=0.0, shape=[T+5, 3], dtype=f64)  : f64[T+5,3]
  scan %t < T {
    seq   %xt = %x[t]  : f64[3]
    carry %h = %h0 then %h2 last %hT  : f64[3]
    carry %b = %b0 then %b2 last %bT  : f64[T+5,3]
    body
      %a = add(%h, %xt)  : f64[3]
      %h2 = tanh(%a)  : f64[3]
      %end = size(n=T+4)  : i64[]
      %i = subtract(%end, %t)  : i64[]
      %b2 = set_dynamic_index(%b, %h2, %i, axis=0)  : f64[T+5,3]
  }
  scan %u < 2 {
    seq   %xu = %y[u]  : f64[3]
    carry %g = %hT then %g2  : f64[3]
    carry %c = %bT then %c2 last %cT  : f64[T+5,3]
    stack %gs = %g2 axis 0  : f64[2,3]
    body
      %d = multiply(%g, %xu)  : f64[3]
      %g2 = tanh(%d)  : f64[3]
      %top = full(value=4, dtype=i64)  : i64[]
      %j = subtract(%top, %u)  : i64[]
      %c2 = set_dynamic_index(%c, %g2, %j, axis=0)  : f64[T+5,3]
  }
  return %cT, %gs
}""",
}
PASSES = {
    f.__name__: f
    for f, _ in PIPELINE
    if f.__module__.startswith(("ir.passes.loops", "ir.passes.unrolling", "ir.passes.interchange"))
}
#: T, and where data ends a loop
CALLS = [(0, 9), (1, 0), (1, 9), (2, 9), (3, 9), (4, 1), (4, 2), (7, 9)]


def arrays(p, length, n):
    rng = np.random.default_rng(length)
    types = [i.value.type for i in p.inputs]
    shapes = [t.concrete({"T": length}) for t in types]
    return [rng.normal(size=s) if s else np.array(n, np.int64) for s in shapes]


@functools.cache
def known(loop):
    """The program, and for each call its results and its gradients."""
    p = program(LOOPS[loop])
    g = gradient(p)
    results = [evaluate(p, arrays(p, *call))[0] for call in CALLS]
    pairs = zip(CALLS, results)
    found = [gradients_of(g, arrays(p, *call), list(map(np.cos, q))) for call, q in pairs]
    return p, g, results, found


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("name", PASSES)
def test_a_rewrite_keeps_them(name):
    rewrite = PASSES[name]
    for loop in LOOPS:
        p, g, results, found = known(loop)
        q = verify(rewrite(p))
        assert str(rewrite(q)) == str(q) and str(parse(str(q))) == str(q)
        backward = verify(rewrite(g.backward))
        assert str(rewrite(backward)) == str(backward)
        after = gradient(q)
        for call, want, slopes in zip(CALLS, results, found):
            given, seeds = arrays(p, *call), list(map(np.cos, want))
            same(evaluate(q, given)[0], want)
            same(gradients_of(after, given, seeds), slopes)
            outputs, writes = evaluate(g.forward, given)
            taken = [*seeds, *residuals(g, given, outputs, writes)]
            same(evaluate(backward, taken)[0], slopes)


def same(have, want):
    for a, b in zip(have, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", ["T", "5", "n1+1", "n1-1"])
def test_a_stack_has_as_many_steps_as_ran(length):
    text = LOOPS["last"].split("  %one =")[0] + "  return %ys\n}"
    verify(parse(text))
    with pytest.raises(VerifyError, match="stack port"):
        verify(parse(text.replace("f64[3,n1]", f"f64[3,{length}]")))
