"""Cells: a product with a matrix that stays the same and what is made of it, unit by unit."""

from __future__ import annotations

import pytest

from executor.gpu.driver import driver
from executor.gpu.kernels.loops.cell import Cell
from executor.gpu.schedule import Barrier, Repeat, Task, parts
from ir.passes import run as run_passes
from tests.executor.gpu.compiled import on_gpu
from tests.executor.gpu.test_programs import floats, parsed, same

pytestmark = pytest.mark.sampled(every=12)

GRU = """
program gru(%x: f32[T,B,60] arg "x", %w: f32[20,60] param "w", %h0: f32[B,20] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[B,60]
    const %wc = %w                               : f32[20,60]
    carry %h = %h0 then %h2 last %hT             : f32[B,20]
    stack %ys = %h2 axis 0                       : f32[T,B,20]
    body
      %p = matmul(%h, %wc)                       : f32[B,60]
      %pr = slice(%p, axis=1, start=0, length=20) : f32[B,20]
      %pz = slice(%p, axis=1, start=20, length=20) : f32[B,20]
      %pn = slice(%p, axis=1, start=40, length=20) : f32[B,20]
      %xr = slice(%xt, axis=1, start=0, length=20) : f32[B,20]
      %xz = slice(%xt, axis=1, start=20, length=20) : f32[B,20]
      %xn = slice(%xt, axis=1, start=40, length=20) : f32[B,20]
      %ar = add(%pr, %xr)                        : f32[B,20]
      %az = add(%pz, %xz)                        : f32[B,20]
      %r = sigmoid(%ar)                          : f32[B,20]
      %z = sigmoid(%az)                          : f32[B,20]
      %q = multiply(%r, %pn)                     : f32[B,20]
      %an = add(%q, %xn)                         : f32[B,20]
      %n = tanh(%an)                             : f32[B,20]
      %d = subtract(%h, %n)                      : f32[B,20]
      %e = multiply(%z, %d)                      : f32[B,20]
      %h2 = add(%e, %n)                          : f32[B,20]
  }
  return %ys, %hT
}
"""
#: the second layer reads the new state of the first one; both run again in an outer loop
LAYERS = """
program layers(%x: f32[3,T,B,9] arg "x", %w: f32[9,9] param "w", %u: f32[9,9] param "u", \
%h0: f32[B,9] arg "h", %g0: f32[B,9] arg "g") {
  scan %k < 3 {
    seq %xk = %x[k]                              : f32[T,B,9]
    const %w1 = %w                               : f32[9,9]
    const %u1 = %u                               : f32[9,9]
    carry %hk = %h0 then %hT last %hE            : f32[B,9]
    carry %gk = %g0 then %gT last %gE            : f32[B,9]
    stack %ys = %gs axis 0                       : f32[3,T,B,9]
    body
      scan %t < T {
        seq %xt = %xk[t]                         : f32[B,9]
        const %w2 = %w1                          : f32[9,9]
        const %u2 = %u1                          : f32[9,9]
        carry %h = %hk then %h2 last %hT         : f32[B,9]
        carry %g = %gk then %g2 last %gT         : f32[B,9]
        stack %gs = %g2 axis 0                   : f32[T,B,9]
        body
          %a = matmul(%h, %w2)                   : f32[B,9]
          %b = add(%a, %xt)                      : f32[B,9]
          %h2 = tanh(%b)                         : f32[B,9]
          %c = matmul(%h2, %u2)                  : f32[B,9]
          %d = add(%c, %g)                       : f32[B,9]
          %g2 = tanh(%d)                         : f32[B,9]
      }
  }
  return %ys, %hE, %gE
}
"""
#: a matrix for each gate
GATES = """
program gates(%x: f32[T,B,9] arg "x", %w: f32[9,9] param "w", %u: f32[9,9] param "u", \
%h0: f32[B,9] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[B,9]
    const %wc = %w                               : f32[9,9]
    const %uc = %u                               : f32[9,9]
    carry %h = %h0 then %h2 last %hT             : f32[B,9]
    stack %ys = %h2 axis 0                       : f32[T,B,9]
    body
      %p = matmul(%h, %wc)                       : f32[B,9]
      %q = matmul(%h, %uc, trans_y=True)         : f32[B,9]
      %f = sigmoid(%p)                           : f32[B,9]
      %a = add(%q, %xt)                          : f32[B,9]
      %n = tanh(%a)                              : f32[B,9]
      %h2 = multiply(%f, %n)                     : f32[B,9]
  }
  return %ys, %hT
}
"""
#: what becomes of a cell of one gate, if it is replaced
PLAIN = """
program plain(%x: f32[T,B,9] arg "x", %w: f32[9,9] param "w", %h0: f32[B,9] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[B,9]
    const %wc = %w                               : f32[9,9]
    carry %h = %h0 then %h2 last %hT             : f32[B,9]
    stack %ys = SEEN axis 0                      : f32[T,B,9]
    body
      %s = sum(%h, axes=[0], keepdim=True)       : f32[1,9]
      %p = matmul(%h, %wc)                       : f32[B,9]
      %a = add(%p, %xt)                          : f32[B,9]
      %b = add(%a, %s)                           : f32[B,9]
      %h2 = tanh(%b)                             : f32[B,9]
  }
  return %ys, %hT
}
"""


