"""Reductions of rows with elementwise launches between them: a block keeps its row in registers."""

from __future__ import annotations

import numpy as np
import pytest

import executor
from executor.gpu.driver import driver
from ir.passes import run as run_passes
from tests.executor.gpu.compiled import on_gpu
from tests.executor.gpu.test_programs import floats, parsed, same

pytestmark = pytest.mark.sampled(every=12)

SOFTMAX = """
program softmax(%x: f32[R,40] arg "x") {
  %y = softmax(%x, axis=1)                       : f32[R,40]
  return %y
}
"""
NORM = """
program norm(%x: f32[R,3,40] arg "x", %w: f32[120] param "w", %b: f32[120] param "b") {
  %y = layer_norm(%x, %w, %b, begin_norm_axis=1) : f32[R,3,40]
  return %y
}
"""
#: the sum of each row is a result, too
TWO = """
program two(%x: f32[R,40] arg "x") {
  %e = exp(%x)                                   : f32[R,40]
  %s = sum(%e, axes=[1], keepdim=True)           : f32[R,1]
  %y = divide(%e, %s)                            : f32[R,40]
  return %y, %s
}
"""
#: a number that is computed between the launches of a row, from memory without axes
SCALED = """
program scaled(%x: f32[R,40] arg "x", %c: f32[] arg "c") {
  %m = max(%x, axes=[1], keepdim=True)           : f32[R,1]
  %r = exp(%c)                                   : f32[]
  %d = subtract(%x, %m)                          : f32[R,40]
  %e = multiply(%d, %r)                          : f32[R,40]
  %s = sum(%e, axes=[1], keepdim=True)           : f32[R,1]
  %y = divide(%e, %s)                            : f32[R,40]
  return %y
}
"""
#: turned rows: neighbouring elements of a row do not lie next to each other
TURNED = """
program turned(%x: f32[40,R] arg "x") {
  %t = transpose(%x, perm=[1,0])                 : f32[R,40]
  %y = log_softmax(%t, axis=1)                   : f32[R,40]
  return %y
}
"""


def kernels(program) -> int:
    return len(on_gpu(program).native.schedule.stages)


@pytest.mark.parametrize("threads", [8, 64])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("text", "most", "shapes"),
    [
        (SOFTMAX, 1, [(5, 40)]),
        (NORM, 1, [(5, 3, 40), (120,), (120,)]),
        (TURNED, 1, [(40, 5)]),
        (TWO, 3, [(5, 40)]),
        (SCALED, 1, [(5, 40), ()]),
    ],
    ids=["softmax", "norm", "turned", "two", "scaled"],
)
def test_rows(text, most, shapes, seed, threads, monkeypatch):
    monkeypatch.setitem(driver().__dict__, "threads", threads)
    monkeypatch.setenv("EMULATOR_THREADS", str(threads))
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    program = run_passes(parsed(text))
    assert kernels(program) <= most
    run = same(program, *(np.asarray(3 * floats(*s, seed=k)) for k, s in enumerate(shapes)))
    if text is SOFTMAX:
        x = np.float32([[np.inf] + [0] * 39, [np.nan] * 40, [-np.inf] * 40, [1e4] * 40, [0] * 40])
        want = executor.compile(program)(x)[0]
        np.testing.assert_allclose(run(x)[0], want, rtol=1e-6)
