"""Backward programs when only some gradients are there, or asked for: the rest leaves nothing."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Program, Scan
from ir.analysis.alias import AliasError
from ir.autodiff.partial_backward import inputs_read, unreached, with_arrived
from ir.interpreter import evaluate
from ir.passes import functionalize, run
from ir.uses import walk
from tests.ir.autodiff.differences import floats, gradient, residuals
from tests.ir.autodiff.test_autodiff_random import calm, wide
from tests.ir.test_ir_random import program, random_inputs

NESTED = """
program p(%x: f64[T,3] arg "x", %w: f64[3,3] param "w", %u: f64[3,3] param "u", %h0: f64[3] arg "h", %g0: f64[3] arg "g") {
  scan %t < T {
    const %w1 = %w  : f64[3,3]
    const %u1 = %u  : f64[3,3]
    seq   %xt = %x[t]  : f64[3]
    carry %h = %h0 then %hs last %hT  : f64[3]
    carry %g = %g0 then %g2 last %gT  : f64[3]
    stack %ys = %y axis 0  : f64[T,3]
    body
      scan %k < 2 {
        const %w2 = %w1  : f64[3,3]
        const %u2 = %u1  : f64[3,3]
        const %x2 = %xt  : f64[3]
        carry %a = %h then %a3 last %hs  : f64[3]
        carry %b = %g then %b3 last %g2  : f64[3]
        stack %cs = %a3 axis 0  : f64[2,3]
        body
          %a1 = matmul(%a, %w2)  : f64[3]
          %a2 = add(%a1, %x2)  : f64[3]
          %a3 = tanh(%a2)  : f64[3]
          %b1 = matmul(%b, %u2)  : f64[3]
          %b2 = multiply(%b1, %x2)  : f64[3]
          %b3 = tanh(%b2)  : f64[3]
      }
      %c = sum(%cs, axes=[0])  : f64[3]
      %y = tanh(%c)  : f64[3]
  }
  return %ys, %hT, %gT
}"""  # noqa: E501


def with_zeros(backward: Program, given: int, arrived, arrays) -> list[np.ndarray]:
    """The gradients if those that are missing are zeros."""
    zeroed = [a if k in arrived or k >= given else 0 * a for k, a in enumerate(arrays)]
    return evaluate(backward, zeroed)[0]


def check_partial(g, inputs, arrived, seed: int = 0) -> Program:
    """The values are those with zeros for the gradients that are missing, whatever these are."""
    rng = np.random.default_rng(seed)
    outputs, writes = evaluate(g.forward, inputs)
    given = len(g.backward.inputs) - len(g.residuals)
    of = floats(g.forward.outputs)[:given]
    seeds = [rng.normal(size=outputs[k].shape) for k in of]
    arrays = [*seeds, *residuals(g, inputs, outputs, writes)]
    want = with_zeros(g.backward, given, arrived, arrays)
    part = with_arrived(g.backward, given, arrived)
    read = inputs_read(part)
    nothing = [a if k in read else np.full_like(a, 7) for k, a in enumerate(arrays)]
    final = run(part, start_at="expand", check=True)
    for a, b, c in zip(want, evaluate(part, nothing)[0], evaluate(final, nothing)[0]):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(c, a, rtol=1e-9, atol=1e-12)
    assert all(not want[k].any() for k in unreached(g.backward, given, arrived))
    return part


@pytest.mark.parametrize("arrived", [(0,), (1,), (2,), (0, 2)], ids=str)
def test_nested_loops(golden, arrived):
    g = gradient(NESTED)
    inputs = random_inputs(program(NESTED), {"T": 3})
    part = check_partial(g, inputs, arrived)
    assert str(part) == golden
    loops = [n for n in walk(part.ops) if isinstance(n, Scan)]
    for s in loops:
        read = {v for n in s.body for v in n.operands} | set(s.needed)
        assert all(p.inner in read for p in s.ins)


@pytest.mark.parametrize("wrt", [(0,), (2,), (4,)], ids=str)
def test_gradients_of_some_inputs(golden, wrt):
    """States and sums for the gradients of other inputs are not there, at any depth."""
    g = gradient(NESTED, wrt=wrt)
    assert str(run(g.backward, start_at="expand", check=True)) == golden


def test_no_gradient_at_all():
    g = gradient(NESTED)
    part = with_arrived(g.backward, 3, ())
    assert not inputs_read(part) and not any(isinstance(n, Scan) for n in walk(part.ops))


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    kind = ("exact", "heavy", "control")[seed % 3]
    p = wide(seed, kind)
    try:
        functionalize(p)
    except AliasError:
        return
    inputs = random_inputs(p, {"T": 2, "B": 3}, seed=seed)
    g = gradient(p)
    given = len(g.backward.inputs) - len(g.residuals)
    if calm(p, inputs):
        for arrived in ({0}, {given - 1}, set(range(0, given, 2))):
            check_partial(g, inputs, arrived & set(range(given)), seed)
