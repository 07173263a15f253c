"""Gradients of recurrent cells: one launch for the loop with its product, one wait in a step."""

from __future__ import annotations

import numpy as np
import pytest

import ir
from executor.gpu import DriverError, backend
from executor.gpu.driver import driver
from executor.gpu.kernels.loops.cell import Cell
from executor.gpu.schedule import Barrier, Repeat, Task, parts
from executor.gpu.schedule_verifier import ScheduleError
from executor.launches import Gemm
from ir.passes import run as run_passes
from ir.types import evaluate_dim
from scripts.bench.gpu_programs import LSTM, fixed
from tests.executor.gpu import emulator
from tests.executor.gpu.compiled import on_gpu
from tests.executor.gpu.kernels.loops.test_cell import GATES, GRU
from tests.executor.gpu.kernels.loops.test_resident import rnn
from tests.executor.gpu.test_schedule import at_barrier, compiled
from tests.ir.autodiff.differences import gradient, residuals

pytestmark = pytest.mark.sampled(every=4)

CELLS = {
    "rnn": (rnn(12), 8),
    "lstm": (fixed(LSTM, "H", 6), 64),
    "gru": (GRU, 8),
    "gates": (GATES, 64),
    "turned": (rnn(9, trans=True), 64),
}


def backward(text: str, t: int, b: int = 3):
    """The backward program, and what it takes."""
    p = ir.parse(text.replace("f32", "f64"))
    g = gradient(p)
    rng, sizes = np.random.default_rng(t), {"T": t, "B": b}
    shapes = [[evaluate_dim(d, sizes) for d in i.value.type.shape] for i in p.inputs]
    given = [rng.normal(size=s) / 3 for s in shapes]
    outputs, writes = ir.evaluate(g.forward, [a.copy() for a in given])
    count = sum(i.name.startswith("grad of") for i in g.backward.inputs)
    seeds = [rng.normal(size=o.shape) for o in outputs[:count]]
    return g.backward, [*seeds, *residuals(g, given, outputs, writes)]


def loop_of(run) -> Repeat:
    stages = run.native.schedule.stages
    (loop,) = (n for s in stages for n in parts(s.body) if isinstance(n, Repeat))
    return loop


@pytest.mark.parametrize("name", CELLS)
def test_the_loop_is_one_launch_that_waits_once_in_a_step(name, monkeypatch):
    text, threads = CELLS[name]
    monkeypatch.setitem(driver().__dict__, "threads", threads)
    monkeypatch.setenv("EMULATOR_THREADS", str(threads))
    program = run_passes(backward(text, 1)[0], start_at="expand")
    run = on_gpu(program)
    loop = loop_of(run)
    assert [type(n.launch) for n in loop.body if isinstance(n, Task)] == [Cell]
    assert sum(isinstance(n, Barrier) for n in parts((loop,))) == 1
    for t, b in ((0, 2), (1, 3), (2, 1), (5, 3)):
        given = backward(text, t, b)[1]
        want = ir.evaluate(program, [a.copy() for a in given])[0]
        for seed in ("1", "2"):
            with emulator.seeded(seed):
                for got, w in zip(run(*given), want, strict=True):
                    np.testing.assert_allclose(got, w, rtol=1e-9, atol=1e-12)


def test_a_missing_barrier_between_steps_is_found(monkeypatch):
    program = run_passes(backward(CELLS["rnn"][0], 1)[0], start_at="expand")
    without = at_barrier(0, lambda b: [])
    with pytest.raises(ScheduleError, match="no barrier before: cell"):
        compiled(program, without)
    monkeypatch.setattr(backend, "validate", lambda *_: None)
    given = backward(CELLS["rnn"][0], 6)[1]
    want = ir.evaluate(program, [a.copy() for a in given])[0]
    run = compiled(program, without)

    def is_right(seed: str) -> bool:
        with emulator.seeded(seed):
            try:
                got = run(*given)
            except DriverError:
                return False
            return all(np.allclose(g, w) for g, w in zip(got, want))

    assert not all(map(is_right, "1234"))


SEEN = """
program seen(%x: f64[T,3,9] arg "x", %w: f64[9,9] param "w", %h0: f64[3,9] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f64[3,9]
    const %wc = %w                               : f64[9,9]
    carry %h = %h0 then %h2 last %hT             : f64[3,9]
    stack %ys = STACKED axis 0                   : f64[T,3,9]
    body
      %a = multiply(%h, %xt)                     : f64[3,9]
      %b = tanh(%a)                              : f64[3,9]
      %h2 = matmul(%b, %wc)                      : f64[3,9]
  }
  return %ys, %hT
}
"""


@pytest.mark.parametrize(("stacked", "cells"), [("%b", 1), ("%h2", 0)])
def test_a_product_that_comes_last(stacked, cells):
    """No cell where the product is a result: it is needed in the step that makes it."""
    program = run_passes(ir.verify(ir.parse(SEEN.replace("STACKED", stacked))))
    run = on_gpu(program)
    kinds = [type(n.launch) for n in loop_of(run).body if isinstance(n, Task)]
    assert kinds.count(Cell) == cells and kinds.count(Gemm) == 1 - cells
    rng = np.random.default_rng(0)
    for t in (0, 1, 5):
        given = [rng.normal(size=s) / 2 for s in ((t, 3, 9), (9, 9), (3, 9))]
        for got, w in zip(run(*given), ir.evaluate(program, given)[0], strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-9, atol=1e-12)
