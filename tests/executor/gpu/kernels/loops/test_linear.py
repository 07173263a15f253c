"""The family scan_linear: recurrences of few lanes, many iterations at once."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor.gpu import backend
from executor.gpu.driver import driver
from executor.gpu.kernels.loops.linear import LinearScan, linear_kernel
from executor.gpu.schedule import OF_BLOCKS, every
from executor.lowering.program import lower
from ir.passes import run as run_passes
from scripts.bench.gpu_programs import reference
from tests.executor.gpu.compiled import missing, on_gpu, optional
from tests.executor.gpu.test_programs import floats, parsed, same
from tests.ir.autodiff.differences import gradient, residuals

pytestmark = pytest.mark.sampled(every=12)

LINEAR = """
program linear(%a: f32[T,5] arg "a", %b: f32[T,5] arg "b", %h0: f32[5] arg "h") {
  scan %t < T {
    seq %at = %a[t]                              : f32[5]
    seq %bt = %b[t]                              : f32[5]
    carry %h = %h0 then %h2 last %hT             : f32[5]
    stack %ys = %h2 axis 0                       : f32[T,5]
    body
      %p = multiply(%at, %h)                     : f32[5]
      %h2 = add(%p, %bt)                         : f32[5]
  }
  return %ys, %hT
}
"""
#: backwards, an average that is kept or begins anew, and the sum of it so far
TWO = """
program two(%x: f32[3,T] arg "x", %r: bool[3,T] arg "r", %m0: f32[3] arg "m", %s0: f32[3] arg "s") {
  scan %t < T {
    seq %xt = %x[:, -t+T-1]                       : f32[3]
    seq %rt = %r[:, -t+T-1]                       : bool[3]
    carry %m = %m0 then %m3 last %mT             : f32[3]
    carry %s = %s0 then %s2 last %sT             : f32[3]
    stack %ys = %s axis 1                        : f32[3,T]
    body
      %d = subtract(%xt, %m)                     : f32[3]
      %e = scale(%d, scale=0.25)                 : f32[3]
      %m2 = add(%m, %e)                          : f32[3]
      %m3 = where(%rt, %xt, %m2)                 : f32[3]
      %s2 = add(%s, %m)                          : f32[3]
  }
  return %ys, %mT, %sT
}
"""


#: in a loop that is none
INSIDE = """
program inside(%a: f32[2,T,5] arg "a", %b: f32[2,T,5] arg "b", %h0: f32[5] arg "h") {
  scan %k < 2 {
    seq %ak = %a[k]                              : f32[T,5]
    seq %bk = %b[k]                              : f32[T,5]
    carry %g = %h0 then %g2 last %gT             : f32[5]
    body
      scan %t < T {
        seq %at = %ak[t]                         : f32[5]
        seq %bt = %bk[t]                         : f32[5]
        carry %h = %g then %h2 last %hT          : f32[5]
        body
          %p = multiply(%at, %h)                 : f32[5]
          %h2 = add(%p, %bt)                     : f32[5]
      }
      %m = max(%hT, axes=[0])                    : f32[]
      %g2 = subtract(%hT, %m)                    : f32[5]
  }
  return %gT
}
"""


def linear(program) -> int:
    """How many loops are of the family."""
    machine = backend.Gpu()
    lowered = machine.legalize(lower(program, machine))
    return sum(isinstance(x, LinearScan) for x in every(lowered.launches))


def optimised(text):
    return run_passes(parsed(text), start_at="expand")


@pytest.fixture(params=[8, 64])
def threads(request, monkeypatch):
    """Threads of a block: of one lane, and of two."""
    monkeypatch.setitem(driver().__dict__, "threads", request.param)
    monkeypatch.setenv("EMULATOR_THREADS", str(request.param))
    return request.param


def slopes(*shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f4")


def agrees(program, *arrays) -> None:
    """The results are those of float64."""
    got = on_gpu(program)(*[a.copy() for a in arrays])
    for g, w in zip(got, reference(program, arrays), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- what it computes
@pytest.mark.parametrize("seed", [1, 2])
def test_recurrences_agree_with_float64(threads, seed, monkeypatch):
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    one, two = optimised(LINEAR), optimised(TWO)
    assert linear(one) == linear(two) == 1
    for t in (0, 1, 65, 301):
        agrees(one, slopes(t, 5), floats(t, 5, seed=1), floats(5, seed=2))
        anew = np.random.default_rng(1).random((3, t)) < 0.1
        agrees(two, floats(3, t), anew, floats(3, seed=1), floats(3, seed=2))


def test_a_call_decides_whether_a_named_size_is_few(monkeypatch):
    monkeypatch.setattr("executor.gpu.kernels.loops.linear.MOST_LANES", 5)
    program = optimised(LINEAR.replace("5]", "N]"))
    assert linear(program) == 1
    for t, n in ((0, 5), (70, 5), (70, 6), (3, 0), (9, 1)):
        agrees(program, np.tanh(floats(t, n)), floats(t, n, seed=1), floats(n, seed=2))
    many = np.full((70, 6), 0.1, "f4"), floats(70, 6, seed=1), floats(6, seed=2)
    got = on_gpu(program)(*many)
    np.testing.assert_array_equal(got[0], executor.compile(program)(*many)[0])


def test_a_recurrence_in_a_loop():
    program = optimised(INSIDE)
    assert linear(program) == 1
    for t in (0, 1, 130):
        agrees(program, slopes(2, t, 5), floats(2, t, 5, seed=1), floats(5, seed=2))


def test_the_gradient_is_a_recurrence_too():
    g = gradient(LINEAR.replace("f32", "f64"))
    given = [slopes(70, 5), floats(70, 5, seed=1), floats(5, seed=2)]
    given = [a.astype("f8") for a in given]
    outputs, writes = ir.evaluate(g.forward, given)
    seeds = [floats(*o.shape, seed=2).astype("f8") for o in outputs[:2]]
    backward = run_passes(g.backward, start_at="expand")
    assert linear(backward) == 1
    same(backward, *seeds, *residuals(g, given, outputs, writes), rtol=1e-9)


# ---------------------------------------------------------------- what is taken step by step
def test_large_slopes_are_taken_one_after_the_other():
    """Exactly: 2 h - 1 stays 1 for ever, but not as 2**k h - (2**k - 1)."""
    one = optimised(LINEAR)
    a, b = np.full((200, 5), 2, "f4"), np.full((200, 5), -1, "f4")
    a[:, 1], b[:, 1] = 0.5, 0.5
    run = on_gpu(one)
    for g in run(a, b, np.ones(5, "f4")):
        np.testing.assert_array_equal(g, np.ones_like(g))
    ys, _ = run(3 * a, 0 * b, np.float32([0, 1, 2, -0.0, 0]))
    with np.errstate(over="ignore"):
        want, _ = ir.evaluate(one, [3 * a, 0 * b, np.float32([0, 1, 2, -0.0, 0])])
    np.testing.assert_array_equal(ys, want[0])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_ends_where_the_state_begins_anew(value):
    program, rng = optimised(TWO), np.random.default_rng(0)
    x, anew = floats(3, 150), rng.random((3, 150)) < 0.05
    x[0, 140], x[1, 70], x[2, 149] = value, value, value
    given = [x, anew, np.float32([value, 0, 1]), floats(3)]
    got = on_gpu(program)(*given)
    with np.errstate(invalid="ignore"):
        want, _ = ir.evaluate(program, given)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)
    assert np.isfinite(got[1]).any()


@pytest.mark.parametrize(
    "text",
    [
        LINEAR.replace("add(%p, %bt)", "maximum(%p, %bt)"),
        LINEAR.replace("add(%p, %bt)", "multiply(%p, %h)"),
        LINEAR.replace("[T", "[63").replace("< T", "< 63"),
        LINEAR.replace("5]", "40000]"),
        LINEAR.replace("f32", "i32"),
        # the two states need each other
        TWO.replace("subtract(%xt, %m)", "subtract(%xt, %s)"),
    ],
    ids=["maximum", "square", "short", "wide", "integers", "both"],
)
def test_other_loops_are_left_to_other_families(text):
    assert linear(optimised(text)) == 0


# ---------------------------------------------------------------- planted faults
def test_a_missing_barrier_in_the_kernel_is_found(monkeypatch):
    """All but the first one, which waits for launches before."""
    kernel = lambda x, threads: optional(linear_kernel(x, threads), 5)  # noqa: E731
    monkeypatch.setitem(OF_BLOCKS, LinearScan, kernel)
    program = optimised(TWO)
    run = on_gpu(program)
    given = floats(3, 600), np.zeros((3, 600), bool), floats(3, seed=1), floats(3, seed=2)
    want = reference(program, given)

    def is_right(seed: int) -> bool:
        monkeypatch.setenv("EMULATOR_SEED", str(seed))
        return all(np.allclose(g, w, 1e-5, 1e-5) for g, w in zip(run(*given), want))

    assert all(map(is_right, range(1, 9)))
    for barrier in range(1, 5):
        with missing(barrier):
            assert not all(map(is_right, range(1, 9)))
