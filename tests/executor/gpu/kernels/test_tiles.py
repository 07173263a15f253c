"""Products of matrices and convolutions by tiles, outside of loops."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor.gpu.driver import driver
from ir.autodiff import differentiate
from ir.passes import run as run_passes
from tests.executor.gpu.test_programs import floats, parsed

pytestmark = pytest.mark.sampled(every=12)

PRODUCT = """
program p(%x: f32[LEFT] arg "x", %w: f32[RIGHT] param "w", %b: f32[1,N] arg "b") {
  %a = matmul(%x, %w, trans_x=TX, trans_y=TY)    : f32[RESULT]
  %y = add(%a, %b)                               : f32[RESULT]
  return %y
}
"""


FEW = """
program p(%x: f32[A,3,K] arg "x", %w: f32[RIGHT] param "w", %b: f32[A,1,N] arg "b") {
  %a = matmul(%x, %w, trans_y=TY)                : f32[A,3,N]
  %y = add(%a, %b)                               : f32[A,3,N]
  return %y
}
"""


@pytest.mark.parametrize(("ty", "threads"), [(0, 8), (1, 64)])
def test_products_of_few_rows(ty, threads, monkeypatch):
    monkeypatch.setitem(driver().__dict__, "threads", threads)
    monkeypatch.setenv("EMULATOR_THREADS", str(threads))
    monkeypatch.setattr("executor.gpu.schedule.is_large", lambda *_: False)
    text = FEW.replace("RIGHT", "A,N,K" if ty else "A,K,N").replace("TY", str(bool(ty)))
    run = executor.compile(run_passes(parsed(text)), backend="gpu")
    assert "#pragma unroll 4" in run.native.source.text
    for a, n, k in ((1, 1, 1), (2, 19, 70), (2, 3, 0)):
        x, b = (np.round(4 * floats(a, *s)) for s in ((3, k), (1, n)))
        w = np.round(4 * floats(a, *((n, k) if ty else (k, n)), seed=1))
        want = x @ (np.swapaxes(w, 1, 2) if ty else w) + b
        for seed in "12":
            monkeypatch.setenv("EMULATOR_SEED", seed)
            np.testing.assert_array_equal(run(x, w, b)[0], want)


def program(tx: bool, ty: bool, batch: str):
    left, right = ("K,M" if tx else "M,K"), ("N,K" if ty else "K,N")
    text = PRODUCT.replace("RESULT", f"{batch}M,N").replace("LEFT", batch + left)
    return parsed(text.replace("RIGHT", right).replace("TX", str(tx)).replace("TY", str(ty)))


@pytest.mark.parametrize(
    ("tx", "ty", "batch", "threads"),
    [(0, 0, "", 8), (1, 0, "2,", 64), (0, 1, "2,", 64), (1, 1, "", 8)],
)
def test_products_by_tiles(tx, ty, batch, threads, monkeypatch):
    """They are bit by bit those of a thread for each result."""
    monkeypatch.setitem(driver().__dict__, "threads", threads)
    monkeypatch.setenv("EMULATOR_THREADS", str(threads))
    monkeypatch.setenv("EMULATOR_SEED", str(1 + threads // 8 + tx))
    p = program(bool(tx), bool(ty), batch)
    run = executor.compile(p, backend="gpu")
    assert "sums[3][3]" in run.native.source.text
    monkeypatch.setattr("executor.gpu.schedule.is_large", lambda *_: False)
    plain = executor.compile(p, backend="gpu")
    for m, n, k in ((1, 1, 1), (33, 35, 17), (16, 32, 64), (5, 40, 0)):
        lead = (2,) if batch else ()
        x = floats(*lead, *((k, m) if tx else (m, k)))
        w, b = floats(*((n, k) if ty else (k, n)), seed=1), floats(1, n, seed=2)
        got = run(x, w, b)[0]
        np.testing.assert_array_equal(got, plain(x, w, b)[0])
        left = np.swapaxes(x, -1, -2) if tx else x
        want = left.astype("f8") @ (w.T if ty else w) + b
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


PLACED = "stride=[2,1], padding=[[0,2],[1,0]], dilation=[D,1]"
CONV = """
program p(%x: f32[B,6,7,5] arg "x", %w: f32[34,3,3,2] param "w") {
  %y = conv(%x, %w, groups=2, PLACED) : f32[B,34,SIZE]
  return %y
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dilation", "places", "precision"), [("1", "4,5", "bfloat16"), ("2", "3,5", "float32")]
)
def test_convolutions_by_tiles(dilation, places, precision, monkeypatch):
    """Of float32, they are bit by bit those of a thread for each result; of numbers that bfloat16
    has, the same in another order."""
    monkeypatch.setitem(driver().__dict__, "threads", 64)
    monkeypatch.setenv("EMULATOR_THREADS", "64")
    monkeypatch.setenv("DY2ST_MATMUL_PRECISION", precision)
    p = run_passes(
        parsed(CONV.replace("PLACED", PLACED.replace("D", dilation)).replace("SIZE", places))
    )
    run = executor.compile(p, backend="gpu")
    assert "sums[3][3]" in run.native.source.text
    monkeypatch.setattr("executor.gpu.schedule.is_large", lambda *_: False)
    plain = executor.compile(p, backend="gpu")
    for b in (1, 3):
        x, w = floats(b, 6, 7, 5), floats(34, 3, 3, 2, seed=1)
        if precision == "float32":
            np.testing.assert_array_equal(run(x, w)[0], plain(x, w)[0])
        x, w = (np.round(4 * a) for a in (x, w))
        np.testing.assert_array_equal(run(x, w)[0], plain(x, w)[0])


