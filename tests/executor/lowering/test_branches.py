"""Branches in the executor: values, storage, packing, size of code; checks."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

import executor
import ir
from executor import cpu
from executor.cpu.codegen import source
from executor.cpu.launches import Pack
from executor.cpu.target import current
from executor.launches import Branch, Launch, Loop, Map, blocks, results, views
from executor.lowering.branches import exception
from executor.lowering.program import lower
from executor.plan import arena
from ir.literal import parse_type
from ir.program import Builder, Cond, Const, Input, Join, Program, Value
from ir.types import BOOL, Type
from tests.executor.segmented.test_while_loops import addresses, floats, parsed, same
from tests.executor.test_executor import run_text


def every(launches) -> list[Launch]:
    return [q for x in launches for q in (x, *(r for b in blocks(x) for r in every(b)))]


def launches_of(program) -> list[Launch]:
    return every(lower(program, cpu.machine()).launches)


def copies(launches) -> list[Map]:
    return [q for q in launches if isinstance(q, Map) and [r.op for r in q.roots] == ["input"]]


PARITY = """
program p(%x: f32[T,5] arg "x", %h0: f32[5] arg "h0") {
  %z = full(value=0, dtype=i64)                  : i64[]
  %two = full(value=2, dtype=i64)                : i64[]
  scan %t < T {
    const %zz = %z                               : i64[]
    const %tw = %two                             : i64[]
    seq   %xt = %x[t]                            : f32[5]
    carry %h = %h0 then %h2 last %hT             : f32[5]
    body
      %r = remainder(%t, %tw)                    : i64[]
      %p = equal(%r, %zz)                        : bool[]
      cond %p {
        const %a = %h                            : f32[5]
        const %b = %xt                           : f32[5]
        join  %h2 = %c else ELSE                 : f32[5]
        then
          %c = add(%a, %b)                       : f32[5]
        else
          %d = subtract(%b, %a)                  : f32[5]
      }
  }
  return %hT
}
"""


def test_a_program_without_counts_finds_nothing():
    program = parsed(PARITY, ELSE="%d")
    run = executor.compile(program)
    x, h = floats(3, 5), floats(5)
    out = np.zeros(5, np.float32)
    assert run.counts == () and run.bounds([3]) == [5]
    assert run.run([3], addresses([x, h]), addresses([out])) is None


@pytest.mark.parametrize("orelse", ["%d", "%a", "%b"])
def test_a_branch_in_a_loop(orelse):
    program = parsed(PARITY, ELSE=orelse)
    run = executor.compile(program)
    for t in (0, 1, 2, 7):
        same(run, program, floats(t, 5), floats(5, seed=1))


@pytest.mark.parametrize("orelse, in_place", [("%d", True), ("%a", True), ("%b", False)])
def test_a_carry_that_both_sides_keep_is_updated_in_place(orelse, in_place):
    launches = launches_of(parsed(PARITY, ELSE=orelse))
    loop = next(q for q in launches if isinstance(q, Loop))
    assert len(copies(every(loop.body))) == (0 if in_place else 1)
    (branch,) = (q for q in launches if isinstance(q, Branch))
    written = {v.buffer for side in blocks(branch) for q in side for v in results(q)}
    assert orelse != "%d" or len(written) == 1, "both sides write the same storage"


TWO_HEIRS = """
program p(%x: f32[T,5] arg "x", %h0: f32[5] arg "h0", %p: bool[] arg "p") {
  scan %t < T {
    const %q = %p                                : bool[]
    seq   %xt = %x[t]                            : f32[5]
    carry %h = %h0 then %h2 last %hT             : f32[5]
    body
      %v = tanh(%xt)                             : f32[5]
      cond %q {
        const %a = %h                            : f32[5]
        const %b = %v                            : f32[5]
        join  %h2 = %c else %d                   : f32[5]
        then
          %c = add(%a, %b)                       : f32[5]
        else
          %d = subtract(%b, %a)                  : f32[5]
      }
  }
  return %hT
}
"""


@pytest.mark.parametrize("p", [False, True])
def test_only_one_value_gives_its_storage_to_a_result(p):
    """Both operands die in the branch; the one that is not the carry is made beside the carry."""
    program = parsed(TWO_HEIRS)
    same(executor.compile(program), program, floats(4, 5), floats(5, seed=1), np.asarray(p))


CACHE = """
program p(%c: f32[6,64] buffer "c", %y: f32[64] arg "y", %i: i64[] arg "i", %p: bool[] arg "p") {
  %q = sum(%c, axes=[0])                         : f32[64]
  cond %p {
    const %cc = %c                               : f32[6,64]
    const %yy = %y                               : f32[64]
    const %ii = %i                               : i64[]
    join  %d = %c2 else %cc                      : f32[6,64]
    then
      %c2 = set_dynamic_index(%cc, %yy, %ii, axis=0)    : f32[6,64]
    else
  }
  return %q
  write %c = %d
}
"""


def test_a_buffer_written_on_one_side_only_is_written_in_place():
    program = parsed(CACHE)
    launches = launches_of(program)
    assert [q.out.shape if hasattr(q, "out") else q.outs[0].shape for q in copies(launches)] == [
        (64,)
    ]
    run = executor.compile(program)
    for p in (False, True):
        same(run, program, floats(6, 64), floats(64, seed=1), np.asarray(2), np.asarray(p))
    c = floats(6, 64)
    with pytest.raises(IndexError):
        run(c, floats(64), np.asarray(6), np.asarray(True))
    np.testing.assert_array_equal(c, floats(6, 64))
    run(c, floats(64), np.asarray(6), np.asarray(False))


ROLLING = """
program p(%c: f32[T,64] buffer "c", %x: f32[T,64] arg "x", %k: i64[T] arg "k") {
  %zero = full(value=0, dtype=i64)               : i64[]
  scan %t < T {
    const %z = %zero                             : i64[]
    seq   %xt = %x[t]                            : f32[64]
    seq   %kt = %k[t]                            : i64[]
    carry %b = %c then %b2 last %bT              : f32[T,64]
    body
      %p = greater_than(%kt, %z)                 : bool[]
      cond %p {
        const %bb = %b                           : f32[T,64]
        const %y = %xt                           : f32[64]
        const %i = %kt                           : i64[]
        const %q = %p                            : bool[]
        join  %b2 = %b4 else %bb                 : f32[T,64]
        then
          cond %q {
            const %b3 = %bb                      : f32[T,64]
            const %w = %y                        : f32[64]
            const %n = %i                        : i64[]
            join  %b4 = %b5 else %b6             : f32[T,64]
            then
              %b5 = set_dynamic_index(%b3, %w, %n, axis=0) : f32[T,64]
            else
              %b6 = set_index(%b3, %w, axis=0, index=0) : f32[T,64]
          }
        else
      }
  }
  return %k
  write %c = %bT
}
"""


def test_a_buffer_that_a_loop_fills_here_and_there_is_not_copied():
    program = parsed(ROLLING)
    loop = next(q for q in launches_of(program) if isinstance(q, Loop))
    assert {str(q.outs[0].shape) for q in copies(every(loop.body))} == {"(64,)"}
    run = executor.compile(program)
    for t in (0, 1, 5):
        same(run, program, floats(t, 64), floats(t, 64, seed=1), np.arange(t) * 3 % max(t, 1))


SIDES = """
program p(%x: f32[1000] arg "x", %p: bool[] arg "p") {
  cond %p {
    const %a = %x                                : f32[1000]
    join  %y = %d else %g                        : f32[]
    join  %z = %a else %e                        : f32[1000]
    then
      %b = tanh(%a)                              : f32[1000]
      %d = sum(%b, axes=[0])                     : f32[]
    else
      %e = exp(%a)                               : f32[1000]
      %f = multiply(%e, %e)                      : f32[1000]
      %g = sum(%f, axes=[0])                     : f32[]
  }
  return %y, %z
}
"""


def test_the_sides_of_a_branch_share_memory_and_write_into_the_results():
    program = parsed(SIDES)
    lowered = lower(program, cpu.machine())
    (branch,) = (q for q in lowered.launches if isinstance(q, Branch))
    own = [
        {v.buffer for q in side for v in views(q) if v.buffer.kind == "arena"}
        for side in blocks(branch)
    ]
    layout = arena.layout(lowered.launches)
    assert [len(q) for q in own] == [1, 1] and layout.fixed < 2 * 4000
    assert len(copies(every(lowered.launches))) == 1, "only the value that is handed on"
    for p in (False, True):
        same(executor.compile(program), program, floats(1000), np.asarray(p))


PACKED = """
program p(%x: f32[T,4,64] arg "x", %w: f32[64,64] param "w", %p: bool[] arg "p") {
  cond %p {
    const %v = %w                                : f32[64,64]
    const %xs = %x                               : f32[T,4,64]
    join  %y = %a else %b                        : f32[T,4,64]
    then
      scan %t < T {
        const %u = %v                            : f32[64,64]
        seq   %xt = %xs[t]                       : f32[4,64]
        stack %a = %m axis 0                     : f32[T,4,64]
        body
          %m = matmul(%xt, %u)                   : f32[4,64]
      }
    else
      %b = tanh(%xs)                             : f32[T,4,64]
  }
  scan %r < T {
    const %u2 = %w                               : f32[64,64]
    seq   %y2 = %y[r]                            : f32[4,64]
    stack %z = %k axis 0                         : f32[T,4,64]
    body
      %k = matmul(%y2, %u2)                      : f32[4,64]
  }
  return %z
}
"""


def test_weights_packed_in_a_branch_are_packed_again_outside():
    program = parsed(PACKED)
    top = cpu.machine().legalize(lower(program, cpu.machine())).launches
    assert [sum(isinstance(q, Pack) for q in qs) for qs in (top, every(top))] == [1, 2]
    run = executor.compile(program)
    for t in (0, 1, 3):
        for p in (False, True):
            same(run, program, floats(t, 4, 64), floats(64, 64, seed=1) / 8, np.asarray(p))


NESTED = """
program p(%x: f32[T,B] arg "x", %k: i64[T] arg "k", %p: bool[] arg "p", %n: f32[B] buffer "n") {
  cond %p {
    const %xx = %x                               : f32[T,B]
    const %kk = %k                               : i64[T]
    const %m = %n                                : f32[B]
    join  %y = %ys else %xx                      : f32[T,B]
    join  %n2 = %mT else %m                      : f32[B]
    then
      %one = full(value=1, dtype=i64)            : i64[]
      %zero = full(value=0, dtype=i64)           : i64[]
      scan %t < T {
        const %o = %one                          : i64[]
        const %z = %zero                         : i64[]
        seq   %xt = %xx[-t+T-1]                  : f32[B]
        seq   %kt = %kk[t]                       : i64[]
        carry %m1 = %m then %m3 last %mT         : f32[B]
        stack %ys = %s axis 0                    : f32[T,B]
        body
          %g0 = greater_than(%kt, %z)            : bool[]
          while %u TRIP as n1 {
            go    %g0 then %g
            const %o2 = %o                       : i64[]
            const %x2 = %xt                      : f32[B]
            const %k2 = %kt                      : i64[]
            carry %h = %m1 then %h2 last %m3     : f32[B]
            stack %hs = %h2 axis 1               : f32[B,n1]
            body
              %h2 = add(%h, %x2)                 : f32[B]
              %u2 = add(%u, %o2)                 : i64[]
              %g = less_than(%u2, %k2)           : bool[]
          }
          %s = sum(%hs, axes=[1])                : f32[B]
      }
    else
  }
  return %y
  write %n = %n2
}
"""


@pytest.mark.parametrize("trip", ["< 3", "< B", ""])
def test_a_while_in_a_scan_in_a_cond(trip):
    program = parsed(NESTED, TRIP=trip)
    run = executor.compile(program)
    for t, b in ((0, 2), (1, 1), (4, 3), (2, 0)):
        for p in (False, True):
            k = np.arange(t) % 5
            same(run, program, floats(t, b), k, np.asarray(p), floats(b, seed=1))


def nested(depth):
    """cond in cond in cond, each side a chain of updates."""
    x, n, ps = Value(parse_type("f32[8]")), Value(parse_type("f32[8]")), []

    def level(b, x, ps):
        if not ps:
            return b.tanh(x)
        ins = [Const(Value(v.type), v) for v in (x, *ps[1:])]
        inner = [p.inner for p in ins]
        sides = [Builder(), Builder()]
        out = [level(sides[0], sides[0].add(inner[0], inner[0]), inner[1:]), inner[0]]
        join = Join(Value(x.type), *out)
        b.append(Cond(ps[0], tuple(ins), *(tuple(s.ops) for s in sides), (join,)))
        return b.tanh(join.outer)

    ps = [Value(Type(BOOL), f"p{k}") for k in range(depth)]
    b = Builder()
    out = level(b, n, ps)
    inputs = [Input(v, "arg", f"x{k}") for k, v in enumerate([x, n, *ps])]
    return ir.verify(Program("p", tuple(inputs), tuple(b.ops), (out,), ((n, out),)))


def test_a_copy_at_the_end_of_a_branch_overwrites_no_other_result():
    text = """program f(%x: f64[3,4] arg "x", %y: f64[3,4] arg "y", %p: bool[] arg "p") {
      %a = neg(%x)                                 : f64[3,4]
      %b = neg(%y)                                 : f64[3,4]
      cond %p {
        const %a1 = %a                             : f64[3,4]
        const %b1 = %b                             : f64[3,4]
        join  %c = %a1 else %c1                    : f64[3,4]
        join  %h = %b1 else %h1                    : f64[3,4]
        then
        else
          fused [3, 4] {
            const %u = %a1                         : f64[3,4]
            const %v = %b1                         : f64[3,4]
            out   %h2 = %s                         : f64[3,4]
            out   %c2 = %d                         : f64[3,4]
            body
              %s = add(%u, %v)                     : f64[3,4]
              %d = scale(%s, scale=0.5)            : f64[3,4]
          }
          scan %t < 2 {
            carry %c3 = %c2 then %d3 last %c1      : f64[3,4]
            carry %h3 = %h2 then %s3 last %h1      : f64[3,4]
            body
              fused [3, 4] {
                const %c4 = %c3                    : f64[3,4]
                const %h4 = %h3                    : f64[3,4]
                out   %s3 = %s4                    : f64[3,4]
                out   %d3 = %d4                    : f64[3,4]
                body
                  %s4 = add(%c4, %h4)              : f64[3,4]
                  %d4 = scale(%s4, scale=0.5)      : f64[3,4]
              }
          }
      }
      return %h
    }"""
    rng = np.random.default_rng(0)
    for flag in (True, False):
        run_text(text, rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), np.array(flag))


@pytest.mark.slow
def test_code_grows_linearly_with_the_depth_of_branches():
    target = current()
    sizes = []
    for depth in (4, 8, 16, 32):
        lowered = lower(nested(depth), cpu.machine())
        sizes.append(len(source(lowered, arena.layout(lowered.launches), target).text()))
    steps = np.diff(sizes) / [4, 8, 16]
    assert steps.max() < 1.5 * steps.min()
    program = nested(5)
    for bits in range(32):
        ps = [np.asarray(bool(bits >> k & 1)) for k in range(5)]
        same(executor.compile(program), program, floats(8), floats(8, seed=1), *ps)


# ---------------------------------------------------------------- checks
CHECK = """
program p(%x: f32[3] arg "x", %ok: bool[] arg "ok", %n: f32[3] buffer "n") {
  %n2 = add(%n, %x)                              : f32[3]
  check(%ok) error="ERROR" message="x is %s: too large"               @ model.py:5
  return %n2
  write %n = %n2
}
"""
CHECK = CHECK.replace('check(%ok) error="ERROR" message="x', 'check(%ok, error="ERROR", message="x')
CHECK = CHECK.replace('too large"  ', 'too large")')


@pytest.mark.parametrize("error", ["AssertionError", "KeyError", "StopIteration", "OSError"])
def test_a_check_raises_what_it_names_and_nothing_is_written(error):
    program = parsed(CHECK, ERROR=error)
    run = executor.compile(program)
    n = floats(3)
    kind = getattr(builtins, error)
    with pytest.raises(kind) as caught:
        run(floats(3), np.asarray(False), n)
    where = "" if hasattr(caught.value, "add_note") else " (model.py:5)"
    assert caught.value.args == (f"x is %s: too large{where}",)
    np.testing.assert_array_equal(n, floats(3))
    same(run, program, floats(3), np.asarray(True), n)


@pytest.mark.parametrize(
    "name, kind",
    [("ValueError", ValueError), ("NoSuchError", RuntimeError), ("len", RuntimeError)]
    + [("UnicodeDecodeError", RuntimeError), ("KeyboardInterrupt", KeyboardInterrupt)],
)
def test_the_exception_of_a_name(name, kind):
    assert exception(name) is kind
