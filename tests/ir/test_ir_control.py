# ruff: noqa: E501
"""While loops, branches and checks in the IR: what the verifier asks of them, their meaning, and
writes inside of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from ir import (
    ENDLESS,
    Carry,
    Cond,
    Const,
    Input,
    Join,
    LoopCondition,
    Op,
    Program,
    Require,
    Scan,
    Seq,
    Size,
    Stack,
    Type,
    Value,
    VerifyError,
    evaluate,
    parse,
    verify,
)
from ir.analysis.alias import AliasError
from ir.passes import functionalize
from ir.types import BOOL, F32, I64
from tests.ir.test_ir_random import assert_same_bits, outcome, program, random_inputs

T = Size.named("T")
X, ROW = Value(Type(F32, (T, 3)), "x"), Value(Type(F32, (3,)), "row")


# ---------------------------------------------------------------- the verifier
FLAG = Value(Type(BOOL), "flag")


def rejects(match: str, *ops, **more) -> None:
    inputs = tuple(Input(v, "arg", v.name) for v in (X, ROW, FLAG))
    with pytest.raises(VerifyError, match=match):
        verify(Program("p", inputs, ops, (), **more))


def test_the_verifier_rejects_while_loops():
    def while_(*ports, trip=T, count="n1", body=()) -> Scan:
        return Scan(Value(Type(I64)), trip, ports, tuple(body), count=count)

    def flag(name: str = "") -> Value:
        return Value(Type(BOOL), name)

    def always(v: Value) -> Op:
        return Op("full", (), (v,), {"value": True, "shape": (), "dtype": BOOL})

    a, b = flag(), flag()
    go, on = LoopCondition(FLAG, a), always(a)
    v, w = Value(ROW.type, "v"), Value(ROW.type, "w")
    rejects("one go port and a name", while_())
    rejects("one go port and a name", while_(go, count="", body=[on]))
    rejects("one go port and a name", while_(go, LoopCondition(FLAG, b), body=[on, always(b)]))
    rejects("a go port is bool", while_(LoopCondition(FLAG, v), Const(v, ROW)))
    rejects("before it is defined", while_(go))
    rejects("without a go port", while_(trip=ENDLESS, count=""))
    rejects("a seq port in", while_(go, Seq(v, X, 0), trip=ENDLESS, body=[on]))
    rejects("the count T of", while_(go, count="T", body=[on]))
    rejects(
        "the count n1 of", while_(go, body=[on]), while_(LoopCondition(FLAG, b), body=[always(b)])
    )
    tall = Value(Type(F32, (T, 3)))
    rejects("stack port", while_(go, Const(v, ROW), Stack(tall, v), body=[on]))
    size = Op("size", (), (Value(Type(I64)),), {"n": Size.named("n1")})
    rejects("a size that is not known there", size, while_(go, body=[on]))
    inside = while_(LoopCondition(a, b), body=[always(b)])
    outside = while_(go, count="n2", body=[on, inside])
    rejects("a size that is not known there", outside, size)
    require = Require(Size.named("n1"), "==", T)
    rejects("a size that no input has", while_(go, body=[on]), requires=(require,))
    last = Carry(w, ROW, v)
    rejects("before it is defined", while_(go, last, body=[on]))


def test_the_verifier_rejects_branches():
    def cond(*ins, then=(), orelse=(), outs=(), test=FLAG) -> Cond:
        return Cond(test, ins, tuple(then), tuple(orelse), tuple(outs))

    v, y = Value(ROW.type, "v"), Value(ROW.type, "y")
    neg = Op("neg", (v,), (Value(ROW.type),))
    rejects("the test of a cond", cond(test=ROW))
    rejects("before it is defined", cond(test=Value(Type(BOOL))))
    rejects("const port", cond(Const(v, X)))
    rejects("before it is defined", cond(outs=[Join(y, ROW, ROW)]))
    rejects("before it is defined", cond(then=[neg]))
    rejects("before it is defined", cond(Const(v, ROW), then=[neg], outs=[Join(y, v, neg.result)]))
    rejects("join of", cond(Const(v, ROW), outs=[Join(Value(X.type), v, v)]))
    rejects("defined twice", cond(Const(v, ROW), outs=[Join(y, v, v), Join(y, v, v)]))
    check = Op("check", (FLAG,), (), {"error": "SystemExit", "message": ""})
    rejects("raises 'SystemExit', which is no exception", check)
    rejects("it takes bool", Op("check", (ROW,), (), {"error": "ValueError", "message": ""}))


# ---------------------------------------------------------------- meaning
COUNTDOWN = """
program p(%x: f32[3] arg "x", %n: i64[] arg "n") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %p = greater_than(%n, %zero)  : bool[]
  while %t < 5 as n1 {
    go %p then %q
    const %zero1 = %zero  : i64[]
    carry %m = %n then %m2 last %mT  : i64[]
    carry %h = %x then %h2 last %hT  : f32[3]
    stack %ys = %h2 axis 1  : f32[3,n1]
    body
      %one = full(value=1, dtype=i64)  : i64[]
      %m2 = subtract(%m, %one)  : i64[]
      %h2 = add(%h, %h)  : f32[3]
      %q = greater_than(%m2, %zero1)  : bool[]
  }
  %c = size(n=2*n1)  : i64[]
  return %mT, %hT, %ys, %c
}"""


@pytest.mark.parametrize("n, runs", [(-1, 0), (0, 0), (1, 1), (4, 4), (5, 5), (9, 5)])
def test_a_while_loop_runs_while_it_may_go(n, runs):
    x = np.array([1, -2, 3], np.float32)
    (m, h, ys, c), _ = evaluate(program(COUNTDOWN), [x, np.int64(n)])
    assert m == n - runs and c == 2 * runs and ys.shape == (3, runs)
    np.testing.assert_array_equal(h, x * 2**runs)
    np.testing.assert_array_equal(ys, np.stack([x * 2**i for i in range(runs + 1)], 1)[:, 1:])


ROOT = """
program p(%x: f32[] arg "x", %y: f32[2] arg "y") {
  %zero = full(value=0.0, dtype=f32)  : f32[]
  %ok = greater_equal(%x, %zero)  : bool[]
  cond %ok {
    const %x1 = %x  : f32[]
    const %y1 = %y  : f32[2]
    join %r = %s else %x1  : f32[]
    then
      %s = sqrt(%x1)  : f32[]
    else
      %first = index(%y1, axis=0, index=0)  : f32[]
      copy_(%first, %x1)
      %bad = full(value=False, dtype=bool)  : bool[]
      check(%bad, error="ValueError", message="a root of less than nothing")
  }
  return %r
}"""


def test_only_the_branch_taken_runs():
    (r,), _ = evaluate(program(ROOT), [np.float32(9), np.zeros(2, np.float32)])
    assert r == 3
    with pytest.raises(ValueError, match="a root of less than nothing"):
        evaluate(program(ROOT), [np.float32(-9), np.zeros(2, np.float32)])


def test_a_branch_writes_into_the_storage_outside():
    text = ROOT.replace("%bad = full(value=False", "%bad = full(value=True")
    text = text.replace("return %r", "return %r, %y")
    (r, y), _ = evaluate(program(text), [np.float32(-9), np.zeros(2, np.float32)])
    assert r == -9 and list(y) == [-9, 0]


# ---------------------------------------------------------------- writes
WRITES = {
    "in_one_branch": """
