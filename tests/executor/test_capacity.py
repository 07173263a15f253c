"""Capacities: sizes that nothing but a run finds."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor.capacity import GrowingExecutable
from ir.autodiff import differentiate
from ir.passes import run as run_passes
from tests.executor.foreign import called
from tests.executor.segmented.test_while_loops import floats, parsed, same

GROWS = """
program grows(%x: f32[B,3] arg "x", %k: i64[] arg "k", %s: f32[3] buffer "s") {
  capacities capacity0
  %z = full(value=0, dtype=i64)                  : i64[]
  %one = full(value=1, dtype=i64)                : i64[]
  %g0 = greater_than(%k, %z)                     : bool[]
  %e = full(value=0.0, shape=[capacity0+B,3], dtype=f32) : f32[capacity0+B,3]
  %b0 = set_slice(%e, %x, axis=0, start=0)       : f32[capacity0+B,3]
  while t < capacity0 as n0 {                                              @ model.py:3
    go    %g0 then %g2
    const %k1 = %k                               : i64[]
    const %o = %one                              : i64[]
    carry %b = %b0 then %b2 last %bT             : f32[capacity0+B,3]
    carry %c = %z then %c2 last %cT              : i64[]
    carry %h = %s then %h2 last %hT              : f32[3]
    body
      %p = slice(%b, axis=0, start=0, length=t+B) : f32[t+B,3]
      %m = mean(%p, axes=[0])                    : f32[3]
      %h2 = add(%m, %h)                          : f32[3]
      %r = reshape(%h2, shape=[1,3])             : f32[1,3]
      %q = tanh(%r)                              : f32[1,3]
      %b2 = set_slice(%b, %q, axis=0, start=t+B) : f32[capacity0+B,3]
      %c2 = add(%c, %o)                          : i64[]
      %g2 = less_than(%c2, %k1)                  : bool[]
  }
  %y = slice(%bT, axis=0, start=0, length=n0+B)  : f32[n0+B,3]
  return %y, %cT
  write %s = %hT
}
"""


@pytest.mark.parametrize("poison", [False, True])
def test_any_length_in_any_order(poison):
    p = parsed(GROWS)
    assert str(ir.parse(str(p))) == str(p)
    run = executor.compile(run_passes(p), poison=poison)
    assert isinstance(run, GrowingExecutable)
    for k in (0, 1, 15, 16, 17, 200, 3, 3, 3, 3, 70):
        got = same(run, p, floats(2, 3), np.array(k), floats(3))
        assert got[0].shape == (k + 2, 3)


def test_what_the_last_call_needed_is_there():
    run = executor.compile(run_passes(parsed(GROWS)))
    capacities = []
    for k in (100, 100, 1, 1, 1, 1):
        run(floats(2, 3), np.array(k), floats(3))
        capacities.append(run._first["capacity0"])
    assert capacities == [128, 128, 64, 32, 32, 32]


def test_a_first_call_starts_again_a_few_times():
    run, starts = executor.compile(run_passes(parsed(GROWS))), []
    attempt = run.attempt
    run.attempt = lambda *args: starts.append(args[-1]["capacity0"]) or attempt(*args)
    run(floats(2, 3), np.array(700), floats(3))
    assert starts == [16, 64, 256, 1024]
    assert run._first["capacity0"] == 1024
    run(floats(2, 3), np.array(1100), floats(3))
    assert starts[4:] == [1024, 2048]


def test_gradients_know_the_capacity():
    p = parsed(GROWS)
    made = differentiate(p, [0], [0])
    forward, backward = (executor.compile(run_passes(q)) for q in (made.forward, made.backward))
    assert isinstance(forward, GrowingExecutable) and not isinstance(backward, GrowingExecutable)
    for k in (1, 40):
        given = [floats(2, 3), np.array(k), floats(3)]
        outputs = forward(*[np.array(q) for q in given])
        sources = {"input": given, "output": outputs, "kept": outputs}
        capacity = run_capacity(forward)
        kept = [
            np.empty(capacity, bool) if r.source == "capacity" else sources[r.source][r.index]
            for r in made.residuals
        ]
        (have,) = backward(np.ones_like(outputs[0]), *kept)
        (want,), _ = ir.evaluate(made.backward, [np.ones_like(outputs[0]), *kept])
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def run_capacity(run):
    return run._first["capacity0"]


def test_calls_of_python_are_made_once():
    text = GROWS.replace(
        "%q = tanh(%r)                              : f32[1,3]",
        '%q = foreign(%r, call="draw", args=[], types=[f32[1,3]]) : f32[1,3]',
    )
    p, calls = parsed(text), []

    def draw(op, operands, sizes):
        calls.append(float(operands[0].sum()))
        return [operands[0] * 0 + len(calls)]

    run = executor.compile(run_passes(p), called(draw))
    for k in (100, 3):
        calls.clear()
        rows, count = run(floats(2, 3), np.array(k), floats(3))
        assert count == k == len(calls)
        np.testing.assert_array_equal(rows[2:, 0], np.arange(1, k + 1))


def test_a_capacity_is_no_size_of_an_input():
    text = GROWS.replace("capacities capacity0", "capacities B")
    with pytest.raises(ir.VerifyError, match="not a name of its own"):
        parsed(text)