LOOP = """
program p(%x: f32[T,B,4,6,5] arg "x", %w: f32[40,4,3,3] param "w", %u: f32[4,40,1,1] param "u", \
%h0: f32[B,4,6,5] arg "h") {
  scan t < T {
    seq %xt = %x[t]                              : f32[B,4,6,5]
    const %wc = %w                               : f32[40,4,3,3]
    const %uc = %u                               : f32[4,40,1,1]
    carry %h = %h0 then %h2 last %hT             : f32[B,4,6,5]
    stack %ys = %h2 axis 0                       : f32[T,B,4,6,5]
    body
      %a = add(%h, %xt)                          : f32[B,4,6,5]
      %b = conv(%a, %wc, padding=[[1,1],[1,1]])  : f32[B,40,6,5]
      %c = tanh(%b)                              : f32[B,40,6,5]
      %h2 = conv(%c, %uc)                        : f32[B,4,6,5]
  }
  return %ys, %hT
}
"""


def test_convolutions_in_loops_and_their_gradients_by_tiles(monkeypatch):
    """Blocks wait where another one makes what a tile reads, in the step before too."""
    monkeypatch.setitem(driver().__dict__, "threads", 64)
    monkeypatch.setenv("EMULATOR_THREADS", "64")
    monkeypatch.setattr("executor.gpu.kernels.tiled_gemm.FEWEST", 4)
    found = differentiate(parsed(LOOP), [0], [0, 1, 2, 3])
    forward, backward = (run_passes(q, start_at="expand") for q in (found.forward, found.backward))
    runs = [executor.compile(q, backend="gpu") for q in (forward, backward)]
    assert ["sums[3][3]" in q.native.source.text for q in runs] == [True, True]
    assert runs[1].report.count("partial") == 2
    for q, run in zip((forward, backward), runs):
        shapes = [i.value.type.concrete({"T": 3, "B": 2}) for i in q.inputs]
        arrays = [0.3 * floats(*shape, seed=k) for k, shape in enumerate(shapes)]
        want = ir.evaluate(q, [a.copy() for a in arrays])[0]
        for got, w in zip(run(*arrays), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-5)


WEIGHTS = """
program p(%x: f32[2,K,5] arg "x", %y: f32[2,K,9] arg "y", %b: f32[5,9] arg "b") {
  %a = matmul(%x, %y, trans_x=True)              : f32[2,5,9]
  %z = add(%a, %b)                               : f32[2,5,9]
  return %z
}
"""


@pytest.mark.parametrize("threads", [8, 64])
def test_products_of_many_terms_are_taken_in_parts(threads, monkeypatch):
    """What is added to them is added once."""
    monkeypatch.setitem(driver().__dict__, "threads", threads)
    monkeypatch.setenv("EMULATOR_THREADS", str(threads))
    run = executor.compile(run_passes(parsed(WEIGHTS)), backend="gpu")
    assert run.report.count("partial") == 1
    for k in (0, 1, 300):
        given = [np.round(2 * floats(*s)) for s in ((2, k, 5), (2, k, 9), (5, 9))]
        want = np.swapaxes(given[0], 1, 2) @ given[1] + given[2]
        np.testing.assert_array_equal(run(*given)[0], want)


#: gradients of filters: few results, sums over all pixels
FILTERS = """
program p(%x: f32[B,3,12,9] arg "x", %g: f32[B,4,12,9] arg "g") {
  %a = transpose(%x, perm=[1,0,2,3])             : f32[3,B,12,9]
  %b = transpose(%g, perm=[1,0,2,3])             : f32[4,B,12,9]
  %y = conv(%a, %b, groups=1, stride=[1,1], padding=[[1,1],[1,1]], dilation=[1,1]) : f32[3,4,3,3]
  %z = conv(%a, %b, groups=1, stride=[1,1], padding=[[0,0],[0,0]], dilation=[1,1]) : f32[3,4,1,1]
  return %y, %z
}
"""


@pytest.mark.parametrize(("precision", "threads"), [("float32", 8), ("bfloat16", 64)])
def test_sums_of_many_terms_are_taken_in_parts(precision, threads, monkeypatch):
    monkeypatch.setitem(driver().__dict__, "threads", threads)
    monkeypatch.setenv("EMULATOR_THREADS", str(threads))
    monkeypatch.setenv("DY2ST_MATMUL_PRECISION", precision)
    monkeypatch.setattr("executor.gpu.kernels.split_k.MOST_PARTS", 5)
    program = run_passes(parsed(FILTERS))
    run = executor.compile(program, backend="gpu")
    assert run.report.count("partial") == 2 and run.report.count("reduce") == 2
    for b in (0, 1, 4):
        given = [np.round(2 * floats(*s)) for s in ((b, 3, 12, 9), (b, 4, 12, 9))]
        for got, want in zip(run(*given), ir.evaluate(program, given)[0], strict=True):
            np.testing.assert_array_equal(got, want)