program p(%p: bool[] arg "p", %x: f32[T,3] buffer "x", %y: f32[T] arg "y") {
  %v = index(%x, axis=1, index=1)  : f32[T]
  cond %p {
    const %v1 = %v  : f32[T]
    const %y1 = %y  : f32[T]
    then
      copy_(%v1, %y1)
    else
  }
  %w = neg(%v)  : f32[T]
  return %w
}""",
    "in_both_through_other_views": """
program p(%p: bool[] arg "p", %x: f32[4,T] arg "x", %y: f32[2,T] arg "y") {
  cond %p {
    const %x1 = %x  : f32[4,T]
    const %y1 = %y  : f32[2,T]
    join %r = %b else %n  : f32[2,T]
    then
      %a = slice(%x1, axis=0, start=0, length=2)  : f32[2,T]
      %b = slice(%x1, axis=0, start=1, length=2)  : f32[2,T]
      copy_(%a, %y1)
    else
      %c = slice(%x1, axis=0, start=3, length=2, step=-1)  : f32[2,T]
      %n = neg(%c)  : f32[2,T]
      copy_(%c, %n)
  }
  return %r
}""",
    "views_of_outside_see_it": """
program p(%p: bool[] arg "p", %i: i64[] arg "i", %x: f32[4,T] arg "x", %y: f32[T] arg "y") {
  %row = dynamic_index(%x, %i, axis=0)  : f32[T]
  %t = transpose(%x, perm=[1, 0])  : f32[T,4]
  cond %p {
    const %x1 = %x  : f32[4,T]
    const %row1 = %row  : f32[T]
    const %t1 = %t  : f32[T,4]
    const %y1 = %y  : f32[T]
    join %a = %first else %last  : f32[T]
    join %b = %row1 else %y1  : f32[T]
    then
      %before = neg(%row1)  : f32[T]
      copy_(%row1, %y1)
      %c = index(%t1, axis=1, index=0)  : f32[T]
      %first = add(%c, %before)  : f32[T]
      %all = neg(%x1)  : f32[4,T]
      copy_(%x1, %all)
    else
      %last = index(%t1, axis=1, index=3)  : f32[T]
  }
  %sum = add(%a, %b)  : f32[T]
  return %sum, %row
}""",
    "branch_in_a_loop_in_a_branch": """
