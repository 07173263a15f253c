"""Copies that a plan keeps: exactly these, each with its reason; everything else is in place."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from tests.executor.test_executor import run_text

SGD = """
program p(%w: f32[N] param "w", %m: f32[N] buffer "m", %g: f32[N] arg "g") {
  %a = scale(%m, scale=0.9)                      : f32[N]       @ sgd.py:1
  %m2 = add(%a, %g)                              : f32[N]       @ sgd.py:2
  %b = scale(%m2, scale=0.1)                     : f32[N]       @ sgd.py:3
  %w2 = subtract(%w, %b)                         : f32[N]       @ sgd.py:4
  return
  write %m = %m2
  write %w = %w2
}"""

LSTM_STATE = """
program p(%h: f32[2,3] buffer "h", %c: f32[2,3] buffer "c", %x: f32[T,2,3] arg "x", %w: f32[3,3] param "w") {
  scan %t < T {                                                 @ cell.py:1
    const %v = %w                                : f32[3,3]
    seq   %y = %x[t]                             : f32[2,3]
    carry %h1 = %h then %h2 last %hT             : f32[2,3]
    carry %c1 = %c then %c2 last %cT             : f32[2,3]
    body
      %p = matmul(%h1, %v)                       : f32[2,3]     @ cell.py:2
      %q = add(%p, %y)                           : f32[2,3]     @ cell.py:2
      %c2 = add(%c1, %q)                         : f32[2,3]     @ cell.py:3
      %h2 = tanh(%c2)                            : f32[2,3]     @ cell.py:4
  }
  return
  write %h = %hT
  write %c = %cT
}"""  # noqa: E501

CACHE = """
program p(%cache: f32[C,3] buffer "cache", %x: f32[T,3] arg "x", %pos: i64[T] arg "pos") {
  scan %t < T {                                                 @ cache.py:1
    seq   %row = %x[t]                           : f32[3]
    seq   %at = %pos[t]                          : i64[]
    carry %c1 = %cache then %c2 last %c3         : f32[C,3]
    stack %s = %sum axis 0                       : f32[T]
    body
      %c2 = set_dynamic_index(%c1, %row, %at, axis=0)   : f32[C,3]     @ cache.py:2
      %sum = sum(%c2)                            : f32[]        @ cache.py:3
  }
  return %s
  write %cache = %c3
}"""

SLICE = """
program p(%x: f32[8,3] arg "x", %y: f32[2,3] arg "y") {
  %part = slice(%x, axis=0, start=2, length=2)   : f32[2,3]     @ s.py:1
  %new = add(%part, %y)                          : f32[2,3]     @ s.py:1
  %x2 = set_slice(%x, %new, axis=0, start=2)     : f32[8,3]     @ s.py:1
  return
  write %x = %x2
}"""

ASSIGNED_IN_A_BRANCH = """
program p(%n: f32[3,3] buffer "n", %x: f32[3,3] arg "x", %go: bool[] arg "go") {
  cond %go {                                                    @ b.py:1
    const %a = %n                                : f32[3,3]
    const %y = %x                                : f32[3,3]
    join  %n2 = %b else %a                       : f32[3,3]
    then
      %q = tanh(%a)                              : f32[3,3]     @ b.py:2
      %b = matmul(%y, %q)                        : f32[3,3]     @ b.py:3
    else
  }
  return
  write %n = %n2
}"""

CHAIN = """
program p(%x: f32[4,4] arg "x", %w: f32[4,4] param "w") {
  %a = matmul(%x, %w)                            : f32[4,4]
  %b = tanh(%a)                                  : f32[4,4]
  %c = matmul(%b, %w)                            : f32[4,4]
  %d = transpose(%b, perm=[1,0])                 : f32[4,4]
  %e = exp(%c)                                   : f32[4,4]
  %f = concat(%d, %e, axis=1)                    : f32[4,8]
  %g = reshape(%e, shape=[16])                   : f32[16]
  return %f, %g
}"""

TWO_CACHES = """
program p(%c: f32[9,3] buffer "c", %d: f32[9,3] buffer "d", %x: f32[3] arg "x", %at: i64[] arg "at") {
  %c2 = set_dynamic_index(%c, %x, %at, axis=0)          : f32[9,3]     @ d.py:1
  %s = sum(%c2, axes=[0])                        : f32[3]       @ d.py:2
  %d2 = set_dynamic_index(%d, %s, %at, axis=0)          : f32[9,3]     @ d.py:3
  %y = sum(%d2, axes=[0])                        : f32[3]       @ d.py:4
  return %y
  write %c = %c2
  write %d = %d2
}"""  # noqa: E501

PART_OF_A_ROW = """
program p(%y: f32[4,6] arg "y", %x: f32[4,2] arg "x") {
  scan %t < 4 {                                                 @ r.py:1
    seq   %v = %x[t]                             : f32[2]
    carry %a = %y then %b last %yT               : f32[4,6]
    body
      %row = dynamic_index(%a, %t, axis=0)              : f32[6]       @ r.py:2
      %w = tanh(%v)                              : f32[2]       @ r.py:2
      %row2 = set_slice(%row, %w, axis=0, start=3) : f32[6]     @ r.py:2
      %b = set_dynamic_index(%a, %row2, %t, axis=0)     : f32[4,6]     @ r.py:2
  }
  return
  write %y = %yT
}"""

BATCH_FIRST = """
program p(%x: f32[T,B,3] arg "x", %h: f32[B,3] arg "h") {
  scan %t < T {                                                 @ t.py:1
    seq   %v = %x[t]                             : f32[B,3]
    const %g = %h                                : f32[B,3]
    stack %s = %w axis 0                         : f32[T,B,3]
    body
      %w = add(%v, %g)                           : f32[B,3]     @ t.py:2
  }
  %y = transpose(%s, perm=[1,0,2])               : f32[B,T,3]   @ t.py:3
  return %y
}"""

STACKED_TWICE = """
program p(%x: f32[T,3] arg "x") {
  %zero = full(value=0.0, shape=[3], dtype=f32)  : f32[3]
  scan %t < T {                                                 @ l.py:1
    seq   %y = %x[t]                             : f32[3]
    carry %h1 = %zero then %h                    : f32[3]
    stack %s = %h axis 0                         : f32[T,3]
    body
      %h = add(%h1, %y)                          : f32[3]       @ l.py:2
  }
  return %s
}"""

NOTHING = {
    "parameters and moments": SGD,
    "recurrent state": LSTM_STATE,
    "cache at indices from data": CACHE,
    "slice of an argument": SLICE,
    "pieces of a concat": CHAIN,
    "one branch writes": ASSIGNED_IN_A_BRANCH,
    "two caches at one index from data": TWO_CACHES,
    "part of a row of an argument": PART_OF_A_ROW,
    "transposed output of a loop": BATCH_FIRST,
}


def copies(text):
    run = executor.compile(ir.verify(ir.parse(text)))
    return [f"{c.name}: {c.reason}" for c in run.copies]


@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_nothing_is_copied(text):
    assert copies(text) == []


def program(body, inputs='%x: f32[3] arg "x", %y: f32[3] arg "y"'):
    return f"program p({inputs}) {{\n{body.strip()}\n}}"


KEPT = {
    "old value read later": (
        program("""
  %a = scale(%x, scale=2.0) : f32[3] @ m.py:1
  %b = multiply(%x, %y)     : f32[3] @ m.py:2
  return %b
  write %x = %a"""),
        ["a: its old value is read later, at m.py:2"],
    ),
    "old value is an output": (
        program("""
  %a = add(%x, %y) : f32[3] @ m.py:1
  return %x
  write %x = %a"""),
        [
            "x: an output is the value of x, or a part of it",
            "a: its old value is needed to the end",
        ],
    ),
    "read while the new value is made": (
        program(
            """
  %a = matmul(%w, %w) : f32[3,3] @ m.py:7
  return
  write %w = %a""",
            '%w: f32[3,3] param "w"',
        ),
        ["a: its old value is read while the new one is made, at m.py:7"],
    ),
    "another argument's value": (
        program("""
  return
  write %x = %y"""),
        ["y: it gets the value of another tensor as it is"],
    ),
    "exchange": (
        program("""
  return
  write %x = %y
  write %y = %x"""),
        [
            "y: what it is a part of gets another value first",
            "x: it gets the value of another tensor as it is",
            "y: it gets the value of another tensor as it is",
        ],
    ),
    "two outputs": (
        program("""
  %a = add(%x, %y) : f32[3] @ m.py:1
  return %a, %a"""),
        ["a: two outputs hold the same value"],
    ),
    "written and returned": (
        program("""
  %a = add(%x, %y) : f32[3] @ m.py:1
  return %a
  write %x = %a"""),
        ["a: x and an output hold the same value"],
    ),
    "argument that is not written": (
        program(
            """
  %a = set_index(%x, %z, axis=0, index=1) : f32[3] @ m.py:3
  return %a""",
            '%x: f32[3] arg "x", %z: f32[] arg "z"',
        ),
        ["x: x itself must stay as it is"],
    ),
    "may fail later": (
        program(
            """
  %a = set_dynamic_index(%c, %y, %i, axis=0) : f32[4,3] @ m.py:1
  %b = set_dynamic_index(%d, %y, %j, axis=0) : f32[4,3] @ m.py:2
  return
  write %c = %a
  write %d = %b""",
            '%c: f32[4,3] buffer "c", %d: f32[4,3] buffer "d", %y: f32[3] arg "y", '
            '%i: i64[] arg "i", %j: i64[] arg "j"',
        ),
        [
            "c: a call that fails changes nothing, and it may fail at m.py:2",
            "a: a call that fails changes nothing, and it may fail at m.py:2",
        ],
    ),
    "one branch writes what it reads": (
        ASSIGNED_IN_A_BRANCH.replace("matmul(%y, %q)", "matmul(%a, %q)"),
        ["b: its old value is read while the new one is made, at b.py:3"],
    ),
    "carried and collected": (
        STACKED_TWICE,
        [
            "h: the next state of the loop at l.py:1 and what the loop at l.py:1 collects "
            "hold the same value"
        ],
    ),
    "a loop that swaps": (
        program(
            """
  scan %t < 4 {                             @ m.py:1
    carry %a = %x then %b last %aT : f32[3]
    carry %b = %y then %a last %bT : f32[3]
    body
  }
  return %aT"""
        ),
        [
            "x: the loop at m.py:1 keeps two states: it gets the value of another tensor as it is",
            "y: the loop at m.py:1 keeps two states: it gets the value of another tensor as it is",
            "b: the next state of the loop at m.py:1 is the value of another tensor as it is",
            "a: the next state of the loop at m.py:1 is the value of another tensor as it is",
            "aT: an output is one of the two states that the loop at m.py:1 keeps",
        ],
    ),
}


@pytest.mark.parametrize(("text", "left"), KEPT.values(), ids=KEPT)
def test_copies_and_their_reasons(text, left):
    assert copies(text) == left


@pytest.mark.parametrize("text", [*NOTHING.values(), *(t for t, _ in KEPT.values())])
def test_values(text, monkeypatch):
    """The same programs against the reference, on memory that is poisoned where it is dead."""
    monkeypatch.setenv("DY2ST_POISON", "1")
    program = ir.parse(text)
    sizes = dict.fromkeys(program.sizes, 4)
    rng = np.random.default_rng(0)

    def array(t):
        if t.dtype.kind == "f":
            return rng.uniform(-1, 1, t.concrete(sizes)).astype(t.dtype.numpy)
        return rng.integers(0, 2, t.concrete(sizes)).astype(t.dtype.numpy)

    arrays = [np.asarray(array(i.value.type)) for i in program.inputs]
    run_text(text, *(a.copy() for a in arrays))


def test_a_copy_says_what_and_where():
    run = executor.compile(ir.parse(KEPT["old value read later"][0]))
    (copy,) = run.copies
    assert (copy.name, copy.bytes, copy.loop) == ("a", 12, None)
    assert copy.input is run.program.inputs[0] and str(copy.loc) == "m.py:1"
    (copy,) = executor.compile(ir.parse(STACKED_TWICE)).copies
    assert str(copy.loop) == "l.py:1" and copy.input is None
    assert str(copy).startswith("h, 12 bytes in every iteration of the loop at l.py:1: ")


def test_a_program_in_segments_stores_at_its_end():
    text = program("""
  %yes = full(value=True, dtype=bool)                      : bool[]
  while %t as n {
    go    %yes then %g
    const %o = %y                                          : f32[3]
    carry %h = %x then %h2 last %a                         : f32[3]
    stack %hs = %h axis 0                                  : f32[n,3]
    body
      %h2 = add(%h, %o)                                    : f32[3]
      %s = sum(%h2, axes=[0])                              : f32[]
      %m = full(value=9.0, dtype=f32)                      : f32[]
      %g = less_than(%s, %m)                               : bool[]
  }
  %k = sum(%hs, axes=[0])                                  : f32[3]
  %b = add(%a, %k)                                         : f32[3]
  return %b
  write %x = %b""")
    run = executor.compile(ir.parse(text))
    assert [c.name for c in run.copies] == ["b", "b"]
    assert [c.input.name if c.input else None for c in run.copies] == [None, "x"]
    assert all("segments" in c.reason for c in run.copies)


@pytest.mark.parametrize("text", [TWO_CACHES, KEPT["may fail later"][0]])
def test_a_call_that_fails_changes_nothing(text):
    run = executor.compile(ir.parse(text))
    shapes = [i.value.type.concrete({}) for i in run.program.inputs]
    floats = [np.ones(s, np.float32) for s in shapes if s]
    for bad in ([9, 9], [0, 9], [-10, 0]):
        indices = [np.asarray(n) for n in bad[: len(shapes) - len(floats)]]
        if len(indices) == 1 and bad[0] == 0:
            continue
        own = [a * 2 for a in floats]
        with pytest.raises(IndexError):
            run(*own, *indices)
        assert all((a == 2).all() for a in own)
