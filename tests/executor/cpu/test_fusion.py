"""Launches that share a kernel, and launches that take turns on parts of their memory."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor.cpu import fusion, tiling
from executor.cpu.backend import machine
from executor.cpu.launches import MapReduce
from executor.launches import Loop, Map, blocks, views
from executor.lowering.program import lower
from ir import passes
from tests.executor import launch_machine

#: a normalisation along the axes that `%s` names
NORM = """
program p(%x: f32[{shape}] arg "x", %w: f32[{weight}] arg "w") {{
  %m = mean(%x, axes=[{axes}], keepdim=True)     : f32[{kept}]
  %z = subtract(%x, %m)                          : f32[{shape}]
  %q = square(%z)                                : f32[{shape}]
  %v = mean(%q, axes=[{axes}], keepdim=True)     : f32[{kept}]
  %u = rsqrt(%v)                                 : f32[{kept}]
  %n = multiply(%z, %u)                          : f32[{shape}]
  %y = multiply(%n, %w)                          : f32[{shape}]
  return %y, %m, %v
}}"""
ROWS = NORM.format(shape="6,7,20", weight="20", axes="2", kept="6,7,1")
CHANNELS = NORM.format(shape="6,7,20", weight="7,1", axes="0, 2", kept="1,7,1")
COLUMNS = NORM.format(shape="42,20", weight="20", axes="0", kept="1,20")
#: the gradient of a normalisation along the last axis: sums along it, and along the others
BACKWARD = """
program p(%g: f32[6,7,20] arg "g", %x: f32[6,7,20] arg "x") {
  %t = multiply(%g, %x)                          : f32[6,7,20]
  %s = sum(%t, axes=[2], keepdim=True)           : f32[6,7,1]
  %r = sum(%g, axes=[2], keepdim=True)           : f32[6,7,1]
  %a = multiply(%x, %s)                          : f32[6,7,20]
  %b = subtract(%g, %a)                          : f32[6,7,20]
  %dx = subtract(%b, %r)                         : f32[6,7,20]
  %dw = sum(%t, axes=[0, 1])                     : f32[20]
  %db = sum(%g, axes=[0, 1])                     : f32[20]
  %most = max(%g, axes=[0, 1])                   : f32[20]
  return %dx, %dw, %db, %most
}"""
SOFTMAX = """
program p(%x: f32[6,7,20] arg "x") {
  %y = softmax(%x, axis=-1)                      : f32[6,7,20]
  return %y
}"""
#: what %z is made of is written before %z is read, by another value and by its own reader
OVERWRITTEN = """
program p(%x: f32[6,7,20] arg "x", %k: f32[7,20] arg "k") {
  %z = subtract(%x, %k)                          : f32[6,7,20]
  %x2 = tanh(%x)                                 : f32[6,7,20]
  %s = sum(%x2, axes=[2])                        : f32[6,7]
  %y = multiply(%z, %z)                          : f32[6,7,20]
  %k2 = sum(%y, axes=[0])                        : f32[7,20]
  return %s, %y
  write %x = %x2
  write %k = %k2
}"""
#: in every iteration: the state is read by what the next state sums up
LOOP = """
program p(%x: f32[3,6,20] arg "x", %h: f32[6] arg "h") {
  scan %t < 3 {
    seq   %xt = %x[t]                            : f32[6,20]
    carry %c = %h then %n last %l                : f32[6]
    stack %ys = %y axis 0                        : f32[3,6,20]
    body
      %r = reshape(%c, shape=[6,1])              : f32[6,1]
      %z = subtract(%xt, %r)                     : f32[6,20]
      %q = square(%z)                            : f32[6,20]
      %n = mean(%q, axes=[1])                    : f32[6]
      %u = reshape(%n, shape=[6,1])              : f32[6,1]
      %y = multiply(%z, %u)                      : f32[6,20]
  }
  return %ys, %l
}"""
#: operands across the lines: with one along them, twice, broadcast, overwritten in between, summed
ACROSS = """
program p(%x: f32[3,20,33] arg "x", %y: f32[3,33,20] arg "y", %k: f32[20,33] arg "k") {
  %a = transpose(%x, perm=[0, 2, 1])             : f32[3,33,20]
  %b = add(%a, %y)                               : f32[3,33,20]
  %c = tanh(%b)                                  : f32[3,33,20]
  %d = multiply(%c, %a)                          : f32[3,33,20]
  %m = sum(%d, axes=[0, 1, 2])                   : f32[]
  %x2 = tanh(%x)                                 : f32[3,20,33]
  %a2 = transpose(%x2, perm=[0, 2, 1])           : f32[3,33,20]
  %e = subtract(%a2, %y)                         : f32[3,33,20]
  %f = transpose(%k, perm=[1, 0])                : f32[33,20]
  %g = multiply(%f, %y)                          : f32[3,33,20]
  %h = multiply(%f, %a2)                         : f32[3,33,20]
  %i = max(%h, axes=[1])                         : f32[3,20]
  return %c, %m, %e, %g, %i
  write %x = %x2
}"""
assert launch_machine, "it is a backend"
PROGRAMS = {
    "rows": ROWS,
    "channels": CHANNELS,
    "columns": COLUMNS,
    "backward": BACKWARD,
    "softmax": SOFTMAX,
    "overwritten": OVERWRITTEN,
    "loop": LOOP,
    "across": ACROSS,
}


@pytest.fixture
def always(monkeypatch):
    """Small tensors are large ones."""
    monkeypatch.setattr(fusion, "WORTH", 1)
    for name, value in {"PART": 1 << 10, "SMALL": 64, "WORTH": 64, "PIECE": 4, "FEWER": 1}.items():
        monkeypatch.setattr(tiling, name, value)


def every(launches):
    for x in launches:
        yield x
        for inside in blocks(x):
            yield from every(inside)


def optimised(text):
    return passes.run(ir.parse(text), start_at="expand")


def launches_of(text):
    return tuple(every(machine().legalize(lower(optimised(text), machine())).launches))


def arrays(program):
    rng = np.random.default_rng(0)
    types = [i.value.type for i in program.inputs]
    return [rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in types]


@pytest.mark.parametrize("backend", ["cpu", "checked-cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_float64(name, backend, always):
    program, wide = (optimised(PROGRAMS[name].replace("f32", t)) for t in ("f32", "f64"))
    given = arrays(program)
    outputs, written = ir.evaluate(wide, [a.astype(np.float64) for a in given])
    found = executor.compile(program, backend=backend, poison=backend == "cpu")(*given)
    targets = [target for target, _ in program.writes]
    found += [given[[i.value for i in program.inputs].index(t)] for t in targets]
    for a, b in zip(found, [*outputs, *written], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["rows", "channels", "columns"])
def test_a_normalisation_reads_its_operand_three_times_and_keeps_nothing_of_its_size(name):
    text = PROGRAMS[name].replace("20", "2000")
    assert executor.compile(optimised(text)).layout.fixed < 6 * 7 * 2000
    large = [x for x in launches_of(text) if any(v.span >= 6 * 7 * 2000 for v in views(x))]
    assert [type(x) for x in large] == [MapReduce, MapReduce, Map]


def test_large_tensors_are_normalised_part_by_part():
    text = CHANNELS.replace("6,7,20", "8,64,3000").replace("7,1", "64,1")
    loop, *inside = (x for x in launches_of(text) if not isinstance(x, Map) or x.ins)
    assert isinstance(loop, Loop) and loop.trip == 64 and set(inside) == set(loop.body)


def test_reductions_of_one_operand_read_it_once():
    found = [x for x in launches_of(BACKWARD.replace("20", "2000")) if isinstance(x, MapReduce)]
    assert [len(x.outs) for x in found] == [3, 3, 1]


def test_an_operand_across_the_lines_is_copied_once_for_all_that_read_it():
    text = """
program p(%x: f32[64,32] arg "x", %y: f32[32,64] arg "y") {
  %a = transpose(%x, perm=[1, 0])                : f32[32,64]
  %b = add(%a, %y)                               : f32[32,64]
  %c = multiply(%a, %y)                          : f32[32,64]
  %s = sum(%c, axes=[0, 1])                      : f32[]
  return %b, %s
}"""
    found = [x for x in launches_of(text) if isinstance(x, Map) and x.roots[0].op == "input"]
    assert [x.ins[0].strides for x in found] == [(1, 32)]