program p(%p: bool[] arg "p", %x: f32[T,2] buffer "x", %y: f32[T] arg "y") {
  cond %p {
    const %p1 = %p  : bool[]
    const %x1 = %x  : f32[T,2]
    const %y1 = %y  : f32[T]
    then
      scan %t < T {
        const %x2 = %x1  : f32[T,2]
        seq %yt = %y1[t]  : f32[]
        body
          %zero = full(value=0.0, dtype=f32)  : f32[]
          %q = less_than(%yt, %zero)  : bool[]
          cond %q {
            const %t1 = %t  : i64[]
            const %x3 = %x2  : f32[T,2]
            const %yt1 = %yt  : f32[]
            then
              %r = dynamic_index(%x3, %t1, axis=0)  : f32[2]
              %e = index(%r, axis=0, index=0)  : f32[]
              copy_(%e, %yt1)
            else
              %col = index(%x3, axis=1, index=1)  : f32[T]
              %d = add(%col, %yt1)  : f32[T]
              copy_(%col, %d)
          }
      }
    else
  }
  return
}""",
    "counter_of_a_while_loop": """
program p(%x: f32[3] arg "x", %n: i64[2] buffer "n") {
  %one = full(value=1, dtype=i64)  : i64[]
  %m = index(%n, axis=0, index=1)  : i64[]
  %p = greater_than(%m, %one)  : bool[]
  while %t as n1 {
    go %p then %q
    const %m1 = %m  : i64[]
    const %one1 = %one  : i64[]
    carry %h = %x then %h2 last %hT  : f32[3]
    stack %ms = %m1 axis 0  : i64[n1]
    body
      %less = subtract(%m1, %one1)  : i64[]
      copy_(%m1, %less)
      %q = greater_than(%m1, %one1)  : bool[]
      %h2 = neg(%h)  : f32[3]
  }
  return %hT, %ms, %m
}""",
    "fresh_tensors_joined": """
program p(%p: bool[] arg "p", %x: f32[3] arg "x") {
  cond %p {
    const %x1 = %x  : f32[3]
    join %y = %a else %b  : f32[3]
    then
      %a = neg(%x1)  : f32[3]
    else
      %b = add(%x1, %x1)  : f32[3]
  }
  copy_(%y, %x)
  %z = index(%y, axis=0, index=2)  : f32[]
  copy_(%x, %x)
  return %y, %z
}""",
    "only_one_branch_makes_a_join_doubtful": """
program p(%p: bool[] arg "p", %x: f32[3] arg "x", %y: f32[3] arg "y") {
  cond %p {
    const %x1 = %x  : f32[3]
    const %y1 = %y  : f32[3]
    join %j = %x1 else %y1  : f32[3]
    then
    else
  }
  %z = full(value=0.0, shape=[3], dtype=f32)  : f32[3]
  cond %p {
    const %x2 = %x  : f32[3]
    const %z1 = %z  : f32[3]
    const %j1 = %j  : f32[3]
    then
      copy_(%x2, %z1)
    else
      %n = neg(%j1)  : f32[3]
      copy_(%z1, %n)
  }
  return %z, %x
}""",
    "endless_loop_that_starts": """