def loops(program) -> tuple[int, int]:
    """Cells in loops, and how often blocks wait in an iteration of the innermost one."""
    stages = on_gpu(program).native.schedule.stages
    found = [n for s in stages for n in parts(s.body) if isinstance(n, Repeat)]
    cells = [t for t in found[-1].body if isinstance(t, Task) and isinstance(t.launch, Cell)]
    return len(cells), sum(isinstance(n, Barrier) for n in parts((found[-1],)))


@pytest.fixture(params=[8, 64])
def threads(request, monkeypatch):
    monkeypatch.setitem(driver().__dict__, "threads", request.param)
    monkeypatch.setenv("EMULATOR_THREADS", str(request.param))
    return request.param


@pytest.mark.parametrize(("seed", "kept"), [(1, True), (2, True), (3, False)])
def test_a_cell_of_three_gates_reads_its_old_state(threads, seed, kept, monkeypatch):
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    if not kept:
        monkeypatch.setattr("executor.gpu.schedule.MOST_OF_LOOP", 0)
    program = run_passes(parsed(GRU))
    assert loops(program) == (1, 1)
    for t, b in ((0, 2), (1, 1), (5, 7)):
        same(program, floats(t, b, 60), floats(20, 60, seed=1) / 4, floats(b, 20, seed=2))


def test_two_layers_in_nested_loops(threads):
    kind = "f64" if threads == 8 else "f32"
    program = run_passes(parsed(LAYERS.replace("f32", kind)))
    assert loops(program)[0] == 2
    for t in (1, 4):
        given = [floats(3, t, 2, 9), floats(9, 9) / 3, floats(9, 9, seed=1) / 3]
        given += [floats(2, 9, seed=2), floats(2, 9, seed=3)]
        same(program, *(a.astype(kind.replace("f", "float")) for a in given))


def test_matrices_of_gates_are_side_by_side(threads):
    program = run_passes(parsed(GATES))
    assert loops(program) == (1, 1)
    for t in (0, 1, 6):
        same(program, floats(t, 5, 9), floats(9, 9), floats(9, 9, seed=1), floats(5, 9, seed=2))
    seen = run_passes(parsed(GATES.replace("stack %ys = %h2", "stack %ys = %q")))
    assert loops(seen) == (0, 2)
    same(seen, floats(6, 5, 9), floats(9, 9), floats(9, 9, seed=1), floats(5, 9, seed=2))


@pytest.mark.parametrize(("seen", "cells"), [("%h2", 0), ("%p", 0)])
def test_states_that_others_read_and_products_that_are_results(seen, cells):
    program = run_passes(parsed(PLAIN.replace("SEEN", seen)))
    assert loops(program)[0] == cells
    same(program, floats(4, 3, 9), floats(9, 9) / 3, floats(3, 9, seed=1))
