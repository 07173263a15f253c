"""The family scan_persistent: matrices that stay in registers for all iterations of a loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ir
from executor.gpu.driver import driver
from executor.gpu.kernels.loops.cell import Cell
from executor.gpu.schedule import Repeat, Task, parts
from executor.gpu.schedule_verifier import ScheduleError
from executor.launches import Gemm
from ir.passes import run as run_passes
from scripts.bench.gpu_programs import LSTM, fixed, inputs, reference
from tests.executor.gpu.compiled import on_gpu
from tests.executor.gpu.test_programs import floats, parsed, same
from tests.executor.gpu.test_schedule import compiled, edited, with_stages
from tests.ir.autodiff.differences import gradient, residuals

pytestmark = pytest.mark.sampled(every=12)

RNN = """
program rnn(%x: f32[T,B,N] arg "x", %w: f32[N,N] param "w", %h0: f32[B,N] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[B,N]
    const %wc = %w                               : f32[N,N]
    carry %h = %h0 then %h2 last %hT             : f32[B,N]
    stack %ys = %h2 axis 0                       : f32[T,B,N]
    body
      %a = matmul(%h, %wc, trans_y=TRANS)        : f32[B,N]
      %b = add(%a, %xt)                          : f32[B,N]
      %h2 = tanh(%b)                             : f32[B,N]
  }
  return %ys, %hT
}
"""
#: the matrix is one that each iteration changes
MOVES = """
program moves(%x: f32[12,12] arg "x", %h0: f32[3,12] arg "h") {
  scan %t < 4 {
    carry %w = %x then %w2 last %wT              : f32[12,12]
    carry %h = %h0 then %h2 last %hT             : f32[3,12]
    body
      %h2 = matmul(%h, %w)                       : f32[3,12]
      %w2 = scale(%w, scale=0.5)                 : f32[12,12]
  }
  return %hT
}
"""


@pytest.fixture(params=[8, 64])
def threads(request, monkeypatch):
    """Threads of a block: less than a warp, and two warps."""
    monkeypatch.setitem(driver().__dict__, "threads", request.param)
    monkeypatch.setenv("EMULATOR_THREADS", str(request.param))
    return request.param


def rnn(n: int, trans: bool = False) -> str:
    return fixed(RNN, "N", n).replace("TRANS", str(trans))


def products(program) -> list[bool]:
    """For each product in a loop whether its matrix is in registers."""
    schedule = on_gpu(program).native.schedule
    loops = (n for s in schedule.stages for n in parts(s.body) if isinstance(n, Repeat))
    tasks = [t for n in loops for t in n.body if isinstance(t, Task)]
    return [t.kernel.kept is not None for t in tasks if isinstance(t.launch, (Gemm, Cell))]


@pytest.mark.parametrize(("b", "seed"), [(1, 1), (5, 2)])
def test_a_recurrence_with_a_constant_matrix(threads, b, seed, monkeypatch):
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    n = threads + b
    program = parsed(rnn(n, trans=seed == 2))
    assert products(program) == [True]
    for t in (0, 1, 4):
        same(program, floats(t, b, n), floats(n, n, seed=1) / n, floats(b, n, seed=2))


def test_an_lstm_agrees_with_float64(threads):
    sizes = {"T": 4, "B": 3}
    program = run_passes(parsed(fixed(LSTM, "H", 34 if threads > 8 else 9)))
    arrays = inputs(program, sizes)
    assert products(program) == [True]
    got = on_gpu(program)(*arrays)
    for g, w in zip(got, reference(program, arrays)):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def test_the_gradient_multiplies_by_the_transposed_matrix():
    g = gradient(rnn(12).replace("f32", "f64"))
    given = [
        floats(*s, seed=k).astype("f8") / 4 for k, s in enumerate([(5, 3, 12), (12, 12), (3, 12)])
    ]
    outputs, writes = ir.evaluate(g.forward, given)
    seeds = [floats(*o.shape, seed=2).astype("f8") for o in outputs[:2]]
    backward = run_passes(g.backward, start_at="expand")
    assert products(backward)[0]
    same(backward, *seeds, *residuals(g, given, outputs, writes), rtol=1e-9)


def test_a_matrix_that_moves_is_read_in_every_iteration():
    assert products(parsed(MOVES)) == [False]
    same(parsed(MOVES), floats(12, 12), floats(3, 12))


def test_registers_that_are_not_loaded_are_found():
    """The proof knows which registers have what memory has."""

    def unloaded(schedule):
        loads = [
            n
            for s in schedule.stages
            for n in s.body
            if isinstance(n, Task) and n.kernel is not None and n.kernel.kept is not None
        ]
        assert len(loads) == 1
        return with_stages(lambda s: replace(s, body=tuple(edited(s.body, loads[0], []))))(schedule)

    with pytest.raises(ScheduleError, match="registers are not what memory has"):
        compiled(parsed(rnn(12)), unloaded)