program p(%x: f32[3] arg "x", %n: i64[] arg "n") {
  %yes = full(value=True, dtype=bool)  : bool[]
  while %t as n1 {
    go %yes then %q
    const %n1_ = %n  : i64[]
    carry %h = %x then %h2 last %hT  : f32[3]
    body
      %h2 = neg(%h)  : f32[3]
      %q = less_than(%t, %n1_)  : bool[]
  }
  %w = add(%hT, %hT)  : f32[3]
  copy_(%hT, %w)
  return %hT
}""",
}


def check_both_ways(rewrite, before: Program, golden=None, exact: bool = True) -> Program:
    """`check`, with inputs that take every branch; where `before` raises, so must the rewritten."""
    after = verify(rewrite(before))
    if golden is not None:
        assert str(after) == golden
    assert str(parse(str(after))) == str(after)
    for seed in range(8):
        inputs = random_inputs(before, {"T": seed % 4, "B": 3}, seed)
        want, have = outcome(before, inputs), outcome(after, inputs)
        if isinstance(want, str):
            assert have == want
            continue
        for a, b in zip(want, have):
            assert_same_bits(a, b) if exact else np.testing.assert_allclose(a, b, rtol=2e-5)
    return after


@pytest.mark.parametrize("name", WRITES)
def test_writes_inside(name, golden):
    check_both_ways(functionalize, program(WRITES[name]), golden)


JOINED = """
program p(%p: bool[] arg "p", %x: f32[3] arg "x", %y: f32[3] arg "y") {{
  cond %p {{
    const %x1 = %x  : f32[3]
    const %y1 = %y  : f32[3]
    join %j = %x1 else %y1  : f32[3]
    then
    else
  }}
  {}
}}"""
LOOPED = """
program p(%xs: f32[T,3] arg "xs", %p: bool[] arg "p", %x: f32[3] const "x") {{
  %h0 = full(value=0.0, shape=[3], dtype=f32)  : f32[3]
  scan %t < T {{
    seq %r = %xs[t]  : f32[3]
    const %p1 = %p  : bool[]
    const %x1 = %x  : f32[3]
    carry %h = %h0 then %f last %hT  : f32[3]
    carry %k = %h0 then %f last %kT  : f32[3]
    stack %ys = %y axis 0  : f32[T,3]
    body
      %y = add(%{read}, %r)  : f32[3]
      cond %p1 {{
        const %o = %{other}  : f32[3]
        join %j = %o else %n  : f32[3]
        then
        else
          %n = neg(%o)  : f32[3]
      }}
      copy_(%j, %r)  @ model.py:7
      %f = add(%r, %r)  : f32[3]
  }}
  return %ys, %kT
}}"""
ENDED = """
program p(%x: f32[3] arg "x", %p: bool[] arg "p") {{
  {before}while %t < 3 as n1 {{
    go %{go} then %q
    carry %h = %x then %h2 last %hT  : f32[3]
    body
      %h2 = neg(%h)  : f32[3]
      %q = full(value=True, dtype=bool)  : bool[]
  }}
  copy_(%hT, %hT)  @ model.py:7
  return %x
}}"""
DOUBTFUL = {
    "a join of two arguments": JOINED.format("copy_(%j, %x)  @ model.py:7\n  return %x"),
    "an argument that a join may be": JOINED.format("copy_(%x, %y)  @ model.py:7\n  return %j"),
    "a view of a join": JOINED.format(
        "%v = slice(%j, axis=0, start=1, length=2)  : f32[2]\n  copy_(%v, %v)  @ model.py:7\n"
        "  return %y"
    ),
    "what was read earlier in the iteration": LOOPED.format(read="x1", other="x1"),
    "what may be a loop variable": LOOPED.format(read="k", other="h"),
    "the last value of a loop that may not start": ENDED.format(before="", go="p"),
    "the last value of a loop whose flag is written": ENDED.format(
        before="%yes = full(value=True, dtype=bool)  : bool[]\n  copy_(%yes, %p)\n  ", go="yes"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_storage_that_depends_on_the_branch_is_refused(name):
    with pytest.raises(AliasError, match="model.py:7"):
        functionalize(program(DOUBTFUL[name]))
