"""Products by tensor cores: as products of rounded operands, and only where that is asked for."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor.gpu.driver import driver
from executor.gpu.kernels.loops import fragment_cell as fragments
from executor.gpu.preamble import TEXT
from ir.passes import run as run_passes
from scripts.bench.gpu_programs import LSTM, RECURRENT, fixed, inputs
from tests.executor.gpu import emulator
from tests.executor.gpu.compiled import missing, optional
from tests.executor.gpu.kernels.test_tiles import program
from tests.executor.gpu.test_programs import floats, parsed

pytestmark = pytest.mark.sampled(every=12)

BITS = {"tensorfloat32": 10, "bfloat16": 7}


def rounded(a: np.ndarray, precision: str) -> np.ndarray:
    """With so many bits behind the point; ties go to even, or away from zero."""
    bits = BITS[precision]
    shift = np.uint32(23 - bits)
    words = np.ascontiguousarray(a, np.float32).view(np.uint32)
    half = np.uint32(1 << (22 - bits))
    words = words + half - (0 if bits == 10 else 1 - (words >> shift & 1))
    return (words >> shift << shift).view(np.float32).astype("f8")


@pytest.fixture(params=BITS)
def precision(request, monkeypatch):
    monkeypatch.setitem(driver().__dict__, "threads", 64)
    monkeypatch.setitem(driver().__dict__, "multiprocessors", 6)
    monkeypatch.setenv("EMULATOR_THREADS", "64")
    monkeypatch.setenv("EMULATOR_SMS", "6")
    monkeypatch.setenv("DY2ST_MATMUL_PRECISION", request.param)
    return request.param


def kernels_of(run) -> str:
    """The text behind the preamble."""
    return run.native.source.text[len(TEXT) :]


@pytest.mark.parametrize(("tx", "ty"), [(0, 0), (1, 1)])
def test_products_by_tiles(tx, ty, precision):
    run = executor.compile(program(bool(tx), bool(ty), ""), backend="gpu")
    assert "mma_" in kernels_of(run)
    for m, n, k in ((33, 35, 17), (64, 32, 64), (5, 40, 0)):
        x, w = floats(*((k, m) if tx else (m, k))), floats(*((n, k) if ty else (k, n)), seed=1)
        b = floats(1, n, seed=2)
        left, right = rounded(x, precision), rounded(w, precision)
        want = (left.T if tx else left) @ (right.T if ty else right) + b
        np.testing.assert_allclose(run(x, w, b)[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [20, 64])
def test_a_recurrence(width, precision):
    text = fixed(RECURRENT, "H", width)
    run = executor.compile(run_passes(parsed(text)), backend="gpu")
    assert "mma_" in kernels_of(run) and "cell with a matrix in registers" in run.report
    for b in (1, 11):
        x, w, h = inputs(parsed(text), {"T": 3, "B": b})
        want, state = [], h
        for row in x:
            state = np.tanh(rounded(state, precision) @ rounded(w, precision) + row)
            want.append(state)
        got = run(x, w, h)[0]
        np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got, want, atol=2 * 2.0 ** -BITS[precision])


@pytest.mark.slow
def test_four_gates_whose_rows_two_warps_share(monkeypatch, precision):
    """A missing barrier between the sums of the warps and the cell is found."""

    def kernel(distribution):
        assert distribution.splits == 2
        return optional(fragment_cell(distribution), 2)

    fragment_cell = fragments.fragment_cell
    monkeypatch.setattr("executor.gpu.schedule.fragment_cell", kernel)
    monkeypatch.setattr(fragments, "MOST", 48 if precision == "tensorfloat32" else 32)
    program = run_passes(parsed(fixed(LSTM, "H", 34)))
    run = executor.compile(program, backend="gpu")
    given = inputs(program, {"T": 3, "B": 20})
    want = ir.evaluate(program, given)[0]

    def is_right(seed: str) -> bool:
        with emulator.seeded(seed):
            tolerance = 4 * 2.0 ** -BITS[precision]
            return all(np.allclose(g, w, atol=tolerance) for g, w in zip(run(*given), want))

    assert all(map(is_right, "1234"))
    for barrier in (0, 1):
        with missing(barrier):
            assert not all(map(is_right, "1234"))


def test_float32_is_strict_unless_something_else_is_asked_for(monkeypatch):
    program = run_passes(parsed(fixed(LSTM, "H", 20)))
    assert "mma_" not in kernels_of(executor.compile(program, backend="gpu"))
    monkeypatch.setenv("DY2ST_MATMUL_PRECISION", "tf32")
    with pytest.raises(ValueError, match="is 'tf32'; there is 'float32'"):
        executor.compile(program, backend="gpu")
