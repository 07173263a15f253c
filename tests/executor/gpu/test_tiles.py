"""Products of matrices and convolutions by tiles, outside of loops."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor.gpu.driver import driver
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
    monkeypatch.setattr("executor.gpu.kernels.tiles.MOST_PARTS", 5)
    program = run_passes(parsed(FILTERS))
    run = executor.compile(program, backend="gpu")
    assert run.report.count("partial") == 2 and run.report.count("reduce") == 2
    for b in (0, 1, 4):
        given = [np.round(2 * floats(*s)) for s in ((b, 3, 12, 9), (b, 4, 12, 9))]
        for got, want in zip(run(*given), ir.evaluate(program, given)[0], strict=True):
            np.testing.assert_array_equal(got, want)
