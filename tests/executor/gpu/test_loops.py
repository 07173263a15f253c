"""Loops that begin with the product of the iteration before, where iterations are not alike."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor.gpu import loop_rotation
from ir.passes import run as run_passes

#: `%r` of the body is added to the state
RNN = """
program rnn(%x: f32[9,4,3] arg "x", %y: f32[65,3,3] arg "y", %w: f32[3,3] arg "w") {{
  %h0 = full(value=0.5, shape=[4, 3], dtype=f32) : f32[4,3]
  scan t < 9 {{
    const %x1 = %x                               : f32[9,4,3]
    const %y1 = %y                               : f32[65,3,3]
    const %w1 = %w                               : f32[3,3]
    carry %h = %h0 then %h2 last %hT             : f32[4,3]
    carry %c = %h0 then %c2 last %cT             : f32[4,3]
    stack %us = %u axis 0                        : f32[9,4,3]
    body
      {body}
      %u0 = add(%h, %r)                          : f32[4,3]
      %u = tanh(%u0)                             : f32[4,3]
      %h2 = matmul(%u, %w1)                      : f32[4,3]
      {sum}
  }}
  return %hT, %cT, %us
}}
"""
ROW = "%r = index(%x1, axis=0, index=t) : f32[4,3]"
PREFIX = """%s = slice(%x1, axis=0, start=0, length=t+1) : f32[t+1,4,3]
      %r = sum(%s, axes=[0]) : f32[4,3]"""
SUM = """%m = index(%y1, axis=0, index={at}) : f32[3,3]
      %p = matmul({left}, %m) : f32[4,3]
      %c2 = add(%c, %p) : f32[4,3]"""
NO_SUM = "%c2 = scale(%c, scale=0.5) : f32[4,3]"
#: name -> the body, whether the loop is rotated, and how many sums behind it that leaves
LOOPS = {
    "rows": (ROW, NO_SUM, True, 0),
    "prefixes": (PREFIX, NO_SUM, False, 0),
    "a sum": (ROW, SUM.format(at="2*t", left="%u"), True, 1),
    "a sum of squares": (ROW, SUM.format(at="t*t", left="%u"), True, 0),
    "a sum of prefixes": (PREFIX, SUM.format(at="t", left="%u"), False, 0),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_whose_iterations_are_not_alike(name, monkeypatch):
    body, total, rotates, sums = LOOPS[name]
    found = {"_turned": 0, "_sum": 0}
    for which in found:
        original = getattr(loop_rotation, which)

        def counted(*args, which=which, original=original):
            out = original(*args)
            found[which] += out is not None
            return out

        monkeypatch.setattr(loop_rotation, which, counted)
    p = ir.verify(ir.parse(RNN.format(body=body, sum=total)))
    rng = np.random.default_rng(0)
    given = [rng.normal(size=i.value.type.shape).astype(np.float32) / 2 for i in p.inputs]
    for got, want in zip(
        executor.compile(run_passes(p), backend="gpu")(*given), ir.evaluate(p, given)[0]
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert (found["_turned"] > 0, found["_sum"]) == (rotates, sums)
