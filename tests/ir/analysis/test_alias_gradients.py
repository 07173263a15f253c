"""The writes that eager leaves out of a gradient, on programs as they are captured."""

from __future__ import annotations

import pytest

from ir import Op, parse
from ir.analysis import alias_gradients
from ir.analysis.alias_gradients import AutogradWrite, GradientFacts, ignored_writes
from ir.loc import UNKNOWN
from ir.program import Builder, Input, Program, Value
from ir.types import F32, Type
from ir.uses import walk

HEAD = 'program p(%a: f32[3,4] arg "a", %b: f32[4] arg "b") {'

READ_BEHIND = """
  %h = scale(%a, scale=2.0) : f32[3,4] @ m.py:1
  %v = index(%h, axis=0, index=0) : f32[4] @ m.py:2
  %n = multiply(%v, %b) : f32[4] @ m.py:3
  copy_(%v, %n) @ m.py:3
  %y = tanh(%h) : f32[3,4] @ m.py:4
  return %y
"""

READ_BEFORE = """
  %h = scale(%a, scale=2.0) : f32[3,4] @ m.py:1
  %y = tanh(%h) : f32[3,4] @ m.py:2
  %v = index(%h, axis=0, index=0) : f32[4] @ m.py:3
  copy_(%v, %b) @ m.py:3
  return %y
"""

APART = """
  %h = scale(%a, scale=2.0) : f32[3,4] @ m.py:1
  %v = index(%h, axis=0, index=0) : f32[4] @ m.py:2
  %w = index(%h, axis=0, index=1) : f32[4] @ m.py:3
  copy_(%v, %b) @ m.py:4
  %y = tanh(%w) : f32[4] @ m.py:5
  return %y
"""

NEXT_ITERATION = """
  %h = scale(%a, scale=2.0) : f32[3,4] @ m.py:1
  %w = slice(%h, axis=0, start=0, length=2, step=1) : f32[2,4] @ m.py:2
  scan %t < 3 { @ m.py:3
    const %h1 = %h : f32[3,4]
    const %w1 = %w : f32[2,4]
    const %b1 = %b : f32[4]
    carry %s = %b then %s1 last %out : f32[4]
    body
      %r = index(%w1, axis=0, index=0) : f32[4] @ m.py:4
      %s1 = add(%s, %r) : f32[4] @ m.py:4
      %v = index(%h1, axis=0, index=0) : f32[4] @ m.py:5
      copy_(%v, %b1) @ m.py:5
  }
  return %out
"""

CASES = {
    "read behind the write": (READ_BEHIND, "v", {3: 4}),
    "through the object that is read": (READ_BEHIND, "h", {}),
    "read before the write": (READ_BEFORE, "v", {}),
    "views that are apart": (APART, "v", {}),
    "read in the next iteration": (NEXT_ITERATION, "v", {5: 4}),
}


def named(program):
    ops = [op for op in walk(program.ops) if isinstance(op, Op)]
    return ops, {v.name: v for op in ops for v in op.results}


@pytest.mark.parametrize("name", CASES)
def test_ignored_writes(name):
    text, target, want = CASES[name]
    program = parse(f"{HEAD}{text}}}")
    ops, values = named(program)
    write = next(op for op in ops if op.name == "copy_")
    writes = {write: AutogradWrite(values[target], ignored=True)}
    found = ignored_writes(program, GradientFacts(writes, set(values.values())), ())
    assert {w.line: r.line for w, r in found.items()} == want


def test_a_result_that_has_not_seen_the_write():
    program = parse(f"{HEAD}{READ_BEFORE}}}")
    ops, values = named(program)
    write = next(op for op in ops if op.name == "copy_")
    facts = GradientFacts({write: AutogradWrite(values["v"], ignored=True)}, set(values.values()))
    assert ignored_writes(program, facts, [values["h"]]) == {write.loc: UNKNOWN}
    facts.writes[write] = AutogradWrite(values["v"], ignored=False)
    assert ignored_writes(program, facts, [values["h"]]) == {}


def test_writes_of_single_rows_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is read and written in place: no other row is compared with it."""
    length, compared = 50, []
    apart = alias_gradients._apart
    monkeypatch.setattr(
        alias_gradients, "_apart", lambda *views: compared.append(views) or apart(*views)
    )
    b, facts = Builder(), GradientFacts()
    rows = Value(Type(F32, (length, 4)), "rows")
    for k in range(length):
        row = b.index(rows, axis=0, index=k)
        new = b.exp(row)
        b.emit("copy_", [row, new])
        facts.writes[b.ops[-1]] = AutogradWrite(row, ignored=True)
        facts.trained.add(new)
        b.index(rows, axis=0, index=length - 1 - k)
    out = b.sum(rows, axes=(0, 1))
    program = Program("rows", (Input(rows, "arg", "rows"),), tuple(b.ops), (out,))
    assert ignored_writes(program, facts, []) == {}
    assert len(compared) <= 4 * length
