"""`while` loops in the executor: values, sizes that loops find, chunks, foreign calls inside."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import executor
import ir
from executor import cpu
from executor.executable import Executable
from executor.launches import Loop
from executor.lowering.program import lower
from executor.segmented.interpreter import Interpreted
from executor.segmented.partition import ChunkedLoop, NativeRun
from tests.executor.foreign import called
from tests.executor.launch_machine import CHECKED, CHECKED_CPU


def floats(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def parsed(text, **words):
    for name, value in words.items():
        text = text.replace(name, value)
    text = text.replace("  as ", " as ")
    return ir.verify(ir.parse("\n".join(q for q in text.splitlines() if q.strip())))


def same(run, program, *arrays, foreign=None):
    """What `run` makes of the arrays is what the reference makes of them; returns the outputs."""
    own = [np.array(a) for a in arrays]
    got = run(*own)
    want, written = ir.evaluate(program, arrays, foreign)
    for g, w in zip(got, want):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    after = dict(zip((t for t, _ in program.writes), written))
    for i, x, a in zip(program.inputs, own, arrays):
        np.testing.assert_allclose(x, after.get(i.value, a), rtol=1e-5, atol=1e-6)
    return got


# ---------------------------------------------------------------- sizes
COUNTING = """
program p(%x: f32[T] arg "x", %k: i64[] arg "k", %g: bool[] arg "g") {
  %one = full(value=1, dtype=i64)                : i64[]
  while %t < TRIP as n1 {
    go    %g then %g2
    const %kk = %k                               : i64[]
    const %o = %one                              : i64[]
    body
      %t2 = add(%t, %o)                          : i64[]
      %g2 = less_than(%t2, %kk)                  : bool[]
  }
  %y = slice(%x, axis=0, start=0, length=n1)     : f32[n1]
  %z = tanh(%y)                                  : f32[n1]
  %c = size(n=2*n1+1)                            : i64[]
  return %z, %c
}
"""


@pytest.mark.parametrize("backend", ["cpu", CHECKED.name, CHECKED_CPU.name])
@pytest.mark.parametrize("trip", ["6", "T", "2*T-6"])
def test_a_loop_that_counts_makes_no_iterations(backend, trip):
    program = parsed(COUNTING, TRIP=trip)
    run = executor.compile(program, backend=backend)
    for k in (-3, 0, 1, 4, 6, 9):
        for goes in (True, False):
            same(run, program, floats(6), np.array(k), np.array(goes))


def test_a_size_is_found_without_counting():
    program = parsed(COUNTING, TRIP="T")
    (loop,) = (x for x in lower(program, cpu.machine()).launches if isinstance(x, Loop))
    assert loop.body == () and loop.go is None


# ---------------------------------------------------------------- while
COLLECT = """
program p(%x: f32[T,4] arg "x", %k: i64[] arg "k", %n: f32[4] buffer "n") {
  %one = full(value=1, dtype=i64)                : i64[]
  %z = full(value=0, dtype=i64)                  : i64[]
  %g0 = greater_than(%k, %z)                     : bool[]
  while %t TRIP as n1 {                                                @ model.py:3
    go    %g0 then %g2
    const %kk = %k                               : i64[]
    const %o = %one                              : i64[]
    const %xx = %x                               : f32[T,4]
    carry %s = %n then %s2 last %sT              : f32[4]
    stack %ys = %s2 axis 1                       : f32[4,n1]
    stack %zs = %s2 axis 0                       : f32[n1,4]
    stack %is = %t2 axis 0                       : i64[n1]
    LAST
    body
      %xt = dynamic_index(%xx, %t, axis=0)              : f32[4]
      %s2 = add(%s, %xt)                         : f32[4]
      %t2 = add(%t, %o)                          : i64[]
      %g2 = less_than(%t2, %kk)                  : bool[]
  }
  %q = sum(%ys, axes=[1])                        : f32[4]
  %c = size(n=2*n1+1)                            : i64[]
  %r = reshape(%ys, shape=[4*n1])                : f32[4*n1]
  %e = tanh(%ys)                                 : f32[4,n1]
  %d = iota(n=n1, dtype=i64)                     : i64[n1]
  %f = matmul(%ys, %zs)                          : f32[4,4]
  %m = concat(%zs, %x, axis=0)                   : f32[T+n1,4]
  scan %u < n1 {
    seq   %a = %ys[:, -u+n1-1]                   : f32[4]
    carry %b = %n then %b2 last %bT              : f32[4]
    stack %vs = %b2 axis 0                       : f32[n1,4]
    body
      %b2 = maximum(%a, %b)                      : f32[4]
  }
  return %ys, %zs, %is, %sT, %q, %c, %r, %e, %d, %f, %m, %vs, %bT, %sT
  write %n = %sT
}
"""
LAST = "last  %l = %s2 : f32[4]"


@pytest.mark.parametrize("trip", ["< T", "< 2*T", "< 9", ""])
def test_a_while_ends_when_go_says_so(trip):
    program = parsed(COLLECT, TRIP=trip, LAST="")
    run = executor.compile(program)
    assert isinstance(run, Executable if trip else Interpreted)
    for t in (0, 1, 2, 7):
        for k in {0, 1, t // 2, t}:
            got = same(run, program, floats(t, 4), np.asarray(min(k, t)), floats(4, seed=1))
            assert got[0].shape == (4, min(k, t))


def test_a_while_ends_at_its_trip():
    program = parsed(COLLECT, TRIP="< T", LAST="")
    run = executor.compile(program)
    for t in (0, 1, 7):
        assert same(run, program, floats(t, 4), np.asarray(99), floats(4))[1].shape == (t, 4)


@pytest.mark.parametrize("trip", ["< T", ""])
def test_the_last_value_of_a_while(trip):
    program = parsed(COLLECT.replace("return", "return %l,"), TRIP=trip, LAST=LAST)
    run = executor.compile(program)
    for k in (1, 3, 7):
        same(run, program, floats(7, 4), np.asarray(k), floats(4))
    n = floats(4)
    for t, k in ((7, 0), (0, 3)):
        if trip or t:
            with pytest.raises(ValueError, match="no last value.*model.py:3"):
                run(floats(t, 4), np.asarray(k), n)
    np.testing.assert_array_equal(n, floats(4))


@pytest.mark.parametrize("k", [15, 16, 17, 48, 300])
def test_a_stack_without_a_bound_grows_in_chunks(k):
    program = parsed(COLLECT, TRIP="", LAST=LAST)
    run = executor.compile(program)
    assert sum(isinstance(s, ChunkedLoop) for s in run._steps) == 1
    same(run, program, floats(300, 4), np.asarray(k), floats(4))


def test_a_bad_index_in_an_endless_loop_is_an_error():
    run = executor.compile(parsed(COLLECT, TRIP="", LAST=""))
    n = floats(4)
    with pytest.raises(IndexError, match="dynamic_index"):
        run(floats(30, 4), np.asarray(31), n)
    np.testing.assert_array_equal(n, floats(4))


NEGATIVE = """
program p(%x: f32[T,5] arg "x", %h0: f32[5] arg "h0") {
  scan %t < T-3 {
    carry %h = %h0 then %k last %hT              : f32[5]
    carry %k = %h0 then %h2 last %kT             : f32[5]
    body
      %h2 = tanh(%h)                             : f32[5]
  }
  return %hT, %kT
}
"""


def test_a_trip_below_zero_is_none():
    program = parsed(NEGATIVE)
    for t in (0, 1, 2, 3, 4, 6):
        same(executor.compile(program), program, floats(t, 5), floats(5))
    program = parsed(COLLECT, TRIP="< T-3", LAST="")
    for t in (0, 2, 3, 7):
        same(executor.compile(program), program, floats(t, 4), np.asarray(99), floats(4))


ENDLESS = """
program p(%x: f32[B] arg "x", %e: f32[] arg "e") {
  %yes = full(value=True, dtype=bool)            : bool[]
  while %t as n1 {
    go    %yes then %g
    const %b = %e                                : f32[]
    carry %y = %x then %y2 last %yT              : f32[B]
    body
      %y2 = scale(%y, scale=0.5)                 : f32[B]
      %a = abs(%y2)                              : f32[B]
      %s = sum(%a, axes=[0])                     : f32[]
      %g = greater_than(%s, %b)                  : bool[]
  }
  %c = size(n=n1)                                : i64[]
  MORE
  return RESULT
}
"""


def test_an_endless_loop_without_stacks_is_native():
    program = parsed(ENDLESS, MORE="", RESULT="%yT, %c")
    run = executor.compile(program)
    assert isinstance(run, Executable) and run.counts == ("n1",)
    for b in (0, 1, 5):
        same(run, program, floats(b), np.float32(1e-3))


def test_a_tensor_as_long_as_an_endless_loop_ran():
    more = "%i = iota(n=n1, dtype=f32) : f32[n1]\n%j = sum(%i, axes=[0]) : f32[]"
    program = parsed(ENDLESS, MORE=more, RESULT="%yT, %i, %j")
    run = executor.compile(program)
    assert [type(s) for s in run._steps] == [NativeRun, NativeRun]
    assert len(same(run, program, floats(5), np.float32(1e-3))[1]) > 5


SEARCH = """
program p(%x: f32[9] arg "x", %k: i64[] arg "k") {
  %one = full(value=1, dtype=i64)                : i64[]
  %yes = full(value=True, dtype=bool)            : bool[]
  while %t < 100 as n {
    go    %yes then %g
    const %kk = %k                               : i64[]
    const %o = %one                              : i64[]
    seq   %xt = %x[2*t+1]                        : f32[]
    stack %ys = %xt axis 0                       : f32[n]
    body
      %u = add(%t, %o)                           : i64[]
      %g = less_than(%u, %kk)                    : bool[]
  }
  return %ys
}
"""


def test_a_while_checks_only_the_slices_that_it_reads():
    program = parsed(SEARCH)
    run = executor.compile(program)
    for k in (0, 2, 4):
        same(run, program, floats(9), np.asarray(k))
    with pytest.raises(IndexError, match="outside of its axis"):
        run(floats(9), np.asarray(5))


# ---------------------------------------------------------------- the interface of run
def addresses(arrays):
    return [a.ctypes.data for a in arrays]


def test_bounds_and_counts_of_a_program():
    program = parsed(COLLECT, TRIP="< T", LAST="")
    run = executor.compile(program)
    assert run.counts == ("n1",) and run.bounds([7])[:3] == [28, 28, 7]
    assert run.bounds([7])[10] == 56 and run.bounds([0])[:3] == [0, 0, 0]
    x, k, n = floats(7, 4), np.asarray(3), floats(4)
    out = [np.zeros(b, v.type.dtype.numpy) for b, v in zip(run.bounds([7]), program.outputs)]
    found = run.run([7], addresses([x, k, n]), addresses(out))
    assert found is not None and found.counts == {"n1": 3} and not found.arrays
    want = ir.evaluate(program, [x, np.asarray(3), floats(4)])[0]
    np.testing.assert_allclose(out[0][:12].reshape(4, 3), want[0], rtol=1e-6)


def test_outputs_that_the_caller_cannot_allocate():
    program = parsed(COLLECT, TRIP="", LAST="")
    run = executor.compile(program)
    bounds = run.bounds([7])
    assert bounds[:4] == [None, None, None, 4] and run.counts == ("n1",)
    x, k, n = floats(7, 4), np.asarray(3), floats(4)
    memory = [b and np.zeros(b, v.type.dtype.numpy) for b, v in zip(bounds, program.outputs)]
    places = [None if a is None else a.ctypes.data for a in memory]
    found = run.run([7], addresses([x, k, n]), places)
    assert found is not None and found.counts == {"n1": 3}
    assert sorted(found.arrays) == [k for k, b in enumerate(bounds) if b is None]
    assert found.arrays[0].shape == (4, 3) and found.arrays[0].flags.c_contiguous


# ---------------------------------------------------------------- foreign calls
CALLS = """
program p(%x: f32[B] arg "x", %p: bool[] arg "p", %k: i64[] arg "k") {
  %one = full(value=1, dtype=i64)                : i64[]
  %yes = full(value=True, dtype=bool)            : bool[]
  while %t TRIP as n1 {
    go    %yes then %g
    const %q = %p                                : bool[]
    const %o = %one                              : i64[]
    const %kk = %k                               : i64[]
    carry %y = %x then %y2 last %yT              : f32[B]
    stack %ys = %y2 axis 1                       : f32[B,n1]
    last  %z = %y                                : f32[B]
    body
      cond %q {
        const %a = %y                            : f32[B]
        join  %y2 = %b else %c                   : f32[B]
        then
          %d = tanh(%a)                          : f32[B]
          %b = foreign(%d, call="double", args=[], types=[f32[B]]) : f32[B]
        else
          %c = add(%a, %a)                       : f32[B]
      }
      %u = add(%t, %o)                           : i64[]
      %g = less_than(%u, %kk)                    : bool[]
  }
  %s = sum(%ys, axes=[1])                        : f32[B]
  return %ys, %yT, %z, %s
}
"""


@pytest.mark.parametrize("trip", ["< 4", ""])
def test_only_the_branch_taken_calls_foreign_kernels(trip):
    calls = []

    def double(op, arrays, sizes):
        calls.append(op)
        return [arrays[0] * np.float32(2)]

    program = parsed(CALLS, TRIP=trip)
    run = executor.compile(program, called(double))
    for p, k, n in ((True, 3, 3), (False, 3, 0), (True, 0, 1), (True, 4, 4)):
        same(run, program, floats(2), np.asarray(p), np.asarray(k), foreign=double)
        assert len(calls) == 2 * n
        calls.clear()


# ---------------------------------------------------------------- interrupts
FOREVER = """
program p(%x: f32[3] arg "x", %n: f32[3] buffer "n") {
  %yes = full(value=True, dtype=bool)            : bool[]
  while %t as n1 {
    go    %yes then %g
    const %on = %yes                             : bool[]
    carry %y = %x then %y2 last %yT              : f32[3]
    body
      %y2 = tanh(%y)                             : f32[3]
      %g = logical_and(%on, %on)                 : bool[]
  }
  return %yT
  write %n = %yT
}
"""


class Stop(Exception):
    pass


LONG = """
program p(%x: f32[3] arg "x", %n: f32[3] buffer "n") {
  scan %t < 2000000000 {
    carry %y = %x then %y2 last %yT              : f32[3]
    body
      scan %u < 3 {
        carry %z = %y then %z2 last %y2          : f32[3]
        body
          scan %v < 1000000 {
            carry %w = %z then %w2 last %z2      : f32[3]
            body
              %w2 = tanh(%w)                     : f32[3]
          }
      }
  }
  return %yT
  write %n = %yT
}
"""


@pytest.mark.sampled
@pytest.mark.quick("KeyboardInterrupt-endless", "Stop-endless")
@pytest.mark.parametrize("text", [FOREVER, LONG], ids=["endless", "long"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, Stop])
def test_a_signal_stops_an_endless_loop(kind, text):
    """What the handler raises is raised, and the program can be called again."""

    def handler(number, frame):
        assert np.float32(1e-40) + np.float32(0) > 0, "denormals are as they were before the call"
        raise kind("enough")

    run = executor.compile(parsed(text))
    before = signal.signal(signal.SIGALRM, handler)
    n = floats(3)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(kind, match="enough"):
                run(floats(3), n)
    finally:
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(n, floats(3))
