"""The family scan_elem: loops whose lanes never meet, with their state in registers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import executor
import ir
from executor.gpu.schedule import Repeat, parts
from ir.passes import run as run_passes
from tests.executor.gpu.compiled import on_gpu
from tests.executor.gpu.test_programs import LIF, floats, parsed, same
from tests.ir.autodiff.differences import gradient, residuals

pytestmark = pytest.mark.sampled(every=12)

SPIKES = """
program p(%x: f32[T,5] arg "x", %y: f32[T,5] arg "y", %b: f32[5] arg "b", %s: f32[5] buffer "s") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[5]
    seq %yt = %y[-t+T-1]                         : f32[5]
    const %bias = %b                             : f32[5]
    carry %v = %s then %v2 last %vT              : f32[5]
    stack %ss = %spike axis 0                    : bool[T,5]
    body
      %a = add(%v, %xt)                          : f32[5]
      %u = multiply(%a, %yt)                     : f32[5]
      %spike = greater_than(%u, %bias)           : bool[5]
      %reset = logical_not(%spike)               : bool[5]
      %keep = cast(%reset, dtype=f32)            : f32[5]
      %v2 = multiply(%u, %keep)                  : f32[5]
  }
  return %ss
  write %s = %vT
}
"""
#: each iteration reads what the one before has collected
BEFORE = """
program before(%x: f32[T,5] arg "x", %y: f32[T,5] arg "y") {
  scan t < T {
    seq %xt = %x[t]                              : f32[5]
    carry %h = %y then %h2 last %hT              : f32[T,5]
    body
      %at = slice(%h, axis=0, start=t, length=1) : f32[1,5]
      %row = reshape(%at, shape=[5])             : f32[5]
      %new = add(%row, %xt)                      : f32[5]
      %one = reshape(%new, shape=[1,5])          : f32[1,5]
      %h2 = set_slice(%h, %one, axis=0, start=t) : f32[T,5]
  }
  return %hT
}
"""
#: lanes meet: a step reads its neighbour's state
SHIFTED = """
program shifted(%x: f32[T,5] arg "x", %h0: f32[5] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[5]
    carry %h = %h0 then %h2 last %hT             : f32[5]
    body
      %f = slice(%h, axis=0, start=4, length=5, step=-1) : f32[5]
      %h2 = add(%f, %xt)                         : f32[5]
  }
  return %hT
}
"""
INSIDE = """
program inside(%x: f32[3,T,5] arg "x", %h0: f32[5] arg "h") {
  scan %k < 3 {
    seq %xk = %x[k]                              : f32[T,5]
    carry %g = %h0 then %g3 last %gT             : f32[5]
    body
      scan %t < T {
        seq %xt = %xk[t]                         : f32[5]
        carry %h = %g then %h2 last %hT          : f32[5]
        body
          %a = tanh(%h)                          : f32[5]
          %h2 = add(%a, %xt)                     : f32[5]
      }
      %m = sum(%hT, axes=[0])                    : f32[]
      %g3 = subtract(%hT, %m)                    : f32[5]
  }
  return %gT
}
"""


def scans(program) -> list[bool]:
    """For each loop whether its lanes run by themselves."""
    schedule = on_gpu(program).native.schedule
    loops = (n for s in schedule.stages for n in parts(s.body) if isinstance(n, Repeat))
    return [n.kernel is not None for n in loops]


def optimised(text):
    return run_passes(parsed(text), start_at="expand")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("fused", [True, False])
def test_lanes_that_never_meet(seed, fused, monkeypatch):
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    lif, spikes = map(optimised if fused else parsed, (LIF, SPIKES))
    assert scans(lif) == scans(spikes) == [True]
    for t in (0, 1, 7, 8, 9, 33):
        same(lif, floats(t, 6, 5), floats(6, 5, seed=1))
        given = floats(t, 5), floats(t, 5, seed=1), floats(5, seed=2) / 9, floats(5, seed=3)
        same(spikes, *given)


def test_elements_that_a_step_writes_and_reads():
    before = parsed(BEFORE)
    for t in (0, 1, 9):
        same(before, floats(t, 5), floats(t, 5, seed=1))


def test_lanes_that_meet_wait_for_each_other():
    shifted = parsed(SHIFTED)
    assert scans(shifted) == [False]
    for t in (0, 1, 6):
        same(shifted, floats(t, 5), floats(5, seed=1))


def test_a_scan_in_a_loop():
    inside = parsed(INSIDE)
    assert scans(inside) == [False, True]
    for t in (0, 1, 9):
        same(inside, floats(3, t, 5), floats(5, seed=1), rtol=1e-4)


def test_the_state_stays_in_registers():
    """A step of the neuron reads one number and writes one."""
    text = executor.compile(optimised(LIF), backend="gpu").native.source.text
    (body,) = re.findall(r"DEV void f\w+\([^{]*float\* a2[^{]*\{(.*?)\n}", text, re.S)
    loop = body[body.index("+= 8") :]
    inner = loop[: loop.rindex("  }\n")]
    assert (
        len(re.findall(r"= a\d\[", inner)) == 1 and len(re.findall(r"a\d\[[^]]*\] = ", inner)) == 1
    )


def test_spikes_are_those_of_the_cpu():
    program, x = optimised(SPIKES), floats(40, 5) * 3
    given = [x, floats(40, 5, seed=1), floats(5, seed=2), floats(5, seed=3)]
    want = executor.compile(program)(*[a.copy() for a in given])[0]
    got = on_gpu(program)(*[a.copy() for a in given])[0]
    np.testing.assert_array_equal(got, want)
    assert want.any() and not want.all()


@pytest.mark.parametrize(("checkpoint", "loops"), [("none", [True]), (4, [False, True, True])])
def test_the_gradient_of_a_scan_keeps_its_state_in_registers(checkpoint, loops):
    """With checkpoints too: the states of a chunk are computed again by the same threads."""
    g = gradient(LIF.replace("f32", "f64").replace("T", "12"), checkpoint=checkpoint)
    given = [floats(12, 6, 5).astype("f8"), floats(6, 5, seed=1).astype("f8")]
    outputs, writes = ir.evaluate(g.forward, given)
    seeds = [floats(*o.shape, seed=2).astype("f8") for o in outputs[:2]]
    backward = run_passes(g.backward, start_at="expand")
    assert scans(backward) == loops
    same(backward, *seeds, *residuals(g, given, outputs, writes), rtol=1e-9)
