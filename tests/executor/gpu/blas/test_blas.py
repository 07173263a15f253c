"""Large products by a library: the stand-in for cuBLASLt sums in double precision, and refuses what
the library refuses."""

from __future__ import annotations

import os

import numpy as np
import pytest

import executor
from executor.gpu import DriverError
from ir.passes import run as run_passes
from tests.executor.gpu import emulator
from tests.executor.gpu.test_programs import floats, parsed, same

pytestmark = pytest.mark.sampled(every=4)

#: a layer with a bias, one whose rows are those of all batches, scores of batches, a sum
LAYERS = """
program layers(%x: KIND[B,T,12] arg "x", %w: KIND[12,16] param "w", %b: KIND[16] param "b", \
%u: KIND[9,16] param "u") {
  %a = matmul(%x, %w)                            : KIND[B,T,16]
  %h = add(%a, %b)                               : KIND[B,T,16]
  %t = tanh(%h)                                  : KIND[B,T,16]
  %y = matmul(%t, %u, trans_y=True)              : KIND[B,T,9]
  %s = matmul(%t, %t, trans_y=True)              : KIND[B,T,T]
  %m = tanh(%s)                                  : KIND[B,T,T]
  %z = matmul(%m, %t, trans_x=True)              : KIND[B,T,16]
  %r = add(%z, %t)                               : KIND[B,T,16]
  return %y, %r
}
"""
#: whose sums begin with one row
ROW = """
program row(%x: KIND[T,12] arg "x", %w: KIND[12,16] param "w", %b: KIND[1,16] param "b") {
  %a = matmul(%x, %w)                            : KIND[T,16]
  %y = add(%a, %b)                               : KIND[T,16]
  return %y
}
"""
GRADIENT = """
program gradient(%x: f32[T,12] arg "x", %g: f32[T,16] arg "g", %d: f32[12,16] arg "d", \
%e: f32[12,16] arg "e") {
  %p = matmul(%x, %g, trans_x=True)              : f32[12,16]
  %n = add(%d, %p)                               : f32[12,16]
  %q = matmul(%x, %g, trans_x=True)              : f32[12,16]
  %s = matmul(%g, %x, trans_x=True)              : f32[16,12]
  %t = transpose(%e, perm=[1,0])                 : f32[16,12]
  %u = assign(%t)                                : f32[16,12]
  %r = add(%s, %u)                               : f32[16,12]
  return %q, %r
  write %d = %n
}
"""
PICKED = """
program picked(%x: f32[20,12] arg "x", %i: i64[9] arg "i", %w: f32[12,16] param "w") {
  %a = embedding(%i, %x)                         : f32[9,12]            @ model.py:5
  %y = matmul(%a, %w)                            : f32[9,16]
  %z = tanh(%y)                                  : f32[9,16]
  return %z
}
"""


@pytest.fixture(autouse=True)
def cublas(monkeypatch):
    monkeypatch.setenv("DY2ST_CUBLASLT_LIBRARY", os.environ["DY2ST_CUDA_LIBRARY"])
    monkeypatch.setattr("executor.gpu.blas.LARGE", 1)


def products(run) -> int:
    return run.report.count("product by cuBLASLt")


def multiplied() -> int:
    return emulator.library().emu_multiplied()


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_layers_and_batches(kind):
    program = run_passes(parsed(LAYERS.replace("KIND", kind)))
    dtype = kind.replace("f", "float")
    given = {}
    for b, t in ((2, 3), (1, 1), (3, 0), (2, 20), (2, 3)):
        arrays = [floats(b, t, 12), floats(12, 16) / 3, floats(16, seed=1), floats(9, 16, seed=2)]
        before = multiplied()
        run = same(program, *(a.astype(dtype) for a in arrays))
        given[t] = multiplied() - before
    assert products(run) == 4
    row = parsed(ROW.replace("KIND", kind))
    for t in (5, 0):
        run = same(row, *(floats(*s).astype(dtype) for s in ((t, 12), (12, 16), (1, 16))))
    assert products(run) == (kind == "f32")
    assert given == {3: 4, 1: 4, 0: 0, 20: 4}


def test_sums_over_no_row_are_zero_and_inputs_are_written_by_kernels():
    """A call that fails writes to no input, and a library does not know of failures."""
    program = run_passes(parsed(GRADIENT))
    for t in (5, 0):
        sums = floats(12, 16, seed=2), floats(12, 16, seed=3)
        run = same(program, floats(t, 12), floats(t, 16, seed=1), *sums)
    assert products(run) == 2


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_a_failure_before_a_product_is_told(lazy, monkeypatch):
    monkeypatch.setenv("EMULATOR_LAZY", lazy)
    program = run_passes(parsed(PICKED))
    x, w, i = floats(20, 12), floats(12, 16, seed=1), np.arange(9)
    run = same(program, x, i, w)
    assert products(run) == 1
    i[4] = 20
    with pytest.raises(IndexError):
        run(x, i, w)
    same(program, x, np.arange(9), w)


def test_small_products_and_those_of_loops_are_kernels(monkeypatch):
    monkeypatch.setattr("executor.gpu.blas.LARGE", 1 << 28)
    assert not products(executor.compile(run_passes(parsed(PICKED)), backend="gpu"))
    large = PICKED.replace("12", "2048").replace("16", "20000")
    assert products(executor.compile(run_passes(parsed(large)), backend="gpu")) == 1
    monkeypatch.setenv("DY2ST_CUBLASLT_LIBRARY", "")
    assert not products(executor.compile(run_passes(parsed(large)), backend="gpu"))
    monkeypatch.setenv("DY2ST_CUBLASLT_LIBRARY", "/nowhere")
    with pytest.raises(DriverError, match="DY2ST_CUBLASLT_LIBRARY: /nowhere cannot be opened"):
        executor.compile(run_passes(parsed(PICKED)), backend="gpu")
